//! Tests of PLINK files on the command line.

use crate::support::{Scratch, assert_has};

/// A .fam that lacks up to three lines may still fit the length of the .bed.
#[test]
fn tables_that_lack_lines_are_told() {
    let scratch = Scratch::new();
    scratch.copies("plink1/biallelic", "cut", &["bed", "bim", "fam"]);
    let fam = scratch.text("cut.fam");
    scratch.write("cut.fam", fam.split_once('\n').unwrap().1);
    let said = ["cut.bed: variant 3 has calls after the 59 samples", "cut.fam lacks lines"];
    scratch.refused("pca cut.bed --out out", 1, &said);
    scratch.write("major.bed", [0x6c, 0x1b, 0, 0x3f, 0xff]);
    scratch.write("major.fam", "0 a 0 0 0 -9\n0 b 0 0 0 -9\n");
    scratch.write("major.bim", "1 x 0 1 A C\n1 y 0 2 A C\n1 z 0 3 A C\n");
    let said = ["major.bed: sample 2 has calls after the 3 variants", "major.bim lacks lines"];
    scratch.refused("pca major --out out -k 1", 1, &said);
}

#[test]
fn tables_of_other_names() {
    let scratch = Scratch::new();
    scratch.copies("plink1/few5", "few", &["bed", "bim", "fam"]);
    scratch.copies("plink1/few5", "other", &["bed"]);
    scratch.write("v.txt", scratch.text("few.bim").replace("rs0", "id0"));
    scratch.write("s.txt", scratch.text("few.fam"));
    let tables = "--bim v.txt --fam s.txt";
    scratch.ok("pca few --out few_pca -k 2 --loadings");
    for (command, more) in [
        ("pca -k 2", ""),
        ("grm", ""),
        ("distance", "/d.npy"),
        ("project --loadings few_pca/loadings.tsv.gz", ""),
    ] {
        scratch.ok(&format!("{command} few.bed --out alone{more}"));
        scratch.ok(&format!("{command} other.bed {tables} --out tables{more}"));
        assert_eq!(scratch.results("tables"), scratch.results("alone"), "{command}");
        std::fs::remove_dir_all(scratch.join("alone")).unwrap();
        std::fs::remove_dir_all(scratch.join("tables")).unwrap();
    }
    scratch.write("ids.txt", "id0");
    scratch.ok(&format!("grm other {tables} --out ids --extract ids.txt"));
    for (stores, option) in [("few.bed few.bed", "--bim v.txt"), ("@biallelic.vcz", "--fam s.txt")] {
        let said = ["which has to be the only store", option.split(' ').next().unwrap()];
        scratch.refused(&format!("grm {stores} {option} --out new"), 2, &said);
    }
    // Messages name the tables.
    scratch.copies("plink1/biallelic", "cut", &["bed", "bim", "fam"]);
    scratch.write("short.txt", scratch.text("cut.fam").split_once('\n').unwrap().1);
    let said = ["the 59 samples of short.txt", "short.txt lacks lines"];
    scratch.refused("grm cut.bed --fam short.txt --out new", 1, &said);
}

/// plink lets samples of two families share a name, and so does teatime; two samples of one family give a warning.
#[test]
fn doubled_names_are_told() {
    let scratch = Scratch::new();
    scratch.copies("plink1/few4", "few4", &["bed", "bim"]);
    for (second, told) in [("f", true), ("g", false)] {
        let fam = format!("f a 0 0 0 -9\nf b 0 0 0 -9\n{second} a 0 0 0 -9\nf c 0 0 0 -9\n");
        scratch.write("few4.fam", fam);
        let ran = scratch.ok(&format!("pca few4.bed --out {second} -k 1"));
        let warning = "warning: 1 name of more than one sample: `f a`";
        assert_eq!(ran.err.lines().any(|line| line == warning), told, "{}", ran.err);
    }
}

/// A .fam with up to three extra lines may still fit the length of the .bed: the extra samples have two copies of A1 everywhere.
#[test]
fn lines_too_many_are_told() {
    let scratch = Scratch::new();
    scratch.copies("plink1/few5", "more", &["bed", "bim", "fam"]);
    let fam = scratch.text("more.fam");
    let warning = |more: &str| {
        scratch.write("more.fam", format!("{fam}{more}"));
        let ran = scratch.ok("pca more.bed --out out -k 2 --overwrite");
        ran.err.lines().find(|line| line.contains("copies of A1")).map(str::to_owned)
    };
    assert_eq!(warning(""), None);
    let one =
        "warning: the last sample of more.fam, `f x`, has two copies of A1 in each of the first 17 variants";
    assert_has(&warning("f x 0 0 0 -9\n").unwrap(), &[one]);
    let three = warning("f x 0 0 0 -9\nf y 0 0 0 -9\nf z 0 0 0 -9\n").unwrap();
    assert_has(&three, &["the last 3 samples of", "`f x`, `f y`, `f z`, have"]);
}
