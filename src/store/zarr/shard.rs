//! The `sharding_indexed` codec: many small chunks in one file, found through an index.

use std::borrow::Cow;

use serde_json::Value;
use zarrs::metadata::v3::MetadataV3;

use super::{
    codec::{ChunkSpec, Codecs, is_big_endian},
    guard::{Decoded, Fault, Size, Why, buffer, crc32c},
    layout,
};
use crate::store::blocks::{advance, insert_block};

/// The number of bytes of an index entry: offset and length.
const ENTRY: usize = 16;

/// The maximum number of inner chunks of a shard, which bounds the index at 16 MiB.
const MAX_INNER_CHUNKS: usize = 1 << 20;

/// An inner chunk of a shard.
#[derive(Debug)]
pub(crate) struct Inner<'a> {
    /// The index within the shard of the inner chunk's first element, and the chunk's extents.
    pub(crate) origin: &'a [usize],
    pub(crate) shape: &'a [usize],
    /// True if the shard contains the inner chunk.
    pub(crate) there: bool,
}

/// A function that is called for each inner chunk within the array, and returns the fill element for a missing inner chunk. If it returns
/// `None`, the missing chunk is a fault.
pub(crate) type Fill<'a, 'f> = &'a mut dyn FnMut(&Inner) -> Option<&'f [u8]>;

/// A parsed `sharding_indexed` codec.
#[derive(Debug)]
pub(crate) struct Shard {
    inner: ChunkSpec,
    /// The number of inner chunks along each axis.
    grid: Vec<usize>,
    codecs: Codecs,
    index_first: bool,
    index_crc: bool,
    index_big_endian: bool,
}

impl Shard {
    /// Parses the codec for shards of `spec`.
    pub(crate) fn parse(codec: &MetadataV3, spec: &ChunkSpec) -> Why<Self> {
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
        let shape = shape.iter().map(|v| usize::try_from(v.as_u64()?).ok());
        let shape = shape.collect::<Option<Vec<usize>>>().ok_or_else(|| broken("chunk_shape"))?;
        let divides = |(&inner, &outer): (&usize, &usize)| inner > 0 && outer.is_multiple_of(inner);
        if shape.len() != spec.shape.len() || !shape.iter().zip(&spec.shape).all(divides) {
            return Err(format!("its inner chunks {shape:?} do not divide its shards {:?}", spec.shape));
        }
        let grid: Vec<usize> = spec.shape.iter().zip(&shape).map(|(outer, inner)| outer / inner).collect();
        let count = grid.iter().product::<usize>();
        if count > MAX_INNER_CHUNKS {
            return Err(format!("its shards hold {count} inner chunks, more than {MAX_INNER_CHUNKS}"));
        }
        let inner = ChunkSpec { shape, ..*spec };
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
        let codecs = Codecs::parse(&codecs, &inner)?;
        Ok(Self { inner, grid, codecs, index_first, index_crc, index_big_endian })
    }

    /// Returns the extent of an inner chunk along each axis.
    pub(crate) fn inner_shape(&self) -> &[usize] {
        &self.inner.shape
    }

    /// Returns the number of bytes of the encoded index.
    pub(crate) fn index_bytes(&self) -> usize {
        self.grid.iter().product::<usize>() * ENTRY + if self.index_crc { 4 } else { 0 }
    }

    /// Returns the maximum number of bytes of memory that decoding takes besides the shard's file and its elements: for an inner chunk,
    /// and for the index twice.
    pub(crate) fn scratch(&self) -> u64 {
        (2 * self.index_bytes() + self.inner.bytes()) as u64
            + self.codecs.fetched(&self.inner)
            + self.codecs.scratch(&self.inner)
    }

