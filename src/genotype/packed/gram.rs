//! The Gram matrix of the samples from packed rows, in whole numbers.
//!
//! With code g, mean μ and factor s of a row, and μ for a missing code, `G = Σ s² (g - μ) (gᵀ - μ)` is `T = Σ s² g gᵀ` less
//! the means of its rows and columns, since a row's codes less μ add up to 0. T is Aᵀ W with A the codes and W those codes
//! times s². What a code stands for in W is one of four numbers a row, rounded to multiples of a power of two.

use super::{
    adjoint::{Sums, Weights, packed_adjoint},
    apply::Rows,
    digits::{Table, packed_digits},
    row_words,
    slices::{SLICES, digits, lanes_of, scale},
};
use crate::{
    Device, Result, Tensor,
    genotype::scaler::{Fate, Scaler, Standard},
    linalg::{Matrix, gram::to_usize},
};

/// Samples of a group: a vector of the kernels.
const COLUMNS: u64 = 64;
/// Of a bound: what rounding to whole numbers may add.
const ROUNDING: f64 = 1.0 + 1e-5;

/// A sum over blocks of rows.
#[derive(Debug)]
pub(crate) struct Gram {
    device: Device,
    samples: u64,
    scaler: Scaler,
    /// For each 64 samples, the sums of those and all that follow them; none before the first rows.
    groups: Vec<Sums>,
    /// What the numbers in the sums are multiplied by: a power of two.
    scale: f64,
    /// T, its lower triangle: what sums of other scales came to.
    total: Matrix,
}

impl Gram {
    /// A sum of no rows.
    pub(crate) fn new(device: &Device, samples: u64, scaler: Scaler) -> Self {
        let n = to_usize(samples);
        let total = Matrix::zeros(n, n);
        Self { device: device.clone(), samples, scaler, groups: Vec::new(), scale: 0.0, total }
    }

    /// Bytes on the device besides packed rows, of so many rows at most.
    pub(crate) fn device_bytes(device: &Device, samples: u64, rows: u64) -> u64 {
        let sums = (0..samples.div_ceil(COLUMNS)).map(|group| {
            let first = COLUMNS * group;
            8 * (samples - first) * COLUMNS.min(samples - first)
        });
        // The digits of two steps, and two tables of a block.
        let step = device.limits().step.max(64 * row_bytes(samples, 2, SLICES));
        sums.sum::<u64>() + 2 * step.min(rows.next_multiple_of(4) * row_bytes(samples, 2, SLICES)) + 48 * rows
    }

    /// Bytes on the host: T, and a group's sums twice.
    pub(crate) const fn host_bytes(samples: u64) -> u64 {
        samples.saturating_mul(samples).saturating_mul(8).saturating_add(16 * COLUMNS * samples)
    }

    fn zeros(device: &Device, samples: u64) -> Result<Vec<Sums>> {
        (0..samples)
            .step_by(to_usize(COLUMNS))
            .map(|first| Sums::zeros_from(device, first / 16, samples, COLUMNS.min(samples - first)))
            .collect()
    }

