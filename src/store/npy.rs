//! Arrays in NumPy's .npy files.

#[cfg(test)]
mod tests;
mod writer;

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    path::Path,
    sync::Arc,
    time::Instant,
};

pub use self::writer::NpyWriter;
use super::{
    Storable, Storage, StorageOptions, Value,
    array::claimed_bytes,
    blocks::{in_memory, untranspose},
    local_path, open_storage,
};
use crate::{
    ArrayFacts, ChunkedArray, DecodedChunk, Error, FetchedChunk, OpenChunk, Result, StoredType,
    extent::to_usize,
    files::{read_at, write_whole},
    stream::MAX_CHUNKS,
};

/// The number of bytes of a chunk, if it can be this small, and of a line of a matrix within a chunk.
const CHUNK: u64 = 1 << 20;
const LINE: u64 = 16 << 10;

/// The maximum number of bytes of a header: the limit that numpy sets for an untrusted file.
const MAX_HEADER_BYTES: u32 = 10_000;

/// The number of bytes in which a header is.
const START: u64 = MAX_HEADER_BYTES as u64 + 12;

/// An array in a .npy file, read in chunks of about 1 MiB. A chunk consists of rows, or, if the file is in Fortran order, of slices along
/// the last axis. In a matrix, rows (or columns) longer than 16 KiB are split, so that some columns of all rows can be read in little
/// memory.
///
/// ```
/// use teatime::{ChunkedArray, store::NpyArray};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("x.npy");
/// // numpy.save("x.npy", numpy.array([[1, 2, 3], [4, 5, 6]], "u1"))
/// # let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
/// # file.extend(format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }").bytes());
/// # file.extend([1, 2, 3, 4, 5, 6]);
/// # std::fs::write(&path, file)?;
/// let array = NpyArray::open(&path)?;
/// assert_eq!(array.shape(), [2, 3]);
/// assert_eq!(array.read_chunk(&[0, 0])?.bytes, [1, 2, 3, 4, 5, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NpyArray {
    name: String,
    source: Source,
    dtype: StoredType,
    shape: Vec<u64>,
    chunk_shape: Vec<u64>,
    /// The offset of the first element in the file.
    start: u64,
    fortran: bool,
    /// True if the elements have the opposite byte order to this machine's.
    swapped: bool,
}

/// The place of the bytes of an array: a local file, or a value of a storage.
#[derive(Debug)]
enum Source {
    File(Arc<File>),
    Stored(Arc<dyn Storage>, String),
}

