//! Writing an array, tile by tile.

use std::{
    borrow::Cow,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use rayon::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    column,
    guard::Decoded,
    layout,
    metadata::{self, Element, Metadata},
    node::Node,
    shard::slice,
    spec::{ArraySpec, Attributes, ZarrFormat},
};
use crate::{
    Error, Needs, Result, StoredType,
    extent::{index_at, to_usize},
    store::{
        BoxWriter, Storable, Value as Stored, WritableStorage,
        blocks::{extract_block, in_memory, padded},
        box_writer::{check_box, check_tiles},
        storage::join,
    },
};

const MAX_TILES: u64 = 1 << 28;

/// The attribute that says to which job an array belongs, and whether the array is complete.
const ATTRIBUTE: &str = "teatime";

/// The states of a tile: it is missing; a value with its key exists but is unchecked; it is known to be complete.
const ABSENT: u8 = 0;
const FOUND: u8 = 1;
const WRITTEN: u8 = 2;

/// Writes an array tile by tile, from one thread or several. A tile is a chunk, or a shard.
///
/// Each tile appears as a whole, so a process that is killed at any time leaves only whole tiles behind. If the [`ArraySpec`] names a
/// job, another process continues the array with [`resume`](Self::resume). A tile that exists counts as written if it can be read and
/// decoded without a fault, which is checked on the first query. Changed bytes are detected by the checksums of
/// [`Compression::Zstd`](super::Compression::Zstd) and [`ArraySpec::checksum`]; without a checksum, only wrong lengths and the errors of
/// decompression are detected. The attribute `teatime` holds `job` (the SHA-256 of the job, the array's metadata and the version of
/// this crate) and `status`, which is `incomplete` until [`finish`](Self::finish). Until then some tiles may not be stored yet
/// ([`WritableStorage::begin_put`]). Only one process may write an array at a time.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{StoredType, store::{ArraySpec, ArrayWriter, Folder}};
/// # let folder = tempfile::tempdir()?;
/// let storage = Arc::new(Folder::new(folder.path()));
/// // The job says what the values depend on.
/// let spec = ArraySpec::new(StoredType::U8, &[3, 2], &[2, 2]).job("squares of x.npy".to_owned());
/// let writer = ArrayWriter::create(storage.clone(), "squares", spec.clone())?;
/// writer.write(&[0, 0], &[1u8, 4, 9, 16])?;
/// // Here the process is killed, perhaps; another one writes what is left.
/// drop(writer);
/// let writer = ArrayWriter::resume(storage, "squares", spec)?;
/// assert_eq!(writer.left().collect::<Vec<_>>(), [[1, 0]]);
/// writer.write(&[1, 0], &[25u8, 36])?;
/// writer.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ArrayWriter {
    storage: Arc<dyn WritableStorage>,
    path: String,
    spec: ArraySpec,
    metadata: Metadata,
    hash: Option<String>,
    /// The state of each tile, in C order.
    done: Vec<AtomicU8>,
    after: Needs,
}

impl ArrayWriter {
    /// Starts a new array at `path` within `storage`; an empty path means the root of the storage.
    ///
    /// # Errors
    /// - [`Error::Argument`]: a `spec` that contradicts itself, or that describes an array that could not be read.
    /// - [`Error::Store`]: something exists there already.
    /// - [`Error::Io`]: the metadata cannot be written.
    pub fn create(storage: Arc<dyn WritableStorage>, path: &str, spec: ArraySpec) -> Result<Self> {
        let writer = Self::new(storage, path, spec)?;
        if Node::at(&*writer.storage, path)? != Node::Absent {
            return Err(writer.refuse("exists already"));
        }
        writer.put_metadata("incomplete")?;
        Ok(writer)
    }

