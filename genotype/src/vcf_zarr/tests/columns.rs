//! Columns that lost chunks, and columns that are too large.

use teatime::{
    Budget,
    store::{Compression, Shuffle},
};

use super::store::{contig, open, put_i32, put_text, vcf};
use super::*;

/// Nobody writes a fill value that cannot be meant, so what is missing is lost.
#[test]
fn lost_chunks_are_errors() {
    for chunk in ["variant_position/0", "variant_allele/0.0", "contig_id/0", "sample_id/0"] {
        let scratch = vcf(&["a", "b"]);
        scratch.lose(chunk);
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
        scratch.lose(&format!("2L/variants/{array}/{chunk}"));
        let error = open(&scratch, None).unwrap().variants(0..2).unwrap_err();
        assert!(matches!(&error, Error::Chunk { .. }) && error.to_string().contains(array), "{error}");
    }
    // The fill value is no contig.
    let scratch = vcf(&["a"]);
    for fill in [-1, 2] {
        let mut spec = v2(StoredType::I32, &[3], &[3]);
        spec.fill = fill.into();
        scratch.array("variant_contig", spec);
        let error = open(&scratch, None).unwrap().variants(0..3).unwrap_err();
        assert!(matches!(error, Error::Chunk { .. }), "{error}");
    }
    // Nor is one name that of all variants.
    let scratch = vcf(&["a"]);
    let mut spec = v2(None, &[3], &[3]);
    spec.fill = "rs1".into();
    scratch.array("variant_id", spec);
    assert!(open(&scratch, None).unwrap().variants(0..3).is_err());
}

