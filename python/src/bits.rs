//! Values of 1, 2 and 4 bits in bytes.

use half::f16;
use pyo3::{exceptions::PyValueError, prelude::*};
use teatime::{
    Device,
    bits::{PackOptions, Packable, Unpackable, Width},
};

use crate::{
    call::{RunOptions, call_on},
    operand::{Array, Given, parts},
};

/// # Errors
/// `ValueError` for another width.
fn width(bits: u32) -> PyResult<Width> {
    let found = Width::ALL.into_iter().find(|width| width.bits() == bits);
    found.ok_or_else(|| PyValueError::new_err(format!("`bits` is 1, 2 or 4, not {bits}")))
}

/// Packs the last axis of bytes.
#[pyfunction]
pub(crate) fn pack<'py>(
    py: Python<'py>,
    x: Array<'py>,
    bits: u32,
    table: Option<Vec<u8>>,
    missing: Option<u8>,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let (width, device) = (width(bits)?, run.device(py)?);
    let mut options = PackOptions::default().missing(missing);
    if let Some(table) = &table {
        options = options.table(table);
    }
    match x {
        Array::U8(x) => packed(py, &x, width, &options, &device, run),
        Array::I8(x) => packed(py, &x, width, &options, &device, run),
        _ => Err(PyValueError::new_err("`x` is of int8 or uint8")),
    }
}

fn packed<'py, T: Packable + numpy::Element>(
    py: Python<'py>,
    x: &Given<'py, T>,
    width: Width,
    options: &PackOptions<'_>,
    device: &Device,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let x = parts(x)?;
    let found = call_on(py, device, run, |device, _| {
        let x = x.view(device)?;
        x.result(teatime::bits::pack(&x, width, options)?)
    })?;
    found.array(py)
}

/// Rows of `n` values of the type that `dtype` names.
#[pyfunction]
pub(crate) fn unpack<'py>(
    py: Python<'py>,
    packed: Given<'py, u8>,
    n: u64,
    bits: u32,
    table: Option<Vec<f32>>,
    dtype: &str,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let (width, device) = (width(bits)?, run.device(py)?);
    let of = (n, width, table.as_deref());
    match dtype {
        "uint8" => unpacked::<u8>(py, &packed, of, &device, run),
        "int8" => unpacked::<i8>(py, &packed, of, &device, run),
        "float16" => unpacked::<f16>(py, &packed, of, &device, run),
        "float32" => unpacked::<f32>(py, &packed, of, &device, run),
        other => {
            Err(PyValueError::new_err(format!("`dtype` is uint8, int8, float16 or float32, not {other}")))
        }
    }
}

fn unpacked<'py, T: Unpackable + numpy::Element>(
    py: Python<'py>,
    packed: &Given<'py, u8>,
    (n, width, table): (u64, Width, Option<&[f32]>),
    device: &Device,
    run: RunOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let packed = parts(packed)?;
    let found = call_on(py, device, run, |device, _| {
        let packed = packed.view(device)?;
        packed.result(teatime::bits::unpack::<T>(&packed, n, width, table)?)
    })?;
    found.array(py)
}
