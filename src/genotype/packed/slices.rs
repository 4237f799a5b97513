//! Operands in whole numbers: three balanced bytes for each.
//!
//! A number is rounded to a multiple of a power of two, fixed for its column, and that multiple, of 23 bits and a sign, is
//! written to the base 256 with digits of -128 to 127. Sums of digits times codes are exact in 32 bits, so that they are
//! the same on every device and in any order.

use crate::{Device, Error, Result, Tensor, linalg::Matrix};

/// Digits of a number.
pub(crate) const SLICES: u64 = 3;
/// The largest multiple whose digits are all in range: 127 (1 + 256 + 65536).
pub(crate) const MAX: f64 = 8_355_711.0;
/// The same of numbers of so many digits.
pub(crate) fn max_of(slices: u64) -> f64 {
    (0..slices).fold(0.0, |max, _| 256.0 * max + 127.0)
}

/// Columns of one product at most.
pub(crate) const MAX_COLUMNS: u64 = 64;

/// Bytes of a row of digits: slice t of column c is at `t columns + c`, padded to a multiple of 16.
pub(crate) const fn lanes(columns: u64) -> u64 {
    lanes_of(SLICES, columns)
}

/// The same of numbers of so many digits.
pub(crate) const fn lanes_of(slices: u64, columns: u64) -> u64 {
    (slices * columns).next_multiple_of(16)
}

/// The smallest power of two of which numbers up to `largest` are at most [`MAX`] times as large; the smallest number of
/// f64 where that is smaller still, of which every number is a multiple.
pub(crate) fn unit(largest: f64) -> f64 {
    if largest <= 0.0 {
        return 1.0;
    }
    let bits = largest.to_bits();
    // `largest` without all but its first bit.
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

/// The digits of a multiple, the lowest first.
pub(crate) const fn digits(multiple: i32) -> [i8; 3] {
    let [low, ..] = multiple.to_le_bytes();
    let rest = (multiple - low.cast_signed() as i32) >> 8;
    let [middle, ..] = rest.to_le_bytes();
    let high = (rest - middle.cast_signed() as i32) >> 8;
    let [high, ..] = high.to_le_bytes();
    [low.cast_signed(), middle.cast_signed(), high.cast_signed()]
}

/// Columns of a matrix (samples, columns) as digits on a device, in the order of quads.
#[derive(Debug)]
pub(crate) struct Slices {
    /// (quads, lanes) words: byte b of word (q, lane) belongs to the sample at place b of quad q.
    pub(crate) words: Tensor<u32>,
    pub(crate) columns: u64,
    /// What each column's numbers are multiples of.
    pub(crate) units: Vec<f64>,
    /// Each column's sum of multiples.
    pub(crate) totals: Vec<f64>,
}

impl Slices {
    /// From columns `first..first + columns` of `x`, for rows of `words` words.
    ///
    /// # Errors
    /// [`Error::Argument`] for NaN and infinity; [`Error::OutOfMemory`].
    pub(crate) fn new(device: &Device, x: &Matrix, first: usize, columns: usize, words: u64) -> Result<Self> {
        let samples = x.rows();
        let units: Vec<f64> = (first..first + columns)
            .map(|c| {
                let largest = x.column(c).fold(0.0, |largest: f64, value| largest.max(value.abs()));
                let finite = x.column(c).all(f64::is_finite);
                let why = format_args!("column {c} holds NaN or infinity");
                if finite { Ok(unit(largest)) } else { Err(Error::argument("packed product", "x", why)) }
            })
            .collect::<Result<_>>()?;
        let lanes = usize::try_from(lanes(columns as u64)).unwrap_or(usize::MAX);
        let quads = 4 * usize::try_from(words).unwrap_or(usize::MAX);
        let mut all = vec![0u32; quads * lanes];
        let bytes: &mut [i8] = bytemuck::cast_slice_mut(&mut all);
        let mut totals = vec![0.0; columns];
        for i in 0..samples {
            let (word, byte, quad) = (i / 16, i % 16 / 4, i % 4);
            let row = &mut bytes[(4 * word + quad) * lanes * 4..][..lanes * 4];
            for (c, &value) in x.row(i)[first..first + columns].iter().enumerate() {
                // Within the range by the choice of the unit.
                #[allow(clippy::cast_possible_truncation, reason = "at most MAX")]
                let multiple = (value / units[c]).round_ties_even() as i32;
                totals[c] += f64::from(multiple);
                for (slice, digit) in digits(multiple).into_iter().enumerate() {
                    row[4 * (slice * columns + c) + byte] = digit;
                }
            }
        }
        let words = Tensor::from_slice(device, &all, &[quads as u64, lanes as u64])?;
        Ok(Self { words, columns: columns as u64, units, totals })
    }
}
