//! Sums over variants for each pair of samples: what the exact PCA and the relationship matrix are made of.

use std::ops::Range;

use super::{
    intake::Form,
    memory::Need,
    panel::{Held, Panel},
    reader::Reader,
    residency::Residency,
    scaler::{ScaleRule, VariantScale},
    totals::VariantTotals,
};
use crate::{
    Device, Result,
    linalg::{
        Matrix, Stats,
        gram::{IN_FLIGHT, Sum, to_usize},
        matmul::gram_lower,
    },
    packed::gram::Gram,
};

/// Which sums to form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wanted {
    /// How variants are scaled.
    pub(crate) rule: ScaleRule,
    /// [`PairSums::shared`].
    pub(crate) shared: bool,
    /// [`PairSums::variance`].
    pub(crate) variance: bool,
}

impl Wanted {
    /// Whether its sums are those of the other, or more.
    pub(crate) fn holds(&self, other: &Self) -> bool {
        self.rule == other.rule && self.shared >= other.shared && self.variance >= other.variance
    }
}

/// Sums over variants, each matrix symmetric of (samples, samples).
#[derive(Clone, Debug)]
pub(crate) struct PairSums {
    pub(crate) wanted: Wanted,
    /// Products of the standardised dosages of both samples: the Gram matrix of the samples.
    pub(crate) products: Matrix,
    /// Variants that pass the filters and are called in both, where wanted: exact.
    pub(crate) shared: Option<Matrix>,
    /// k p (1 - p) of those, where wanted.
    pub(crate) variance: Option<Matrix>,
    /// k p (1 - p) of all variants that pass the filters.
    pub(crate) total_variance: f64,
    pub(crate) totals: VariantTotals,
}

/// Sums that panels are added to. Products of packed rows are exact but for the rounding of squared scales ([`Gram`]); others are
/// sums in f32 on the device over each block, and in f64 on the host over the blocks. samples² operations a variant for each of
/// the wanted matrices; where no call of a block is missing, for the products alone.
pub(crate) struct Adding {
    wanted: Wanted,
    products: Products,
    shared: Option<CalledPairs>,
    variance: Option<CalledPairs>,
    total_variance: f64,
    totals: VariantTotals,
}

/// How products are summed.
enum Products {
    Packed(Gram),
    Dense(Sum),
}

