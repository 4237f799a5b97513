//! Recodes 2-bit codes by a table, and counts the codes of each row.

use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::cpu::simd::wide;
use crate::kernel::{CpuLaunch, Kernel, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        /// The number of codes of a row.
        pub(crate) cols: u32,
        /// The number of bytes of a row of `raw`.
        pub(crate) row_bytes: u32,
        /// The number of words of a row of `packed`.
        pub(crate) words: u32,
        /// The offsets of `raw`, in bytes, and of `packed` and `counts`, in words.
        pub(crate) raw0: u32,
        pub(crate) packed0: u32,
        pub(crate) counts0: u32,
        /// The new code of code i, in bits 2 i and 2 i + 1.
        pub(crate) table: u32,
    }
}

pub(crate) static RECODE: Kernel<Params> = kernel!("recode", Params, [Read, Write, Write], recode, specs);

/// The constants of the only program.
pub(crate) const SPEC: [(&str, u32); 1] = [("WG", 64)];

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    vec![SPEC.to_vec()]
}

/// The minimum number of bytes that a task reads.
const PIECE: usize = 1 << 16;

fn recode(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [raw, packed, counts] = launch.args();
    let (rows, words) = (p.rows as usize, p.words as usize);
    let row_bytes = p.row_bytes as usize;
    let raw = &raw.read::<u8>()[p.raw0 as usize..][..rows * row_bytes];
    let packed = &mut packed.write::<u32>()[p.packed0 as usize..][..rows * words];
    let counts = &mut counts.write::<u32>()[p.counts0 as usize..].as_chunks_mut::<4>().0[..rows];
    let masks = masks(p.table);
    let rows = packed.par_chunks_mut(words).zip(raw.par_chunks(row_bytes)).zip(counts);
    rows.with_min_len(PIECE.div_ceil(row_bytes)).for_each(|((packed, raw), counts)| {
        *counts = wide(RecodeRow { raw, cols: p.cols, masks: &masks, packed });
    });
}

/// Returns masks for the lower and the upper bit of new codes: all ones or all zeros for the terms 1, lower bit, upper bit, and both.
fn masks(table: u32) -> [[u32; 4]; 2] {
    [0, 1].map(|bit| {
        let [a, b, c, d] = [0, 2, 4, 6].map(|at| (table >> (at + bit) & 1).wrapping_neg());
        [a, a ^ b, a ^ c, a ^ b ^ c ^ d]
    })
}

/// Recodes a row. It is not a closure: the compiler may not inline closures, and compiles them without wide vectors then.
struct RecodeRow<'a> {
    raw: &'a [u8],
    cols: u32,
    masks: &'a [[u32; 4]; 2],
    packed: &'a mut [u32],
}

impl NullaryFnOnce for RecodeRow<'_> {
    type Output = [u32; 4];

    #[inline(always)]
    fn call(self) -> [u32; 4] {
        let (words, masks) = (self.packed, *self.masks);
        let (stored, rest) = self.raw.as_chunks();
        for (word, &stored) in words.iter_mut().zip(stored) {
            *word = recoded(masks, stored);
        }
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            words[stored.len()] = recoded(masks, last);
        }
        // Zeros follow the last code, in its word and in the words after it.
        let used = self.cols.div_ceil(16) as usize;
        if !self.cols.is_multiple_of(16) {
            words[used - 1] &= (1 << (2 * (self.cols % 16))) - 1;
        }
        words[used..].fill(0);
        let mut counts = [0; 4];
        for words in words.as_chunks().0 {
            count(words, &mut counts);
        }
        counts[0] = self.cols - counts[1] - counts[2] - counts[3];
        counts
    }
}

/// Returns 16 recoded codes.
#[inline(always)]
fn recoded(masks: [[u32; 4]; 2], stored: [u8; 4]) -> u32 {
    const LOWER: u32 = 0x5555_5555;
    let stored = u32::from_le_bytes(stored);
    let (low, high) = (stored & LOWER, stored >> 1 & LOWER);
    let [lower, upper] =
        masks.map(|[one, a, b, both]| (one ^ a & low ^ b & high ^ both & low & high) & LOWER);
    lower | upper << 1
}

/// Counts the codes 1, 2 and 3 among 64 codes.
#[inline(always)]
fn count(words: &[u32; 4], counts: &mut [u32; 4]) {
    const LOW: u64 = 0x5555_5555_5555_5555;
    let [a, b] = [0, 2].map(|i| u64::from(words[i]) | u64::from(words[i + 1]) << 32);
    // `low` has the low bits of all codes, those of the second pair of words next to those of the first; `high` has the high bits.
    let (low, high) = (a & LOW | (b & LOW) << 1, a >> 1 & LOW | b & !LOW);
    let both = (low & high).count_ones();
    counts[1] += low.count_ones() - both;
    counts[2] += high.count_ones() - both;
    counts[3] += both;
}
