//! Sums for pairs of samples, to which panels are added.

use std::{ops::Range, slice::from_ref};

use teatime::{
    Device, Error, Needs, Result,
    distance::{
        ColumnPairs, Distances as Found, Missing, Options, PackedDiagonal, PackedPairs, Partial, PartialSums,
    },
    linalg::{Matrix, Stats},
    packed::{Entries, Panel, unpack_rows},
};

use super::{DistanceOptions, SampleMetric, Settings, tree};
use crate::{
    cohort::{
        Cohort,
        each::Each,
        no_variant,
        plan::{Request, Wanted},
    },
    filter::VariantCounts,
    memory::f32_blocks,
    reader::Reader,
    scaler::{ScaleRule, Scaler},
    source::Genotypes,
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
    pub(super) fn kept(&mut self, reader: &Reader, stats: &[Stats]) -> Result<Vec<Option<Stats>>> {
        Ok(reader.device.pool()?.install(|| {
            let scales = self.rule.scales(stats);
            self.totals.add(stats, &scales, self.rule.samples);
            stats.iter().zip(&scales).map(|(stats, scale)| scale.is_kept().then_some(*stats)).collect()
        }))
    }

    /// Returns the counts of the variants, if at least one was used.
    pub(super) fn counts(&self, op: &'static str) -> Result<VariantCounts> {
        let counts = self.totals.counts;
        if counts.loaded() == 0 {
            return Err(Error::argument(op, "genotypes", no_variant(&counts)));
        }
        Ok(counts)
    }
}

/// Sums for pairs of samples: integers over packed rows, or terms in f32.
pub(super) enum Pairs {
    Packed(Box<PackedPairs>),
    Real { sums: Partial, missing: Missing },
}

/// Returns true if sums are of integers.
fn is_packed(readers: &[Reader], options: &DistanceOptions) -> bool {
    readers.iter().all(|reader| reader.form.is_packed()) && PackedPairs::takes(options.metric.summed())
}

fn samples(readers: &[Reader]) -> (u64, Option<u64>) {
    (readers[0].samples(), readers.get(1).map(Reader::samples))
}

impl Accumulator {
    /// Reads `genotypes` and adds up the sums of all pairs of samples, or those of each with itself for bands of `side` samples, for which
    /// the genotypes stay. The settings leave bytes for the caller's work on the sums or on a band.
    pub(super) fn load(
        genotypes: &Genotypes,
        Settings { device, options, beside, run }: Settings<'_>,
        side: Option<u64>,
    ) -> Result<(Self, Cohort)> {
        // Dosages that two bits hold are summed in packed form.
        let genotypes = &genotypes.bounded_if(PackedPairs::takes(options.metric.summed())).watched();
        let n = genotypes.samples();
        let (added, planned, passes) = match side {
            None => (ColumnPairs::All(n), ColumnPairs::All(n), 0),
            // The number of bands is unknown until memory is planned, so this is its maximum.
            Some(side) => (ColumnPairs::Diagonal(n), ColumnPairs::Band(n, 0..side.min(n)), n.div_ceil(side)),
        };
        // Only whole numbers are the same for any number of devices, and only devices of one kind divide samples in the same way.
        let is_shared = PackedPairs::takes(options.metric.summed()) && device.is_of_one_kind();
        let device = if is_shared { device } else { &device.members()[0] };
        let each = Each {
            needs: &|reader| Self::needs(from_ref(reader), options, &planned, beside),
            start: &|reader| Self::new(&reader.device, from_ref(reader), reader.all, options, &added),
            add: &|adding: &mut Self, reader, panel, stats| match side {
                None => adding.add(reader, panel, &panel.rows, stats),
                Some(_) => reader
                    .steps(&panel.rows)
                    .try_for_each(|rows| adding.add(reader, panel, &rows, &stats[panel.places(&rows)])),
            },
            join: &Self::join,
        };
        let wanted = &Wanted::default().sums_of_pairs().more_passes(passes);
        Cohort::load_with(Request { genotypes, device, wanted, run }, &each)
    }

    /// Adds the sums over other variants that another member of a group made.
    pub(super) fn join(&mut self, other: Self) -> Result<()> {
        self.variants.totals.merge(other.variants.totals);
        match (&mut self.pairs, other.pairs) {
            (Pairs::Packed(own), Pairs::Packed(other)) => own.join(*other),
            _ => unreachable!("members should add whole numbers"),
        }
    }

