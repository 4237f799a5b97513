//! Finds NVIDIA's libraries and loads them, before cudarc asks the system's loader for them by name.
//!
//! The libraries are never unloaded, since they have threads and exit handlers of their own. Each is loaded with
//! `RTLD_LOCAL`, so that two versions in one process do not bind to each other's symbols.

#![allow(unsafe_code, reason = "loading a library runs its initialisers")]

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use libloading::Library;

/// The file names of NVRTC, newest first, each with the major version of CUDA that it belongs to.
const NVRTC: &[(i32, &str)] = if cfg!(windows) {
    &[(13, "nvrtc64_130_0.dll"), (12, "nvrtc64_120_0.dll"), (11, "nvrtc64_112_0.dll")]
} else {
    &[(13, "libnvrtc.so.13"), (12, "libnvrtc.so.12"), (11, "libnvrtc.so.11.2")]
};

/// The file names of cuBLAS, newest first, each with its major version of CUDA. cudarc finds the last two major versions only.
#[cfg(any(test, not(feature = "cuda-emulator")))]
const CUBLAS: &[(i32, &str)] = if cfg!(windows) {
    &[(13, "cublas64_13.dll"), (12, "cublas64_12.dll")]
} else {
    &[(13, "libcublas.so.13"), (12, "libcublas.so.12")]
};

/// The file name of the CUDA driver's library.
#[cfg(not(feature = "cuda-emulator"))]
const DRIVER: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// A place where a library may be: a path, or a bare name for the system's loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    /// The major version of CUDA that the library belongs to.
    pub(super) major: i32,
    /// A folder of headers that programs need in addition to this crate's.
    pub(super) include: Option<PathBuf>,
}

/// Loads the driver's library, so that cudarc finds it. Fails with one line that says why there is none.
#[cfg(not(feature = "cuda-emulator"))]
pub(crate) fn driver() -> Result<(), String> {
    if cfg!(target_os = "macos") {
        return Err("CUDA does not exist for macOS".into());
    }
    // Under WSL the driver belongs to the Windows host.
    let folders = explicit_folders().into_iter().chain([PathBuf::from("/usr/lib/wsl/lib")]);
    let path = load_driver(DRIVER, folders)?;
    // SAFETY: the library was loaded just now, so its initialisers have run already.
    if unsafe { cudarc::driver::sys::is_culib_present() } {
        Ok(())
    } else {
        Err(format!("{} is there, but not under a name that is asked for", path.display()))
    }
}

/// Loads the driver's library `name` from the first of `folders` that has it. If none has it, the system's loader looks for the name.
#[cfg(any(test, not(feature = "cuda-emulator")))]
fn load_driver(name: &str, folders: impl Iterator<Item = PathBuf>) -> Result<PathBuf, String> {
    let paths = folders.map(|folder| folder.join(name)).filter(|path| path.is_file());
    let mut failed = None;
    for path in paths.chain([PathBuf::from(name)]) {
        match load(&path) {
            Ok(_) => return Ok(path),
            Err(why) if path.is_absolute() || !why.starts_with(name) => failed = Some(why),
            Err(_) => {}
        }
    }
    Err(failed.unwrap_or_else(|| format!("no {name}: the NVIDIA driver is not installed")))
}

/// Returns the newest CUDA version that the driver supports, as 1000 major + 10 minor.
pub(super) fn driver_version() -> i32 {
    let mut version = 0;
    // SAFETY: callers have loaded the library before; if the call fails, the version stays 0.
    let _ = unsafe { cudarc::driver::sys::cuDriverGetVersion(&raw mut version) };
    version
}

/// Loads a cuBLAS that a driver for CUDA `driver_version` (13000 for 13.0) can run, so that cudarc finds it. This takes
/// a large part of a second, so callers call it at the first product, not when a device is opened. Fails with one line
/// that says why there is none and what to install.
#[cfg(not(feature = "cuda-emulator"))]
pub(crate) fn cublas(driver_version: i32) -> Result<PathBuf, String> {
    load_cublas(driver_version / 1000)
}

/// Loads the newest cuBLAS whose major version of CUDA is at most `major`.
#[cfg(any(test, not(feature = "cuda-emulator")))]
fn load_cublas(major: i32) -> Result<PathBuf, String> {
    let mut failed = None;
    for Candidate { path, .. } in candidates(CUBLAS, &explicit_folders(), &folders(), major) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let (Some(folder), Some(name)) = (folder, path.file_name().and_then(std::ffi::OsStr::to_str)) {
            // cuBLAS needs cuBLASLt. Outside of the system's folders, it finds cuBLASLt only if that is loaded already.
            let lt = folder.join(name.replace("cublas", "cublasLt"));
            if let Err(why) = if lt.is_file() { load(&lt).map(|_| ()) } else { Ok(()) } {
                failed = Some(why);
                continue;
            }
        }
        match load(&path) {
            Ok(_) => return Ok(path),
            Err(why) if path.is_absolute() => failed = Some(why),
            Err(_) => {}
        }
    }
    let wheel = if major >= 13 { "nvidia-cublas" } else { "nvidia-cublas-cu12" };
    Err(failed.unwrap_or_else(|| {
        format!("no cuBLAS for CUDA {major} or older is here: install a CUDA toolkit, or pip install {wheel}")
    }))
}

