//! GPU math for arrays bigger than memory.

mod array;
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
pub mod linalg;
pub mod random;
#[cfg(test)]
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
pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use run::{Budget, Cancel, Progress, Run, Status};
pub use tensor::Tensor;

#[cfg(feature = "wgpu")]
pub use lent::WgpuBuffer;
/// The wgpu that [`Device::from_wgpu`] takes devices of.
#[cfg(feature = "wgpu")]
pub use wgpu;
