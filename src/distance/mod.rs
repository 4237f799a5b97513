//! Distances between observations: each with each, or those of one matrix with those of another. Observations are rows, or columns
//! with [`Options::columns`].
//!
//! | for | of tensors | of stored arrays |
//! |---|---|---|
//! | all distances, as a matrix on the host | [`pairwise`], [`pairwise_counted`]; [`condensed`] | [`pairwise_stored`] |
//! | all distances, as f32 that stay on the device | [`pairwise_tensor`] | |
//! | all distances, written tile by tile into a Zarr array, and gone on with where a process was killed | [`write_pairwise`], [`write_pairwise_counted`], [`write_condensed`] | [`write_pairwise_stored`] |
//! | the nearest of each, without a matrix | [`neighbors`](fn@neighbors) | [`neighbors_stored`] |
//! | the nearest of each, as tensors that stay on the device | [`neighbor_tensors()`] | |
//! | the same of distances that come block by block | [`NearestSoFar`] | |
//! | sums of features that come chunk by chunk, or are made elsewhere | [`Partial`] | |
//! | columns of packed matrices | [`PackedPairs`] | |
//!
//! # Metrics
//!
//! With x and y two observations, n features, and `[..]` 1 where it holds and 0 else:
//!
//! | metric | formula | as in | not symmetric, not 0 on the diagonal | parts merge by |
//! |---|---|---|---|---|
//! | `euclidean` | √Σ (x - y)² | scipy | | sum |
//! | `sqeuclidean` | Σ (x - y)² | scipy | | sum |
//! | `cityblock` | Σ \|x - y\| | scipy | | sum |
//! | `chebyshev` | max \|x - y\| | scipy | | maximum |
//! | `minkowski`, p > 0 | (Σ \|x - y\|^p)^(1/p); of an infinite p `chebyshev` | scipy | | sum |
//! | `cosine` | 1 - x·y / (‖x‖ ‖y‖); NaN where a length is 0 | scipy | | sums |
//! | `correlation` | cosine of observations less their means | scipy | | sums |
//! | `inner_product` | x·y | cuVS | diagonal | sum |
//! | `canberra` | Σ \|x - y\| / (\|x\| + \|y\|), where 0/0 is 0 | scipy | | sum |
//! | `braycurtis` | Σ \|x - y\| / Σ \|x + y\|; NaN where that is 0 | scipy | | sums |
//! | `hamming` | Σ `[x ≠ y]` / n | scipy | | sum |
//! | `jaccard` | Σ `[exactly one is 0]` / Σ `[not both are 0]`, where 0/0 is 0 | scipy, of booleans `[x ≠ 0]` | | sums |
//! | `dice` | Σ `[exactly one is 0]` / Σ (`[x ≠ 0]` + `[y ≠ 0]`); NaN where that is 0 | scipy, of booleans `[x ≠ 0]` | | sums |
//! | `russellrao` | 1 - Σ `[neither is 0]` / n | scipy | diagonal | sum |
//! | `jensenshannon` | √(½ Σ p log(p/m) + ½ Σ q log(q/m)), p = x/Σx, q = y/Σy, m = (p + q)/2 | scipy | | sum, once Σx is known |
//! | `hellinger` | √(1 - Σ √(x y)), 0 where that is below | cuVS | diagonal, unless x adds up to 1 or more | sum |
//! | `kl_divergence` | ½ Σ x log(x/y), where 0 log 0 is 0 and x log(x/0) is x log x | cuVS | symmetry | sum |
//!
//! `jensenshannon`, `hellinger` and `kl_divergence` need elements that are 0 or more. By the first, the distances of an observation that
//! adds up to 0 are NaN.
//!
//! # Missing elements
//!
//! NaN is missing, and with [`Options::negative`] negative elements are. [`Missing`] says what becomes of a pair with missing elements:
//!
//! | rule | sums, means, fractions and ratios are over | if no feature is in both |
//! |---|---|---|
//! | `propagate` | all features: the distance is NaN | NaN |
//! | `ignore` | the features that both have | what the formula makes of empty sums: NaN of `cosine`, `correlation`, `braycurtis` and `dice`, else 0 |
//! | `rescale` | the same; and sums of `euclidean` (below the root), `sqeuclidean`, `cityblock`, `minkowski`, `canberra` and `inner_product` are multiplied by n over the number of these features | NaN |
//! | `rescale or zero` | as `rescale` | 0 |
//!
//! `jensenshannon`, `hellinger` and `kl_divergence` take `propagate` alone.
//!
//! # Accuracy
//!
//! Elements become f32. Terms are f32, and added up in f32 over 256 features; sums of these are two f32, and the host makes distances of
//! them in f64.
//!
//! - Of bytes, sums of differences, of their squares, of products and of 0s and 1s are exact up to 2^48. So are the distances made of
//!   these alone (`euclidean` to `chebyshev`, `inner_product`, `braycurtis` to `russellrao`): the same on all devices.
//! - Other sums are off by at most 2^-17 of the sum of the terms' magnitudes.
//! - `cosine` and `correlation` are half the squared distance between observations of length 1, so that this bound holds for close ones
//!   too.
//! - Where elements are missing, `cosine` and `correlation` are off by at most 2^-17, and `correlation` by 1 + μ²/σ² times that. σ is an
//!   observation's standard deviation; μ is its mean over the features that a pair shares, less that over all its features. Where μ is
//!   about a thousand times σ, no digit is left, and the distance is NaN.
//! - Otherwise no distance is NaN by rounding, and the distance of an observation from itself is 0 where the table says so. `cosine` and
//!   `correlation` are from 0 to 2.
//! - Where sums would leave f32, elements are multiplied by a power of two, which changes no digit: one for all observations, and of
//!   `cosine` and `correlation` one for each. Beside an element of 10^20 or more, differences of less than 2^-110 of it may count as none.
//!   Powers above 2 (`minkowski`) that leave f32 nevertheless are infinite or 0; so are `kl_divergence` and `hellinger` of elements far
//!   beyond 1, and observations whose sums are beyond f32 are refused by `jensenshannon`.
//!
//! Distances that stay on the device, [`pairwise_tensor`], are f32 made of the same sums: in f64 where the device computes in it, and else in
//! pairs of f32. It says how near they are, and [`neighbors`](fn@neighbors) says it of those that a GPU makes to find the nearest.
//!
//! Tensors of f64 are computed in f64 on devices that [can](crate::Limits::f64): the cpu and CUDA. Sums are one f64, and whole numbers are
//! exact up to 2^53. Above, 2^-17 becomes 2^-44 plus 2^-61 for each feature, and a thousand becomes 10^7. Squares and powers beyond f64
//! are infinite or 0. Other devices give
//! [`Error::NoF64`], unless [`Options::narrow`] asks for f32.
//!
//! Integers are computed in f64 on these devices too, without [`Options::narrow`]; bytes in f32 where that is exact, as said above. On
//! other devices they become f32, and those of 2^24 or beyond are refused unless [`Options::narrow`] asks for the nearest.
//!
//! # Map and reduce
//!
//! A [`Partial`] takes the features chunk by chunk, as they come from a store, and keeps only the sums. Chunks of a store whose rows are
//! features are taken as they are, with [`Options::columns`]. Sums of different features, made in other processes or on other devices, are
//! exported as [`PartialSums`], merged as the table says, and finished at last; more features are those of another [`Partial`].
//! The distances of chunks are those of the whole: to the bit where sums are whole numbers, or on one device where all chunks
//! but the last have a multiple of 256 features and go to one [`Partial`], and else within the bound above. Three metrics differ,
//! for which [`pairwise`] prepares whole observations:
//!
//! - `cosine` and `correlation` are made of Σ x y, Σ x² and Σ y², `correlation` of Σ x and Σ y besides, also where no element is
//!   missing. Errors of `cosine` are up to 2^-17. Before `correlation` is added up, a number near the mean of its first 256 features is
//!   subtracted from each observation, which [`PartialSums`] keep and merging takes into account. Errors are 1 + μ²/σ² times as large,
//!   with μ an observation's mean less that number, and σ its standard deviation: so its distance from 0 is no matter. Of bytes these
//!   sums are exact.
//! - `jensenshannon` needs the sum of each observation over all features: [`Partial::with_sums`].
//!
//! A [`Partial`] computes all in what its first features are computed in: others that need f64 after sums in f32 are refused, and sums of
//! the one merge with those of the other.
//!
#![cfg_attr(
    not(feature = "zarr"),
    doc = "[`write_condensed`]: self
