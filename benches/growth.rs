//! Time and memory of a pass over packed matrices of increasing size: `cargo bench -p teatime-bench --bench growth`.
//!
//! Matrices have 20,000 to 2,000,000 rows of 1,000 random entries in {0, 1, 2}, on the device that `TEATIME_DEVICE` names. A pass is Aᵀ (A X)
//! with 20 columns. Each round runs all sizes once, so that other load slows all sizes alike, and the median of the rounds counts. Each size
//! prints one JSON line.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::time::Instant;

use teatime::{
    Device, Error, Run, Status,
    linalg::{LinearMap, Matrix, Pass},
    packed::PackedMatrix,
    random::philox,
};

const COLUMNS: u64 = 1000;
/// The number of columns of X.
const WIDTH: u64 = 20;
const ROUNDS: usize = 7;

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    let value = |i: u64| f64::from(philox([1, 2], i)[0]) / 2f64.powi(32) - 0.5;
    let values = (0..COLUMNS * WIDTH).map(value).collect();
    let x = Matrix::from_vec(values, 1000, 20)?;
    let run = Run::default();
    let sizes = [20_000, 63_000, 200_000, 630_000, 2_000_000];
    let mut seconds = vec![Vec::new(); sizes.len()];
    let mut peaks = vec![0; sizes.len()];
    for _ in 0..ROUNDS {
        for (i, &rows) in sizes.iter().enumerate() {
            let matrix = PackedMatrix::random(&device, rows, COLUMNS, 0, &run)?;
            let started = Instant::now();
            matrix.apply_normal(&x, &Pass::new(&run, Status::new(0, 1, rows)))?;
            seconds[i].push(started.elapsed().as_secs_f64());
            // Sizes increase, so in the first round the peak memory so far is this size's.
            if peaks[i] == 0 {
                peaks[i] = device.peak_bytes();
            }
        }
    }
    for ((rows, mut seconds), peak) in sizes.into_iter().zip(seconds).zip(peaks) {
        seconds.sort_by(f64::total_cmp);
        let median = seconds[ROUNDS / 2];
        println!(
            "{{\"device\": \"{}\", \"rows\": {rows}, \"columns\": {COLUMNS}, \"seconds\": {median:.5}, \
             \"ns_a_row\": {:.1}, \"fastest\": {:.5}, \"packed_bytes\": {}, \"peak_bytes\": {peak}}}",
            device.info().name,
            median / rows as f64 * 1e9,
            seconds[0],
            rows * COLUMNS.div_ceil(64) * 16,
        );
    }
    Ok(())
}
