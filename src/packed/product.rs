//! Products with all packed rows, one panel after the other.

use std::{collections::VecDeque, ops::Range};

use rayon::prelude::*;

use super::{
    adjoint::{self, ColumnSums, LEAST_DEPTH, packed_adjoint},
    apply::{self, PackedRows, packed_apply, packed_weights},
    check_entries,
    operand::{LIMBS, LimbMatrix, MAX_COLUMNS, row_limbs, unit},
    recode,
    row_batches::RowBatches,
    row_words,
};
use crate::{
    Device, Error, Needs, Result, Tensor, extent::to_usize, kernel::Program, kernels::packed_apply::TILE,
    linalg::Matrix, tensor::Pending,
};

/// The factor by which rounding in f32 may raise a bound.
const ROUNDING: f64 = 1.0 + 1e-5;

/// The maximum number of parts that are being downloaded while the next parts are computed.
const IN_FLIGHT: usize = 2;
/// The minimum number of rows of a matrix that a thread of the host takes.
const LEAST_ROWS: usize = 1024;

/// A group of columns of an operand.
#[derive(Debug)]
struct Group {
    first: usize,
    x: LimbMatrix,
    /// The [factors](LimbMatrix::factors) of `x`; for `Aᵀ (A X)`, the factors of the units of the weights.
    factors: Tensor<f32>,
    /// For `Aᵀ (A X)` alone: the unit of each column's weights, in units of `x`, and the sums.
    adjoint: Option<(Vec<f64>, ColumnSums)>,
}

/// A product of packed rows with a matrix on the host: A X, or Aᵀ (A X). A row of A holds the row's codes less the row's mean, times the
/// row's factor.
///
/// # Cost
/// For each row, entry and column of X, three products of bytes, and another three for Aᵀ (A X). Rows with a missing code take more. Columns
/// of X are taken in groups that fit the device, and each group takes all rows. For the memory, see [`needs`](Self::needs).
///
/// ```
/// use teatime::{
///     Device, Tensor,
///     linalg::Matrix,
///     packed::{PackedProduct, PackedRows, recode, row_words},
/// };
///
/// let device = Device::cpu();
/// // Two rows of four codes, the first in the lowest bits: 0 1 2 1, and 2 0 0 1.
/// let codes = Tensor::from_slice(&device, &[0b01_10_01_00u8, 0b01_00_00_10], &[2, 1])?;
/// let mut panel = Tensor::zeros(&device, &[2, row_words(4)])?;
/// recode(&codes, [0, 1, 2, 3], 4, &mut panel, 0)?.wait()?;
/// // Means of 0 and factors of 1: A is the codes.
/// // The largest Euclidean norm of a row is √6, the largest sum 4.
/// let table = Tensor::from_slice(&device, &[0.0f32, 1.0, 0.0, 1.0], &[2, 2])?;
/// let bounds = [6f64.sqrt(), 4.0];
///
/// // A x is (1, 3).
/// let x = Matrix::from_vec(vec![1.0, 0.0, 0.0, 1.0], 4, 1)?;
/// let mut product = PackedProduct::new(&device, &x, false, Some(bounds))?;
/// product.add(PackedRows { packed: &panel, range: (0, 2), missing: false }, &table)?;
/// for (found, expected) in product.finish()?.data().iter().zip([6.0, 1.0, 2.0, 4.0]) {
///     assert!((found - expected).abs() < 1e-5);
/// }
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct PackedProduct {
    device: Device,
    groups: Vec<Group>,
    entries: u64,
    columns: usize,
    centred: bool,
    /// True if the product is `Aᵀ (A X)`.
    twice: bool,
}

/// The sums of a product `Aᵀ (A X)` over some rows of A, which merge with those over other rows, such as another device's.
#[derive(Debug)]
pub struct ProductSums {
    device: Device,
    entries: usize,
    /// (entries, columns).
    values: Vec<i64>,
    /// For each column, the unit of its weights in units of X, and the unit of X.
    units: Vec<[f64; 2]>,
    centred: bool,
}