[`write_pairwise`]: self
[`write_pairwise_counted`]: self
[`write_pairwise_stored`]: self"
)]

mod frame;
mod job;
mod metric;
mod neighbor_tensors;
mod neighbors;
mod on_device;
mod packed;
mod partial;
mod partial_sums;
mod precision;
mod search;
pub(crate) mod selection;
mod stored;
mod sums;
#[cfg(feature = "zarr")]
mod tiles;

use self::job::{DistanceBlock, Job};
pub use self::{
    metric::Metric,
    neighbor_tensors::{NeighborTensors, neighbor_tensors},
    neighbors::{NearestSoFar, Neighbors, neighbors},
    on_device::pairwise_tensor,
    packed::{PackedDiagonal, PackedPairs},
    partial::Partial,
    partial_sums::PartialSums,
    stored::{StoredDistances, StoredNeighbors, neighbors_stored, pairwise_stored},
};
#[cfg(feature = "zarr")]
pub use self::{
    stored::{WrittenDistances, write_pairwise_stored},
    tiles::{write_condensed, write_pairwise, write_pairwise_counted},
};
pub use crate::kernels::finish_distance::Missing;
use crate::{
    Element, Error, Result, Run, Tensor,
    linalg::Matrix,
    stable_text::{StableText, fields},
};

