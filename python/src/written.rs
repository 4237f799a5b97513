//! Filters of arrays that need not fit memory, to a Zarr array.

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
    overlap::{Counts, Target, begun},
    stored::StoredArray,
};

/// Returns the stored type with NumPy's name.
fn stored_type(name: &str) -> StoredType {
    with_type!(type_named(name), T => T::STORED)
}

/// Returns the target with words in front of those of its job.
fn of_job((path, chunks, words, resume): Target, job: &str) -> Target {
    (path, chunks, format!("{job} {words}"), resume)
}

/// Writes the filtered array to a Zarr array of the type that `dtype` names.
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
        write(&x.array, sigma, &options, device, run, |job| begun(x, stored_type(dtype), of_job(out, job)))
    })?;
    Ok(Counts::from(&swept))
}

/// Writes the denoised images to a Zarr array of the type that `dtype` names.
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
        write_denoised_tv(&x.array, &options, device, run, |job| {
            begun(x, stored_type(dtype), of_job(out, job))
        })
    })?;
    Ok(Counts::from(&made.swept))
}
