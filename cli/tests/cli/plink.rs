//! PLINK files on the command line.

use std::{fs, path::Path};

use crate::support::{Scratch, fixture, pca, teatime};

fn message(store: &Path, more: &[&str], code: i32) -> String {
    let scratch = Scratch::new();
    let ran = pca(store, &scratch.join("out"), more);
    assert_eq!(ran.code, code, "{}", ran.err);
    assert!(scratch.names().is_empty(), "{:?} is left", scratch.names());
    ran.err
}

#[test]
fn damaged_files_are_named() {
    let scratch = Scratch::new();
    for suffix in ["bed", "bim", "fam"] {
        let name = format!("few5.{suffix}");
        fs::copy(fixture(&format!("plink1/{name}")), scratch.join(&name)).unwrap();
    }
    let path = scratch.join("few5");
    let bed = fs::read(scratch.join("few5.bed")).unwrap();
    fs::write(scratch.join("few5.bed"), &bed[..bed.len() - 1]).unwrap();
    let err = message(&path, &[], 1);
    for words in ["few5.bed: is too short", "36 bytes", "17 variants of", "5 samples of", "take 37"] {
        assert!(err.contains(words), "{err}");
    }
    fs::write(scratch.join("few5.bed"), bed).unwrap();
    fs::write(scratch.join("few5.bim"), "2L rs0 1000 T A\n").unwrap();
    let err = message(&path, &[], 1);
    assert!(err.contains("few5.bim: line 1 has 5 columns"), "{err}");
    fs::remove_file(scratch.join("few5.bim")).unwrap();
    let err = message(&scratch.join("few5.bed"), &[], 1);
    assert!(err.contains("few5.bim: "), "{err}");
    let err = message(&scratch.join("few6.bed"), &[], 1);
    assert!(err.contains("few6.bed: "), "{err}");
}

#[test]
fn arguments_that_do_not_fit_the_kind_of_store() {
    let err = message(&fixture("plink1/biallelic.bed"), &["--array", "calls"], 2);
    assert!(err.contains("--array") && err.contains("biallelic.bed is a .bed"), "{err}");
    let err = message(&fixture("biallelic.vcz"), &["--counted-allele", "a2"], 2);
    assert!(err.contains("--counted-allele is for PLINK .bed files"), "{err}");
    let err = message(&fixture("plink1/biallelic.bed"), &["--counted-allele", "minor"], 2);
    assert!(err.contains("a1") && err.contains("a2"), "{err}");
    let other = fixture("plink1/biallelic.bed");
    let err = message(&fixture("biallelic.vcz"), &[&other.to_string_lossy()], 1);
    assert!(err.contains("do not go together"), "{err}");
    assert!(teatime(["pca", "--help"]).ok().out.contains("--counted-allele"));
}

#[test]
fn packed_calls_wait_for_their_route() {
    for name in ["plink1/biallelic.bed", "plink1/few5.bed"] {
        let err = message(&fixture(name), &["-k", "2", "--loadings"], 1);
        assert!(err.contains("packed 2-bit calls (PLINK .bed)"), "{err}");
    }
}