impl PackedProduct {
    /// Creates the product `A X`, or with `bounds` the product `Aᵀ (A X)`, for X (entries, columns).
    ///
    /// - `centred`: true if means are subtracted from codes. If false, means only replace missing codes. For a centred `Aᵀ (A X)`, a row's
    ///   mean has to be the mean of its known codes.
    /// - `bounds`: the largest Euclidean norm of a row of A, and the largest sum of a row's magnitudes, each row times its factor and the
    ///   larger of 1 and its mean. The bounds determine how `A X` is rounded: larger bounds cost digits, and with smaller bounds sums overflow.
    ///
    /// # Errors
    /// [`Error::Argument`] for NaN and infinity in X, and for `bounds` that are negative or not finite; [`Error::Limit`] for more entries
    /// than sums are exact for, and when not even one column fits a binding; [`Error::OutOfMemory`].
    pub fn new(device: &Device, x: &Matrix, centred: bool, bounds: Option<[f64; 2]>) -> Result<Self> {
        let (entries, columns) = (x.rows() as u64, x.cols());
        check_entries(entries)?;
        if bounds.is_some_and(|bounds| bounds.iter().any(|bound| !(bound.is_finite() && *bound >= 0.0))) {
            return Err(Error::argument("PackedProduct::new", "bounds", format_args!("{bounds:?}")));
        }
        let words = row_words(entries);
        let width = group_columns(device, words, columns as u64)?;
        let step = to_usize(width);
        let mut groups = Vec::new();
        for first in (0..columns).step_by(step) {
            let mut operand = LimbMatrix::new(device, x, first, step.min(columns - first), words)?;
            if !centred {
                // Without centring, Σ μ x over the missing entries is added, instead of Σ μ x over the other entries being subtracted.
                operand.totals.fill(0.0);
            }
            let adjoint = bounds.map(|[norm, magnitudes]| {
                let lengths = lengths(x, first, &operand.units);
                let bounds = lengths.iter().zip(&operand.largest);
                let bounds = bounds.map(|(length, largest)| (norm * length).min(magnitudes * largest));
                let units: Vec<f64> = bounds.map(|bound| unit(bound * ROUNDING)).collect();
                Ok::<_, Error>((units, ColumnSums::zeros(device, entries, operand.columns)?))
            });
            let adjoint = adjoint.transpose()?;
            let factors = operand.factors(adjoint.as_ref().map(|(units, _)| &units[..]))?;
            groups.push(Group { first, x: operand, factors, adjoint });
        }
        Ok(Self { device: device.clone(), groups, entries, columns, centred, twice: bounds.is_some() })
    }

    /// Returns the programs that `Aᵀ (A X)` launches for an X (entries, columns) if no code is missing, and that of
    /// [`recode`](super::recode()), for [`Device::prepare`]. The programs that take longest to compile come first. `panels`: the numbers of
    /// rows of a panel and of the last panel.
    ///
    /// # Errors
    /// [`Error::Limit`] when not even one column fits a binding.
    pub fn programs(device: &Device, entries: u64, columns: u64, panels: [u64; 2]) -> Result<Vec<Program>> {
        let words = row_words(entries);
        let width = group_columns(device, words, columns)?;
        let groups = [width.min(columns), columns % width].into_iter().filter(|&columns| columns > 0);
        let of_groups = groups.map(|columns| batches(device, words, row_limbs(LIMBS, columns)));
        let of_panels = of_groups.flat_map(|batches| panels.map(|rows| batches.split((0, rows)))).flatten();
        let rows: Vec<u64> = of_panels.map(|(first, end)| end - first).collect();
        let weights = rows.iter().map(|&rows| apply::program_of_weights(device, rows));
        let adjoint = rows.iter().map(|&rows| adjoint::program(device, words, rows, LIMBS));
        Ok(weights.chain(adjoint).chain([recode::program()]).collect())
    }

    /// Fails with [`Error::Argument`] unless `self.twice` is `twice`.
    fn check_twice(&self, op: &'static str, twice: bool) -> Result<()> {
        let [want, other] = if twice { ["with", "without"] } else { ["without", "with"] };
        let why = format_args!("made {other} `bounds`, and this is for a product made {want}");
        if self.twice == twice { Ok(()) } else { Err(Error::argument(op, "self", why)) }
    }

    /// Adds the part of `Aᵀ (A X)` that comes from some rows. `table` has for each row of their panel the mean that is subtracted, and then
    /// the factor: (rows, 2). Both are 0 for a row that is left out. Enqueues; does not wait.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows with another number of entries than X, or beyond their panel or table; [`Error::Argument`] for a product
    /// without bounds; any error that the device reports.
    pub fn add(&mut self, rows: PackedRows<'_>, table: &Tensor<f32>) -> Result<()> {
        let op = "PackedProduct::add";
        rows.check(op, self.entries, Some(table))?;
        self.check_twice(op, true)?;
        for Group { x, factors, adjoint, .. } in &mut self.groups {
            let Some((_, sums)) = adjoint else { continue };
            for part in parts(rows, x.columns) {
                packed_adjoint(part, &packed_weights(part, table, x, factors)?, sums)?;
            }
        }
        Ok(())
    }

