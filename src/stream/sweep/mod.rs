//! Sweeps: an array of any size is read in boxes, and an operation maps them to another array, or folds gather from them.

mod host_box;
mod operation;
mod plan;
mod writing;

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

pub(crate) use self::operation::UntypedOperation;
pub use self::operation::{BoxOperation, Fold, Place};
use self::{
    host_box::{HostBox, chunk_tile},
    operation::Typed,
    plan::{BoxPlan, Boxes},
    writing::write_all,
};
use super::{Blocks, Convert, Edge, StreamStats, convert::to_elements};
use crate::{
    Budget, ChunkedArray, DType, Device, Element, Error, MemoryKind, Result, Run, SharedArray, Status,
    StoredType, extent::to_usize, store::BoxWriter,
};

/// The numbers of boxes that a sweep went through, and the memory and time that it took.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Swept {
    /// Boxes that were computed.
    pub boxes: u64,
    /// Boxes that were there already.
    pub found: u64,
    /// Elements that were read, halos among them, for each that was computed.
    pub times_covered: f64,
    /// The number of times that a chunk was decoded, on average.
    pub times_decoded: f64,
    /// The memory that the plan was made with, defaults in place; of the device none where it shares the host's.
    pub memory: Budget,
    /// The time that each step took.
    pub stats: StreamStats,
}

/// A pass over a stored array, which need not fit memory, in boxes: [`map`](Self::map) makes another array of it by a
/// [`BoxOperation`], [`fold`](Self::fold) gathers from it. This is `map_overlap`, and the reductions, of dask.
///
/// A sweep plans its boxes, their halos and the chunks that it holds within the memory of its [`Run`], decodes ahead, and writes on threads of its own
/// while the device computes. Where the device is full it tries again with smaller boxes. Progress counts elements. Waits.
///
/// # Types
/// An operation reads elements of its own type: those of the array, f32 or f64. Integers that such a type does not hold are refused, from 2^24 and
/// 2^53 on, and so are f64 where f32 is asked for; NaN is a number like others. [`convert`](Self::convert) takes another rule.
///
/// # Cost
/// One pass, in which elements within the halo of a box's sides are read and computed for both: boxes are of whole tiles, as many as make
/// 32 MiB if memory allows. On the host two boxes as they are read, two or more as they are written, and of chunks what boxes still need;
/// on the device a box, its output and what the operation needs. Boxes come in strips for which memory holds that, so it does
/// not grow with the array; chunks that several strips need are decoded for each of them, and strips are as wide as memory allows.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{
///     Device, Result, Run, Tensor, array,
///     store::MemoryArray,
///     stream::{BoxOperation, Place, Sweep},
/// };
///
/// /// Each element less the one before it, and the first as it is.
/// struct Difference;
///
/// impl BoxOperation for Difference {
///     type Input = f32;
///     type Output = f32;
///
///     fn halo(&self, _axis: usize) -> [u64; 2] {
///         [1, 0]
///     }
///
///     fn run(&self, x: &Tensor<f32>, place: &Place, out: &mut Tensor<f32>) -> Result<()> {
///         let values = x.read()?;
///         let at = |i: usize| if i > 0 { values[i] - values[i - 1] } else { values[i] };
///         let made: Vec<f32> = (place.before[0] as usize..values.len()).map(at).collect();
///         out.write(&made)
///     }
/// }
///
/// let x = Arc::new(MemoryArray::new("x", &[1i16, 4, 9, 16, 25], &[5], &[2])?);
/// let (device, run) = (Device::cpu(), Run::default());
/// assert_eq!(Sweep::new(&x, &device, &run).map_to_host(&Difference)?, [1.0, 3.0, 5.0, 7.0, 9.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct Sweep<'a> {
    op: &'static str,
    array: Arc<dyn ChunkedArray>,
    within: Vec<Range<u64>>,
    convert: Option<Arc<dyn Convert>>,
    device: &'a Device,
    run: &'a Run,
}

