//! Distances of every metric, or of those named, on the device that `TEATIME_DEVICE` names:
//! `cargo bench --bench distance -- [observations] [features] [neighbors] [metric...]`.
//!
//! One JSON line a metric: the median of five runs in seconds, of observations from one another, for f32, for bytes and, where the device
//! computes in f64, for f64, and terms a second of f32. With a number of neighbors, these are found instead, by `euclidean` alone. `benches/peers/distance.py` times scipy and
//! scikit-learn on as many.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{env, time::Instant};

use teatime::{
    Device, DeviceOptions, Element, Error, Run, Tensor,
    distance::{Metric, Options, condensed, neighbors, pairwise},
    random::random_words,
};

/// The median of five runs, in seconds.
fn median<T: Element>(x: &Tensor<T>, metric: Metric, nearest: Option<usize>) -> Result<f64, Error> {
    let (options, run) = (Options::default(), Run::default());
    let mut seconds = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        if let Some(k) = nearest {
            neighbors(x, None, k, metric, &options, &run)?;
        } else if metric.is_symmetric() {
            condensed(x, metric, &options, &run)?;
        } else {
            pairwise(x, None, metric, &options, &run)?;
        }
        seconds.push(started.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[2])
}

fn main() -> Result<(), Error> {
    let numbers: Vec<u64> = env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [n, k] = [0, 1].map(|i| numbers.get(i).copied().unwrap_or([4000, 2000][i]));
    let device = match env::var("TEATIME_DEVICE") {
        Ok(name) => Device::open_with(&name, &DeviceOptions::default())?,
        Err(_) => Device::cpu(),
    };
    let words = random_words(&device, 1, 0, n * k)?.read()?;
    let floats: Vec<f32> = words.iter().map(|&word| (word >> 8) as f32 / (1 << 24) as f32).collect();
    let bytes: Vec<u8> = words.iter().map(|word| word.to_le_bytes()[3]).collect();
    let doubles: Vec<f64> = floats.iter().map(|&x| x.into()).collect();
    let floats = Tensor::from_slice(&device, &floats, &[n, k])?;
    let bytes = Tensor::from_slice(&device, &bytes, &[n, k])?;
    let doubles = Tensor::from_slice(&device, &doubles, &[n, k])?;
    let nearest = numbers.get(2).and_then(|&k| usize::try_from(k).ok());
    let named: Vec<String> = env::args().skip(1).collect();
    let named: Vec<_> =
        Metric::ALL.into_iter().filter(|metric| named.contains(&metric.to_string())).collect();
    let metrics = match (nearest, &named[..]) {
        (Some(_), _) => &[Metric::Euclidean],
        (None, []) => &Metric::ALL[..],
        (None, named) => named,
    };
    for &metric in metrics {
        let [of_floats, of_bytes] = [median(&floats, metric, nearest)?, median(&bytes, metric, nearest)?];
        let of_doubles = match device.limits().f64 {
            true => format!("{:.4}", median(&doubles, metric, nearest)?),
            false => "null".to_owned(),
        };
        let pairs = n * n / if metric.is_symmetric() { 2 } else { 1 };
        let rate = (pairs * k) as f64 / of_floats / 1e9;
        println!(
            "{{\"metric\": \"{metric}\", \"observations\": {n}, \"features\": {k}, \"f32 s\": {of_floats:.4}, \"u8 s\": {of_bytes:.4}, \"f64 s\": {of_doubles}, \"Gterms/s\": {rate:.2}}}"
        );
    }
    Ok(())
}
