//! Tests of columns that lost chunks.

use super::store::{contig, open, put_i32, put_text, vcf};
use super::*;

/// The fill value is not valid in these columns, so a missing chunk is a lost one.
#[test]
fn lost_chunks_are_errors() {
    for (array, chunk) in
        [("variant_position", "0"), ("variant_allele", "0.0"), ("contig_id", "0"), ("sample_id", "0")]
    {
        let scratch = vcf(&["a", "b"]);
        scratch.lose(&format!("{array}/{chunk}"));
        let store = open(&scratch, None).unwrap();
        let read =
            if array == "sample_id" { store.sample_ids().map(drop) } else { store.variants(0..1).map(drop) };
        let index = format!("chunk [{}]", chunk.replace('.', ", "));
        refused(read, &[array, &index, "missing"]);
    }
    for array in ["POS", "REF"] {
        let scratch = Scratch::group();
        contig(&scratch, "2L", &[7, 9]);
        scratch.lose(&format!("2L/variants/{array}/0"));
        refused(open(&scratch, None).unwrap().variants(0..2), &[array, "missing"]);
    }
    // These fill values are not the index of a contig, and not the id of every variant.
    for (array, dtype, fill) in [
        ("variant_contig", Some(StoredType::I32), json!(-1)),
        ("variant_contig", Some(StoredType::I32), json!(2)),
        ("variant_id", None, json!("rs1")),
    ] {
        let scratch = vcf(&["a"]);
        let mut spec = v2(dtype, &[3], &[3]);
        spec.fill = fill;
        scratch.array(array, spec);
        assert_err!(open(&scratch, None).unwrap().variants(0..3), Error::Chunk { .. });
    }
}

/// Writers leave out chunks of contig 0, of unknown ids, and of further alleles that no sample has.
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
    assert_eq!(store.doubtful_columns(), []);
    for _ in 0..2 {
        let variants = store.variants(0..3).unwrap();
        let contigs: Vec<_> = variants.iter().map(|v| (&*v.contig, &*v.id)).collect();
        assert_eq!(contigs, [("X", "."), ("1", "."), ("X", ".")]);
        let alleles: Vec<_> = variants.iter().map(|v| (&*v.reference, &*v.alternate)).collect();
        assert_eq!(alleles, [("A", "T"), ("C", "G"), ("G", ".")]);
        // The two missing chunks of contigs count once each; missing chunks of ids and of third alleles never count as lost.
        let [column] = &store.doubtful_columns()[..] else { panic!("{:?}", store.doubtful_columns()) };
        assert_eq!((&*column.path, column.chunks, &*column.value), ("variant_contig", 2, "X"));
    }
}

/// Missing chunks before a stored chunk of contig 0 hold contig 0; other missing chunks are doubtful.
#[test]
fn filled_contigs_are_counted_once_and_doubted() {
    const LOST: i32 = -1;
    let (up, down, start) = ([5, 7, 9], [5, 9, 2], [7, 2, 9]);
    // Each case has the positions, the contig of each chunk of one variant (or `LOST`), and whether the missing chunks are doubtful.
    for (positions, contigs, doubtful) in [
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
    ] {
        let scratch = vcf(&["a"]);
        put_i32(&scratch, "variant_position", &positions);
        let lost = contigs.iter().filter(|contig| **contig == LOST).count() as u64;
        let column = scratch.array("variant_contig", v2(StoredType::I32, &[3], &[1]));
        for (i, contig) in (0..).zip(contigs).filter(|(_, contig)| *contig != LOST) {
            column.write(&[i], &[contig]).unwrap();
        }
        let store = open(&scratch, None).unwrap();
        for _ in 0..2 {
            store.contigs(&mut |_, _| Ok(())).unwrap();
            store.variants(0..3).unwrap();
            let found = store.doubtful_columns();
            let found: Vec<_> = found.iter().map(|c| (&*c.path, c.chunks, &*c.value)).collect();
            let expected = doubtful.then_some(("variant_contig", lost, "1"));
            assert_eq!(found, Vec::from_iter(expected), "{positions:?}, {contigs:?}");
        }
    }
    // If positions are unreadable, nothing shows that all variants are on one contig.
    let scratch = vcf(&["a"]);
    ["variant_contig/0", "variant_position/0"].iter().for_each(|chunk| scratch.lose(chunk));
    let store = open(&scratch, None).unwrap();
    store.contigs(&mut |_, _| Ok(())).unwrap();
    assert_eq!(store.doubtful_columns().len(), 1);
}

/// Missing chunks of third alleles, which few variants have, are accepted; missing chunks of alternate alleles are reported, even if all are missing.
#[test]
fn alleles_that_are_not_there() {
    let (reference, alternate) = (Some(["A", "C", "G"]), Some(["T", "G", "A"]));
    for (columns, alleles, doubtful) in [
        ([reference, alternate, None, None], ["T", "G", "A"], None),
        ([reference, None, None, None], ["."; 3], Some(3)),
        ([reference, alternate, alternate, None], ["T,T", "G,G", "A,A"], None),
    ] {
        let scratch = vcf(&["a"]);
        let writer = scratch.array("variant_allele", v2(None, &[3, 4], &[3, 1]));
        let there = (0..).zip(columns).filter_map(|(place, column)| Some((place, column?)));
        there.for_each(|(place, column)| writer.write_text(&[0, place], column).unwrap());
        let store = open(&scratch, None).unwrap();
        for _ in 0..2 {
            let variants = store.variants(0..3).unwrap();
            let found: Vec<_> = variants.iter().map(|v| &*v.alternate).collect();
            assert_eq!((&*variants[1].reference, &*found), ("C", &alleles[..]));
            let found: Vec<_> = store.doubtful_columns().iter().map(|column| column.chunks).collect();
            assert_eq!(found, Vec::from_iter(doubtful));
        }
    }

    let scratch = Scratch::group();
    contig(&scratch, "2L", &[7, 9]);
    put_text(&scratch, "2L/variants/ID", &["rs1", "rs2"]);
    for chunk in ["ALT/0.0", "ID/0"] {
        scratch.lose(&format!("2L/variants/{chunk}"));
    }
    let store = open(&scratch, None).unwrap();
    store.variants(0..2).unwrap();
    let found: Vec<_> = store.doubtful_columns().into_iter().map(|c| (c.path, c.chunks)).collect();
    assert_eq!(found, [("2L/variants/ALT".into(), 1)]);
}
