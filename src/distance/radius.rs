//! The neighbors of each observation within a radius, without a matrix of all distances.

use super::{
    Metric, Options,
    job::Job,
    members::with_members,
    within::{PairsWithin, Radius, RadiusNeighbors},
};
use crate::{Element, Result, Run, Tensor};

/// Returns the observations of `y`, or of the rest of `x`, that are within a radius of each observation of `x`. Waits.
///
/// They are those at a distance of `radius` or less, as of scikit-learn's `radius_neighbors`. `inner_product` is a similarity, so that they are
/// those of values of `radius` or more. Distances that are NaN are within no radius; an infinite radius (of `inner_product`, minus infinity)
/// has all others. The nearest comes first, and ties are ordered by index.
///
/// # Shapes
/// As [`pairwise`](super::pairwise) -> m lists.
///
/// # Accuracy
/// Distances equal those of [`pairwise`](super::pairwise) to the bit, and are compared with the radius in f64.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for a radius that is NaN, or below 0 unless the metric is `inner_product` or `kl_divergence`, whose
/// values may be; otherwise as [`pairwise`](super::pairwise). If the neighbors do not fit the host's memory, the rest of them is counted, and the
/// error names the radius, their number and the memory that is enough.
///
/// # Cost
/// As [`pairwise`](super::pairwise), but host memory is 32 to 34 bytes for each neighbor, and 16 for each observation of `x`, instead of 8 for each
/// pair. They may take half of the budget, since their number is known only at the end. The members of a [group](crate::Device::group) share
/// the pairs, as those of [`pairwise`](super::pairwise) do.
///
/// ```
/// use teatime::{Device, Run, Tensor, distance::{Metric, Options, radius_neighbors}};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[0u8, 1, 3, 7], &[4, 1])?;
/// let within = radius_neighbors(&x, None, 3.0, Metric::Euclidean, &Options::default(), &Run::default())?;
/// assert_eq!(within.row(1), (&[0, 2][..], &[1.0, 2.0][..]));
/// assert_eq!(within.offsets, [0, 2, 4, 6, 6]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn radius_neighbors<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    radius: f64,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Result<RadiusNeighbors> {
    let radius = Radius::new(radius, metric)?;
    options.not_expanded("neighbors")?;
    x.device().has_one_kind("distance")?;
    let job = Job::new(x, y, metric, options)?;
    let extents = job.extents().map(|extent| extent as u64);
    with_members(job, (x, y), run, |jobs| {
        let measure = &jobs.first().measure;
        PairsWithin::find(measure, extents, radius, run, |within, run| within.take_all(&jobs, run))
    })
}
