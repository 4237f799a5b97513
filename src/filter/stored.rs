//! Gaussians of stored arrays, box by box: neither the array nor the result has to fit memory.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Instant,
};

use super::{
    axis::BoxAxis,
    boxes::Filter,
    gaussian::{gaussian_of, image_scale},
    host_box::HostBox,
    options::{GaussianOptions, PerAxis},
};
use crate::{
    Budget, ChunkedArray, DType, Device, Element, Error, Needs, Result, Run, SharedArray, Status, StoredType,
    driver::HostBytes,
    dtype::with_dtype,
    extent::to_usize,
    kernels::correlate::Edge as Beyond,
    stable_text::StableText,
    store::BoxWriter,
    stream::{
        Along, AsStored, Block, Blocks, Convert, Edge, Misfit, Narrow, Narrowed, Plan, Selection, StreamStats,
    },
    untyped::{Untyped, empty_of},
};

const OP: &str = "gaussian";
/// Bytes of a box as it is read, if its tiles are not larger: enough that halos are a small part of it.
const BOX: u64 = 32 << 20;
/// Bytes of chunks beyond the least, so that few are decoded twice.
const HELD: u64 = 128 << 20;
/// Tiles in memory for each that is written: a copy of its own, and encoded.
const ENCODED: u64 = 2;
/// Most boxes that are written at once, where each is of few tiles.
const WRITERS: u64 = 8;

/// The numbers of boxes that were filtered, and the memory and time that it took.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WrittenFilter {
    /// Boxes that were filtered.
    pub boxes: u64,
    /// Boxes that were there already.
    pub found: u64,
    /// Elements that were read, halos among them, for each that was filtered.
    pub times_covered: f64,
    /// The number of times that a chunk was decoded, on average.
    pub times_decoded: f64,
    /// The memory that the plan was made with, defaults in place; of the device none where it shares the host's.
    pub memory: Budget,
    /// The time that each step took.
    pub stats: StreamStats,
}

