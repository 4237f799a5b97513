//! One array of a store, read chunk by chunk.

use std::{
    borrow::Cow,
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    guard::{Why, buffer},
    layout,
    metadata::{self, Element, Metadata},
};
use crate::{ChunkedArray, DecodedChunk, Error, MissingChunk, Result, StoredType};

/// An array of numbers or strings in a folder.
#[derive(Debug)]
pub(super) struct StoredArray {
    folder: PathBuf,
    name: String,
    missing: MissingChunk,
    pub(super) metadata: Metadata,
}

impl StoredArray {
    /// Opens the array at `path` within `store`; an empty path is the store itself.
    pub(super) fn open(store: &Path, path: &str, missing: MissingChunk) -> Result<Self> {
        let folder = folder_of(store, path)?;
        let metadata = metadata::read(&folder)?;
        Ok(Self { name: folder.display().to_string(), folder, missing, metadata })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads and decodes one chunk; `None` where variable-length strings are missing.
    pub(super) fn read(&self, index: &[u64]) -> Result<Option<DecodedChunk>> {
        let fail = |why: String| Error::chunk(&self.name, index, why);
        let Metadata { spec, chain, fill, .. } = &self.metadata;
        let grid = self.metadata.grid();
        if index.len() != grid.len() || index.iter().zip(&grid).any(|(i, n)| i >= n) {
            return Err(fail(format!("outside the grid of {grid:?} chunks")));
        }
        let start = Instant::now();
        let path = self.folder.join(self.metadata.keys.encode(index).as_str());
        let encoded = read_bounded(&path, chain.encoded_cap(spec)).map_err(fail)?;
        let read = start.elapsed();
        let stored = encoded.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let fill = (self.missing == MissingChunk::Fill).then_some(fill.as_slice());
        let bytes = match (encoded, fill) {
            (Some(encoded), _) => {
                let extent = self.metadata.extent(index);
                metadata::guarded(|| chain.decode(Cow::Owned(encoded), spec, &extent, fill))
            }
            (None, None) => Err("it is missing from the store".to_owned()),
            (None, Some(_)) if spec.size == 0 => return Ok(None),
            (None, Some(fill)) => layout::filled(fill, spec.count()),
        };
        let bytes = bytes.map_err(fail)?;
        Ok(Some(DecodedChunk { bytes, stored, read, decode: start.elapsed() - read }))
    }
}

/// Folder of the array at `path`, which must stay inside the store.
fn folder_of(store: &Path, path: &str) -> Result<PathBuf> {
    let mut folder = store.to_path_buf();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if matches!(part, "." | "..") || part.contains(['\\', '\0']) {
            return Err(Error::store(store.display(), format!("`{path}` is not the path of an array")));
        }
        folder.push(part);
    }
    Ok(folder)
}

/// Reads a whole file of at most `cap` bytes; `None` where there is none.
fn read_bounded(path: &Path, cap: usize) -> Why<Option<Vec<u8>>> {
    let fail = |error: std::io::Error| format!("cannot be read: {error}");
    // Before it is opened: opening a named pipe waits for a writer.
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    if !metadata.is_file() {
        return Err("its chunk is not a file".to_owned());
    }
    let file = File::open(path).map_err(fail)?;
    let over = |bytes: u64| format!("its file has {bytes} bytes, more than the {cap} a chunk may take");
    let length = usize::try_from(metadata.len()).ok().filter(|&length| length <= cap);
    let length = length.ok_or_else(|| over(metadata.len()))?;
    let mut bytes = buffer(length)?;
    // The file may grow meanwhile; the cap holds nevertheless.
    file.take(cap as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() > cap {
        return Err(over(bytes.len() as u64));
    }
    Ok(Some(bytes))
}

/// A numeric array of a Zarr v2 or v3 store on a local file system.
///
/// Reads whole chunks on the calling thread only, and starts no threads of its own. Codecs: blosc, zstd, gzip,
/// zlib, crc32c, transpose (and v2's order `F`), and `sharding_indexed`, whose shards are the chunks.
///
/// A damaged or hostile chunk is an [`Error::Chunk`], never a panic, an abort or a huge allocation: claimed
/// sizes are checked before they are believed. Only zstd, gzip, zlib and crc32c notice a changed byte; blosc and
/// uncompressed chunks have no checksum, so wrong values in them read as values.
#[derive(Debug)]
pub struct ZarrArray {
    inner: StoredArray,
    dtype: StoredType,
}

impl ZarrArray {
    /// Opens the array at `path` within the store in folder `store`; an empty path means the folder itself.
    ///
    /// Reads the array's own metadata and nothing else, so an unsupported neighbour does no harm.
    ///
    /// # Errors
    /// - [`Error::Store`]: no array there, an unsupported data type or codec (named), or sizes that overflow or
    ///   exceed [`MAX_CHUNK_BYTES`](super::MAX_CHUNK_BYTES).
    /// - [`Error::Io`]: the metadata cannot be read.
    pub fn open(store: impl AsRef<Path>, path: &str, missing: MissingChunk) -> Result<Self> {
        let inner = StoredArray::open(store.as_ref(), path, missing)?;
        match inner.metadata.element {
            Element::Number(dtype) => Ok(Self { inner, dtype }),
            _ => Err(Error::store(&inner.name, "holds strings, not numbers")),
        }
    }

    /// Names of the axes as the store gives them; empty where it does not.
    pub fn dimension_names(&self) -> &[String] {
        &self.inner.metadata.dimensions
    }
}

impl ChunkedArray for ZarrArray {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn shape(&self) -> &[u64] {
        &self.inner.metadata.shape
    }

    fn chunk_shape(&self) -> &[u64] {
        &self.inner.metadata.chunk_shape
    }

    fn dtype(&self) -> StoredType {
        self.dtype
    }

    fn read_chunk(&self, index: &[u64]) -> Result<DecodedChunk> {
        // Numbers always have a fill value.
        self.inner
            .read(index)?
            .ok_or_else(|| Error::chunk(&self.inner.name, index, "it is missing from the store"))
    }
}
