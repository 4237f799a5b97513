//! Rows of genotypes on the device.

use std::ops::Range;

use super::{scaler::Standard, standardize::standardize};
use crate::{
    Device, Result, Tensor,
    linalg::gram::to_usize,
    packed::{apply::Rows, standardize::packed_standardize},
};

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

/// A row's mean and scale.
pub(crate) type Factors = [f32; 2];

/// Consecutive variants: some canonical blocks, the last of which may be cut short by the end.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) rows: Range<u64>,
    pub(crate) held: Held,
    /// Each row's [mean, scale]; zeros for a variant that takes no part. As many as were counted so far.
    pub(crate) factors: Vec<Factors>,
    /// Each row's scaling, where the pass asks for it: none on passes over what was kept.
    pub(crate) standards: Vec<Standard>,
    /// Whether a call is missing.
    pub(crate) missing: bool,
}

impl Panel {
    pub(crate) fn new(rows: Range<u64>, held: Held) -> Self {
        let factors = Vec::with_capacity(to_usize(rows.end - rows.start));
        Self { rows, held, factors, standards: Vec::new(), missing: false }
    }

    /// Whether all rows were counted.
    pub(crate) fn is_complete(&self) -> bool {
        self.factors.len() as u64 == self.rows.end - self.rows.start
    }

    /// Adds what was counted of the next rows; with `scaled`, their scaling too.
    pub(crate) fn count(&mut self, mut standards: Vec<Standard>, missing: bool, scaled: bool) {
        self.factors.extend(standards.iter().map(Standard::factors));
        let rows = self.factors.capacity();
        if scaled && standards.len() == rows {
            self.standards = standards;
        } else if scaled {
            self.standards.reserve_exact(rows - self.standards.len());
            self.standards.append(&mut standards);
        }
        self.missing |= missing;
    }

    /// Where rows of the matrix stand in the panel.
    fn within(&self, rows: &Range<u64>) -> Range<u64> {
        rows.start - self.rows.start..rows.end - self.rows.start
    }

    /// The scaling of these rows of the matrix; none where the pass does not ask for it.
    pub(crate) fn standards_of(&self, rows: &Range<u64>) -> &[Standard] {
        let within = self.within(rows);
        self.standards.get(to_usize(within.start)..to_usize(within.end)).unwrap_or(&[])
    }

    /// These rows of the standardised matrix in f32: a missing dosage becomes the mean, which `centred` subtracts.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn standardized(&self, rows: &Range<u64>, samples: u64, centred: bool) -> Result<Tensor<f32>> {
        let within = self.within(rows);
        let factors = &self.factors[to_usize(within.start)..to_usize(within.end)];
        // The same bits, but for a reference whose shift is not its mean, for which scalings are asked for.
        let row = |&[mean, scale]: &Factors| {
            if centred { [mean, scale, 0.0] } else { [0.0, scale, mean * scale] }
        };
        let table: Vec<[f32; 3]> = match self.standards_of(rows) {
            [] => factors.iter().map(row).collect(),
            standards => standards.iter().map(Standard::row).collect(),
        };
        self.tabled(rows, samples, &table)
    }

    /// `(dosage - shift) scale` of these rows of the matrix, and `fill` where a call is missing, with [shift, scale, fill]
    /// of each row.
    fn tabled(&self, rows: &Range<u64>, samples: u64, table: &[[f32; 3]]) -> Result<Tensor<f32>> {
        match &self.held {
            Held::Packed(packed) => packed_standardize(packed, self.within(rows), samples, table),
            // Such a panel is one block.
            Held::I8(x) => standardize(x, table),
            Held::F32(x) => standardize(x, table),
        }
    }

    /// `weights[i]` where a call of row i of these rows is there, 0 where it is missing.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn called(&self, rows: &Range<u64>, samples: u64, weights: &[f32]) -> Result<Tensor<f32>> {
        let table: Vec<[f32; 3]> = weights.iter().map(|weight| [1.0, -weight, 0.0]).collect();
        standardize(&self.not_called(rows, samples)?, &table)
    }

    /// 1 where a call of these rows is missing, 0 where it is there.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn not_called(&self, rows: &Range<u64>, samples: u64) -> Result<Tensor<f32>> {
        self.tabled(rows, samples, &vec![[0.0, 0.0, 1.0]; to_usize(rows.end - rows.start)])
    }

    /// The table of factors on the device, for products on packed rows.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(crate) fn table(&self, device: &Device) -> Result<Tensor<f32>> {
        Tensor::from_slice(device, self.factors.as_flattened(), &[self.factors.len() as u64, 2])
    }

    /// Its packed rows as an operand; none where dosages are held otherwise.
    pub(crate) fn packed<'a>(&'a self, table: &'a Tensor<f32>) -> Option<Rows<'a>> {
        let Held::Packed(packed) = &self.held else { return None };
        Some(Rows { packed, table, range: (0, self.factors.len() as u64), missing: self.missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::genotype::scaler::Fate;

    /// What the memory plan counts, whatever parts a panel is counted in.
    #[test]
    fn scalings_take_no_more_than_their_rows() {
        let standard = || Standard { mean: 1.0, shift: 1.0, scale: 1.0, called: 1, fate: Fate::Used };
        for parts in [vec![100], vec![33, 33, 34], vec![99, 1]] {
            let held = Held::Packed(Tensor::zeros(&Device::cpu(), &[100, 4]).unwrap());
            let mut panel = Panel::new(0..100, held);
            for &rows in &parts {
                panel.count((0..rows).map(|_| standard()).collect(), false, true);
            }
            assert!(panel.is_complete());
            let lens = [panel.factors.len(), panel.standards.len()];
            assert_eq!((lens, panel.standards.capacity()), ([100; 2], 100), "{parts:?}");
        }
    }
}
