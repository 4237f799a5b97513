//! Distances between the observations of stored matrices, which need not fit memory.

mod boxes;
mod nearest;
mod reading;

use std::time::Instant;

use self::{
    nearest::{nearest, within},
    reading::StoredOperands,
};
use super::{
    Metric, Neighbors, Options, Partial, RadiusNeighbors,
    neighbors::check_k,
    sums::observation_sums,
    tiles::{tile_needs, write_pairwise},
};
use crate::{
    Budget, DType, Device, Element, Result, Run, SharedArray, Status, dtype::with_dtype, extent::to_usize,
    linalg::Matrix, stable_text::StableText, store::BoxWriter, stream::StreamStats,
};

/// Distances of stored matrices.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredDistances {
    /// The distances, (m, m) or (m, n).
    pub distances: Matrix,
    /// The number of features that both observations of a pair have, in the same shape. None if missing elements are
    /// [propagated](super::Missing).
    pub shared: Option<Matrix>,
    /// The memory budgets of the plan, with defaults filled in. The device's budget is none if it shares the host's memory.
    pub memory: Budget,
    /// The time that the call took, by stage, and the bytes that were read and decoded.
    pub stats: StreamStats,
}

/// The nearest observations of stored matrices.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredNeighbors {
    /// The nearest neighbors of each observation.
    pub nearest: Neighbors,
    /// The number of members of a group that shared the work, otherwise 1.
    pub devices: usize,
    /// The memory budgets of the plan, with defaults filled in. The device's budget is none if it shares the host's memory.
    pub memory: Budget,
    /// The time that the call took, by stage, and the bytes that were read and decoded.
    pub stats: StreamStats,
}

/// The observations of stored matrices within a radius.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredRadiusNeighbors {
    /// The neighbors of each observation.
    pub within: RadiusNeighbors,
    /// The number of members of a group that shared the work, otherwise 1.
    pub devices: usize,
    /// The memory budgets of the plan, with defaults filled in. The device's budget is none if it shares the host's memory.
    pub memory: Budget,
    /// The time that the call took, by stage, and the bytes that were read and decoded.
    pub stats: StreamStats,
}

/// The memory and the times of a call that wrote distances of stored matrices.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WrittenDistances {
    /// The memory budgets of the plan, with defaults filled in. The device's budget is none if it shares the host's memory.
    pub memory: Budget,
    /// The time that the call took, by stage, and the bytes that were read and decoded.
    pub stats: StreamStats,
}

/// Returns the distances between the observations of `x`, or from those of `x` to those of `y`, reading some features at a time. Waits.
///
/// Integers of up to 16 bits, f16, f32 and f64 keep their stored type, and booleans become 0 and 1. Larger integers become f64, or f32 if the
/// device does not compute in f64 or they are to be [narrowed](Options::narrow). Integers too large for that type, from 2^53 or beyond 2^24, are
/// refused. If `x` and `y` have different types, both become f64 if one is f64 or if both are integers and the device has f64; otherwise f32. An
/// array's own declaration of missing values is ignored; [`Options`] decide.
///
/// # Shapes
/// As [`pairwise`](super::pairwise): (m, k) and (n, k) -> (m, m) or (m, n), with [`Options::columns`] (k, m) and (k, n).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) for arrays without two axes or with different numbers of features;
/// [`Error::NoF64`](crate::Error::NoF64) and [`Error::Argument`](crate::Error::Argument) as [`pairwise`](super::pairwise);
/// [`Error::Chunk`](crate::Error::Chunk) for a chunk that cannot be read or that holds a refused number; [`Error::Budget`](crate::Error::Budget)
/// with the minimum that is enough; [`Error::OutOfMemory`](crate::Error::OutOfMemory);
/// [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory); [`Error::Cancelled`](crate::Error::Cancelled).
///
/// # Cost
/// As [`Partial`], whose sums of all pairs must fit the device, together with two blocks of the features that are added at once: 1024, or those
/// of a chunk, or fewer if memory is short. One pass, or two for [`Metric::JensenShannon`]. A chunk that crosses the boundary of such a block is
/// decoded again, unless it stays in memory.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, distance::{Metric, Options, pairwise_stored}, store::MemoryArray};
///
/// let x = Arc::new(MemoryArray::new("x", &[0.0f32, 0.0, 3.0, 4.0], &[2, 2], &[1, 2])?);
/// let (options, run) = (Options::default(), Run::default());
/// let pairwise = pairwise_stored(&x, None, Metric::Euclidean, &options, &Device::cpu(), &run)?;
/// assert_eq!(pairwise.distances.data(), [0.0, 5.0, 5.0, 0.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn pairwise_stored<A: SharedArray>(
    x: &A,
    y: Option<&A>,
    metric: Metric,
    options: &Options,
    device: &Device,
    run: &Run,
) -> Result<StoredDistances> {
    let reading = StoredOperands::new(x, y, metric, options, device)?;
    let plans = reading.feature_boxes(&run.memory)?;
    let passes = if metric == Metric::JensenShannon { 2 } else { 1 };
    let mut stats = StreamStats::default();
    let mut partial = Partial::new(device, reading.counts[0], reading.others(), metric, options)?;
    with_dtype!(reading.staged, T => {
        if passes == 2 {
            let mut sums: Vec<_> = reading.counts.iter().map(|count| vec![0.0; to_usize(*count)]).collect();
            let status = Status::new(0, passes, reading.features);
            reading.each_features::<T>(&plans, run, status, &mut stats, |operands| {
                for (x, sums) in operands.iter().zip(&mut sums) {
                    sums.iter_mut().zip(observation_sums(x, options)?).for_each(|(sum, added)| *sum += added);
                }
                Ok(())
            })?;
            partial = partial.with_sums(&sums[0], sums.get(1).map(Vec::as_slice))?;
        }
        let status = Status::new(passes - 1, passes, reading.features);
        reading.each_features::<T>(&plans, run, status, &mut stats, |operands| {
            partial.add(&operands[0], operands.get(1))
        })?;
    });
    let started = Instant::now();
    let sums = partial.export()?;
    drop(partial);
    let finished = sums.finish()?;
    stats.compute += started.elapsed();
    let memory = run.memory.planned(device);
    Ok(StoredDistances { distances: finished.distances, shared: finished.shared, memory, stats })
}

