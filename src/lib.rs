//! GPU math for arrays bigger than memory.

mod array;
mod cpu;
mod device;
mod driver;
mod dtype;
mod error;
pub mod genotype;
mod kernel;
pub mod linalg;
pub mod random;
mod run;
mod stream;
mod tensor;
#[cfg(feature = "zarr")]
pub mod zarr;

pub use array::{ChunkedArray, DecodedChunk, MissingChunk, StoredType};
pub use device::{Backend, Device, DeviceInfo, DeviceKind, DeviceOptions, Limits, ListedDevice};
pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use run::{Budget, Cancel, Progress, Run, Status};
pub use tensor::Tensor;
