//! The nearest neighbors of each sample, without a matrix of all distances.

use teatime::{
    Device, Error, Result, Run,
    distance::{NearestSoFar, Neighbors},
};

use super::{DistanceBands, DistanceFacts, DistanceOptions, SamplePairs, Settings, undefined};
use crate::to_usize;

const OP: &str = "sample neighbors";

/// The side of the tiles of bands, in samples: the smallest that [`DistanceBands`] takes.
const SIDE: u64 = 64;

/// The nearest neighbors of each sample.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SampleNeighbors {
    /// The indices and distances of each sample's k neighbors, nearest first: (samples, k).
    pub nearest: Neighbors,
    /// The number of pairs of samples whose distance is NaN, including each sample with itself.
    pub undefined: u64,
    /// The counts of the variants, the memory and time of the passes, and in `others` the number of samples of a second matrix.
    pub facts: DistanceFacts,
    /// The number of bands in which the distances were computed; None if they were one matrix.
    pub bands: Option<u32>,
}

/// Finds the `k` other samples that are nearest to each sample of `&genotypes`, or the `k` samples of the second of
/// [two matrices](SamplePairs::between) that are nearest to each sample of the first, in memory bounded by `run.memory`.
///
/// The nearest comes first; of equal distances the earlier sample does. For a similarity, the largest comes first. Distances that are NaN
/// come last, so that there are always `k` neighbors. The distances equal those of [`distances`](super::distances()) to the last bit.
///
/// # Shapes
/// (variants, samples) -> (samples, k) indices and distances.
///
/// # Cost
/// The cost of [`DistanceBands`], and 32 k + 40 bytes on the host for each sample. For two matrices, and a metric or genotypes
/// that bands do not take, the cost of [`distances`](super::distances()), whose matrix has to fit memory.
///
/// # Errors
/// [`Error::Argument`] for a `k` that is 0, not below the number of samples, or above that of the second matrix, and for a tree; others as
/// of [`distances`](super::distances()), with an [`Error::Budget`] that says so if a matrix of all distances has to fit.
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
pub fn sample_neighbors<'a>(
    pairs: impl Into<SamplePairs<'a>>,
    device: &Device,
    options: &DistanceOptions,
    k: usize,
    run: &Run,
) -> Result<SampleNeighbors> {
    let pairs = pairs.into();
    let (genotypes, others) = (pairs.genotypes, pairs.others.map(|others| others.genotypes.samples()));
    let refuse = |name, why: String| Err(Error::argument(OP, name, why));
    pairs.check(OP, device, options)?;
    let n = genotypes.samples();
    let (candidates, most, whose) =
        others.map_or((n, n - 1, ", the others of each"), |others| (others, others, ""));
    if k == 0 || k as u64 > most {
        return refuse("k", format!("{k} of {candidates} samples: from 1 to {most}{whose}"));
    }
    if options.tree.is_some() {
        return refuse("tree", "is made of all distances".into());
    }
    let start = || NearestSoFar::new(device, to_usize(n), k, options.metric.is_similarity());
    let settings = Settings { device, options, beside: NearestSoFar::needs(n, k as u64).host, run };
    let bands = match others {
        None => DistanceBands::of_checked(genotypes, settings, SIDE)?.ok(),
        Some(_) => None,
    };
    let (nearest, undefined, facts, bands) = match bands {
        Some(bands) => {
            let (mut nearest, mut not_numbers, mut count) = (start()?, 0, 0);
            bands.each(run, &|_| false, &mut |band| {
                not_numbers += undefined(&band.matrix, true);
                count += 1;
                let first = to_usize(band.own.start);
                nearest.offer(first, first, band.matrix)
            })?;
            (nearest, not_numbers, bands.facts(), Some(count))
        }
        None => {
            let distances = pairs.distances(settings).map_err(of_all)?;
            let mut nearest = start()?;
            match others {
                Some(_) => nearest.offer_others(0, distances.matrix)?,
                None => nearest.offer(0, 0, distances.matrix)?,
            }
            (nearest, distances.undefined, distances.facts, None)
        }
    };
    Ok(SampleNeighbors { nearest: nearest.finish()?, undefined, facts, bands })
}

/// Adds to a budget error that a matrix of all distances has to fit the budget.
fn of_all(error: Error) -> Error {
    match error {
        Error::Budget { memory, budget, minimum, given, .. } => {
            Error::Budget { memory, what: Some("the matrix of all distances".into()), budget, minimum, given }
        }
        error => error,
    }
}
