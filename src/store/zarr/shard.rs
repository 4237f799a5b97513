//! The `sharding_indexed` codec: the chunks of an array in values that hold many of them, each found through the value's index.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

use serde_json::Value;
use zarrs::metadata::v3::MetadataV3;

use super::{
    codec::{BytesCodecs, ChunkSpec, Codecs, encoded_cap, is_big_endian},
    guard::{Decoded, Fault, Size, Why, crc32c},
};
use crate::{extent::to_usize, store::StoredBytes, waiting::lock};

/// The number of bytes of an index entry: offset and length.
const ENTRY: usize = 16;

/// The maximum number of bytes of the indexes that an array keeps, and those of bookkeeping for each.
const INDEXES: u64 = 16 << 20;
const KEPT: u64 = 384;

/// The minimum number of bytes of an index that is large: one thread at a time reads such an index.
const LARGE: usize = 64 << 10;

/// The maximum number of inner chunks of a shard, which bounds the index at 16 MiB.
const MAX_INNER_CHUNKS: u64 = 1 << 20;

/// A shard's index, which was checked, and the name and the size of the shard.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) chunks: StoredBytes,
}

/// A shard's index, `None` of a shard that is not there, or why it cannot be read. It is known once it was read; threads that need it wait
/// for the one that reads it.
type Known = Arc<Mutex<Option<Decoded<Option<Index>>>>>;

/// Indexes by the places of their shards.
type ByPlace = HashMap<Vec<u64>, Known>;

/// The indexes of an array's shards, within a bound on their bytes.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    /// Each index by the place of its shard, and these places, the oldest first.
    kept: Mutex<(ByPlace, VecDeque<Vec<u64>>)>,
    /// The turn to read an index that is large.
    turn: Mutex<()>,
}

impl Indexes {
    /// Returns the number of indexes that are kept: at least one.
    fn most(shard: &Shard) -> u64 {
        (INDEXES / (shard.index_bytes() as u64 + KEPT)).max(1)
    }

    /// Returns the maximum number of bytes of the indexes of so many shards, some of which `fetches` threads read at once.
    pub(crate) fn most_bytes(shard: &Shard, shards: u64, fetches: usize) -> u64 {
        let kept = Self::most(shard).min(shards) * (shard.index_bytes() as u64 + KEPT);
        // Large ones are read in turn, by a thread whose chunk has scratch memory.
        let reading = if shard.is_large() { 0 } else { shard.index_scratch().saturating_mul(fetches as u64) };
        kept.saturating_add(reading)
    }

    /// Waits for the turn to read an index, if it is large.
    pub(crate) fn turn(&self, shard: &Shard) -> Option<MutexGuard<'_, ()>> {
        shard.is_large().then(|| lock(&self.turn))
    }

    /// Returns the index of the shard at `outer`, which the caller reads if nobody has. Drops the oldest if they are too many.
    pub(crate) fn known(&self, shard: &Shard, outer: &[u64]) -> Known {
        let (indexes, places) = &mut *lock(&self.kept);
        if let Some(known) = indexes.get(outer) {
            return Arc::clone(known);
        }
        if indexes.len() as u64 >= Self::most(shard)
            && let Some(oldest) = places.pop_front()
        {
            indexes.remove(&oldest);
        }
        places.push_back(outer.to_vec());
        Arc::clone(indexes.entry(outer.to_vec()).or_default())
    }

    /// Drops an index that could not be read, so that it is read again for those who do not wait for it yet.
    pub(crate) fn forget(&self, outer: &[u64], known: &Known) {
        let (indexes, places) = &mut *lock(&self.kept);
        if indexes.get(outer).is_some_and(|kept| Arc::ptr_eq(kept, known)) {
            indexes.remove(outer);
            places.retain(|place| place != outer);
        }
    }
}

/// Returns the bytes of a shard at a place within it.
pub(crate) fn slice(shard: &[u8], place: Range<u64>) -> &[u8] {
    &shard[to_usize(place.start)..to_usize(place.end)]
}

/// The layout of a shard, parsed from a `sharding_indexed` codec.
#[derive(Debug)]
pub(crate) struct Shard {
    /// The number of inner chunks along each axis, and in all.
    pub(crate) grid: Vec<u64>,
    count: usize,
    /// The codecs of the bytes of whole shards, and the maximum number of bytes of a shard as stored and without these codecs.
    codecs: BytesCodecs,
    pub(crate) stored_bytes: u64,
    bytes: usize,
    /// The maximum number of bytes of an inner chunk as stored.
    chunk_bytes: usize,
    index_first: bool,
    index_crc: bool,
    index_big_endian: bool,
}

