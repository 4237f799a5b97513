//! Packed rows as quads (four codes, one per byte of a word), and tiles that add up their products.

use bytemuck::Pod;

use super::dot::{Dot, missing};

/// The number of words of a row that are decoded at a time.
pub(crate) const DEPTH: usize = 64;

/// The quads of a piece of a row: at `[j][w]`, that of word w shifted right by 2 j. They are aligned to cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Quads([[u32; DEPTH]; 4]);

impl Default for Quads {
    fn default() -> Self {
        Self([[0; DEPTH]; 4])
    }
}

impl Quads {
    /// Decodes the words of a piece, or with `GAPS` to 1 at each missing code and 0 elsewhere; quads past its end are 0.
    #[inline(always)]
    pub(crate) fn decode<const GAPS: bool>(&mut self, packed: &[u32]) {
        for (shift, quads) in self.0.iter_mut().enumerate() {
            if packed.is_empty() {
                *quads = [0; DEPTH];
            }
            for (quad, &word) in quads.iter_mut().zip(packed) {
                let codes = if GAPS { missing(word) } else { word };
                *quad = codes >> (2 * shift) & 0x0303_0303;
            }
        }
    }
}

/// Returns the index of the quad that holds the code at a bit of a row.
#[inline(always)]
pub(crate) const fn quad(bit: u32) -> u32 {
    bit / 32 * 4 + bit / 2 % 4
}

/// Returns the same index, and a word with 1 in the code's byte. The word comes from a table, so that one load can broadcast it to all lanes.
#[inline(always)]
pub(crate) const fn one(bit: &u32) -> (u32, u32) {
    const ONES: [u32; 4] = [1, 1 << 8, 1 << 16, 1 << 24];
    (quad(*bit), ONES[*bit as usize / 8 % 4])
}

/// Some rows, whose products with `xs` are added to their sums.
pub(crate) struct RowTile<'a, W, const ROWS: usize> {
    pub(crate) quads: &'a [Quads; ROWS],
    pub(crate) words: usize,
    pub(crate) xs: &'a [W],
    /// The number of vectors of a row of `xs` and of the sums, and the first vector to compute.
    pub(crate) stride: usize,
    pub(crate) first: usize,
}

impl<W: Pod, const ROWS: usize> RowTile<'_, W, ROWS> {
    #[inline(always)]
    pub(crate) fn add<D: Dot<Words = W>, const VECTORS: usize>(&self, dot: D, sums: &mut [W]) {
        let place = |row: usize| row * self.stride + self.first;
        let mut acc = [[dot.splat(0); VECTORS]; ROWS];
        for (row, acc) in acc.iter_mut().enumerate() {
            for (acc, &sum) in acc.iter_mut().zip(&sums[place(row)..][..VECTORS]) {
                *acc = pulp::cast(sum);
            }
        }
        for word in 0..self.words.min(DEPTH) {
            for shift in 0..4 {
                let xs = &self.xs[place(4 * word + shift)..][..VECTORS];
                for (quads, acc) in self.quads.iter().zip(&mut acc) {
                    let quad = dot.splat(quads.0[shift][word]);
                    for (acc, &x) in acc.iter_mut().zip(xs) {
                        *acc = dot.dot(*acc, quad, pulp::cast(x));
                    }
                }
            }
        }
        for (row, acc) in acc.iter().enumerate() {
            for (&acc, sum) in acc.iter().zip(&mut sums[place(row)..][..VECTORS]) {
                *sum = pulp::cast(acc);
            }
        }
    }
}

/// Some entries of a row, whose limbs are added, each multiplied by the code in its byte.
pub(crate) struct Walk<'a, W, I> {
    /// The index of each entry's quad, and a word with the factor in the entry's byte.
    pub(crate) ones: I,
    pub(crate) xs: &'a [W],
    pub(crate) stride: usize,
    pub(crate) first: usize,
}

impl<W: Pod, I: Iterator<Item = (u32, u32)>> Walk<'_, W, I> {
    #[inline(always)]
    pub(crate) fn add<D: Dot<Words = W>, const VECTORS: usize>(self, dot: D, sums: &mut [W]) {
        let sums = &mut sums[self.first..][..VECTORS];
        let mut acc = [dot.splat(0); VECTORS];
        for (acc, &sum) in acc.iter_mut().zip(&*sums) {
            *acc = pulp::cast(sum);
        }
        for (quad, one) in self.ones {
            let xs = &self.xs[quad as usize * self.stride + self.first..][..VECTORS];
            for (acc, &x) in acc.iter_mut().zip(xs) {
                *acc = dot.dot(*acc, dot.splat(one), pulp::cast(x));
            }
        }
        for (acc, sum) in acc.into_iter().zip(sums) {
            *sum = pulp::cast(acc);
        }
    }
}
