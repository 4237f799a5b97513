//! Packed rows, transposed, times weights that the host gives: Aᵀ W.
//!
//! A weight has four limbs, two for each of two columns of the product, whose sums are joined on the host.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    IntegerSums,
    adjoint::{self, ColumnSums, LEAST_DEPTH, Weights, packed_adjoint},
    apply::PackedRows,
    check_sums, operand,
    row_batches::RowBatches,
    row_words,
};
use crate::{Device, Limits, Needs, Result, Tensor, extent::to_usize, kernel::Program, linalg::Matrix};

/// Columns of a weight, and limbs of it in each.
const HALVES: usize = 2;
const LIMBS: usize = 2;
/// Weights of a row that are multiplied at once, at most.
const GROUP: usize = 32;
/// Rows whose weights a thread of the host makes at least: a multiple of 4.
const LEAST_ROWS: usize = 256;
/// Entries whose sums a thread of the host joins at least.
const LEAST_ENTRIES: usize = 1024;

/// The numbers that an entry adds to a sum, in the sum's unit. Each has to be from -2,139,062,016 to 2,139,062,016, or sums are wrong.
/// [`weight_unit`] gives a unit by which they fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weight {
    /// For each 1 of its code.
    pub one: i32,
    /// For a missing code.
    pub missing: i32,
}

/// A unit for weights up to `largest`, finite and not negative: a power of two of which `largest` is at most 2,139,062,016.
pub fn weight_unit(largest: f64) -> f64 {
    (operand::unit(largest) / 256.0).max(f64::from_bits(1))
}

/// For each entry and column of weights the sum of its weights over rows, Aᵀ W, in whole numbers: exact, the same on every device.
///
/// # Cost
/// For each row, entry and column four products of bytes, eight of rows with a missing code. Memory as
/// [`needs`](Self::needs) says.
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
/// let table = Tensor::zeros(&device, &[0, 2])?;
/// let rows = PackedRows { packed: &panel, table: &table, range: (0, 2), missing: true };
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
    /// Zeros: no rows yet, each of which is given a weight for each of `columns`.
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

    /// The programs that sums over panels of `rows` rows launch where no code is missing, for [`Device::prepare`].
    pub fn programs(device: &Device, entries: u64, columns: usize, rows: u64) -> Vec<Program> {
        let words = row_words(entries);
        let program = |group: Range<usize>| {
            let rows = batches(device, words, width(1, group.len())).longest(rows);
            adjoint::program(words, rows, LIMBS as u64)
        };
        groups(columns).map(program).collect()
    }

    /// The memory of sums over panels of `rows` rows, without the panels. On the device: the sums, and the weights of a batch of rows. On the
    /// host: the weights of a batch, the sums in f64, and twice the sums of a group of columns.
    pub fn needs(device: &Device, entries: u64, columns: usize, rows: u64) -> Needs {
        let group = groups(columns).next().map_or(0, |group| group.len());
        let width = width(2, group);
        let batch =
            batches(device, row_words(entries), width).longest(rows).next_multiple_of(4) * width as u64;
        let sums =
            Needs { device: (8 * HALVES * columns) as u64, host: (8 * columns + 16 * HALVES * group) as u64 };
        sums * entries + Needs { device: 6, host: 1 } * batch
    }

    /// Adds rows: 2^31 at most in all. `weigh` is given a row of the panel, the first of some columns, and zeros, one for each of these
    /// columns, which it replaces by the row's weights. Enqueues; does not wait.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for rows of other lengths, or beyond their panel; what the device reports.
    pub fn add(
        &mut self,
        rows: PackedRows<'_>,
        weigh: impl Fn(u64, usize, &mut [Weight]) + Sync,
    ) -> Result<()> {
        rows.check("WeightedSums::add", self.entries, false)?;
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

    /// Waits: for each entry and column what `value` makes of the column's number and the sum, (entries, columns).
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

/// (entries, columns), of 2^31 rows or fewer.
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

/// The columns of each group: equal groups but for the last, as few as there may be.
fn groups(columns: usize) -> impl Iterator<Item = Range<usize>> {
    let step = columns.div_ceil(columns.div_ceil(GROUP).max(1)).max(1);
    (0..columns).step_by(step).map(move |first| first..columns.min(first + step))
}

/// Words of four rows' weights.
fn width(sets: usize, columns: usize) -> usize {
    sets * to_usize(operand::row_limbs(LIMBS as u64, (HALVES * columns) as u64))
}

/// The batches over rows of so many words, and of so many bytes of weights: short ones, since the host makes their weights.
fn batches(device: &Device, words: u64, weights: usize) -> RowBatches {
    let limits = device.limits();
    let short = Limits { step: limits.step.min(64 << 20), ..limits.clone() };
    RowBatches::new(&short, 4 * words + weights as u64, LEAST_DEPTH)
}

/// The limbs of some columns' weights, as [`packed_adjoint`] takes them: (⌈rows / 4⌉, width) words.
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

/// The limbs of a number, the lowest first.
const fn balanced(number: i32) -> [u8; 4] {
    // Each of them plus 128 is a byte of the sum.
    (number.cast_unsigned().wrapping_add(0x8080_8080) ^ 0x8080_8080).to_le_bytes()
}
