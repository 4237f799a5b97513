//! Packed rows, transposed, times limbs: exact sums.
//!
//! On a cpu whose vectors count bits, limbs that are codes times one factor are multiplied so (`counted`), and others byte by byte.

#[cfg(target_arch = "x86_64")]
mod counted;
mod gaps;

use std::sync::{Mutex, PoisonError};

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use pulp::NullaryFnOnce;
use rayon::prelude::*;

use self::gaps::{Gaps, multiples};
use super::cpu::dot::{Dot, Path, Work, is_dense, missing};
use crate::{
    Cancel,
    kernel::{CpuLaunch, Kernel, kernel, params},
};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        /// Words of a row.
        pub(crate) words: u32,
        pub(crate) entries: u32,
        pub(crate) columns: u32,
        /// Bytes of a row of one set of limbs.
        pub(crate) row_limbs: u32,
        /// The first word of the rows, and how many: a multiple of 4 each.
        pub(crate) word0: u32,
        pub(crate) word_count: u32,
        /// Rows of a workgroup: a multiple of 4.
        pub(crate) depth: u32,
        /// Words before the first of each operand.
        pub(crate) packed0: u32,
        pub(crate) weights0: u32,
        pub(crate) sums0: u32,
        /// The power of two that weights of one limb are multiplied by. Below 32.
        pub(crate) shift: u32,
    }
}

pub(crate) static PACKED_ADJOINT: Kernel<Params> =
    kernel!("packed_adjoint", Params, [Read, Read, ReadWrite], packed_adjoint, specs);

/// Words of a row that a workgroup takes: 64 entries.
pub(crate) const TILE: u32 = 4;
/// Words where there are many: with larger tiles, limbs are read less often.
pub(crate) const LARGE_TILE: u32 = 16;

/// Columns of a workgroup.
pub(crate) const PART_COLUMNS: u64 = 64;

/// Workgroups of a spec that a multiprocessor of CUDA runs at a time, from compute capability 8.0 on: as many as its registers hold, and of small
/// tiles the least shared memory that such a one has.
pub(crate) const fn at_once(tile: u32, missing: bool) -> u32 {
    match (tile, missing) {
        (TILE, false) => 5,
        (TILE, true) => 3,
        (_, false) => 3,
        (_, true) => 2,
    }
}

