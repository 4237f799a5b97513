//! Stored arrays: Zarr arrays, .npy files, and NumPy arrays as they are.

use std::{borrow::Cow, collections::HashMap, path::PathBuf, sync::Arc};

use numpy::IntoPyArray;
use pyo3::{exceptions::PyValueError, prelude::*};
use teatime::{
    ChunkedArray, DType, MissingChunk, StoredType, filter,
    store::{
        ArraySpec, Compression, MissingAsNan, NpyArray, ZarrArray, ZarrFormat, join, local_path,
        open_storage, read_json, zip_archive,
    },
};

use crate::{
    array::{reshaped, sizes},
    call::{self, RunOptions, aside, call_on},
    dlpack::{TYPES, type_named, with_type},
    errors::exception,
    filter::Options,
    operand::{Array, with_array},
    rows::{Rows, range},
};

/// An array that is read in boxes. No elements have been read.
#[pyclass(module = "teatime._teatime", frozen)]
pub(crate) struct StoredArray {
    pub(crate) array: Arc<dyn ChunkedArray>,
    #[pyo3(get)]
    shape: Vec<u64>,
    /// The shape of a chunk.
    #[pyo3(get)]
    chunk: Vec<u64>,
    /// The shape of a shard, if the array has shards.
    shard: Option<Vec<u64>>,
    /// The names of the axes, if all have one.
    axes: Vec<String>,
    format: ZarrFormat,
}

impl StoredArray {
    fn new(array: Arc<dyn ChunkedArray>) -> Self {
        let (shape, chunk) = (array.shape().to_vec(), array.chunk_shape().to_vec());
        Self { array, shape, chunk, shard: None, axes: Vec::new(), format: ZarrFormat::V3 }
    }

    /// Describes an array of results of type `dtype`: it has the axes and the version of Zarr of this array, and also its chunks and shards
    /// unless `chunks` are given.
    pub(crate) fn result(&self, dtype: StoredType, chunks: Option<Vec<u64>>) -> ArraySpec {
        let whole = self.chunk.iter().zip(&self.shape).map(|(&chunk, &extent)| chunk.min(extent.max(1)));
        let shards = self.shard.clone().filter(|_| chunks.is_none());
        let of_array = || if self.shard.is_some() { self.chunk.clone() } else { whole.collect() };
        let chunks = chunks.unwrap_or_else(of_array);
        let mut spec = ArraySpec::new(dtype, &self.shape, &chunks)
            .shard_shape(shards)
            .format(self.format)
            .compression(Compression::Zstd { level: 1 });
        spec.axes.clone_from(&self.axes);
        // xarray takes the fill value of a version 2 array for a missing value.
        if self.format == ZarrFormat::V2 { spec.fill(()) } else { spec }
    }

    /// Returns the type as which operations read the elements: 64-bit integers as f64, and booleans as bytes.
    pub(crate) fn element(&self) -> DType {
        let dtype = self.array.dtype();
        if dtype == StoredType::Bool { DType::U8 } else { dtype.element().unwrap_or(DType::F64) }
    }
}

#[pymethods]
impl StoredArray {
    /// Opens a .npy file, or the Zarr array of that name in a folder or zip archive, or the store itself. A missing chunk has the fill
    /// value if `fill`; otherwise it is an error. The path may be a URL, with options. Elements that are missing by the array's attributes
    /// are NaN; in integers, they are an error.
    #[new]
    #[pyo3(signature = (path, array, fill, storage_options=None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        array: Option<String>,
        fill: bool,
        storage_options: Option<HashMap<String, String>>,
    ) -> PyResult<Self> {
        let path = local_path(&path).map_or_else(|| path.clone(), Cow::into_owned);
        if array.is_none() && path.is_file() && zip_archive(&path).is_none() {
            let opened = py.detach(|| NpyArray::open(path)).map_err(exception)?;
            return Ok(Self::new(Arc::new(opened)));
        }
        let missing = if fill { MissingChunk::Fill } else { MissingChunk::Error };
        let (name, options) = (array.unwrap_or_default(), call::storage_options(storage_options));
        let is_npy =
            name.is_empty() && path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npy"));
        if is_npy && local_path(&path).is_none() {
            let opened = aside(py, move || NpyArray::open_in(&open_storage(path, &options)?, ""))?;
            return Ok(Self::new(Arc::new(opened)));
        }
        let (opened, is_v3) = aside(py, move || {
            let storage = open_storage(path, &options)?;
            let is_v3 = read_json(&*storage, &join(&name, "zarr.json"))?.is_some();
            Ok((ZarrArray::open_in(&storage, &name, missing)?, is_v3))
        })?;
        let (axes, shard) = (opened.dimension_names().to_vec(), opened.shard_shape());
        let opened: Arc<dyn ChunkedArray> = Arc::new(opened);
        // The sizes of tasks depend on the stored type.
        let marked = MissingAsNan::new(Arc::clone(&opened)).map(MissingAsNan::keeping_integers);
        let stored = Self::new(marked.map_or(opened, |marked| Arc::new(marked)));
        let axes = if axes.len() == stored.shape.len() { axes } else { Vec::new() };
        let format = if is_v3 { ZarrFormat::V3 } else { ZarrFormat::V2 };
        Ok(Self { shard, axes, format, ..stored })
    }

    /// Wraps an array in the host's memory, without a copy.
    #[staticmethod]
    fn of_array(array: Array<'_>) -> PyResult<Self> {
        Ok(Self::new(Arc::new(with_array!(array, array => Rows::new(array, 0, None))?)))
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
        let (sigma, options) = options.on(&device)?;
        let shape: Vec<u64> = within.iter().map(|(start, end)| end - start).collect();
        let within: Vec<_> = within.into_iter().map(range).collect();
        with_type!(type_named(out), T => {
            let filtered = call_on(py, &device, run, |device, run| {
                filter::gaussian_box::<T>(&self.array, sigma, &options, &within, device, run)
            })?;
            Ok(reshaped(filtered.into_pyarray(py), &sizes(&shape))?.into_any())
        })
    }
}
