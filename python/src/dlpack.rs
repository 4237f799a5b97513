//! `DLPack`: how libraries hand over an array in a GPU's memory (<https://dmlc.github.io/dlpack/latest/c_api.html>, version 0.x, which all know).
#![allow(unsafe_code, reason = "structures of C that libraries pass each other")]

use std::{
    ffi::{CStr, c_void},
    ptr,
};

use pyo3::{
    exceptions::{PyBufferError, PyTypeError},
    ffi,
    prelude::*,
    types::PyDict,
};
use teatime::DType;

/// CUDA's number among devices.
pub(crate) const CUDA: i32 = 2;

/// The types that tensors hold, with NumPy's codes and names.
pub(crate) const TYPES: [(DType, &str, &str); 9] = [
    (DType::F16, "<f2", "float16"),
    (DType::F32, "<f4", "float32"),
    (DType::F64, "<f8", "float64"),
    (DType::I8, "|i1", "int8"),
    (DType::U8, "|u1", "uint8"),
    (DType::I16, "<i2", "int16"),
    (DType::U16, "<u2", "uint16"),
    (DType::I32, "<i4", "int32"),
    (DType::U32, "<u4", "uint32"),
];

/// The value of an expression in which `$T` is the type of elements that a [`DType`] names; u8 for one that Python's tensors do not hold.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::dlpack::with_type!(@ $dtype, $T, $body; F16 half::f16, F32 f32, F64 f64, I8 i8, I16 i16, U16 u16, I32 i32, U32 u32)
    };
    (@ $dtype:expr, $T:ident, $body:expr; $($name:ident $type:ty),*) => {
        match $dtype {
            $(teatime::DType::$name => {
                type $T = $type;
                $body
            })*
            _ => {
                type $T = u8;
                $body
            }
        }
    };
}
pub(crate) use with_type;

/// Names of a capsule before and after its array is taken.
const FRESH: &CStr = c"dltensor";
const TAKEN: &CStr = c"used_dltensor";

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    kind: i32,
    number: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// The description of an array for another library.
pub(crate) struct Description {
    pub(crate) address: u64,
    pub(crate) card: i32,
    pub(crate) shape: Vec<u64>,
    /// In elements; None in C order.
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) dtype: DType,
}

/// Integers, unsigned ones and floats, as `DLPack` numbers them.
fn code(dtype: DType) -> u8 {
    match dtype {
        DType::I8 | DType::I16 | DType::I32 => 0,
        DType::U8 | DType::U16 | DType::U32 => 1,
        _ => 2,
    }
}

#[allow(clippy::cast_possible_truncation, reason = "at most 64")]
fn dl_type(dtype: DType) -> DlType {
    DlType { code: code(dtype), bits: (8 * dtype.size()) as u8, lanes: 1 }
}

/// An array that is handed out: what its structure points to, and what has the memory.
struct Exported {
    managed: DlManagedTensor,
    shape: Vec<i64>,
    _keeps: Py<PyAny>,
}

/// A capsule with an array, whose memory `keeps` has.
///
/// # Errors
/// Any error that Python raises.
#[allow(clippy::cast_possible_truncation, reason = "an array has few axes")]
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    of: &Description,
    keeps: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let shape: Vec<i64> = of.shape.iter().map(|&extent| extent.cast_signed()).collect();
    let tensor = DlTensor {
        data: ptr::with_exposed_provenance_mut(of.address as usize),
        device: DlDevice { kind: CUDA, number: of.card },
        ndim: shape.len() as i32,
        dtype: dl_type(of.dtype),
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = DlManagedTensor { tensor, context: ptr::null_mut(), deleter: Some(delete) };
    let exported = Box::into_raw(Box::new(Exported { managed, shape, _keeps: keeps }));
    // SAFETY: the box was made just now and is `delete`'s from here on; its structure is its first use of the memory.
    unsafe {
        (*exported).managed.tensor.shape = (*exported).shape.as_mut_ptr();
        (*exported).managed.context = exported.cast();
        let made = ffi::PyCapsule_New((&raw mut (*exported).managed).cast(), FRESH.as_ptr(), Some(forget));
        if made.is_null() {
            delete(&raw mut (*exported).managed);
            return Err(PyErr::fetch(py));
        }
        Ok(Bound::from_owned_ptr(py, made))
    }
}

