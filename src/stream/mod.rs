//! Passes over stored arrays in blocks of rows or in boxes with halos, decoded ahead of their use, in bounded memory.
//!
//! | for | take |
//! |---|---|
//! | an operation of your own that computes an array from another, written to Zarr, .npy or memory | [`Sweep::map`] with a [`BoxOperation`] |
//! | reductions of an array, such as sums, counts or a histogram | [`Sweep::fold`] with a [`Fold`] |
//! | products with a stored matrix | [`StoredMatrix`] |
//! | its SVD or its principal components, by the cheapest method | [`svd_stored`] |
//! | a pass under your own control | [`Plan`] and [`Blocks`] |
//!
//! A [`Sweep`] needs an array, an operation, a device and a [`Run`](crate::Run). To control a pass yourself, make a [`Plan`]: it gives
//! the arrays, concatenated along rows, the [selected](Selection) rows and elements, the [conversion](Convert) of elements, and the boxes
//! ([`Along`] for each axis). [`Blocks`] makes one pass of the plan; each [`Block`] is available as bytes on the host, or as a tensor on
//! the device.
//!
//! The unit of decoding is the storage chunk. A chunk is held from the first box that needs it to the last, so each chunk is decoded once
//! per pass, whatever the boxes are, if a bound on bytes allows it. If it does not, boxes are processed in strips, chosen so that the
//! fewest chunks are read, and chunks that several strips need are decoded for each of these strips. If boxes have halos, only the part
//! of a chunk that later boxes of the strip need is held. Blocks of rows, which are boxes of full width, come in order and never need a
//! chunk twice. Chunks are decoded on the device's host pool, in the order of their first use, as far ahead as the bound allows; the
//! thread that asks for a box waits for the box's chunks and has their rows converted into a staging slot.
//!
//! ```
//! use std::sync::Arc;
//! use teatime::{
//!     Cancel, Device, StoredType,
//!     linalg::row_stats,
//!     store::MemoryArray,
//!     stream::{AsStored, Blocks, Plan, Selection},
//! };
//!
//! // 1,000 rows of 3 bytes in chunks of 300, of which the last 500 are wanted, 64 at a time.
//! let values: Vec<u8> = (0..3000u32).map(|i| (i / 3 % 7) as u8).collect();
//! let array = Arc::new(MemoryArray::new("values", &values, &[1000, 3], &[300, 3])?);
//! let rows = Arc::new(Selection::new("example", "rows", [500..1000], 1000)?);
//! let plan = Plan::of_rows(vec![array], rows, None, Arc::new(AsStored(StoredType::U8)), 64)?;
//!
//! let device = Device::cpu();
//! // The bytes that one block needs, and enough more for every thread to decode ahead.
//! let bytes = plan.largest_need() + plan.ahead(device.pool()?.current_num_threads() as u64);
//! let mut blocks = Blocks::new(&plan, &device, 64, bytes, &Cancel::default())?;
//! let mut sum = 0.0;
//! while let Some(block) = blocks.next_block()? {
//!     let rows = block.rows();
//!     let x = block.tensor::<u8>(&[rows.end - rows.start, 3])?;
//!     sum += row_stats(&x)?.iter().map(|stats| stats.sum).sum::<f64>();
//! }
//! assert_eq!(sum, values[1500..].iter().map(|&x| f64::from(x)).sum::<f64>());
//! assert_eq!(blocks.stats.chunks, 3, "the first chunk has no row that is wanted");
//! # Ok::<(), teatime::Error>(())
//! ```
//!
//! An image in boxes of 4 x 6 pixels, each with a halo of one pixel, which is clipped at the edges of the image:
//!
//! ```
//! use std::sync::Arc;
//! use teatime::{
//!     Cancel, Device, StoredType,
//!     store::MemoryArray,
//!     stream::{Along, AsStored, Blocks, Plan, Selection},
//! };
//!
//! let pixels: Vec<u8> = (0..8 * 12).collect();
//! let image = Arc::new(MemoryArray::new("image", &pixels, &[8, 12], &[5, 5])?);
//! let along = [4, 6].map(|size| Along { halo: [1, 1], ..Along::each(size) });
//! let as_stored = Arc::new(AsStored(StoredType::U8));
//! let plan = Plan::new(vec![image], Arc::new(Selection::all(8)), None, as_stored, &along)?;
//!
//! let device = Device::cpu();
//! let bytes = plan.largest_need() + plan.ahead(device.pool()?.current_num_threads() as u64);
//! let mut blocks = Blocks::new(&plan, &device, plan.block_rows(), bytes, &Cancel::default())?;
//! let mut boxes = 0;
//! while let Some(mut block) = blocks.next_block()? {
//!     // The first pixel of the core comes after the halo before it.
//!     let first = block.before[0] * block.shape[1] + block.before[1];
//!     let [row, column] = [block.core[0].start, block.core[1].start];
//!     assert_eq!(block.bytes()[first as usize], pixels[(row * 12 + column) as usize]);
//!     // Each box is at a corner of the image and has a halo on two sides.
//!     assert_eq!(block.shape, [5, 7]);
//!     boxes += 1;
//! }
//! assert_eq!(boxes, 4);
//! # Ok::<(), teatime::Error>(())
//! ```

