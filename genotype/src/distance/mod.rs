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
    /// That of their dosages.
    Of(Metric),
    /// Identity by state, a similarity: the mean of `1 - |x - y| / k` over the variants called in both, for dosages x and y at ploidy k.
    /// PLINK's `--distance ibs flat-missing`; NaN for a pair that shares no variant.
    Ibs,
    /// Identity by state of one allele of each sample, drawn at random, at biallelic variants of diploid samples: the mean of
    /// `½ + ½ (x - 1) (y - 1)`. It is [`Self::Ibs`], but ½ where both are heterozygous: sgkit's `identity_by_state`.
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
    /// Euclidean.
    fn default() -> Self {
        Self::Of(Metric::default())
    }
}

impl SampleMetric {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Of(metric) => metric.name(),
            Self::Ibs | Self::IbsOfAlleles => "ibs",
        }
    }

    /// The identity by state at a variant where both samples are heterozygous; None for other metrics.
    pub const fn het_het(self) -> Option<f64> {
        match self {
            Self::Of(_) => None,
            Self::Ibs => Some(1.0),
            Self::IbsOfAlleles => Some(0.5),
        }
    }

    /// The exponent of Minkowski's.
    pub const fn exponent(self) -> Option<f64> {
        if let Self::Of(Metric::Minkowski(p)) = self { Some(p) } else { None }
    }

    /// True where a larger value means that two samples are more alike.
    const fn is_similarity(self) -> bool {
        matches!(self, Self::Ibs | Self::IbsOfAlleles | Self::Of(Metric::InnerProduct))
    }

    /// The metric that is added up over the variants.
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
    /// The rule for missing calls; none for the one that makes no sample near because it lacks calls:
    /// [`Missing::Rescale`], and of a mean, as identity by state is, [`Missing::Ignore`]. sgkit's is [`Missing::Ignore`] of all.
    pub missing: Option<Missing>,
    /// The filter of variants; those that do not vary take part.
    pub filter: VariantFilter,
    /// The linkage of the tree that is made of the distances; none makes no tree. For identity by state, distances are 1 - ibs.
    pub tree: Option<Linkage>,
    /// True where all alternate alleles of a call count as one. Else different ones differ, of [`Genotypes`] whose
    /// [counted allele](Genotypes::counted_allele) is not said, by the metrics of which [`distances`](distances()) says so.
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
    /// The rule for missing calls.
    pub fn missing_rule(&self) -> Missing {
        let rule = if self.metric.het_het().is_some() { Missing::Ignore } else { Missing::Rescale };
        self.missing.unwrap_or(rule)
    }

    /// Makes of what was added up what was asked for.
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
    /// Euclidean distances over the variants called in both samples, rescaled to all. sgkit's have [`Missing::Ignore`].
    fn default() -> Self {
        let (metric, filter) = (SampleMetric::default(), VariantFilter::default());
        Self { metric, missing: None, filter, tree: None, merge_alleles: false }
    }
}

/// Distances of the samples of a genotype matrix.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Distances {
    /// (samples, samples), symmetric to the bit.
    pub matrix: Matrix,
    /// The number of variants called in both (samples, samples), where a call is missing; else it is
    /// [`VariantCounts::loaded`] for all. None by [`Missing::Propagate`] where sums are in f32 or alternate alleles are told apart.
    pub shared: Option<Matrix>,
    /// The tree of the samples, where it was asked for.
    pub tree: Option<Tree>,
    /// Variants that took part.
    pub counts: VariantCounts,
    /// The number of these with more than two alleles: samples carry two alternate ones or more.
    pub multiallelic: u64,
    /// True where the alternate alleles of these count as one.
    pub merged: bool,
    /// The options that were given.
    pub options: DistanceOptions,
    /// 64-bit FNV-1a of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub digest: u64,
    /// The memory budgets of the plan, with defaults filled in; none for a device that shares the host's memory.
    pub memory: Budget,
    /// The time that each step took.
    pub stats: StreamStats,
}