    /// Makes the weights of some rows, and drops them. This is the first half of [`add`](Self::add), for benchmarks of this workspace.
    /// Enqueues; does not wait.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    #[doc(hidden)]
    pub fn weigh(&self, rows: PackedRows<'_>, table: &Tensor<f32>) -> Result<()> {
        rows.check("PackedProduct::weigh", self.entries, Some(table))?;
        for Group { x, factors, .. } in &self.groups {
            for part in parts(rows, x.columns) {
                packed_weights(part, table, x, factors)?;
            }
        }
        Ok(())
    }

    /// Returns the device memory that a product `Aᵀ (A X)` takes: X, the sums, and A X of some rows at a time. The memory of A, which has `rows` rows,
    /// is not included.
    pub fn needs(device: &Device, rows: u64, entries: u64, columns: u64) -> Needs {
        let (words, width) = (row_words(entries), 2 * row_limbs(LIMBS, columns));
        let weights = batches(device, words, width).longest(rows).next_multiple_of(4) * width;
        Needs::device(16 * words * row_limbs(LIMBS, columns) + 8 * entries * columns + 6 * weights)
    }

    /// Waits, and returns `Aᵀ (A X)` of all added rows, (entries, columns), exact except for the rounding of X and of A X.
    ///
    /// # Errors
    /// [`Error::Argument`] for a product without bounds; any error that the device reports.
    pub fn finish(self) -> Result<Matrix> {
        self.sums()?.finish()
    }

    /// Waits, and returns the sums of all added rows, which take 8 bytes an element.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn sums(self) -> Result<ProductSums> {
        self.check_twice("PackedProduct::sums", true)?;
        let Self { device, groups, entries, columns, centred, .. } = self;
        let (mut values, mut units) = (Vec::new(), Vec::new());
        let (entries, count) = (to_usize(entries), groups.len());
        for Group { first, x, adjoint, .. } in groups {
            let Some((weight_units, sums)) = adjoint else { continue };
            let width = weight_units.len();
            units.extend(weight_units.into_iter().zip(x.units).map(|(weight, unit)| [weight, unit]));
            if count == 1 {
                values = sums.read()?;
                continue;
            }
            values.resize(entries * columns, 0);
            let rows = values.chunks_exact_mut(columns);
            let sums = sums.read()?;
            rows.zip(sums.chunks_exact(width))
                .for_each(|(row, sums)| row[first..first + width].copy_from_slice(sums));
        }
        Ok(ProductSums { device, entries, values, units, centred })
    }

    /// Calls `sink` with `A X` part by part, in order: with the indices of the part's rows in their panel, and with the product (rows,
    /// columns). `table` is that of [`add`](Self::add). While some parts are being downloaded, the next parts are computed. Waits.
    ///
    /// # Errors
    /// [`Error::Shape`] as for [`add`](Self::add); [`Error::Argument`] for a product with bounds; any error of the device or of `sink`.
    pub fn each_part<'a>(
        &self,
        parts: impl Iterator<Item = PackedRows<'a>>,
        table: &Tensor<f32>,
        sink: &mut dyn FnMut(Range<u64>, &Matrix) -> Result<()>,
    ) -> Result<()> {
        let op = "PackedProduct::each_part";
        self.check_twice(op, false)?;
        let mut pending = VecDeque::with_capacity(IN_FLIGHT + 1);
        for rows in parts {
            rows.check(op, self.entries, Some(table))?;
            pending.push_back((rows.range(), self.start(rows, table)?));
            if pending.len() > IN_FLIGHT
                && let Some((rows, parts)) = pending.pop_front()
            {
                sink(rows.clone(), &self.collect(rows, parts)?)?;
            }
        }
        pending.into_iter().try_for_each(|(rows, parts)| sink(rows.clone(), &self.collect(rows, parts)?))
    }

    /// Enqueues `A X` for some rows: the columns of each group.
    fn start(&self, rows: PackedRows<'_>, table: &Tensor<f32>) -> Result<Vec<Pending<f32>>> {
        let start = |group: &Group| packed_apply(rows, table, &group.x, &group.factors)?.download();
        self.groups.iter().map(start).collect()
    }

    /// Waits, and returns rows of `A X`.
    fn collect(&self, rows: Range<u64>, parts: Vec<Pending<f32>>) -> Result<Matrix> {
        let mut product = Matrix::zeros(to_usize(rows.end - rows.start), self.columns);
        for (Group { first, x, .. }, part) in self.groups.iter().zip(parts) {
            let (part, width) = (part.wait()?, to_usize(x.columns));
            self.device.pool()?.install(|| {
                let rows = product.data_mut().par_chunks_exact_mut(self.columns.max(1));
                rows.zip(part.par_chunks_exact(width)).with_min_len(LEAST_ROWS).for_each(|(row, part)| {
                    for ((value, &part), unit) in row[*first..].iter_mut().zip(part).zip(&x.units) {
                        *value = f64::from(part) * unit;
                    }
                });
            });
        }
        Ok(product)
    }
}