    /// Continues an array that [`create`](Self::create) started with the same `spec`, or starts it. Removes the partial tiles of a
    /// process that was killed while it wrote them.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create), and
    /// - [`Error::Argument`]: `spec` names no job.
    /// - [`Error::Store`]: the path holds no array, or an array of another job; the error gives both hashes.
    pub fn resume(storage: Arc<dyn WritableStorage>, path: &str, spec: ArraySpec) -> Result<Self> {
        let writer = Self::new(storage, path, spec)?;
        let Some(hash) = writer.hash.clone() else {
            return Err(Error::argument("resume", "spec", "names no job"));
        };
        let io = |source| writer.io(path, source);
        // A temporary file of a put that this process has begun is not a leftover.
        writer.storage.flush().map_err(io)?;
        let attributes = metadata::read_attributes(&*writer.storage, path)?;
        let job = attributes.pointer(&format!("/{ATTRIBUTE}/job")).and_then(Value::as_str);
        match Node::at(&*writer.storage, path)? {
            Node::Array => {}
            Node::Group if job.is_none() => return Err(writer.refuse("is a group, not an array")),
            // A process writes the attributes first, so one that was killed may have left only these.
            Node::Group | Node::Absent => {
                writer.storage.sweep(path).map_err(io)?;
                writer.put_metadata("incomplete")?;
                return Ok(writer);
            }
        }
        match job {
            Some(known) if *known == hash => {}
            Some(known) => {
                let why = "other data, options or version of teatime";
                return Err(writer.refuse(&format!("is of another job, {known}, this one is {hash}: {why}")));
            }
            None => return Err(writer.refuse("was not written by a job that can be resumed")),
        }
        writer.storage.sweep(path).map_err(io)?;
        for (at, index) in writer.tiles().enumerate() {
            let there = writer.storage.size(&writer.key(&index)).map_err(io)?.is_some();
            writer.done[at].store(if there { FOUND } else { ABSENT }, Ordering::Relaxed);
        }
        Ok(writer)
    }

    fn new(storage: Arc<dyn WritableStorage>, path: &str, spec: ArraySpec) -> Result<Self> {
        let refuse = |why: String| Error::argument("ArrayWriter", "spec", why);
        spec.check().map_err(refuse)?;
        let parsed = metadata::guarded(|| match spec.format {
            ZarrFormat::V2 => {
                metadata::parse_v2(spec.metadata(&spec.attributes), &Value::Object(spec.attributes.clone()))
            }
            ZarrFormat::V3 => metadata::parse_v3(spec.metadata(&spec.attributes)),
        });
        let metadata = parsed.map_err(refuse)?;
        metadata::check_chunk(spec.tile_shape(), metadata.spec.size).map_err(refuse)?;
        let tiles = spec.grid().iter().fold(1, |tiles: u64, &n| tiles.saturating_mul(n));
        if tiles > MAX_TILES {
            return Err(refuse(format!("{tiles} tiles are more than {MAX_TILES}")));
        }
        let done = (0..tiles).map(|_| AtomicU8::new(ABSENT)).collect();
        let hash = spec.job.as_ref().map(|job| {
            let mut hash = Sha256::new_with_prefix(spec.metadata(&spec.attributes).to_string());
            hash.update(spec.axes.join("\0"));
            hash.update(Value::Object(spec.attributes.clone()).to_string());
            hash.update(job);
            hash.update(concat!("teatime ", env!("CARGO_PKG_VERSION")));
            hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
        });
        let after = Needs::default();
        Ok(Self { storage, path: path.to_owned(), spec, metadata, hash, done, after })
    }

    /// Has plans of this array's boxes leave room for the memory of what comes after them.
    #[must_use]
    pub fn followed_by(self, after: Needs) -> Self {
        Self { after, ..self }
    }

    /// Returns the indices of all tiles, in C order.
    pub fn tiles(&self) -> impl Iterator<Item = Vec<u64>> + use<> {
        let grid = self.spec.grid();
        (0..self.done.len() as u64).map(move |at| index_at(at, &grid))
    }

    /// Returns the indices of the tiles that are not written, in C order. May read tiles, as [`is_written`](Self::is_written) does; a
    /// tile that cannot be read counts as not written.
    pub fn left(&self) -> impl Iterator<Item = Vec<u64>> {
        let tiles = self.tiles().zip(&self.done);
        tiles.filter(|(index, done)| !self.is_whole(index, done).unwrap_or(false)).map(|(index, _)| index)
    }

