//! Products of packed rows in which most codes are 0, entry by entry.

use bytemuck::{Pod, Zeroable};
use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::{
    cpu::{
        dot::{Dot, Path, Work},
        sparse::code,
    },
    packed_adjoint::add,
    wg_alone,
};
use crate::{
    Cancel,
    kernel::{CpuLaunch, Kernel, kernel, params},
};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        /// The number of words of a row.
        pub(crate) words: u32,
        pub(crate) columns: u32,
        /// The first word of the entries that have sums, and the number of words.
        pub(crate) word0: u32,
        pub(crate) word_count: u32,
        /// The first word of the columns.
        pub(crate) column_word: u32,
        /// The offset of each operand, in words.
        pub(crate) packed0: u32,
        pub(crate) table0: u32,
        pub(crate) sums0: u32,
    }
}

pub(crate) static PACKED_PAIRS: Kernel<Params> =
    kernel!("packed_pairs", Params, [Read, Read, ReadWrite], packed_pairs, wg_alone);

/// The products of pairs of codes of a row.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Terms {
    /// The products of codes 1 and 1, of 1 and a missing code, and of two missing codes; each is at most 2^23.
    pub(crate) one: u32,
    pub(crate) filled: u32,
    pub(crate) square: u32,
    /// The exponent of the power of two by which the products are multiplied: below 32.
    pub(crate) shift: u32,
}

impl Terms {
    /// Returns the product of two codes, neither of which is 0.
    pub(crate) const fn product(&self, a: u32, b: u32) -> i64 {
        let product = match (a, b) {
            (3, 3) => self.square,
            (3, code) | (code, 3) => code * self.filled,
            (a, b) => a * b * self.one,
        };
        (product as i64) << self.shift
    }
}

/// The number of words of a row that one task takes: 1,024 entries, whose sums fit a level 2 cache.
const STRIP: usize = 64;
/// The number of words of the columns that are processed together: 64 columns.
const COLUMN_WORDS: usize = 4;

fn packed_pairs(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let cancel = launch.cancel();
    let [packed, terms, sums] = launch.args();
    let (rows, words, cols) = (p.rows as usize, p.words as usize, p.columns as usize);
    let (word0, word1) = (p.word0 as usize, (p.word0 + p.word_count) as usize);
    let packed = &packed.read::<u32>()[p.packed0 as usize..][..rows * words];
    let terms: &[Terms] = bytemuck::cast_slice(&terms.read::<u32>()[p.table0 as usize..][..4 * rows]);
    // The padding of the last words is 0 and has no sums.
    let sums = &mut sums.write::<u32>()[p.sums0 as usize..];
    let len = sums.len().min(16 * (word1 - word0) * cols * 2);
    let column_word = p.column_word as usize;
    let columns = (column_word, column_word + cols.div_ceil(16));
    let pairs = PairOperands { packed, words, terms, columns, cols, cancel };
    sums[..len].par_chunks_mut(16 * STRIP * cols * 2).enumerate().for_each(|(strip, sums)| {
        let word0 = word0 + strip * STRIP;
        Path::best().run(Strip { pairs, entries: (word0, word1.min(word0 + STRIP)), sums });
    });
}

/// The operands.
#[derive(Clone, Copy)]
struct PairOperands<'a> {
    packed: &'a [u32],
    words: usize,
    terms: &'a [Terms],
    /// The first word of the columns, and the one past the last.
    columns: (usize, usize),
    cols: usize,
    /// The flag that ends the work early, before everything is added.
    cancel: Option<&'a Cancel>,
}

/// The sums of a strip of entries; `entries` is the range of its words.
struct Strip<'a> {
    pairs: PairOperands<'a>,
    entries: (usize, usize),
    sums: &'a mut [u32],
}

impl Work for Strip<'_> {
    fn run<D: Dot, const NARROW: usize, const WIDE: usize>(self, dot: D) {
        dot.vectorize(VectorizedStrip { dot, strip: self });
    }
}

struct VectorizedStrip<'a, D> {
    dot: D,
    strip: Strip<'a>,
}

impl<D: Dot> NullaryFnOnce for VectorizedStrip<'_, D> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { dot, strip: Strip { pairs, entries, sums } } = self;
        let PairOperands { packed, words, terms, columns, cols, cancel } = pairs;
        // These are the positions of codes in the row, and the products of each column's code with codes 1, 2 and 3.
        let mut bits = [0; 16 * STRIP + 16];
        let mut terms_of = [(0, [0; 3]); 16 * COLUMN_WORDS];
        for first in (columns.0..columns.1).step_by(COLUMN_WORDS) {
            let last = columns.1.min(first + COLUMN_WORDS);
            if Cancel::is_set(cancel) {
                return;
            }
            for (row, terms) in packed.chunks_exact(words).zip(terms) {
                let of_columns = &row[first..last];
                if of_columns.iter().fold(0, |any, word| any | word) == 0 {
                    continue;
                }
                let of_entries = &row[entries.0..entries.1];
                let held = dot.list::<true>(of_entries, &mut bits);
                let mut listed = 0;
                for (word, &codes) in of_columns.iter().enumerate() {
                    let mut left = (codes | codes >> 1) & 0x5555_5555;
                    while left != 0 {
                        let bit = left.trailing_zeros();
                        left &= left - 1;
                        let column = 16 * (first - columns.0 + word) + bit as usize / 2;
                        let code = codes >> bit & 3;
                        terms_of[listed] = (column, [1, 2, 3].map(|other| terms.product(other, code)));
                        listed += 1;
                    }
                }
                for &bit in &bits[..held] {
                    let code = code(of_entries, bit) as usize;
                    let sums = sums[bit as usize / 2 * cols * 2..][..cols * 2].as_chunks_mut().0;
                    for (column, terms) in &terms_of[..listed] {
                        add(&mut sums[*column], terms[code - 1]);
                    }
                }
            }
        }
    }
}
