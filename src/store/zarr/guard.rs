//! Bytes-to-bytes decoders that never produce, or allocate memory for, more than the expected number of bytes.
//!
//! A 16-byte zstd chunk that claims 2^50 bytes aborts a process that trusts the claim, and an abort cannot be caught. So every size that
//! a chunk claims is compared with the size that the metadata give before memory is allocated, and allocations may fail.

use std::{
    borrow::Cow,
    io::{ErrorKind, Read},
    num::NonZero,
};

use blosc_src::blosc_decompress_ctx;
use bzip2::read::MultiBzDecoder;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use lzma_rust2::{LzmaReader, XzReader};

use crate::{fresh, store::BitPlanes};

/// A result, or a text that says what is wrong with metadata; the caller adds the name of the array.
pub(crate) type Why<T> = Result<T, String>;

/// The reason why there is no chunk; the caller adds the array and the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The chunk is faulty; the text says how.
    Wrong(String),
    /// The chunk is missing; the text says which part.
    Missing(String),
    /// The chunk, or a part of it, has this number of bytes, which is more than allowed.
    Large(u64, String),
    /// The host cannot allocate this number of bytes.
    Memory(u64),
}

impl Fault {
    /// Adds to the fault the name of the faulty part of the chunk.
    pub(crate) fn in_part(self, part: &str) -> Self {
        match self {
            Self::Wrong(why) => Self::Wrong(format!("{part}: {why}")),
            Self::Missing(why) => Self::Missing(format!("{part}: {why}")),
            Self::Large(bytes, why) => Self::Large(bytes, format!("{part}: {why}")),
            Self::Memory(bytes) => Self::Memory(bytes),
        }
    }
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

impl From<&str> for Fault {
    fn from(why: &str) -> Self {
        Self::Wrong(why.to_owned())
    }
}

/// A chunk, or the reason why there is none.
pub(crate) type Decoded<T> = Result<T, Fault>;

/// A decoded value, and its bit planes if it is still in these.
pub(crate) type InPlanes<T> = (T, Option<BitPlanes>);

/// The number of bytes of a blosc header, which precedes the table of block offsets.
const BLOSC_HEADER: usize = 16;
/// c-blosc splits a block into one stream per byte of the element only up to this element size ...
const BLOSC_MAX_SPLITS: usize = 16;
/// ... and only if each stream has at least this many bytes.
const BLOSC_MIN_SPLIT: usize = 128;

/// The memory that data of LZMA may ask for in KiB: a dictionary of 64 MiB, as the highest preset has, and tables.
const LZMA_KIB: u32 = 66 << 10;

/// The decoded size that is accepted, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    Exactly(usize),
    AtMost(usize),
}

impl Size {
    pub(crate) const fn cap(self) -> usize {
        match self {
            Self::Exactly(n) | Self::AtMost(n) => n,
        }
    }

    pub(crate) fn check(self, got: u64, what: &str) -> Decoded<()> {
        match self {
            Self::Exactly(n) if got != n as u64 => Err(format!("{what} {got} bytes, expected {n}").into()),
            Self::AtMost(n) if got > n as u64 => Err(self.exceeded(got, what)),
            _ => Ok(()),
        }
    }

    pub(crate) fn exceeded(self, got: u64, what: &str) -> Fault {
        Fault::Large(got, format!("{what} {got} bytes, expected at most {}", self.cap()))
    }
}

/// Returns an empty vector for a decoded chunk of `bytes` bytes, or an error if the allocation fails.
pub(crate) fn buffer(bytes: usize) -> Decoded<Vec<u8>> {
    fresh::chunk(bytes).map_err(|_| Fault::Memory(bytes as u64))
}

/// Puts the elements of a decoded chunk in order if they are in bit planes.
pub(crate) fn in_order(planes: Option<BitPlanes>, chunk: &mut Cow<'_, [u8]>) -> Decoded<()> {
    planes.map_or(Ok(()), |planes| planes.undo(chunk.to_mut()).map_err(Fault::Memory))
}

/// Returns an empty vector for `bytes` bytes that are soon freed, or an error if the allocation fails.
fn scratch(bytes: usize) -> Decoded<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes).map_err(|_| Fault::Memory(bytes as u64))?;
    Ok(buffer)
}

/// Reads the little-endian `u32` at `at`, if `data` is long enough.
pub(crate) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn usize_at(data: &[u8], at: usize) -> Option<usize> {
    u32_at(data, at).and_then(|value| usize::try_from(value).ok())
}

