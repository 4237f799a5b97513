//! Tests of Zarr arrays, by topic.

mod column;
mod faults;
mod marked;
mod metadata;
mod numcodecs;
mod read;
mod shards;
mod writer;

use std::{fs, io::Write, path::Path, sync::Arc};

use serde_json::{Value, json};
use tempfile::TempDir;
use zarrs::array::codec::{BloscCompressor, BloscShuffleMode, blosc_compress_bytes};

use super::{stored::StoredArray, *};
use crate::{
    ChunkedArray, DecodedChunk, Error, LookedFor, MissingChunk,
    openings::Numbers,
    store::{Folder, Storage},
};

/// A folder that is removed when this is dropped.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Creates a folder with the array `a`.
    pub(crate) fn of(metadata: &Value, chunks: &[(&str, Vec<u8>)]) -> Self {
        let scratch = Self::new();
        scratch.array("a", metadata, chunks);
        scratch
    }

    /// Opens the array `a`, in which missing chunks are errors.
    pub(crate) fn strict(&self) -> ZarrArray {
        ZarrArray::open(self.path(), "a", MissingChunk::Error).unwrap()
    }

    /// Opens the array `a`, in which missing chunks are filled.
    pub(crate) fn filled(&self) -> ZarrArray {
        ZarrArray::open(self.path(), "a", MissingChunk::Fill).unwrap()
    }

    pub(crate) fn open(&self, path: &str) -> crate::Result<StoredArray> {
        StoredArray::open(&(Arc::new(Folder::new(self.path())) as Arc<dyn Storage>), path)
    }

    /// Writes a file, and creates the folders above it.
    pub(crate) fn put(&self, key: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path().join(key.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Some file systems sync to the disk when a file is overwritten, but not when it is new.
        fs::remove_file(&path).ok();
        fs::write(path, bytes).unwrap();
    }

    /// Writes the metadata and the chunks of the array at `path`.
    pub(crate) fn array(&self, path: &str, metadata: &Value, chunks: &[(&str, Vec<u8>)]) {
        let name = if metadata["zarr_format"] == 3 { "zarr.json" } else { ".zarray" };
        self.put(&format!("{path}/{name}"), metadata.to_string());
        for (key, bytes) in chunks {
            self.put(&format!("{path}/{key}"), bytes);
        }
    }
}

pub(crate) fn v2(shape: &[u64], chunks: &[u64], dtype: &str, compressor: Value) -> Value {
    json!({
        "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "fill_value": null, "order": "C",
        "filters": null, "compressor": compressor,
    })
}

pub(crate) fn v3(shape: &[u64], chunks: &[u64], dtype: &str, codecs: Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype, "fill_value": 0,
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunks } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "codecs": codecs, "attributes": {},
    })
}

/// Returns the codecs of elements of one byte as they are.
pub(crate) fn bytes() -> Value {
    json!([{ "name": "bytes" }])
}

/// Returns the codecs of little-endian elements.
pub(crate) fn little_endian() -> Value {
    json!([{ "name": "bytes", "configuration": { "endian": "little" } }])
}

pub(crate) fn zstd_codec() -> Value {
    json!({ "name": "zstd", "configuration": { "level": 3, "checksum": false } })
}

/// Returns the codecs of shards with inner chunks of shape `inner`, whose indexes are at the end.
pub(crate) fn in_shards(inner: &[u64], codecs: Value, index_codecs: Value) -> Value {
    json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": inner, "codecs": codecs, "index_codecs": index_codecs,
    }}])
}

/// Returns the index codecs that every writer uses.
pub(crate) fn index_codecs(crc: bool) -> Value {
    let mut codecs = little_endian();
    if crc {
        codecs.as_array_mut().unwrap().push("crc32c".into());
    }
    codecs
}

/// Returns the metadata and the chunk of a one-axis array of strings, encoded by `vlen-utf8` and not compressed.
pub(crate) fn text(strings: &[&str]) -> (Value, Vec<u8>) {
    let n = strings.len() as u64;
    let mut metadata = v2(&[n], &[n], "|O", Value::Null);
    metadata["filters"] = json!([{ "id": "vlen-utf8" }]);
    let mut bytes = u32::try_from(n).unwrap().to_le_bytes().to_vec();
    for text in strings {
        bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    (metadata, bytes)
}

pub(crate) fn blosc_meta() -> Value {
    json!({ "id": "blosc", "cname": "zstd", "clevel": 7, "shuffle": 2, "blocksize": 0 })
}

pub(crate) fn blosc(bytes: &[u8]) -> Vec<u8> {
    blosc_with(bytes, BloscCompressor::Zstd, BloscShuffleMode::BitShuffle, 1)
}

pub(crate) fn blosc_with(
    bytes: &[u8],
    compressor: BloscCompressor,
    shuffle: BloscShuffleMode,
    size: usize,
) -> Vec<u8> {
    blosc_compress_bytes(bytes, 5.try_into().unwrap(), shuffle, size, compressor, 0, 1).unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ::zstd::bulk::compress(bytes, 3).unwrap()
}

/// Compresses without storing the content size in the header.
pub(crate) fn zstd_stream(bytes: &[u8]) -> Vec<u8> {
    ::zstd::stream::encode_all(bytes, 3).unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn crc(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Returns a shard with its index at the end; `None` is a missing inner chunk.
pub(crate) fn shard(inner: &[Option<Vec<u8>>], index_crc: bool) -> Vec<u8> {
    let (mut data, mut index) = (Vec::new(), Vec::new());
    for chunk in inner {
        let (offset, length) = match chunk {
            Some(bytes) => (data.len() as u64, bytes.len() as u64),
            None => (u64::MAX, u64::MAX),
        };
        index.extend(offset.to_le_bytes());
        index.extend(length.to_le_bytes());
        data.extend(chunk.iter().flatten());
    }
    data.extend(if index_crc { crc(index) } else { index });
    data
}

/// Returns compressible bytes: few distinct values, most of them 0.
pub(crate) fn compressible(numbers: &mut Numbers, n: usize) -> Vec<u8> {
    (0..n).map(|_| [0, 0, 0, 0, 0, 1, 1, 255][numbers.below(8)]).collect()
}
