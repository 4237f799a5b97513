//! Tests of lists: the sets are those that plink2 (v2.00a3.5) keeps, but for byte order marks, empty lines, places and names of contigs.

use teatime::{Error, Result, assert_err};

use super::*;
use crate::tests::{Scratch, assert_refused as refused, variant};

fn samples(list: &str, families: bool) -> Result<(Vec<u64>, [u64; 3])> {
    let names = [("A", "a"), ("0", "b"), ("B", "a"), ("f 1", "c d"), ("0", "#e"), ("B", "a")];
    let [families_of, ids] = [names.map(|(family, _)| family.to_owned()), names.map(|(_, id)| id.to_owned())];
    let scratch = Scratch::new();
    let list = SampleList::read(scratch.put("list", list), &Budget::default())?;
    let listed = list.find(&ids, families.then_some(&families_of[..]))?;
    Ok((listed.rows.into_iter().flatten().collect(), [listed.entries, listed.repeated, listed.absent]))
}

#[test]
fn samples_are_known_by_family_and_id() {
    for (list, expected, counts) in [
        ("A a\nB\ta  more\n", &[0, 2, 5][..], [2, 0, 0]),
        // An id alone is of family 0.
        ("b\na\n", &[1], [2, 0, 1]),
        ("#IID SEX\nb 1\na 2", &[1], [2, 0, 1]),
        ("#FID IID\nA a\nA\ta\n0 b\n", &[0, 1], [2, 1, 0]),
        ("##made by\n#x\n#FID\tIID\tSEX\r\nA\ta\t1\r\n", &[0], [1, 0, 0]),
        // After the first sample, `#` begins a name.
        ("b\n#e\n#FID IID\n", &[1, 4], [3, 0, 1]),
        ("\u{feff}A\ta\r\n\r\n  B a  \r\n\n", &[0, 2, 5], [2, 0, 0]),
        ("\u{feff}#FID IID\nA a", &[0], [1, 0, 0]),
        ("A A\nZ a\n", &[], [2, 0, 2]),
        ("", &[], [0; 3]),
    ] {
        assert_eq!(samples(list, true).unwrap(), (expected.to_vec(), counts), "{list:?}");
    }
    refused(samples("#FID\nA", true), &["line 1 has `#FID` without `IID`"]);
    refused(samples("#FID IID\nA a\nb\n", true), &["line 3 has one column, and the header two"]);
}

/// Stores without families have ids alone, which may have spaces.
#[test]
fn samples_are_known_by_id_alone() {
    for (list, expected, counts) in [
        ("b\nZ a\na\n", &[0, 1, 2, 5][..], [2, 1, 0]),
        ("#IID X\nb a\n", &[1], [1, 0, 0]),
        ("  c d\nb b b\n", &[1, 3], [2, 0, 0]),
        ("c d x\n", &[], [1, 0, 1]),
    ] {
        assert_eq!(samples(list, false).unwrap(), (expected.to_vec(), counts), "{list:?}");
    }
}

/// Ids without a file are whole names, whatever their families and the white space in them.
#[test]
fn lists_of_ids() {
    let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let (ids, families) = (text(&["a", "b", "a", "c\td\n", "#IID"]), text(&["A", "0", "B", "C", "C"]));
    let list = SampleList::of_ids(text(&["c\td\n", "a", "#IID", "A b", "a"]));
    for families in [None, Some(&families[..])] {
        let Listed { rows, entries, repeated, absent } = list.find(&ids, families).unwrap();
        assert_eq!((rows, [entries, repeated, absent]), (vec![0..1, 2..5], [4, 1, 1]));
    }
    let of = |list: &[&str]| {
        let names = [("23", "a b"), ("39", "v"), ("40", "w")];
        let source: Vec<_> = names.map(|(contig, id)| variant(contig, 7, id, ["A", "C"])).into();
        let all = 0..3;
        VariantList::of_ids(text(list)).find(&[&source], &[all], None, &Cancel::default()).unwrap()
    };
    let Listed { rows, entries, repeated, absent } = of(&["a b", "w", "w", "a"]);
    assert_eq!((rows, [entries, repeated, absent]), (vec![0..1, 2..3], [3, 1, 1]));
    // These contigs are not human: 23 is no X.
    assert_eq!(of(&["X:7"]).absent, 1);
    assert!(of(&["39:7", "23:7"]).rows.into_iter().flatten().eq([0, 1]));
}

#[test]
fn arguments_name_files() {
    for (argument, file, kind) in [
        ("a.txt", "a.txt", VariantListKind::Ids),
        ("a.BED", "a.BED", VariantListKind::Bed0),
        ("bed0:a", "a", VariantListKind::Bed0),
        ("bed1:a.bed", "a.bed", VariantListKind::Bed1),
        ("./bed1:a", "./bed1:a", VariantListKind::Ids),
    ] {
        assert_eq!(VariantListKind::of_argument(Path::new(argument)), (Path::new(file), kind));
    }
}

