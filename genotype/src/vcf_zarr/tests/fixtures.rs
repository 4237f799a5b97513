//! Tests of stores that other tools wrote from the same genotypes; `tests/fixtures/README.md` says how.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use teatime::openings::{Map, elements};

use super::*;
use crate::tests::{fixture, open};

#[test]
fn layouts_agree() {
    let reference = open("all_v2.vcz", None);
    let known: Vec<i8> = elements(Arc::clone(&reference.arrays()[0]));
    assert_eq!((reference.n_variants(), reference.n_samples()), (240, 60));
    assert!(known.contains(&-1) && known.contains(&3) && known.iter().all(|a| (-2..4).contains(a)));
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
        let parts = store.arrays().iter().flat_map(|array| elements::<i8>(Arc::clone(array)));
        assert_eq!(parts.collect::<Vec<_>>(), known, "{name}");
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
        // The range does not start at a chunk.
        assert_eq!(store.variants(149..151).unwrap()[0].position, variants[149].position);
    }
}

/// Stores in memory and in folders have equal content, and only the necessary bytes are requested.
#[test]
fn storage_that_is_no_folder() {
    for (name, array) in [
        ("malariagen.zarr", None),
        ("dosages_v2.zarr", Some("int16_big_endian_order_f")),
        ("dosages_v3.zarr", Some("int8_sharded_zstd_crc32c")),
    ] {
        let map = Arc::new(Map::of(&fixture(name)));
        let theirs = GenotypeStore::open_in(map.clone(), array, MissingChunk::Error).unwrap();
        let opened = map.bytes.load(Relaxed);
        assert!(theirs.arrays().iter().all(|array| array.name().starts_with("map:")));
        let ours = open(name, array);
        let mut stored = 0;
        for (ours, theirs) in ours.arrays().iter().zip(theirs.arrays()) {
            let [one, other] = [ours, theirs].map(|array| elements::<u8>(Arc::clone(array)));
            assert_eq!(one, other, "{name}");
            let path = ours.name().strip_prefix(fixture(name).to_str().unwrap()).unwrap();
            let prefix = path[1..].to_owned() + "/";
            let is_chunk = |key: &str| !key.contains("/.z") && !key.ends_with(".json");
            let chunks = map.all().into_iter().filter(|(key, _)| key.starts_with(&prefix) && is_chunk(key));
            stored += chunks.map(|(_, value)| value.len() as u64).sum::<u64>();
        }
        // Each chunk is read once, and no other bytes.
        assert_eq!(map.bytes.load(Relaxed) - opened, stored, "{name}");
        assert_eq!(theirs.sample_ids().unwrap(), ours.sample_ids().unwrap());
        let n = ours.n_variants();
        assert_eq!(theirs.variants(0..n).unwrap(), ours.variants(0..n).unwrap());
    }
    let nothing = GenotypeStore::open_in(Arc::new(Map::default()), None, MissingChunk::Error);
    refused(nothing, &["map:: is not a Zarr store"]);
}
