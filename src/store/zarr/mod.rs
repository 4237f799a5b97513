//! Arrays of [Zarr](https://zarr.dev) v2 and v3 stores, read and written.
//!
//! Metadata is parsed by the `zarrs` crate, which nothing outside this module names; chunks are decoded under
//! the guards of `guard.rs`.

mod array;
mod attributes;
mod bitshuffle;
mod chain;
mod codec;
mod guard;
mod layout;
mod metadata;
mod new_store;
mod shard;
mod spec;
mod writer;

pub(crate) use self::{
    array::StoredArray,
    codec::MAX_TEXT_BYTES,
    guard::{Decoded, Fault, u32_at},
    layout::integer,
    metadata::{Element, Metadata, Node, node},
    shard::Inner,
};
pub use self::{
    array::ZarrArray,
    metadata::MAX_CHUNK_BYTES,
    new_store::NewStore,
    spec::{ArraySpec, Attributes, Compression, Shuffle, ZarrFormat},
    writer::ArrayWriter,
};

/// What stores name as their writer.
pub(crate) const SOURCE: &str = concat!("teatime-", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
pub(crate) mod tests;