mod boxes;
mod chunks;
mod clock;
mod convert;
mod digest;
mod kept;
mod layout;
mod load;
mod matrix;
mod part;
mod plan;
mod planes;
mod prefetch;
mod schedule;
mod selection;
mod shards;
mod stages;
mod svd;
mod sweep;
#[cfg(test)]
mod tests;

use std::{
    mem,
    ops::Range,
    sync::Mutex,
    time::{Duration, Instant},
};

use rayon::prelude::*;

pub use self::{
    boxes::{Along, Beyond},
    convert::{AsStored, Convert, Misfit, Narrow, Narrowed},
    digest::{Digests, digest},
    matrix::StoredMatrix,
    plan::{MAX_CHUNKS, Plan},
    selection::Selection,
    svd::{Center, StoredSvd, StoredSvdOptions, SvdMethod, SvdRoute, svd_stored, svd_stored_with_checkpoint},
    sweep::{BoxOperation, Fold, Place, Sweep, Swept},
};
use self::{clock::Clock, layout::Layout, part::HeldChunk, plan::Band, prefetch::Prefetch};
pub(crate) use self::{
    load::{load, rows_to_load},
    sweep::UntypedOperation,
};
use crate::{
    Cancel, Device, Element, Error, OpenChunk, Result, Tensor, driver::Staging, extent::to_usize,
    tensor::checked_len, timeline::Stage, waiting::lock,
};

/// The time that each stage of a pass took, and the bytes that the pass moved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StreamStats {
    /// The time spent reading files, summed over threads.
    pub read: Duration,
    /// The time spent decoding chunks, summed over threads.
    pub decode: Duration,
    /// The time that the consumer waited for chunks, or for a thread to convert them.
    pub stalled: Duration,
    /// The time spent copying or packing rows into staging slots and passing the slots to the device.
    pub upload: Duration,
    /// The time spent launching work and waiting for its results, without uploads.
    pub compute: Duration,
    /// The number of bytes read from storage.
    pub stored_bytes: u64,
    /// The number of bytes after decoding.
    pub decoded_bytes: u64,
    /// The number of decoded chunks.
    pub chunks: u64,
    /// The number of these chunks that were not read, since an earlier pass [kept](Plan::keep_chunks) them.
    pub kept_chunks: u64,
    /// The maximum number of bytes of decoded chunks held at once, including their bookkeeping.
    pub peak_chunk_bytes: u64,
}

impl StreamStats {
    /// Adds the stats of another pass.
    pub fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.decode += other.decode;
        self.stalled += other.stalled;
        self.upload += other.upload;
        self.compute += other.compute;
        self.stored_bytes += other.stored_bytes;
        self.decoded_bytes += other.decoded_bytes;
        self.chunks += other.chunks;
        self.kept_chunks += other.kept_chunks;
        self.peak_chunk_bytes = self.peak_chunk_bytes.max(other.peak_chunk_bytes);
    }

    /// Adds the stats of passes that members of a [group](Device::group) made at the same time: of times that are not summed over threads, the
    /// mean.
    pub fn add_members<'a>(&mut self, members: impl Iterator<Item = &'a Self>) {
        let (mut all, mut count, mut peak) = (Self::default(), 0, 0);
        for stats in members {
            all.add(stats);
            count += 1;
            peak += stats.peak_chunk_bytes;
        }
        for time in [&mut all.stalled, &mut all.upload, &mut all.compute] {
            *time /= count.max(1);
        }
        self.add(&Self { peak_chunk_bytes: peak, ..all });
    }
}

