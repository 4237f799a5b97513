//! The Gram matrix of the columns of packed rows, in whole numbers.
//!
//! With code g, mean μ and factor s of a row, and μ for a missing code, `G = Σ s² (g - μ) (gᵀ - μ)` is `T = Σ s² g gᵀ` less
//! the means of its rows and columns, since a row's codes less μ add up to 0. T is formed as [`PairProducts`].
//!
//! Numbers have three bytes, but two where there are many rows and s² is small: they are rounded up or down as a
//! low-discrepancy sequence over the rows says, so that what rounding adds to the sums is as often of one sign as of the other,
//! also where many rows share one s².

use rayon::prelude::*;

use super::{
    IntegerSums,
    operand::{LIMBS, max_of},
    pair_products::{Kind, Multiples, PairProducts, RowTerms, exponent, power_of_two},
};
use crate::{
    Device, Error, Needs, Result, Tensor, kernel::Program, kernels::packed_gather::Recode, linalg::Matrix,
};

/// Rows from which on two bytes for a number are enough: what rounding to 2^-13 of s² adds is then at most 1.3e-6
/// of a diagonal entry, where sums of f32 are 1.1e-6 off (`benches/peers/gram_digits.py`).
const MANY: u64 = 1 << 17;

/// The bound below which sums fit 63 bits.
const MOST: f64 = (1u64 << 63) as f64;

/// The numbers with which a row takes part.
#[derive(Clone, Copy, Debug)]
pub struct RowScale {
    /// The number that is subtracted from its codes, and that a missing code becomes.
    pub mean: f64,
    /// The factor of the difference: about 1 or more, or 0 for a row that takes no part. Its square is rounded to a multiple of
    /// 2^-22, or of a finer unit where columns and rows are few. A square of up to twice the number of columns always fits; a larger one
    /// may, where rows are few.
    pub factor: f64,
    /// Codes that are not missing, as counted.
    pub known: u64,
}

/// Options that all rows have in common.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct GramOptions {
    /// True where means are subtracted. Else they only take the place of missing codes.
    pub centred: bool,
    /// True where all factors are 1, or 0: then fewer limbs do.
    pub unit_factors: bool,
}

crate::setters! {
    GramOptions {
        centred(bool),
        unit_factors(bool),
    }
}

/// The Gram matrix of the columns over rows of codes g with factor s and mean μ. A missing code becomes μ.
///
/// - [Centred](GramOptions::centred), it is `Σ s² (g - μ) (gᵀ - μ)`, and μ has to be the mean of the row's known codes, since means are
///   taken from the sums over all rows.
/// - Else it is `Σ s² g gᵀ`.
///
/// Sums are of whole numbers: exact but for the rounding of s², and the same bits on every device, whatever the panels.
///
/// # Cost
/// For each row and byte of the numbers (one with [`unit_factors`](GramOptions::unit_factors), else three, or two of many rows) columns² / 2
/// products of bytes; of a row in which few codes differ from the most common one, only the pairs of those. Memory as
/// [`needs`](Self::needs) says. The page of [the module](crate::packed) has an example.
#[derive(Debug)]
pub struct Gram {
    products: PairProducts,
    options: GramOptions,
    /// Bytes of the numbers of a common row.
    limb_count: u64,
    /// The largest that a sum may be by now.
    weight: f64,
}

impl Gram {
    /// A sum of no rows yet, to which at most `rows` are added.
    ///
    /// # Errors
    /// [`Error::Limit`] for more columns than sums are exact for; [`Error::OutOfMemory`].
    pub fn new(device: &Device, columns: u64, rows: u64, options: GramOptions) -> Result<Self> {
        // A diagonal entry is the largest sum: at most 4 s² of each row, and s² at most 2 of each column.
        let largest = 8.0 * columns.max(1) as f64;
        let products = PairProducts::new(device, columns, rows, largest, exponent(max_of(LIMBS)))?;
        Ok(Self { products, options, limb_count: Self::limb_count(rows), weight: 0.0 })
    }

