//! The emulator: a libcuda, an NVRTC and a cuBLAS in C++ that run CUDA sources on the host, built when they are needed.
//!
//! Loaded in place of NVIDIA's, everything above them is the real driver. What they make worse than a GPU, so that
//! tests see it, is in `cuda/emulator`. For subprocesses of tests, these environment variables are read by the first
//! `cuInit`: `TEATIME_EMULATOR_DEVICES`, `_NAME`, `_DRIVER` (13000 is 13.0), `_MEMORY` (bytes of each device, with commas
//! between), `_FAIL_ALLOCATION` (the n-th), `_LOSE_AFTER` (launches), `_SEED` (of the order of blocks); and by the driver,
//! `_NVRTC=none`, which hides that.
#![allow(unsafe_code, reason = "loads shared objects and calls them")]

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::OnceLock,
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use sha2::{Digest, Sha256};

#[cfg(test)]
mod tests;

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/emulator/", $name)))),*]
    };
}

/// The emulator's files.
const SOURCES: &[(&str, &str)] = sources![
    "abi.h",
    "api.h",
    "block.h",
    "device.h",
    "fiber.cpp",
    "fiber.h",
    "image.h",
    "libcublas.cpp",
    "libcuda.cpp",
    "libcuda_control.cpp",
    "libcuda_memory.cpp",
    "libcuda_work.cpp",
    "libnvrtc.cpp",
    "memory.h",
    "shim.h",
    "writes.h",
];

/// Each library and what it is made of.
const LIBRARIES: &[(&str, &[&str])] = &[
    (
        "libcuda.so",
        &["libcuda.cpp", "libcuda_control.cpp", "libcuda_memory.cpp", "libcuda_work.cpp", "fiber.cpp"],
    ),
    ("libnvrtc.so", &["libnvrtc.cpp"]),
    ("libcublas.so", &["libcublas.cpp"]),
];

/// Where the emulator is.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Its NVRTC, to be opened like NVIDIA's.
    pub(crate) nvrtc: PathBuf,
    /// Its cuBLAS, which is loaded.
    pub(crate) cublas: PathBuf,
    /// The folder of `shim.h`. Its name has a digest of the emulator's sources: images that another one made do not
    /// load, so that this belongs in the keys of caches.
    pub(crate) include: PathBuf,
}

/// Builds the emulator, unless a process has done so before, and loads its libcuda and cuBLAS under the names by which
/// cudarc looks for NVIDIA's.
///
/// # Errors
/// What is missing, or the compiler's output.
pub(crate) fn load() -> Result<Paths, String> {
    loaded().map(|(paths, _)| paths)
}

/// The paths, and libcuda for what tests ask of it.
fn loaded() -> Result<(Paths, &'static Library), String> {
    static LOADED: OnceLock<Result<(Paths, Library), String>> = OnceLock::new();
    match LOADED.get_or_init(open) {
        Ok((paths, library)) => Ok((paths.clone(), library)),
        Err(why) => Err(why.clone()),
    }
}

fn open() -> Result<(Paths, Library), String> {
    let compiler =
        env::var("CXX").ok().filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "c++".into());
    let mut hash = Sha256::new();
    for (name, text) in SOURCES.iter().chain([&("CXX", compiler.as_str())]) {
        hash.update(format!("{name}\0{}\0{text}", text.len()));
    }
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let folder = env::temp_dir().join(format!("teatime-emulator-{digest}"));
    if !folder.join("libcuda.so").exists() {
        build(&folder, &compiler, &digest)?;
    }
    let global = |name: &str| {
        let path = folder.join(name);
        // SAFETY: the library is built from this crate's sources and has no constructor that could do harm; it is
        // never closed.
        unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }
            .map_err(|error| format!("cannot load the CUDA emulator: {error}"))
    };
    let cuda = global("libcuda.so")?;
    std::mem::forget(global("libcublas.so")?);
    let place = |name: &str| folder.join(name);
    let paths = Paths { nvrtc: place("libnvrtc.so"), cublas: place("libcublas.so"), include: folder.clone() };
    Ok((paths, cuda))
}

/// Builds in a folder of this process alone, which then takes its name: another process finds all of it or none.
fn build(folder: &Path, compiler: &str, digest: &str) -> Result<(), String> {
    let own = folder.with_extension(process::id().to_string());
    let cannot = |error: io::Error| format!("cannot build the CUDA emulator in {}: {error}", own.display());
    fs::create_dir_all(&own).map_err(cannot)?;
    for (name, text) in SOURCES {
        fs::write(own.join(name), text).map_err(cannot)?;
    }
    let children: Vec<Child> = LIBRARIES
        .iter()
        .map(|(library, sources)| compile(&own, compiler, digest, library, sources))
        .collect::<Result<_, String>>()?;
    for child in children {
        let output = child.wait_with_output().map_err(cannot)?;
        if !output.status.success() {
            let log = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{compiler} cannot build the CUDA emulator: {log}"));
        }
    }
    if fs::rename(&own, folder).is_err() {
        // Another process was first; or the folder cannot be made, which loading from it then tells.
        fs::remove_dir_all(&own).map_err(cannot)?;
    }
    Ok(())
}

