//! One call: its arguments checked, and its result made block by block of pairs.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    Metric, Missing, Options,
    frame::between,
    metric::{Finish, Scaling},
    precision::{factor, is_wide},
    sums::{Operand, Pairs, features, largest},
};
use crate::{
    Budget, Element, Error, Pending, Result, Run, Status, Tensor,
    dtype::joined,
    kernels::distance::{TILE, Term},
};

/// Most observations along each side of a block: sums of 32 MiB a term.
pub(super) const SIDE: u64 = 2048;
/// The same where the host computes: sums of 8 MiB stay in its cache, and its allocator keeps such buffers.
const HOST_SIDE: u64 = 1024;

/// All that one call works on.
pub(super) struct Job<'a, T: Element> {
    x: Operand<'a, T>,
    /// None where the observations of x are taken with themselves.
    y: Option<Operand<'a, T>>,
    features: u64,
    metric: Metric,
    terms: Vec<Term>,
    /// The factor of the sums of each term.
    factors: Vec<f64>,
    options: Options,
}

/// The sums of each term of a block, on their way to the host.
struct PendingBlock {
    rows: Range<u64>,
    columns: Range<u64>,
    sums: Vec<Pending<f32>>,
}

/// The distances of some observations of x from some of y.
pub(super) struct Block {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    /// In C order. Above the diagonal, where only what is below it is wanted, any numbers.
    pub(super) distances: Vec<f64>,
    /// Where elements may be missing, the numbers of features that both have, as devices make them.
    counts: Vec<f32>,
    wide: bool,
}

impl Block {
    /// The numbers of features that both have, likewise, where elements may be missing.
    pub(super) fn shared(&self) -> impl Iterator<Item = f64> {
        self.counts.as_chunks().0.iter().map(|count| joined(count, self.wide))
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
        let wide = is_wide(x, &terms, prepare, options)?;
        let operand = |x| Operand::new(x, metric, prepare, wide, options);
        let mut x = operand(("x", x))?;
        let mut y = y.map(|y| operand(("y", y))).transpose()?;
        let mut factors = vec![1.0; terms.len()];
        if let Scaling::Common(range) = metric.scaling(wide) {
            let sizes = [Some(&x), y.as_ref()].map(|of| of.map_or(0.0, |of| largest(&of.sizes)));
            let scale = between(range, sizes[0].max(sizes[1]));
            let unscaled = terms.iter().map(|term| factor(*term, metric, scale.recip()));
            let unscaled: Vec<f64> = unscaled.collect();
            if scale != 1.0 && unscaled.iter().all(|factor| factor.is_normal()) {
                factors = unscaled;
                [Some(&mut x), y.as_mut()].into_iter().flatten().try_for_each(|of| of.scale(scale))?;
            }
        }
        Ok(Self { x, y, features, metric, terms, factors, options: *options })
    }

    /// Observations of x and of y.
    pub(super) fn extents(&self) -> [usize; 2] {
        [self.x.undefined.len(), self.y.as_ref().unwrap_or(&self.x).undefined.len()]
    }

    /// Whether blocks hold the lower triangle alone.
    pub(super) fn is_lower(&self) -> bool {
        self.y.is_none() && self.metric.is_symmetric()
    }

    /// Gives each block of the result, of so many observations on a side, or those of the lower triangle; while one is on its way, the device works on the next.
    ///
    /// # Errors
    /// What the device reports; [`Error::Cancelled`].
    pub(super) fn each_block(&self, side: u64, run: &Run, sink: impl FnMut(Block)) -> Result<()> {
        let y = self.y.as_ref().unwrap_or(&self.x);
        self.each_block_of([0..self.x.count, 0..y.count], side, run, sink)
    }

