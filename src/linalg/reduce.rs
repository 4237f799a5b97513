//! Sums, sums of squares and counts: in f32, or in f64 for types that f32 does not hold.

use std::ops::Range;

use crate::{
    Element, Error, Result, Tensor,
    array::{elementwise::converted, sum_pairs},
    dtype::joined,
    extent::{blocks, to_usize},
    kernel::{Grid, small},
    kernels::reduce::{BLOCK, Params, REDUCE, WG, exact, spec},
    tensor::Pending,
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
/// One pass over `x`, with 16 bytes a block on the device (32 bytes for f64, `u32` and `i32`), and at most 32 bytes a row to the host. If the
/// device does not [compute in f64](crate::Limits::f64), f64, `u32` and `i32` are copied to the host, 32 MiB or one row at a time, and its
/// threads add them up. Call [`Tensor::to_f32`] first to add on the device.
///
/// # Errors
/// [`Error::Shape`] unless `x` is a matrix; [`Error::Limit`] when one row, or the sums of its blocks or columns, do not fit a binding.
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

/// [`row_stats`] that enqueues, except where the host adds; [`PendingStats::wait`] waits. With `negative_is_missing`, elements below 0 are
/// left out of the sums and of the number of elements.
///
/// # Errors
/// As [`row_stats`].
pub fn pending_row_stats<T: Element>(x: &Tensor<T>, negative_is_missing: bool) -> Result<PendingStats> {
    pending("row_stats", x, true, negative_is_missing)
}

/// [`column_stats`] that enqueues, except where the host adds; [`PendingStats::wait`] waits. With `negative_is_missing`, elements below 0 are
/// left out of the sums and of the number of elements.
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

/// The number of bytes of rows that are copied to the host at once.
const PIECE: u64 = if cfg!(test) { 64 << 10 } else { 32 << 20 };

/// Does the work of [`pending_row_stats`] or [`pending_column_stats`].
fn pending<T: Element>(op: &'static str, x: &Tensor<T>, by_row: bool, missing: bool) -> Result<PendingStats> {
    let (device, in_f64) = (x.device(), T::DTYPE.is_wide());
    if !in_f64 || device.limits().f64 {
        return enqueue(op, x, in_f64, [by_row, missing]);
    }
    let [rows, cols] = x.matrix(op)?;
    let host = device.host()?;
    let mut sums = vec![Stats::default(); to_usize(if by_row { rows } else { cols })];
    for piece in blocks(rows, (PIECE / (cols * T::DTYPE.size()).max(1)).max(1)) {
        let part = x.rows(piece.clone())?.to_device(&host)?;
        let more = enqueue(op, &part, in_f64, [by_row, missing])?.wait()?;
        let first = if by_row { to_usize(piece.start) } else { 0 };
        sums[first..].iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.with(more));
    }
    Ok(PendingStats(State::Here(sums)))
}

/// Enqueues the sums on the device, which reads elements as f32, or as f64 with `in_f64`.
pub(crate) fn enqueue<T: Element>(
    op: &'static str,
    x: &Tensor<T>,
    in_f64: bool,
    [by_row, missing]: [bool; 2],
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
    let shape = if by_row { [rows, parts, 4] } else { [parts, cols, 4] };
    let words = if in_f64 { 8 } else { 4 };
    let mut out = Tensor::<u32>::empty(x.device(), &[shape[0], shape[1], words])?;
    let out_row = shape[1] * 4 * words;
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
            what: "bytes in one row of a matrix, or of its sums",
            requested: out_row.max(cols * T::DTYPE.size()),
            max: room,
        });
    }
    let (mut row, mut out_first) = (0u64, 0u64);
    while row < rows && cols > 0 {
        let panel = row..rows.min(row.saturating_add(step));
        let out_rows = out_first..out.shape()[0].min(out_first.saturating_add(out_step));
        launch(x, panel.clone(), &mut out, out_rows, [in_f64, by_row, missing])?;
        (row, out_first) = (panel.end, out_first + out_step);
    }
    let lines = if by_row { [rows, parts, 4] } else { [1, parts, 4 * cols] };
    if parts <= FEW && !in_f64 {
        let (len, parts) = (to_usize(len), to_usize(parts));
        let state = State::Blocks { words: out.download()?, exact, len, parts, adjacent: by_row };
        return Ok(PendingStats(state));
    }
    let pairs = match (exact, in_f64) {
        // The sums of a block are integers that f32 holds.
        (true, _) => sum_pairs(&converted::<f32, _>(op, &out.cast::<i32>())?, lines),
        (false, false) => sum_pairs(&out.cast::<f32>(), lines),
        (false, true) => sum_pairs(&out.into_elements::<f64>(&shape), lines),
    };
    Ok(PendingStats(State::Lines { pairs: pairs?.download()?, in_f64: limits.f64 }))
}

/// The most blocks of a line whose sums are added up on the host: two sums take no more memory than the pairs of one sum.
const FEW: u64 = 2;

/// Launches the kernel once for the rows `rows`, which fit one launch. Writes to the rows `out_rows` of `out`.
fn launch<T: Element>(
    x: &Tensor<T>,
    rows: Range<u64>,
    out: &mut Tensor<u32>,
    out_rows: Range<u64>,
    [in_f64, by_row, missing]: [bool; 3],
) -> Result<()> {
    let cols = x.shape()[1];
    let width = out.shape()[1] * out.shape()[2];
    let window = x.window(rows.start * cols..rows.end * cols);
    let target = out.window_mut(out_rows.start * width..out_rows.end * width);
    let count = rows.end - rows.start;
    let (x0, out0, x_type) = (window.start, target.start, T::DTYPE.code());
    let params = Params { rows: small(count), cols: small(cols), x0, out0, x_type };
    // By row, one workgroup adds one block; by column, one invocation adds one column's block.
    let groups = if by_row {
        count * cols.div_ceil(BLOCK.into())
    } else {
        count.div_ceil(BLOCK.into()) * cols.div_ceil(WG.into())
    };
    let grid = Grid::linear(groups, x.device().limits().groups_per_axis, count * cols)?;
    let spec = spec(T::DTYPE, in_f64, by_row, missing);
    x.device().launch(&REDUCE, &spec, grid, &[window.arg, target.arg], &params)
}