/// The boxes of one pass, in an order for which the fewest chunks are decoded; if only one axis is divided, in ascending order.
#[derive(Debug)]
pub struct Blocks<'a> {
    plan: &'a Plan,
    device: &'a Device,
    prefetch: Prefetch<'a>,
    next: u64,
    /// The number of bytes of the largest box as staged.
    bytes: u64,
    /// The staging slots: the first is filled while the device may still read the second; and the place where the next pass finds them.
    slots: [Option<Staging>; 2],
    keep_slots: Option<&'a Slots>,
    /// The time that the upload of the last box took.
    uploaded: Duration,
    /// The stats of this pass so far; the consumer adds its own times.
    pub stats: StreamStats,
}

/// One box: its converted elements on the host.
#[derive(Debug)]
pub struct Block<'a> {
    /// The box's range of elements along each axis without the halo, as indices among the selected elements.
    pub core: Vec<Range<u64>>,
    /// The number of halo elements before the core along each axis.
    pub before: Vec<u64>,
    /// The number of elements along each axis, including the halo.
    pub shape: Vec<u64>,
    device: &'a Device,
    slot: &'a mut Staging,
    bytes: usize,
    stats: &'a mut StreamStats,
    uploaded: &'a mut Duration,
}

impl Block<'_> {
    /// Returns the rows without the halo.
    pub fn rows(&self) -> Range<u64> {
        self.core[0].clone()
    }

    /// Returns the box's converted elements as bytes, row by row. Does not wait, since they are on the host.
    pub fn bytes(&mut self) -> &[u8] {
        &self.slot.bytes_mut()[..self.bytes]
    }

    /// Uploads the box's bytes to a tensor on the device. Only enqueues the upload; work that is enqueued later sees the data.
    ///
    /// # Errors
    /// [`Error::Shape`] when elements of that shape do not have the box's number of bytes; [`Error::Limit`] and [`Error::OutOfMemory`]
    /// when the device has no memory for them.
    pub fn tensor<T: Element>(self, shape: &[u64]) -> Result<Tensor<T>> {
        const OP: &str = "Block::tensor";
        if checked_len(OP, shape)?.checked_mul(T::DTYPE.size()) != Some(self.bytes as u64) {
            let expected = format!("a shape of the box's {} bytes", self.bytes);
            return Err(Error::shape(OP, expected, format_args!("{shape:?} of {:?}", T::DTYPE)));
        }
        let started = Instant::now();
        let tensor = Tensor::from_staging(self.device, self.slot, shape);
        self.count(started);
        tensor
    }

    /// Copies the box's bytes to elements of a tensor, as [`tensor`](Self::tensor).
    fn put<T: Element>(self, tensor: &mut Tensor<T>, elements: Range<u64>) -> Result<()> {
        let started = Instant::now();
        let put = tensor.put(self.slot, elements);
        self.count(started);
        put
    }

    fn count(self, started: Instant) {
        *self.uploaded = started.elapsed();
        self.stats.upload += *self.uploaded;
    }
}

/// The rows of a box that lie in one band of chunks, with those chunks of the band that the box needs.
struct BlockPart<'a> {
    /// The range of these rows in the box.
    rows: Range<u64>,
    /// The index of the first of these rows among the selected rows.
    first: u64,
    band: &'a Band,
    layout: &'a Layout<'a>,
    chunks: Vec<HeldChunk<'a>>,
}

impl<'a> Blocks<'a> {
    /// Starts a pass in boxes of `rows` rows that holds at most `bytes` bytes of decoded chunks (or the bytes that one box needs, if
    /// these are more). With [`Plan::largest_need_of`] these rows, little is decoded ahead; [`Plan::ahead`] returns the additional bytes
    /// that keep the device's threads busy.
    ///
    /// # Errors
    /// [`Error::Argument`] for boxes without rows; [`Error::Driver`] if the system cannot start threads.
    pub fn new(plan: &'a Plan, device: &'a Device, rows: u64, bytes: u64, cancel: &Cancel) -> Result<Self> {
        Self::without(plan, device, rows, bytes, Vec::new(), cancel)
    }