/// Returns the places where NVRTC may be, best first, for a driver that supports CUDA up to major version `major`.
#[cfg(not(feature = "cuda-emulator"))]
pub(super) fn nvrtc_candidates(major: i32) -> Result<Vec<Candidate>, String> {
    Ok(real_nvrtc_candidates(major))
}

/// The emulator's libraries, which replace NVIDIA's.
#[cfg(feature = "cuda-emulator")]
mod emulated {
    use super::*;

    /// Makes and loads the emulator's libraries, so that cudarc finds them. Fails with the reason why they cannot be made.
    pub(crate) fn driver() -> Result<(), String> {
        cuda_emulator::load().map(|_| ())
    }

    /// Returns the path of the emulator's cuBLAS. Fails with the reason why it cannot be made.
    pub(crate) fn cublas(_: i32) -> Result<PathBuf, String> {
        cuda_emulator::load().map(|libraries| libraries.cublas.clone())
    }

    /// Returns the emulator's NVRTC, or nothing with `TEATIME_EMULATOR_NVRTC=none`, for tests of programs without NVRTC.
    pub(in crate::driver::cuda) fn nvrtc_candidates(major: i32) -> Result<Vec<Candidate>, String> {
        let libraries = cuda_emulator::load()?;
        if env::var_os("TEATIME_EMULATOR_NVRTC").is_some_and(|value| value == "none") {
            return Ok(Vec::new());
        }
        let (path, include) = (libraries.nvrtc.clone(), Some(libraries.folder.clone()));
        Ok(vec![Candidate { path, major, include }])
    }
}
#[cfg(feature = "cuda-emulator")]
pub(super) use emulated::nvrtc_candidates;
#[cfg(feature = "cuda-emulator")]
pub(crate) use emulated::{cublas, driver};

/// Returns the places where NVIDIA's own NVRTC may be, whether or not the emulator is used.
pub(super) fn real_nvrtc_candidates(major: i32) -> Vec<Candidate> {
    candidates(NVRTC, &explicit_folders(), &folders(), major)
}

/// Loads the builtins library of an NVRTC of this version, which cannot compile without it: from the folder of NVRTC,
/// or by name alone. NVRTC 13.0 and newer finds the builtins only if they are loaded already. Fails with the loader's reason.
pub(super) fn load_builtins(nvrtc: &Path, (major, minor): (i32, i32)) -> Result<(), String> {
    // The emulator's NVRTC has no builtins.
    if !NVRTC.iter().any(|&(_, name)| nvrtc.ends_with(name)) {
        return Ok(());
    }
    let name = if cfg!(windows) {
        format!("nvrtc-builtins64_{major}{minor}.dll")
    } else {
        format!("libnvrtc-builtins.so.{major}.{minor}")
    };
    let beside = nvrtc.with_file_name(&name);
    load(if beside.is_file() { &beside } else { Path::new(&name) })
        .map(drop)
        .map_err(|why| format!("{} lacks a part of it: {why}", nvrtc.display()))
}

/// Loads a library and never unloads it. Fails with the loader's reason.
pub(super) fn load(path: &Path) -> Result<&'static Library, String> {
    // SAFETY: by their names these are NVIDIA's libraries, whose initialisers have no requirements.
    let library = unsafe { Library::new(path) }.map_err(|error| {
        let why = error.to_string();
        if why.contains(&*path.to_string_lossy()) { why } else { format!("{}: {why}", path.display()) }
    })?;
    Ok(Box::leak(Box::new(library)))
}

/// Returns candidates for the files of `named` up to CUDA `major`: first those in the folders that the user named;
/// then, newest first, the name alone (for the system's loader) and the files in the other folders.
fn candidates(named: &[(i32, &str)], first: &[PathBuf], then: &[PathBuf], major: i32) -> Vec<Candidate> {
    let candidate = |path, major| Candidate { path, major, include: None };
    let in_folder = |folder: &PathBuf, (major, name): (i32, &str)| {
        let path = folder.join(name);
        path.is_file().then(|| candidate(path, major))
    };
    let usable: Vec<_> = named.iter().copied().filter(|&(version, _)| version <= major).collect();
    let mut candidates: Vec<_> = first
        .iter()
        .flat_map(|folder| usable.iter().filter_map(move |&file| in_folder(folder, file)))
        .collect();
    for &file in &usable {
        candidates.push(candidate(PathBuf::from(file.1), file.0));
        candidates.extend(then.iter().filter_map(|folder| in_folder(folder, file)));
    }
    candidates
}

/// Returns the folders of `TEATIME_CUDA_LIBRARIES`.
fn explicit_folders() -> Vec<PathBuf> {
    env::var_os("TEATIME_CUDA_LIBRARIES").iter().flat_map(env::split_paths).collect()
}