/// Writes the [`gaussian`](super::gaussian()) of a stored array into another one, box by box, and finishes it. Waits.
///
/// The values are those of the whole array, to the last bit, whatever the boxes are. `begin` makes the array, or goes on with it
/// (`ArrayWriter::resume`, of [Zarr](crate::store)): it is given all that the values depend on besides the elements of `x`, for the words of its job. Boxes that are there
/// are not made again. Progress counts elements.
///
/// # Shapes and types
/// `x`: one to five axes; the array that `begin` makes has the same shape, and is of f32, f64 or the type of `x`. Booleans are
/// numbers 0 and 1 of one byte, also as images ([`GaussianOptions::preserve_range`]); integers of 64 bits are filtered as f64, and the
/// array is of f32 or f64.
///
/// # Errors
/// As [`gaussian`](super::gaussian()), and what `begin` gives; [`Error::Shape`] for an array of another shape; [`Error::Argument`] for one of
/// another type, and for a halo that wraps an axis more than 1024 times; [`Error::Chunk`] for a chunk that cannot be read, and for integers that sums would change: above 2^53 - 1, or 2^24 in f32;
/// [`Error::Budget`] with the least that would do, for boxes of one tile; [`Error::Io`] for a tile that cannot be written, as where the
/// disk is full, which ends the pass; [`Error::Cancelled`]. What was written stays.
///
/// # Cost
/// One pass, in which elements within the radius of a box's sides are read and filtered for both: boxes are of whole tiles, as many as make
/// 32 MiB if memory allows. On the host two boxes as they are read, two or more as they are written, and of chunks what boxes still need;
/// on the device a box and what [`gaussian`](super::gaussian()) takes for it. Boxes come in strips for which memory holds that, so it does
/// not grow with the array; chunks that several strips need are decoded for each of them, and strips are as wide as memory allows.
///
/// ```
/// # #[cfg(feature = "zarr")] {
/// use std::sync::Arc;
/// use teatime::{
///     ChunkedArray, Device, MissingChunk, Run, StoredType,
///     filter::{GaussianOptions, write_gaussian},
///     store::{ArraySpec, ArrayWriter, Folder, MemoryArray, ZarrArray},
/// };
///
/// let x = Arc::new(MemoryArray::new("image", &[0u8, 0, 9, 0, 0, 0], &[2, 3], &[1, 2])?);
/// # let folder = tempfile::tempdir()?;
/// let storage = Arc::new(Folder::new(folder.path()));
/// let begin = |job: &str| {
///     let mut spec = ArraySpec::new(StoredType::F32, &[2, 3], &[2, 2]);
///     spec.job = Some(job.to_owned());
///     ArrayWriter::resume(storage, "blurred", spec)
/// };
/// let options = GaussianOptions::default().radius(1);
/// let written = write_gaussian(&x, [0.0, 1.0], &options, &Device::cpu(), &Run::default(), begin)?;
/// assert_eq!((written.boxes, written.times_decoded), (1, 1.0));
/// let blurred = ZarrArray::open(folder.path(), "blurred", MissingChunk::Error)?;
/// let first: Vec<f32> = teatime::bytemuck::pod_collect_to_vec(&blurred.read_chunk(&[0, 0])?.bytes);
/// assert!(first[0] == 0.0 && (first[1] - 9.0 * 0.27407).abs() < 1e-4);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_gaussian<W: BoxWriter>(
    x: &impl SharedArray,
    sigma: impl Into<PerAxis<f64>>,
    options: &GaussianOptions,
    device: &Device,
    run: &Run,
    begin: impl FnOnce(&str) -> Result<W>,
) -> Result<WrittenFilter> {
    let (x, sigma) = (&x.shared(), sigma.into());
    let job = job(x.shape(), x.dtype(), &sigma, options, &device.info().name);
    let (staged, convert) = staged(x.dtype(), !options.narrow && device.limits().f64);
    let filter = |of| gaussian_of(OP, x.shape(), of, scale(x.dtype()), (&sigma, options), Some(&run.cancel));
    // Before there is an array.
    filter(DType::F32)?;
    let writer = begin(&job)?;
    if writer.shape() != x.shape() {
        let expected = format!("an array of shape {:?}", x.shape());
        return Err(Error::shape(OP, expected, format_args!("{:?}", writer.shape())));
    }
    let Some(of) = out_type(writer.dtype(), staged) else {
        let (of, from) = (writer.dtype(), x.dtype());
        let why =
            format_args!("an array of {of:?} for one of {from:?}; F32, F64 and its own type are possible");
        return Err(Error::argument(OP, "writer", why));
    };
    let within = x.shape().iter().map(|&extent| 0..extent).collect();
    Work { x, within, convert, types: [staged, of], device, run, writer }.write(&filter(of)?)
}

/// The words of the job of an array of this shape and type.
fn job(
    shape: &[u64],
    dtype: StoredType,
    sigma: &PerAxis<f64>,
    options: &GaussianOptions,
    device: &str,
) -> String {
    let [dtype, sigma, options] = [dtype.stable_text(), sigma.stable_text(), options.stable_text()];
    format!("{shape:?} {dtype} {sigma} {options} {device}")
}

