//! Means of adjacent pixels.

use half::f16;
use rayon::prelude::*;
use teatime::{Element, store::Storable, to_usize};

/// A type of pixels that can be averaged. A mean is over 1, 2, 4 or 8 pixels.
pub(crate) trait Mean: Storable + Send + Sync {
    /// A type that holds the sum of 8 pixels.
    type Sum: Copy + Default + Send + Sync;

    fn add(self, sum: Self::Sum) -> Self::Sum;

    /// Returns the mean of `1 << shift` pixels. Integers are rounded to the nearest, ties to even.
    fn mean(sum: Self::Sum, shift: u32) -> Self;
}

macro_rules! integers {
    ($($type:ty, $sum:ty;)*) => {$(
        impl Mean for $type {
            type Sum = $sum;

            fn add(self, sum: $sum) -> $sum {
                sum + <$sum>::from(self)
            }

            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean is within the range of its values")]
            fn mean(sum: $sum, shift: u32) -> Self {
                let (below, twice) = (sum >> shift, (sum - (sum >> shift << shift)) * 2);
                let up = twice > 1 << shift || (twice == 1 << shift && below & 1 == 1);
                (below + <$sum>::from(up)) as Self
            }
        }
    )*};
}

integers! {
    i8, i64; u8, i64; i16, i64; u16, i64; i32, i64; u32, i64; i64, i128; u64, i128;
}

macro_rules! floats {
    ($($type:ty, $round:expr;)*) => {$(
        impl Mean for $type {
            type Sum = f64;

            // Each pixel is multiplied by 1/8, so that no sum of finite numbers is infinite.
            fn add(self, sum: f64) -> f64 {
                sum + f64::from(self) * 0.125
            }

            fn mean(sum: f64, shift: u32) -> Self {
                $round(sum * f64::from(8u8 >> shift))
            }
        }
    )*};
}

floats! {
    f16, nearest_f16;
    f32, Element::to_f32;
    f64, |value| value;
}

/// Returns the nearest f16. Since `half` rounds to f32 first, some values would be rounded twice. So if f32 is not exact, the neighbouring f32
/// with an odd last bit is taken, which is never halfway between two f16.
fn nearest_f16(value: f64) -> f16 {
    let near = value.to_f32();
    let (back, bits) = (f64::from(near), near.to_bits());
    if value.is_finite() && back != value && bits & 1 == 0 {
        return f16::from_f32(f32::from_bits(if back.abs() < value.abs() { bits + 1 } else { bits - 1 }));
    }
    f16::from_f32(near)
}

/// Returns the extent of each axis when `factor` pixels along it become one. A remainder at the end becomes one pixel too.
pub(crate) fn reduced(shape: &[u64], factors: &[u64]) -> Vec<u64> {
    shape.iter().zip(factors).map(|(extent, factor)| extent.div_ceil(*factor)).collect()
}

/// Returns the means of boxes of pixels. `factors` is 1 or 2 for each axis, and 2 for at most three axes. At the end of an axis of odd extent,
/// boxes have one pixel along it. `bytes` are the pixels in C order. Runs on the threads of the current pool; their number does not change the
/// result.
pub(crate) fn means<T: Mean>(bytes: &[u8], shape: &[u64], factors: &[u64]) -> Vec<T> {
    let sizes = |extents: &[u64]| -> Vec<usize> { extents.iter().copied().map(to_usize).collect() };
    let (out_shape, shape, factors) = (sizes(&reduced(shape, factors)), sizes(shape), sizes(factors));
    let last = shape.len() - 1;
    let (width, factor, row_bytes) = (out_shape[last], factors[last], shape[last] * size_of::<T>());
    let mut out = vec![T::zeroed(); out_shape.iter().product()];
    out.par_chunks_mut(width.max(1)).enumerate().for_each_init(
        || (vec![T::Sum::default(); width], Vec::new()),
        |(sums, rows), (number, out)| {
            sums.fill(T::Sum::default());
            rows_of(number, &shape[..last], &out_shape[..last], &factors[..last], rows);
            for row in rows.iter() {
                let pixels = bytes[row * row_bytes..][..row_bytes].chunks(factor * size_of::<T>());
                for (sum, pixels) in sums.iter_mut().zip(pixels) {
                    let pixels = pixels.chunks_exact(size_of::<T>());
                    *sum = pixels.fold(*sum, |sum, pixel| bytemuck::pod_read_unaligned::<T>(pixel).add(sum));
                }
            }
            for (at, (out, sum)) in out.iter_mut().zip(sums.iter()).enumerate() {
                let across = factor.min(shape[last] - at * factor);
                *out = T::mean(*sum, (rows.len() * across).ilog2());
            }
        },
    );
    out
}

/// Collects the rows whose means are row `number` of the result, in ascending order.
fn rows_of(
    mut number: usize,
    shape: &[usize],
    out_shape: &[usize],
    factors: &[usize],
    rows: &mut Vec<usize>,
) {
    rows.clear();
    rows.push(0);
    let mut stride = 1;
    for ((extent, out_extent), factor) in shape.iter().zip(out_shape).zip(factors).rev() {
        let start = number % out_extent * factor;
        number /= out_extent;
        let inner = rows.len();
        for step in 1..(*factor).min(extent - start) {
            for at in 0..inner {
                rows.push(rows[at] + step * stride);
            }
        }
        rows.iter_mut().for_each(|row| *row += start * stride);
        stride *= extent;
    }
}
