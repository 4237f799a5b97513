//! Distances of the observations of stored matrices, which need not fit memory.

mod nearest;
mod reading;

use std::time::Instant;

use self::{nearest::nearest, reading::StoredOperands};
use super::{
    Metric, Neighbors, Options, Partial,
    neighbors::{check_k, neighbors},
};
#[cfg(feature = "zarr")]
use super::{
    Missing,
    tiles::{tile_needs, write_pairwise, write_pairwise_counted},
};
use crate::{
    Budget, Device, Element, Needs, Result, Run, SharedArray, Status, Tensor,
    dtype::with_dtype,
    linalg::Matrix,
    stream::{StreamStats, load},
};
#[cfg(feature = "zarr")]
use crate::{DType, stable_text::StableText, store::ArrayWriter};

/// Distances of stored matrices.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredDistances {
    /// (m, m) or (m, n).
    pub distances: Matrix,
    /// The number of features of each, likewise, where elements may be [missing](super::Missing).
    pub shared: Option<Matrix>,
    /// The memory budgets of the plan, with defaults filled in; none for a device that shares the host's memory.
    pub memory: Budget,
    /// The time that the call took, by stage, and the bytes that were read and decoded.
    pub stats: StreamStats,
}

/// The nearest observations of stored matrices.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredNeighbors {
    /// The nearest of each observation.
    pub nearest: Neighbors,
    /// The memory budgets of the plan, with defaults filled in; none for a device that shares the host's memory.
    pub memory: Budget,
    /// The time that the call took, by stage, and the bytes that were read and decoded.
    pub stats: StreamStats,
}

/// Memory and times of distances of stored matrices that were written.
#[cfg(feature = "zarr")]
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WrittenDistances {
    /// The memory budgets of the plan, with defaults filled in; none for a device that shares the host's memory.
    pub memory: Budget,
    /// The time that the call took, by stage, and the bytes that were read and decoded.
    pub stats: StreamStats,
}

/// The distances of the observations of `x` from one another, or from those of `y`, read some features at a time. Waits.
///
/// Integers of up to 16 bits, f16, f32 and f64 are taken as they are stored, and booleans as 0 and 1. Larger integers become f64, or f32 where
/// the device does not compute in f64 or they are to be [narrowed](Options::narrow); those that it does not hold, from 2^53 or beyond 2^24, are
/// refused. `x` and `y` of different types become f64 if one does, or if both are integers and the device can, else f32. What an array says
/// of missing values is not looked at: [`Options`] do.
///
/// # Shapes
/// As [`pairwise`](super::pairwise): (m, k) and (n, k) -> (m, m) or (m, n), with [`Options::columns`] (k, m) and (k, n).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) for arrays without two axes or with different features; [`Error::NoF64`](crate::Error::NoF64) and [`Error::Argument`](crate::Error::Argument) as
/// [`pairwise`](super::pairwise);
/// [`Error::Chunk`](crate::Error::Chunk) for a chunk that cannot be read and a number that is refused; [`Error::Budget`](crate::Error::Budget) with the least that would do;
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory); [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory); [`Error::Cancelled`](crate::Error::Cancelled).
///
/// # Cost
/// That of [`Partial`], whose sums of all pairs have to fit the device, and twice as many features of all observations as are added at
/// once: 1024, or those of a chunk, or fewer where memory is short. One pass; of [`Metric::JensenShannon`] two. A chunk that does not end where
/// the features do that are added at once is decoded again, unless memory holds it.
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
    let arrays: Vec<_> = [Some(x), y].into_iter().flatten().map(A::shared).collect();
    let reading = StoredOperands::new(&arrays, metric, options, device)?;
    let pass = reading.within(device, metric, options.missing, &run.memory)?;
    let passes = if metric == Metric::JensenShannon { 2 } else { 1 };
    let mut stats = StreamStats::default();
    let mut partial = Partial::new(device, reading.counts[0], reading.others(), metric, options)?;
    if passes == 2 {
        let status = Status::new(0, passes, reading.features);
        let sums = reading.sums(&pass, device, options, run, status, &mut stats)?;
        partial = partial.with_sums(&sums[0], sums.get(1).map(Vec::as_slice))?;
    }
    let status = Status::new(passes - 1, passes, reading.features);
    reading.each(&pass, device, run, status, &mut stats, &mut |blocks| {
        let mut blocks = blocks.into_iter();
        with_dtype!(reading.staged, T => {
            let mut next = || blocks.next().map(|block| { let shape = block.shape.clone(); block.tensor::<T>(&shape) }).transpose();
            let (x, y) = (next()?, next()?);
            x.map_or(Ok(()), |x| partial.add(&x, y.as_ref()))
        })
    })?;
    let started = Instant::now();
    let sums = partial.export()?;
    drop(partial);
    let finished = sums.finish()?;
    stats.compute += started.elapsed();
    let memory = run.memory.planned(device);
    Ok(StoredDistances { distances: finished.distances, shared: finished.shared, memory, stats })
}

