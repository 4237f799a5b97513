//! A Python function on the boxes of an array that need not fit memory.

use std::{
    marker::PhantomData,
    sync::{Mutex, PoisonError},
};

use numpy::{Element as NumpyElement, IntoPyArray};
use pyo3::{exceptions::PyMemoryError, prelude::*};
use teatime::{
    Device, Element, Error, Needs, Result, Run, Tensor,
    store::Storable,
    stream::{Beyond, BoxOperation, Place, Sweep},
};

use crate::{
    array::{Read, reshaped, sizes},
    call::{RunOptions, call_on},
    cuda::CudaArray,
    dlpack::{type_named, with_type},
    errors::locked,
    operand::{Given, Made, Parts, parts},
    stored::{Counts, StoredArray, Target, range},
};

/// A function of a box, which gets an array, the ranges of the box without its halo, and the extents of the halo before it. Its result is
/// in C order, of the shape of the box without its halo.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Function {
    call: Py<PyAny>,
    /// The halo before and after a box along each axis.
    depth: Vec<[u64; 2]>,
    /// True for each axis whose halo continues at its other end.
    periodic: Vec<bool>,
    /// The number of elements by which the function makes a box longer along each axis.
    padding: Vec<u64>,
    /// The bytes that the function holds for each element of a box.
    held: u64,
    /// NumPy's name of the type of its results.
    dtype: String,
}

/// The function as an operation on boxes of elements of type `T`, for a result of elements of type `U`.
struct Typed<'a, T, U> {
    function: &'a Function,
    /// The exception that the function raised for the last box.
    raised: &'a Mutex<Option<PyErr>>,
    types: PhantomData<fn(T) -> U>,
}

impl<'a, T, U> Typed<'a, T, U> {
    fn new(function: &'a Function, raised: &'a Mutex<Option<PyErr>>) -> Self {
        Self { function, raised, types: PhantomData }
    }
}

impl<T: Element + NumpyElement, U: Element + NumpyElement> BoxOperation for Typed<'_, T, U> {
    type Input = T;
    type Output = U;

    fn halo(&self, axis: usize) -> [u64; 2] {
        self.function.depth[axis]
    }

    fn beyond(&self, axis: usize) -> Beyond {
        if self.function.periodic[axis] { Beyond::Wrap } else { Beyond::Clip }
    }

    fn needs(&self, shape: &[u64], _device: &Device) -> Needs {
        let padded = shape.iter().zip(&self.function.padding).map(|(extent, more)| extent + more);
        padded.fold(Needs::device(self.function.held), |needs, extent| needs * extent)
    }

    fn run(&self, x: &Tensor<T>, place: &Place, out: &mut Tensor<U>) -> Result<()> {
        *locked(self.raised) = None;
        let (device, copy) = (x.device(), x.try_clone()?);
        // The function may keep its argument, so it gets a copy.
        let x = match device.shares_host_memory() {
            true => Made::Host(Read::from_tensor(copy)?),
            false => Made::Card(CudaArray::from_tensor(copy)?),
        };
        let core: Vec<_> = place.core.iter().map(|range| (range.start, range.end)).collect();
        let called = Python::attach(|py| {
            let result = self.function.call.call1(py, (x.array(py)?, core, place.before.clone()))?;
            let result: Given<'_, U> = result.extract(py)?;
            let result = parts(&result)?;
            Ok(py.detach(|| put(&result, out)))
        });
        called.unwrap_or_else(|error| Err(self.ends_with(error)))
    }
}

impl<T, U> Typed<'_, T, U> {
    /// Keeps an exception of the function, and returns the error that ends the sweep, or makes boxes smaller if the device is full.
    fn ends_with(&self, raised: PyErr) -> Error {
        let is_full = Python::attach(|py| raised.is_instance_of::<PyMemoryError>(py));
        *locked(self.raised) = Some(raised);
        if is_full { Error::OutOfMemory { requested: 0, free: None } } else { Error::Cancelled }
    }
}

/// Copies a function's result to the output of a box.
fn put<U: Element>(result: &Parts<'_, U>, out: &mut Tensor<U>) -> Result<()> {
    match result {
        Parts::Host(values, _) => out.write(values),
        Parts::Card(array) => {
            *out = array.view(out.device())?.try_clone()?;
            Ok(())
        }
    }
}

/// Makes a sweep over an array. Fails with the exception that the function raised, or else those of [`call_on`].
fn swept<R: Send>(
    py: Python<'_>,
    array: &StoredArray,
    run: RunOptions,
    sweep: impl FnOnce(Sweep<'_>, (&Device, &Run), &Mutex<Option<PyErr>>) -> Result<R> + Send,
) -> PyResult<R> {
    let (device, raised) = (run.device(py)?, Mutex::default());
    let made = call_on(py, &device, run, |device: &Device, run: &Run| {
        sweep(Sweep::new(&array.array, device, run), (device, run), &raised)
    });
    made.map_err(|error| raised.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or(error))
}

/// Returns a box of the result of a function of an array.
#[pyfunction]
pub(crate) fn map_box<'py>(
    py: Python<'py>,
    array: &StoredArray,
    function: Function,
    within: Vec<(u64, u64)>,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let extents: Vec<u64> = within.iter().map(|(start, end)| end - start).collect();
    let within: Vec<_> = within.into_iter().map(range).collect();
    with_type!(type_named(&function.dtype), U => {
        let made = swept(py, array, run, |sweep, _, raised| {
            let sweep = sweep.within(&within)?;
            with_type!(array.element(), T => sweep.map_to_host(&Typed::<T, U>::new(&function, raised)))
        })?;
        Ok(reshaped(made.into_pyarray(py), &sizes(&extents))?.into_any())
    })
}

/// Writes the result of a function of an array to a Zarr array, or of an image to another image.
#[pyfunction]
pub(crate) fn map_to_zarr(
    py: Python<'_>,
    array: &StoredArray,
    function: Function,
    out: Target,
    run: RunOptions,
) -> PyResult<Counts> {
    let made = swept(py, array, run, |sweep, on, raised| {
        with_type!(type_named(&function.dtype), U => array.write(U::STORED, out, on, |begin| {
            let writer = begin("map_overlap")?;
            with_type!(array.element(), T => sweep.map(&Typed::<T, U>::new(&function, raised), writer))
        }))
    })?;
    Ok(Counts::from(&made))
}
