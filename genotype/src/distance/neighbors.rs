//! The nearest neighbors of each sample, without a matrix of all distances.

use teatime::{
    Budget, Device, Error, Result, Run,
    distance::{NearestSoFar, Neighbors},
    stream::StreamStats,
};

use super::{DistanceBands, DistanceOptions, bands::unfit, between, with_room_beside};
use crate::{
    filter::VariantCounts,
    project::Match,
    source::{Genotypes, check_extents},
    to_usize,
};

const OP: &str = "sample neighbors";

/// The side of the tiles of bands, in samples: the smallest that [`DistanceBands`] takes.
const SIDE: u64 = 64;

/// The nearest neighbors of each sample.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SampleNeighbors {
    /// The indices and distances of each sample's k neighbors, nearest first: (samples, k).
    pub nearest: Neighbors,
    /// The number of samples of `with` that neighbors are from; None if neighbors are from the same samples.
    pub others: Option<u64>,
    /// The number of pairs of samples whose distance is NaN, including each sample with itself if there are no others.
    pub undefined: u64,
    /// Counts of the variants that took part and were dropped.
    pub counts: VariantCounts,
    /// The number of variants that took part and have more than two alleles.
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
    /// The number of bands in which the distances were computed; None if they were one matrix.
    pub bands: Option<u32>,
}

/// Finds the `k` other samples that are nearest to each sample of `genotypes`, in memory bounded by `run.memory`.
///
/// The nearest comes first; of equal distances the earlier sample does. For a similarity, the largest comes first. Distances that are NaN
/// come last, so that there are always `k` neighbors. The distances equal those of [`distances`](super::distances()) to the last bit.
///
/// # Shapes
/// `genotypes`: (variants, samples) -> (samples, k) indices and distances.
///
/// # Cost
/// The cost of [`DistanceBands`], and 32 k + 40 bytes on the host for each sample. For a metric or genotypes
/// that bands do not take, the cost of [`distances`](super::distances()), whose matrix has to fit memory.
///
/// # Errors
/// [`Error::Argument`] for a `k` that is 0 or not below the number of samples, and for a tree; [`Error::Budget`] with the smallest
/// budget that would do, which says so if a matrix of all distances has to fit; other errors as for [`distances`](super::distances()).
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, distance::Metric, store::MemoryArray};
/// use teatime_genotype::{DistanceOptions, Genotypes, SampleMetric, sample_neighbors};
///
/// let dosages = [[0i8, 0, 2], [2, 2, 0], [0, 1, 2], [2, -1, 0]];
/// let array = MemoryArray::new("dosages", dosages.as_flattened(), &[4, 3], &[2, 3])?;
/// let genotypes = Genotypes::new(vec![Arc::new(array)])?;
/// let options = DistanceOptions::default().metric(SampleMetric::Of(Metric::CityBlock));
/// let neighbors = sample_neighbors(&genotypes, &Device::cpu(), &options, 1, &Run::default())?;
/// assert_eq!(neighbors.nearest.indices, [1, 0, 1]);
/// // The second lacks one variant of four.
/// assert_eq!(neighbors.nearest.distances.data(), [4.0 / 3.0, 4.0 / 3.0, 5.0 * (4.0 / 3.0)]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn sample_neighbors(
    genotypes: &Genotypes,
    device: &Device,
    options: &DistanceOptions,
    k: usize,
    run: &Run,
) -> Result<SampleNeighbors> {
    options.check(OP, genotypes)?;
    let n = genotypes.samples();
    if k == 0 || k as u64 >= n {
        let why = format_args!("{k} of {n} samples: from 1 to {}, the others of each", n - 1);
        return Err(Error::argument(OP, "k", why));
    }
    if options.tree.is_some() {
        return Err(Error::argument(OP, "tree", "is made of all distances"));
    }
    let start = || NearestSoFar::new(device, to_usize(n), k, options.metric.is_similarity());
    let beside = NearestSoFar::needs(n, k as u64).host;
    let bands = match unfit(genotypes, device, options)? {
        None => Some(DistanceBands::beside(genotypes, device, options, [SIDE, beside], run)?),
        Some(_) => None,
    };
    let Some(bands) = bands.filter(DistanceBands::are_whole) else {
        let distances = with_room_beside(genotypes, device, options, beside, run).map_err(of_all)?;
        let undefined = distances.undefined();
        let mut nearest = start()?;
        nearest.offer(0, 0, distances.matrix)?;
        return Ok(SampleNeighbors {
            nearest: nearest.finish()?,
            others: None,
            undefined,
            counts: distances.counts,
            multiallelic: distances.multiallelic,
            merged: distances.merged,
            options: *options,
            digest: distances.digest,
            memory: distances.memory,
            stats: distances.stats,
            bands: None,
        });
    };
    let (mut nearest, mut undefined, mut count) = (start()?, 0, 0);
    bands.each(run, &|_| false, &mut |band| {
        undefined += band.undefined();
        count += 1;
        let first = to_usize(band.own.start);
        nearest.offer(first, first, band.matrix)
    })?;
    Ok(SampleNeighbors {
        nearest: nearest.finish()?,
        others: None,
        undefined,
        counts: *bands.counts(),
        multiallelic: bands.multiallelic,
        merged: true,
        options: *options,
        digest: bands.digest(),
        memory: bands.memory(),
        stats: bands.stats(),
        bands: Some(count),
    })
}

/// Finds the `k` samples of `with` that are nearest to each sample of `genotypes`, over the variants that both have, which `matches` names. The
/// distances equal those of [`distances_between`](super::distances_between()) to the last bit; their order is that of [`sample_neighbors`].
///
/// # Cost
/// The cost of [`distances_between`](super::distances_between()), whose matrix has to fit memory,
/// and 32 k + 40 bytes on the host for each sample of `genotypes`.
///
/// # Errors
/// [`Error::Argument`] for a `k` that is 0 or above the number of samples of `with`; other errors
/// as for [`distances_between`](super::distances_between()).
pub fn sample_neighbors_between(
    genotypes: &Genotypes,
    with: &Genotypes,
    matches: &[Option<Match>],
    device: &Device,
    options: &DistanceOptions,
    k: usize,
    run: &Run,
) -> Result<SampleNeighbors> {
    check_extents(OP, with)?;
    let (n, others) = (genotypes.samples(), with.samples());
    if k == 0 || k as u64 > others {
        return Err(Error::argument(OP, "k", format_args!("{k} of {others} samples: from 1 to {others}")));
    }
    let beside = NearestSoFar::needs(n, k as u64).host;
    let distances = between::with_room_beside(genotypes, with, matches, device, options, beside, run);
    let distances = distances.map_err(of_all)?;
    let undefined = distances.undefined();
    let mut nearest = NearestSoFar::new(device, to_usize(n), k, options.metric.is_similarity())?;
    nearest.offer_others(0, distances.matrix)?;
    Ok(SampleNeighbors {
        nearest: nearest.finish()?,
        others: Some(others),
        undefined,
        counts: distances.counts,
        multiallelic: distances.multiallelic,
        merged: true,
        options: *options,
        digest: distances.digest,
        memory: distances.memory,
        stats: distances.stats,
        bands: None,
    })
}

/// Adds to a budget error that a matrix of all distances has to fit the budget.
fn of_all(error: Error) -> Error {
    match error {
        Error::Budget { memory, budget, minimum, given, .. } => {
            Error::Budget { memory, what: Some("the matrix of all distances"), budget, minimum, given }
        }
        error => error,
    }
}
