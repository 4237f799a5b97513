//! Stored arrays: Zarr arrays, .npy files, and NumPy arrays as they are.

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use numpy::{IntoPyArray, PyUntypedArrayMethods};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
};
use teatime::{
    ArrayFacts, ChunkedArray, DType, DecodedChunk, Device, Error, FetchedChunk, MissingChunk, Result, Run,
    StoredType, filter,
    store::{
        ArraySpec, ArrayWriter, Compression, Folder, MissingAsNan, Node, NpyArray, Storable, ZarrArray,
        ZarrFormat, join, local_path, open_storage, read_json, zip_archive,
    },
    stream::Swept,
};
use teatime_image::{ImageSpec, Multiscale, MultiscaleWriter, OmeVersion, Pyramid};

use crate::{
    array::{extents, host_parts, reshaped, sizes},
    call::{self, RunOptions, aside, call_on},
    dlpack::{TYPES, type_named, with_type},
    errors::exception,
    filter::{Options, TvArguments, tv_options},
    operand::{Array, Given, with_array},
};

/// Returns true for a .npy file: a local file that is no zip archive, or a URL with that ending.
fn is_npy(path: &Path) -> bool {
    match local_path(path) {
        Some(path) => path.is_file() && zip_archive(&path).is_none(),
        None => path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npy")),
    }
}

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
    /// The OME-Zarr image of which the array is a level, and the index of that level.
    image: Option<(Multiscale, usize)>,
}

/// The folder of a new Zarr array or image, its chunks, words of its job, true if one of this job is continued, and true if an image gets
/// smaller levels.
pub(crate) type Target = (PathBuf, Option<Vec<u64>>, String, bool, bool);

/// The number of boxes that were computed, and of those that were already written; how many times elements were read and chunks decoded;
/// and the bytes of host memory that were planned.
#[derive(IntoPyObject)]
pub(crate) struct Counts(u64, u64, f64, f64, Option<u64>);

impl From<&Swept> for Counts {
    fn from(swept: &Swept) -> Self {
        Self(swept.boxes, swept.found, swept.times_covered, swept.times_decoded, swept.memory.host)
    }
}

impl StoredArray {
    fn new(array: Arc<dyn ChunkedArray>) -> Self {
        let (shape, chunk) = (array.shape().to_vec(), array.chunk_shape().to_vec());
        Self { array, shape, chunk, shard: None, axes: Vec::new(), format: ZarrFormat::V3, image: None }
    }

    /// Takes a Zarr array, which is stored in version 3 of Zarr if `is_v3`, otherwise in version 2.
    fn of_zarr(opened: ZarrArray, is_v3: bool) -> Self {
        let (axes, shard) = (opened.dimension_names().to_vec(), opened.shard_shape());
        let opened: Arc<dyn ChunkedArray> = Arc::new(opened);
        // The sizes of tasks depend on the stored type.
        let marked = MissingAsNan::new(Arc::clone(&opened)).map(MissingAsNan::keeping_integers);
        let stored = Self::new(marked.map_or(opened, |marked| Arc::new(marked)));
        let axes = if axes.len() == stored.shape.len() { axes } else { Vec::new() };
        let format = if is_v3 { ZarrFormat::V3 } else { ZarrFormat::V2 };
        Self { shard, axes, format, ..stored }
    }

    /// Writes the result of an operation on the array to a target: a Zarr array, or, of an image, another image. `write` gets the function
    /// that begins the result of a job, or continues it, and writes its elements.
    pub(crate) fn write<R>(
        &self,
        dtype: StoredType,
        (out, chunks, words, resume, pyramid): Target,
        (device, run): (&Device, &Run),
        write: impl FnOnce(&mut dyn FnMut(&str) -> Result<ArrayWriter>) -> Result<R>,
    ) -> Result<R> {
        let mut image = None;
        let made = write(&mut |job| {
            let spec = self.result(dtype, chunks.clone()).job(format!("{job} {words}"));
            let Some((source, level)) = &self.image else {
                let begin = if resume { ArrayWriter::resume } else { ArrayWriter::create };
                return begin(Arc::new(Folder::new(&out).durable()), "", spec);
            };
            let mut spec = ImageSpec::like(source, *level, spec)?;
            if pyramid {
                spec.pyramid = Pyramid::USUAL;
            }
            let writer = if resume {
                MultiscaleWriter::resume(&out, spec)
            } else {
                MultiscaleWriter::create(&out, spec)
            };
            image.insert(writer?).base()
        })?;
        image.map_or(Ok(()), |image| image.finish(device, run))?;
        Ok(made)
    }