impl Distances {
    /// Pairs of samples, each with itself among them, whose distance is NaN.
    pub fn undefined(&self) -> u64 {
        let lower = (0..self.matrix.rows()).flat_map(|j| &self.matrix.row(j)[..=j]);
        lower.filter(|distance| distance.is_nan()).count() as u64
    }
}

/// The distances of the samples of `genotypes` from one another, in memory bounded by `run.memory`.
///
/// The dosage of a call is its number of non-reference alleles, or as [`Genotypes::count_allele`] says; of [`Genotypes::haplotypes`], a
/// sample is one haplotype. A call with a missing allele is missing, and is left out as
/// `options.missing` says. Metrics have to be symmetric. Of a metric that [`PackedPairs`] takes, dosages above the ploidy are an error.
///
/// At a variant of more than two alleles, different alleles differ by euclidean, sqeuclidean, cityblock and both identities by state, and of
/// haplotypes by hamming: with c(a) the copies of allele a, |x - y| becomes ½ Σ |c(a) - c'(a)|, (x - y)² becomes ½ Σ (c(a) - c'(a))², and
/// [`SampleMetric::IbsOfAlleles`] is the mean of ¼ Σ c(a) c'(a). By other metrics, and by `options.merge_alleles`, they count as one.
///
/// # Shapes
/// `genotypes`: (variants, samples) -> (samples, samples), and where calls are missing as many numbers of variants.
///
/// # Accuracy
/// Sums are of whole numbers for a metric that [`PackedPairs`] takes, where two bits hold a call: distances are exact but for the last
/// rounding, the same bits on every device, whatever the chunks and threads. Else as [`Partial`](teatime::distance::Partial) has it.
///
/// # Cost
/// One pass, and where an alternate allele above 1 is met one that finds those variants, and passes over them, one for each allele:
/// what [`PackedPairs`] says a variant, else a few operations in f32 for each pair of samples and term of the metric.
/// On the host 8 samples² bytes, on the device 4, and as many again for missing calls; else 8 on the device and 16 on the host for each
/// term. A tree takes 4 samples² bytes more on the host, and time in proportion to samples² on one thread, which nothing cancels.
///
/// # Errors
/// [`Error::Argument`] without samples or variants, for a filter out of range, for a metric that is not symmetric or that does not know
/// the rule for missing calls (of [`SampleMetric::Ibs`], those that rescale), for [`Metric::JensenShannon`], when no variant is left, and for a tree of
/// [`Metric::InnerProduct`], or of distances that are NaN; [`Error::Budget`] with
/// the least that would do; [`Error::OutOfMemory`] where the device has not even that, though the budget allows it;
/// [`Error::Chunk`] for a damaged or missing chunk or values out of range; [`Error::Cancelled`].
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

/// Computes [`distances`](distances()) of checked arguments, with `beside` bytes on the host for what becomes of them.
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

/// The sums over all variants, with so many bytes on the host for what becomes of them.
fn added_up(
    genotypes: &Genotypes,
    device: &Device,
    options: &DistanceOptions,
    beside: u64,
    run: &Run,
) -> Result<(Accumulator, Cohort)> {
    // Dosages that two bits hold are added up in them.
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
/// [`Error::Argument`] where two bits do not hold the dosages; as [`Reader::new`].
fn check_packed(name: &'static str, genotypes: &Genotypes, device: &Device) -> Result<()> {
    if are_packed(genotypes, device)? {
        return Ok(());
    }
    let why = "ibs of one half where both are heterozygous is of dosages 0, 1 and 2 alone";
    Err(Error::argument(OP, name, why))
}

/// True where two bits hold the dosages, if none is above the ploidy.
///
/// # Errors
/// As [`Reader::new`].
fn are_packed(genotypes: &Genotypes, device: &Device) -> Result<bool> {
    let genotypes = genotypes.clone().dosages_are_bounded(true);
    Ok(Reader::new(&genotypes, device, true)?.form.is_packed())
}
