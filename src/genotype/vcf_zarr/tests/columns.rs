//! Columns that lost chunks, and columns that are too large.

use super::store::{contig, open, put_i32, put_text, vcf};
use super::*;
use crate::Budget;

fn lose(scratch: &Scratch, chunk: &str) {
    fs::remove_file(scratch.path().join(chunk)).unwrap();
}

/// Nobody writes a fill value that cannot be meant, so what is missing is lost.
#[test]
fn lost_chunks_are_errors() {
    for chunk in ["variant_position/0", "variant_allele/0.0", "contig_id/0", "sample_id/0"] {
        let scratch = vcf(&["a", "b"]);
        lose(&scratch, chunk);
        let store = open(&scratch, None).unwrap();
        let error = if chunk.starts_with("sample") {
            store.sample_ids().unwrap_err()
        } else {
            store.variants(0..1).unwrap_err()
        };
        let (array, index) = chunk.split_once('/').unwrap();
        let Error::Chunk { array: at, index: of, why } = &error else { panic!("{error}") };
        assert!(at.ends_with(array) && of.len() == index.split('.').count(), "{error}");
        assert!(why.contains("missing"), "{error}");
    }
    for (array, chunk) in [("POS", "0"), ("REF", "0")] {
        let scratch = Scratch::new();
        scratch.put(".zgroup", r#"{"zarr_format":2}"#);
        contig(&scratch, "2L", &[7, 9]);
        lose(&scratch, &format!("2L/variants/{array}/{chunk}"));
        let error = open(&scratch, None).unwrap().variants(0..2).unwrap_err();
        assert!(matches!(&error, Error::Chunk { .. }) && error.to_string().contains(array), "{error}");
    }
    // The fill value is no contig.
    let scratch = vcf(&["a"]);
    for fill in [-1, 2] {
        let mut metadata = v2(&[3], &[3], "<i4", Value::Null);
        metadata["fill_value"] = fill.into();
        fs::remove_dir_all(scratch.path().join("variant_contig")).unwrap();
        scratch.array("variant_contig", &metadata, &[]);
        let error = open(&scratch, None).unwrap().variants(0..3).unwrap_err();
        assert!(matches!(error, Error::Chunk { .. }), "{error}");
    }
    // Nor is one name that of all variants.
    let scratch = vcf(&["a"]);
    let (mut metadata, _) = text(&["", "", ""]);
    metadata["fill_value"] = "rs1".into();
    scratch.array("variant_id", &metadata, &[]);
    assert!(open(&scratch, None).unwrap().variants(0..3).is_err());
}

/// Contigs of number 0, unknown names, and further alleles that nobody has are left out by writers.
#[test]
fn chunks_that_hold_the_fill_value_are_filled_and_counted() {
    let scratch = vcf(&["a"]);
    let mut numbers = v2(&[3], &[1], "<i4", Value::Null);
    numbers["fill_value"] = 1.into();
    fs::remove_dir_all(scratch.path().join("variant_contig")).unwrap();
    scratch.array("variant_contig", &numbers, &[("1", vec![0; 4])]);
    let (mut names, _) = text(&["", "", ""]);
    names["fill_value"] = ".".into();
    scratch.array("variant_id", &names, &[]);
    let (mut alleles, chunk) = text(&["A", "T", "C", "G", "G", ""]);
    (alleles["shape"], alleles["chunks"]) = (json!([3, 4]), json!([3, 2]));
    fs::remove_file(scratch.path().join("variant_allele/0.0")).unwrap();
    scratch.array("variant_allele", &alleles, &[("0.0", chunk)]);
    let store = open(&scratch, None).unwrap();
    assert_eq!(store.filled_chunks(), 0);
    for _ in 0..2 {
        let variants = store.variants(0..3).unwrap();
        let contigs: Vec<_> = variants.iter().map(|v| (&*v.contig, &*v.id)).collect();
        assert_eq!(contigs, [("X", "."), ("1", "."), ("X", ".")]);
        let alleles: Vec<_> = variants.iter().map(|v| (&*v.reference, &*v.alternate)).collect();
        assert_eq!(alleles, [("A", "T"), ("C", "G"), ("G", ".")]);
        // Two chunks of contigs, one of names, one of alleles; each once.
        assert_eq!(store.filled_chunks(), 4);
    }
}

/// Those that came before a contig 0 that is there can have held nothing else; of others nobody knows.
#[test]
fn filled_contigs_are_counted_once_and_doubted() {
    const LOST: u8 = u8::MAX;
    let (up, down, start) = ([5, 7, 9], [5, 9, 2], [7, 2, 9]);
    // Positions, contigs of the chunks of one variant, and which are not there; in a shard as well.
    for ((positions, contigs, doubtful), sharded) in [
        (up, [LOST, LOST, LOST], false),
        (down, [LOST, LOST, LOST], true),
        (down, [LOST, 0, 1], false),
        (up, [LOST, LOST, 0], false),
        (down, [LOST, LOST, 0], true),
        (start, [LOST, 0, 0], true),
        (start, [LOST, 1, 1], true),
        (up, [LOST, LOST, 1], true),
        (up, [0, LOST, 1], true),
        (up, [0, 1, LOST], true),
        (up, [1, LOST, 0], true),
        (up, [1, LOST, 1], true),
    ]
    .into_iter()
    .flat_map(|case| [(case, false), (case, true)])
    {
        let scratch = vcf(&["a"]);
        put_i32(&scratch, "variant_position", &positions);
        fs::remove_dir_all(scratch.path().join("variant_contig")).unwrap();
        let inner = contigs.map(|contig| (contig != LOST).then(|| vec![contig, 0, 0, 0]));
        let lost = inner.iter().filter(|chunk| chunk.is_none()).count() as u64;
        if sharded {
            let metadata = v3(&[3], &[3], "int32", shards(json!([1])));
            scratch.array("variant_contig", &metadata, &[("c/0", shard(&inner, true))]);
        } else {
            let chunks: Vec<_> = ["0", "1", "2"]
                .into_iter()
                .zip(inner)
                .filter_map(|(key, chunk)| Some((key, chunk?)))
                .collect();
            scratch.array("variant_contig", &v2(&[3], &[1], "<i4", Value::Null), &chunks);
        }
        let store = open(&scratch, None).unwrap();
        assert_eq!(store.filled_columns(), []);
        for _ in 0..2 {
            store.contigs(&mut |_, _| Ok(())).unwrap();
            store.variants(0..3).unwrap();
            let columns = store.filled_columns();
            let [column] = &columns[..] else { panic!("{columns:?}") };
            let case = format!("{positions:?}, {contigs:?}, sharded {sharded}");
            assert_eq!((&*column.path, column.chunks), ("variant_contig", lost), "{case}");
            assert_eq!((&*column.value, column.doubtful), ("1", doubtful), "{case}");
            assert_eq!(store.filled_chunks(), lost);
        }
    }
    // Where positions cannot be read, nothing says that all are of one contig.
    let scratch = vcf(&["a"]);
    ["variant_contig/0", "variant_position/0"].iter().for_each(|chunk| lose(&scratch, chunk));
    let store = open(&scratch, None).unwrap();
    store.contigs(&mut |_, _| Ok(())).unwrap();
    assert!(store.filled_columns()[0].doubtful);
}

/// Shards of such inner chunks of four bytes an element.
fn shards(inner: Value) -> Value {
    let bytes = json!([{ "name": "bytes", "configuration": { "endian": "little" } }]);
    json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": inner, "codecs": bytes, "index_codecs": index_codecs(true), "index_location": "end",
    }}])
}

