//! Distances of samples from one another, or from the samples of another matrix.

mod adding;
mod alleles;
mod bands;
#[cfg(feature = "zarr")]
mod bands_store;
mod between;
mod neighbors;
mod options;
mod tree;
mod write;

#[cfg(test)]
mod tests;

#[cfg(doc)]
use teatime::distance::PackedPairs;
use teatime::{
    Budget, Device, Error, Result, Run,
    distance::{Distances as Found, Metric, Missing, Partial, PartialSums},
    linalg::Matrix,
    stream::StreamStats,
};

#[cfg(feature = "zarr")]
pub use self::bands_store::WrittenBands;
use self::{adding::Accumulator, alleles::Several, between::Others};
pub use self::{
    bands::{DistanceBand, DistanceBands},
    neighbors::{SampleNeighbors, sample_neighbors},
    options::{DistanceOptions, SampleMetric},
    tree::{Linkage, Merge, Tree},
};
use super::{cohort::Cohort, filter::VariantCounts, project::Match, reader::Reader, source::Genotypes};

const OP: &str = "distances";

/// The pairs of samples whose distances are computed: all pairs of samples of one matrix, from `&Genotypes`; or the pairs of a sample of
/// one matrix and a sample of another.
#[derive(Clone, Copy, Debug)]
pub struct SamplePairs<'a> {
    genotypes: &'a Genotypes,
    others: Option<Others<'a>>,
}

impl<'a> From<&'a Genotypes> for SamplePairs<'a> {
    fn from(genotypes: &'a Genotypes) -> Self {
        Self { genotypes, others: None }
    }
}

impl<'a> SamplePairs<'a> {
    /// Returns the pairs of a sample of `genotypes` with a sample of `with`, over the variants that both have. `matches` says for each variant
    /// of `genotypes` which variant of `with` it is; for [`Match::Swapped`], a dosage of `with` becomes the ploidy less the dosage.
    pub fn between(genotypes: &'a Genotypes, with: &'a Genotypes, matches: &'a [Option<Match>]) -> Self {
        Self { genotypes, others: Some(Others { genotypes: with, matches }) }
    }

    /// Checks the genotypes and the options before anything is read. Errors of extents and of the filter name the call `op`.
    fn check(self, op: &'static str, device: &Device, options: &DistanceOptions) -> Result<()> {
        options.check(self.others.map_or(op, |_| between::OP), self.genotypes)?;
        self.others.map_or(Ok(()), |others| others.check(self.genotypes, options))?;
        if options.metric == SampleMetric::IbsOfAlleles {
            let with = self.others.map(|others| ("with", others.genotypes));
            for (name, side) in [("genotypes", self.genotypes)].into_iter().chain(with) {
                if !are_packed(side, device)? {
                    let why = "ibs of one half where both are heterozygous is of dosages 0, 1 and 2 alone";
                    return Err(Error::argument(OP, name, why));
                }
            }
        }
        Ok(())
    }

    fn distances(self, settings: Settings<'_>) -> Result<Distances> {
        let (genotypes, options) = (self.genotypes, settings.options);
        if let Some(others) = self.others {
            return others.distances(genotypes, settings);
        }
        let (adding, cohort) = Accumulator::load(genotypes, settings, None)?;
        let counts = adding.variants.counts(OP)?;
        let several = Several::new(&cohort, settings)?;
        let matrices = several.finish(adding, &cohort, settings)?;
        let merged = !options.tells_alleles(genotypes.ploidy());
        let facts = DistanceFacts::of_cohort(&cohort, options, counts, several.len(), merged);
        Distances::new(matrices, facts, genotypes)
    }
}

#[derive(Clone, Copy)]
struct Settings<'a> {
    device: &'a Device,
    options: &'a DistanceOptions,
    /// Bytes on the host that are left for the caller's work on the result.
    beside: u64,
    run: &'a Run,
}

/// The facts that results of distances have in common: counts of variants, and the memory and time of the passes.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DistanceFacts {
    /// The number of samples of the other matrix, if there are two matrices.
    pub others: Option<u64>,
    /// Counts of the variants that took part and were dropped, among those that both matrices have.
    pub counts: VariantCounts,
    /// The number of variants that took part and at which samples carry two or more alternate alleles. For two matrices, it is the number
    /// of shared variants at which the samples of one carry two or more.
    pub multiallelic: u64,
    /// True if the alternate alleles of such variants count as one. They do for two matrices, since each numbers them by itself.
    pub merged: bool,
    /// The options that were given.
    pub options: DistanceOptions,
    /// The number of members of a [group](Device::group) that shared the work.
    pub devices: usize,
    /// The 64-bit FNV-1a digest of every variant's sum of dosages (f64) and number of called samples (u64), little-endian. For two
    /// matrices, it is over both sums in the order of reading.
    pub digest: u64,
    /// The memory budgets of the plan, with defaults filled in. A device that shares the host's memory has no budget of its own.
    pub memory: Budget,
    /// The time that each step took.
    pub stats: StreamStats,
}

