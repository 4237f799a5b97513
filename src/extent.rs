//! Extents, divided into blocks and converted for the host.

use std::ops::Range;

/// Divides `0..extent` into pieces of `step`.
pub(crate) fn blocks(extent: u64, step: u64) -> impl Iterator<Item = Range<u64>> {
    pieces(0..extent, step)
}

/// Divides a range into pieces of `step`; the last piece is the remainder.
pub(crate) fn pieces(Range { start, end }: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> {
    let starts = (0..(end - start).div_ceil(step)).map(move |i| start + i * step);
    starts.map(move |start| start..end.min(start.saturating_add(step)))
}

/// Returns `extent` as a `usize`, or the largest `usize` if it is more, which exceeds every index and fails in every allocation.
pub fn to_usize(extent: u64) -> usize {
    usize::try_from(extent).unwrap_or(usize::MAX)
}

/// Returns the index along each axis of `shape` for the element at position `place` in C order.
pub(crate) fn index_at(place: u64, shape: &[u64]) -> Vec<u64> {
    let (mut index, mut left) = (vec![0; shape.len()], place);
    for (at, extent) in index.iter_mut().zip(shape).rev() {
        (*at, left) = (left % extent, left / extent);
    }
    index
}
