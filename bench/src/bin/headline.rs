//! Truncated SVD of a random matrix of 10,000,000 x 20,000 entries in {0, 1, 2}, two bits each, on one device.
//!
//! `cargo run --release -p teatime-bench --bin headline -- [--scale F] [--device NAME] [--power-iterations Q] [--components K]`
//!
//! `--scale` is the share of the rows: 1 takes 50 GB, the default 0.001 fits anywhere.

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use std::{cell::RefCell, error::Error, fs, time::Instant};

use teatime::{
    Device, Result, Run,
    linalg::{LinearMap, Matrix, Pass, Stop, SvdOptions, randomized_svd},
    packed::PackedMatrix,
};

const ROWS: f64 = 10_000_000.0;
const COLUMNS: u64 = 20_000;

/// The matrix, with the seconds of each pass.
struct Timed<'a>(&'a PackedMatrix, RefCell<Vec<f64>>);

impl LinearMap for Timed<'_> {
    fn shape(&self) -> [u64; 2] {
        self.0.shape()
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        let started = Instant::now();
        let product = self.0.apply_normal(x, pass)?;
        self.1.borrow_mut().push(started.elapsed().as_secs_f64());
        Ok(product)
    }

    fn apply(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
    ) -> Result<()> {
        self.0.apply(x, pass, sink)
    }
}

/// Most memory of the process in bytes, where the system tells.
fn peak_of_process() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut scale, mut device, mut power, mut k) = (0.001, None, 0, 10);
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--scale" => scale = value.parse()?,
            "--device" => device = Some(value),
            "--power-iterations" => power = value.parse()?,
            "--components" => k = value.parse()?,
            _ => {
                return Err(
                    format!("{flag}: not --scale, --device, --power-iterations or --components").into()
                );
            }
        }
    }
    let device = device.map_or_else(Device::best, |name| Device::open(&name))?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is checked below"
    )]
    let rows = (ROWS * scale).round() as u64;

    // 1. The matrix is made where it stays.
    let started = Instant::now();
    let matrix = PackedMatrix::random(&device, rows, COLUMNS, 0, &Run::default())?;
    let (bytes, made) = (matrix.bytes() as f64, started.elapsed().as_secs_f64());
    println!("{rows} x {COLUMNS} on {device:?}: {:.3} GB packed, made in {made:.3} s", bytes / 1e9);

    // 2. q power iterations are q + 2 passes over it.
    let options = SvdOptions::default().stop(Stop::PowerIterations(power));
    let (map, started) = (Timed(&matrix, RefCell::default()), Instant::now());
    let svd = randomized_svd(&map, k, &options, &Run::default())?;
    let total = started.elapsed().as_secs_f64();
    println!("{k} singular values in {} passes, {total:.3} s: {:.2?}", svd.passes, svd.s);
    let residuals: Vec<String> = svd.residuals.iter().map(|residual| format!("{residual:.1e}")).collect();
    println!("relative residuals {}", residuals.join(", "));

    // 3. Each pass is two products with the columns of the block, each number of which is three bytes.
    let operations = 2.0 * 2.0 * 3.0 * options.block(k) as f64 * (rows * COLUMNS) as f64;
    for (i, seconds) in map.1.borrow().iter().enumerate() {
        let (read, rate) = (bytes / seconds / 1e9, operations / seconds / 1e12);
        println!("pass {i}: {seconds:.3} s, {read:.2} GB/s of packed bytes, {rate:.3} int8 Top/s");
    }
    let on_device = device.peak_bytes() as f64 / 1e9;
    let of_process =
        peak_of_process().map_or("unknown".into(), |bytes| format!("{:.3} GB", bytes as f64 / 1e9));
    println!("peak memory: {on_device:.3} GB of tensors on the device, {of_process} of the process");
    Ok(())
}