    /// Adds a block of rows, the scaling of which is `standards`. Enqueues; waits where the block's largest number needs
    /// another power of two than those before, so that blocks have to be the same whatever the chunks.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn add(&mut self, rows: Rows<'_>, standards: &[Standard]) -> Result<()> {
        let used = || standards.iter().filter(|standard| standard.fate == Fate::Used);
        if used().next().is_none() {
            return Ok(());
        }
        let whole = matches!(self.scaler, Scaler::Center | Scaler::None);
        // A code is 2 at most, and so is a mean.
        let bound = |standard: &Standard| 2.0 * standard.mean.max(1.0) * standard.scale * standard.scale;
        let scale = scale(if whole { 4.0 } else { used().map(bound).fold(0.0, f64::max) } * ROUNDING);
        if scale.to_bits() != self.scale.to_bits() {
            self.flush()?;
            self.groups = Self::zeros(&self.device, self.samples)?;
            self.scale = scale;
        }
        let missing = used().any(|standard| standard.called < self.samples);
        let (sets, slices) = if missing { (2, SLICES) } else { (1, if whole { 1 } else { SLICES }) };
        let table: Vec<u32> =
            standards.iter().flat_map(|standard| entries(standard, scale, sets, slices)).collect();
        let table = Tensor::from_slice(&self.device, &table, &[standards.len() as u64, sets * slices])?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "20, of a bound of 4")]
        let shift = if slices == 1 { scale.log2() as u32 } else { 0 };
        // Rows and their digits stay near the processor.
        let step = (self.device.limits().step / row_bytes(self.samples, sets, slices)).max(64) / 64 * 64;
        let start = rows.range.0;
        for first in (start..rows.range.1).step_by(to_usize(step)) {
            let rows = Rows { range: (first, rows.range.1.min(first + step)), missing, ..rows };
            for sums in &mut self.groups {
                let columns = 16 * sums.first..self.samples.min(16 * sums.first + COLUMNS);
                let table = Table { words: &table, first: first - start, sets, slices };
                let digits = packed_digits(rows.packed, rows.range(), columns, table)?;
                packed_adjoint(rows, Weights { words: &digits, slices, shift }, sums)?;
            }
        }
        Ok(())
    }

    /// Adds the sums to the total.
    fn flush(&mut self) -> Result<()> {
        let n = to_usize(self.samples);
        for sums in std::mem::take(&mut self.groups) {
            let first = to_usize(16 * sums.first);
            let columns = to_usize(COLUMNS).min(n - first);
            let values = sums.read()?;
            let rows = self.total.data_mut().chunks_exact_mut(n).skip(first);
            for (i, (total, sums)) in rows.zip(values.chunks_exact(columns)).enumerate() {
                // Whole numbers far below 2^53.
                let total = &mut total[first..first + columns.min(i + 1)];
                total.iter_mut().zip(sums).for_each(|(total, &sum)| *total += sum as f64 / self.scale);
            }
        }
        Ok(())
    }

    /// Waits: T, symmetric: exact.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn sums(mut self) -> Result<Matrix> {
        self.flush()?;
        let (n, mut total) = (self.total.rows(), self.total);
        let data = total.data_mut();
        for i in 0..n {
            for j in 0..i {
                data[j * n + i] = data[i * n + j];
            }
        }
        Ok(total)
    }

    /// Waits: the Gram matrix, symmetric. Each s² is good to 2^-21 of the largest in its block.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn finish(self) -> Result<Matrix> {
        let centred = self.scaler != Scaler::None;
        let mut total = self.sums()?;
        let n = total.rows();
        if centred && n > 0 {
            let data = total.data_mut();
            let means: Vec<f64> = data.chunks(n).map(|row| row.iter().sum::<f64>() / n as f64).collect();
            let mean = means.iter().sum::<f64>() / n as f64;
            for (row, of_row) in data.chunks_mut(n).zip(&means) {
                row.iter_mut()
                    .zip(&means)
                    .for_each(|(value, of_column)| *value += mean - (of_row + of_column));
            }
        }
        Ok(total)
    }
}

/// A row of the table: what codes stand for, which is 0 for a variant that takes no part.
fn entries(standard: &Standard, scale: f64, sets: u64, slices: u64) -> Vec<u32> {
    if standard.fate != Fate::Used {
        return vec![0; to_usize(sets * slices)];
    }
    if slices == 1 {
        return vec![u32::from_le_bytes([0, 1, 2, 0])];
    }
    // Within the range by the choice of the scale.
    #[allow(clippy::cast_possible_truncation, reason = "at most MAX")]
    let multiple = |value: f64| (value * standard.scale * standard.scale * scale).round_ties_even() as i32;
    // One allele, a missing code, and that in place of another.
    let [one, mean, square] = [1.0, standard.mean, standard.mean * standard.mean].map(multiple);
    [[0, one, 2 * one, mean], [0, mean, 2 * mean, square]]
        .map(|codes| codes.map(digits))
        .iter()
        .take(to_usize(sets))
        .flat_map(|codes| {
            (0..3).map(|slice| u32::from_le_bytes(codes.map(|digits| digits[slice].cast_unsigned())))
        })
        .collect()
}

/// Bytes of a row and of its digits in one group.
const fn row_bytes(samples: u64, sets: u64, slices: u64) -> u64 {
    4 * row_words(samples) + sets * lanes_of(slices, COLUMNS)
}