impl<'a> Sweep<'a> {
    /// A sweep of an array of one to five axes. Reads nothing yet.
    pub fn new(x: &impl SharedArray, device: &'a Device, run: &'a Run) -> Self {
        let array = x.shared();
        let within = array.shape().iter().map(|&extent| 0..extent).collect();
        Self { op: "sweep", array, within, convert: None, device, run }
    }

    /// The same under the name of an operation, which errors tell.
    pub(crate) fn named(self, op: &'static str) -> Self {
        Self { op, ..self }
    }

    /// Computes a range along each axis alone; halos reach beyond it.
    ///
    /// # Errors
    /// [`Error::Argument`] for another number of ranges than there are axes, and for one that the array does not have.
    pub fn within(self, within: &[Range<u64>]) -> Result<Self> {
        let shape = self.array.shape();
        let is_there =
            |(range, extent): (&Range<u64>, &u64)| range.start <= range.end && range.end <= *extent;
        if within.len() != shape.len() || !within.iter().zip(shape).all(is_there) {
            let why = format_args!("{within:?} of an array of shape {shape:?}");
            return Err(Error::argument(self.op, "within", why));
        }
        Ok(Self { within: within.to_vec(), ..self })
    }

    /// Reads elements by a rule of the caller's: the bytes of each become an element of the operation's type.
    #[must_use]
    pub fn convert(self, convert: Arc<dyn Convert>) -> Self {
        Self { convert: Some(convert), ..self }
    }

    /// Writes what an operation makes of the array into another one, box by box, and finishes it. Boxes that are there already, as where a
    /// killed process left them, are not made again.
    ///
    /// # Shapes
    /// The writer's array has the shape of the one that is read, and elements of the operation's output.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::Argument`] for a writer of another array, an operation that panics, and a halo that wraps an axis more than 1024
    /// times; [`Error::Store`] for elements that are not read as the operation's; [`Error::Chunk`] for a chunk that cannot be read, and a number that is
    /// refused; [`Error::Budget`] with the least that would do, for boxes of one tile; [`Error::Io`] for a tile that cannot be written, as where the
    /// disk is full, which ends the pass; [`Error::Cancelled`]; what the operation gives. What was written stays.
    pub fn map<O: BoxOperation>(&self, operation: &O, writer: impl BoxWriter) -> Result<Swept> {
        let out = writer.dtype().and_then(StoredType::element);
        if out != Some(O::Output::DTYPE) {
            let why = format_args!("an array of {:?} for elements of {:?}", writer.dtype(), O::Output::DTYPE);
            return Err(Error::argument(self.op, "writer", why));
        }
        self.map_untyped(&Typed(operation), writer)
    }

    /// What an operation makes of the array, or of the [range](Self::within): its elements in C order.
    ///
    /// # Errors
    /// As [`map`](Self::map); [`Error::OutOfHostMemory`].
    ///
    /// # Cost
    /// On the host the result besides.
    pub fn map_to_host<O: BoxOperation>(&self, operation: &O) -> Result<Vec<O::Output>> {
        self.map_untyped_to_host(&Typed(operation))
    }

    /// Gives each box to each of some folds, one after another, of a single reading.
    ///
    /// # Errors
    /// As [`map`](Self::map); what the folds give.
    pub fn fold<T: Element>(&self, folds: &mut [&mut dyn Fold<Input = T>]) -> Result<Swept> {
        let mut swept = self.swept();
        with_less_memory(self.device, self.run, |run| {
            folds.iter_mut().try_for_each(|fold| fold.begin(self.device))?;
            self.fold_once(folds, run, &mut swept)?;
            folds.iter_mut().try_for_each(|fold| fold.settle())
        })?;
        Ok(swept)
    }

