//! Products of codes with codes times one factor, by counting bits: 512 row-entry pairs per instruction.
//!
//! Let p be 1 if a code a is 1 or 2, and q be 1 if it is 2; let r and s be the same for b. With `F(t) = (t ? q : ¬p)`,
//! which one instruction computes from the bits of many rows,
//!
//! - a b = F(r) + F(s) - 2 F(0) + b, which holds for each pair of codes, and
//! - a b = p r if no code is 2.
//!
//! The term `- 2 F(0)` is computed with one additional column of zeros.

#![allow(unsafe_code, reason = "pulp has the token of AVX-512 VPOPCNTDQ, and not its instructions")]

use std::{arch::x86_64::__m512i, sync::Mutex};

use bytemuck::cast_slice;
use pulp::{NullaryFnOnce, cast};
use rayon::prelude::*;

use super::{Operands, STRIP, merge, padded};
use crate::Cancel;

pulp::simd_type! {
    /// Proof that the processor can count the bits of a vector's lanes.
    pub(super) struct Popcount {
        pub(super) avx2: "avx2",
        pub(super) bmi1: "bmi1",
        pub(super) bmi2: "bmi2",
        pub(super) popcnt: "popcnt",
        pub(super) lzcnt: "lzcnt",
        pub(super) avx512f: "avx512f",
        pub(super) avx512bw: "avx512bw",
        pub(super) avx512dq: "avx512dq",
        pub(super) avx512vl: "avx512vl",
        pub(super) avx512vpopcntdq: "avx512vpopcntdq",
    }
}

/// The bits of 8 entries, for 64 rows each.
type BitVector = [u64; 8];

/// The number of rows of a block: the bits of a lane, in the order of [`row_of`].
const ROWS: usize = 64;
/// The number of blocks that are multiplied at a time: a level 1 cache holds the parts that a tile reads.
const BLOCKS: usize = 16;
/// The number of vectors of a tile, whose sums for [`TILE_COLUMNS`] columns stay in registers.
const TILE: usize = 4;
const TILE_COLUMNS: usize = 4;

/// Returns the row of a block that a bit belongs to: eight groups of four rows, so that a column's limbs can be read byte by byte.
const fn row_of(bit: usize) -> usize {
    bit / 32 * 32 + bit % 8 * 4 + bit % 32 / 8
}

impl Popcount {
    /// Adds the product and returns true. Does nothing and returns false if the weights are not codes of 0, 1 and 2 times one factor.
    pub(super) fn add(self, p: &Operands<'_>, sums: &mut [u32]) -> bool {
        let Some(columns) = Columns::new(self, p) else { return false };
        let columns = &columns;
        p.pieces(sums, |rows, word, words, out| {
            self.vectorize(CountedPiece { popcount: self, product: *p, columns, rows, word, words, out });
        });
        true
    }

    /// Adds the number of 1 bits of each lane to `sum`.
    #[inline(always)]
    fn count(self, sum: __m512i, bits: __m512i) -> __m512i {
        // SAFETY: `self` proves that the processor has AVX-512 VPOPCNTDQ.
        self.avx512f._mm512_add_epi64(sum, unsafe { std::arch::x86_64::_mm512_popcnt_epi64(bits) })
    }

    /// Swaps, for rows that are `APART` apart, the upper half of each `2 * shift` bits of the first with the lower half in the second.
    #[inline(always)]
    fn swap<const APART: usize>(self, rows: &mut [__m512i; 8], shift: i64, below: i64) {
        let simd = self.avx512f;
        let (shift, below) = (simd._mm512_set1_epi64(shift), simd._mm512_set1_epi64(below));
        for i in (0..8).filter(|i| i & APART == 0) {
            let [low, high] = [rows[i], rows[i + APART]];
            let other = simd._mm512_xor_si512(simd._mm512_srlv_epi64(low, shift), high);
            let other = simd._mm512_and_si512(other, below);
            rows[i] = simd._mm512_xor_si512(low, simd._mm512_sllv_epi64(other, shift));
            rows[i + APART] = simd._mm512_xor_si512(high, other);
        }
    }
}

