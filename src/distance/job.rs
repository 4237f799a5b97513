//! One call: it checks the arguments and computes the result in blocks of pairs.

use std::{mem::take, ops::Range, sync::OnceLock};

use rayon::prelude::*;

use super::{
    Metric, Missing, Options,
    frame::between,
    metric::{Finish, Prepare, Scaling},
    operands::Operands,
    precision::{factor, is_wide},
    shares::share_of,
    sums::{ObservationPairs, PreparedObservations, features, largest},
};
use crate::{
    Budget, Device, Element, Error, Needs, Result, Run, Status, Tensor,
    array::gather,
    dtype::joined,
    extent::{pieces, to_usize},
    kernels::distance::{TILE, Term},
    tensor::{HostValues, Sent},
};

/// The maximum number of observations along each side of a block: the sums of one term take 32 MiB, which the host receives and finishes
/// while the device adds up those of the next block. The block's 1,024 workgroups fill the largest GPUs four times.
pub(super) const SIDE: u64 = 2048;
/// The maximum number of observations along each side of a block on the host: sums of 8 MiB stay in cache, and their buffers are reused.
const HOST_SIDE: u64 = 1024;

/// Returns the maximum number of observations along each side of a block on a device.
pub(super) fn most(device: &Device) -> u64 {
    if device.shares_host_memory() { HOST_SIDE } else { SIDE }
}

/// The prepared inputs of one call.
pub(super) struct Job<'a, T: Element> {
    /// The observations of x, and of y unless the observations of x are paired with themselves.
    operands: Vec<PreparedObservations<'a, T>>,
    pub(super) measure: Measure,
    /// The number of a member of a group, and the number of members, each of which computes the pairs of some observations of x.
    pub(super) share: [u64; 2],
    /// The operands of the products that sums are computed by, if they are [expanded](Options::expanded) and needed.
    expanded: OnceLock<Operands>,
}

/// The parameters for computing the distance of any pair in a call.
#[derive(Clone)]
pub(super) struct Measure {
    pub(super) device: Device,
    pub(super) metric: Metric,
    pub(super) options: Options,
    pub(super) features: u64,
    pub(super) terms: Vec<Term>,
    prepare: Prepare,
    /// The factor for the sums of each term.
    pub(super) factors: Vec<f64>,
    /// The reciprocal of the power of two that elements were multiplied by.
    pub(super) unscale: f64,
    pub(super) wide: bool,
    /// True if the observations of x are paired with themselves.
    pub(super) is_self: bool,
    /// For each observation of x, and of y if given, true if all its distances are NaN. Must be set before pairs are measured.
    pub(super) undefined: [Vec<bool>; 2],
}

impl Measure {
    /// Creates the measure for elements of type `T`, before any observation is known. Fails with [`Error::NoF64`].
    pub(super) fn new<T: Element>(
        device: &Device,
        metric: Metric,
        options: &Options,
        features: u64,
        is_self: bool,
    ) -> Result<Self> {
        let (terms, prepare) = metric.recipe(options.missing != Missing::Propagate);
        Ok(Self {
            device: device.clone(),
            metric,
            options: *options,
            features,
            factors: vec![1.0; terms.len()],
            unscale: 1.0,
            wide: is_wide::<T>(device, &terms, prepare, options)?,
            terms,
            prepare,
            is_self,
            undefined: Default::default(),
        })
    }