/// Frees what [`capsule`] made, once whoever took it has done with it.
unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    // SAFETY: of `capsule`, and called once.
    let exported = unsafe { Box::from_raw((*managed).context.cast::<Exported>()) };
    // At the end of the process Python is gone, and so is what keeps the memory.
    let mut exported = Some(exported);
    if Python::try_attach(|_| drop(exported.take())).is_none() {
        std::mem::forget(exported);
    }
}

/// Frees an array that nobody took, with its capsule.
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls it with a capsule of `capsule`; one that was taken has the other name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, FRESH.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, FRESH.as_ptr()).cast());
        }
    }
}

/// An array that another library handed over, which is told when it is dropped.
pub(crate) struct Taken(*mut DlManagedTensor);

// SAFETY: nothing but the deleter is called, and that from any thread, with the interpreter's lock.
unsafe impl Send for Taken {}
// SAFETY: as above.
unsafe impl Sync for Taken {}

impl Taken {
    /// Takes what `__dlpack__` of an array gives, which has to be in a CUDA GPU's memory.
    ///
    /// # Errors
    /// Errors of the call; `BufferError` for something else; `TypeError` for elements of other types, or elsewhere; `name` is the argument.
    pub(crate) fn of(array: &Bound<'_, PyAny>, name: &str) -> PyResult<(Self, Description)> {
        let py = array.py();
        // Filled as the default stream sees it.
        let stream = PyDict::new(py);
        stream.set_item("stream", 1)?;
        let capsule = array.call_method("__dlpack__", (), Some(&stream))?;
        // SAFETY: a capsule of that name holds a managed tensor, which is the taker's by the other name, until its deleter is called.
        let (taken, tensor) = unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), FRESH.as_ptr()) != 1 {
                return Err(PyBufferError::new_err(format!("`{name}`: its __dlpack__ gives no fresh array")));
            }
            let managed: *mut DlManagedTensor =
                ffi::PyCapsule_GetPointer(capsule.as_ptr(), FRESH.as_ptr()).cast();
            ffi::PyCapsule_SetName(capsule.as_ptr(), TAKEN.as_ptr());
            (Self(managed), &(*managed).tensor)
        };
        if tensor.device.kind != CUDA {
            let kind = tensor.device.kind;
            return Err(PyTypeError::new_err(format!(
                "`{name}` is on DLPack's device {kind}, which is not CUDA's"
            )));
        }
        let known = TYPES.iter().map(|&(dtype, ..)| dtype);
        let dtype = known.into_iter().find(|&dtype| dl_type(dtype) == tensor.dtype).ok_or_else(|| {
            let DlType { code, bits, lanes } = tensor.dtype;
            PyTypeError::new_err(format!("`{name}` has DLPack's type {code} of {bits} bits and {lanes} lanes: floats and integers of up to 32 bits and float64 are taken"))
        })?;
        let axes = usize::try_from(tensor.ndim).unwrap_or_default();
        // SAFETY: the structure's arrays have an element for each axis; without axes they may be null.
        let numbers = |place: *mut i64| unsafe {
            if axes == 0 { Vec::new() } else { std::slice::from_raw_parts(place, axes).to_vec() }
        };
        let description = Description {
            address: tensor.data.expose_provenance() as u64 + tensor.byte_offset,
            card: tensor.device.number,
            shape: numbers(tensor.shape).into_iter().map(i64::cast_unsigned).collect(),
            strides: (!tensor.strides.is_null()).then(|| numbers(tensor.strides)),
            dtype,
        };
        Ok((taken, description))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // At the end of the process, when Python is gone, the memory goes with it.
        // SAFETY: the structure is there until its deleter, which is called once.
        Python::try_attach(|_| unsafe {
            if let Some(deleter) = (*self.0).deleter {
                deleter(self.0);
            }
        });
    }
}
