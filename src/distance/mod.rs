//! Distances between observations, within one matrix or between two. Observations are rows, or columns with [`Options::columns`].
//!
//! | result | from tensors | from stored arrays |
//! |---|---|---|
//! | all distances, as a matrix on the host | [`pairwise`], [`pairwise_counted`]; [`condensed`] | [`pairwise_stored`] |
//! | all distances, as f32 that stay on the device | [`pairwise_tensor`] | |
//! | all distances, written tile by tile to Zarr or .npy; with a writer that resumes, a call goes on where another was stopped | [`write_pairwise`], [`write_condensed`] | [`write_pairwise_stored`] |
//! | the nearest neighbors of each observation, without a distance matrix | [`neighbors`](fn@neighbors) | [`neighbors_stored`] |
//! | the neighbors within a radius | [`radius_neighbors`] | [`radius_neighbors_stored`] |
//! | the nearest neighbors, as tensors that stay on the device | [`neighbor_tensors()`] | |
//! | the nearest neighbors from distances that arrive block by block | [`NearestSoFar`] | |
//! | sums over features that arrive chunk by chunk, or are computed elsewhere | [`Partial`] | |
//! | distances between columns of packed matrices | [`PackedPairs`] | |
//!
//! # Metrics
//!
//! x and y are two observations, n is the number of features, and `[..]` is 1 if the condition holds and 0 otherwise:
//!
//! | metric | formula | as in | exceptions: not symmetric, or not 0 on the diagonal | parts merge by |
//! |---|---|---|---|---|
//! | `euclidean` | √Σ (x - y)² | scipy | | sum |
//! | `sqeuclidean` | Σ (x - y)² | scipy | | sum |
//! | `cityblock` | Σ \|x - y\| | scipy | | sum |
//! | `chebyshev` | max \|x - y\| | scipy | | maximum |
//! | `minkowski`, p > 0 | (Σ \|x - y\|^p)^(1/p); for infinite p, `chebyshev` | scipy | | sum |
//! | `cosine` | 1 - x·y / (‖x‖ ‖y‖); NaN if a length is 0 | scipy | | sums |
//! | `correlation` | cosine of observations minus their means | scipy | | sums |
//! | `inner_product` | x·y | cuVS | diagonal | sum |
//! | `canberra` | Σ \|x - y\| / (\|x\| + \|y\|), with 0/0 = 0 | scipy | | sum |
//! | `braycurtis` | Σ \|x - y\| / Σ \|x + y\|; NaN if the denominator is 0 | scipy | | sums |
//! | `hamming` | Σ `[x ≠ y]` / n | scipy | | sum |
//! | `jaccard` | Σ `[exactly one is 0]` / Σ `[not both are 0]`, with 0/0 = 0 | scipy, of booleans `[x ≠ 0]` | | sums |
//! | `dice` | Σ `[exactly one is 0]` / Σ (`[x ≠ 0]` + `[y ≠ 0]`); NaN if the denominator is 0 | scipy, of booleans `[x ≠ 0]` | | sums |
//! | `russellrao` | 1 - Σ `[neither is 0]` / n | scipy | diagonal | sum |
//! | `jensenshannon` | √(½ Σ p log(p/m) + ½ Σ q log(q/m)), p = x/Σx, q = y/Σy, m = (p + q)/2 | scipy | | sum, once Σx is known |
//! | `hellinger` | √(1 - Σ √(x y)), 0 if the radicand is negative | cuVS | diagonal, unless x adds up to 1 or more | sum |
//! | `kl_divergence` | ½ Σ x log(x/y), with 0 log 0 = 0 and x log x in place of x log(x/0) | cuVS | symmetry | sum |
//!
//! `jensenshannon`, `hellinger` and `kl_divergence` need elements that are 0 or more. With `jensenshannon`, the distances of an observation that
//! adds up to 0 are NaN.
//!
//! # Missing elements
//!
//! NaN is missing, and with [`Options::negative`] negative elements are missing too. [`Missing`] selects the distance of a pair with missing
//! elements:
//!
//! | rule | sums, means, fractions and ratios are over | if the pair shares no feature |
//! |---|---|---|
//! | `propagate` | all features: the distance is NaN | NaN |
//! | `ignore` | the features that both have | the formula's value for empty sums: NaN for `cosine`, `correlation`, `braycurtis` and `dice`, 0 for the rest |
//! | `rescale` | the features that both have; the sums of `euclidean` (below the root), `sqeuclidean`, `cityblock`, `minkowski`, `canberra` and `inner_product` are multiplied by n over the number of these features | NaN |
//! | `rescale or zero` | as `rescale` | 0 |
//!
//! `jensenshannon`, `hellinger` and `kl_divergence` accept only `propagate`.
//!
//! # Accuracy
//!
//! Elements are converted to f32. Terms are f32 and are added up in f32 over 256 features at a time. Each total is kept as two f32, from which
//! the host computes distances in f64.
//!
//! - For elements that are bytes, sums of differences, of squared differences, of products and of 0s and 1s are exact up to 2^48. Distances
//!   computed from these sums alone (`euclidean` to `chebyshev`, `inner_product`, `braycurtis` to `russellrao`) are the same on all devices.
//! - All further sums are off by at most 2^-17 of the sum of the terms' magnitudes.
//! - `cosine` and `correlation` are computed as half the squared distance between observations of length 1, so that this bound holds for close
//!   observations too.
//! - If elements are missing, `cosine` is off by at most 2^-17, and `correlation` by at most 1 + μ²/σ² times 2^-17. σ is an observation's
//!   standard deviation; μ is its mean over the features that a pair shares, minus its mean over all its features. If μ is about a thousand
//!   times σ, no digit is correct, and the distance is NaN.
//! - Otherwise rounding makes no distance NaN, and the distance of an observation from itself is 0 if the table says so. `cosine` and
//!   `correlation` are from 0 to 2.
//! - If sums would overflow or underflow f32, elements are multiplied by a power of two, which is exact: by one power for all observations, or
//!   for `cosine` and `correlation` by one power for each. If an element is 10^20 or more, differences below 2^-110 of it may count as 0. Powers
//!   above 2 (`minkowski`) that overflow or underflow f32 nevertheless become infinite or 0, as do `kl_divergence` and `hellinger` of elements
//!   far beyond 1. `jensenshannon` refuses observations whose sums are beyond f32.
//!
//! [`pairwise_tensor`] gives distances that stay on the device: f32, computed from the same sums in f64 if the device supports f64, otherwise in
//! pairs of f32. [`pairwise_tensor`] documents their accuracy, and [`neighbors`](fn@neighbors) the accuracy of the distances by which a GPU
//! selects the nearest.
//!
//! Tensors of f64 are computed in f64 on devices that [can](crate::Limits::f64): the cpu and CUDA. Sums are one f64, and whole numbers are exact
//! up to 2^53. In the bounds above, 2^-17 becomes 2^-44 plus 2^-61 for each feature, and a thousand becomes 10^7. Squares and powers beyond f64
//! become infinite or 0. Other devices return [`Error::NoF64`], unless [`Options::narrow`] asks for f32.
//!
//! On these devices, integers are computed in f64 too unless [`Options::narrow`] is set, and bytes in f32 where that is exact, as stated above.
//! On other devices integers become f32, and integers of 2^24 or beyond are refused unless [`Options::narrow`] asks for the nearest f32.
//!
//! With [`Options::expanded`], the bound of a squared difference is another: 2^-12 of |x|² + |y|², for up to a million features, where |x| and
//! |y| are the lengths of the observations minus the mean of `y`; 2^-8 on a device that was opened with
//! [`tf32`](crate::DeviceOptions::tf32). In our tests the mean error is below 2^-20. So distances mostly have six digits if observations are as far
//! from one another as from the mean, and none if they are closer than a thousandth of that. For `cosine` and `correlation`, twice the distance is
//! the squared difference of observations of length 1, and off by 2^-21 more. The distance of an observation from itself is 0. The last bits
//! depend on the sizes of `x` and `y`, of tiles and of groups, and on budgets, so that results of different functions are not equal to the bit,
//! and squares that are written in tiles of another shape are not symmetric to the bit.
//!
//! # Map and reduce
//!
//! A [`Partial`] takes the features chunk by chunk, as they come from a store, and keeps only the sums. With [`Options::columns`], it takes the
//! chunks of a store whose rows are features without a transposition. Sums over different features, computed in other processes or on other
//! devices, are exported as [`PartialSums`], merged as the table says, and finished at the end. Further features go to another [`Partial`]. The
//! distances from chunks equal those from the whole to the bit if the sums are whole numbers, or if all chunks go to one [`Partial`] on one
//! device and all but the last have a multiple of 256 features. Otherwise they are within the bound above. Three metrics differ, because
//! [`pairwise`] prepares whole observations for them:
//!
//! - `cosine` and `correlation` are computed from Σ x y, Σ x² and Σ y², and `correlation` from Σ x and Σ y too, even if no element is missing.
//!   Errors of `cosine` are up to 2^-17. For `correlation`, a shift near the mean of an observation's first 256 features is subtracted from the
//!   observation first; [`PartialSums`] record the shift, and merging accounts for it. Errors are 1 + μ²/σ² times as large, with μ the
//!   observation's mean minus the shift, and σ its standard deviation, so that a mean far from 0 costs no accuracy. For bytes these sums are
//!   exact.
//! - `jensenshannon` needs the sum of each observation over all features: [`Partial::with_sums`].
//!
//! The first features of a [`Partial`] decide between f32 and f64 for all its sums. Later features that need f64 are refused if the sums are
//! f32, but sums in f32 merge with sums in f64.

