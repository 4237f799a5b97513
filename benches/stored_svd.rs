//! The truncated SVD of a Zarr array by a program that links the crate, which `benches/peers/stored_svd.py` compares with others:
//! `cargo bench -p teatime-bench --bench stored_svd -- ARRAY.zarr K POWER_ITERATIONS`. Prints the singular values, and the seconds.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{env, sync::Arc, time::Instant};

use teatime::{
    Budget, Device, Error, MissingChunk, Result, Run,
    linalg::{Stop, SvdOptions, left_vectors, randomized_svd},
    store::ZarrArray,
    stream::StoredMatrix,
};

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let [path, k, iterations] = &words[..] else {
        println!("give ARRAY.zarr K POWER_ITERATIONS");
        return Ok(());
    };
    let number = |word: &str| {
        word.parse().map_err(|error| Error::argument("stored_svd", "K, POWER_ITERATIONS", error))
    };
    let started = Instant::now();
    let array = ZarrArray::open(path, "", MissingChunk::Error)?;
    let matrix = StoredMatrix::new(vec![Arc::new(array)], &Device::best()?)?;
    let run = Run::default().memory(Budget::default().host(1 << 30));
    let options = SvdOptions::default().stop(Stop::PowerIterations(number(iterations)?)).left(true);
    let svd = randomized_svd(&matrix, number(k)? as usize, &options, &run)?;
    let mut length = 0.0;
    left_vectors(&matrix, &svd, &run, &mut |_, u| {
        length += u.data().iter().map(|u| u * u).sum::<f64>();
        Ok(())
    })?;
    let seconds = started.elapsed().as_secs_f64();
    println!("{{\"seconds\": {seconds}, \"singular_values\": {:?}, \"squares_of_u\": {length}}}", svd.s);
    Ok(())
}