/// The codes of the columns.
struct Columns {
    /// The factor of all products.
    factor: i64,
    /// True if no code is 2.
    single: bool,
    /// Bits for (blocks, columns and one of zeros): 1 if the code is 1 or 2, and 1 if it is 2.
    planes: Vec<[u64; 2]>,
}

impl Columns {
    /// Returns `None` if the weights are not codes of 0, 1 and 2 times one factor.
    fn new(popcount: Popcount, p: &Operands<'_>) -> Option<Self> {
        if p.missing || p.limb_count != 1 {
            return None;
        }
        let (least, negative) = popcount.vectorize(Least(cast_slice(p.weights)));
        let factor = i8::try_from(if negative { -least } else { least }).ok()?;
        let codes = [factor, factor.checked_mul(2)?].map(i8::cast_unsigned);
        let mut planes = vec![[0; 2]; p.rows.div_ceil(ROWS) * (p.cols + 1)];
        let blocks = planes.par_chunks_mut(p.cols + 1).zip(p.weights.par_chunks(ROWS / 4 * p.width));
        let is_of_codes = |(planes, weights): (&mut [[u64; 2]], &[u32])| {
            popcount.vectorize(Planes { weights, width: p.width, codes, planes })
        };
        let single = blocks.map(is_of_codes).try_reduce(|| true, |a, b| Some(a && b))?;
        Some(Self { factor: factor.into(), single, planes })
    }
}

/// Finds the least magnitude of nonzero bytes, and finds out if any byte is negative.
struct Least<'a>(&'a [u8]);

impl NullaryFnOnce for Least<'_> {
    type Output = (i16, bool);

    #[inline(always)]
    fn call(self) -> Self::Output {
        let (mut least, mut any) = (u8::MAX, 0);
        for &byte in self.0 {
            // Magnitudes are reduced by 1 (wrapping), so that 0 becomes the largest.
            least = least.min(byte.cast_signed().unsigned_abs().wrapping_sub(1));
            any |= byte;
        }
        (i16::from(least) + 1, any >= 128)
    }
}

/// Makes the bits of a block of rows, from bytes that are 0 or one of two codes.
struct Planes<'a> {
    weights: &'a [u32],
    width: usize,
    codes: [u8; 2],
    planes: &'a mut [[u64; 2]],
}

impl NullaryFnOnce for Planes<'_> {
    /// `None` if there is any other byte; otherwise true if no byte is the second code.
    type Output = Option<bool>;

    #[inline(always)]
    fn call(self) -> Self::Output {
        let Self { weights, width, codes: [one, two], planes } = self;
        let (mut other, mut doubles) = ([0; 64], [0; 64]);
        let cols = planes.len() - 1;
        for (half, fours) in weights.chunks(8 * width).enumerate() {
            for (first, planes) in (0..).step_by(16).zip(planes[..cols].chunks_mut(16)) {
                let mut bits = [[0; 64]; 2];
                for (four, words) in fours.chunks_exact(width).enumerate() {
                    let bytes: &[u8] = cast_slice(&words[first..][..16]);
                    let [held, double] = &mut bits;
                    for i in 0..64 {
                        let byte = bytes[i];
                        held[i] |= u8::from(byte != 0) << four;
                        double[i] |= u8::from(byte == two) << four;
                        other[i] |= u8::from(byte != 0) & u8::from(byte != one) & u8::from(byte != two);
                    }
                }
                doubles.iter_mut().zip(bits[1]).for_each(|(any, bits)| *any |= bits);
                let [held, double]: [[u32; 16]; 2] = bits.map(cast);
                for (planes, bits) in planes.iter_mut().zip(held.into_iter().zip(double)) {
                    planes[0] |= u64::from(bits.0) << (32 * half);
                    planes[1] |= u64::from(bits.1) << (32 * half);
                }
            }
        }
        (other == [0; 64]).then(|| doubles == [0; 64])
    }
}

/// The codes of a strip of entries in a block of rows: bits for codes 1 or 2, and bits for codes 2. There is space for one more vector.
struct CodeBlock {
    held: [BitVector; 2 * STRIP + 1],
    double: [BitVector; 2 * STRIP + 1],
}

