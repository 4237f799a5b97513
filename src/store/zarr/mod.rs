//! Arrays of [Zarr](https://zarr.dev) v2 and v3 stores, read and written.
//!
//! Metadata is parsed by the `zarrs` crate, which nothing outside this module names; chunks are decoded under
//! the guards of `guard.rs`.

mod array;
mod attributes;
mod bitshuffle;
mod chain;
mod codec;
mod column;
mod guard;
mod layout;
mod metadata;
mod new_store;
mod shard;
mod spec;
mod writer;

pub use self::{
    array::ZarrArray,
    column::{Column, LeftOut},
    metadata::{MAX_CHUNK_BYTES, Node, read_attributes, read_json},
    new_store::{NewStore, is_free},
    spec::{ArraySpec, Attributes, Compression, Shuffle, ZarrFormat},
    writer::{ArrayWriter, write_group},
};

#[cfg(test)]
mod tests;
