//! Arrays in the memory of a GPU: arrays of other libraries, and results.

use std::{any::Any, ops::Deref};

use numpy::IntoPyArray;
use pyo3::{
    exceptions::{PyBufferError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyTuple},
};
use teatime::{DType, Device, Element, Error, Result, Tensor, TensorView, cudarc::driver::CudaContext};

use crate::{
    array::{reshaped, sizes},
    call::{RunOptions, call_on},
    context::CurrentContext,
    device::Wanted,
    dlpack::{self, Description, TYPES, Taken, with_type},
    errors::exception,
};

/// An array in the memory of a GPU, in C order.
#[pyclass(module = "teatime", frozen)]
pub(crate) struct CudaArray {
    /// The owner of the memory: another library's array, or a tensor.
    keeps: Keeps,
    /// The name of the device that has the memory.
    #[pyo3(get)]
    device: String,
    address: u64,
    shape: Vec<u64>,
    dtype: DType,
    /// The handle of the CUDA stream that fills the array.
    stream: u64,
}

enum Keeps {
    Theirs { _array: Py<PyAny> },
    Lent { _array: Taken },
    Ours(Option<Box<dyn Any + Send + Sync>>),
}

/// The default stream, which waits for all streams that were not created as non-blocking.
const DEFAULT_STREAM: u64 = 1;

/// A tensor of an array's elements. If they are in a GPU's memory, dropping the view waits until nothing uses them.
pub(crate) struct View<'a, T: Element> {
    pub(crate) tensor: TensorView<'a, T>,
    pub(crate) is_on_card: bool,
}

impl<T: Element> Deref for View<'_, T> {
    type Target = Tensor<T>;

    fn deref(&self) -> &Tensor<T> {
        &self.tensor
    }
}

impl<T: Element> Drop for View<'_, T> {
    fn drop(&mut self) {
        if self.is_on_card {
            // Errors are ignored: the next call on the device reports them.
            let _ = self.tensor.device().synchronize();
        }
    }
}

impl CudaArray {
    /// Converts a tensor on a CUDA device, after waiting until it is filled.
    /// Fails as [`Tensor::cuda_address`] and [`Device::synchronize`] do.
    pub(crate) fn from_tensor<T: Element>(tensor: Tensor<T>) -> Result<Self> {
        tensor.device().synchronize()?;
        Ok(Self {
            device: tensor.device().info().name.clone(),
            address: if tensor.is_empty() { 0 } else { tensor.cuda_address()? },
            shape: tensor.shape().to_vec(),
            dtype: T::DTYPE,
            stream: DEFAULT_STREAM,
            keeps: Keeps::Ours(Some(Box::new(tensor))),
        })
    }

    /// Returns a view of the elements in their memory, which waits for the stream that fills them.
    #[allow(unsafe_code, reason = "another library says where its memory is")]
    pub(crate) fn view<T: Element>(&self, device: &Device) -> Result<View<'_, T>> {
        if device.info().name != self.device {
            return Err(Error::wrong_device("CudaArray", "array", &self.device, &device.info().name));
        }
        // SAFETY: the owner of the memory is kept alive and guarantees its address and shape. Dropping the view waits for the device, and this
        // borrow lasts until then. As with an array on the host, the caller guarantees that nothing writes to the memory meanwhile.
        let tensor = unsafe { TensorView::from_cuda_memory(device, self.address, &self.shape, self.stream)? };
        Ok(View { tensor, is_on_card: true })
    }

    pub(crate) fn extents(&self) -> &[u64] {
        &self.shape
    }

    pub(crate) fn element(&self) -> DType {
        self.dtype
    }

    /// Returns the index of the GPU.
    fn card(&self) -> i32 {
        self.device.trim_start_matches("cuda:").parse().unwrap_or_default()
    }

    /// Returns NumPy's code of the element type.
    fn code(&self) -> &'static str {
        TYPES.iter().find(|(dtype, ..)| *dtype == self.dtype).map_or("", |(_, code, _)| code)
    }
}

impl Drop for CudaArray {
    /// Waits for all streams, as CUDA's own free does: another library may have enqueued work on the memory.
    fn drop(&mut self) {
        let Keeps::Ours(tensor) = &mut self.keeps else { return };
        let (mut tensor, number) = (tensor.take(), usize::try_from(self.card()));
        let freed = Python::try_attach(|py| {
            py.detach(|| {
                let _kept = CurrentContext::of_thread();
                // Errors are ignored: the next call on the device reports them.
                let _ = number.ok().and_then(|number| CudaContext::new(number).ok()?.synchronize().ok());
                drop(tensor.take());
            });
        });
        if freed.is_none() {
            // The process is ending and Python is gone, so the memory is not freed.
            std::mem::forget(tensor);
        }
    }
}