    /// Describes an array of results with the axes and the version of Zarr of this array, and, without `chunks`, its chunks and shards.
    fn result(&self, dtype: StoredType, chunks: Option<Vec<u64>>) -> ArraySpec {
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
        if self.format == ZarrFormat::V2 && self.image.is_none() { spec.fill(()) } else { spec }
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
    /// are NaN; in integers, they are an error. If `images`, a group has to be an OME-Zarr image, of which a level is opened, by default the
    /// largest.
    #[new]
    #[pyo3(signature = (path, array, fill, storage_options=None, *, images=false, level=None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        array: Option<String>,
        fill: bool,
        storage_options: Option<HashMap<String, String>>,
        images: bool,
        level: Option<usize>,
    ) -> PyResult<Self> {
        let missing = if fill { MissingChunk::Fill } else { MissingChunk::Error };
        let (name, options) = (array.unwrap_or_default(), call::storage_options(storage_options));
        let stored = aside(py, move || {
            if name.is_empty() && is_npy(&path) {
                return Ok(Self::new(match local_path(&path) {
                    Some(path) => Arc::new(NpyArray::open(path)?),
                    None => Arc::new(NpyArray::open_in(&open_storage(&path, &options)?, "")?),
                }));
            }
            let storage = open_storage(path, &options)?;
            if images && Node::at(&*storage, "")? == Node::Group {
                let (image, level) = (Multiscale::open_in(&storage, "")?, level.unwrap_or(0));
                let is_v3 = image.version() == OmeVersion::V05;
                let stored = Self::of_zarr(image.level(level, missing)?, is_v3);
                return Ok(Self { image: Some((image, level)), ..stored });
            }
            let is_v3 = read_json(&*storage, &join(&name, "zarr.json"))?.is_some();
            Ok(Self::of_zarr(ZarrArray::open_in(&storage, &name, missing)?, is_v3))
        })?;
        if level.is_some() && stored.image.is_none() {
            return Err(PyValueError::new_err("`level` is of OME-Zarr images, and an array is none"));
        }
        Ok(stored)
    }

    /// The path of the array within its image, if it is of one.
    #[getter]
    fn path_in_image(&self) -> Option<&str> {
        self.image.as_ref().map(|(image, level)| &*image.levels()[*level].path)
    }

    /// The axes along space of an image, and all axes of another array.
    #[getter]
    fn spatial_axes(&self) -> Vec<usize> {
        self.image.as_ref().map_or_else(|| (0..self.shape.len()).collect(), |(image, _)| image.spatial_axes())
    }

    /// Converts lengths in the units of an image's axes to pixels along its axes in space.
    fn in_pixels(&self, lengths: Vec<f64>) -> PyResult<Vec<f64>> {
        let Some((image, level)) = &self.image else {
            return Err(PyValueError::new_err("`physical` is of OME-Zarr images alone"));
        };
        let pixels = image.sigma_in_pixels(*level, &lengths).map_err(exception)?;
        Ok(image.spatial_axes().into_iter().map(|axis| pixels[axis]).collect())
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

    /// Writes the filtered array to a Zarr array, or of an image to another, of the type that `dtype` names.
    fn write_gaussian(
        &self,
        py: Python<'_>,
        options: Options,
        dtype: &str,
        out: Target,
        run: RunOptions,
    ) -> PyResult<Counts> {
        let device = run.device(py)?;
        let (sigma, options) = options.on(&device)?;
        let swept = call_on(py, &device, run, |device, run| {
            self.write(stored_type(dtype), out, (device, run), |begin| {
                filter::write_gaussian(&self.array, sigma, &options, device, run, begin)
            })
        })?;
        Ok(Counts::from(&swept))
    }

    /// Writes the denoised images to a Zarr array, or of an image to another, of the type that `dtype` names.
    fn write_denoise_tv(
        &self,
        py: Python<'_>,
        options: TvArguments,
        dtype: &str,
        out: Target,
        run: RunOptions,
    ) -> PyResult<Counts> {
        let (device, options) = (run.device(py)?, tv_options(options).narrow(dtype == "float32"));
        let made = call_on(py, &device, run, |device, run| {
            self.write(stored_type(dtype), out, (device, run), |begin| {
                filter::write_denoised_tv(&self.array, &options, device, run, begin)
            })
        })?;
        Ok(Counts::from(&made.swept))
    }
}

/// Returns the stored type with NumPy's name.
fn stored_type(name: &str) -> StoredType {
    with_type!(type_named(name), T => T::STORED)
}

/// The approximate number of bytes of a chunk.
const CHUNK: usize = 1 << 20;

/// Consecutive rows of a larger array, in C order in a NumPy array. The other rows are elsewhere.
pub(crate) struct Rows {
    /// The index of the first row that is here.
    first: usize,
    /// The elements of these rows, which `_owner` keeps in place. This reference is never handed out.
    bytes: &'static [u8],
    _owner: Py<PyAny>,
    dtype: StoredType,
    shape: Vec<u64>,
    chunk_shape: Vec<u64>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("shape", &self.shape).field("first", &self.first).finish_non_exhaustive()
    }
}

