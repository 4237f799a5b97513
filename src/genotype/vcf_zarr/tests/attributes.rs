//! Attributes that change values: honoured, or refused by name.

use super::*;
use crate::{
    Device, Run,
    genotype::{Genotypes, PcaOptions, pca},
};

/// Dosages with a missing one in each row.
const DOSAGES: [[i8; 3]; 4] = [[0, 1, -1], [-1, 2, 0], [2, -1, 1], [1, 0, -1]];

fn v2_store(dtype: &str, attributes: &Value, bytes: Vec<u8>) -> Scratch {
    let scratch = Scratch::new();
    scratch.array("a", &v2(&[4, 3], &[4, 3], dtype, Value::Null), &[("0.0", bytes)]);
    scratch.put("a/.zattrs", attributes.to_string());
    scratch
}

fn v3_store(dtype: &str, attributes: &Value, bytes: Vec<u8>) -> Scratch {
    let scratch = Scratch::new();
    let codecs = json!([{ "name": "bytes", "configuration": { "endian": "little" } }]);
    let mut metadata = v3(&[4, 3], &[4, 3], dtype, codecs);
    metadata["attributes"] = attributes.clone();
    scratch.array("a", &metadata, &[("c/0/0", bytes)]);
    scratch
}

/// The dosages, with `missing` for what is missing.
fn bytes<const N: usize>(of: impl Fn(i8) -> [u8; N]) -> Vec<u8> {
    DOSAGES.as_flattened().iter().flat_map(|&dosage| of(dosage)).collect()
}

/// What tells the sums and the numbers of called samples of every variant.
fn digest(scratch: &Scratch) -> crate::Result<u64> {
    let store = GenotypeStore::open(scratch.path(), Some("a"), MissingChunk::Error)?;
    let genotypes = Genotypes::new(store.arrays().to_vec())?;
    let options = PcaOptions { components: 1, ..Default::default() };
    Ok(pca(&genotypes, &Device::cpu(), &options, &Run::default())?.digest)
}

#[test]
fn fill_values_are_missing() {
    let none = json!({});
    let plain = digest(&v2_store("|i1", &none, bytes(|x| [x.cast_unsigned()]))).unwrap();
    let or = |x: i8, missing: f32| if x < 0 { missing } else { x.into() };
    let wide = |x: i8| if x < 0 { 127_i8 } else { x };
    let stores = [
        v2_store("|u1", &json!({ "_FillValue": 255 }), bytes(|x| [x.cast_unsigned()])),
        v2_store("|u1", &json!({ "missing_value": [255] }), bytes(|x| [x.cast_unsigned()])),
        v2_store(
            "|i1",
            &json!({ "_FillValue": 127, "missing_value": 127 }),
            bytes(|x| [wide(x).cast_unsigned()]),
        ),
        v2_store("<i2", &json!({ "_FillValue": -32768 }), {
            bytes(|x| if x < 0 { i16::MIN } else { x.into() }.to_le_bytes())
        }),
        v2_store("<f4", &json!({ "_FillValue": "NaN", "scale_factor": 1, "add_offset": 0.0 }), {
            bytes(|x| or(x, f32::NAN).to_le_bytes())
        }),
        // Not a number that an f32 holds: the nearest one is meant.
        v2_store("<f4", &json!({ "_FillValue": 9.1e15 }), bytes(|x| or(x, 9.1e15).to_le_bytes())),
        // As xarray writes it.
        v3_store(
            "float32",
            &json!({ "_FillValue": "AAAAAAAA+H8=" }),
            bytes(|x| or(x, f32::NAN).to_le_bytes()),
        ),
        v3_store(
            "uint8",
            &json!({ "_FillValue": 255, "_Unsigned": "false" }),
            bytes(|x| [x.cast_unsigned()]),
        ),
    ];
    for (case, store) in stores.iter().enumerate() {
        assert_eq!(digest(store).unwrap(), plain, "{case}");
    }
    // Without the attribute, each of the first is an error.
    for store in [&stores[0], &stores[2], &stores[4], &stores[5]] {
        store.put("a/.zattrs", "{}");
        assert!(matches!(digest(store), Err(Error::Chunk { .. })));
    }
}

#[test]
fn others_are_refused_by_name() {
    let dosages = || bytes(|x| [x.cast_unsigned()]);
    for (attributes, name) in [
        (json!({ "scale_factor": 0.5 }), "scale_factor"),
        (json!({ "scale_factor": "1/2" }), "scale_factor"),
        (json!({ "add_offset": -1 }), "add_offset"),
        (json!({ "_Unsigned": "true" }), "_Unsigned"),
        (json!({ "_FillValue": "none" }), "_FillValue"),
        (json!({ "_FillValue": [1, 2] }), "_FillValue"),
        (json!({ "_FillValue": 3, "missing_value": 4 }), "missing_value"),
    ] {
        for store in [v2_store("|i1", &attributes, dosages()), v3_store("int8", &attributes, dosages())] {
            let error = digest(&store).unwrap_err();
            assert!(matches!(&error, Error::Store { .. }), "{error}");
            let error = error.to_string();
            assert!(error.contains(&format!("`{name}`")) && error.contains("/a:"), "{error}");
        }
    }
    for filter in ["fixedscaleoffset", "quantize", "astype"] {
        let scratch = Scratch::new();
        let mut metadata = v2(&[4, 3], &[4, 3], "|i1", Value::Null);
        metadata["filters"] = json!([{ "id": filter, "offset": 0, "scale": 2, "dtype": "|i1" }]);
        scratch.array("a", &metadata, &[("0.0", dosages())]);
        assert!(digest(&scratch).unwrap_err().to_string().contains(&format!("`{filter}`")));
        let mut metadata = v3(&[4, 3], &[4, 3], "int8", json!([{ "name": "bytes" }]));
        metadata["codecs"] = json!([{ "name": format!("numcodecs.{filter}") }, { "name": "bytes" }]);
        fs::remove_file(scratch.path().join("a/.zarray")).unwrap();
        scratch.array("a", &metadata, &[("c/0/0", dosages())]);
        assert!(digest(&scratch).unwrap_err().to_string().contains(filter));
    }
}

/// Calls have numbers of their own for missing and for padding; any other is an allele.
#[test]
fn calls_have_their_own_missing_values() {
    let scratch = Scratch::new();
    let calls = [0, 1, 255, 255, 1, 1, 0, 254, 0, 0, 1, 0];
    scratch.array("a", &v2(&[2, 3, 2], &[2, 3, 2], "|i1", Value::Null), &[("0.0.0", calls.to_vec())]);
    let plain = digest(&scratch).unwrap();
    for missing in [-1, -2] {
        scratch.put("a/.zattrs", json!({ "_FillValue": missing }).to_string());
        assert_eq!(digest(&scratch).unwrap(), plain);
    }
    scratch.put("a/.zattrs", json!({ "_FillValue": 0 }).to_string());
    assert!(digest(&scratch).unwrap_err().to_string().contains("`_FillValue`"));
}
