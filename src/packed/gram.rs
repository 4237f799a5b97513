//! The Gram matrix of the columns of packed rows, in integers.
//!
//! With codes g, mean μ and factor s of a row, and μ for a missing code, `G = Σ s² (g - μ) (gᵀ - μ)` is `T = Σ s² g gᵀ` less the means of the
//! rows and columns of T, since a row's codes less μ add up to 0. [`PairProducts`] computes T.
//!
//! Integers have three bytes, or two if there are many rows and s² is small. They are rounded up or down by a low-discrepancy sequence over
//! the rows, so that rounding errors of the sums have both signs equally often, even if many rows share one s².

use rayon::prelude::*;

use super::{
    IntegerSums, PANEL,
    operand::{LIMBS, max_of},
    pair_products::{Kind, Multiples, PairProducts, RowTerms, exponent, power_of_two},
};
use crate::{
    Device, Error, Needs, Result, Tensor, kernel::Program, kernels::packed_gather::Recode, linalg::Matrix,
};

/// The number of rows from which on integers of two bytes are enough. Rounding to 2^-13 of s² then adds at most 1.3e-6 of a diagonal entry,
/// while sums in f32 are off by 1.1e-6 (`benches/peers/gram_digits.py`).
const MANY: u64 = 1 << 17;

/// The bound below which sums fit 63 bits.
const MOST: f64 = (1u64 << 63) as f64;

/// The numbers with which a row takes part in the sum.
#[derive(Clone, Copy, Debug)]
pub struct RowScale {
    /// The number that is subtracted from the row's codes, and that replaces a missing code.
    pub mean: f64,
    /// The factor of the difference: about 1 or more, or 0 for a row that takes no part. The square of the factor is rounded to a multiple of
    /// 2^-22, or of a finer unit if columns and rows are few. A square of up to twice the number of columns always fits; a larger square may
    /// fit if rows are few.
    pub factor: f64,
    /// The number of codes that are not missing, as counted.
    pub known: u64,
}

/// The options that all rows have in common.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct GramOptions {
    /// True if means are subtracted. If false, means only replace missing codes.
    pub centred: bool,
    /// True if all factors are 1 or 0. Fewer limbs are then enough.
    pub unit_factors: bool,
}

crate::setters! {
    GramOptions {
        centred(bool),
        unit_factors(bool),
    }
}

/// The Gram matrix of the columns over rows of codes g, with factor s and mean μ of each row. A missing code becomes μ.
///
/// - If [centred](GramOptions::centred), it is `Σ s² (g - μ) (gᵀ - μ)`. μ then has to be the mean of the row's known codes, since means are
///   subtracted from the sums over all rows.
/// - Otherwise it is `Σ s² g gᵀ`.
///
/// Sums are of integers, and are exact except for the rounding of s². Results are the same to the bit on every device and for all panels.
///
/// # Cost
/// For each row and byte of the integers, columns² / 2 products of bytes. Integers have one byte with
/// [`unit_factors`](GramOptions::unit_factors), and otherwise three, or two for many rows. In a row in which few codes differ from the most
/// common code, only the pairs of those codes are multiplied. For the memory, see [`needs`](Self::needs). The page of [the module](crate::packed)
/// has an example.
#[derive(Debug)]
pub struct Gram {
    products: PairProducts,
    options: GramOptions,
    /// The number of bytes of an integer, for a row that is not rare.
    limb_count: u64,
    /// The largest value that a sum may have so far.
    weight: f64,
}

impl Gram {
    /// Creates a sum of no rows, to which at most `rows` rows are added.
    ///
    /// # Errors
    /// [`Error::Limit`] for more columns than sums are exact for; [`Error::OutOfMemory`].
    pub fn new(device: &Device, columns: u64, rows: u64, options: GramOptions) -> Result<Self> {
        // A diagonal entry is the largest sum: each row adds at most 4 s², and s² is at most twice the number of columns.
        let largest = 8.0 * columns.max(1) as f64;
        let products = PairProducts::new(device, columns, rows, largest, exponent(max_of(LIMBS)))?;
        Ok(Self { products, options, limb_count: Self::limb_count(rows), weight: 0.0 })
    }

    /// Returns the number of bytes of an integer, for a row that is not rare among `rows` rows. The time of a sum grows
    /// with it.
    pub const fn limb_count(rows: u64) -> u64 {
        if rows < MANY { LIMBS } else { 2 }
    }

    /// Returns the programs that a sum of `rows` rows may launch if no code is missing, for [`Device::prepare`]. The programs that take
    /// longest to compile come first.
    pub fn programs(device: &Device, columns: u64, rows: u64, options: GramOptions) -> Vec<Program> {
        let limb_count = if options.unit_factors { 1 } else { Self::limb_count(rows) };
        PairProducts::programs(device, columns, rows, limb_count)
    }

    /// Returns the bytes of a panel whose rows of one kind fill the device. Longer panels are no faster.
    pub fn panel_bytes(device: &Device) -> u64 {
        let step = device.limits().step;
        // A panel may have rows of two kinds.
        (2 * step).min(step.max(PANEL))
    }

    /// Returns the memory in addition to a panel of `rows` rows: on the device the sums, and on the host the result and the buffer through
    /// which it is read.
    pub fn needs(device: &Device, columns: u64, rows: u64) -> Needs {
        let sums = Needs::device(PairProducts::device_bytes(device, columns, rows, 2));
        sums + Needs::host(PairProducts::host_bytes(device, columns))
    }

