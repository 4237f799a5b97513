//! NVIDIA's run-time compiler (NVRTC), by direct calls of the functions that this crate needs.
//!
//! cudarc is not used here: it supports only one NVRTC per process, returns PTX only, and panics if a function is missing.

#![allow(unsafe_code, reason = "NVRTC is a C library")]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::Path,
    ptr,
    sync::OnceLock,
};

use libloading::Library;

use super::libraries;

/// The options of every program, in addition to the architecture.
pub(super) const OPTIONS: &str = "--std=c++17";

type Program = *mut c_void;
type Status = c_int;

/// A loaded NVRTC, which is never unloaded.
#[derive(Debug)]
pub(crate) struct Nvrtc {
    functions: Functions,
    version: (i32, i32),
    archs: Vec<i32>,
    options: Vec<String>,
}

/// A compiled program.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// A cubin for a real architecture (`sm_80`), or PTX that ends with a zero byte for a virtual one (`compute_80`).
    pub(crate) image: Vec<u8>,
    /// Warnings, and for a real architecture also the registers and spills of each kernel.
    #[cfg_attr(not(test), allow(dead_code, reason = "the compile gate reads it"))]
    pub(crate) log: String,
}

/// Declares the functions of NVRTC by their names and types in nvrtc.h.
macro_rules! functions {
    ($($field:ident = $name:literal($($argument:ty),*) -> $result:ty;)*) => {
        #[derive(Debug)]
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn load(library: &'static Library) -> Result<Self, String> {
                /// # Safety
                /// `T` is the type of the function with this name.
                unsafe fn symbol<T: Copy>(library: &'static Library, name: &str) -> Result<T, String> {
                    // SAFETY: the caller promises that `T` is the function's type.
                    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
                    let missing = |_| format!("{name} is missing; NVRTC 11.2 or newer is needed");
                    symbol.map(|symbol| *symbol).map_err(missing)
                }
                // SAFETY: each field has the type that nvrtc.h gives the function, and the library stays loaded for good.
                unsafe { Ok(Self { $($field: symbol(library, $name)?,)* }) }
            }
        }
    };
}

functions! {
    version = "nvrtcVersion"(*mut c_int, *mut c_int) -> Status;
    error_string = "nvrtcGetErrorString"(Status) -> *const c_char;
    arch_count = "nvrtcGetNumSupportedArchs"(*mut c_int) -> Status;
    archs = "nvrtcGetSupportedArchs"(*mut c_int) -> Status;
    create = "nvrtcCreateProgram"(
        *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> Status;
    destroy = "nvrtcDestroyProgram"(*mut Program) -> Status;
    compile = "nvrtcCompileProgram"(Program, c_int, *const *const c_char) -> Status;
    log_size = "nvrtcGetProgramLogSize"(Program, *mut usize) -> Status;
    log = "nvrtcGetProgramLog"(Program, *mut c_char) -> Status;
    ptx_size = "nvrtcGetPTXSize"(Program, *mut usize) -> Status;
    ptx = "nvrtcGetPTX"(Program, *mut c_char) -> Status;
    cubin_size = "nvrtcGetCUBINSize"(Program, *mut usize) -> Status;
    cubin = "nvrtcGetCUBIN"(Program, *mut c_char) -> Status;
}

impl Functions {
    fn check(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: any status may be passed; the function returns a constant string.
        let text = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(text.to_string_lossy().into_owned())
    }

    /// Returns bytes that a program has, by a pair of functions: `size` gives their number, and the other one writes them.
    fn bytes(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> Status,
        get: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ) -> Result<Vec<u8>, String> {
        let mut count = 0;
        // SAFETY: the program is alive; the second function writes as many bytes as the first one says.
        unsafe {
            self.check(size(program, &mut count))?;
            let mut bytes = vec![0; count];
            self.check(get(program, bytes.as_mut_ptr().cast()))?;
            Ok(bytes)
        }
    }
}

/// A program, which is destroyed on drop.
struct Guard<'a> {
    functions: &'a Functions,
    program: Program,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was made by `create` and is destroyed once.
        unsafe { (self.functions.destroy)(&mut self.program) };
    }
}

