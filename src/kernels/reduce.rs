//! Sums, sums of squares and counts, over blocks of rows or of columns.

use rayon::prelude::*;

use super::cpu::{load::load, simd::wide};
use crate::{
    DType,
    kernel::{CpuArg, CpuLaunch, Kernel, kernel, params},
};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        pub(crate) cols: u32,
        pub(crate) x0: u32,
        pub(crate) out0: u32,
        /// The code of the elements' type.
        pub(crate) x_type: u32,
    }
}

pub(crate) static REDUCE: Kernel<Params> = kernel!("reduce", Params, [Read, Write], reduce, specs);

/// The number of elements of one partial sum.
pub(crate) const BLOCK: u32 = 1024;
pub(crate) const WG: u32 = 64;

/// Returns the constants of a program. f32 has programs of its own, and so have bytes by row, whose sums are exact.
pub(crate) fn spec(dtype: DType, by_row: bool, missing: bool) -> [(&'static str, u32); 6] {
    let exact = exact(dtype, by_row);
    [
        ("WG", WG),
        ("BLOCK", BLOCK),
        ("BY_ROW", by_row.into()),
        ("NARROW", (dtype != DType::F32 && !exact).into()),
        ("EXACT", exact.into()),
        ("MISSING", missing.into()),
    ]
}

pub(crate) fn exact(dtype: DType, by_row: bool) -> bool {
    by_row && dtype == DType::I8
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    let kinds =
        [(DType::F32, true), (DType::F32, false), (DType::U8, true), (DType::U8, false), (DType::I8, true)];
    let specs_of = |(dtype, by_row)| [false, true].map(|missing| spec(dtype, by_row, missing).to_vec());
    kinds.into_iter().flat_map(specs_of).collect()
}

/// The number of partial sums, so that a long sum is vectorised. It determines the order of additions.
const LANES: usize = 16;

fn reduce(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let dtype = DType::from_code(p.x_type);
    let (by_row, missing) = (launch.constant("BY_ROW") != 0, launch.constant("MISSING") != 0);
    let [x, out] = launch.args();
    let (rows, cols, start) = (p.rows as usize, p.cols as usize, p.x0 as usize);
    if by_row {
        let parts = cols.div_ceil(BLOCK as usize);
        if dtype == DType::I8 {
            let x = &x.read::<i8>()[start..][..rows * cols];
            let out = &mut out.write::<u32>()[p.out0 as usize..].as_chunks_mut().0[..rows * parts];
            out.par_chunks_mut(parts).zip(x.par_chunks(cols)).for_each(|(out, row)| {
                for (out, x) in out.iter_mut().zip(row.chunks(BLOCK as usize)) {
                    *out = wide(|| integers(x, missing));
                }
            });
        } else {
            let out = &mut out.write::<f32>()[p.out0 as usize..].as_chunks_mut().0[..rows * parts];
            out.par_chunks_mut(parts).enumerate().for_each(|(row, out)| {
                floats_by_row(&x, dtype, start + row * cols, cols, missing, out);
            });
        }
    } else {
        let parts = rows.div_ceil(BLOCK as usize);
        let out = &mut out.write::<f32>()[p.out0 as usize..].as_chunks_mut().0[..parts * cols];
        out.par_chunks_mut(cols).enumerate().for_each(|(part, out)| {
            let first = part * BLOCK as usize;
            floats_by_column(&x, dtype, start, first..rows.min(first + BLOCK as usize), missing, out);
        });
    }
}

/// Returns the sum, the sum of squares, and the numbers of valid and of bad bytes. All are exact, because a block of bytes cannot overflow 32 bits.
#[inline(always)]
fn integers(x: &[i8], missing: bool) -> [u32; 4] {
    // Bytes below the floor are bad, and other negative bytes are missing. Without missing values, every byte is valid.
    let (floor, valid) = if missing { (-1, 0) } else { (i8::MIN, i8::MIN) };
    let (mut sum, mut squares, mut count, mut bad) = (0i32, 0i32, 0i32, 0i32);
    for &x in x {
        let ok = i32::from(x >= valid);
        let v = i32::from(x) * ok;
        sum += v;
        squares += v * v;
        count += ok;
        bad += i32::from(x < floor);
    }
    [sum, squares, count, bad].map(i32::cast_unsigned)
}

/// Adds one value. NaN and infinity are bad, and negative values are missing if `missing` is set.
#[inline(always)]
fn add(total: &mut [f32; 4], x: f32, missing: bool) {
    let finite = x.is_finite();
    let ok = finite && !(missing && x < 0.0);
    let v = if ok { x } else { 0.0 };
    total[0] += v;
    total[1] += v * v;
    total[2] += f32::from(u8::from(ok));
    total[3] += f32::from(u8::from(!finite));
}

fn floats_by_row(
    x: &CpuArg<'_>,
    dtype: DType,
    start: usize,
    cols: usize,
    missing: bool,
    out: &mut [[f32; 4]],
) {
    let mut block = [0.0; BLOCK as usize];
    for (part, out) in out.iter_mut().enumerate() {
        let first = part * BLOCK as usize;
        let block = &mut block[..(cols - first).min(BLOCK as usize)];
        load(x, dtype, start + first, block);
        let mut lanes = [[0.0; 4]; LANES];
        for values in block.chunks(LANES) {
            for (lane, &value) in lanes.iter_mut().zip(values) {
                add(lane, value, missing);
            }
        }
        *out = lanes.iter().fold([0.0; 4], |sum, lane| std::array::from_fn(|i| sum[i] + lane[i]));
    }
}

fn floats_by_column(
    x: &CpuArg<'_>,
    dtype: DType,
    start: usize,
    rows: std::ops::Range<usize>,
    missing: bool,
    out: &mut [[f32; 4]],
) {
    let mut row_values = vec![0.0; out.len()];
    out.fill([0.0; 4]);
    for row in rows {
        load(x, dtype, start + row * out.len(), &mut row_values);
        for (out, &value) in out.iter_mut().zip(&row_values) {
            add(out, value, missing);
        }
    }
}
