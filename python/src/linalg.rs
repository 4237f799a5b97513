//! Singular value decompositions.

use std::sync::Mutex;

use numpy::{IntoPyArray, PyArrayDyn, PyReadonlyArrayDyn};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyDict, PyTuple},
};
use teatime::{
    Error, Status,
    linalg::{LinearMap, Matrix, Pass, RightSvd, SignRule, Stop, SvdOptions, SvdSteps, transpose},
    stream::{Center, StoredSvdOptions, svd_stored},
    to_usize,
};

use crate::{
    array::{host_parts, matrix, sizes},
    call::{RunOptions, call, call_on},
    errors::{either, exception, locked},
    operand::{Floats, Given, parts, with_array},
    stored::StoredArray,
};

/// The options of the iteration, as Python passes them.
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
    /// Fails with `ValueError` for an unknown rule of signs.
    pub(crate) fn svd_options(self) -> PyResult<SvdOptions> {
        let signs = [
            ("stable", SignRule::Stable),
            ("dask", SignRule::DaskSum),
            ("u", SignRule::MaxAbsU),
            ("v", SignRule::MaxAbsV),
            ("none", SignRule::None),
        ];
        let sign = either("signs", &self.signs, &signs)?;
        let stop = self.n_iter.map_or(Stop::Tolerance(self.tol), Stop::PowerIterations);
        let options = SvdOptions::default().stop(stop).max_passes(self.max_passes).seed(self.seed);
        Ok(options.sign(sign).oversamples(self.n_oversamples))
    }
}

/// Returns U (m, r), the singular values, and Vᵀ (r, n).
#[pyfunction]
pub(crate) fn svd<'py>(py: Python<'py>, a: Floats<'py>, run: RunOptions) -> PyResult<Bound<'py, PyTuple>> {
    let device = run.device(py)?;
    with_array!(Floats a, a => {
        let a = parts(a)?;
        let (u, s, v) = call_on(py, &device, run, |device, _| {
            let a = a.view(device)?;
            let decomposition = teatime::linalg::svd(&a)?;
            Ok((a.result(decomposition.u)?, decomposition.s, a.result(transpose(&decomposition.v)?)?))
        })?;
        (u.array(py)?, s.into_pyarray(py), v.array(py)?).into_pyobject(py)
    })
}

/// Returns U (m, k), the values, Vᵀ (k, n), the residuals, whether each component converged, and the passes. If `transposed`, the signs are
/// those for `aᵀ`.
#[pyfunction]
pub(crate) fn truncated_svd<'py>(
    py: Python<'py>,
    a: Floats<'py>,
    k: usize,
    options: Options,
    transposed: bool,
    run: RunOptions,
) -> PyResult<Bound<'py, PyTuple>> {
    let (device, options) = (run.device(py)?, options.svd_options()?);
    let unsigned = options.sign(SignRule::None);
    with_array!(Floats a, a => {
        let a = parts(a)?;
        let (u, v, (s, residuals, converged, passes)) = call_on(py, &device, run, |device, run| {
            let a = a.view(device)?;
            let mut decomposition = teatime::linalg::truncated_svd(&a, k, &unsigned, run)?;
            decomposition.set_signs(options.sign, transposed)?;
            let v = a.result(transpose(&decomposition.v)?)?;
            let (residuals, converged) = (decomposition.residuals, decomposition.converged);
            Ok((a.result(decomposition.u)?, v, (decomposition.s, residuals, converged, decomposition.passes)))
        })?;
        let (s, residuals) = (s.into_pyarray(py), residuals.into_pyarray(py));
        (u.array(py)?, s, v.array(py)?, residuals, converged, passes).into_pyobject(py)
    })
}

/// Returns U (m, k), the values, and Vᵀ (k, n) of a stored matrix, whose columns are centred if `center`; and in a dict the residuals, whether
/// each component converged, the mean and variance of each column, and the sum of the squares of all elements. Without `narrow`, f64 is
/// computed in f32 on devices that do not compute in f64.
#[pyfunction]
pub(crate) fn stored_svd<'py>(
    py: Python<'py>,
    a: &StoredArray,
    k: usize,
    options: Options,
    center: bool,
    narrow: Option<bool>,
    run: RunOptions,
) -> PyResult<Bound<'py, PyTuple>> {
    let (device, svd) = (run.device(py)?, options.svd_options()?);
    let options = StoredSvdOptions::default()
        .center(if center { Center::Columns } else { Center::None })
        .narrow(narrow.unwrap_or(!device.limits().f64))
        .svd(svd.left(true));
    let (svd, u, v) = call_on(py, &device, run, |device, run| {
        let svd = svd_stored(vec![a.array.clone()], k, &options, device, run)?;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        svd.left(run, &mut |_, rows| {
            left.extend(rows.data());
            Ok(())
        })?;
        svd.right(run, &mut |_, rows| {
            right.extend(rows.data());
            Ok(())
        })?;
        let [m, n] = svd.shape.map(to_usize);
        Ok((svd, Matrix::from_vec(left, m, k)?, Matrix::from_vec(right, n, k)?.transposed()))
    })?;
    let more = PyDict::new(py);
    more.set_item("residuals", svd.residuals.into_pyarray(py))?;
    more.set_item("converged", svd.converged)?;
    more.set_item("means", svd.means.into_pyarray(py))?;
    more.set_item("variances", svd.variances.into_pyarray(py))?;
    more.set_item("total", svd.total)?;
    (matrix(py, u)?, svd.s.into_pyarray(py), matrix(py, v)?, more).into_pyobject(py)
}

