//! Values of 1, 2 or 4 bits, packed in bytes.

use half::f16;
use pyo3::{exceptions::PyValueError, prelude::*};
use teatime::bits::{self, PackOptions, Width};

use crate::{
    call::RunOptions,
    operand::{Array, Given, mapped},
};

/// Fails with `ValueError` for a width other than 1, 2 or 4.
fn width(bits: u32) -> PyResult<Width> {
    let width = Width::ALL.into_iter().find(|width| width.bits() == bits);
    width.ok_or_else(|| PyValueError::new_err(format!("`bits` is 1, 2 or 4, not {bits}")))
}

/// Packs an array of bytes along its last axis.
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
        Array::U8(x) => mapped(py, &x, &device, run, |x| bits::pack(x, width, &options)),
        Array::I8(x) => mapped(py, &x, &device, run, |x| bits::pack(x, width, &options)),
        _ => Err(PyValueError::new_err("`x` is of int8 or uint8")),
    }
}

/// Unpacks rows of `n` values to the type that `dtype` names.
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
    let (packed, table) = (&packed, table.as_deref());
    match dtype {
        "uint8" => mapped(py, packed, &device, run, |packed| bits::unpack::<u8>(packed, n, width, table)),
        "int8" => mapped(py, packed, &device, run, |packed| bits::unpack::<i8>(packed, n, width, table)),
        "float16" => mapped(py, packed, &device, run, |packed| bits::unpack::<f16>(packed, n, width, table)),
        "float32" => mapped(py, packed, &device, run, |packed| bits::unpack::<f32>(packed, n, width, table)),
        other => {
            Err(PyValueError::new_err(format!("`dtype` is uint8, int8, float16 or float32, not {other}")))
        }
    }
}
