//! The record of `teatime distance`, and its summary.

use serde::Serialize;
use teatime::distance::{Metric, Missing};
use teatime_genotype::{DistanceOptions, Linkage, SampleMetric};

use super::{
    DistanceArgs,
    bands::{Alleles, BandsRecord, Found},
    neighbors::NeighborsRecord,
    with::{With, WithRecord},
};
use crate::{
    record::{Common, DistanceSeconds, Ran},
    report::VariantsRecord,
    stores::Stores,
    text,
};

/// The record of a run.
#[derive(Debug, Serialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) common: Common,
    variants: VariantsRecord,
    /// Variants after --maf and --geno.
    variants_kept: u64,
    metric: &'static str,
    /// The exponent of minkowski.
    p: Option<f64>,
    /// What ibs is of two heterozygous calls.
    het_het: Option<f64>,
    missing: &'static str,
    #[serde(flatten)]
    alleles: Alleles,
    /// Whether each sample is a haplotype.
    haplotypes: bool,
    /// How samples were clustered.
    tree: Option<&'static str>,
    min_maf: f64,
    max_missing: f64,
    /// Pairs of samples whose distance is NaN.
    undefined_pairs: u64,
    /// Whose samples distances are to; null where from one another.
    with: Option<WithRecord>,
    /// How distances were computed for some samples at a time; null where all were at once.
    bands: Option<BandsRecord>,
    /// The nearest samples that were written; null where the distances of all were.
    neighbors: Option<NeighborsRecord>,
    seconds: DistanceSeconds,
}

impl Record {
    pub(super) fn new(
        ran: &Ran<'_>,
        stores: &Stores,
        args: &DistanceArgs,
        options: &DistanceOptions,
        found: Found,
        with: Option<With>,
        seconds: DistanceSeconds,
    ) -> Self {
        let Found { undefined, counts, alleles, digest, memory, stats, bands, neighbors } = found;
        let warning = (undefined > 0).then(|| {
            let pairs = text::plural(undefined, "pair");
            let why = match (options.metric, options.missing_rule()) {
                (_, Missing::Propagate) => "a call is missing",
                (SampleMetric::Of(Metric::Correlation | Metric::Cosine), _) => {
                    "no variant is called in both, or the dosages of one do not vary there"
                }
                _ => "no variant is called in both, or their dosages add up to 0",
            };
            format!("the distance of {pairs} of samples is NaN: {why}")
        });
        let merged = alleles.summary().filter(|_| alleles.merged && !options.merge_alleles);
        let warnings = warning.into_iter().chain(merged).chain(with.iter().flat_map(With::warnings));
        Self {
            common: ran.common(stores, memory, &stats, digest, None, warnings.collect()),
            variants: (&counts).into(),
            variants_kept: counts.loaded(),
            metric: options.metric.name(),
            p: options.metric.exponent(),
            het_het: options.metric.het_het(),
            missing: options.missing_rule().name(),
            alleles,
            haplotypes: args.haplotypes,
            tree: options.tree.map(Linkage::name),
            min_maf: options.filter.min_maf,
            max_missing: options.filter.max_missing,
            undefined_pairs: undefined,
            with: with.map(With::record),
            bands,
            neighbors,
            seconds,
        }
    }

    /// What the command prints when it is done.
    pub(super) fn summary(&self) -> String {
        let Self { common, seconds, .. } = self;
        let mut out = common.head();
        let mut line = |name: &str, what: String| out += &format!("{name:<10}{what}\n");
        if let Some(with) = &self.with {
            with.summary().into_iter().for_each(|(name, what)| line(name, what));
        }
        line("variants", format!("{} used", text::count(self.variants_kept)));
        if let Some(alleles) = self.alleles.summary() {
            line("", alleles);
        }
        if self.haplotypes {
            line("", "each sample is one haplotype".into());
        }
        common.changes.iter().for_each(|change| line("", change.clone()));
        let (peak, on_device) = common.process.peaks();
        let peak = peak.map_or_else(String::new, |peak| format!("; peak memory {peak}"));
        let p = self.p.map_or_else(String::new, |p| format!(" of p = {p}"));
        let half = if self.het_het == Some(0.5) { " of 0.5 for two heterozygous calls" } else { "" };
        line(
            "metric",
            format!("{}{p}{half}, missing {}{peak}, of the device {on_device}", self.metric, self.missing),
        );
        if let Some(linkage) = self.tree {
            line("tree", format!("{linkage} linkage"));
        }
        if let Some(bands) = &self.bands {
            line("bands", bands.summary());
        }
        if let Some(neighbors) = &self.neighbors {
            line("neighbors", neighbors.summary());
        }
        seconds.summary().into_iter().for_each(|(name, what)| line(name, what));
        out + &common.process.wrote()
    }
}
