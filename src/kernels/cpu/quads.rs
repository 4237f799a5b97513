//! Packed rows as quads, and the tiles in which their products are added.

use bytemuck::Pod;

use super::dot::{Dot, missing};

/// Words of a row that are decoded at a time.
pub(crate) const DEPTH: usize = 64;

/// The quads of a piece of a row: at j and w that of word w shifted by 2 j. In lines of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Quads([[u32; DEPTH]; 4]);

impl Default for Quads {
    fn default() -> Self {
        Self([[0; DEPTH]; 4])
    }
}

impl Quads {
    /// Zeros past the end.
    #[inline(always)]
    pub(crate) fn decode(&mut self, packed: &[u32]) {
        for (shift, quads) in self.0.iter_mut().enumerate() {
            if packed.is_empty() {
                *quads = [0; DEPTH];
            }
            for (quad, word) in quads.iter_mut().zip(packed) {
                *quad = word >> (2 * shift) & 0x0303_0303;
            }
        }
    }

    /// 1 where a code is missing.
    #[inline(always)]
    pub(crate) fn decode_gaps(&mut self, packed: &[u32]) {
        for (shift, quads) in self.0.iter_mut().enumerate() {
            if packed.is_empty() {
                *quads = [0; DEPTH];
            }
            for (quad, &word) in quads.iter_mut().zip(packed) {
                *quad = missing(word) >> (2 * shift) & 0x0101_0101;
            }
        }
    }
}

/// The quad of a bit of a row.
#[inline(always)]
pub(crate) const fn quad(bit: u32) -> u32 {
    bit / 32 * 4 + bit / 2 % 4
}

/// That, and 1 in its byte: from a table, of which a word goes to all lanes of a vector at once.
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
    /// Vectors of a row of `xs` and of the sums, and the first of them.
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

/// Some entries of a row: their limbs are added, each times the number in its byte.
pub(crate) struct Walk<'a, W, I> {
    /// The quad of each, and the number in its byte.
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
