//! Sums for pairs of samples, to which panels are added.

use std::{ops::Range, slice::from_ref};

use teatime::{
    Needs, Result,
    distance::{Distances, Metric, Missing, Options, PackedPairs, Partial, PartialSums},
    linalg::{Matrix, Stats},
    packed::{Entries, Panel, unpack_rows},
};

use super::{DistanceOptions, SampleMetric, tree};
use crate::{
    filter::VariantCounts,
    memory::f32_blocks,
    reader::Reader,
    scaler::{ScaleRule, Scaler},
    to_usize,
    totals::VariantTotals,
};

/// Sums over variants for pairs of samples.
pub(super) struct Accumulator {
    pub(super) variants: Variants,
    pub(super) pairs: Pairs,
}

/// The filter of variants, and counts of the variants that took part.
pub(super) struct Variants {
    rule: ScaleRule,
    totals: VariantTotals,
}

impl Variants {
    /// Makes the filter for sums over the samples of all `readers`.
    pub(super) fn new(readers: &[Reader], options: &DistanceOptions) -> Self {
        let mut rule = ScaleRule::new(&readers[0], Scaler::None, options.filter);
        rule.samples = readers.iter().map(Reader::samples).sum();
        rule.exact = readers.iter().all(|reader| reader.form.is_exact());
        Self { rule, totals: VariantTotals::default() }
    }

    /// Counts variants by the sums of their dosages; returns the sums of each variant that takes part, none for others.
    ///
    /// # Errors
    /// Any error of starting threads.
    pub(super) fn kept(&mut self, reader: &Reader, stats: &[Stats]) -> Result<Vec<Option<Stats>>> {
        Ok(reader.device.pool()?.install(|| {
            let scales = self.rule.scales(stats);
            self.totals.add(stats, &scales, self.rule.samples);
            stats.iter().zip(&scales).map(|(stats, scale)| scale.is_kept().then_some(*stats)).collect()
        }))
    }

    pub(super) fn counts(&self) -> VariantCounts {
        self.totals.counts
    }
}

/// Sums for pairs of samples: integers over packed rows, or terms in f32.
pub(super) enum Pairs {
    Packed(PackedPairs),
    Real { sums: Partial, missing: Missing },
}

/// Returns true if sums are of integers.
fn is_packed(readers: &[Reader], options: &DistanceOptions) -> bool {
    readers.iter().all(|reader| reader.form.is_packed()) && PackedPairs::takes(options.metric.summed())
}

impl Accumulator {
    /// Makes sums over no variants, for `variants` to come. Pairs are of the samples of one reader,
    /// or of samples of the first with samples of the second; `packed` makes the integer sums.
    ///
    /// # Errors
    /// Fails as [`distances`](super::distances) does.
    pub(super) fn new(
        readers: &[Reader],
        variants: u64,
        options: &DistanceOptions,
        packed: impl FnOnce(Metric, Missing) -> Result<PackedPairs>,
    ) -> Result<Self> {
        let (reader, metric, missing) = (&readers[0], options.metric.summed(), options.missing_rule());
        let (device, samples) = (&reader.device, readers.iter().map(Reader::samples).sum());
        let pairs = if is_packed(readers, options) {
            device.prepare(PackedPairs::programs(device, samples, variants))?;
            let pairs = packed(metric, missing)?;
            let ones_differ = options.metric == SampleMetric::IbsOfAlleles;
            Pairs::Packed(if ones_differ { pairs.ones_differ()? } else { pairs })
        } else {
            let of_columns = Options::default().missing(missing).columns(true);
            let others = readers.get(1).map(Reader::samples);
            let sums = Partial::new(device, reader.samples(), others, metric, &of_columns)?;
            Pairs::Real { sums, missing }
        };
        Ok(Self { variants: Variants::new(readers, options), pairs })
    }

    /// Returns the memory of the sums and their results. `packed` returns the memory of integer sums, for panels of that many rows.
    pub(super) fn needs(
        readers: &[Reader],
        options: &DistanceOptions,
        packed: impl FnOnce(u64, Metric) -> Needs,
    ) -> Needs {
        let (reader, other) = (&readers[0], readers.get(1));
        let (n, others, metric) = (reader.samples(), other.map(Reader::samples), options.metric.summed());
        if !is_packed(readers, options) {
            let numbers = match others {
                // One block in f32: unpacked rows, or dosages without variants that take no part.
                None => f32_blocks(reader, 1),
                // Blocks in f32 of both readers, before and after dosages of swapped variants become the ploidy less the dosage.
                Some(others) => Needs::device(8 * (n + others)) * reader.plan.block_rows(),
            };
            return Partial::needs(n, others, metric, options.missing_rule()) + numbers;
        }
        let rows = readers.iter().map(|reader| reader.panel_rows(reader.step_bytes));
        let rows = rows.min().map_or(0, |rows| rows.min(reader.variants()));
        let columns = others.map_or(0, |others| others.next_multiple_of(64)).saturating_add(n);
        let ones = match options.metric {
            SampleMetric::IbsOfAlleles => PackedPairs::needs_of_ones(&reader.device, columns, rows),
            _ => Needs::default(),
        };
        packed(rows, metric) + ones
    }