    /// Returns the memory for each row of a panel while its rows are added.
    pub fn row_needs() -> Needs {
        Needs::host(PairProducts::HOST_ROW_BYTES)
    }

    /// Adds a row of `packed` for each of `scales`. The first is row `from` of `packed`, and row `first` of all rows. Enqueues; does not
    /// wait.
    ///
    /// # Shapes
    /// `packed`: (rows of the panel, [`row_words`](super::row_words) of the columns).
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of another length, or beyond the panel; [`Error::Argument`] for an invalid scale, and for more rows than the
    /// sum was created for; any error that the device reports.
    pub fn add(&mut self, packed: &Tensor<u32>, from: u64, first: u64, scales: &[RowScale]) -> Result<()> {
        let Self { products, options, limb_count, .. } = self;
        let (columns, unit_factors) = (products.columns(), options.unit_factors);
        let least = products.point() - 31;
        let mut weight = self.weight;
        let is_wrong = |&RowScale { mean, factor, known }: &RowScale| {
            if factor == 0.0 && known <= columns {
                return false;
            }
            let square = factor * factor;
            weight += 4.0 * square;
            // Each integer fits its limbs, and all sums fit 63 bits.
            let fits = exponent((max_of(*limb_count) - 4.0) / (2.0 * mean.max(1.0) * square)) >= least
                && weight * power_of_two(products.point()) < MOST;
            !(fits && factor > 0.0 && known <= columns && (0.0..=2.0).contains(&mean))
                || (unit_factors && factor != 1.0)
        };
        if let Some(row) = scales.iter().position(is_wrong) {
            let why =
                format!("row {} of {columns} columns: {:?}", first.wrapping_add(row as u64), scales[row]);
            return Err(Error::argument("Gram::add", "scales", why));
        }
        products.check("Gram::add", "scales", packed, from, scales.len() as u64)?;
        self.weight = weight;
        products.add(packed, from, scales.len(), |products, row| {
            (scales[row].factor > 0.0)
                .then(|| terms(products, *options, *limb_count, scales[row], first.wrapping_add(row as u64)))
        })
    }

    /// Waits, and returns T, which is symmetric, and exact except for the rounding of s².
    pub(crate) fn sums(self) -> Result<Matrix> {
        let unit = power_of_two(-self.products.point());
        self.products.matrix(|sum, _| sum as f64 * unit)
    }

    /// Waits, and returns the symmetric Gram matrix (columns, columns).
    ///
    /// # Errors
    /// Any error that the device reports.
    pub fn finish(self) -> Result<Matrix> {
        let (device, centred) = (self.products.device().clone(), self.options.centred);
        let mut total = self.sums()?;
        let n = total.rows();
        if centred && n > 0 {
            let data = total.data_mut();
            device.pool()?.install(|| {
                let means: Vec<f64> =
                    data.par_chunks(n).map(|row| row.iter().sum::<f64>() / n as f64).collect();
                let mean = means.iter().sum::<f64>() / n as f64;
                data.par_chunks_mut(n).zip(&means).for_each(|(row, of_row)| {
                    let entries = row.iter_mut().zip(&means);
                    entries.for_each(|(value, of_column)| *value += mean - (of_row + of_column));
                });
            });
        }
        Ok(total)
    }
}

/// The sums are the entries of T.
impl IntegerSums for Gram {
    fn into_sums(self) -> Result<(Vec<i64>, f64)> {
        self.products.into_sums()
    }

    fn set_sums(&mut self, sums: &[i64], unit: f64) -> Result<()> {
        self.products.set_sums(sums, unit)
    }
}

/// Returns the terms of row `row` of all rows. If the row is not rare, its integers have `limb_count` bytes.
fn terms(
    products: &PairProducts,
    options: GramOptions,
    limb_count: u64,
    RowScale { mean, factor, known }: RowScale,
    row: u64,
) -> RowTerms {
    // If most codes are 2, codes 0 and 2 are swapped. This changes only the sign of a code less the mean.
    let is_swapped = mean > 1.0 && options.centred;
    let (mean, recode) = if is_swapped { (2.0 - mean, Recode::SWAPPED) } else { (mean, Recode::NOTHING) };
    let absent = products.columns() - known;
    // This is at least the number of codes that are not 0.
    let rare = products.is_rare(mean * known as f64 + absent as f64);
    let limb_count = match (rare, options.unit_factors && absent == 0) {
        (true, _) => LIMBS,
        (_, true) => 1,
        _ => limb_count,
    };
    // A code is at most 2, and so is a mean. The margin allows for twice a multiple that is rounded up.
    let power = products.power(max_of(limb_count) - 4.0, 2.0 * mean.max(1.0) * factor * factor);
    // The threshold is 20 bits of a multiple of the golden ratio, so that integers stay unchanged.
    let threshold = (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as f64 / f64::from(1 << 20);
    let square = factor * factor * power_of_two(power);
    // The power is chosen so that the value is in range.
    #[allow(clippy::cast_possible_truncation, reason = "at most MAX")]
    let multiple = |value: f64| (value * square + threshold).floor() as i32;
    let multiples = Multiples { one: multiple(1.0), filled: multiple(mean), square: multiple(mean * mean) };
    RowTerms { recode, kind: Kind { rare, missing: absent > 0, limb_count, power }, multiples }
}
