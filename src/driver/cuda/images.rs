//! Kernels as what the driver loads: from the cache, from NVRTC, or from what a release carries.

use std::{env, path::PathBuf};

use super::{
    cache::{Cache, Key},
    nvrtc::Nvrtc,
    source::{HEADERS, source},
};
use crate::{
    Error, Result,
    kernel::{KernelDef, Spec, numbered},
};

/// The version of NVRTC that PTX is shipped from: the first that knows 9.0a, so that the most drivers load it.
const SHIPPED_NVRTC: (i32, i32) = (12, 0);
/// Architectures that PTX is shipped for: the least, and the one with instructions of its own.
const SHIPPED_ARCHS: [&str; 2] = ["compute_80", "compute_90a"];
/// Options that PTX is shipped with.
const SHIPPED_OPTIONS: &str = "--std=c++17";

/// Where one device's kernels come from.
#[derive(Debug)]
pub(crate) struct Images {
    capability: (i32, i32),
    driver_version: i32,
    cache: Option<Cache>,
    shipped: Vec<Cache>,
}

impl Images {
    /// For a device of that compute capability (8.0 or more) under a driver for CUDA `driver_version` (13000 for 13.0).
    /// Nothing is loaded or read before the first image.
    pub(crate) fn new(capability: (i32, i32), driver_version: i32) -> Self {
        let shipped = shipped_folders().into_iter().map(Cache::new).collect();
        Self { capability, driver_version, cache: Cache::of_user(), shipped }
    }

    /// What `cuModuleLoadData` takes of a kernel and a spec: a cubin, or PTX ending in a zero.
    ///
    /// # Errors
    /// [`Error::Compile`] where the compiler refuses the kernel, [`Error::Driver`] where there is neither a compiler
    /// nor an image.
    pub(crate) fn image(&self, kernel: &'static KernelDef, spec: Spec<'_>) -> Result<Vec<u8>> {
        let source = source(kernel, spec)?;
        match Nvrtc::best(self.driver_version).and_then(|nvrtc| {
            let arch = nvrtc.arch(self.capability, self.driver_version);
            Ok((nvrtc, arch.ok_or("the NVRTC that is here fits neither the device nor the driver")?))
        }) {
            Ok((nvrtc, arch)) => {
                let made = self.compiled(nvrtc, &arch, kernel, &source, spec);
                // A compiler without its builtins refuses everything.
                made.or_else(|error| self.shipped(kernel, &source).ok_or(error))
            }
            Err(why) => self.shipped(kernel, &source).ok_or_else(|| Error::Driver {
                backend: "cuda",
                source: format!("{why}; or put the `kernels` folder of a release beside the program").into(),
            }),
        }
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

    fn shipped(&self, kernel: &'static KernelDef, source: &str) -> Option<Vec<u8>> {
        let arch = SHIPPED_ARCHS[usize::from(self.capability == (9, 0))];
        let key = Key::new(kernel.name, source, HEADERS, SHIPPED_OPTIONS, arch, SHIPPED_NVRTC);
        self.shipped.iter().find_map(|folder| folder.get(&key))
    }
}

fn compile(nvrtc: &Nvrtc, arch: &str, kernel: &KernelDef, source: &str, spec: Spec<'_>) -> Result<Vec<u8>> {
    let compiled = nvrtc.compile(&format!("{}.cu", kernel.name), source, HEADERS, arch);
    compiled.map(|compiled| compiled.image).map_err(|why| {
        let log = format!("{why}\nwith {spec:?} for {arch}\n{}", numbered(source));
        Error::Compile { kernel: kernel.name, backend: "cuda", log: log.into() }
    })
}

/// Where a release's images may lie: `TEATIME_CUDA_KERNELS`, `kernels` beside the program, `share/teatime/kernels`
/// beside its folder.
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
