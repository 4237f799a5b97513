//! Filters that combine several Gaussians, and filters with a caller's own weights.

use super::{
    boxes::Filter,
    gaussian::{checked_axes, gaussian, gaussian_from},
    options::{GaussianOptions, Mode, PerAxis, Rounding, SeparableOptions},
    taps::Taps,
};
use crate::{Element, Error, Result, Tensor, kernels::correlate::Combine};

/// Filters an array by a caller's own weights along each axis, like successive calls of `scipy.ndimage.correlate1d` with origin 0.
///
/// Output i along an axis is the sum of `w[t] x[i + t - r]`, with 2 r + 1 weights w. As in scipy, weights that are symmetric or
/// antisymmetric within 2^-52 are treated as exactly so, and those on the left are used.
///
/// # Shapes
/// `x`: one to five axes -> the same. The output type is f32, f64 or the type of `x`.
///
/// # Errors
/// [`Error::Argument`] for an even number of weights, weights that are not finite, a number of values that differs from the number of
/// filtered axes, an axis that does not exist or is named twice, and an output of another type; [`Error::Shape`] for an array without
/// axes or with more than five; the other errors of [`gaussian`](super::gaussian()).
///
/// # Cost
/// The cost of [`gaussian`](super::gaussian()); weights without symmetry take twice the products.
///
/// ```
/// use teatime::{Device, Tensor, filter::{PerAxis, SeparableOptions, separable}};
/// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, 2.0, 4.0, 8.0], &[4])?;
/// // Differences of the elements on both sides; beyond the ends the array is reflected.
/// let y: Tensor<f32> = separable(&x, PerAxis::All(vec![-1.0, 0.0, 1.0]), &SeparableOptions::default())?;
/// assert_eq!(y.read()?, [1.0, 3.0, 6.0, 4.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn separable<T: Element, U: Element>(
    x: &Tensor<T>,
    weights: impl Into<PerAxis<Vec<f64>>>,
    options: &SeparableOptions,
) -> Result<Tensor<U>> {
    let op = "separable";
    let axes = checked_axes(op, x.shape(), options.axes.as_deref())?;
    let weights = weights.into().expand(op, "weights", axes.len())?;
    let modes = options.mode.expand(op, "mode", axes.len())?;
    let taps = weights.into_iter().zip(modes).map(|(weights, mode)| {
        if weights.len().is_multiple_of(2) {
            let why = format_args!("{} weights; their number is odd", weights.len());
            return Err(Error::argument(op, "weights", why));
        }
        if let Some(weight) = weights.iter().find(|weight| !weight.is_finite()) {
            return Err(Error::argument(op, "weights", format_args!("{weight}; they are finite numbers")));
        }
        Ok(Some(Taps::new(weights, mode.edge(), mode.constant())))
    });
    let mut filter = Filter::new(op, x.shape(), &axes, taps.collect::<Result<_>>()?, options.rounding);
    filter.narrow = options.narrow;
    let mut out = Tensor::empty(x.device(), x.shape())?;
    filter.check_output(x, &out)?;
    filter.run(x, &mut out)?;
    Ok(out)
}

/// Computes the Laplacian of the Gaussian of an array, the sum of its second derivatives along each axis, like
/// `scipy.ndimage.gaussian_laplace`.
///
/// As in scipy, the term of an axis uses that axis's mode beyond the ends of all axes, and without filtered axes the array is copied.
///
/// # Shapes
/// See [`gaussian`](super::gaussian()).
///
/// # Errors
/// The errors of [`gaussian`](super::gaussian()); [`Error::Argument`] for an `order`, which the function itself determines, for
/// [`Rounding::Scipy`], and if `preserve_range` is false.
///
/// # Cost
/// One Gaussian for each filtered axis, and, if the output's type differs from that of the sums, an array of the sums' type.
///
/// ```
/// use teatime::{
///     Device, Tensor,
///     filter::{GaussianOptions, difference_of_gaussians, gaussian_gradient_magnitude, gaussian_laplace},
/// };
/// // A ramp.
/// let values: Vec<f32> = (0..20).map(|i| 2.0 * i as f32).collect();
/// let x = Tensor::from_slice(&Device::best()?, &values, &[20])?;
/// let options = GaussianOptions::default();
/// let curvature: Tensor<f32> = gaussian_laplace(&x, 1.0, &options)?;
/// let slope: Tensor<f32> = gaussian_gradient_magnitude(&x, 1.0, &options)?;
/// let band: Tensor<f32> = difference_of_gaussians(&x, 1.0, 1.6, &options)?;
/// for (array, middle) in [(curvature, 0.0), (slope, 2.0), (band, 0.0)] {
///     assert!((array.read()?[10] - middle).abs() < 1e-2);
/// }
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn gaussian_laplace<T: Element, U: Element>(
    x: &Tensor<T>,
    sigma: impl Into<PerAxis<f64>>,
    options: &GaussianOptions,
) -> Result<Tensor<U>> {
    let op = "gaussian_laplace";
    derivatives(op, x, &sigma.into(), options, 2, Combine::Add)
}