impl DistanceFacts {
    fn of_cohort(
        cohort: &Cohort,
        options: &DistanceOptions,
        counts: VariantCounts,
        multiallelic: u64,
        merged: bool,
    ) -> Self {
        let (options, devices) = (*options, cohort.devices());
        let (digest, memory, stats) = (cohort.digest(), cohort.memory(), cohort.stats());
        Self { others: None, counts, multiallelic, merged, options, devices, digest, memory, stats }
    }
}

/// Distances of samples from one another, or from the samples of another matrix.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Distances {
    /// The distances, (samples, samples), symmetric to the bit; or (samples, samples of the other matrix).
    pub matrix: Matrix,
    /// The number of variants called in both samples, in the same shape, if a call is missing; otherwise it is [`VariantCounts::loaded`]
    /// for every pair. None with [`Missing::Propagate`] if sums are in f32 or different alternate alleles differ.
    pub shared: Option<Matrix>,
    /// The tree of the samples, if the options ask for one.
    pub tree: Option<Tree>,
    /// The number of pairs of samples whose distance is NaN, including each sample with itself.
    pub undefined: u64,
    /// The counts of the variants, and the memory and time of the passes.
    pub facts: DistanceFacts,
}

impl Distances {
    /// Turns sums over the variants of `genotypes` into the metric that was asked for, and its tree.
    fn new(found: Found, facts: DistanceFacts, genotypes: &Genotypes) -> Result<Self> {
        let (Found { distances: mut matrix, shared, .. }, options) = (found, facts.options);
        options.finish(&mut matrix, shared.as_ref(), &facts.counts, genotypes.ploidy());
        let undefined = undefined(&matrix, facts.others.is_none());
        let similarities = options.metric.is_similarity();
        let tree = options.tree.map(|linkage| Tree::new(&matrix, similarities, linkage)).transpose()?;
        Ok(Self { matrix, shared, tree, undefined, facts })
    }
}

/// Returns the number of elements that are NaN; if `is_lower`, only of those on the diagonal and below.
pub(super) fn undefined(matrix: &Matrix, is_lower: bool) -> u64 {
    let counted = |row: usize| if is_lower { row + 1 } else { matrix.cols() };
    let counted = (0..matrix.rows()).flat_map(|row| matrix.row(row).iter().take(counted(row)));
    counted.filter(|element| element.is_nan()).count() as u64
}

