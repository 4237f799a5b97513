//! Sums, sums of squares and counts, on the device in f32, and of types that f32 does not hold on the host in f64.

use std::ops::Range;

use rayon::prelude::*;

use crate::{
    Element, Error, Result, Tensor,
    array::{elementwise::converted, sum_pairs},
    dtype::joined,
    extent::to_usize,
    kernel::{Grid, small},
    kernels::reduce::{BLOCK, Params, REDUCE, WG, exact, spec},
    tensor::Pending,
    waiting::install,
};

/// Sums over one row or column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Sum of the valid elements.
    pub sum: f64,
    /// Sum of their squares.
    pub sum_squares: f64,
    /// Number of valid elements.
    pub count: u64,
    /// Number of NaN and infinite elements (of codes below -1, where negative is missing and the type is i8).
    pub bad: u64,
}

/// Sum, sum of squares and number of finite elements of each row. Waits.
///
/// # Shapes
/// `x`: (n, m) of any element type -> n.
///
/// # Accuracy
/// Exact for `i8` by rows, up to sums of 2^47; of f64, `u32` and `i32` in f64, on every device; else f32 over blocks of 1,024 elements, and
/// over the blocks as a [`BlockSum`](super::BlockSum) adds.
///
/// # Cost
/// One pass over `x`. 16 bytes a block on the device, and at most 32 a row to the host. Of f64, `u32` and `i32`, `x` is copied to the
/// host, 32 MiB or a row at a time, where the device's threads add it up; [`Tensor::to_f32`] before leaves that to the device.
///
/// # Errors
/// [`Error::Shape`] unless `x` is a matrix; [`Error::Limit`] when one row does not fit a binding.
///
/// ```
/// let device = teatime::Device::best()?;
/// let x = teatime::Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, f32::NAN], &[2, 2])?;
/// let rows = teatime::linalg::row_stats(&x)?;
/// assert_eq!((rows[0].sum, rows[0].sum_squares, rows[0].count), (3.0, 5.0, 2));
/// assert_eq!((rows[1].sum, rows[1].count, rows[1].bad), (3.0, 1, 1));
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn row_stats<T: Element>(x: &Tensor<T>) -> Result<Vec<Stats>> {
    pending_row_stats(x, false)?.wait()
}

/// Sum, sum of squares and number of finite elements of each column. Waits.
///
/// # Shapes
/// `x`: (n, m) of any element type -> m.
///
/// # Accuracy
/// f64 for f64, `u32` and `i32`, on every device; else f32 over blocks of 1,024 elements, and over the blocks as a
/// [`BlockSum`](super::BlockSum) adds.
///
/// # Cost
/// As [`row_stats`], the blocks being of columns.
///
/// # Errors
/// As [`row_stats`].
pub fn column_stats<T: Element>(x: &Tensor<T>) -> Result<Vec<Stats>> {
    pending_column_stats(x, false)?.wait()
}

/// [`row_stats`] that enqueues, but for f64, `u32` and `i32`; [`PendingStats::wait`] waits. With `negative_is_missing`, elements below 0 count as little as NaN.
///
/// # Errors
/// As [`row_stats`].
pub fn pending_row_stats<T: Element>(x: &Tensor<T>, negative_is_missing: bool) -> Result<PendingStats> {
    pending("row_stats", x, true, negative_is_missing)
}

/// [`column_stats`] that enqueues, but for f64, `u32` and `i32`; [`PendingStats::wait`] waits. With `negative_is_missing`, elements below 0 count as little as NaN.
///
/// # Errors
/// As [`row_stats`].
pub fn pending_column_stats<T: Element>(x: &Tensor<T>, negative_is_missing: bool) -> Result<PendingStats> {
    pending("column_stats", x, false, negative_is_missing)
}

/// The sums that [`pending_row_stats`] or [`pending_column_stats`] enqueued, on their way to the host.
#[derive(Debug)]
#[must_use = "nothing waits for what was enqueued, and no error is seen"]
pub struct PendingStats(State);

#[derive(Debug)]
enum State {
    Here(Vec<Stats>),
    /// Sums of blocks of each line, one after the other or `len` apart; where `exact`, integers.
    Blocks {
        words: Pending<u32>,
        exact: bool,
        len: usize,
        parts: usize,
        adjacent: bool,
    },
    /// Sums of lines, as pairs that [`joined`] takes.
    Lines {
        pairs: Pending<f32>,
        in_f64: bool,
    },
}