/// Returns `Aᵀ (A X)`. The results of blocks of rows add up to the result of the whole matrix.
#[pyfunction]
pub(crate) fn normal_product<'py>(
    py: Python<'py>,
    a: Given<'py, f32>,
    x: PyReadonlyArrayDyn<'py, f64>,
    run: RunOptions,
) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
    let device = run.device(py)?;
    let (a, x) = (parts(&a)?, as_matrix(&x)?);
    let product = call_on(py, &device, run, |device, run| {
        let rows = a.shape()[0];
        a.view(device)?.apply_normal(&x, &Pass::new(run, Status::new(0, 1, rows)))
    })?;
    matrix(py, product)
}

/// Converts an array (rows, columns) to a matrix. Fails with `ValueError` unless the array has two axes.
pub(crate) fn as_matrix(x: &PyReadonlyArrayDyn<'_, f64>) -> PyResult<Matrix> {
    let (values, shape) = host_parts(x)?;
    let &[rows, cols] = &sizes(&shape)[..] else {
        return Err(PyValueError::new_err(format!("a matrix is wanted, not {shape:?}")));
    };
    Matrix::from_vec(values.to_vec(), rows, cols).map_err(exception)
}

/// The X (n, columns) that an iteration wants next, or its [`results`].
type Step<'py> = (Option<Bound<'py, PyArrayDyn<f64>>>, Option<Bound<'py, PyTuple>>);

/// The iteration of the randomized decomposition of a matrix (m, n). The caller computes the products with the matrix.
#[pyclass(module = "teatime._teatime", frozen)]
#[derive(Debug)]
pub(crate) struct Iteration {
    shape: [u64; 2],
    k: usize,
    options: SvdOptions,
    /// None before any product, after an error, and while a thread uses the iteration.
    reached: Mutex<Option<Reached>>,
}

/// A state of an iteration.
#[derive(Debug)]
enum Reached {
    /// The iteration after some products.
    Steps(Box<SvdSteps>),
    /// The components after this number of products. The basis is gone.
    Components(usize, RightSvd),
}

#[pymethods]
impl Iteration {
    #[new]
    fn new(shape: [u64; 2], k: usize, options: Options) -> PyResult<Self> {
        let options = options.svd_options()?;
        if k > 0 && options.sign == SignRule::MaxAbsU {
            let why = "u: that takes another pass; stable, v, dask or none";
            return Err(exception(Error::argument("pca", "signs", why)));
        }
        Ok(Self { shape, k, options, reached: Mutex::default() })
    }

    /// Returns the next step after `made`, all products `Aᵀ (A X)` so far in the order in which they were asked for. Those that the
    /// iteration has had already must be the same.
    fn step<'py>(
        &self,
        py: Python<'py>,
        made: Vec<PyReadonlyArrayDyn<'py, f64>>,
        run: RunOptions,
    ) -> PyResult<Step<'py>> {
        // The lock is released before the match: an arm takes it again.
        let taken = locked(&self.reached).take();
        let reached = match taken {
            Some(Reached::Components(products, svd)) if products <= made.len() => {
                let results = results(py, svd.clone())?;
                *locked(&self.reached) = Some(Reached::Components(products, svd));
                return Ok((None, Some(results)));
            }
            Some(Reached::Steps(steps)) if steps.given() as usize <= made.len() => Some(*steps),
            _ => None,
        };
        let had = reached.as_ref().map_or(0, SvdSteps::given) as usize;
        let new = made[had..].iter().map(as_matrix).collect::<PyResult<Vec<_>>>()?;
        let (steps, asked, svd) = call(py, run, |run| {
            let fresh = || SvdSteps::new(self.shape, self.k, &self.options, run);
            let mut steps = reached.map_or_else(fresh, Ok)?;
            for product in new {
                run.cancel.check()?;
                if !steps.is_done() {
                    steps.give(&product)?;
                }
            }
            let asked = steps.next_input()?;
            let svd = asked.is_none().then(|| steps.components()).transpose()?;
            Ok((steps, asked, svd))
        })?;
        *locked(&self.reached) = Some(match &svd {
            Some(svd) => Reached::Components(steps.given() as usize, svd.clone()),
            None => Reached::Steps(Box::new(steps)),
        });
        let asked = asked.map(|asked| matrix(py, asked)).transpose()?;
        Ok((asked, svd.map(|svd| results(py, svd)).transpose()?))
    }
}

/// Returns the values, V (n, k), the residuals, and whether each converged.
fn results(py: Python<'_>, svd: RightSvd) -> PyResult<Bound<'_, PyTuple>> {
    let residuals = svd.residuals.into_pyarray(py);
    (svd.s.into_pyarray(py), matrix(py, svd.v)?, residuals, svd.converged).into_pyobject(py)
}
