//! Code that benchmarks of one operation share: criterion's settings, ids `op/device/shape`, and how near each case is to a copy.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput};
use teatime::{Device, Element, Error, Tensor, random::random_words, rayon::prelude::*};

/// Criterion on one device.
pub(crate) struct Bench {
    criterion: Criterion,
    pub(crate) device: Device,
    name: String,
    copy_rate: f64,
}

impl Bench {
    /// On the device that `TEATIME_DEVICE` names, else the fastest.
    #[allow(dead_code, reason = "`bits` opens the cpu device with as many threads as it wants")]
    pub(crate) fn new() -> Result<Self, Error> {
        let device = Device::best()?;
        let name = device.info().name.clone();
        Self::on(device, name)
    }

    /// On this device, by that name in the ids. Measures how fast it copies, and prints that.
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

    /// Times what `prepare` makes, until the device is done. `bytes` are those that any way to do it reads and writes. The
    /// throughput counts `operations` ("elements", as criterion calls them), or bytes where there are none. Then prints how
    /// much of the copy rate those bytes in the median time are.
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
            // Criterion calls this for each sample, and never for what was not asked for.
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

/// Bytes that are read and as many written a second, in the fastest of five copies: on the processor by the device's threads, into
/// memory that is there.
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

/// A tensor of what `of` makes of random words.
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

/// A number in [0, 1) of a random word.
#[allow(dead_code, reason = "packed data are made otherwise")]
pub(crate) fn float(word: u32) -> f32 {
    (word >> 8) as f32 / (1 << 24) as f32
}
