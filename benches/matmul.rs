//! GFLOP/s of the products, on the device that `TEATIME_DEVICE` names: `cargo bench --bench matmul`.
//!
//! One JSON line per shape, as `benches/peers/matmul_numpy.py` prints them for numpy. The result is checked once, then
//! timed: each run enqueues the product and waits for it; the median counts.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::time::Instant;

use teatime::{
    Device, Error, Tensor, linalg,
    random::{philox, random_words},
};

type Product = fn(&Tensor<f32>, &Tensor<f32>) -> Result<Tensor<f32>, Error>;

fn uniform(device: &Device, seed: u64, shape: [u64; 2]) -> Result<Tensor<f32>, Error> {
    let words = random_words(device, seed, 0, shape[0] * shape[1])?.read()?;
    let values: Vec<f32> =
        words.into_iter().map(|word| (word >> 8) as f32 / (1 << 24) as f32 - 0.5).collect();
    Tensor::from_slice(device, &values, &shape)
}

/// Compares a few elements with sums in f64.
fn check(a: &[f32], b: &[f32], c: &[f32], [_, n, k]: [usize; 3], transposed: bool) {
    let m = c.len() / n;
    for i in 0..16u64 {
        let [row, col, ..] = philox([9, 9], i);
        let (row, col) = (row as usize % m, col as usize % n);
        let a = |at: usize| f64::from(if transposed { a[at * m + row] } else { a[row * k + at] });
        let expected: f64 = (0..k).map(|at| a(at) * f64::from(b[at * n + col])).sum();
        let error = (f64::from(c[row * n + col]) - expected).abs();
        assert!(error <= 1e-6 * k as f64, "({row}, {col}): {} against {expected}", c[row * n + col]);
    }
}

fn bench(device: &Device, name: &str, [m, n, k]: [u64; 3], transposed: bool) -> Result<(), Error> {
    let a = uniform(device, 1, if transposed { [k, m] } else { [m, k] })?;
    let b = uniform(device, 2, [k, n])?;
    let product: Product = if transposed { linalg::matmul_tn } else { linalg::matmul };
    let shape = [m, n, k].map(|extent| usize::try_from(extent).expect("a benchmark's shape should be small"));
    check(&a.read()?, &b.read()?, &product(&a, &b)?.read()?, shape, transposed);
    let mut seconds: Vec<f64> = (0..9)
        .map(|_| {
            let started = Instant::now();
            let c = product(&a, &b)?;
            device.synchronize()?;
            drop(c);
            Ok(started.elapsed().as_secs_f64())
        })
        .collect::<Result<_, Error>>()?;
    seconds.sort_by(f64::total_cmp);
    let rate = (2 * m * n * k) as f64 / seconds[seconds.len() / 2] / 1e9;
    println!("{{\"device\": \"{}\", \"shape\": \"{name}\", \"gflops\": {rate:.1}}}", device.info().name);
    Ok(())
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    // Software adapters take seconds for the large shapes.
    let small = device.info().kind == teatime::DeviceKind::Software;
    bench(&device, "1024x1024x1024", [1024; 3], false)?;
    if small {
        return Ok(());
    }
    bench(&device, "2048x2048x2048", [2048; 3], false)?;
    bench(&device, "165000x1000x20", [165_000, 20, 1000], false)?;
    bench(&device, "165000x1000x20 transposed", [1000, 20, 165_000], true)?;
    bench(&device, "4096x1000x20", [4096, 20, 1000], false)?;
    bench(&device, "4096x1000x20 transposed", [1000, 20, 4096], true)
}
