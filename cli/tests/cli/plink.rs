//! PLINK files on the command line.

use std::{fs, path::Path};

use crate::support::{self, Scratch, fixture, pca, teatime};

fn refused(store: &Path, more: &[&str], code: i32, words: &[&str]) {
    support::refused("pca", store, more, code, words);
}

/// Up to three lines too few leave the length of a .bed right.
#[test]
fn tables_that_lack_lines_are_told() {
    let scratch = Scratch::new();
    let file = |name: &str, bytes: &[u8]| fs::write(scratch.join(name), bytes).unwrap();
    let fam = fs::read_to_string(fixture("plink1/biallelic.fam")).unwrap();
    for kind in ["bed", "bim"] {
        fs::copy(fixture(&format!("plink1/biallelic.{kind}")), scratch.join(&format!("cut.{kind}"))).unwrap();
    }
    file("cut.fam", fam.split_once('\n').unwrap().1.as_bytes());
    refused(
        &scratch.join("cut.bed"),
        &[],
        1,
        &["cut.bed: variant 3 has calls after the 59 samples", "cut.fam lacks lines"],
    );
    file("major.bed", &[0x6c, 0x1b, 0, 0x3f, 0xff]);
    file("major.fam", b"0 a 0 0 0 -9\n0 b 0 0 0 -9\n");
    file("major.bim", b"1 x 0 1 A C\n1 y 0 2 A C\n1 z 0 3 A C\n");
    refused(
        &scratch.join("major"),
        &["-k", "1"],
        1,
        &["major.bed: sample 2 has calls after the 3 variants", "major.bim lacks lines"],
    );
}

/// plink lets samples of two families share a name, and so do we; of one family, we say so.
#[test]
fn doubled_names_are_told() {
    let scratch = Scratch::new();
    for kind in ["bed", "bim"] {
        fs::copy(fixture(&format!("plink1/few4.{kind}")), scratch.join(&format!("few4.{kind}"))).unwrap();
    }
    for (second, told) in [("f", true), ("g", false)] {
        let fam = format!("f a 0 0 0 -9\nf b 0 0 0 -9\n{second} a 0 0 0 -9\nf c 0 0 0 -9\n");
        fs::write(scratch.join("few4.fam"), fam).unwrap();
        let ran = pca(&scratch.join("few4.bed"), &scratch.join(second), &["-k", "1"]).ok();
        let warning = "warning: 1 name of more than one sample: `f a`";
        assert_eq!(ran.err.lines().any(|line| line == warning), told, "{}", ran.err);
    }
}

/// Up to three lines too many leave the length of a .bed right: samples that have two copies of A1 everywhere.
#[test]
fn lines_too_many_are_told() {
    let scratch = Scratch::new();
    for kind in ["bed", "bim", "fam"] {
        fs::copy(fixture(&format!("plink1/few5.{kind}")), scratch.join(&format!("more.{kind}"))).unwrap();
    }
    let fam = fs::read_to_string(fixture("plink1/few5.fam")).unwrap();
    let warning = |more: &str| {
        fs::write(scratch.join("more.fam"), format!("{fam}{more}")).unwrap();
        let ran = pca(&scratch.join("more.bed"), &scratch.join("out"), &["-k", "2", "--overwrite"]).ok();
        ran.err.lines().find(|line| line.contains("copies of A1")).map(str::to_owned)
    };
    assert_eq!(warning(""), None);
    let one = warning("f x 0 0 0 -9\n").unwrap();
    for words in [
        "warning: the last sample of ",
        "more.fam, `f x`, has two copies of A1 in each of the first 17 variants",
    ] {
        assert!(one.contains(words), "{one}");
    }
    let three = warning("f x 0 0 0 -9\nf y 0 0 0 -9\nf z 0 0 0 -9\n").unwrap();
    assert!(
        three.contains("the last 3 samples of") && three.contains("`f x`, `f y`, `f z`, have"),
        "{three}"
    );
}

/// A PCA needs no positions; a table of loadings does.
#[test]
fn positions_that_are_no_numbers() {
    let scratch = Scratch::new();
    for kind in ["bed", "fam"] {
        fs::copy(fixture(&format!("plink1/few5.{kind}")), scratch.join(&format!("some.{kind}"))).unwrap();
    }
    let bim = fs::read_to_string(fixture("plink1/few5.bim")).unwrap();
    let (first, rest) = bim.split_once('\n').unwrap();
    let columns: Vec<_> = first.split('\t').collect();
    let first = [&columns[..3], &["unknown"], &columns[4..]].concat().join("\t");
    fs::write(scratch.join("some.bim"), format!("{first}\n{rest}")).unwrap();
    let path = scratch.join("some.bed");
    pca(&path, &scratch.join("out"), &["-k", "2"]).ok();
    let words = "some.bim: line 1 has the position \"unknown\", which is no number";
    refused(&path, &["-k", "2", "--loadings"], 1, &[words]);
}

#[test]
fn projections_name_families() {
    let scratch = Scratch::new();
    let (reference, out) = (scratch.join("reference"), scratch.join("out"));
    let bed = fixture("plink1/biallelic.bed");
    pca(&bed, &reference, &["-k", "2", "--loadings"]).ok();
    let words = ["project".as_ref(), bed.as_os_str(), "--loadings".as_ref()];
    let loadings = reference.join("loadings.tsv.gz");
    teatime(words.into_iter().chain([loadings.as_os_str(), "--out".as_ref(), out.as_os_str()])).ok();
    for (ours, theirs) in [("projection.tsv", "scores.tsv"), ("projection.eigenvec", "pca.eigenvec")] {
        let names = |path: &Path| {
            let text = fs::read_to_string(path).unwrap();
            let first = |line: &str| line.split('\t').take(2).map(str::to_owned).collect::<Vec<_>>();
            text.lines().map(first).collect::<Vec<_>>()
        };
        let names = [names(&out.join(ours)), names(&reference.join(theirs))];
        assert_eq!(names[0], names[1]);
        assert_eq!(names[0][1], ["A", "A00"]);
    }
}

#[test]
fn arguments_that_do_not_fit_the_kind_of_store() {
    refused(
        &fixture("plink1/biallelic.bed"),
        &["--array", "calls"],
        2,
        &["--array", "biallelic.bed is a .bed"],
    );
    let [bed, zarr] = ["plink1/biallelic.bed", "biallelic.vcz"].map(fixture);
    refused(&zarr, &["--counted-allele", "A2"], 2, &["a1 and a2 are of a .bed"]);
    refused(&bed, &["--counted-allele", "1"], 2, &["of a .bed is a1 or a2"]);
    refused(&bed, &["--counted-allele", "minor"], 2, &["a1", "a2", "0 to 127"]);
    refused(
        &zarr,
        &["--counted-allele", "1", "--loadings"],
        2,
        &["--loadings matches", "names of their alleles"],
    );
    refused(&zarr, &[&bed.to_string_lossy()], 1, &["do not go together"]);
    assert!(teatime(["pca", "--help"]).ok().out.contains("--counted-allele"));
}
