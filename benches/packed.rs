//! Recoding of packed calls, and one pass Aᵀ (A X): `cargo bench -p teatime-bench --bench packed`. The shape is rows, columns, and columns of
//! X. An element of criterion's throughput is a multiplication.

#![allow(clippy::cast_possible_truncation, reason = "its sizes are small")]

mod support;

use support::Bench;
use teatime::{
    Device, Error, Tensor,
    linalg::Matrix,
    packed::{PackedProduct, PackedRows, recode},
    random::{philox, random_words},
};

const ROWS: u64 = 164_000;
const COLS: u64 = 1000;
/// The number of columns of X.
const WIDTH: u64 = 20;
/// The number of bytes of the input codes, with four codes in a byte.
const CALLS: u64 = ROWS * COLS / 4;
/// The number of bytes of the packed rows.
const PACKED: u64 = ROWS * COLS.div_ceil(64) * 16;

/// Returns codes of calls, four in a byte; one in `missing` codes is missing.
fn calls(device: &Device, missing: Option<u32>) -> Result<Tensor<u8>, Error> {
    let words = random_words(device, 3, 0, ROWS * COLS)?.read()?;
    let code = |word: &u32| match missing {
        Some(rate) if word >> 8 < (1 << 24) / rate => 3,
        _ => (word & 1) + (word >> 1 & 1),
    };
    let byte = |four: &[u32]| four.iter().rev().fold(0, |byte, word| byte << 2 | code(word) as u8);
    let bytes: Vec<u8> = words.chunks(4).map(byte).collect();
    Tensor::from_slice(device, &bytes, &[ROWS, COLS / 4])
}

/// Allocates the packed rows of all codes.
fn codes(device: &Device) -> Result<Tensor<u32>, Error> {
    Tensor::zeros(device, &[ROWS, COLS.div_ceil(64) * 4])
}

fn recoding(bench: &mut Bench, op: &str, table: [u8; 4]) {
    let device = &bench.device.clone();
    bench.case(op, &[ROWS, COLS], CALLS + PACKED, None, || {
        let (calls, mut packed) = (calls(device, None)?, codes(device)?);
        Ok(move || recode(&calls, table, COLS, &mut packed, 0).map(drop))
    });
}

fn pass(bench: &mut Bench, missing: Option<u32>) {
    let device = &bench.device.clone();
    let op = missing.map_or("pass".into(), |rate| format!("pass, 1 of {rate} missing"));
    bench.case(&op, &[ROWS, COLS, WIDTH], PACKED, Some(2 * ROWS * COLS * WIDTH), || {
        let mut packed = codes(device)?;
        drop(recode(&calls(device, missing)?, [0, 1, 2, 3], COLS, &mut packed, 0)?);
        let number = |i: u64| f64::from(philox([5, 5], i)[0]) / 2f64.powi(32) - 0.5;
        let x: Vec<f64> = (0..COLS * WIDTH).map(number).collect();
        let x = Matrix::from_vec(x, COLS as usize, WIDTH as usize)?;
        let table = vec![[1.0f32, 1.4]; ROWS as usize];
        let table = Tensor::from_slice(device, table.as_flattened(), &[ROWS, 2])?;
        // The bounds of a row are 1.4² times the norm of 1,000 values of at most 1, and times their sum.
        let bounds = [2.0 * 32.0, 2.0 * 1000.0];
        let missing = missing.is_some();
        Ok(move || {
            let mut pass = PackedProduct::new(device, &x, true, Some(bounds))?;
            pass.add(PackedRows { packed: &packed, range: (0, ROWS), missing }, &table)?;
            pass.finish().map(drop)
        })
    });
}

fn main() -> Result<(), Error> {
    let bench = &mut Bench::new()?;
    recoding(bench, "recode", [0, 1, 2, 3]);
    recoding(bench, "recode bed", [2, 3, 1, 0]);
    for missing in [None, Some(100), Some(20), Some(5)] {
        pass(bench, missing);
    }
    Ok(())
}
