//! The `sharding_indexed` codec: the chunks of an array in values that hold many of them, each found through the value's index.

use std::{
    borrow::Cow,
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use zarrs::metadata::v3::MetadataV3;

use super::{
    codec::{ChunkSpec, Codecs, encoded_cap, is_big_endian},
    guard::{Decoded, Size, Why, crc32c},
};
use crate::extent::to_usize;

/// The number of bytes of an index entry: offset and length.
const ENTRY: usize = 16;

/// The maximum number of bytes of the indexes that an array keeps, and those of bookkeeping for each.
const INDEXES: u64 = 16 << 20;
const KEPT: u64 = 384;

/// The maximum number of inner chunks of a shard, which bounds the index at 16 MiB.
const MAX_INNER_CHUNKS: u64 = 1 << 20;

/// A shard's index in its decoded form, and the key of the shard.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) key: String,
    pub(crate) chunks: Box<[u8]>,
}

/// A shard's index once it was read: `None` if there is no such shard. Threads that need the index wait for the one that reads it.
type Known = Arc<Mutex<Option<Option<Index>>>>;

/// The indexes of an array's shards, each by the place of its shard, within a bound on their bytes.
#[derive(Debug, Default)]
pub(crate) struct Indexes(Mutex<HashMap<Vec<u64>, Known>>);

impl Indexes {
    /// Returns the number of indexes that are kept: at least one.
    fn most(shard: &Shard) -> u64 {
        (INDEXES / (shard.index_bytes() as u64 + KEPT)).max(1)
    }

    /// Returns the maximum number of bytes of the indexes of so many shards.
    pub(crate) fn most_bytes(shard: &Shard, shards: u64) -> u64 {
        Self::most(shard).min(shards) * (shard.index_bytes() as u64 + KEPT)
    }

    /// Returns the index of the shard at `outer`, which the caller reads if nobody has. Drops all others if they are too many.
    pub(crate) fn known(&self, shard: &Shard, outer: &[u64]) -> Known {
        let mut indexes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if indexes.len() as u64 >= Self::most(shard) && !indexes.contains_key(outer) {
            indexes.clear();
        }
        Arc::clone(indexes.entry(outer.to_vec()).or_default())
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
    /// The maximum number of bytes of a shard as stored.
    pub(crate) bytes: u64,
    /// The maximum number of bytes of an inner chunk as stored.
    chunk_bytes: usize,
    index_first: bool,
    index_crc: bool,
    index_big_endian: bool,
}

impl Shard {
    /// Parses the codec for shards of shape `outer`, whose elements are those of `spec`. Returns also the layout and the codecs of the
    /// inner chunks.
    pub(crate) fn parse(
        codec: &MetadataV3,
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
        let codecs = Codecs::parse(&codecs, &spec)?;
        let (count, chunk_bytes) = (to_usize(count), codecs.encoded_cap(&spec));
        let mut shard = Self { grid, count, bytes: 0, chunk_bytes, index_first, index_crc, index_big_endian };
        let elements = spec.bytes().saturating_mul(count);
        shard.bytes = encoded_cap(elements.saturating_add(shard.index_bytes())) as u64;
        Ok((shard, spec, codecs))
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

    /// Returns the place of the index in a shard of `size` bytes, which may not be more than [`bytes`](Self::bytes).
    pub(crate) fn index_range(&self, size: u64) -> Decoded<Range<u64>> {
        Size::AtMost(to_usize(self.bytes)).check(size, "its file has")?;
        let bytes = self.index_bytes() as u64;
        let rest = size
            .checked_sub(bytes)
            .ok_or_else(|| format!("{size} bytes are shorter than the shard index of {bytes}"))?;
        Ok(if self.index_first { 0..bytes } else { rest..size })
    }

    /// Decodes the index of a shard of `size` bytes. Refuses entries that overlap the index or each other, as in a truncated file, and
    /// chunks that are too large.
    pub(crate) fn index(&self, encoded: &[u8], size: u64) -> Decoded<Box<[u8]>> {
        let index = match self.index_crc {
            true => crc32c(Cow::Borrowed(encoded)).map_err(|fault| fault.in_part("shard index"))?,
            false => Cow::Borrowed(encoded),
        };
        let place = self.index_range(size)?;
        let body = if self.index_first { place.end..size } else { 0..place.start };
        let mut ranges = Vec::new();
        for number in 0..self.count {
            let Some((offset, length)) = self.entry(&index, number) else { continue };
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
            None => Ok(index.into()),
        }
    }

    /// Returns the offset and the length of a chunk, by its number within the shard; `None` if the shard does not hold it.
    fn entry(&self, index: &[u8], number: usize) -> Option<(u64, u64)> {
        let numbers = index[number * ENTRY..][..ENTRY].as_chunks::<8>().0;
        let read = if self.index_big_endian { u64::from_be_bytes } else { u64::from_le_bytes };
        let (offset, length) = (read(numbers[0]), read(numbers[1]));
        (offset != u64::MAX || length != u64::MAX).then_some((offset, length))
    }

    /// Returns the place of a chunk in its shard, by its number and a decoded [`index`](Self::index); `None` if the shard does not hold it.
    pub(crate) fn range(&self, index: &[u8], number: usize) -> Option<Range<u64>> {
        self.entry(index, number).map(|(offset, length)| offset..offset + length)
    }
}
