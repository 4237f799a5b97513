//! The boxes of a sweep, which are as large as memory allows.

use std::{ops::Range, sync::Arc};

use crate::{
    Budget, Cancel, ChunkedArray, Device, Error, Needs, Result,
    extent::to_usize,
    stream::{Along, Beyond, Convert, Plan, Selection},
};

/// The bytes for chunks beyond the minimum, so that few chunks are decoded twice.
const HELD: u64 = 128 << 20;
/// The number of copies in memory of each tile being written: the tile itself, and its encoded form.
const ENCODED: u64 = 2;
/// The maximum number of boxes that are written concurrently if each has few tiles.
const WRITERS: u64 = 8;

/// An array to be read in boxes, and the work on each box.
pub(super) struct Boxes<'a> {
    pub(super) array: &'a Arc<dyn ChunkedArray>,
    /// The part of the array that is divided into boxes.
    pub(super) within: &'a [Range<u64>],
    pub(super) convert: Arc<dyn Convert>,
    /// The shape of a tile; boxes consist of whole tiles.
    pub(super) tile: Vec<u64>,
    /// The numbers of halo elements before and after a box along an axis, and the values that stand beyond the ends of the array.
    pub(super) halo: &'a dyn Fn(usize) -> ([u64; 2], Beyond),
    /// True if no halo is needed along an axis that a box covers entirely.
    pub(super) knows_whole_axes: bool,
    /// The number of bytes of an output element; 0 if nothing is written.
    pub(super) written: u64,
    /// The target bytes of a box as read, unless its tiles are larger.
    pub(super) box_bytes: u64,
    /// The number of bytes of the widest element in any buffer that a kernel binds.
    pub(super) widest: u64,
    /// The number of boxes on the device at a time: one, or two if the next box is uploaded without waiting for the first.
    pub(super) on_device: u64,
    /// The memory that the work on a box of a given shape takes in addition to the box and its output.
    pub(super) needs: &'a dyn Fn(&[u64]) -> Needs,
    /// The memory of what comes after the last box.
    pub(super) after: Needs,
}

/// The plan of a sweep over an array.
pub(super) struct BoxPlan {
    pub(super) plan: Plan,
    /// The number of bytes of held chunks.
    pub(super) bytes: u64,
    /// The number of boxes that are written concurrently.
    pub(super) writers: u64,
    /// The number of elements of a box along each axis, without its halo.
    pub(super) size: Vec<u64>,
    /// The number of bytes of device memory that the plan takes.
    pub(super) on_device: u64,
}

impl BoxPlan {
    /// Returns the index of a box among the boxes of an area.
    pub(super) fn number(&self, area: &[Range<u64>], core: &[Range<u64>]) -> usize {
        let axes = area.iter().zip(core).zip(&self.size);
        to_usize(axes.fold(0, |number, ((area, core), size)| {
            number * (area.end - area.start).div_ceil(*size) + (core.start - area.start) / size
        }))
    }
}

/// A plan with boxes of one size.
struct Candidate {
    plan: Plan,
    /// The number of bytes of host memory that remain.
    left: u64,
    /// The number of bytes of device memory that the plan takes.
    on_device: u64,
}

impl Boxes<'_> {
    /// Plans boxes of whole tiles and the bytes for chunks. Boxes grow along the axis on which the halo is the largest part of a box, as
    /// far as memory allows. Fails with [`Error::Budget`] if boxes of one tile do not fit; [`Error::Cancelled`]; those of [`Plan::new`].
    pub(super) fn plan(&self, device: &Device, memory: &Budget, cancel: &Cancel) -> Result<BoxPlan> {
        let shape: Vec<u64> = self.within.iter().map(|range| range.end - range.start).collect();
        let within = |size: u64, axis: usize| size.min(shape[axis]).max(1);
        let mut size: Vec<u64> =
            self.tile.iter().enumerate().map(|(axis, &size)| within(size, axis)).collect();
        let mut best = self.candidate(&size, device, memory)?;
        // A box must fit in a single buffer binding.
        let read = self.convert.bytes(1);
        let most = self.box_bytes.min(device.limits().room() / self.widest.max(read) * read);
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
        let (writers, written) = match self.written {
            0 => (0, 0),
            _ => self.writers(&size, threads as u64, most - bytes),
        };
        plan.hold_shards(most - bytes - written);
        Ok(BoxPlan { plan, bytes, writers, size, on_device })
    }

    /// Returns a plan with boxes of `size`, or an error if it does not fit memory.
    fn candidate(&self, size: &[u64], device: &Device, memory: &Budget) -> Result<Candidate> {
        let along = |(axis, &size): (usize, &u64)| {
            let Range { start, end } = self.within[axis];
            let along = Along { within: [start, end], ..Along::each(size) };
            if self.knows_whole_axes && size >= self.array.shape()[axis] {
                return along;
            }
            let (halo, beyond) = (self.halo)(axis);
            Along { halo, beyond, ..along }
        };
        let along: Vec<Along> = size.iter().enumerate().map(along).collect();
        let rows = Arc::new(Selection::all(self.array.shape()[0]));
        let plan = Plan::new(vec![Arc::clone(self.array)], rows, None, Arc::clone(&self.convert), &along)?;
        let read = Needs::device(plan.block_bytes());
        let core = Needs::device(self.written) * product(size);
        let at_once = tiles(size, &self.tile).min(device.threads() as u64);
        let encoded = Needs::host(self.written) * product(&self.tile) * (at_once * ENCODED);
        // One box is read or written while another is on the device; if the device shares the host's memory, there is only one copy.
        let copies = if device.shares_host_memory() { 1 } else { 2 };
        let staged = Needs::host((read + core).device) * copies;
        let beside = (self.needs)(&plan.box_shape());
        let needs =
            staged + encoded + Needs::host(plan.largest_need()) + read * self.on_device + core + beside;
        memory.fit(device, needs.on(device).max(self.after.on(device)))?;
        let left = memory.fit(device, needs)?.left(device).host;
        Ok(Candidate { plan, left, on_device: needs.on(device).device })
    }

    /// Returns the boxes of this size that are written concurrently in `left` bytes of host memory, and the bytes that they take.
    fn writers(&self, size: &[u64], threads: u64, left: u64) -> (u64, u64) {
        let tiles = tiles(size, &self.tile);
        let core = size.iter().product::<u64>() * self.written;
        let encoded = self.tile.iter().product::<u64>() * self.written * tiles.min(threads) * ENCODED;
        let each = (core + encoded).max(1);
        let more = (threads / tiles).min(WRITERS).saturating_sub(1).min(left / each);
        (1 + more, more * each)
    }
}

/// Returns the number of bytes of chunks to hold, at most `most`: the number for which the fewest chunks are decoded twice.
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
        // Every chunk is read at least once.
        if times <= 1.0 {
            break;
        }
    }
    Ok(bytes)
}

fn product(extents: &[u64]) -> u64 {
    extents.iter().fold(1, |product: u64, n| product.saturating_mul(*n))
}

fn tiles(size: &[u64], tile: &[u64]) -> u64 {
    size.iter().zip(tile).map(|(size, tile)| size.div_ceil(*tile)).product()
}