/// A task: some words of some rows.
struct CountedPiece<'a, 'b> {
    popcount: Popcount,
    product: Operands<'a>,
    columns: &'a Columns,
    rows: (usize, usize),
    word: usize,
    words: usize,
    out: &'a Mutex<&'b mut [u32]>,
}

impl NullaryFnOnce for CountedPiece<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (p, cols) = (&self.product, self.product.cols);
        // The lanes that hold entries, 32 each, are stored contiguously.
        let lanes = self.words / 2;
        let vectors = 4 * lanes;
        // These are sums of (columns and one of zeros, vectors), and the number to add for each column.
        let mut sums = vec![[0; 8]; (cols + 1) * vectors];
        let mut codes = vec![0; cols];
        let mut blocks = [const { CodeBlock { held: [[0; 8]; _], double: [[0; 8]; _] } }; BLOCKS];
        for row in (self.rows.0..self.rows.1).step_by(ROWS * BLOCKS) {
            if Cancel::is_set(p.cancel) {
                return;
            }
            let count = (self.rows.1 - row).div_ceil(ROWS).min(BLOCKS);
            let blocks = &mut blocks[..count];
            let mut single = self.columns.single;
            for (row, block) in (row..).step_by(ROWS).zip(&mut *blocks) {
                single &= self.split(row, lanes, block);
            }
            let columns = &self.columns.planes[row / ROWS * (cols + 1)..][..count * (cols + 1)];
            let product = BitProduct { popcount: self.popcount, blocks, columns, cols: cols + 1, vectors };
            if single {
                product.add::<true>(&mut sums);
                continue;
            }
            product.add::<false>(&mut sums);
            for columns in columns.chunks_exact(cols + 1) {
                for (sum, planes) in codes.iter_mut().zip(columns) {
                    *sum += i64::from(planes[0].count_ones() + planes[1].count_ones());
                }
            }
        }
        // These are (entries, padded columns).
        let mut totals = vec![0; 16 * self.words * padded(cols)];
        let (sums, zeros) = sums.split_at(cols * vectors);
        for (vector, zeros) in zeros.iter().enumerate() {
            let rows: [usize; 8] = std::array::from_fn(|lane| {
                let place = 8 * vector + lane;
                (place % lanes * 32 + place / lanes) * padded(cols)
            });
            for (c, codes) in codes.iter().enumerate() {
                for ((row, sum), zero) in rows.iter().zip(sums[c * vectors + vector]).zip(zeros) {
                    let count = sum.cast_signed() - zero.cast_signed() + codes;
                    totals[row + c] = self.columns.factor * count;
                }
            }
        }
        merge(&totals, p, self.out);
    }
}

impl CountedPiece<'_, '_> {
    /// Stores the codes of a block of rows as bits; rows past the last one are 0. Returns true if no code is 2.
    #[inline(always)]
    fn split(&self, first: usize, lanes: usize, block: &mut CodeBlock) -> bool {
        let (popcount, simd) = (self.popcount, self.popcount.avx512f);
        // The bits of entries by rows become bits of rows by entries: each step swaps two quarters of squares of bits.
        let mut rows: [[BitVector; 8]; ROWS / 8] = [[[0; 8]; 8]; ROWS / 8];
        for place in 0..8 {
            let mut eight = std::array::from_fn(|i| self.row(first, 8 * i + place));
            popcount.swap::<4>(&mut eight, 32, 0x0000_0000_ffff_ffff);
            popcount.swap::<2>(&mut eight, 16, 0x0000_ffff_0000_ffff);
            popcount.swap::<1>(&mut eight, 8, 0x00ff_00ff_00ff_00ff);
            for (rows, row) in rows.iter_mut().zip(eight) {
                rows[place] = cast(row);
            }
        }
        let (held, double) = (block.held.as_flattened_mut(), block.double.as_flattened_mut());
        let mut any = simd._mm512_set1_epi64(0);
        for (place, rows) in (0..).step_by(4 * lanes).zip(rows) {
            let mut eight = rows.map(cast);
            popcount.swap::<4>(&mut eight, 4, 0x0f0f_0f0f_0f0f_0f0f);
            popcount.swap::<2>(&mut eight, 2, 0x3333_3333_3333_3333);
            popcount.swap::<1>(&mut eight, 1, 0x5555_5555_5555_5555);
            for (place, &[low, high]) in (place..).step_by(lanes).zip(eight.as_chunks().0) {
                // With fewer lanes, the next write overwrites the excess.
                let (held, double) = (&mut held[place..][..8], &mut double[place..][..8]);
                held.copy_from_slice(&cast::<_, BitVector>(simd._mm512_or_si512(low, high)));
                double.copy_from_slice(&cast::<_, BitVector>(high));
                any = simd._mm512_or_si512(any, high);
            }
        }
        cast::<_, BitVector>(any)[..lanes].iter().all(|&bits| bits == 0)
    }

