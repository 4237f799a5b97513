//! GPU math for arrays bigger than memory.

mod array;
mod error;
#[cfg(feature = "zarr")]
pub mod zarr;

pub use array::{ChunkedArray, DecodedChunk, MissingChunk, StoredType};
pub use error::{Error, Result};