    /// Checks and prepares observations, the first of which has the index `first`. Fails as [`PreparedObservations::new`] does.
    pub(super) fn prepared<'a, T: Element>(
        &self,
        named: (&'static str, &'a Tensor<T>, u64),
    ) -> Result<PreparedObservations<'a, T>> {
        PreparedObservations::new(named, self.metric, self.prepare, self.wide, &self.options)
    }

    /// Returns the power of two to multiply all elements by, given the largest element's size, or `None` for no scaling. From then on, sums are
    /// divided by the corresponding factor.
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

    /// True if blocks hold only the lower triangle.
    pub(super) fn is_lower(&self) -> bool {
        self.is_self && self.metric.is_symmetric()
    }

    /// Returns the columns that are computed for some rows: all, or those before the last row if only the lower triangle is computed.
    pub(super) fn paired_with(&self, rows: &Range<u64>, columns: &Range<u64>) -> Range<u64> {
        let end = if self.is_lower() { columns.end.min(rows.end) } else { columns.end };
        columns.start..end.max(columns.start)
    }

    /// Returns the memory for each pair of a block. On the device: the sums of two blocks. On the host: a distance, and unless host and device
    /// share memory, the sums of one block as received and as values.
    pub(super) fn pair_needs(&self) -> Needs {
        // Products are one f32 for each pair.
        let sums = if self.options.expanded { 8 } else { 16 * self.terms.len() as u64 };
        let distance = if self.device.shares_host_memory() { 8 } else { sums + 8 };
        Needs::device(sums) + Needs::host(distance)
    }

    /// Returns the number of observations along each side of a block: a square of sums fits a binding, and two for each term fit the budgets.
    /// Fails with [`Error::Limit`] or [`Error::Budget`].
    pub(super) fn side(&self, taken: Needs, memory: &Budget) -> Result<u64> {
        self.side_of(self.pair_needs(), taken, memory)
    }

    /// Returns [`side`](Self::side), with its errors, for blocks that need `pair` for each pair, with `taken` memory in use.
    pub(super) fn side_of(&self, pair: Needs, taken: Needs, memory: &Budget) -> Result<u64> {
        let room = self.device.limits().room();
        // One launch may bind the sums of all terms.
        let of_pair = if pair.host == 0 && !self.options.expanded { pair.device } else { 8 };
        if room < of_pair {
            return Err(Error::Limit { what: "bytes of a pair's sums", requested: of_pair, max: room });
        }
        let operands = match self.options.expanded {
            true => Operands::needs(self.extents(), self.features, self.is_self),
            false => Needs::default(),
        };
        // Without a budget for the device, the device itself reports a lack of memory.
        let memory = if memory.device.is_none() { memory.device(u64::MAX) } else { *memory };
        let left = memory.fit(&self.device, taken + operands + pair)?.left(&self.device);
        let pair = pair.on(&self.device);
        let pairs = [(left.host, pair.host), (left.device, pair.device)].into_iter();
        let pairs = pairs.filter_map(|(left, pair)| Some(left.checked_div(pair)? + 1)).min().unwrap_or(1);
        let side = (room / of_pair).isqrt().min(most(&self.device)).min(pairs.isqrt());
        let whole = side / u64::from(TILE) * u64::from(TILE);
        Ok(if whole > 0 { whole } else { side })
    }

    /// Checks that squared differences can be expanded, if they are to be. Fails with [`Error::Argument`].
    fn check_expanded(&self) -> Result<()> {
        let Self { options, terms, metric, wide, .. } = self;
        if !options.expanded {
            return Ok(());
        }
        let why = if options.missing != Missing::Propagate {
            "`expanded` knows no rule for missing elements".to_owned()
        } else if terms[..] != [Term::Square] {
            format!("`expanded` is of squared differences, not of {metric}")
        } else if *wide {
            "`expanded` is of f32, and these sums are of f64 unless `narrow` is set".to_owned()
        } else if options.columns {
            "`expanded` is of observations that are rows".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::argument("distance", "options", why))
    }

    /// Returns the numbers of observations of x and of y.
    fn extents(&self) -> [u64; 2] {
        let [x, y] = self.undefined.each_ref().map(|side| side.len() as u64);
        [x, if self.is_self { x } else { y }]
    }

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
        Ok(PendingBlock { rows, columns, sums, is_expanded: false })
    }

    /// Enqueues the sums of a term of a block, into a tensor that has room, starting at its pair `sums0`.
    pub(super) fn enqueue_term<T: Element>(
        &self,
        term: Term,
        (x, rows): (&PreparedObservations<'_, T>, Range<u64>),
        (y, columns): (&PreparedObservations<'_, T>, Range<u64>),
        (sums, sums0): (&mut Tensor<f32>, u64),
    ) -> Result<()> {
        let lower = self.is_lower() && columns.end > rows.start;
        let features = 0..self.features;
        let pairs =
            ObservationPairs { x: (x, rows), y: (y, columns), features, accumulate: false, sums0, y_step: 0 };
        pairs.add(term, self.metric.power(), &self.options, lower, sums)
    }

    /// Waits for the sums of a block, and computes distances from them into `distances`, the buffer of an earlier block.
    fn block(
        &self,
        PendingBlock { rows, columns, sums, is_expanded }: PendingBlock,
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
                let out = &mut out[..count];
                if is_expanded {
                    // A product is minus half of a squared difference. Rounding may leave it above 0.
                    let square = |&product: &f32| if product > 0.0 { 0.0 } else { -2.0 * f64::from(product) };
                    let factor = self.factors[0];
                    let squares = values[0][i * width..].iter().map(|product| factor * square(product));
                    return finish.row(row, columns.start, vec![squares], out);
                }
                let sums = sums.iter().zip(&self.factors).map(|(&sums, &factor)| {
                    let wide = self.wide;
                    sums[i * width..].iter().map(move |sum| factor * joined(sum, wide))
                });
                finish.row(row, columns.start, sums.collect(), out);
            });
        });
        let counts = if finish.missing == Missing::Propagate { None } else { values.pop() };
        Ok(DistanceBlock { rows, columns, distances, counts, wide: self.wide })
    }
}