pub(crate) mod candidates;
mod frame;
mod job;
mod members;
mod metric;
mod neighbor_tensors;
mod neighbors;
mod on_device;
mod operands;
mod packed;
mod pairs;
mod partial;
mod partial_sums;
mod precision;
mod radius;
mod results;
mod search;
pub(crate) mod selection;
mod shares;
mod so_far;
mod stored;
mod sums;
mod tiles;
mod within;

use self::{job::Job, members::with_members, pairs::condensed_len};
pub use self::{
    metric::Metric,
    neighbor_tensors::{NeighborTensors, neighbor_tensors},
    neighbors::neighbors,
    on_device::pairwise_tensor,
    packed::{ColumnPairs, PackedDiagonal, PackedPairs},
    partial::Partial,
    partial_sums::PartialSums,
    radius::radius_neighbors,
    so_far::{NearestSoFar, Neighbors},
    stored::{
        StoredDistances, StoredNeighbors, StoredRadiusNeighbors, WrittenDistances, neighbors_stored,
        pairwise_stored, radius_neighbors_stored, write_pairwise_stored,
    },
    tiles::{write_condensed, write_pairwise},
    within::RadiusNeighbors,
};
pub use crate::kernels::finish_distance::Missing;
use crate::{
    Element, Error, Needs, Result, Run, Tensor,
    linalg::Matrix,
    stable_text::{StableText, fields},
};

