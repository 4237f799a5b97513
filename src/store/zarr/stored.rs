//! One array of a store, of numbers or strings: its chunks are found, fetched and decoded.

use std::{
    borrow::Cow,
    collections::HashMap,
    io::{self, ErrorKind},
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use zarrs::array::ChunkKeyEncoding;

use super::{
    guard::{Decoded, Fault, InPlanes, Size, buffer},
    json,
    metadata::{self, Metadata},
    shard::{Index, Indexes, Shard},
};
use crate::{
    DecodedChunk, Error, FetchedChunk, LookedFor, OpenChunk, Result, Shards, WholeShard,
    extent::to_usize,
    store::{Storage, StoredBytes, Value, storage::join},
    waiting::lock,
};

/// An array of numbers or strings of a store.
#[derive(Debug)]
pub(crate) struct StoredArray {
    pub(crate) storage: Arc<dyn Storage>,
    /// The array's key within the storage; empty if the array is at its root.
    path: String,
    name: String,
    pub(crate) metadata: Metadata,
    looked: Looked,
    pub(crate) indexes: Indexes,
    /// True if chunks in shards can be read by their ranges.
    reads_ranges: bool,
}

/// A shard that is read as a whole, whose index was checked, and its name.
struct Whole {
    name: String,
    bytes: StoredBytes,
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
        let (name, storage) = (storage.place(&path), Arc::clone(storage));
        let is_by_ranges = metadata.shard.as_ref().is_some_and(|shard| !shard.is_encoded());
        let reads_ranges = is_by_ranges
            && storage.reads_ranges(&join(&path, "zarr.json")).map_err(|source| Error::io(&name, source))?;
        let (looked, indexes) = (Looked::default(), Indexes::default());
        Ok(Self { name, path, storage, metadata, looked, indexes, reads_ranges })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn looked_for(&self) -> LookedFor {
        let absent = lock(&self.looked.absent);
        LookedFor {
            there: self.looked.there.load(Relaxed),
            absent: absent.values().map(|bits| u64::from(bits.count_ones())).sum(),
            other_names: self.looked.other_names.load(Relaxed),
        }
    }

    /// Reads the bytes of one chunk; the result has no bytes if the chunk is missing. If chunks are in shards, reads a range of the shard,
    /// or the `whole` shard, which is read for this chunk alone if it is not given and chunks cannot be read by ranges.
    pub(crate) fn fetch(&self, index: &[u64], whole: Option<&WholeShard>) -> Decoded<FetchedChunk> {
        let grid = self.metadata.grid();
        if index.len() != grid.len() || index.iter().zip(&grid).any(|(i, n)| i >= n) {
            return Err(format!("outside the grid of {grid:?} chunks").into());
        }
        let start = Instant::now();
        let bytes = match &self.metadata.shard {
            Some(shard) => self.get_from(shard, index, whole)?,
            None => self.look(index, |name| self.get(name))?,
        };
        if bytes.is_none() {
            let number =
                index.iter().zip(&grid).fold(0u64, |at, (i, n)| at.wrapping_mul(*n).wrapping_add(*i));
            let mut absent = lock(&self.looked.absent);
            *absent.entry(number / 64).or_default() |= 1 << (number % 64);
        }
        Ok(FetchedChunk { bytes, read: start.elapsed(), ..FetchedChunk::default() })
    }

    /// Looks for the value of a chunk or shard, by its name within the array, under the name that the metadata give. Until one is found so,
    /// this also tries the [other](Metadata::other_keys) name: some writers of version 2 have omitted `dimension_separator`.
    fn look<T>(&self, index: &[u64], look: impl Fn(&str) -> Decoded<Option<T>>) -> Decoded<Option<T>> {
        let look = |keys: &ChunkKeyEncoding| look(keys.encode(index).as_str());
        let Looked { there, other_names, .. } = &self.looked;
        let mut value = look(&self.metadata.keys)?;
        if value.is_none()
            && (other_names.load(Relaxed) || !there.load(Relaxed))
            && let Some(keys) = &self.metadata.other_keys
        {
            value = look(keys)?;
            other_names.fetch_or(value.is_some(), Relaxed);
        }
        there.fetch_or(value.is_some(), Relaxed);
        Ok(value)
    }

    /// Returns the key of a value, by its name within the array.
    fn key(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// Reads a value; `None` if there is none.
    fn get(&self, name: &str) -> Decoded<Option<StoredBytes>> {
        let most = self.metadata.value_bytes();
        match self.storage.get(&self.key(name), most) {
            Ok(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Ok(Value::Absent) => Ok(None),
            Ok(Value::Large(bytes)) => Err(Size::AtMost(to_usize(most)).exceeded(bytes, "its file has")),
            Err(error) => Err(unread(&error, most)),
        }
    }

    /// Reads a chunk from its shard: from the `whole` shard, or else by its range.
    fn get_from(
        &self,
        shard: &Shard,
        index: &[u64],
        whole: Option<&WholeShard>,
    ) -> Decoded<Option<StoredBytes>> {
        let ((outer, number), alone) = (shard.find(index), WholeShard::default());
        let Some(whole) = whole.or((!self.reads_ranges).then_some(&alone)) else {
            let Some((name, place)) = self.place(shard, &outer, number)? else { return Ok(None) };
            return self.range(&name, place).map(Some).map_err(in_shard(&name));
        };
        let whole = whole.read(|| self.whole(shard, &outer)).as_ref().map_err(Fault::clone)?;
        let Some(Whole { name, bytes }) = whole else { return Ok(None) };
        let copy = || {
            let Some(chunk) = shard.chunk(bytes, number)? else { return Ok(None) };
            let mut copy = buffer(chunk.len())?;
            copy.extend_from_slice(chunk);
            Ok(Some(StoredBytes::Owned(copy)))
        };
        copy().map_err(in_shard(name))
    }

    /// Reads a whole shard, and checks its index; `None` if there is no shard.
    fn whole(&self, shard: &Shard, outer: &[u64]) -> Decoded<Option<Whole>> {
        self.look(outer, |name| {
            let read = || {
                let Some(stored) = self.get(name)? else { return Ok(None) };
                let bytes = metadata::guarded(|| shard.decode(stored))?;
                shard.index(&bytes)?;
                Ok(Some(Whole { name: name.to_owned(), bytes }))
            };
            read().map_err(in_shard(name))
        })
    }

    /// Returns the name of a shard and the place of one of its chunks, by the shard's index, which is read if it is not known. `None` if
    /// there is no shard, or if the shard does not hold the chunk.
    fn place(&self, shard: &Shard, outer: &[u64], number: usize) -> Decoded<Option<(String, Range<u64>)>> {
        let known = self.indexes.known(shard, outer);
        let mut index = lock(&known);
        // Storage that answers late is not asked again; it notices changes itself.
        let stays = match &*index {
            Some(Ok(_)) if self.storage.fetches() > 0 => true,
            Some(Ok(Some(Index { name, size, .. }))) => {
                self.size(name).map_err(in_shard(name))? == Some(*size)
            }
            Some(Ok(None)) | None => false,
            Some(Err(_)) => true,
        };
        if !stays {
            // The old one is dropped first.
            *index = None;
            let read = self.index_of(shard, outer);
            if read.is_err() {
                self.indexes.forget(outer, &known);
            }
            *index = Some(read);
        }
        match &*index {
            Some(Ok(Some(Index { name, chunks, .. }))) => {
                Ok(shard.range(chunks, number).map(|place| (name.clone(), place)))
            }
            Some(Err(fault)) => Err(fault.clone()),
            _ => Ok(None),
        }
    }

    /// Reads the index of a shard by its range, and checks it; `None` if there is no shard.
    fn index_of(&self, shard: &Shard, outer: &[u64]) -> Decoded<Option<Index>> {
        self.look(outer, |name| {
            let read = || {
                let _turn = self.indexes.turn(shard);
                let Some(size) = self.size(name)? else { return Ok(None) };
                let chunks = self.range(name, shard.index_range(size)?)?;
                shard.check(&chunks, size)?;
                Ok(Some(Index { name: name.to_owned(), size, chunks }))
            };
            read().map_err(in_shard(name))
        })
    }

    /// Returns the number of bytes of a value; `None` if there is none.
    fn size(&self, name: &str) -> Decoded<Option<u64>> {
        self.storage.size(&self.key(name)).map_err(|error| format!("cannot be read: {error}").into())
    }

    /// Reads the bytes of a value that are in a range.
    fn range(&self, name: &str, range: Range<u64>) -> Decoded<StoredBytes> {
        let len = range.end - range.start;
        if len == 0 {
            return Ok(StoredBytes::Owned(Vec::new()));
        }
        match self.storage.get_range(&self.key(name), range) {
            Ok(Value::Bytes(bytes)) if bytes.len() as u64 == len => Ok(bytes),
            Ok(_) => Err("it is gone, or cut short".into()),
            Err(error) => Err(unread(&error, len)),
        }
    }

    pub(crate) fn opens_chunks(&self) -> bool {
        self.metadata.shard.is_none() && self.metadata.codecs.is_plain() && self.storage.opens_values()
    }

    /// Opens a chunk; `None` if it is missing or has another number of bytes than its elements.
    pub(crate) fn open_chunk(&self, index: &[u64]) -> Option<OpenChunk> {
        let bytes = self.metadata.spec.bytes() as u64;
        let open = |keys: &ChunkKeyEncoding| {
            let value = self.storage.open_value(&self.key(keys.encode(index).as_str()));
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

    pub(crate) fn shards(&self) -> Option<Shards> {
        let shard = self.metadata.shard.as_ref()?;
        let shards = self.metadata.grid().into_iter().zip(&shard.grid).map(|(n, chunks)| n.div_ceil(*chunks));
        let shards = shards.fold(1, u64::saturating_mul);
        let indexes = Indexes::most_bytes(shard, shards, self.storage.fetches());
        let are_whole = !self.reads_ranges;
        let index_bytes = if are_whole { 0 } else { indexes };
        Some(Shards { chunks: shard.grid.clone(), bytes: shard.whole_bytes(), index_bytes, are_whole })
    }

    /// Returns the maximum number of bytes of memory that fetching and decoding a chunk takes besides its bytes as stored and as decoded.
    pub(crate) fn scratch(&self) -> u64 {
        let Metadata { codecs, spec, shard, .. } = &self.metadata;
        codecs.scratch(spec).saturating_add(shard.as_ref().map_or(0, Shard::index_scratch))
    }

    /// Decodes one fetched chunk; `None` if it is missing. With `leave`, bit planes of one-byte elements stay, and are returned.
    pub(crate) fn decode(
        &self,
        fetched: FetchedChunk,
        leave: bool,
    ) -> Decoded<Option<InPlanes<DecodedChunk>>> {
        let start = Instant::now();
        let Some(encoded) = fetched.bytes else { return Ok(None) };
        let stored = encoded.len() as u64;
        let encoded = match encoded {
            StoredBytes::Owned(bytes) => Cow::Owned(bytes),
            StoredBytes::Shared(ref bytes) => Cow::Borrowed(&**bytes),
        };
        let Metadata { spec, codecs, .. } = &self.metadata;
        let (bytes, planes) = metadata::guarded(|| codecs.decode(encoded, spec, leave))?;
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

/// Returns a function that adds a shard's name to its faults.
fn in_shard(name: &str) -> impl Fn(Fault) -> Fault {
    move |fault| fault.in_part(&format!("shard {name}"))
}

/// Returns the fault of a value, or of a part of it with at most `bytes` bytes, that cannot be read.
fn unread(error: &io::Error, bytes: u64) -> Fault {
    match error.kind() {
        ErrorKind::OutOfMemory => Fault::Memory(bytes),
        _ => format!("cannot be read: {error}").into(),
    }
}
