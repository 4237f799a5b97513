//! The codec chain of an array: shards, or plain chunks.

use std::borrow::Cow;

use zarrs::metadata::v3::MetadataV3;

use super::{
    codec::{BytesCodecs, ChunkSpec, Codecs, encoded_cap},
    guard::{Decoded, Size, Why},
    shard::{Fill, Shard},
};

/// The encoding of chunks.
#[derive(Debug)]
pub(crate) enum Chain {
    Plain(Codecs),
    /// A shard, and what is done with its bytes.
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

    /// Elements of an inner chunk along each axis, of shards.
    pub(crate) fn inner_chunk(&self) -> Option<Vec<u64>> {
        match self {
            Self::Plain(_) => None,
            Self::Sharded(shard, _) => Some(shard.inner_shape().iter().map(|&n| n as u64).collect()),
        }
    }

    /// The maximum number of bytes an encoded chunk may have: more is refused unread.
    pub(crate) fn encoded_cap(&self, spec: &ChunkSpec) -> usize {
        match self {
            Self::Plain(codecs) => codecs.encoded_cap(spec),
            Self::Sharded(shard, _) => encoded_cap(spec.bytes().saturating_add(shard.index_bytes())),
        }
    }

    /// The maximum number of bytes of an encoded chunk beside its elements.
    pub(crate) fn fetched(&self, spec: &ChunkSpec) -> u64 {
        match self {
            Self::Plain(codecs) => codecs.fetched(spec),
            Self::Sharded(..) => self.encoded_cap(spec) as u64,
        }
    }

    /// The maximum number of bytes that decoding a chunk takes besides what is encoded and its elements.
    pub(crate) fn scratch(&self, spec: &ChunkSpec) -> u64 {
        match self {
            Self::Plain(codecs) => codecs.scratch(spec),
            Self::Sharded(shard, bytes) => bytes.scratch(self.encoded_cap(spec) as u64) + shard.scratch(),
        }
    }

    /// Decodes one chunk: exactly `spec.bytes()` bytes, or the serialised strings.
    ///
    /// `extent` is the part of the chunk that is within the array; `fill` is asked about its inner chunks.
    pub(crate) fn decode(
        &self,
        encoded: Cow<'_, [u8]>,
        spec: &ChunkSpec,
        extent: &[u64],
        fill: Fill<'_, '_>,
    ) -> Decoded<Vec<u8>> {
        match self {
            Self::Plain(codecs) => codecs.decode(encoded, spec),
            Self::Sharded(shard, bytes) => {
                let cap = Size::AtMost(self.encoded_cap(spec));
                shard.decode(&bytes.decode(encoded, cap, cap)?, spec, extent, fill)
            }
        }
    }
}
