//! Arrays of [Zarr](https://zarr.dev) v2 and v3 stores, read and written.
//!
//! Metadata is parsed by the `zarrs` crate, which only this module uses; chunks are decoded under the guards of `guard.rs`.

mod array;
mod attributes;
mod codec;
mod column;
#[cfg(feature = "remote")]
mod consolidated;
mod fill;
mod filter;
mod guard;
mod json;
mod layout;
mod metadata;
mod new_store;
mod node;
mod shard;
mod spec;
mod stored;
mod writer;

#[cfg(feature = "remote")]
pub(super) use self::consolidated::consolidated;
pub(super) use self::json::{DOCUMENTS, is_document};
pub use self::{
    array::ZarrArray,
    column::Column,
    json::read_json,
    metadata::{MAX_CHUNK_BYTES, read_attributes},
    new_store::{NewStore, is_free},
    node::Node,
    spec::{ArraySpec, Attributes, Compression, Shuffle, ZarrFormat},
    writer::{ArrayWriter, write_group},
};

#[cfg(test)]
mod tests;
