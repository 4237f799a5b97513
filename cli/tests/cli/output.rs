//! Tests of the folder of results when signals arrive and other runs write.

use std::{fs, thread::sleep, time::Duration};

use crate::support::{Busy, Scratch, copy, fixture, names, plain_array};

/// Starts a command that reacts to signals, even if a script runs the tests in the background, which makes children ignore them.
fn busy(scratch: &Scratch, shell: &str, words: &str, begun: impl Fn() -> bool) -> Busy {
    let heeding = if cfg!(target_os = "linux") { "exec env --default-signal=INT,TERM,HUP" } else { "exec" };
    let command = scratch.behind(if shell.is_empty() { heeding } else { shell }, words);
    let busy = Busy::start(command, begun).expect("the command ended before it was busy");
    sleep(Duration::from_millis(300));
    busy
}

/// Returns the words of a PCA of more variants than any machine reads during a test.
fn long_pca() -> String {
    format!("pca {}--method exact --out out --overwrite", "@all_v3.vcz ".repeat(5000))
}

#[test]
fn signals_leave_nothing() {
    let scratch = Scratch::new();
    let chunks = || {
        let out = scratch.join("new/demo");
        out.exists() && names(&out).iter().any(|name| !names(&out.join(name)).is_empty())
    };
    let begun = || !scratch.names().is_empty();
    let (pca, demo) = (long_pca(), "demo --out new/demo --variants 3000000".to_owned());
    for (words, begun, signal, code) in [
        (&pca, &begun as &dyn Fn() -> bool, "-INT", 130),
        (&pca, &begun, "-TERM", 143),
        (&pca, &begun, "-HUP", 129),
        (&demo, &chunks, "-INT", 130),
    ] {
        let run = busy(&scratch, "", words, begun);
        run.signal(signal);
        assert_eq!(run.end(), (code, "interrupted\n".to_owned()), "{signal}");
        assert!(scratch.names().is_empty(), "{signal}: {:?}", scratch.names());
    }
}

/// Under `nohup` the hangup signal is ignored, as here; tested on systems that report ignored signals.
#[test]
#[cfg(target_os = "linux")]
fn a_signal_that_is_ignored_stays_ignored() {
    let scratch = Scratch::new();
    let mut run = busy(&scratch, "trap '' HUP; exec", &long_pca(), || !scratch.names().is_empty());
    run.signal("-HUP");
    sleep(Duration::from_millis(300));
    assert_eq!(run.code(), None);
    run.signal("-TERM");
    assert_eq!(run.end().0, 143);
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn after_a_kill_the_next_run_works() {
    let scratch = Scratch::new();
    scratch.ok("pca @all_v3.vcz --out out -k 3");
    let before = scratch.bytes("out/scores.tsv");
    let hidden = || names(&scratch.join("out")).into_iter().find(|name| name.starts_with('.'));
    assert!(busy(&scratch, "", &long_pca(), || hidden().is_some()).kill());
    assert_eq!(scratch.bytes("out/scores.tsv"), before);
    let left = hidden().unwrap();
    let ran = scratch.ok("pca @all_v3.vcz --out out -k 2 --overwrite");
    let warning = format!("warning: out: `{left}` left by a run that was killed");
    assert!(ran.err.starts_with(&warning), "{}", ran.err);
    assert!(scratch.text("out/run.json").contains("left by a run that was killed"));
    assert_eq!(scratch.rows("out/scores.tsv")[0].len(), 3);
    assert!(scratch.join("out").join(left).exists(), "it may be of a run on another machine");
}

/// The computed components are not lost because a later variant has no position.
#[test]
fn an_error_in_the_loadings_keeps_the_components() {
    let scratch = Scratch::new();
    copy(&fixture("all_v3.vcz"), &scratch.join("store.vcz"));
    fs::remove_dir_all(scratch.join("store.vcz/variant_position")).unwrap();
    let positions = (0..239).chain([-1_i32]).flat_map(i32::to_le_bytes).collect::<Vec<_>>();
    plain_array(&scratch.join("store.vcz/variant_position"), "<i4", &[240], &positions);
    let ran = scratch.run("pca store.vcz --out out --loadings --threads 1");
    let all = names(&scratch.join("out"));
    let [left] = &all[..] else { panic!("{all:?}") };
    assert!(ran.code == 1 && ran.err.contains("variant 239 is at position -1"), "{}", ran.err);
    let said = format!("; the results so far are in {}\n", scratch.join("out").join(left).display());
    assert!(ran.err.ends_with(&said), "{}", ran.err);
    scratch.ok("pca store.vcz --out whole --threads 1");
    for name in ["scores.tsv", "pca.eigenvec", "pca.eigenval", "eigenvalues.tsv"] {
        let [kept, whole] =
            [&*format!("out/{left}"), "whole"].map(|out| scratch.bytes(&format!("{out}/{name}")));
        assert!(kept == whole, "{name}");
    }
    let there = |name| scratch.join("out").join(left).join(name).exists();
    assert!(!there("run.json") && !there("loadings.tsv.gz"));
}