#[pymethods]
impl CudaArray {
    /// Wraps an array that has `__cuda_array_interface__`, or else `__dlpack__`; `name` is the argument's name for messages.
    #[staticmethod]
    fn _of(array: Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        if !array.hasattr("__cuda_array_interface__")? {
            let (taken, description) = Taken::from_array(&array, name)?;
            check_order(name, &description.shape, description.strides.as_deref(), 1)?;
            let (device, keeps) = (format!("cuda:{}", description.card), Keeps::Lent { _array: taken });
            let Description { address, shape, dtype, .. } = description;
            return Ok(Self { keeps, device, address, shape, dtype, stream: DEFAULT_STREAM });
        }
        let interface = array.getattr("__cuda_array_interface__")?.cast_into::<PyDict>()?;
        let item = |key: &str| {
            let why =
                || PyTypeError::new_err(format!("`{name}`: its __cuda_array_interface__ has no {key:?}"));
            interface.get_item(key)?.ok_or_else(why)
        };
        let (shape, typestr): (Vec<u64>, String) = (item("shape")?.extract()?, item("typestr")?.extract()?);
        let (address, _): (u64, bool) = item("data")?.extract()?;
        let is_native = !typestr.starts_with('>');
        let known = TYPES.iter().find(|(_, code, _)| code.get(1..) == typestr.get(1..) && is_native);
        let Some(&(dtype, ..)) = known else {
            let why = format!(
                "`{name}` has the type {typestr}: of a GPU, floats and integers of up to 32 bits and float64 are taken"
            );
            return Err(PyTypeError::new_err(why));
        };
        let strides: Option<Vec<i64>> =
            interface.get_item("strides")?.map_or(Ok(None), |strides| strides.extract())?;
        check_order(name, &shape, strides.as_deref(), dtype.size())?;
        if interface.get_item("mask")?.is_some_and(|mask| !mask.is_none()) {
            return Err(PyTypeError::new_err(format!("`{name}` is a masked array")));
        }
        // The stream is None if there is nothing to wait for. The interface has no such entry before version 3.
        let stream: Option<u64> =
            interface.get_item("stream")?.map_or(Ok(None), |stream| stream.extract())?;
        let device = if shape.contains(&0) {
            "cuda:0".into()
        } else {
            let _kept = CurrentContext::kept();
            Device::name_of_cuda_memory(address).map_err(exception)?
        };
        let keeps = Keeps::Theirs { _array: array.unbind() };
        Ok(Self { keeps, device, address, shape, dtype, stream: stream.unwrap_or(DEFAULT_STREAM) })
    }

    /// Returns `DLPack`'s capsule. Our own arrays are already filled, so no stream has to wait.
    #[pyo3(signature = (**options))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let option = |key: &str| {
            options.and_then(|options| options.get_item(key).ok().flatten()).filter(|value| !value.is_none())
        };
        if option("copy").is_some_and(|copy| copy.is_truthy().unwrap_or(true)) {
            return Err(PyBufferError::new_err(
                "an array in a GPU's memory is handed over where it is, and not copied",
            ));
        }
        let array = slf.get();
        if option("dl_device")
            .map(|device| device.extract())
            .transpose()?
            .is_some_and(|device: (i32, i32)| device != array.__dlpack_device__())
        {
            return Err(PyBufferError::new_err("an array in a GPU's memory is handed over there"));
        }
        let description = Description {
            address: array.address,
            card: array.card(),
            shape: array.shape.clone(),
            strides: None,
            dtype: array.dtype,
        };
        dlpack::capsule(slf.py(), &description, slf.clone().into_any().unbind())
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::CUDA, self.card())
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("numpy")?.call_method1("dtype", (self.code(),))
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", self.code())?;
        interface.set_item("data", (self.address, false))?;
        interface.set_item("version", 3)?;
        interface.set_item("strides", py.None())?;
        let waits = !matches!(self.keeps, Keeps::Ours(_));
        interface.set_item("stream", waits.then_some(self.stream))?;
        Ok(interface)
    }

    /// The elements as a NumPy array.
    fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let device = Wanted::Name(self.device.clone()).open(py)?;
        with_type!(self.dtype, T => {
            let read = |device: &Device| self.view::<T>(device)?.read();
            let read = call_on(py, &device, RunOptions::default(), |device, _| read(device))?;
            Ok(reshaped(read.into_pyarray(py), &sizes(&self.shape))?.into_any())
        })
    }

    /// Returns the array itself if it has this type; other types are an error.
    #[pyo3(signature = (dtype, copy = true))]
    fn astype<'py>(
        slf: &Bound<'py, Self>,
        dtype: Bound<'py, PyAny>,
        copy: bool,
    ) -> PyResult<Bound<'py, Self>> {
        let _ = copy;
        let own = slf.get().dtype(slf.py())?;
        if own.eq(&dtype)? {
            return Ok(slf.clone());
        }
        let wanted = slf.py().import("numpy")?.call_method1("dtype", (dtype,))?;
        Err(PyTypeError::new_err(format!(
            "an array of {own} in a GPU's memory is not converted to {wanted} here: hand over one of that type"
        )))
    }

    /// Refuses the conversion by NumPy, which would make an array of one object.
    #[pyo3(signature = (*_arguments, **_options))]
    fn __array__(
        &self,
        _arguments: &Bound<'_, PyTuple>,
        _options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        Err(PyTypeError::new_err("an array in the memory of a GPU: get() gives NumPy's"))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("teatime.CudaArray({}, {}, {:?})", self.shape(py)?.repr()?, self.dtype(py)?, self.device))
    }
}

/// Fails with `ValueError` for strides, in units in which an element has `size`, that are not those of C order.
fn check_order(name: &str, shape: &[u64], strides: Option<&[i64]>, size: u64) -> PyResult<()> {
    let mut expected = size;
    let fits = shape.contains(&0)
        || strides.unwrap_or_default().iter().zip(shape).rev().all(|(&stride, &extent)| {
            let fits = extent == 1 || u64::try_from(stride) == Ok(expected);
            expected = expected.saturating_mul(extent);
            fits
        });
    if fits {
        return Ok(());
    }
    let why = format!("`{name}` is not in C order, and its library is not known here: copy it to be so");
    Err(PyValueError::new_err(why))
}
