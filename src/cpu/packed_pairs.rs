//! Products of packed rows that are mostly 0, sample by sample.

use rayon::prelude::*;

use crate::{
    driver::cpu::CpuLaunch,
    genotype::packed::pairs::{Params, Terms},
};

/// Words of a row that one task takes.
const STRIP: usize = 8;

pub(crate) fn packed_pairs(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [packed, terms, sums] = launch.args();
    let (rows, words, cols) = (p.rows as usize, p.words as usize, p.columns as usize);
    let (word0, word1) = (p.word0 as usize, (p.word0 + p.word_count) as usize);
    let packed = &packed.read::<u32>()[p.packed0 as usize..][..rows * words];
    let terms: &[Terms] = bytemuck::cast_slice(&terms.read::<u32>()[p.table0 as usize..][..4 * rows]);
    // What pads the last words has no sums, and is 0.
    let sums = &mut sums.write::<u32>()[p.sums0 as usize..];
    let len = sums.len().min(16 * (word1 - word0) * cols * 2);
    sums[..len].par_chunks_mut(16 * STRIP * cols * 2).enumerate().for_each(|(strip, sums)| {
        let word0 = word0 + strip * STRIP;
        let word1 = word1.min(word0 + STRIP);
        for (row, terms) in packed.chunks_exact(words).zip(terms) {
            let columns = &row[p.column_word as usize..][..cols.div_ceil(16)];
            if columns.iter().all(|&word| word == 0) {
                continue;
            }
            each_code(&row[word0..word1], |sample, a| {
                let sums = &mut sums[sample * cols * 2..][..cols * 2];
                each_code(columns, |column, b| {
                    let sum = &mut sums[2 * column..][..2];
                    let total =
                        (u64::from(sum[0]) | u64::from(sum[1]) << 32).wrapping_add(terms.product(a, b));
                    #[allow(clippy::cast_possible_truncation, reason = "the halves of 64 bits")]
                    let halves = [total as u32, (total >> 32) as u32];
                    sum.copy_from_slice(&halves);
                });
            });
        }
    });
}

/// Calls `f` with the place of each code that is not 0, and the code.
#[inline(always)]
fn each_code(words: &[u32], mut f: impl FnMut(usize, u32)) {
    for (i, &word) in words.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            let place = rest.trailing_zeros() & !1;
            f(16 * i + place as usize / 2, rest >> place & 3);
            rest &= !(3 << place);
        }
    }
}
