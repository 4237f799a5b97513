//! Kernels as programs for NVRTC.

use crate::{
    Error, Result,
    kernel::{KernelDef, Spec, specialize},
};

/// What every kernel includes, by the name that it includes it by.
pub(super) const HEADERS: &[(&str, &str)] =
    &[("dev.cuh", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/dev.cuh")))];

/// The CUDA source of a kernel with the spec's values in place of the defaults.
///
/// # Errors
/// [`Error::Compile`] unless each name of the spec is declared exactly once, as `constexpr u32 NAME = VALUE;`.
pub(super) fn source(kernel: &KernelDef, spec: Spec<'_>) -> Result<String> {
    specialize(kernel.cuda, spec, "constexpr u32 NAME = ", ";").map_err(|log| Error::Compile {
        kernel: kernel.name,
        backend: "cuda",
        log: log.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_rewritten_once_each() {
        let dosage = &crate::genotype::dosage::DOSAGE.def;
        let rewritten = source(dosage, &[("WG", 64)]).unwrap();
        assert!(rewritten.contains("\nconstexpr u32 WG = 64;\n"), "{rewritten}");
        assert_eq!(rewritten.lines().count(), dosage.cuda.lines().count());
        let Err(Error::Compile { kernel, backend, log }) = source(dosage, &[("W", 64)]) else { panic!() };
        assert_eq!((kernel, backend, &*log), ("dosage", "cuda", "constant `W` is not declared exactly once"));
    }
}
