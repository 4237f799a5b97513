//! `teatime distance --neighbors`.

use std::{fs, path::Path};

use crate::support::{Ran, Scratch, fixture, json, npy_of, number, on_store, provenance, rows, run};

fn distance(store: &str, out: &Path, more: &[&str]) -> Ran {
    run(on_store("distance", &fixture(store), out, more))
}

#[test]
fn the_ending_chooses_the_format() {
    let scratch = Scratch::new();
    let of = |ending: &str| {
        let more = ["--neighbors", "3", "--metric", "ibs", "--het-het", "0.5", "--overwrite"];
        distance("all_v2.vcz", &scratch.join(&format!("x{ending}")), &more).ok();
        scratch.names()
    };
    assert_eq!(of(".npy"), ["x.id", "x.neighbors.npy", "x.npy", "x.run.json"]);
    let distances = npy_of(&scratch.join("x.npy"), [60, 3]);
    // The other files give way.
    assert_eq!(of(".tsv"), ["x.run.json", "x.tsv"]);
    let table = rows(&scratch.join("x.tsv"));
    assert_eq!((table.len(), &*table[0][0], &*table[1][1]), (180, "A00", "2"));
    assert!(table.iter().map(|row| number(&row[3])).eq(distances));
    assert_eq!(of(".zarr"), ["x.run.json", "x.zarr"]);
    assert!(
        ["neighbor", "distance", "sample_id"].iter().all(|name| scratch.join("x.zarr").join(name).exists())
    );
}

#[test]
fn the_record_says_how() {
    let scratch = Scratch::new();
    let out = scratch.join("x.npy");
    let of = |metric: &str, more: &[&str]| {
        let words = ["--neighbors", "3", "--metric", metric, "--overwrite"];
        distance("all_v2.vcz", &out, &[&words, more].concat()).ok()
    };
    let record = json(&of("hamming", &["--json"]).out);
    provenance(&record, "distance", [None, None]);
    assert_eq!(record["neighbors"], serde_json::json!({ "k": 3, "bands": 1 }));
    assert!(record["bands"].is_null());
    assert_eq!(record["files"], serde_json::json!(["x.run.json", "x.npy", "x.neighbors.npy", "x.id"]));
    let page = of("hamming", &[]).out;
    assert!(page.contains("3 of each sample, of distances in 1 band\n"), "{page}");
    let page = of("canberra", &[]).out;
    assert!(page.contains("3 of each sample, of the matrix of all distances"), "{page}");
    let record = json(&of("canberra", &["--json"]).out);
    assert_eq!(record["neighbors"], serde_json::json!({ "k": 3, "bands": null }));
    let propagated = of("hamming", &["--missing", "propagate"]);
    assert!(propagated.err.contains("pairs of samples is NaN"), "{}", propagated.err);
    distance("all_v2.vcz", &out, &["--overwrite"]).ok();
    let record = json(&fs::read_to_string(scratch.join("x.run.json")).unwrap());
    assert!(record["neighbors"].is_null());
    assert_eq!(scratch.names(), ["x.id", "x.npy", "x.run.json"]);
}

#[test]
fn what_cannot_be_is_named() {
    let scratch = Scratch::new();
    let says = |out: &str, more: &[&str], code: i32, words: &str| {
        let ran = distance("all_v3.vcz", &scratch.join(out), more);
        assert!(ran.code == code && ran.err.contains(words), "{} {}", ran.code, ran.err);
        assert!(scratch.names().is_empty(), "{:?} is left", scratch.names());
    };
    for out in ["x.dist", "x.dist.bin"] {
        // Before any work.
        says(
            out,
            &["--neighbors", "2", "--memory", "1K"],
            2,
            "--neighbors is for --out D.npy, D.tsv or D.zarr",
        );
    }
    for more in [&["--tree", "ward"][..], &["--resume"]] {
        says("x.zarr", &[&["--neighbors", "2"], more].concat(), 2, "cannot be used with");
    }
    for k in ["0", "60"] {
        says("x.tsv", &["--neighbors", k], 1, &format!("--neighbors: {k} of 60 samples: from 1 to 59"));
    }
    says("x.tsv", &["--neighbors=-1"], 2, "--neighbors");
    let words = "memory budget of 1.0 KiB is too small: this needs at least";
    says("x.tsv", &["--neighbors", "2", "--memory", "1K"], 1, words);
    let words =
        "memory budget, for the matrix of all distances, of 1.0 KiB is too small: this needs at least";
    says("x.tsv", &["--neighbors", "2", "--metric", "canberra", "--memory", "1K"], 1, words);
}