/// A box of the [`gaussian`](super::gaussian()) of a stored array: its elements, in C order. Waits.
///
/// The values are those of the whole array, to the last bit. With it others write or pass on what [`write_gaussian`] would write: the tasks
/// of a cluster, or a viewer. Progress counts elements.
///
/// # Shapes and types
/// `x`: one to five axes; `within`: a range along each. Types are as of [`write_gaussian`].
///
/// # Errors
/// As [`gaussian`](super::gaussian()) and [`write_gaussian`]; [`Error::Argument`] for another number of ranges, and for one that `x` does not
/// have; [`Error::OutOfHostMemory`].
///
/// # Cost
/// That of [`write_gaussian`] for the chunks that hold the box and what lies within the radius around it; on the host the result
/// besides.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, filter::{GaussianOptions, gaussian_box}, store::MemoryArray};
///
/// let x = Arc::new(MemoryArray::new("image", &[0u8, 0, 9, 0, 0, 0], &[2, 3], &[1, 2])?);
/// let (options, run) = (GaussianOptions::default().radius(1), Run::default());
/// let blurred: Vec<f32> = gaussian_box(&x, [0.0, 1.0], &options, &[0..1, 1..3], &Device::cpu(), &run)?;
/// assert!((blurred[0] - 9.0 * 0.27407).abs() < 1e-4 && (blurred[1] - 9.0 * 0.72593).abs() < 1e-4);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn gaussian_box<U: Element>(
    x: &impl SharedArray,
    sigma: impl Into<PerAxis<f64>>,
    options: &GaussianOptions,
    within: &[Range<u64>],
    device: &Device,
    run: &Run,
) -> Result<Vec<U>> {
    let x = &x.shared();
    let (staged, convert) = staged(x.dtype(), !options.narrow && device.limits().f64);
    let types = [staged, U::DTYPE];
    let filter =
        gaussian_of(OP, x.shape(), U::DTYPE, scale(x.dtype()), (&sigma.into(), options), Some(&run.cancel))?;
    filter.check_type(types)?;
    let is_there = |(range, extent): (&Range<u64>, &u64)| range.start <= range.end && range.end <= *extent;
    if within.len() != x.shape().len() || !within.iter().zip(x.shape()).all(is_there) {
        let why = format_args!("{within:?} of an array of shape {:?}", x.shape());
        return Err(Error::argument(OP, "within", why));
    }
    let len = within.iter().fold(1, |len: u64, range| len.saturating_mul(range.end - range.start));
    let lacking =
        |()| Error::OutOfHostMemory { what: "a box".into(), requested: len.saturating_mul(U::DTYPE.size()) };
    let mut out = bytemuck::try_zeroed_vec(to_usize(len)).map_err(lacking)?;
    if len > 0 {
        let writer = HostBox::new(&**x, within, bytemuck::cast_slice_mut(&mut out));
        Work { x, within: within.to_vec(), convert, types, device, run, writer }.write(&filter)?;
    }
    Ok(out)
}

/// The type that elements are read as: as they are stored where that can be, else as f64, or as f32 unless sums may be `wide`. Integers that sums would
/// change are refused.
fn staged(dtype: StoredType, wide: bool) -> (DType, Arc<dyn Convert>) {
    let to = if wide { Narrowed::F64 } else { Narrowed::F32 };
    let range = [-to.whole(), to.whole()];
    let whole = Narrow { to, range, negative_is_missing: false, nan_is_missing: false };
    match if dtype == StoredType::Bool { Some(DType::U8) } else { dtype.element() } {
        Some(staged @ (DType::I32 | DType::U32)) if !wide => (staged, Arc::new(Checked(dtype, whole))),
        Some(staged) => (staged, Arc::new(AsStored(dtype))),
        None if wide => (DType::F64, Arc::new(whole)),
        None => (DType::F32, Arc::new(whole)),
    }
}

/// Integers of 32 bits as they are stored, if they are f32 too.
#[derive(Debug)]
struct Checked(StoredType, Narrow);

impl Convert for Checked {
    fn accepts(&self, array: &dyn ChunkedArray) -> Result<()> {
        AsStored(self.0).accepts(array)
    }

    fn bytes(&self, elements: u64) -> u64 {
        AsStored(self.0).bytes(elements)
    }

    fn convert(&self, array: &dyn ChunkedArray, from: &[u8], to: &mut [u8]) -> Result<(), Misfit> {
        // It writes as many bytes, which are overwritten.
        self.1.convert(array, from, to)?;
        AsStored(self.0).convert(array, from, to)
    }
}

/// The factor of elements in skimage, if it has one: booleans are 0 and 1 of an image.
fn scale(dtype: StoredType) -> Option<f64> {
    match dtype {
        StoredType::Bool => Some(1.0),
        StoredType::I64 => Some((i64::MAX as f64).recip()),
        StoredType::U64 => Some((u64::MAX as f64).recip()),
        _ => dtype.element().and_then(image_scale),
    }
}

/// The type of the elements of an array that is written.
fn out_type(dtype: Option<StoredType>, read: DType) -> Option<DType> {
    dtype?.element().filter(|of| [read, DType::F32, DType::F64].contains(of))
}

