//! Compiled kernels, which the driver loads: from the cache, from NVRTC, or from a release.

use std::{
    env,
    path::{Path, PathBuf},
};

use rayon::prelude::*;

use super::{
    cache::{Cache, Key},
    libraries,
    nvrtc::{self, Nvrtc},
    source::{HEADERS, source},
};
use crate::{
    Error, Result,
    kernel::{KernelDef, Spec, numbered},
};

/// The version of NVRTC that compiles the shipped PTX: the first that knows 9.0a, so that as many drivers as possible load its PTX.
pub(super) const SHIPPED_NVRTC: (i32, i32) = (12, 0);
/// The architecture of the shipped PTX. Drivers compile it for all newer ones, whose instructions no kernel uses.
const SHIPPED_ARCH: &str = "compute_80";
/// The least compute capability for the shipped PTX.
const SHIPPED_CAPABILITY: (i32, i32) = (8, 0);

/// The sources of one device's kernels.
#[derive(Debug)]
pub(crate) struct Images {
    capability: (i32, i32),
    driver_version: i32,
    cache: Option<Cache>,
    shipped: Vec<Cache>,
}

impl Images {
    /// Makes the images of a device of this compute capability (7.5 or more), under a driver for CUDA `driver_version` (13000 for 13.0).
    /// Loads and reads nothing before the first image.
    pub(crate) fn new(capability: (i32, i32), driver_version: i32) -> Self {
        let is_shipped = capability >= SHIPPED_CAPABILITY;
        let folders = if is_shipped { shipped_folders() } else { Vec::new() };
        let shipped = folders.into_iter().map(Cache::new).collect();
        Self { capability, driver_version, cache: Cache::of_user(), shipped }
    }

    /// Returns the image of a kernel and a spec for `cuModuleLoadData`: a cubin, or PTX that ends in a zero.
    ///
    /// # Errors
    /// [`Error::Compile`] if the compiler refuses the kernel, [`Error::Driver`] if there is neither a compiler nor an image.
    pub(crate) fn image(&self, kernel: &'static KernelDef, spec: Spec<'_>) -> Result<Vec<u8>> {
        self.image_by(Nvrtc::best(self.driver_version), kernel, spec)
    }

    /// Returns an [`image`](Self::image) from this compiler, which may be missing for the given reason.
    fn image_by(
        &self,
        nvrtc: Result<&Nvrtc, String>,
        kernel: &'static KernelDef,
        spec: Spec<'_>,
    ) -> Result<Vec<u8>> {
        let source = source(kernel, spec)?;
        match self.compiler(nvrtc) {
            Ok((nvrtc, arch)) => {
                let made = self.compiled(nvrtc, &arch, kernel, &source, spec);
                // A compiler that is damaged refuses everything.
                made.or_else(|error| self.shipped(kernel, &source).ok_or(error))
            }
            Err(why) => self
                .shipped(kernel, &source)
                .ok_or_else(|| Error::Driver { backend: "cuda", source: self.nowhere(&why).into() }),
        }
    }

    /// Checks that this version's release has the kernels, for which `kernel` stands, or that they can be compiled. Compiles nothing.
    ///
    /// # Errors
    /// A line that says what to install.
    pub(crate) fn any(&self, kernel: &'static KernelDef) -> Result<(), String> {
        self.any_by(|| Nvrtc::best(self.driver_version), kernel)
    }

    fn any_by(
        &self,
        nvrtc: impl FnOnce() -> Result<&'static Nvrtc, String>,
        kernel: &'static KernelDef,
    ) -> Result<(), String> {
        let spec = (kernel.specs)().into_iter().next().unwrap_or_default();
        let carried = source(kernel, &spec).is_ok_and(|source| self.shipped(kernel, &source).is_some());
        if carried { Ok(()) } else { self.compiler(nvrtc()).map(drop).map_err(|why| self.nowhere(&why)) }
    }

    /// Returns the compiler, and the architecture for which it compiles.
    fn compiler<'a>(&self, nvrtc: Result<&'a Nvrtc, String>) -> Result<(&'a Nvrtc, String), String> {
        let nvrtc = nvrtc?;
        let arch = nvrtc.arch(self.capability, self.driver_version);
        Ok((nvrtc, arch.ok_or("the NVRTC that is here fits neither the device nor the driver")?))
    }

    fn compiled(
        &self,
        nvrtc: &Nvrtc,
        arch: &str,
        kernel: &'static KernelDef,
        source: &str,
        spec: Spec<'_>,
    ) -> Result<Vec<u8>> {
        let key = Key::new(kernel.name, source, HEADERS, &nvrtc.options(), arch, nvrtc.version());
        if let Some(image) = self.cache.as_ref().and_then(|cache| cache.get(&key)) {
            return Ok(image);
        }
        let image = compile(nvrtc, arch, kernel, source, spec)?;
        // Without a folder that can be written, kernels are compiled in each process.
        let _ = self.cache.as_ref().map(|cache| cache.put(&key, &image));
        Ok(image)
    }

    /// Returns the reason that there is no code, and another way to get some, if there is one.
    fn nowhere(&self, why: &str) -> String {
        if self.capability < SHIPPED_CAPABILITY {
            return why.to_owned();
        }
        format!("{why}; or put the `kernels` folder of a release beside the program")
    }

    fn shipped(&self, kernel: &'static KernelDef, source: &str) -> Option<Vec<u8>> {
        let key = shipped_key(kernel, source);
        self.shipped.iter().find_map(|folder| folder.get(&key))
    }
}

