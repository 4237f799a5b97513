//! Products of packed rows that are mostly 0, sample by sample.

use rayon::prelude::*;

use super::packed_adjoint::add;
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
            for (sample, a) in codes(&row[word0..word1]) {
                let sums = sums[sample * cols * 2..][..cols * 2].as_chunks_mut().0;
                for (column, b) in codes(columns) {
                    add(&mut sums[column], terms.product(a, b));
                }
            }
        }
    });
}

/// The codes of a row that are not 0, each after its place.
#[inline(always)]
fn codes(words: &[u32]) -> impl Iterator<Item = (usize, u32)> {
    let of_word =
        |(i, &word): (usize, &u32)| NonZero(word).map(move |(bit, code)| (16 * i + bit as usize / 2, code));
    words.iter().enumerate().flat_map(of_word)
}

/// The codes of a word that are not 0, each after the bit at which it stands.
struct NonZero(u32);

impl Iterator for NonZero {
    type Item = (u32, u32);

    #[inline(always)]
    fn next(&mut self) -> Option<(u32, u32)> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() & !1;
        let code = self.0 >> bit & 3;
        self.0 &= !(3 << bit);
        Some((bit, code))
    }
}