fn compile(
    folder: &Path,
    compiler: &str,
    digest: &str,
    library: &str,
    sources: &[&str],
) -> Result<Child, String> {
    let mut words = compiler.split_whitespace();
    Command::new(words.next().unwrap_or("c++"))
        .args(words)
        .current_dir(folder)
        .args(["-std=c++17", "-O2", "-ftree-vectorize", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"])
        // No contraction, so that cuBLAS gives the same bits on every host.
        .arg("-ffp-contract=off")
        .arg(format!("-DEMULATOR_DIGEST=\"{digest}\""))
        .arg(format!("-Wl,-soname,{library}"))
        .args(["-o", library])
        .args(sources)
        .arg("-ldl")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("the CUDA emulator needs a C++ compiler (g++, clang++, or what CXX names): {compiler}: {error}"))
}

/// What tests ask of the emulator. Each is for one device, so that tests on several threads do not meet.
#[cfg(any(test, feature = "suite"))]
#[cfg_attr(not(test), allow(dead_code, reason = "the tests of other packages need some of it"))]
pub(crate) mod control {
    use std::ffi::{CStr, c_char, c_int, c_ulonglong};

    use super::loaded;

    /// A function of the emulator's libcuda.
    ///
    /// # Safety
    /// `F` is the function's type.
    unsafe fn function<F: Copy>(name: &str) -> F {
        // SAFETY: as the caller promises.
        unsafe { *loaded().expect("the emulator").1.get::<F>(name.as_bytes()).expect("a function of it") }
    }

    /// Sets a device's memory. 2 GiB unless this is called.
    pub fn memory(device: i32, bytes: u64) {
        // SAFETY: its type in libcuda_control.cpp.
        unsafe { function::<unsafe extern "C" fn(c_int, c_ulonglong)>("emulator_memory")(device, bytes) }
    }

    /// Makes the `nth` allocation from now fail, the next being 1; 0 takes that back.
    pub(crate) fn fail_allocation(device: i32, nth: u64) {
        // SAFETY: its type in libcuda_control.cpp.
        unsafe {
            function::<unsafe extern "C" fn(c_int, c_ulonglong)>("emulator_fail_allocation")(device, nth)
        }
    }

    /// Makes a device answer every call with the error `code` once it has taken `launches` more; 0 takes
    /// that back for contexts made from then on.
    pub fn lose(device: i32, launches: u64, code: i32) {
        type F = unsafe extern "C" fn(c_int, c_ulonglong, c_int);
        // SAFETY: its type in libcuda_control.cpp.
        unsafe { function::<F>("emulator_lose")(device, launches, code) }
    }

    /// In which order the warps of a block, and the threads of a warp, run between two barriers.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Order {
        /// By turns, changing with the number of the block and of the barrier; so unless this is called.
        Alternating = 0,
        /// From the first.
        Ascending = 1,
        /// From the last.
        Descending = 2,
    }

    /// Sets the order of later launches.
    pub(crate) fn order(device: i32, order: Order) {
        // SAFETY: its type in libcuda_control.cpp.
        unsafe { function::<unsafe extern "C" fn(c_int, c_int)>("emulator_order")(device, order as c_int) }
    }

    /// Begins a log of the calls for a device, and of what runs there.
    pub(crate) fn log_start(device: i32) {
        // SAFETY: its type in libcuda_control.cpp.
        unsafe { function::<unsafe extern "C" fn(c_int)>("emulator_log_start")(device) }
    }

    /// Ends the log. A line for each call, with streams as `s1`, events as `e1` and allocations as `m1`, in the order
    /// they were made; and where an operation runs, a line that starts with `  run s1 `.
    pub(crate) fn log_take(device: i32) -> Vec<String> {
        text("emulator_log_take", device).lines().map(Into::into).collect()
    }

    /// What the last fault on a device was: kernel, block, thread, address, and the allocation next to it.
    pub(crate) fn fault(device: i32) -> String {
        text("emulator_fault", device)
    }

    fn text(name: &str, device: i32) -> String {
        // SAFETY: the type of both in libcuda_control.cpp; the text stands until the next call for the device, and a device is
        // one test's.
        unsafe {
            let text = function::<unsafe extern "C" fn(c_int) -> *const c_char>(name)(device);
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}