impl Shard {
    /// Parses the codec for shards of shape `outer`, whose elements are those of `spec`, and the codecs `others` that encode the bytes of a
    /// shard. Returns also the layout and the codecs of the inner chunks.
    pub(crate) fn parse(
        codec: &MetadataV3,
        others: &[MetadataV3],
        outer: &[u64],
        spec: ChunkSpec,
    ) -> Why<(Self, ChunkSpec, Codecs)> {
        let broken = |what: &str| format!("its `sharding_indexed` codec has no usable `{what}`");
        let get = |name: &str| codec.configuration().and_then(|c| c.get(name));
        let list = |name: &str| -> Why<Vec<MetadataV3>> {
            let value = get(name).cloned().ok_or_else(|| broken(name))?;
            serde_json::from_value(value).map_err(|_| broken(name))
        };
        let codecs = list("codecs")?;
        if spec.size == 0 || codecs.iter().any(|c| c.name() == "sharding_indexed") {
            return Err("shards of strings and shards within shards are not supported".to_owned());
        }
        let shape = get("chunk_shape").and_then(Value::as_array).ok_or_else(|| broken("chunk_shape"))?;
        let shape = shape.iter().map(Value::as_u64);
        let shape = shape.collect::<Option<Vec<u64>>>().ok_or_else(|| broken("chunk_shape"))?;
        let divides = |(&inner, &outer): (&u64, &u64)| inner > 0 && outer.is_multiple_of(inner);
        if shape.len() != outer.len() || !shape.iter().zip(outer).all(divides) {
            return Err(format!("its inner chunks {shape:?} do not divide its shards {outer:?}"));
        }
        let grid: Vec<u64> = outer.iter().zip(&shape).map(|(outer, inner)| outer / inner).collect();
        let count = grid.iter().fold(1, |count: u64, &n| count.saturating_mul(n));
        if count > MAX_INNER_CHUNKS {
            return Err(format!("its shards hold {count} inner chunks, more than {MAX_INNER_CHUNKS}"));
        }
        let (index_big_endian, index_crc) = match list("index_codecs")?.as_slice() {
            [bytes] if bytes.name() == "bytes" => (is_big_endian(bytes, 8)?, false),
            [bytes, crc] if bytes.name() == "bytes" && crc.name() == "crc32c" => {
                (is_big_endian(bytes, 8)?, true)
            }
            _ => return Err("its shard index is encoded with other codecs than bytes and crc32c".to_owned()),
        };
        let index_first = match get("index_location").map(|v| v.as_str()) {
            None | Some(Some("end")) => false,
            Some(Some("start")) => true,
            _ => return Err(broken("index_location")),
        };
        let spec = ChunkSpec { shape: shape.into_iter().map(to_usize).collect(), ..spec };
        let (codecs, others) = (Codecs::parse(&codecs, &spec)?, BytesCodecs::parse(others)?);
        let (count, chunk_bytes) = (to_usize(count), codecs.encoded_cap(&spec));
        let mut shard = Self {
            grid,
            count,
            codecs: others,
            stored_bytes: 0,
            bytes: 0,
            chunk_bytes,
            index_first,
            index_crc,
            index_big_endian,
        };
        let elements = spec.bytes().saturating_mul(count);
        shard.bytes = encoded_cap(elements.saturating_add(shard.index_bytes()));
        shard.stored_bytes = shard.codecs.encoded_cap(shard.bytes) as u64;
        Ok((shard, spec, codecs))
    }

    /// True if the bytes of whole shards are encoded.
    pub(crate) fn is_encoded(&self) -> bool {
        !self.codecs.is_empty()
    }

    /// Returns the maximum number of bytes of memory that reading a whole shard takes.
    pub(crate) fn whole_bytes(&self) -> u64 {
        let decoding = self.codecs.scratch(self.stored_bytes).saturating_add(self.bytes as u64);
        self.stored_bytes.saturating_add(if self.is_encoded() { decoding } else { 0 })
    }

    /// Decodes the bytes of a whole shard.
    pub(crate) fn decode(&self, stored: StoredBytes) -> Decoded<StoredBytes> {
        if !self.is_encoded() {
            return Ok(stored);
        }
        let bytes = self.codecs.decode(Cow::Borrowed(&stored), Size::AtMost(self.bytes))?;
        Ok(StoredBytes::Owned(bytes.into_owned()))
    }