impl Rows {
    /// Wraps an array's rows as the rows from `first` on, of `rows` in all.
    /// Fails with `ValueError` if `rows` are fewer; `TypeError` for an array in a GPU's memory or not in C order.
    #[allow(unsafe_code, reason = "memory of Python's")]
    pub(crate) fn new<T: Storable + numpy::Element>(
        array: &Given<'_, T>,
        first: u64,
        rows: Option<u64>,
    ) -> PyResult<Self> {
        let Given::Host(array) = array else {
            return Err(PyTypeError::new_err("genotypes are in the host's memory"));
        };
        let (values, here) = host_parts(array)?;
        let mut shape = extents(array.shape());
        let count = here.first().copied().unwrap_or_default();
        let rows = rows.unwrap_or(count);
        if first.checked_add(count).is_none_or(|end| end > rows) {
            let why = format!("{count} rows from {first} on, of {rows}");
            return Err(PyValueError::new_err(why));
        }
        if let Some(extent) = shape.first_mut() {
            *extent = rows;
        }
        let row = size_of_val(values).checked_div(sizes(&here)[0]).unwrap_or(1);
        let mut chunk_shape: Vec<u64> = shape.iter().map(|&extent| extent.max(1)).collect();
        chunk_shape[0] = ((CHUNK / row.max(1)) as u64).clamp(1, chunk_shape[0]);
        // SAFETY: the elements are a slice, and the owner, which is kept alive, neither frees nor moves them. If Python writes to them
        // meanwhile, that is the caller's error, as with any NumPy function that releases the lock.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
        Ok(Self {
            first: sizes(&[first])[0],
            bytes,
            _owner: array.as_any().clone().unbind(),
            dtype: T::STORED,
            shape,
            chunk_shape,
        })
    }
}

impl ChunkedArray for Rows {
    fn facts(&self) -> ArrayFacts<'_> {
        ArrayFacts { name: "array", shape: &self.shape, chunk_shape: &self.chunk_shape, dtype: self.dtype }
    }

    fn decode(&self, index: &[u64], _: FetchedChunk) -> Result<DecodedChunk> {
        let [chunk, at] = [self.chunk_shape[0], index[0]].map(|n| sizes(&[n])[0]);
        let row = self.dtype.size() * sizes(&self.shape[1..]).iter().product::<usize>();
        let rows = at * chunk..(at + 1) * chunk;
        let held = self.first..self.first + self.bytes.len().checked_div(row).unwrap_or_default();
        let wanted = rows.start.max(held.start)..rows.end.min(held.end);
        if wanted.is_empty() && row > 0 {
            let why = format!("rows {rows:?}, and those here are {held:?}");
            return Err(Error::chunk(self.name(), index, why));
        }
        let within = |from: usize| (wanted.start - from) * row..(wanted.end - from) * row;
        let mut bytes = Vec::with_capacity(chunk * row);
        bytes.resize((wanted.start - rows.start) * row, 0);
        bytes.extend_from_slice(&self.bytes[within(held.start)]);
        bytes.resize(chunk * row, 0);
        Ok(DecodedChunk {
            stored: bytes.len() as u64,
            bytes,
            read: Default::default(),
            decode: Default::default(),
        })
    }
}

/// Converts two numbers from Python to a range.
pub(crate) fn range((start, end): (u64, u64)) -> Range<u64> {
    start..end
}
