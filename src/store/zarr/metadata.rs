//! Array metadata, v2 and v3, checked before any other code relies on it.

use serde_json::{Value, json};
use zarrs::{
    array::{ArrayMetadataV2, ArrayMetadataV3, ChunkKeyEncoding, DataType, FillValue},
    convert::array_metadata_v2_to_v3,
    metadata::v3::MetadataV3,
};

use super::{
    attributes,
    codec::{ChunkSpec, Codecs, MAX_TEXT_BYTES, SUPPORTED},
    fill,
    guard::Why,
    json::read_json,
    node::Node,
    shard::Shard,
};
use crate::{
    Error, Result, StoredType,
    store::{Storage, array::claimed_bytes, storage::join},
};

/// The maximum number of decoded bytes of one chunk. An array with larger chunks is refused when it is opened.
pub const MAX_CHUNK_BYTES: u64 = 2 << 30;

/// The name of the codec of shards.
const SHARDS: &str = "sharding_indexed";

/// The maximum number of bytes of one fixed-length string.
const MAX_STRING_BYTES: usize = 64 << 10;

/// The kind of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Number(StoredType),
    /// UTF-32 padded with zeros.
    Utf32 {
        bytes: usize,
    },
    /// UTF-8 padded with zeros.
    Utf8 {
        bytes: usize,
    },
    /// Strings of any length, by the `vlen-utf8` codec.
    Text,
}

/// An array's metadata, of which all sizes are checked.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) shape: Vec<u64>,
    /// Extents of a chunk; within a shard, if there are shards.
    pub(crate) chunk_shape: Vec<u64>,
    pub(crate) element: Element,
    /// The number that marks missing elements, according to the array's attributes.
    pub(crate) missing: Option<f64>,
    /// Names of the axes, if the store gives them.
    pub(crate) dimensions: Vec<String>,
    pub(crate) spec: ChunkSpec,
    /// One element that holds the fill value, in native byte order.
    pub(crate) fill: Vec<u8>,
    pub(crate) codecs: Codecs,
    pub(crate) shard: Option<Shard>,
    /// Names of the files of chunks, or of shards, relative to the array's folder.
    pub(crate) keys: ChunkKeyEncoding,
    /// The names of chunk files with the other separator (`/` instead of `.`, or the reverse); `None` if the separator makes no difference.
    pub(crate) other_keys: Option<ChunkKeyEncoding>,
}

/// Returns the name of the program that wrote a store, from the attributes of its root; empty if these do not say.
pub(crate) fn writer(storage: &dyn Storage) -> String {
    // The name is only added to another error, which a failure to read it must not hide.
    let attributes = read_attributes(storage, "").unwrap_or_default();
    let says = |(name, value): (&String, &Value)| match value.as_str() {
        Some(value) if name == "source" || name.ends_with("version") => Some(format!("{name} {value}")),
        _ => None,
    };
    attributes.as_object().into_iter().flatten().filter_map(says).collect::<Vec<_>>().join(", ")
}

/// Reads the attributes of the array or the group at `path`; null if it has none.
///
/// # Errors
/// See [`read_json`].
pub fn read_attributes(storage: &dyn Storage, path: &str) -> Result<Value> {
    Ok(match read_json(storage, &join(path, "zarr.json"))? {
        Some(mut v3) => v3.get_mut("attributes").map(Value::take),
        None => read_json(storage, &join(path, ".zattrs"))?,
    }
    .unwrap_or_default())
}

/// Reads and checks the metadata of the array at `path`.
pub(crate) fn read(storage: &dyn Storage, path: &str) -> Result<Metadata> {
    let refuse = |why: String| Error::store(storage.place(path), why);
    if let Some(json) = read_json(storage, &join(path, "zarr.json"))? {
        if json.get("node_type").and_then(Value::as_str) == Some("group") {
            return Err(refuse(is_group(storage, path)));
        }
        return guarded(|| parse_v3(json)).map_err(refuse);
    }
    if let Some(json) = read_json(storage, &join(path, ".zarray"))? {
        let attributes = read_attributes(storage, path)?;
        return guarded(|| parse_v2(json, &attributes)).map_err(refuse);
    }
    let group = Node::at(storage, path)? == Node::Group;
    Err(refuse(if group { is_group(storage, path) } else { "no such array".to_owned() }))
}

