//! Chunked arrays as the streamer sees them, wherever they are stored.

use std::{fmt, sync::Arc, time::Duration};

use super::StoredBytes;
use crate::{DType, Result, stable_text::StableText};

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

    /// The equal type of a tensor's elements: none for `Bool`, `I64` and `U64`.
    pub const fn element(self) -> Option<DType> {
        match self {
            Self::I8 => Some(DType::I8),
            Self::U8 => Some(DType::U8),
            Self::I16 => Some(DType::I16),
            Self::U16 => Some(DType::U16),
            Self::I32 => Some(DType::I32),
            Self::U32 => Some(DType::U32),
            Self::F16 => Some(DType::F16),
            Self::F32 => Some(DType::F32),
            Self::F64 => Some(DType::F64),
            Self::Bool | Self::I64 | Self::U64 => None,
        }
    }
}

impl StableText for StoredType {
    fn stable_text(&self) -> String {
        match self {
            Self::Bool => "Bool".into(),
            Self::I8 => "I8".into(),
            Self::U8 => "U8".into(),
            Self::I16 => "I16".into(),
            Self::U16 => "U16".into(),
            Self::I32 => "I32".into(),
            Self::U32 => "U32".into(),
            Self::I64 => "I64".into(),
            Self::U64 => "U64".into(),
            Self::F16 => "F16".into(),
            Self::F32 => "F32".into(),
            Self::F64 => "F64".into(),
        }
    }
}

/// An array that calls share with their threads: an `Arc` of any [`ChunkedArray`], whether its type is known or not.
pub trait SharedArray {
    /// The array, of no known type.
    fn shared(&self) -> Arc<dyn ChunkedArray>;
}

impl<A: ChunkedArray + 'static> SharedArray for Arc<A> {
    fn shared(&self) -> Arc<dyn ChunkedArray> {
        Self::clone(self)
    }
}

impl SharedArray for Arc<dyn ChunkedArray> {
    fn shared(&self) -> Arc<dyn ChunkedArray> {
        Self::clone(self)
    }
}

/// One chunk as it is stored: read, and not yet decoded.
#[derive(Debug, Default)]
pub struct FetchedChunk {
    /// Its bytes; none where storage has none, or where they are read when it is decoded.
    pub bytes: Option<StoredBytes>,
    /// Chunks of another array that it is made of.
    pub parts: Vec<Self>,
    /// Time spent reading its bytes.
    pub read: Duration,
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

/// The meaning of an absent chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingChunk {
    /// An error. The default: the fill value, most often 0, would read as data.
    #[default]
    Error,
    /// The array's fill value, as Zarr defines it.
    Fill,
}

/// Chunks that an array's storage had, of those that were fetched so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookedFor {
    /// True where it had one of them.
    pub there: bool,
    /// The number of those that it did not have, each counted once.
    pub absent: u64,
    /// True where some were found under other names than the metadata say: `0/0` for `0.0`, or the other way round.
    pub other_names: bool,
}

