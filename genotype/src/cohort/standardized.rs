//! The standardised genotype matrix as a linear map.

use std::time::Instant;

use teatime::{
    Result,
    packed::{PackedProduct, PanelMap, PanelPass, RowFactors},
};

use super::{Cohort, lock};
use crate::{
    reader::{Reader, Reading},
    scaler::ScaleRule,
    totals::VariantTotals,
};

/// The number of variants whose scales are computed at a time.
const PART: usize = 1 << 16;

impl Cohort {
    /// Calls `work` with the genotypes as a matrix (variants, samples), each variant centred and scaled by `rule`; also returns the totals
    /// over all variants. Genotypes that did not stay in memory are read by the settings `reading`.
    pub(super) fn standardized<T>(
        &self,
        rule: ScaleRule,
        reading: Reading,
        work: impl FnOnce(&PanelMap<'_>) -> Result<T>,
    ) -> Result<(T, VariantTotals)> {
        let (reader, (factors, totals)) = (&self.reader, self.factors(rule)?);
        // Progress also counts the pass that loaded the genotypes.
        let place = self.place();
        let passes: Vec<Box<PanelPass<'_>>> = match &place.kept {
            Some(kept) if self.devices > 1 => {
                kept.passes().into_iter().map(|each| self.timed(each)).collect()
            }
            _ => vec![Box::new(|pass, sink| self.each_panel(&pass.among(1, 1), reading, sink))],
        };
        let done = work(&PanelMap {
            device: &reader.device,
            shape: [reader.variants(), rule.samples],
            packed: reader.form.is_packed(),
            table: Some(&factors),
            centred: rule.scaler.is_centred(),
            bounds: totals.bounds,
            at_once: reader.plan.block_rows(),
            each: &passes,
        })?;
        Ok((done, totals))
    }

    /// Returns the mean and the scale of each variant by `rule`, and the totals over all variants.
    pub(super) fn factors(&self, rule: ScaleRule) -> Result<(Vec<RowFactors>, VariantTotals)> {
        let variants = self.counts.len();
        let (mut totals, mut factors) = (VariantTotals::default(), Vec::with_capacity(variants));
        self.device().pool()?.install(|| {
            for first in (0..variants).step_by(PART) {
                let stats = self.counts.stats(first..variants.min(first + PART));
                let scales = rule.scales(&stats);
                totals.add(&stats, &scales, rule.samples);
                factors.extend(scales.iter().map(|scale| scale.factors()));
            }
        });
        Ok((factors, totals))
    }

    /// Returns a member's pass, with its share of the time.
    fn timed<'a>(&'a self, each: Box<PanelPass<'a>>) -> Box<PanelPass<'a>> {
        let devices = u32::try_from(self.devices).unwrap_or(u32::MAX);
        Box::new(move |pass, sink| {
            let (pass, started) = (&pass.among(1, 1), Instant::now());
            pass.tell(0)?;
            each(pass, sink)?;
            lock(&self.stats).compute += started.elapsed() / devices;
            Ok(())
        })
    }
}

/// Compiles the programs for products with that many columns, over panels as a pass reads them.
pub(super) fn prepare(reader: &Reader, columns: u64, reading: Reading) -> Result<()> {
    if !reader.form.is_packed() {
        return Ok(());
    }
    let (variants, whole) = (reader.variants(), reader.whole_panel(reading));
    let panels = [whole.min(variants), variants % whole];
    let device = &reader.device;
    device.prepare(PackedProduct::programs(device, reader.samples(), columns, panels)?)
}
