//! One call: its arguments checked, and its result made block by block of pairs.

use std::{mem::take, ops::Range};

use rayon::prelude::*;

use super::{
    Metric, Missing, Options,
    frame::between,
    metric::{Finish, Prepare, Scaling},
    precision::{factor, is_wide},
    sums::{ObservationPairs, PreparedObservations, features, largest},
};
use crate::{
    Budget, Device, Element, Error, Needs, Result, Run, Status, Tensor,
    dtype::joined,
    extent::pieces,
    kernels::distance::{TILE, Term},
    tensor::{HostValues, Sent},
};

/// The maximum number of observations along each side of a block: the sums of one term take 32 MiB.
pub(super) const SIDE: u64 = 2048;
/// The maximum number of observations along each side of a block where the host computes: sums of 8 MiB stay in its cache, and its allocator keeps such buffers.
const HOST_SIDE: u64 = 1024;

/// The maximum number of observations along each side of a block on a device.
pub(super) fn most(device: &Device) -> u64 {
    if device.shares_host_memory() { HOST_SIDE } else { SIDE }
}

/// All that one call works on.
pub(super) struct Job<'a, T: Element> {
    pub(super) x: PreparedObservations<'a, T>,
    /// None where the observations of x are taken with themselves.
    pub(super) y: Option<PreparedObservations<'a, T>>,
    pub(super) measure: Measure,
}

/// All that it takes to make the distance of any pair of a call.
pub(super) struct Measure {
    pub(super) device: Device,
    pub(super) metric: Metric,
    pub(super) options: Options,
    pub(super) features: u64,
    pub(super) terms: Vec<Term>,
    /// The factor of the sums of each term.
    pub(super) factors: Vec<f64>,
    /// The power of two that elements were multiplied by, undone.
    pub(super) unscale: f64,
    pub(super) wide: bool,
    /// True where the observations of x are taken with themselves.
    pub(super) is_self: bool,
    /// For each observation of x, and of y if there is one, whether no distance from it is a number. To be set before pairs are measured.
    pub(super) undefined: [Vec<bool>; 2],
}

impl Measure {
    pub(super) fn new(
        device: &Device,
        metric: Metric,
        options: &Options,
        features: u64,
        wide: bool,
        is_self: bool,
    ) -> Self {
        let (terms, _) = metric.recipe(options.missing != Missing::Propagate);
        Self {
            device: device.clone(),
            metric,
            options: *options,
            features,
            factors: vec![1.0; terms.len()],
            unscale: 1.0,
            terms,
            wide,
            is_self,
            undefined: Default::default(),
        }
    }

    /// The power of two that all elements are to be multiplied by, if not 1, of which the largest has this size: sums are divided by it
    /// from now on.
    pub(super) fn scale(&mut self, largest: f64) -> Option<f64> {
        let Scaling::Common(range) = self.metric.scaling(self.wide) else { return None };
        let scale = between(range, largest);
        let unscaled = self.terms.iter().map(|term| factor(*term, self.metric, scale.recip()));
        let unscaled: Vec<f64> = unscaled.collect();
        let is_possible = scale != 1.0 && unscaled.iter().all(|factor| factor.is_normal());
        is_possible.then(|| {
            self.factors = unscaled;
            self.unscale = scale.recip();
            scale
        })
    }

    /// True where blocks hold the lower triangle alone.
    pub(super) fn is_lower(&self) -> bool {
        self.is_self && self.metric.is_symmetric()
    }

    /// The terms of the metric, and what is prepared before.
    pub(super) fn recipe(&self) -> (Vec<Term>, Prepare) {
        self.metric.recipe(self.options.missing != Missing::Propagate)
    }

    /// Bytes for each pair of a block: on the device the sums of two blocks; on the host a distance, and the sums of one, as they come and
    /// as numbers, where they are not the device's own.
    pub(super) fn pair_needs(&self) -> Needs {
        let sums = 16 * self.terms.len() as u64;
        let distance = if self.device.shares_host_memory() { 8 } else { sums + 8 };
        Needs::device(sums) + Needs::host(distance)
    }

