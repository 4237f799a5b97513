//! `DLPack`, by which libraries exchange arrays on a GPU (<https://dmlc.github.io/dlpack/latest/c_api.html>, version 0.x, which all support).
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

/// `DLPack`'s device type of CUDA.
pub(crate) const CUDA: i32 = 2;

/// The element types of tensors, with NumPy's codes and names.
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

/// Returns the element type with NumPy's name; f64 for other names.
pub(crate) fn type_named(name: &str) -> DType {
    TYPES.iter().find(|(.., known)| *known == name).map_or(DType::F64, |(dtype, ..)| *dtype)
}

/// The value of an expression in which `$T` is the type of elements that a [`DType`] names, or u8 if Python's tensors do not hold it.
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

/// The names of a capsule before and after its array is taken.
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
    /// The strides in elements; `None` for C order.
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) dtype: DType,
}

/// Returns `DLPack`'s code for signed integers, unsigned integers or floats.
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

/// An exported array: the data that its structure points to, and the owner of its memory.
struct Exported {
    managed: DlManagedTensor,
    shape: Vec<i64>,
    _keeps: Py<PyAny>,
}

/// Creates a capsule with an array, whose memory `keeps` owns. Fails with any exception that Python raises.
#[allow(clippy::cast_possible_truncation, reason = "an array has few axes")]
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    description: &Description,
    keeps: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let shape: Vec<i64> = description.shape.iter().map(|&extent| extent.cast_signed()).collect();
    let tensor = DlTensor {
        data: ptr::with_exposed_provenance_mut(description.address as usize),
        device: DlDevice { kind: CUDA, number: description.card },
        ndim: shape.len() as i32,
        dtype: dl_type(description.dtype),
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = DlManagedTensor { tensor, context: ptr::null_mut(), deleter: Some(delete) };
    let exported = Box::into_raw(Box::new(Exported { managed, shape, _keeps: keeps }));
    // SAFETY: the box was created just now, and only `delete` frees it. This is the first use of its memory.
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

/// Frees the array of [`capsule`], once the library that took it is done with it.
unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    // SAFETY: the pointer comes from `capsule`, and this is called once.
    let exported = unsafe { Box::from_raw((*managed).context.cast::<Exported>()) };
    // At the end of the process, Python and the owner of the memory are gone.
    let mut exported = Some(exported);
    if Python::try_attach(|_| drop(exported.take())).is_none() {
        std::mem::forget(exported);
    }
}

/// Frees an array that no library took, together with its capsule.
unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes a capsule of `capsule`; a capsule that was taken has another name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, FRESH.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, FRESH.as_ptr()).cast());
        }
    }
}

/// An array from another library, whose deleter is called when this is dropped.
pub(crate) struct Taken(*mut DlManagedTensor);

// SAFETY: only the deleter is called, from any thread, with the interpreter's lock.
unsafe impl Send for Taken {}
// SAFETY: a shared reference calls nothing.
unsafe impl Sync for Taken {}

impl Taken {
    /// Takes the capsule of an array's `__dlpack__`, which has to be in a CUDA GPU's memory.
    /// Fails with the exceptions of the call; `BufferError` for a result that is not a fresh capsule; `TypeError` for
    /// other element types, or for memory elsewhere. `name` is the argument's name for messages.
    pub(crate) fn from_array(array: &Bound<'_, PyAny>, name: &str) -> PyResult<(Self, Description)> {
        let py = array.py();
        // The array has to be ready for use on the default stream.
        let stream = PyDict::new(py);
        stream.set_item("stream", 1)?;
        let capsule = array.call_method("__dlpack__", (), Some(&stream))?;
        // SAFETY: a capsule of that name holds a managed tensor. Renaming the capsule makes the tensor ours until we call its deleter.
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
        // At the end of the process, when Python is gone, the system frees the memory.
        // SAFETY: the structure exists until its deleter is called, which happens once.
        Python::try_attach(|_| unsafe {
            if let Some(deleter) = (*self.0).deleter {
                deleter(self.0);
            }
        });
    }
}
