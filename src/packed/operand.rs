//! Operands in integers: each number has three limbs, which are balanced bytes.
//!
//! A number is rounded to a multiple of a power of two, which is fixed for its column. That multiple, of 23 bits and a sign, is written in
//! base 256 with limbs of -128 to 127. Sums of limbs times codes are exact in 32 bits, so they are the same on every device and in any order.

use std::ops::Range;

use rayon::prelude::*;

use super::entry;
use crate::{Device, Error, Result, Tensor, extent::to_usize, kernels::cpu::limbs::limbs, linalg::Matrix};

/// The number of limbs of a number.
pub(crate) const LIMBS: u64 = 3;
/// The largest multiple whose limbs are all in range: 127 (1 + 256 + 65536).
pub(crate) const MAX: f64 = 8_355_711.0;
/// Returns the largest multiple whose `limb_count` limbs are all in range.
pub(crate) fn max_of(limb_count: u64) -> f64 {
    (0..limb_count).fold(0.0, |max, _| 256.0 * max + 127.0)
}

/// The maximum number of columns of one product.
pub(crate) const MAX_COLUMNS: u64 = 64;

/// Returns the number of limbs of a row of numbers. Limb t of column c is at `t columns + c`, and rows are padded to a multiple of 16.
pub(crate) const fn row_limbs(limb_count: u64, columns: u64) -> u64 {
    (limb_count * columns).next_multiple_of(16)
}

/// Returns the smallest power of two that is at least `largest` / [`MAX`], or the smallest positive f64 if that is larger: every f64 is a
/// multiple of it.
pub(crate) fn unit(largest: f64) -> f64 {
    if largest <= 0.0 {
        return 1.0;
    }
    let bits = largest.to_bits();
    // `largest` with all bits but the first cleared.
    let power = if largest.is_normal() {
        f64::from_bits(bits >> (f64::MANTISSA_DIGITS - 1) << (f64::MANTISSA_DIGITS - 1))
    } else {
        f64::from_bits(1 << bits.ilog2())
    };
    // MAX lies between 2^22 and 2^23.
    let most = f64::from(1 << 22);
    let unit = power / if largest / power * most <= MAX { most } else { most / 2.0 };
    unit.max(f64::from_bits(1))
}

/// The number of entries that one task takes: whole words of a row.
const PART: usize = 1024;

/// Returns the largest magnitude of each column. It is not finite if the column holds NaN or infinity.
fn largest(x: &Matrix, columns: &Range<usize>) -> Vec<f64> {
    // The bits of magnitudes have the same order as the magnitudes, and the bits of infinity and NaN are above all others.
    let none = || vec![0; columns.len()];
    let larger = |mut largest: Vec<u64>, row: &[f64]| {
        for (largest, value) in largest.iter_mut().zip(&row[columns.clone()]) {
            *largest = (*largest).max(value.abs().to_bits());
        }
        largest
    };
    let parts = x.data().par_chunks((PART * x.cols()).max(1));
    let largest =
        parts.map(|rows| rows.chunks_exact(x.cols()).fold(none(), larger)).reduce(none, |mut a, b| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a = b.max(*a));
            a
        });
    largest.into_iter().map(f64::from_bits).collect()
}

/// Writes the limbs of an entry's numbers to place `place` of a quad's words, where the bytes are 0, and adds the multiples to `totals`.
fn put(numbers: &[f64], units: &[f64], place: usize, out: &mut [u32], totals: &mut [i64]) {
    // This is 1.5 times 2^52. A number that is added to it is rounded to an integer, ties to even, which the low bits then hold.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    let columns = numbers.len();
    for (c, ((value, unit), total)) in numbers.iter().zip(units).zip(totals).enumerate() {
        // The unit is chosen so that the value is in range.
        #[allow(clippy::cast_possible_truncation, reason = "at most MAX")]
        let multiple = (value / unit + SHIFT).to_bits() as i32;
        *total += i64::from(multiple);
        for (t, limb) in limbs(multiple).into_iter().enumerate() {
            out[t * columns + c] |= u32::from(limb.cast_unsigned()) << (8 * place);
        }
    }
}

/// The columns of a matrix (entries, columns) as limbs on a device, in the order of quads.
#[derive(Debug)]
pub(crate) struct LimbMatrix {
    /// (quads, row limbs) words: byte b of word (q, limb) belongs to the entry at place b of quad q.
    pub(crate) words: Tensor<u32>,
    pub(crate) columns: u64,
    /// The unit of each column, of which the column's numbers are multiples.
    pub(crate) units: Vec<f64>,
    /// The largest magnitude of each column, in units of the column and before rounding.
    pub(crate) largest: Vec<f64>,
    /// The sum of the multiples of each column.
    pub(crate) totals: Vec<f64>,
}

impl LimbMatrix {
    /// Converts columns `first..first + columns` of `x` to limbs, for rows of `words` words. Fails with
    /// [`Error::Argument`] for NaN and infinity; [`Error::OutOfMemory`].
    pub(crate) fn new(device: &Device, x: &Matrix, first: usize, columns: usize, words: u64) -> Result<Self> {
        let (pool, range) = (device.pool()?, first..first + columns);
        let largest = pool.install(|| largest(x, &range));
        if let Some(c) = largest.iter().position(|largest| !largest.is_finite()) {
            let why = format_args!("column {} holds NaN or infinity", first + c);
            return Err(Error::argument("packed product", "x", why));
        }
        let units: Vec<f64> = largest.iter().map(|&largest| unit(largest)).collect();
        let row_limbs = to_usize(row_limbs(LIMBS, columns as u64));
        let quads = 4 * to_usize(words);
        let mut limbs = vec![0u32; quads * row_limbs];
        let part = |(part, out): (usize, &mut [u32])| {
            let mut totals = vec![0; columns];
            for (quad, out) in (PART / 4 * part..).zip(out.chunks_exact_mut(row_limbs)) {
                for place in 0..4 {
                    let i = entry(quad, place);
                    if i < x.rows() {
                        put(&x.row(i)[range.clone()], &units, place, out, &mut totals);
                    }
                }
            }
            totals
        };
        let parts: Vec<Vec<i64>> = pool
            .install(|| limbs.par_chunks_mut((PART / 4 * row_limbs).max(1)).enumerate().map(part).collect());
        let totals = (0..columns).map(|c| parts.iter().map(|totals| totals[c]).sum::<i64>() as f64).collect();
        let words = Tensor::from_slice(device, &limbs, &[quads as u64, row_limbs as u64])?;
        let largest = largest.iter().zip(&units).map(|(largest, unit)| largest / unit).collect();
        Ok(Self { words, columns: columns as u64, units, largest, totals })
    }

    /// Returns for each column the sum of its multiples, and the factor of a product's sums of multiples: 1 / `units`,
    /// or 1. Fails with [`Error::OutOfMemory`].
    pub(crate) fn factors(&self, units: Option<&[f64]>) -> Result<Tensor<f32>> {
        let factor = |c: usize| units.map_or(1.0, |units| 1.0 / units[c]);
        #[allow(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
        let pairs = self.totals.iter().enumerate().map(|(c, &total)| [total as f32, factor(c) as f32]);
        let pairs: Vec<[f32; 2]> = pairs.collect();
        Tensor::from_slice(self.words.device(), pairs.as_flattened(), &[self.columns, 2])
    }
}
