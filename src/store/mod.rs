//! Stored arrays: read a chunk at a time from any thread, wherever they are.
//!
//! [`ChunkedArray`] is what the rest of the crate reads; [`MemoryArray`] is one in memory, [`ZarrArray`] one of a Zarr store.
//! [`ArrayWriter`] writes Zarr arrays, tile by tile. Both go by [`Storage`]: the files of a [`Folder`], or anything else that has
//! values under keys.

mod array;
mod memory;
mod storage;
#[cfg(feature = "zarr")]
pub(crate) mod zarr;

#[cfg(feature = "zarr")]
pub(crate) use self::storage::join;
#[cfg(all(test, feature = "zarr"))]
pub(crate) use self::storage::tests::Map;
#[cfg(feature = "zarr")]
pub use self::zarr::{
    ArraySpec, ArrayWriter, Attributes, Compression, MAX_CHUNK_BYTES, NewStore, Shuffle, ZarrArray,
    ZarrFormat,
};
pub use self::{
    array::{ChunkedArray, DecodedChunk, FetchedChunk, MissingChunk, StoredType},
    memory::{MemoryArray, Storable},
    storage::{Folder, Storage, StoredBytes, Value, WritableStorage},
};
