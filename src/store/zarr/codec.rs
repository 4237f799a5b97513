//! Codecs from elements to bytes, parsed from metadata; codecs that cannot be decoded safely are refused.

use std::borrow::Cow;

use serde_json::Value;
use zarrs::metadata::v3::MetadataV3;

use super::{
    filter::Filter,
    guard::{self, Decoded, InPlanes, Size, Why, in_order},
    layout,
};

/// The codecs that errors about other codecs list.
pub(crate) const SUPPORTED: &str = "blosc, zstd, gzip, zlib, lz4, bz2, lzma, crc32c, fletcher32, shuffle, delta, fixedscaleoffset, \
    quantize, bitround, astype, packbits, bytes, transpose, sharding_indexed and vlen-utf8 are supported";

/// The bytes that an encoded chunk may take beyond nine eighths of its decoded size.
const ENCODED_SLACK: usize = 64 << 10;

/// The largest block, in bytes, that blosc chooses by itself.
const BLOSC_BLOCK: usize = 1 << 20;

/// Python's number of the format of LZMA without a header.
const RAW_LZMA: u64 = 3;

/// The memory in bytes that a decoder of bz2 takes, at most.
const BZ2: u64 = 4 << 20;

/// The maximum number of bytes of one chunk of variable-length strings, whose decoded size the metadata do not give.
pub(crate) const MAX_TEXT_BYTES: usize = 256 << 20;

/// The layout of the elements of one decoded chunk.
#[derive(Clone, Debug)]
pub(crate) struct ChunkSpec {
    pub(crate) shape: Vec<usize>,
    /// The number of bytes of one element; 0 for variable-length strings.
    pub(crate) size: usize,
    /// The number of bytes of each number that an element consists of.
    pub(crate) unit: usize,
    /// The maximum number of bytes of serialised variable-length strings.
    pub(crate) text: usize,
}

impl ChunkSpec {
    /// Returns the number of elements; the product was checked for overflow when the array was opened.
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the number of bytes of the decoded chunk.
    pub(crate) fn bytes(&self) -> usize {
        self.count() * self.size
    }
}

/// The steps that turn elements into bytes, and then encode the bytes.
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
    /// True if chunks are stored as they are decoded.
    pub(crate) fn is_plain(&self) -> bool {
        let native = matches!(self.to_bytes, ToBytes::Plain { big_endian } if big_endian == cfg!(target_endian = "big"));
        native && self.bytes.0.is_empty() && self.transpose.is_none()
    }

    pub(crate) fn parse(codecs: &[MetadataV3], spec: &ChunkSpec) -> Why<Self> {
        let (mut transpose, mut filters) = (None, Vec::new());
        for (at, codec) in codecs.iter().enumerate() {
            let name = codec.name();
            match bytes_codec(codec)? {
                Some(filter @ BytesCodec::Filter(kind)) if kind.is_of_elements() => {
                    filters.push(filter);
                    continue;
                }
                Some(_) => return Err(format!("codec `{name}` comes before the one that makes bytes")),
                None => {}
            }
            let to_bytes = match name {
                "transpose" if transpose.is_none() && filters.is_empty() => {
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
            let unit = if text { 1 } else { spec.unit };
            let filters = BytesCodecs(filters);
            let stored = filters.check_filters(unit)?;
            if matches!(to_bytes, ToBytes::Plain { big_endian: true })
                && !filters.0.is_empty()
                && unit.max(stored) > 1
            {
                return Err("filters before a `bytes` codec that is big-endian are not supported".to_owned());
            }
            let bytes = BytesCodecs([filters.0, BytesCodecs::parse(&codecs[at + 1..])?.0].concat());
            bytes.check_filters(unit)?;
            return Ok(Self { transpose, to_bytes, bytes });
        }
        Err(format!("no codec makes bytes of its elements; {SUPPORTED}"))
    }

    /// Returns the maximum number of bytes of an encoded chunk: a larger one is refused before it is read.
    pub(crate) fn encoded_cap(&self, spec: &ChunkSpec) -> usize {
        match &self.to_bytes {
            ToBytes::Text => spec.text,
            ToBytes::Plain { .. } => {
                let sizes = self.bytes.sizes(Size::Exactly(spec.bytes()));
                sizes.iter().map(|size| size.cap()).max().unwrap_or(0).max(encoded_cap(spec.bytes()))
            }
        }
    }

    /// Returns the most bytes of memory of an encoded chunk besides its elements: 0 if it is not compressed, and so decoded in place.
    pub(crate) fn fetched(&self, spec: &ChunkSpec) -> u64 {
        match &self.to_bytes {
            ToBytes::Plain { .. } if !self.bytes.compress() => 0,
            _ => self.encoded_cap(spec) as u64,
        }
    }

    /// Returns the maximum number of bytes of memory that decoding a chunk takes besides the encoded chunk and its elements.
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

    /// Decodes one chunk. The result has exactly `spec.bytes()` bytes, or is the serialised strings. Leaves bit planes of one-byte elements
    /// if `leave` is true, and returns them.
    pub(crate) fn decode(
        &self,
        encoded: Cow<'_, [u8]>,
        spec: &ChunkSpec,
        leave: bool,
    ) -> Decoded<InPlanes<Vec<u8>>> {
        let ToBytes::Plain { big_endian } = &self.to_bytes else {
            let text = self.bytes.decode(encoded, Size::AtMost(spec.text))?;
            return Ok((text.into_owned(), None));
        };
        let (mut data, planes) = self.bytes.decode_planes(encoded, Size::Exactly(spec.bytes()))?;
        if leave && spec.size == 1 && self.transpose.is_none() {
            return Ok((data.into_owned(), planes));
        }
        in_order(planes, &mut data)?;
        let mut data = data.into_owned();
        if *big_endian != cfg!(target_endian = "big") {
            layout::swap_bytes(&mut data, spec.unit);
        }
        if let Some(order) = &self.transpose {
            data = layout::untranspose(&data, &spec.shape, order, spec.size)?;
        }
        Ok((data, None))
    }
}

/// A bytes-to-bytes codec that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BytesCodec {
    Blosc {
        /// The maximum number of bytes of a block.
        block: usize,
    },
    Zstd,
    Gzip,
    Zlib,
    Lz4,
    Bz2,
    Lzma,
    Crc32c,
    Filter(Filter),
}