    /// The same of some observations of x and some of y: no blocks that are above the diagonal where only what is below it is wanted.
    ///
    /// # Errors
    /// As [`each_block`](Self::each_block).
    pub(super) fn each_block_of(
        &self,
        [rows, columns]: [Range<u64>; 2],
        side: u64,
        run: &Run,
        mut sink: impl FnMut(Block),
    ) -> Result<()> {
        let y = self.y.as_ref().unwrap_or(&self.x);
        let starts = |all: &Range<u64>| all.clone().step_by(usize::try_from(side).unwrap_or(usize::MAX));
        let part = |all: &Range<u64>, start: u64| start..all.end.min(start + side);
        let blocks = starts(&rows).flat_map(|row| starts(&columns).map(move |col| (row, col)));
        let blocks = blocks.map(|(row, col)| (part(&rows, row), part(&columns, col)));
        let blocks = blocks.filter(|(rows, columns)| !self.is_lower() || columns.start < rows.end);
        let mut status = Status::new(0, 1, self.x.count);
        let mut finish = |sums: PendingBlock| {
            let end = sums.rows.end;
            let to_diagonal = self.is_lower() && sums.columns.end >= end;
            let is_last = sums.columns.end == columns.end || to_diagonal;
            sink(self.block(sums)?);
            if is_last {
                status.rows = end;
                run.progress.tell(status);
            }
            Ok(())
        };
        let mut before = None;
        for (rows, columns) in blocks {
            run.cancel.check()?;
            let sums = self.terms.iter().map(|&term| {
                let shape = [rows.end - rows.start, 2 * (columns.end - columns.start)];
                let mut sums = Tensor::empty(self.x.x.device(), &shape)?;
                let (x, y, features) = ((&self.x, rows.clone()), (y, columns.clone()), 0..self.features);
                let pairs = Pairs { x, y, features, accumulate: false };
                pairs.add(term, self.metric.power(), &self.options, self.is_lower(), &mut sums)?;
                sums.download()
            });
            let sums = sums.collect::<Result<Vec<_>>>()?;
            if let Some(sums) = before.replace(PendingBlock { rows, columns, sums }) {
                finish(sums)?;
            }
        }
        before.map_or(Ok(()), finish)
    }

    /// Observations along each side of a block: a square of sums fits a binding, and two of each term fit the budgets beside so
    /// many results.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`Error::Budget`].
    pub(super) fn side(&self, results: u64, memory: &Budget) -> Result<u64> {
        let device = self.x.x.device();
        let (room, terms) = (device.limits().room(), self.terms.len() as u64);
        if room < 8 {
            return Err(Error::Limit { what: "bytes of a pair's sums", requested: 8, max: room });
        }
        // Of a pair, sums on the device, these and their distance on the host, and the results.
        let (on_device, on_host) = (16 * terms, 16 * terms + 8);
        let on_host = if device.shares_host_memory() { on_device + on_host } else { on_host };
        let results = results.saturating_mul(8);
        let within = |what, budget: u64, taken: u64, of_pair: u64, given| match budget.checked_sub(taken) {
            Some(left) if left >= of_pair => Ok((left / of_pair).isqrt()),
            _ => Err(Error::Budget { what, budget, minimum: taken.saturating_add(of_pair), given }),
        };
        let most = if device.shares_host_memory() { HOST_SIDE } else { SIDE };
        let mut side = (room / 8).isqrt().min(most);
        side = side.min(within(
            "host memory budget",
            memory.host_bytes(),
            results,
            on_host,
            memory.host.is_some(),
        )?);
        if let (Some(budget), false) = (memory.device, device.shares_host_memory()) {
            side = side.min(within(Budget::DEVICE, budget, 0, on_device, true)?);
        }
        let whole = side / u64::from(TILE) * u64::from(TILE);
        Ok(if whole > 0 { whole } else { side })
    }

    /// Waits for the sums of a block, and makes distances of them.
    fn block(&self, PendingBlock { rows, columns, sums }: PendingBlock) -> Result<Block> {
        let mut values = sums.into_iter().map(Pending::wait).collect::<Result<Vec<_>>>()?;
        let sums: Vec<&[[f32; 2]]> = values.iter().map(|sums| sums.as_chunks().0).collect();
        let y = self.y.as_ref().unwrap_or(&self.x);
        let (rows, columns) = (whole(rows), whole(columns));
        let finish = Finish {
            metric: self.metric,
            missing: self.options.missing,
            features: self.features,
            undefined: [&self.x.undefined, &y.undefined],
            is_self: self.y.is_none(),
            wide: self.x.wide,
        };
        let width = columns.len();
        let mut distances = vec![0.0; rows.len() * width];
        self.x.x.device().pool()?.install(|| {
            distances.par_chunks_mut(width).enumerate().for_each(|(i, out)| {
                let row = rows.start + i;
                let mut values = vec![0.0; sums.len()];
                for (j, out) in out.iter_mut().enumerate() {
                    let col = columns.start + j;
                    if self.is_lower() && col > row {
                        break;
                    }
                    for ((value, sums), factor) in values.iter_mut().zip(&sums).zip(&self.factors) {
                        *value = factor * joined(&sums[i * width + j], self.x.wide);
                    }
                    *out = finish.distance([row, col], &values);
                }
            });
        });
        let counts = if finish.missing == Missing::Propagate { None } else { values.pop() };
        Ok(Block { rows, columns, distances, counts: counts.unwrap_or_default(), wide: self.x.wide })
    }
}

/// Numbers of observations, of which the host holds an array.
fn whole(range: Range<u64>) -> Range<usize> {
    let whole = |number| usize::try_from(number).expect("a block should fit the host");
    whole(range.start)..whole(range.end)
}
