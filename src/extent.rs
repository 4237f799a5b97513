//! Extents as the host counts them.

use std::ops::Range;

/// `0..extent` in pieces of `step`.
pub(crate) fn blocks(extent: u64, step: u64) -> impl Iterator<Item = Range<u64>> {
    pieces(0..extent, step)
}

/// A range in pieces of `step`, the last of what is left.
pub(crate) fn pieces(Range { start, end }: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> {
    let starts = (0..(end - start).div_ceil(step)).map(move |i| start + i * step);
    starts.map(move |start| start..end.min(start.saturating_add(step)))
}

/// `extent` as a `usize`, or the largest `usize` where it is more, which is beyond every index and of which no allocation succeeds.
pub fn to_usize(extent: u64) -> usize {
    usize::try_from(extent).unwrap_or(usize::MAX)
}