/// The `k` nearest of the observations of `y` to each of `x`, or of the others of `x`, without a matrix of distances. Waits.
///
/// [`neighbors`](fn@neighbors) of arrays, whose elements are taken as [`pairwise_stored`] takes them. Where a GPU does not hold all elements,
/// the nearest are found on the host: of sums that differ and whose distances do not, the lower number comes first then, and all distances
/// are those of [`pairwise`](super::pairwise) to the last bit.
///
/// # Shapes
/// As [`pairwise_stored`] -> (m, k) and (m, k), `k` from 1 to n, or to m - 1 without `y`.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for another `k`; else as [`pairwise_stored`], a budget being told what is enough where the
/// device holds few observations at a time.
///
/// # Cost
/// That of [`neighbors`](fn@neighbors). Arrays are read once where the device holds all elements. Else they are read and prepared in a first
/// pass; in a second, the device holds as many observations of `x` as memory allows while the others are read, or where the metric is
/// symmetric those before them: as many times as there are such shares of `x`, or half as many. The host holds whole chunks that have
/// one of some observations in common: of long chunks of few features, those of all features.
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
    let arrays: Vec<_> = [Some(x), y].into_iter().flatten().map(A::shared).collect();
    let reading = StoredOperands::new(&arrays, metric, options, device)?;
    let others = reading.others();
    check_k(k, others.unwrap_or(reading.counts[0]), others.is_none())?;
    let mut stats = StreamStats::default();
    let nearest = with_dtype!(reading.staged, T => {
        let measure = reading.measure::<T>(device, metric, options)?;
        nearest::<T>(&reading, measure, k, run, &mut stats, |stats| {
            let Loaded { tensors, rest, .. } = Loaded::<T>::load(&reading, device, run, Needs::default(), stats)?;
            let started = Instant::now();
            let result = neighbors(&tensors[0], tensors.get(1), k, metric, options, &rest);
            stats.compute += started.elapsed();
            result
        })?
    });
    Ok(StoredNeighbors { nearest, memory: run.memory.planned(device), stats })
}

/// Writes the distances of the observations of `x` from one another, or from those of `y`, into a stored array, tile by tile. Waits.
///
/// [`write_pairwise`] of arrays, whose elements are taken as [`pairwise_stored`] takes them. `begin` makes the array, or goes on with it
/// ([`ArrayWriter::resume`](crate::store::ArrayWriter::resume)): it is given all that the distances depend on, for the words of its job.
/// With a second array, of the numbers of features, [`write_pairwise_counted`]. `tile` has the extents of the array's tiles, so that memory is
/// planned before anything is read.
///
/// # Errors
/// As [`pairwise_stored`] and [`write_pairwise`], and what `begin` gives.
///
/// # Cost
/// One pass. The device holds all elements; then [`write_pairwise`].
#[cfg(feature = "zarr")]
#[allow(clippy::too_many_arguments, reason = "those of `pairwise_stored`, and where the tiles go")]
pub fn write_pairwise_stored<A: SharedArray>(
    x: &A,
    y: Option<&A>,
    metric: Metric,
    options: &Options,
    device: &Device,
    run: &Run,
    tile: [u64; 2],
    begin: impl FnOnce(&str) -> Result<(ArrayWriter, Option<ArrayWriter>)>,
) -> Result<WrittenDistances> {
    let arrays: Vec<_> = [Some(x), y].into_iter().flatten().map(A::shared).collect();
    let reading = StoredOperands::new(&arrays, metric, options, device)?;
    let mut stats = StreamStats::default();
    with_dtype!(reading.staged, T => {
        let measure = reading.measure::<T>(device, metric, options)?;
        let shape = [reading.counts[0], *reading.counts.last().unwrap_or(&0)];
        let counted = options.missing != Missing::Propagate;
        let later = tile_needs(measure.is_lower(), tile, shape, counted) + measure.pair_needs();
        let Loaded { tensors, rest, digests } = Loaded::<T>::load(&reading, device, run, later, &mut stats)?;
        let shapes: Vec<_> = arrays.iter().map(|array| array.shape()).collect();
        let job = job(&shapes, T::DTYPE, &digests, metric, options, &device.info().name);
        let ((writer, shared), started) = (begin(&job)?, Instant::now());
        let (x, y) = (&tensors[0], tensors.get(1));
        let written = match shared {
            Some(shared) => write_pairwise_counted(x, y, metric, options, &rest, [writer, shared]),
            None => write_pairwise(x, y, metric, options, &rest, writer),
        };
        stats.compute += started.elapsed();
        written?;
    });
    Ok(WrittenDistances { memory: run.memory.planned(device), stats })
}

/// The words of the job of arrays of these shapes and digests, which are staged as one type.
#[cfg(feature = "zarr")]
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

/// Arrays on the device.
struct Loaded<T: Element> {
    tensors: Vec<Tensor<T>>,
    /// The run, with what is left of its memory.
    rest: Run,
    /// The digest of each.
    #[cfg(feature = "zarr")]
    digests: Vec<u64>,
}

impl<T: Element> Loaded<T> {
    /// Loads them, where memory holds them beside what comes `later` too.
    fn load(
        reading: &StoredOperands<'_>,
        device: &Device,
        run: &Run,
        later: Needs,
        stats: &mut StreamStats,
    ) -> Result<Self> {
        let (plans, memory) = reading.to_load(device, &run.memory, later)?;
        let (mut tensors, mut digests) = (Vec::new(), vec![0; plans.len()]);
        for (((plan, bytes), array), digest) in plans.iter().zip(reading.arrays).zip(&mut digests) {
            tensors.push(load(plan, device, array.shape(), *bytes, run, stats, digest)?);
        }
        Ok(Self {
            tensors,
            rest: Run { memory, ..run.clone() },
            #[cfg(feature = "zarr")]
            digests,
        })
    }
}

#[cfg(all(test, feature = "zarr"))]
mod tests {
    use super::*;

    /// Arrays that were begun with this text are gone on with.
    #[test]
    fn words_of_a_job_stay() {
        let options = Options::default().missing(Missing::RescaleOrZero).negative(true);
        let found =
            job(&[&[3, 2], &[5, 2]], DType::I16, &[10, 1 << 60], Metric::Minkowski(2.5), &options, "cuda:0");
        let expected = "[[3, 2], [5, 2]] I16 [000000000000000a, 1000000000000000] Minkowski(2.5) \
                        Options { missing: RescaleOrZero, negative: true, columns: false, narrow: false } cuda:0";
        assert_eq!(found, expected);
    }
}
