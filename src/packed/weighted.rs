//! The product Aᵀ W of transposed packed rows with weights from the host.
//!
//! A weight has four limbs, two for each of two columns of the product. The sums of the two columns are joined on the host.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    IntegerSums,
    adjoint::{self, ColumnSums, LEAST_DEPTH, Weights, packed_adjoint},
    apply::PackedRows,
    check_sums, operand, recode,
    row_batches::RowBatches,
    row_words,
};
use crate::{Device, Limits, Needs, Result, Tensor, extent::to_usize, kernel::Program, linalg::Matrix};

/// The number of columns of a weight, and the number of its limbs in each column.
const HALVES: usize = 2;
const LIMBS: usize = 2;
/// The maximum number of weights of a row that are multiplied at once.
const GROUP: usize = 32;
/// The minimum number of rows whose weights a thread of the host makes: a multiple of 4.
const LEAST_ROWS: usize = 256;
/// The minimum number of entries whose sums a thread of the host joins.
const LEAST_ENTRIES: usize = 1024;

/// The integers that an entry adds to a sum, in the sum's unit. Each has to be from -2,139,062,016 to 2,139,062,016, or sums are wrong.
/// [`weight_unit`] returns a unit with which they fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weight {
    /// The integer for each 1 of the entry's code.
    pub one: i32,
    /// The integer for a missing code.
    pub missing: i32,
}

/// Returns a unit for weights up to `largest`, finite and not negative: a power of two that is at least `largest` / 2,139,062,016.
pub fn weight_unit(largest: f64) -> f64 {
    (operand::unit(largest) / 256.0).max(f64::from_bits(1))
}

/// For each entry and each column of weights, the sum of the entry's weights over rows, Aᵀ W, in integers. Sums are exact, and the same on
/// every device.
///
/// # Cost
/// For each row, entry and column, four products of bytes, or eight in rows with a missing code. For the memory, see [`needs`](Self::needs).
///
/// ```
/// use teatime::{Device, Tensor, packed::{PackedRows, Weight, WeightedSums, recode, row_words}};
///
/// let device = Device::cpu();
/// // Two rows of four codes, the first in the lowest bits: 0 1 2 1, and 2 0 0 missing.
/// let codes = Tensor::from_slice(&device, &[0b01_10_01_00u8, 0b11_00_00_10], &[2, 1])?;
/// let mut panel = Tensor::zeros(&device, &[2, row_words(4)])?;
/// recode(&codes, [0, 1, 2, 3], 4, &mut panel, 0)?.wait()?;
///
/// // One column: each 1 of a code adds 10 in the first row and 20 in the second, a missing code 5.
/// let mut sums = WeightedSums::new(&device, 4, 1)?;
/// let rows = PackedRows { packed: &panel, range: (0, 2), missing: true };
/// sums.add(rows, |row, _, weights| {
///     weights[0] = Weight { one: if row == 0 { 10 } else { 20 }, missing: 5 };
/// })?;
/// assert_eq!(sums.finish(|_, sum| sum as f64)?.data(), [40.0, 10.0, 20.0, 15.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct WeightedSums {
    entries: u64,
    columns: usize,
    groups: Vec<(Range<usize>, ColumnSums)>,
}