    fn fold_once<T: Element>(
        &self,
        folds: &mut [&mut dyn Fold<Input = T>],
        run: &Run,
        swept: &mut Swept,
    ) -> Result<()> {
        if self.elements() == 0 {
            return Ok(());
        }
        let needs = |shape: &[u64]| folds.iter().map(|fold| fold.needs(shape, self.device)).sum();
        let BoxPlan { plan, bytes, .. } = Boxes {
            array: &self.array,
            within: &self.within,
            convert: self.conversion(T::DTYPE)?,
            tile: chunk_tile(&*self.array, &self.within),
            halo: &|_| ([0; 2], Edge::Clip),
            knows_whole_axes: true,
            written: 0,
            widest: T::DTYPE.size(),
            needs: &needs,
        }
        .plan(self.device, &run.memory, &run.cancel)?;
        let mut blocks = Blocks::of_boxes(&plan, self.device, bytes, Vec::new(), &run.cancel)?;
        let mut status = Status::new(0, 1, self.elements());
        (swept.boxes, swept.times_covered) = (0, 1.0);
        run.progress.tell(status);
        while let Some(block) = blocks.next_block()? {
            run.cancel.check()?;
            let started = Instant::now();
            let place = Place::new(&block);
            let x = block.tensor(&place.shape)?;
            self.unless_it_panics(&place.core, "a fold", || {
                folds.iter_mut().try_for_each(|fold| fold.add(&x, &place))
            })?;
            swept.stats.compute += started.elapsed();
            swept.boxes += 1;
            status.rows += x.len();
            run.progress.tell(status);
        }
        swept.times_decoded = blocks.times_read();
        swept.stats.add(&blocks.stats);
        Ok(())
    }

    pub(crate) fn map_untyped(
        &self,
        operation: &dyn UntypedOperation,
        writer: impl BoxWriter,
    ) -> Result<Swept> {
        if writer.shape() != self.array.shape() {
            let expected = format!("an array of shape {:?}", self.array.shape());
            return Err(Error::shape(self.op, expected, format_args!("{:?}", writer.shape())));
        }
        let (mut swept, mut computed) = (self.swept(), [0, 0]);
        if self.elements() > 0 {
            with_less_memory(self.device, self.run, |run| {
                self.map_once(operation, &writer, run, &mut swept, &mut computed)
            })?;
        }
        writer.finish()?;
        let [covered, made] = computed;
        swept.times_covered = covered as f64 / made.max(1) as f64;
        Ok(swept)
    }

    pub(crate) fn map_untyped_to_host<U: Element>(&self, operation: &dyn UntypedOperation) -> Result<Vec<U>> {
        let len = self.elements();
        let lacking = |()| Error::OutOfHostMemory {
            what: "a box".into(),
            requested: len.saturating_mul(U::DTYPE.size()),
        };
        let mut out = bytemuck::try_zeroed_vec(to_usize(len)).map_err(lacking)?;
        if len > 0 {
            let writer = HostBox::new(&*self.array, &self.within, bytemuck::cast_slice_mut(&mut out));
            self.map_untyped(operation, writer)?;
        }
        Ok(out)
    }

