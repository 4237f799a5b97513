//! Gaussians and their derivatives.

use super::{
    boxes::Filter,
    options::{GaussianOptions, PerAxis, Rounding},
    taps::{Gaussian, Taps},
};
use crate::{Cancel, DType, Element, Error, Result, Tensor};

/// The largest sigma for which an axis is not filtered.
const LEAST_SIGMA: f64 = 1e-15;
/// The highest order of a derivative.
const MOST_ORDER: u32 = 100;

/// Applies a Gaussian filter to an array, or computes a derivative of it, like `scipy.ndimage.gaussian_filter`.
///
/// `sigma` is the standard deviation in elements: one value for all filtered axes, or one for each.
///
/// # Shapes
/// `x`: one to five axes -> the same. The output type is f32, f64 or the type of `x`.
///
/// # Errors
/// [`Error::Shape`] for an array without axes or with more than five; [`Error::Argument`] for a sigma or `truncate` that is negative,
/// infinite or NaN, an order above 100, a number of values that differs from the number of filtered axes, an axis that does not exist or
/// is named twice, an output of another type, `preserve_range` set to false with an order above 0, and weights that are not finite;
/// [`Error::NoF64`] (see [the types](crate::filter#types)); [`Error::Limit`] if the array does not fit a binding of the device, and
/// neither do the rows that the weights of one output cover ([`write_gaussian`](super::write_gaussian) cuts arrays along every axis);
/// [`Error::OutOfMemory`].
///
/// # Cost
/// Per element and axis, r products and 2 r sums, where r is the radius, or the number of elements along the axis if that is less (with
/// [`Rounding::Scipy`] always the radius). On the cpu, each element is read and written about once for up to three axes of radii up to
/// 32, or two of radii up to 96; on GPUs, for two axes of radii up to about 24. For each further axis or larger radius, an array of f32
/// (or f64) is written and read again; on wgpu, also for outputs of less than 4 bytes whose rows do not end at a whole word.
///
/// ```
/// use teatime::{Device, Tensor, filter::{GaussianOptions, gaussian}};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[0.0f32, 0.0, 1.0, 0.0, 0.0], &[5])?;
/// let y: Tensor<f32> = gaussian(&x, 1.0, &GaussianOptions::default().radius(1))?;
/// let y = y.read()?;
/// assert!(y[0] == 0.0 && y[1] == y[3] && (y[2] - 0.45186).abs() < 1e-5);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn gaussian<T: Element, U: Element>(
    x: &Tensor<T>,
    sigma: impl Into<PerAxis<f64>>,
    options: &GaussianOptions,
) -> Result<Tensor<U>> {
    let mut out = Tensor::empty(x.device(), x.shape())?;
    gaussian_into(x, sigma, options, &mut out)?;
    Ok(out)
}

/// Computes [`gaussian`] into an existing array. Only enqueues the work, without waiting.
///
/// # Shapes
/// `x` and `out`: the same, one to five axes.
///
/// # Errors
/// The errors of [`gaussian`]; [`Error::Shape`] unless `out` has the shape of `x`; [`Error::WrongDevice`].
pub fn gaussian_into<T: Element, U: Element>(
    x: &Tensor<T>,
    sigma: impl Into<PerAxis<f64>>,
    options: &GaussianOptions,
    out: &mut Tensor<U>,
) -> Result<()> {
    let filter = gaussian_from::<T, U>("gaussian", x, &sigma.into(), options)?;
    filter.check_output(x, out)?;
    filter.run(x, out)
}

/// Makes the filter for a Gaussian, or a derivative, of a tensor.
pub(super) fn gaussian_from<T: Element, U: Element>(
    op: &'static str,
    x: &Tensor<T>,
    sigma: &PerAxis<f64>,
    options: &GaussianOptions,
) -> Result<Filter> {
    gaussian_of(op, x.shape(), U::DTYPE, image_scale(T::DTYPE), (sigma, options), x.device().cancel())
}

