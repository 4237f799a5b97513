//! Multiplies packed rows, transposed, by limbs: exact sums.
//!
//! If weights are codes times one factor and the cpu can count bits of vectors, `counted` computes the product; else it goes byte by byte.

#[cfg(target_arch = "x86_64")]
mod counted;
mod gaps;

use std::sync::Mutex;

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use pulp::NullaryFnOnce;
use rayon::prelude::*;

use self::gaps::{Gaps, multiples};
use super::{
    cpu::dot::{Dot, Path, Work, is_dense, missing},
    workgroups_in,
};
use crate::{
    Cancel,
    kernel::{CpuLaunch, Kernel, kernel, params},
    waiting::lock,
};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        /// The number of words of a row.
        pub(crate) words: u32,
        pub(crate) entries: u32,
        pub(crate) columns: u32,
        /// The number of bytes of a row of one set of limbs.
        pub(crate) row_limbs: u32,
        /// The first word of the rows, and the number of words: each is a multiple of 4.
        pub(crate) word0: u32,
        pub(crate) word_count: u32,
        /// The number of rows of a workgroup: a multiple of 4.
        pub(crate) depth: u32,
        /// The offset of each operand, in words.
        pub(crate) packed0: u32,
        pub(crate) weights0: u32,
        pub(crate) sums0: u32,
        /// The exponent of the power of two by which weights of one limb are multiplied: below 32.
        pub(crate) shift: u32,
    }
}

pub(crate) static PACKED_ADJOINT: Kernel<Params> =
    kernel!("packed_adjoint", Params, [Read, Read, ReadWrite], packed_adjoint, specs);

/// The number of words of a row that a workgroup takes: 64 entries.
pub(crate) const TILE: u32 = 4;
/// The number of words of a row that a workgroup takes if rows are long: larger tiles read limbs less often.
pub(crate) const LARGE_TILE: u32 = 16;

/// The number of columns of a workgroup.
pub(crate) const PART_COLUMNS: u64 = 64;

