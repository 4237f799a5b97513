//! Gaussian filters.

use half::f16;
use numpy::PyReadonlyArrayDyn;
use pyo3::{exceptions::PyValueError, prelude::*};
use teatime::{
    Device, Element, Tensor,
    filter::{GaussianOptions, Mode, PerAxis, Rounding},
};

use crate::{
    array::{Array, Read, parts, with_array},
    call::{RunOptions, call},
    device::Wanted,
};

/// How the filter is applied, as Python has it: one value an axis that is filtered.
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
    narrow: bool,
}

impl Options {
    /// # Errors
    /// `ValueError` for names that there are not.
    fn of(self) -> PyResult<(PerAxis<f64>, GaussianOptions)> {
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
        let rounding = match &*self.rounding {
            "once" => Rounding::Once,
            "scipy" => Rounding::Scipy,
            other => {
                return Err(PyValueError::new_err(format!("`rounding` is once or scipy, not {other:?}")));
            }
        };
        let mut options = GaussianOptions::default()
            .axes(self.axes)
            .order(self.order)
            .mode(modes)
            .truncate(self.truncate)
            .rounding(rounding)
            .preserve_range(self.preserve_range)
            .narrow(self.narrow);
        if let Some(radius) = self.radius {
            options = options.radius(radius);
        }
        Ok((self.sigma.into(), options))
    }
}

/// The filtered array, of the type that `out` names: `float32`, `float64`, or that of `x`.
#[pyfunction]
pub(crate) fn gaussian<'py>(
    py: Python<'py>,
    x: Array<'py>,
    options: Options,
    out: &str,
    device: Wanted,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let (how, device) = (options.of()?, device.open(py)?);
    with_array!(x, x => gaussian_of(py, x, how, out, &device, run))
}

fn gaussian_of<'py, T: Element + numpy::Element>(
    py: Python<'py>,
    x: &PyReadonlyArrayDyn<'py, T>,
    how: (PerAxis<f64>, GaussianOptions),
    out: &str,
    device: &Device,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    match out {
        "float32" => filtered::<T, f32>(py, x, how, device, run),
        "float64" => filtered::<T, f64>(py, x, how, device, run),
        "float16" => filtered::<T, f16>(py, x, how, device, run),
        _ => filtered::<T, T>(py, x, how, device, run),
    }
}

fn filtered<'py, T: Element + numpy::Element, U: Element + numpy::Element>(
    py: Python<'py>,
    x: &PyReadonlyArrayDyn<'py, T>,
    (sigma, options): (PerAxis<f64>, GaussianOptions),
    device: &Device,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let (values, shape) = parts(x)?;
    let found = call(py, run, |_| {
        let x = Tensor::from_slice(device, values, &shape)?;
        Read::of(&teatime::filter::gaussian::<T, U>(&x, sigma, &options)?)
    })?;
    Ok(found.array(py)?.into_any())
}
