//! Distances of samples from one another.

mod adding;
mod alleles;
mod bands;
#[cfg(feature = "zarr")]
mod bands_store;
mod between;
mod neighbors;
mod sums;
mod tree;
mod write;

#[cfg(test)]
mod alleles_tests;
#[cfg(test)]
mod bands_tests;
#[cfg(test)]
mod between_tests;
#[cfg(test)]
mod neighbors_tests;
#[cfg(test)]
mod tests;

use teatime::{
    Budget, Device, Error, Needs, Result, Run,
    distance::{Metric, Missing, PackedPairs},
    linalg::Matrix,
    stable_text::{StableText, fields},
    stream::StreamStats,
};

use self::adding::Accumulator;
pub use self::bands::{DistanceBand, DistanceBands};
#[cfg(feature = "zarr")]
pub use self::bands_store::WrittenBands;
pub use self::between::{DistancesBetween, distances_between};
pub use self::neighbors::{SampleNeighbors, sample_neighbors, sample_neighbors_between};
pub use self::sums::distance_sums;
pub use self::tree::{Linkage, Merge, Tree};
use super::{
    cohort::{Cohort, Each, plan::Wanted},
    filter::{VariantCounts, VariantFilter},
    reader::Reader,
    source::{Genotypes, check_extents},
};

const OP: &str = "distances";

/// A measure of distance or similarity between two samples.
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

impl StableText for SampleMetric {
    fn stable_text(&self) -> String {
        match self {
            Self::Of(metric) => format!("Of({})", metric.stable_text()),
            Self::Ibs => "Ibs".into(),
            Self::IbsOfAlleles => "IbsOfAlleles".into(),
        }
    }
}

impl Default for SampleMetric {
    /// Returns the Euclidean metric.
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
    const fn is_similarity(self) -> bool {
        matches!(self, Self::Ibs | Self::IbsOfAlleles | Self::Of(Metric::InnerProduct))
    }

    /// Returns the metric whose sums over the variants are computed.
    const fn summed(self) -> Metric {
        match self {
            Self::Of(metric) => metric,
            Self::Ibs | Self::IbsOfAlleles => Metric::CityBlock,
        }
    }
}

/// Options of the functions that compute distances of samples.
#[derive(Clone, Copy, Debug)]
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
    /// [`distances`](distances()) names, for [`Genotypes`] without a [counted allele](Genotypes::counted_allele).
    pub merge_alleles: bool,
}

impl StableText for DistanceOptions {
    fn stable_text(&self) -> String {
        let Self { metric, missing, filter, tree, merge_alleles } = self;
        fields(
            "DistanceOptions",
            &[
                ("metric", metric),
                ("missing", missing),
                ("filter", filter),
                ("tree", tree),
                ("merge_alleles", merge_alleles),
            ],
        )
    }
}

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
    fn finish(&self, distances: &mut Matrix, shared: Option<&Matrix>, counts: &VariantCounts, ploidy: u64) {
        if self.metric.het_het().is_none() {
            return;
        }
        let (all, ploidy) = (counts.loaded() as f64, ploidy as f64);
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
            None => distances.for_each(|distance| *distance = similar(*distance, all)),
        }
    }

    /// Checks the extents and the filter, whose errors name the call `op`, and these options.
    fn check(&self, op: &'static str, genotypes: &Genotypes) -> Result<()> {
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

impl Default for DistanceOptions {
    /// Returns options for Euclidean distances over the variants called in both samples, rescaled
    /// to all variants. sgkit ignores missing calls instead ([`Missing::Ignore`]).
    fn default() -> Self {
        let (metric, filter) = (SampleMetric::default(), VariantFilter::default());
        Self { metric, missing: None, filter, tree: None, merge_alleles: false }
    }
}

/// Distances of the samples of a genotype matrix.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Distances {
    /// The distances, (samples, samples), symmetric to the bit.
    pub matrix: Matrix,
    /// The number of variants called in both (samples, samples), if a call is missing; otherwise it is [`VariantCounts::loaded`]
    /// for every pair. None with [`Missing::Propagate`] if sums are in f32 or different alternate alleles differ.
    pub shared: Option<Matrix>,
    /// The tree of the samples, if the options ask for one.
    pub tree: Option<Tree>,
    /// The number of variants that took part, and the numbers that were dropped by each filter.
    pub counts: VariantCounts,
    /// The number of variants that took part and at which samples carry two or more alternate alleles.
    pub multiallelic: u64,
    /// True if the alternate alleles of such variants count as one.
    pub merged: bool,
    /// The options that were given.
    pub options: DistanceOptions,
    /// The 64-bit FNV-1a digest of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub digest: u64,
    /// The memory budgets of the plan, with defaults filled in. A device that shares the host's memory has no budget of its own.
    pub memory: Budget,
    /// The time that each step took.
    pub stats: StreamStats,
}