impl Missing {
    /// Returns the rule's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Propagate => "propagate",
            Self::Ignore => "ignore",
            Self::Rescale => "rescale",
            Self::RescaleOrZero => "rescale-or-zero",
        }
    }
}

crate::stable_text! { enum Missing { Propagate, Ignore, Rescale, RescaleOrZero } }

/// Options of distances.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The rule for missing elements.
    pub missing: Missing,
    /// True if negative elements are missing, unless [`missing`](Self::missing) is [`Missing::Propagate`].
    pub negative: bool,
    /// True if observations are columns, false if they are rows.
    pub columns: bool,
    /// True rounds f64 and integers to f32 before differences are taken. Rounding is faster, and for f64 the only way on devices that do not
    /// [compute in f64](crate::Limits::f64). Other types are unaffected.
    pub narrow: bool,
    /// True computes squared differences as |x|² + |y|² - 2 x·y, by a product of matrices: in half the operations, and on CUDA by cuBLAS where
    /// that is installed. This is the expanded form of cuVS and of `PyTorch`. [Errors](crate::distance#accuracy) are larger for close
    /// observations.
    ///
    /// It is for `euclidean`, `sqeuclidean`, `minkowski` with exponent 2, `cosine` and `correlation`, for rows of tensors whose sums are f32,
    /// and for [`Missing::Propagate`]. [`pairwise`], [`pairwise_counted`], [`condensed`], [`pairwise_tensor`], [`write_pairwise`] and
    /// [`write_condensed`] refuse anything else with [`Error::Argument`], and all other functions refuse it altogether. Device memory: 4 bytes more
    /// for each element of `x` and of `y`, and while these are made up to 8 for each element of the larger one.
    pub expanded: bool,
}