    /// Returns the number of bytes of the encoded index.
    pub(crate) fn index_bytes(&self) -> usize {
        self.count * ENTRY + if self.index_crc { 4 } else { 0 }
    }

    /// Returns the index of the shard that holds the chunk at `index` of the array, and the number of the chunk within the shard.
    pub(crate) fn find(&self, index: &[u64]) -> (Vec<u64>, usize) {
        let within = index.iter().zip(&self.grid).fold(0, |number, (at, n)| number * n + at % n);
        (index.iter().zip(&self.grid).map(|(at, n)| at / n).collect(), to_usize(within))
    }

    /// Returns the place of the index in a shard of `size` bytes. Refuses a shard that is too large.
    pub(crate) fn index_range(&self, size: u64) -> Decoded<Range<u64>> {
        Size::AtMost(self.bytes).check(size, "its file has")?;
        let bytes = self.index_bytes() as u64;
        let rest = size
            .checked_sub(bytes)
            .ok_or_else(|| format!("{size} bytes are shorter than the shard index of {bytes}"))?;
        Ok(if self.index_first { 0..bytes } else { rest..size })
    }

    /// Checks the index of a shard of `size` bytes: entries overlap neither it nor each other, and chunks are not too large.
    pub(crate) fn check(&self, index: &[u8], size: u64) -> Decoded<()> {
        if self.index_crc {
            crc32c(Cow::Borrowed(index)).map_err(|fault| fault.in_part("shard index"))?;
        }
        let place = self.index_range(size)?;
        let body = if self.index_first { place.end..size } else { 0..place.start };
        let mut ranges = Vec::new();
        let memory = |_| Fault::Memory((self.count * size_of::<Range<u64>>()) as u64);
        ranges.try_reserve_exact(self.count).map_err(memory)?;
        for number in 0..self.count {
            let Some((offset, length)) = self.entry(index, number) else { continue };
            let within = |&end: &u64| offset >= body.start && end <= body.end;
            let end = offset.checked_add(length).filter(within).ok_or_else(|| {
                format!("the shard index claims {length} bytes at {offset}, where {body:?} are inner chunks")
            })?;
            Size::AtMost(self.chunk_bytes).check(length, "an inner chunk has")?;
            ranges.push(offset..end);
        }
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        match ranges.windows(2).find(|pair| pair[1].start < pair[0].end) {
            Some(pair) => Err(format!("inner chunks at {:?} and {:?} overlap", pair[0], pair[1]).into()),
            None => Ok(()),
        }
    }

    /// Returns the index of a whole shard, which it checks.
    pub(crate) fn index<'a>(&self, shard: &'a [u8]) -> Decoded<&'a [u8]> {
        let index = slice(shard, self.index_range(shard.len() as u64)?);
        self.check(index, shard.len() as u64)?;
        Ok(index)
    }

    /// Returns the bytes of a chunk in a whole shard whose index was checked, by the chunk's number; `None` if the shard lacks it.
    pub(crate) fn chunk<'a>(&self, shard: &'a [u8], number: usize) -> Decoded<Option<&'a [u8]>> {
        let index = slice(shard, self.index_range(shard.len() as u64)?);
        Ok(self.range(index, number).map(|place| slice(shard, place)))
    }

    /// Returns the maximum number of bytes of memory that a thread takes to read an index, besides that of the index if it is kept.
    pub(crate) fn index_scratch(&self) -> u64 {
        // These are the ranges of the chunks, and an index that was dropped while another thread looks at it.
        2 * self.index_bytes() as u64
    }

    fn is_large(&self) -> bool {
        self.index_bytes() >= LARGE
    }

    /// Returns the offset and the length of a chunk, by its number within the shard; `None` if the shard does not hold it.
    fn entry(&self, index: &[u8], number: usize) -> Option<(u64, u64)> {
        let numbers = index[number * ENTRY..][..ENTRY].as_chunks::<8>().0;
        let read = if self.index_big_endian { u64::from_be_bytes } else { u64::from_le_bytes };
        let (offset, length) = (read(numbers[0]), read(numbers[1]));
        (offset != u64::MAX || length != u64::MAX).then_some((offset, length))
    }

    /// Returns the place of a chunk in its shard, by its number and an index that was checked; `None` if the shard does not hold it.
    pub(crate) fn range(&self, index: &[u8], number: usize) -> Option<Range<u64>> {
        self.entry(index, number).map(|(offset, length)| offset..offset + length)
    }
}