    /// True if a tile is written. A tile that another process wrote is read once to check it; if it is faulty, it counts as not written.
    ///
    /// # Errors
    /// [`Error::Argument`]: no such tile. [`Error::Io`]: the tile exists, but cannot be read.
    pub fn is_written(&self, index: &[u64]) -> Result<bool> {
        self.is_whole(index, &self.done[self.place(index)?])
    }

    fn is_whole(&self, index: &[u64], done: &AtomicU8) -> Result<bool> {
        if done.load(Ordering::Relaxed) == FOUND {
            let state = if self.decodes(index)? { WRITTEN } else { ABSENT };
            // The state is kept if another thread wrote the tile meanwhile.
            done.compare_exchange(FOUND, state, Ordering::Relaxed, Ordering::Relaxed).ok();
        }
        Ok(done.load(Ordering::Relaxed) == WRITTEN)
    }

    /// True if the stored bytes of a tile decode to a complete tile.
    fn decodes(&self, index: &[u64]) -> Result<bool> {
        let key = self.key(index);
        let stored = self.storage.get(&key, self.metadata.value_bytes());
        let Stored::Bytes(bytes) = stored.map_err(|source| self.io(&key, source))? else { return Ok(false) };
        Ok(metadata::guarded(|| self.decode(&bytes, &self.extent(index))).is_ok())
    }

    /// Decodes a stored tile: all chunks of a shard of which a part is within `extent`.
    fn decode(&self, tile: &[u8], extent: &[u64]) -> Decoded<()> {
        let Metadata { codecs, spec, shard, chunk_shape, element, .. } = &self.metadata;
        let decode = |chunk| codecs.decode(Cow::Borrowed(chunk), spec, false).map(|(bytes, _)| bytes);
        let Some(shard) = shard else {
            let bytes = decode(tile)?;
            let is_whole = *element != Element::Text || column::is_text(&self.metadata, &bytes);
            return if is_whole { Ok(()) } else { Err("its strings are damaged".into()) };
        };
        let index = shard.index(tile)?;
        let grid: Vec<u64> = extent.iter().zip(chunk_shape).map(|(n, chunk)| n.div_ceil(*chunk)).collect();
        (0..grid.iter().product()).try_for_each(|at| {
            let place = shard.range(index, shard.find(&index_at(at, &grid)).1);
            decode(slice(tile, place.ok_or("a chunk is missing from it")?)).map(drop)
        })
    }

    /// Returns the spec of the array.
    pub fn spec(&self) -> &ArraySpec {
        &self.spec
    }

    /// Returns the extent along each axis of the part of a tile that lies within the array.
    pub fn extent(&self, index: &[u64]) -> Vec<u64> {
        let axes = self.spec.shape.iter().zip(self.spec.tile_shape()).zip(index);
        axes.map(|((&n, &tile), &i)| tile.min(n.saturating_sub(i.saturating_mul(tile)))).collect()
    }

    /// Writes a tile from its elements within the array, in C order. An existing tile is replaced.
    ///
    /// Takes memory for the encoded tile; for tiles that extend beyond the array, or for shards, also for the tile itself.
    ///
    /// # Errors
    /// [`Error::Argument`]: no such tile, or a wrong number or type of elements; [`Error::Io`]: the tile cannot be written.
    pub fn write<T: Storable>(&self, index: &[u64], elements: &[T]) -> Result<()> {
        self.write_bytes(index, T::STORED, bytemuck::cast_slice(elements))
    }

    /// Writes a tile, as [`write`](Self::write) does, from the bytes of its elements in the host's byte order.
    fn write_bytes(&self, index: &[u64], dtype: StoredType, elements: &[u8]) -> Result<()> {
        let refuse = |why: String| Err(Error::argument("write", "elements", why));
        let (at, extent) = (self.place(index)?, self.extent(index));
        if self.spec.dtype != Some(dtype) {
            return refuse(format!("{dtype:?} for an array of {:?}", self.spec.dtype));
        }
        let count = elements.len() / dtype.size();
        if count as u64 != extent.iter().product::<u64>() {
            return refuse(format!("{count} for {extent:?}"));
        }
        let mut bytes = Cow::Borrowed(elements);
        if cfg!(target_endian = "big") {
            layout::swap_bytes(bytes.to_mut(), dtype.size());
        }
        if extent != self.spec.tile_shape() {
            let [tile, extent] = [self.spec.tile_shape(), &extent].map(in_memory);
            bytes = Cow::Owned(padded(&bytes, &extent, &tile, dtype.size()));
        }
        self.put(index, at, &bytes)
    }