impl NpyArray {
    /// Opens a file, reads its header, and checks the file's length against it. `path` may also be a URL, see [`open_storage`].
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Store`] for a path that is not a file, a file that is not a .npy file or is shorter than its header says,
    /// a header of more than 10,000 bytes, elements that are complex or not numbers, and an array without axes or with more than 64.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let Some(path) = local_path(path) else {
            return Self::open_in(&open_storage(path, &StorageOptions::default())?, "");
        };
        let name = path.display().to_string();
        let unread = |source| Error::io(&name, source);
        // This check comes first, since opening a named pipe waits for a writer.
        if !path.metadata().map_err(unread)?.is_file() {
            return Err(Error::store(&name, "is not a file"));
        }
        let file = File::open(path).map_err(unread)?;
        let len = file.metadata().map_err(unread)?.len();
        let mut start = Vec::new();
        (&file).take(START).read_to_end(&mut start).map_err(unread)?;
        Self::read(name.clone(), Source::File(Arc::new(file)), len, &start)
    }

    /// Opens the array that is the value of a key, as [`open`](Self::open) does a file; the empty key is the object of a URL itself.
    /// Chunks of 1 MiB, or of a whole row, are read by [`Storage::get_range`].
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn open_in(storage: &Arc<dyn Storage>, key: &str) -> Result<Self> {
        let name = storage.place(key);
        let unread = |source| Error::io(&name, source);
        let Some(len) = storage.size(key).map_err(unread)? else {
            return Err(unread(io::ErrorKind::NotFound.into()));
        };
        let start = if len > START { storage.get_range(key, 0..START) } else { storage.get(key, START) };
        let start = match start.map_err(unread)? {
            Value::Bytes(bytes) => bytes,
            _ => return Err(unread(io::ErrorKind::NotFound.into())),
        };
        Self::read(name.clone(), Source::Stored(Arc::clone(storage), key.to_owned()), len, &start)
    }

    /// Reads the header from the first bytes of a file of `len` bytes.
    fn read(name: String, source: Source, len: u64, bytes: &[u8]) -> Result<Self> {
        let refuse = |why: String| Err(Error::store(&name, why));
        let no_npy = || Error::store(&name, "is no .npy file of version 1, 2 or 3");
        let mut start = [0; 12];
        let read = |out: &mut [u8], at: usize| {
            out.copy_from_slice(bytes.get(at..at + out.len()).ok_or_else(no_npy)?);
            Ok::<_, Error>(())
        };
        read(&mut start[..10], 0)?;
        let header = match start {
            [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, low, high, ..] => {
                u32::from_le_bytes([low, high, 0, 0])
            }
            [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _, low, high, ..] => {
                read(&mut start[10..], 10)?;
                u32::from_le_bytes([low, high, start[10], start[11]])
            }
            _ => return Err(no_npy()),
        };
        let start = if start[6] == 1 { 10 } else { 12 } + u64::from(header);
        if start > len {
            return Err(no_npy());
        }
        if header > MAX_HEADER_BYTES {
            return refuse(format!("has a header of {header} bytes, more than {MAX_HEADER_BYTES}"));
        }
        let mut text = vec![0; to_usize(header.into())];
        read(&mut text, to_usize(start - u64::from(header)))?;
        let Some(Header { descr, fortran, shape }) = Header::parse(&String::from_utf8_lossy(&text)) else {
            return refuse("has a header that is not understood: elements that are no numbers?".to_owned());
        };
        let Some((dtype, big)) = stored_type(&descr) else {
            return refuse(format!("holds elements of type {descr}, which are no real numbers"));
        };
        if shape.is_empty() {
            return refuse("has no axes".to_owned());
        }
        let bytes = claimed_bytes(&shape, dtype.size() as u64);
        if bytes.and_then(|bytes| bytes.checked_add(start)).is_none_or(|end| end > len) {
            return refuse(format!("has {len} bytes, too few for {shape:?} of {descr}"));
        }
        let fortran = shape.len() > 1 && fortran;
        let swapped = big != cfg!(target_endian = "big") && dtype.size() > 1;
        // A request for each line of a chunk would take too long.
        let line = if matches!(source, Source::File(_)) { LINE } else { u64::MAX };
        let chunk_shape =
            chunks(&shape, dtype.size() as u64, if fortran { shape.len() - 1 } else { 0 }, line);
        Ok(Self { name, source, dtype, shape, chunk_shape, start, fortran, swapped })
    }

    /// Returns the axis along which the array is cut into chunks.
    fn axis(&self) -> usize {
        if self.fortran { self.shape.len() - 1 } else { 0 }
    }

    fn chunk_bytes(&self) -> u64 {
        self.chunk_shape.iter().fold(self.dtype.size() as u64, |product, n| product.saturating_mul(*n))
    }

    /// Returns the first element of a chunk along an axis, and the number of elements.
    fn within(&self, axis: usize, index: &[u64]) -> (u64, u64) {
        let first = index[axis] * self.chunk_shape[axis];
        (first, self.shape[axis].saturating_sub(first).min(self.chunk_shape[axis]))
    }

    /// Returns the bytes of a chunk in the file, if its lines are whole.
    fn range(&self, index: &[u64]) -> Range<u64> {
        let (first, count) = self.within(self.axis(), index);
        let others = self.shape.iter().enumerate().filter(|(other, _)| *other != self.axis());
        let slice =
            others.fold(self.dtype.size() as u64, |product, (_, &extent)| product.saturating_mul(extent));
        let start = self.start + first.saturating_mul(slice);
        start..start + count.saturating_mul(slice)
    }
}

/// Returns the chunk shape. Only `axis` is divided, or both axes of a matrix, each into at most `MAX_CHUNKS` chunks.
fn chunks(shape: &[u64], size: u64, axis: usize, most: u64) -> Vec<u64> {
    let mut chunks: Vec<u64> = shape.iter().map(|&extent| extent.max(1)).collect();
    if let [_, _] = shape {
        let line = &mut chunks[1 - axis];
        *line = (most / size).max(line.div_ceil(MAX_CHUNKS)).min(*line);
    }
    let others = chunks.iter().enumerate().filter(|(other, _)| *other != axis);
    let slice = others.fold(size, |product, (_, &extent)| product.saturating_mul(extent));
    chunks[axis] = (CHUNK / slice).max(chunks[axis].div_ceil(MAX_CHUNKS)).clamp(1, chunks[axis]);
    chunks
}

/// The content of a .npy header, which is the literal of a Python dict.
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<u64>,
}

impl Header {
    fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let key = [format!("'{key}'"), format!("\"{key}\"")];
            let at = key.iter().find_map(|key| text.split_once(key))?.1;
            Some(at.trim_start().strip_prefix(':')?.trim_start())
        };
        let descr = value("descr")?;
        let quote = descr.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let descr = descr[1..].split_once(quote)?.0.to_owned();
        let fortran = match value("fortran_order")? {
            order if order.starts_with("False") => false,
            order if order.starts_with("True") => true,
            _ => return None,
        };
        let extents = value("shape")?.strip_prefix('(')?.split_once(')')?.0;
        let extents = extents.split(',').map(str::trim).filter(|extent| !extent.is_empty());
        let shape = extents.map(|extent| extent.trim_end_matches('L').parse().ok()).collect::<Option<_>>()?;
        Some(Self { descr, fortran, shape })
    }
}

/// Returns the type, and true if its bytes are in big-endian order.
fn stored_type(descr: &str) -> Option<(StoredType, bool)> {
    let (order, kind) = descr.split_at_checked(1)?;
    let stored = StoredType::of_kind(kind)?;
    let native = matches!(order, "|" | "=") && cfg!(target_endian = "big");
    matches!(order, "<" | ">" | "|" | "=").then_some((stored, order == ">" || native))
}

impl ChunkedArray for NpyArray {
    fn facts(&self) -> ArrayFacts<'_> {
        ArrayFacts { name: &self.name, shape: &self.shape, chunk_shape: &self.chunk_shape, dtype: self.dtype }
    }

    fn fetched_bytes(&self) -> u64 {
        if matches!(self.source, Source::Stored(..)) { self.chunk_bytes() } else { 0 }
    }

    fn fetches(&self) -> usize {
        if let Source::Stored(storage, _) = &self.source { storage.fetches() } else { 0 }
    }

    fn fetch(&self, index: &[u64]) -> Result<FetchedChunk> {
        let Source::Stored(storage, key) = &self.source else { return Ok(FetchedChunk::default()) };
        let started = Instant::now();
        let refuse = |why: String| Err(Error::chunk(&self.name, index, why));
        match storage.get_range(key, self.range(index)) {
            Ok(Value::Bytes(bytes)) => {
                Ok(FetchedChunk { bytes: Some(bytes), read: started.elapsed(), ..FetchedChunk::default() })
            }
            Ok(_) => refuse("its file is no longer there".to_owned()),
            Err(error) => refuse(format!("cannot be read: {error}")),
        }
    }

    fn scratch_bytes(&self) -> u64 {
        if self.fortran { self.chunk_bytes() } else { 0 }
    }

    fn opens_chunks(&self) -> bool {
        !self.fortran && !self.swapped && matches!(self.source, Source::File(_))
    }

    fn open_chunk(&self, index: &[u64]) -> Option<OpenChunk> {
        let Source::File(file) = &self.source else { return None };
        let row = self.shape[1..].iter().product::<u64>();
        // Only a matrix is divided along its second axis.
        let column = index.get(1).map_or(0, |number| number * self.chunk_shape[1]);
        let first = index[0] * self.chunk_shape[0];
        let [start, distance] =
            [first * row + column, row].map(|elements| elements * self.dtype.size() as u64);
        let rows = self.chunk_shape[0].min(self.shape[0].checked_sub(first)?);
        Some(OpenChunk::new(Arc::clone(file), self.start + start, distance, rows))
    }

    fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
        let (started, axis, size) = (Instant::now(), self.axis(), self.dtype.size());
        let mut bytes = vec![0; to_usize(self.chunk_shape.iter().product()) * size];
        // A matrix with split lines is read line by line, any other array in one piece.
        let (lines, stored, apart): (Vec<u64>, _, _) = match self.shape.len() {
            2 if self.chunk_shape[1 - axis] < self.shape[1 - axis] => {
                let ((first, count), (start, len)) = (self.within(axis, index), self.within(1 - axis, index));
                let line = |i: u64| self.start + ((first + i) * self.shape[1 - axis] + start) * size as u64;
                let apart = to_usize(self.chunk_shape[1 - axis]) * size;
                ((0..count).map(line).collect(), len * size as u64, apart)
            }
            _ => {
                let range = self.range(index);
                (vec![range.start], range.end - range.start, bytes.len())
            }
        };
        for (line, bytes) in lines.iter().zip(bytes.chunks_mut(apart)) {
            let out = &mut bytes[..to_usize(stored)];
            let read = match (&self.source, fetched.bytes.as_deref()) {
                (Source::File(file), _) => read_at(file, out, *line),
                (Source::Stored(..), Some(bytes)) if bytes.len() == out.len() => {
                    out.copy_from_slice(bytes);
                    Ok(())
                }
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
            read.map_err(|error| Error::chunk(&self.name, index, error))?;
        }
        let stored = stored * lines.len() as u64;
        let (took, before) = (started.elapsed(), fetched.read);
        if self.swapped {
            bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        if self.fortran {
            let (mut out, order) = (vec![0; bytes.len()], (0..self.shape.len()).rev().collect::<Vec<_>>());
            untranspose(&bytes, &in_memory(&self.chunk_shape), &order, size, &mut out);
            bytes = out;
        }
        Ok(DecodedChunk { bytes, stored, read: before + took, decode: started.elapsed() - took })
    }
}

/// Writes a matrix of `[rows, columns]` in C order as a .npy file, [atomically](write_whole).
///
/// # Errors
/// [`Error::Shape`] if the number of elements does not match; [`Error::Io`].
///
/// ```
/// use teatime::{ChunkedArray, store::{NpyArray, write_npy}};
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("x.npy");
/// write_npy(&path, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
/// assert_eq!(NpyArray::open(&path)?.shape(), [2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_npy<T: Storable>(
    path: impl AsRef<Path>,
    elements: &[T],
    [rows, columns]: [usize; 2],
) -> Result<()> {
    if rows.checked_mul(columns) != Some(elements.len()) {
        let got = format_args!("{} elements", elements.len());
        return Err(Error::shape("write_npy", format_args!("{rows} rows of {columns} columns"), got));
    }
    let shape = [rows, columns].map(|extent| extent as u64);
    write_whole(path, |file| {
        file.write_all(&writer::header(T::STORED, &shape))?;
        file.write_all(bytemuck::cast_slice(elements))
    })
}