/// Contigs of number 0, unknown names, and further alleles that nobody has are left out by writers.
#[test]
fn chunks_that_hold_the_fill_value_are_filled_and_counted() {
    let scratch = vcf(&["a"]);
    let mut numbers = v2(StoredType::I32, &[3], &[1]);
    numbers.fill = 1.into();
    scratch.array("variant_contig", numbers).write(&[1], &[0]).unwrap();
    let mut names = v2(None, &[3], &[3]);
    names.fill = ".".into();
    scratch.array("variant_id", names);
    let alleles = scratch.array("variant_allele", v2(None, &[3, 4], &[3, 2]));
    alleles.write_text(&[0, 0], ["A", "T", "C", "G", "G", ""]).unwrap();
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
    const LOST: i32 = -1;
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
        let there = contigs.map(|contig| contig != LOST);
        let lost = there.iter().filter(|there| !**there).count() as u64;
        if sharded {
            let mut spec = ArraySpec::new(StoredType::I32, &[3], &[1]);
            spec.shard_shape = Some(vec![3]);
            scratch.array("variant_contig", spec).write(&[0], &contigs).unwrap();
            scratch.lose_inner("variant_contig", "c/0", &there);
        } else {
            let column = scratch.array("variant_contig", v2(StoredType::I32, &[3], &[1]));
            for (i, contig) in (0..).zip(contigs).filter(|(_, contig)| *contig != LOST) {
                column.write(&[i], &[contig]).unwrap();
            }
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
    ["variant_contig/0", "variant_position/0"].iter().for_each(|chunk| scratch.lose(chunk));
    let store = open(&scratch, None).unwrap();
    store.contigs(&mut |_, _| Ok(())).unwrap();
    assert!(store.filled_columns()[0].doubtful);
}

/// Puts alleles of one letter, in columns that are chunks, those that are there; in a shard or files of their own.
fn put_letters(scratch: &Scratch, columns: [Option<&str>; 4], sharded: bool) {
    let mut spec = ArraySpec::new(StoredType::U32, &[3, 4], &[3, 1]);
    spec.shard_shape = sharded.then(|| vec![3, 4]);
    let writer = scratch.array("variant_allele", spec);
    let letters = columns.map(|column| column.unwrap_or("???").chars().map(u32::from).collect::<Vec<_>>());
    if sharded {
        let rows: Vec<u32> = (0..3).flat_map(|row| letters.each_ref().map(|column| column[row])).collect();
        writer.write(&[0, 0], &rows).unwrap();
        scratch.lose_inner("variant_allele", "c/0/0", &columns.map(|column| column.is_some()));
    } else {
        let there = (0..).zip(columns.iter().zip(letters)).filter(|(_, (column, _))| column.is_some());
        there.for_each(|(i, (_, letters))| writer.write(&[0, i], &letters).unwrap());
    }
    scratch.edit("variant_allele/zarr.json", |metadata| {
        metadata["data_type"] =
            json!({ "name": "fixed_length_utf32", "configuration": { "length_bytes": 4 } });
        metadata["fill_value"] = "".into();
    });
}

/// Third alleles, which few variants have, may be left out; of alternate ones it is told, even where all are.
#[test]
fn alleles_that_are_not_there() {
    let (reference, alternate) = (Some("ACG"), Some("TGA"));
    for (columns, alleles, filled, doubtful) in [
        ([reference, alternate, None, None], ["T", "G", "A"], 2, false),
        ([reference, None, None, None], ["."; 3], 3, true),
        ([reference, alternate, alternate, None], ["T,T", "G,G", "A,A"], 1, false),
    ] {
        for sharded in [true, false] {
            let scratch = vcf(&["a"]);
            put_letters(&scratch, columns, sharded);
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
    put_letters(&scratch, [None, alternate, None, None], true);
    refused(open(&scratch, None).unwrap().variants(0..1), &["inner chunk [0, 0]", "missing"]);

    let scratch = Scratch::new();
    scratch.put(".zgroup", r#"{"zarr_format":2}"#);
    contig(&scratch, "2L", &[7, 9]);
    put_text(&scratch, "2L/variants/ID", &["rs1", "rs2"]);
    for chunk in ["ALT/0.0", "ID/0"] {
        scratch.lose(&format!("2L/variants/{chunk}"));
    }
    let store = open(&scratch, None).unwrap();
    store.variants(0..2).unwrap();
    let found: Vec<_> = store.filled_columns().into_iter().map(|c| (c.path, c.chunks, c.doubtful)).collect();
    assert_eq!(found, [("2L/variants/ID".into(), 1, false), ("2L/variants/ALT".into(), 1, true)]);
}

/// Each column is bounded by the memory that the store may take.
#[test]
fn memory_bounds_columns() {
    const MEMORY: u64 = 1 << 20;
    let over = |result: teatime::Result<usize>, least: u64| match result {
        Err(Error::Budget { budget: MEMORY, minimum, given: true, .. }) => {
            assert!(minimum >= least, "{minimum}");
        }
        other => panic!("{other:?}"),
    };
    let within =
        |scratch: &Scratch| open(scratch, None).unwrap().with_memory(&Budget::default().host(MEMORY));
    let variants = |scratch: &Scratch| {
        let store = within(scratch);
        store.variants(0..store.n_variants()).map(|variants| variants.len())
    };
    assert_eq!(variants(&vcf(&["a"])).unwrap(), 3);
    // As many strings as a chunk may hold, if none has a letter.
    let scratch = vcf(&["a"]);
    scratch.array("variant_id", v2(None, &[3, 1], &[3, 1 << 24]));
    over(variants(&scratch), 3 << 29);
    // Numbers, by the elements of a chunk.
    let scratch = vcf(&["a"]);
    scratch.array("variant_position", v2(StoredType::I32, &[3], &[1 << 24]));
    over(variants(&scratch), 1 << 28);
    // Strings that say how long they are ...
    for compression in [Compression::None, Compression::Blosc { level: 5, shuffle: Shuffle::Bits }] {
        let scratch = vcf(&["a"]);
        let mut spec = v2(None, &[3], &[3]);
        spec.compression = compression;
        let writer = scratch.array("variant_id", spec);
        writer.write_text(&[0], [&*"A".repeat(200_000), "C", "G"]).unwrap();
        over(variants(&scratch), 8 * 200_000);
    }
    // ... and those of many chunks, small ones all of them.
    let scratch = vcf(&["a"]);
    let writer = scratch.array("variant_allele", v2(None, &[3, 100], &[3, 1]));
    (0..100).for_each(|i| writer.write_text(&[0, i], [&*"A".repeat(6000); 3]).unwrap());
    over(variants(&scratch), MEMORY);
    // Of a fill value nothing is made, however long it is.
    let scratch = vcf(&["a"]);
    let mut spec = v2(None, &[3], &[3]);
    spec.fill = "A".repeat(100_000).into();
    scratch.array("variant_id", spec);
    assert!(matches!(variants(&scratch), Err(Error::Chunk { .. })));
    // Names of samples, which the store need not have.
    let scratch = Scratch::new();
    scratch.array("", v2(StoredType::I8, &[1, 1 << 26], &[1, 1 << 26]));
    over(within(&scratch).sample_ids().map(|names| names.map_or(0, |names| names.len())), 1 << 34);
}
