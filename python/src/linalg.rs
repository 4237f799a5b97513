//! Singular values and vectors.

use numpy::{IntoPyArray, PyArray1, PyArrayDyn, PyReadonlyArrayDyn};
use pyo3::{exceptions::PyValueError, prelude::*};
use teatime::{
    Tensor,
    linalg::{SignRule, Stop, SvdOptions},
};

use crate::{
    array::{Read, matrix, parts},
    call::{Told, call},
    device::Wanted,
};

/// What the iteration is told, as Python has it.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    n_oversamples: Option<usize>,
    n_iter: Option<u32>,
    tol: f64,
    max_passes: u32,
    seed: u64,
    signs: String,
}

impl Options {
    /// # Errors
    /// `ValueError` for a rule of signs that there is not.
    pub(crate) fn of(self) -> PyResult<SvdOptions> {
        let sign = match &*self.signs {
            "stable" => SignRule::Stable,
            "dask" => SignRule::DaskSum,
            "u" => SignRule::MaxAbsU,
            "v" => SignRule::MaxAbsV,
            "none" => SignRule::None,
            other => {
                let why = format!("`signs` is stable, dask, u, v or none, not {other:?}");
                return Err(PyValueError::new_err(why));
            }
        };
        let stop = self.n_iter.map_or(Stop::Tolerance(self.tol), Stop::PowerIterations);
        let options = SvdOptions::default().stop(stop).max_passes(self.max_passes).seed(self.seed);
        Ok(options.sign(sign).oversamples(self.n_oversamples))
    }
}

/// Left vectors, singular values, right vectors.
type Found<'py> = (Bound<'py, PyArrayDyn<f32>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArrayDyn<f32>>);

/// U (m, r), values, V (n, r).
#[pyfunction]
pub(crate) fn svd<'py>(
    py: Python<'py>,
    a: PyReadonlyArrayDyn<'py, f32>,
    device: Wanted,
    told: Told,
) -> PyResult<Found<'py>> {
    let device = device.open(py)?;
    let (values, shape) = parts(&a)?;
    let (u, s, v) = call(py, told, |_| {
        let found = teatime::linalg::svd(&Tensor::from_slice(&device, values, &shape)?)?;
        Ok((Read::of(&found.u)?, found.s, Read::of(&found.v)?))
    })?;
    Ok((u.array(py)?, s.into_pyarray(py), v.array(py)?))
}

/// What [`truncated_svd`] gives: U (m, k), values, V (n, k), residuals, passes.
type Truncated<'py> = (
    Bound<'py, PyArrayDyn<f32>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArrayDyn<f64>>,
    Bound<'py, PyArray1<f64>>,
    bool,
    u32,
);

/// U (m, k), values, V (n, k), residuals, whether all converged, passes.
#[pyfunction]
pub(crate) fn truncated_svd<'py>(
    py: Python<'py>,
    a: PyReadonlyArrayDyn<'py, f32>,
    k: usize,
    options: Options,
    device: Wanted,
    told: Told,
) -> PyResult<Truncated<'py>> {
    let (device, options) = (device.open(py)?, options.of()?);
    let (values, shape) = parts(&a)?;
    let (u, found) = call(py, told, |run| {
        let a = Tensor::from_slice(&device, values, &shape)?;
        let found = teatime::linalg::truncated_svd(&a, k, &options, run)?;
        Ok((Read::of(&found.u)?, found))
    })?;
    let converged = found.is_converged();
    let (s, residuals) = (found.s.into_pyarray(py), found.residuals.into_pyarray(py));
    Ok((u.array(py)?, s, matrix(py, found.v)?, residuals, converged, found.passes))
}
