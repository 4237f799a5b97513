//! `teatime grm` on stores that other tools wrote.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::{self, Ran, Scratch, fixture, json, names, on_store, provenance, run, store};

fn grm(store: &Path, out: &Path, more: &[&str]) -> Ran {
    run(on_store("grm", store, out, more))
}

fn f32s(path: &Path) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len() % 4, 0);
    bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// Each format has its files, with the samples as plink2 names them.
#[test]
fn words_choose_methods_and_files() {
    let scratch = Scratch::new();
    let gcta = ["grm.grm.N.bin", "grm.grm.bin", "grm.grm.id", "run.json"];
    for (words, files, said) in [
        (&["--missing", "mean"][..], &gcta[..], ["gcta", "mean", "gcta"]),
        (
            &["--method", "vanraden1", "--format", "npy"],
            &["grm.id", "grm.npy", "run.json"],
            ["vanraden1", "pairwise", "npy"],
        ),
    ] {
        let out = scratch.join(said[0]);
        let record = json(&grm(&fixture("biallelic.vcz"), &out, &[words, &["--json"]].concat()).ok().out);
        assert_eq!(names(&out), files);
        assert_eq!(["method", "missing", "format"].map(|key| record[key].as_str().unwrap()), said);
    }
    let ids = |path: PathBuf| fs::read_to_string(path).unwrap();
    assert_eq!(ids(scratch.join("gcta/grm.grm.id")), ids(fixture("plink2/meanimpute.grm.id")));
    let ids = ids(scratch.join("vanraden1/grm.id"));
    assert!(ids.starts_with("A00\nA01\n") && ids.lines().count() == 60);
}

#[test]
fn either_allele_is_counted() {
    let scratch = Scratch::new();
    let of = |more: &[&str]| {
        let out = scratch.join(&more.concat());
        let page = grm(&fixture("biallelic.vcz"), &out, more).ok().out;
        (json(&fs::read_to_string(out.join("run.json")).unwrap()), page)
    };
    let [(record, _), (of_reference, page)] = [&[][..], &["--counted-allele", "0"]].map(of);
    let digests = [&record, &of_reference].map(|record| &record["allele_counts"]);
    assert!(digests[0] != digests[1] && page.contains("dosages are copies of allele 0"), "{page}");
    assert_eq!((&record["counted_allele"], &of_reference["counted_allele"]), (&json("null"), &"0".into()));
}

#[test]
fn the_record_is_whole() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let more = ["--json", "--maf", "0.05", "--geno", "0.1", "--threads", "2"];
    let ran = grm(&fixture("all_v3.vcz"), &out, &more).ok();
    let record = json(&ran.out);
    assert_eq!(record, json(&fs::read_to_string(out.join("run.json")).unwrap()));
    provenance(&record, "grm", [None, None]);
    assert_eq!(
        (&record["command"], &record["method"], &record["missing"]),
        (&"grm".into(), &"gcta".into(), &"pairwise".into())
    );
    assert_eq!(
        record["files"],
        serde_json::json!(["run.json", "grm.grm.bin", "grm.grm.N.bin", "grm.grm.id"])
    );
    let (dropped, total) = (&record["variants"]["dropped"], record["variants"]["total"].as_u64().unwrap());
    let dropped = ["above_max_missing", "below_min_maf"].map(|rule| dropped[rule].as_u64().unwrap());
    assert!(total == 240 && dropped.iter().all(|n| *n > 0));
    assert_eq!(record["variants_kept"].as_u64().unwrap(), total - dropped.iter().sum::<u64>());
    assert!(
        f32s(&out.join("grm.grm.N.bin"))
            .iter()
            .all(|n| f64::from(*n) <= record["variants_kept"].as_f64().unwrap())
    );
    let page = grm(&fixture("all_v3.vcz"), &out, &["--overwrite"]).ok().out;
    for words in ["gcta, missing pairwise", "240 variants x 60 samples", "wrote", "grm.grm.bin"] {
        assert!(page.contains(words), "`{words}` is not in: {page}");
    }
}

#[test]
fn results_are_replaced_only_when_asked() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    grm(&fixture("all_v3.vcz"), &out, &["--format", "zarr"]).ok();
    assert_eq!(names(&out), ["grm.zarr", "run.json"]);
    let refused = grm(&fixture("all_v3.vcz"), &out, &[]);
    assert!(refused.code == 1 && refused.err.contains("--overwrite"), "{}", refused.err);
    grm(&fixture("all_v3.vcz"), &out, &["--overwrite", "--format", "npy"]).ok();
    assert_eq!(names(&out), ["grm.id", "grm.npy", "run.json"]);
}

#[test]
fn pairs_that_share_nothing_are_said() {
    let scratch = Scratch::new();
    let path = scratch.join("store");
    store(&path, &["a", "b", "c"], &[&[0, -1, 2], &[-1, 1, 0], &[1, -1, 0], &[-1, 2, 1]]);
    let ran = grm(&path, &scratch.join("out"), &["--json"]).ok();
    assert!(ran.err.contains("1 pair of samples"), "{}", ran.err);
    assert_eq!(json(&ran.out)["undefined_pairs"], 1);
    let nan: Vec<bool> = f32s(&scratch.join("out/grm.grm.bin")).iter().map(|x| x.is_nan()).collect();
    assert_eq!(nan, [false, true, false, false, false, false]);
    let ran = grm(&path, &scratch.join("mean"), &["--missing", "mean"]).ok();
    assert!(!ran.err.contains("NaN") && ran.err.contains("the call rate is 0.666667"), "{}", ran.err);
}

fn refused(store: &Path, more: &[&str], words: &[&str]) {
    support::refused("grm", store, more, 1, words);
}

#[test]
fn bad_input_leaves_nothing() {
    let scratch = Scratch::new();
    refused(&scratch.join("nowhere"), &[], &["nowhere"]);
    refused(&fixture("all_v3.vcz"), &["--memory", "1K"], &["--memory", "at least"]);
    refused(&fixture("all_v3.vcz"), &["--device", "abacus"], &["abacus"]);
    let constant = scratch.join("constant");
    store(&constant, &["a", "b", "c"], &[&[1, 1, 1], &[0, 0, -1]]);
    refused(&constant, &[], &["none of the 2 variants", "2 do not vary"]);
    let spaced = scratch.join("spaced");
    store(&spaced, &["a", "b c"], &[&[0, 1], &[2, 0]]);
    refused(&spaced, &[], &["\"b c\"", "--format gcta"]);
    grm(&spaced, &scratch.join("out"), &["--format", "zarr"]).ok();
    for more in [&["--method", "pca"][..], &["--missing", "none"], &["--format", "csv"], &["--maf", "0.7"]] {
        assert_eq!(grm(&fixture("all_v3.vcz"), &scratch.join("usage"), more).code, 2, "{more:?}");
    }
}
