//! The nearest neighbors of each observation, as tensors.

use super::{
    Metric, Options, candidates, job::Job, members::Jobs, neighbors::check_k, search::select, so_far::on_host,
};
use crate::{Element, Error, Needs, Result, Run, Tensor, dtype::nearest_f32, kernel::small};

/// The nearest neighbors of each observation, on the device.
#[derive(Debug)]
#[non_exhaustive]
pub struct NeighborTensors {
    /// (m, k): the neighbors' indices, from 0.
    pub indices: Tensor<u32>,
    /// (m, k): the distances.
    pub distances: Tensor<f32>,
}

/// Returns [`neighbors`](super::neighbors()) as tensors that stay on the device. Enqueues the search; waits as
/// [`pairwise_tensor`](super::pairwise_tensor) does, and until all are found if [candidates](super::neighbors()#cost) are taken.
///
/// # Shapes
/// As [`neighbors`](super::neighbors()): (m, k) and (m, k).
///
/// # Accuracy
/// Distances are those of [`pairwise_tensor`](super::pairwise_tensor). Neighbors are in the order of the sums or more precise distances by which
/// a GPU finds [`neighbors`](super::neighbors()): of two neighbors with the same f32 distance, the one with the nearer sum or precise distance
/// comes first.
///
/// # Cost
/// As [`pairwise_tensor`](super::pairwise_tensor), but device memory is 16 bytes for each neighbor instead of 4 for each pair, plus another
/// block of up to 32 MiB if one sum is not enough. For a `k` above 256, the host finds the nearest as [`neighbors`](super::neighbors()) does,
/// and uploads them.
///
/// # Errors
/// As [`neighbors`](super::neighbors()); [`Error::Limit`] for 2^32 - 1 observations or more.
///
/// ```
/// use teatime::{Device, Run, Tensor, distance::{Metric, Options, neighbor_tensors}};
/// let x = Tensor::from_slice(&Device::best()?, &[0u8, 1, 3, 7], &[4, 1])?;
/// let nearest = neighbor_tensors(&x, None, 2, Metric::Euclidean, &Options::default(), &Run::default())?;
/// assert_eq!(nearest.indices.read()?, [1, 2, 0, 2, 1, 0, 2, 1]);
/// assert_eq!(nearest.distances.read()?[6..], [4.0, 6.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn neighbor_tensors<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    k: usize,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Result<NeighborTensors> {
    options.not_expanded("neighbors")?;
    let (job, run) =
        (Job::new(x, y, metric, options)?, &Run { progress: run.progress.rising(), ..run.clone() });
    let extents = job.extents();
    check_k(k, extents[1] as u64, y.is_none())?;
    if let Some(requested) = extents.into_iter().map(|n| n as u64).find(|&n| n >= u32::MAX.into()) {
        return Err(Error::Limit { what: "observations", requested, max: u64::from(u32::MAX) - 1 });
    }
    if job.measure.can_search(extents.map(|extent| extent as u64), k as u64) {
        let (kept, indices) = match candidates::nearest(&Jobs::alone(&job), k as u64, false, run)? {
            Some(chosen) => {
                let ((pairs, numbers), [m, k]) = (chosen.parts(), [extents[0] as u64, k as u64]);
                let kept = Tensor::from_slice(x.device(), &pairs, &[m, 2 * k])?;
                (kept, Tensor::from_slice(x.device(), &numbers, &[m, k])?)
            }
            None => select(&job, k as u64, Needs::default(), run)?,
        };
        return Ok(NeighborTensors { indices, distances: job.measure.finish_kept_on_device(&kept)? });
    }
    let nearest = on_host(&job, k, run)?.finish()?;
    let shape = [extents[0] as u64, k as u64];
    let indices: Vec<u32> = nearest.indices.iter().map(|&index| small(index)).collect();
    let distances: Vec<f32> =
        nearest.distances.data().iter().map(|&distance| nearest_f32(distance)).collect();
    Ok(NeighborTensors {
        indices: Tensor::from_slice(x.device(), &indices, &shape)?,
        distances: Tensor::from_slice(x.device(), &distances, &shape)?,
    })
}