    /// Decodes a whole shard; `extent` is the part of the shard that lies within the array.
    pub(crate) fn decode(
        &self,
        data: &[u8],
        spec: &ChunkSpec,
        extent: &[u64],
        fill: Fill<'_, '_>,
    ) -> Decoded<Vec<u8>> {
        let index = self.index(data)?;
        self.check_entries(data, &index)?;
        let mut out = buffer(spec.bytes())?;
        out.resize(spec.bytes(), 0);
        let mut at = vec![0; self.grid.len()];
        for entry in index.chunks_exact(ENTRY) {
            let origin: Vec<usize> = at.iter().zip(&self.inner.shape).map(|(i, n)| i * n).collect();
            // Writers leave out the inner chunks of an edge shard that lie beyond the array.
            if origin.iter().zip(extent).all(|(&origin, &extent)| (origin as u64) < extent) {
                let entry = self.entry(entry)?;
                let fill = fill(&Inner { origin: &origin, shape: &self.inner.shape, there: entry.is_some() });
                let block = self
                    .inner_chunk(data, entry, fill)
                    .map_err(|fault| fault.in_part(&format!("inner chunk {at:?}")))?;
                insert_block(&mut out, &spec.shape, &origin, &block, &self.inner.shape, spec.size);
            }
            advance(&mut at, &self.grid);
        }
        Ok(out)
    }

    fn index<'a>(&self, data: &'a [u8]) -> Decoded<Cow<'a, [u8]>> {
        let bytes = self.index_bytes();
        let rest = data
            .len()
            .checked_sub(bytes)
            .ok_or_else(|| format!("{} bytes are shorter than the shard index of {bytes}", data.len()))?;
        let index = if self.index_first { &data[..bytes] } else { &data[rest..] };
        if self.index_crc {
            crc32c(Cow::Borrowed(index)).map_err(|fault| fault.in_part("shard index"))
        } else {
            Ok(Cow::Borrowed(index))
        }
    }

    /// Refuses entries that overlap the index or each other, as in a truncated file.
    fn check_entries(&self, data: &[u8], index: &[u8]) -> Decoded<()> {
        let (bytes, end) = (self.index_bytes() as u64, data.len() as u64);
        let body = if self.index_first { bytes..end } else { 0..end - bytes };
        let mut ranges = Vec::new();
        for entry in index.chunks_exact(ENTRY) {
            let Some((offset, length)) = self.entry(entry)? else { continue };
            let within = |&end: &u64| offset >= body.start && end <= body.end;
            let end = offset.checked_add(length).filter(within).ok_or_else(|| {
                format!("the shard index claims {length} bytes at {offset}, where {body:?} are inner chunks")
            })?;
            ranges.push(offset..end);
        }
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        match ranges.windows(2).find(|pair| pair[1].start < pair[0].end) {
            Some(pair) => Err(format!("inner chunks at {:?} and {:?} overlap", pair[0], pair[1]).into()),
            None => Ok(()),
        }
    }

    /// Returns the offset and the length of an index entry; `None` for a missing inner chunk.
    fn entry(&self, entry: &[u8]) -> Decoded<Option<(u64, u64)>> {
        let number = |bytes: &[u8]| -> Decoded<u64> {
            let bytes = bytes.try_into().map_err(|_| "short index entry".to_owned())?;
            Ok(if self.index_big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
        };
        let (offset, length) = (number(&entry[..8])?, number(&entry[8..])?);
        Ok((offset != u64::MAX || length != u64::MAX).then_some((offset, length)))
    }

    fn inner_chunk(&self, data: &[u8], entry: Option<(u64, u64)>, fill: Option<&[u8]>) -> Decoded<Vec<u8>> {
        let Some((offset, length)) = entry else {
            let fill = fill.ok_or_else(|| Fault::Missing("it is missing from the shard".to_owned()))?;
            return layout::filled(fill, self.inner.count());
        };
        let cap = self.codecs.encoded_cap(&self.inner);
        Size::AtMost(cap).check(length, "it has")?;
        let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
        let encoded = range
            .and_then(|(offset, length)| data.get(offset..)?.get(..length))
            .ok_or("it is outside the shard")?;
        Ok(self.codecs.decode(Cow::Borrowed(encoded), &self.inner, false)?.0)
    }
}