    /// Creates empty sums on a device for `pairs` of the samples of one or two readers, and for `variants` variants that are added later. The
    /// samples of a second reader come first. Sums in f32 are for all pairs.
    pub(super) fn new(
        device: &Device,
        readers: &[Reader],
        variants: u64,
        options: &DistanceOptions,
        pairs: &ColumnPairs,
    ) -> Result<Self> {
        let (metric, missing) = (options.metric.summed(), options.missing_rule());
        let pairs = if is_packed(readers, options) {
            let samples = readers.iter().map(Reader::samples).sum();
            device.prepare(PackedPairs::programs(device, samples, variants))?;
            let pairs = PackedPairs::new(device, pairs, variants, metric, missing)?;
            let ones_differ = options.metric == SampleMetric::IbsOfAlleles;
            Pairs::Packed(Box::new(if ones_differ { pairs.ones_differ()? } else { pairs }))
        } else {
            let of_columns = Options::default().missing(missing).columns(true);
            let (n, others) = samples(readers);
            Pairs::Real { sums: Partial::new(device, n, others, metric, &of_columns)?, missing }
        };
        Ok(Self { variants: Variants::new(readers, options), pairs })
    }

    /// Returns the memory of the sums that [`new`](Self::new) makes, of their results, of a tree, and of `beside` bytes more on the host.
    pub(super) fn needs(
        readers: &[Reader],
        options: &DistanceOptions,
        pairs: &ColumnPairs,
        beside: u64,
    ) -> Needs {
        let (reader, (n, others), metric) = (&readers[0], samples(readers), options.metric.summed());
        let beside = Needs::host(options.tree.map_or(0, |_| tree::bytes(n))) + Needs::host(beside);
        if !is_packed(readers, options) {
            let numbers = match others {
                // One block in f32: unpacked rows, or dosages without variants that take no part.
                None => f32_blocks(reader, 1),
                // These are blocks in f32 of both readers, before and after swapped variants' dosages become the ploidy less the dosage.
                Some(others) => Needs::device(8 * (n + others)) * reader.plan.block_rows(),
            };
            return Partial::needs(n, others, metric, options.missing_rule()) + numbers + beside;
        }
        let rows = readers.iter().map(|reader| reader.panel_rows(reader.step_bytes));
        let rows = rows.min().map_or(0, |rows| rows.min(reader.variants()));
        let sums = PackedPairs::needs(&reader.device, pairs, rows, metric) + beside;
        if options.metric != SampleMetric::IbsOfAlleles {
            return sums;
        }
        let columns = others.map_or(0, |others| others.next_multiple_of(64)).saturating_add(n);
        sums + PackedPairs::needs_of_ones(&reader.device, columns, rows)
    }

    /// Adds some rows of a panel, given the sums of these rows, where all panels come from one reader.
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

    /// Waits for the sums of the [diagonal](ColumnPairs::Diagonal), over genotypes that two bits hold.
    pub(super) fn finish_diagonal(self) -> Result<PackedDiagonal> {
        match self.pairs {
            Pairs::Packed(pairs) => pairs.finish_diagonal(),
            Pairs::Real { .. } => unreachable!("sums of packed genotypes should be whole numbers"),
        }
    }

    /// Waits for the distances; those of a band need the sums of the `diagonal`.
    pub(super) fn finish(self, diagonal: Option<&PackedDiagonal>) -> Result<Found> {
        match (self.pairs, diagonal) {
            (Pairs::Packed(pairs), Some(diagonal)) => pairs.finish_columns(diagonal),
            (Pairs::Packed(pairs), None) => pairs.finish(),
            (Pairs::Real { sums, .. }, _) => {
                let variants = self.variants.totals.counts.loaded();
                Ok(without_equal(export(&sums, variants)?.finish()?, variants))
            }
        }
    }

    pub(super) fn export(self) -> Result<PartialSums> {
        match self.pairs {
            Pairs::Packed(pairs) => pairs.export(),
            Pairs::Real { sums, .. } => export(&sums, self.variants.totals.counts.loaded()),
        }
    }
}

/// Waits for the sums over `variants`; the other variants were added as zeros or as missing.
fn export(sums: &Partial, variants: u64) -> Result<PartialSums> {
    let mut sums = sums.export()?;
    match sums.missing {
        Missing::Propagate => sums.take_zeros_away(sums.features.saturating_sub(variants))?,
        _ => sums.features = variants,
    }
    Ok(sums)
}

/// Removes the numbers of shared variants if every pair shares all variants.
pub(super) fn without_equal(mut distances: Found, variants: u64) -> Found {
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
