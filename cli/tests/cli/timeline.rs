//! Tests of `--trace` and `--report`, which all commands have.

use serde_json::{Value, json};

use crate::support::{Scratch, assert_has, site, store_of};

/// Returns the names of a trace's spans of a kind.
fn spans(trace: &Value, kind: &str) -> Vec<String> {
    let events = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == kind);
    events.map(|event| event["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_command_writes_both_files() {
    let scratch = Scratch::new();
    scratch.ok("pca @all_v3.vcz --out reference --loadings -k 1");
    let project = "project @all_v3.vcz --loadings reference/loadings.tsv.gz --out p";
    for (words, phases) in [
        ("pca @all_v3.vcz --out pca -k 1", &["open", "pca", "write", "pca"][..]),
        ("grm @all_v3.vcz --out grm", &["open", "grm", "write", "grm"]),
        ("distance @all_v3.vcz --out d.npy", &["open", "distances", "write", "distance"]),
        (project, &["open", "matching", "project", "project"]),
        ("svd @distance/counts.npy --out svd -k 2", &["open", "svd", "write", "svd"]),
        ("pairwise @distance/counts.npy --out w.npy", &["open", "distances", "write", "pairwise"]),
        ("blur @filter/blur.npy soft.npy --sigma 1", &["open", "blur"]),
        ("denoise @filter/blur.npy clean.npy", &["open", "denoise"]),
        ("demo --out demo --variants 200 --samples 40", &["simulate", "open", "pca", "write", "demo"]),
    ] {
        let record = scratch.record(&format!("{words} --trace new/t.json --report r.html"));
        assert_eq!(record["timeline"], json!({ "trace": "new/t.json", "report": "r.html" }), "{words}");
        let trace = scratch.json("new/t.json");
        assert_eq!(spans(&trace, "phase"), phases, "{words}");
        assert!(!spans(&trace, "kernel").is_empty(), "{words}");
        let page = scratch.text("r.html");
        let parts = ["<p class=\"bound\">Bound by ", "<h2>Stages</h2>", "Memory over time", "command_line"];
        assert_has(&page, &parts);
        let has_plots = ["pca", "svd", "demo"].iter().any(|name| words.starts_with(name));
        assert_eq!(page.contains("<h2>Plots</h2>"), has_plots);
    }
    let record = scratch.record("blur @filter/blur.npy soft.npy --sigma 1 --overwrite");
    assert_eq!(record["timeline"], json!({ "trace": null, "report": null }));
}

#[test]
fn a_run_that_fails_has_them_too() {
    let scratch = Scratch::new();
    let mut store: Vec<_> = (1..5).map(|position| site("1", position, ["A", "C"], &[0, 1, 2])).collect();
    store_of(&scratch.join("a.vcz"), "s", &store);
    store.truncate(1);
    std::fs::write(scratch.join("a.vcz/call_genotype/0.0.0"), "damaged").unwrap();
    let ran = scratch.run("pca a.vcz --out out -k 1 --trace t.json --report r.html");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(scratch.names(), ["a.vcz", "r.html", "t.json"]);
    assert_eq!(spans(&scratch.json("t.json"), "phase"), ["open"]);
    let page = scratch.text("r.html");
    assert_has(&page, &["The run did not finish: error: ", "a.vcz", "<td>device.name</td><td>cpu</td>"]);
    // A refused command did not run.
    scratch.refused("pca a.vcz --out out --method exact --tolerance 1e-3 --trace u.json", 2, &["--method"]);
}

#[test]
fn files_of_others_stay() {
    let scratch = Scratch::new();
    let words = "blur @filter/blur.npy soft.npy --sigma 1 --overwrite";
    scratch.write("t.json", "{}");
    let why = "is there, and not a file that this option wrote";
    scratch.refused(&format!("{words} --trace t.json"), 1, &["t.json: ", why]);
    scratch.ok(&format!("{words} --report r.html"));
    scratch.refused(&format!("{words} --trace r.html"), 1, &["r.html: ", why]);
    scratch.refused(&format!("{words} --trace r.html --report r.html"), 2, &["one file"]);
    scratch.refused(&format!("{words} --trace t.json/t.json"), 1, &["t.json"]);
    scratch.refused(&format!("{words} --trace ."), 1, &[".: is a folder"]);
    // A result that is made under the name stays too.
    let ran = scratch.run("blur @filter/blur.npy new.npy --sigma 1 --trace new.npy");
    assert_eq!(ran.code, 1);
    assert_has(&ran.err, &["error: new.npy: ", why, "the results are complete"]);
    assert!(scratch.bytes("new.npy").starts_with(b"\x93NUMPY"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_path_that_is_no_text() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let scratch = Scratch::new();
    let name = OsStr::from_bytes(b"t\xff.json");
    let mut command = scratch.command("blur @filter/blur.npy soft.npy --sigma 1 --trace");
    command.arg(name);
    crate::support::run(command).ok();
    assert!(scratch.join("").join(name).is_file());
}

/// The results stay if the disk is full when the trace is written.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_takes_no_results() {
    let scratch = Scratch::new();
    let ran = scratch.run("blur @filter/blur.npy soft.npy --sigma 1 --trace /dev/full");
    assert_eq!(ran.code, 1);
    assert_has(&ran.err, &["error: /dev/full: ", "the results are complete"]);
    assert_eq!(scratch.names(), ["soft.npy", "soft.run.json"]);
    let ran = scratch.run("pca absent.vcz --out out --trace /dev/full");
    assert_eq!(ran.code, 1);
    assert_has(&ran.err, &["warning: /dev/full: ", "error: ", "absent.vcz"]);
}
