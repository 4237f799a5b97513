//! The nearest neighbors of each observation, without a matrix of all distances.

use super::{
    Metric, Options, candidates,
    job::{Job, Measure},
    members::{Kept, merged, with_members},
    search::select,
    so_far::{NearestSoFar, Neighbors, on_host, sorted},
};
use crate::{Element, Error, Result, Run, Tensor, extent::to_usize};

/// Returns the `k` nearest observations of `y`, or of the rest of `x`, for each observation of `x`. Waits.
///
/// The nearest comes first, and ties are ordered by index. `inner_product` is a similarity, so its nearest have the largest values. Distances
/// that are NaN come last, so that there are always `k`.
///
/// # Shapes
/// As [`pairwise`](super::pairwise) -> (m, k) and (m, k), `k` from 1 to n, or to m - 1 without `y`.
///
/// # Accuracy
/// Distances equal those of [`pairwise`](super::pairwise) to the bit. If one sum determines the distance, a GPU finds the nearest by that sum.
/// Then, if sums differ but their distances are equal, the farthest of the `k` may be the neighbor with the nearer sum. Otherwise a GPU computes
/// distances, and finds the nearest by distance.
///
/// A GPU that does not [compute in f64](crate::Limits::f64) computes the distances for the selection in pairs of f32: for `braycurtis`,
/// `jaccard` and `dice`; for `cosine`, `correlation`, `hamming` and `russellrao` if elements may be missing; and for all rescaled distances.
/// These distances are within 2^-40 of those of `pairwise`, or 2^-20 if a sum is below 2^-80, and 1/p times that for `minkowski` with p below 1.
/// For `cosine` and `correlation` the error is larger and a distance may be NaN, as [`pairwise_tensor`](super::pairwise_tensor) says. If two
/// distances differ by less than the error, either may come first, but equal ratios of whole numbers below 2^24 are equal.
///
/// # Errors
/// [`Error::Argument`] for a `k` out of range; otherwise as [`pairwise`](super::pairwise), with budgets for the memory stated below.
///
/// # Cost
/// As [`pairwise`](super::pairwise), but host memory is `32 k + 40` bytes for each observation of `x` instead of 8 for each pair. A GPU finds
/// the nearest itself, in `12 k + 4` bytes for each observation of `x`, 4 for each of `y`, and one block of sums. If one sum is not enough, it
/// takes a block for each term and one of distances. Only the result crosses to the host; for a `k` above 256, the sums of all pairs do.
///
/// For `euclidean`, `sqeuclidean`, `minkowski` of exponent 2, `cosine` and `correlation` of f32, f16, bf16 and bytes, without missing elements,
/// half of the operations are enough: a product of matrices, in TF32 where cuBLAS has it, finds `k` + 6 or more candidates for each observation,
/// and the sums of these alone are computed as by [`pairwise`](super::pairwise). An observation is searched again among all if the error of the
/// product may hide a neighbor, so that results are the same. This needs 48 features, 512 observations of x, some 512 `k` + 4096 of the others,
/// and within the budget, copies of all elements as f32 and up to 0.7 GB. Of each candidate, 20 bytes cross to the host.
///
/// The members of a [group](crate::Device::group) of one kind share the pairs, in tiles of 64 observations of `x`. Each but those on the host has
/// a copy of `x` and `y`. Each keeps `k` neighbors, or candidates, of every observation, in as much memory as above; the host chooses of all.
///
/// ```
/// use teatime::{Device, Run, Tensor, distance::{Metric, Options, neighbors}};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[0u8, 1, 3, 7], &[4, 1])?;
/// let nearest = neighbors(&x, None, 2, Metric::Euclidean, &Options::default(), &Run::default())?;
/// assert_eq!(nearest.indices, [1, 2, 0, 2, 1, 0, 2, 1]);
/// assert_eq!(nearest.distances.row(3), [4.0, 6.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn neighbors<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    k: usize,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Result<Neighbors> {
    options.not_expanded("neighbors")?;
    x.device().has_one_kind("distance")?;
    let job = Job::new(x, y, metric, options)?;
    let (extents, of_each) = (job.extents().map(|extent| extent as u64), k as u64);
    check_k(k, extents[1], y.is_none())?;
    let run = &Run { progress: run.progress.rising(), ..run.clone() };
    with_members(job, (x, y), run, |jobs| {
        let (measure, m) = (&jobs.first().measure, extents[0]);
        let by_device = measure.finds_nearest(extents, of_each);
        if let Some(chosen) = candidates::nearest(&jobs, of_each, !by_device, run)? {
            return chosen.into_neighbors(measure);
        }
        if by_device {
            let lists = jobs.each(run, m, |_, job, run| {
                let (kept, numbers) = select(job, of_each, NearestSoFar::needs(m, of_each), run)?;
                Ok((kept.read()?, numbers.read()?))
            })?;
            return chosen(measure, lists, [to_usize(m), k]);
        }
        NearestSoFar::finish_all(jobs.each(run, m, |_, job, run| on_host(job, k, run))?)
    })
}

/// Returns the k nearest of m observations from those that members kept of different pairs.
pub(super) fn chosen(measure: &Measure, lists: Vec<Kept>, [m, k]: [usize; 2]) -> Result<Neighbors> {
    let (kept, numbers) = merged(&measure.device, lists, k, |pair| measure.key(pair))?;
    sorted(measure, (&kept, &numbers), [m, k])
}

/// Fails with [`Error::Argument`] unless `k` is from 1 to `n`, or to `n` - 1 if `is_self`.
pub(super) fn check_k(k: usize, n: u64, is_self: bool) -> Result<()> {
    let (most, others) = if is_self { (n.saturating_sub(1), "other ") } else { (n, "") };
    if k == 0 || k as u64 > most {
        let why = format_args!("{k} of {most} {others}observations: from 1 to as many");
        return Err(Error::argument("neighbors", "k", why));
    }
    Ok(())
}
