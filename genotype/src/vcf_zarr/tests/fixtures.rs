//! Stores that other tools wrote, all of the same genotypes; `tests/fixtures/README.md` says how.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use teatime::openings::Map;

use super::*;
use crate::tests::{fixture, open};

/// All elements of an array, chunks put together, as integers; NaN is -1.
fn whole(array: &dyn ChunkedArray) -> Vec<i64> {
    let size = |n: u64| usize::try_from(n).unwrap();
    let shape: Vec<usize> = array.shape().iter().map(|&n| size(n)).collect();
    let chunk: Vec<usize> = array.chunk_shape().iter().map(|&n| size(n)).collect();
    let (inner, rows, columns) = (shape.get(2).copied().unwrap_or(1), shape[0], shape[1]);
    let mut all = vec![i64::MIN; rows * columns * inner];
    for i in 0..rows.div_ceil(chunk[0]) {
        for j in 0..columns.div_ceil(chunk[1]) {
            let index = [i as u64, j as u64, 0];
            let bytes = array.read_chunk(&index[..shape.len()]).unwrap().bytes;
            let values = numbers(&bytes, array.dtype());
            for row in i * chunk[0]..rows.min((i + 1) * chunk[0]) {
                for column in j * chunk[1]..columns.min((j + 1) * chunk[1]) {
                    let from = ((row - i * chunk[0]) * chunk[1] + column - j * chunk[1]) * inner;
                    let to = (row * columns + column) * inner;
                    all[to..to + inner].copy_from_slice(&values[from..from + inner]);
                }
            }
        }
    }
    all
}

