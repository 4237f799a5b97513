//! GPU math for arrays bigger than memory.

mod array;
mod available;
pub mod bed;
pub mod bits;
mod cpu;
mod device;
mod device_info;
mod driver;
mod dtype;
mod error;
pub mod genotype;
mod kernel;
#[doc(hidden)]
pub mod kernels;
#[cfg(feature = "wgpu")]
mod lent;
#[cfg(feature = "cuda")]
mod lent_cuda;
pub mod linalg;
pub mod random;
#[cfg(any(test, feature = "cuda"))]
mod registry;
mod run;
mod stream;
#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "test sizes are small, and a skipped device is said aloud"
)]
mod suite;
mod tensor;
#[cfg(feature = "zarr")]
pub mod zarr;

pub use array::{ChunkedArray, DecodedChunk, MissingChunk, StoredType};
pub use device::Device;
pub use device_info::{Backend, DeviceInfo, DeviceKind, DeviceOptions, Limits, ListedDevice};
#[cfg(feature = "cuda")]
pub use driver::cuda::write_cuda_kernels;
pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use run::{Budget, Cancel, Progress, Run, Status};
pub use tensor::Tensor;

/// The cudarc that [`Device::from_cuda`] takes contexts and streams of.
#[cfg(feature = "cuda")]
pub use cudarc;
#[cfg(feature = "wgpu")]
pub use lent::WgpuBuffer;
/// The wgpu that [`Device::from_wgpu`] takes devices of.
#[cfg(feature = "wgpu")]
pub use wgpu;