impl Nvrtc {
    /// Loads an NVRTC by a path, or by a name for the system's loader; `include` is an additional folder of headers. Fails with the
    /// loader's reason, the function that the library lacks, or the reason why its builtins cannot be loaded.
    pub(crate) fn open(path: &Path, include: Option<&Path>) -> Result<Self, String> {
        let functions = Functions::load(libraries::load(path)?)?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        let mut archs;
        // SAFETY: each pointer is to an integer; the list is as long as the library says.
        unsafe {
            functions.check((functions.version)(&mut major, &mut minor))?;
            functions.check((functions.arch_count)(&mut count))?;
            archs = vec![0; usize::try_from(count).unwrap_or(0)];
            functions.check((functions.archs)(archs.as_mut_ptr()))?;
        }
        libraries::load_builtins(path, (major, minor))?;
        archs.sort_unstable();
        let mut options = vec![OPTIONS.to_owned()];
        options.extend(include.map(|folder| format!("--include-path={}", folder.display())));
        Ok(Self { functions, version: (major, minor), archs, options })
    }

    /// Returns the NVRTC for a driver of CUDA `driver_version` (13000 for 13.0). The first call chooses and loads it.
    ///
    /// Its major version is at most the driver's. Its minor version may be newer than the driver's: a driver runs cubins of any minor version of its
    /// major version, and [`arch`](Self::arch) does not ask for PTX from a newer compiler. Fails with a line that says what to install.
    pub(crate) fn best(driver_version: i32) -> Result<&'static Self, String> {
        static BEST: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        let best = BEST.get_or_init(|| {
            let major = driver_version / 1000;
            let mut failed = None;
            for candidate in libraries::nvrtc_candidates(major)? {
                match Self::open(&candidate.path, candidate.include.as_deref()) {
                    Ok(nvrtc) if nvrtc.version.0 <= major => return Ok(nvrtc),
                    Err(why) if candidate.path.is_absolute() => failed = Some(why),
                    _ => {}
                }
            }
            let wheel = if major >= 13 { "nvidia-cuda-nvrtc" } else { "nvidia-cuda-nvrtc-cu12" };
            Err(failed.unwrap_or_else(|| {
                format!("no NVRTC for CUDA {major} or older is here: pip install {wheel}, or a CUDA toolkit")
            }))
        });
        best.as_ref().map_err(Clone::clone)
    }

    /// Returns the version of CUDA that this NVRTC belongs to.
    pub(crate) const fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Returns the architecture to compile for, so that a device of this compute capability under a driver for CUDA `driver_version` runs the code
    /// well. Returns `None` if this NVRTC is too old for the device and too new for the driver.
    pub(crate) fn arch(&self, capability: (i32, i32), driver_version: i32) -> Option<String> {
        arch(&self.archs, self.version, capability, driver_version)
    }

    /// Returns the options that an image depends on, in addition to source, headers and architecture.
    pub(super) fn options(&self) -> String {
        self.options.join(" ")
    }

    /// Compiles a program for `arch`: to a cubin for `sm_80`, to PTX for `compute_80`. `name` appears in messages.
    /// Fails with the compiler's log.
    pub(crate) fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        arch: &str,
    ) -> Result<Compiled, String> {
        let real = arch.starts_with("sm_");
        let text = |text: &str| CString::new(text).map_err(|_| "a zero byte in a source".to_owned());
        let (name, source) = (text(name)?, text(source)?);
        let contents = headers.iter().map(|(_, content)| text(content)).collect::<Result<Vec<_>, _>>()?;
        let names = headers.iter().map(|(name, _)| text(name)).collect::<Result<Vec<_>, _>>()?;
        let mut options = vec![text(&format!("--gpu-architecture={arch}"))?];
        options.extend(self.options.iter().map(|option| text(option)).collect::<Result<Vec<_>, _>>()?);
        // This option writes registers and spills into the log.
        options.extend(real.then(|| c"--ptxas-options=-v".to_owned()));
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let length = |texts: &[CString]| c_int::try_from(texts.len()).map_err(|_| "too many".to_owned());

        let functions = &self.functions;
        let mut program: Program = ptr::null_mut();
        // SAFETY: all strings end with a zero byte and outlive the call; the lists are as long as the count says.
        functions.check(unsafe {
            (functions.create)(
                &mut program,
                source.as_ptr(),
                name.as_ptr(),
                length(&names)?,
                pointers(&contents).as_ptr(),
                pointers(&names).as_ptr(),
            )
        })?;
        let program = Guard { functions, program };
        // SAFETY: the same holds for the options.
        let status =
            unsafe { (functions.compile)(program.program, length(&options)?, pointers(&options).as_ptr()) };
        let log = functions.bytes(program.program, functions.log_size, functions.log)?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_owned();
        functions.check(status).map_err(|why| if log.is_empty() { why } else { format!("{why}\n{log}") })?;
        let (size, get) =
            if real { (functions.cubin_size, functions.cubin) } else { (functions.ptx_size, functions.ptx) };
        let image = functions.bytes(program.program, size, get)?;
        match lacking(&image).filter(|_| !real) {
            None => Ok(Compiled { image, log }),
            Some(function) => {
                Err(format!("the compiler has no body of a function that is called: {function}"))
            }
        }
    }
}