    /// Observations along each side of a block: a square of sums fits a binding, and two of each term fit the budgets.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`Error::Budget`].
    pub(super) fn side(&self, taken: Needs, memory: &Budget) -> Result<u64> {
        self.side_of(self.pair_needs(), taken, memory)
    }

    /// [`side`](Self::side) of blocks that need so much for each pair, and so much besides.
    ///
    /// # Errors
    /// As [`side`](Self::side).
    pub(super) fn side_of(&self, pair: Needs, taken: Needs, memory: &Budget) -> Result<u64> {
        let room = self.device.limits().room();
        // One launch may see the sums of all terms.
        let of_pair = if pair.host == 0 { pair.device } else { 8 };
        if room < of_pair {
            return Err(Error::Limit { what: "bytes of a pair's sums", requested: of_pair, max: room });
        }
        // A device whose budget nobody gave reports what it lacks.
        let memory = if memory.device.is_none() { memory.device(u64::MAX) } else { *memory };
        let left = memory.fit(&self.device, taken + pair)?.left(&self.device);
        let pair = pair.on(&self.device);
        let pairs = [(left.host, pair.host), (left.device, pair.device)].into_iter();
        let pairs = pairs.filter_map(|(left, pair)| Some(left.checked_div(pair)? + 1)).min().unwrap_or(1);
        let side = (room / of_pair).isqrt().min(most(&self.device)).min(pairs.isqrt());
        let whole = side / u64::from(TILE) * u64::from(TILE);
        Ok(if whole > 0 { whole } else { side })
    }

