//! Stored arrays: any thread reads a chunk at a time from any storage; arrays are written tile by tile.
//!
//! | for | take |
//! |---|---|
//! | reading an array from a Zarr v2 or v3 store, a .npy file, or memory | [`ZarrArray`], [`NpyArray`], [`MemoryArray`] |
//! | reading missing values of an array as NaN | [`MissingAsNan`] |
//! | an array of your own that the rest of the crate reads | an implementation of [`ChunkedArray`] |
//! | a column of strings or integers of a Zarr store | [`Column`] |
//! | writing a Zarr array or a .npy file tile by tile, each tile whole or not at all | [`ArrayWriter`], [`NpyWriter`]; [`write_npy`] at once |
//! | a destination of your own for boxes that are written | an implementation of [`BoxWriter`] |
//! | a new Zarr store with several arrays | [`NewStore`] |
//! | a store on S3, Google Cloud Storage, Azure, or behind HTTP | [`open_storage`]; paths may also be such URLs, with the feature `remote` |
//! | a store in a zip archive | [`open_storage`]; paths and URLs may be those of archives |
//! | a storage of your own | an implementation of [`Storage`], and of [`WritableStorage`] |
//!
#![cfg_attr(
    not(feature = "zarr"),
    doc = "[`ArrayWriter`]: self
[`Column`]: self
[`NewStore`]: self
[`ZarrArray`]: self"
)]

mod array;
mod bit_planes;
mod blocks;
mod box_writer;
mod marked;
mod memory;
mod npy;
mod options;
mod place;
mod redacted;
#[cfg(feature = "remote")]
mod remote;
mod storage;
mod stored_type;
#[cfg(feature = "zarr")]
mod zarr;
#[cfg(feature = "zarr")]
mod zip;

#[cfg(feature = "zarr")]
pub use self::place::zip_archive;
#[cfg(feature = "zarr")]
pub use self::zarr::{
    ArraySpec, ArrayWriter, Attributes, Column, Compression, MAX_CHUNK_BYTES, NewStore, Node, Shuffle,
    ZarrArray, ZarrFormat, is_free, read_attributes, read_json, write_group,
};
pub use self::{
    array::{
        ArrayFacts, ChunkedArray, DecodedChunk, FetchedChunk, LookedFor, MissingChunk, OpenChunk, Shards,
        SharedArray, StoredType, WholeShard,
    },
    bit_planes::BitPlanes,
    box_writer::BoxWriter,
    marked::MissingAsNan,
    memory::{MemoryArray, Storable},
    npy::{NpyArray, NpyWriter, write_npy},
    options::StorageOptions,
    place::{local_path, open_storage},
    redacted::redacted,
    storage::{Folder, Storage, StoredBytes, Value, WritableStorage, join, key_within},
};
pub(crate) use self::{
    blocks::{extract_block, insert_block},
    stored_type::with_stored,
};
pub use crate::files::{read_at, write_whole};
