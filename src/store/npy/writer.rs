//! Writing a .npy file, box by box.

use std::{
    fs::{self, File},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    Error, Result, StoredType,
    extent::to_usize,
    files::{hidden, write_at},
    store::{
        blocks::{in_memory, runs},
        box_writer::{BoxWriter, check_box},
    },
};

/// Writes an array in C order into a .npy file, box by box, from one thread or several. The array need not fit memory.
///
/// The data goes to a temporary file in the same folder, which [`finish`](BoxWriter::finish) renames. Until then no file appears under
/// the final name, and an earlier file of that name is replaced as a whole.
///
/// ```
/// use teatime::{ChunkedArray, StoredType, store::{BoxWriter, NpyArray, NpyWriter}};
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("x.npy");
/// let writer = NpyWriter::create(&path, StoredType::U8, &[2, 3])?;
/// writer.write_box_bytes(&[1..2, 0..3], &[4, 5, 6])?;
/// writer.write_box_bytes(&[0..1, 0..3], &[1, 2, 3])?;
/// writer.finish()?;
/// assert_eq!(NpyArray::open(&path)?.read_chunk(&[0, 0])?.bytes, [1, 2, 3, 4, 5, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NpyWriter {
    path: PathBuf,
    scratch: Scratch,
    file: File,
    dtype: StoredType,
    shape: Vec<u64>,
    /// The shape of a tile, if it is not a row.
    tile: Option<Vec<u64>>,
    /// The number of bytes of the header, and the number of elements written so far.
    start: u64,
    written: AtomicU64,
}

/// A temporary file that is removed when this is dropped, unless it has been renamed.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

impl NpyWriter {
    /// Starts a file of an array of this type and shape.
    ///
    /// # Errors
    /// [`Error::Io`], also if the disk has no space for the array.
    pub fn create(path: impl AsRef<Path>, dtype: StoredType, shape: &[u64]) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let scratch = Scratch(hidden(&path));
        let header = header(dtype, shape);
        let bytes = shape.iter().try_fold(dtype.size() as u64, |bytes, n| bytes.checked_mul(*n));
        let started = bytes.ok_or_else(|| io::ErrorKind::FileTooLarge.into()).and_then(|bytes| {
            let file = File::create(&scratch.0)?;
            file.set_len(bytes.saturating_add(header.len() as u64))?;
            write_at(&file, &header, 0)?;
            Ok(file)
        });
        let file = started.map_err(|source| Error::io(path.display(), source))?;
        let (shape, start) = (shape.to_vec(), header.len() as u64);
        Ok(Self { path, scratch, file, dtype, shape, tile: None, start, written: AtomicU64::new(0) })
    }

    /// Sets the [shape of a tile](BoxWriter::tile_shape). Any shape of at least one element will do, since a file of an array has
    /// no chunks; each run of elements takes a call of the system.
    #[must_use]
    pub fn tile(self, tile: &[u64]) -> Self {
        Self { tile: Some(tile.to_vec()), ..self }
    }
}

impl BoxWriter for NpyWriter {
    fn dtype(&self) -> Option<StoredType> {
        Some(self.dtype)
    }

    fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the shape that was [set](Self::tile), or that of a row: all elements along the last axis, one along each other axis.
    fn tile_shape(&self) -> Vec<u64> {
        if let Some(tile) = &self.tile {
            return tile.clone();
        }
        let last = self.shape.len().saturating_sub(1);
        self.shape.iter().enumerate().map(|(axis, &n)| if axis == last { n.max(1) } else { 1 }).collect()
    }

    fn write_box_bytes(&self, ranges: &[Range<u64>], elements: &[u8]) -> Result<()> {
        let extent = check_box(self, ranges, elements)?;
        let size = self.dtype.size();
        let origin: Vec<usize> = ranges.iter().map(|range| to_usize(range.start)).collect();
        let shape = in_memory(&self.shape);
        let (run, offsets) = runs(&shape, &origin, &extent);
        for (part, offset) in elements.chunks_exact((run * size).max(1)).zip(offsets) {
            let at = self.start + (offset * size) as u64;
            write_at(&self.file, part, at).map_err(|source| Error::io(self.path.display(), source))?;
        }
        self.written.fetch_add((elements.len() / size) as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Renames the file to its final name. Call this when each element has been written once.
    fn finish(self) -> Result<()> {
        let [written, elements] = [self.written.load(Ordering::Relaxed), self.shape.iter().product()];
        if written != elements {
            let why = format!("{written} of {elements} elements were written");
            return Err(Error::store(self.path.display().to_string(), why));
        }
        let named = self.file.sync_all().and_then(|()| fs::rename(&self.scratch.0, &self.path));
        named.map_err(|source| Error::io(self.path.display(), source))
    }
}

/// Returns the header, which precedes the elements; its length is a multiple of 64 bytes.
pub(super) fn header(dtype: StoredType, shape: &[u64]) -> Vec<u8> {
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    // Python writes a tuple of one element with a comma.
    let comma = if shape.len() == 1 { "," } else { "" };
    let (kind, extents) = (dtype.descr(cfg!(target_endian = "big")), extents.join(", "));
    let entries = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({extents}{comma}), }}");
    // Ten bytes precede the entries, and a line feed follows them.
    let len = (10 + entries.len() + 1).next_multiple_of(64) - 10;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    #[allow(clippy::cast_possible_truncation, reason = "four extents take less than 64 KiB")]
    header.extend((len as u16).to_le_bytes());
    header.extend(format!("{entries:<width$}\n", width = len - 1).bytes());
    header
}
