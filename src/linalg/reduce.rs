//! Sums, sums of squares and counts: on the device in f32, or on the host in f64 for types that f32 does not hold.

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

/// The sums over one row or column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// The sum of the valid elements.
    pub sum: f64,
    /// The sum of the squares of the valid elements.
    pub sum_squares: f64,
    /// The number of valid elements.
    pub count: u64,
    /// The number of NaN and infinite elements. For i8 with missing negative elements, the number of elements below -1.
    pub bad: u64,
}

/// Returns the sum, the sum of squares and the number of finite elements of each row. Waits.
///
/// # Shapes
/// `x`: (n, m) of any element type -> n.
///
/// # Accuracy
/// For `i8`, exact up to sums of 2^47. For f64, `u32` and `i32`, sums are in f64 on every device. For other types, sums are in f32 over
/// blocks of 1,024 elements, and the blocks are added as a [`BlockSum`](super::BlockSum) adds them.
///
/// # Cost
/// One pass over `x`, with 16 bytes a block on the device, and at most 32 bytes a row to the host. For f64, `u32` and `i32`, `x` is copied to
/// the host, 32 MiB or one row at a time, and the device's threads add it up. Call [`Tensor::to_f32`] first to add on the device.
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

/// Returns the sum, the sum of squares and the number of finite elements of each column. Waits.
///
/// # Shapes
/// `x`: (n, m) of any element type -> m.
///
/// # Accuracy
/// For f64, `u32` and `i32`, sums are in f64 on every device. For other types, sums are in f32 over blocks of 1,024 elements, and the blocks
/// are added as a [`BlockSum`](super::BlockSum) adds them.
///
/// # Cost
/// As [`row_stats`], with blocks of columns.
///
/// # Errors
/// As [`row_stats`].
pub fn column_stats<T: Element>(x: &Tensor<T>) -> Result<Vec<Stats>> {
    pending_column_stats(x, false)?.wait()
}

/// [`row_stats`] that enqueues, except for f64, `u32` and `i32`; [`PendingStats::wait`] waits. With `negative_is_missing`, elements
/// below 0 are left out of the sums and of the number of elements.
///
/// # Errors
/// As [`row_stats`].
pub fn pending_row_stats<T: Element>(x: &Tensor<T>, negative_is_missing: bool) -> Result<PendingStats> {
    pending("row_stats", x, true, negative_is_missing)
}

/// [`column_stats`] that enqueues, except for f64, `u32` and `i32`; [`PendingStats::wait`] waits. With `negative_is_missing`, elements
/// below 0 are left out of the sums and of the number of elements.
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
    /// The sums of the blocks of each line, which are adjacent or `len` apart. They are integers if `exact`.
    Blocks {
        words: Pending<u32>,
        exact: bool,
        len: usize,
        parts: usize,
        adjacent: bool,
    },
    /// The sums of lines, as pairs in the form that [`joined`] reads.
    Lines {
        pairs: Pending<f32>,
        in_f64: bool,
    },
}

impl PendingStats {
    /// Waits, and returns the sums of each row or column.
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
    /// Adds one element. NaN and infinity count as bad; a negative element is left out if `missing`.
    fn add(&mut self, x: f64, missing: bool) {
        if !x.is_finite() {
            self.bad += 1;
        } else if !(missing && x < 0.0) {
            self.sum += x;
            self.sum_squares += x * x;
            self.count += 1;
        }
    }

    /// Returns the sums of consecutive elements.
    fn from_run<T: Element>(run: &[T], missing: bool) -> Self {
        let mut stats = Self::default();
        run.iter().for_each(|x| stats.add(x.to_f64(), missing));
        stats
    }

    /// Returns the sums with the sums of `other` added.
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

/// Converts a count, which f64 holds exactly.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number")]
fn whole(count: f64) -> u64 {
    count as u64
}

/// Does the work of [`pending_row_stats`] or [`pending_column_stats`].
fn pending<T: Element>(op: &'static str, x: &Tensor<T>, by_row: bool, missing: bool) -> Result<PendingStats> {
    if T::DTYPE.is_wide() { on_host(op, x, by_row, missing) } else { enqueue(op, x, by_row, missing) }
}

/// The number of bytes of rows that are copied to the host at once.
const PIECE: u64 = if cfg!(test) { 64 << 10 } else { 32 << 20 };
/// The number of elements of a row, of rows of a column, and of columns that a thread adds up at once.
const RUN: usize = if cfg!(test) { 16 } else { 1024 };

/// Returns the sums of each row or column in f64. Elements are added up in runs of `RUN` elements, and the runs in order.
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

/// Enqueues the sums on the device, which reads elements as f32.
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
    // The number of elements of one partial sum. It is smaller if a whole block of rows does not fit a binding.
    let fits = by_row || by_x >= rows.min(BLOCK.into());
    let block = if fits { u64::from(BLOCK) } else { 1 << by_x.max(1).ilog2() };
    let parts = summed.div_ceil(block);
    let mut out = Tensor::<u32>::empty(
        x.device(),
        &[if by_row { rows } else { parts }, if by_row { parts } else { cols }, 4],
    )?;
    let out_row = out.shape()[1] * 16;
    let groups = u64::from(limits.groups_per_axis).saturating_pow(2);
    // A step is whole blocks of rows, so that a panel's partial sums are those of the whole matrix.
    let (step, out_step) = if by_row {
        let step = by_x.min(rows_of(out_row)).min(groups / parts.max(1));
        (step, step)
    } else {
        // A block with fewer rows than the kernel adds up is a panel of its own.
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
            // The sums of a block are integers that f32 holds.
            let sums = if exact { converted(op, &out.cast::<i32>())? } else { out.cast() };
            let pairs = sum_pairs(&sums, lines)?.download()?;
            State::Lines { pairs, in_f64: limits.f64 }
        }
    }))
}

/// The maximum number of blocks of a line whose sums are downloaded and added up on the host: two sums take no more memory than the pairs of
/// one sum.
const FEW: u64 = 2;

/// Launches the kernel once for the rows `rows`, which fit one launch. Writes to the rows `out_rows` of `out`.
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
