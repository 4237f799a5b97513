//! Runs the program as users do, with small sizes on the cpu device.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::NamedTempFile;

fn bench(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_teatime-bench");
    Command::new(program).args(args).output().expect("the program should start")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output should be UTF-8")
}

fn scratch() -> NamedTempFile {
    NamedTempFile::new().expect("the temporary folder should be writable")
}

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().expect("the folder's name should be UTF-8")
}

#[test]
fn measures_writes_and_compares() {
    let file = scratch();
    let output = bench(&["--device", "cpu", "--seconds", "0.1", "--markdown", "--json", path(&file)]);
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    let report = fs::read_to_string(&file).expect("the file should be there");
    let report: Value = serde_json::from_str(&report).expect("the file should be JSON");
    let device = &report["devices"][0];
    assert_eq!(device["name"], "cpu");
    assert_eq!(device["failed"], Value::Array(Vec::new()));
    assert_eq!(device["digests"].as_object().map(serde_json::Map::len), Some(5));
    assert_eq!(device["values"].as_object().map(serde_json::Map::len), Some(3));
    let entries = device["entries"].as_array().expect("there should be measurements");
    for entry in entries {
        let positive = |field: &str| entry[field].as_f64().is_some_and(|value| value > 0.0);
        assert!(positive("median") && positive("min") && positive("max"), "{entry}");
        let kernel = entry["id"].as_str().is_some_and(|id| id.starts_with("kernel "));
        assert_eq!(kernel, entry["fraction"].is_object(), "{entry}");
        assert!(text(&output.stdout).contains(entry["id"].as_str().unwrap_or_default()));
    }
    assert!(entries.len() >= 21, "{}", text(&output.stdout));
    // Five jobs make the score, and a table to paste has a line for each measurement.
    let printed = text(&output.stdout);
    assert!(printed.contains("score 1: ") && printed.contains("extrapolated"), "{printed}");
    let pasted = printed.lines().filter(|line| line.starts_with("| ")).count();
    assert!(pasted > entries.len(), "{printed}");

    let same = bench(&["--compare", path(&file), path(&file)]);
    assert!(same.status.success(), "{}", text(&same.stderr));
    assert!(text(&same.stdout).contains("1.000 times (") && text(&same.stdout).contains("agree"));
    let named = format!("{}=cpu", path(&file));
    let three = bench(&["--compare", path(&file), path(&file), &named, "--markdown"]);
    assert!(three.status.success(), "{}", text(&three.stderr));
    assert!(text(&three.stdout).contains("| score 1 | | "), "{}", text(&three.stdout));

    let other = scratch();
    let mut changed = report;
    changed["devices"][0]["digests"]["exact random words"] = "00".into();
    fs::write(&other, changed.to_string()).expect("the folder should be writable");
    let differ = bench(&["--compare", path(&file), path(&other)]);
    assert_eq!(differ.status.code(), Some(1));
    assert!(text(&differ.stdout).contains("exact random words"), "{}", text(&differ.stdout));
}

#[test]
fn says_what_is_wrong() {
    let file = scratch();
    fs::write(&file, "{\"schema\": 1}").expect("the folder should be writable");
    let unknown = "there-is-no-such-file.json=cpu";
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--device", "gpu"], 1, "cpu"),
        (&["--seconds=-1"], 2, "--seconds"),
        (&["--compare", "only-one.json"], 2, "--compare"),
        (&["--compare", "not-there.json", "not-there.json"], 1, "not-there.json"),
        (&["--compare", path(&file), path(&file)], 1, "missing field"),
        (&["--compare", unknown, unknown], 1, "there-is-no-such-file.json"),
        (&["--device", "cpu", "--seconds", "0", "--only", "no such thing"], 1, "kernel recode"),
        (&["--compare", "a", "b", "--seconds", "1"], 2, "--seconds"),
    ];
    for (args, code, says) in cases {
        let output = bench(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(text(&output.stderr).contains(says), "{args:?}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("panicked"), "{args:?}");
    }
}

#[test]
fn names_choose_measurements() {
    let output = bench(&["--device", "cpu", "--seconds", "0", "--only", "exact random"]);
    assert!(output.status.success());
    assert!(!text(&output.stdout).contains("copy"), "{}", text(&output.stdout));
}

/// The rates are measured on a card, or on its emulator if the build has it.
#[test]
#[allow(clippy::print_stdout, reason = "a skip is said")]
fn rates_of_a_card() {
    if !text(&bench(&["--names"]).stdout).lines().any(|name| name == "cuda:0") {
        let required = std::env::var("TEATIME_REQUIRE_DEVICES").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "cuda"), "there is no CUDA device");
        println!("SKIP: no CUDA device");
        return;
    }
    for only in ["products of bytes, 1 warps", "additions to 16384 sums", "reads of 8 MiB"] {
        let args = ["--device", "cuda:0", "--flight", "rates", "--seconds", "1", "--only", only];
        let output = bench(&args);
        assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
        assert!(text(&output.stdout).contains(&format!("  {only}")), "{}", text(&output.stdout));
    }
}
