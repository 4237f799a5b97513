//! A box of an array in the host's memory, which smaller boxes are written into.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use crate::{ChunkedArray, Result, StoredType, extent::to_usize, store::BoxWriter};

/// The memory for the elements of a box, in C order.
pub(super) struct HostBox<'a> {
    shape: &'a [u64],
    within: &'a [Range<u64>],
    tile: Vec<u64>,
    out: Mutex<&'a mut [u8]>,
}

impl<'a> HostBox<'a> {
    /// Makes the box `within` of an array shaped like `x`, with tiles of the shape of its chunks.
    pub(super) fn new(x: &'a dyn ChunkedArray, within: &'a [Range<u64>], out: &'a mut [u8]) -> Self {
        Self { shape: x.shape(), within, tile: chunk_tile(x, within), out: Mutex::new(out) }
    }

    /// Returns the index of the first element of each line of the box `ranges`.
    fn lines(&self, ranges: &[Range<u64>]) -> impl Iterator<Item = u64> {
        let last = ranges.len() - 1;
        let count = ranges[..last].iter().map(|range| range.end - range.start).product();
        let axes: Vec<[u64; 3]> = ranges
            .iter()
            .zip(self.within)
            .map(|(range, within)| {
                [range.start - within.start, range.end - range.start, within.end - within.start]
            })
            .collect();
        (0..count).map(move |line: u64| {
            let (mut left, mut place, mut stride) = (line, axes[last][0], axes[last][2]);
            for &[start, len, extent] in axes[..last].iter().rev() {
                place += (start + left % len) * stride;
                left /= len;
                stride *= extent;
            }
            place
        })
    }
}

/// Returns the chunk shape, limited to the extents of the box.
pub(super) fn chunk_tile(x: &dyn ChunkedArray, within: &[Range<u64>]) -> Vec<u64> {
    let extents = within.iter().map(|range| range.end - range.start);
    x.chunk_shape().iter().zip(extents).map(|(&chunk, extent)| chunk.min(extent)).collect()
}

impl BoxWriter for HostBox<'_> {
    fn dtype(&self) -> Option<StoredType> {
        None
    }

    fn shape(&self) -> &[u64] {
        self.shape
    }

    fn tile_shape(&self) -> Vec<u64> {
        self.tile.clone()
    }

    fn has_box(&self, _ranges: &[Range<u64>]) -> Result<bool> {
        Ok(false)
    }

    fn write_box_bytes(&self, ranges: &[Range<u64>], elements: &[u8]) -> Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let count: u64 = self.within.iter().map(|range| range.end - range.start).product();
        let size = out.len() / to_usize(count);
        let line = ranges.last().map_or(1, |range| to_usize(range.end - range.start)) * size;
        for (place, line) in self.lines(ranges).zip(elements.chunks_exact(line)) {
            out[to_usize(place) * size..][..line.len()].copy_from_slice(line);
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(())
    }
}
