//! The CUDA driver.

#[cfg(feature = "cuda-emulator")]
pub(crate) mod emulator;
