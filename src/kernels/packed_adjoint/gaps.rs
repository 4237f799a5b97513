//! The sums over the codes that mark missing entries, which a transposed product adds: computed one code at a time.

use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::{DEPTH, Dot, Operands, padded};

/// The number of entries of a narrow strip.
const ENTRIES: usize = 64;
/// The maximum number of terms of a 32-bit sum: multiples are at most 8,355,711, `operand::MAX`, which the code that makes limbs ensures.
const TERMS: usize = 256;
const _: () = assert!(DEPTH <= TERMS && TERMS as i64 * 8_355_711 <= i32::MAX as i64);

/// The number of groups of four rows whose multiples one task computes.
const FOURS: usize = 64;

/// Returns the numbers that a missing code of each row adds: (rows, padded columns).
pub(super) fn multiples<D: Dot>(dot: D, p: &Operands<'_>) -> Vec<i32> {
    let width = padded(p.cols);
    let mut out = vec![0; p.rows * width];
    let parts = out.par_chunks_mut(4 * FOURS * width).zip(p.weights.par_chunks(FOURS * p.width));
    parts.for_each(|(out, weights)| dot.vectorize(Multiples { p, weights, out }));
    out
}

/// Computes the [`multiples`] of some rows.
struct Multiples<'a, 'b> {
    p: &'a Operands<'b>,
    weights: &'a [u32],
    out: &'a mut [i32],
}

impl NullaryFnOnce for Multiples<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let p = self.p;
        let fours = self.out.chunks_mut(4 * padded(p.cols)).zip(self.weights.chunks_exact(p.width));
        for (out, weights) in fours {
            for (row, out) in out.chunks_exact_mut(padded(p.cols)).enumerate() {
                for limb in 0..p.limb_count {
                    let words = &weights[p.row_limbs + limb * p.cols..][..p.cols];
                    for (out, &word) in out.iter_mut().zip(words) {
                        *out += ((word << (24 - 8 * row)).cast_signed() >> 24) << (8 * limb);
                    }
                }
            }
        }
    }
}

/// Sums that will be added to the totals, of (narrow strips, 64, padded columns).
pub(super) struct Gaps<'a> {
    /// The numbers that a missing code of each row adds: (rows, padded columns).
    filled: &'a [i32],
    padded: usize,
    sums: Vec<i32>,
    /// For each narrow strip, the maximum number of terms of one of its sums.
    terms: Vec<usize>,
    bits: Vec<u32>,
}

impl<'a> Gaps<'a> {
    pub(super) fn new(filled: &'a [i32], padded: usize, strips: usize) -> Self {
        let sums = vec![0; strips * ENTRIES * padded];
        Self { filled, padded, sums, terms: vec![0; strips], bits: vec![0; 16 * 4 * DEPTH + 16] }
    }

    /// Adds the missing codes of at most [`DEPTH`] rows, which are interleaved byte by byte.
    #[inline(always)]
    pub(super) fn add<D: Dot>(
        &mut self,
        dot: D,
        strip: usize,
        row: usize,
        bytes: &[u32],
        totals: &mut [i64],
    ) {
        let used = dot.list::<false>(bytes, &mut self.bits);
        let (gaps, terms) = (&self.bits[..used], used.min(DEPTH));
        let len = ENTRIES * self.padded;
        let sums = &mut self.sums[strip * len..][..len];
        if self.terms[strip] + terms > TERMS {
            flush(sums, &mut totals[strip * len..][..len]);
            self.terms[strip] = 0;
        }
        self.terms[strip] += terms;
        let (filled, sums) = (self.filled[row * self.padded..].as_chunks().0, sums.as_chunks_mut().0);
        let stride = self.padded / 8;
        for first in (0..stride).step_by(8) {
            let mut walk = Walk { gaps, filled, sums, stride, first };
            match stride - first {
                1 => walk.add::<1>(),
                2 => walk.add::<2>(),
                3 => walk.add::<3>(),
                4 => walk.add::<4>(),
                5 => walk.add::<5>(),
                6 => walk.add::<6>(),
                7 => walk.add::<7>(),
                _ => walk.add::<8>(),
            }
        }
    }

    /// Adds the remaining sums to the totals.
    #[inline(always)]
    pub(super) fn finish(mut self, totals: &mut [i64]) {
        flush(&mut self.sums, totals);
    }
}

/// The positions of missing codes, and the sums of their entries, to which the multiples of their rows are added.
struct Walk<'a> {
    gaps: &'a [u32],
    filled: &'a [[i32; 8]],
    sums: &'a mut [[i32; 8]],
    /// The number of vectors of a row, and the first vector to add.
    stride: usize,
    first: usize,
}

impl Walk<'_> {
    /// Adds `VECTORS` vectors of a row.
    #[inline(always)]
    fn add<const VECTORS: usize>(&mut self) {
        for &bit in self.gaps {
            let bit = bit as usize;
            let (row, entry) = (bit / 512 * 4 + bit / 8 % 4, bit / 32 % 16 * 4 + bit / 2 % 4);
            let sums = &mut self.sums[entry * self.stride + self.first..][..VECTORS];
            for (sums, filled) in
                sums.iter_mut().zip(&self.filled[row * self.stride + self.first..][..VECTORS])
            {
                // All elements are read before any is written, so that they are one vector.
                *sums = std::array::from_fn(|i| sums[i] + filled[i]);
            }
        }
    }
}

/// Adds the sums to the totals and clears them.
#[inline(always)]
fn flush(sums: &mut [i32], totals: &mut [i64]) {
    for (sum, total) in sums.iter_mut().zip(totals) {
        *total += i64::from(*sum);
        *sum = 0;
    }
}
