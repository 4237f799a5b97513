//! NVIDIA GPUs through the CUDA driver, NVRTC and cuBLAS, all found at run time.

mod cache;
#[cfg(test)]
mod gate;
mod images;
mod libraries;
mod nvrtc;
mod source;

pub use self::images::write_cuda_kernels;
#[cfg(test)]
pub(crate) use self::source::source;
