//! Panels: rows of genotypes on the device.

use std::ops::Range;

use teatime::{Result, Tensor, linalg::standardize, packed::PackedRows};

use crate::to_usize;

/// Genotypes as a device holds them.
#[derive(Debug)]
pub(crate) enum Held {
    /// Codes of two bits, (rows, words).
    Packed(Tensor<u32>),
    /// Dosages; -1 is missing.
    I8(Tensor<i8>),
    /// Fractional dosages; -1 is missing.
    F32(Tensor<f32>),
}

/// A variant's mean and scale in the form that multiplying kernels take; zeros for a variant that takes no part.
pub(crate) type Factors = [f32; 2];

/// Consecutive variants: whole canonical blocks, of which the last may be shorter at the end of the matrix.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) rows: Range<u64>,
    pub(crate) held: Held,
    /// True if a call is missing.
    pub(crate) missing: bool,
}

impl Panel {
    /// Returns the positions of `rows` within the panel.
    pub(crate) fn places(&self, rows: &Range<u64>) -> Range<usize> {
        to_usize(rows.start - self.rows.start)..to_usize(rows.end - self.rows.start)
    }

    /// Returns the panel in f32, if it is not packed: `(dosage - shift) scale`, and `fill` for
    /// missing calls, with [shift, scale, fill] of each row in `table`.
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

    /// Returns `weights[i]` for each existing call of row i, and 0 for missing calls.
    ///
    /// # Errors
    /// Any error of the device.
    pub(crate) fn called(&self, weights: &[f32]) -> Result<Tensor<f32>> {
        let table: Vec<[f32; 3]> = weights.iter().map(|weight| [1.0, -weight, 0.0]).collect();
        standardize(&self.not_called()?, &table, true)
    }

    /// Returns 1 for missing calls, 0 for existing ones.
    ///
    /// # Errors
    /// Any error of the device.
    pub(crate) fn not_called(&self) -> Result<Tensor<f32>> {
        self.standardized(&vec![[0.0, 0.0, 1.0]; to_usize(self.rows.end - self.rows.start)])
    }

    /// Returns the packed rows as an operand, with the [mean, scale] of each on the device; none if the panel is not packed.
    pub(crate) fn packed<'a>(&'a self, table: &'a Tensor<f32>) -> Option<PackedRows<'a>> {
        let Held::Packed(packed) = &self.held else { return None };
        Some(PackedRows { packed, table, range: (0, self.rows.end - self.rows.start), missing: self.missing })
    }
}
