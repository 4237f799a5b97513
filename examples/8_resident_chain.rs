//! A chain that stays on the device: it standardises columns, decomposes the matrix, and finds the nearest of each row's scores.
//!
//! Such a chain transfers 0.8 MB besides the matrix and the result for a matrix of 6,000 x 2,000 (48 MB) in ten passes, and 2.7 MB on a device
//! that does not compute in f64: the vectors of each pass. These bytes grow with the columns, and hardly with the rows.
//!
//! `cargo run --release --example 8_resident_chain`

#![allow(clippy::print_stdout, reason = "an example prints")]

use teatime::{
    Device, Error, Run, Tensor,
    array::{Map, Zip, map, max, mean, zip},
    distance::{Metric, Options, neighbor_tensors},
    linalg::{SvdOptions, matmul, truncated_svd},
    random::normal,
};

fn main() -> Result<(), Error> {
    run(&Device::best()?)
}

pub(crate) fn run(device: &Device) -> Result<(), Error> {
    // 1. Creates 1,500 observations on the device, in three groups, which differ in the first of 40 features.
    let [n, features] = [1500u64, 40];
    let noise = normal(device, 7, 0, n * features)?.reshape(&[n, features])?;
    let groups: Vec<f32> =
        (0..n * features).map(|i| if i % 40 == 0 { (i / 40 % 3 * 20) as f32 } else { 0.0 }).collect();
    let x = zip(Zip::Add, &noise, &Tensor::from_slice(device, &groups, &[n, features])?)?;

    // 2. Subtracts each column's mean and divides by its standard deviation, with NumPy's broadcasting.
    let centred = zip(Zip::Subtract, &x, &mean(&x, 0)?)?;
    let variance = mean(&zip(Zip::Multiply, &centred, &centred)?, 0)?;
    let z = zip(Zip::Divide, &centred, &map(Map::SquareRoot, &variance)?)?;

    // 3. Computes scores of the first components; the host decomposes a matrix of 40 x 40.
    let svd = truncated_svd(&z, 3, &SvdOptions::default(), &Run::default())?;
    let scores = matmul(&z, &svd.v)?;

    // 4. Finds the five nearest of each observation, without a matrix of all distances on the device or the host.
    let (before, options) = (device.traffic(), Options::default());
    let nearest = neighbor_tensors(&scores, None, 5, Metric::Euclidean, &options, &Run::default())?;
    let farthest = max(&max(&nearest.distances, 1)?, 0)?;

    // 5. Reads one number.
    let [farthest] = farthest.read()?[..] else { unreachable!("the largest of all should be one number") };
    let moved = device.traffic() - before;
    println!(
        "nobody's fifth neighbour is farther than {farthest:.3}; {} bytes came to the host",
        moved.to_host
    );
    assert!(farthest > 0.0 && moved.to_host < 4 * n * n / 50);
    Ok(())
}