impl Distances {
    /// Returns the number of pairs of samples, including each sample with itself, whose distance is NaN.
    pub fn undefined(&self) -> u64 {
        let lower = (0..self.matrix.rows()).flat_map(|j| &self.matrix.row(j)[..=j]);
        lower.filter(|distance| distance.is_nan()).count() as u64
    }
}

/// Computes the distances of the samples of `genotypes` from one another, in memory bounded by `run.memory`.
///
/// The dosage of a call is its number of non-reference alleles, or as [`Genotypes::count_allele`] says; with
/// [`Genotypes::haplotypes`], a sample is one haplotype. A call with a missing allele is missing; `options.missing` says how missing
/// calls are left out. Metrics have to be symmetric. For a metric that [`PackedPairs`] takes, dosages above the ploidy are an error.
///
/// At a variant of more than two alleles, different alleles differ by euclidean, sqeuclidean, cityblock and
/// both identities by state, and for haplotypes by hamming. With c(a) the copies of allele a, |x - y| becomes
/// ½ Σ |c(a) - c'(a)|, (x - y)² becomes ½ Σ (c(a) - c'(a))², and [`SampleMetric::IbsOfAlleles`] is the mean
/// of ¼ Σ c(a) c'(a). By other metrics, or with `options.merge_alleles`, all alternate alleles count as one.
///
/// # Shapes
/// `genotypes`: (variants, samples) -> (samples, samples), and if calls are missing the numbers of shared variants in the same shape.
///
/// # Accuracy
/// Sums are of integers for a metric that [`PackedPairs`] takes, if two bits hold a call: distances are exact but for the last rounding,
/// the same bits on every device, for any chunks and threads. Otherwise the accuracy is that of [`Partial`](teatime::distance::Partial).
///
/// # Cost
/// One pass, in which a variant costs what [`PackedPairs`] says, or else a few operations in f32 for each pair of
/// samples and term of the metric. If an alternate allele above 1 is met, one more pass finds the variants with several
/// alternate alleles, and one pass over them follows for each allele. Distances take 8 samples² bytes on the host and 4
/// on the device, and as many again for missing calls; in f32, 8 on the device and 16 on the host for each term. A tree
/// takes 4 samples² bytes more on the host, and time in proportion to samples² on one thread, which cannot be cancelled.
///
/// # Errors
/// [`Error::Argument`] without samples or variants; for a filter out of range; for a metric that is not symmetric or that
/// does not support the rule for missing calls ([`SampleMetric::Ibs`] does not rescale); for [`Metric::JensenShannon`];
/// if no variant is left; and for a tree of [`Metric::InnerProduct`], or of distances that are NaN. [`Error::Budget`]
/// with the smallest budget that would do; [`Error::OutOfMemory`] if the device has not even that much, though the budget
/// allows it; [`Error::Chunk`] for a damaged or missing chunk or values out of range; [`Error::Cancelled`].
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, distance::Metric, store::MemoryArray};
/// use teatime_genotype::{DistanceOptions, Genotypes, SampleMetric, distances};
///
/// let dosages = [[0i8, 0, 2], [2, 2, 0], [0, 1, 2], [2, -1, 0]];
/// let array = MemoryArray::new("dosages", dosages.as_flattened(), &[4, 3], &[2, 3])?;
/// let genotypes = Genotypes::new(vec![Arc::new(array)])?;
/// let options = DistanceOptions::default().metric(SampleMetric::Of(Metric::CityBlock));
/// let result = distances(&genotypes, &Device::cpu(), &options, &Run::default())?;
/// // The second sample lacks the last variant, which is made up for.
/// assert_eq!(result.matrix.row(0), [0.0, 4.0 / 3.0, 8.0]);
/// assert!(result.shared.is_some_and(|shared| shared.row(0) == [4.0, 3.0, 4.0]));
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn distances(
    genotypes: &Genotypes,
    device: &Device,
    options: &DistanceOptions,
    run: &Run,
) -> Result<Distances> {
    options.check(OP, genotypes)?;
    with_room_beside(genotypes, device, options, 0, run)
}

