//! Packed rows, transposed, times digits: exact sums.

use rayon::prelude::*;

use crate::{driver::cpu::CpuLaunch, genotype::packed::adjoint::Params};

pub(crate) fn packed_adjoint(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let missing = launch.constant("MISSING") != 0;
    let [packed, weights, sums] = launch.args();
    let (rows, words, cols, lanes) =
        (p.rows as usize, p.words as usize, p.columns as usize, p.lanes as usize);
    let width = if missing { 2 * lanes } else { lanes };
    let packed = &packed.read::<u32>()[p.packed0 as usize..][..rows * words];
    let weights = &weights.read::<u32>()[p.weights0 as usize..][..rows.div_ceil(4) * width];
    let sums = &mut sums.write::<u32>()[p.sums0 as usize..][..p.samples as usize * cols * 2];
    sums.par_chunks_mut(2 * cols).enumerate().for_each(|(sample, sums)| {
        let mut totals = vec![0i64; 3 * cols];
        for row in 0..rows {
            let code = packed[row * words + p.word0 as usize + sample / 16] >> (2 * (sample % 16)) & 3;
            let digits = &weights[row / 4 * width..][..width];
            let digits = if code == 3 && missing { &digits[lanes..] } else { digits };
            let times = [0, 1, 2, i64::from(missing)][code as usize];
            for (total, word) in totals.iter_mut().zip(digits) {
                *total += times * i64::from(word.to_le_bytes()[row % 4].cast_signed());
            }
        }
        for (c, sum) in sums.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let added = totals[c] + (totals[cols + c] << 8) + (totals[2 * cols + c] << 16);
            let total = (i64::from(sum[0]) | i64::from(sum[1]) << 32).wrapping_add(added);
            #[allow(clippy::cast_possible_truncation, reason = "the halves of 64 bits")]
            let halves = [total as u32, (total >> 32) as u32];
            *sum = halves;
        }
    });
}