crate::setters! {
    Options { missing(Missing), negative(bool), columns(bool), narrow(bool), expanded(bool) }
}

impl Options {
    /// Checks that squared differences are not to be expanded. Fails with [`Error::Argument`].
    fn not_expanded(&self, op: &'static str) -> Result<()> {
        if self.expanded {
            let why = "`expanded` is for all distances of tensors, by `pairwise`, `condensed` and the like";
            return Err(Error::argument(op, "options", why));
        }
        Ok(())
    }
}

impl StableText for Options {
    fn stable_text(&self) -> String {
        let Self { missing, negative, columns, narrow, expanded } = self;
        let mut texts: Vec<(&str, &dyn StableText)> =
            vec![("missing", missing), ("negative", negative), ("columns", columns), ("narrow", narrow)];
        // Jobs that were begun before there was this option have no text of it.
        if *expanded {
            texts.push(("expanded", expanded));
        }
        fields("Options", &texts)
    }
}

/// Distances, and the number of features behind each.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Distances {
    /// Distances from each observation of x (a row) to each of y (a column). Symmetric to the bit if the metric is symmetric and y is x.
    pub distances: Matrix,
    /// The number of features that both observations have, in the same shape. None for tensors if missing elements are propagated, and for
    /// packed rows if no code is missing.
    pub shared: Option<Matrix>,
}

/// Returns the distances between the observations of `x`, or from those of `x` to those of `y`. Waits.
///
/// # Shapes
/// `x`: (m, k), `y`: (n, k) of any element type -> (m, m) or (m, n); with [`Options::columns`], `x`: (k, m), `y`: (k, n).
///
/// # Errors
/// [`Error::Shape`] unless `x` and `y` have equally many features; [`Error::WrongDevice`]; [`Error::NoF64`] for f64 on a device without f64,
/// unless [`Options::narrow`] is set; [`Error::Argument`] for an exponent that is not above 0, an infinite element, a negative element or a sum
/// of 0 that the metric excludes ([table](crate::distance#metrics)), [`Options::expanded`] of what it is not for, a rule for missing elements that the metric does not support, and a group
/// of devices of different kinds; [`Error::Limit`] when one row does not fit a binding; [`Error::Budget`] when the distances and one pair's
/// sums do not fit the budgets of `run`; [`Error::OutOfMemory`]; [`Error::OutOfHostMemory`]; [`Error::Cancelled`].
///
/// # Cost
/// A few operations for each feature of each pair; without `y`, each pair is computed once if the metric is symmetric. Device memory: 12 bytes
/// for each observation (24 in f64) and two blocks of sums, up to 32 MiB each for each of the metric's one to six terms. Host memory: as much,
/// plus 8 bytes for each pair. The members of a [group](crate::Device::group) of one kind share the pairs, in tiles of 64 observations of `x`;
/// each but those on the host has a copy of `x` and `y`.
///
/// ```
/// use teatime::{Device, Run, Tensor, distance::{Metric, Options, pairwise}};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[0.0f32, 0.0, 3.0, 4.0], &[2, 2])?;
/// let distances = pairwise(&x, None, Metric::Euclidean, &Options::default(), &Run::default())?;
/// assert_eq!(distances.data(), [0.0, 5.0, 5.0, 0.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn pairwise<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Result<Matrix> {
    Ok(square(x, y, metric, options, run, false)?.distances)
}