/// The sums of each term of a block, or if they are expanded the [products](Operands::products), in transfer to the host.
struct PendingBlock {
    rows: Range<u64>,
    columns: Range<u64>,
    sums: Vec<Sent<f32>>,
    is_expanded: bool,
}

/// The distances from some observations of x to some of y.
pub(super) struct DistanceBlock {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    /// The distances in C order. If only the lower triangle is computed, values above the diagonal are arbitrary.
    pub(super) distances: Vec<f64>,
    /// The numbers of features that both observations have, as device values. None if missing elements are propagated.
    counts: Option<HostValues<f32>>,
    wide: bool,
}

impl DistanceBlock {
    /// Returns the numbers of shared features in the order of the distances, from the pair `first` on, if elements may be missing.
    pub(super) fn shared(&self, first: usize) -> impl Iterator<Item = f64> {
        let counts = self.counts.iter().flat_map(move |counts| &counts.as_chunks().0[first..]);
        counts.map(|count| joined(count, self.wide))
    }
}

/// Consecutive blocks of pairs: while the sums of one block are in transfer, the device computes the next block.
pub(super) struct Pipeline<'a> {
    measure: &'a Measure,
    side: u64,
    run: &'a Run,
    sink: &'a mut BlockSink<'a>,
    expanded: Option<&'a Operands>,
    before: Option<PendingBlock>,
    /// The buffer of the previous block's distances, for reuse.
    distances: Vec<f64>,
}

pub(super) type BlockSink<'a> = dyn FnMut(&mut DistanceBlock) + 'a;

impl<'a> Pipeline<'a> {
    pub(super) fn new(measure: &'a Measure, side: u64, run: &'a Run, sink: &'a mut BlockSink<'a>) -> Self {
        Self { measure, side, run, sink, expanded: None, before: None, distances: Vec::new() }
    }