/// Returns the reason why a group is not an array, with the names of a few arrays in the group.
fn is_group(storage: &dyn Storage, path: &str) -> String {
    const LISTED: usize = 8;
    // AnnData has these attribute names. They are only added to another error, which a failure to read them must not hide.
    let attributes = read_attributes(storage, path).unwrap_or_default();
    if let Some(sparse @ ("csr_matrix" | "csc_matrix")) = attributes["encoding-type"].as_str() {
        return format!(
            "is a sparse matrix ({sparse}), a group of three arrays: matrices are read as one array, so write it as a dense one, in \
             Python `adata.X = adata.X.toarray()`"
        );
    }
    let names = Node::arrays(storage, path);
    let more = if names.len() > LISTED { ", ..." } else { "" };
    let listed = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let named =
        if listed.is_empty() { String::new() } else { format!("; name one of those in it: {listed}{more}") };
    format!("is a group, not an array{named}")
}

/// Runs `work`, and turns a panic inside the Zarr library into an error, as the last line of defence.
pub(crate) fn guarded<T, E: From<String>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("the Zarr library failed on it".to_owned().into()))
}

pub(crate) fn parse_v2(mut json: Value, attributes: &Value) -> Why<Metadata> {
    // These are codecs of Zarr 3 alone.
    let other = ["bytes", "transpose", "sharding_indexed"];
    let is_known = |id: &&str| !other.contains(id) && SUPPORTED.split([',', ' ']).any(|name| name == *id);
    if let Some(id) = v2_codecs(&json).into_iter().map(v2_id).find(|id| !is_known(id)) {
        return Err(format!("codec `{id}` is not supported; {SUPPORTED}"));
    }
    // This check comes first, because zarrs builds a fill value of the claimed length.
    let dtype = json.get("dtype").and_then(Value::as_str).ok_or("its data type is not a simple one")?;
    let length = dtype.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<usize>();
    if length.is_ok_and(|length| length > MAX_STRING_BYTES) || dtype.len() > 16 {
        return Err(format!("data type `{dtype}` is not supported"));
    }
    let dtype = dtype.to_owned();
    adapt_chunks(&mut json, "/chunks");
    let text = adapt_v2_text(&mut json);
    fill::adapt(&mut json, &dtype);
    let fill_text = json.get("fill_value").cloned().unwrap_or_default().to_string();
    let codecs = v2_chain(&json);
    // zarrs refuses some compression levels, which only a writer needs to know, and filters that it does not have.
    json["compressor"] = Value::Null;
    if let Some(filters) = json.get_mut("filters").and_then(Value::as_array_mut) {
        filters.retain(|filter| v2_id(filter) == "vlen-utf8");
    }
    let v2: ArrayMetadataV2 = serde_json::from_value(json).map_err(|e| format!("invalid metadata: {e}"))?;
    let v3 = array_metadata_v2_to_v3(&v2).map_err(|e| e.to_string())?;
    let dimensions = attributes.get("_ARRAY_DIMENSIONS").and_then(Value::as_array);
    let dimensions = dimensions.into_iter().flatten().map(|d| d.as_str().unwrap_or_default().to_owned());
    let fill = || {
        let data_type = DataType::from_metadata(&v2.dtype).map_err(|e| e.to_string())?;
        data_type.fill_value_v2(&v2.fill_value).map_err(|e| fill::wrong(&fill_text, &dtype, &e))
    };
    Metadata::new(v3, &codecs, fill, text, dimensions.collect(), attributes)
}

/// Replaces chunk extents of 0, which zarr-python gives to axes without elements, by 1.
fn adapt_chunks(json: &mut Value, place: &str) {
    let shape = json.get("shape").and_then(Value::as_array).cloned().unwrap_or_default();
    let chunks = json.pointer_mut(place).and_then(Value::as_array_mut);
    for (chunk, extent) in chunks.into_iter().flatten().zip(shape) {
        if *chunk == 0 && extent == 0 {
            *chunk = 1.into();
        }
    }
}