impl BytesCodec {
    /// Decodes `data` with this codec, but leaves bit planes, which it returns, for the caller to undo.
    pub(crate) fn decode(self, data: Cow<'_, [u8]>, size: Size) -> Decoded<InPlanes<Cow<'_, [u8]>>> {
        let decoded = match self {
            Self::Blosc { block } => {
                return guard::blosc(data, size, block).map(|(bytes, planes)| (Cow::Owned(bytes), planes));
            }
            Self::Zstd => guard::zstd(&data, size).map(Cow::Owned),
            Self::Gzip => guard::gzip(&data, size).map(Cow::Owned),
            Self::Zlib => guard::zlib(&data, size).map(Cow::Owned),
            Self::Lz4 => guard::lz4(&data, size).map(Cow::Owned),
            Self::Bz2 => guard::bz2(&data, size).map(Cow::Owned),
            Self::Lzma => guard::lzma(&data, size).map(Cow::Owned),
            Self::Crc32c => guard::crc32c(data),
            Self::Filter(filter) => filter.decode(data, size),
        };
        Ok((decoded?, None))
    }
}

/// Bytes-to-bytes codecs, in encoding order: decoding starts with the last.
#[derive(Debug)]
pub(crate) struct BytesCodecs(Vec<BytesCodec>);

impl BytesCodecs {
    pub(crate) fn parse(codecs: &[MetadataV3]) -> Why<Self> {
        let parsed = codecs.iter().map(|codec| bytes_codec(codec)?.ok_or_else(|| misplaced(codec.name())));
        parsed.collect::<Why<_>>().map(Self)
    }

    /// Refuses a filter of numbers of another size than those before it, at first `unit` bytes. Returns the size that is stored last.
    fn check_filters(&self, mut unit: usize) -> Why<usize> {
        for codec in &self.0 {
            let BytesCodec::Filter(filter) = codec else {
                unit = 1;
                continue;
            };
            if !filter.fits(unit) {
                return Err(format!("its filter `{filter:?}` is not for numbers of {unit} bytes"));
            }
            unit = filter.stored_unit(unit);
        }
        Ok(unit)
    }

    /// Returns the size of what each codec decodes to, and at last that of encoded data.
    fn sizes(&self, innermost: Size) -> Vec<Size> {
        let (mut sizes, mut most) = (vec![innermost], innermost.cap());
        for codec in &self.0 {
            let size = match (codec, sizes[sizes.len() - 1]) {
                (BytesCodec::Filter(filter), Size::Exactly(bytes)) => Size::Exactly(filter.encoded(bytes)),
                _ => Size::AtMost(encoded_cap(most)),
            };
            if let Size::Exactly(bytes) = size {
                most = most.max(bytes);
            }
            sizes.push(size);
        }
        sizes
    }