impl Adding {
    /// Sums over no variant.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn new(reader: &Reader, wanted: Wanted) -> Result<Self> {
        let (variants, n, scaler) = (reader.variants(), reader.samples(), wanted.rule.scaler);
        let device = &reader.device;
        let products = match reader.form {
            Form::Packed(_) => {
                reader.prepare(Gram::programs(device, n, variants, scaler))?;
                Products::Packed(Gram::new(device, n, variants, scaler)?)
            }
            _ => Products::Dense(Sum::new(n, n, true)),
        };
        let pairs = |wanted: bool| wanted.then(|| CalledPairs::new(n));
        Ok(Self {
            wanted,
            products,
            shared: pairs(wanted.shared),
            variance: pairs(wanted.variance),
            total_variance: 0.0,
            totals: VariantTotals::default(),
        })
    }

    /// What they take, with their results.
    pub(crate) fn need(reader: &Reader, shared: bool, variance: bool) -> Need {
        let (variants, n, packed) = (reader.variants(), reader.samples(), reader.form.is_packed());
        // Those that are summed over blocks of f32: on the device a result of each, and those whose downloads are under way;
        // on the host these in f32, and the sum in f64.
        let matrices = u64::from(!packed) + u64::from(shared) + u64::from(variance);
        let square = n.saturating_mul(n);
        let device = square.saturating_mul(4 * (1 + IN_FLIGHT as u64) * matrices);
        let host = device.saturating_add(square.saturating_mul(8 * matrices));
        // Packed rows are multiplied as they are; calls as weights are beside what they are made from.
        let dense = Need { host, device, blocks: if shared { 2 } else { u64::from(!packed) } };
        if !packed {
            return dense;
        }
        let rows = reader.panel_rows(Residency::Store.panel_bytes()).min(variants);
        let device = Gram::device_bytes(&reader.device, n, rows);
        dense.and(Need { host: Gram::host_bytes(n), device, blocks: 0 })
    }

    /// Adds a panel, of the rows of which those are the sums.
    ///
    /// # Errors
    /// What the device reports; [`Error::Cancelled`](crate::Error::Cancelled).
    pub(crate) fn add(&mut self, reader: &Reader, panel: &Panel, stats: &[Stats]) -> Result<()> {
        let (rule, n) = (self.wanted.rule, reader.samples());
        let totals = &mut self.totals;
        let scales = reader.device.pool()?.install(|| {
            let scales = rule.scales(stats);
            totals.add(stats, &scales, n);
            scales
        });
        let variance_of = |scale: &VariantScale| {
            if scale.is_kept() { scale.binomial_variance(rule.ploidy) } else { 0.0 }
        };
        if let (Products::Packed(sum), Held::Packed(packed)) = (&mut self.products, &panel.held) {
            sum.add(packed, panel.rows.start, &scales)?;
        }
        for rows in reader.blocks(&panel.rows) {
            let scales =
                &scales[to_usize(rows.start - panel.rows.start)..to_usize(rows.end - panel.rows.start)];
            if let Products::Dense(sum) = &mut self.products {
                let table: Vec<[f32; 3]> = scales.iter().map(VariantScale::row).collect();
                sum.add(&gram_lower(&panel.standardized(&rows, n, &table)?)?)?;
            }
            self.total_variance += scales.iter().map(variance_of).sum::<f64>();
            if let Some(sum) = &mut self.shared {
                sum.add(panel, &rows, scales, |scale| if scale.is_kept() { 1.0 } else { 0.0 })?;
            }
            if let Some(sum) = &mut self.variance {
                sum.add(panel, &rows, scales, variance_of)?;
            }
        }
        Ok(())
    }

    /// Waits.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn finish(self, device: &Device) -> Result<PairSums> {
        let products = match self.products {
            Products::Packed(sum) => sum.finish()?,
            Products::Dense(sum) => sum.finish(device)?,
        };
        let finish = |sum: Option<CalledPairs>| sum.map(|sum| sum.finish(device)).transpose();
        Ok(PairSums {
            wanted: self.wanted,
            products,
            shared: finish(self.shared)?,
            variance: finish(self.variance)?,
            total_variance: self.total_variance,
            totals: self.totals,
        })
    }
}

/// For each pair of samples, the sum of a weight over the variants that are called in both.
struct CalledPairs {
    samples: u64,
    sum: Sum,
    /// Of blocks without a missing call, which count for every pair.
    everywhere: f64,
}

impl CalledPairs {
    fn new(samples: u64) -> Self {
        Self { samples, sum: Sum::new(samples, samples, true), everywhere: 0.0 }
    }

    /// Adds a block, with the weight of each variant.
    #[allow(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
    fn add(
        &mut self,
        panel: &Panel,
        rows: &Range<u64>,
        scales: &[VariantScale],
        weight: impl Fn(&VariantScale) -> f64,
    ) -> Result<()> {
        let weights: Vec<f64> = scales.iter().map(weight).collect();
        let variants = || scales.iter().map(|scale| scale.called).zip(&weights);
        let is_whole =
            |(called, weight): (u64, &f64)| called == self.samples || called == 0 || *weight == 0.0;
        if variants().all(is_whole) {
            let of_called = variants().filter(|(called, _)| *called > 0);
            self.everywhere += of_called.map(|(_, weight)| weight).sum::<f64>();
            return Ok(());
        }
        // Their products are the weights.
        let roots: Vec<f32> = weights.iter().map(|weight| weight.sqrt() as f32).collect();
        self.sum.add(&gram_lower(&panel.called(rows, self.samples, &roots)?)?)
    }

    fn finish(self, device: &Device) -> Result<Matrix> {
        let mut total = self.sum.finish(device)?;
        total.data_mut().iter_mut().for_each(|value| *value += self.everywhere);
        Ok(total)
    }
}
