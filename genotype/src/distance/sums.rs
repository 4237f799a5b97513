//! Sums over some of the variants, for distances over all.

use teatime::{
    Device, Result, Run,
    distance::{Metric, Missing, Partial, PartialSums},
};

use super::{
    DistanceOptions, OP, SampleMetric, added_up,
    alleles::{Several, add_lower},
};
use crate::source::Genotypes;

/// The sums of which distances of samples are made, over the variants of `genotypes`: those over other variants
/// [merge](PartialSums::merge) with them, and [`PartialSums::finish`] gives what [`distances`](super::distances()) gives of all. So a
/// matrix can be gone through in parts, by several processes.
///
/// Every variant takes part.
///
/// # Errors
/// As [`distances`](super::distances()), whose metrics and rules these are.
///
/// # Cost
/// That of [`distances`](super::distances()); on the host 4 samples² bytes for each term of the metric, which has one to six.
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
    let (adding, cohort) = added_up(genotypes, device, &options, beside, run)?;
    let mut sums = adding.export()?;
    let lack = Several::new(&cohort, &options, run)?.lack(genotypes, device, &options, beside, run)?;
    if let Some(lack) = lack {
        add_lower(&mut sums.sums[0], &lack);
    }
    Ok(sums)
}