/// An array in regular chunks, read one chunk at a time from any thread, in two steps: its bytes are fetched from storage, and
/// decoded.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use teatime::{
///     ChunkedArray, DecodedChunk, Device, FetchedChunk, Result, Run, StoredType,
///     stream::StoredMatrix,
/// };
///
/// /// A matrix whose element (i, j) is i + 10 j, in chunks of 2 x 3, made as they are asked for.
/// #[derive(Debug)]
/// struct Formula;
///
/// impl ChunkedArray for Formula {
///     fn name(&self) -> &str {
///         "formula"
///     }
///     fn shape(&self) -> &[u64] {
///         &[3, 3]
///     }
///     fn chunk_shape(&self) -> &[u64] {
///         &[2, 3]
///     }
///     fn dtype(&self) -> StoredType {
///         StoredType::U16
///     }
///     fn decode(&self, index: &[u64], _: FetchedChunk) -> Result<DecodedChunk> {
///         // Whole chunks: the last one hangs over the end.
///         let rows = 2 * index[0]..2 * index[0] + 2;
///         let values = rows.flat_map(|i| (0..3).map(move |j| (i + 10 * j) as u16));
///         let bytes = values.flat_map(u16::to_ne_bytes).collect();
///         Ok(DecodedChunk { bytes, stored: 0, read: Duration::ZERO, decode: Duration::ZERO })
///     }
/// }
///
/// let matrix = StoredMatrix::new(vec![Arc::new(Formula)], &Device::best()?)?;
/// let values = matrix.to_tensor(&Run::default())?.read()?;
/// assert_eq!(values, [0.0, 10.0, 20.0, 1.0, 11.0, 21.0, 2.0, 12.0, 22.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub trait ChunkedArray: fmt::Debug + Send + Sync {
    /// Name for messages, such as the path.
    fn name(&self) -> &str;
    /// Extent of each axis.
    fn shape(&self) -> &[u64];
    /// Extent of one chunk along each axis; the last chunk of an axis may hang over the end.
    fn chunk_shape(&self) -> &[u64];
    /// Element type.
    fn dtype(&self) -> StoredType;
    /// The array whose chunks, at the same places, this one is made of: the provided methods below ask it. None by default.
    fn inner(&self) -> Option<&dyn ChunkedArray> {
        None
    }
    /// A value that means a missing one, as an array's attributes have it; NaN for NaN. None by default.
    ///
    /// Filters and distances read it as a number like others, unless the array is given to them as
    /// [`MissingAsNan`](super::MissingAsNan).
    fn missing_value(&self) -> Option<f64> {
        self.inner()?.missing_value()
    }
    /// The maximum number of bytes of memory that a fetched chunk takes, but for what becomes part of the decoded one: 0 by default. Counted in
    /// memory budgets, as is [`scratch_bytes`](Self::scratch_bytes).
    fn fetched_bytes(&self) -> u64 {
        self.inner().map_or(0, |inner| inner.fetched_bytes())
    }
    /// The maximum number of bytes of memory that decoding a chunk takes besides what it is given and what it gives: 0 by default.
    fn scratch_bytes(&self) -> u64 {
        self.inner().map_or(0, |inner| inner.scratch_bytes())
    }
    /// The number of chunks that should be fetched at once, on threads that do nothing else: more than one for storage that takes its
    /// time to answer. 0, the default, where the thread that decodes a chunk may as well fetch it.
    fn fetches(&self) -> usize {
        self.inner().map_or(0, |inner| inner.fetches())
    }
    /// The chunks that storage had, of those that were fetched; by default nothing is known.
    fn looked_for(&self) -> LookedFor {
        self.inner().map_or_else(LookedFor::default, |inner| inner.looked_for())
    }
    /// Reads the bytes of the chunk at `index` of the chunk grid; by default none, and [`decode`](Self::decode) does it all.
    ///
    /// # Errors
    /// [`Error::Chunk`](crate::Error::Chunk) when it cannot be read, or is larger than it may be.
    fn fetch(&self, index: &[u64]) -> Result<FetchedChunk> {
        self.inner().map_or_else(|| Ok(FetchedChunk::default()), |inner| inner.fetch(index))
    }
    /// Decodes the chunk at `index`, which was fetched. Reads nothing where [`fetch`](Self::fetch) did.
    ///
    /// # Errors
    /// [`Error::Chunk`](crate::Error::Chunk) when it is missing, damaged, or larger than its declared size.
    fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk>;
    /// Reads and decodes the chunk at `index`.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch) and [`decode`](Self::decode).
    fn read_chunk(&self, index: &[u64]) -> Result<DecodedChunk> {
        self.decode(index, self.fetch(index)?)
    }
}

/// The maximum number of axes of an array in a file: as many as numpy has.
const MAX_AXES: usize = 64;

/// Bytes of an array of that shape that a file claims, if memory could address them also with one element along each axis that has none:
/// a zero does not make absurd extents right.
pub(super) fn claimed_bytes(shape: &[u64], size: u64) -> Option<u64> {
    let bytes = shape.iter().try_fold(size, |bytes, &extent| bytes.checked_mul(extent.max(1)));
    let bytes = bytes.filter(|&bytes| shape.len() <= MAX_AXES && i64::try_from(bytes).is_ok());
    bytes.map(|bytes| if shape.contains(&0) { 0 } else { bytes })
}