    /// Makes sums for each pair of the samples of `reader`.
    ///
    /// # Errors
    /// Fails as [`new`](Self::new) does.
    pub(super) fn all_pairs(reader: &Reader, options: &DistanceOptions) -> Result<Self> {
        let (n, variants) = (reader.samples(), reader.variants());
        Self::new(from_ref(reader), variants, options, |metric, missing| {
            PackedPairs::new(&reader.device, n, variants, metric, missing)
        })
    }

    /// Returns the memory that [`all_pairs`](Self::all_pairs) takes.
    pub(super) fn needs_of_all_pairs(reader: &Reader, options: &DistanceOptions) -> Needs {
        let (device, n) = (&reader.device, reader.samples());
        let tree = Needs::host(options.tree.map_or(0, |_| tree::bytes(n)));
        let sums = |rows, metric| PackedPairs::needs(device, n, rows, metric);
        Self::needs(from_ref(reader), options, sums) + tree
    }

    /// Adds some rows of a panel, given the sums of these rows, where all panels come from one reader.
    ///
    /// # Errors
    /// Any error of the device.
    pub(super) fn add(
        &mut self,
        reader: &Reader,
        panel: &Panel,
        rows: &Range<u64>,
        stats: &[Stats],
    ) -> Result<()> {
        let kept = self.variants.kept(reader, stats)?;
        match (&mut self.pairs, &panel.entries) {
            (Pairs::Packed(pairs), Entries::Packed(packed)) => {
                pairs.add(packed, rows.start - panel.rows.start, &kept)
            }
            (Pairs::Packed(_), _) => unreachable!("dosages that are packed should be held so"),
            (Pairs::Real { sums, .. }, Entries::Packed(packed)) => {
                reader.blocks(rows).try_for_each(|block| {
                    let is_kept = |row: &u64| kept[to_usize(row - rows.start)].is_some();
                    let rows: Vec<u64> = block.filter(is_kept).map(|row| row - panel.rows.start).collect();
                    let numbers = unpack_rows(packed, &rows, reader.samples(), [0.0, 1.0, 2.0, f32::NAN])?;
                    sums.add(&numbers, None)
                })
            }
            // A panel that is not packed is one block.
            (Pairs::Real { sums, missing }, _) => {
                let table: Vec<_> = kept.iter().map(|kept| row(kept.is_some(), *missing)).collect();
                sums.add(&panel.standardized(&table)?, None)
            }
        }
    }

    /// Returns the sums over genotypes that two bits hold, for a metric whose sums are of integers.
    pub(super) fn into_packed(self) -> PackedPairs {
        match self.pairs {
            Pairs::Packed(pairs) => pairs,
            Pairs::Real { .. } => unreachable!("sums of packed genotypes should be whole numbers"),
        }
    }

    /// Waits for the distances; `packed` makes them from integer sums.
    ///
    /// # Errors
    /// Any error of the device.
    pub(super) fn finish(self, packed: impl FnOnce(PackedPairs) -> Result<Distances>) -> Result<Distances> {
        match self.pairs {
            Pairs::Packed(pairs) => packed(pairs),
            Pairs::Real { sums, .. } => {
                let variants = self.variants.counts().loaded();
                Ok(without_equal(export(&sums, variants)?.finish()?, variants))
            }
        }
    }

    /// Waits for the sums.
    ///
    /// # Errors
    /// Any error of the device.
    pub(super) fn export(self) -> Result<PartialSums> {
        match self.pairs {
            Pairs::Packed(pairs) => pairs.export(),
            Pairs::Real { sums, .. } => export(&sums, self.variants.counts().loaded()),
        }
    }
}

/// Waits for the sums over `variants`; the other variants were added as zeros or as missing.
///
/// # Errors
/// Any error of the device.
fn export(sums: &Partial, variants: u64) -> Result<PartialSums> {
    let mut sums = sums.export()?;
    match sums.missing {
        Missing::Propagate => sums.take_zeros_away(sums.features.saturating_sub(variants))?,
        _ => sums.features = variants,
    }
    Ok(sums)
}

/// Removes the numbers of shared variants if every pair shares all variants.
pub(super) fn without_equal(mut distances: Distances, variants: u64) -> Distances {
    let is_equal = |shared: &Matrix| shared.data().iter().all(|&count| count == variants as f64);
    distances.shared = distances.shared.filter(|shared| !is_equal(shared));
    distances
}

/// Returns a row for [`Panel::standardized`]: it keeps dosages, with NaN for missing ones, or makes them add nothing to any sum.
pub(super) fn row(is_kept: bool, missing: Missing) -> [f32; 3] {
    match (is_kept, missing) {
        (true, _) => [0.0, 1.0, f32::NAN],
        (false, Missing::Propagate) => [0.0; 3],
        (false, _) => [f32::NAN; 3],
    }
}
