//! GPU math for arrays bigger than memory.

mod available;
pub mod bits;
mod device;
mod device_info;
pub mod distance;
mod driver;
mod dtype;
mod error;
pub mod filter;
pub mod kernel;
mod kernels;
mod launch;
#[cfg(feature = "wgpu")]
mod lent;
#[cfg(feature = "cuda")]
mod lent_cuda;
pub mod linalg;
#[cfg(any(test, feature = "suite"))]
#[doc(hidden)]
pub mod openings;
pub mod packed;
pub mod random;
mod run;
pub mod store;
pub mod stream;
#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "test sizes are small, and a skipped device is said aloud"
)]
mod suite;
mod tensor;

pub use device::Device;
pub use device_info::{Backend, DeviceInfo, DeviceKind, DeviceOptions, Limits, ListedDevice};
pub use dtype::{DType, Element};
pub use error::{Error, Result};
#[cfg(feature = "cuda")]
pub use kernels::write_cuda_kernels;
pub use launch::Arg;
pub use run::{Budget, Cancel, Progress, Run, Status};
pub use store::{ChunkedArray, DecodedChunk, FetchedChunk, MissingChunk, StoredType};
pub use tensor::{Pending, Tensor};

/// The bytemuck whose `Pod` the parameters of kernels are.
pub use bytemuck;
/// The cudarc that [`Device::from_cuda`] takes contexts and streams of.
#[cfg(feature = "cuda")]
pub use cudarc;
#[cfg(feature = "wgpu")]
pub use lent::WgpuBuffer;
/// The rayon of [`Device::pool`].
pub use rayon;
/// The `serde_json` whose values are the attributes of arrays that are written.
#[cfg(feature = "zarr")]
pub use serde_json;
/// The wgpu that [`Device::from_wgpu`] takes devices of.
#[cfg(feature = "wgpu")]
pub use wgpu;