/// Returns a function that PTX declares and does not define, if there is one: no driver would load such PTX.
fn lacking(ptx: &[u8]) -> Option<String> {
    let declaration = b".extern .func";
    let place = ptx.windows(declaration.len()).position(|text| text == declaration)?;
    let line = ptx[place..].split(|&byte| byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

/// Computes [`Nvrtc::arch`] for a compiler that has these architectures, in ascending order.
fn arch(archs: &[i32], version: (i32, i32), capability: (i32, i32), driver_version: i32) -> Option<String> {
    let device = 10 * capability.0 + capability.1;
    if archs.contains(&device) {
        // Capability 9.0 has instructions that only the variant `sm_90a` provides; compilers before 12.0 do not know it.
        let own = if device == 90 && version.0 >= 12 { "a" } else { "" };
        return Some(format!("sm_{device}{own}"));
    }
    let older = archs.iter().rev().find(|&&arch| arch < device)?;
    if 1000 * version.0 + 10 * version.1 <= driver_version {
        // The driver compiles PTX for the device itself if the compiler is no newer than the driver.
        return Some(format!("compute_{older}"));
    }
    // A cubin also runs on later devices with the same major capability.
    (older / 10 == capability.0).then(|| format!("sm_{older}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures() {
        let twelve = [50, 60, 70, 75, 80, 86, 89, 90];
        let chosen = |version, device, driver| arch(&twelve, version, device, driver);
        assert_eq!(chosen((12, 0), (9, 0), 12_000).as_deref(), Some("sm_90a"));
        assert_eq!(chosen((11, 8), (9, 0), 12_000).as_deref(), Some("sm_90"));
        assert_eq!(chosen((12, 4), (8, 6), 12_000).as_deref(), Some("sm_86"));
        // For a device newer than the compiler, PTX is chosen, unless the compiler is newer than the driver.
        assert_eq!(chosen((12, 0), (10, 0), 13_000).as_deref(), Some("compute_90"));
        assert_eq!(chosen((12, 4), (8, 7), 12_020).as_deref(), Some("sm_86"));
        assert_eq!(chosen((12, 4), (10, 0), 12_020), None);
        assert_eq!(arch(&[], (12, 0), (8, 0), 12_000), None);
    }

    /// Runs in a process of its own: in this process, other tests have loaded the builtins, which are then found by name.
    #[test]
    #[cfg(unix)]
    fn what_opens_compiles() {
        const ALONE: &str = "TEATIME_TEST_NVRTC";
        if let Some(path) = std::env::var_os(ALONE) {
            // Opening may succeed if the system's loader finds the builtins.
            match Nvrtc::open(Path::new(&path), None) {
                Ok(nvrtc) => {
                    assert!(!nvrtc.compile("empty.cu", "", &[], "compute_80").unwrap().image.is_empty())
                }
                Err(why) => assert!(!why.contains('\n') && why.contains("libnvrtc-builtins.so."), "{why}"),
            }
            return;
        }
        let Some(_) = super::super::gate::nvrtc() else { return };
        let folder = tempfile::tempdir().unwrap();
        for (i, candidate) in libraries::real_nvrtc_candidates(i32::MAX).into_iter().enumerate() {
            let name = candidate.path.file_name().filter(|_| candidate.path.is_absolute());
            let Some(name) = name else { continue };
            let alone = folder.path().join(i.to_string());
            std::fs::create_dir_all(&alone).unwrap();
            std::os::unix::fs::symlink(&candidate.path, alone.join(name)).unwrap();
            let test = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "driver::cuda::nvrtc::tests::what_opens_compiles"])
                .env(ALONE, alone.join(name))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&test.stdout).into_owned();
            assert!(test.status.success() && said.contains("1 passed"), "{candidate:?}: {said}");
        }
    }
}