/// Returns the number of workgroups that a CUDA multiprocessor with at most 100 KiB of shared memory runs at a time. For that many, its
/// registers are enough.
pub(crate) fn at_once(tile: u32, missing: bool, memory: u32) -> u32 {
    let bytes = match (tile, missing) {
        (TILE, false) => 16_896,
        (TILE, true) => 30_720,
        (_, false) => 29_184,
        (_, true) => 43_008,
    };
    workgroups_in(memory, bytes)
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

/// The number of words of a row that one task takes: a cache line.
const STRIP: usize = 16;
/// The number of words of a row whose codes, for [`DEPTH`] rows, fit a level 1 cache: 64 entries.
const NARROW_STRIP: usize = 4;
/// The number of rows that are decoded at a time.
const DEPTH: usize = 256;
/// The minimum number of rows of a task, so that adding up its sums costs little in comparison.
const LEAST_ROWS: usize = 512;

/// The codes of 64 entries of 4 rows, one byte each. Word 16 j + p has the codes of entry 4 p + j. Each vector is in one cache line.
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
    let sums = &mut sums.write::<u32>()[p.sums0 as usize..][..p.entries as usize * cols * 2];
    let product = Operands {
        packed: &packed.read::<u32>()[p.packed0 as usize..][..rows * words],
        rows,
        words,
        word0: p.word0 as usize,
        word1: (p.word0 + p.word_count) as usize,
        weights: &weights.read::<u32>()[p.weights0 as usize..][..rows.div_ceil(4) * width],
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

/// Returns the number of columns, rounded up to whole vectors of 8.
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
    /// The number of limbs of a weight, and the exponent of the power of two by which the weight is multiplied.
    limb_count: usize,
    shift: u32,
    /// True if a code may be 3.
    missing: bool,
    /// The flag that ends the work early, before everything is added.
    cancel: Option<&'a Cancel>,
}

impl Operands<'_> {
    /// Calls `piece` for each task with its rows, its first word, its number of words, and its sums.
    fn pieces(
        &self,
        sums: &mut [u32],
        piece: impl Fn((usize, usize), usize, usize, &Mutex<&mut [u32]>) + Sync,
    ) {
        let strips: Vec<_> = sums.chunks_mut(16 * STRIP * self.cols * 2).map(Mutex::new).collect();
        // There are enough tasks for every thread; sums of whole numbers do not depend on the order.
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

/// The product and its output sums.
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

/// A task: some words of some rows.
struct AdjointPiece<'a, 'b, D, const NARROW: usize, const WIDE: usize> {
    dot: D,
    product: Operands<'a>,
    /// The numbers that the missing codes of each row add: (rows, padded columns).
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
        // These are (strips, row limbs, 64) sums of limbs, and (entries, padded columns) sums of multiples.
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
                        // If all codes of these rows were missing or 0, no other codes remain.
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
    /// Interleaves four words of each row, four rows byte by byte. Rows past the last one are 0.
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

    /// Decodes rows that are interleaved byte by byte to codes.
    #[inline(always)]
    fn decode(&self, bytes: &[u32], codes: &mut [Codes]) {
        let (bytes, codes): (&[D::Words], &mut [D::Words]) = (cast_slice(bytes), cast_slice_mut(codes));
        // The number of vectors in 16 words.
        let len = 64 / size_of::<D::Words>();
        for (bytes, codes) in bytes.chunks_exact(len).zip(codes.chunks_exact_mut(4 * len)) {
            for (shift, codes) in (0..).step_by(2).zip(codes.chunks_exact_mut(len)) {
                for (codes, &bytes) in codes.iter_mut().zip(bytes) {
                    *codes = pulp::cast(self.dot.quads(pulp::cast(bytes), shift));
                }
            }
        }
    }

    /// Adds a second product, that of the missing codes. Overwrites `codes`.
    #[inline(always)]
    fn add_absent(&self, bytes: &[u32], codes: &mut [Codes], weights: &[u32], sums: &mut [u32]) {
        let mut masked = [0; 4 * DEPTH];
        for (masked, &word) in masked.iter_mut().zip(bytes) {
            *masked = missing(word);
        }
        self.decode(&masked[..bytes.len()], codes);
        self.add(codes, &weights[self.product.row_limbs..], sums);
    }

    /// Adds the products of 64 entries to their sums, which are (row limbs, 64).
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

/// Some row limbs, whose products are added to their sums.
struct LimbTile<'a, W> {
    codes: &'a [W],
    weights: &'a [u32],
    /// The number of words of a row of `weights`, and the index of the first row limb.
    width: usize,
    row_limb: usize,
}

impl<W: Pod> LimbTile<'_, W> {
    #[inline(always)]
    fn add<D: Dot<Words = W>, const LIMBS: usize, const VECTORS: usize>(&self, dot: D, sums: &mut [W]) {
        // The number of vectors in 64 entries.
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

/// Adds (entries, padded columns) totals, times the power of two, to the sums, for as many entries as `out` has.
#[inline(always)]
fn merge(totals: &[i64], p: &Operands<'_>, out: &Mutex<&mut [u32]>) {
    let mut out = lock(out);
    let rows = out.chunks_exact_mut(2 * p.cols).zip(totals.chunks_exact(padded(p.cols)));
    for (out, totals) in rows {
        for (out, &added) in out.as_chunks_mut::<2>().0.iter_mut().zip(totals) {
            add(out, added << p.shift);
        }
    }
}

/// Adds to a 64-bit sum in two words, the low word first.
#[inline(always)]
pub(super) fn add(sum: &mut [u32; 2], added: i64) {
    let total = (i64::from(sum[0]) | i64::from(sum[1]) << 32).wrapping_add(added);
    let halves: [[u8; 4]; 2] = bytemuck::cast(total.to_le_bytes());
    *sum = halves.map(u32::from_le_bytes);
}

/// Converts (strips, row limbs, 64) sums of limbs to values and adds them to the totals, which are (entries, padded columns).
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
