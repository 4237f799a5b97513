//! `teatime demo`.

use std::{fs, path::Path};

use crate::support::{Scratch, json, names, number, provenance, rows, teatime};

const SMALL: [&str; 6] = ["--variants", "2500", "--samples", "90", "--fst", "0.1"];

fn demo(out: &Path, more: &[&str]) -> crate::support::Ran {
    let out = out.to_string_lossy();
    teatime([&["demo", "--out", &*out][..], &SMALL, more].concat())
}

/// Every file below a folder with its bytes, but for the record, which has times in it.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            all.extend(contents(&path).into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else if name != "run.json" {
            all.push((name, fs::read(path).expect("the file should be readable")));
        }
    }
    all
}

#[test]
fn writes_everything_and_finds_the_populations() {
    let scratch = Scratch::new();
    let out = scratch.join("demo");
    let ran = demo(&out, &[]).ok();
    for word in ["cpu", "2,500 variants x 90 samples", "decode", "compute", "eigenvalue", "exact"] {
        assert!(ran.out.contains(word), "{word} in {}", ran.out);
    }
    assert_eq!(
        names(&out),
        [
            "eigenvalues.tsv",
            "genotypes.vcz",
            "pca.eigenval",
            "pca.eigenvec",
            "pca.svg",
            "populations.tsv",
            "run.json",
            "scores.tsv"
        ]
    );
    assert_eq!(scratch.names(), ["demo"]);

    // Samples of one population are nearer to each other than to any of another.
    let scores: Vec<_> = rows(&out.join("scores.tsv"))
        .iter()
        .map(|row| (row[0][..4].to_owned(), number(&row[1]), number(&row[2])))
        .collect();
    let distance = |a: &(String, f64, f64), b: &(String, f64, f64)| (a.1 - b.1).hypot(a.2 - b.2);
    let pairs = || scores.iter().flat_map(|a| scores.iter().map(move |b| (a, b)));
    let within = pairs().filter(|(a, b)| a.0 == b.0).map(|(a, b)| distance(a, b)).fold(0.0, f64::max);
    let between = pairs().filter(|(a, b)| a.0 != b.0).map(|(a, b)| distance(a, b)).fold(f64::MAX, f64::min);
    assert!(within < between, "{within} within, {between} between");

    let svg = fs::read_to_string(out.join("pca.svg")).expect("the plot should be there");
    assert_eq!(svg.matches("<circle").count(), 90 + 3, "samples and the legend");
    for word in ["pop1", "pop3", "PC1 (", "PC2 ("] {
        assert!(svg.contains(word), "{word}");
    }
}

#[test]
fn the_same_bits_again_and_with_other_threads() {
    let scratch = Scratch::new();
    let folders = [("a", "1"), ("b", "1"), ("c", "3")].map(|(name, threads)| {
        let out = scratch.join(name);
        demo(&out, &["--threads", threads]).ok();
        contents(&out)
    });
    assert!(folders[0].len() > 12);
    for other in &folders[1..] {
        for (left, right) in folders[0].iter().zip(other) {
            assert!(left == right, "{} and {} differ", left.0, right.0);
        }
        assert_eq!(folders[0].len(), other.len());
    }
    let out = scratch.join("d");
    demo(&out, &["--seed", "2"]).ok();
    assert_ne!(folders[0], contents(&out));
}

#[test]
fn replaces_its_own_folder_and_nothing_else() {
    let scratch = Scratch::new();
    let out = scratch.join("demo");
    demo(&out, &[]).ok();
    let first = contents(&out);
    fs::write(out.join("notes.txt"), "mine").expect("the folder should be writable");
    let record = json(&demo(&out, &["--json"]).ok().out);
    provenance(&record, "demo", [None, None]);
    assert_eq!(record["command"], "demo");
    assert_eq!(fs::read_to_string(out.join("notes.txt")).ok().as_deref(), Some("mine"));
    fs::remove_file(out.join("notes.txt")).expect("the file should go");
    assert_eq!(first, contents(&out));

    // A store that no demo wrote.
    let other = scratch.join("other");
    fs::create_dir_all(other.join("genotypes.vcz")).expect("the folder should be new");
    let ran = demo(&other, &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("genotypes.vcz"), "{}", ran.err);
    assert_eq!(names(&other), ["genotypes.vcz"]);
}

#[test]
fn arguments_that_make_no_sense() {
    let scratch = Scratch::new();
    let out = scratch.join("demo");
    for (flag, value) in [
        ("--populations", "1501"),
        ("--missing", "2"),
        ("--fst", "1"),
        ("--samples", "0"),
        ("--samples", "1000000000000"),
    ] {
        let ran = teatime(["demo", flag, value, "--out", &out.to_string_lossy()]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains(flag) && ran.err.contains(value), "{}", ran.err);
    }
    // Without a call there is nothing to decompose.
    let ran = demo(&out, &["--missing", "1"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("2500 have no call"), "{}", ran.err);
    assert!(scratch.names().is_empty());
}
