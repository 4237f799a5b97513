//! Sweeps: an array of any size is read in boxes, and an operation maps them to another array, or folds reduce them.

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
    operation::{BOX, Typed},
    plan::{BoxPlan, Boxes},
    retry::Retry,
};
use super::{Beyond, Block, Blocks, Convert, StreamStats, boxes::AXES, convert::to_elements};
use crate::{
    Budget, ChunkedArray, DType, Device, Element, Error, Needs, Result, Run, SharedArray, Status, StoredType,
    store::BoxWriter, timeline::Stage,
};

/// The numbers of boxes that a sweep went through, and the memory and time that it took, including any retries with smaller boxes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Swept {
    /// The number of boxes that were computed.
    pub boxes: u64,
    /// The number of boxes that were already written.
    pub found: u64,
    /// The number of devices that computed boxes: members of a [group](Device::group).
    pub devices: usize,
    /// The number of elements that were read, including halos, per computed element.
    pub times_covered: f64,
    /// The average number of times that a chunk was decoded.
    pub times_decoded: f64,
    /// The memory of the last plan, with defaults filled in; no device memory if the device shares the host's.
    pub memory: Budget,
    /// The time that each stage took.
    pub stats: StreamStats,
}

/// A pass in boxes over a stored array, which need not fit memory: [`map`](Self::map) computes another array with a [`BoxOperation`],
/// [`fold`](Self::fold) reduces the array. This corresponds to `map_overlap` and the reductions of dask.
///
/// A sweep plans its boxes, their halos and the held chunks to fit the memory of its [`Run`], decodes ahead, and writes on separate
/// threads while the device computes. If the device runs out of memory, because other programs hold memory that it reported as free, the
/// remaining part is cut into smaller boxes. Progress counts elements. Waits for the device.
///
/// # Types
/// An operation reads elements of its own type: the array's type, f32 or f64. Integers that this type cannot represent are refused (above
/// 2^24 for f32, from 2^53 on for f64), and so is f64 if f32 is asked for; NaN and infinity are kept. [`convert`](Self::convert) sets
/// another rule.
///
/// # Cost
/// One pass. Elements within the halo of two neighbouring boxes are read and computed for both. Boxes consist of whole tiles, and have
/// about 32 MiB if memory allows; the tiles are those of the array that is written, or else the chunks of the array that is read. The
/// host holds two boxes as read, two or more as written, and the parts of chunks that boxes still need; the device holds a box, its
/// output and the memory of the operation. Boxes are processed in strips that fit memory, so the memory does not grow with the array.
/// Chunks that several strips need are decoded for each strip, and strips are as wide as memory allows.
///
/// The members of a [group](Device::group) take parts of the array in turn for maps, each with a share of the host's memory; chunks between two
/// parts are decoded for both. Tensors that an operation holds have to be on the device of `x`. Folds are on the first member.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{
///     Device, Result, Run, Tensor,
///     store::MemoryArray,
///     stream::{BoxOperation, Place, Sweep},
/// };
///
/// /// The difference of each element and the element before it. The first element stays as it is.
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
#[derive(Clone, Debug)]
pub struct Sweep<'a> {
    op: &'static str,
    array: Arc<dyn ChunkedArray>,
    within: Vec<Range<u64>>,
    convert: Option<Arc<dyn Convert>>,
    device: &'a Device,
    run: &'a Run,
}

impl<'a> Sweep<'a> {
    /// Prepares a sweep of an array of one to five axes. Reads nothing yet.
    pub fn new(x: &impl SharedArray, device: &'a Device, run: &'a Run) -> Self {
        let array = x.shared();
        let within = array.shape().iter().map(|&extent| 0..extent).collect();
        Self { op: "sweep", array, within, convert: None, device, run }
    }

    /// Sets the name of the operation that errors report.
    pub(crate) fn named(self, op: &'static str) -> Self {
        Self { op, ..self }
    }

    /// Computes only a box, given as a range along each axis, for [`map_to_host`](Self::map_to_host) and [`fold`](Self::fold); halos
    /// reach beyond the box.
    ///
    /// # Errors
    /// [`Error::Argument`] if the number of ranges is not the number of axes, or if a range exceeds the array.
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

    /// Reads elements by a rule of the caller: it converts the bytes of each element to the operation's type.
    #[must_use]
    pub fn convert(self, convert: Arc<dyn Convert>) -> Self {
        Self { convert: Some(convert), ..self }
    }