pub(crate) fn blosc(mut data: Cow<'_, [u8]>, size: Size, block: usize) -> Decoded<InPlanes<Vec<u8>>> {
    let frame = BloscFrame::parse(&data)?;
    size.check(frame.nbytes as u64, "blosc header claims")?;
    if frame.block > block {
        let why = format!("blosc blocks have {} bytes, more than the {block} of its metadata", frame.block);
        return Err(why.into());
    }
    frame.check_streams(&data)?;
    let bits = frame.flags & (BloscFrame::STORED | BloscFrame::BIT_SHUFFLE) == BloscFrame::BIT_SHUFFLE
        && frame.typesize == 1;
    if bits {
        // The bit shuffle is undone by our own code, which is faster, if at all.
        data.to_mut()[2] &= !BloscFrame::BIT_SHUFFLE;
    }
    let planes = NonZero::new(frame.block).filter(|_| bits).map(BitPlanes::new);
    Ok((decompress_blosc(&data, &frame)?, planes))
}

/// Decompresses a frame whose streams were checked.
#[allow(unsafe_code, reason = "zarrs' safe function decompresses to new memory alone")]
fn decompress_blosc(data: &[u8], frame: &BloscFrame) -> Decoded<Vec<u8>> {
    let (mut decoded, len) = (buffer(frame.nbytes)?, frame.nbytes);
    // c-blosc does not check whether its own malloc of two blocks succeeded, so this tests it beforehand.
    drop(scratch(frame.block.saturating_mul(2).saturating_add(4096))?);
    // SAFETY: the data has as many bytes as its header says, and its streams lie within. c-blosc writes at most `len` bytes, for which there
    // is room, and returns how many it wrote.
    let written = unsafe { blosc_decompress_ctx(data.as_ptr().cast(), decoded.as_mut_ptr().cast(), len, 1) };
    if usize::try_from(written) != Ok(len) {
        return Err("blosc cannot decompress it: the data is damaged".to_owned().into());
    }
    // SAFETY: c-blosc wrote all of them.
    unsafe { decoded.set_len(len) };
    Ok(decoded)
}

/// The header of a blosc 1 frame.
struct BloscFrame {
    flags: u8,
    typesize: usize,
    nbytes: usize,
    block: usize,
}

impl BloscFrame {
    const STORED: u8 = 0x02;
    const BIT_SHUFFLE: u8 = 0x04;
    const RESERVED: u8 = 0x08;
    const DONT_SPLIT: u8 = 0x10;

    fn parse(data: &[u8]) -> Decoded<Self> {
        let short = || format!("{} bytes are shorter than a blosc header", data.len());
        let [version, _, flags, typesize, ..] = *data else { return Err(short().into()) };
        let nbytes = usize_at(data, 4).ok_or_else(short)?;
        let block = usize_at(data, 8).ok_or_else(short)?;
        let total = usize_at(data, 12).ok_or_else(short)?;
        if version != 2 || flags & Self::RESERVED != 0 {
            let why = format!("blosc header has version {version}, flags {flags:#x}: not a blosc 1 frame");
            return Err(why.into());
        }
        if total != data.len() {
            let why = format!("blosc header claims {total} encoded bytes, there are {}", data.len());
            return Err(why.into());
        }
        if typesize == 0 || nbytes == 0 || block == 0 || block > nbytes {
            let why =
                format!("blosc header claims {nbytes} bytes in blocks of {block}, elements of {typesize}");
            return Err(why.into());
        }
        Ok(Self { flags, typesize: typesize.into(), nbytes, block })
    }

    /// Checks the streams of every block, which must lie inside `data`.
    fn check_streams(&self, data: &[u8]) -> Decoded<()> {
        if self.flags & Self::STORED != 0 {
            return Size::Exactly(self.nbytes.saturating_add(BLOSC_HEADER))
                .check(data.len() as u64, "stored blosc frame has");
        }
        let blocks = self.nbytes.div_ceil(self.block);
        if blocks > (data.len() - BLOSC_HEADER) / 4 {
            let why = format!("blosc header claims {blocks} blocks, more than the data has offsets for");
            return Err(why.into());
        }
        for block in 0..blocks {
            let whole = block + 1 < blocks || self.nbytes.is_multiple_of(self.block);
            let splits = if whole { self.splits() } else { 1 };
            self.check_block(data, BLOSC_HEADER + 4 * blocks, block, splits)
                .ok_or_else(|| format!("blosc block {block} of {blocks} points outside the data"))?;
        }
        Ok(())
    }

    /// Returns the number of streams in a whole block, by the rule that c-blosc uses for decoding.
    const fn splits(&self) -> usize {
        let split = self.flags & Self::DONT_SPLIT == 0
            && self.typesize <= BLOSC_MAX_SPLITS
            && self.block / self.typesize >= BLOSC_MIN_SPLIT;
        if split { self.typesize } else { 1 }
    }

    fn check_block(&self, data: &[u8], first: usize, block: usize, splits: usize) -> Option<()> {
        let mut at = usize_at(data, BLOSC_HEADER + 4 * block)?;
        if at < first {
            return None;
        }
        for _ in 0..splits {
            let length = usize_at(data, at)?;
            at = at.checked_add(4)?.checked_add(length)?;
            if at > data.len() {
                return None;
            }
        }
        Some(())
    }
}

