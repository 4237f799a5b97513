//! The boxes of a sweep, as large as memory allows.

use std::{ops::Range, sync::Arc};

use crate::{
    Budget, Cancel, ChunkedArray, Device, Error, Needs, Result,
    extent::to_usize,
    stream::{Along, Convert, Edge, Plan, Selection},
};

/// Bytes of a box as it is read, if its tiles are not larger: enough that halos are a small part of it.
const BOX: u64 = 32 << 20;
/// Bytes of chunks beyond the least, so that few are decoded twice.
const HELD: u64 = 128 << 20;
/// Tiles in memory for each that is written: a copy of its own, and encoded.
const ENCODED: u64 = 2;
/// The maximum number of boxes that are written at once, where each is of few tiles.
const WRITERS: u64 = 8;

/// An array that is read in boxes, and what becomes of a box.
pub(super) struct Boxes<'a> {
    pub(super) array: &'a Arc<dyn ChunkedArray>,
    /// The part of the array that boxes lie in.
    pub(super) within: &'a [Range<u64>],
    pub(super) convert: Arc<dyn Convert>,
    /// Boxes are of whole tiles of this shape.
    pub(super) tile: Vec<u64>,
    /// The halo along an axis, and what it has beyond the ends.
    pub(super) halo: &'a dyn Fn(usize) -> ([u64; 2], Edge),
    /// True where no halo is needed along an axis that a box holds whole.
    pub(super) knows_whole_axes: bool,
    /// Bytes of an element of the output; 0 where nothing is written.
    pub(super) written: u64,
    /// Bytes of the widest element that is bound to a kernel.
    pub(super) widest: u64,
    /// The number of boxes that the device has at once: one, or two where nobody waits for the first.
    pub(super) on_device: u64,
    /// Bytes that work with a box of a shape takes beside the box and its output.
    pub(super) needs: &'a dyn Fn(&[u64]) -> Needs,
}

/// The plan by which an array is swept.
pub(super) struct BoxPlan {
    pub(super) plan: Plan,
    /// Bytes of the chunks that are held.
    pub(super) bytes: u64,
    /// The number of boxes that are written at once.
    pub(super) writers: u64,
    /// Elements of a box along each axis, without its halo.
    pub(super) size: Vec<u64>,
    /// Bytes of the device's memory that it takes.
    pub(super) on_device: u64,
}

impl BoxPlan {
    /// The number of a box among those of an area.
    pub(super) fn number(&self, area: &[Range<u64>], core: &[Range<u64>]) -> usize {
        let axes = area.iter().zip(core).zip(&self.size);
        to_usize(axes.fold(0, |number, ((area, core), size)| {
            number * (area.end - area.start).div_ceil(*size) + (core.start - area.start) / size
        }))
    }
}

/// A plan of boxes of one size.
struct Candidate {
    plan: Plan,
    /// Bytes of the host's memory that it leaves.
    left: u64,
    /// Bytes of the device's memory that it takes.
    on_device: u64,
}