    /// Starts a pass in the plan's boxes, except for those marked in `left_out`, which has a bool for each of [`Plan::boxes`]. Chunks
    /// that only left-out boxes need are not read.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn of_boxes(
        plan: &'a Plan,
        device: &'a Device,
        bytes: u64,
        left_out: Vec<bool>,
        cancel: &Cancel,
    ) -> Result<Self> {
        Self::without(plan, device, plan.block_rows(), bytes, left_out, cancel)
    }

    fn without(
        plan: &'a Plan,
        device: &'a Device,
        rows: u64,
        bytes: u64,
        left_out: Vec<bool>,
        cancel: &Cancel,
    ) -> Result<Self> {
        if rows == 0 {
            return Err(Error::argument("Blocks::new", "rows", "0, expected at least 1"));
        }
        let prefetch = Prefetch::new(plan, device, rows, bytes, left_out, cancel.clone())?;
        let bytes = plan.staged_bytes(rows);
        let (slots, uploaded, stats) = ([None, None], Duration::ZERO, StreamStats::default());
        Ok(Self { plan, device, prefetch, next: 0, bytes, slots, keep_slots: None, uploaded, stats })
    }

    /// Takes the staging slots of an earlier pass with boxes of as many bytes, on the same device, and leaves them for the next one.
    fn reuse(&mut self, slots: &'a Slots) {
        self.slots = slots.take();
        self.keep_slots = Some(slots);
    }

    /// Requests digests of the chunks that are read. Call this before the first box is requested.
    ///
    /// # Errors
    /// [`Error::Argument`] if a box was already requested: chunks read without a digest would be missing from the sums.
    pub fn digest(&mut self) -> Result<()> {
        if self.prefetch.has_started() {
            return Err(Error::argument("Blocks::digest", "self", "a box was asked for before"));
        }
        if (0..self.plan.arrays()).any(|array| self.plan.is_in_place(array)) {
            return Err(Error::argument("Blocks::digest", "self", "elements are read where they are stored"));
        }
        self.prefetch.digests = Some(Digests::new(self.plan.arrays()));
        Ok(())
    }

    /// Returns the digests of the chunks read so far, if digests were requested. They compare passes of one plan: chunks that a conversion takes in
    /// [bit planes](Convert::takes_planes) are digested in these.
    pub fn digests(&self) -> Option<&Digests> {
        self.prefetch.digests.as_ref()
    }

    /// Adds the time since `started` to [`StreamStats::compute`], without the upload of the last box.
    pub fn computed(&mut self, started: Instant) {
        self.stats.compute += started.elapsed().saturating_sub(mem::take(&mut self.uploaded));
    }

    /// Returns the average number of times that a chunk is decoded in this pass: 1 if the memory suffices for the boxes.
    pub fn times_read(&self) -> f64 {
        // The only possible error is a cancellation, and nothing cancels this flag.
        self.prefetch.schedule().times_read(self.plan, &Cancel::default()).unwrap_or_default()
    }

    /// Returns the next box, or `None` at the end.
    ///
    /// # Errors
    /// [`Error::Chunk`] for a chunk that cannot be read, and for the first element of the box that does not fit; [`Error::Cancelled`];
    /// [`Error::OutOfMemory`]. A chunk that cannot be read ends the pass: each further call returns an [`Error::Chunk`] that names this
    /// chunk.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>> {
        let schedule = self.prefetch.schedule();
        let Some((step, place)) = schedule.steps(self.next).next() else { return Ok(None) };
        let started = Instant::now();
        let plan = self.plan;
        let along = *schedule.along();
        let needs = schedule.needs(plan, place);
        let chunks: Vec<usize> = needs.chunks(plan).collect();
        let span = self.device.span(Stage::Chunks, "").item(step);
        self.prefetch.wait(step, &chunks, &mut self.stats)?;
        drop(span);
        let waited = started.elapsed();
        // On the cpu device, an upload has finished before the next box is requested.
        if !self.device.shares_host_memory() {
            self.slots.swap(0, 1);
        }
        let slot = match &mut self.slots[0] {
            Some(slot) => slot,
            slot => slot.insert(self.device.driver().staging(self.bytes)?),
        };

        let layouts: Vec<Option<Layout<'_>>> = needs
            .pieces
            .iter()
            .enumerate()
            .map(|(array, pieces)| {
                Some(Layout::new(&**plan.array(array), &**plan.convert(), pieces.as_ref()?))
            })
            .collect();
        let core = along.core(plan.rows(), place[0]);
        let (mut parts, mut height) = (Vec::new(), 0);
        for span in along.spans(plan.rows(), &core) {
            for band in plan.bands_of(&span) {
                let (chunks, band) = (needs.of_band(plan, band), &plan.bands()[band]);
                let Some(layout) = &layouts[band.array] else { continue };
                let first = span.start.max(band.rows.start);
                let rows = height..height + (span.end.min(band.rows.end) - first);
                height = rows.end;
                let chunks =
                    chunks.into_iter().filter_map(|chunk| self.prefetch.chunk(step, chunk)).collect();
                parts.push(BlockPart { rows, first, band, layout, chunks });
            }
        }
        let elements = layouts.iter().flatten().map(Layout::elements).next().unwrap_or(0);
        let width = to_usize(plan.convert().bytes(elements));
        let bytes = to_usize(height) * width;
        let fill = |room: &mut Vec<u8>, (row, out): (usize, &mut [u8])| {
            let part = &parts[parts.partition_point(|part| part.rows.end <= row as u64)];
            part.fill(plan, row as u64, out, room)
        };
        let span = self.device.span(Stage::Slot, "").item(step);
        let (out, width) = (&mut slot.bytes_mut()[..bytes], width.max(1));
        drop(span);
        let mut span = self.device.span(Stage::Convert, "").bytes(bytes as u64).item(step);
        let clock = Clock::new();
        let part = || (clock.part(), Vec::new());
        let fill_part = |(_, room): &mut (_, Vec<u8>), row: (usize, &mut [u8])| fill(room, row);
        let rows = out.par_chunks_mut(width).enumerate();
        let filled = self.device.pool()?.install(|| rows.try_for_each_init(part, fill_part));
        // The threads of the pool may have been reading.
        let (_, idle) = clock.took();
        span.split(Stage::Chunks, "", idle, 0);
        let open = parts.iter().flat_map(|part| part.chunks.iter().filter_map(|chunk| chunk.open));
        let read: Duration = open.map(OpenChunk::take_read).sum();
        let threads = self.device.pool()?.current_num_threads().clamp(1, to_usize(height).max(1));
        let reading = read / u32::try_from(threads).unwrap_or(u32::MAX);
        span.split(Stage::Fetch, "", reading, 0);
        drop(span);
        if filled.is_err() {
            // This finds the first error in the order of rows, whichever error a thread met first.
            let mut room = Vec::new();
            out.chunks_mut(width).enumerate().try_for_each(|row| fill(&mut room, row))?;
        }
        drop(parts);
        self.stats.read += read;
        self.stats.stalled += waited + idle + reading;
        self.stats.upload += started.elapsed().saturating_sub(waited + idle + reading);
        self.uploaded = Duration::ZERO;
        self.next = step + 1;
        self.prefetch.release(step, &chunks);
        let axes = plan.array(0).shape().len();
        let cores = (1..axes).map(|axis| plan.along(axis).core(plan.extent(axis), place[axis]));
        let core: Vec<Range<u64>> = std::iter::once(core).chain(cores).collect();
        let halos = core.iter().enumerate().map(|(axis, core)| {
            let along = if axis == 0 { &along } else { plan.along(axis) };
            (along.halo(plan.extent(axis), core), core.end - core.start)
        });
        let halos: Vec<([u64; 2], u64)> = halos.collect();
        Ok(Some(Block {
            before: halos.iter().map(|([before, _], _)| *before).collect(),
            shape: halos.iter().map(|([before, after], len)| before + len + after).collect(),
            core,
            device: self.device,
            slot,
            bytes,
            stats: &mut self.stats,
            uploaded: &mut self.uploaded,
        }))
    }
}

