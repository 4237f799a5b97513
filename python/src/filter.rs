//! Gaussian filters, and total variation denoising.

use half::f16;
use pyo3::{exceptions::PyValueError, prelude::*};
use teatime::{
    Device, Element, Real, Result, Tensor,
    filter::{self, GaussianOptions, Mode, PerAxis, Rounding, TvOptions},
};

use crate::{
    call::RunOptions,
    errors::either,
    operand::{Array, Given, mapped, with_array},
};

/// The options of the filter, as Python passes them: one value for each filtered axis.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    axes: Vec<usize>,
    sigma: Vec<f64>,
    order: Vec<u32>,
    mode: Vec<String>,
    cval: f64,
    truncate: f64,
    radius: Option<Vec<u32>>,
    rounding: String,
    preserve_range: bool,
    /// True computes in f32; `None` means true on devices without f64.
    narrow: Option<bool>,
}

impl Options {
    /// Fails with `ValueError` for unknown names.
    pub(crate) fn on(self, device: &Device) -> PyResult<(PerAxis<f64>, GaussianOptions)> {
        let mode = |name: &String| match &**name {
            "reflect" | "grid-mirror" => Ok(Mode::Reflect),
            "constant" | "grid-constant" => Ok(Mode::Constant(self.cval)),
            "nearest" => Ok(Mode::Nearest),
            "mirror" => Ok(Mode::Mirror),
            "wrap" | "grid-wrap" => Ok(Mode::Wrap),
            other => Err(PyValueError::new_err(format!(
                "`mode` is reflect, constant, nearest, mirror or wrap, not {other:?}"
            ))),
        };
        let modes = self.mode.iter().map(mode).collect::<PyResult<Vec<_>>>()?;
        let rounding =
            either("rounding", &self.rounding, &[("once", Rounding::Once), ("scipy", Rounding::Scipy)])?;
        let mut options = GaussianOptions::default()
            .axes(self.axes)
            .order(self.order)
            .mode(modes)
            .truncate(self.truncate)
            .rounding(rounding)
            .preserve_range(self.preserve_range)
            .narrow(self.narrow.unwrap_or(!device.limits().f64));
        if let Some(radius) = self.radius {
            options = options.radius(radius);
        }
        Ok((self.sigma.into(), options))
    }
}

/// A Gaussian filter, or a combination of its derivatives along each axis.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Gaussian,
    Laplace,
    GradientMagnitude,
}

/// A filter: its kind, its standard deviations and its options.
struct Filter(Kind, PerAxis<f64>, GaussianOptions);

impl Filter {
    fn run<T: Element, U: Element>(self, x: &Tensor<T>) -> Result<Tensor<U>> {
        let Self(kind, sigma, options) = self;
        match kind {
            Kind::Gaussian => filter::gaussian(x, sigma, &options),
            Kind::Laplace => filter::gaussian_laplace(x, sigma, &options),
            Kind::GradientMagnitude => filter::gaussian_gradient_magnitude(x, sigma, &options),
        }
    }
}

/// Returns the filtered array, of the type that `out` names: `float32`, `float64`, or the type of `x`. `kind` is the end of scipy's name.
#[pyfunction]
pub(crate) fn gaussian<'py>(
    py: Python<'py>,
    x: Array<'py>,
    kind: &str,
    options: Options,
    out: &str,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let device = run.device(py)?;
    let kinds = [
        ("filter", Kind::Gaussian),
        ("laplace", Kind::Laplace),
        ("gradient_magnitude", Kind::GradientMagnitude),
    ];
    let (sigma, options) = options.on(&device)?;
    let filter = Filter(either("kind", kind, &kinds)?, sigma, options);
    with_array!(x, x => gaussian_of(py, x, filter, out, &device, run))
}

/// The axes of images, the weight, the end by energies, and the maximum number of iterations.
pub(crate) type TvArguments = (Vec<usize>, f64, f64, u64);

pub(crate) fn tv_options((axes, weight, eps, max_iterations): TvArguments) -> TvOptions {
    TvOptions::default().axes(axes).weight(weight).eps(eps).max_iterations(max_iterations)
}

/// Returns the images along the axes, denoised in f32 or f64 as `out` names it, and the number of iterations for each.
#[pyfunction]
pub(crate) fn denoise_tv<'py>(
    py: Python<'py>,
    x: Array<'py>,
    options: TvArguments,
    out: &str,
    run: RunOptions,
) -> PyResult<(Bound<'py, PyAny>, Vec<u64>)> {
    let (device, options) = (run.device(py)?, tv_options(options));
    match out {
        "float64" => with_array!(x, x => denoise_tv_in::<_, f64>(py, x, &options, &device, run)),
        _ => with_array!(x, x => denoise_tv_in::<_, f32>(py, x, &options, &device, run)),
    }
}

fn denoise_tv_in<'py, T: Element + numpy::Element, R: Real + numpy::Element>(
    py: Python<'py>,
    x: &Given<'py, T>,
    options: &TvOptions,
    device: &Device,
    run: RunOptions,
) -> PyResult<(Bound<'py, PyAny>, Vec<u64>)> {
    let mut iterations = Vec::new();
    let denoised = mapped(py, x, device, run, |x| {
        let (out, counts) = filter::denoise_tv::<T, R>(x, options)?;
        iterations = counts;
        Ok(out)
    })?;
    Ok((denoised, iterations))
}

fn gaussian_of<'py, T: Element + numpy::Element>(
    py: Python<'py>,
    x: &Given<'py, T>,
    filter: Filter,
    out: &str,
    device: &Device,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    match out {
        "float32" => mapped(py, x, device, run, |x| filter.run::<T, f32>(x)),
        "float64" => mapped(py, x, device, run, |x| filter.run::<T, f64>(x)),
        "float16" => mapped(py, x, device, run, |x| filter.run::<T, f16>(x)),
        _ => mapped(py, x, device, run, |x| filter.run::<T, T>(x)),
    }
}
