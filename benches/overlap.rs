//! Time of passes over stored arrays beside the least time that they could take: `cargo bench -p teatime-bench --bench overlap [-- PASS]`.
//!
//! A pass whose stages overlap takes as long as its slowest stage. The floor is the larger of two times: the processor time, divided by the
//! number of cores; and the time that the storage takes, if it answers only after a while and only some values at a time. Sources are limited by
//! decoding (zstd or blosc), by copying (uncompressed chunks in the file cache) or by latency; passes by computing with more columns and wider
//! filters. Each round runs all cases once, and the medians of the rounds count. The device is the one that `TEATIME_DEVICE` names.
//! Processor times are those that Linux counts, in hundredths of a second.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::{
    fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use teatime::{
    Budget, ChunkedArray, Device, Error, MissingChunk, Result, Run, Status, StoredType,
    distance::{Metric, Options, neighbors_stored},
    filter::{GaussianOptions, write_gaussian},
    linalg::{LinearMap, Matrix, Pass},
    random::philox,
    store::{ArraySpec, ArrayWriter, Compression, Folder, Shuffle, Storable, Storage, Value, ZarrArray},
    stream::StoredMatrix,
    to_usize,
};
use teatime_genotype::{Cohort, Genotypes, PcaOptions, Wanted};

const ROUNDS: usize = 5;
/// The time after which slow storage answers.
const LATENCY: Duration = Duration::from_millis(20);
/// The number of values that slow storage looks up at a time.
const FETCHES: u32 = 16;

/// A folder that answers like a server far away.
#[derive(Debug)]
struct Far {
    folder: Folder,
    answers: AtomicU64,
}

impl Storage for Far {
    fn place(&self, key: &str) -> String {
        self.folder.place(key)
    }

    fn fetches(&self) -> usize {
        FETCHES as usize
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Value> {
        thread::sleep(LATENCY);
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.folder.get(key, most)
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        self.folder.size(key)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.folder.list(prefix)
    }
}

/// A pass over the array of a name in a storage.
struct Case {
    name: &'static str,
    array: &'static str,
    pass: fn(Arc<dyn ChunkedArray>, &Device, &Path) -> Result<()>,
}

const CASES: [Case; 7] = [
    Case { name: "product of 20 columns", array: "matrix", pass: |x, device, _| product(x, device, 20) },
    Case { name: "product of 200 columns", array: "matrix", pass: |x, device, _| product(x, device, 200) },
    Case { name: "blur, sigma 1", array: "volume", pass: |x, device, to| blur(&x, device, to, 1.0) },
    Case { name: "blur, sigma 6", array: "volume", pass: |x, device, to| blur(&x, device, to, 6.0) },
    Case {
        name: "neighbors, all in memory",
        array: "points",
        pass: |x, device, _| neighbors(&x, device, 1 << 30),
    },
    Case {
        name: "neighbors, read again",
        array: "points",
        pass: |x, device, _| neighbors(&x, device, 48 << 20),
    },
    Case { name: "genotypes, first pass", array: "calls", pass: |x, device, _| genotypes(x, device) },
];

fn product(x: Arc<dyn ChunkedArray>, device: &Device, width: usize) -> Result<()> {
    let (columns, run) = (x.shape()[1], run(1 << 30));
    let value = |i: u64| f64::from(philox([1, 2], i)[0]) / 2f64.powi(32) - 0.5;
    let entries = columns * width as u64;
    let y = Matrix::from_vec((0..entries).map(value).collect(), to_usize(columns), width)?;
    let matrix = StoredMatrix::new(vec![x], device)?;
    let rows = matrix.shape()[0];
    matrix.apply_normal(&y, &Pass::new(&run, Status::new(0, 1, rows))).map(drop)
}

fn blur(x: &Arc<dyn ChunkedArray>, device: &Device, to: &Path, sigma: f64) -> Result<()> {
    let begin = |_: &str| {
        let spec = ArraySpec::new(StoredType::F32, x.shape(), x.chunk_shape());
        ArrayWriter::create(Arc::new(Folder::new(to)), "", spec)
    };
    write_gaussian(x, sigma, &GaussianOptions::default(), device, &run(256 << 20), begin).map(drop)
}

fn neighbors(x: &Arc<dyn ChunkedArray>, device: &Device, memory: u64) -> Result<()> {
    neighbors_stored(x, None, 5, Metric::Euclidean, &Options::default(), device, &run(memory)).map(drop)
}

fn genotypes(x: Arc<dyn ChunkedArray>, device: &Device) -> Result<()> {
    let wanted = Wanted::default().pca(&PcaOptions::default());
    Cohort::load(&Genotypes::new(vec![x])?, device, &wanted, &run(1 << 30)).map(drop)
}

fn run(memory: u64) -> Run {
    Run::default().memory(Budget::default().host(memory))
}

/// Writes an array of smooth numbers with noise, uncompressed and compressed.
fn write<T: Storable>(
    folder: &Path,
    name: &str,
    [shape, chunk]: [&[u64]; 2],
    [none, packed]: [Compression; 2],
    value: impl Fn(u64, u32) -> T + Copy,
) -> Result<()> {
    for (kind, compression) in [("none", none), ("packed", packed)] {
        let mut spec = ArraySpec::new(T::STORED, shape, chunk);
        spec.compression = compression;
        let writer = ArrayWriter::create(Arc::new(Folder::new(folder.join(kind))), name, spec)?;
        let elements: u64 = chunk.iter().product();
        for (number, tile) in (0u64..).zip(writer.tiles()) {
            let words = |i| philox([7, 8], number * elements + i)[0];
            writer.write(&tile, &(0..elements).map(|i| value(i, words(i))).collect::<Vec<_>>())?;
        }
        writer.finish()?;
    }
    Ok(())
}

fn make(folder: &Path) -> Result<()> {
    let zstd = [Compression::None, Compression::Zstd { level: 1 }];
    let float = |i: u64, word: u32| (i % 977) as f32 + (word >> 28) as f32;
    write(folder, "matrix", [&[16_000, 8000], &[1000, 1000]], zstd, float)?;
    write(folder, "points", [&[8000, 2000], &[500, 500]], zstd, float)?;
    write(folder, "volume", [&[96, 1024, 1024], &[32, 256, 256]], zstd, |i, word| {
        u16::try_from(i % 977).expect("it is below 977") + u16::from(word.to_be_bytes()[0] >> 4)
    })?;
    let blosc = Compression::Blosc { level: 5, shuffle: Shuffle::Bits };
    let call = |_: u64, word: u32| i8::from(word < u32::MAX / 16);
    write(folder, "calls", [&[100_000, 1000, 2], &[1000, 1000, 2]], [Compression::None, blosc], call)
}

/// Returns the processor seconds of this process so far.
fn processor_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").expect("Linux should say what the process has taken");
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().expect("a number of ticks") / 100.0).sum()
}