    /// Writes a tile of strings; the array must have one axis, or the tile must lie entirely within the array.
    /// [`NewStore`](super::NewStore) has an example.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub fn write_text<'a>(&self, index: &[u64], strings: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let refuse = |why: String| Error::argument("write_text", "strings", why);
        let at = self.place(index)?;
        if self.spec.dtype.is_some() {
            return Err(refuse(format!("for an array of {:?}", self.spec.dtype)));
        }
        // The strings are serialised like numcodecs' VLenUTF8.
        let too_long = |_| refuse("2^32 bytes or more in a string".to_owned());
        let count = self.metadata.spec.count();
        let mut bytes = u32::try_from(count).map_err(too_long)?.to_le_bytes().to_vec();
        let mut given = 0;
        for text in strings {
            bytes.extend_from_slice(&u32::try_from(text.len()).map_err(too_long)?.to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
            given += 1;
        }
        let extent = self.extent(index);
        if given as u64 != extent.iter().product::<u64>()
            || (extent.len() > 1 && extent[1..] != self.spec.chunk_shape[1..])
        {
            return Err(refuse(format!("{given} for {extent:?}")));
        }
        // The elements beyond the end of the array are empty strings.
        bytes.resize(bytes.len() + 4 * (count - given), 0);
        self.put(index, at, &bytes)
    }

    /// Marks the array as complete. Reads no tile: existing tiles that were never checked are taken to be complete.
    ///
    /// # Errors
    /// [`Error::Chunk`]: a tile was not written; [`Error::Io`]: the attributes cannot be written.
    pub fn finish(self) -> Result<()> {
        let is_absent = |(_, done): &(Vec<u64>, &AtomicU8)| done.load(Ordering::Relaxed) == ABSENT;
        if let Some((index, _)) = self.tiles().zip(&self.done).find(is_absent) {
            return Err(Error::chunk(self.storage.place(&self.path), &index, "was not written"));
        }
        self.storage.flush().map_err(|source| self.io(&self.path, source))?;
        if self.hash.is_some() { self.put_metadata("complete") } else { Ok(()) }
    }

    /// Returns the indices of the tiles in a box, given as a range along each axis, in C order.
    fn tiles_of(&self, ranges: &[Range<u64>]) -> Result<Vec<Vec<u64>>> {
        let tile = self.spec.tile_shape();
        check_tiles(&self.spec.shape, tile, ranges)?;
        let along = ranges.iter().zip(tile).map(|(range, tile)| match range.is_empty() {
            true => 0..0,
            false => range.start / tile..range.end.div_ceil(*tile),
        });
        let along: Vec<Range<u64>> = along.collect();
        let counts: Vec<u64> = along.iter().map(|range| range.end - range.start).collect();
        let place =
            |at: u64| index_at(at, &counts).iter().zip(&along).map(|(at, range)| at + range.start).collect();
        Ok((0..counts.iter().product()).map(place).collect())
    }

    /// Returns the position of a tile in C order.
    fn place(&self, index: &[u64]) -> Result<usize> {
        let grid = self.spec.grid();
        if index.len() != grid.len() || index.iter().zip(&grid).any(|(i, n)| i >= n) {
            let why = format!("{index:?} is outside the grid of {grid:?} tiles");
            return Err(Error::argument("write", "index", why));
        }
        let number = index.iter().zip(&grid).fold(0, |number, (i, n)| number * n + i);
        Ok(to_usize(number))
    }

    fn key(&self, index: &[u64]) -> String {
        join(&self.path, self.metadata.keys.encode(index).as_str())
    }