fn shipped_key(kernel: &'static KernelDef, source: &str) -> Key {
    Key::new(kernel.name, source, HEADERS, nvrtc::OPTIONS, SHIPPED_ARCH, SHIPPED_NVRTC)
}

/// Writes kernels as PTX into a folder, for machines without a compiler.
///
/// # Errors
/// [`Error::Driver`] without [`SHIPPED_NVRTC`], [`Error::Io`] if a file cannot be written, [`Error::Compile`].
pub(crate) fn write_kernels(kernels: &[&'static KernelDef], folder: &Path) -> Result<()> {
    let nvrtc = shipping_nvrtc()?;
    let all: Vec<_> = kernels
        .iter()
        .flat_map(|&kernel| (kernel.specs)().into_iter().map(move |spec| (kernel, spec)))
        .collect();
    let cache = Cache::new(folder.into());
    let write = |(kernel, spec): (&'static KernelDef, Vec<_>)| {
        let source = source(kernel, &spec)?;
        let image = compile(&nvrtc, SHIPPED_ARCH, kernel, &source, &spec)?;
        let written = cache.put(&shipped_key(kernel, &source), &image);
        written.map_err(|source| Error::io(folder.display(), source))
    };
    let failed = |error: rayon::ThreadPoolBuildError| Error::Driver { backend: "cuda", source: error.into() };
    // This pool is separate, since the global one is the application's.
    rayon::ThreadPoolBuilder::new()
        .build()
        .map_err(failed)?
        .install(|| all.into_par_iter().try_for_each(write))
}

/// Returns the NVRTC that compiles the shipped PTX.
///
/// # Errors
/// [`Error::Driver`] if it is not installed.
pub(super) fn shipping_nvrtc() -> Result<Nvrtc> {
    let mut found = String::new();
    for candidate in libraries::real_nvrtc_candidates(SHIPPED_NVRTC.0) {
        match Nvrtc::open(&candidate.path, None) {
            Ok(nvrtc) if nvrtc.version() == SHIPPED_NVRTC => return Ok(nvrtc),
            Ok(nvrtc) => {
                found = format!(" ({}.{} is not the one)", nvrtc.version().0, nvrtc.version().1);
            }
            Err(_) => {}
        }
    }
    let why = format!("NVRTC 12.0 is needed{found}: pip install nvidia-cuda-nvrtc-cu12==12.0.140");
    Err(Error::Driver { backend: "cuda", source: why.into() })
}

fn compile(nvrtc: &Nvrtc, arch: &str, kernel: &KernelDef, source: &str, spec: Spec<'_>) -> Result<Vec<u8>> {
    let compiled = nvrtc.compile(&format!("{}.cu", kernel.name), source, HEADERS, arch);
    compiled.map(|compiled| compiled.image).map_err(|why| {
        let name = format!("{}.cu", kernel.name);
        let log = format!("{why}\nwith {spec:?} for {arch}\n{}", numbered(source, &why, &name));
        Error::Compile { kernel: kernel.name, backend: "cuda", log: log.into() }
    })
}

/// Returns the folders that may have a release's images: `TEATIME_CUDA_KERNELS`, `kernels` beside the program, and `share/teatime/kernels`
/// beside the program's folder.
fn shipped_folders() -> Vec<PathBuf> {
    let explicit = env::var_os("TEATIME_CUDA_KERNELS").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let program = env::current_exe().ok();
    let beside = program.as_deref().and_then(|program| program.parent());
    explicit
        .into_iter()
        .chain(beside.map(|folder| folder.join("kernels")))
        .chain(beside.and_then(|folder| folder.parent()).map(|prefix| prefix.join("share/teatime/kernels")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sha2::{Digest, Sha256};
    use tempfile::tempdir;

    use super::*;
    use crate::{
        driver::cuda::{cache::hex, gate, source::threads},
        kernels::{KERNELS, add_block::ADD_BLOCK},
    };

    fn images(capability: (i32, i32), cache: &Path, shipped: &Path) -> Images {
        Images {
            capability,
            driver_version: 13_000,
            cache: Some(Cache::new(cache.into())),
            shipped: vec![Cache::new(shipped.into())],
        }
    }

    const SPEC: Spec<'static> = &[("WG", 256)];

    #[test]
    fn images_are_kept() {
        let Some(nvrtc) = gate::nvrtc() else { return };
        let kernel = &ADD_BLOCK.def;
        let cache = tempdir().unwrap();
        let images = images((9, 0), cache.path(), &cache.path().join("none"));
        let first = images.image_by(Ok(nvrtc), kernel, SPEC).unwrap();
        assert!(first.starts_with(b"\x7fELF"));
        let file = fs::read_dir(cache.path()).unwrap().next().unwrap().unwrap().path();
        let kept = fs::read(&file).unwrap();
        assert!(String::from_utf8_lossy(&kept).contains("\ncubin sm_90a\nnvrtc 13."));
        // A damaged file is written again.
        fs::write(&file, &kept[..kept.len() / 2]).unwrap();
        assert_eq!(images.image_by(Ok(nvrtc), kernel, SPEC).unwrap(), first);
        assert_eq!(fs::read(&file).unwrap(), kept);
    }

    /// Returns the bytes of a kernel's programs on disk, in whole blocks of a file system. Checks that each program exists and is right.
    fn shipped_bytes(kernel: &'static KernelDef) -> u64 {
        let folder = tempdir().unwrap();
        write_kernels(&[kernel], folder.path()).unwrap();
        let shipped = Cache::new(folder.path().into());
        for spec in (kernel.specs)() {
            let key = shipped_key(kernel, &source(kernel, &spec).unwrap());
            let ptx = String::from_utf8(shipped.get(&key).unwrap()).unwrap();
            let entry = format!(".visible .entry {}(", kernel.name);
            // A driver from 525 on knows this version.
            let threads = format!("\n.maxntid {}, 1, 1\n", threads(kernel, &spec).unwrap());
            for part in ["\n.version 8.0\n", "\n.target sm_80\n", &entry, &threads] {
                assert!(ptx.contains(part), "{} {spec:?}: no {part:?}", kernel.name);
            }
        }
        let files = fs::read_dir(folder.path()).unwrap();
        let sizes: Vec<_> = files.map(|file| file.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(sizes.len(), (kernel.specs)().len(), "{}", kernel.name);
        sizes.into_iter().map(|size| size.next_multiple_of(4096)).sum()
    }

    /// `shipped.txt` has the sizes of the kernels that are as in `gate.sha256`, and compiled as here. Other kernels are compiled.
    #[test]
    fn what_is_shipped_is_complete_and_small() {
        /// The room for kernels in the bundle of `scripts/gpu-bundle`.
        const MOST_BYTES: u64 = 5 << 19;
        let passed = fs::read_to_string(gate::beside("gate.sha256")).unwrap();
        let digest =
            |name| passed.lines().find_map(|line| line.strip_suffix(&format!("  {name}"))).unwrap_or("");
        let committed = fs::read_to_string(gate::beside("shipped.txt")).unwrap_or_default();
        // This file determines how they are compiled.
        let how = hex(&Sha256::digest(include_str!("images.rs")));
        let (mut all, mut record) = (0, String::new());
        for &kernel in KERNELS {
            let start =
                format!("{how:.16} {:.16} {:.16} {} ", digest("all"), digest(kernel.name), kernel.name);
            let known = committed.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok());
            if known.is_none() && gate::oldest().is_none() {
                return;
            }
            let bytes = known.unwrap_or_else(|| shipped_bytes(kernel));
            all += bytes;
            record += &format!("{start}{bytes}\n");
        }
        assert!(all <= MOST_BYTES, "{all} bytes:\n{record}");
        gate::hold("shipped.txt", &record);
    }

    #[test]
    fn without_a_compiler_what_is_shipped_is_used() {
        let kernel = &ADD_BLOCK.def;
        let folder = tempdir().unwrap();
        let shipped = folder.path();
        let images = |capability| images(capability, &shipped.join("none"), shipped);
        let no_compiler = || Err("no NVRTC is here".to_owned());
        let error = images((8, 0)).image_by(no_compiler(), kernel, SPEC).unwrap_err().to_string();
        let expected = "cuda: no NVRTC is here; or put the `kernels` folder of a release beside the program";
        assert_eq!(error, expected);
        assert_eq!(
            format!("cuda: {}", images((8, 0)).any_by(no_compiler, KERNELS[0]).unwrap_err()),
            expected
        );
        let key = shipped_key(kernel, &source(kernel, SPEC).unwrap());
        Cache::new(shipped.into()).put(&key, b"ptx").unwrap();
        for capability in [(8, 0), (8, 9), (9, 0), (10, 0), (12, 1)] {
            let image = images(capability).image_by(no_compiler(), kernel, SPEC).unwrap();
            assert_eq!(image, b"ptx", "{capability:?}");
        }
        assert!(images((8, 0)).image_by(no_compiler(), kernel, &[("WG", 128)]).is_err());
        // No PTX is shipped for older devices.
        let turing = Images::new((7, 5), 13_000);
        assert!(turing.shipped.is_empty());
        assert_eq!(turing.any_by(no_compiler, kernel).unwrap_err(), "no NVRTC is here");
        // The image of another kernel is not enough, and that of the kernel that stands for all is.
        assert!(images((8, 0)).any_by(no_compiler, KERNELS[0]).is_err());
        let first = KERNELS[0];
        let key = shipped_key(first, &source(first, &(first.specs)()[0]).unwrap());
        Cache::new(shipped.into()).put(&key, b"code").unwrap();
        images((8, 0)).any_by(|| panic!("what is shipped should do"), first).unwrap();
    }
}
