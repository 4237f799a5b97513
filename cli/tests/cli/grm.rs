//! Tests of `teatime grm` on stores that other tools wrote.

use std::fs;

use serde_json::json;

use crate::support::{Scratch, assert_has, fixture, names, provenance, store};

/// Each format has its files, with sample names as plink2 writes them.
#[test]
fn words_choose_methods_and_files() {
    let scratch = Scratch::new();
    for (words, files, said) in [
        ("--missing mean", "grm.grm.N.bin grm.grm.bin grm.grm.id run.json", ["gcta", "mean", "gcta"]),
        ("--method vanraden1 --format npy", "grm.id grm.npy run.json", ["vanraden1", "pairwise", "npy"]),
        ("--format zarr", "grm.zarr run.json", ["gcta", "pairwise", "zarr"]),
    ] {
        // The new files replace those of another format.
        let record = scratch.record(&format!("grm @biallelic.vcz --out out --overwrite {words}"));
        assert_eq!(names(&scratch.join("out")).join(" "), files);
        assert_eq!(["method", "missing", "format"].map(|key| record[key].as_str().unwrap()), said);
        if said[1] == "mean" {
            let theirs = fs::read_to_string(fixture("plink2/meanimpute.grm.id")).unwrap();
            assert_eq!(scratch.text("out/grm.grm.id"), theirs);
        } else if said[2] == "npy" {
            let ids = scratch.text("out/grm.id");
            assert!(ids.starts_with("A00\nA01\n") && ids.lines().count() == 60);
        }
    }
    scratch.refused("grm @biallelic.vcz --out out", 1, &["--overwrite"]);
}

#[test]
fn either_allele_is_counted() {
    let scratch = Scratch::new();
    let record = scratch.record("grm @biallelic.vcz --out alternate");
    let page = scratch.ok("grm @biallelic.vcz --out reference --counted-allele 0").out;
    assert_has(&page, &["dosages are copies of allele 0"]);
    let other = scratch.json("reference/run.json");
    assert_ne!(record["allele_counts"], other["allele_counts"]);
    assert_eq!((&record["counted_allele"], &other["counted_allele"]), (&json!(null), &"0".into()));
}

#[test]
fn the_record_is_whole() {
    let scratch = Scratch::new();
    let record = scratch.record("grm @all_v3.vcz --out out --maf 0.05 --geno 0.1 --threads 2");
    assert_eq!(record, scratch.json("out/run.json"));
    provenance(&record, "grm", [None, None]);
    assert_eq!(record["files"], json!(["run.json", "grm.grm.bin", "grm.grm.N.bin", "grm.grm.id"]));
    assert!(record["variants_kept"].as_u64().unwrap() < record["variants"]["total"].as_u64().unwrap());
    let page = scratch.ok("grm @all_v3.vcz --out out --overwrite").out;
    assert_has(&page, &["gcta, missing pairwise", "240 variants x 60 samples", "wrote", "grm.grm.bin"]);
}

#[test]
fn pairs_that_share_nothing_are_said() {
    let scratch = Scratch::new();
    let rows: &[&[i8]] = &[&[0, -1, 2], &[-1, 1, 0], &[1, -1, 0], &[-1, 2, 1]];
    store(&scratch.join("store"), &["a", "b", "c"], rows);
    assert_has(&scratch.ok("grm store --out out").err, &["1 pair of samples"]);
    assert_eq!(scratch.json("out/run.json")["undefined_pairs"], 1);
    let ran = scratch.ok("grm store --out mean --missing mean");
    assert!(!ran.err.contains("NaN") && ran.err.contains("the call rate is 0.666667"), "{}", ran.err);
}