/// One call.
struct Work<'a, W> {
    x: &'a Arc<dyn ChunkedArray>,
    /// The part of the array that is filtered.
    within: Vec<Range<u64>>,
    convert: Arc<dyn Convert>,
    /// The types of the elements as they are read, and as they are written.
    types: [DType; 2],
    device: &'a Device,
    run: &'a Run,
    writer: W,
}

/// The outputs that a box has along each axis, and their elements.
type Filtered = (Vec<Range<u64>>, HostBytes);

/// The plan by which an array is filtered box by box.
struct BoxPlan {
    plan: Plan,
    /// Bytes of the chunks that are held.
    bytes: u64,
    /// The number of boxes that are written at once.
    writers: u64,
}

/// Bytes of an element that is read, in sums and that is written.
#[derive(Clone, Copy)]
struct Sizes {
    read: u64,
    real: u64,
    written: u64,
}

impl<W: BoxWriter> Work<'_, W> {
    fn write(self, filter: &Filter) -> Result<WrittenFilter> {
        let wide = filter.is_wide(self.types);
        if wide {
            self.device.computes_f64(OP)?;
        }
        if self.extents().contains(&0) {
            self.writer.finish()?;
            let (memory, stats) = (self.run.memory.planned(self.device), StreamStats::default());
            return Ok(WrittenFilter {
                boxes: 0,
                found: 0,
                times_covered: 0.0,
                times_decoded: 0.0,
                memory,
                stats,
            });
        }
        let [read, written] = self.types.map(DType::size);
        let sizes = Sizes { read, real: if wide { 8 } else { 4 }, written };
        let BoxPlan { plan, bytes, writers } = self.boxes(filter, sizes)?;
        let is_there = |core: Vec<Range<u64>>| {
            self.run.cancel.check()?;
            self.writer.has_box(&core)
        };
        // To know that a box is there takes reading it.
        let left_out =
            self.device.pool()?.install(|| plan.boxes().map(is_there).collect::<Result<Vec<bool>>>())?;
        let found = left_out.iter().filter(|left_out| **left_out).count() as u64;
        let elements =
            |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).product::<u64>();
        let wanted =
            plan.boxes().zip(&left_out).filter(|(_, left_out)| !**left_out).map(|(core, _)| elements(&core));
        let mut status = Status::new(0, 1, wanted.sum());
        let mut blocks = Blocks::of_boxes(&plan, self.device, bytes, left_out, &self.run.cancel)?;
        let (mut boxes, mut covered, mut stats) = (0, 0, StreamStats::default());
        let (send, receive) = mpsc::sync_channel::<Filtered>(0);
        let failed = AtomicBool::new(false);
        // Gone with the last of the threads, so that a box that nobody takes is known.
        let receive = Arc::new(Mutex::new(receive));
        thread::scope(|scope| {
            let start = |_| {
                let boxes = Arc::clone(&receive);
                let put = || self.put_all(boxes).inspect_err(|_| failed.store(true, Ordering::Relaxed));
                thread::Builder::new().name("teatime-write".into()).spawn_scoped(scope, put)
            };
            let writing = (0..writers).map(start).collect::<std::io::Result<Vec<_>>>();
            drop(receive);
            let writing =
                writing.map_err(|source| Error::Driver { backend: "cpu", source: source.into() })?;
            let mut each = || -> Result<()> {
                self.run.progress.tell(status);
                while let Some(block) = blocks.next_block()? {
                    self.run.cancel.check()?;
                    let started = Instant::now();
                    let (core, shape) = (block.core.clone(), block.shape.clone());
                    let of_box = filter.of_box(&shape, &core, &block.before);
                    let extents: Vec<u64> = core.iter().map(|range| range.end - range.start).collect();
                    let mut out = empty_of(self.types[1], self.device, &extents)?;
                    of_box.run(&*self.tensor(block)?, &mut *out)?;
                    let len = out.len();
                    let values = out.into_bytes()?;
                    stats.compute += started.elapsed();
                    (boxes, covered) = (boxes + 1, covered + shape.iter().product::<u64>());
                    status.rows += len;
                    // An error of writing is told below. Other threads may be at work still.
                    if send.send((core, values)).is_err() || failed.load(Ordering::Relaxed) {
                        break;
                    }
                    self.run.progress.tell(status);
                }
                Ok(())
            };
            let read = each();
            drop(send);
            let joined = writing
                .into_iter()
                .map(|writing| writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            joined.fold(Ok(()), Result::and).and(read)
        })?;
        stats.add(&blocks.stats);
        let times_decoded = blocks.times_read();
        drop(blocks);
        self.writer.finish()?;
        Ok(WrittenFilter {
            boxes,
            found,
            times_covered: covered as f64 / status.rows.max(1) as f64,
            times_decoded,
            memory: self.run.memory.planned(self.device),
            stats,
        })
    }

    /// Writes boxes as they come.
    fn put_all(&self, boxes: Arc<Mutex<Receiver<Filtered>>>) -> Result<()> {
        let pool = self.device.pool()?;
        let next = || boxes.lock().unwrap_or_else(PoisonError::into_inner).recv();
        while let Ok((core, values)) = next() {
            pool.install(|| self.writer.write_box_bytes(&core, values.bytes()))?;
        }
        Ok(())
    }

    /// The number of elements that are filtered along each axis.
    fn extents(&self) -> Vec<u64> {
        self.within.iter().map(|range| range.end - range.start).collect()
    }

    /// A box on the device.
    fn tensor(&self, block: Block<'_>) -> Result<Box<dyn Untyped>> {
        let shape = block.shape.clone();
        with_dtype!(self.types[0], T => Ok(Box::new(block.tensor::<T>(&shape)?)))
    }

    /// Boxes of whole tiles, and bytes for chunks: boxes grow along the axis of which the halo is the largest part, as far as memory
    /// allows.
    ///
    /// # Errors
    /// [`Error::Budget`] for boxes of one tile; as [`Plan::new`].
    fn boxes(&self, filter: &Filter, sizes: Sizes) -> Result<BoxPlan> {
        let (shape, tile) = (self.extents(), self.writer.tile_shape());
        let within = |size: u64, axis: usize| size.min(shape[axis]).max(1);
        let mut size: Vec<u64> = tile.iter().enumerate().map(|(axis, &size)| within(size, axis)).collect();
        let mut best = self.planned(filter, &size, sizes)?;
        // As filters see it, a box fits a binding.
        let widest = sizes.read.max(sizes.real).max(sizes.written);
        let most = BOX.min(self.device.limits().room() / widest * sizes.read);
        let mut can_grow: Vec<bool> = size.iter().zip(&shape).map(|(size, extent)| size < extent).collect();
        loop {
            self.run.cancel.check()?;
            let halo = |axis: usize| filter.axes[axis].radius() as f64 / size[axis] as f64;
            let candidates = (0..shape.len()).filter(|&axis| can_grow[axis]);
            let Some(axis) = candidates.max_by(|&a, &b| halo(a).total_cmp(&halo(b))) else { break };
            let mut wider = size.clone();
            let more = (size[axis] / 2).next_multiple_of(tile[axis]).max(tile[axis]);
            wider[axis] = within(size[axis].saturating_add(more), axis);
            match self.planned(filter, &wider, sizes) {
                Ok(found) if found.0.block_bytes() <= most => {
                    can_grow[axis] = wider[axis] < shape[axis];
                    (best, size) = (found, wider);
                }
                Ok(_) | Err(Error::Budget { .. }) => can_grow[axis] = false,
                Err(error) => return Err(error),
            }
        }
        let (plan, left) = best;
        let threads = self.device.threads();
        let least = plan.largest_need();
        let ahead = least.saturating_add(plan.ahead(threads as u64));
        let most = least.saturating_add(left);
        let mut more =
            [0, HELD / 4, HELD / 2, HELD].map(|more| ahead.saturating_add(more).min(most)).to_vec();
        more.dedup();
        let mut bytes = most;
        if let [_, _, ..] = &more[..] {
            let mut fewest = f64::INFINITY;
            for more in more {
                let times = plan.times_read(threads, more, &self.run.cancel)?;
                if times < fewest {
                    (fewest, bytes) = (times, more);
                }
                // None is read fewer times than once.
                if times <= 1.0 {
                    break;
                }
            }
        } else if let [only] = &more[..] {
            bytes = *only;
        }
        let tiles = tiles(&size, &tile);
        let core = size.iter().product::<u64>() * sizes.written;
        let encoded = tile.iter().product::<u64>() * sizes.written * tiles.min(threads as u64) * ENCODED;
        let more = (threads as u64 / tiles).min(WRITERS).saturating_sub(1);
        let writers = 1 + more.min((most - bytes) / (core + encoded).max(1));
        Ok(BoxPlan { plan, bytes, writers })
    }

    /// A plan of boxes of a size, and what is left of the host's memory beside it.
    fn planned(&self, filter: &Filter, size: &[u64], sizes: Sizes) -> Result<(Plan, u64)> {
        let along: Vec<Along> = filter
            .axes
            .iter()
            .zip(size)
            .zip(self.x.shape().iter().zip(&self.within))
            .map(|((axis, &size), (&extent, within))| {
                haloed(axis, extent, Along { within: [within.start, within.end], ..Along::each(size) })
            })
            .collect();
        let rows = Arc::new(Selection::all(self.x.shape()[0]));
        let plan = Plan::new(vec![Arc::clone(self.x)], rows, None, Arc::clone(&self.convert), &along)?;
        let product = |all: &[u64]| all.iter().fold(1, |product: u64, n| product.saturating_mul(*n));
        let block = plan.block_bytes();
        let (read, core) = (Needs::device(block), Needs::device(sizes.written) * product(size));
        let tile = self.writer.tile_shape();
        let at_once = tiles(size, &tile).min(self.device.threads() as u64);
        let encoded = Needs::host(sizes.written) * product(&tile) * (at_once * ENCODED);
        // One box is read or written while there is another on the device: where that is the host, nothing is twice.
        let copies = if self.device.shares_host_memory() { 1 } else { 2 };
        let staged = Needs::host((read + core).device) * copies;
        let between = filter.arrays_between(&plan.box_shape(), self.device, self.types);
        let sums = Needs::device(between * sizes.real) * (block / sizes.read);
        let needs = staged + encoded + Needs::host(plan.largest_need()) + read + sums + core;
        let rest = self.run.memory.fit(self.device, needs)?;
        Ok((plan, rest.left(self.device).host))
    }
}