/// Converts filters and compressor to the codecs of v3. (The conversion in zarrs loses a compressor that follows `vlen-utf8`.)
fn v2_chain(json: &Value) -> Vec<MetadataV3> {
    let codec = |name: &str, configuration: Value| match configuration {
        Value::Object(map) => MetadataV3::new_with_configuration(name, map),
        _ => MetadataV3::new(name),
    };
    let mut chain = Vec::new();
    if json.get("order").and_then(Value::as_str) == Some("F") {
        let axes = json.get("shape").and_then(Value::as_array).map_or(0, Vec::len);
        chain.push(codec("transpose", json!({ "order": (0..axes).rev().collect::<Vec<_>>() })));
    }
    let codecs = v2_codecs(json);
    if !codecs.iter().any(|codec| v2_id(codec) == "vlen-utf8") {
        let big = json.get("dtype").and_then(Value::as_str).is_some_and(|dtype| dtype.starts_with('>'));
        chain.push(codec("bytes", json!({ "endian": if big { "big" } else { "little" } })));
    }
    chain.extend(codecs.into_iter().map(|stored| {
        let id = v2_id(stored);
        let name = if matches!(id, "vlen-utf8" | "crc32c") { id } else { &format!("numcodecs.{id}") };
        codec(name, stored.clone())
    }));
    chain
}

/// Returns the filters and the compressor, in encoding order.
fn v2_codecs(json: &Value) -> Vec<&Value> {
    let filters = json.get("filters").and_then(Value::as_array).into_iter().flatten();
    filters.chain(json.get("compressor").filter(|c| !c.is_null())).collect()
}

fn v2_id(codec: &Value) -> &str {
    codec.get("id").and_then(Value::as_str).unwrap_or("unnamed")
}

/// Rewrites string types that zarrs refuses: `|S` as raw bytes, with fill values that zarrs can read. Returns true if raw bytes are text.
fn adapt_v2_text(json: &mut Value) -> bool {
    let dtype = json.get("dtype").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(length) = dtype.strip_prefix("|S") {
        json["dtype"] = format!("|V{length}").into();
        json["fill_value"] = vec![0; length.parse().unwrap_or(0)].into();
        return true;
    }
    if dtype.get(1..2) == Some("U") || dtype == "|O" {
        // zarr-python writes 0 or null for the empty string.
        if !json.get("fill_value").is_some_and(Value::is_string) {
            json["fill_value"] = "".into();
        }
    }
    false
}

pub(crate) fn parse_v3(mut json: Value) -> Why<Metadata> {
    adapt_chunks(&mut json, "/chunk_grid/configuration/chunk_shape");
    let text = adapt_v3_text(&mut json);
    let dtype = json.get("data_type").and_then(Value::as_str).unwrap_or_default().to_owned();
    fill::adapt(&mut json, &dtype);
    let v3: ArrayMetadataV3 = serde_json::from_value(json).map_err(|e| format!("invalid metadata: {e}"))?;
    let dimensions = v3.dimension_names.iter().flatten().map(|d| d.clone().unwrap_or_default()).collect();
    let (data_type, codecs, fill) = (v3.data_type.clone(), v3.codecs.clone(), v3.fill_value.clone());
    let attributes = Value::Object(v3.attributes.clone());
    let fill = || {
        let data_type = DataType::from_metadata(&data_type).map_err(|e| e.to_string())?;
        data_type.fill_value_v3(&fill).map_err(|e| fill::wrong(&json!(fill).to_string(), &dtype, &e))
    };
    Metadata::new(v3, &codecs, fill, text, dimensions, &attributes)
}

/// Rewrites zarr-python's `null_terminated_bytes` as raw bytes. Returns true if raw bytes are text.
fn adapt_v3_text(json: &mut Value) -> bool {
    let Some(data_type) = json.get("data_type") else { return false };
    if data_type.get("name").and_then(Value::as_str) != Some("null_terminated_bytes") {
        return false;
    }
    let bytes = data_type.pointer("/configuration/length_bytes").and_then(Value::as_u64).unwrap_or(0);
    // An absurd length is refused below; here it must only not lead to a huge fill value.
    let fill = usize::try_from(bytes).unwrap_or(0).min(MAX_STRING_BYTES);
    json["data_type"] = format!("r{}", bytes.saturating_mul(8)).into();
    json["fill_value"] = vec![0; fill].into();
    true
}

