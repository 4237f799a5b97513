//! The standardised genotype matrix as a linear map, panel by panel.

use std::ops::Range;

use teatime::{
    Cancel, Device, Result, Tensor,
    linalg::{BlockSum, LinearMap, Matrix, Pass, matmul, matmul_tn},
    packed::{PackedProduct, PackedRows},
};

use super::Cohort;
use crate::{
    panel::{Factors, Panel},
    reader::{Reader, Reading},
    scaler::{ScaleRule, Scaler},
    to_usize,
    totals::VariantTotals,
};

/// The number of variants whose scales are computed at a time.
const PART: usize = 1 << 16;

/// A cohort's genotypes as a matrix (variants, samples), each variant centred and scaled by a rule.
#[derive(Debug)]
pub(crate) struct Standardized<'a> {
    cohort: &'a Cohort,
    reading: Reading,
    rule: ScaleRule,
    factors: Vec<Factors>,
    pub(crate) totals: VariantTotals,
}

impl<'a> Standardized<'a> {
    /// Makes the map; genotypes that did not stay in memory are read by the settings `reading`.
    ///
    /// # Errors
    /// Any error of starting threads.
    pub(crate) fn new(cohort: &'a Cohort, rule: ScaleRule, reading: Reading) -> Result<Self> {
        let mut totals = VariantTotals::default();
        let variants = cohort.counts.len();
        let mut factors = Vec::with_capacity(variants);
        cohort.reader.device.pool()?.install(|| {
            for first in (0..variants).step_by(PART) {
                let stats = cohort.counts.stats(first..variants.min(first + PART));
                let scales = rule.scales(&stats);
                totals.add(&stats, &scales, rule.samples);
                factors.extend(scales.iter().map(|scale| scale.factors()));
            }
        });
        Ok(Self { cohort, reading, rule, factors, totals })
    }

    fn factors_of(&self, rows: &Range<u64>) -> &[Factors] {
        &self.factors[to_usize(rows.start)..to_usize(rows.end)]
    }

    /// Returns the pass as progress reports it: after the counting pass.
    fn told<'p>(pass: &Pass<'p>) -> Pass<'p> {
        pass.among(1, 1)
    }
}

impl LinearMap for Standardized<'_> {
    fn shape(&self) -> [u64; 2] {
        [self.cohort.reader.variants(), self.rule.samples]
    }

    fn device(&self) -> Option<&Device> {
        Some(&self.cohort.reader.device)
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        let (reader, centred) = (&self.cohort.reader, is_centred(self.rule.scaler));
        let device = &reader.device;
        let pass = Self::told(pass);
        if reader.form.is_packed() {
            prepare(reader, x.cols() as u64, self.cohort.panels(self.reading))?;
            // The bounds for rounding are taken over all rows.
            let mut product = PackedProduct::new(device, x, centred, Some(self.totals.bounds))?;
            self.cohort.each_panel(&pass, self.reading, &mut |panel| {
                let table = on_device(device, self.factors_of(&panel.rows))?;
                panel.packed(&table).map_or(Ok(()), |rows| product.add(rows))
            })?;
            return product.finish();
        }
        let thin = x.to_tensor(device)?;
        // The result is transposed: long rows fill the register tiles that a thin column leaves half empty.
        let mut sum = BlockSum::new(device, x.cols() as u64, x.rows() as u64)?;
        self.cohort.each_panel(&pass, self.reading, &mut |panel| {
            reader.blocks(&panel.rows).try_for_each(|rows| {
                let block = standardized(panel, self.rule, self.factors_of(&rows))?;
                sum.add(&matmul_tn(&matmul(&block, &thin)?, &block)?)
            })
        })?;
        Ok(sum.finish()?.transposed())
    }

    fn apply(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
    ) -> Result<()> {
        let reader = &self.cohort.reader;
        let (products, cancel) = (RowProducts::new(reader, self.rule, x)?, &pass.run().cancel);
        self.cohort.each_panel(&Self::told(pass), self.reading, &mut |panel| {
            let factors = self.factors_of(&panel.rows);
            products.each_block(reader, panel, factors, cancel, &mut |rows, y| sink(rows.start, y))
        })
    }
}