    fn put(&self, index: &[u64], at: usize, bytes: &[u8]) -> Result<()> {
        let encoded = self.spec.encode(bytes, &self.extent(index));
        let encoded = encoded.map_err(|why| Error::chunk(self.storage.place(&self.path), index, why))?;
        let key = self.key(index);
        self.storage.begin_put(&key, &encoded).map_err(|source| self.io(&key, source))?;
        self.done[at].store(WRITTEN, Ordering::Relaxed);
        Ok(())
    }

    fn put_metadata(&self, status: &str) -> Result<()> {
        let mut attributes = self.spec.attributes.clone();
        if let Some(hash) = &self.hash {
            attributes.insert(ATTRIBUTE.to_owned(), json!({ "job": hash, "status": status }));
        }
        if self.spec.format == ZarrFormat::V3 {
            return put(&*self.storage, &join(&self.path, "zarr.json"), &self.spec.metadata(&attributes));
        }
        if !self.spec.axes.is_empty() {
            attributes.insert("_ARRAY_DIMENSIONS".to_owned(), json!(self.spec.axes));
        }
        // The attributes are written first, so that an array with metadata always has attributes.
        put(&*self.storage, &join(&self.path, ".zattrs"), &Value::Object(attributes))?;
        let metadata = self.spec.metadata(&self.spec.attributes);
        put(&*self.storage, &join(&self.path, ".zarray"), &metadata)
    }

    fn io(&self, key: &str, source: std::io::Error) -> Error {
        Error::io(self.storage.place(key), source)
    }

    fn refuse(&self, why: &str) -> Error {
        Error::store(self.storage.place(&self.path), why)
    }
}

impl BoxWriter for ArrayWriter {
    fn dtype(&self) -> Option<StoredType> {
        self.spec.dtype
    }

    fn shape(&self) -> &[u64] {
        &self.spec.shape
    }

    fn after(&self) -> Needs {
        self.after
    }

    /// Returns the shape of a chunk, or of a shard if there are shards.
    fn tile_shape(&self) -> Vec<u64> {
        self.spec.tile_shape().to_vec()
    }

    fn has_box(&self, ranges: &[Range<u64>]) -> Result<bool> {
        let tiles = self.tiles_of(ranges)?;
        tiles.par_iter().map(|index| self.is_written(index)).try_reduce(|| true, |a, b| Ok(a && b))
    }

    /// Writes the tiles of a box; existing tiles are kept. Takes memory for a copy of a tile on each thread, in addition to that of
    /// [`write`](Self::write).
    fn write_box_bytes(&self, ranges: &[Range<u64>], elements: &[u8]) -> Result<()> {
        let shape = check_box(self, ranges, elements)?;
        let Some(dtype) = self.spec.dtype else { return Ok(()) };
        self.tiles_of(ranges)?.into_par_iter().try_for_each(|index| {
            if self.is_written(&index)? {
                return Ok(());
            }
            let starts = index.iter().zip(self.spec.tile_shape()).zip(ranges);
            let origin: Vec<usize> =
                starts.map(|((at, tile), range)| to_usize(at * tile - range.start)).collect();
            let extent = in_memory(&self.extent(&index));
            if extent == shape {
                return self.write_bytes(&index, dtype, elements);
            }
            self.write_bytes(&index, dtype, &extract_block(elements, &shape, &origin, &extent, dtype.size()))
        })
    }

    fn finish(self) -> Result<()> {
        Self::finish(self)
    }
}

/// Writes the metadata of a Zarr group at `path` within `storage`, and replaces existing metadata; an empty path means the root of the
/// storage.
///
/// # Errors
/// [`Error::Io`] if the metadata cannot be written.
pub fn write_group(
    storage: &dyn WritableStorage,
    path: &str,
    format: ZarrFormat,
    attributes: &Attributes,
) -> Result<()> {
    if format == ZarrFormat::V3 {
        let metadata = json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes });
        return put(storage, &join(path, "zarr.json"), &metadata);
    }
    put(storage, &join(path, ".zgroup"), &json!({ "zarr_format": 2 }))?;
    put(storage, &join(path, ".zattrs"), &Value::Object(attributes.clone()))
}

fn put(storage: &dyn WritableStorage, key: &str, document: &Value) -> Result<()> {
    let put = storage.put(key, document.to_string().as_bytes());
    put.map_err(|source| Error::io(storage.place(key), source))
}
