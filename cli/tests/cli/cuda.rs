//! CUDA as users meet it, on the emulator: what is listed, what is computed, and what goes wrong.

use std::{path::Path, process::Command};

use crate::support::{Ran, Scratch, command, fixture, json, number, on_store, pca, rows, run};

/// `teatime pca` on CUDA, with what goes wrong in the environment.
fn pca_on_cuda(out: &Path, more: &[&str], faults: &[(&str, &str)]) -> Command {
    let mut command = on_store("pca", &fixture("biallelic.vcz"), out, more);
    command.args(["--device", "cuda"]).envs(faults.iter().copied());
    command
}

fn values(out: &Path) -> Vec<f64> {
    rows(&out.join("eigenvalues.tsv")).iter().map(|row| number(&row[1])).collect()
}

#[test]
fn the_device_is_described() {
    let listed = json(&run(command(["devices", "--json"])).ok().out);
    let cuda = listed.as_array().unwrap().iter().find(|entry| entry["name"] == "cuda:0").unwrap();
    assert_eq!(cuda["device"]["compute_capability"], serde_json::json!([8, 0]));
    assert_eq!(cuda["device"]["api"], "CUDA 13.0");
    assert!(cuda["device"]["memory"].as_u64().unwrap() > 1 << 30);
    let libraries: Vec<_> =
        cuda["libraries"].as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect();
    assert!(libraries[0].starts_with("NVRTC 13") && libraries[1].starts_with("cuBLAS 13"), "{libraries:?}");
    let table = run(command(["devices"])).ok().out;
    for words in ["cuda:0", "compute capability 8.0", "NVRTC 13", "cuBLAS 13"] {
        assert!(table.contains(words), "{words}: {table}");
    }
}

#[test]
fn an_emulator_is_not_the_default() {
    let mut devices = command(["devices", "--json"]);
    devices.env_remove("TEATIME_DEVICE");
    let listed = json(&run(devices).ok().out);
    assert!(
        listed.as_array().unwrap().iter().all(|entry| entry["name"] != "cuda:0" || entry["default"] == false)
    );
}

#[test]
fn results_are_those_of_the_cpu() {
    let scratch = Scratch::new();
    for method in ["exact", "randomized"] {
        let [cpu, cuda] = ["cpu", "cuda"].map(|name| scratch.join(&format!("{method}.{name}")));
        pca(&fixture("biallelic.vcz"), &cpu, &["--method", method]).ok();
        run(pca_on_cuda(&cuda, &["--method", method], &[])).ok();
        let record = json(&std::fs::read_to_string(cuda.join("run.json")).unwrap());
        assert_eq!(record["device"]["backend"], "cuda");
        for (a, b) in values(&cuda).iter().zip(values(&cpu)) {
            assert!((a - b).abs() <= 1e-5 * b, "{method}: {a} and {b}");
        }
    }
}

/// Both start with nothing compiled, and write to one cache.
#[test]
fn two_processes_share_a_gpu_and_a_cache() {
    let scratch = Scratch::new();
    let cache = scratch.join("cache");
    let outs = ["a", "b"].map(|name| scratch.join(name));
    let children = outs.each_ref().map(|out| {
        let mut command = pca_on_cuda(out, &[], &[("TEATIME_CACHE", cache.to_str().unwrap())]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    });
    for child in children {
        Ran::from(child.wait_with_output().unwrap()).ok();
    }
    assert_eq!(values(&outs[0]), values(&outs[1]));
}

/// Why CUDA is not there, said by `devices` and by whoever asks for it.
fn absent(faults: &[(&str, &str)], words: &[&str]) {
    let mut devices = command(["devices"]);
    devices.envs(faults.iter().copied());
    let scratch = Scratch::new();
    let ran = run(pca_on_cuda(&scratch.join("out"), &[], faults));
    assert_eq!(ran.code, 1);
    for (text, word) in
        [run(devices).ok().out, ran.err].iter().flat_map(|text| words.iter().map(move |w| (text, w)))
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn a_driver_without_a_gpu() {
    absent(&[("CUDA_EMULATOR_DEVICES", "0")], &["cuda", "there is no GPU"]);
}

#[test]
fn a_driver_that_is_too_old() {
    absent(&[("CUDA_EMULATOR_DRIVER", "11080")], &["CUDA 11.8", "update the driver"]);
}

#[test]
fn a_device_lost_mid_run() {
    let scratch = Scratch::new();
    let ran = run(pca_on_cuda(
        &scratch.join("out"),
        &["--method", "randomized"],
        &[("CUDA_EMULATOR_LOSE_AFTER", "3")],
    ));
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("cuda:0 is lost"), "{}", ran.err);
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn full_memory_is_an_error_of_one_line() {
    let scratch = Scratch::new();
    let ran = run(pca_on_cuda(&scratch.join("out"), &[], &[("CUDA_EMULATOR_MEMORY", "4096")]));
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("memory"), "{}", ran.err);
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

/// `teatime` where emulated devices are taken for real ones.
fn with_cards(mut command: Command, more: &[(&str, &str)]) -> Command {
    command.env_remove("TEATIME_DEVICE").env_remove("TEATIME_CUDA_KERNELS");
    command.env("CUDA_EMULATOR_NAME", "A card").envs(more.iter().copied());
    command
}

#[test]
fn the_default_is_the_card_with_most_memory() {
    let two = [("CUDA_EMULATOR_DEVICES", "3"), ("CUDA_EMULATOR_MEMORY", "1073741824,2147483648,2147483648")];
    let listed = json(&run(with_cards(command(["devices", "--json"]), &two)).ok().out);
    let default: Vec<_> =
        listed.as_array().unwrap().iter().filter(|entry| entry["default"] == true).collect();
    assert_eq!(default.len(), 1);
    assert_eq!(default[0]["name"], "cuda:1");
}

#[test]
fn a_card_without_code_for_its_kernels_is_skipped() {
    let scratch = Scratch::new();
    let none = [("TEATIME_EMULATOR_NVRTC", "none")];
    let (store, out) = (fixture("biallelic.vcz"), scratch.join("out"));
    let words = "A card: there is no code for its kernels: no NVRTC for CUDA 13 or older is here";
    let ran = run(with_cards(on_store("pca", &store, &out, &[]), &none));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains(&format!("warning: cuda:0 is not used: {words}")), "{}", ran.err);
    let record = json(&std::fs::read_to_string(out.join("run.json")).unwrap());
    assert_eq!(record["device"]["name"], "cpu");
    let warnings: Vec<_> =
        record["warnings"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    assert!(warnings.iter().any(|warning| warning.contains(words)), "{warnings:?}");
    let listed = run(with_cards(command(["devices"]), &none)).ok().out;
    assert!(listed.contains(&format!("not here: {words}")), "{listed}");
    let faults = [none[0], ("CUDA_EMULATOR_NAME", "A card")];
    let ran = run(pca_on_cuda(&scratch.join("other"), &[], &faults));
    assert!(ran.code == 1 && ran.err.contains(words), "{}", ran.err);
}