    /// Returns the maximum number of bytes of encoded data, and of what stands between two codecs, for at most `decoded` bytes.
    pub(crate) fn encoded_cap(&self, decoded: usize) -> usize {
        self.sizes(Size::AtMost(decoded)).iter().map(|size| size.cap()).max().unwrap_or(decoded)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if any of the codecs needs memory for its output in addition to its input.
    fn compress(&self) -> bool {
        self.0.iter().any(|codec| *codec != BytesCodec::Crc32c)
    }

    /// Returns the maximum number of bytes of scratch memory that the codecs need to decode at most `cap` bytes.
    pub(crate) fn scratch(&self, cap: u64) -> u64 {
        let block =
            |codec: &BytesCodec| if let BytesCodec::Blosc { block } = codec { *block as u64 } else { 0 };
        // c-blosc needs two blocks, and the bit unshuffle needs one as its source.
        let blocks = 3 * self.0.iter().map(block).max().unwrap_or(0).min(cap);
        let own = |codec: &BytesCodec| match codec {
            BytesCodec::Bz2 => BZ2,
            // The dictionary has at most the decoded bytes.
            BytesCodec::Lzma => cap,
            _ => 0,
        };
        // Between two codecs stands what the outer one decoded.
        let between =
            if self.0.iter().filter(|codec| **codec != BytesCodec::Crc32c).count() > 1 { cap } else { 0 };
        blocks + self.0.iter().map(own).max().unwrap_or(0) + between
    }

    /// Decodes with all codecs; the final result has size `innermost`.
    pub(crate) fn decode<'a>(&self, encoded: Cow<'a, [u8]>, innermost: Size) -> Decoded<Cow<'a, [u8]>> {
        let (mut data, planes) = self.decode_planes(encoded, innermost)?;
        in_order(planes, &mut data)?;
        Ok(data)
    }

    /// Decodes as [`decode`](Self::decode), but leaves the bit planes of the final result, which it returns.
    fn decode_planes<'a>(&self, encoded: Cow<'a, [u8]>, innermost: Size) -> Decoded<InPlanes<Cow<'a, [u8]>>> {
        let (mut data, mut planes) = (encoded, None);
        for (codec, size) in self.0.iter().zip(self.sizes(innermost)).rev() {
            in_order(planes, &mut data)?;
            (data, planes) = codec.decode(data, size)?;
        }
        innermost.check(data.len() as u64, "it has")?;
        Ok((data, planes))
    }
}

/// Returns the maximum number of encoded bytes for `decoded` bytes.
pub(crate) fn encoded_cap(decoded: usize) -> usize {
    decoded.saturating_add(decoded / 8).saturating_add(ENCODED_SLACK)
}

fn misplaced(name: &str) -> String {
    format!("codec `{name}` is not supported at this place of the chain; {SUPPORTED}")
}

fn bytes_codec(codec: &MetadataV3) -> Why<Option<BytesCodec>> {
    if let Some(filter) = Filter::parse(codec)? {
        return Ok(Some(BytesCodec::Filter(filter)));
    }
    let block = || {
        let named = codec.configuration()?.get("blocksize")?.as_u64()?;
        usize::try_from(named).ok().filter(|&named| named > BLOSC_BLOCK)
    };
    Ok(Some(match codec.name() {
        "blosc" | "numcodecs.blosc" => BytesCodec::Blosc { block: block().unwrap_or(BLOSC_BLOCK) },
        "zstd" | "numcodecs.zstd" => BytesCodec::Zstd,
        "gzip" | "numcodecs.gzip" => BytesCodec::Gzip,
        "zlib" | "numcodecs.zlib" => BytesCodec::Zlib,
        "numcodecs.lz4" => BytesCodec::Lz4,
        "numcodecs.bz2" => BytesCodec::Bz2,
        "numcodecs.lzma" => {
            let format = codec.configuration().and_then(|c| c.get("format")).and_then(Value::as_u64);
            if format == Some(RAW_LZMA) {
                return Err("codec `lzma` without a header (format 3) is not supported".to_owned());
            }
            BytesCodec::Lzma
        }
        "crc32c" => BytesCodec::Crc32c,
        _ => return Ok(None),
    }))
}

/// True if a `bytes` codec stores numbers of `unit` bytes in big-endian order.
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
