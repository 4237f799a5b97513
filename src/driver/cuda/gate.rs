//! The compile gate: on a machine without a GPU, NVIDIA's own compilers compile every kernel with every spec for every generation of
//! devices. The newest compiler stands for users' compilers. The oldest compiles the PTX that is shipped, and lacks some functions that it
//! declares.
//!
//! `gate.sha256` beside this file names the kernels whose programs have passed for all architectures, with the current options and
//! compilers. These are not compiled again here. Any other kernel is compiled for all architectures, and the test fails until
//! `scripts/kernel-images` has written the file anew. If the newest compiler here is not [`RECORDED`], all kernels are compiled.
//!
//! `TEATIME_CUDA_LIBRARIES` names the compilers' folders. If `TEATIME_REQUIRE_DEVICES` has `nvrtc` in it, missing compilers are a failure.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::{
    cache::{Cache, Key, hex},
    images, libraries,
    nvrtc::{self, Nvrtc},
    source::{HEADERS, source},
};
use crate::{
    kernel::KernelDef,
    kernels::{KERNELS, add_block::ADD_BLOCK},
    openings::skip,
};

/// The version of the newest compiler, for which the record is made.
const RECORDED: (i32, i32) = (13, 0);
/// The architectures for the newest compiler: Turing, Ampere, Hopper, and the two generations of Blackwell.
const NEWEST: [&str; 5] = ["sm_75", "sm_80", "sm_90a", "sm_100", "sm_120"];
/// The architectures for the oldest compiler: PTX is shipped for the second only.
const OLDEST: [&str; 2] = ["sm_75", "sm_80"];

/// Returns an NVRTC that knows all of [`NEWEST`], or prints that there is none.
///
/// # Panics
/// If there is none and one is required.
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
    wanted(found)
}

/// Returns the NVRTC that compiles the shipped PTX, as [`nvrtc`] does.
pub(super) fn oldest() -> Option<&'static Nvrtc> {
    static FOUND: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    wanted(FOUND.get_or_init(|| images::shipping_nvrtc().map_err(|why| why.to_string())))
}

fn wanted(found: &'static Result<Nvrtc, String>) -> Option<&'static Nvrtc> {
    found.as_ref().map_err(|why| skip("nvrtc", why)).ok()
}

/// Returns the fault of a program, if it has one: it does not compile, keeps variables in memory, or runs instructions one after the other
/// that should overlap.
fn fault(nvrtc: &Nvrtc, name: &str, source: &str, arch: &str) -> Option<String> {
    let log = match nvrtc.compile(name, source, HEADERS, arch) {
        Ok(compiled) => compiled.log,
        Err(log) => return Some(log),
    };
    let in_memory = in_memory(&log);
    if in_memory != Some(0) {
        return Some(format!("{in_memory:?} bytes of variables in memory\n{log}"));
    }
    log.contains("are serialized").then_some(log)
}

/// Returns the bytes of stack frames, and of registers spilled there, from a log, or none if the log does not tell. Such variables go
/// through the caches, since their index is unknown or registers are too few.
fn in_memory(log: &str) -> Option<u32> {
    let words: Vec<_> = log.split_whitespace().collect();
    let counts =
        words.windows(3).filter(|words| words[1] == "bytes" && ["stack", "spill"].contains(&words[2]));
    counts.map(|words| words[0].parse().ok()).reduce(|a, b| Some(a? + b?))?
}

/// Returns the record of programs that have passed, beside this test program, so that only changed ones are compiled again.
fn passed_before() -> Cache {
    let program = env::current_exe().unwrap();
    Cache::new(program.ancestors().nth(2).map(PathBuf::from).unwrap().join("cuda-gate"))
}

/// Returns, by name, digests of each kernel's programs, and of everything that all have in common, such as the rules of this file.
fn digests() -> BTreeMap<&'static str, String> {
    let digest = |parts: &[&str]| hex(&Sha256::digest(parts.join("\0")));
    let of = |kernel: &&'static KernelDef| {
        let programs: Vec<_> = (kernel.specs)().iter().map(|spec| source(kernel, spec).unwrap()).collect();
        (kernel.name, digest(&programs.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    // The newest compiler's version is in this file.
    let compilers = format!("{} {:?}", nvrtc::OPTIONS, images::SHIPPED_NVRTC);
    let mut common = vec![include_str!("gate.rs"), &compilers];
    common.extend(HEADERS.iter().flat_map(|&(name, text)| [name, text]));
    KERNELS.iter().map(of).chain([("all", digest(&common))]).collect()
}

/// Returns the path of a record beside this file.
pub(super) fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/driver/cuda").join(name)
}

/// Checks that a record is as it should be, or writes it if `scripts/kernel-images` has set the variable.
pub(super) fn hold(name: &str, record: &str) {
    if env::var_os("TEATIME_WRITE_RECORDS").is_some() {
        return fs::write(beside(name), record).unwrap();
    }
    let committed = fs::read_to_string(beside(name)).unwrap_or_default();
    assert!(committed == record, "kernels have changed, and {name} has not: run scripts/kernel-images");
}

fn recorded(digests: &BTreeMap<&'static str, String>) -> String {
    digests.iter().fold(String::new(), |text, (name, digest)| text + &format!("{digest}  {name}\n"))
}

/// Returns the kernels that differ from the record.
fn changed(record: &str, digests: &BTreeMap<&'static str, String>) -> Vec<&'static str> {
    let known = |name| record.lines().any(|line| line == format!("{}  {name}", digests[name]));
    digests.keys().copied().filter(|&name| name != "all" && !(known("all") && known(name))).collect()
}

#[test]
fn every_spec_of_every_kernel_compiles() {
    let digests = digests();
    let changed = changed(&fs::read_to_string(beside("gate.sha256")).unwrap_or_default(), &digests);
    let (Some(newest), Some(oldest)) = (nvrtc(), oldest()) else {
        assert!(changed.is_empty(), "{changed:?} have changed, and no compiler is here to take them");
        return;
    };
    let mut programs = Vec::new();
    let of_record = newest.version() == RECORDED;
    for &kernel in KERNELS.iter().filter(|kernel| changed.contains(&kernel.name) || !of_record) {
        for spec in (kernel.specs)() {
            let source = source(kernel, &spec).unwrap();
            for (nvrtc, archs) in [(newest, &NEWEST[..]), (oldest, &OLDEST)] {
                let one = |&arch| (kernel.name, spec.clone(), source.clone(), nvrtc, arch);
                programs.extend(archs.iter().map(one));
            }
        }
    }
    let passed = passed_before();
    let check = |(name, spec, source, nvrtc, arch): &(&'static str, Vec<_>, String, &Nvrtc, &str)| {
        // A passed program depends on this file.
        let options = format!("{} {}", nvrtc.options(), include_str!("gate.rs"));
        let key = Key::new(name, source, HEADERS, &options, arch, nvrtc.version());
        if passed.get(&key).is_some() {
            return None;
        }
        let fault = fault(nvrtc, &format!("{name}.cu"), source, arch);
        if fault.is_none() {
            passed.put(&key, &[]).unwrap();
        }
        Some(format!("{name} {spec:?} {arch} by {:?}: {}", nvrtc.version(), fault?))
    };
    // In a pool of its own: other tests wait for the global one.
    let pool = rayon::ThreadPoolBuilder::new().build().unwrap();
    let faults: Vec<_> = pool.install(|| programs.par_iter().filter_map(check).collect());
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), programs.len(), faults.join("\n"));
    assert!(of_record || changed.is_empty(), "{changed:?} have changed: the record wants NVRTC {RECORDED:?}");
    hold("gate.sha256", &recorded(&digests));
}