impl Drop for Blocks<'_> {
    fn drop(&mut self) {
        if let Some(slots) = self.keep_slots {
            *lock(&slots.0) = mem::take(&mut self.slots);
        }
    }
}

/// Staging slots that are kept between passes, since new memory would take longer than a copy to it.
#[derive(Debug, Default)]
struct Slots(Mutex<[Option<Staging>; 2]>);

impl Slots {
    fn take(&self) -> [Option<Staging>; 2] {
        mem::take(&mut *lock(&self.0))
    }

    fn clear(&self) {
        drop(self.take());
    }
}

impl BlockPart<'_> {
    /// Fills a row of the box.
    fn fill(&self, plan: &Plan, row: u64, out: &mut [u8], room: &mut Vec<u8>) -> Result<()> {
        // Errors give the row's index in the stored arrays.
        let row = plan.row(self.first + (row - self.rows.start));
        let filled = self.layout.convert_row(&self.chunks, [row, self.band.first], out, room);
        filled.map_err(|(element, Misfit { why, hint, .. })| {
            let array = plan.array(self.band.array);
            let (element, across) = self.layout.find(element);
            let mut index = vec![self.band.chunk_row];
            index.extend(&across[..array.shape().len() - 1]);
            let place = plan.convert().place(row, element);
            Error::chunk(array.name(), &index, format_args!("{place}: {why}")).hinting(hint)
        })
    }
}