pub(crate) fn spec(tile: u32, missing: bool, limb_count: u64) -> [(&'static str, u32); 3] {
    let limb_count = u32::try_from(limb_count).expect("limbs should be few");
    [("TILE", tile), ("MISSING", missing.into()), ("LIMBS", limb_count)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    let specs_of = |tile| {
        [(false, 1), (false, 2), (false, 3), (true, 2), (true, 3)]
            .map(|(missing, limb_count)| spec(tile, missing, limb_count).to_vec())
    };
    [TILE, LARGE_TILE].into_iter().flat_map(specs_of).collect()
}

/// Words of a row that one task takes: a line of the cache.
const STRIP: usize = 16;
/// Words of a row whose codes, of [`DEPTH`] rows, a level 1 cache holds: 64 entries.
const NARROW_STRIP: usize = 4;
/// Rows that are decoded at a time.
const DEPTH: usize = 256;
/// The minimum number of rows of a task, so that adding up its sums costs little beside them.
const LEAST_ROWS: usize = 512;

/// Codes of 64 entries of 4 rows, a byte each: those of entry 4 p + j are word 16 j + p. A vector is in one line of the
/// cache.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Codes([[u32; 16]; 4]);

fn packed_adjoint(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let missing = launch.constant("MISSING") != 0;
    let limb_count = launch.constant("LIMBS") as usize;
    let cancel = launch.cancel();
    let [packed, weights, sums] = launch.args();
    let (rows, words, cols, row_limbs) =
        (p.rows as usize, p.words as usize, p.columns as usize, p.row_limbs as usize);
    let width = if missing { 2 * row_limbs } else { row_limbs };
    let packed = &packed.read::<u32>()[p.packed0 as usize..][..rows * words];
    let weights = &weights.read::<u32>()[p.weights0 as usize..][..rows.div_ceil(4) * width];
    let sums = &mut sums.write::<u32>()[p.sums0 as usize..][..p.entries as usize * cols * 2];
    let word0 = p.word0 as usize;
    let word1 = word0 + p.word_count as usize;
    let product = Operands {
        packed,
        rows,
        words,
        word0,
        word1,
        weights,
        width,
        row_limbs,
        cols,
        limb_count,
        shift: p.shift,
        missing,
        cancel,
    };
    #[cfg(target_arch = "x86_64")]
    if counted::Popcount::try_new().is_some_and(|popcount| popcount.add(&product, sums)) {
        return;
    }
    Path::best().run(Adjoint { product, sums });
}

/// Columns in whole vectors of 64 bits.
const fn padded(cols: usize) -> usize {
    cols.next_multiple_of(8)
}

/// The operands.
#[derive(Clone, Copy)]
struct Operands<'a> {
    packed: &'a [u32],
    rows: usize,
    words: usize,
    /// The first word of the rows, and the one past the last.
    word0: usize,
    word1: usize,
    weights: &'a [u32],
    width: usize,
    row_limbs: usize,
    cols: usize,
    /// Limbs of a weight, and the power of two that it is multiplied by.
    limb_count: usize,
    shift: u32,
    /// True if a code may be 3.
    missing: bool,
    /// The flag that ends the work before all is added.
    cancel: Option<&'a Cancel>,
}

impl Operands<'_> {
    /// Calls `piece` for each task with its rows, the first of its words and how many, and its sums.
    fn pieces(
        &self,
        sums: &mut [u32],
        piece: impl Fn((usize, usize), usize, usize, &Mutex<&mut [u32]>) + Sync,
    ) {
        let strips: Vec<_> = sums.chunks_mut(16 * STRIP * self.cols * 2).map(Mutex::new).collect();
        // Enough tasks for every thread; whole numbers add to the same in any order.
        let tasks = (4 * rayon::current_num_threads()).div_ceil(strips.len());
        let depth = self.rows.div_ceil(tasks).max(LEAST_ROWS).next_multiple_of(DEPTH);
        let pieces = self.rows.div_ceil(depth);
        (0..strips.len() * pieces).into_par_iter().for_each(|task| {
            let (strip, first) = (task % strips.len(), task / strips.len() * depth);
            let word = self.word0 + strip * STRIP;
            let words = STRIP.min(self.word1 - word);
            piece((first, self.rows.min(first + depth)), word, words, &strips[strip]);
        });
    }
}

/// Sums out.
struct Adjoint<'a> {
    product: Operands<'a>,
    sums: &'a mut [u32],
}

impl Work for Adjoint<'_> {
    fn run<D: Dot, const NARROW: usize, const WIDE: usize>(self, dot: D) {
        let product = self.product;
        let filled = if product.missing { multiples(dot, &product) } else { Vec::new() };
        let filled = &filled[..];
        product.pieces(self.sums, |rows, word, words, out| {
            dot.vectorize(AdjointPiece::<D, NARROW, WIDE> { dot, product, filled, rows, word, words, out });
        });
    }
}

/// Some words of some rows.
struct AdjointPiece<'a, 'b, D, const NARROW: usize, const WIDE: usize> {
    dot: D,
    product: Operands<'a>,
    /// Sums that the missing codes of each row add: (rows, padded columns).
    filled: &'a [i32],
    rows: (usize, usize),
    word: usize,
    words: usize,
    out: &'a Mutex<&'b mut [u32]>,
}

