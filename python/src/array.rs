//! NumPy arrays as slices, and results as NumPy arrays.

use numpy::{
    Element as NumpyElement, IntoPyArray, PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn,
    PyUntypedArrayMethods, ndarray::ArrayViewMutD,
};
use pyo3::{exceptions::PyTypeError, prelude::*};
use teatime::{Element, HostValues, Result, Tensor, linalg::Matrix};

/// Returns the elements of an array on the host, in C order, and its shape.
/// Fails with `TypeError` for one that is not in C order or not aligned, which the functions of the package do not pass.
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

/// Converts NumPy's shape to a tensor's.
pub(crate) fn extents(shape: &[usize]) -> Vec<u64> {
    shape.iter().map(|&extent| extent as u64).collect()
}

/// Converts a tensor's shape to NumPy's.
#[allow(clippy::cast_possible_truncation, reason = "an extent of memory that is there")]
pub(crate) fn sizes(shape: &[u64]) -> Vec<usize> {
    shape.iter().map(|&extent| extent as usize).collect()
}

/// Converts a matrix to an array (rows, columns).
pub(crate) fn matrix(py: Python<'_>, matrix: Matrix) -> PyResult<Bound<'_, PyArrayDyn<f64>>> {
    let shape = [matrix.rows(), matrix.cols()];
    reshaped(matrix.into_vec().into_pyarray(py), &shape)
}

/// Two matrices as arrays. The second is optional.
pub(crate) type Pair<'py> = (Bound<'py, PyArrayDyn<f64>>, Option<Bound<'py, PyArrayDyn<f64>>>);

/// Converts a matrix over pairs, and the matrix of shared features of each pair if there is one.
pub(crate) fn pair(py: Python<'_>, distances: Matrix, shared: Option<Matrix>) -> PyResult<Pair<'_>> {
    Ok((matrix(py, distances)?, shared.map(|shared| matrix(py, shared)).transpose()?))
}

/// Reshapes values in C order to an array of this shape.
pub(crate) fn reshaped<'py, T: NumpyElement>(
    values: Bound<'py, PyArray1<T>>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    values.reshape(numpy::IxDyn(shape))
}

/// The elements and shape of a tensor, read to the host.
pub(crate) struct Read<T: Element> {
    values: HostValues<T>,
    shape: Vec<usize>,
}

/// The owner of an array's memory.
#[pyclass(module = "teatime._teatime", frozen)]
struct Owner {
    _values: Box<dyn Send + Sync>,
}

impl<T: Element + NumpyElement> Read<T> {
    /// Reads a tensor's elements, waiting for them. Fails as [`Tensor::into_values`] does.
    pub(crate) fn from_tensor(tensor: Tensor<T>) -> Result<Self> {
        let shape = sizes(tensor.shape());
        Ok(Self { values: tensor.into_values()?, shape })
    }

    /// Returns an array that shares the memory of the elements.
    #[allow(unsafe_code, reason = "memory of Python's")]
    pub(crate) fn array(self, py: Python<'_>) -> PyResult<Bound<'_, PyArrayDyn<T>>> {
        let Self { mut values, shape } = self;
        let (first, len) = (values.as_mut_ptr(), values.len());
        let owner = Bound::new(py, Owner { _values: Box::new(values) })?;
        // SAFETY: the elements have not moved, and belong only to the owner, which the array keeps alive.
        let elements = unsafe { std::slice::from_raw_parts_mut(first, len) };
        let elements = ArrayViewMutD::from_shape(shape, elements);
        let elements = elements.map_err(|error| PyTypeError::new_err(error.to_string()))?;
        // SAFETY: the owner keeps the elements in place.
        Ok(unsafe { PyArrayDyn::borrow_from_array(&elements, owner.into_any()) })
    }
}
