//! Singular values and vectors.

use std::cell::{Cell, RefCell};

use numpy::{Element as NumpyElement, IntoPyArray, PyArray1, PyArrayDyn, PyReadonlyArrayDyn};
use pyo3::{exceptions::PyValueError, prelude::*};
use teatime::{
    Device, Error, Real, Result, Status,
    linalg::{LinearMap, Matrix, Pass, SignRule, Stop, SvdOptions, randomized_svd, transpose},
};

use crate::{
    array::{host_parts, matrix, sizes},
    call::{RunOptions, call, call_on, exception},
    device::Wanted,
    operand::{Floats, Given, parts},
};

/// The options of the iteration, as Python has them.
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
type Found<'py> = (Bound<'py, PyAny>, Bound<'py, PyArray1<f64>>, Bound<'py, PyAny>);

/// U (m, r), values, Vᵀ (r, n).
#[pyfunction]
pub(crate) fn svd<'py>(
    py: Python<'py>,
    a: Floats<'py>,
    device: Wanted,
    run: RunOptions,
) -> PyResult<Found<'py>> {
    let device = device.open(py)?;
    match &a {
        Floats::F32(a) => svd_of(py, a, &device, run),
        Floats::F64(a) => svd_of(py, a, &device, run),
    }
}

fn svd_of<'py, R: Real + NumpyElement>(
    py: Python<'py>,
    a: &Given<'py, R>,
    device: &Device,
    run: RunOptions,
) -> PyResult<Found<'py>> {
    let a = parts(a)?;
    let (u, s, v) = call_on(py, device, run, |device, _| {
        let a = a.view(device)?;
        let found = teatime::linalg::svd(&a)?;
        Ok((a.result(found.u)?, found.s, a.result(transpose(&found.v)?)?))
    })?;
    Ok((u.array(py)?, s.into_pyarray(py), v.array(py)?))
}

/// The results of [`truncated_svd`].
type Truncated<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyAny>,
    Bound<'py, PyArray1<f64>>,
    Vec<bool>,
    u32,
);

/// U (m, k), values, Vᵀ (k, n), residuals, whether each converged, passes. Signs are those of `aᵀ` where `a` is the `transposed`.
#[pyfunction]
pub(crate) fn truncated_svd<'py>(
    py: Python<'py>,
    a: Floats<'py>,
    k: usize,
    options: Options,
    transposed: bool,
    device: Wanted,
    run: RunOptions,
) -> PyResult<Truncated<'py>> {
    let (device, options) = (device.open(py)?, options.of()?);
    match &a {
        Floats::F32(a) => truncated_of(py, a, (k, options, transposed), &device, run),
        Floats::F64(a) => truncated_of(py, a, (k, options, transposed), &device, run),
    }
}

fn truncated_of<'py, R: Real + NumpyElement>(
    py: Python<'py>,
    a: &Given<'py, R>,
    (k, options, transposed): (usize, SvdOptions, bool),
    device: &Device,
    run: RunOptions,
) -> PyResult<Truncated<'py>> {
    let a = parts(a)?;
    let (u, s, v, residuals, converged, passes) = call_on(py, device, run, |device, run| {
        let a = a.view(device)?;
        let rule = options.sign;
        let mut found = teatime::linalg::truncated_svd(&a, k, &options.sign(SignRule::None), run)?;
        found.set_signs(rule, transposed)?;
        let v = a.result(transpose(&found.v)?)?;
        Ok((a.result(found.u)?, found.s, v, found.residuals, found.converged, found.passes))
    })?;
    let (s, residuals) = (s.into_pyarray(py), residuals.into_pyarray(py));
    Ok((u.array(py)?, s, v.array(py)?, residuals, converged, passes))
}

/// `Aᵀ (A X)`: of blocks of rows these add up to that of all.
#[pyfunction]
pub(crate) fn normal_product<'py>(
    py: Python<'py>,
    a: Given<'py, f32>,
    x: PyReadonlyArrayDyn<'py, f64>,
    device: Wanted,
    run: RunOptions,
) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
    let device = device.open(py)?;
    let (a, x) = (parts(&a)?, as_matrix(&x)?);
    let found = call_on(py, &device, run, |device, run| {
        let rows = a.shape()[0];
        a.view(device)?.apply_normal(&x, &Pass::new(run, Status::new(0, 1, rows)))
    })?;
    matrix(py, found)
}

/// A matrix of an array (rows, columns).
///
/// # Errors
/// `ValueError` for other axes.
pub(crate) fn as_matrix(x: &PyReadonlyArrayDyn<'_, f64>) -> PyResult<Matrix> {
    let (values, shape) = host_parts(x)?;
    let &[rows, cols] = &sizes(&shape)[..] else {
        return Err(PyValueError::new_err(format!("a matrix is wanted, not {shape:?}")));
    };
    Matrix::from_vec(values.to_vec(), rows, cols).map_err(exception)
}

/// The X (n, columns) that an iteration wants next, or its results: values, V (n, k), residuals, and whether all converged.
type Step<'py> = (
    Option<Bound<'py, PyArrayDyn<f64>>>,
    Option<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArrayDyn<f64>>, Bound<'py, PyArray1<f64>>, Vec<bool>)>,
);

/// The iteration of [`randomized_svd`] for a matrix (m, n) of which the products `Aᵀ (A X)` so far are given, in the order in which they
/// were asked for: it is run over these, and says which X comes next.
#[pyfunction]
pub(crate) fn svd_step<'py>(
    py: Python<'py>,
    shape: [u64; 2],
    k: usize,
    options: Options,
    made: Vec<PyReadonlyArrayDyn<'py, f64>>,
    run: RunOptions,
) -> PyResult<Step<'py>> {
    let options = options.of()?;
    let made = made.iter().map(as_matrix).collect::<PyResult<Vec<_>>>()?;
    let (asked, found) = call(py, run, |run| {
        let replay = Replay { shape, made, next: Cell::new(0), asked: RefCell::new(None) };
        match (randomized_svd(&replay, k, &options, run), replay.asked.into_inner()) {
            (_, Some(asked)) => Ok((Some(asked), None)),
            (found, None) => Ok((None, Some(found?))),
        }
    })?;
    let asked = asked.map(|asked| matrix(py, asked)).transpose()?;
    let found = found.map(|found| {
        let residuals = found.residuals.into_pyarray(py);
        Ok::<_, PyErr>((found.s.into_pyarray(py), matrix(py, found.v)?, residuals, found.converged))
    });
    Ok((asked, found.transpose()?))
}

/// A matrix whose products were made before, but for the next one, which is asked for.
struct Replay {
    shape: [u64; 2],
    made: Vec<Matrix>,
    next: Cell<usize>,
    asked: RefCell<Option<Matrix>>,
}

impl LinearMap for Replay {
    fn shape(&self) -> [u64; 2] {
        self.shape
    }

    fn apply_normal(&self, x: &Matrix, _: &Pass<'_>) -> Result<Matrix> {
        let at = self.next.replace(self.next.get() + 1);
        self.made.get(at).cloned().ok_or_else(|| {
            self.asked.replace(Some(x.clone()));
            Error::Cancelled
        })
    }

    fn apply(&self, _: &Matrix, _: &Pass<'_>, _: &mut dyn FnMut(u64, &Matrix) -> Result<()>) -> Result<()> {
        Err(Error::argument("pca", "signs", "u: that takes another pass; stable, v, dask or none"))
    }
}