impl Missing {
    /// The rule's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Propagate => "propagate",
            Self::Ignore => "ignore",
            Self::Rescale => "rescale",
            Self::RescaleOrZero => "rescale-or-zero",
        }
    }
}

impl StableText for Missing {
    fn stable_text(&self) -> String {
        match self {
            Self::Propagate => "Propagate".into(),
            Self::Ignore => "Ignore".into(),
            Self::Rescale => "Rescale".into(),
            Self::RescaleOrZero => "RescaleOrZero".into(),
        }
    }
}

/// Options of distances.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The rule for missing elements.
    pub missing: Missing,
    /// True where negative elements are missing, unless [`missing`](Self::missing) is [`Missing::Propagate`].
    pub negative: bool,
    /// True where observations are columns. Else they are rows.
    pub columns: bool,
    /// True rounds f64 and integers to f32 before differences are taken: faster, and for f64 on devices that do not
    /// [compute in f64](crate::Limits::f64) the only way. Of other types nothing changes.
    pub narrow: bool,
}

crate::setters! {
    Options {
        missing(Missing),
        negative(bool),
        columns(bool),
        narrow(bool),
    }
}

impl StableText for Options {
    fn stable_text(&self) -> String {
        let Self { missing, negative, columns, narrow } = self;
        fields(
            "Options",
            &[("missing", missing), ("negative", negative), ("columns", columns), ("narrow", narrow)],
        )
    }
}

/// Distances, and of how many features they are.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Distances {
    /// Distances of each observation of x, a row, from each of y; symmetric to the bit if the metric is and x is taken with itself.
    pub distances: Matrix,
    /// The number of features that both have, likewise. None of tensors where missing elements are propagated, and of packed rows
    /// where no code is missing.
    pub shared: Option<Matrix>,
}

/// The distances of the observations of `x` from one another, or from those of `y`. Waits.
///
/// # Shapes
/// `x`: (m, k), `y`: (n, k) of any element type -> (m, m) or (m, n); with [`Options::columns`], `x`: (k, m), `y`: (k, n).
///
/// # Errors
/// [`Error::Shape`] unless both have as many features; [`Error::WrongDevice`]; [`Error::NoF64`] for f64 on a device that computes in f32,
/// without [`Options::narrow`]; [`Error::Argument`] for an exponent that is not above 0, an
/// infinite element, a negative one or a sum of 0 where the [table](crate::distance#metrics) needs others, and a rule for missing
/// elements that the metric does not know; [`Error::Limit`] when one row does not fit a binding; [`Error::Budget`] when the distances
/// and one pair's sums do not fit the budgets of `run`; [`Error::OutOfMemory`]; [`Error::OutOfHostMemory`]; [`Error::Cancelled`].
///
/// # Cost
/// A few operations for each feature of each pair, a pair of `x` with itself once where the metric is symmetric. On the device, 12
/// bytes an observation (24 where it computes in f64) and two blocks of sums: up to 32 MiB each for each of the metric's terms, one to six; on the host as much, and 8
/// bytes a pair.
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