impl PendingStats {
    /// Waits for them: those of each row or column.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub fn wait(self) -> Result<Vec<Stats>> {
        match self.0 {
            State::Here(stats) => Ok(stats),
            State::Blocks { words, exact, len, parts, adjacent } => {
                let words = words.wait()?;
                let (words, _) = words.as_chunks::<4>();
                let number = |word: u32| match exact {
                    true => f64::from(word.cast_signed()),
                    false => f64::from(f32::from_bits(word)),
                };
                let part =
                    |i: usize, part: usize| words[if adjacent { i * parts + part } else { part * len + i }];
                let total = |i| {
                    (0..parts)
                        .fold(Stats::default(), |sum, p| sum.with(Stats::from_sums(part(i, p).map(number))))
                };
                Ok((0..len).map(total).collect())
            }
            State::Lines { pairs, in_f64 } => {
                let pairs = pairs.wait()?;
                let lines = pairs.as_chunks::<2>().0.as_chunks::<4>().0;
                let line = |line: &[[f32; 2]; 4]| Stats::from_sums(line.map(|pair| joined(&pair, in_f64)));
                Ok(lines.iter().map(line).collect())
            }
        }
    }
}

impl Stats {
    /// Adds one element: NaN and infinity are bad, negative is missing where that is asked for.
    fn add(&mut self, x: f64, missing: bool) {
        if !x.is_finite() {
            self.bad += 1;
        } else if !(missing && x < 0.0) {
            self.sum += x;
            self.sum_squares += x * x;
            self.count += 1;
        }
    }

    /// The sums of a run of elements.
    fn from_run<T: Element>(run: &[T], missing: bool) -> Self {
        let mut stats = Self::default();
        run.iter().for_each(|x| stats.add(x.to_f64(), missing));
        stats
    }

    /// With another's sums added.
    fn with(self, other: Self) -> Self {
        Self {
            sum: self.sum + other.sum,
            sum_squares: self.sum_squares + other.sum_squares,
            count: self.count + other.count,
            bad: self.bad + other.bad,
        }
    }

    fn from_sums([sum, sum_squares, count, bad]: [f64; 4]) -> Self {
        Self { sum, sum_squares, count: whole(count), bad: whole(bad) }
    }
}

/// A count, which f64 holds exactly.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number")]
fn whole(count: f64) -> u64 {
    count as u64
}

/// [`pending_row_stats`] or [`pending_column_stats`].
fn pending<T: Element>(op: &'static str, x: &Tensor<T>, by_row: bool, missing: bool) -> Result<PendingStats> {
    if T::DTYPE.is_wide() { on_host(op, x, by_row, missing) } else { enqueue(op, x, by_row, missing) }
}

/// Bytes of the rows that are copied to the host at once.
const PIECE: u64 = if cfg!(test) { 64 << 10 } else { 32 << 20 };
/// Elements of a row, rows of a column, and columns that a thread adds up at once.
const RUN: usize = if cfg!(test) { 16 } else { 1024 };

/// The sums of each row or column, in f64, over runs of as many elements, which are added in their order.
fn on_host<T: Element>(op: &'static str, x: &Tensor<T>, by_row: bool, missing: bool) -> Result<PendingStats> {
    let [rows, cols] = x.matrix(op)?;
    let mut sums = vec![Stats::default(); to_usize(if by_row { rows } else { cols })];
    let (step, width) = ((PIECE / (cols * T::DTYPE.size()).max(1)).max(1), to_usize(cols).max(1));
    let device = x.device();
    for first in (0..if cols > 0 { rows } else { 0 }).step_by(to_usize(step)) {
        let part = x.rows(first..rows.min(first.saturating_add(step)))?.read()?;
        install(device.pool()?, device.cancel(), || match by_row {
            true => {
                let lines = part.par_chunks_exact(width);
                sums[to_usize(first)..].par_iter_mut().zip(lines).for_each(|(stats, row)| {
                    let runs = row.par_chunks(RUN).map(|run| Stats::from_run(run, missing));
                    *stats = runs.collect::<Vec<_>>().into_iter().fold(*stats, Stats::with);
                });
            }
            false => sums.par_chunks_mut(RUN).enumerate().for_each(|(i, stats)| {
                let runs = part.par_chunks(RUN * width).map(|run| {
                    let mut run_sums = vec![Stats::default(); stats.len()];
                    for row in run.chunks_exact(width) {
                        let row = &row[i * RUN..];
                        run_sums.iter_mut().zip(row).for_each(|(stats, x)| stats.add(x.to_f64(), missing));
                    }
                    run_sums
                });
                for run_sums in runs.collect::<Vec<_>>() {
                    stats.iter_mut().zip(run_sums).for_each(|(stats, added)| *stats = stats.with(added));
                }
            }),
        });
    }
    Ok(PendingStats(State::Here(sums)))
}