/// Returns the `k` nearest observations of `y`, or of the rest of `x`, for each of `x`, without a matrix of distances. Waits.
///
/// Computes [`neighbors`](fn@super::neighbors) of arrays, whose elements are converted as by [`pairwise_stored`], with the same results if a GPU can
/// hold the nearest so far, 16 bytes each. Otherwise the host finds the nearest. Then ties in distance are broken by the lower index even if the
/// sums differ, and all distances equal those of [`pairwise`](super::pairwise) to the bit.
///
/// # Shapes
/// As [`pairwise_stored`] -> (m, k) and (m, k), `k` from 1 to n, or to m - 1 without `y`.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for a `k` out of range; otherwise as [`pairwise_stored`]. A budget error reports the memory that
/// is enough when the device holds few observations at a time.
///
/// # Cost
/// As [`neighbors`](fn@super::neighbors). Arrays are read once if the device holds all elements beside a large block of pairs. Otherwise a first
/// pass reads and prepares them. In a second pass, the device holds as many observations of `x` as memory allows while the other observations
/// are read (only the preceding ones if the metric is symmetric). The second pass reads the arrays once, or half, for each such share of `x`. The
/// host holds all chunks that overlap the observations being read: if chunks are long and have few features, the chunks of all features.
///
/// The members of a [group](Device::group) of one kind share the pairs, as those of [`neighbors`](fn@super::neighbors) do. If the observations of
/// `x` come in shares, each member reads and prepares all observations, and there are at least two shares for each member: if reading takes longer
/// than computing, a group takes longer than one device.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, distance::{Metric, Options, neighbors_stored}, store::MemoryArray};
///
/// let x = Arc::new(MemoryArray::new("x", &[0u8, 1, 3, 7], &[4, 1], &[2, 1])?);
/// let (options, run) = (Options::default(), Run::default());
/// let neighbors = neighbors_stored(&x, None, 2, Metric::Euclidean, &options, &Device::cpu(), &run)?;
/// assert_eq!(neighbors.nearest.indices, [1, 2, 0, 2, 1, 0, 2, 1]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn neighbors_stored<A: SharedArray>(
    x: &A,
    y: Option<&A>,
    k: usize,
    metric: Metric,
    options: &Options,
    device: &Device,
    run: &Run,
) -> Result<StoredNeighbors> {
    device.has_one_kind("distance")?;
    let reading = StoredOperands::new(x, y, metric, options, device)?;
    let others = reading.others();
    check_k(k, others.unwrap_or(reading.counts[0]), others.is_none())?;
    let mut stats = StreamStats::default();
    let (nearest, devices) = with_dtype!(reading.staged, T => nearest::<T>(&reading, k, run, &mut stats)?);
    Ok(StoredNeighbors { nearest, devices, memory: run.memory.planned(device), stats })
}