pub(crate) fn zstd(data: &[u8], size: Size) -> Decoded<Vec<u8>> {
    let damaged = |error| damaged("zstd cannot decompress it", size, &error);
    let claimed = zstd::zstd_safe::get_frame_content_size(data)
        .map_err(|_| "it does not start with a zstd frame".to_owned())?;
    if let Some(claimed) = claimed {
        // Several frames may be concatenated, so the first may claim fewer bytes than the whole.
        Size::AtMost(size.cap()).check(claimed, "zstd frame claims")?;
    }
    match size {
        Size::Exactly(expected) => {
            // The decoder writes only into the given buffer, whatever size the frames claim.
            let mut decoded = buffer(expected)?;
            zstd::bulk::Decompressor::new()
                .and_then(|mut zstd| zstd.decompress_to_buffer(data, &mut decoded))
                .map_err(damaged)?;
            size.check(decoded.len() as u64, "zstd data has")?;
            Ok(decoded)
        }
        Size::AtMost(_) => {
            inflate(zstd::stream::read::Decoder::new(data).map_err(damaged)?, size, "zstd data has")
        }
    }
}

pub(crate) fn gzip(data: &[u8], size: Size) -> Decoded<Vec<u8>> {
    inflate(MultiGzDecoder::new(data), size, "gzip data has")
}

pub(crate) fn bz2(data: &[u8], size: Size) -> Decoded<Vec<u8>> {
    inflate(MultiBzDecoder::new(data), size, "bz2 data has")
}

pub(crate) fn zlib(mut data: &[u8], size: Size) -> Decoded<Vec<u8>> {
    let decoded = inflate(ZlibDecoder::new(&mut data), size, "zlib data has")?;
    if data.is_empty() {
        Ok(decoded)
    } else {
        Err(format!("{} bytes follow the zlib data", data.len()).into())
    }
}

/// Decodes a block of LZ4 after the number of decoded bytes, as numcodecs writes it.
pub(crate) fn lz4(data: &[u8], size: Size) -> Decoded<Vec<u8>> {
    let claimed =
        usize_at(data, 0).ok_or_else(|| format!("{} bytes are shorter than an lz4 header", data.len()))?;
    size.check(claimed as u64, "lz4 header claims")?;
    let mut decoded = buffer(claimed)?;
    decoded.resize(claimed, 0);
    match lz4_flex::block::decompress_into(&data[4..], &mut decoded) {
        Ok(written) if written == claimed => Ok(decoded),
        Ok(written) => Err(format!("lz4 data has {written} bytes, its header claims {claimed}").into()),
        Err(error) => Err(format!("lz4 cannot decompress it: {error}").into()),
    }
}

/// Decodes data in the formats `.xz` and `.lzma`.
pub(crate) fn lzma(data: &[u8], size: Size) -> Decoded<Vec<u8>> {
    if data.starts_with(b"\xfd7zXZ\0") {
        return inflate(XzReader::new_mem_limit(data, true, LZMA_KIB), size, "lzma data has");
    }
    let reader = LzmaReader::new_mem_limit(data, LZMA_KIB, None);
    let reader = reader.map_err(|error| damaged("lzma cannot decompress it", size, &error))?;
    inflate(reader, size, "lzma data has")
}

/// Reads to the end, but stops one byte past `size`.
fn inflate(reader: impl Read, size: Size, what: &str) -> Decoded<Vec<u8>> {
    let mut decoded = buffer(if let Size::Exactly(expected) = size { expected } else { 0 })?;
    let read = reader.take(size.cap() as u64 + 1).read_to_end(&mut decoded);
    read.map_err(|error| damaged("it cannot be decompressed", size, &error))?;
    size.check(decoded.len() as u64, what)?;
    Ok(decoded)
}

/// Returns the fault for a decompressor's error; an out-of-memory error of zstd is recognised by its text, since it has no error kind of
/// its own.
fn damaged(what: &str, size: Size, error: &std::io::Error) -> Fault {
    let why = error.to_string();
    if error.kind() == ErrorKind::OutOfMemory || why.starts_with("Allocation error") {
        return Fault::Memory(size.cap() as u64);
    }
    format!("{what}: {why}").into()
}

/// Verifies and removes the checksum that follows the data.
pub(crate) fn crc32c(data: Cow<'_, [u8]>) -> Decoded<Cow<'_, [u8]>> {
    let end = data.len().checked_sub(4).ok_or("shorter than its crc32c checksum")?;
    let (stored, computed) = (u32_at(&data, end), crc32c::crc32c(&data[..end]));
    if stored != Some(computed) {
        return Err("the crc32c checksum does not match: the data is damaged".into());
    }
    Ok(first(data, end))
}

/// Returns the first `end` bytes of some data, without a copy.
pub(crate) fn first(data: Cow<'_, [u8]>, end: usize) -> Cow<'_, [u8]> {
    match data {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..end]),
        Cow::Owned(mut bytes) => {
            bytes.truncate(end);
            Cow::Owned(bytes)
        }
    }
}
