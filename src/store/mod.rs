//! Stored arrays: read a chunk at a time from any thread, wherever they are.
//!
//! [`ChunkedArray`] is what the rest of the crate reads; [`MemoryArray`] is one in memory, [`ZarrArray`] one of a Zarr store.

mod array;
mod memory;
mod storage;
#[cfg(feature = "zarr")]
pub(crate) mod zarr;

#[cfg(feature = "zarr")]
pub(crate) use self::storage::join;
#[cfg(test)]
pub(crate) use self::storage::tests::Map;
#[cfg(feature = "zarr")]
pub use self::zarr::{MAX_CHUNK_BYTES, ZarrArray};
pub use self::{
    array::{ChunkedArray, DecodedChunk, FetchedChunk, MissingChunk, StoredType},
    memory::{MemoryArray, Storable},
    storage::{Folder, Storage, StoredBytes, Value},
};
