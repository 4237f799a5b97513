//! The program of the README, which has it letter by letter.

use std::sync::Arc;

use teatime::{
    Budget, Device, MissingChunk, Result, Run,
    linalg::{SvdOptions, randomized_svd},
    store::ZarrArray,
    stream::StoredMatrix,
};

/// The ten largest singular values of a matrix in a Zarr store, within 2 GiB of host memory.
pub fn singular_values(path: &str) -> Result<Vec<f64>> {
    let array = ZarrArray::open(path, "", MissingChunk::Error)?;
    let a = StoredMatrix::new(vec![Arc::new(array)], &Device::best()?)?;
    let run = Run::default().memory(Budget::default().host(2 << 30));
    Ok(randomized_svd(&a, 10, &SvdOptions::default(), &run)?.s)
}