#[test]
fn other_files_are_refused() {
    let scratch = Scratch::new();
    let read = |bytes: &[u8]| SampleList::read(scratch.put("list", bytes), &Budget::default()).map(drop);
    refused(read(&[0x6c, 0x1b, 1, 0]), &["is a .bed of PLINK's genotypes"]);
    refused(read(&[0x1f, 0x8b, 8]), &["is compressed"]);
    refused(read(b"a\nb\n\xff\xfe\n"), &["line 3 is not UTF-8"]);
    refused(SampleList::read(scratch.path(), &Budget::default()), &["is not a file"]);
    assert_err!(SampleList::read(scratch.path().join("none"), &Budget::default()), Error::Io { .. });
    // The text and 64 bytes for each of three words, and 256 for a place.
    let path = scratch.put("list", "a 1:2 b\n");
    let within = |kind, bytes| VariantList::read(&path, kind, &Budget::default().host(bytes)).map(|_| ());
    for (kind, least) in [(VariantListKind::Bed0, 8 + 192), (VariantListKind::Ids, 8 + 192 + 256)] {
        assert_err!(within(kind, least - 1), Error::Budget { minimum, .. } if minimum == least);
        within(kind, least).unwrap();
    }
}

/// The variants of the two sources below.
const ALL: Range<u64> = 0..7;

/// Returns the listed variants among those of these two sources in `among`, and the counts of ids.
fn variants(kind: VariantListKind, list: &str, among: &[Range<u64>]) -> Result<(Vec<u64>, [u64; 3])> {
    let variant = |&(contig, position, id): &(&str, u64, &str)| variant(contig, position, id, ["A", "C"]);
    let of = |variants: &[(&str, u64, &str)]| variants.iter().map(variant).collect::<Vec<_>>();
    let first = of(&[("chr1", 10, "rs1"), ("chr1", 20, "."), ("chr1", 20, "1:30"), ("chr1", 30, "rs2")]);
    let second = of(&[("chrX", 10, "."), ("chrX", 40, "rs1"), ("chr1", 50, "1:40:A:C")]);
    let scratch = Scratch::new();
    let list = VariantList::read(scratch.put("list", list), kind, &Budget::default())?;
    let listed = list.find(&[&first, &second], among, None, &Cancel::default())?;
    let flat = |rows: Vec<Range<u64>>| rows.into_iter().flatten().collect::<Vec<_>>();
    let [taken, others] = [false, true].map(|others| flat(listed.choose(among, others)));
    let rows = flat(listed.rows);
    assert_eq!(rows, taken);
    assert!(flat(among.to_vec()).iter().all(|row| rows.contains(row) != others.contains(row)), "{others:?}");
    Ok((rows, [listed.entries, listed.repeated, listed.absent]))
}

#[test]
fn variants_are_known_by_id_or_place() {
    let all = [ALL];
    for (list, among, expected, counts) in [
        ("rs1 rs2\trs1\nrs9\r\n", &all[..], &[0, 3, 5][..], [3, 1, 1]),
        ("rs1 rs2", &[1..3, 4..6], &[5], [2, 0, 1]),
        (".", &all, &[1, 4], [1, 0, 0]),
        ("\u{feff}rs2\r\n\r\n", &all, &[3], [1, 0, 0]),
        // The id of a variant at 20 looks like the place 30; `chr1:30` is nobody's id, and so it is the place.
        ("1:30", &all, &[2], [1, 0, 0]),
        ("1:30 chr1:30", &all, &[2, 3], [2, 0, 0]),
        ("1:30", &[0..2, 3..7], &[3], [1, 0, 0]),
        ("23:10 chr1:20 01:11 1:50 1:40", &all, &[1, 2, 4, 6], [5, 0, 2]),
        ("1:40:A:C 1:+50 :50 X:", &all, &[6], [4, 0, 3]),
        ("", &all, &[], [0; 3]),
    ] {
        let found = variants(VariantListKind::Ids, list, among).unwrap();
        assert_eq!(found, (expected.to_vec(), counts), "{list:?} {among:?}");
    }
}

#[test]
fn regions_hold_positions() {
    let (bed0, bed1) = (VariantListKind::Bed0, VariantListKind::Bed1);
    for (kind, list, expected, regions) in [
        (bed0, "1\t10\t20\n", &[1, 2][..], 1),
        (bed1, "1\t10\t20\n", &[0, 1, 2], 1),
        (bed0, "\u{feff}track x\r\n#c\r\nbrowser position\r\n\r\nX 0 10 name 5\r\nchr1 9 10\r\n", &[0, 4], 2),
        // A region within another, one at the start of another, and regions in any order.
        (bed1, "1 40 60\n1 1 35\n1 5 6\n1 1 2\n", &[0, 1, 2, 3, 6], 4),
        (bed1, "rs1 10 20\n", &[], 1),
    ] {
        assert_eq!(variants(kind, list, &[ALL]).unwrap(), (expected.to_vec(), [regions, 0, 0]), "{list:?}");
    }
    assert_eq!(variants(bed1, "1 1 35", &[0..1, 2..7]).unwrap().0, [0, 2, 3]);
    for (kind, list) in [
        (bed0, "1 1 2\nrs1\n"),
        (bed0, "1 1 2\n1 5 5\n"),
        (bed1, "1 1 2\n1 5 4\n"),
        (bed1, "1 1 2\n1 a 4\n"),
        (bed1, "1 1 2\n1 -1 4\n"),
        (bed0, "1 1 2\n1 18446744073709551615 18446744073709551615\n"),
    ] {
        let end = if kind == bed0 { "an end after it" } else { "an end that is not before it" };
        refused(variants(kind, list, &[ALL]), &["line 2 is no region", end]);
    }
}
