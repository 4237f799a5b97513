//! Arrays of [Zarr](https://zarr.dev) v2 and v3 stores on a local file system.
//!
//! Metadata is parsed by the `zarrs` crate, which nothing outside this module names; chunks are decoded under
//! the guards of `guard.rs`.

mod array;
mod attributes;
mod bitshuffle;
mod chain;
mod codec;
mod folder;
mod guard;
mod layout;
mod metadata;
mod shard;

pub(crate) use self::{
    array::StoredArray,
    codec::MAX_TEXT_BYTES,
    folder::{BITS, BYTES, Layout, SOURCE, StoreFolder},
    guard::{Decoded, Fault, u32_at},
    layout::integer,
    metadata::{Element, Metadata, Node, node},
    shard::Inner,
};
pub use self::{array::ZarrArray, metadata::MAX_CHUNK_BYTES};

#[cfg(test)]
pub(crate) mod tests;
