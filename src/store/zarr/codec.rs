//! Codecs from elements to bytes: parsed from metadata, refused where they cannot be decoded safely.

use std::borrow::Cow;

use serde_json::Value;
use zarrs::metadata::v3::MetadataV3;

use super::{
    guard::{BytesCodec, Decoded, Size, Why},
    layout,
};

/// Codecs named in errors about others.
pub(crate) const SUPPORTED: &str =
    "blosc, zstd, gzip, zlib, crc32c, bytes, transpose, sharding_indexed and vlen-utf8 are supported";

/// Room above the decoded size, and an eighth of it, that an encoded chunk may take.
const ENCODED_SLACK: usize = 64 << 10;

/// Largest block that blosc chooses by itself, in bytes.
const BLOSC_BLOCK: usize = 1 << 20;

/// The maximum number of bytes of one chunk of variable-length strings, whose decoded size no metadata tells.
pub(crate) const MAX_TEXT_BYTES: usize = 256 << 20;

/// The elements of one chunk, as decoded.
#[derive(Clone, Debug)]
pub(crate) struct ChunkSpec {
    /// Elements along each axis.
    pub(crate) shape: Vec<usize>,
    /// Bytes of one element; 0 for variable-length strings.
    pub(crate) size: usize,
    /// Bytes of the numbers that an element is made of.
    pub(crate) unit: usize,
    /// The maximum number of bytes of variable-length strings, serialised.
    pub(crate) text: usize,
}

impl ChunkSpec {
    /// Elements; the product was checked when the array was opened.
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of the decoded chunk.
    pub(crate) fn bytes(&self) -> usize {
        self.count() * self.size
    }
}

/// The steps that make bytes of elements, and then encode these.
#[derive(Debug)]
pub(crate) struct Codecs {
    transpose: Option<Vec<usize>>,
    to_bytes: ToBytes,
    bytes: BytesCodecs,
}

#[derive(Debug)]
enum ToBytes {
    Plain { big_endian: bool },
    Text,
}

impl Codecs {
    /// Parses `codecs` for chunks of `spec`.
    pub(crate) fn parse(codecs: &[MetadataV3], spec: &ChunkSpec) -> Why<Self> {
        let mut transpose = None;
        for (at, codec) in codecs.iter().enumerate() {
            let name = codec.name();
            if bytes_codec(codec).is_some() {
                return Err(format!("codec `{name}` comes before the one that makes bytes"));
            }
            let to_bytes = match name {
                "transpose" if transpose.is_none() => {
                    transpose = Some(parse_order(codec, spec.shape.len())?);
                    continue;
                }
                "transpose" => return Err(misplaced(name)),
                "bytes" | "endian" => ToBytes::Plain { big_endian: is_big_endian(codec, spec.unit)? },
                "vlen-utf8" => ToBytes::Text,
                _ => return Err(format!("codec `{name}` is not supported; {SUPPORTED}")),
            };
            let text = matches!(to_bytes, ToBytes::Text);
            if text != (spec.size == 0) || (text && transpose.is_some()) {
                return Err("its codecs do not fit its data type".to_owned());
            }
            return Ok(Self { transpose, to_bytes, bytes: BytesCodecs::parse(&codecs[at + 1..])? });
        }
        Err(format!("no codec makes bytes of its elements; {SUPPORTED}"))
    }

    /// The maximum number of bytes an encoded chunk may have: more is refused unread.
    pub(crate) fn encoded_cap(&self, spec: &ChunkSpec) -> usize {
        match &self.to_bytes {
            ToBytes::Text => spec.text,
            ToBytes::Plain { .. } => encoded_cap(spec.bytes()),
        }
    }

    /// The maximum number of bytes of an encoded chunk beside its elements: none where it is not compressed, and decoded in place.
    pub(crate) fn fetched(&self, spec: &ChunkSpec) -> u64 {
        match &self.to_bytes {
            ToBytes::Plain { .. } if !self.bytes.compress() => 0,
            _ => self.encoded_cap(spec) as u64,
        }
    }

    /// The maximum number of bytes that decoding a chunk takes besides what is encoded and its elements.
    pub(crate) fn scratch(&self, spec: &ChunkSpec) -> u64 {
        let cap = self.encoded_cap(spec) as u64;
        self.bytes.scratch(cap)
            + match &self.to_bytes {
                ToBytes::Plain { .. } if self.transpose.is_some() && !self.bytes.compress() => {
                    spec.bytes() as u64
                }
                ToBytes::Plain { .. } => 0,
                ToBytes::Text => cap,
            }
    }