impl Boxes<'_> {
    /// Boxes of whole tiles, and bytes for chunks: boxes grow along the axis of which the halo is the largest part, as far as memory
    /// allows.
    ///
    /// # Errors
    /// [`Error::Budget`] for boxes of one tile; [`Error::Cancelled`]; as [`Plan::new`].
    pub(super) fn plan(&self, device: &Device, memory: &Budget, cancel: &Cancel) -> Result<BoxPlan> {
        let shape: Vec<u64> = self.within.iter().map(|range| range.end - range.start).collect();
        let within = |size: u64, axis: usize| size.min(shape[axis]).max(1);
        let mut size: Vec<u64> =
            self.tile.iter().enumerate().map(|(axis, &size)| within(size, axis)).collect();
        let mut best = self.candidate(&size, device, memory)?;
        // A box fits a binding.
        let read = self.convert.bytes(1);
        let most = BOX.min(device.limits().room() / self.widest.max(read) * read);
        let mut can_grow: Vec<bool> = size.iter().zip(&shape).map(|(size, extent)| size < extent).collect();
        loop {
            cancel.check()?;
            let halo = |axis: usize| {
                let ([before, after], _) = (self.halo)(axis);
                before.max(after) as f64 / size[axis] as f64
            };
            let candidates = (0..shape.len()).filter(|&axis| can_grow[axis]);
            let Some(axis) = candidates.max_by(|&a, &b| halo(a).total_cmp(&halo(b))) else { break };
            let mut wider = size.clone();
            let more = (size[axis] / 2).next_multiple_of(self.tile[axis]).max(self.tile[axis]);
            wider[axis] = within(size[axis].saturating_add(more), axis);
            match self.candidate(&wider, device, memory) {
                Ok(candidate) if candidate.plan.block_bytes() <= most => {
                    can_grow[axis] = wider[axis] < shape[axis];
                    (best, size) = (candidate, wider);
                }
                Ok(_) | Err(Error::Budget { .. }) => can_grow[axis] = false,
                Err(error) => return Err(error),
            }
        }
        let Candidate { plan, left, on_device } = best;
        let threads = device.threads();
        let most = plan.largest_need().saturating_add(left);
        let bytes = chunk_bytes(&plan, threads, most, cancel)?;
        let writers = if self.written == 0 { 0 } else { self.writers(&size, threads as u64, most - bytes) };
        Ok(BoxPlan { plan, bytes, writers, size, on_device })
    }

    /// A plan of boxes of a size, which memory holds.
    fn candidate(&self, size: &[u64], device: &Device, memory: &Budget) -> Result<Candidate> {
        let along = |(axis, &size): (usize, &u64)| {
            let Range { start, end } = self.within[axis];
            let along = Along { within: [start, end], ..Along::each(size) };
            if self.knows_whole_axes && size >= self.array.shape()[axis] {
                return along;
            }
            let (halo, edge) = (self.halo)(axis);
            Along { halo, edge, ..along }
        };
        let along: Vec<Along> = size.iter().enumerate().map(along).collect();
        let rows = Arc::new(Selection::all(self.array.shape()[0]));
        let plan = Plan::new(vec![Arc::clone(self.array)], rows, None, Arc::clone(&self.convert), &along)?;
        let read = Needs::device(plan.block_bytes());
        let core = Needs::device(self.written) * product(size);
        let at_once = tiles(size, &self.tile).min(device.threads() as u64);
        let encoded = Needs::host(self.written) * product(&self.tile) * (at_once * ENCODED);
        // One box is read or written while there is another on the device: where that is the host, nothing is twice.
        let copies = if device.shares_host_memory() { 1 } else { 2 };
        let staged = Needs::host((read + core).device) * copies;
        let beside = (self.needs)(&plan.box_shape());
        let needs =
            staged + encoded + Needs::host(plan.largest_need()) + read * self.on_device + core + beside;
        let left = memory.fit(device, needs)?.left(device).host;
        Ok(Candidate { plan, left, on_device: needs.on(device).device })
    }

    /// The number of boxes of a size that are written at once, in so much memory of the host.
    fn writers(&self, size: &[u64], threads: u64, left: u64) -> u64 {
        let tiles = tiles(size, &self.tile);
        let core = size.iter().product::<u64>() * self.written;
        let encoded = self.tile.iter().product::<u64>() * self.written * tiles.min(threads) * ENCODED;
        let more = (threads / tiles).min(WRITERS).saturating_sub(1);
        1 + more.min(left / (core + encoded).max(1))
    }
}

/// Bytes of chunks to hold, at most `most`: those with which the fewest chunks are decoded twice.
fn chunk_bytes(plan: &Plan, threads: usize, most: u64, cancel: &Cancel) -> Result<u64> {
    let ahead = plan.largest_need().saturating_add(plan.ahead(threads as u64));
    let mut more = [0, HELD / 4, HELD / 2, HELD].map(|more| ahead.saturating_add(more).min(most)).to_vec();
    more.dedup();
    if let [only] = &more[..] {
        return Ok(*only);
    }
    let (mut bytes, mut fewest) = (most, f64::INFINITY);
    for more in more {
        let times = plan.times_read(threads, more, cancel)?;
        if times < fewest {
            (fewest, bytes) = (times, more);
        }
        // None is read fewer times than once.
        if times <= 1.0 {
            break;
        }
    }
    Ok(bytes)
}

fn product(extents: &[u64]) -> u64 {
    extents.iter().fold(1, |product: u64, n| product.saturating_mul(*n))
}

/// Tiles of a box.
fn tiles(size: &[u64], tile: &[u64]) -> u64 {
    size.iter().zip(tile).map(|(size, tile)| size.div_ceil(*tile)).product()
}
