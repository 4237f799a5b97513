//! Arrays of numbers, read chunk by chunk.

use std::{path::Path, sync::Arc, time::Duration};

use super::{
    guard::{Fault, InPlanes},
    layout,
    metadata::{self, Element, Metadata},
    stored::StoredArray,
};
use crate::{
    ArrayFacts, ChunkedArray, DecodedChunk, Error, FetchedChunk, Hint, LookedFor, MissingChunk, OpenChunk,
    Result, Shards, StoredType, WholeShard,
    store::{Storage, StorageOptions, open_storage},
};

/// A numeric array of a Zarr v2 or v3 store.
///
/// Reads each chunk as a whole on the calling thread, and starts no threads of its own. Codecs: blosc, zstd, gzip, zlib, crc32c,
/// transpose (and v2's order `F`), and `sharding_indexed`, whose inner chunks are the chunks: each is read by its range of the shard, or
/// from the [whole shard](ChunkedArray::fetch_from), as always if storage does not [read ranges](Storage::reads_ranges).
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
            return Err(Error::store(inner.name(), why));
        }
        match inner.metadata.element {
            Element::Number(dtype) => Ok(Self { inner, dtype, missing }),
            _ => Err(Error::store(inner.name(), "holds strings, not numbers")),
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
        let rest =
            format!(" the fill value, {fill}; writers may leave out those that hold nothing else{writer}");
        let hint = Hint::new("missing", " unless missing chunks are said to hold").followed_by(rest);
        Error::chunk(self.inner.name(), index, format_args!("{why}: an error")).hinting(hint)
    }

    /// Decodes a chunk, and leaves its bit planes if `leave` is true.
    fn decode_leaving(
        &self,
        index: &[u64],
        fetched: FetchedChunk,
        leave: bool,
    ) -> Result<InPlanes<DecodedChunk>> {
        let fill = (self.missing == MissingChunk::Fill).then_some(self.inner.metadata.fill.as_slice());
        let read = fetched.read;
        let chunk = self.inner.decode(fetched, leave);
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

    /// Returns the extents of a shard, if the [chunks](ChunkedArray::chunk_shape) are in shards.
    pub fn shard_shape(&self) -> Option<Vec<u64>> {
        let Metadata { chunk_shape, shard, .. } = &self.inner.metadata;
        Some(chunk_shape.iter().zip(&shard.as_ref()?.grid).map(|(extent, n)| extent * n).collect())
    }
}

impl ChunkedArray for ZarrArray {
    fn facts(&self) -> ArrayFacts<'_> {
        let Metadata { shape, chunk_shape, .. } = &self.inner.metadata;
        ArrayFacts { name: self.inner.name(), shape, chunk_shape, dtype: self.dtype }
    }

    fn missing_value(&self) -> Option<f64> {
        self.inner.metadata.missing
    }

    fn fetched_bytes(&self) -> u64 {
        self.inner.metadata.codecs.fetched(&self.inner.metadata.spec)
    }

    fn scratch_bytes(&self) -> u64 {
        self.inner.scratch()
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
        self.inner.fetch(index, None).map_err(|fault| self.error(index, fault))
    }

    fn shards(&self) -> Option<Shards> {
        self.inner.shards()
    }

    fn fetch_from(&self, shard: &WholeShard, index: &[u64]) -> Result<FetchedChunk> {
        self.inner.fetch(index, Some(shard)).map_err(|fault| self.error(index, fault))
    }

    fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
        Ok(self.decode_leaving(index, fetched, false)?.0)
    }

    fn decode_planes(&self, index: &[u64], fetched: FetchedChunk) -> Result<InPlanes<DecodedChunk>> {
        self.decode_leaving(index, fetched, true)
    }
}
