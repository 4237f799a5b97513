//! Chunked arrays, the form in which the streamer reads arrays from any storage.

use std::{
    any::Any,
    fmt,
    fs::File,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::{BitPlanes, StoredBytes};
use crate::{
    DType, Result,
    files::{read_ahead, read_at},
};

/// The element type of a stored array. There are more of these types than a device computes with.
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
    /// Returns the number of bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Returns the element type of a tensor that equals this type. `Bool`, `I64` and `U64` have none.
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

crate::stable_text! { enum StoredType { Bool, I8, U8, I16, U16, I32, U32, I64, U64, F16, F32, F64 } }

/// An array that callers share with their threads: an `Arc` of any [`ChunkedArray`], whether or not its concrete type is known.
pub trait SharedArray {
    /// Returns the array without its concrete type.
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

/// One chunk as stored: its bytes were read, but not decoded.
#[derive(Clone, Debug, Default)]
pub struct FetchedChunk {
    /// The chunk's bytes. `None` if storage lacks the chunk, or if its bytes are read only when it is decoded.
    pub bytes: Option<StoredBytes>,
    /// The chunks of another array that this chunk is made of.
    pub parts: Vec<Self>,
    /// The time spent reading the bytes.
    pub read: Duration,
}

/// One decoded chunk: all of its elements in C order and native byte order, edge chunks at full chunk shape.
#[derive(Debug)]
pub struct DecodedChunk {
    /// The elements, which take `product(chunk_shape) * dtype.size()` bytes.
    pub bytes: Vec<u8>,
    /// The number of bytes read from storage.
    pub stored: u64,
    /// The time spent reading.
    pub read: Duration,
    /// The time spent decoding.
    pub decode: Duration,
}

/// A chunk whose elements are read where they are stored: in a file that holds each row of it, along the first axis, in C order and in native
/// byte order. The distances between rows are equal.
#[derive(Debug)]
pub struct OpenChunk {
    file: Arc<File>,
    start: u64,
    distance: u64,
    /// The nanoseconds that reading took.
    read: AtomicU64,
}

impl OpenChunk {
    /// Makes a chunk whose first row begins at byte `start` of a file, and each further row `distance` bytes later. The system may read the
    /// `rows` rows ahead.
    pub fn new(file: Arc<File>, start: u64, distance: u64, rows: u64) -> Self {
        read_ahead(&file, start, distance.saturating_mul(rows));
        Self { file, start, distance, read: AtomicU64::new(0) }
    }

    /// Reads bytes of a row from `offset` on.
    pub(crate) fn read(&self, row: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let started = Instant::now();
        let read = read_at(&self.file, out, self.start + row * self.distance + offset);
        self.read.fetch_add(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
        read
    }

    /// Returns the time that reading took since this was asked last, the sum over all threads.
    pub(crate) fn take_read(&self) -> Duration {
        Duration::from_nanos(self.read.swap(0, Relaxed))
    }
}

/// The meaning of a chunk that is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingChunk {
    /// A missing chunk is an error. This is the default, because the fill value, most often 0, would be taken for data.
    #[default]
    Error,
    /// A missing chunk consists of the array's fill value, as Zarr defines it.
    Fill,
}

/// The shards of an array: stored values that hold several of its chunks each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    /// The number of chunks of a shard along each axis.
    pub chunks: Vec<u64>,
    /// The maximum number of bytes of memory that a shard takes which is read as a whole.
    pub bytes: u64,
    /// The maximum number of bytes of memory that the array keeps to know where chunks are in their shards.
    pub index_bytes: u64,
    /// True if shards are always read as a whole, since storage does not read parts of them, or since their bytes are encoded.
    pub are_whole: bool,
}

/// A shard that is read as a whole, once, when the first of its chunks is fetched. It holds what was read, which memory budgets count.
#[derive(Debug, Default)]
pub struct WholeShard(OnceLock<Box<dyn Any + Send + Sync>>);

impl WholeShard {
    /// Returns what the first call's `read` returned: the shard, or why it cannot be read. Other calls wait for that.
    ///
    /// # Panics
    /// When the first call's `read` returned another type.
    pub fn read<T: Any + Send + Sync>(&self, read: impl FnOnce() -> T) -> &T {
        let shard = self.0.get_or_init(|| Box::new(read()));
        shard.downcast_ref().expect("one array reads the shard")
    }
}

/// The chunks that an array's storage had, among the chunks fetched so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookedFor {
    /// True if the storage had at least one of the fetched chunks.
    pub there: bool,
    /// The number of fetched chunks that the storage did not have, each counted once.
    pub absent: u64,
    /// True if some chunks were found under names with the other separator than the metadata give: `0/0` for `0.0`, or the reverse.
    pub other_names: bool,
}

