//! Metrics of samples, and the options of their distances.

use teatime::{
    Error, Result,
    distance::{Metric, Missing},
    linalg::Matrix,
};

use super::{OP, tree::Linkage};
use crate::{
    filter::{VariantCounts, VariantFilter},
    source::{Genotypes, check_extents},
};

/// A measure of distance or similarity between two samples; by default the Euclidean distance.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SampleMetric {
    /// The metric applied to the dosages of both samples.
    Of(Metric),
    /// Identity by state, a similarity: the mean of `1 - |x - y| / k` over the variants called in both, for dosages x
    /// and y at ploidy k. It equals PLINK's `--distance ibs flat-missing`, and is NaN for a pair that shares no variant.
    Ibs,
    /// Identity by state of one allele of each sample, drawn at random, at biallelic variants of diploid samples: the mean of
    /// `½ + ½ (x - 1) (y - 1)`. It differs from [`Self::Ibs`] by being ½ if both are heterozygous, as in sgkit's `identity_by_state`.
    IbsOfAlleles,
}

teatime::stable_text! { enum SampleMetric { Of(metric), Ibs, IbsOfAlleles } }

impl Default for SampleMetric {
    fn default() -> Self {
        Self::Of(Metric::default())
    }
}

impl SampleMetric {
    /// Returns the metric's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Of(metric) => metric.name(),
            Self::Ibs | Self::IbsOfAlleles => "ibs",
        }
    }

    /// Returns the identity by state at a variant where both samples are heterozygous; None for other metrics.
    pub const fn het_het(self) -> Option<f64> {
        match self {
            Self::Of(_) => None,
            Self::Ibs => Some(1.0),
            Self::IbsOfAlleles => Some(0.5),
        }
    }

    /// Returns the exponent of a Minkowski metric, else None.
    pub const fn exponent(self) -> Option<f64> {
        if let Self::Of(Metric::Minkowski(p)) = self { Some(p) } else { None }
    }

    /// Returns true if a larger value means that two samples are more alike.
    pub(super) const fn is_similarity(self) -> bool {
        matches!(self, Self::Ibs | Self::IbsOfAlleles | Self::Of(Metric::InnerProduct))
    }

    /// Returns the metric whose sums over the variants are computed.
    pub(super) const fn summed(self) -> Metric {
        match self {
            Self::Of(metric) => metric,
            Self::Ibs | Self::IbsOfAlleles => Metric::CityBlock,
        }
    }
}

/// Options of the functions that compute distances of samples: by default, Euclidean ones over the variants called in both, rescaled to all.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DistanceOptions {
    /// The distance or similarity that is computed.
    pub metric: SampleMetric,
    /// The rule for missing calls. None takes the rule by which samples do not get nearer because they lack calls: [`Missing::Rescale`],
    /// or [`Missing::Ignore`] for a mean such as identity by state. sgkit uses [`Missing::Ignore`] for all metrics.
    pub missing: Option<Missing>,
    /// The filter of variants. Variants that do not vary take part.
    pub filter: VariantFilter,
    /// The linkage of the tree to make from the distances; None makes no tree. For identity by state, the tree takes 1 - ibs as distances.
    pub tree: Option<Linkage>,
    /// True if all alternate alleles of a call count as one. Otherwise different ones differ, by the metrics that
    /// [`distances`](super::distances()) names, for [`Genotypes`] without a [counted allele](Genotypes::counted_allele).
    pub merge_alleles: bool,
}

teatime::stable_text! { struct DistanceOptions { metric, missing, filter, tree, merge_alleles } }

teatime::setters! {
    DistanceOptions {
        metric(SampleMetric),
        missing(impl Into<Option<Missing>>) = missing.into(),
        filter(VariantFilter),
        tree(impl Into<Option<Linkage>>) = tree.into(),
        merge_alleles(bool),
    }
}

impl DistanceOptions {
    /// Returns the rule for missing calls.
    pub fn missing_rule(&self) -> Missing {
        let rule = if self.metric.het_het().is_some() { Missing::Ignore } else { Missing::Rescale };
        self.missing.unwrap_or(rule)
    }

    /// Turns the summed metric into the metric that was asked for.
    pub(super) fn finish(
        &self,
        distances: &mut Matrix,
        shared: Option<&Matrix>,
        counts: &VariantCounts,
        ploidy: u64,
    ) {
        if self.metric.het_het().is_none() {
            return;
        }
        let (variants, ploidy) = (counts.loaded() as f64, ploidy as f64);
        let similar = |distance: f64, shared: f64| {
            if shared > 0.0 { 1.0 - distance / (ploidy * shared) } else { f64::NAN }
        };
        let distances = distances.data_mut().iter_mut();
        match shared {
            Some(shared) => {
                distances
                    .zip(shared.data())
                    .for_each(|(distance, shared)| *distance = similar(*distance, *shared));
            }
            None => distances.for_each(|distance| *distance = similar(*distance, variants)),
        }
    }

    /// Checks the extents and the filter, whose errors name the call `op`, and these options.
    pub(super) fn check(&self, op: &'static str, genotypes: &Genotypes) -> Result<()> {
        check_extents(op, genotypes)?;
        self.filter.check(op)?;
        if self.metric == SampleMetric::IbsOfAlleles && genotypes.ploidy() != 2 {
            let ploidy = genotypes.ploidy();
            let why = format_args!("ibs of one half where both are heterozygous: of ploidy 2, not {ploidy}");
            return Err(Error::argument(OP, "metric", why));
        }
        if let (SampleMetric::Of(metric @ Metric::InnerProduct), Some(_)) = (self.metric, self.tree) {
            let why = format_args!("{metric} is a similarity; a tree is made of distances");
            return Err(Error::argument(OP, "tree", why));
        }
        let missing = self.missing_rule();
        if let (Some(_), Missing::Rescale | Missing::RescaleOrZero) = (self.metric.het_het(), missing) {
            let why = format_args!("{} of ibs: it is a mean already; ignore or propagate", missing.name());
            return Err(Error::argument(OP, "missing", why));
        }
        let metric = self.metric.summed();
        let why = match metric {
            Metric::JensenShannon => "needs the sum of each sample before the first variant",
            _ if !metric.is_symmetric() => "is not symmetric",
            _ => return metric.check(missing),
        };
        Err(Error::argument(OP, "metric", format_args!("{metric} {why}")))
    }
}