    /// Enqueues the sums of a block.
    fn enqueue<T: Element>(
        &self,
        (x, rows): (&PreparedObservations<'_, T>, Range<u64>),
        (y, columns): (&PreparedObservations<'_, T>, Range<u64>),
    ) -> Result<PendingBlock> {
        let sums = self.terms.iter().map(|&term| {
            let shape = [rows.end - rows.start, 2 * (columns.end - columns.start)];
            let mut sums = Tensor::empty(&self.device, &shape)?;
            self.enqueue_term(term, (x, rows.clone()), (y, columns.clone()), (&mut sums, 0))?;
            sums.send()
        });
        let sums = sums.collect::<Result<Vec<_>>>()?;
        Ok(PendingBlock { rows, columns, sums })
    }

    /// Enqueues the sums of a term of a block, from a pair of a tensor on that has room for them.
    pub(super) fn enqueue_term<T: Element>(
        &self,
        term: Term,
        (x, rows): (&PreparedObservations<'_, T>, Range<u64>),
        (y, columns): (&PreparedObservations<'_, T>, Range<u64>),
        (sums, sums0): (&mut Tensor<f32>, u64),
    ) -> Result<()> {
        let lower = self.is_lower() && columns.end > rows.start;
        let features = 0..self.features;
        let pairs = ObservationPairs { x: (x, rows), y: (y, columns), features, accumulate: false, sums0 };
        pairs.add(term, self.metric.power(), &self.options, lower, sums)
    }

    /// Waits for the sums of a block, and makes distances of them, in `distances` of another block.
    fn block(
        &self,
        PendingBlock { rows, columns, sums }: PendingBlock,
        mut distances: Vec<f64>,
    ) -> Result<DistanceBlock> {
        let mut values = sums.into_iter().map(Sent::wait).collect::<Result<Vec<_>>>()?;
        let sums: Vec<&[[f32; 2]]> = values.iter().map(|sums| sums.as_chunks().0).collect();
        let (rows, columns) = (whole(rows), whole(columns));
        let finish = Finish {
            metric: self.metric,
            missing: self.options.missing,
            features: self.features,
            undefined: [0, usize::from(!self.is_self)].map(|side| &self.undefined[side][..]),
            is_self: self.is_self,
            wide: self.wide,
        };
        let width = columns.len();
        distances.resize(rows.len() * width, 0.0);
        self.device.pool()?.install(|| {
            distances.par_chunks_mut(width).enumerate().for_each(|(i, out)| {
                let row = rows.start + i;
                let count =
                    if self.is_lower() { (row + 1).saturating_sub(columns.start).min(width) } else { width };
                let sums = sums.iter().zip(&self.factors).map(|(&sums, &factor)| {
                    let wide = self.wide;
                    sums[i * width..].iter().map(move |sum| factor * joined(sum, wide))
                });
                finish.row(row, columns.start, sums.collect(), &mut out[..count]);
            });
        });
        let counts = if finish.missing == Missing::Propagate { None } else { values.pop() };
        Ok(DistanceBlock { rows, columns, distances, counts, wide: self.wide })
    }
}

/// The sums of each term of a block, on their way to the host.
struct PendingBlock {
    rows: Range<u64>,
    columns: Range<u64>,
    sums: Vec<Sent<f32>>,
}

/// The distances of some observations of x from some of y.
pub(super) struct DistanceBlock {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    /// In C order. Above the diagonal, where only what is below it is wanted, any numbers.
    pub(super) distances: Vec<f64>,
    /// The numbers of features that both have, as devices make them, where elements may be missing.
    counts: Option<HostValues<f32>>,
    wide: bool,
}

impl DistanceBlock {
    /// The numbers of features that both have, likewise, where elements may be missing.
    pub(super) fn shared(&self) -> impl Iterator<Item = f64> {
        let counts = self.counts.iter().flat_map(|counts| counts.as_chunks().0);
        counts.map(|count| joined(count, self.wide))
    }
}

/// Blocks of pairs, one after the other: while the sums of one are on their way, the device works on the next.
pub(super) struct Pipeline<'a, F: FnMut(&mut DistanceBlock)> {
    measure: &'a Measure,
    /// Observations along each side of a block.
    side: u64,
    run: &'a Run,
    sink: F,
    before: Option<PendingBlock>,
    /// Memory of a block's distances, for the next.
    distances: Vec<f64>,
}

impl<'a, F: FnMut(&mut DistanceBlock)> Pipeline<'a, F> {
    pub(super) fn new(measure: &'a Measure, side: u64, run: &'a Run, sink: F) -> Self {
        Self { measure, side, run, sink, before: None, distances: Vec::new() }
    }

    /// Gives each block of some observations of x with some of y, row by row, but the last, which comes with what follows it. Where only what
    /// is below the diagonal is wanted, blocks above it are left out.
    ///
    /// # Errors
    /// Any error that the device reports; [`Error::Cancelled`].
    pub(super) fn add<T: Element>(
        &mut self,
        (x, rows): (&PreparedObservations<'_, T>, Range<u64>),
        (y, columns): (&PreparedObservations<'_, T>, Range<u64>),
    ) -> Result<()> {
        for rows in pieces(rows, self.side) {
            for columns in pieces(columns.clone(), self.side) {
                if self.measure.is_lower() && columns.start >= rows.end {
                    break;
                }
                self.run.cancel.check()?;
                let block = self.measure.enqueue((x, rows.clone()), (y, columns))?;
                let before = self.before.replace(block);
                self.give(before)?;
            }
        }
        Ok(())
    }

    /// Gives the last block.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub(super) fn finish(mut self) -> Result<()> {
        let last = self.before.take();
        self.give(last)
    }

    fn give(&mut self, block: Option<PendingBlock>) -> Result<()> {
        if let Some(block) = block {
            let mut block = self.measure.block(block, take(&mut self.distances))?;
            (self.sink)(&mut block);
            self.distances = block.distances;
        }
        Ok(())
    }
}

impl<'a, T: Element> Job<'a, T> {
    /// Checks the arguments, and prepares the observations.
    pub(super) fn new(
        x: &'a Tensor<T>,
        y: Option<&'a Tensor<T>>,
        metric: Metric,
        options: &Options,
    ) -> Result<Self> {
        metric.check(options.missing)?;
        let (terms, prepare) = metric.recipe(options.missing != Missing::Propagate);
        let features = features(x, options.columns)?;
        if let Some(y) = y {
            if features != self::features(y, options.columns)? {
                let got = format_args!("{:?} and {:?}", x.shape(), y.shape());
                return Err(Error::shape("distance", "as many features of x as of y", got));
            }
            x.device().has("distance", "y", y.device())?;
        }
        let wide = is_wide::<T>(x.device(), &terms, prepare, options)?;
        let operand = |(name, x)| PreparedObservations::new((name, x, 0), metric, prepare, wide, options);
        let mut measure = Measure::new(x.device(), metric, options, features, wide, y.is_none());
        let mut x = operand(("x", x))?;
        let mut y = y.map(|y| operand(("y", y))).transpose()?;
        let size = largest(&x.sizes).max(y.as_ref().map_or(0.0, |y| largest(&y.sizes)));
        if let Some(scale) = measure.scale(size) {
            [Some(&mut x), y.as_mut()].into_iter().flatten().try_for_each(|operand| operand.scale(scale))?;
        }
        measure.undefined =
            [take(&mut x.undefined), y.as_mut().map_or_else(Vec::new, |y| take(&mut y.undefined))];
        Ok(Self { x, y, measure })
    }

    /// Observations of x and of y.
    pub(super) fn extents(&self) -> [usize; 2] {
        let [x, y] = self.measure.undefined.each_ref().map(Vec::len);
        [x, if self.measure.is_self { x } else { y }]
    }

    /// As [`Measure::is_lower`].
    pub(super) fn is_lower(&self) -> bool {
        self.measure.is_lower()
    }

    /// Gives each block of the result, of so many observations on a side, or those of the lower triangle.
    ///
    /// # Errors
    /// As [`Pipeline::add`].
    pub(super) fn each_block(
        &self,
        side: u64,
        run: &Run,
        sink: impl FnMut(&mut DistanceBlock),
    ) -> Result<()> {
        let y = self.y.as_ref().unwrap_or(&self.x);
        self.each_block_of([self.x.range(), y.range()], side, run, sink)
    }

    /// Gives each block of some observations of x with some of y, as [`each_block`](Self::each_block) does.
    ///
    /// # Errors
    /// As [`Pipeline::add`].
    pub(super) fn each_block_of(
        &self,
        [rows, columns]: [Range<u64>; 2],
        side: u64,
        run: &Run,
        mut sink: impl FnMut(&mut DistanceBlock),
    ) -> Result<()> {
        let y = self.y.as_ref().unwrap_or(&self.x);
        let (mut status, end) = (Status::new(0, 1, self.x.count), whole(columns.clone()).end);
        let mut pipeline = Pipeline::new(&self.measure, side, run, |block: &mut DistanceBlock| {
            let rows = block.rows.end;
            let is_last = block.columns.end == end || self.is_lower() && block.columns.end >= rows;
            sink(block);
            if is_last {
                status.rows = rows as u64;
                run.progress.tell(status);
            }
        });
        pipeline.add((&self.x, rows), (y, columns))?;
        pipeline.finish()
    }

    /// [`Measure::side`] beside so many results of 8 bytes.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`Error::Budget`].
    pub(super) fn side(&self, results: u64, memory: &Budget) -> Result<u64> {
        self.measure.side(Needs::host(8) * results, memory)
    }
}

/// Numbers of observations, of which the host holds an array.
fn whole(range: Range<u64>) -> Range<usize> {
    let whole = |number| usize::try_from(number).expect("a block should fit the host");
    whole(range.start)..whole(range.end)
}
