//! One array of a store, read chunk by chunk.

use std::{
    borrow::Cow,
    collections::HashMap,
    io::ErrorKind,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use zarrs::array::ChunkKeyEncoding;

use super::{
    chain::Chain,
    guard::{Decoded, Fault, Size},
    json, layout,
    metadata::{self, Element, Metadata},
    shard::Fill,
};
use crate::{
    ChunkedArray, DecodedChunk, Error, FetchedChunk, LookedFor, MissingChunk, OpenChunk, Result, StoredType,
    store::{BitPlanes, Storage, StorageOptions, StoredBytes, Value, open_storage, storage::join},
};

/// An array of numbers or strings of a store.
#[derive(Debug)]
pub(crate) struct StoredArray {
    storage: Arc<dyn Storage>,
    /// The array's key within the storage; empty if the array is at its root.
    path: String,
    name: String,
    pub(crate) metadata: Metadata,
    looked: Looked,
}

/// The chunks that the storage had, among the fetched chunks.
#[derive(Debug, Default)]
struct Looked {
    there: AtomicBool,
    other_names: AtomicBool,
    /// A bit for each chunk that was missing, in C order, in words of 64 bits.
    absent: Mutex<HashMap<u64, u64>>,
}

impl StoredArray {
    /// Opens the array at `path` within `storage`; an empty path means the root of the storage.
    pub(crate) fn open(storage: &Arc<dyn Storage>, path: &str) -> Result<Self> {
        let path = json::path_within(&**storage, path)?;
        let metadata = metadata::read(&**storage, &path)?;
        let (name, storage, looked) = (storage.place(&path), Arc::clone(storage), Looked::default());
        Ok(Self { name, path, storage, metadata, looked })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns which of the fetched chunks the storage had.
    fn looked_for(&self) -> LookedFor {
        let absent = self.looked.absent.lock().unwrap_or_else(PoisonError::into_inner);
        LookedFor {
            there: self.looked.there.load(Relaxed),
            absent: absent.values().map(|bits| u64::from(bits.count_ones())).sum(),
            other_names: self.looked.other_names.load(Relaxed),
        }
    }

    /// Reads the bytes of one chunk; the result has no bytes if the chunk is missing.
    ///
    /// Until a chunk is found under the name that the metadata give, this also tries the [other](Metadata::other_keys) name: some writers
    /// of version 2 have omitted `dimension_separator`.
    pub(crate) fn fetch(&self, index: &[u64]) -> Decoded<FetchedChunk> {
        let grid = self.metadata.grid();
        if index.len() != grid.len() || index.iter().zip(&grid).any(|(i, n)| i >= n) {
            return Err(format!("outside the grid of {grid:?} chunks").into());
        }
        let start = Instant::now();
        let mut bytes = self.get(&self.metadata.keys, index)?;
        let Looked { there, other_names, absent } = &self.looked;
        if bytes.is_none()
            && (other_names.load(Relaxed) || !there.load(Relaxed))
            && let Some(keys) = &self.metadata.other_keys
        {
            bytes = self.get(keys, index)?;
            other_names.fetch_or(bytes.is_some(), Relaxed);
        }
        if bytes.is_some() {
            there.store(true, Relaxed);
        } else {
            let number =
                index.iter().zip(&grid).fold(0u64, |at, (i, n)| at.wrapping_mul(*n).wrapping_add(*i));
            let mut absent = absent.lock().unwrap_or_else(PoisonError::into_inner);
            *absent.entry(number / 64).or_default() |= 1 << (number % 64);
        }
        Ok(FetchedChunk { bytes, read: start.elapsed(), ..FetchedChunk::default() })
    }

    /// Reads the bytes of a chunk by its name; `None` if there is no such chunk.
    fn get(&self, keys: &ChunkKeyEncoding, index: &[u64]) -> Decoded<Option<StoredBytes>> {
        let key = join(&self.path, keys.encode(index).as_str());
        let cap = self.metadata.chain.encoded_cap(&self.metadata.spec);
        match self.storage.get(&key, cap as u64) {
            Ok(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Ok(Value::Absent) => Ok(None),
            Ok(Value::Large(bytes)) => Err(Size::AtMost(cap).exceeded(bytes, "its file has")),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Err(Fault::Memory(cap as u64)),
            Err(error) => Err(format!("cannot be read: {error}").into()),
        }
    }

    /// True if storage holds the elements of chunks as they are.
    fn opens_chunks(&self) -> bool {
        matches!(&self.metadata.chain, Chain::Plain(codecs) if codecs.is_plain())
            && self.storage.opens_values()
    }

    /// Opens a chunk; `None` if it is missing or has another number of bytes than its elements.
    fn open_chunk(&self, index: &[u64]) -> Option<OpenChunk> {
        let bytes = self.metadata.spec.bytes() as u64;
        let open = |keys: &ChunkKeyEncoding| {
            let value = self.storage.open_value(&join(&self.path, keys.encode(index).as_str()));
            value.filter(|(_, range)| range.end - range.start == bytes)
        };
        let Looked { there, other_names, .. } = &self.looked;
        // Names are tried as by `fetch`.
        let tries_other = other_names.load(Relaxed) || !there.load(Relaxed);
        let other = || {
            let value = open(self.metadata.other_keys.as_ref().filter(|_| tries_other)?)?;
            other_names.store(true, Relaxed);
            Some(value)
        };
        let (file, range) = open(&self.metadata.keys).or_else(other)?;
        there.store(true, Relaxed);
        let rows = self.metadata.chunk_shape.first().copied().unwrap_or(1);
        Some(OpenChunk::new(file, range.start, bytes / rows.max(1), rows))
    }

    /// Decodes one fetched chunk; returns `None` if it is missing. `fill` is called for inner chunks. If `leave` is true, bit planes of
    /// one-byte elements stay, and are returned.
    pub(crate) fn decode(
        &self,
        index: &[u64],
        fetched: FetchedChunk,
        fill: Fill<'_, '_>,
        leave: bool,
    ) -> Decoded<Option<(DecodedChunk, Option<BitPlanes>)>> {
        let start = Instant::now();
        let Some(encoded) = fetched.bytes else { return Ok(None) };
        let (stored, extent) = (encoded.len() as u64, self.metadata.extent(index));
        let encoded = match encoded {
            StoredBytes::Owned(bytes) => Cow::Owned(bytes),
            StoredBytes::Shared(ref bytes) => Cow::Borrowed(&**bytes),
        };
        let Metadata { spec, chain, .. } = &self.metadata;
        let (bytes, planes) = metadata::guarded(|| chain.decode(encoded, spec, &extent, fill, leave))?;
        Ok(Some((DecodedChunk { bytes, stored, read: fetched.read, decode: start.elapsed() }, planes)))
    }

    /// Returns the error for a chunk that could not be read or decoded.
    pub(crate) fn error(&self, index: &[u64], fault: Fault) -> Error {
        match fault {
            Fault::Wrong(why) | Fault::Missing(why) | Fault::Large(_, why) => {
                Error::chunk(&self.name, index, why)
            }
            Fault::Memory(requested) => {
                let what = format!("{}: chunk {index:?}", self.name).into();
                Error::OutOfHostMemory { what, requested }
            }
        }
    }
}

/// A numeric array of a Zarr v2 or v3 store.
///
/// Reads each chunk as a whole on the calling thread, and starts no threads of its own. Codecs: blosc, zstd, gzip, zlib, crc32c,
/// transpose (and v2's order `F`), and `sharding_indexed`, whose shards are the chunks.
///
/// A damaged or hostile chunk is an [`Error::Chunk`], never a panic, an abort or a huge allocation: claimed sizes are checked before they
/// are used. Only gzip, zlib, crc32c, and zstd frames with a checksum detect every changed byte. Blosc and uncompressed chunks have no
/// checksum, so changed bytes in them read as values.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{
///     ChunkedArray, Device, MissingChunk, Run, StoredType,
///     store::{ArraySpec, ArrayWriter, Folder, ZarrArray},
///     stream::StoredMatrix,
/// };
/// # let folder = tempfile::tempdir()?;
/// # let store = folder.path();
/// // The array is written tile by tile: here two tiles of two rows.
/// let spec = ArraySpec::new(StoredType::F32, &[3, 2], &[2, 2]);
/// let writer = ArrayWriter::create(Arc::new(Folder::new(store)), "x", spec)?;
/// writer.write(&[0, 0], &[1.0f32, 2.0, 3.0, 4.0])?;
/// writer.write(&[1, 0], &[5.0f32, 6.0])?;
/// writer.finish()?;
///
/// let x = ZarrArray::open(store, "x", MissingChunk::Error)?;
/// assert_eq!((x.shape(), x.chunk_shape(), x.dtype()), (&[3, 2][..], &[2, 2][..], StoredType::F32));
/// let x = StoredMatrix::new(vec![Arc::new(x)], &Device::best()?)?;
/// assert_eq!(x.to_tensor(&Run::default())?.read()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ZarrArray {
    inner: StoredArray,
    dtype: StoredType,
    missing: MissingChunk,
}

impl ZarrArray {
    /// Opens the array at `path` within the store in the folder `store`, or in a zip archive or at a URL as of [`open_storage`]; an empty
    /// path means the store itself.
    ///
    /// Reads only the array's own metadata, so an unsupported array next to it does no harm.
    ///
    /// # Errors
    /// - [`Error::Store`]: no array at the path, an unsupported data type or codec, or an attribute that changes values, such as
    ///   `scale_factor` (the error names it), or sizes that overflow or exceed [`MAX_CHUNK_BYTES`](super::MAX_CHUNK_BYTES); with
    ///   [`MissingChunk::Fill`] an array that [`ArrayWriter`](super::ArrayWriter) has not finished.
    /// - [`Error::Io`]: the metadata cannot be read.
    pub fn open(store: impl AsRef<Path>, path: &str, missing: MissingChunk) -> Result<Self> {
        Self::open_in(&open_storage(store, &StorageOptions::default())?, path, missing)
    }

    /// Opens the array at `path` within a store in any storage, as [`open`](Self::open) does in a folder.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn open_in(storage: &Arc<dyn Storage>, path: &str, missing: MissingChunk) -> Result<Self> {
        let inner = StoredArray::open(storage, path)?;
        // `ArrayWriter` marks an unfinished array so.
        let is_incomplete =
            || Ok(metadata::read_attributes(&**storage, path)?["teatime"]["status"] == "incomplete");
        if missing == MissingChunk::Fill && is_incomplete()? {
            let why = "is not written to its end: chunks that are missing do not hold the fill value";
            return Err(Error::store(&inner.name, why));
        }
        match inner.metadata.element {
            Element::Number(dtype) => Ok(Self { inner, dtype, missing }),
            _ => Err(Error::store(&inner.name, "holds strings, not numbers")),
        }
    }

    /// Returns the error for a chunk that could not be read; for a missing chunk, the error gives all known details.
    fn error(&self, index: &[u64], fault: Fault) -> Error {
        let Fault::Missing(why) = fault else { return self.inner.error(index, fault) };
        let fill = layout::number(&self.inner.metadata.fill, self.dtype);
        let writer = match metadata::writer(&*self.inner.storage).as_str() {
            "" => String::new(),
            said => format!(" (the store says: {said})"),
        };
        let why = format!(
            "{why}: an error unless missing chunks are said to hold the fill value, {fill}; writers may leave out those \
             that hold nothing else{writer}"
        );
        Error::chunk(&self.inner.name, index, why)
    }

    /// Decodes a chunk, and leaves its bit planes if `leave` is true.
    fn decode_leaving(
        &self,
        index: &[u64],
        fetched: FetchedChunk,
        leave: bool,
    ) -> Result<(DecodedChunk, Option<BitPlanes>)> {
        let fill = (self.missing == MissingChunk::Fill).then_some(self.inner.metadata.fill.as_slice());
        let read = fetched.read;
        let chunk = self.inner.decode(index, fetched, &mut |_| fill, leave);
        let chunk = chunk.and_then(|chunk| match (chunk, fill) {
            (Some(chunk), _) => Ok(chunk),
            (None, Some(fill)) => {
                let bytes = layout::filled(fill, self.inner.metadata.spec.count())?;
                Ok((DecodedChunk { bytes, stored: 0, read, decode: Duration::ZERO }, None))
            }
            (None, None) => Err(Fault::Missing("it is missing from the store".to_owned())),
        });
        chunk.map_err(|fault| self.error(index, fault))
    }

    /// Returns the names of the axes as the store gives them; empty if it does not.
    pub fn dimension_names(&self) -> &[String] {
        &self.inner.metadata.dimensions
    }

    /// Returns the extents of a chunk within a shard, if the [chunks](ChunkedArray::chunk_shape) are shards.
    pub fn inner_chunk_shape(&self) -> Option<Vec<u64>> {
        self.inner.metadata.chain.inner_chunk()
    }
}

impl ChunkedArray for ZarrArray {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn shape(&self) -> &[u64] {
        &self.inner.metadata.shape
    }

    fn chunk_shape(&self) -> &[u64] {
        &self.inner.metadata.chunk_shape
    }

    fn dtype(&self) -> StoredType {
        self.dtype
    }

    fn missing_value(&self) -> Option<f64> {
        self.inner.metadata.missing
    }

    fn fetched_bytes(&self) -> u64 {
        self.inner.metadata.chain.fetched(&self.inner.metadata.spec)
    }

    fn scratch_bytes(&self) -> u64 {
        self.inner.metadata.chain.scratch(&self.inner.metadata.spec)
    }

    fn fetches(&self) -> usize {
        self.inner.storage.fetches()
    }

    fn looked_for(&self) -> LookedFor {
        self.inner.looked_for()
    }

    fn opens_chunks(&self) -> bool {
        self.missing == MissingChunk::Error && self.inner.opens_chunks()
    }

    fn open_chunk(&self, index: &[u64]) -> Option<OpenChunk> {
        self.inner.open_chunk(index)
    }

    fn fetch(&self, index: &[u64]) -> Result<FetchedChunk> {
        self.inner.fetch(index).map_err(|fault| self.error(index, fault))
    }

    fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
        Ok(self.decode_leaving(index, fetched, false)?.0)
    }

    fn decode_planes(
        &self,
        index: &[u64],
        fetched: FetchedChunk,
    ) -> Result<(DecodedChunk, Option<BitPlanes>)> {
        self.decode_leaving(index, fetched, true)
    }
}
