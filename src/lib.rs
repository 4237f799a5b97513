//! GPU math for arrays bigger than memory.

mod array;
mod error;

pub use array::{ChunkedArray, DecodedChunk, MissingChunk, StoredType};
pub use error::{Error, Result};
