//! Arrays of numbers, in any file that is read.

use std::{path::Path, sync::Arc};

use teatime::{
    ChunkedArray, Error, MissingChunk,
    store::{NpyArray, ZarrArray},
};

/// A .npy file, or a Zarr array: its metadata.
pub(crate) fn open(path: &Path, missing: MissingChunk) -> Result<Arc<dyn ChunkedArray>, Error> {
    Ok(match path.is_file() {
        true => Arc::new(NpyArray::open(path)?),
        false => Arc::new(ZarrArray::open(path, "", missing)?),
    })
}
