//! The program as people run it, on small sizes of the cpu device.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_teatime-bench");
    Command::new(program).args(args).output().expect("the program should start")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output should be UTF-8")
}

/// A file that is removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("teatime-bench-{}-{name}", std::process::id())))
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("the folder's name should be UTF-8")
    }

    fn json(&self) -> Value {
        let text = fs::read_to_string(&self.0).expect("the file should be there");
        serde_json::from_str(&text).expect("the file should be JSON")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

#[test]
fn measures_writes_and_compares() {
    let file = Scratch::new("whole.json");
    let output = bench(&["--device", "cpu", "--seconds", "0.1", "--json", file.text()]);
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    let report = file.json();
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
    assert!(entries.len() >= 16, "{}", text(&output.stdout));

    let same = bench(&["--compare", file.text(), file.text()]);
    assert!(same.status.success(), "{}", text(&same.stderr));
    assert!(text(&same.stdout).contains("1.000 times") && text(&same.stdout).contains("agree"));

    let other = Scratch::new("other.json");
    let mut changed = report;
    changed["devices"][0]["digests"]["exact random words"] = "00".into();
    fs::write(&other.0, changed.to_string()).expect("the folder should be writable");
    let differ = bench(&["--compare", file.text(), other.text()]);
    assert_eq!(differ.status.code(), Some(1));
    assert!(text(&differ.stdout).contains("exact random words"), "{}", text(&differ.stdout));
}

#[test]
fn says_what_is_wrong() {
    let file = Scratch::new("layout.json");
    fs::write(&file.0, "{\"schema\": 1}").expect("the folder should be writable");
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--device", "gpu"], 1, "cpu"),
        (&["--seconds=-1"], 2, "--seconds"),
        (&["--compare", "only-one.json"], 2, "--compare"),
        (&["--compare", "not-there.json", "not-there.json"], 1, "not-there.json"),
        (&["--compare", file.text(), file.text()], 1, "missing field"),
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
