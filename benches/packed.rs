//! Products of packed genotypes, on the device that `TEATIME_DEVICE` names: `cargo bench --bench packed [threads]`.
//!
//! One JSON line each: recoding, in GB/s of what is recoded; and one pass Aᵀ (A X) of 164,000 variants, 1,000 samples and 20
//! columns. The fastest of a few runs counts.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::cast_possible_truncation, reason = "its sizes are small")]

use std::time::Instant;

use teatime::{
    Device, DeviceOptions, Error, Tensor,
    linalg::Matrix,
    packed::{PackedProduct, PackedRows, recode},
    random::{philox, random_words},
};

const VARIANTS: u64 = 164_000;
const SAMPLES: u64 = 1000;
const COLUMNS: u64 = 20;

/// The fastest of some runs, in seconds.
fn fastest(mut run: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let mut least = f64::INFINITY;
    for _ in 0..9 {
        let started = Instant::now();
        run()?;
        least = least.min(started.elapsed().as_secs_f64());
    }
    Ok(least)
}

/// Codes of calls, four a byte, of which one of `missing` is missing.
fn calls(device: &Device, missing: Option<u32>) -> Result<Tensor<u8>, Error> {
    let words = random_words(device, 3, 0, VARIANTS * SAMPLES)?.read()?;
    let code = |word: &u32| match missing {
        Some(rate) if word >> 8 < (1 << 24) / rate => 3,
        _ => (word & 1) + (word >> 1 & 1),
    };
    let byte = |four: &[u32]| four.iter().rev().fold(0, |byte, word| byte << 2 | code(word) as u8);
    let bytes: Vec<u8> = words.chunks(4).map(byte).collect();
    Tensor::from_slice(device, &bytes, &[VARIANTS, SAMPLES / 4])
}

/// Room for the codes of all.
fn codes(device: &Device) -> Result<Tensor<u32>, Error> {
    Tensor::zeros(device, &[VARIANTS, SAMPLES.div_ceil(64) * 4])
}

fn recoding(device: &Device, calls: &Tensor<u8>) -> Result<(), Error> {
    for (name, table) in [("codes", [0, 1, 2, 3]), ("bed", [2, 3, 1, 0])] {
        let mut packed = codes(device)?;
        let seconds = fastest(|| {
            drop(recode(calls, table, SAMPLES, &mut packed, 0)?);
            device.synchronize()
        })?;
        println!("{{\"recode\": \"{name}\", \"GB/s\": {:.2}}}", calls.len() as f64 / seconds / 1e9);
    }
    Ok(())
}

fn products(device: &Device, calls: &Tensor<u8>, missing: Option<u32>) -> Result<(), Error> {
    let mut packed = codes(device)?;
    drop(recode(calls, [0, 1, 2, 3], SAMPLES, &mut packed, 0)?);
    let number = |i: u64| f64::from(philox([5, 5], i)[0]) / 2f64.powi(32) - 0.5;
    let x: Vec<f64> = (0..SAMPLES * COLUMNS).map(number).collect();
    let x = Matrix::from_vec(x, SAMPLES as usize, COLUMNS as usize)?;
    let table = vec![[1.0f32, 1.4]; VARIANTS as usize];
    let on_device = Tensor::from_slice(device, table.as_flattened(), &[VARIANTS, 2])?;
    // Of a row: 1.4² times the length of 1,000 numbers of at most 1, and times their sum.
    let bounds = [2.0 * 32.0, 2.0 * 1000.0];
    let seconds = fastest(|| {
        let mut pass = PackedProduct::new(device, &x, true, Some(bounds))?;
        let missing = missing.is_some();
        pass.add(PackedRows { packed: &packed, table: &on_device, range: (0, VARIANTS), missing })?;
        pass.finish().map(drop)
    })?;
    let products = 2.0 * (VARIANTS * SAMPLES * COLUMNS) as f64;
    println!(
        "{{\"pass\": \"{}\", \"ms\": {:.1}, \"Gproducts/s\": {:.1}, \"GMAC/s of bytes\": {:.0}}}",
        missing.map_or("none missing".into(), |rate| format!("1 of {rate} missing")),
        seconds * 1e3,
        products / seconds / 1e9,
        3.0 * products / seconds / 1e9,
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let threads = std::env::args().filter_map(|arg| arg.parse().ok()).next();
    let name = std::env::var("TEATIME_DEVICE").unwrap_or_else(|_| "cpu".into());
    let device = Device::open_with(&name, &DeviceOptions::default().threads(threads))?;
    for missing in [None, Some(100), Some(20), Some(5)] {
        let calls = calls(&device, missing)?;
        if missing.is_none() {
            recoding(&device, &calls)?;
        }
        products(&device, &calls, missing)?;
    }
    Ok(())
}
