//! The stored form of an array to be written: its metadata, and its encoded chunks.

use std::borrow::Cow;

use serde_json::{Value, json};
use zarrs::array::codec::{BloscCompressionLevel, BloscCompressor, BloscShuffleMode, blosc_compress_bytes};

use super::guard::Why;
use crate::{
    StoredType,
    store::blocks::{advance, extract_block, in_memory},
};

/// Attributes of an array or a group, by name.
pub type Attributes = serde_json::Map<String, Value>;

/// The maximum number of bytes that blosc compresses at once.
const MAX_BLOSC_BYTES: usize = i32::MAX as usize - 16;

/// A version of the Zarr format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZarrFormat {
    /// Version 2, which older readers understand; it has neither shards nor checksums.
    V2,
    /// Version 3.
    #[default]
    V3,
}

/// The reordering of bytes that blosc applies before compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shuffle {
    /// Groups bytes by their position within the element: for elements of several bytes.
    #[default]
    Bytes,
    /// Groups bits by their position within the element: for few distinct values.
    Bits,
}

/// The compression of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Chunks are not compressed.
    #[default]
    None,
    /// Zstd, with a checksum of the elements.
    Zstd {
        /// The level, from -7, the fastest, to 22.
        level: i32,
    },
    /// Blosc with zstd.
    Blosc {
        /// The level, from 0 to 9.
        level: u8,
        /// The reordering of bytes before compression.
        shuffle: Shuffle,
    },
}

/// An array to be written, and the way in which it is stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ArraySpec {
    /// The type of the elements; `None` for strings.
    pub dtype: Option<StoredType>,
    /// Extent of each axis.
    pub shape: Vec<u64>,
    /// Extent of a chunk along each axis.
    pub chunk_shape: Vec<u64>,
    /// Extent of a shard (a file of several chunks) along each axis, a multiple of the chunk's extent. `None` by default: each chunk is a
    /// file.
    pub shard_shape: Option<Vec<u64>>,
    /// The version of the format. Version 3 by default.
    pub format: ZarrFormat,
    /// The compression of chunks. None by default.
    pub compression: Compression,
    /// True if version 2 chunks are stored in nested folders, as version 3 chunks always are: `0/3` instead of `0.3`. False by default.
    pub nested: bool,
    /// True if each chunk has a checksum (crc32c), with which readers detect damage. False by default.
    pub checksum: bool,
    /// Names of the axes, either for all axes or for none.
    pub axes: Vec<String>,
    /// The value of missing chunks. By default NaN for floating-point types, so that gaps are visible; 0 for other numbers; the empty
    /// string for strings.
    pub fill: Value,
    /// Attributes of the array. None by default.
    pub attributes: Attributes,
    /// A description, in any words, of everything that the values depend on. With it, another process can finish an array whose writer
    /// was stopped ([`ArrayWriter::resume`](super::ArrayWriter::resume)). `None` by default.
    pub job: Option<String>,
}

crate::setters! {
    ArraySpec {
        shard_shape(impl Into<Option<Vec<u64>>>) = shard_shape.into(),
        format(ZarrFormat), compression(Compression), nested(bool), checksum(bool),
        axes(&[&str]) = axes.iter().map(|&axis| axis.to_owned()).collect(),
        fill(impl Into<Value>) = fill.into(),
        attributes(Attributes),
        job(impl Into<Option<String>>) = job.into(),
    }
}

impl ArraySpec {
    /// Describes an array of numbers, or of strings if `dtype` is `None`.
    pub fn new(dtype: impl Into<Option<StoredType>>, shape: &[u64], chunk_shape: &[u64]) -> Self {
        let dtype = dtype.into();
        let fill = match dtype {
            None => "".into(),
            Some(StoredType::F16 | StoredType::F32 | StoredType::F64) => "NaN".into(),
            Some(StoredType::Bool) => false.into(),
            Some(_) => 0.into(),
        };
        Self {
            dtype,
            shape: shape.into(),
            chunk_shape: chunk_shape.into(),
            shard_shape: None,
            format: ZarrFormat::default(),
            compression: Compression::default(),
            nested: false,
            checksum: false,
            axes: Vec::new(),
            fill,
            attributes: Attributes::new(),
            job: None,
        }
    }

