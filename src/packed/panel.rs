//! Panels: consecutive rows of a matrix on a device.

use std::ops::Range;

use super::PackedRows;
use crate::{Device, Error, Result, Tensor, extent::to_usize, linalg::standardize};

/// The entries of some rows, as a device holds them.
#[derive(Debug)]
pub enum Entries {
    /// Codes of two bits: (rows, [`row_words`](super::row_words) of the columns).
    Packed(Tensor<u32>),
    /// Whole numbers, of which negative ones are missing: (rows, columns).
    I8(Tensor<i8>),
    /// Numbers, of which negative ones are missing: (rows, columns).
    F32(Tensor<f32>),
}

/// The mean and the factor of a row: zeros for a row that takes no part. A missing entry counts as the mean.
pub type RowFactors = [f32; 2];

/// Consecutive rows of a matrix, on a device.
#[derive(Debug)]
pub struct Panel {
    /// The indices of the rows.
    pub rows: Range<u64>,
    /// The entries of the rows.
    pub entries: Entries,
    /// True if an entry may be missing. If false, a missing code of a packed row counts as 3.
    pub missing: bool,
}

impl Panel {
    /// Copies the panel to a device.
    ///
    /// # Errors
    /// As [`Tensor::to_device`].
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        let entries = match &self.entries {
            Entries::Packed(x) => Entries::Packed(x.to_device(device)?),
            Entries::I8(x) => Entries::I8(x.to_device(device)?),
            Entries::F32(x) => Entries::F32(x.to_device(device)?),
        };
        Ok(Self { rows: self.rows.clone(), entries, missing: self.missing })
    }

    /// Returns the positions of `rows`, which the panel has, within the panel.
    #[doc(hidden)]
    pub fn places(&self, rows: &Range<u64>) -> Range<usize> {
        to_usize(rows.start - self.rows.start)..to_usize(rows.end - self.rows.start)
    }

    /// Returns unpacked rows in f32, as [`standardize()`] does, with [shift, scale, fill] of each row in `table`. Enqueues; does not wait.
    ///
    /// # Errors
    /// As [`standardize()`]; [`Error::Argument`] for packed rows, which are multiplied as they are.
    pub fn standardized(&self, table: &[[f32; 3]]) -> Result<Tensor<f32>> {
        match &self.entries {
            Entries::Packed(_) => {
                Err(Error::argument("Panel::standardized", "self", "packed rows are multiplied as they are"))
            }
            Entries::I8(x) => standardize(x, table, true),
            Entries::F32(x) => standardize(x, table, true),
        }
    }

    /// Returns unpacked rows in f32, times their factors, and if `centred` less their means. Enqueues; does not wait.
    ///
    /// # Errors
    /// As [`standardized`](Self::standardized).
    pub fn scaled(&self, factors: &[RowFactors], centred: bool) -> Result<Tensor<f32>> {
        // A missing entry becomes the mean, which is 0 once the rows are centred.
        let row = |&[mean, factor]: &RowFactors| {
            if centred { [mean, factor, 0.0] } else { [0.0, factor, mean * factor] }
        };
        self.standardized(&factors.iter().map(row).collect::<Vec<_>>())
    }

    /// Returns `weights[i]` for each known entry of row i, and 0 for missing entries. Enqueues; does not wait.
    ///
    /// # Errors
    /// As [`standardized`](Self::standardized).
    pub fn known(&self, weights: &[f32]) -> Result<Tensor<f32>> {
        let table: Vec<[f32; 3]> = weights.iter().map(|weight| [1.0, -weight, 0.0]).collect();
        standardize(&self.absent()?, &table, true)
    }

    /// Returns 1 for missing entries, 0 for known ones. Enqueues; does not wait.
    ///
    /// # Errors
    /// As [`standardized`](Self::standardized).
    pub fn absent(&self) -> Result<Tensor<f32>> {
        self.standardized(&vec![[0.0, 0.0, 1.0]; to_usize(self.rows.end - self.rows.start)])
    }

    /// Returns packed rows as an operand.
    ///
    /// # Errors
    /// [`Error::Argument`] for rows that are not packed.
    pub fn packed(&self) -> Result<PackedRows<'_>> {
        let Entries::Packed(packed) = &self.entries else {
            return Err(Error::argument("Panel::packed", "self", "rows of more than two bits an entry"));
        };
        let range = (0, self.rows.end - self.rows.start);
        Ok(PackedRows { packed, range, missing: self.missing })
    }
}