/// Returns the observations of `y`, or of the rest of `x`, that are within a radius of each of `x`, without a matrix of distances. Waits.
///
/// Computes [`radius_neighbors`](fn@super::radius_neighbors) of arrays, whose elements are converted as by [`pairwise_stored`], with the same
/// results.
///
/// # Shapes
/// As [`pairwise_stored`] -> m lists.
///
/// # Errors
/// As [`radius_neighbors`](fn@super::radius_neighbors) and [`pairwise_stored`].
///
/// # Cost
/// As [`radius_neighbors`](fn@super::radius_neighbors) for the neighbors, and in the other half of the host's memory as [`neighbors_stored`] for
/// reading and computing, but with no memory for the nearest.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, distance::{Metric, Options, radius_neighbors_stored}, store::MemoryArray};
///
/// let x = Arc::new(MemoryArray::new("x", &[0u8, 1, 3, 7], &[4, 1], &[2, 1])?);
/// let (options, run) = (Options::default(), Run::default());
/// let found = radius_neighbors_stored(&x, None, 3.0, Metric::Euclidean, &options, &Device::cpu(), &run)?;
/// assert_eq!(found.within.row(1), (&[0, 2][..], &[1.0, 2.0][..]));
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn radius_neighbors_stored<A: SharedArray>(
    x: &A,
    y: Option<&A>,
    radius: f64,
    metric: Metric,
    options: &Options,
    device: &Device,
    run: &Run,
) -> Result<StoredRadiusNeighbors> {
    device.has_one_kind("distance")?;
    let reading = StoredOperands::new(x, y, metric, options, device)?;
    let mut stats = StreamStats::default();
    let (within, devices) = with_dtype!(reading.staged, T => within::<T>(&reading, radius, run, &mut stats)?);
    Ok(StoredRadiusNeighbors { within, devices, memory: run.memory.planned(device), stats })
}

/// Writes the distances between the observations of `x`, or from those of `x` to those of `y`, to a file or a stored array, tile by tile. Waits.
///
/// Works like [`write_pairwise`] on arrays, whose elements are converted as by [`pairwise_stored`]. `begin` creates the array or resumes it. The argument of `begin` is the job text, which names all that the distances
/// depend on. It also returns a second array, for the numbers of features, if `counted` is true. `tile` has the extents of the array's tiles, for planning memory
/// before anything is read.
///
/// # Errors
/// As [`pairwise_stored`] and [`write_pairwise`], and any error that `begin` returns.
///
/// # Cost
/// One pass, after which the device holds all elements; then as [`write_pairwise`].
#[allow(clippy::too_many_arguments, reason = "those of `pairwise_stored`, and where the tiles go")]
pub fn write_pairwise_stored<A: SharedArray, W: BoxWriter>(
    x: &A,
    y: Option<&A>,
    metric: Metric,
    options: &Options,
    device: &Device,
    run: &Run,
    tile: [u64; 2],
    counted: bool,
    begin: impl FnOnce(&str) -> Result<(W, Option<W>)>,
) -> Result<WrittenDistances> {
    let reading = StoredOperands::new(x, y, metric, options, device)?;
    let mut stats = StreamStats::default();
    with_dtype!(reading.staged, T => {
        let measure = reading.measure::<T>()?;
        let shape = [reading.counts[0], *reading.counts.last().unwrap_or(&0)];
        let later = tile_needs(measure.is_lower(), tile, shape, counted) + measure.pair_needs();
        let (tensors, rest, digests) = reading.load::<T>(run, later, &mut stats)?;
        let shapes: Vec<_> = reading.arrays.iter().map(|array| array.shape()).collect();
        let job = job(&shapes, T::DTYPE, &digests, metric, options, &device.info().name);
        let (writers, started) = (begin(&job)?, Instant::now());
        write_pairwise(&tensors[0], tensors.get(1), metric, options, &rest, writers)?;
        stats.compute += started.elapsed();
    });
    Ok(WrittenDistances { memory: run.memory.planned(device), stats })
}

/// Returns the job text for arrays of these shapes and digests, staged as one type.
fn job(
    shapes: &[&[u64]],
    staged: DType,
    digests: &[u64],
    metric: Metric,
    options: &Options,
    device: &str,
) -> String {
    let [staged, metric, options] = [staged.stable_text(), metric.stable_text(), options.stable_text()];
    format!("{shapes:?} {staged} {digests:016x?} {metric} {options} {device}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::Missing;

    /// A changed text would break the resumption of existing arrays.
    #[test]
    fn words_of_a_job_stay() {
        let options = Options::default().missing(Missing::RescaleOrZero).negative(true);
        let found =
            job(&[&[3, 2], &[5, 2]], DType::I16, &[10, 1 << 60], Metric::Minkowski(2.5), &options, "cuda:0");
        let expected = "[[3, 2], [5, 2]] I16 [000000000000000a, 1000000000000000] Minkowski(2.5) \
                        Options { missing: RescaleOrZero, negative: true, columns: false, narrow: false } cuda:0";
        assert_eq!(found, expected);
        let text = Options::default().expanded(true).stable_text();
        assert!(text.ends_with("narrow: false, expanded: true }"), "{text}");
    }
}