    /// Returns the words of a row of a block; lanes past the piece have arbitrary words.
    #[inline(always)]
    fn row(&self, first: usize, bit: usize) -> __m512i {
        let (p, row) = (&self.product, first + row_of(bit));
        if row >= self.rows.1 {
            return cast([0u32; STRIP]);
        }
        let words = &p.packed[row * p.words + self.word..];
        cast(words.first_chunk().copied().unwrap_or_else(|| {
            let mut last = [0u32; STRIP];
            last[..words.len()].copy_from_slice(words);
            last
        }))
    }
}

/// Blocks of entries, and the columns to multiply them by.
struct BitProduct<'a> {
    popcount: Popcount,
    blocks: &'a [CodeBlock],
    /// The bits of (blocks, columns).
    columns: &'a [[u64; 2]],
    cols: usize,
    vectors: usize,
}

impl BitProduct<'_> {
    /// Adds the products to sums of (columns, vectors).
    #[inline(always)]
    fn add<const SINGLE: bool>(&self, sums: &mut [BitVector]) {
        for vector in (0..self.vectors).step_by(TILE) {
            let mut column = 0;
            while column + TILE_COLUMNS <= self.cols {
                self.tile::<SINGLE, TILE_COLUMNS>(vector, column, sums);
                column += TILE_COLUMNS;
            }
            while column < self.cols {
                self.tile::<SINGLE, 1>(vector, column, sums);
                column += 1;
            }
        }
    }

    #[inline(always)]
    fn tile<const SINGLE: bool, const COLUMNS: usize>(
        &self,
        vector: usize,
        column: usize,
        sums: &mut [BitVector],
    ) {
        /// A truth table of three bits: the second bit if the first is 1, otherwise the inverse of the third.
        const CHOOSE: i32 = 0b1100_0101;
        let (popcount, simd) = (self.popcount, self.popcount.avx512f);
        let place = |c: usize| (column + c) * self.vectors + vector;
        let mut acc: [[__m512i; TILE]; COLUMNS] =
            std::array::from_fn(|c| std::array::from_fn(|v| cast(sums[place(c) + v])));
        for (block, columns) in self.blocks.iter().zip(self.columns.chunks_exact(self.cols)) {
            let (held, double) = (&block.held[vector..][..TILE], &block.double[vector..][..TILE]);
            for (acc, planes) in acc.iter_mut().zip(&columns[column..][..COLUMNS]) {
                let [one, two] = planes.map(|bits| simd._mm512_set1_epi64(bits.cast_signed()));
                for ((acc, &held), &double) in acc.iter_mut().zip(held).zip(double) {
                    let (held, double) = (cast(held), cast(double));
                    if SINGLE {
                        *acc = popcount.count(*acc, simd._mm512_and_si512(one, held));
                        continue;
                    }
                    for bits in [one, two] {
                        let chosen = simd._mm512_ternarylogic_epi64::<CHOOSE>(bits, double, held);
                        *acc = popcount.count(*acc, chosen);
                    }
                }
            }
        }
        for (c, acc) in acc.into_iter().enumerate() {
            sums[place(c)..][..TILE].copy_from_slice(&acc.map(cast));
        }
    }
}
