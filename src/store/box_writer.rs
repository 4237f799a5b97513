//! What an array is written to, box by box.

use std::ops::Range;

use crate::{Error, Result, StoredType, extent::to_usize};

/// An array that is written box by box, from one thread or several: [`ArrayWriter`](super::ArrayWriter), [`NpyWriter`](super::NpyWriter), or a place of
/// your own.
pub trait BoxWriter: Sync {
    /// Type of its elements; none for strings.
    fn dtype(&self) -> Option<StoredType>;

    /// Extent of each axis.
    fn shape(&self) -> &[u64];

    /// Extent along each axis of what is best written at once: boxes are of whole tiles.
    fn tile_shape(&self) -> Vec<u64>;

    /// Whether a range along each axis, of whole tiles, is written already.
    ///
    /// # Errors
    /// [`Error::Argument`] for ranges that are not of whole tiles within the array.
    fn has_box(&self, ranges: &[Range<u64>]) -> Result<bool>;

    /// Writes a range along each axis, of whole tiles: the bytes of its elements in C order, as the host has them. May run on several
    /// threads of the pool it is called on.
    ///
    /// # Errors
    /// [`Error::Argument`] for ranges that are not of whole tiles within the array, and for bytes of other elements; [`Error::Io`].
    fn write_box_bytes(&self, ranges: &[Range<u64>], elements: &[u8]) -> Result<()>;

    /// Says that the array is complete.
    ///
    /// # Errors
    /// What is missing; [`Error::Io`].
    fn finish(self) -> Result<()>
    where
        Self: Sized;
}

/// The extents of a box of whole tiles, of which these are the elements.
///
/// # Errors
/// [`Error::Argument`].
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

/// # Errors
/// [`Error::Argument`] unless ranges are of whole tiles within an array of that shape.
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