/// Computes the distances of pairs of samples, in memory bounded by `run.memory`: between all samples of one matrix, `&genotypes`, or
/// between the samples of two matrices, [`SamplePairs::between`].
///
/// The dosage of a call is its number of non-reference alleles, or as [`Genotypes::count_allele`] says; with
/// [`Genotypes::haplotypes`], a sample is one haplotype. A call with a missing allele is missing; `options.missing` says how missing
/// calls are left out. Metrics have to be symmetric. For a metric that [`PackedPairs`] takes, dosages above the ploidy are an error.
///
/// At a variant of more than two alleles of one matrix, different alleles differ by euclidean, sqeuclidean, cityblock and
/// both identities by state, and for haplotypes by hamming. With c(a) the copies of allele a, |x - y| becomes
/// ½ Σ |c(a) - c'(a)|, (x - y)² becomes ½ Σ (c(a) - c'(a))², and [`SampleMetric::IbsOfAlleles`] is the mean
/// of ¼ Σ c(a) c'(a). By other metrics, or with `options.merge_alleles`, all alternate alleles count as one.
///
/// Distances between two matrices, and the variants that `options.filter` leaves out, equal those of one matrix with the samples of both, in
/// which alternate alleles count as one: to the last bit if its sums are exact.
///
/// # Shapes
/// (variants, samples) -> (samples, samples), or (samples, other samples); and if calls are missing, as many numbers of shared variants.
///
/// # Accuracy
/// Sums are of integers for a metric that [`PackedPairs`] takes, if two bits hold a call: distances are exact but for the last rounding,
/// the same bits on every device, for any chunks and threads. Otherwise the accuracy is that of [`Partial`].
///
/// # Cost
/// One pass, in which a variant costs what [`PackedPairs`] says, or else a few operations in f32 for each pair of
/// samples and term of the metric. If an alternate allele above 1 is met, one more pass finds the variants with several
/// alternate alleles, and one pass over them follows for each allele. Each pair takes 8 bytes on the host and 4
/// on the device, and as many again for missing calls; in f32, 8 on the device and 16 on the host for each term. A tree
/// takes 4 samples² bytes more on the host, and time in proportion to samples² on one thread, which cannot be cancelled.
///
/// Each member of a [group](Device::group) of one kind adds up whole numbers over some of the variants of one matrix, if two bits hold a call and
/// parts of the memory do. Otherwise, and for two matrices, the first device computes.
///
/// Two matrices are read at the same time, in chunks with variants that both have. Variants that `with` has in another order take a further
/// pass. Each pair takes 8 bytes on the device.
///
/// # Errors
/// [`Error::Argument`] without samples or variants; for a filter out of range; for a metric that is not symmetric or that
/// does not support the rule for missing calls ([`SampleMetric::Ibs`] does not rescale); for
/// [`Metric::JensenShannon`]; if no variant is left; for a tree of
/// [`Metric::InnerProduct`], of two matrices, or of distances that are NaN; for another ploidy in
/// `with`; for `matches` that do not have one entry for each variant of `genotypes`, name a variant that `with` does not have, or match
/// nothing; and if the orders of two matrices differ so much that they need more than 64 passes. Other errors as of [`Cohort::load`].
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, distance::Metric, store::MemoryArray};
/// use teatime_genotype::{DistanceOptions, Genotypes, Match, SampleMetric, SamplePairs, distances};
///
/// let dosages = [[0i8, 0, 2], [2, 2, 0], [0, 1, 2], [2, -1, 0]];
/// let store = |dosages: &[i8], samples: u64| {
///     let shape = [dosages.len() as u64 / samples, samples];
///     Genotypes::new(vec![Arc::new(MemoryArray::new("dosages", dosages, &shape, &shape)?)])
/// };
/// let genotypes = store(dosages.as_flattened(), 3)?;
/// let options = DistanceOptions::default().metric(SampleMetric::Of(Metric::CityBlock));
/// let result = distances(&genotypes, &Device::cpu(), &options, &Run::default())?;
/// // The second sample lacks the last variant, so its distances are rescaled.
/// assert_eq!(result.matrix.row(0), [0.0, 4.0 / 3.0, 8.0]);
/// assert!(result.shared.is_some_and(|shared| shared.row(0) == [4.0, 3.0, 4.0]));
///
/// // Another sample has three variants. The first is variant 2 of the genotypes, and the last is variant 1 with the other allele counted.
/// let new = store(&[0, 1, 2], 1)?;
/// let matches = [Some(Match::Same(2)), None, Some(Match::Swapped(1))];
/// let pairs = SamplePairs::between(&new, &genotypes, &matches);
/// let result = distances(pairs, &Device::cpu(), &options, &Run::default())?;
/// assert_eq!(result.matrix.row(0), [0.0 + 2.0, 1.0 + 2.0, 2.0 + 0.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn distances<'a>(
    pairs: impl Into<SamplePairs<'a>>,
    device: &Device,
    options: &DistanceOptions,
    run: &Run,
) -> Result<Distances> {
    let pairs = pairs.into();
    pairs.check(OP, device, options)?;
    pairs.distances(Settings { device, options, beside: 0, run })
}

/// Computes the sums from which distances of samples are made, over the variants of `genotypes`. Sums over other
/// variants [merge](PartialSums::merge) with them, and [`PartialSums::finish`] then gives what
/// [`distances`](distances()) gives over all variants. So several processes can each read a part of a matrix.
///
/// Every variant takes part.
///
/// # Errors
/// Fails as [`distances`](distances()) does, for the same metrics and rules.
///
/// # Cost
/// The cost of [`distances`](distances()); on the host 4 samples² bytes for each term of the metric, which has one to six terms.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, distance::{Metric, Missing}, store::MemoryArray};
/// use teatime_genotype::{Genotypes, distance_sums};
///
/// let dosages = [[0i8, 0, 2], [2, 2, 0], [0, 1, 2], [2, -1, 0]];
/// let array = MemoryArray::new("dosages", dosages.as_flattened(), &[4, 3], &[2, 3])?;
/// let genotypes = Genotypes::new(vec![Arc::new(array)])?;
/// let sums = |variants: std::ops::Range<u64>| {
///     let part = genotypes.clone().select([variants])?;
///     distance_sums(&part, &Device::cpu(), Metric::CityBlock, Missing::Ignore, &Run::default())
/// };
/// let mut merged = sums(0..2)?;
/// merged.merge(&sums(2..4)?)?;
/// assert_eq!(merged.finish()?.distances.row(0), [0.0, 1.0, 8.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn distance_sums(
    genotypes: &Genotypes,
    device: &Device,
    metric: Metric,
    missing: Missing,
    run: &Run,
) -> Result<PartialSums> {
    let options = &DistanceOptions::default().metric(SampleMetric::Of(metric)).missing(missing);
    options.check(OP, genotypes)?;
    let beside = Partial::needs(genotypes.samples(), None, metric, missing).host;
    let settings = Settings { device, options, beside, run };
    let (adding, cohort) = Accumulator::load(genotypes, settings, None)?;
    Several::new(&cohort, settings)?.export(adding, &cohort, settings)
}

/// Returns true if two bits hold the dosages, provided that none is above the ploidy.
fn are_packed(genotypes: &Genotypes, device: &Device) -> Result<bool> {
    Ok(Reader::new(genotypes, device, true)?.form.is_packed())
}
