//! Stored arrays: read a chunk at a time from any thread, wherever they are.
//!
//! [`ChunkedArray`] is what the rest of the crate reads; [`MemoryArray`] is one in memory, [`NpyArray`] one in a .npy file,
//! [`ZarrArray`] one of a Zarr store.
//! [`Column`] reads strings and integers by ranges of rows. [`ArrayWriter`] writes Zarr arrays, tile by tile, and [`NpyWriter`] .npy files. Both go by [`Storage`]: the files of a [`Folder`], or anything else that has
//! values under keys.

mod array;
mod blocks;
mod box_writer;
mod files;
mod memory;
mod npy;
mod storage;
#[cfg(feature = "zarr")]
mod zarr;

#[cfg(feature = "zarr")]
pub use self::zarr::{
    ArraySpec, ArrayWriter, Attributes, Column, Compression, LeftOut, MAX_CHUNK_BYTES, NewStore, Node,
    Shuffle, ZarrArray, ZarrFormat, is_free, read_json, write_group,
};
pub use self::{
    array::{ChunkedArray, DecodedChunk, FetchedChunk, MissingChunk, StoredType},
    box_writer::BoxWriter,
    files::{read_at, write_whole},
    memory::{MemoryArray, Storable},
    npy::{NpyArray, NpyWriter, write_npy},
    storage::{Folder, Storage, StoredBytes, Value, WritableStorage},
};
