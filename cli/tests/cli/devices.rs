//! Tests of `teatime devices`.

use serde_json::json;
use teatime::store::write_npy;

use crate::support::{Scratch, assert_has, json as parsed, run};

#[test]
fn lists_what_can_be_passed() {
    let scratch = Scratch::new();
    let listed = parsed(&scratch.ok("devices --json").out);
    let list = listed.as_array().expect("the list should be an array");
    assert!(list.iter().any(|entry| entry["name"] == "cpu" && entry["default"] == true));
    let table = scratch.ok("devices").out;
    for entry in list {
        assert_ne!(entry["device"].is_null(), entry["why_not"].is_null(), "{entry}");
        assert!(table.contains(entry["name"].as_str().expect("a name should be text")), "{table}");
    }
}

#[test]
fn a_default_that_is_not_there_is_an_error() {
    let scratch = Scratch::new();
    let mut command = scratch.command("devices");
    command.env("TEATIME_DEVICE", "abacus");
    let ran = run(command);
    assert!(ran.code == 1 && ran.err.contains("abacus"), "{}", ran.err);
}

#[test]
fn a_variable_names_the_threads() {
    let scratch = Scratch::new();
    write_npy(scratch.join("x.npy"), &[1.0f32, 2.0, 4.0, 8.0], [2, 2]).unwrap();
    let with = |threads: &str, options: &str| {
        let words = "blur x.npy y.npy --sigma 1 --overwrite --json --device cpu";
        let mut command = scratch.command(&format!("{words}{options}"));
        command.env("TEATIME_THREADS", threads);
        run(command)
    };
    for (threads, options, expected) in [("3", "", 3), ("3", " --threads 2", 2), ("none", " --threads 2", 2)]
    {
        assert_eq!(parsed(&with(threads, options).out)["threads"], expected, "{threads}{options}");
    }
    for threads in ["0", "1025", "none", "-1"] {
        let ran = with(threads, "");
        assert_eq!(ran.code, 1, "{threads}");
        assert_has(&ran.err, &["TEATIME_THREADS", threads, "1 to 1024"]);
    }
}

/// Devices of a group share the work of some commands, and the files are the same; other commands say that they do not share.
#[test]
fn groups() {
    let scratch = Scratch::new();
    scratch.ok("demo --variants 9000 --samples 60 -k 3 --out demo");
    let rows: Vec<f32> = (0..300 * 40).map(|i| (i * 7919 % 1013) as f32).collect();
    write_npy(scratch.join("x.npy"), &rows, [300, 40]).unwrap();
    let pca = "pca demo/genotypes.vcz --out NEW -k 3 --loadings";
    for (number, (words, files)) in [
        (pca, &["NEW/pca.eigenvec", "NEW/loadings.tsv.gz"][..]),
        ("grm demo/genotypes.vcz --out NEW --format npy", &["NEW/grm.npy"]),
        ("distance demo/genotypes.vcz --out NEW.npy", &["NEW.npy"]),
        ("pairwise x.npy --out NEW.tsv --neighbors 5", &["NEW.tsv"]),
        ("pairwise x.npy --out NEW.tsv --radius 1500", &["NEW.tsv"]),
        ("blur x.npy NEW.npy --sigma 3", &["NEW.npy"]),
        ("denoise x.npy NEW.npy --iterations 9", &["NEW.npy"]),
    ]
    .into_iter()
    .enumerate()
    {
        let made = |device: &str| {
            let new = |text: &str| text.replace("NEW", &format!("{number}-{device}"));
            let record = scratch.record(&format!("{} --device {device}", new(words)));
            let files = files.iter().map(|file| scratch.bytes(&new(file)));
            (record, files.collect::<Vec<_>>())
        };
        let ((one, expected), (shared, found)) = (made("cpu"), made("cpu,cpu"));
        assert!(found == expected, "{words}");
        assert_eq!([&one["devices"], &shared["devices"]], [&json!(["cpu"]), &json!(["cpu", "cpu"])]);
        assert_eq!(shared["warnings"], json!([]), "{words}");
        if words.starts_with("pca") {
            assert_has(shared["residency_reason"].as_str().unwrap(), &["on each of 2 devices: "]);
        }
    }
    let shared = scratch.record("svd x.npy --out shared -k 2 --method randomized --device cpu,cpu");
    assert_eq!((&shared["devices"], &shared["warnings"]), (&json!(["cpu", "cpu"]), &json!([])));
    let warned = scratch.ok("svd x.npy --out svd -k 2 --device cpu,cpu").err;
    assert_has(&warned, &["warning: svd computed on cpu alone, not on all of cpu, cpu"]);
    let few = scratch.record("grm @biallelic.vcz --out few --device cpu,cpu");
    assert_eq!(few["devices"], json!(["cpu"]));
    assert_has(&few["warnings"].to_string(), &["grm computed on cpu alone"]);
    scratch.refused("blur x.npy new.npy --sigma 1 --device cpu,abacus", 1, &["abacus"]);
    scratch.refused("blur x.npy new.npy --sigma 1 --device abacus:*", 1, &["abacus:*"]);
}

/// Mesa's Vulkan looks for a desktop, and prints an error if there is none.
#[test]
#[cfg(feature = "wgpu")]
fn no_desktop_is_no_error() {
    let scratch = Scratch::new();
    for folder in [None, Some("relative")] {
        for words in ["devices", "pca @all_v3.vcz --out out --overwrite --device wgpu"] {
            let mut command = scratch.command(words);
            for name in ["TEATIME_DEVICE", "NODEVICE_SELECT", "XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "DISPLAY"]
            {
                command.env_remove(name);
            }
            command.envs(folder.map(|folder| ("XDG_RUNTIME_DIR", folder)));
            let ran = run(command).ok();
            assert!(!ran.err.contains("XDG_RUNTIME_DIR"), "{words}: {}", ran.err);
        }
    }
}
