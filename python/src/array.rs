//! NumPy arrays as slices, and results as NumPy arrays.

use numpy::{
    Element as NumpyElement, IntoPyArray, PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn,
    PyUntypedArrayMethods, ndarray::ArrayViewMutD,
};
use pyo3::{exceptions::PyTypeError, prelude::*};
use teatime::{Element, HostValues, Result, Tensor, linalg::Matrix};

/// The elements of an array on the host, in C order, and its extents.
///
/// # Errors
/// `TypeError` for an array that is not in C order or not aligned: the package's functions hand over none.
pub(crate) fn host_parts<'a, T: NumpyElement>(
    array: &'a PyReadonlyArrayDyn<'_, T>,
) -> PyResult<(&'a [T], Vec<u64>)> {
    let refuse = || PyTypeError::new_err("an array that is not in C order, or not aligned");
    if !array.is_c_contiguous() {
        return Err(refuse());
    }
    let values = array.as_slice().map_err(|_| refuse())?;
    Ok((values, extents(array.shape())))
}

/// Extents as tensors have them.
pub(crate) fn extents(shape: &[usize]) -> Vec<u64> {
    shape.iter().map(|&extent| extent as u64).collect()
}

/// The extents of an axis of NumPy's.
#[allow(clippy::cast_possible_truncation, reason = "an extent of memory that is there")]
pub(crate) fn sizes(shape: &[u64]) -> Vec<usize> {
    shape.iter().map(|&extent| extent as usize).collect()
}

/// A matrix as an array (rows, columns).
pub(crate) fn matrix(py: Python<'_>, matrix: Matrix) -> PyResult<Bound<'_, PyArrayDyn<f64>>> {
    let shape = [matrix.rows(), matrix.cols()];
    reshaped(matrix.into_vec().into_pyarray(py), &shape)
}

/// Two matrices as arrays, the second if there is one.
pub(crate) type Pair<'py> = (Bound<'py, PyArrayDyn<f64>>, Option<Bound<'py, PyArrayDyn<f64>>>);

/// A matrix of samples, and of what each two share.
pub(crate) fn pair(py: Python<'_>, of: Matrix, shared: Option<Matrix>) -> PyResult<Pair<'_>> {
    Ok((matrix(py, of)?, shared.map(|shared| matrix(py, shared)).transpose()?))
}

/// Values in C order as an array of that shape.
pub(crate) fn reshaped<'py, T: NumpyElement>(
    values: Bound<'py, PyArray1<T>>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    values.reshape(numpy::IxDyn(shape))
}

/// A tensor's elements, and its extents.
pub(crate) struct Read<T: Element> {
    values: HostValues<T>,
    shape: Vec<usize>,
}

/// The owner of the memory of arrays.
#[pyclass(module = "teatime._teatime", frozen)]
struct Owner {
    _values: Box<dyn Send + Sync>,
}

impl<T: Element + NumpyElement> Read<T> {
    /// Waits.
    ///
    /// # Errors
    /// As [`Tensor::into_values`].
    pub(crate) fn from_tensor(tensor: Tensor<T>) -> Result<Self> {
        let shape = sizes(tensor.shape());
        Ok(Self { values: tensor.into_values()?, shape })
    }

    /// An array of the memory that the elements are in.
    #[allow(unsafe_code, reason = "memory of Python's")]
    pub(crate) fn array(self, py: Python<'_>) -> PyResult<Bound<'_, PyArrayDyn<T>>> {
        let Self { mut values, shape } = self;
        let (first, len) = (values.as_mut_ptr(), values.len());
        let owner = Bound::new(py, Owner { _values: Box::new(values) })?;
        // SAFETY: the elements are where they were, and belong to the owner alone, which the array keeps.
        let elements = unsafe { std::slice::from_raw_parts_mut(first, len) };
        let elements = ArrayViewMutD::from_shape(shape, elements);
        let elements = elements.map_err(|error| PyTypeError::new_err(error.to_string()))?;
        // SAFETY: as above.
        Ok(unsafe { PyArrayDyn::borrow_from_array(&elements, owner.into_any()) })
    }
}