impl<D: Dot, const NARROW: usize, const WIDE: usize> NullaryFnOnce for AdjointPiece<'_, '_, D, NARROW, WIDE> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let p = &self.product;
        let strips = self.words / NARROW_STRIP;
        let row_limbs = p.limb_count * p.cols;
        // (strips, row limbs, 64) sums of limbs, and (entries, padded columns) sums of multiples.
        let mut sums = vec![0; strips * row_limbs * 64];
        let mut totals = vec![0; 16 * self.words * padded(p.cols)];
        let mut bytes = [[0; 16]; DEPTH / 4];
        let mut codes = [Codes::zeroed(); DEPTH / 4];
        let mut gaps = p.missing.then(|| Gaps::new(self.filled, padded(p.cols), strips));
        for row in (self.rows.0..self.rows.1).step_by(DEPTH) {
            if Cancel::is_set(p.cancel) {
                return;
            }
            let rows = DEPTH.min(self.rows.1 - row);
            let fours = rows.div_ceil(4);
            let weights = &p.weights[row / 4 * p.width..][..fours * p.width];
            for (strip, sums) in sums.chunks_exact_mut(row_limbs * 64).enumerate() {
                let (bytes, codes) = (&mut bytes[..fours], &mut codes[..fours]);
                self.interleave(row, self.word + strip * NARROW_STRIP, bytes);
                let bytes = bytes.as_flattened_mut();
                if let Some(gaps) = &mut gaps {
                    let holding = self.dot.holding::<false>(bytes);
                    if is_dense(holding, bytes.len()) {
                        self.add_absent(bytes, codes, weights, sums);
                    } else if holding > 0 {
                        gaps.add(self.dot, strip, row, bytes, &mut totals);
                    }
                    if holding > 0 {
                        bytes.iter_mut().for_each(|word| *word &= !(3 * missing(*word)));
                        // Nothing is left of rows whose missing codes alone are asked for.
                        if bytes.iter().fold(0, |any, word| any | word) == 0 {
                            continue;
                        }
                    }
                }
                self.decode(bytes, codes);
                self.add(codes, weights, sums);
            }
        }
        if let Some(gaps) = gaps {
            gaps.finish(&mut totals);
        }
        join(&sums, p, &mut totals);
        merge(&totals, p, self.out);
    }
}

impl<D: Dot, const NARROW: usize, const WIDE: usize> AdjointPiece<'_, '_, D, NARROW, WIDE> {
    /// Rows of four words, byte by byte. Zeros past the last row.
    #[inline(always)]
    fn interleave(&self, first: usize, word: usize, out: &mut [[u32; 16]]) {
        let p = &self.product;
        for (first, out) in (first..).step_by(4).zip(out) {
            let four = |row: usize| -> [u32; 4] {
                let words = &p.packed[row * p.words + word..][..4];
                [words[0], words[1], words[2], words[3]]
            };
            let rows = if first + 4 <= self.rows.1 {
                [four(first), four(first + 1), four(first + 2), four(first + 3)]
            } else {
                std::array::from_fn(|i| if first + i < self.rows.1 { four(first + i) } else { [0; 4] })
            };
            *out = self.dot.interleave(rows);
        }
    }

    /// The codes of rows byte by byte.
    #[inline(always)]
    fn decode(&self, bytes: &[u32], codes: &mut [Codes]) {
        let (bytes, codes): (&[D::Words], &mut [D::Words]) = (cast_slice(bytes), cast_slice_mut(codes));
        // Vectors of 16 words.
        let len = 64 / size_of::<D::Words>();
        for (bytes, codes) in bytes.chunks_exact(len).zip(codes.chunks_exact_mut(4 * len)) {
            for (shift, codes) in (0..).step_by(2).zip(codes.chunks_exact_mut(len)) {
                for (codes, &bytes) in codes.iter_mut().zip(bytes) {
                    *codes = pulp::cast(self.dot.quads(pulp::cast(bytes), shift));
                }
            }
        }
    }

    /// Adds a second product, of the missing codes. Overwrites `codes`.
    #[inline(always)]
    fn add_absent(&self, bytes: &[u32], codes: &mut [Codes], weights: &[u32], sums: &mut [u32]) {
        let mut masked = [0; 4 * DEPTH];
        for (masked, &word) in masked.iter_mut().zip(bytes) {
            *masked = missing(word);
        }
        self.decode(&masked[..bytes.len()], codes);
        self.add(codes, &weights[self.product.row_limbs..], sums);
    }

