//! A box of an array in the host's memory, which smaller boxes are written into.

use std::{ops::Range, sync::Mutex};

use crate::{
    ChunkedArray, Result, StoredType,
    extent::to_usize,
    store::{BoxWriter, insert_block},
    waiting::lock,
};

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
}

/// Returns the chunk shape, limited to the extents of the box.
pub(super) fn chunk_tile(x: &dyn ChunkedArray, within: &[Range<u64>]) -> Vec<u64> {
    let extents = within.iter().map(|range| range.end - range.start);
    x.chunk_shape().iter().zip(extents).map(|(&chunk, extent)| chunk.min(extent)).collect()
}

fn extents(ranges: &[Range<u64>]) -> impl Iterator<Item = usize> {
    ranges.iter().map(|range| to_usize(range.end - range.start))
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

    fn write_box_bytes(&self, ranges: &[Range<u64>], elements: &[u8]) -> Result<()> {
        let mut out = lock(&self.out);
        let shape: Vec<usize> = extents(self.within).collect();
        let extent: Vec<usize> = extents(ranges).collect();
        let origin = ranges.iter().zip(self.within).map(|(range, within)| range.start - within.start);
        let size = out.len() / shape.iter().product::<usize>();
        insert_block(&mut out, &shape, &origin.map(to_usize).collect::<Vec<_>>(), elements, &extent, size);
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(())
    }
}
