//! Sweeps: an array of any size is read in boxes, and an operation maps them to another array, or folds gather from them.

mod host_box;
mod map;
mod operation;
mod plan;
mod retry;
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
    host_box::chunk_tile,
    operation::Typed,
    plan::{BoxPlan, Boxes},
    retry::Retry,
};
use super::{Blocks, Convert, Edge, StreamStats, boxes::AXES, convert::to_elements};
use crate::{
    Budget, ChunkedArray, DType, Device, Element, Error, Result, Run, SharedArray, Status, StoredType,
    store::BoxWriter,
};

/// The numbers of boxes that a sweep went through, and the memory and time that it took: all of it, where boxes were cut smaller on the way.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Swept {
    /// Boxes that were computed.
    pub boxes: u64,
    /// Boxes that were there before.
    pub found: u64,
    /// Elements that were read, halos among them, for each that was computed.
    pub times_covered: f64,
    /// The number of times that a chunk was decoded, on average.
    pub times_decoded: f64,
    /// The memory that the last plan was made with, defaults in place; of the device none where it shares the host's.
    pub memory: Budget,
    /// The time that each step took.
    pub stats: StreamStats,
}

/// A pass over a stored array, which need not fit memory, in boxes: [`map`](Self::map) makes another array of it by a
/// [`BoxOperation`], [`fold`](Self::fold) gathers from it. This is `map_overlap`, and the reductions, of dask.
///
/// A sweep plans its boxes, their halos and the chunks that it holds within the memory of its [`Run`], decodes ahead, and writes on threads of its own
/// while the device computes. Where the device is full, since others hold memory that it said it had, what is left is cut into smaller boxes. Progress
/// counts elements. Waits.
///
/// # Types
/// An operation reads elements of its own type: those of the array, f32 or f64. Integers that such a type does not hold are refused, above 2^24 and
/// from 2^53 on, and f64 where f32 is asked for; NaN and infinity are taken as they are. [`convert`](Self::convert) takes another rule.
///
/// # Cost
/// One pass, in which elements within the halo of a box's sides are read and computed for both. Boxes are of whole tiles, as many as make 32 MiB
/// if memory allows: tiles of the array that is written, and where none is, chunks of the one that is read. The host holds two boxes as they are
/// read, two or more as they are written, and of chunks what boxes still need; the device holds a box, its output and what the operation needs.
/// Boxes come in strips for which memory holds that, so it does not grow with the array; chunks that several strips need are decoded for each of
/// them, and strips are as wide as memory allows.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{
///     Device, Result, Run, Tensor,
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

    /// Gives it the name of an operation, which errors tell.
    pub(crate) fn named(self, op: &'static str) -> Self {
        Self { op, ..self }
    }

    /// Computes a range along each axis alone, for [`map_to_host`](Self::map_to_host) and [`fold`](Self::fold); halos reach beyond it.
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
    /// [`Error::Shape`] for an array of no axes or more than five, for a writer of another shape, and an output of another; [`Error::Argument`] for a
    /// writer of other elements, where a range is to be computed [alone](Self::within), for [`BoxOperation::run`] that panics, and a halo that wraps an axis
    /// more than 1024 times; [`Error::Store`] for elements that are not read as the operation's; [`Error::Chunk`] for a chunk that cannot be read, and
    /// a number that is refused; [`Error::Budget`] with the least that would do, for boxes of one tile; [`Error::Io`] for a tile that cannot be
    /// written, as where the disk is full, which ends the pass; [`Error::Cancelled`]; errors of the operation. What was written stays.
    pub fn map<O: BoxOperation>(&self, operation: &O, writer: impl BoxWriter) -> Result<Swept> {
        self.check_shape(&writer)?;
        let out = writer.dtype().and_then(StoredType::element);
        if out != Some(O::Output::DTYPE) {
            let why = format_args!("an array of {:?} for elements of {:?}", writer.dtype(), O::Output::DTYPE);
            return Err(Error::argument(self.op, "writer", why));
        }
        if self.within.iter().zip(self.array.shape()).any(|(range, extent)| *range != (0..*extent)) {
            let why =
                "a range alone does not make a whole array: `map_to_host` gives what it makes of the range";
            return Err(Error::argument(self.op, "within", why));
        }
        self.map_untyped(&Typed(operation), writer)
    }

    /// Makes what an operation gives of the array, or of the [range](Self::within): its elements in C order.
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
    /// As [`map`](Self::map), for [`Fold::add`] that panics; errors of the folds.
    pub fn fold<T: Element>(&self, folds: &mut [&mut dyn Fold<Input = T>]) -> Result<Swept> {
        let (mut retry, mut swept) = (Retry::new(self.run.memory), self.swept());
        if self.elements()? == 0 {
            folds.iter_mut().try_for_each(|fold| fold.begin(self.device))?;
        } else {
            while let Err(error) = self.fold_once(folds, &mut retry, &mut swept) {
                retry.smaller(error, self.device)?;
            }
        }
        folds.iter_mut().try_for_each(|fold| fold.settle())?;
        swept.memory = retry.memory.planned(self.device);
        Ok(swept)
    }

    fn fold_once<T: Element>(
        &self,
        folds: &mut [&mut dyn Fold<Input = T>],
        retry: &mut Retry,
        swept: &mut Swept,
    ) -> Result<()> {
        let needs = |shape: &[u64]| folds.iter().map(|fold| fold.needs(shape, self.device)).sum();
        let BoxPlan { plan, bytes, on_device, .. } = Boxes {
            array: &self.array,
            within: &self.within,
            convert: self.conversion(T::DTYPE)?,
            tile: chunk_tile(&*self.array, &self.within),
            halo: &|_| ([0; 2], Edge::Clip),
            knows_whole_axes: true,
            written: 0,
            widest: T::DTYPE.size(),
            // One is uploaded while another is added.
            on_device: 2,
            needs: &needs,
        }
        .plan(self.device, &retry.memory, &self.run.cancel)?;
        retry.taken = on_device;
        folds.iter_mut().try_for_each(|fold| fold.begin(self.device))?;
        let mut blocks = Blocks::of_boxes(&plan, self.device, bytes, Vec::new(), &self.run.cancel)?;
        let mut status = Status::new(0, 1, self.elements()?);
        swept.times_covered = 1.0;
        self.run.progress.tell(status);
        let mut add_all = || -> Result<()> {
            while let Some(block) = blocks.next_block()? {
                self.run.cancel.check()?;
                let started = Instant::now();
                let place = Place::new(&block, self.array.shape());
                let x = block.tensor(&place.shape)?;
                self.unless_it_panics(&place.core, || {
                    folds.iter_mut().try_for_each(|fold| fold.add(&x, &place))
                })?;
                swept.stats.compute += started.elapsed();
                swept.boxes += 1;
                status.rows += x.len();
                self.run.progress.tell(status);
            }
            Ok(())
        };
        let added = add_all();
        swept.stats.add(&blocks.stats);
        swept.times_decoded = blocks.times_read();
        added
    }

    /// # Errors
    /// [`Error::Shape`] for a writer of an array of another shape.
    pub(crate) fn check_shape(&self, writer: &impl BoxWriter) -> Result<()> {
        if writer.shape() == self.array.shape() {
            return Ok(());
        }
        let expected = format!("an array of shape {:?}", self.array.shape());
        Err(Error::shape(self.op, expected, format_args!("{:?}", writer.shape())))
    }

    /// Nothing yet, in the memory of the run.
    fn swept(&self) -> Swept {
        let (memory, stats) = (self.run.memory.planned(self.device), StreamStats::default());
        Swept { boxes: 0, found: 0, times_covered: 0.0, times_decoded: 0.0, memory, stats }
    }

    /// The number of elements that are computed.
    ///
    /// # Errors
    /// [`Error::Shape`] for an array of no axes, or more than five.
    fn elements(&self) -> Result<u64> {
        let shape = self.array.shape();
        if !(1..=AXES).contains(&shape.len()) {
            let got = format_args!("{shape:?} in {}", self.array.name());
            return Err(Error::shape(self.op, format_args!("one to {AXES} axes"), got));
        }
        Ok(elements(&self.within))
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
    /// [`Error::Argument`] with its words where it panics; the error that it gives.
    fn unless_it_panics<T>(&self, core: &[Range<u64>], work: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let words =
                panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
            let why = format_args!("panicked at the box {core:?}: {}", words.unwrap_or_default());
            Err(Error::argument(self.op, "operation", why))
        })
    }
}

/// Elements of a box.
fn elements(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().fold(1, |elements: u64, range| elements.saturating_mul(range.end - range.start))
}
