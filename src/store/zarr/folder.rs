//! A Zarr v2 store that is being written: a hidden folder that gets its name when it is whole.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use zarrs::array::codec::{BloscCompressionLevel, BloscCompressor, BloscShuffleMode, blosc_compress_bytes};

use crate::{Error, Result};

/// What stores name as their writer.
pub(crate) const SOURCE: &str = concat!("teatime-", env!("CARGO_PKG_VERSION"));

/// blosc's number for shuffled bytes.
pub(crate) const BYTES: u8 = 1;

/// blosc's number for shuffled bits.
pub(crate) const BITS: u8 = 2;

/// A store under construction, compressed by blosc with zstd. Dropping it removes what was written.
#[derive(Debug)]
pub(crate) struct StoreFolder {
    path: PathBuf,
    scratch: PathBuf,
    level: BloscCompressionLevel,
}

/// How an array is stored.
pub(crate) struct Layout<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: &'a str,
    pub(crate) shape: &'a [u64],
    pub(crate) chunks: &'a [u64],
    pub(crate) axes: &'a [&'a str],
    pub(crate) fill: Value,
    /// [`BYTES`] or [`BITS`], as its chunks are.
    pub(crate) shuffle: u8,
}

impl StoreFolder {
    /// Starts a store at `path`, which must not exist.
    ///
    /// # Errors
    /// [`Error::Store`] where it does; [`Error::Io`] where no folder can be made beside it.
    pub(crate) fn create(path: &Path, level: BloscCompressionLevel) -> Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(Error::store(path.display(), "exists already"));
        }
        Ok(Self { path: path.to_path_buf(), scratch: make_scratch(path)?, level })
    }

    /// Writes the root group and its attributes.
    pub(crate) fn root(&self, attributes: &Value) -> Result<()> {
        self.put(".zgroup", json!({ "zarr_format": 2 }).to_string().as_bytes())?;
        self.put(".zattrs", attributes.to_string().as_bytes())
    }

    /// Gives the store its name.
    ///
    /// # Errors
    /// [`Error::Io`] when the name was taken meanwhile.
    pub(crate) fn finish(self) -> Result<()> {
        std::fs::rename(&self.scratch, &self.path).map_err(|source| io(&self.path, source))
    }

    /// Writes the metadata of an array.
    pub(crate) fn declare(&self, layout: &Layout<'_>) -> Result<()> {
        let folder = self.scratch.join(layout.name);
        std::fs::create_dir(&folder).map_err(|source| io(&folder, source))?;
        let filters = if layout.dtype == "|O" { json!([{ "id": "vlen-utf8" }]) } else { Value::Null };
        let level = u8::from(self.level);
        let metadata = json!({
            "zarr_format": 2,
            "shape": layout.shape,
            "chunks": layout.chunks,
            "dtype": layout.dtype,
            "fill_value": layout.fill,
            "order": "C",
            "filters": filters,
            "dimension_separator": ".",
            "compressor": { "id": "blosc", "cname": "zstd", "clevel": level, "shuffle": layout.shuffle, "blocksize": 0 },
        });
        self.put(&format!("{}/.zarray", layout.name), metadata.to_string().as_bytes())?;
        let attributes = json!({ "_ARRAY_DIMENSIONS": layout.axes });
        self.put(&format!("{}/.zattrs", layout.name), attributes.to_string().as_bytes())
    }

    /// Writes strings as numcodecs' `VLenUTF8` serialises them, padded with empty ones to `count`.
    pub(crate) fn put_text<'a>(
        &self,
        key: &str,
        strings: impl Iterator<Item = &'a str>,
        count: usize,
    ) -> Result<()> {
        let too_long = || Error::argument("write_chunk", "variants", "strings of more than 2^32 bytes");
        let mut bytes = u32::try_from(count).map_err(|_| too_long())?.to_le_bytes().to_vec();
        for text in strings.chain(std::iter::repeat("")).take(count) {
            bytes.extend_from_slice(&u32::try_from(text.len()).map_err(|_| too_long())?.to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        self.put_blosc(key, &bytes, BloscShuffleMode::Shuffle, 1)
    }

    /// Writes a chunk, compressed: elements of `size` bytes.
    pub(crate) fn put_blosc(
        &self,
        key: &str,
        bytes: &[u8],
        shuffle: BloscShuffleMode,
        size: usize,
    ) -> Result<()> {
        let encoded = blosc_compress_bytes(bytes, self.level, shuffle, size, BloscCompressor::Zstd, 0, 1)
            .map_err(|error| Error::store(self.scratch.join(key).display(), error))?;
        self.put(key, &encoded)
    }

    /// Writes a file; `key` is its path within the store.
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let path = self.scratch.join(key);
        std::fs::write(&path, bytes).map_err(|source| io(&path, source))
    }
}

impl Drop for StoreFolder {
    fn drop(&mut self) {
        // After `finish` it has another name. Nobody is left to hear of a folder that cannot be removed.
        std::fs::remove_dir_all(&self.scratch).ok();
    }
}

fn io(path: &Path, source: std::io::Error) -> Error {
    Error::Io { path: path.display().to_string().into(), source }
}

/// Makes a new folder beside `path`.
fn make_scratch(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| Error::store(path.display(), "is not the name of a store"))?;
    for attempt in 0.. {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{attempt}.partial", std::process::id()));
        let scratch = path.with_file_name(hidden);
        match std::fs::create_dir(&scratch) {
            Ok(()) => return Ok(scratch),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < 100 => {}
            Err(source) => return Err(io(&scratch, source)),
        }
    }
    Err(Error::store(path.display(), "no name is left for a folder beside it"))
}