/// Enqueues the sums on the device, of elements as f32.
pub(crate) fn enqueue<T: Element>(
    op: &'static str,
    x: &Tensor<T>,
    by_row: bool,
    missing: bool,
) -> Result<PendingStats> {
    let [rows, cols] = x.matrix(op)?;
    let exact = exact(T::DTYPE, by_row);
    let (len, summed) = if by_row { (rows, cols) } else { (cols, rows) };
    let limits = x.device().limits();
    let room = limits.room();
    let rows_of = |row: u64| room.checked_div(row).unwrap_or(u64::MAX);
    let by_x = rows_of(cols * T::DTYPE.size());
    // Elements of one partial sum: fewer where a whole block of rows does not fit a binding.
    let fits = by_row || by_x >= rows.min(BLOCK.into());
    let block = if fits { u64::from(BLOCK) } else { 1 << by_x.max(1).ilog2() };
    let parts = summed.div_ceil(block);
    let mut out = Tensor::<u32>::empty(
        x.device(),
        &[if by_row { rows } else { parts }, if by_row { parts } else { cols }, 4],
    )?;
    let out_row = out.shape()[1] * 16;
    let groups = u64::from(limits.groups_per_axis).saturating_pow(2);
    // Whole blocks of rows, so that a panel's partial sums are those of the whole matrix.
    let (step, out_step) = if by_row {
        let step = by_x.min(rows_of(out_row)).min(groups / parts.max(1));
        (step, step)
    } else {
        // A block of fewer rows than the kernel adds up is a panel of its own.
        let by_x = if fits { (by_x / block).max(1) } else { by_x.min(1) };
        let blocks = by_x.min(rows_of(out_row)).min(groups / cols.div_ceil(WG.into()).max(1));
        (blocks.saturating_mul(block), blocks)
    };
    if step == 0 {
        return Err(Error::Limit {
            what: "bytes in one row of a matrix",
            requested: cols * T::DTYPE.size(),
            max: room,
        });
    }
    let (mut row, mut out_first) = (0u64, 0u64);
    while row < rows && cols > 0 {
        let panel = row..rows.min(row.saturating_add(step));
        let out_rows = out_first..out.shape()[0].min(out_first.saturating_add(out_step));
        launch(x, panel.clone(), &mut out, out_rows, [by_row, missing])?;
        (row, out_first) = (panel.end, out_first + out_step);
    }
    let lines = if by_row { [rows, parts, 4] } else { [1, parts, 4 * cols] };
    Ok(PendingStats(match parts <= FEW {
        true => {
            let (len, parts) = (to_usize(len), to_usize(parts));
            State::Blocks { words: out.download()?, exact, len, parts, adjacent: by_row }
        }
        false => {
            // Integers of a block, which f32 holds.
            let sums = if exact { converted(op, &out.cast::<i32>())? } else { out.cast() };
            let pairs = sum_pairs(&sums, lines)?.download()?;
            State::Lines { pairs, in_f64: limits.f64 }
        }
    }))
}

/// Sums of so many blocks of a line go to the host, which adds them up: two take no more room than the pairs of one sum.
const FEW: u64 = 2;

/// One launch over rows that fit it, into these rows of `out`.
pub(crate) fn launch<T: Element>(
    x: &Tensor<T>,
    rows: Range<u64>,
    out: &mut Tensor<u32>,
    out_rows: Range<u64>,
    [by_row, missing]: [bool; 2],
) -> Result<()> {
    let cols = x.shape()[1];
    let width = out.shape()[1] * 4;
    let window = x.window(rows.start * cols..rows.end * cols);
    let target = out.window_mut(out_rows.start * width..out_rows.end * width);
    let count = rows.end - rows.start;
    let params = Params {
        rows: small(count),
        cols: small(cols),
        x0: window.start,
        out0: target.start,
        x_type: T::DTYPE.code(),
    };
    // By row, one workgroup adds one block; by column, one invocation adds one column's block.
    let groups = if by_row {
        count * cols.div_ceil(BLOCK.into())
    } else {
        count.div_ceil(BLOCK.into()) * cols.div_ceil(WG.into())
    };
    let grid = Grid::linear(groups, x.device().limits().groups_per_axis, count * cols)?;
    x.device().launch(&REDUCE, &spec(T::DTYPE, by_row, missing), grid, &[window.arg, target.arg], &params)
}
