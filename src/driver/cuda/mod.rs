//! NVIDIA GPUs through the CUDA driver, NVRTC and cuBLAS, all found at run time.

mod cache;
mod images;
mod libraries;
mod nvrtc;
mod source;