    /// Adds the products of 64 entries to their sums, (row limbs, 64).
    #[inline(always)]
    fn add(&self, codes: &[Codes], weights: &[u32], sums: &mut [u32]) {
        let row_limbs = self.product.limb_count * self.product.cols;
        let codes: &[D::Words] = cast_slice(codes);
        let sums: &mut [D::Words] = cast_slice_mut(sums);
        let mut tile = LimbTile { codes, weights, width: self.product.width, row_limb: 0 };
        while tile.row_limb + NARROW <= row_limbs {
            tile.add::<D, NARROW, WIDE>(self.dot, sums);
            tile.row_limb += NARROW;
        }
        while tile.row_limb + 3 <= row_limbs {
            tile.add::<D, 3, WIDE>(self.dot, sums);
            tile.row_limb += 3;
        }
        while tile.row_limb < row_limbs {
            tile.add::<D, 1, WIDE>(self.dot, sums);
            tile.row_limb += 1;
        }
    }
}

/// Adds the products of some row limbs to their sums.
struct LimbTile<'a, W> {
    codes: &'a [W],
    weights: &'a [u32],
    /// Words of a row of `weights`, and the first of them.
    width: usize,
    row_limb: usize,
}

impl<W: Pod> LimbTile<'_, W> {
    #[inline(always)]
    fn add<D: Dot<Words = W>, const LIMBS: usize, const VECTORS: usize>(&self, dot: D, sums: &mut [W]) {
        // Vectors of 64 entries.
        let stride = 256 / size_of::<W>();
        for first in (0..stride).step_by(VECTORS) {
            let place = |row_limb: usize| (self.row_limb + row_limb) * stride + first;
            let mut acc = [[dot.splat(0); VECTORS]; LIMBS];
            for (row_limb, acc) in acc.iter_mut().enumerate() {
                for (acc, &sum) in acc.iter_mut().zip(&sums[place(row_limb)..][..VECTORS]) {
                    *acc = pulp::cast(sum);
                }
            }
            for (codes, weights) in self.codes.chunks_exact(stride).zip(self.weights.chunks(self.width)) {
                let codes = &codes[first..][..VECTORS];
                for (&weight, acc) in weights[self.row_limb..][..LIMBS].iter().zip(&mut acc) {
                    let weight = dot.splat(weight);
                    for (acc, &codes) in acc.iter_mut().zip(codes) {
                        *acc = dot.dot(*acc, pulp::cast(codes), weight);
                    }
                }
            }
            for (row_limb, acc) in acc.iter().enumerate() {
                for (&acc, sum) in acc.iter().zip(&mut sums[place(row_limb)..][..VECTORS]) {
                    *sum = pulp::cast(acc);
                }
            }
        }
    }
}

/// Adds (entries, padded columns) totals, times the power of two, to the sums of as many entries as there are.
#[inline(always)]
fn merge(totals: &[i64], p: &Operands<'_>, out: &Mutex<&mut [u32]>) {
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    let rows = out.chunks_exact_mut(2 * p.cols).zip(totals.chunks_exact(padded(p.cols)));
    for (out, totals) in rows {
        for (out, &added) in out.as_chunks_mut::<2>().0.iter_mut().zip(totals) {
            add(out, added << p.shift);
        }
    }
}

/// Adds to a sum of 64 bits in two words, the low one first.
#[inline(always)]
pub(super) fn add(sum: &mut [u32; 2], added: i64) {
    let total = (i64::from(sum[0]) | i64::from(sum[1]) << 32).wrapping_add(added);
    let halves: [[u8; 4]; 2] = bytemuck::cast(total.to_le_bytes());
    *sum = halves.map(u32::from_le_bytes);
}

/// Adds what (strips, row limbs, 64) sums of limbs stand for to (entries, padded columns).
#[inline(always)]
fn join(sums: &[u32], p: &Operands<'_>, totals: &mut [i64]) {
    let (cols, padded) = (p.cols, padded(p.cols));
    for (sums, totals) in
        sums.chunks_exact(p.limb_count * cols * 64).zip(totals.chunks_exact_mut(64 * padded))
    {
        let row_limbs = sums.as_chunks::<64>().0;
        for c in 0..cols {
            let mut column = [0; 64];
            for t in 0..p.limb_count {
                for (column, &sum) in column.iter_mut().zip(&row_limbs[t * cols + c]) {
                    *column += i64::from(sum.cast_signed()) << (8 * t);
                }
            }
            for (place, sum) in column.into_iter().enumerate() {
                let entry = 4 * (place % 16) + place / 16;
                let total = &mut totals[entry * padded + c];
                *total += sum;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "test sizes are small")]
mod tests;