/// Returns all other folders in which toolkits and pip install libraries.
fn folders() -> Vec<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut toolkits: Vec<_> = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).collect();
    let local = Path::new("/usr/local");
    toolkits.extend(names(local).iter().filter(|name| name.starts_with("cuda")).map(|name| local.join(name)));
    let mut folders: Vec<_> = toolkits
        .iter()
        .flat_map(|root| ["lib64", "lib", "bin/x64", "bin"].map(|folder| root.join(folder)))
        .collect();

    let mut prefixes: Vec<_> = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).collect();
    folders.extend(prefixes.iter().map(|prefix| prefix.join("lib")));
    prefixes.extend(python_prefixes());
    prefixes
        .extend(variable(if cfg!(windows) { "USERPROFILE" } else { "HOME" }).map(|home| home.join(".local")));
    prefixes.push(local.into());
    folders.extend(prefixes.iter().flat_map(|prefix| wheel_folders(prefix)));
    folders
}

/// Returns the prefixes of the first Python on the path: that of the file as it is called (a virtual environment), and that of the file it links to.
fn python_prefixes() -> Vec<PathBuf> {
    let name = if cfg!(windows) { "python.exe" } else { "python3" };
    let path = env::var_os("PATH").unwrap_or_default();
    let Some(python) = env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    else {
        return Vec::new();
    };
    // On Windows the program is in the prefix itself, elsewhere in `bin` of the prefix.
    let prefix = |file: &Path| file.ancestors().nth(if cfg!(windows) { 1 } else { 2 }).map(PathBuf::from);
    [prefix(&python), fs::canonicalize(&python).ok().and_then(|file| prefix(&file))]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the folders of NVIDIA's wheels under the prefix of a Python.
fn wheel_folders(prefix: &Path) -> Vec<PathBuf> {
    let lib = prefix.join("lib");
    let mut roots: Vec<_> = names(&lib)
        .iter()
        .filter(|name| name.starts_with("python3"))
        .flat_map(|name| ["site-packages", "dist-packages"].map(|packages| lib.join(name).join(packages)))
        .collect();
    roots.push(prefix.join("Lib/site-packages"));
    let libraries: &[&str] = if cfg!(windows) {
        &["cu13/bin/x86_64", "cuda_nvrtc/bin", "cublas/bin"]
    } else {
        &["cu13/lib", "cuda_nvrtc/lib", "cublas/lib"]
    };
    let wheels = roots.iter().map(|root| root.join("nvidia")).filter(|folder| folder.is_dir());
    wheels.flat_map(|folder| libraries.iter().map(move |library| folder.join(library))).collect()
}

/// Returns the names in a folder in descending order, or nothing if the folder cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    names
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    #[test]
    fn the_users_folders_come_first_then_the_newest() {
        let root = tempdir().unwrap();
        let [mine, other] = ["mine", "other"].map(|name| root.path().join(name));
        for (folder, i) in [(&mine, 1), (&other, 0), (&other, 1)] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(NVRTC[i].1), "").unwrap();
        }
        let found = |major| -> Vec<_> {
            let all = candidates(NVRTC, std::slice::from_ref(&mine), std::slice::from_ref(&other), major);
            all.into_iter().map(|candidate| (candidate.major, candidate.path)).collect()
        };
        let [new, old, older] = [0, 1, 2].map(|i| PathBuf::from(NVRTC[i].1));
        let all = vec![
            (12, mine.join(&old)),
            (13, new.clone()),
            (13, other.join(&new)),
            (12, old.clone()),
            (12, other.join(&old)),
            (11, older.clone()),
        ];
        assert_eq!(found(14), all);
        assert_eq!(found(12), [&all[..1], &all[3..]].concat());
        assert_eq!(found(10), []);
    }

    #[test]
    fn wheels_are_found_under_a_python() {
        let prefix = tempdir().unwrap();
        let nvidia = prefix.path().join("lib/python3.11/site-packages/nvidia");
        fs::create_dir_all(&nvidia).unwrap();
        let library = if cfg!(windows) { "cuda_nvrtc/bin" } else { "cuda_nvrtc/lib" };
        assert!(wheel_folders(prefix.path()).contains(&nvidia.join(library)));
    }

    #[test]
    fn absence_is_one_line() {
        let absent = "libcuda-of-no-machine.so.1";
        let why = load_driver(absent, explicit_folders().into_iter()).unwrap_err();
        assert!(!why.contains('\n') && why.contains(absent), "{why}");
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        assert!(why.ends_with(": the NVIDIA driver is not installed"), "{why}");
        let why = load_cublas(11).unwrap_err();
        assert!(!why.contains('\n') && why.contains("pip install"), "{why}");
    }

    #[test]
    fn a_library_that_cannot_be_loaded_is_named() {
        let folder = tempdir().unwrap();
        let broken = folder.path().join("libcuda-of-no-machine.so.1");
        fs::write(&broken, "not a library").unwrap();
        let why =
            load_driver("libcuda-of-no-machine.so.1", [folder.path().to_owned()].into_iter()).unwrap_err();
        assert!(!why.contains('\n') && why.contains(&*broken.to_string_lossy()), "{why}");
    }
}
