//! Sums, sums of squares and counts, over blocks of rows or of columns.

use std::ops::Range;

use bytemuck::Pod;
use rayon::prelude::*;

use super::cpu::{load::load, simd::wide, vectors::SimdFloat};
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

/// Returns the constants of a program. f32 has programs of its own, and so have bytes by row, whose sums are exact, and sums in f64 (`in_f64`).
pub(crate) fn spec(dtype: DType, in_f64: bool, by_row: bool, missing: bool) -> [(&'static str, u32); 7] {
    let exact = exact(dtype, by_row);
    [
        ("WG", WG),
        ("BLOCK", BLOCK),
        ("BY_ROW", by_row.into()),
        ("NARROW", (dtype != DType::F32 && !exact).into()),
        ("EXACT", exact.into()),
        ("WIDE", in_f64.into()),
        ("MISSING", missing.into()),
    ]
}

pub(crate) fn exact(dtype: DType, by_row: bool) -> bool {
    by_row && dtype == DType::I8
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    let floats = [(DType::F32, false), (DType::U8, false), (DType::F64, true)];
    let kinds =
        floats.into_iter().flat_map(|(dtype, in_f64)| [(dtype, in_f64, true), (dtype, in_f64, false)]);
    let specs_of =
        |(dtype, in_f64, by_row)| [false, true].map(|missing| spec(dtype, in_f64, by_row, missing).to_vec());
    kinds.chain([(DType::I8, false, true)]).flat_map(specs_of).collect()
}

/// The number of partial sums, so that a long sum is vectorised. It determines the order of additions.
const LANES: usize = 16;

fn reduce(launch: CpuLaunch<'_>) {
    let (p, missing): (Params, _) = (launch.params(), launch.constant("MISSING") != 0);
    let by_row = launch.constant("BY_ROW") != 0;
    match (launch.constant("WIDE") != 0, launch.constant("EXACT") != 0) {
        (true, _) => floats::<f64>(launch, by_row, missing),
        (false, false) => floats::<f32>(launch, by_row, missing),
        (false, true) => {
            let [x, out] = launch.args();
            let (rows, cols) = (p.rows as usize, p.cols as usize);
            let parts = cols.div_ceil(BLOCK as usize);
            let x = &x.read::<i8>()[p.x0 as usize..][..rows * cols];
            let out = &mut sums::<u32>(out, &p)[..rows * parts];
            out.par_chunks_mut(parts).zip(x.par_chunks(cols)).for_each(|(out, row)| {
                for (out, x) in out.iter_mut().zip(row.chunks(BLOCK as usize)) {
                    *out = wide(|| integers(x, missing));
                }
            });
        }
    }
}

/// Returns the places of sums, from the first of a launch on.
fn sums<'a, T: Pod>(out: CpuArg<'a>, p: &Params) -> &'a mut [[T; 4]] {
    out.write::<T>()[p.out0 as usize * 4 / size_of::<T>()..].as_chunks_mut().0
}

fn floats<R: SimdFloat>(launch: CpuLaunch<'_>, by_row: bool, missing: bool) {
    let p: Params = launch.params();
    let dtype = DType::from_code(p.x_type);
    let [x, out] = launch.args();
    let (rows, cols, start) = (p.rows as usize, p.cols as usize, p.x0 as usize);
    if by_row {
        let parts = cols.div_ceil(BLOCK as usize);
        let out = &mut sums::<R>(out, &p)[..rows * parts];
        out.par_chunks_mut(parts).enumerate().for_each(|(row, out)| {
            floats_by_row(&x, dtype, start + row * cols, cols, missing, out);
        });
    } else {
        let parts = rows.div_ceil(BLOCK as usize);
        let out = &mut sums::<R>(out, &p)[..parts * cols];
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
fn add<R: SimdFloat>(total: &mut [R; 4], x: R, missing: bool) {
    let zero = R::default();
    // Zero times NaN or infinity is NaN.
    let finite = x * zero == zero;
    let ok = finite && !(missing && x < zero);
    let v = if ok { x } else { zero };
    total[0] += v;
    total[1] += v * v;
    total[2] += R::nearest(u8::from(ok));
    total[3] += R::nearest(u8::from(!finite));
}

fn floats_by_row<R: SimdFloat>(
    x: &CpuArg<'_>,
    dtype: DType,
    start: usize,
    cols: usize,
    missing: bool,
    out: &mut [[R; 4]],
) {
    let mut block = [R::default(); BLOCK as usize];
    for (part, out) in out.iter_mut().enumerate() {
        let first = part * BLOCK as usize;
        let block = &mut block[..(cols - first).min(BLOCK as usize)];
        load(x, dtype, start + first, block);
        let mut lanes = [[R::default(); 4]; LANES];
        for values in block.chunks(LANES) {
            for (lane, &value) in lanes.iter_mut().zip(values) {
                add(lane, value, missing);
            }
        }
        *out = [R::default(); 4];
        for lane in lanes {
            out.iter_mut().zip(lane).for_each(|(sum, term)| *sum += term);
        }
    }
}

fn floats_by_column<R: SimdFloat>(
    x: &CpuArg<'_>,
    dtype: DType,
    start: usize,
    rows: Range<usize>,
    missing: bool,
    out: &mut [[R; 4]],
) {
    let mut row_values = vec![R::default(); out.len()];
    out.fill([R::default(); 4]);
    for row in rows {
        load(x, dtype, start + row * out.len(), &mut row_values);
        for (out, &value) in out.iter_mut().zip(&row_values) {
            add(out, value, missing);
        }
    }
}
