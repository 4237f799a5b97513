//! Singular values and vectors.

use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyArrayDyn, PyReadonlyArrayDyn};
use pyo3::{exceptions::PyValueError, prelude::*};
use teatime::{
    Error, Status,
    linalg::{LinearMap, Matrix, Pass, SignRule, Stop, SvdOptions, SvdSteps, transpose},
};

use crate::{
    array::{host_parts, matrix, sizes},
    call::{RunOptions, call, call_on},
    errors::exception,
    names::either,
    operand::{Floats, Given, parts, with_array},
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
        let signs = [
            ("stable", SignRule::Stable),
            ("dask", SignRule::DaskSum),
            ("u", SignRule::MaxAbsU),
            ("v", SignRule::MaxAbsV),
            ("none", SignRule::None),
        ];
        let sign = either("signs", &self.signs, signs)?;
        let stop = self.n_iter.map_or(Stop::Tolerance(self.tol), Stop::PowerIterations);
        let options = SvdOptions::default().stop(stop).max_passes(self.max_passes).seed(self.seed);
        Ok(options.sign(sign).oversamples(self.n_oversamples))
    }
}

/// Left vectors, singular values, right vectors.
type Found<'py> = (Bound<'py, PyAny>, Bound<'py, PyArray1<f64>>, Bound<'py, PyAny>);

/// U (m, r), values, Vᵀ (r, n).
#[pyfunction]
pub(crate) fn svd<'py>(py: Python<'py>, a: Floats<'py>, run: RunOptions) -> PyResult<Found<'py>> {
    let device = run.device(py)?;
    with_array!(Floats a, a => {
        let a = parts(a)?;
        let (u, s, v) = call_on(py, &device, run, |device, _| {
            let a = a.view(device)?;
            let found = teatime::linalg::svd(&a)?;
            Ok((a.result(found.u)?, found.s, a.result(transpose(&found.v)?)?))
        })?;
        Ok((u.array(py)?, s.into_pyarray(py), v.array(py)?))
    })
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
    run: RunOptions,
) -> PyResult<Truncated<'py>> {
    let (device, options) = (run.device(py)?, options.of()?);
    let unsigned = options.sign(SignRule::None);
    with_array!(Floats a, a => {
        let a = parts(a)?;
        let (u, v, found) = call_on(py, &device, run, |device, run| {
            let a = a.view(device)?;
            let mut found = teatime::linalg::truncated_svd(&a, k, &unsigned, run)?;
            found.set_signs(options.sign, transposed)?;
            let v = a.result(transpose(&found.v)?)?;
            Ok((a.result(found.u)?, v, (found.s, found.residuals, found.converged, found.passes)))
        })?;
        let (s, residuals, converged, passes) = found;
        let (s, residuals) = (s.into_pyarray(py), residuals.into_pyarray(py));
        Ok((u.array(py)?, s, v.array(py)?, residuals, converged, passes))
    })
}

/// `Aᵀ (A X)`. Products of blocks of the rows of A add up to the product of A.
#[pyfunction]
pub(crate) fn normal_product<'py>(
    py: Python<'py>,
    a: Given<'py, f32>,
    x: PyReadonlyArrayDyn<'py, f64>,
    run: RunOptions,
) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
    let device = run.device(py)?;
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

/// The iteration of the randomized decomposition of a matrix (m, n) whose products others make.
#[pyclass(module = "teatime._teatime", frozen)]
#[derive(Debug)]
pub(crate) struct Iteration {
    shape: [u64; 2],
    k: usize,
    options: SvdOptions,
    /// The iteration after some products. None before any, after an error, and while a thread is at it.
    reached: Mutex<Option<SvdSteps>>,
}

#[pymethods]
impl Iteration {
    #[new]
    fn new(shape: [u64; 2], k: usize, options: Options) -> PyResult<Self> {
        Ok(Self { shape, k, options: options.of()?, reached: Mutex::default() })
    }

    /// The next step after the products `Aᵀ (A X)` that are given, all so far in the order in which they were asked for. Those that it has
    /// had before it does not take again.
    fn step<'py>(
        &self,
        py: Python<'py>,
        made: Vec<PyReadonlyArrayDyn<'py, f64>>,
        run: RunOptions,
    ) -> PyResult<Step<'py>> {
        let reached = self.reached().take().filter(|steps| steps.given() as usize <= made.len());
        let had = reached.as_ref().map_or(0, SvdSteps::given) as usize;
        let new = made[had..].iter().map(as_matrix).collect::<PyResult<Vec<_>>>()?;
        let (steps, asked, found) = call(py, run, |run| {
            let fresh = || SvdSteps::new(self.shape, self.k, &self.options, run);
            let mut steps = reached.map_or_else(fresh, Ok)?;
            let mut asked = steps.next_input()?;
            for product in new {
                run.cancel.check()?;
                if asked.is_some() {
                    steps.give(&product)?;
                    asked = steps.next_input()?;
                }
            }
            if asked.is_none() && self.k > 0 && self.options.sign == SignRule::MaxAbsU {
                let why = "u: that takes another pass; stable, v, dask or none";
                return Err(Error::argument("pca", "signs", why));
            }
            let found = asked.is_none().then(|| steps.components()).transpose()?;
            Ok((steps, asked, found))
        })?;
        *self.reached() = Some(steps);
        let asked = asked.map(|asked| matrix(py, asked)).transpose()?;
        let found = found.map(|found| {
            let residuals = found.residuals.into_pyarray(py);
            Ok::<_, PyErr>((found.s.into_pyarray(py), matrix(py, found.v)?, residuals, found.converged))
        });
        Ok((asked, found.transpose()?))
    }
}

impl Iteration {
    fn reached(&self) -> MutexGuard<'_, Option<SvdSteps>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