/// Computes [`distances`](distances()) for checked arguments, with `beside` bytes on the host left for the caller's work on the result.
fn with_room_beside(
    genotypes: &Genotypes,
    device: &Device,
    options: &DistanceOptions,
    beside: u64,
    run: &Run,
) -> Result<Distances> {
    if options.metric == SampleMetric::IbsOfAlleles {
        check_packed("genotypes", genotypes, device)?;
    }
    let (adding, cohort) = added_up(genotypes, device, options, beside, run)?;
    let counts = adding.variants.counts();
    if counts.loaded() == 0 {
        return Err(Error::argument(OP, "genotypes", super::cohort::no_variant(&counts)));
    }
    let (mut found, multiallelic) = alleles::finish(adding, &cohort, genotypes, options, beside, run)?;
    options.finish(&mut found.distances, found.shared.as_ref(), &counts, genotypes.ploidy());
    let similarities = options.metric.is_similarity();
    let tree = options.tree.map(|linkage| Tree::new(&found.distances, similarities, linkage)).transpose()?;
    Ok(Distances {
        matrix: found.distances,
        tree,
        shared: found.shared,
        counts,
        multiallelic,
        merged: !options.tells_alleles(genotypes.ploidy()),
        options: *options,
        digest: cohort.digest(),
        memory: cohort.memory(),
        stats: cohort.stats(),
    })
}

/// Computes the sums over all variants, with `beside` bytes on the host left for the caller's work on them.
fn added_up(
    genotypes: &Genotypes,
    device: &Device,
    options: &DistanceOptions,
    beside: u64,
    run: &Run,
) -> Result<(Accumulator, Cohort)> {
    // Dosages that two bits hold are summed in packed form.
    let bounded = genotypes.bounded() || PackedPairs::takes(options.metric.summed());
    let genotypes = &genotypes.clone().dosages_are_bounded(bounded).watched();
    let each = Each {
        needs: &|reader| Accumulator::needs_of_all_pairs(reader, options) + Needs::host(beside),
        start: &|reader| Accumulator::all_pairs(reader, options),
        add: &mut |adding, reader, panel, stats| adding.add(reader, panel, &panel.rows, stats),
    };
    Cohort::load_with(genotypes, device, &Wanted::default().sums_of_pairs(), run, each)
}

/// Checks that the dosages are those that [`SampleMetric::IbsOfAlleles`] takes.
///
/// # Errors
/// [`Error::Argument`] if two bits do not hold the dosages; other errors as for [`Reader::new`].
fn check_packed(name: &'static str, genotypes: &Genotypes, device: &Device) -> Result<()> {
    if are_packed(genotypes, device)? {
        return Ok(());
    }
    let why = "ibs of one half where both are heterozygous is of dosages 0, 1 and 2 alone";
    Err(Error::argument(OP, name, why))
}

/// Returns true if two bits hold the dosages, provided that none is above the ploidy.
///
/// # Errors
/// Fails as [`Reader::new`] does.
fn are_packed(genotypes: &Genotypes, device: &Device) -> Result<bool> {
    let genotypes = genotypes.clone().dosages_are_bounded(true);
    Ok(Reader::new(&genotypes, device, true)?.form.is_packed())
}