    /// Bytes of the numbers of a row that is not rare, among `rows` rows. For this package alone.
    #[doc(hidden)]
    pub const fn limb_count(rows: u64) -> u64 {
        if rows < MANY { LIMBS } else { 2 }
    }

    /// The programs that a sum of `rows` rows may launch where no code is missing, for [`Device::prepare`]: first those that take longest
    /// to compile.
    pub fn programs(device: &Device, columns: u64, rows: u64, options: GramOptions) -> Vec<Program> {
        let limb_count = if options.unit_factors { 1 } else { Self::limb_count(rows) };
        PairProducts::programs(device, columns, rows, limb_count)
    }

    /// Bytes of a panel whose rows of one kind fill the device. For plans of other packages of this workspace.
    #[doc(hidden)]
    pub fn panel_bytes(device: &Device) -> u64 {
        let step = device.limits().step;
        step.max((2 * step).min(128 << 20))
    }

    /// The memory besides a panel of `rows` rows: on the device the sums; on the host the result, and the buffer that it is read through.
    pub fn needs(device: &Device, columns: u64, rows: u64) -> Needs {
        let sums = Needs::device(PairProducts::device_bytes(device, columns, rows, 2));
        sums + Needs::host(PairProducts::host_bytes(device, columns))
    }

    /// Bytes on the host of a row of a panel while it is added. For plans of other packages of this workspace.
    #[doc(hidden)]
    pub const HOST_ROW_BYTES: u64 = PairProducts::HOST_ROW_BYTES;

    /// Adds a row of `packed` for each of `scales`, from row `from` on, which is row `first` of all. Enqueues; does not wait.
    ///
    /// # Shapes
    /// `packed`: (rows of the panel, [`row_words`](super::row_words) of the columns).
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of other lengths, or beyond the panel; [`Error::Argument`] for a scale that cannot be, and for more
    /// rows than were said; what the device reports.
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
            // Each number fits its limbs, and all sums 63 bits.
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

    /// Waits: T, symmetric: exact but for the rounding of s².
    ///
    /// # Errors
    /// Any error that the device reports.
    pub(crate) fn sums(self) -> Result<Matrix> {
        let unit = power_of_two(-self.products.point());
        self.products.matrix(|sum, _| sum as f64 * unit)
    }

    /// Waits: the Gram matrix (columns, columns), symmetric.
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

/// The terms of row `row` of all; numbers of a common row have `limb_count` bytes.
fn terms(
    products: &PairProducts,
    options: GramOptions,
    limb_count: u64,
    RowScale { mean, factor, known }: RowScale,
    row: u64,
) -> RowTerms {
    // Codes 0 and 2 trade places where most are 2: it changes the sign of what is left of the mean alone.
    let is_swapped = mean > 1.0 && options.centred;
    let (mean, recode) = if is_swapped { (2.0 - mean, Recode::SWAPPED) } else { (mean, Recode::NOTHING) };
    let absent = products.columns() - known;
    // At least as many as codes that are not 0.
    let rare = products.is_rare(mean * known as f64 + absent as f64);
    let limb_count = match (rare, options.unit_factors && absent == 0) {
        (true, _) => LIMBS,
        (_, true) => 1,
        _ => limb_count,
    };
    // A code is 2 at most, and so is a mean; two are rounded up together.
    let power = products.power(max_of(limb_count) - 4.0, 2.0 * mean.max(1.0) * factor * factor);
    // 20 bits of multiples of the golden ratio, so that whole numbers stay what they are.
    let threshold = (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as f64 / f64::from(1 << 20);
    let square = factor * factor * power_of_two(power);
    // Within the range by the choice of the power.
    #[allow(clippy::cast_possible_truncation, reason = "at most MAX")]
    let multiple = |value: f64| (value * square + threshold).floor() as i32;
    let multiples = Multiples { one: multiple(1.0), filled: multiple(mean), square: multiple(mean * mean) };
    RowTerms { recode, kind: Kind { rare, missing: absent > 0, limb_count, power }, multiples }
}
