//! Sums over variants for each pair of samples: what the exact PCA and the relationship matrix are made of.

use std::ops::Range;

use super::{
    intake::Form,
    memory::Need,
    panel::{Held, Panel},
    reader::Reader,
    residency::Residency,
    scaler::{ScaleRule, Scaler, VariantScale},
    totals::VariantTotals,
};
use crate::{
    Device, Result,
    linalg::{
        Matrix, Stats,
        gram::{IN_FLIGHT, Sum, to_usize},
        matmul::gram_lower,
    },
    packed::{
        gram::{Gram, GramOptions, RowScale},
        known_pairs::{KnownPairs, KnownRow},
    },
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

impl PairSums {
    /// Bytes that they hold.
    pub(crate) fn bytes(&self) -> u64 {
        let matrices = [Some(&self.products), self.shared.as_ref(), self.variance.as_ref()];
        matrices.into_iter().flatten().map(|matrix| 8 * matrix.data().len() as u64).sum()
    }
}

/// Sums that panels are added to. Those of packed rows are exact but for the rounding of squared scales ([`Gram`]) and of
/// k p (1 - p) ([`KnownPairs`]); others are sums in f32 on the device over each block, and in f64 on the host over the blocks.
/// samples² operations a variant for each of the wanted matrices; where no call of a block is missing, for the products alone. Of
/// packed rows, only the pairs of missing calls add to the work for the other matrices.
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
                let options = GramOptions { centred: scaler != Scaler::None, whole: scaler.is_whole() };
                reader.prepare(Gram::programs(device, n, variants, options))?;
                Products::Packed(Gram::new(device, n, variants, options)?)
            }
            _ => Products::Dense(Sum::new(n, n, true)),
        };
        let pairs = |wanted: bool, largest| wanted.then(|| CalledPairs::new(reader, largest)).transpose();
        // k p (1 - p) is largest where p is one half.
        let largest = wanted.rule.ploidy as f64 / 4.0;
        Ok(Self {
            wanted,
            products,
            shared: pairs(wanted.shared, None)?,
            variance: pairs(wanted.variance, Some(largest))?,
            total_variance: 0.0,
            totals: VariantTotals::default(),
        })
    }

    /// What they take, with their results.
    pub(crate) fn need(reader: &Reader, shared: bool, variance: bool) -> Need {
        let (variants, n, packed) = (reader.variants(), reader.samples(), reader.form.is_packed());
        let matrices = 1 + u64::from(shared) + u64::from(variance);
        if packed {
            let rows = reader.panel_rows(Residency::Store.panel_bytes()).min(variants);
            let others = (matrices - 1).saturating_mul(KnownPairs::device_bytes(&reader.device, n, rows));
            let device = Gram::device_bytes(&reader.device, n, rows).saturating_add(others);
            // Packed rows are multiplied as they are.
            return Need { host: Gram::host_bytes(n).saturating_mul(matrices), device, blocks: 0 };
        }
        // Of each a result on the device, and those whose downloads are under way; on the host these in f32, and the sum in f64.
        let square = n.saturating_mul(n);
        let device = square.saturating_mul(4 * (1 + IN_FLIGHT as u64) * matrices);
        let host = device.saturating_add(square.saturating_mul(8 * matrices));
        // Calls as weights are beside what they are made from.
        Need { host, device, blocks: 1 + u64::from(shared) }
    }

    /// Adds these rows of the matrix, which are in `panel`, with their sums; of a panel that is not packed, all.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn add(
        &mut self,
        reader: &Reader,
        panel: &Panel,
        rows: &Range<u64>,
        stats: &[Stats],
    ) -> Result<()> {
        let from = rows.start - panel.rows.start;
        let (rule, n) = (self.wanted.rule, reader.samples());
        let totals = &mut self.totals;
        let scales = reader.device.pool()?.install(|| {
            let scales = rule.scales(stats);
            totals.add(stats, &scales, n);
            scales
        });
        let count_of = |scale: &VariantScale| if scale.is_kept() { 1.0 } else { 0.0 };
        let variance_of = |scale: &VariantScale| {
            if scale.is_kept() { scale.binomial_variance(rule.ploidy) } else { 0.0 }
        };
        if let (Products::Packed(sum), Held::Packed(packed)) = (&mut self.products, &panel.held) {
            sum.add(packed, from, rows.start, &scales.iter().map(row_scale).collect::<Vec<_>>())?;
        }
        if let Some(sum) = &mut self.shared {
            sum.add_rows(panel, from, &scales, count_of)?;
        }
        if let Some(sum) = &mut self.variance {
            sum.add_rows(panel, from, &scales, variance_of)?;
        }
        for block in reader.blocks(rows) {
            let scales = &scales[to_usize(block.start - rows.start)..to_usize(block.end - rows.start)];
            if let Products::Dense(sum) = &mut self.products {
                let table: Vec<[f32; 3]> = scales.iter().map(VariantScale::row).collect();
                sum.add(&gram_lower(&panel.standardized(&table)?)?)?;
            }
            self.total_variance += scales.iter().map(variance_of).sum::<f64>();
            if let Some(sum) = &mut self.shared {
                sum.add_block(panel, scales, count_of)?;
            }
            if let Some(sum) = &mut self.variance {
                sum.add_block(panel, scales, variance_of)?;
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

/// How a variant takes part in the products.
fn row_scale(scale: &VariantScale) -> RowScale {
    let factor = if scale.is_used() { scale.scale } else { 0.0 };
    RowScale { mean: scale.mean, factor, known: scale.called }
}

/// For each pair of samples, the sum of a weight over the variants that are called in both.
struct CalledPairs {
    samples: u64,
    sum: CalledSum,
    /// Of what the sum leaves out: packed variants without a missing call, and other blocks without one. They count for every
    /// pair.
    everywhere: f64,
}

enum CalledSum {
    Packed(KnownPairs),
    Dense(Sum),
}

impl CalledPairs {
    /// Weights are `largest` at most; without it 0 or 1.
    fn new(reader: &Reader, largest: Option<f64>) -> Result<Self> {
        let (samples, variants) = (reader.samples(), reader.variants());
        let sum = match reader.form {
            Form::Packed(_) => {
                CalledSum::Packed(KnownPairs::new(&reader.device, samples, variants, largest)?)
            }
            _ => CalledSum::Dense(Sum::new(samples, samples, true)),
        };
        Ok(Self { samples, sum, everywhere: 0.0 })
    }

    /// Adds packed variants of a panel, from one on, with the weight of each.
    fn add_rows(
        &mut self,
        panel: &Panel,
        from: u64,
        scales: &[VariantScale],
        weight: impl Fn(&VariantScale) -> f64,
    ) -> Result<()> {
        let (CalledSum::Packed(sum), Held::Packed(packed)) = (&mut self.sum, &panel.held) else {
            return Ok(());
        };
        let known = |scale| KnownRow { weight: weight(scale), known: scale.called };
        sum.add(packed, from, &scales.iter().map(known).collect::<Vec<_>>())
    }

    /// Adds what [`add_rows`](Self::add_rows) leaves out of a block.
    #[allow(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
    fn add_block(
        &mut self,
        panel: &Panel,
        scales: &[VariantScale],
        weight: impl Fn(&VariantScale) -> f64,
    ) -> Result<()> {
        let weights: Vec<f64> = scales.iter().map(weight).collect();
        let variants = || scales.iter().map(|scale| scale.called).zip(&weights);
        let CalledSum::Dense(sum) = &mut self.sum else {
            let complete = variants().filter(|(called, _)| *called == self.samples);
            self.everywhere += complete.map(|(_, weight)| weight).sum::<f64>();
            return Ok(());
        };
        let is_whole =
            |(called, weight): (u64, &f64)| called == self.samples || called == 0 || *weight == 0.0;
        if variants().all(is_whole) {
            let of_called = variants().filter(|(called, _)| *called > 0);
            self.everywhere += of_called.map(|(_, weight)| weight).sum::<f64>();
            return Ok(());
        }
        // Their products are the weights.
        let roots: Vec<f32> = weights.iter().map(|weight| weight.sqrt() as f32).collect();
        sum.add(&gram_lower(&panel.called(&roots)?)?)
    }

    fn finish(self, device: &Device) -> Result<Matrix> {
        let mut total = match self.sum {
            CalledSum::Packed(sum) => sum.finish()?,
            CalledSum::Dense(sum) => sum.finish(device)?,
        };
        total.data_mut().iter_mut().for_each(|value| *value += self.everywhere);
        Ok(total)
    }
}
