//! One array of a store, read chunk by chunk.

use std::{
    borrow::Cow,
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    guard::{Decoded, Fault, Size, buffer},
    layout,
    metadata::{self, Element, Metadata},
    shard::Fill,
};
use crate::{ChunkedArray, DecodedChunk, Error, MissingChunk, Result, StoredType};

/// An array of numbers or strings in a folder.
#[derive(Debug)]
pub(crate) struct StoredArray {
    folder: PathBuf,
    name: String,
    pub(crate) metadata: Metadata,
}

impl StoredArray {
    /// Opens the array at `path` within `store`; an empty path is the store itself.
    pub(crate) fn open(store: &Path, path: &str) -> Result<Self> {
        let folder = folder_of(store, path)?;
        let metadata = metadata::read(&folder)?;
        Ok(Self { name: folder.display().to_string(), folder, metadata })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads and decodes one chunk; `None` where it is missing. `fill` is asked about inner chunks.
    pub(crate) fn read(&self, index: &[u64], fill: Fill<'_, '_>) -> Decoded<Option<DecodedChunk>> {
        let Metadata { spec, chain, .. } = &self.metadata;
        let grid = self.metadata.grid();
        if index.len() != grid.len() || index.iter().zip(&grid).any(|(i, n)| i >= n) {
            return Err(format!("outside the grid of {grid:?} chunks").into());
        }
        let start = Instant::now();
        let path = self.folder.join(self.metadata.keys.encode(index).as_str());
        let Some(encoded) = read_bounded(&path, chain.encoded_cap(spec))? else { return Ok(None) };
        let (stored, read, extent) = (encoded.len() as u64, start.elapsed(), self.metadata.extent(index));
        let bytes = metadata::guarded(|| chain.decode(Cow::Owned(encoded), spec, &extent, fill))?;
        Ok(Some(DecodedChunk { bytes, stored, read, decode: start.elapsed() - read }))
    }

    /// The error of a chunk that could not be had.
    pub(crate) fn error(&self, index: &[u64], fault: Fault) -> Error {
        match fault {
            Fault::Wrong(why) | Fault::Missing(why) | Fault::Large(_, why) => {
                Error::chunk(&self.name, index, why)
            }
            Fault::Memory(requested) => {
                let what = format!("{}: chunk {index:?}", self.name).into();
                Error::OutOfHostMemory { what, requested }
            }
        }
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
fn read_bounded(path: &Path, cap: usize) -> Decoded<Option<Vec<u8>>> {
    let fail = |error: std::io::Error| format!("cannot be read: {error}");
    // Before it is opened: opening a named pipe waits for a writer.
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error).into()),
    };
    if !metadata.is_file() {
        return Err("its chunk is not a file".into());
    }
    let file = File::open(path).map_err(fail)?;
    Size::AtMost(cap).check(metadata.len(), "its file has")?;
    let mut bytes = buffer(usize::try_from(metadata.len()).unwrap_or(cap))?;
    // The file may grow meanwhile; the cap holds nevertheless.
    file.take(cap as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
    Size::AtMost(cap).check(bytes.len() as u64, "its file has")?;
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
    store: PathBuf,
    dtype: StoredType,
    missing: MissingChunk,
}

impl ZarrArray {
    /// Opens the array at `path` within the store in folder `store`; an empty path means the folder itself.
    ///
    /// Reads the array's own metadata and nothing else, so an unsupported neighbour does no harm.
    ///
    /// # Errors
    /// - [`Error::Store`]: no array there, an unsupported data type or codec, or an attribute that changes values, such as
    ///   `scale_factor` (all of these are named), or sizes that overflow or exceed [`MAX_CHUNK_BYTES`](super::MAX_CHUNK_BYTES).
    /// - [`Error::Io`]: the metadata cannot be read.
    pub fn open(store: impl AsRef<Path>, path: &str, missing: MissingChunk) -> Result<Self> {
        let store = store.as_ref();
        let inner = StoredArray::open(store, path)?;
        match inner.metadata.element {
            Element::Number(dtype) => Ok(Self { inner, store: store.to_path_buf(), dtype, missing }),
            _ => Err(Error::store(&inner.name, "holds strings, not numbers")),
        }
    }

    /// The error of a chunk that could not be had; of one that is missing, with what there is to know about it.
    fn error(&self, index: &[u64], fault: Fault) -> Error {
        let Fault::Missing(why) = fault else { return self.inner.error(index, fault) };
        let fill = layout::number(&self.inner.metadata.fill, self.dtype);
        let writer = match metadata::writer(&self.store).as_str() {
            "" => String::new(),
            said => format!(" (the store says: {said})"),
        };
        let why = format!(
            "{why}: an error unless missing chunks are said to hold the fill value, {fill}; writers may leave out those \
             that hold nothing else{writer}"
        );
        Error::chunk(&self.inner.name, index, why)
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

    fn missing_value(&self) -> Option<f64> {
        self.inner.metadata.missing
    }

    fn scratch_bytes(&self) -> u64 {
        self.inner.metadata.chain.scratch(&self.inner.metadata.spec)
    }

    fn read_chunk(&self, index: &[u64]) -> Result<DecodedChunk> {
        let fill = (self.missing == MissingChunk::Fill).then_some(self.inner.metadata.fill.as_slice());
        let chunk = self.inner.read(index, &mut |_| fill).and_then(|chunk| match (chunk, fill) {
            (Some(chunk), _) => Ok(chunk),
            (None, Some(fill)) => {
                let bytes = layout::filled(fill, self.inner.metadata.spec.count())?;
                Ok(DecodedChunk { bytes, stored: 0, read: Duration::ZERO, decode: Duration::ZERO })
            }
            (None, None) => Err(Fault::Missing("it is missing from the store".to_owned())),
        });
        chunk.map_err(|fault| self.error(index, fault))
    }
}
