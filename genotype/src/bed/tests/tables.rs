//! Tests of the tables of a .bed: damaged ones, and ones as people write them.

use super::*;
use crate::tests::contigs_of;

#[test]
fn damaged_tables_are_refused() {
    let scratch = Scratch::new();
    let path = scratch.bed("bad", [3, 5], 1, &[0; 6]);
    let [fam, bim] =
        ["bad.fam", "bad.bim"].map(|name| fs::read_to_string(scratch.path().join(name)).unwrap());
    let with = |name: &str, text: &[u8], words: &[&str]| {
        scratch.put(name, text);
        refused(BedFile::open(&path), &[&[name], words].concat());
        scratch.put("bad.fam", &fam);
        scratch.put("bad.bim", &bim);
    };
    let cut = |text: &str, column: &str| text.replacen(column, "", 1).into_bytes();
    with("bad.bim", &cut(&bim, "v1\t"), &["line 2", "5 columns", "6: chromosome, variant"]);
    with("bad.fam", &cut(&fam, "\ti4\t0\t0\t0\t-9"), &["line 5", "1 column;", "6: family, sample"]);
    with("bad.fam", format!("{fam}f i").as_bytes(), &["line 6", "2 columns"]);
    with("bad.bim", b"", &["has no variants"]);
    with("bad.fam", b"\r\n \n", &["has no samples"]);
    with("bad.bim", bim.replacen("\t101\t", "\t-5\t", 1).as_bytes(), &["line 2", "position -5"]);
    with("bad.bim", bim.replacen('\n', "\n\n", 1).as_bytes(), &["line 2 is empty"]);
    with("bad.fam", format!("#FID\tIID\n{fam}").as_bytes(), &["line 1", "`#`", ".psam"]);
    with("bad.fam", &[fam.as_bytes(), &[0xff, 0xfe]].concat(), &["line 6", "UTF-8"]);
    with("bad.bim", &vec![b'x'; 17 << 20], &["line 1", "16777216 bytes"]);
    // The lines are valid, but their number does not fit the .bed.
    with("bad.fam", format!("{fam}{fam}").as_bytes(), &["10 samples", "bad.bed", "9 bytes", "take 12"]);
    with("bad.bim", format!("{bim}{bim}").as_bytes(), &["6 variants", "bad.bed", "take 15"]);
    for name in ["bad.fam", "bad.bim"] {
        fs::remove_file(scratch.path().join(name)).unwrap();
        let error = refused(BedFile::open(&path), &[name]);
        assert!(matches!(error, Error::Io { .. }), "{error}");
        scratch.put("bad.fam", &fam);
    }
}

/// Only a call that reads the variants needs positions.
#[test]
fn positions_that_are_no_numbers() {
    let scratch = Scratch::new();
    let path = scratch.bed("data", [3, 4], 1, &[0x1b, 0x2d, 0xd8]);
    scratch.put("data.bim", "X a 0 NA A C\nX b 0 7 A C\nchr1 c 0 1e3 A C\n");
    let bed = BedFile::open(&path).unwrap();
    let (genotypes, options) = (bed.genotypes().unwrap(), PcaOptions::default().components(1));
    let pca = pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
    assert_eq!(pca.counts.total, 3);
    for range in [0..1, 1..2, 0..3] {
        refused(bed.variants(range), &["data.bim", "line 1 has the position \"NA\""]);
    }
    let variants = bed.variants_without_positions(0..3).unwrap();
    let ids: Vec<_> = variants.iter().map(|variant| (&*variant.id, variant.position)).collect();
    assert_eq!(ids, [("a", 0), ("b", 0), ("c", 0)]);
    assert_eq!(contigs_of(&bed), [("X".to_owned(), 2), ("chr1".to_owned(), 1)]);
}

#[test]
fn tables_as_people_write_them() {
    let scratch = Scratch::new();
    let path = scratch.bed("data", [2, 3], 1, &[0; 2]);
    scratch.put("data.fam", "f a 0 0 0 -9\r\nf  a\t0 0 0 -9 more columns\r\n\tf b 0 0 0 -9\r\n\r\n  \n");
    scratch.put("data.bim", "X rs1 0.5 0 0 AT\r\nX\trs2\t0\t7\tG\tC\ttoo many");
    let bed = BedFile::open(&path).unwrap();
    let sample = |id: &str| Sample { family: "f".into(), id: id.into() };
    assert_eq!(bed.samples(), [sample("a"), sample("a"), sample("b")], "names may occur twice");
    let variants = bed.variants(0..2).unwrap();
    assert_eq!((&*variants[0].contig, variants[0].position), ("X", 0));
    assert_eq!((&*variants[0].reference, &*variants[0].alternate), ("AT", "."));
    assert_eq!((&*variants[1].id, &*variants[1].reference, &*variants[1].alternate), ("rs2", "C", "G"));
    assert_eq!(bed.path(), path);
}

/// A byte order mark is not part of the first name, whatever the order of reading.
#[test]
fn tables_may_begin_with_a_byte_order_mark() {
    let scratch = Scratch::new();
    let path = scratch.bed("mark", [3, 5], 1, &[0; 6]);
    let plain = BedFile::open(&path).unwrap();
    for name in ["mark.fam", "mark.bim"] {
        let text = fs::read_to_string(scratch.path().join(name)).unwrap();
        scratch.put(name, format!("\u{feff}{text}"));
    }
    let bed = BedFile::open(&path).unwrap();
    assert_eq!(bed.samples(), plain.samples());
    for range in [0..3, 1..2, 0..1] {
        assert_eq!(bed.variants(range.clone()).unwrap(), plain.variants(range).unwrap());
    }
}
