//! Sparse rows of a transposed product: what their few codes add.

use std::{ops::Range, sync::Mutex};

use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::{Dot, Product, STRIP, merge, padded};
use crate::kernels::cpu::sparse::{code, is_sparse};

/// Sparse rows are left out of the product where they are one in as many.
const SPARSE_ROWS: usize = 8;
/// One row in as many is looked at to see whether they are.
const SAMPLE: usize = 16;
/// Rows that one task looks at.
const FIND_ROWS: usize = 1024;
/// Sparse rows of a task, and words of a row whose samples' totals the cache holds meanwhile: a multiple of [`STRIP`].
const RARE_ROWS: usize = 2048;
const RARE_STRIP: usize = 8 * STRIP;
/// Fours of rows whose digits one task puts in order.
const FOURS: usize = 64;

/// The rows that are not sparse and those that are, where these are enough to put weights in another order.
pub(super) fn split<D: Dot>(dot: D, packed: &[u32], words: usize) -> Option<[Vec<u32>; 2]> {
    let rows = packed.len() / words;
    let find = |(first, packed), step| dot.vectorize(Find { dot, packed, words, first, step });
    // A few rows tell whether there are.
    let found = find((0, packed), SAMPLE);
    if SPARSE_ROWS * found.len() <= rows.div_ceil(SAMPLE) {
        return None;
    }
    let parts: Vec<(u32, &[u32])> = (0..).step_by(FIND_ROWS).zip(packed.chunks(FIND_ROWS * words)).collect();
    let sparse: Vec<Vec<u32>> = parts.into_par_iter().map(|part| find(part, 1)).collect();
    let sparse = sparse.concat();
    let mut next = sparse.iter().peekable();
    let dense = (0..).take(rows).filter(|row| next.next_if_eq(&row).is_none()).collect();
    Some([dense, sparse])
}

/// Finds the sparse ones of the rows from `first` on, of which one in `step` is looked at.
struct Find<'a, D> {
    dot: D,
    packed: &'a [u32],
    words: usize,
    first: u32,
    step: usize,
}

impl<D: Dot> NullaryFnOnce for Find<'_, D> {
    type Output = Vec<u32>;

    #[inline(always)]
    fn call(self) -> Vec<u32> {
        let Self { dot, packed, words, first, step } = self;
        let mut found = Vec::new();
        for (row, packed) in (first..).zip(packed.chunks_exact(words)).step_by(step) {
            if is_sparse(dot, packed) {
                found.push(row);
            }
        }
        found
    }
}

/// The digits of these rows, in their order.
pub(super) fn gather<D: Dot>(dot: D, p: &Product<'_>, order: &[u32]) -> Vec<u32> {
    let mut out = vec![0; order.len().div_ceil(4) * p.width];
    let fours = out.par_chunks_mut(FOURS * p.width).zip(order.par_chunks(4 * FOURS));
    fours.for_each(|(out, order)| dot.vectorize(Gather { weights: p.weights, width: p.width, order, out }));
    out
}

struct Gather<'a> {
    weights: &'a [u32],
    width: usize,
    order: &'a [u32],
    out: &'a mut [u32],
}

impl NullaryFnOnce for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (out, order) in self.out.chunks_exact_mut(self.width).zip(self.order.chunks(4)) {
            for (place, &row) in (0..).step_by(8).zip(order) {
                let (four, from) = (row as usize / 4, 8 * (row % 4));
                let weights = &self.weights[four * self.width..][..self.width];
                out.iter_mut().zip(weights).for_each(|(out, &word)| *out |= (word >> from & 255) << place);
            }
        }
    }
}

/// Sparse rows, with what one of their codes and a missing one add: (rows, padded columns).
#[derive(Default)]
pub(super) struct Rare<'a> {
    pub(super) rows: &'a [u32],
    ones: Vec<i32>,
    missing: Vec<i32>,
}

impl<'a> Rare<'a> {
    pub(super) fn new<D: Dot>(dot: D, p: &Product<'_>, rows: &'a [u32]) -> Self {
        let missing = if p.missing { multiples(dot, p, 1, rows) } else { Vec::new() };
        Self { rows, ones: multiples(dot, p, 0, rows), missing }
    }

