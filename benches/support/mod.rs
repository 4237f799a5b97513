//! Code that the benchmarks share: criterion's settings, ids `op/device/shape`, and each case's share of the copy rate.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput};
use teatime::{Device, Element, Error, Tensor, random::random_words, rayon::prelude::*};

/// Criterion's settings and one device.
pub(crate) struct Bench {
    criterion: Criterion,
    pub(crate) device: Device,
    name: String,
    copy_rate: f64,
}

impl Bench {
    /// Opens the device that `TEATIME_DEVICE` names, or else the fastest.
    #[allow(dead_code, reason = "`bits` opens the cpu device with as many threads as it wants")]
    pub(crate) fn new() -> Result<Self, Error> {
        let device = Device::best()?;
        let name = device.info().name.clone();
        Self::on(device, name)
    }

    /// Uses this device, with this name in the ids. Measures and prints its copy rate.
    pub(crate) fn on(device: Device, name: String) -> Result<Self, Error> {
        let criterion = Criterion::default()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(3))
            .configure_from_args();
        let copy_rate = copy_rate(&device)?;
        println!("{name}: copies read and write {:.1} GB/s\n", copy_rate / 1e9);
        Ok(Self { criterion, device, name, copy_rate })
    }

    /// Times the job that `prepare` returns, until the device is done. `bytes` is the number of bytes that any implementation has to read and
    /// write. The throughput counts `operations` (criterion's "elements"), or bytes if `operations` is `None`. Then prints the ratio of `bytes`
    /// in the median time to the copy rate.
    pub(crate) fn case<J: FnMut() -> Result<(), Error>>(
        &mut self,
        op: &str,
        shape: &[u64],
        bytes: u64,
        operations: Option<u64>,
        prepare: impl FnOnce() -> Result<J, Error>,
    ) {
        let shape = shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let (mut prepare, mut job, mut seconds) = (Some(prepare), None, Vec::new());
        let mut group = self.criterion.benchmark_group(op);
        group.throughput(operations.map_or(Throughput::Bytes(bytes), Throughput::Elements));
        group.bench_function(BenchmarkId::new(&self.name, shape), |bencher| {
            // Criterion calls this for each sample, and not at all for cases that were not selected.
            if let Some(prepare) = prepare.take() {
                job = Some(prepare().expect("the data should fit the device"));
            }
            let job = job.as_mut().expect("the first call made it");
            bencher.iter_custom(|runs| {
                let started = Instant::now();
                for _ in 0..runs {
                    job().and_then(|()| self.device.synchronize()).expect("the operation should succeed");
                }
                let elapsed = started.elapsed();
                seconds.push(elapsed.as_secs_f64() / runs as f64);
                elapsed
            });
        });
        group.finish();
        seconds.sort_by(f64::total_cmp);
        if let Some(median) = seconds.get(seconds.len() / 2) {
            println!("{:24}{:.0} % of the copy rate\n", "", 100.0 * bytes as f64 / median / self.copy_rate);
        }
    }
}

/// Returns the bytes read plus written per second in the fastest of five copies. On the processor, the device's threads copy into allocated
/// memory.
fn copy_rate(device: &Device) -> Result<f64, Error> {
    let len = device.limits().buffer.min(256 << 20) / 8;
    let mut copy: Box<dyn FnMut() -> Result<(), Error>> = if device.shares_host_memory() {
        let from = vec![1u64; usize::try_from(len).expect("256 MiB should fit the address space")];
        let (mut to, pool) = (vec![0u64; from.len()], device.pool()?);
        Box::new(move || {
            let pieces = to.par_chunks_mut(1 << 18).zip(from.par_chunks(1 << 18));
            pool.install(|| pieces.for_each(|(to, from)| to.copy_from_slice(from)));
            black_box(&mut to);
            Ok(())
        })
    } else {
        let from = Tensor::<u32>::zeros(device, &[2 * len])?;
        Box::new(move || from.try_clone().map(drop).and_then(|()| device.synchronize()))
    };
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let started = Instant::now();
        copy()?;
        fastest = fastest.min(started.elapsed());
    }
    Ok(16.0 * len as f64 / fastest.as_secs_f64())
}

/// Returns a tensor of random words, converted by `of`.
#[allow(dead_code, reason = "packed data are made otherwise")]
pub(crate) fn random<T: Element>(
    device: &Device,
    seed: u64,
    shape: &[u64],
    of: fn(u32) -> T,
) -> Result<Tensor<T>, Error> {
    let words = random_words(device, seed, 0, shape.iter().product())?.read()?;
    Tensor::from_slice(device, &words.into_iter().map(of).collect::<Vec<_>>(), shape)
}

/// Converts a random word to a number in [0, 1).
#[allow(dead_code, reason = "packed data are made otherwise")]
pub(crate) fn float(word: u32) -> f32 {
    (word >> 8) as f32 / (1 << 24) as f32
}
