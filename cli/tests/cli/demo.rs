//! Tests of `teatime demo`.

use std::fs;

use crate::support::{Scratch, assert_has, names, provenance};

const SMALL: &str = "demo --variants 2500 --samples 90";

#[test]
fn writes_everything() {
    let scratch = Scratch::new();
    let ran = scratch.ok(&format!("{SMALL} --out demo"));
    assert_has(&ran.out, &["cpu", "2,500 variants x 90 samples", "decode", "compute", "eigenvalue", "exact"]);
    let expected =
        "eigenvalues.tsv genotypes.vcz pca.eigenval pca.eigenvec pca.svg populations.tsv run.json scores.tsv";
    assert_eq!(names(&scratch.join("demo")).join(" "), expected);
    assert_eq!(scratch.names(), ["demo"]);
    let svg = scratch.text("demo/pca.svg");
    assert_eq!(svg.matches("<circle").count(), 90 + 3, "samples and the legend");
    assert_has(&svg, &["pop1", "pop3", "PC1 (", "PC2 ("]);
}

#[test]
fn the_same_bits_again_and_with_other_threads() {
    let scratch = Scratch::new();
    let of = |words: &str| {
        let out = words.replace([' ', '-'], "");
        scratch.ok(&format!("{SMALL} --out {out} {words}"));
        scratch.results(&out)
    };
    let one = of("--threads 1");
    assert!(one.len() > 12 && one == of("--threads 3"));
    for other in ["--seed 2", "--fst 0.2", "--missing 0.2", "--populations 2", "-k 3"] {
        assert!(one != of(other), "{other}");
    }
}

#[test]
fn replaces_its_own_folder_and_nothing_else() {
    let scratch = Scratch::new();
    scratch.ok(&format!("{SMALL} --out demo"));
    let first = scratch.results("demo");
    scratch.write("demo/notes.txt", "mine");
    let record = scratch.record(&format!("{SMALL} --out demo"));
    provenance(&record, "demo", [None, None]);
    assert_eq!(record["command"], "demo");
    assert_eq!(scratch.text("demo/notes.txt"), "mine");
    fs::remove_file(scratch.join("demo/notes.txt")).unwrap();
    assert!(first == scratch.results("demo"));
    // This store was not written by a demo.
    fs::create_dir_all(scratch.join("other/genotypes.vcz")).unwrap();
    scratch.refused(&format!("{SMALL} --out other"), 1, &["genotypes.vcz"]);
    assert_eq!(names(&scratch.join("other")), ["genotypes.vcz"]);
}