impl WeightedSums {
    /// Creates sums of no rows. Each added row is given a weight for each of `columns` columns.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn new(device: &Device, entries: u64, columns: usize) -> Result<Self> {
        let zeros = |group: Range<usize>| {
            let sums = ColumnSums::zeros(device, entries, (HALVES * group.len()) as u64)?;
            Ok((group, sums))
        };
        Ok(Self { entries, columns, groups: groups(columns).map(zeros).collect::<Result<_>>()? })
    }

    /// Returns the programs that sums over panels of `rows` rows launch if no code is missing, and that of [`recode`](super::recode()), for
    /// [`Device::prepare`].
    pub fn programs(device: &Device, entries: u64, columns: usize, rows: u64) -> Vec<Program> {
        let words = row_words(entries);
        let program = |group: Range<usize>| {
            let rows = batches(device, words, width(1, group.len())).longest(rows);
            adjoint::program(device, words, rows, LIMBS as u64)
        };
        groups(columns).map(program).chain([recode::program()]).collect()
    }

    /// Returns the memory of sums over panels of `rows` rows, without the panels. On the device it is for the sums, and for the weights of a
    /// batch of rows. On the host it is for the weights of a batch, for the sums in f64, and for twice the sums of a group of columns.
    pub fn needs(device: &Device, entries: u64, columns: usize, rows: u64) -> Needs {
        let group = groups(columns).next().map_or(0, |group| group.len());
        let width = width(2, group);
        let batch =
            batches(device, row_words(entries), width).longest(rows).next_multiple_of(4) * width as u64;
        let sums =
            Needs { device: (8 * HALVES * columns) as u64, host: (8 * columns + 16 * HALVES * group) as u64 };
        sums * entries + Needs { device: 6, host: 1 } * batch
    }

    /// Adds rows, at most 2^31 in all. `weigh` is called with the index of a row of the panel, the index of the first of some columns, and a
    /// slice with a zero for each of these columns, which it replaces by the row's weights. Enqueues; does not wait.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for rows with another number of entries, or beyond their panel; any error that the device
    /// reports.
    pub fn add(
        &mut self,
        rows: PackedRows<'_>,
        weigh: impl Fn(u64, usize, &mut [Weight]) + Sync,
    ) -> Result<()> {
        rows.check("WeightedSums::add", self.entries, None)?;
        let (device, sets) = (rows.device(), to_usize(rows.sets()));
        for (columns, sums) in &mut self.groups {
            let width = width(sets, columns.len());
            for range in batches(device, rows.words(), width).split(rows.range) {
                let part = PackedRows { range, ..rows };
                let words = device.pool()?.install(|| bytes(part, columns, width, &weigh));
                let shape = [(words.len() / width) as u64, width as u64];
                let words = Tensor::from_slice(device, &words, &shape)?;
                packed_adjoint(part, Weights { words: &words, limb_count: LIMBS as u64, shift: 0 }, sums)?;
            }
        }
        Ok(())
    }

    /// Adds sums over other rows, which stay on their device. Fails with [`Error::Shape`](crate::Error::Shape) for sums
    /// of other entries or columns.
    pub(crate) fn join(&mut self, other: Self) -> Result<()> {
        self.groups.iter_mut().zip(other.groups).try_for_each(|((_, own), (_, other))| own.join(other))
    }

    /// Waits, and returns a matrix (entries, columns). `value` computes each element from the index of the column and the sum.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub fn finish(self, value: impl Fn(usize, i128) -> f64 + Sync) -> Result<Matrix> {
        let mut total = Matrix::zeros(to_usize(self.entries), self.columns);
        for (columns, sums) in self.groups {
            let pool = sums.words.device().pool()?;
            let sums = sums.read()?;
            let join = |(row, sums): (&mut [f64], &[i64])| {
                for ((column, row), &[low, high]) in
                    columns.clone().zip(&mut row[columns.clone()]).zip(sums.as_chunks().0)
                {
                    *row = value(column, i128::from(low) + (i128::from(high) << (8 * LIMBS)));
                }
            };
            let rows = total.data_mut().par_chunks_exact_mut(self.columns);
            pool.install(|| {
                rows.zip(sums.par_chunks_exact(HALVES * columns.len()))
                    .with_min_len(LEAST_ENTRIES)
                    .for_each(join);
            });
        }
        Ok(total)
    }
}

