//! Filters of arrays that need not fit memory, to a Zarr array or an image.

use pyo3::prelude::*;
use teatime::{
    StoredType,
    filter::{write_denoised_tv, write_gaussian as write},
    store::Storable,
};

use crate::{
    call::{RunOptions, call_on},
    dlpack::{type_named, with_type},
    filter::{Options, TvArguments, tv_options},
    overlap::Counts,
    stored::{StoredArray, Target},
};

/// Returns the stored type with NumPy's name.
fn stored_type(name: &str) -> StoredType {
    with_type!(type_named(name), T => T::STORED)
}

/// Writes the filtered array to a Zarr array, or of an image to another, of the type that `dtype` names.
#[pyfunction]
pub(crate) fn write_gaussian(
    py: Python<'_>,
    x: &StoredArray,
    options: Options,
    dtype: &str,
    out: Target,
    run: RunOptions,
) -> PyResult<Counts> {
    let device = run.device(py)?;
    let (sigma, options) = options.on(&device)?;
    let swept = call_on(py, &device, run, |device, run| {
        x.write(stored_type(dtype), out, (device, run), |begin| {
            write(&x.array, sigma, &options, device, run, begin)
        })
    })?;
    Ok(Counts::from(&swept))
}

/// Writes the denoised images to a Zarr array, or of an image to another, of the type that `dtype` names.
#[pyfunction]
pub(crate) fn write_denoise_tv(
    py: Python<'_>,
    x: &StoredArray,
    options: TvArguments,
    dtype: &str,
    out: Target,
    run: RunOptions,
) -> PyResult<Counts> {
    let (device, options) = (run.device(py)?, tv_options(options).narrow(dtype == "float32"));
    let made = call_on(py, &device, run, |device, run| {
        x.write(stored_type(dtype), out, (device, run), |begin| {
            write_denoised_tv(&x.array, &options, device, run, begin)
        })
    })?;
    Ok(Counts::from(&made.swept))
}
