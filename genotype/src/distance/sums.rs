//! Sums over some of the variants, from which distances over all variants are made.

use teatime::{
    Device, Result, Run,
    distance::{Metric, Missing, Partial, PartialSums},
};

use super::{
    DistanceOptions, OP, SampleMetric,
    adding::Accumulator,
    alleles::{Several, add_lower},
};
use crate::source::Genotypes;

/// Computes the sums from which distances of samples are made, over the variants of `genotypes`. Sums over other
/// variants [merge](PartialSums::merge) with them, and [`PartialSums::finish`] then gives what
/// [`distances`](super::distances()) gives over all variants. So several processes can each read a part of a matrix.
///
/// Every variant takes part.
///
/// # Errors
/// Fails as [`distances`](super::distances()) does, for the same metrics and rules.
///
/// # Cost
/// The cost of [`distances`](super::distances()); on the host 4 samples² bytes for each term of the metric, which has one to six terms.
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
    let options = DistanceOptions::default().metric(SampleMetric::Of(metric)).missing(missing);
    options.check(OP, genotypes)?;
    let beside = Partial::needs(genotypes.samples(), None, metric, missing).host;
    let (adding, cohort) = Accumulator::load(genotypes, device, &options, beside, run)?;
    let mut sums = adding.export()?;
    if let Some(lack) = Several::new(&cohort, &options, run)?.lack(&cohort, &options, beside, run)? {
        add_lower(&mut sums.sums[0], &lack);
    }
    Ok(sums)
}