/// Third alleles, which few variants have, may be left out; of alternate ones it is told, even where all are.
#[test]
fn alleles_that_are_not_there() {
    let letters =
        |text: &str| Some(text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect::<Vec<u8>>());
    let (reference, alternate, none) = (letters("ACG"), letters("TGA"), None);
    for (inner, alleles, filled, doubtful) in [
        ([&reference, &alternate, &none, &none], ["T", "G", "A"], 2, false),
        ([&reference, &none, &none, &none], ["."; 3], 3, true),
        ([&reference, &alternate, &alternate, &none], ["T,T", "G,G", "A,A"], 1, false),
    ] {
        for sharded in [true, false] {
            let scratch = vcf(&["a"]);
            fs::remove_dir_all(scratch.path().join("variant_allele")).unwrap();
            let (chunk, codecs) = if sharded {
                (4, shards(json!([3, 1])))
            } else {
                (1, json!([{ "name": "bytes", "configuration": { "endian": "little" } }]))
            };
            let mut metadata = v3(&[3, 4], &[3, chunk], "", codecs);
            metadata["data_type"] =
                json!({ "name": "fixed_length_utf32", "configuration": { "length_bytes": 4 } });
            metadata["fill_value"] = "".into();
            let inner = inner.map(Clone::clone);
            let chunks: Vec<_> = if sharded {
                vec![("c/0/0", shard(&inner, true))]
            } else {
                let keys = ["c/0/0", "c/0/1", "c/0/2", "c/0/3"];
                keys.into_iter().zip(inner).filter_map(|(key, chunk)| Some((key, chunk?))).collect()
            };
            scratch.array("variant_allele", &metadata, &chunks);
            let store = open(&scratch, None).unwrap();
            for _ in 0..2 {
                let variants = store.variants(0..3).unwrap();
                let found: Vec<_> = variants.iter().map(|v| &*v.alternate).collect();
                assert_eq!((&*variants[1].reference, &*found), ("C", &alleles[..]), "sharded {sharded}");
                let columns = store.filled_columns();
                let [column] = &columns[..] else { panic!("{columns:?}") };
                assert_eq!((column.chunks, column.doubtful), (filled, doubtful), "sharded {sharded}");
            }
        }
    }
    let scratch = vcf(&["a"]);
    fs::remove_dir_all(scratch.path().join("variant_allele")).unwrap();
    let mut metadata = v3(&[3, 4], &[3, 4], "", shards(json!([3, 1])));
    metadata["data_type"] = json!({ "name": "fixed_length_utf32", "configuration": { "length_bytes": 4 } });
    metadata["fill_value"] = "".into();
    scratch.array("variant_allele", &metadata, &[("c/0/0", shard(&[None, alternate, None, None], true))]);
    let error = open(&scratch, None).unwrap().variants(0..1).unwrap_err().to_string();
    assert!(error.contains("inner chunk [0, 0]") && error.contains("missing"), "{error}");

    let scratch = Scratch::new();
    scratch.put(".zgroup", r#"{"zarr_format":2}"#);
    contig(&scratch, "2L", &[7, 9]);
    put_text(&scratch, "2L/variants/ID", &["rs1", "rs2"]);
    for chunk in ["ALT/0.0", "ID/0"] {
        lose(&scratch, &format!("2L/variants/{chunk}"));
    }
    let store = open(&scratch, None).unwrap();
    store.variants(0..2).unwrap();
    let found: Vec<_> = store.filled_columns().into_iter().map(|c| (c.path, c.chunks, c.doubtful)).collect();
    assert_eq!(found, [("2L/variants/ID".into(), 1, false), ("2L/variants/ALT".into(), 1, true)]);
}

/// What is made of a column takes at most half of the memory, whatever its metadata and chunks claim.
#[test]
fn memory_bounds_columns() {
    const MEMORY: u64 = 1 << 20;
    let over = |result: crate::Result<usize>, least: u64| match result {
        Err(Error::Budget { budget: MEMORY, minimum, .. }) => assert!(minimum >= least, "{minimum}"),
        other => panic!("{other:?}"),
    };
    let variants = |scratch: &Scratch| {
        let store = open(scratch, None)?.with_memory(&Budget { host: Some(MEMORY), ..Budget::default() });
        store.variants(0..store.n_variants()).map(|variants| variants.len())
    };
    assert_eq!(variants(&vcf(&["a"])).unwrap(), 3);
    // As many strings as a chunk may hold, if none has a letter.
    let scratch = vcf(&["a"]);
    let (mut metadata, _) = text(&["", "", ""]);
    (metadata["shape"], metadata["chunks"]) = (json!([3, 1]), json!([3, 1 << 24]));
    scratch.array("variant_id", &metadata, &[]);
    over(variants(&scratch), 3 << 29);
    // Numbers, by the elements of a chunk.
    let scratch = vcf(&["a"]);
    scratch.array("variant_position", &v2(&[3], &[1 << 24], "<i4", Value::Null), &[]);
    over(variants(&scratch), 1 << 28);
    // Strings that say how long they are ...
    for stored in [true, false] {
        let scratch = vcf(&["a"]);
        let (mut metadata, mut chunk) = text(&[&"A".repeat(200_000), "C", "G"]);
        if !stored {
            metadata["compressor"] = blosc_meta();
            chunk = blosc(&chunk);
        }
        scratch.array("variant_id", &metadata, &[("0", chunk)]);
        over(variants(&scratch), 8 * 200_000);
    }
    // ... and those of many chunks, small ones all of them.
    let scratch = vcf(&["a"]);
    let keys: Vec<_> = (0..100).map(|i| format!("0.{i}")).collect();
    let chunks: Vec<_> = keys.iter().map(|key| (key.as_str(), vec![b'A'; 3 * 6000])).collect();
    fs::remove_dir_all(scratch.path().join("variant_allele")).unwrap();
    scratch.array("variant_allele", &v2(&[3, 100], &[3, 1], "|S6000", Value::Null), &chunks);
    over(variants(&scratch), MEMORY);
    // Of a fill value nothing is made, however long it is.
    let scratch = vcf(&["a"]);
    let (mut metadata, _) = text(&["", "", ""]);
    metadata["fill_value"] = "A".repeat(100_000).into();
    scratch.array("variant_id", &metadata, &[]);
    assert!(matches!(variants(&scratch), Err(Error::Chunk { .. })));
    // Names of samples, which the store need not have.
    let scratch = Scratch::new();
    scratch.array("", &v2(&[1, 1 << 26], &[1, 1 << 26], "|i1", Value::Null), &[]);
    let names = open(&scratch, None)
        .unwrap()
        .with_memory(&Budget { host: Some(MEMORY), ..Budget::default() })
        .sample_ids();
    over(names.map(|names| names.len()), 1 << 34);
}
