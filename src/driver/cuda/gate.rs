//! The compile gate: NVIDIA's own compiler takes every kernel with every spec for every generation of devices, on a
//! machine without a GPU.
//!
//! Its folder is named by `TEATIME_CUDA_LIBRARIES`. `TEATIME_REQUIRE_DEVICES` with `nvrtc` in it makes its absence a
//! failure.

#![allow(clippy::print_stdout, reason = "a skipped test is said aloud")]

use std::{env, fmt::Write as _, path::PathBuf, sync::OnceLock};

use rayon::prelude::*;

use super::{
    cache::{Cache, Key},
    libraries,
    nvrtc::Nvrtc,
    source::{HEADERS, source},
};
use crate::registry;

/// Ampere, Hopper, and the two generations of Blackwell.
const ARCHS: [&str; 4] = ["sm_80", "sm_90a", "sm_100", "sm_120"];

/// An NVRTC that knows all of [`ARCHS`]; where there is none, says so.
///
/// # Panics
/// When there is none and one is required.
pub(super) fn nvrtc() -> Option<&'static Nvrtc> {
    static FOUND: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let mut tried = String::new();
        for candidate in libraries::real_nvrtc_candidates(i32::MAX) {
            match Nvrtc::open(&candidate.path, None) {
                Ok(nvrtc) if nvrtc.arch((12, 0), 13_000).as_deref() == Some("sm_120") => return Ok(nvrtc),
                Ok(_) => _ = write!(tried, "; {} is too old", candidate.path.display()),
                Err(why) => _ = write!(tried, "; {why}"),
            }
        }
        Err(format!("no NVRTC 12.8 or newer, see TEATIME_CUDA_LIBRARIES{tried}"))
    });
    let required = env::var("TEATIME_REQUIRE_DEVICES").unwrap_or_default();
    match found {
        Ok(nvrtc) => Some(nvrtc),
        Err(why) if required.split(',').any(|name| name == "nvrtc") => panic!("nvrtc is required: {why}"),
        Err(why) => {
            println!("SKIP nvrtc: {why}");
            None
        }
    }
}

/// What is wrong with a program, if anything: it does not compile, registers are spilled to memory, or instructions
/// that should overlap are put one after the other.
fn fault(nvrtc: &Nvrtc, name: &str, source: &str, arch: &str) -> Option<String> {
    let log = match nvrtc.compile(name, source, HEADERS, arch) {
        Ok(compiled) => compiled.log,
        Err(log) => return Some(log),
    };
    let spilled = spilled(&log);
    if spilled != Some(0) {
        return Some(format!("{spilled:?} bytes spilled\n{log}"));
    }
    log.contains("are serialized").then_some(log)
}

/// Bytes that a log says are spilled; none where it does not tell.
fn spilled(log: &str) -> Option<u32> {
    let words: Vec<_> = log.split_whitespace().collect();
    let counts = words.windows(3).filter(|words| words[1] == "bytes" && words[2] == "spill");
    counts.map(|words| words[0].parse().ok()).reduce(|a, b| Some(a? + b?))?
}

/// Where it is kept that a program has passed: beside this test program, so that only what changed is compiled again.
/// All of them take minutes.
fn passed_before() -> Cache {
    let program = env::current_exe().unwrap();
    Cache::new(program.ancestors().nth(2).map(PathBuf::from).unwrap().join("cuda-gate"))
}

#[test]
fn every_spec_of_every_kernel_compiles_without_spills() {
    let Some(nvrtc) = nvrtc() else { return };
    let mut programs = Vec::new();
    for kernel in registry::kernels() {
        for spec in (kernel.specs)() {
            let source = source(kernel, &spec).unwrap();
            programs.extend(ARCHS.map(|arch| (kernel.name, spec.clone(), source.clone(), arch)));
        }
    }
    let passed = passed_before();
    let check = |(name, spec, source, arch): &(&'static str, Vec<_>, String, &'static str)| {
        // The gate itself is a part of what a program has passed.
        let options = format!("{} {}", nvrtc.options(), include_str!("gate.rs"));
        let key = Key::new(name, source, HEADERS, &options, arch, nvrtc.version());
        if passed.get(&key).is_some() {
            return None;
        }
        let fault = fault(nvrtc, &format!("{name}.cu"), source, arch);
        if fault.is_none() {
            passed.put(&key, &[]).unwrap();
        }
        Some(format!("{name} {spec:?} {arch}: {}", fault?))
    };
    // In a pool of its own: other tests wait for the global one.
    let pool = rayon::ThreadPoolBuilder::new().build().unwrap();
    let faults: Vec<_> = pool.install(|| programs.par_iter().filter_map(check).collect());
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), programs.len(), faults.join("\n"));
}

#[test]
fn planted_faults_are_found() {
    let Some(nvrtc) = nvrtc() else { return };
    let kernel = |body: &str| {
        format!("#include \"dev.cuh\"\nKERNEL(planted, 1024)(const float* x, float* out) {{\n{body}\n}}\n")
    };
    let fault = |body: &str| fault(nvrtc, "planted.cu", &kernel(body), "sm_90a");
    assert_eq!(fault("out[threadIdx.x] = x[threadIdx.x];"), None);

    let log = fault("out[threadIdx.x] = y;").unwrap();
    assert!(log.contains("planted.cu(3): error") && log.contains("\"y\""), "{log}");

    // 1024 threads have 64 registers each.
    let log = fault(
        "float keep[96];
        for (int i = 0; i < 96; i++) keep[i] = x[i * 1024 + threadIdx.x];
        for (int n = 0; n < 1000; n++) {
            for (int i = 0; i < 96; i++) keep[i] += keep[i] * keep[(i + 1) % 96];
        }
        for (int i = 0; i < 96; i++) out[i * 1024 + threadIdx.x] = keep[i];",
    )
    .unwrap();
    assert!(log.contains("bytes spilled"), "{log}");
}

#[test]
fn logs_are_read() {
    let line = "ptxas info    : Used 40 registers, used 1 barriers";
    assert_eq!(spilled(line), None);
    let line = "    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads";
    assert_eq!(spilled(line), Some(20));
    assert_eq!(spilled("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"), Some(0));
}

#[test]
fn images_are_of_the_kind_asked_for() {
    let Some(nvrtc) = nvrtc() else { return };
    let dosage = &crate::genotype::dosage::DOSAGE.def;
    let compile = |arch| nvrtc.compile("dosage.cu", dosage.cuda, HEADERS, arch).unwrap().image;
    assert!(compile("sm_80").starts_with(b"\x7fELF"));
    let ptx = String::from_utf8(compile("compute_80")).unwrap();
    assert!(ptx.ends_with('\0') && ptx.contains(".target sm_80") && ptx.contains(".entry dosage("), "{ptx}");
}