    /// Adds the products of all of them to the strips of the sums.
    pub(super) fn add_all<D: Dot>(&self, dot: D, product: Product<'_>, strips: &[Mutex<&mut [u32]>]) {
        let places: Vec<usize> = (0..self.rows.len()).step_by(RARE_ROWS).collect();
        let words: Vec<usize> = (product.word0..product.word1).step_by(RARE_STRIP).collect();
        places.into_par_iter().for_each(|place| {
            let rows = place..self.rows.len().min(place + RARE_ROWS);
            for &word in &words {
                let words = word..product.word1.min(word + RARE_STRIP);
                let strips = &strips[(word - product.word0) / STRIP..];
                dot.vectorize(RarePiece { dot, rare: self, product, rows: rows.clone(), words, strips });
            }
        });
    }

    /// Adds the products of these rows and words to the totals of (samples, padded columns).
    #[inline(always)]
    fn add<D: Dot>(
        &self,
        dot: D,
        p: &Product<'_>,
        rows: Range<usize>,
        words: Range<usize>,
        totals: &mut [i64],
    ) {
        let padded = padded(p.cols);
        let mut bits = [0; 16 * RARE_STRIP + 16];
        for row in rows {
            let packed = &p.packed[self.rows[row] as usize * p.words..][words.clone()];
            let used = dot.list::<true>(packed, &mut bits);
            for &bit in &bits[..used] {
                let code = code(packed, bit);
                let absent = code == 3 && p.missing;
                let (multiples, times) = if absent { (&self.missing, 1) } else { (&self.ones, code) };
                let multiples = &multiples[row * padded..][..padded];
                let totals = &mut totals[bit as usize / 2 * padded..][..padded];
                let pairs = totals.as_chunks_mut::<8>().0.iter_mut().zip(multiples.as_chunks::<8>().0);
                for (totals, multiples) in pairs {
                    // All read before any is written, as one vector is.
                    *totals =
                        std::array::from_fn(|i| totals[i] + i64::from(multiples[i] * times.cast_signed()));
                }
            }
        }
    }
}

/// Some words of some sparse rows.
struct RarePiece<'a, 'b, D> {
    dot: D,
    rare: &'a Rare<'a>,
    product: Product<'a>,
    rows: Range<usize>,
    words: Range<usize>,
    /// From the first word on.
    strips: &'a [Mutex<&'b mut [u32]>],
}

impl<D: Dot> NullaryFnOnce for RarePiece<'_, '_, D> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { dot, rare, product, rows, words, strips } = self;
        let mut totals = vec![0; 16 * words.len() * padded(product.cols)];
        rare.add(dot, &product, rows, words, &mut totals);
        for (totals, strip) in totals.chunks(16 * STRIP * padded(product.cols)).zip(strips) {
            merge(totals, &product, strip);
        }
    }
}

/// The numbers that one set of digits of some rows stand for: (rows, padded columns).
pub(super) fn multiples<D: Dot>(dot: D, p: &Product<'_>, set: usize, rows: &[u32]) -> Vec<i32> {
    let mut out = vec![0; rows.len() * padded(p.cols)];
    let parts = out.par_chunks_mut(4 * FOURS * padded(p.cols)).zip(rows.par_chunks(4 * FOURS));
    parts.for_each(|(out, rows)| dot.vectorize(Multiples { p, set, rows, out }));
    out
}

/// Some of them.
struct Multiples<'a, 'b> {
    p: &'a Product<'b>,
    set: usize,
    rows: &'a [u32],
    out: &'a mut [i32],
}

impl NullaryFnOnce for Multiples<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let p = self.p;
        for (out, &row) in self.out.chunks_exact_mut(padded(p.cols)).zip(self.rows) {
            let words = &p.weights[row as usize / 4 * p.width + self.set * p.lanes..];
            for slice in 0..p.slices {
                let words = &words[slice * p.cols..][..p.cols];
                for (out, &word) in out.iter_mut().zip(words) {
                    *out += ((word << (24 - 8 * (row % 4))).cast_signed() >> 24) << (8 * slice);
                }
            }
        }
    }
}