fn numbers(bytes: &[u8], dtype: StoredType) -> Vec<i64> {
    use StoredType as T;
    #[allow(clippy::cast_possible_truncation, reason = "dosages are small whole numbers")]
    let float = |x: f64| if x.is_nan() { -1 } else { x as i64 };
    let elements = bytes.chunks_exact(dtype.size());
    elements
        .map(|e| match dtype {
            T::I8 => i8::from_ne_bytes(e.try_into().unwrap()).into(),
            T::U8 => e[0].into(),
            T::I16 => i16::from_ne_bytes(e.try_into().unwrap()).into(),
            T::I32 => i32::from_ne_bytes(e.try_into().unwrap()).into(),
            T::I64 => i64::from_ne_bytes(e.try_into().unwrap()),
            T::F32 => float(f32::from_ne_bytes(e.try_into().unwrap()).into()),
            T::F64 => float(f64::from_ne_bytes(e.try_into().unwrap())),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Allele counts: any allele but the reference, -1 where one is missing.
fn dosages(calls: &[i64]) -> Vec<i64> {
    let dosage = |call: &[i64]| {
        if call.iter().any(|&a| a < 0) {
            -1
        } else {
            call.iter().filter(|&&a| a > 0).count().try_into().unwrap()
        }
    };
    calls.chunks(2).map(dosage).collect()
}

#[test]
fn layouts_agree() {
    let reference = open("all_v2.vcz", None);
    let calls = whole(&*reference.arrays()[0]);
    assert_eq!((reference.n_variants(), reference.n_samples()), (240, 60));
    assert!(calls.contains(&-1) && calls.contains(&3) && calls.iter().all(|a| (-2..4).contains(a)));
    let names = ids(&reference);
    assert_eq!((&*names[0], &*names[59]), ("A00", "C19"));
    let variants = reference.variants(0..240).unwrap();
    let name_of = |row: u64| if row.is_multiple_of(3) { format!("rs{row}") } else { ".".into() };
    for (row, variant) in (0..).zip(&variants) {
        let contig = if row < 150 { "2L" } else { "3R" };
        assert_eq!((&*variant.contig, variant.position), (contig, 1000 + 37 * row));
        assert_eq!(variant.id, name_of(row));
    }
    assert_eq!((&*variants[30].reference, &*variants[30].alternate), ("G", "T,C"));

    for name in ["all_v3.vcz", "allel.zarr", "malariagen.zarr"] {
        let store = open(name, None);
        let parts = store.arrays().iter().flat_map(|array| whole(&**array));
        assert_eq!(parts.collect::<Vec<_>>(), calls, "{name}");
        assert_eq!(ids(&store), names, "{name}");
        let mut theirs = store.variants(0..240).unwrap();
        if name == "malariagen.zarr" {
            assert_eq!(store.arrays().len(), 2);
            for (row, variant) in (0..).zip(&mut theirs) {
                assert_eq!(variant.id, ".");
                variant.id = name_of(row);
            }
        }
        assert_eq!(theirs, variants, "{name}");
        // Ranges that do not start at chunks.
        assert_eq!(store.variants(149..151).unwrap()[0].position, variants[149].position);
    }
}

#[test]
fn dosages_of_every_kind() {
    let all = dosages(&whole(&*open("all_v2.vcz", None).arrays()[0]));
    let rows = fs::read_to_string(fixture("complete.tsv")).unwrap();
    let rows: Vec<usize> = rows.lines().skip(1).map(|row| row.parse().unwrap()).collect();
    let complete: Vec<i64> =
        rows.iter().flat_map(|row| all[row * 60..(row + 1) * 60].iter().copied()).collect();
    for (store, array) in [
        ("dosages_v2.zarr", "int64_gzip"),
        ("dosages_v2.zarr", "int16_big_endian_order_f"),
        ("dosages_v2.zarr", "uint8_zlib"),
        ("dosages_v2.zarr", "float32_zstd"),
        ("dosages_v2.zarr", "float64_blosc_lz4"),
        ("dosages_v3.zarr", "int32_gzip"),
        ("dosages_v3.zarr", "float32_zstd"),
        ("dosages_v3.zarr", "float64_blosc_zstd"),
        ("dosages_v3.zarr", "int8_sharded_zstd_crc32c"),
        ("dosages_v3.zarr", "uint8_sharded_crc32c"),
    ] {
        let opened = open(store, Some(array));
        assert_eq!(opened.kind(), GenotypeKind::Dosages);
        let expected = if array.starts_with('u') { &complete } else { &all };
        assert_eq!(&whole(&*opened.arrays()[0]), expected, "{store} {array}");
    }
}

#[test]
fn several_arrays_and_none_named() {
    let error = GenotypeStore::open(fixture("dosages_v2.zarr"), None, MissingChunk::Error).unwrap_err();
    assert!(error.to_string().contains("uint8_zlib"), "{error}");
}

/// Stores as values in memory equal those in folders in all that can be read, and nothing is asked for but what is needed.
#[test]
fn storage_that_is_no_folder() {
    for (name, array) in [
        ("all_v2.vcz", None),
        ("all_v3.vcz", None),
        ("allel.zarr", None),
        ("malariagen.zarr", None),
        ("dosages_v2.zarr", Some("int16_big_endian_order_f")),
        ("dosages_v3.zarr", Some("int8_sharded_zstd_crc32c")),
        ("dosages_v3.zarr", Some("float64_blosc_zstd")),
    ] {
        let mut map = Map::default();
        map.add(&fixture(name), "");
        let map = Arc::new(map);
        let theirs = GenotypeStore::open_in(map.clone(), array, MissingChunk::Error).unwrap();
        let opened = map.bytes.load(Relaxed);
        assert!(theirs.arrays().iter().all(|array| array.name().starts_with("map:")));
        let ours = open(name, array);
        let (mut chunks, mut stored) = (0, 0);
        for (ours, theirs) in ours.arrays().iter().zip(theirs.arrays()) {
            assert_eq!(whole(&**ours), whole(&**theirs), "{name}");
            let grid = ours.shape().iter().zip(ours.chunk_shape()).map(|(n, chunk)| n.div_ceil(*chunk));
            chunks += grid.product::<u64>();
            let key = |path: &str| {
                ours.name().strip_prefix(fixture(name).to_str().unwrap()).unwrap()[1..].to_owned() + path
            };
            let of = |key: &String, prefix: &str| {
                key.starts_with(prefix) && !key.contains("/.z") && !key.ends_with(".json")
            };
            let prefix = key("/");
            stored += map
                .values
                .iter()
                .filter(|(key, _)| of(key, &prefix))
                .map(|(_, value)| value.len() as u64)
                .sum::<u64>();
        }
        // Each chunk once, and no byte else.
        assert_eq!(map.bytes.load(Relaxed) - opened, stored, "{name}: {chunks} chunks");
        assert_eq!(theirs.sample_ids().unwrap(), ours.sample_ids().unwrap());
        let n = ours.n_variants();
        assert_eq!(theirs.variants(0..n).unwrap(), ours.variants(0..n).unwrap());
    }
    let lost = GenotypeStore::open_in(Arc::new(Map::default()), None, MissingChunk::Error).unwrap_err();
    assert!(lost.to_string().contains("map:: is not a Zarr store"), "{lost}");
}
