//! GB/s of packing and unpacking on the CPU, beside copies on as many threads: `cargo bench --bench bits`.
//!
//! Bytes are those read plus those written, for 256 MiB of unpacked u8, into memory that is there. Everything is run once
//! in turn, again and again, so that a busy machine slows all alike; medians count. One JSON line each.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{env, hint::black_box, thread, time::Instant};

use teatime::{
    Device, DeviceOptions, Error, Tensor,
    bits::{PackOptions, Width, merge_planes, pack, pack_into, split_planes, unpack, unpack_into},
    random::random_words,
};

/// Unpacked values.
const LEN: usize = 256 << 20;

/// A way to move bytes.
struct Job<'a> {
    name: String,
    bytes: usize,
    run: Box<dyn FnMut() -> Result<(), Error> + 'a>,
    seconds: Vec<f64>,
}

fn job<'a>(name: impl Into<String>, bytes: usize, run: impl FnMut() -> Result<(), Error> + 'a) -> Job<'a> {
    Job { name: name.into(), bytes, run: Box::new(run), seconds: Vec::new() }
}

/// `copy_from_slice` by as many threads.
fn copy(from: &[u8], to: &mut [u8], threads: usize) {
    let piece = from.len().div_ceil(threads);
    thread::scope(|scope| {
        for (from, to) in from.chunks(piece).zip(to.chunks_mut(piece)) {
            scope.spawn(|| to.copy_from_slice(from));
        }
    });
    black_box(to);
}

/// Values below the number of codes, as one row or as rows of `cols`.
fn codes(device: &Device, width: Width, cols: usize) -> Result<Tensor<u8>, Error> {
    let words = random_words(device, 1, 0, LEN as u64 / 4)?.read()?;
    let mask = u8::MAX >> (8 - width.bits());
    let values: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).map(|byte| byte & mask).collect();
    let rows = LEN / cols;
    Tensor::from_slice(device, &values[..rows * cols], &[rows as u64, cols as u64])
}

/// Everything at one width and length of rows.
fn measure(device: &Device, threads: usize, width: Width, cols: usize, rounds: usize) -> Result<(), Error> {
    let (plain, from) = (PackOptions::default(), vec![1u8; LEN]);
    let mut to = vec![2u8; LEN];
    let x = codes(device, width, cols)?;
    let packed = pack(&x, width, &plain)?;
    let (len, small) = (to_usize(x.len()), to_usize(packed.len()));
    let mut out = [packed.try_clone()?, packed.try_clone()?];
    let (mut bytes, mut floats) =
        (x.try_clone()?, Tensor::<f32>::zeros(device, &[x.shape()[0], cols as u64])?);
    let mut table = [0.0; 16];
    table[0] = 2.0;
    let (table, coded) = (&table[..width.codes()], vec![0; width.codes()]);
    let coded = plain.table(&coded);
    let [first, second] = &mut out;
    let (bytes_by_table, bytes) = (&mut x.try_clone()?, &mut bytes);
    let mut jobs = vec![
        job("copy_from_slice", 2 * LEN, || {
            copy(&from, &mut to, threads);
            Ok(())
        }),
        job("pack", len + small, || pack_into(&x, width, &plain, first).map(drop)),
        job("pack by a table", len + small, || pack_into(&x, width, &coded, second).map(drop)),
        job("unpack u8", len + small, || unpack_into(&packed, width, None, bytes)),
        job("unpack u8 by a table", len + small, || unpack_into(&packed, width, Some(table), bytes_by_table)),
        job("unpack f32", 4 * len + small, || unpack_into(&packed, width, Some(table), &mut floats)),
        job("into new memory: copy", 2 * len, || x.try_clone().map(drop)),
        job("into new memory: pack", len + small, || pack(&x, width, &plain).map(drop)),
        job("into new memory: unpack u8", len + small, || {
            unpack::<u8>(&packed, cols as u64, width, None).map(drop)
        }),
    ];
    if width == Width::Two {
        let planes = split_planes(&packed, cols as u64, None)?;
        let halves = to_usize(planes[0].len() * 2);
        let codes = &packed;
        jobs.push(job("into new memory: split_planes", small + halves, move || {
            split_planes(codes, cols as u64, None).map(drop)
        }));
        jobs.push(job("into new memory: merge_planes", small + halves, move || {
            merge_planes(&planes[0], &planes[1], cols as u64, None).map(drop)
        }));
    }
    for _ in 0..rounds {
        for job in &mut jobs {
            let started = Instant::now();
            (job.run)()?;
            job.seconds.push(started.elapsed().as_secs_f64());
        }
    }
    let rate = |job: &mut Job<'_>| {
        job.seconds.sort_by(f64::total_cmp);
        job.bytes as f64 / job.seconds[rounds / 2] / 1e9
    };
    let copied = rate(&mut jobs[0]);
    for job in &mut jobs {
        let (name, bits, rate) = (job.name.clone(), width.bits(), rate(job));
        println!(
            "{{\"threads\": {threads}, \"bits\": {bits}, \"columns\": {cols}, \"kernel\": \"{name}\", \"gb_per_s\": {rate:.1}, \
             \"of_copy\": {:.2}}}",
            rate / copied
        );
    }
    Ok(())
}

fn to_usize(len: u64) -> usize {
    usize::try_from(len).expect("a benchmark's size should fit the address space")
}

fn main() -> Result<(), Error> {
    let rounds = env::var("TEATIME_BENCH_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(9);
    let threads = thread::available_parallelism().map_or(1, Into::into);
    for threads in [threads, 1] {
        let options = DeviceOptions::default().threads(threads);
        let device = Device::open_with("cpu", &options)?;
        for width in Width::ALL {
            measure(&device, threads, width, LEN, rounds)?;
        }
        measure(&device, threads, Width::Two, 1001, rounds)?;
    }
    Ok(())
}
