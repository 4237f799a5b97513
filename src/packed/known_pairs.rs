//! For each pair of columns, the sum of the weights of the rows in which both columns are known, over the rows with a missing code.
//!
//! The weights of rows in which either column is missing are subtracted from the sum of all weights, and the weights of rows in which both
//! are missing are added back. With m = 1 for a missing code and w the weight of a row, this is `Σ w - D_jj - D_kk + D_jk` with `D = Σ w m
//! mᵀ`. Usually few codes are missing, and D is a sum over few pairs. Rows without a missing code count for every pair, and are left to the
//! caller.

use super::{
    IntegerSums,
    operand::{LIMBS, max_of},
    pair_products::{Kind, Multiples, PairProducts, RowTerms, exponent, power_of_two},
};
use crate::{Device, Error, Needs, Result, Tensor, kernels::packed_gather::Recode, linalg::Matrix};

/// The weight of a row, and the number of its codes that are not missing.
#[derive(Clone, Copy, Debug)]
pub struct KnownRow {
    /// The number that the row adds to each pair of columns that are both known in it; 0 for a row that takes no part.
    pub weight: f64,
    /// The number of codes that are not missing, as counted.
    pub known: u64,
}

/// For each pair of columns, the sum of the weights of the rows in which both are known, over rows with a missing code. Rows in which all
/// columns are known add the same to every pair, and are left out: add the sum of their weights to the result of [`finish`](Self::finish).
///
/// # Cost
/// That of a [`Gram`](super::Gram) over the missing codes: if few codes are missing, that of few pairs.
#[derive(Debug)]
pub struct KnownPairs {
    products: PairProducts,
    /// The largest weight; None if weights are 0 or 1.
    largest: Option<f64>,
    /// The sum of the weights, after rounding to integers.
    total: i64,
}

impl KnownPairs {
    /// Creates a sum of no rows, to which at most `rows` rows are added. Weights are at most `largest`, or 0 or 1 if it is None.
    ///
    /// # Errors
    /// [`Error::Argument`] for a `largest` that is not a number from 1e-200 to 1e200; [`Error::Limit`] for more columns than sums are exact
    /// for; [`Error::OutOfMemory`].
    pub fn new(device: &Device, columns: u64, rows: u64, largest: Option<f64>) -> Result<Self> {
        if let Some(largest) = largest.filter(|largest| !(1e-200..=1e200).contains(largest)) {
            return Err(Error::argument("KnownPairs::new", "largest", largest));
        }
        // The unit is so fine that the largest weight just fits, and that small weights keep as many bits if there is room.
        let point = largest.map_or(0, |largest| exponent(max_of(LIMBS) / largest) + 31);
        let products = PairProducts::new(device, columns, rows, largest.unwrap_or(1.0), point)?;
        Ok(Self { products, largest, total: 0 })
    }

    /// Returns the memory in addition to a panel of `rows` rows: on the device the sums, and on the host the result and the buffer through
    /// which it is read.
    pub fn needs(device: &Device, columns: u64, rows: u64) -> Needs {
        let sums = Needs::device(PairProducts::device_bytes(device, columns, rows, 1));
        sums + Needs::host(PairProducts::host_bytes(device, columns))
    }

    /// Counts the weights of rows that are not given to [`add`](Self::add): the rows of sums that are [put in](IntegerSums::set_sums).
    ///
    /// # Errors
    /// [`Error::Argument`] for weights that are negative, NaN or above the largest, for weights other than 0 or 1 if no largest was given,
    /// and for a row with more known columns than there are.
    pub fn count(&mut self, rows: &[KnownRow]) -> Result<()> {
        let (largest, columns) = (self.largest, self.products.columns());
        let is_wrong = |&KnownRow { weight, known }: &KnownRow| {
            // Weights and their bound are both rounded.
            let fits = largest.map_or([0.0, 1.0].contains(&weight), |largest| {
                (0.0..=largest * (1.0 + 1e-9)).contains(&weight)
            });
            !fits || known > columns
        };
        if let Some(row) = rows.iter().position(is_wrong) {
            let why = format!(
                "row {row} of {columns} columns, weights up to {}: {:?}",
                largest.unwrap_or(1.0),
                rows[row]
            );
            return Err(Error::argument("KnownPairs", "rows", why));
        }
        let Self { products, largest, total } = self;
        let whole = largest.is_none();
        for RowTerms { multiples, kind, .. } in rows.iter().filter_map(|&row| terms(products, whole, row)) {
            // More rows than the sum was created for may not fit.
            let weight = i64::from(multiples.one) << (products.point() - kind.power);
            *total = total.checked_add(weight).ok_or_else(|| {
                Error::argument("KnownPairs", "rows", "their weights add up to more than 63 bits hold")
            })?;
        }
        Ok(())
    }

    /// Adds the rows of `packed` from row `from` on that have a missing code. Enqueues; does not wait.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of another length, or beyond the panel; as [`count`](Self::count); any error that the device reports.
    pub fn add(&mut self, packed: &Tensor<u32>, from: u64, rows: &[KnownRow]) -> Result<()> {
        self.products.check("KnownPairs::add", "rows", packed, from, rows.len() as u64)?;
        self.count(rows)?;
        let Self { products, largest, .. } = self;
        let whole = largest.is_none();
        products.add(packed, from, rows.len(), |products, row| terms(products, whole, rows[row]))
    }

    /// Waits, and returns the symmetric matrix (columns, columns), exact except for the rounding of weights to 22 bits or more. An element is
    /// 0 if both columns are known in no row.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub fn finish(self) -> Result<Matrix> {
        let Self { products, total, .. } = self;
        let unit = power_of_two(-products.point());
        // Sums that were put in may have any value, so this may wrap.
        let sum =
            |both, [one, other]: [i64; 2]| total.wrapping_sub(one).wrapping_sub(other).wrapping_add(both);
        products.matrix(|both, own| sum(both, own) as f64 * unit)
    }
}

/// The sums are the entries of D.
impl IntegerSums for KnownPairs {
    fn into_sums(self) -> Result<(Vec<i64>, f64)> {
        self.products.into_sums()
    }

    fn set_sums(&mut self, sums: &[i64], unit: f64) -> Result<()> {
        self.products.set_sums(sums, unit)
    }
}

/// Returns the terms of a row's missing codes, if some of its codes are missing and some are not. A row in which all codes are missing adds
/// as much as it subtracts.
fn terms(products: &PairProducts, whole: bool, KnownRow { weight, known }: KnownRow) -> Option<RowTerms> {
    let missing = products.columns() - known;
    if missing == 0 || known == 0 || weight <= 0.0 {
        return None;
    }
    let rare = products.is_rare(missing as f64);
    let limb_count = if whole && !rare { 1 } else { LIMBS };
    let power = if whole { 0 } else { products.power(max_of(LIMBS), weight) };
    // The power is chosen so that the value is in range.
    #[allow(clippy::cast_possible_truncation, reason = "at most MAX")]
    let one = (weight * power_of_two(power)).round_ties_even() as i32;
    let multiples = Multiples { one, filled: 0, square: 0 };
    Some(RowTerms {
        recode: Recode::MISSING,
        kind: Kind { rare, missing: false, limb_count, power },
        multiples,
    })
}