/// The sums are (entries, columns), over at most 2^31 rows.
impl IntegerSums for WeightedSums {
    fn into_sums(self) -> Result<(Vec<i64>, f64)> {
        let mut totals = vec![0; to_usize(self.entries) * self.columns];
        for (columns, sums) in self.groups {
            let sums = sums.read()?;
            let rows = sums.chunks_exact(HALVES * columns.len()).zip(totals.chunks_exact_mut(self.columns));
            for (sums, row) in rows {
                for (&[low, high], sum) in sums.as_chunks().0.iter().zip(&mut row[columns.clone()]) {
                    *sum = low + (high << (8 * LIMBS));
                }
            }
        }
        Ok((totals, 1.0))
    }

    fn set_sums(&mut self, sums: &[i64], unit: f64) -> Result<()> {
        check_sums((to_usize(self.entries) * self.columns, 1.0), (sums.len(), unit))?;
        let low = (1 << (8 * LIMBS)) - 1;
        self.groups.iter_mut().try_for_each(|(columns, group)| {
            let rows = sums.chunks_exact(self.columns).flat_map(|row| &row[columns.clone()]);
            group.write(rows.flat_map(|sum| [sum & low, sum >> (8 * LIMBS)]))
        })
    }
}

/// Returns the columns of each group. Groups are equal except for the last, and as few as possible.
fn groups(columns: usize) -> impl Iterator<Item = Range<usize>> {
    let step = columns.div_ceil(columns.div_ceil(GROUP).max(1)).max(1);
    (0..columns).step_by(step).map(move |first| first..columns.min(first + step))
}

/// Returns the number of words for the weights of four rows.
fn width(sets: usize, columns: usize) -> usize {
    sets * to_usize(operand::row_limbs(LIMBS as u64, (HALVES * columns) as u64))
}

/// Returns the batches of rows of `words` words, with `weights` bytes of weights for each row. Batches are short on any device,
/// since the host makes their weights while the device multiplies those before.
fn batches(device: &Device, words: u64, weights: usize) -> RowBatches {
    let limits = device.limits();
    let short = Limits { step: limits.step.min(64 << 20), ..limits.clone() };
    RowBatches::new(&short, 4 * words + weights as u64, LEAST_DEPTH)
}

/// Returns the limbs of some columns' weights, in the form that [`packed_adjoint`] takes: (⌈rows / 4⌉, width) words.
fn bytes(
    rows: PackedRows<'_>,
    columns: &Range<usize>,
    width: usize,
    weigh: &(impl Fn(u64, usize, &mut [Weight]) + Sync),
) -> Vec<u32> {
    let (Range { start, end }, row_limbs) = (rows.range(), width / to_usize(rows.sets()));
    let mut out = vec![0; to_usize(end - start).div_ceil(4) * width];
    out.par_chunks_mut(LEAST_ROWS / 4 * width).enumerate().for_each(|(part, out)| {
        let first = start + (part * LEAST_ROWS) as u64;
        let count = columns.len();
        let mut weights = vec![Weight::default(); 4 * count];
        for (four, out) in out.chunks_exact_mut(width).enumerate() {
            weights.fill(Weight::default());
            let rows = (first + 4 * four as u64..end).zip(weights.chunks_exact_mut(count));
            rows.for_each(|(row, weights)| weigh(row, columns.start, weights));
            for (set, out) in out.chunks_exact_mut(row_limbs).enumerate() {
                for i in 0..count {
                    let number = |weight: Weight| if set == 0 { weight.one } else { weight.missing };
                    let rows: [_; 4] = std::array::from_fn(|row| balanced(number(weights[row * count + i])));
                    for place in 0..HALVES * LIMBS {
                        let (half, limb) = (place / LIMBS, place % LIMBS);
                        out[HALVES * (limb * count + i) + half] =
                            u32::from_le_bytes(rows.map(|row| row[place]));
                    }
                }
            }
        }
    });
    out
}

/// Returns the limbs of a number, the lowest first.
const fn balanced(number: i32) -> [u8; 4] {
    // Each limb plus 128 is a byte of the sum.
    (number.cast_unsigned().wrapping_add(0x8080_8080) ^ 0x8080_8080).to_le_bytes()
}