/// Makes the filter for a Gaussian, or a derivative, of an array of this shape, with an output of type `dtype`. `scale` is the factor
/// that skimage applies to the elements of an image, if any; `cancel` ends the computation of very many weights.
pub(super) fn gaussian_of(
    op: &'static str,
    shape: &[u64],
    dtype: DType,
    scale: Option<f64>,
    (sigma, options): (&PerAxis<f64>, &GaussianOptions),
    cancel: Option<&Cancel>,
) -> Result<Filter> {
    let axes = checked_axes(op, shape, options.axes.as_deref())?;
    let taps = gaussian_taps(op, (shape, &axes), sigma, options, cancel)?;
    let mut filter = Filter::new(op, shape, &axes, taps, options.rounding);
    filter.narrow = options.narrow;
    if !options.preserve_range {
        if options.order.expand(op, "order", axes.len())?.iter().any(|&order| order > 0) {
            let why = "false with an order above 0: that is for Gaussians alone";
            return Err(Error::argument(op, "preserve_range", why));
        }
        if let Some(scale) = scale {
            if ![DType::F32, DType::F64].contains(&dtype) {
                let why = format_args!("false, and an output of {:?}: it is f32 or f64", dtype);
                return Err(Error::argument(op, "preserve_range", why));
            }
            filter.rescale(scale);
        }
    }
    Ok(filter)
}

/// Returns the factor that skimage applies to the elements of an image, if any.
pub(super) fn image_scale(dtype: DType) -> Option<f64> {
    let most = match dtype {
        DType::F32 | DType::F16 | DType::BF16 | DType::F64 => return None,
        DType::U8 => u8::MAX.into(),
        DType::U16 => u16::MAX.into(),
        DType::U32 => u32::MAX.into(),
        DType::I8 => i8::MAX.into(),
        DType::I16 => i16::MAX.into(),
        DType::I32 => i32::MAX.into(),
    };
    Some(f64::recip(most))
}

/// Returns the filtered axes, after checking them.
pub(super) fn checked_axes(op: &'static str, shape: &[u64], axes: Option<&[usize]>) -> Result<Vec<usize>> {
    let count = shape.len();
    if !(1..=5).contains(&count) {
        return Err(Error::shape(op, "one to five axes", format_args!("shape {shape:?}")));
    }
    let axes = axes.map_or_else(|| (0..count).collect(), <[usize]>::to_vec);
    for (i, axis) in axes.iter().enumerate() {
        if *axis >= count {
            return Err(Error::argument(op, "axes", format_args!("{axis} of {count} axes")));
        }
        if axes[..i].contains(axis) {
            return Err(Error::argument(op, "axes", format_args!("{axis} stands twice")));
        }
    }
    Ok(axes)
}

/// Returns the taps along each of the filtered axes.
fn gaussian_taps(
    op: &'static str,
    (shape, axes): (&[u64], &[usize]),
    sigma: &PerAxis<f64>,
    options: &GaussianOptions,
    cancel: Option<&Cancel>,
) -> Result<Vec<Option<Taps>>> {
    let sigmas = sigma.expand(op, "sigma", axes.len())?;
    let orders = options.order.expand(op, "order", axes.len())?;
    let modes = options.mode.expand(op, "mode", axes.len())?;
    let radii = options.radius.as_ref().map(|radius| radius.expand(op, "radius", axes.len())).transpose()?;
    let truncate = options.truncate;
    if !(truncate.is_finite() && truncate >= 0.0) {
        let why = format_args!("{truncate}; it is a finite number from 0 on");
        return Err(Error::argument(op, "truncate", why));
    }
    let taps = |i: usize| {
        let (sigma, order, mode) = (sigmas[i], orders[i], modes[i]);
        if !(sigma.is_finite() && sigma >= 0.0) {
            let why = format_args!("{sigma}; it is a finite number from 0 on");
            return Err(Error::argument(op, "sigma", why));
        }
        if order > MOST_ORDER {
            return Err(Error::argument(op, "order", format_args!("{order}; it is at most {MOST_ORDER}")));
        }
        if sigma <= LEAST_SIGMA {
            return Ok(None);
        }
        let radius = radii.as_ref().map_or((truncate * sigma + 0.5).floor(), |radii| radii[i].into());
        let n = (options.rounding == Rounding::Once).then_some(shape[axes[i]]);
        Gaussian { sigma, order, radius }.taps(op, mode, n, cancel).map(Some)
    };
    (0..axes.len()).map(taps).collect()
}
