//! Tests of stores that the library writes.

use std::sync::Arc;

use teatime::{openings::elements, random::philox};

use super::*;

const SAMPLES: usize = 7;

fn header(variants: u64) -> VcfZarrHeader {
    let samples = (0..SAMPLES).map(|i| format!("sample {i}")).collect();
    let mut header = VcfZarrHeader::new(samples, vec!["1".into(), "X".into()], variants);
    header.alleles = 3;
    header
}

fn variant(row: u64) -> Variant {
    let id = if row.is_multiple_of(2) { format!("rs{row}") } else { ".".into() };
    let alternate = if row.is_multiple_of(5) { "C,TT" } else { "G" };
    crate::tests::variant(if row < 1200 { "1" } else { "X" }, 10 + row, &id, ["A", alternate])
}

fn calls(row: u64) -> Vec<i8> {
    let words = (0..).flat_map(|i| philox([i, 0], row));
    words.map(|word| [0, 0, 1, 1, 2, -1, -2][word as usize % 7]).take(SAMPLES * 2).collect()
}

#[test]
fn round_trip_from_several_threads() {
    let scratch = Scratch::new();
    let path = scratch.path().join("x.vcz");
    let writer = VcfZarrWriter::create(&path, header(2345)).unwrap();
    assert_eq!((writer.n_chunks(), writer.chunk_range(2)), (3, 2000..2345));
    std::thread::scope(|scope| {
        for chunk in (0..writer.n_chunks()).rev() {
            let writer = &writer;
            scope.spawn(move || {
                let range = writer.chunk_range(chunk);
                let genotypes: Vec<i8> = range.clone().flat_map(calls).collect();
                let variants: Vec<Variant> = range.map(variant).collect();
                writer.write_chunk(chunk, &genotypes, &variants).unwrap();
            });
        }
    });
    assert!(!path.exists());
    writer.finish().unwrap();
    assert_eq!(entries(scratch.path()), ["x.vcz"]);

    let store = GenotypeStore::open(&path, None, MissingChunk::Error).unwrap();
    assert_eq!(store.kind(), GenotypeKind::Calls { ploidy: 2 });
    assert_eq!(ids(&store)[6], "sample 6");
    assert_eq!(store.variants(0..2345).unwrap(), (0..2345).map(variant).collect::<Vec<_>>());
    let array = &store.arrays()[0];
    assert_eq!((array.shape(), array.chunk_shape()), (&[2345, 7, 2][..], &[1000, 7, 2][..]));
    assert_eq!(elements::<i8>(Arc::clone(array)), (0..2345).flat_map(calls).collect::<Vec<_>>());
}

#[test]
fn more_samples_than_a_chunk() {
    let scratch = Scratch::new();
    let path = scratch.path().join("wide.vcz");
    let samples = (0..10_003).map(|i| i.to_string()).collect();
    let mut header = VcfZarrHeader::new(samples, vec!["1".into()], 2);
    header.level = 1;
    header.ploidy = 1;
    let writer = VcfZarrWriter::create(&path, header).unwrap();
    let genotypes: Vec<i8> = (0..20_006_u32).map(|i| i8::try_from(i % 3).unwrap() - 1).collect();
    let variants = [0, 1].map(|i| Variant { contig: "1".into(), ..variant(2 * i + 1) });
    writer.write_chunk(0, &genotypes, &variants).unwrap();
    writer.finish().unwrap();
    let store = GenotypeStore::open(&path, None, MissingChunk::Error).unwrap();
    assert_eq!(store.kind(), GenotypeKind::Calls { ploidy: 1 });
    assert_eq!(ids(&store)[10_002], "10002");
    let array = &store.arrays()[0];
    assert_eq!(array.chunk_shape(), [2, 10_000, 1]);
    assert_eq!(elements::<i8>(Arc::clone(array)), genotypes);
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let scratch = Scratch::new();
    let path = scratch.path().join("x.vcz");
    let writer = VcfZarrWriter::create(&path, header(5)).unwrap();
    assert_eq!(entries(scratch.path()).len(), 1);
    assert!(!path.exists());
    drop(writer);
    assert_eq!(entries(scratch.path()), [""; 0]);

    let writer = VcfZarrWriter::create(&path, header(1005)).unwrap();
    let genotypes: Vec<i8> = (0..1000).flat_map(calls).collect();
    writer.write_chunk(0, &genotypes, &(0..1000).map(variant).collect::<Vec<_>>()).unwrap();
    refused(writer.finish(), &["1 was not written"]);
    assert_eq!(entries(scratch.path()), [""; 0]);
}

#[test]
fn what_exists_is_not_touched() {
    let scratch = Scratch::new();
    scratch.put("x.vcz/precious", "data");
    let path = scratch.path().join("x.vcz");
    assert!(matches!(VcfZarrWriter::create(&path, header(5)), Err(Error::Store { .. })));
    assert_eq!(entries(scratch.path()), ["x.vcz"]);
    assert_eq!(entries(&path), ["precious"]);

    // The target gets other content between start and end.
    let late = scratch.path().join("late.vcz");
    let writer = VcfZarrWriter::create(&late, header(1)).unwrap();
    writer.write_chunk(0, &calls(0), &[variant(0)]).unwrap();
    scratch.put("late.vcz/precious", "data");
    assert!(matches!(writer.finish(), Err(Error::Io { .. })));
    assert_eq!(entries(&late), ["precious"]);

    let nowhere = scratch.path().join("no/such/folder/x.vcz");
    assert!(matches!(VcfZarrWriter::create(nowhere, header(5)), Err(Error::Io { .. })));
}

#[test]
fn arguments_are_checked() {
    let scratch = Scratch::new();
    let path = scratch.path().join("x.vcz");
    let refused = |header| matches!(VcfZarrWriter::create(&path, header), Err(Error::Argument { .. }));
    assert!(refused(header(0)));
    assert!(refused(VcfZarrHeader::new(vec![], vec!["1".into()], 5)));
    assert!(refused(VcfZarrHeader::new(vec!["a".into()], vec![], 5)));
    let mut level = header(5);
    level.level = 10;
    assert!(refused(level));

    let writer = VcfZarrWriter::create(&path, header(2)).unwrap();
    let genotypes = [calls(0), calls(1)].concat();
    let good = [variant(0), variant(1)];
    let bad = |chunk, genotypes: &[i8], variants: &[Variant]| {
        matches!(writer.write_chunk(chunk, genotypes, variants), Err(Error::Argument { .. }))
    };
    assert!(bad(1, &genotypes, &good));
    assert!(bad(u64::MAX, &genotypes, &good));
    assert!(bad(0, &genotypes[1..], &good));
    assert!(bad(0, &genotypes, &good[1..]));
    let changed = |change: &dyn Fn(&mut Variant)| {
        let mut variants = good.clone();
        change(&mut variants[1]);
        bad(0, &genotypes, &variants)
    };
    assert!(changed(&|v| v.contig = "2".into()));
    assert!(changed(&|v| v.position = 1 << 31));
    assert!(changed(&|v| v.alternate = "A,C,G".into()));
    writer.write_chunk(0, &genotypes, &good).unwrap();
    assert!(bad(0, &genotypes, &good));
    writer.finish().unwrap();
}
