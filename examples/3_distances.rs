//! Distances between a few vectors, and between vectors in a file bigger than memory, and the nearest neighbor of each.
//!
//! `cargo run --release --example 3_distances [X.npy]`, where each row is a vector; without a file, the vectors are random.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use teatime::{
    ChunkedArray, Device, Error, Run, Tensor,
    distance::{Metric, Options, neighbors_stored, pairwise, pairwise_stored},
    random::random_words,
    store::{MemoryArray, NpyArray},
};

fn main() -> Result<(), Error> {
    run(&Device::best()?, std::env::args().nth(1))
}

pub(crate) fn run(device: &Device, file: Option<String>) -> Result<(), Error> {
    let (options, run) = (Options::default(), Run::default());

    // 1. Computes the distances of all pairs of vectors on the device at once.
    let corners = Tensor::from_slice(device, &[0.0f32, 0.0, 3.0, 4.0, 3.0, 0.0], &[3, 2])?;
    let distances = pairwise(&corners, None, Metric::Euclidean, &options, &run)?;
    assert_eq!(distances.row(0), [0.0, 5.0, 3.0]);

    // 2. Computes the distances of a stored array, some features at a time, so the array need not fit memory.
    let x: Arc<dyn ChunkedArray> = match file {
        Some(path) => Arc::new(NpyArray::open(path)?),
        None => {
            let words = random_words(device, 1, 0, 500 * 64)?.read()?;
            let bytes: Vec<u8> = words.iter().map(|word| word.to_le_bytes()[0]).collect();
            Arc::new(MemoryArray::new("random", &bytes, &[500, 64], &[100, 64])?)
        }
    };
    let stored = pairwise_stored(&x, None, Metric::CityBlock, &options, device, &run)?;
    let distances = stored.distances.data();
    println!("{:?}: mean distance {:.3}", x.shape(), distances.iter().sum::<f64>() / distances.len() as f64);

    // 3. Finds the nearest vector to each, without a matrix of all distances.
    let nearest = neighbors_stored(&x, None, 1, Metric::CityBlock, &options, device, &run)?.nearest;
    for (vector, other) in nearest.indices.iter().enumerate().take(5) {
        println!("nearest to {vector}: {other}, {:.3} away", nearest.distances.row(vector)[0]);
    }
    Ok(())
}
