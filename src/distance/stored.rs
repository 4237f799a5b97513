//! Distances of the observations of stored matrices, which need not fit memory.

use std::{sync::Arc, time::Instant};

use super::{
    Distances, Metric, Missing, Options, Partial,
    sums::{can_widen, observation_sums, to_usize},
};
use crate::{
    Budget, ChunkedArray, DType, Device, Error, Result, Run, Status, StoredType,
    dtype::with_dtype,
    stream::{Along, AsStored, Block, Blocks, Convert, Narrow, Narrowed, Plan, Selection, StreamStats},
};

/// Features that are added at once, if there are as many and memory allows: what adding takes besides then costs little.
const FEATURES: u64 = 1024;
/// Whole numbers that f32 holds, and f64.
const WHOLE: f64 = (1u32 << 24) as f64;
const WHOLE_WIDE: f64 = (1u64 << 53) as f64;

/// The distances of the observations of `x` from one another, or from those of `y`, read some features at a time, and where the time
/// went. Waits.
///
/// Integers of up to 32 bits, f16, f32 and f64 are taken as they are stored, and booleans as 0 and 1. Integers of 64 bits become f32, and
/// `x` and `y` of different types too, or f64 where one is f64 and not to be [narrowed](Options::narrow); such integers beyond 2^24, or 2^53, are
/// refused. What an array says of missing values is not looked at: [`Options`] do.
///
/// # Shapes
/// As [`pairwise`](super::pairwise): (m, k) and (n, k) -> (m, m) or (m, n), with [`Options::columns`] (k, m) and (k, n).
///
/// # Errors
/// [`Error::Shape`] for arrays without two axes or with different features; [`Error::NoF64`] and [`Error::Argument`] as
/// [`pairwise`](super::pairwise);
/// [`Error::Chunk`] for a chunk that cannot be read and a number that is refused; [`Error::Budget`] with the least that would do;
/// [`Error::OutOfMemory`]; [`Error::OutOfHostMemory`]; [`Error::Cancelled`].
///
/// # Cost
/// That of [`Partial`], whose sums of all pairs have to fit the device, and twice as many features of all observations as are added at
/// once: 1024, or those of a chunk, or fewer where memory is short. One pass; of [`Metric::JensenShannon`] two. A chunk that does not end where
/// the features do that are added at once is decoded again, unless memory holds it.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{ChunkedArray, Device, Run, distance::{Metric, Options, pairwise_stored}, store::MemoryArray};
///
/// let x: Arc<dyn ChunkedArray> = Arc::new(MemoryArray::new("x", &[0.0f32, 0.0, 3.0, 4.0], &[2, 2], &[1, 2])?);
/// let (options, run) = (Options::default(), Run::default());
/// let found = pairwise_stored(&x, None, Metric::Euclidean, &options, &Device::cpu(), &run)?;
/// assert_eq!(found.0.distances.data(), [0.0, 5.0, 5.0, 0.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn pairwise_stored(
    x: &Arc<dyn ChunkedArray>,
    y: Option<&Arc<dyn ChunkedArray>>,
    metric: Metric,
    options: &Options,
    device: &Device,
    run: &Run,
) -> Result<(Distances, StreamStats)> {
    metric.check(options.missing)?;
    let arrays: Vec<_> = [Some(x), y].into_iter().flatten().collect();
    let [count, features] = extents(x, options.columns)?;
    let other = y.map(|y| extents(y, options.columns)).transpose()?;
    if let Some([_, others]) = other.filter(|[_, others]| *others != features) {
        let got = format_args!("{features} and {others}");
        return Err(Error::shape("distance", "as many features of x as of y", got));
    }
    let counts = [count, other.map_or(0, |[n, _]| n)];
    let reading = Reading::new(&arrays, options, counts, features);
    if reading.staged == DType::F64 {
        can_widen(device)?;
    }
    let pass = reading.within(device, metric, options.missing, other.map(|[n, _]| n), &run.memory)?;
    let passes = if metric == Metric::JensenShannon { 2 } else { 1 };
    let mut stats = StreamStats::default();
    let mut partial = Partial::new(device, count, other.map(|[n, _]| n), metric, options)?;
    if passes == 2 {
        let status = Status::new(0, passes, features);
        let sums = reading.sums(&pass, device, options, run, status, &mut stats)?;
        partial = partial.with_sums(&sums[0], sums.get(1).map(Vec::as_slice))?;
    }
    let status = Status::new(passes - 1, passes, features);
    reading.each(&pass, device, run, status, &mut stats, &mut |blocks| {
        let mut blocks = blocks.into_iter();
        with_dtype!(reading.staged, T => {
            let mut next = || blocks.next().map(|block| { let shape = block.shape.clone(); block.tensor::<T>(&shape) }).transpose();
            let (x, y) = (next()?, next()?);
            x.map_or(Ok(()), |x| partial.add(&x, y.as_ref()))
        })
    })?;
    let started = Instant::now();
    let sums = partial.export()?;
    drop(partial);
    let found = sums.finish()?;
    stats.compute += started.elapsed();
    Ok((found, stats))
}

