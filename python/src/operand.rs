//! Arrays that operations take, on the host or in a GPU's memory, and their results, which are in the same place.

use half::f16;
use numpy::{Element as NumpyElement, PyReadonlyArrayDyn};
use pyo3::{exceptions::PyTypeError, prelude::*};
use teatime::{Device, Element, Result, Tensor, TensorView};

use crate::{
    array::{Read, host_parts},
    call::{RunOptions, call_on},
    cuda::{CudaArray, View},
};

/// An array of elements of one type, on the host or in a GPU's memory.
pub(crate) enum Given<'py, T: NumpyElement> {
    Host(PyReadonlyArrayDyn<'py, T>),
    Card(Bound<'py, CudaArray>),
}

impl<'py, T: Element + NumpyElement> FromPyObject<'_, 'py> for Given<'py, T> {
    type Error = PyErr;

    fn extract(array: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match array.cast::<CudaArray>() {
            Ok(card) if card.get().element() == T::DTYPE => Ok(Self::Card(card.to_owned())),
            Ok(_) => Err(PyTypeError::new_err("an array of another type")),
            Err(_) => Ok(Self::Host(array.extract()?)),
        }
    }
}

/// An array in C order, of any type that tensors support.
#[derive(FromPyObject)]
pub(crate) enum Array<'py> {
    F32(Given<'py, f32>),
    F64(Given<'py, f64>),
    F16(Given<'py, f16>),
    U8(Given<'py, u8>),
    I8(Given<'py, i8>),
    U16(Given<'py, u16>),
    I16(Given<'py, i16>),
    U32(Given<'py, u32>),
    I32(Given<'py, i32>),
}

/// An array in C order, of a type that can be decomposed.
#[derive(FromPyObject)]
pub(crate) enum Floats<'py> {
    F32(Given<'py, f32>),
    F64(Given<'py, f64>),
}

/// Evaluates an expression with the array of an [`Array`] or [`Floats`], whatever its type.
macro_rules! with_array {
    ($array:expr, $x:ident => $body:expr) => {
        $crate::operand::with_array!(@ Array $array, $x, $body; F32 F64 F16 U8 I8 U16 I16 U32 I32)
    };
    (Floats $array:expr, $x:ident => $body:expr) => {
        $crate::operand::with_array!(@ Floats $array, $x, $body; F32 F64)
    };
    (@ $kind:ident $array:expr, $x:ident, $body:expr; $($name:ident)*) => {
        match &$array {
            $($crate::operand::$kind::$name($x) => $body,)*
        }
    };
}
pub(crate) use with_array;

/// Returns the elements in C order, and the shape. Fails as [`host_parts`] does.
pub(crate) fn parts<'a, T: NumpyElement>(array: &'a Given<'_, T>) -> PyResult<Parts<'a, T>> {
    match array {
        Given::Host(array) => host_parts(array).map(|(values, shape)| Parts::Host(values, shape)),
        Given::Card(array) => Ok(Parts::Card(array.get())),
    }
}

/// The elements and the shape of an array.
pub(crate) enum Parts<'a, T> {
    Host(&'a [T], Vec<u64>),
    Card(&'a CudaArray),
}

impl<'a, T: Element> Parts<'a, T> {
    pub(crate) fn shape(&self) -> &[u64] {
        match self {
            Self::Host(_, shape) => shape,
            Self::Card(array) => array.extents(),
        }
    }

    /// Copies the elements to a tensor. Fails as [`view`](Self::view) does.
    pub(crate) fn tensor(&self, device: &Device) -> Result<Tensor<T>> {
        match self {
            Self::Host(values, shape) => Tensor::from_slice(device, values, shape),
            Self::Card(array) => array.view(device)?.try_clone(),
        }
    }

    /// Returns a tensor of the elements, for operations that only read it.
    /// Fails as [`TensorView::from_slice`] and [`TensorView::from_cuda_memory`] do.
    pub(crate) fn view(&self, device: &Device) -> Result<View<'a, T>> {
        match *self {
            Self::Host(values, ref shape) => {
                Ok(View { tensor: TensorView::from_slice(device, values, shape)?, is_on_card: false })
            }
            Self::Card(array) => array.view(device),
        }
    }
}

impl<T: Element> View<'_, T> {
    /// Returns an operation's result, in a GPU's memory if the elements are there, otherwise on the host.
    /// Fails as [`Read::from_tensor`] and [`CudaArray::from_tensor`] do.
    pub(crate) fn result<U: Element + NumpyElement>(&self, made: Tensor<U>) -> Result<Made<U>> {
        Ok(if self.is_on_card {
            Made::Card(CudaArray::from_tensor(made)?)
        } else {
            Made::Host(Read::from_tensor(made)?)
        })
    }
}

/// A result, in the same place as its operand.
pub(crate) enum Made<T: Element> {
    Host(Read<T>),
    Card(CudaArray),
}

impl<T: Element + NumpyElement> Made<T> {
    /// Converts the result to a Python array.
    pub(crate) fn array(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Self::Host(read) => read.array(py)?.into_any(),
            Self::Card(array) => Bound::new(py, array)?.into_any(),
        })
    }
}

/// Applies an operation to an array. The result is in the same place as the array. Fails as [`call_on`] does.
pub(crate) fn mapped<'py, T: Element + NumpyElement, U: Element + NumpyElement>(
    py: Python<'py>,
    x: &Given<'py, T>,
    device: &Device,
    run: RunOptions,
    operation: impl FnOnce(&Tensor<T>) -> Result<Tensor<U>> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let x = parts(x)?;
    let made = call_on(py, device, run, |device, _| {
        let x = x.view(device)?;
        x.result(operation(&x)?)
    })?;
    made.array(py)
}

/// Copies an array to a GPU's memory.
#[pyfunction]
pub(crate) fn to_cuda(py: Python<'_>, array: Array<'_>, run: RunOptions) -> PyResult<CudaArray> {
    let device = run.device(py)?;
    with_array!(array, array => {
        let values = parts(array)?;
        call_on(py, &device, run, |device, _| CudaArray::from_tensor(values.tensor(device)?))
    })
}
