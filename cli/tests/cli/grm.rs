//! `teatime grm` on stores that other tools wrote, against what plink2 and numpy computed of them.

use std::{fs, path::Path};

use crate::support::{self, Ran, Scratch, fixture, json, names, npy, on_store, provenance, run, store};

fn grm(store: &Path, out: &Path, more: &[&str]) -> Ran {
    run(on_store("grm", store, out, more))
}

fn f32s(path: &Path) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len() % 4, 0);
    bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn assert_close(ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len());
    for (at, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() < 1e-6, "entry {at}: {a} and {b}");
    }
}

#[test]
fn plink2_writes_the_same() {
    let scratch = Scratch::new();
    for (missing, name) in [("pairwise", "pairwise"), ("mean", "meanimpute")] {
        let out = scratch.join(name);
        grm(&fixture("biallelic.vcz"), &out, &["--missing", missing]).ok();
        assert_eq!(names(&out), ["grm.grm.N.bin", "grm.grm.bin", "grm.grm.id", "run.json"]);
        let theirs = |suffix: &str| fixture(&format!("plink2/{name}.grm.{suffix}"));
        let [ours, plink2] = [out.join("grm.grm.bin"), theirs("bin")]
            .map(|path| f32s(&path).into_iter().map(f64::from).collect());
        let (ours, plink2): (Vec<f64>, Vec<f64>) = (ours, plink2);
        assert_eq!(ours.len(), 60 * 61 / 2);
        assert_close(&ours, &plink2);
        assert_eq!(f32s(&out.join("grm.grm.N.bin")), f32s(&theirs("N.bin")));
        assert_eq!(fs::read(out.join("grm.grm.id")).unwrap(), fs::read(theirs("id")).unwrap());
    }
}

/// Of two alleles the one is as good as the other, and the alternate one is what is counted anyway.
#[test]
fn either_allele_is_counted() {
    let scratch = Scratch::new();
    let of = |more: &[&str]| {
        let out = scratch.join(&more.concat());
        let page = grm(&fixture("biallelic.vcz"), &out, &[&["--format", "npy"], more].concat()).ok().out;
        (npy(&out.join("grm.npy")), json(&fs::read_to_string(out.join("run.json")).unwrap()), page)
    };
    let [(every, record, _), (alternate, ..), (reference, of_reference, page)] =
        [&[][..], &["--counted-allele", "1"], &["--counted-allele", "0"]].map(of);
    assert_eq!(every, alternate);
    assert_close(&every, &reference);
    let digests = [&record, &of_reference].map(|record| &record["allele_counts"]);
    assert!(digests[0] != digests[1] && page.contains("dosages are copies of allele 0"), "{page}");
    assert_eq!((&record["counted_allele"], &of_reference["counted_allele"]), (&json("null"), &"0".into()));
}

#[test]
fn numpy_has_the_same() {
    let scratch = Scratch::new();
    for missing in ["pairwise", "mean"] {
        let out = scratch.join(missing);
        let options = ["--method", "vanraden1", "--missing", missing, "--format", "npy"];
        grm(&fixture("all_v3.vcz"), &out, &options).ok();
        assert_eq!(names(&out), ["grm.id", "grm.npy", "run.json"]);
        assert_close(&npy(&out.join("grm.npy")), &npy(&fixture(&format!("numpy/vanraden1.{missing}.npy"))));
        let ids = fs::read_to_string(out.join("grm.id")).unwrap();
        assert!(ids.starts_with("A00\nA01\n") && ids.lines().count() == 60);
    }
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
