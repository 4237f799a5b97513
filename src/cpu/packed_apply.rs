//! Packed rows times digits, in whole numbers.

use rayon::prelude::*;

use crate::{
    driver::cpu::CpuLaunch,
    genotype::packed::{apply::Params, slices::digits},
};

pub(crate) fn packed_apply(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let (missing, as_digits) = (launch.constant("MISSING") != 0, launch.constant("DIGITS") != 0);
    let [packed, xs, table, columns, out] = launch.args();
    let (rows, words, cols, lanes) =
        (p.rows as usize, p.words as usize, p.columns as usize, p.lanes as usize);
    let packed = &packed.read::<u32>()[p.packed0 as usize..][..rows * words];
    let xs = &xs.read::<u32>()[..4 * words * lanes];
    let table = &table.read::<f32>()[p.table0 as usize..].as_chunks::<2>().0[..rows];
    let columns = &columns.read::<f32>().as_chunks::<2>().0[..cols];
    let y = |row: usize, weights: bool| -> Vec<[f32; 2]> {
        let (mut sums, mut absent) = (vec![0i32; lanes], vec![0i32; lanes]);
        for quad in 0..4 * words {
            let four = packed[row * words + quad / 4] >> (2 * (quad % 4)) & 0x0303_0303;
            for (byte, code) in four.to_le_bytes().into_iter().enumerate() {
                for lane in 0..lanes {
                    let digit = i32::from(xs[quad * lanes + lane].to_le_bytes()[byte].cast_signed());
                    if code == 3 { absent[lane] += digit } else { sums[lane] += i32::from(code) * digit }
                }
            }
        }
        let [mean, factor] = table[row];
        let value = |(c, &[total, scale]): (usize, &[f32; 2])| {
            let sum = join([sums[c], sums[cols + c], sums[2 * cols + c]]);
            let present = if missing {
                total - join([absent[c], absent[cols + c], absent[2 * cols + c]])
            } else {
                total
            };
            let y = (sum - mean * present) * factor;
            if weights {
                let w = y * factor * scale;
                [w, w * mean]
            } else {
                [y * scale, 0.0]
            }
        };
        columns.iter().enumerate().map(value).collect()
    };
    if !as_digits {
        let out = &mut out.write::<f32>()[p.out0 as usize..][..rows * cols];
        out.par_chunks_mut(cols).enumerate().for_each(|(row, out)| {
            out.iter_mut().zip(y(row, false)).for_each(|(out, [y, _])| *out = y);
        });
        return;
    }
    let sets = if missing { 2 } else { 1 };
    let width = sets * lanes;
    let out = &mut out.write::<u32>()[p.out0 as usize..][..rows.div_ceil(4) * width];
    out.par_chunks_mut(width).enumerate().for_each(|(four, out)| {
        out.fill(0);
        for row in 4 * four..rows.min(4 * four + 4) {
            for (c, pair) in y(row, true).into_iter().enumerate() {
                for (set, weight) in pair.into_iter().take(sets).enumerate() {
                    for (slice, digit) in digits(multiple(weight)).into_iter().enumerate() {
                        let byte = u32::from(digit.cast_unsigned()) << (8 * (row % 4));
                        out[set * lanes + slice * cols + c] |= byte;
                    }
                }
            }
        }
    });
}

/// The number that three sums of digits stand for: exact until the last additions round.
#[inline(always)]
fn join([low, middle, high]: [i32; 3]) -> f32 {
    (widen(high) * 256.0 + widen(middle)) * 256.0 + widen(low)
}

/// A whole number in f32: rounded once.
#[inline(always)]
fn widen(x: i32) -> f32 {
    #[allow(clippy::cast_precision_loss, reason = "rounded to nearest, as the sum of two exact halves is")]
    let rounded = x as f32;
    rounded
}

/// The nearest whole number within the range of digits.
#[inline(always)]
fn multiple(weight: f32) -> i32 {
    #[allow(clippy::cast_possible_truncation, reason = "in range after the clamp")]
    let multiple = weight.round_ties_even().clamp(-8_355_711.0, 8_355_711.0) as i32;
    multiple
}
