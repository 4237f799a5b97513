//! Products with all packed rows, one panel after the other.

use super::{
    adjoint::{Sums, packed_adjoint},
    apply::{Rows, packed_apply, packed_weights},
    row_words,
    slices::{MAX_COLUMNS, Slices, lanes, unit},
};
use crate::{Device, Error, Result, linalg::Matrix};

/// Of a bound: what rounding in f32 may add.
const ROUNDING: f64 = 1.0 + 1e-5;

/// Some columns of an operand.
#[derive(Debug)]
struct Group {
    first: usize,
    x: Slices,
    /// The unit of each column's weights, in that of `x`, and the sums; for `Aᵀ (A X)` alone.
    adjoint: Option<(Vec<f64>, Sums)>,
}

/// A product of the standardised packed matrix A with a matrix of the host, in groups of columns that fit the device.
#[derive(Debug)]
pub(crate) struct Product {
    device: Device,
    groups: Vec<Group>,
    samples: u64,
    columns: usize,
    centred: bool,
}

impl Product {
    /// `A X`, or with the [bounds](super::super::tally::Tally::bounds) of all rows `Aᵀ (A X)`, for X (samples, columns).
    ///
    /// `centred`: whether the mean is subtracted from dosages. Else only missing ones become it.
    ///
    /// # Errors
    /// [`Error::Argument`] for NaN and infinity in X; [`Error::Limit`] when not even one column fits a binding;
    /// [`Error::OutOfMemory`].
    pub(crate) fn new(device: &Device, x: &Matrix, centred: bool, bounds: Option<[f64; 2]>) -> Result<Self> {
        let (samples, columns) = (x.rows() as u64, x.cols());
        let words = row_words(samples);
        let width = group_columns(device, words, columns as u64)?;
        let step = usize::try_from(width).unwrap_or(usize::MAX);
        let mut groups = Vec::new();
        for first in (0..columns).step_by(step) {
            let mut slices = Slices::new(device, x, first, step.min(columns - first), words)?;
            if !centred {
                // Then Σ μ x over the missing is added rather than Σ μ x over the called subtracted.
                slices.totals.fill(0.0);
            }
            let weight_unit = |[norm, magnitudes]: [f64; 2], c: usize| {
                let x = x.column(first + c).map(|x| x / slices.units[c]);
                let length = x.clone().map(|x| x * x).sum::<f64>().sqrt();
                let largest = x.fold(0.0, |largest: f64, x| largest.max(x.abs()));
                unit((norm * length).min(magnitudes * largest) * ROUNDING)
            };
            let adjoint = bounds.map(|bounds| {
                let units = (0..slices.units.len()).map(|c| weight_unit(bounds, c)).collect();
                Ok::<_, Error>((units, Sums::zeros(device, samples, slices.columns)?))
            });
            let adjoint = adjoint.transpose()?;
            groups.push(Group { first, x: slices, adjoint });
        }
        Ok(Self { device: device.clone(), groups, samples, columns, centred })
    }

    /// Adds some rows' part of `Aᵀ (A X)`. Enqueues; does not wait.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn add(&mut self, rows: Rows<'_>) -> Result<()> {
        let words = rows.words();
        for group in &mut self.groups {
            let Some((units, sums)) = &mut group.adjoint else { continue };
            // As many rows as stay near the processor between the two products; whole tiles.
            let row = 4 * words + rows.sets() * lanes(group.x.columns);
            let step = (self.device.limits().step / row.max(1)).max(64) / 64 * 64;
            for first in (rows.range.0..rows.range.1).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
                let part = Rows { range: (first, rows.range.1.min(first + step)), ..rows };
                let weights = packed_weights(part, &group.x, units)?;
                packed_adjoint(part, &weights, sums)?;
            }
        }
        Ok(())
    }

    /// Waits: `Aᵀ (A X)` of all rows that were added, exact but for the rounding of X and of A X.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn finish(self) -> Result<Matrix> {
        let mut total = Matrix::zeros(usize::try_from(self.samples).unwrap_or(usize::MAX), self.columns);
        for group in &self.groups {
            let Some((units, sums)) = &group.adjoint else { continue };
            let (sums, width) = (sums.read()?, units.len());
            for (c, (weight_unit, unit)) in units.iter().zip(&group.x.units).enumerate() {
                let column = sums.iter().skip(c).step_by(width);
                // A row of the centred matrix adds up to 0, so what is to be subtracted from each sample is the mean.
                let all: i128 =
                    if self.centred { column.clone().map(|&sum| i128::from(sum)).sum() } else { 0 };
                let samples = i128::from(self.samples.max(1));
                for (i, &sum) in column.enumerate() {
                    let difference = i128::from(sum) * samples - all;
                    let at = i * self.columns + group.first + c;
                    total.data_mut()[at] = difference as f64 / samples as f64 * weight_unit * unit;
                }
            }
        }
        Ok(total)
    }

    /// These rows of `A X`. Waits.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn rows(&self, rows: Rows<'_>) -> Result<Matrix> {
        let count = usize::try_from(rows.range.1 - rows.range.0).unwrap_or(usize::MAX);
        let mut product = Matrix::zeros(count, self.columns);
        for group in &self.groups {
            let width = usize::try_from(group.x.columns).unwrap_or(usize::MAX);
            let part = packed_apply(rows, &group.x)?.read()?;
            for (row, part) in product.data_mut().chunks_mut(self.columns).zip(part.chunks(width)) {
                let row = &mut row[group.first..group.first + width];
                for ((value, &part), unit) in row.iter_mut().zip(part).zip(&group.x.units) {
                    *value = f64::from(part) * unit;
                }
            }
        }
        Ok(product)
    }
}

/// Columns of a group: equal groups, as few as fit.
fn group_columns(device: &Device, words: u64, columns: u64) -> Result<u64> {
    let limits = device.limits();
    let room = limits.room();
    let bytes = |columns: u64| 16 * words * lanes(columns);
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