impl ProductSums {
    /// Adds the sums over other rows of A, exactly: in any order, the result has the same bits.
    ///
    /// # Errors
    /// [`Error::Argument`] for sums with another X, or with other bounds or another rule for means.
    pub fn merge(mut self, other: Self) -> Result<Self> {
        let [one, two] = [&self, &other].map(|sums| (sums.values.len(), &sums.units, sums.centred));
        if one != two {
            return Err(Error::argument("ProductSums::merge", "other", "of another X, or with other bounds"));
        }
        self.device.pool()?.install(|| {
            let sums = self.values.par_iter_mut().with_min_len(LEAST_ROWS).zip(&other.values);
            sums.for_each(|(sum, other)| *sum += other);
        });
        Ok(self)
    }

    /// Returns `Aᵀ (A X)`, as [`PackedProduct::finish`] does.
    ///
    /// # Errors
    /// [`Error::Driver`] if the system cannot start threads.
    pub fn finish(self) -> Result<Matrix> {
        let Self { device, entries, values: sums, units, centred } = self;
        let mut total = Matrix::zeros(entries, units.len());
        let columns = units.len().max(1);
        device.pool()?.install(|| {
            // A row of the centred matrix adds up to 0, so the mean is to be subtracted from each entry.
            let means = centred.then(|| means(&sums, columns));
            let rows = total.data_mut().par_chunks_exact_mut(columns).zip(sums.par_chunks_exact(columns));
            rows.with_min_len(LEAST_ROWS).for_each(|(row, sums)| {
                for (c, ((value, &sum), [weight, unit])) in row.iter_mut().zip(sums).zip(&units).enumerate() {
                    let sum = means.as_ref().map_or(sum as f64, |means| means[c].taken_from(sum));
                    *value = sum * weight * unit;
                }
            });
        });
        Ok(total)
    }
}

