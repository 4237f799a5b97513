//! A destination to which an array is written box by box.

use std::ops::Range;

use crate::{Error, Needs, Result, StoredType, extent::to_usize};

/// An array that is written box by box, from one thread or several: the writer of [Zarr](super), [`NpyWriter`](super::NpyWriter), or an
/// implementation of your own.
///
/// ```
/// use std::{ops::Range, sync::{Arc, Mutex}};
/// use teatime::{
///     ChunkedArray, Device, Result, Run, StoredType,
///     filter::{GaussianOptions, write_gaussian},
///     store::{BoxWriter, MemoryArray},
/// };
///
/// /// Gives each box to a function.
/// struct Each<F>(F);
///
/// impl<F: Fn(Range<u64>, &[u8]) + Sync> BoxWriter for Each<F> {
///     fn dtype(&self) -> Option<StoredType> {
///         Some(StoredType::F32)
///     }
///     fn shape(&self) -> &[u64] {
///         &[5]
///     }
///     fn tile_shape(&self) -> Vec<u64> {
///         vec![2]
///     }
///     fn write_box_bytes(&self, ranges: &[Range<u64>], elements: &[u8]) -> Result<()> {
///         self.0(ranges[0].clone(), elements);
///         Ok(())
///     }
///     fn finish(self) -> Result<()> {
///         Ok(())
///     }
/// }
///
/// let x: Arc<dyn ChunkedArray> = Arc::new(MemoryArray::new("x", &[0.0f32, 0.0, 9.0, 0.0, 0.0], &[5], &[5])?);
/// let written = Mutex::new(0);
/// let writer = Each(|range: Range<u64>, bytes: &[u8]| {
///     assert_eq!(bytes.len() as u64, 4 * (range.end - range.start));
///     *written.lock().unwrap() += range.end - range.start;
/// });
/// write_gaussian(&x, 1.0, &GaussianOptions::default(), &Device::cpu(), &Run::default(), |_| Ok(writer))?;
/// assert_eq!(written.into_inner().unwrap(), 5);
/// # Ok::<(), teatime::Error>(())
/// ```
pub trait BoxWriter: Sync {
    /// Returns the type of the elements; `None` for strings.
    fn dtype(&self) -> Option<StoredType>;

    /// Returns the extent of each axis.
    fn shape(&self) -> &[u64];

    /// Returns the shape of a tile, the preferred unit of writing: boxes consist of whole tiles.
    fn tile_shape(&self) -> Vec<u64>;

    /// True if a box of whole tiles, given as a range along each axis, is written already; by default it is not. May use several threads
    /// of the pool it is called on.
    ///
    /// # Errors
    /// [`Error::Argument`] for ranges that do not consist of whole tiles within the array.
    fn has_box(&self, ranges: &[Range<u64>]) -> Result<bool> {
        let _ = ranges;
        Ok(false)
    }

    /// Writes a box of whole tiles, given as a range along each axis and the bytes of its elements in C order and native byte order. May
    /// use several threads of the pool it is called on.
    ///
    /// # Errors
    /// [`Error::Argument`] for ranges that do not consist of whole tiles within the array, and for a wrong number of bytes;
    /// [`Error::Io`].
    fn write_box_bytes(&self, ranges: &[Range<u64>], elements: &[u8]) -> Result<()>;

    /// Returns the memory that is needed after the last box, for which a plan of the boxes leaves room; none by default.
    fn after(&self) -> Needs {
        Needs::default()
    }

    /// Marks the array as complete.
    ///
    /// # Errors
    /// An error that says which part is missing; [`Error::Io`].
    fn finish(self) -> Result<()>
    where
        Self: Sized;
}

/// Returns the extents of a box of whole tiles, after checking that `elements` has the box's size. Fails with [`Error::Argument`].
pub(super) fn check_box(
    writer: &impl BoxWriter,
    ranges: &[Range<u64>],
    elements: &[u8],
) -> Result<Vec<usize>> {
    check_tiles(writer.shape(), &writer.tile_shape(), ranges)?;
    let extents = ranges.iter().map(|range| to_usize(range.end - range.start));
    let (extents, dtype) = (extents.collect::<Vec<_>>(), writer.dtype());
    let size = dtype.map_or(0, StoredType::size);
    if extents.iter().fold(size, |bytes, &n| bytes.saturating_mul(n)) != elements.len() {
        let why = format!("{} bytes for {ranges:?} of {dtype:?}", elements.len());
        return Err(Error::argument("write_box", "elements", why));
    }
    Ok(extents)
}

/// Fails with [`Error::Argument`] if the ranges do not consist of whole tiles within an array of that shape.
pub(super) fn check_tiles(shape: &[u64], tile: &[u64], ranges: &[Range<u64>]) -> Result<()> {
    let is_whole = |((range, tile), extent): ((&Range<u64>, &u64), &u64)| {
        let ends = range.end == *extent || range.end < *extent && range.end.is_multiple_of(*tile);
        range.start.is_multiple_of(*tile) && ends && range.start <= range.end
    };
    if ranges.len() == shape.len() && ranges.iter().zip(tile).zip(shape).all(is_whole) {
        return Ok(());
    }
    let why = format!("{ranges:?} of {shape:?} in tiles of {tile:?}: not whole tiles");
    Err(Error::argument("write_box", "ranges", why))
}