#[test]
fn what_changed_is_known() {
    let digests = digests();
    let record = recorded(&digests);
    assert_eq!(changed(&record, &digests), [""; 0]);
    let all: Vec<_> = digests.keys().copied().filter(|&name| name != "all").collect();
    assert_eq!(changed("", &digests), all);
    for (name, expected) in [("matmul", vec!["matmul"]), ("all", all)] {
        let other = record.replace(&digests[name], &"0".repeat(64));
        assert_eq!(changed(&other, &digests), expected, "{name}");
    }
}

#[test]
fn planted_faults_are_found() {
    let (Some(newest), Some(oldest)) = (nvrtc(), oldest()) else { return };
    let kernel = |body: &str| {
        format!("#include \"dev.cuh\"\nKERNEL(planted, 1024)(const float* x, float* out) {{\n{body}\n}}\n")
    };
    let fault = |body: &str| fault(newest, "planted.cu", &kernel(body), "sm_90a");
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
    assert!(log.contains("bytes of variables in memory"), "{log}");

    // An array at a place that only the run knows.
    let log = fault(
        "float keep[64] = {};
        for (int i = 0; i < 1000; i++) keep[(int)x[i] & 63] += x[i];
        out[threadIdx.x] = keep[threadIdx.x & 63];",
    )
    .unwrap();
    assert!(log.contains("bytes of variables in memory") && log.contains(" 0 bytes spill stores"), "{log}");

    // Compilers before 12.3 declare what they do not have.
    let log = self::fault(
        oldest,
        "planted.cu",
        &kernel("out[threadIdx.x] = (float)__dp4a((int)x[0], (int)x[1], 2);"),
        "sm_80",
    );
    assert!(log.unwrap().contains("__dp4a"));
}

#[test]
fn logs_are_read() {
    let line = "ptxas info    : Used 40 registers, used 1 barriers";
    assert_eq!(in_memory(line), None);
    let line = "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads";
    assert_eq!(in_memory(line), Some(36));
    assert_eq!(in_memory("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"), Some(0));
}

#[test]
fn images_are_of_the_kind_asked_for() {
    let Some(nvrtc) = nvrtc() else { return };
    let sums = source(&ADD_BLOCK.def, &[("WG", 256)]).unwrap();
    let compile = |arch| nvrtc.compile("add_block.cu", &sums, HEADERS, arch).unwrap().image;
    assert!(compile("sm_80").starts_with(b"\x7fELF"));
    let ptx = String::from_utf8(compile("compute_80")).unwrap();
    assert!(
        ptx.ends_with('\0') && ptx.contains(".target sm_80") && ptx.contains(".entry add_block("),
        "{ptx}"
    );
}

/// PTX is no program yet: nothing looks for what it lacks before a driver does.
#[test]
fn ptx_that_lacks_a_function_is_refused() {
    let Some(nvrtc) = nvrtc() else { return };
    let lacks = "__device__ int elsewhere(int);
        extern \"C\" __global__ void planted(int* x) { *x = elsewhere(*x); }";
    let why = nvrtc.compile("planted.cu", lacks, HEADERS, "compute_80").unwrap_err();
    assert!(why.contains(".extern .func") && why.contains("elsewhere"), "{why}");
}