/// The extents of a stored matrix, observations first.
fn extents(x: &Arc<dyn ChunkedArray>, columns: bool) -> Result<[u64; 2]> {
    match *x.shape() {
        [rows, cols] => Ok(if columns { [cols, rows] } else { [rows, cols] }),
        _ => Err(Error::shape("distance", "a matrix", format_args!("{} {:?}", x.name(), x.shape()))),
    }
}

/// What is read, and how.
struct Reading<'a> {
    arrays: &'a [&'a Arc<dyn ChunkedArray>],
    columns: bool,
    /// Of each array.
    counts: [u64; 2],
    features: u64,
    staged: DType,
    convert: Arc<dyn Convert>,
}

/// Boxes of so many features of each array, and bytes for the chunks of each.
struct Boxes {
    plans: Vec<Plan>,
    chunk_bytes: u64,
}

impl<'a> Reading<'a> {
    fn new(
        arrays: &'a [&'a Arc<dyn ChunkedArray>],
        options: &Options,
        counts: [u64; 2],
        features: u64,
    ) -> Self {
        let types: Vec<_> = arrays.iter().map(|array| array.dtype()).collect();
        let same = types.iter().all(|dtype| *dtype == types[0]);
        let as_stored = match types[0] {
            StoredType::Bool | StoredType::U8 => Some(DType::U8),
            StoredType::I8 => Some(DType::I8),
            StoredType::I16 => Some(DType::I16),
            StoredType::U16 => Some(DType::U16),
            StoredType::I32 => Some(DType::I32),
            StoredType::U32 => Some(DType::U32),
            StoredType::F16 => Some(DType::F16),
            StoredType::F32 => Some(DType::F32),
            StoredType::F64 if !options.narrow => Some(DType::F64),
            _ => None,
        };
        let wide = types.contains(&StoredType::F64) && !options.narrow;
        let whole = types.iter().any(|dtype| matches!(dtype, StoredType::I64 | StoredType::U64));
        let (to, staged, most) = match (wide, whole) {
            (true, true) => (Narrowed::F64, DType::F64, WHOLE_WIDE),
            (true, false) => (Narrowed::F64, DType::F64, f64::MAX),
            (false, true) => (Narrowed::F32, DType::F32, WHOLE),
            (false, false) => (Narrowed::F32, DType::F32, f32::MAX.into()),
        };
        let (staged, convert): (_, Arc<dyn Convert>) = match as_stored {
            Some(staged) if same => (staged, Arc::new(AsStored(types[0]))),
            _ => {
                let range = [-most, most];
                let narrow = Narrow { to, range, negative_is_missing: false, nan_is_missing: true };
                (staged, Arc::new(narrow))
            }
        };
        Self { arrays, columns: options.columns, counts, features, staged, convert }
    }

    /// Boxes of so many features.
    fn plans(&self, features: u64) -> Result<Vec<Plan>> {
        let plan = |(array, count): (&&Arc<dyn ChunkedArray>, u64)| {
            let along = if self.columns { [features, count] } else { [count, features] };
            let along = along.map(|size| Along::each(size.max(1)));
            let rows = Arc::new(Selection::all(array.shape()[0]));
            Plan::new(vec![Arc::clone(array)], rows, None, Arc::clone(&self.convert), &along)
        };
        self.arrays.iter().zip(self.counts).map(plan).collect()
    }

    /// The widest boxes that memory holds with the sums.
    ///
    /// # Errors
    /// [`Error::Budget`].
    fn within(
        &self,
        device: &Device,
        metric: Metric,
        missing: Missing,
        other: Option<u64>,
        memory: &Budget,
    ) -> Result<Boxes> {
        let [on_device, on_host] = Partial::bytes(self.counts[0], other, metric, missing);
        let threads = device.threads() as u64;
        let device_budget =
            memory.device.unwrap_or_else(|| device.info().memory.map_or(2 << 30, |bytes| bytes / 4 * 3));
        let shared = device.shares_host_memory();
        let chunk = self.arrays[0].chunk_shape()[usize::from(!self.columns)];
        let most = self.features.max(1);
        let mut width = FEATURES.next_multiple_of(chunk.min(FEATURES)).max(chunk).min(most);
        loop {
            let plans = self.plans(width)?;
            let all = |of: fn(&Plan) -> u64| plans.iter().map(of).fold(0, u64::saturating_add);
            // One is filled while another is added; a tensor of each.
            let staged = all(Plan::block_bytes).saturating_mul(2);
            let of_device = on_device.saturating_add(staged);
            let of_host = on_host.saturating_add(staged).saturating_add(all(Plan::largest_need));
            let of_host = if shared { of_host.saturating_add(of_device) } else { of_host };
            let lacking = [
                ("host memory budget", memory.host_bytes(), of_host, memory.host.is_some()),
                (Budget::DEVICE, device_budget, if shared { 0 } else { of_device }, memory.device.is_some()),
            ];
            match lacking.into_iter().find(|(_, budget, need, _)| need > budget) {
                None => {
                    let left = memory.host_bytes() - of_host;
                    let ahead = plans.iter().map(|plan| plan.ahead(threads)).max().unwrap_or(0);
                    return Ok(Boxes { chunk_bytes: ahead.min(left / plans.len() as u64), plans });
                }
                Some((what, budget, minimum, given)) if width == 1 => {
                    return Err(Error::Budget { what, budget, minimum, given });
                }
                Some(_) => width /= 2,
            }
        }
    }

    /// Gives the blocks of the arrays that hold the same features, in order.
    fn each(
        &self,
        boxes: &Boxes,
        device: &Device,
        run: &Run,
        mut status: Status,
        stats: &mut StreamStats,
        sink: &mut dyn FnMut(Vec<Block<'_>>) -> Result<()>,
    ) -> Result<()> {
        let start = |plan| {
            let bytes = Plan::largest_need(plan).saturating_add(boxes.chunk_bytes);
            Blocks::new(plan, device, plan.block_rows(), bytes, &run.cancel)
        };
        let mut streams = boxes.plans.iter().map(start).collect::<Result<Vec<_>>>()?;
        if self.features > 0 && self.counts[0] > 0 {
            loop {
                let blocks = streams.iter_mut().map(Blocks::next_block).collect::<Result<Vec<_>>>()?;
                let Some(blocks) = blocks.into_iter().collect::<Option<Vec<_>>>() else { break };
                let Some(last) = blocks.first().map(|block| block.core[usize::from(!self.columns)].end)
                else {
                    break;
                };
                let started = Instant::now();
                sink(blocks)?;
                stats.compute += started.elapsed();
                status.rows = last;
                run.progress.tell(status);
            }
        }
        streams.iter().for_each(|stream| stats.add(&stream.stats));
        Ok(())
    }

    /// The sum of each observation.
    fn sums(
        &self,
        boxes: &Boxes,
        device: &Device,
        options: &Options,
        run: &Run,
        status: Status,
        stats: &mut StreamStats,
    ) -> Result<Vec<Vec<f64>>> {
        let mut sums: Vec<Vec<f64>> =
            self.arrays.iter().zip(self.counts).map(|(_, count)| vec![0.0; to_usize(count)]).collect();
        self.each(boxes, device, run, status, stats, &mut |blocks| {
            for (block, sums) in blocks.into_iter().zip(&mut sums) {
                let shape = block.shape.clone();
                let found =
                    with_dtype!(self.staged, T => observation_sums(&block.tensor::<T>(&shape)?, options)?);
                // Infinite elements are refused when they are added.
                let add = |(sum, found): (&mut f64, f64)| {
                    *sum += if found.is_finite() { found } else { f64::NAN };
                };
                sums.iter_mut().zip(found).for_each(add);
            }
            Ok(())
        })?;
        Ok(sums)
    }
}
