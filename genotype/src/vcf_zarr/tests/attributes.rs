//! Tests of attributes that change the meaning of values.

use teatime::{Device, Run};

use super::*;
use crate::{Genotypes, PcaOptions, pca};

/// Dosages with a missing one in each row.
const DOSAGES: [[i8; 3]; 4] = [[0, 1, -1], [-1, 2, 0], [2, -1, 1], [1, 0, -1]];

/// Writes a store of the dosages, each converted by `of`.
fn store<T: Storable>(format: ZarrFormat, attributes: Value, of: impl Fn(i8) -> T) -> Scratch {
    let scratch = Scratch::new();
    let mut spec = ArraySpec::new(T::STORED, &[4, 3], &[4, 3]);
    spec.format = format;
    spec.attributes = serde_json::from_value(attributes).unwrap();
    let dosages: Vec<T> = DOSAGES.as_flattened().iter().map(|&dosage| of(dosage)).collect();
    scratch.array("a", spec).write(&[0, 0], &dosages).unwrap();
    scratch
}

/// Returns the digest of each variant's sum and number of called samples.
fn digest(scratch: &Scratch) -> teatime::Result<u64> {
    let store = GenotypeStore::open(scratch.path(), Some("a"), MissingChunk::Error)?;
    let genotypes = Genotypes::new(store.arrays().to_vec())?;
    let options = PcaOptions { components: 1, ..Default::default() };
    Ok(pca(&genotypes, &Device::cpu(), &options, &Run::default())?.digest)
}

#[test]
fn fill_values_are_missing() {
    use ZarrFormat::{V2, V3};
    let plain = digest(&store(V2, json!({}), |x| x)).unwrap();
    let or = |x: i8, missing: f32| if x < 0 { missing } else { x.into() };
    let stores = [
        store(V2, json!({ "_FillValue": 255 }), i8::cast_unsigned),
        store(V2, json!({ "missing_value": [255] }), i8::cast_unsigned),
        store(V2, json!({ "_FillValue": 127, "missing_value": 127 }), |x| if x < 0 { 127 } else { x }),
        store(V2, json!({ "_FillValue": -32768 }), |x| if x < 0 { i16::MIN } else { x.into() }),
        store(V2, json!({ "_FillValue": "NaN", "scale_factor": 1, "add_offset": 0.0 }), |x| or(x, f32::NAN)),
        store(V2, json!({ "missing_value": -9 }), |x| or(x, -9.0)),
        // An f32 does not hold this value; the nearest f32 is meant.
        store(V2, json!({ "_FillValue": 9.1e15 }), |x| or(x, 9.1e15)),
        // xarray writes the value like this.
        store(V3, json!({ "_FillValue": "AAAAAAAA+H8=" }), |x| or(x, f32::NAN)),
        store(V3, json!({ "_FillValue": 255, "_Unsigned": "false" }), i8::cast_unsigned),
    ];
    for (case, store) in stores.iter().enumerate() {
        assert_eq!(digest(store).unwrap(), plain, "{case}");
    }
    // Without the attribute, each of these stores is an error.
    for store in [&stores[0], &stores[2], &stores[4], &stores[5], &stores[6]] {
        store.put("a/.zattrs", "{}");
        assert!(matches!(digest(store), Err(Error::Chunk { .. })));
    }
}

/// Calls have reserved values for missing alleles and for padding; any other value is an allele.
#[test]
fn calls_have_their_own_missing_values() {
    let scratch = Scratch::new();
    scratch.numbers("a", &[2, 3, 2], &[0_i8, 1, -1, -1, 1, 1, 0, -2, 0, 0, 1, 0]);
    let plain = digest(&scratch).unwrap();
    for missing in [-1, -2] {
        scratch.put("a/.zattrs", json!({ "_FillValue": missing }).to_string());
        assert_eq!(digest(&scratch).unwrap(), plain);
    }
    scratch.put("a/.zattrs", json!({ "_FillValue": 0 }).to_string());
    refused(digest(&scratch), &["`_FillValue`"]);
}

/// A VCF field with a value for each alternate allele, of which there is one, gives the dosages of an array of two axes.
#[test]
fn dosages_may_have_an_axis_of_one_element() {
    let dosages: Vec<f32> =
        DOSAGES.as_flattened().iter().map(|&x| if x < 0 { f32::NAN } else { x.into() }).collect();
    let digests = [&[4, 3][..], &[4, 3, 1]].map(|shape| {
        let scratch = Scratch::new();
        scratch.numbers("a", shape, &dosages);
        scratch.put("a/.zattrs", json!({ "missing_value": "NaN" }).to_string());
        assert_eq!(store::open(&scratch, Some("a")).unwrap().kind(), GenotypeKind::Dosages);
        digest(&scratch).unwrap()
    });
    assert_eq!(digests[0], digests[1]);
    let scratch = Scratch::new();
    scratch.numbers("a", &[2, 3, 2], &dosages);
    refused(store::open(&scratch, Some("a")), &["F32", "[2, 3, 2]"]);
    // Integers of this shape are calls of haploids.
    let scratch = Scratch::new();
    scratch.numbers("a", &[4, 3, 1], DOSAGES.as_flattened());
    assert_eq!(store::open(&scratch, Some("a")).unwrap().kind(), GenotypeKind::Calls { ploidy: 1 });
}