    /// One try; `computed` are the elements that were read, and those that were made of them.
    fn map_once<W: BoxWriter>(
        &self,
        operation: &dyn UntypedOperation,
        writer: &W,
        run: &Run,
        swept: &mut Swept,
        [covered, made]: &mut [u64; 2],
    ) -> Result<()> {
        let [read, written] = operation.types();
        let BoxPlan { plan, bytes, writers } = Boxes {
            array: &self.array,
            within: &self.within,
            convert: self.conversion(read)?,
            tile: writer.tile_shape(),
            halo: &|axis| (operation.halo(axis), operation.edge(axis)),
            knows_whole_axes: operation.knows_whole_axes(),
            written: written.size(),
            widest: operation.widest(),
            needs: &|shape| operation.needs(shape, self.device),
        }
        .plan(self.device, &run.memory, &run.cancel)?;
        let is_there = |core: Vec<Range<u64>>| {
            run.cancel.check()?;
            writer.has_box(&core)
        };
        let pool = self.device.pool()?;
        // To know that a box is there takes reading it.
        let left_out = pool.install(|| plan.boxes().map(is_there).collect::<Result<Vec<bool>>>())?;
        let wanted = plan.boxes().zip(&left_out).filter(|(_, left_out)| !**left_out);
        let mut status = Status::new(0, 1, wanted.map(|(core, _)| elements(&core)).sum());
        if swept.boxes == 0 {
            swept.found = left_out.iter().filter(|left_out| **left_out).count() as u64;
        }
        let mut blocks = Blocks::of_boxes(&plan, self.device, bytes, left_out, &run.cancel)?;
        write_all(writer, writers, pool, |give| {
            run.progress.tell(status);
            while let Some(block) = blocks.next_block()? {
                run.cancel.check()?;
                let started = Instant::now();
                let (core, inputs) = (block.core.clone(), block.shape.iter().product::<u64>());
                let values =
                    self.unless_it_panics(&core, "the operation", || operation.run(block, self.device))?;
                swept.stats.compute += started.elapsed();
                let outputs = elements(&core);
                (swept.boxes, *covered, *made) = (swept.boxes + 1, *covered + inputs, *made + outputs);
                status.rows += outputs;
                // An error of writing is told by `write_all`.
                if !give(core, values) {
                    break;
                }
                run.progress.tell(status);
            }
            Ok(())
        })?;
        swept.stats.add(&blocks.stats);
        swept.times_decoded = blocks.times_read();
        Ok(())
    }

    /// Nothing yet, in the memory of the run.
    fn swept(&self) -> Swept {
        let (memory, stats) = (self.run.memory.planned(self.device), StreamStats::default());
        Swept { boxes: 0, found: 0, times_covered: 0.0, times_decoded: 0.0, memory, stats }
    }

    /// Elements that are computed.
    fn elements(&self) -> u64 {
        elements(&self.within)
    }

    /// The rule by which elements become those of a type.
    fn conversion(&self, to: DType) -> Result<Arc<dyn Convert>> {
        let of_type = || to_elements(self.array.dtype(), to);
        self.convert.clone().or_else(of_type).ok_or_else(|| {
            let why =
                format_args!("holds {:?}, which is not read as {to:?} without a rule", self.array.dtype());
            Error::store(self.array.name(), why)
        })
    }

    /// Does work with a box that is a caller's.
    ///
    /// # Errors
    /// [`Error::Argument`] where it panics; what it gives.
    fn unless_it_panics<T>(
        &self,
        core: &[Range<u64>],
        who: &str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let panicked = |_| {
            Err(Error::argument(self.op, "operation", format_args!("{who} panicked at the box {core:?}")))
        };
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
    }
}

/// Elements of a box.
fn elements(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().fold(1, |elements: u64, range| elements.saturating_mul(range.end - range.start))
}

/// Tries with less and less of the device's memory, where others may hold what the plan counted on. The last try is with the least that would do.
///
/// # Errors
/// Any error of `f`.
pub fn with_less_memory<T>(device: &Device, run: &Run, mut f: impl FnMut(&Run) -> Result<T>) -> Result<T> {
    let mut budget = run.memory.device_bytes(device.info());
    let (mut full, mut least) = (false, false);
    loop {
        let smaller = run.memory.device(if full { Some(budget) } else { run.memory.device });
        match f(&run.clone().memory(smaller)) {
            Err(Error::OutOfMemory { .. }) if !device.shares_host_memory() && !least => {
                (budget, full) = (budget / 2, true);
            }
            Err(Error::Budget { memory: MemoryKind::Device, minimum, .. }) if full && !least => {
                (budget, least) = (minimum, true);
            }
            result => return result,
        }
    }
}