/// Boxes along an axis, with what a filter of it reaches around them.
fn haloed(axis: &BoxAxis, extent: u64, along: Along) -> Along {
    if along.size >= extent {
        return along;
    }
    let wraps = axis.taps.as_ref().is_some_and(|taps| taps.edge == Beyond::Wrap);
    Along { halo: [axis.radius(); 2], edge: if wraps { Edge::Wrap } else { Edge::Clip }, ..along }
}

/// Tiles of a box.
fn tiles(size: &[u64], tile: &[u64]) -> u64 {
    size.iter().zip(tile).map(|(size, tile)| size.div_ceil(*tile)).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Mode, Rounding};

    /// Arrays that were begun with this text are gone on with.
    #[test]
    fn words_of_a_job_stay() {
        let sigma = PerAxis::Each(vec![1.5, 1e-7]);
        let options = GaussianOptions::default()
            .axes([0, 2])
            .order([0, 1])
            .mode([Mode::Constant(-1.0), Mode::Mirror])
            .radius(3)
            .rounding(Rounding::Scipy);
        let expected = "[4, 5, 6] U16 Each([1.5, 1e-7]) GaussianOptions { axes: Some([0, 2]), order: Each([0, 1]), \
                        mode: Each([Constant(-1.0), Mirror]), truncate: 4.0, radius: Some(All(3)), rounding: Scipy, \
                        preserve_range: true, narrow: false } cpu";
        assert_eq!(job(&[4, 5, 6], StoredType::U16, &sigma, &options, "cpu"), expected);
    }
}
