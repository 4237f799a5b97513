//! Gaussian filters on the device that `TEATIME_DEVICE` names: `cargo bench --bench gaussian -- [runs]`.
//!
//! One JSON line a case, with the shortest and the median of the runs in seconds, the output allocated beforehand; what no filter can be
//! faster than, the bytes of the input and the output at the rate of a copy on the host's threads; and products and sums a second. `benches/peers/gaussian.py` times scipy, scikit-image and `cv2` on the same cases, in turns with this program.
//! After the runs, `radius` asks for a matrix filtered at many radii instead, and `threads` for calls from four threads beside as many one after the other.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{env, hint::black_box, time::Instant};

use teatime::{
    Device, DeviceOptions, Element, Error, Tensor,
    filter::{GaussianOptions, gaussian_into},
    random::random_words,
    rayon::prelude::*,
};

/// Seconds of some runs, in ascending order.
fn seconds(runs: usize, mut run: impl FnMut() -> Result<(), Error>) -> Result<Vec<f64>, Error> {
    let mut seconds = Vec::new();
    for _ in 0..runs {
        let started = Instant::now();
        run()?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

/// Bytes that are read and as many written, a second.
fn copy_rate(device: &Device) -> Result<f64, Error> {
    let (from, mut to) = (vec![1u64; 1 << 25], vec![0u64; 1 << 25]);
    let pool = device.pool()?;
    let best = seconds(5, || {
        pool.install(|| {
            to.par_chunks_mut(1 << 18)
                .zip(from.par_chunks(1 << 18))
                .for_each(|(to, from)| to.copy_from_slice(from))
        });
        black_box(&mut to);
        Ok(())
    })?[0];
    Ok(2.0 * 8.0 * (1 << 25) as f64 / best)
}

fn case<T: Element>(
    device: &Device,
    runs: usize,
    rate: f64,
    shape: &[u64],
    sigma: f64,
    of: fn(u32) -> T,
) -> Result<(), Error> {
    let len: u64 = shape.iter().product();
    let words = random_words(device, 1, 0, len)?.read()?;
    let x = Tensor::from_slice(device, &words.into_iter().map(of).collect::<Vec<_>>(), shape)?;
    let mut out = Tensor::<T>::zeros(device, shape)?;
    let options = GaussianOptions::default();
    let times = seconds(runs, || {
        gaussian_into(&x, sigma, &options, &mut out)?;
        device.synchronize()
    })?;
    let floor = 2.0 * x.bytes() as f64 / rate;
    let radius = (4.0 * sigma + 0.5).floor();
    let operations = len as f64 * shape.len() as f64 * (3.0 * radius + 2.0);
    println!(
        "{{\"shape\": {shape:?}, \"type\": \"{:?}\", \"sigma\": {sigma}, \"best s\": {:.4}, \"median s\": {:.4}, \"copy s\": {floor:.4}, \"Gflop/s\": {:.1}}}",
        T::DTYPE,
        times[0],
        times[runs / 2],
        operations / times[0] / 1e9
    );
    Ok(())
}

/// Four filters, one after the other and from four threads, in turns.
fn threads(device: &Device, runs: usize, shape: &[u64]) -> Result<(), Error> {
    let words = random_words(device, 1, 0, shape.iter().product())?.read()?;
    let values: Vec<f32> = words.into_iter().map(|word| (word >> 8) as f32).collect();
    let x = Tensor::from_slice(device, &values, shape)?;
    let outs = (0..4).map(|_| Tensor::<f32>::zeros(device, shape));
    let mut outs = outs.collect::<Result<Vec<_>, _>>()?;
    let filter = |out: &mut Tensor<f32>| gaussian_into(&x, 3.0, &GaussianOptions::default(), out);
    let mut each = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        let in_turn = || outs.iter_mut().try_for_each(filter).and_then(|()| device.synchronize());
        each[0].extend(seconds(1, in_turn)?);
        let started = Instant::now();
        std::thread::scope(|scope| {
            let calls: Vec<_> = outs.iter_mut().map(|out| scope.spawn(|| filter(out))).collect();
            calls.into_iter().try_for_each(|call| call.join().expect("a filter should not panic"))
        })?;
        device.synchronize()?;
        each[1].push(started.elapsed().as_secs_f64());
    }
    each.iter_mut().for_each(|seconds| seconds.sort_by(f64::total_cmp));
    let [in_turn, at_once] = each.map(|seconds| seconds[runs / 2]);
    println!("{{\"shape\": {shape:?}, \"in turn s\": {in_turn:.4}, \"four threads s\": {at_once:.4}}}");
    Ok(())
}

fn main() -> Result<(), Error> {
    let asks = |what: &str| env::args().any(|text| text == what);
    let numbers: Vec<usize> = env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let runs = numbers.first().copied().unwrap_or(7).max(1);
    let device = match env::var("TEATIME_DEVICE") {
        Ok(name) => Device::open_with(&name, &DeviceOptions::default())?,
        Err(_) => Device::cpu(),
    };
    let rate = copy_rate(&device)?;
    let float = |word: u32| (word >> 8) as f32 / (1 << 24) as f32;
    if asks("threads") {
        return [[50, 276, 276], [1, 512, 512]].iter().try_for_each(|shape| threads(&device, runs, shape));
    }
    if asks("radius") {
        for sigma in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0] {
            case(&device, runs, rate, &[4096, 4096], sigma, float)?;
        }
        return Ok(());
    }
    case(&device, runs, rate, &[50, 1104, 1104], 3.0, float)?;
    for sigma in [1.0, 3.0, 10.0] {
        case(&device, runs, rate, &[8192, 8192], sigma, float)?;
        case(&device, runs, rate, &[8192, 8192], sigma, |word| word.to_le_bytes()[3])?;
    }
    // Where the system tells: the most memory that the process took.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    if let Some(peak) = peak {
        println!("{{\"MiB\": {}}}", peak >> 10);
    }
    Ok(())
}
