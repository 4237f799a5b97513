//! Sums for pairs of samples that panels are added to.

use teatime::{
    Device, Needs, Result,
    distance::{Distances, Missing, Options, PackedPairs, Partial, PartialSums},
    linalg::Stats,
    packed::unpack_rows,
};

use super::{DistanceOptions, SampleMetric, tree};
use crate::{
    filter::VariantCounts,
    memory::f32_blocks,
    panel::{Held, Panel},
    reader::Reader,
    scaler::{ScaleRule, Scaler},
    to_usize,
    totals::VariantTotals,
};

/// Sums over variants.
pub(super) struct DistanceAccumulator {
    variants: Variants,
    pairs: Pairs,
}

/// The filter of variants, and the number of those that took part.
pub(super) struct Variants {
    rule: ScaleRule,
    totals: VariantTotals,
}

impl Variants {
    pub(super) fn new(reader: &Reader, options: &DistanceOptions) -> Self {
        let rule = ScaleRule::new(reader, Scaler::None, options.filter);
        Self { rule, totals: VariantTotals::default() }
    }

    /// Takes sums to be over the samples of `other`, too.
    pub(super) fn with(mut self, other: &Reader) -> Self {
        self.rule.samples += other.samples();
        self.rule.exact &= other.form.is_exact();
        self
    }

    /// Counts variants by the sums of their dosages; gives those of each that takes part.
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

/// Sums for pairs of samples: whole numbers, or terms in f32.
enum Pairs {
    Packed(PackedPairs),
    Real { sums: Partial, missing: Missing },
}

/// True where sums are of whole numbers.
fn is_packed(reader: &Reader, options: &DistanceOptions) -> bool {
    reader.form.is_packed() && PackedPairs::takes(options.metric.summed())
}

/// Sums that count calls which are both heterozygous, where they have to.
///
/// # Errors
/// Any error of the device.
pub(super) fn with_ones(pairs: PackedPairs, options: &DistanceOptions) -> Result<PackedPairs> {
    if options.metric == SampleMetric::IbsOfAlleles { pairs.ones_differ() } else { Ok(pairs) }
}

/// Bytes on the device that these take more, of so many columns and panels of so many rows.
pub(super) fn needs_of_ones(device: &Device, columns: u64, rows: u64, options: &DistanceOptions) -> Needs {
    match options.metric {
        SampleMetric::IbsOfAlleles => PackedPairs::needs_of_ones(device, columns, rows),
        _ => Needs::default(),
    }
}

impl DistanceAccumulator {
    /// Over no variants.
    ///
    /// # Errors
    /// As [`distances`](super::distances).
    pub(super) fn new(reader: &Reader, options: &DistanceOptions) -> Result<Self> {
        let (device, n, variants) = (&reader.device, reader.samples(), reader.variants());
        let (metric, missing) = (options.metric.summed(), options.missing_rule());
        let pairs = if is_packed(reader, options) {
            reader.prepare(PackedPairs::programs(device, n, variants))?;
            Pairs::Packed(with_ones(PackedPairs::new(device, n, variants, metric, missing)?, options)?)
        } else {
            let of_columns = Options::default().missing(missing).columns(true);
            Pairs::Real { sums: Partial::new(device, n, None, metric, &of_columns)?, missing }
        };
        Ok(Self { variants: Variants::new(reader, options), pairs })
    }

    /// The memory that the sums take, with their results.
    pub(super) fn needs(reader: &Reader, options: &DistanceOptions) -> Needs {
        let (n, metric) = (reader.samples(), options.metric.summed());
        let tree = Needs::host(options.tree.map_or(0, |_| tree::bytes(n)));
        if !is_packed(reader, options) {
            // Numbers of packed rows, or dosages without those that take no part.
            return Partial::needs(n, None, metric, options.missing_rule()) + tree + f32_blocks(reader, 1);
        }
        let rows = reader.panel_rows(reader.step_bytes).min(reader.variants());
        let sums = PackedPairs::needs(&reader.device, n, rows, metric);
        sums + needs_of_ones(&reader.device, n, rows, options) + tree
    }

    /// Adds a panel, with the sums of its rows.
    ///
    /// # Errors
    /// Any error of the device.
    pub(super) fn add(&mut self, reader: &Reader, panel: &Panel, stats: &[Stats]) -> Result<()> {
        let kept = self.variants.kept(reader, stats)?;
        match (&mut self.pairs, &panel.held) {
            (Pairs::Packed(pairs), Held::Packed(packed)) => pairs.add(packed, 0, &kept),
            (Pairs::Packed(_), _) => unreachable!("dosages that are packed should be held so"),
            (Pairs::Real { sums, missing }, _) => {
                reader.blocks(&panel.rows).try_for_each(|block| {
                    let block = block.start - panel.rows.start..block.end - panel.rows.start;
                    let numbers = match &panel.held {
                        Held::Packed(packed) => {
                            let rows: Vec<u64> = block.filter(|&row| kept[to_usize(row)].is_some()).collect();
                            unpack_rows(packed, &rows, reader.samples(), [0.0, 1.0, 2.0, f32::NAN])?
                        }
                        // A block of its own.
                        _ => {
                            let table: Vec<_> =
                                kept.iter().map(|kept| row(kept.is_some(), *missing)).collect();
                            panel.standardized(&table)?
                        }
                    };
                    sums.add(&numbers, None)
                })
            }
        }
    }

    /// The numbers of variants that took part and of those left out.
    pub(super) fn counts(&self) -> VariantCounts {
        self.variants.counts()
    }

    /// Waits for the distances.
    ///
    /// # Errors
    /// Any error of the device.
    pub(super) fn finish(self) -> Result<Distances> {
        match self.pairs {
            Pairs::Packed(pairs) => pairs.finish(),
            Pairs::Real { sums, .. } => finish(&sums, self.variants.counts().loaded()),
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

/// Waits for the sums over so many variants, the others having been zeros or missing.
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

/// Waits for the distances over so many variants, the others having added nothing; without the numbers of shared ones where no call is
/// missing.
///
/// # Errors
/// Any error of the device.
pub(super) fn finish(sums: &Partial, variants: u64) -> Result<Distances> {
    Ok(without_equal(export(sums, variants)?.finish()?, variants))
}

/// The sums without the numbers of shared variants, where all are that of all.
pub(super) fn without_equal(mut found: Distances, variants: u64) -> Distances {
    let all = variants as f64;
    if found.shared.as_ref().is_some_and(|shared| shared.data().iter().all(|&count| count == all)) {
        found.shared = None;
    }
    found
}

/// A row of dosages for [`Panel::standardized`]: as they are and NaN where one is missing, or what adds nothing to any sum.
pub(super) fn row(is_kept: bool, missing: Missing) -> [f32; 3] {
    match (is_kept, missing) {
        (true, _) => [0.0, 1.0, f32::NAN],
        (false, Missing::Propagate) => [0.0; 3],
        (false, _) => [f32::NAN; 3],
    }
}
