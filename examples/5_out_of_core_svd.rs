//! The truncated SVD of a Zarr array bigger than memory.
//!
//! `cargo run --release --example 5_out_of_core_svd [ARRAY.zarr]`, where the array is a matrix of a type that f32 holds exactly; without a path,
//! the example writes a small matrix. `StoredMatrix::narrow` also takes f64.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
};

use teatime::{
    Budget, Device, MissingChunk, Progress, Result, Run, StoredType,
    linalg::{SvdOptions, left_vectors, randomized_svd},
    store::{ArraySpec, ArrayWriter, Folder, ZarrArray},
    stream::StoredMatrix,
};

fn main() -> Result<(), Box<dyn Error>> {
    run(&Device::best()?, env::args_os().nth(1).map(PathBuf::from))
}

pub(crate) fn run(device: &Device, path: Option<PathBuf>) -> Result<(), Box<dyn Error>> {
    let scratch = env::temp_dir().join(format!("teatime-example-{}", std::process::id()));
    let path = match path {
        Some(path) => path,
        None => write(&scratch.join("a.zarr")).map(|()| scratch.join("a.zarr"))?,
    };

    // 1. A stored matrix is used through products: each is a pass over the array, whose chunks are decoded while the device multiplies.
    let array = ZarrArray::open(&path, "", MissingChunk::Error)?;
    let a = StoredMatrix::new(vec![Arc::new(array)], device)?;

    // 2. At most 1 GiB of host memory is used. Progress is reported on this thread.
    let progress = Progress::new(|status| {
        println!("pass {}: {} of {} rows", status.pass + 1, status.rows, status.total)
    });
    let run = Run::default().memory(Budget::default().host(1 << 30)).progress(progress);
    let svd = randomized_svd(&a, 3, &SvdOptions::default().left(true), &run)?;
    println!("{:.3?} in {} passes, converged: {}", svd.s, svd.passes, svd.is_converged());

    // 3. The left vectors are as long as the matrix, so they come block by block. The decomposition kept what they are made of: no further pass.
    let mut sums = [0.0; 3];
    left_vectors(&a, &svd, &run, &mut |_, u| {
        for i in 0..u.rows() {
            sums.iter_mut().zip(u.row(i)).for_each(|(sum, u)| *sum += u * u);
        }
        Ok(())
    })?;
    assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-3), "{sums:?}");
    drop(std::fs::remove_dir_all(&scratch));
    Ok(())
}

/// Writes a matrix of 3,000 x 60 numbers, tile by tile. Its rows are of three kinds, plus noise.
pub(crate) fn write(path: &Path) -> Result<()> {
    let spec = ArraySpec::new(StoredType::F32, &[3000, 60], &[500, 60]);
    let writer = ArrayWriter::create(Arc::new(Folder::new(path)), "", spec)?;
    let random = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / (1 << 24) as f32 - 0.5;
    for tile in writer.tiles() {
        let value =
            |i: u64, j: u64| (3 - i % 3) as f32 * random(i % 3 * 60 + j) + 0.01 * random(1000 + i * 60 + j);
        let rows = tile[0] * 500..(tile[0] + 1) * 500;
        writer.write(&tile, &rows.flat_map(|i| (0..60).map(move |j| value(i, j))).collect::<Vec<_>>())?;
    }
    writer.finish()
}