/// Compiles the programs for products with that many columns, over panels as a pass reads them.
///
/// # Errors
/// Any error of compilers; [`Error::Limit`](teatime::Error::Limit) if not even one column fits a binding.
pub(super) fn prepare(reader: &Reader, columns: u64, reading: Reading) -> Result<()> {
    if !reader.form.is_packed() {
        return Ok(());
    }
    let (variants, whole) = (reader.variants(), reader.whole_panel(reading));
    let panels = [whole.min(variants), variants % whole];
    reader.prepare(PackedProduct::programs(&reader.device, reader.samples(), columns, panels)?)
}

/// The product `A X`, computed panel by panel.
pub(crate) struct RowProducts {
    rule: ScaleRule,
    operand: Operand,
}

enum Operand {
    Packed(PackedProduct),
    Dense(Tensor<f32>),
}

impl RowProducts {
    /// Prepares products with X (samples, columns).
    ///
    /// # Errors
    /// Any error of the device.
    pub(crate) fn new(reader: &Reader, rule: ScaleRule, x: &Matrix) -> Result<Self> {
        let operand = if reader.form.is_packed() {
            Operand::Packed(PackedProduct::new(&reader.device, x, is_centred(rule.scaler), None)?)
        } else {
            Operand::Dense(x.to_tensor(&reader.device)?)
        };
        Ok(Self { rule, operand })
    }

    /// Computes the products of the rows of a panel, whose [mean, scale] are given, and gives them to `sink`, block by block.
    ///
    /// # Errors
    /// Any error of the device and of `sink`; [`Error::Cancelled`](teatime::Error::Cancelled) between two blocks.
    pub(crate) fn each_block(
        &self,
        reader: &Reader,
        panel: &Panel,
        factors: &[Factors],
        cancel: &Cancel,
        sink: &mut dyn FnMut(Range<u64>, &Matrix) -> Result<()>,
    ) -> Result<()> {
        let first = panel.rows.start;
        match &self.operand {
            Operand::Packed(product) => {
                let table = on_device(&reader.device, factors)?;
                let Some(packed) = panel.packed(&table) else { return Ok(()) };
                let blocks = reader.blocks(&panel.rows);
                let parts = blocks.map(|rows| {
                    (first, PackedRows { range: (rows.start - first, rows.end - first), ..packed })
                });
                product.each_part(parts, &mut |rows, y| {
                    cancel.check()?;
                    sink(rows, y)
                })
            }
            Operand::Dense(x) => reader.blocks(&panel.rows).try_for_each(|rows| {
                cancel.check()?;
                let factors = &factors[to_usize(rows.start - first)..to_usize(rows.end - first)];
                let block = standardized(panel, self.rule, factors)?;
                let y = matmul(&block, x)?.read()?;
                let columns = to_usize(x.shape()[1]);
                let y: Vec<f64> = y.into_iter().map(f64::from).collect();
                let y = Matrix::from_vec(y, to_usize(rows.end - rows.start), columns)?;
                sink(rows, &y)
            }),
        }
    }
}

/// Returns true if the scaler subtracts the mean.
fn is_centred(scaler: Scaler) -> bool {
    scaler != Scaler::None
}

/// Uploads the [mean, scale] of rows, for products on packed rows.
fn on_device(device: &Device, factors: &[Factors]) -> Result<Tensor<f32>> {
    Tensor::from_slice(device, factors.as_flattened(), &[factors.len() as u64, 2])
}

/// Returns a panel, which is one block, in f32: a missing dosage becomes the mean, which is 0 once the panel is centred.
fn standardized(panel: &Panel, rule: ScaleRule, factors: &[Factors]) -> Result<Tensor<f32>> {
    let centred = is_centred(rule.scaler);
    let row =
        |&[mean, scale]: &Factors| if centred { [mean, scale, 0.0] } else { [0.0, scale, mean * scale] };
    let table: Vec<[f32; 3]> = factors.iter().map(row).collect();
    panel.standardized(&table)
}