/// Returns the seconds of a case, and its floor.
fn measure(
    case: &Case,
    storage: Arc<dyn Storage>,
    far: &Far,
    device: &Device,
    to: &Path,
) -> Result<[f64; 2]> {
    let array: Arc<dyn ChunkedArray> =
        Arc::new(ZarrArray::open_in(&storage, case.array, MissingChunk::Error)?);
    let answers = || far.answers.load(Ordering::Relaxed);
    let (before, answered, started) = (processor_seconds(), answers(), Instant::now());
    (case.pass)(array, device, to)?;
    let seconds = started.elapsed().as_secs_f64();
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    let computed = (processor_seconds() - before) / cores;
    let waited = (answers() - answered) as f64 * LATENCY.as_secs_f64() / f64::from(FETCHES);
    Ok([seconds, computed.max(waited)])
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<()> {
    // Cargo gives `--bench` to each benchmark.
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let (device, scratch) =
        (Device::best()?, tempfile::tempdir().map_err(|e| Error::argument("overlap", "TMPDIR", e))?);
    make(scratch.path())?;
    println!("device {}, {ROUNDS} rounds, medians", device.info().name);
    let sources: Vec<_> =
        ["none", "packed"].into_iter().flat_map(|kind| [(kind, false), (kind, true)]).collect();
    let cases: Vec<_> = CASES.iter().filter(|case| case.name.contains(&only)).collect();
    let mut times = vec![[const { Vec::new() }; 3]; cases.len() * sources.len()];
    for _ in 0..ROUNDS {
        let all = cases.iter().flat_map(|case| sources.iter().map(move |source| (case, source)));
        for ((case, (kind, is_far)), times) in all.zip(&mut times) {
            let at = scratch.path().join(kind);
            let far = Arc::new(Far { folder: Folder::new(&at), answers: AtomicU64::new(0) });
            let storage: Arc<dyn Storage> = if *is_far { far.clone() } else { Arc::new(Folder::new(&at)) };
            let to = scratch.path().join("out");
            let [seconds, floor] = measure(case, storage, &far, &device, &to)?;
            drop(fs::remove_dir_all(to));
            times.iter_mut().zip([seconds, floor, seconds / floor]).for_each(|(all, one)| all.push(one));
        }
    }
    println!("| pass | chunks | s | floor s | of the floor |\n|---|---|---|---|---|");
    let all = cases.iter().flat_map(|case| sources.iter().map(move |source| (case, source)));
    for ((case, (kind, is_far)), times) in all.zip(&mut times) {
        let far = if *is_far { ", 20 ms away" } else { "" };
        let [seconds, floor, ratio] = times.each_mut().map(|all| median(all));
        println!("| {} | {kind}{far} | {seconds:.3} | {floor:.3} | {ratio:.2} |", case.name);
    }
    Ok(())
}
