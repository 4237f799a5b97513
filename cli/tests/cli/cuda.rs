//! Tests of CUDA as users meet it, on the emulator: listed devices, results and faults.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{Ran, Scratch, assert_has, json, run};

const PCA: &str = "pca @biallelic.vcz --out out --device cuda --overwrite";

/// Returns a command with environment variables that cause faults.
fn with(scratch: &Scratch, words: &str, faults: &[(&str, &str)]) -> Command {
    let mut command = scratch.command(words);
    command.envs(faults.iter().copied());
    command
}

#[test]
fn the_device_is_described() {
    let scratch = Scratch::new();
    let listed = json(&scratch.ok("devices --json").out);
    let cuda = listed.as_array().unwrap().iter().find(|entry| entry["name"] == "cuda:0").unwrap();
    assert_eq!(cuda["device"]["compute_capability"], json!([8, 0]));
    assert_eq!(cuda["device"]["api"], "CUDA 13.0");
    assert!(cuda["device"]["memory"].as_u64().unwrap() > 1 << 30);
    assert_has(&cuda["libraries"].to_string(), &["[\"NVRTC 13", "\"cuBLAS 13"]);
    let words = ["cuda:0", "compute capability 8.0", "NVRTC 13", "cuBLAS 13"];
    assert_has(&scratch.ok("devices").out, &words);
}

/// Both processes start with nothing compiled, and write to one cache.
#[test]
fn two_processes_share_a_gpu_and_a_cache() {
    let scratch = Scratch::new();
    let cache = scratch.join("cache");
    let children = ["a", "b"].map(|out| {
        let words = format!("pca @biallelic.vcz --device cuda --out {out}");
        let mut command = with(&scratch, &words, &[("TEATIME_CACHE", cache.to_str().unwrap())]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for child in children {
        Ran::from(child.wait_with_output().unwrap()).ok();
    }
    let [values, others] = ["a", "b"].map(|out| scratch.text(&format!("{out}/eigenvalues.tsv")));
    assert_eq!(values, others);
    assert_eq!(scratch.json("a/run.json")["device"]["backend"], "cuda");
}

/// A command on CUDA reports a fault, and so does `devices` if the fault makes CUDA unavailable.
#[test]
fn faults_are_told() {
    let scratch = Scratch::new();
    for (fault, method, words, is_absent) in [
        (("CUDA_EMULATOR_DEVICES", "0"), "", &["cuda", "there is no GPU"][..], true),
        (("CUDA_EMULATOR_DRIVER", "11080"), "", &["CUDA 11.8", "update the driver"], true),
        (("CUDA_EMULATOR_LOSE_AFTER", "3"), "--method randomized", &["cuda:0 is lost"], false),
        (("CUDA_EMULATOR_MEMORY", "4096"), "", &["memory"], false),
    ] {
        let ran = run(with(&scratch, &format!("{PCA} {method}"), &[fault]));
        assert!(ran.code == 1 && scratch.names().is_empty(), "{fault:?}: {}", ran.err);
        assert_has(&ran.err, words);
        if is_absent {
            assert_has(&run(with(&scratch, "devices", &[fault])).ok().out, words);
        }
    }
}

/// Runs `teatime` without a device setting, with emulated GPUs that look like real ones.
fn with_cards(scratch: &Scratch, words: &str, more: &[(&str, &str)]) -> Ran {
    let mut command = with(scratch, words, &[("CUDA_EMULATOR_NAME", "A card")]);
    command.env_remove("TEATIME_DEVICE").env_remove("TEATIME_CUDA_KERNELS").envs(more.iter().copied());
    run(command).ok()
}

#[test]
fn the_default_is_the_card_with_most_memory() {
    let scratch = Scratch::new();
    let defaults = |ran: Ran| -> Vec<String> {
        let listed = json(&ran.out);
        let chosen = listed.as_array().unwrap().iter().filter(|entry| entry["default"] == true);
        chosen.map(|entry| entry["name"].to_string()).collect()
    };
    let three =
        [("CUDA_EMULATOR_DEVICES", "3"), ("CUDA_EMULATOR_MEMORY", "1073741824,2147483648,2147483648")];
    assert_eq!(defaults(with_cards(&scratch, "devices --json", &three)), ["\"cuda:1\""]);
    // An emulated GPU is never the default device.
    let mut devices = scratch.command("devices --json");
    devices.env_remove("TEATIME_DEVICE");
    assert!(!defaults(run(devices).ok()).contains(&"\"cuda:0\"".to_owned()));
}

/// All cards share a PCA. One that is lost is named.
#[test]
fn cards_share_the_work() {
    let scratch = Scratch::new();
    scratch.ok("demo --variants 9000 --samples 60 -k 3 --out demo");
    let cards = ("CUDA_EMULATOR_DEVICES", "3");
    let words =
        |device| format!("pca demo/genotypes.vcz --device {device} --out {device} --method randomized");
    for device in ["cuda:*", "cuda:2"] {
        run(with(&scratch, &words(device), &[cards])).ok();
    }
    let [all, one] = ["cuda:*", "cuda:2"].map(|device| scratch.bytes(&format!("{device}/pca.eigenvec")));
    assert!(all == one);
    let record = scratch.json("cuda:*/run.json");
    assert_eq!(record["devices"], json!(["cuda:0", "cuda:1", "cuda:2"]));
    assert_has(record["residency_reason"].as_str().unwrap(), &["on each of 3 devices: "]);
    let lost = ("CUDA_EMULATOR_LOSE_AFTER", "10");
    let ran = run(with(&scratch, &format!("{} --overwrite", words("cuda:0,cuda:1")), &[cards, lost]));
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_has(&ran.err, &["error: device cuda:", " is lost"]);
}

#[test]
fn a_card_without_code_for_its_kernels_is_skipped() {
    let scratch = Scratch::new();
    let none = [("TEATIME_EMULATOR_NVRTC", "none")];
    let words = "A card: there is no code for its kernels: no NVRTC for CUDA 13 or older is here";
    let ran = with_cards(&scratch, "pca @biallelic.vcz --out out", &none);
    assert_has(&ran.err, &[&format!("warning: cuda:0 is not used: {words}")]);
    let record = scratch.json("out/run.json");
    assert_eq!(record["device"]["name"], "cpu");
    assert_has(&record["warnings"].to_string(), &[words]);
    assert_has(&with_cards(&scratch, "devices", &none).out, &[&format!("not here: {words}")]);
    let ran = run(with(&scratch, PCA, &[none[0], ("CUDA_EMULATOR_NAME", "A card")]));
    assert!(ran.code == 1 && ran.err.contains(words), "{}", ran.err);
}
