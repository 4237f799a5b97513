//! Chunked arrays as the streamer sees them, wherever they are stored.

use std::{fmt, time::Duration};

use crate::Result;

/// Element type of a stored array; wider than what a device computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum StoredType {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
}

impl StoredType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// One decoded chunk: all of its elements in C order and native byte order, edge chunks at full chunk shape.
#[derive(Debug)]
pub struct DecodedChunk {
    /// `product(chunk_shape) * dtype.size()` bytes.
    pub bytes: Vec<u8>,
    /// Bytes read from storage.
    pub stored: u64,
    /// Time spent reading.
    pub read: Duration,
    /// Time spent decoding.
    pub decode: Duration,
}

/// What an absent chunk means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingChunk {
    /// An error. The default: the fill value, most often 0, would read as data.
    #[default]
    Error,
    /// The array's fill value, as Zarr defines it.
    Fill,
}

/// An array in regular chunks, read one chunk at a time from any thread.
pub trait ChunkedArray: fmt::Debug + Send + Sync {
    /// Name for messages, such as the path.
    fn name(&self) -> &str;
    /// Extent of each axis.
    fn shape(&self) -> &[u64];
    /// Extent of one chunk along each axis; the last chunk of an axis may hang over the end.
    fn chunk_shape(&self) -> &[u64];
    /// Element type.
    fn dtype(&self) -> StoredType;
    /// A value that means a missing one, besides negative ones; NaN for NaN. None by default.
    fn missing_value(&self) -> Option<f64> {
        None
    }
    /// Most bytes of memory that reading a chunk takes besides what it gives: 0 by default. Counted in memory budgets.
    fn scratch_bytes(&self) -> u64 {
        0
    }
    /// Reads and decodes the chunk at `index` of the chunk grid.
    ///
    /// # Errors
    /// [`Error::Chunk`](crate::Error::Chunk) when it is missing, damaged, or larger than its declared size.
    fn read_chunk(&self, index: &[u64]) -> Result<DecodedChunk>;
}
