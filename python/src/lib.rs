//! The compiled code of the Python package `teatime`, whose Python functions pass checked NumPy arrays in C order.
// Lints of the workspace without CUDA include this package, so that dependencies are built once with one set of features.
#![cfg(feature = "cuda")]
// Types that hold a device are nested deep.
#![recursion_limit = "256"]

mod array;
mod bits;
mod call;
mod context;
mod cuda;
mod device;
mod distance;
mod dlpack;
mod errors;
mod filter;
mod genotype;
mod linalg;
mod lists;
mod loaded;
mod loadings;
mod matching;
mod operand;
mod overlap;
mod stored;
mod timeline;

use pyo3::prelude::*;

/// The compiled part of the package `teatime`.
#[pymodule]
mod _teatime {
    #[pymodule_export]
    use super::{
        bits::{pack, unpack},
        command_line,
        cuda::CudaArray,
        device::{Device, devices},
        distance::{
            DistanceBands, DistanceSums, condensed, distances, metric_name, neighbors, pairwise,
            radius_neighbors,
        },
        filter::{denoise_tv, gaussian},
        genotype::{Genotypes, Part, check, grm, part_step, pca},
        linalg::{Iteration, normal_product, stored_svd, svd, truncated_svd},
        loaded::Loaded,
        matching::{distances_between, project},
        operand::to_cuda,
        overlap::{map_box, map_to_zarr},
        panic,
        stored::StoredArray,
        timeline::Timeline,
    };

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name that Python has for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

/// Runs the command line on these arguments, which start with the program's name, and returns its exit status.
#[pyfunction]
fn command_line(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| teatime_cli::main(arguments, false))
}

/// Panics, to test how a panic reaches Python.
#[pyfunction]
#[pyo3(name = "_panic")]
#[allow(clippy::panic, reason = "that is what it is for")]
fn panic(py: Python<'_>) -> PyResult<()> {
    call::call(py, call::RunOptions::default(), |_| panic!("asked for"))
}