impl Metadata {
    /// `fill` makes the fill value, which is as long as the metadata claim.
    fn new(
        v3: ArrayMetadataV3,
        codecs: &[MetadataV3],
        fill: impl FnOnce() -> Why<FillValue>,
        text: bool,
        dimensions: Vec<String>,
        attributes: &Value,
    ) -> Why<Self> {
        if !v3.storage_transformers.is_empty() {
            return Err("storage transformers are not supported".to_owned());
        }
        if let Some((name, _)) = v3.additional_fields.iter().find(|(_, field)| field.must_understand()) {
            return Err(format!("its `{name}` is not understood"));
        }
        let mut chunk_shape = parse_chunks(&v3)?;
        let element = parse_element(&v3, text)?;
        let (size, unit) = element.size_and_unit();
        if size > MAX_STRING_BYTES {
            return Err(format!("its strings of {size} bytes are longer than {MAX_STRING_BYTES}"));
        }
        check_sizes(&v3.shape, &chunk_shape, size)?;
        let shape = chunk_shape.iter().map(|&n| usize::try_from(n).map_err(|e| e.to_string()));
        let shape = shape.collect::<Why<Vec<usize>>>()?;
        let spec = ChunkSpec { shape, size, unit, text: MAX_TEXT_BYTES };
        let keys = ChunkKeyEncoding::from_metadata(&v3.chunk_key_encoding).map_err(|e| e.to_string())?;
        let other_keys = other_keys(&v3)?;
        let (shard, spec, codecs) = match codecs {
            [shard, others @ ..] if shard.name() == SHARDS => {
                let (shard, spec, codecs) = Shard::parse(shard, others, &chunk_shape, spec)?;
                (Some(shard), spec, codecs)
            }
            codecs if codecs.iter().any(|codec| codec.name() == SHARDS) => {
                return Err(format!("codecs of elements before `{SHARDS}` are not supported"));
            }
            codecs => {
                let codecs = Codecs::parse(codecs, &spec)?;
                (None, spec, codecs)
            }
        };
        if let Some(shard) = &shard {
            chunk_shape.iter_mut().zip(&shard.grid).for_each(|(extent, n)| *extent /= n);
        }
        check_chunk(&chunk_shape, size)?;
        let fill = fill()?.as_ne_bytes().to_vec();
        if size != 0 && fill.len() != size {
            return Err(format!("its fill value has {} bytes, its elements {size}", fill.len()));
        }
        let missing = match element {
            Element::Number(dtype) => attributes::missing_value(attributes, dtype)?,
            _ => None,
        };
        Ok(Self {
            shape: v3.shape,
            chunk_shape,
            element,
            missing,
            dimensions,
            spec,
            fill,
            codecs,
            shard,
            keys,
            other_keys,
        })
    }

    /// Returns the number of chunks along each axis.
    pub(crate) fn grid(&self) -> Vec<u64> {
        self.shape.iter().zip(&self.chunk_shape).map(|(&n, &chunk)| n.div_ceil(chunk)).collect()
    }

    /// Returns the maximum number of bytes of a stored value: of a chunk, or of a shard if there are shards.
    pub(crate) fn value_bytes(&self) -> u64 {
        self.shard
            .as_ref()
            .map_or_else(|| self.codecs.encoded_cap(&self.spec) as u64, |shard| shard.stored_bytes)
    }
}

impl Element {
    /// Returns the number of bytes of an element (0 if it varies), and of each number that an element consists of.
    const fn size_and_unit(self) -> (usize, usize) {
        match self {
            Self::Number(dtype) => (dtype.size(), dtype.size()),
            Self::Utf32 { bytes } => (bytes, 4),
            Self::Utf8 { bytes } => (bytes, 1),
            Self::Text => (0, 1),
        }
    }
}

