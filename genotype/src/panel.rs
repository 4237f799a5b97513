//! Rows of genotypes on the device.

use std::ops::Range;

use teatime::{Result, Tensor, linalg::standardize, packed::PackedRows};

use crate::to_usize;

/// Genotypes as a device holds them.
#[derive(Debug)]
pub(crate) enum Held {
    /// Codes of two bits, (rows, words).
    Packed(Tensor<u32>),
    /// Dosages, -1 is missing.
    I8(Tensor<i8>),
    /// Fractional dosages, -1 is missing.
    F32(Tensor<f32>),
}

/// A variant's mean and scale, as kernels that multiply take them; zeros for one that takes no part.
pub(crate) type Factors = [f32; 2];

/// Consecutive variants: some canonical blocks, the last of which may be cut short by the end.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) rows: Range<u64>,
    pub(crate) held: Held,
    /// True where a call is missing.
    pub(crate) missing: bool,
}

impl Panel {
    /// The places of some of its rows.
    pub(crate) fn places(&self, rows: &Range<u64>) -> Range<usize> {
        to_usize(rows.start - self.rows.start)..to_usize(rows.end - self.rows.start)
    }

    /// Its rows in f32, where dosages are not packed, `(dosage - shift) scale` and `fill` where a call is missing, with [shift, scale, fill]
    /// of each row.
    ///
    /// # Errors
    /// Any error of the device.
    pub(crate) fn standardized(&self, table: &[[f32; 3]]) -> Result<Tensor<f32>> {
        match &self.held {
            Held::Packed(_) => unreachable!("packed rows should be multiplied as they are"),
            Held::I8(x) => standardize(x, table, true),
            Held::F32(x) => standardize(x, table, true),
        }
    }

    /// `weights[i]` where a call of row i is there, 0 where it is missing.
    ///
    /// # Errors
    /// Any error of the device.
    pub(crate) fn called(&self, weights: &[f32]) -> Result<Tensor<f32>> {
        let table: Vec<[f32; 3]> = weights.iter().map(|weight| [1.0, -weight, 0.0]).collect();
        standardize(&self.not_called()?, &table, true)
    }

    /// 1 where a call is missing, 0 where it is there.
    ///
    /// # Errors
    /// Any error of the device.
    pub(crate) fn not_called(&self) -> Result<Tensor<f32>> {
        self.standardized(&vec![[0.0, 0.0, 1.0]; to_usize(self.rows.end - self.rows.start)])
    }

    /// Its packed rows as an operand, with the [mean, scale] of each on the device; none where dosages are held otherwise.
    pub(crate) fn packed<'a>(&'a self, table: &'a Tensor<f32>) -> Option<PackedRows<'a>> {
        let Held::Packed(packed) = &self.held else { return None };
        Some(PackedRows { packed, table, range: (0, self.rows.end - self.rows.start), missing: self.missing })
    }
}
