//! Sums over variants for each pair of samples, from which the exact PCA and the relationship matrix are made.

use std::ops::Range;

use teatime::{
    Element, Needs, Result,
    linalg::{BlockSum, Matrix, Stats, gram_lower},
    packed::{Entries, Gram, GramOptions, KnownPairs, KnownRow, Panel, RowScale},
};

use super::{
    filter::VariantFilter,
    intake::Form,
    memory::f32_blocks,
    panel_sum::PanelSum,
    part::{CohortPart, PartSums},
    reader::Reader,
    scaler::{ScaleRule, Scaler, VariantScale},
    to_usize,
    totals::VariantTotals,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PairTerms {
    pub(crate) rule: ScaleRule,
    pub(crate) shared: bool,
    pub(crate) variance: bool,
}

impl PairTerms {
    /// Returns true if its sums include all those of `other`.
    pub(crate) fn holds(&self, other: &Self) -> bool {
        self.rule == other.rule && self.shared >= other.shared && self.variance >= other.variance
    }
}

/// Sums over variants; each matrix is symmetric, (samples, samples).
#[derive(Clone, Debug)]
pub(crate) struct PairSums {
    pub(crate) wanted: PairTerms,
    /// The sums of products of both samples' standardised dosages: the Gram matrix of the samples.
    pub(crate) products: Matrix,
    /// The number of variants that pass the filters and are called in both samples, if wanted: exact.
    pub(crate) shared: Option<Matrix>,
    /// The sums of k p (1 - p) over those variants, if wanted.
    pub(crate) variance: Option<Matrix>,
    /// The sum of k p (1 - p) over all variants that pass the filters.
    pub(crate) total_variance: f64,
    pub(crate) totals: VariantTotals,
}

impl PairSums {
    pub(crate) fn bytes(&self) -> u64 {
        let matrices = [Some(&self.products), self.shared.as_ref(), self.variance.as_ref()];
        matrices.into_iter().flatten().map(|matrix| 8 * matrix.data().len() as u64).sum()
    }
}

/// Sums to which panels are added. Sums over packed rows are exact but for the rounding of squared scales
/// ([`Gram`]) and of k p (1 - p) ([`KnownPairs`]); other sums are in f32 over each block, and in a [`BlockSum`]
/// across blocks. Each wanted matrix costs samples² operations a variant; a block without missing calls costs
/// them only for the products. For packed rows, only pairs of missing calls add work for the other matrices.
pub(crate) struct PairAccumulator {
    wanted: PairTerms,
    products: PanelSum<Gram>,
    /// The sums of [`PairSums::shared`] and [`PairSums::variance`].
    called: [Option<CalledPairs>; 2],
    total_variance: f64,
    totals: VariantTotals,
}

/// The words with which the names of sums in a part begin.
pub(crate) const PRODUCTS: &str = "products";
const CALLED: [&str; 2] = ["shared", "variance"];

pub(crate) fn name(
    what: &str,
    scaler: Scaler,
    VariantFilter { min_maf, max_missing }: VariantFilter,
) -> String {
    let scaler = scaler.name();
    format!(
        "{what} of variants scaled by {scaler}, with a frequency from {min_maf} and up to {max_missing} missing"
    )
}

impl PairAccumulator {
    pub(crate) fn new(reader: &Reader, wanted: PairTerms) -> Result<Self> {
        let (variants, n, scaler) = (reader.all, reader.samples(), wanted.rule.scaler);
        let device = &reader.device;
        let products = match reader.form {
            Form::Packed(_) => {
                let options =
                    GramOptions::default().centred(scaler.is_centred()).unit_factors(scaler.is_whole());
                device.prepare(Gram::programs(device, n, variants, options))?;
                PanelSum::Packed(Gram::new(device, n, variants, options)?)
            }
            _ => PanelSum::Dense(Box::new(BlockSum::symmetric(device, n)?)),
        };
        let pairs = |wanted: bool, weight| wanted.then(|| CalledPairs::new(reader, weight)).transpose();
        let variance = Weight::Variance(wanted.rule.ploidy);
        Ok(Self {
            wanted,
            products,
            called: [pairs(wanted.shared, Weight::One)?, pairs(wanted.variance, variance)?],
            total_variance: 0.0,
            totals: VariantTotals::default(),
        })
    }

    pub(crate) fn needs(reader: &Reader, shared: bool, variance: bool) -> Needs {
        let (variants, n, packed) = (reader.variants(), reader.samples(), reader.form.is_packed());
        let matrices = 1 + u64::from(shared) + u64::from(variance);
        if packed {
            let rows = reader.panel_rows(reader.step_bytes).min(variants);
            // Packed rows are multiplied without being unpacked.
            let others = KnownPairs::needs(&reader.device, n, rows) * (matrices - 1);
            return Gram::needs(&reader.device, n, rows) + others;
        }
        // The host holds all sums, and one of them as it is downloaded. Calls as weights are held in addition to the calls themselves.
        let sums = BlockSum::needs(n, n) * matrices + Needs::host(8 * (1 + matrices)) * n * n;
        sums + f32_blocks(reader, 1 + u64::from(shared))
    }

    /// Adds `rows` of the matrix, which are in `panel`, with their sums; if the panel is not packed, `rows` are all of its rows.
    pub(crate) fn add(
        &mut self,
        reader: &Reader,
        panel: &Panel,
        rows: &Range<u64>,
        stats: &[Stats],
    ) -> Result<()> {
        let from = rows.start - panel.rows.start;
        let scales = self.count(reader, rows, stats)?;
        if let (PanelSum::Packed(sum), Entries::Packed(packed)) = (&mut self.products, &panel.entries) {
            let scales: Vec<_> = scales.iter().map(row_scale).collect();
            sum.add(packed, from, reader.first + rows.start, &scales)?;
        }
        for called in self.called.iter_mut().flatten() {
            called.add_rows(panel, from, &scales)?;
        }
        for block in reader.blocks(rows) {
            let scales = &scales[to_usize(block.start - rows.start)..to_usize(block.end - rows.start)];
            if let PanelSum::Dense(sum) = &mut self.products {
                let factors: Vec<_> = scales.iter().map(VariantScale::factors).collect();
                let centred = self.wanted.rule.scaler.is_centred();
                sum.add(&gram_lower(&panel.scaled(&factors, centred)?)?)?;
            }
            for called in self.called.iter_mut().flatten() {
                called.add_block(panel, scales)?;
            }
        }
        Ok(())
    }

    /// Counts rows that [`add`](Self::add) does not see, since their sums were computed elsewhere.
    pub(crate) fn count_elsewhere(
        &mut self,
        reader: &Reader,
        rows: &Range<u64>,
        stats: &[Stats],
    ) -> Result<()> {
        let scales = self.count(reader, rows, stats)?;
        for CalledPairs { weight, sum, .. } in self.called.iter_mut().flatten() {
            if let PanelSum::Packed(sum) = sum {
                sum.count(&weight.known_rows(&scales))?;
            }
        }
        Ok(())
    }

    /// Counts rows, except for counts that integer sums over packed rows make. Returns the scales of the rows.
    fn count(&mut self, reader: &Reader, rows: &Range<u64>, stats: &[Stats]) -> Result<Vec<VariantScale>> {
        let (rule, totals) = (self.wanted.rule, &mut self.totals);
        let scales = reader.device.pool()?.install(|| {
            let scales = rule.scales(stats);
            totals.add(stats, &scales, reader.samples());
            scales
        });
        let variance = Weight::Variance(rule.ploidy);
        for block in reader.blocks(rows) {
            let scales = &scales[to_usize(block.start - rows.start)..to_usize(block.end - rows.start)];
            self.total_variance += scales.iter().map(|scale| variance.weigh(scale)).sum::<f64>();
            self.called.iter_mut().flatten().for_each(|called| called.count_block(scales));
        }
        Ok(scales)
    }

    /// Waits for the sums over the rows that were added, and returns them for [`set_part`](Self::set_part) of another accumulator.
    pub(crate) fn into_part(self) -> Result<Vec<PartSums>> {
        let rule = self.wanted.rule;
        let mut sums = vec![(PRODUCTS, self.products.into_values()?)];
        for (what, called) in CALLED.into_iter().zip(self.called) {
            if let Some(called) = called {
                sums.push((what, called.sum.into_values()?));
            }
        }
        let named = |(what, values)| PartSums { name: name(what, rule.scaler, rule.filter), values };
        Ok(sums.into_iter().map(named).collect())
    }

    /// Replaces the sums with the sums of `part`.
    pub(crate) fn set_part(&mut self, part: &CohortPart) -> Result<()> {
        let rule = self.wanted.rule;
        let find = |what| part.find(&name(what, rule.scaler, rule.filter));
        self.products.set_values(find(PRODUCTS)?)?;
        for (what, called) in CALLED.into_iter().zip(&mut self.called) {
            if let Some(called) = called {
                called.sum.set_values(find(what)?)?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<PairSums> {
        let products = match self.products {
            PanelSum::Packed(sum) => sum.finish()?,
            PanelSum::Dense(sum) => sum.finish()?,
        };
        let [shared, variance] = self.called.map(|called| called.map(CalledPairs::finish).transpose());
        Ok(PairSums {
            wanted: self.wanted,
            products,
            shared: shared?,
            variance: variance?,
            total_variance: self.total_variance,
            totals: self.totals,
        })
    }
}

/// The weight of a variant that passes the filters; other variants weigh 0.
#[derive(Clone, Copy)]
enum Weight {
    One,
    /// The weight k p (1 - p), with the ploidy k.
    Variance(u64),
}

impl Weight {
    fn weigh(self, scale: &VariantScale) -> f64 {
        match self {
            _ if !scale.is_kept() => 0.0,
            Self::One => 1.0,
            Self::Variance(ploidy) => scale.binomial_variance(ploidy),
        }
    }

    fn known_rows(self, scales: &[VariantScale]) -> Vec<KnownRow> {
        scales.iter().map(|scale| KnownRow { weight: self.weigh(scale), known: scale.called }).collect()
    }
}

/// Returns the scale with which a variant takes part in the products, 0 if it takes no part.
fn row_scale(scale: &VariantScale) -> RowScale {
    let factor = if scale.is_used() { scale.scale } else { 0.0 };
    RowScale { mean: scale.mean, factor, known: scale.called }
}

/// The sum of a weight over the variants called in both samples, for each pair of samples.
struct CalledPairs {
    samples: u64,
    weight: Weight,
    sum: PanelSum<KnownPairs>,
    /// The weight of variants that count for every pair, which the sum leaves out: packed ones or dense blocks without a missing call.
    everywhere: f64,
}

impl CalledPairs {
    fn new(reader: &Reader, weight: Weight) -> Result<Self> {
        let (samples, variants) = (reader.samples(), reader.all);
        let largest = match weight {
            Weight::One => None,
            // The largest k p (1 - p) is at p = ½.
            Weight::Variance(ploidy) => Some(ploidy as f64 / 4.0),
        };
        let sum = match reader.form {
            Form::Packed(_) => PanelSum::Packed(KnownPairs::new(&reader.device, samples, variants, largest)?),
            _ => PanelSum::Dense(Box::new(BlockSum::symmetric(&reader.device, samples)?)),
        };
        Ok(Self { samples, weight, sum, everywhere: 0.0 })
    }

    /// Adds packed variants of a panel, from row `from` on.
    fn add_rows(&mut self, panel: &Panel, from: u64, scales: &[VariantScale]) -> Result<()> {
        let (PanelSum::Packed(sum), Entries::Packed(packed)) = (&mut self.sum, &panel.entries) else {
            return Ok(());
        };
        sum.add(packed, from, &self.weight.known_rows(scales))
    }

    /// Counts the weights of the variants of a block that the sum leaves out.
    fn count_block(&mut self, scales: &[VariantScale]) {
        let weight = |scale| self.weight.weigh(scale);
        if let PanelSum::Packed(_) = self.sum {
            let complete = scales.iter().filter(|scale| scale.called == self.samples);
            self.everywhere += complete.map(weight).sum::<f64>();
        } else if self.is_whole(scales) {
            let of_called = scales.iter().filter(|scale| scale.called > 0);
            self.everywhere += of_called.map(weight).sum::<f64>();
        }
    }

    /// Returns true if each variant of a block with a nonzero weight is called in all samples or in none.
    fn is_whole(&self, scales: &[VariantScale]) -> bool {
        let weight = |scale| self.weight.weigh(scale);
        scales.iter().all(|scale| [0, self.samples].contains(&scale.called) || weight(scale) == 0.0)
    }

    /// Adds a block that is not packed, unless it is whole.
    fn add_block(&mut self, panel: &Panel, scales: &[VariantScale]) -> Result<()> {
        let is_whole = self.is_whole(scales);
        let PanelSum::Dense(sum) = &mut self.sum else { return Ok(()) };
        if is_whole {
            return Ok(());
        }
        // The product of two square roots is the weight.
        let roots: Vec<f32> = scales.iter().map(|scale| self.weight.weigh(scale).sqrt().to_f32()).collect();
        sum.add(&gram_lower(&panel.known(&roots)?)?)
    }

    fn finish(self) -> Result<Matrix> {
        let mut total = match self.sum {
            PanelSum::Packed(sum) => sum.finish()?,
            PanelSum::Dense(sum) => sum.finish()?,
        };
        total.data_mut().iter_mut().for_each(|value| *value += self.everywhere);
        Ok(total)
    }
}