/// Returns the names of chunk files with the separator that the metadata do not give, if the array has several axes.
fn other_keys(v3: &ArrayMetadataV3) -> Why<Option<ChunkKeyEncoding>> {
    let encoding = &v3.chunk_key_encoding;
    let named = encoding.configuration().and_then(|c| c.get("separator")).and_then(Value::as_str);
    let separator = match named.unwrap_or(if encoding.name() == "v2" { "." } else { "/" }) {
        "." => "/",
        _ => ".",
    };
    if v3.shape.len() < 2 {
        return Ok(None);
    }
    let Value::Object(configuration) = json!({ "separator": separator }) else { return Ok(None) };
    let other = MetadataV3::new_with_configuration(encoding.name(), configuration);
    ChunkKeyEncoding::from_metadata(&other).map(Some).map_err(|e| e.to_string())
}

fn parse_chunks(v3: &ArrayMetadataV3) -> Why<Vec<u64>> {
    let name = v3.chunk_grid.name();
    if name != "regular" {
        return Err(format!("chunk grid `{name}` is not supported, only regular ones are"));
    }
    let chunks = v3.chunk_grid.configuration().and_then(|c| c.get("chunk_shape")).and_then(Value::as_array);
    let chunks = chunks.and_then(|c| c.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>());
    let chunks = chunks.ok_or("its chunk grid has no chunk shape")?;
    if chunks.len() != v3.shape.len() || chunks.contains(&0) {
        return Err(format!("its chunks {chunks:?} do not fit its shape {:?}", v3.shape));
    }
    Ok(chunks)
}

fn parse_element(v3: &ArrayMetadataV3, text: bool) -> Why<Element> {
    let name = v3.data_type.name();
    if let Some(dtype) = StoredType::of_full_name(name) {
        return Ok(Element::Number(dtype));
    }
    let bits = name.strip_prefix('r').and_then(|bits| bits.parse::<usize>().ok());
    let length = v3.data_type.configuration().and_then(|c| c.get("length_bytes")).and_then(Value::as_u64);
    match (name, bits) {
        ("string", _) => Ok(Element::Text),
        ("fixed_length_utf32", _) if length.is_some_and(|n| n > 0 && n.is_multiple_of(4)) => {
            let bytes = length.and_then(|n| usize::try_from(n).ok()).ok_or("absurd string length")?;
            Ok(Element::Utf32 { bytes })
        }
        (_, Some(bits)) if text && bits > 0 => Ok(Element::Utf8 { bytes: bits / 8 }),
        _ => Err(format!("data type `{name}` is not supported")),
    }
}

/// Returns the number of bytes of an element in memory: a decoded string takes at least 4.
const fn least_size(size: usize) -> u64 {
    if size == 0 { 4 } else { size as u64 }
}

/// Refuses arrays whose sizes, or those of their chunks or shards, overflow.
fn check_sizes(shape: &[u64], chunks: &[u64], size: usize) -> Why<()> {
    let size = least_size(size);
    // Chunks may extend beyond the array, so the padded extent must fit as well.
    let padded = shape.iter().zip(chunks).map(|(&n, &chunk)| n.div_ceil(chunk).checked_mul(chunk));
    if padded.collect::<Option<Vec<u64>>>().and_then(|padded| claimed_bytes(&padded, size)).is_none() {
        return Err(format!("its shape {shape:?} in chunks of {chunks:?} is more than can be addressed"));
    }
    let bytes = claimed_bytes(chunks, size);
    bytes.map(drop).ok_or_else(|| format!("its chunks {chunks:?} take more bytes than can be addressed"))
}

/// Refuses chunks, or tiles that are written, above [`MAX_CHUNK_BYTES`].
pub(crate) fn check_chunk(chunk: &[u64], size: usize) -> Why<()> {
    match claimed_bytes(chunk, least_size(size)) {
        Some(bytes) if bytes <= MAX_CHUNK_BYTES => Ok(()),
        bytes => {
            let bytes = bytes.unwrap_or(u64::MAX);
            Err(format!("its chunks {chunk:?} take {bytes} bytes each, more than {MAX_CHUNK_BYTES}"))
        }
    }
}