/// The distances of [`pairwise`], and for each pair the number of features that both have, unless missing elements are propagated.
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
    let job = Job::new(x, y, metric, options)?;
    let extents = job.extents();
    let results = extents.iter().fold(1 + u64::from(counted), |product, &n| product.saturating_mul(n as u64));
    let side = job.side(results, &run.memory)?;
    let mut distances = matrix(extents)?;
    let mut shared = counted.then(|| matrix(extents)).transpose()?;
    job.each_block(side, run, |block| {
        fill(block, block.distances.iter().copied(), &mut distances);
        if let Some(shared) = &mut shared {
            fill(block, block.shared(), shared);
        }
    })?;
    if job.is_lower() {
        [Some(&mut distances), shared.as_mut()].into_iter().flatten().for_each(mirror);
    }
    Ok(Distances { distances, shared })
}

/// The distances of the observations of `x` from one another, each pair once, in scipy's condensed order: those of the first
/// from the second and all after it, then those of the second, and so on. Otherwise as [`pairwise`].
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
    let job = Job::new(x, None, metric, options)?;
    let [m, _] = job.extents();
    let count = condensed_len(m);
    let side = job.side(count as u64, &run.memory)?;
    let mut distances = zeros(count)?;
    job.each_block(side, run, |block| {
        for (row, values) in block.rows.clone().zip(block.distances.chunks(block.columns.len())) {
            for (col, &value) in block.columns.clone().zip(values).take_while(|&(col, _)| col < row) {
                distances[condensed_place(m, col, row)] = value;
            }
        }
    })?;
    Ok(distances)
}

/// # Errors
/// [`Error::Argument`] unless the metric has a condensed form.
fn symmetric(metric: Metric) -> Result<()> {
    if metric.is_symmetric() {
        return Ok(());
    }
    let why = format_args!("{metric} is not symmetric: there is no condensed form");
    Err(Error::argument("distance", "metric", why))
}

/// Pairs of the condensed form of `m` observations.
fn condensed_len(m: usize) -> usize {
    m.saturating_mul(m.saturating_sub(1)) / 2
}

/// The place of a pair in the condensed form: the pairs in which an observation before `first` comes first are before it.
fn condensed_place(m: usize, first: usize, second: usize) -> usize {
    first * (2 * m - first - 1) / 2 + second - first - 1
}

/// # Errors
/// [`Error::OutOfHostMemory`].
fn zeros<T: Clone + Default>(count: usize) -> Result<Vec<T>> {
    let mut zeros = Vec::new();
    let requested = (count as u64).saturating_mul(size_of::<T>() as u64);
    let lacking = |_| Error::OutOfHostMemory { what: "distances".into(), requested };
    zeros.try_reserve_exact(count).map_err(lacking)?;
    zeros.resize(count, T::default());
    Ok(zeros)
}

/// # Errors
/// [`Error::OutOfHostMemory`].
fn matrix([m, n]: [usize; 2]) -> Result<Matrix> {
    Matrix::from_vec(zeros(m.saturating_mul(n))?, m, n)
}

/// Puts the values of a block in their place.
fn fill(block: &DistanceBlock, mut values: impl Iterator<Item = f64>, matrix: &mut Matrix) {
    let width = matrix.cols();
    let rows = matrix.data_mut().chunks_mut(width).skip(block.rows.start);
    for row in rows.take(block.rows.len()) {
        row[block.columns.clone()].iter_mut().zip(values.by_ref()).for_each(|(out, value)| *out = value);
    }
}

/// Copies the lower triangle to the upper one, in tiles that a cache holds.
fn mirror(square: &mut Matrix) {
    const TILE: usize = 64;
    let n = square.rows();
    let data = square.data_mut();
    for (row, col) in (0..n).step_by(TILE).flat_map(|row| (0..=row).step_by(TILE).map(move |col| (row, col)))
    {
        for i in row..n.min(row + TILE) {
            for j in col..i.min(col + TILE) {
                data[j * n + i] = data[i * n + j];
            }
        }
    }
}
