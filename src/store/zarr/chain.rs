//! The codec chain of an array: shards, or plain chunks.

use std::borrow::Cow;

use zarrs::metadata::v3::MetadataV3;

use super::{
    codec::{BytesCodecs, ChunkSpec, Codecs, encoded_cap},
    guard::{Decoded, Size, Why},
    shard::{Fill, Shard},
};
use crate::store::BitPlanes;

/// The codecs of chunks: plain, or in shards.
#[derive(Debug)]
pub(crate) enum Chain {
    Plain(Codecs),
    /// The codec of a shard, and the codecs that are applied to the shard's bytes.
    Sharded(Box<Shard>, BytesCodecs),
}

impl Chain {
    /// Parses `codecs` for chunks of `spec`.
    pub(crate) fn parse(codecs: &[MetadataV3], spec: &ChunkSpec) -> Why<Self> {
        match codecs {
            [shard, bytes @ ..] if shard.name() == "sharding_indexed" => {
                Ok(Self::Sharded(Box::new(Shard::parse(shard, spec)?), BytesCodecs::parse(bytes)?))
            }
            [transpose, shard, ..]
                if [transpose.name(), shard.name()] == ["transpose", "sharding_indexed"] =>
            {
                Err("transposed shards are not supported".to_owned())
            }
            _ => Codecs::parse(codecs, spec).map(Self::Plain),
        }
    }

    /// For shards, returns the extent of an inner chunk along each axis.
    pub(crate) fn inner_chunk(&self) -> Option<Vec<u64>> {
        match self {
            Self::Plain(_) => None,
            Self::Sharded(shard, _) => Some(shard.inner_shape().iter().map(|&n| n as u64).collect()),
        }
    }

    /// Returns the maximum number of bytes of an encoded chunk: a larger one is refused before it is read.
    pub(crate) fn encoded_cap(&self, spec: &ChunkSpec) -> usize {
        match self {
            Self::Plain(codecs) => codecs.encoded_cap(spec),
            Self::Sharded(shard, _) => encoded_cap(spec.bytes().saturating_add(shard.index_bytes())),
        }
    }

    /// Returns the maximum number of bytes of memory of an encoded chunk in addition to its elements.
    pub(crate) fn fetched(&self, spec: &ChunkSpec) -> u64 {
        match self {
            Self::Plain(codecs) => codecs.fetched(spec),
            Self::Sharded(..) => self.encoded_cap(spec) as u64,
        }
    }

    /// Returns the maximum number of bytes of memory that decoding a chunk takes besides the encoded chunk and its elements.
    pub(crate) fn scratch(&self, spec: &ChunkSpec) -> u64 {
        match self {
            Self::Plain(codecs) => codecs.scratch(spec),
            Self::Sharded(shard, bytes) => bytes.scratch(self.encoded_cap(spec) as u64) + shard.scratch(),
        }
    }

    /// Decodes one chunk. The result has exactly `spec.bytes()` bytes, or is the serialised strings.
    ///
    /// `extent` is the part of the chunk that lies within the array; `fill` is called for its inner chunks. If `leave` is true, bit planes of
    /// one-byte elements stay, and are returned.
    pub(crate) fn decode(
        &self,
        encoded: Cow<'_, [u8]>,
        spec: &ChunkSpec,
        extent: &[u64],
        fill: Fill<'_, '_>,
        leave: bool,
    ) -> Decoded<(Vec<u8>, Option<BitPlanes>)> {
        match self {
            Self::Plain(codecs) => codecs.decode(encoded, spec, leave),
            Self::Sharded(shard, bytes) => {
                let cap = Size::AtMost(self.encoded_cap(spec));
                Ok((shard.decode(&bytes.decode(encoded, cap)?, spec, extent, fill)?, None))
            }
        }
    }
}