/// Computes the gradient magnitude of the Gaussian of an array, the root of the sum of the squares of its derivatives along each axis,
/// like `scipy.ndimage.gaussian_gradient_magnitude`.
///
/// Modes, and calls without filtered axes, are handled as in [`gaussian_laplace`]. Axes that are not named are not filtered, as scipy
/// documents it; scipy 1.17 smooths along them, too.
///
/// # Shapes
/// See [`gaussian`](super::gaussian()).
///
/// # Errors
/// See [`gaussian_laplace`].
///
/// # Cost
/// See [`gaussian_laplace`].
pub fn gaussian_gradient_magnitude<T: Element, U: Element>(
    x: &Tensor<T>,
    sigma: impl Into<PerAxis<f64>>,
    options: &GaussianOptions,
) -> Result<Tensor<U>> {
    let op = "gaussian_gradient_magnitude";
    derivatives(op, x, &sigma.into(), options, 1, Combine::Length)
}

/// Subtracts a wider Gaussian of an array from a narrower one, like `skimage.filters.difference_of_gaussians`, with
/// [`GaussianOptions::skimage`].
///
/// `high` must be at least `low` along each axis. Skimage's default is 1.6 times `low`, which approximates the Laplacian of a Gaussian.
///
/// # Shapes
/// See [`gaussian`](super::gaussian()).
///
/// # Errors
/// The errors of [`gaussian`](super::gaussian()); [`Error::Argument`] for an `order`, for [`Rounding::Scipy`], and for a `high` below `low`.
///
/// # Cost
/// Two Gaussians, and, if the output's type differs from that of the sums, an array of the sums' type.
pub fn difference_of_gaussians<T: Element, U: Element>(
    x: &Tensor<T>,
    low: impl Into<PerAxis<f64>>,
    high: impl Into<PerAxis<f64>>,
    options: &GaussianOptions,
) -> Result<Tensor<U>> {
    let op = "difference_of_gaussians";
    let axes = checked_axes(op, x.shape(), options.axes.as_deref())?.len();
    refuse(op, axes, options)?;
    let low = low.into().expand(op, "low", axes)?;
    let high = high.into().expand(op, "high", axes)?;
    if let Some((low, high)) = low.iter().zip(&high).find(|(low, high)| high < low) {
        return Err(Error::argument(op, "high", format_args!("{high}, and the lower sigma is {low}")));
    }
    let filter = |sigma: Vec<f64>| gaussian_from::<T, U>(op, x, &sigma.into(), options);
    let [mut narrow, mut wide] = [filter(low)?, filter(high)?];
    wide.negate();
    for filter in [&mut narrow, &mut wide] {
        filter.combine = Combine::Add;
    }
    sum(x, &[narrow, wide])
}

/// Combines the outputs of one filter per axis, each a derivative of order `order` along its axis, and a Gaussian along the others.
fn derivatives<T: Element, U: Element>(
    op: &'static str,
    x: &Tensor<T>,
    sigma: &PerAxis<f64>,
    options: &GaussianOptions,
    order: u32,
    combine: Combine,
) -> Result<Tensor<U>> {
    let axes = checked_axes(op, x.shape(), options.axes.as_deref())?.len();
    refuse(op, axes, options)?;
    if !options.preserve_range {
        return Err(Error::argument(op, "preserve_range", "false, which is for Gaussians alone"));
    }
    if axes == 0 {
        return gaussian(x, sigma.clone(), options);
    }
    let modes = options.mode.expand(op, "mode", axes)?;
    let term = |(axis, mode): (usize, Mode)| {
        let orders = (0..axes).map(|other| if other == axis { order } else { 0 }).collect();
        let options = GaussianOptions { order: PerAxis::Each(orders), mode: mode.into(), ..options.clone() };
        Ok(Filter { combine, ..gaussian_from::<T, U>(op, x, sigma, &options)? })
    };
    let terms: Vec<Filter> = modes.into_iter().enumerate().map(term).collect::<Result<_>>()?;
    sum(x, &terms)
}

/// # Errors
/// [`Error::Argument`] for options that only a single Gaussian supports.
fn refuse(op: &'static str, axes: usize, options: &GaussianOptions) -> Result<()> {
    if options.order.expand(op, "order", axes)?.iter().any(|&order| order > 0) {
        return Err(Error::argument(op, "order", "above 0, which the filter itself gives"));
    }
    if options.rounding == Rounding::Scipy {
        let why = "after each axis: sums of several filters are rounded once";
        return Err(Error::argument(op, "rounding", why));
    }
    Ok(())
}

/// Returns the combined outputs of the filters, computed in the type of their sums.
fn sum<T: Element, U: Element>(x: &Tensor<T>, filters: &[Filter]) -> Result<Tensor<U>> {
    filters.iter().try_for_each(|filter| filter.check_type([T::DTYPE, U::DTYPE]))?;
    let wide = (T::DTYPE.is_wide() || U::DTYPE.is_wide()) && !filters.iter().any(|filter| filter.narrow);
    if wide { sum_in::<T, f64, U>(x, filters) } else { sum_in::<T, f32, U>(x, filters) }
}

fn sum_in<T: Element, R: Element, U: Element>(x: &Tensor<T>, filters: &[Filter]) -> Result<Tensor<U>> {
    let Some(filter) = filters.first() else { return Tensor::zeros(x.device(), x.shape()) };
    let mut sum = Tensor::<R>::zeros(x.device(), x.shape())?;
    for filter in filters {
        filter.run(x, &mut sum)?;
    }
    if R::DTYPE == U::DTYPE {
        return Ok(sum.cast());
    }
    let mut out = Tensor::empty(x.device(), x.shape())?;
    let plain = Filter::new(filter.op, x.shape(), &[], Vec::new(), Rounding::Once);
    Filter { narrow: filter.narrow, ..plain }.run(&sum, &mut out)?;
    Ok(out)
}