/// Returns the distances of [`pairwise`] and, unless missing elements are propagated, the number of features that both observations of a pair
/// have.
///
/// # Errors
/// As [`pairwise`].
///
/// # Cost
/// As [`pairwise`], and 8 bytes more for each pair on the host.
///
/// ```
/// use teatime::{Device, Run, Tensor, distance::{Metric, Missing, Options, pairwise_counted}};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[0.0f32, f32::NAN, 3.0, 4.0], &[2, 2])?;
/// let options = Options::default().missing(Missing::Ignore);
/// let result = pairwise_counted(&x, None, Metric::Euclidean, &options, &Run::default())?;
/// assert_eq!(result.distances.data(), [0.0, 3.0, 3.0, 0.0]);
/// assert!(result.shared.is_some_and(|shared| shared.data() == [1.0, 1.0, 1.0, 2.0]));
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn pairwise_counted<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Result<Distances> {
    square(x, y, metric, options, run, options.missing != Missing::Propagate)
}

fn square<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    metric: Metric,
    options: &Options,
    run: &Run,
    counted: bool,
) -> Result<Distances> {
    x.device().has_one_kind("distance")?;
    let job = Job::new(x, y, metric, options)?;
    let extents = job.extents().map(|extent| extent as u64);
    let results = extents.iter().fold(1 + u64::from(counted), |product, &n| product.saturating_mul(n));
    with_members(job, (x, y), run, |jobs| {
        let side = jobs.side(Needs::host(8) * results.div_ceil(jobs.count()), run)?;
        jobs.rectangle(extents.map(|extent| 0..extent), side, counted, run)
    })
}

/// Returns the distances between the observations of `x`, each pair once, in scipy's condensed order: from the first observation to the second
/// and all later ones, then from the second to all later ones, and so on. Otherwise the same as [`pairwise`], but for the
/// last bits if [expanded](Options::expanded).
///
/// # Errors
/// As [`pairwise`]; [`Error::Argument`] for a metric that is not symmetric.
///
/// ```
/// use teatime::{Device, Run, Tensor, distance::{Metric, Options, condensed}};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[0u8, 1, 3, 7], &[4, 1])?;
/// let distances = condensed(&x, Metric::CityBlock, &Options::default(), &Run::default())?;
/// assert_eq!(distances, [1.0, 3.0, 7.0, 2.0, 6.0, 4.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn condensed<T: Element>(
    x: &Tensor<T>,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Result<Vec<f64>> {
    symmetric(metric)?;
    x.device().has_one_kind("distance")?;
    let job = Job::new(x, None, metric, options)?;
    let count = condensed_len(job.extents()[0]);
    with_members(job, (x, None), run, |jobs| {
        let side = jobs.side(Needs::host(8) * (count as u64).div_ceil(jobs.count()), run)?;
        jobs.condensed(0..count, side, run)
    })
}

/// Fails with [`Error::Argument`] unless the metric has a condensed form.
fn symmetric(metric: Metric) -> Result<()> {
    if metric.is_symmetric() {
        return Ok(());
    }
    let why = format_args!("{metric} is not symmetric: there is no condensed form");
    Err(Error::argument("distance", "metric", why))
}
