#![doc = include_str!("../README.md")]
// The crate uses shared objects and the host's compiler as Linux has them; on other systems it is empty.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "loads shared objects and calls them")]

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use sha2::{Digest, Sha256};

pub mod control;

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cpp/", $name)))),*]
    };
}

/// The emulator's source files.
const SOURCES: &[(&str, &str)] = sources![
    "abi.h",
    "api.h",
    "block.h",
    "device.h",
    "fiber.cpp",
    "fiber.h",
    "half.h",
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

/// Each library with its source files.
const LIBRARIES: [(&str, &[&str]); 3] = [
    (
        "libcuda.so",
        &["libcuda.cpp", "libcuda_control.cpp", "libcuda_memory.cpp", "libcuda_work.cpp", "fiber.cpp"],
    ),
    ("libnvrtc.so", &["libnvrtc.cpp"]),
    ("libcublas.so", &["libcublas.cpp"]),
];

/// The paths of the libraries, which are in one folder with the kernels' header.
#[derive(Clone, Debug)]
pub struct Libraries {
    /// Replaces NVIDIA's driver.
    pub cuda: PathBuf,
    /// Replaces NVIDIA's run-time compiler.
    pub nvrtc: PathBuf,
    /// Replaces cuBLAS; it needs the driver's symbols.
    pub cublas: PathBuf,
    /// The folder of the libraries. Its name has a digest of their sources: no other emulator loads code that this one compiled, so the digest
    /// belongs in the keys of caches.
    pub folder: PathBuf,
}

impl Libraries {
    /// Builds the libraries in a folder of their own below `parent`, unless they exist.
    ///
    /// # Errors
    /// The error says what is missing, or holds the compiler's output.
    pub fn build(parent: &Path) -> Result<Self, String> {
        static LOCK: Mutex<()> = Mutex::new(());
        let compiler =
            env::var("CXX").ok().filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "c++".into());
        let mut hash = Sha256::new();
        for (name, text) in SOURCES.iter().chain([&("CXX", compiler.as_str())]) {
            hash.update(format!("{name}\0{}\0{text}", text.len()));
        }
        let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let folder = parent.join(format!("cuda-emulator-{digest}"));
        let [cuda, nvrtc, cublas] = LIBRARIES.map(|(name, _)| folder.join(name));
        // The lock keeps threads of one process from building in the same folder at once.
        let _one = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        if !cuda.exists() {
            build(&folder, &compiler, &digest)?;
        }
        Ok(Self { cuda, nvrtc, cublas, folder })
    }
}

/// Builds the libraries in the folder for temporary files, unless a process has done so before, and loads them for good: the system's loader then
/// returns these libraries for `libcuda.so`, `libnvrtc.so` and `libcublas.so`.
///
/// # Errors
/// The error says what is missing, or holds the compiler's output.
pub fn load() -> Result<&'static Libraries, String> {
    loaded().map(|(libraries, _)| libraries)
}

/// Returns the libraries, and the loaded libcuda for [`control`].
fn loaded() -> Result<&'static (Libraries, Library), String> {
    static LOADED: OnceLock<Result<(Libraries, Library), String>> = OnceLock::new();
    LOADED.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn open() -> Result<(Libraries, Library), String> {
    let libraries = Libraries::build(&env::temp_dir())?;
    let open = |path: &Path, scope| {
        // SAFETY: the library is built from this crate's sources and has no constructor that could do harm; it is
        // never closed.
        unsafe { Library::open(Some(path), RTLD_NOW | scope) }
            .map_err(|error| format!("cannot load the CUDA emulator: {error}"))
    };
    let cuda = open(&libraries.cuda, RTLD_GLOBAL)?;
    std::mem::forget(open(&libraries.cublas, RTLD_GLOBAL)?);
    // NVIDIA's own library, if it is loaded too, must not find symbols of this one.
    std::mem::forget(open(&libraries.nvrtc, RTLD_LOCAL)?);
    Ok((libraries, cuda))
}

/// Builds in a folder of this process alone, then renames it to `folder`: another process sees either all libraries or none.
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
        // Another process has finished first, or the folder cannot be created; the latter fails later, when the libraries are loaded.
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
        // Floating-point contraction is off, so that cuBLAS gives the same bits on every host.
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