    /// Decodes one chunk: exactly `spec.bytes()` bytes, or the serialised strings.
    pub(crate) fn decode(&self, encoded: Cow<'_, [u8]>, spec: &ChunkSpec) -> Decoded<Vec<u8>> {
        let cap = Size::AtMost(self.encoded_cap(spec));
        match &self.to_bytes {
            ToBytes::Text => self.bytes.decode(encoded, cap, cap).map(Cow::into_owned),
            ToBytes::Plain { big_endian } => {
                let mut data = self.bytes.decode(encoded, cap, Size::Exactly(spec.bytes()))?.into_owned();
                if *big_endian != cfg!(target_endian = "big") {
                    layout::swap_bytes(&mut data, spec.unit);
                }
                match &self.transpose {
                    Some(order) => layout::untranspose(&data, &spec.shape, order, spec.size),
                    None => Ok(data),
                }
            }
        }
    }
}

/// Codecs from bytes to bytes, in encoding order: the last is undone first.
#[derive(Debug)]
pub(crate) struct BytesCodecs(Vec<BytesCodec>);

impl BytesCodecs {
    pub(crate) fn parse(codecs: &[MetadataV3]) -> Why<Self> {
        let parsed = codecs.iter().map(|codec| bytes_codec(codec).ok_or_else(|| misplaced(codec.name())));
        parsed.collect::<Why<_>>().map(Self)
    }

    /// True where any of them needs room for its result beside what it is given.
    fn compress(&self) -> bool {
        self.0.iter().any(|codec| *codec != BytesCodec::Crc32c)
    }

    /// The maximum number of bytes that they need for themselves to undo at most `cap`.
    pub(crate) fn scratch(&self, cap: u64) -> u64 {
        let block =
            |codec: &BytesCodec| if let BytesCodec::Blosc { block } = codec { *block as u64 } else { 0 };
        // Two for c-blosc, and one for its bits to be unshuffled from.
        3 * self.0.iter().map(block).max().unwrap_or(0).min(cap)
    }

    /// Undoes them: what lies between two has at most `cap`, the result the size `innermost`.
    pub(crate) fn decode<'a>(
        &self,
        encoded: Cow<'a, [u8]>,
        cap: Size,
        innermost: Size,
    ) -> Decoded<Cow<'a, [u8]>> {
        let mut data = encoded;
        for (position, codec) in self.0.iter().enumerate().rev() {
            data = codec.decode(data, if position == 0 { innermost } else { cap })?;
        }
        innermost.check(data.len() as u64, "it has")?;
        Ok(data)
    }
}

/// The maximum number of bytes that so many may have once they are encoded.
pub(crate) fn encoded_cap(decoded: usize) -> usize {
    decoded.saturating_add(decoded / 8).saturating_add(ENCODED_SLACK)
}

fn misplaced(name: &str) -> String {
    format!("codec `{name}` is not supported at this place of the chain; {SUPPORTED}")
}

fn bytes_codec(codec: &MetadataV3) -> Option<BytesCodec> {
    let block = || {
        let named = codec.configuration()?.get("blocksize")?.as_u64()?;
        usize::try_from(named).ok().filter(|&named| named > BLOSC_BLOCK)
    };
    Some(match codec.name() {
        "blosc" | "numcodecs.blosc" => BytesCodec::Blosc { block: block().unwrap_or(BLOSC_BLOCK) },
        "zstd" | "numcodecs.zstd" => BytesCodec::Zstd,
        "gzip" | "numcodecs.gzip" => BytesCodec::Gzip,
        "zlib" | "numcodecs.zlib" => BytesCodec::Zlib,
        "crc32c" => BytesCodec::Crc32c,
        _ => return None,
    })
}

/// True where a `bytes` codec stores numbers of `unit` bytes in big-endian order.
pub(crate) fn is_big_endian(codec: &MetadataV3, unit: usize) -> Why<bool> {
    match codec.configuration().and_then(|c| c.get("endian")).map(|v| (v, v.as_str())) {
        Some((_, Some("little"))) => Ok(false),
        Some((_, Some("big"))) => Ok(true),
        None | Some((Value::Null, _)) if unit == 1 => Ok(false),
        _ => Err("its `bytes` codec names no byte order".to_owned()),
    }
}

fn parse_order(codec: &MetadataV3, axes: usize) -> Why<Vec<usize>> {
    let wrong = || format!("the order of its `transpose` codec is not a permutation of {axes} axes");
    let order = codec.configuration().and_then(|c| c.get("order")).and_then(Value::as_array);
    let order = order.ok_or_else(wrong)?.iter().map(|v| usize::try_from(v.as_u64()?).ok());
    let order = order.collect::<Option<Vec<usize>>>().ok_or_else(wrong)?;
    if order.len() != axes || (0..axes).any(|axis| !order.contains(&axis)) {
        return Err(wrong());
    }
    Ok(order)
}