    /// Sets options that suit results read by other programs: names of the axes; version 2, which all readers understand; a low compression
    /// level, since digits of results look random; for integers no fill value, since xarray would take it for a missing value.
    #[must_use]
    pub fn of_results(mut self, axes: &[&str]) -> Self {
        self.format = ZarrFormat::V2;
        self.compression = Compression::Blosc { level: 1, shuffle: Shuffle::Bytes };
        if !matches!(self.dtype, None | Some(StoredType::F16 | StoredType::F32 | StoredType::F64)) {
            self.fill = Value::Null;
        }
        self.axes(axes)
    }

    /// Returns the array's metadata; in version 2, without attributes.
    pub(crate) fn metadata(&self, attributes: &Attributes) -> Value {
        if self.format == ZarrFormat::V2 {
            return json!({
                "zarr_format": 2,
                "shape": self.shape,
                "chunks": self.chunk_shape,
                "dtype": self.dtype.map_or_else(|| "|O".to_owned(), |dtype| dtype.descr(false)),
                "fill_value": self.fill,
                "order": "C",
                "filters": if self.dtype.is_none() { json!([{ "id": "vlen-utf8" }]) } else { Value::Null },
                "dimension_separator": if self.nested { "/" } else { "." },
                "compressor": match self.compression {
                    Compression::None => Value::Null,
                    Compression::Zstd { level } => json!({ "id": "zstd", "level": level }),
                    Compression::Blosc { level, shuffle } => json!({
                        "id": "blosc", "cname": "zstd", "clevel": level, "shuffle": 1 + shuffle as u8, "blocksize": 0,
                    }),
                },
            });
        }
        let mut codecs = self.codecs();
        if self.shard_shape.is_some() {
            let index =
                [json!({ "name": "bytes", "configuration": { "endian": "little" } }), named("crc32c")];
            codecs = vec![json!({ "name": "sharding_indexed", "configuration": {
                "chunk_shape": self.chunk_shape, "codecs": codecs, "index_codecs": index, "index_location": "end",
            }})];
        }
        let mut metadata = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.shape,
            "data_type": self.dtype.map_or("string", StoredType::full_name),
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": self.tile_shape() } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": self.fill,
            "codecs": codecs,
            "attributes": attributes,
        });
        if !self.axes.is_empty() {
            metadata["dimension_names"] = json!(self.axes);
        }
        metadata
    }

    /// Returns the codecs of a chunk in version 3.
    fn codecs(&self) -> Vec<Value> {
        let size = self.dtype.map_or(1, StoredType::size);
        let mut codecs = vec![match (self.dtype, size) {
            (None, _) => named("vlen-utf8"),
            (_, 1) => named("bytes"),
            _ => json!({ "name": "bytes", "configuration": { "endian": "little" } }),
        }];
        match self.compression {
            Compression::None => {}
            Compression::Zstd { level } => {
                codecs.push(json!({ "name": "zstd", "configuration": { "level": level, "checksum": true } }))
            }
            Compression::Blosc { level, shuffle } => codecs.push(json!({ "name": "blosc", "configuration": {
                "typesize": size, "cname": "zstd", "clevel": level, "blocksize": 0,
                "shuffle": match shuffle { Shuffle::Bytes => "shuffle", Shuffle::Bits => "bitshuffle" },
            }})),
        }
        if self.checksum {
            codecs.push(named("crc32c"));
        }
        codecs
    }

    /// Returns the shape of a tile: of a shard if there are shards, or else of a chunk.
    pub(crate) fn tile_shape(&self) -> &[u64] {
        self.shard_shape.as_deref().unwrap_or(&self.chunk_shape)
    }

    /// Returns the number of tiles along each axis.
    pub(crate) fn grid(&self) -> Vec<u64> {
        self.shape.iter().zip(self.tile_shape()).map(|(n, tile)| n.div_ceil((*tile).max(1))).collect()
    }

    /// Checks the spec for faults that do not show in the metadata.
    pub(crate) fn check(&self) -> Why<()> {
        if self.format == ZarrFormat::V2 && (self.shard_shape.is_some() || self.checksum) {
            return Err("version 2 of Zarr has neither shards nor checksums".to_owned());
        }
        if !self.axes.is_empty() && self.axes.len() != self.shape.len() {
            return Err(format!("{} names for {} axes", self.axes.len(), self.shape.len()));
        }
        let bytes = self.chunk_shape.iter().fold(1, |bytes: u64, &n| bytes.saturating_mul(n));
        let bytes = bytes.saturating_mul(self.dtype.map_or(1, StoredType::size) as u64);
        match self.compression {
            Compression::Zstd { level } if !(-7..=22).contains(&level) => {
                Err(format!("zstd's level {level} is not within -7 to 22"))
            }
            Compression::Blosc { level, .. } if level > 9 => Err(format!("blosc's level {level} is above 9")),
            Compression::Blosc { .. } if bytes > MAX_BLOSC_BYTES as u64 => {
                Err(format!("blosc takes at most {MAX_BLOSC_BYTES} bytes, and its chunks have {bytes}"))
            }
            _ => Ok(()),
        }
    }

    /// Encodes a tile: `bytes` are the little-endian elements of a whole tile, of which the part of shape `extent` lies within the array.
    pub(crate) fn encode<'a>(&self, bytes: &'a [u8], extent: &[u64]) -> Why<Cow<'a, [u8]>> {
        let Some(shard) = &self.shard_shape else { return self.encode_chunk(bytes) };
        let size = self.dtype.map_or(1, StoredType::size);
        let [shard, chunk] = [shard, &self.chunk_shape].map(|shape| in_memory(shape));
        let grid: Vec<usize> = shard.iter().zip(&chunk).map(|(shard, chunk)| shard / chunk).collect();
        let (mut out, mut index, mut at) = (Vec::new(), Vec::new(), vec![0; grid.len()]);
        loop {
            let origin: Vec<usize> = at.iter().zip(&chunk).map(|(at, n)| at * n).collect();
            let mut entry = [u64::MAX; 2];
            if origin.iter().zip(extent).all(|(&origin, &extent)| (origin as u64) < extent) {
                let block = extract_block(bytes, &shard, &origin, &chunk, size);
                let inner = self.encode_chunk(&block)?;
                entry = [out.len() as u64, inner.len() as u64];
                out.extend_from_slice(&inner);
            }
            index.extend(entry.iter().flat_map(|n| n.to_le_bytes()));
            if !advance(&mut at, &grid) {
                break;
            }
        }
        out.extend_from_slice(&with_checksum(index.into()));
        Ok(out.into())
    }

    fn encode_chunk<'a>(&self, bytes: &'a [u8]) -> Why<Cow<'a, [u8]>> {
        let encoded = match self.compression {
            Compression::None => bytes.into(),
            Compression::Zstd { level } => {
                // The checksum covers the elements and ends the frame, so that any decoder detects changed bytes.
                let with_checksum = zstd::bulk::Compressor::new(level).and_then(|mut zstd| {
                    zstd.include_checksum(true)?;
                    zstd.compress(bytes)
                });
                with_checksum.map_err(|e| e.to_string())?.into()
            }
            Compression::Blosc { level, shuffle } => {
                let level = BloscCompressionLevel::try_from(level).map_err(|e| e.to_string())?;
                let shuffle = match shuffle {
                    Shuffle::Bytes => BloscShuffleMode::Shuffle,
                    Shuffle::Bits => BloscShuffleMode::BitShuffle,
                };
                let size = self.dtype.map_or(1, StoredType::size);
                blosc_compress_bytes(bytes, level, shuffle, size, BloscCompressor::Zstd, 0, 1)
                    .map_err(|e| e.to_string())?
                    .into()
            }
        };
        Ok(if self.checksum { with_checksum(encoded) } else { encoded })
    }
}

fn with_checksum(mut bytes: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    let checksum = crc32c::crc32c(&bytes);
    bytes.to_mut().extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn named(codec: &str) -> Value {
    json!({ "name": codec })
}
