//! Tests of `teatime pca --resume` when it is killed, has no disk space, or gets another input.

use std::fs;

use teatime::random::philox;

use crate::support::{Scratch, assert_has, files, run, store};

/// Writes a store of 300 samples, whose spectrum is flat, so that a PCA takes many passes.
fn cohort(scratch: &Scratch, name: &str, shift: u64) {
    let names: Vec<String> = (0..300).map(|i| format!("s{i}")).collect();
    let dosage = move |i: u64| (philox([1, 2], i + shift)[0] % 3).to_le_bytes()[0].cast_signed();
    let rows: Vec<Vec<i8>> = (0..900).map(|v| (0..300).map(|s| dosage(300 * v + s)).collect()).collect();
    let rows: Vec<&[i8]> = rows.iter().map(|row| &row[..]).collect();
    store(&scratch.join(name), &names.iter().map(String::as_str).collect::<Vec<_>>(), &rows);
}

const WORDS: &str = "-k 4 --method randomized --tolerance 1e-6 --loadings";

#[test]
fn killed() {
    let scratch = Scratch::new();
    cohort(&scratch, "c.vcz", 0);
    let whole = scratch.record(&format!("pca c.vcz --out whole {WORDS}"));
    assert!(whole["passes"].as_u64() > Some(9) && whole["passes_found"] == 0, "{whole}");
    // The run is killed once the product of a pass is there.
    let killed = |out: &str, parts: &[&str]| {
        scratch.killed(&format!("pca c.vcz --out {out} {WORDS} --resume --threads 1"), out, parts);
    };
    killed("out", &["pca.checkpoint/2", "pca.checkpoint/4"]);
    assert!(!scratch.join("out/pca.eigenvec").exists());
    let path =
        "out/pca.checkpoint: is there, of a run that was stopped; --resume goes on with it, or move it away";
    scratch.refused(&format!("pca c.vcz --out out {WORDS}"), 1, &[path]);
    for (other, said) in [
        ("c.vcz -k 5", "components was 4, and is 5"),
        ("c.vcz -k 4 --scaler binom2", "scaler was patterson, and is binom2"),
        ("c.vcz -k 4 --maf 0.1", "filter was "),
    ] {
        let words = format!("pca {other} --method randomized --tolerance 1e-6 --out out --resume");
        scratch.refused(&words, 1, &["out/pca.checkpoint: is of another job: ", said]);
    }
    cohort(&scratch, "other.vcz", 1);
    let other = format!("pca other.vcz --out out {WORDS} --resume");
    scratch.refused(&other, 1, &["is of another job: stores was ", "c.vcz", "and is ", "other.vcz"]);
    let resumed = scratch.record(&format!("pca c.vcz --out out {WORDS} --resume --memory 1G --threads 3"));
    assert!(resumed["passes_found"].as_u64() >= Some(4) && resumed["passes"] == whole["passes"], "{resumed}");
    assert!(scratch.results("out") == scratch.results("whole"));
    assert!(!scratch.join("out/pca.checkpoint").exists());
    scratch.refused(&format!("pca c.vcz --out out {WORDS} --resume"), 1, &["--overwrite replaces them"]);
    // A store that is written anew is another one.
    killed("again", &["pca.checkpoint/1"]);
    fs::write(scratch.join("c.vcz/new"), "").unwrap();
    scratch.refused(&format!("pca c.vcz --out again {WORDS} --resume"), 1, &["stores was ", "c.vcz"]);
}

/// A product that the disk has no room for ends the run with its name, and a later run goes on.
#[test]
fn a_full_disk() {
    let scratch = Scratch::new();
    cohort(&scratch, "c.vcz", 0);
    let words = format!("pca c.vcz --out out {WORDS} --resume");
    let ran = run(scratch.behind("ulimit -f 8; exec", &words));
    assert_eq!(ran.code, 1, "{}", ran.err);
    let said = "out/pca.checkpoint has the passes so far: --resume goes on with them";
    assert_has(&ran.err, &["out/pca.checkpoint/1: ", said]);
    assert_eq!(files(&scratch.join("out")).len(), 1, "the job alone");
    scratch.ok(&words);
    scratch.ok(&format!("pca c.vcz --out whole {WORDS}"));
    assert!(scratch.results("out") == scratch.results("whole"));
}

/// The exact method makes one pass, which nobody needs to resume.
#[test]
fn resuming_asks_for_the_randomized_method() {
    let scratch = Scratch::new();
    store(&scratch.join("c.vcz"), &["a", "b", "c"], &[&[0, 1, 2], &[2, 0, 1], &[1, 1, 0]]);
    let said = "--resume is for --method randomized";
    scratch.refused("pca c.vcz --out out -k 1 --method exact --resume", 2, &[said]);
    let record = scratch.record("pca c.vcz --out out -k 1 --resume");
    assert_eq!((&record["method"], &record["passes_found"]), (&"randomized".into(), &0.into()));
    assert!(!scratch.join("out/pca.checkpoint").exists());
}
