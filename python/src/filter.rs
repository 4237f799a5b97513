//! Gaussian filters.

use std::{ops::Range, path::PathBuf, sync::Arc};

use half::f16;
use numpy::IntoPyArray;
use pyo3::{exceptions::PyValueError, prelude::*};
use teatime::{
    ChunkedArray, DType, Device, Element, MissingChunk, Real, StoredType,
    filter::{self, GaussianOptions, Mode, PerAxis, Rounding, TvOptions},
    store::{MissingAsNan, ZarrArray},
};

use crate::{
    array::{reshaped, sizes},
    call::{RunOptions, call_on},
    dlpack::{TYPES, with_type},
    errors::exception,
    names::either,
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
    /// # Errors
    /// `ValueError` for unknown names.
    fn on(self, device: &Device) -> PyResult<(PerAxis<f64>, GaussianOptions)> {
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
            either("rounding", &self.rounding, [("once", Rounding::Once), ("scipy", Rounding::Scipy)])?;
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

/// Returns the filtered array, of the type that `out` names: `float32`, `float64`, or the type of `x`.
#[pyfunction]
pub(crate) fn gaussian<'py>(
    py: Python<'py>,
    x: Array<'py>,
    options: Options,
    out: &str,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let device = run.device(py)?;
    let how = options.on(&device)?;
    with_array!(x, x => gaussian_of(py, x, how, out, &device, run))
}

/// Returns the images along the axes, denoised in f32 or f64 as `out` names it, and the number of iterations for each.
#[pyfunction]
pub(crate) fn denoise_tv<'py>(
    py: Python<'py>,
    x: Array<'py>,
    (axes, weight, eps, max_iterations): (Vec<usize>, f64, f64, u64),
    out: &str,
    run: RunOptions,
) -> PyResult<(Bound<'py, PyAny>, Vec<u64>)> {
    let device = run.device(py)?;
    let options = TvOptions::default().axes(axes).weight(weight).eps(eps).max_iterations(max_iterations);
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
    (sigma, options): (PerAxis<f64>, GaussianOptions),
    out: &str,
    device: &Device,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    match out {
        "float32" => mapped(py, x, device, run, |x| filter::gaussian::<T, f32>(x, sigma, &options)),
        "float64" => mapped(py, x, device, run, |x| filter::gaussian::<T, f64>(x, sigma, &options)),
        "float16" => mapped(py, x, device, run, |x| filter::gaussian::<T, f16>(x, sigma, &options)),
        _ => mapped(py, x, device, run, |x| filter::gaussian::<T, T>(x, sigma, &options)),
    }
}

/// An array of a Zarr store. No elements have been read.
#[pyclass(module = "teatime._teatime", frozen)]
pub(crate) struct StoredArray {
    array: Arc<dyn ChunkedArray>,
    #[pyo3(get)]
    shape: Vec<u64>,
    /// The shape of a chunk.
    #[pyo3(get)]
    chunk: Vec<u64>,
}

#[pymethods]
impl StoredArray {
    /// Opens the array of that name in a folder, or the folder itself. A missing chunk has the fill value if `fill`; otherwise it is an error.
    /// Elements that are missing by the array's attributes are NaN; in integers, they are an error.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, array: Option<String>, fill: bool) -> PyResult<Self> {
        let missing = if fill { MissingChunk::Fill } else { MissingChunk::Error };
        let opened = py.detach(|| ZarrArray::open(path, array.as_deref().unwrap_or_default(), missing));
        let opened: Arc<dyn ChunkedArray> = Arc::new(opened.map_err(exception)?);
        // The sizes of tasks depend on the stored type.
        let marked = MissingAsNan::new(Arc::clone(&opened)).map(MissingAsNan::keeping_integers);
        let array = marked.map_or(opened, |marked| Arc::new(marked));
        Ok(Self { shape: array.shape().to_vec(), chunk: array.chunk_shape().to_vec(), array })
    }

    /// NumPy's name of the element type.
    #[getter]
    fn dtype(&self) -> PyResult<&'static str> {
        let dtype = self.array.dtype();
        let known = TYPES.iter().find(|(held, ..)| Some(*held) == dtype.element());
        match (dtype, known) {
            (StoredType::Bool, _) => Ok("bool"),
            (StoredType::I64, _) => Ok("int64"),
            (StoredType::U64, _) => Ok("uint64"),
            (_, Some((.., name))) => Ok(name),
            _ => Err(PyValueError::new_err(format!("an array of {dtype:?} has no type in NumPy"))),
        }
    }

    /// Returns a box of the filtered array, of the type that `out` names.
    fn gaussian<'py>(
        &self,
        py: Python<'py>,
        within: Vec<(u64, u64)>,
        options: Options,
        out: &str,
        run: RunOptions,
    ) -> PyResult<Bound<'py, PyAny>> {
        let device = run.device(py)?;
        let how = options.on(&device)?;
        let within: Vec<Range<u64>> = within.into_iter().map(|(start, end)| start..end).collect();
        let shape: Vec<u64> = within.iter().map(|range| range.end - range.start).collect();
        let dtype = TYPES.iter().find(|(.., name)| *name == out).map_or(DType::F64, |(dtype, ..)| *dtype);
        with_type!(dtype, T => {
            let (sigma, options) = how;
            let filtered = call_on(py, &device, run, |device, run| {
                filter::gaussian_box::<T>(&self.array, sigma, &options, &within, device, run)
            })?;
            Ok(reshaped(filtered.into_pyarray(py), &sizes(&shape))?.into_any())
        })
    }
}