    /// Passes each block of some observations of x with some of y to the sink, row by row. The last block is passed by the next call. If only
    /// the lower triangle is wanted, columns after the last row are left out.
    pub(super) fn add<T: Element>(
        &mut self,
        (x, rows): (&PreparedObservations<'_, T>, Range<u64>),
        (y, columns): (&PreparedObservations<'_, T>, Range<u64>),
    ) -> Result<()> {
        for rows in pieces(rows, self.side) {
            for columns in pieces(self.measure.paired_with(&rows, &columns), self.side) {
                self.run.cancel.check()?;
                let block = match self.expanded {
                    Some(operands) => {
                        let sums = vec![operands.products(rows.clone(), columns.clone(), true)?.send()?];
                        PendingBlock { rows: rows.clone(), columns, sums, is_expanded: true }
                    }
                    None => self.measure.enqueue((x, rows.clone()), (y, columns))?,
                };
                let before = self.before.replace(block);
                self.give(before)?;
            }
        }
        Ok(())
    }

    /// Passes the last block to the sink.
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
        let features = features(x, options.columns)?;
        if let Some(y) = y {
            if features != self::features(y, options.columns)? {
                let got = format_args!("{:?} and {:?}", x.shape(), y.shape());
                return Err(Error::shape("distance", "as many features of x as of y", got));
            }
            x.device().has("distance", "y", y.device())?;
        }
        let mut measure = Measure::new::<T>(x.device(), metric, options, features, y.is_none())?;
        measure.check_expanded()?;
        let given = [Some(x), y].into_iter().flatten().zip(["x", "y"]);
        let mut operands =
            given.map(|(x, name)| measure.prepared((name, x, 0))).collect::<Result<Vec<_>>>()?;
        let sizes = operands.iter().map(|operand| largest(&operand.sizes));
        if let Some(scale) = measure.scale(sizes.fold(0.0, f64::max)) {
            operands.iter_mut().try_for_each(|operand| operand.scale(scale))?;
        }
        for (undefined, operand) in measure.undefined.iter_mut().zip(&mut operands) {
            *undefined = take(&mut operand.undefined);
        }
        Ok(Self { operands, measure, share: [0, 1], expanded: OnceLock::new() })
    }

    /// Makes the operands of products that give squared differences. Fails with the errors of the device.
    pub(super) fn product_operands(&self) -> Result<Operands> {
        let is_self = self.measure.is_self;
        Operands::new(self.operands(), is_self, &self.measure.undefined[usize::from(!is_self)])
    }

    /// Returns the operands of products, made the first time, if there are pairs whose sums are expanded. Fails with the device's errors.
    pub(super) fn expanded(&self) -> Result<Option<&Operands>> {
        let is_empty = self.measure.extents().contains(&0);
        if self.measure.options.expanded && !is_empty && self.expanded.get().is_none() {
            let _ = self.expanded.set(self.product_operands()?);
        }
        Ok(self.expanded.get())
    }

    /// Returns the observations of x, and those that they are paired with.
    pub(super) fn operands(&self) -> [&PreparedObservations<'a, T>; 2] {
        [&self.operands[0], &self.operands[self.operands.len() - 1]]
    }

    /// Returns the job that pairs some observations of x, by their indices, with all that x is paired with. `x` has their elements.
    pub(super) fn of_lines<'b>(&'b self, lines: &[u64], x: &'b Tensor<T>) -> Result<Job<'b, T>> {
        let ([all, y], Measure { options, wide, undefined, is_self, .. }) = (self.operands(), &self.measure);
        let table = gather(&all.table, lines)?.into();
        let operands = [("x", x, table), ("y", y.x, y.table.clone())]
            .map(|(name, x, table)| PreparedObservations::prepared((name, x, 0), table, *wide, options));
        let own = lines.iter().map(|&line| undefined[0][to_usize(line)]).collect();
        let undefined = [own, undefined[usize::from(!is_self)].clone()];
        let operands = operands.into_iter().collect::<Result<_>>()?;
        let measure = Measure { is_self: false, undefined, ..self.measure.clone() };
        Ok(Job { operands, measure, share: [0, 1], expanded: OnceLock::new() })
    }

    /// Returns the [parts](share_of) of some observations of x whose pairs this job computes.
    pub(super) fn parts(&self, rows: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        share_of(rows, self.share)
    }

    pub(super) fn extents(&self) -> [usize; 2] {
        self.measure.extents().map(to_usize)
    }

    /// Passes each block of the result or the lower triangle, or of this job's share, to `sink`. Fails as [`Pipeline::add`] does.
    pub(super) fn each_block(&self, side: u64, run: &Run, sink: &mut BlockSink<'_>) -> Result<()> {
        self.each_block_of(self.operands().map(PreparedObservations::range), side, run, sink)
    }

    /// Passes each block of some observations of x with some of y to `sink`, as [`each_block`](Self::each_block) does. Fails as
    /// [`Pipeline::add`] does.
    pub(super) fn each_block_of(
        &self,
        [rows, columns]: [Range<u64>; 2],
        side: u64,
        run: &Run,
        sink: &mut BlockSink<'_>,
    ) -> Result<()> {
        let [x, y] = self.operands();
        let (mut status, end) = (Status::new(0, 1, x.count), whole(columns.clone()).end);
        let mut sink_and_tell = |block: &mut DistanceBlock| {
            let rows = &block.rows;
            let is_last =
                block.columns.end == end || self.measure.is_lower() && block.columns.end >= rows.end;
            status.rows += if is_last { rows.len() as u64 } else { 0 };
            sink(block);
            if is_last {
                run.progress.tell(status);
            }
        };
        let mut pipeline = Pipeline::new(&self.measure, side, run, &mut sink_and_tell);
        pipeline.expanded = self.expanded()?;
        for rows in self.parts(rows) {
            pipeline.add((x, rows), (y, columns.clone()))?;
        }
        pipeline.finish()
    }
}

/// Converts indices of observations that the host holds to `usize`.
fn whole(range: Range<u64>) -> Range<usize> {
    let whole = |number| usize::try_from(number).expect("a block should fit the host");
    whole(range.start)..whole(range.end)
}
