//! What missing codes add to a transposed product that took them for 3.

use rayon::prelude::*;

use super::{
    cpu::dot::missing,
    packed_adjoint::{Params, add},
};
use crate::kernel::{CpuLaunch, Kernel, kernel};

pub(crate) static PACKED_MISSING: Kernel<Params> =
    kernel!("packed_missing", Params, [Read, Read, ReadWrite], packed_missing, specs);

/// Words of a row that a workgroup takes.
pub(crate) const TILE: u32 = 128;

pub(crate) fn spec(limb_count: u32) -> [(&'static str, u32); 2] {
    [("TILE", TILE), ("LIMBS", limb_count)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [2, 3].map(|limb_count| spec(limb_count).to_vec()).into()
}

/// Words of a row that one task takes.
const STRIP: usize = 8;

fn packed_missing(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let limb_count = launch.constant("LIMBS") as usize;
    let [packed, weights, sums] = launch.args();
    let (rows, words, cols, row_limbs) =
        (p.rows as usize, p.words as usize, p.columns as usize, p.row_limbs as usize);
    let packed = &packed.read::<u32>()[p.packed0 as usize..][..rows * words];
    let weights = &weights.read::<u32>()[p.weights0 as usize..][..rows.div_ceil(4) * 2 * row_limbs];
    let sums = &mut sums.write::<u32>()[p.sums0 as usize..][..p.entries as usize * cols * 2];
    sums.par_chunks_mut(16 * STRIP * cols * 2).enumerate().for_each(|(strip, sums)| {
        let word0 = p.word0 as usize + strip * STRIP;
        let word1 = (word0 + STRIP).min((p.word0 + p.word_count) as usize);
        for (row, packed) in packed.chunks_exact(words).enumerate() {
            let packed = &packed[word0..word1];
            if packed.iter().all(|&word| missing(word) == 0) {
                continue;
            }
            let limbs: &[u32] = &weights[row / 4 * 2 * row_limbs..];
            let number = |row_limb: usize| -> i64 {
                let limb =
                    |t: usize| i64::from(limbs[row_limb + t * cols].to_le_bytes()[row % 4].cast_signed());
                (0..limb_count).map(|t| limb(t) << (8 * t)).sum()
            };
            let terms = (0..cols).map(|c| (number(row_limbs + c) - 3 * number(c)) << p.shift);
            let terms: Vec<i64> = terms.collect();
            // What pads the last word has no sums.
            for (i, sums) in sums.chunks_exact_mut(cols * 2).enumerate() {
                if missing(packed[i / 16]) >> (2 * (i % 16)) & 1 == 1 {
                    sums.as_chunks_mut().0.iter_mut().zip(&terms).for_each(|(sum, &term)| add(sum, term));
                }
            }
        }
    });
}
