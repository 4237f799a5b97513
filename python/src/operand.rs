//! Arrays that operations take, on the host or in a GPU's memory, and their results, which are where the operand was.

use std::ops::Deref;

use numpy::{Element as NumpyElement, PyReadonlyArrayDyn};
use pyo3::{exceptions::PyTypeError, prelude::*};
use teatime::{Device, Element, Result, Tensor, TensorView};

use crate::{array::Read, cuda::CudaArray};

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

/// The elements of an array, and its extents.
pub(crate) enum Parts<'a, T> {
    Host(&'a [T], Vec<u64>),
    Card(&'a CudaArray),
}

impl<'a, T: Element> Parts<'a, T> {
    /// Extents.
    pub(crate) fn shape(&self) -> &[u64] {
        match self {
            Self::Host(_, shape) => shape,
            Self::Card(array) => array.extents(),
        }
    }

    /// A tensor of a copy of the elements.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub(crate) fn tensor(&self, device: &Device) -> Result<Tensor<T>> {
        match self {
            Self::Host(values, shape) => Tensor::from_slice(device, values, shape),
            Self::Card(array) => array.view(device)?.try_clone(),
        }
    }

    /// A tensor of the elements, for operations that read it.
    ///
    /// # Errors
    /// As [`TensorView::from_slice`] and [`TensorView::from_cuda_memory`].
    pub(crate) fn view(&self, device: &Device) -> Result<View<'a, T>> {
        match *self {
            Self::Host(values, ref shape) => {
                Ok(View { view: TensorView::from_slice(device, values, shape)?, wait: false })
            }
            Self::Card(array) => array.view(device),
        }
    }
}

/// A tensor of an array's elements. Where these are in a GPU's memory, it waits until nothing uses them as it is dropped.
pub(crate) struct View<'a, T: Element> {
    view: TensorView<'a, T>,
    wait: bool,
}

impl<T: Element> Deref for View<'_, T> {
    type Target = Tensor<T>;

    fn deref(&self) -> &Tensor<T> {
        &self.view
    }
}

impl<'a, T: Element> View<'a, T> {
    /// Of elements in a GPU's memory.
    pub(crate) fn on_card(view: TensorView<'a, T>) -> Self {
        Self { view, wait: true }
    }

    /// What an operation made of it: on the host, unless the elements are in a GPU's memory.
    ///
    /// # Errors
    /// As [`Read::of`] and [`CudaArray::of`].
    pub(crate) fn result<U: Element + NumpyElement>(&self, made: Tensor<U>) -> Result<Made<U>> {
        Ok(if self.wait { Made::Card(CudaArray::of(made)?) } else { Made::Host(Read::of(made)?) })
    }
}

impl<T: Element> Drop for View<'_, T> {
    fn drop(&mut self) {
        if self.wait {
            // There is no caller to tell; the next call on the device does.
            let _ = self.view.device().synchronize();
        }
    }
}

/// A result, where its operand was.
pub(crate) enum Made<T: Element> {
    Host(Read<T>),
    Card(CudaArray),
}

impl<T: Element + NumpyElement> Made<T> {
    /// As Python has it.
    pub(crate) fn array(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Self::Host(read) => read.array(py)?.into_any(),
            Self::Card(array) => Bound::new(py, array)?.into_any(),
        })
    }
}