    /// Writes the output of an operation on the array into another array, box by box, and finishes that array. Boxes that are already
    /// written, for example by a process that was killed, are not computed again.
    ///
    /// # Shapes
    /// The writer's array has the shape of the array that is read, and the operation's output type.
    ///
    /// # Errors
    /// [`Error::Shape`] for an array without axes or with more than five, for a writer of another shape, and for an output of another
    /// shape; [`Error::Argument`] for a writer of another type, for a [range](Self::within) that is not the whole array, for [`BoxOperation::run`] that
    /// panics, and for a halo that wraps an axis more than 1024 times; [`Error::Store`] for elements that cannot be read as the
    /// operation's type; [`Error::Chunk`] for a chunk that cannot be read, and for a number that is refused; [`Error::Budget`], with the
    /// required minimum, if boxes of one tile do not fit; [`Error::Io`] for a tile that cannot be written, for example because the disk
    /// is full, which ends the pass; [`Error::Cancelled`]; errors of the operation. Boxes already written are kept.
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
        let swept = self.map_untyped(&Typed(operation), &writer)?;
        let _span = self.device.span(Stage::Flush, "");
        writer.finish()?;
        Ok(swept)
    }

    /// Returns the output of an operation on the array, or on the [range](Self::within), in C order.
    ///
    /// # Errors
    /// The errors of [`map`](Self::map); [`Error::OutOfHostMemory`].
    ///
    /// # Cost
    /// Host memory for the result, in addition to the cost of `map`.
    pub fn map_to_host<O: BoxOperation>(&self, operation: &O) -> Result<Vec<O::Output>> {
        self.map_untyped_to_host(&Typed(operation))
    }

    /// Passes each box to each of the folds in turn, and reads the array only once.
    ///
    /// # Errors
    /// The errors of [`map`](Self::map), also for [`Fold::add`] that panics; errors of the folds.
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
        let planned = Boxes {
            array: &self.array,
            within: &self.within,
            convert: self.conversion(T::DTYPE)?,
            tile: chunk_tile(&*self.array, &self.within),
            halo: &|_| ([0; 2], Beyond::Clip),
            knows_whole_axes: true,
            written: 0,
            box_bytes: BOX,
            widest: T::DTYPE.size(),
            // One box is uploaded while another is added.
            on_device: 2,
            needs: &needs,
            after: Needs::default(),
        }
        .plan(self.device, &retry.memory, &self.run.cancel)?;
        retry.taken = planned.on_device;
        folds.iter_mut().try_for_each(|fold| fold.begin(self.device))?;
        swept.times_covered = 1.0;
        let mut status = Status::new(0, 1, self.elements()?);
        let add = |block: Block<'_>, place: &Place| {
            let x = block.tensor(&place.shape)?;
            folds.iter_mut().try_for_each(|fold| fold.add(&x, place))
        };
        self.each_box(&planned, Vec::new(), (swept, &mut status), add, |_, ()| true)
    }

    /// Runs `work` on each box of a plan that is not left out, and passes its result to `give`, until that returns false.
    fn each_box<V>(
        &self,
        planned: &BoxPlan,
        left_out: Vec<bool>,
        (swept, status): (&mut Swept, &mut Status),
        mut work: impl FnMut(Block<'_>, &Place) -> Result<V>,
        mut give: impl FnMut(Place, V) -> bool,
    ) -> Result<()> {
        let (plan, cancel) = (&planned.plan, &self.run.cancel);
        let mut blocks = Blocks::of_boxes(plan, self.device, planned.bytes, left_out, cancel)?;
        self.run.progress.tell(*status);
        let mut each = || {
            while let Some(block) = blocks.next_block()? {
                cancel.check()?;
                let (started, place) = (Instant::now(), Place::new(&block, self.array.shape()));
                let made = self.unless_it_panics(&place.core, || work(block, &place))?;
                blocks.computed(started);
                swept.boxes += 1;
                status.rows += elements(&place.core);
                if !give(place, made) {
                    break;
                }
                self.run.progress.tell(*status);
            }
            Ok(())
        };
        let ended = each();
        swept.stats.add(&blocks.stats);
        swept.times_decoded = blocks.times_read();
        ended
    }

    /// Fails with [`Error::Shape`] for a writer of an array of another shape.
    pub(crate) fn check_shape(&self, writer: &impl BoxWriter) -> Result<()> {
        if writer.shape() == self.array.shape() {
            return Ok(());
        }
        let expected = format!("an array of shape {:?}", self.array.shape());
        Err(Error::shape(self.op, expected, format_args!("{:?}", writer.shape())))
    }

    /// Returns counts of zero, with the memory of the run.
    fn swept(&self) -> Swept {
        let (memory, stats) = (self.run.memory.planned(self.device), StreamStats::default());
        Swept { boxes: 0, found: 0, devices: 1, times_covered: 0.0, times_decoded: 0.0, memory, stats }
    }

    /// Returns the number of elements to compute. Fails with [`Error::Shape`] for an array without axes, or with more than five.
    fn elements(&self) -> Result<u64> {
        let shape = self.array.shape();
        if !(1..=AXES).contains(&shape.len()) {
            let got = format_args!("{shape:?} in {}", self.array.name());
            return Err(Error::shape(self.op, format_args!("one to {AXES} axes"), got));
        }
        Ok(elements(&self.within))
    }

    /// Returns the rule that converts elements to type `to`.
    fn conversion(&self, to: DType) -> Result<Arc<dyn Convert>> {
        let of_type = || to_elements(self.array.dtype(), to);
        self.convert.clone().or_else(of_type).ok_or_else(|| {
            let why =
                format_args!("holds {:?}, which is not read as {to:?} without a rule", self.array.dtype());
            Error::store(self.array.name(), why)
        })
    }

    /// Runs the caller's code on a box. Fails as it does, or with [`Error::Argument`] and the message if it panics.
    fn unless_it_panics<T>(&self, core: &[Range<u64>], work: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let words =
                panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
            let why = format_args!("panicked at the box {core:?}: {}", words.unwrap_or_default());
            Err(Error::argument(self.op, "operation", why))
        })
    }
}

fn elements(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().fold(1, |elements: u64, range| elements.saturating_mul(range.end - range.start))
}