/// Returns some rows in the batches in which they are multiplied with `columns` columns.
fn parts(rows: PackedRows<'_>, columns: u64) -> impl Iterator<Item = PackedRows<'_>> {
    let batches = batches(rows.device(), rows.words(), rows.sets() * row_limbs(LIMBS, columns));
    batches.split(rows.range).map(move |range| PackedRows { range, ..rows })
}

/// Returns the batches of rows of `words` words, with `weights` bytes of weights for each row.
fn batches(device: &Device, words: u64, weights: u64) -> RowBatches {
    let limits = device.limits();
    // Each workgroup takes one tile of `A X`.
    let least = (u64::from(limits.fill) * u64::from(TILE)).max(LEAST_DEPTH);
    RowBatches::new(limits, 4 * words + weights, least)
}

/// Returns the Euclidean lengths of the columns from `first` on, each in its unit. Squares are added up in the order of the rows, so that
/// results are always the same to the bit.
fn lengths(x: &Matrix, first: usize, units: &[f64]) -> Vec<f64> {
    let mut squares = vec![0.0; units.len()];
    for row in x.data().chunks_exact(x.cols().max(1)) {
        for ((square, value), unit) in squares.iter_mut().zip(&row[first..]).zip(units) {
            let value = value / unit;
            *square += value * value;
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

/// The mean of some integers: `whole + rest / count`.
#[derive(Clone, Copy, Debug)]
struct Mean {
    whole: i64,
    rest: i64,
    count: i64,
}

impl Mean {
    /// Creates the mean of `count` integers, at least one, that add up to `total`.
    fn new(total: i128, count: usize) -> Self {
        let count = i64::try_from(count).unwrap_or(i64::MAX).max(1);
        // The mean of integers of 64 bits fits 64 bits.
        let part = |part: i128| i64::try_from(part).expect("a mean should be within the numbers' range");
        Self {
            whole: part(total.div_euclid(count.into())),
            rest: part(total.rem_euclid(count.into())),
            count,
        }
    }

    /// Returns `number` less the mean: `(number count - total) / count`, whose numerator is exact until it is converted to f64.
    fn taken_from(self, number: i64) -> f64 {
        let Self { whole, rest, count } = self;
        let narrow = || number.checked_sub(whole)?.checked_mul(count)?.checked_sub(rest);
        let wide = || (i128::from(number) - i128::from(whole)) * i128::from(count) - i128::from(rest);
        // 64 bits hold the numerator unless sums are near the largest possible sums.
        narrow().map_or_else(|| wide() as f64, |difference| difference as f64) / count as f64
    }
}

/// Returns the mean of each column of (entries, width) sums.
fn means(sums: &[i64], width: usize) -> Vec<Mean> {
    let none = || vec![0i128; width];
    let parts = sums.par_chunks(width * LEAST_ROWS).map(|sums| {
        let mut totals = none();
        for sums in sums.chunks_exact(width) {
            totals.iter_mut().zip(sums).for_each(|(total, &sum)| *total += i128::from(sum));
        }
        totals
    });
    let totals = parts.reduce(none, |mut a, b| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    });
    totals.into_iter().map(|total| Mean::new(total, sums.len() / width)).collect()
}

/// Returns the number of columns of a group. Groups are equal, and as few as fit.
fn group_columns(device: &Device, words: u64, columns: u64) -> Result<u64> {
    let room = device.limits().room();
    let bytes = |columns: u64| 16 * words * row_limbs(LIMBS, columns);
    let mut groups = columns.div_ceil(MAX_COLUMNS).max(1);
    while bytes(columns.div_ceil(groups)) > room {
        if groups >= columns {
            return Err(Error::Limit {
                what: "bytes of one column of a packed product's operand",
                requested: bytes(1),
                max: room,
            });
        }
        groups += 1;
    }
    Ok(columns.div_ceil(groups).max(1))
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "halves of 64 bits")]
mod tests {
    use super::*;
    use crate::random::philox;

    /// Returns `number` less the mean, computed in 128 bits throughout.
    fn in_128_bits(number: i64, all: i128, count: usize) -> f64 {
        (i128::from(number) * count as i128 - all) as f64 / count as f64
    }

    #[test]
    fn a_mean_is_taken_as_128_bits_take_it() {
        let random = |i: u64| {
            let [a, b, shift, _] = philox([8, 9], i);
            ((u64::from(a) << 32 | u64::from(b)).cast_signed()) >> (shift % 64)
        };
        let extremes =
            [i64::MIN, i64::MIN + 1, -(1 << 53) - 1, -1, 0, 1, (1 << 53) + 1, i64::MAX - 1, i64::MAX];
        let (mut narrow, mut wide) = (0, 0);
        for count in [1, 2, 3, 64, 999, 500_000] {
            for seed in 0..40 {
                // The total is about `count` times one number.
                let numbers: Vec<i64> = (0..50).map(|i| random(100 * seed + i)).chain(extremes).collect();
                let all = i128::from(random(7000 + seed)) * count as i128 + i128::from(seed % 3) - 1;
                let all =
                    all.clamp(i128::from(i64::MIN) * count as i128, i128::from(i64::MAX) * count as i128);
                let mean = Mean::new(all, count);
                for number in numbers {
                    let expected = in_128_bits(number, all, count);
                    assert_eq!(
                        mean.taken_from(number).to_bits(),
                        expected.to_bits(),
                        "{number} {all} {count}"
                    );
                    let fits = i64::try_from(i128::from(number) * count as i128 - all).is_ok();
                    if fits { narrow += 1 } else { wide += 1 }
                }
            }
        }
        assert!(narrow > 1000 && wide > 1000, "both ways should be taken: {narrow}, {wide}");
    }

    #[test]
    fn columns_have_means_of_their_own() {
        let sums = [i64::MAX, 1, i64::MAX, -2, i64::MAX - 3, 5];
        let means = means(&sums, 2);
        let all = [3 * i128::from(i64::MAX) - 3, 4];
        for (i, &sum) in sums.iter().enumerate() {
            let expected = in_128_bits(sum, all[i % 2], 3);
            assert_eq!(means[i % 2].taken_from(sum).to_bits(), expected.to_bits());
        }
    }
}