/// The properties of an array that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayFacts<'a> {
    /// The array's name for messages, such as its path.
    pub name: &'a str,
    /// The extent of each axis.
    pub shape: &'a [u64],
    /// The extent of a chunk along each axis; the last chunk of an axis may extend beyond the end of the array.
    pub chunk_shape: &'a [u64],
    /// The element type.
    pub dtype: StoredType,
}

/// An array in regular chunks. Any thread can read a chunk, in two steps: its bytes are fetched from storage, then decoded.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use teatime::{
///     ArrayFacts, ChunkedArray, DecodedChunk, Device, FetchedChunk, Result, Run, StoredType,
///     stream::StoredMatrix,
/// };
///
/// /// A matrix whose element (i, j) is i + 10 j, in chunks of 2 x 3, which are made on request.
/// #[derive(Debug)]
/// struct Formula;
///
/// impl ChunkedArray for Formula {
///     fn facts(&self) -> ArrayFacts<'_> {
///         ArrayFacts { name: "formula", shape: &[3, 3], chunk_shape: &[2, 3], dtype: StoredType::U16 }
///     }
///     fn decode(&self, index: &[u64], _: FetchedChunk) -> Result<DecodedChunk> {
///         // Chunks are whole: the last one extends beyond the end.
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
    /// Returns the name, the extents and the element type.
    fn facts(&self) -> ArrayFacts<'_>;
    /// Returns the [name](ArrayFacts::name).
    fn name(&self) -> &str {
        self.facts().name
    }
    /// Returns the extent of each axis.
    fn shape(&self) -> &[u64] {
        self.facts().shape
    }
    /// Returns the [extent of a chunk](ArrayFacts::chunk_shape) along each axis.
    fn chunk_shape(&self) -> &[u64] {
        self.facts().chunk_shape
    }
    /// Returns the element type.
    fn dtype(&self) -> StoredType {
        self.facts().dtype
    }
    /// Returns the array that this one wraps chunk by chunk; the provided methods below delegate to it, but for those
    /// of bit planes and of open chunks. `None` by default.
    fn inner(&self) -> Option<&dyn ChunkedArray> {
        None
    }
    /// Returns the value that marks missing elements, as the array's attributes give it; it may be NaN. `None` by default.
    ///
    /// Filters and distances treat this value like any other number, unless the array is passed to them as
    /// [`MissingAsNan`](super::MissingAsNan).
    fn missing_value(&self) -> Option<f64> {
        self.inner()?.missing_value()
    }
    /// Returns the maximum number of bytes of memory of a fetched chunk, without the bytes that become part of the decoded chunk: 0 by
    /// default. Memory budgets count these bytes and [`scratch_bytes`](Self::scratch_bytes).
    fn fetched_bytes(&self) -> u64 {
        self.inner().map_or(0, |inner| inner.fetched_bytes())
    }
    /// Returns the maximum number of bytes of memory that decoding a chunk takes besides its input and its output: 0 by default.
    fn scratch_bytes(&self) -> u64 {
        self.inner().map_or(0, |inner| inner.scratch_bytes())
    }
    /// Returns the number of chunks to fetch concurrently on dedicated threads: more than one for storage with high latency. 0, the
    /// default, means that the thread that decodes a chunk also fetches it.
    fn fetches(&self) -> usize {
        self.inner().map_or(0, |inner| inner.fetches())
    }
    /// Returns which of the fetched chunks the storage had; by default nothing is known.
    fn looked_for(&self) -> LookedFor {
        self.inner().map_or_else(LookedFor::default, |inner| inner.looked_for())
    }
    /// Reads the bytes of the chunk at `index` of the chunk grid. By default it reads none, and [`decode`](Self::decode) does all the work.
    ///
    /// # Errors
    /// [`Error::Chunk`](crate::Error::Chunk) when the chunk cannot be read, or is larger than allowed.
    fn fetch(&self, index: &[u64]) -> Result<FetchedChunk> {
        self.inner().map_or_else(|| Ok(FetchedChunk::default()), |inner| inner.fetch(index))
    }
    /// Returns the shards that chunks are stored in; `None`, the default, if each chunk is a value of its own.
    fn shards(&self) -> Option<Shards> {
        self.inner()?.shards()
    }
    /// Reads the bytes of the chunk at `index` as [`fetch`](Self::fetch) does, but from the whole of its [shard](Self::shards), which is
    /// read unless another chunk was fetched from it before. By default, this fetches the chunk by itself.
    ///
    /// # Errors
    /// See [`fetch`](Self::fetch).
    fn fetch_from(&self, shard: &WholeShard, index: &[u64]) -> Result<FetchedChunk> {
        self.inner().map_or_else(|| self.fetch(index), |inner| inner.fetch_from(shard, index))
    }
    /// Decodes the chunk at `index` from its fetched bytes. Reads nothing if [`fetch`](Self::fetch) already did.
    ///
    /// # Errors
    /// [`Error::Chunk`](crate::Error::Chunk) when the chunk is missing, damaged, or larger than its declared size.
    fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk>;
    /// Decodes the chunk at `index` as [`decode`](Self::decode), but may leave one-byte elements in the bit planes in which storage holds
    /// them, which it then returns. By default it leaves none. A reader that can use planes saves the work of putting them in order.
    ///
    /// # Errors
    /// See [`decode`](Self::decode).
    fn decode_planes(
        &self,
        index: &[u64],
        fetched: FetchedChunk,
    ) -> Result<(DecodedChunk, Option<BitPlanes>)> {
        Ok((self.decode(index, fetched)?, None))
    }
    /// True if chunks [open](Self::open_chunk): if storage holds their elements as [`decode`](Self::decode) returns them. By default it is
    /// false.
    fn opens_chunks(&self) -> bool {
        false
    }
    /// Opens the chunk at `index`, if chunks [open](Self::opens_chunks), so that its elements are read where they are stored. A pass in rows
    /// then holds no chunks. `None` if this chunk does not open: it is fetched and decoded, which returns the error if there is one.
    fn open_chunk(&self, index: &[u64]) -> Option<OpenChunk> {
        let _ = index;
        None
    }
    /// Reads and decodes the chunk at `index`.
    ///
    /// # Errors
    /// See [`fetch`](Self::fetch) and [`decode`](Self::decode).
    fn read_chunk(&self, index: &[u64]) -> Result<DecodedChunk> {
        self.decode(index, self.fetch(index)?)
    }
}

/// The maximum number of axes of an array in a file, the same as numpy's.
const MAX_AXES: usize = 64;

/// Returns the number of bytes that a file claims for an array of this shape. `None` if memory could not address them, even with each
/// extent of 0 counted as 1: a zero does not excuse absurd extents.
pub(super) fn claimed_bytes(shape: &[u64], size: u64) -> Option<u64> {
    let bytes = shape.iter().try_fold(size, |bytes, &extent| bytes.checked_mul(extent.max(1)));
    let bytes = bytes.filter(|&bytes| shape.len() <= MAX_AXES && i64::try_from(bytes).is_ok());
    bytes.map(|bytes| if shape.contains(&0) { 0 } else { bytes })
}
