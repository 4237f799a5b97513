//! The types in which sums are computed, f32 and f64, with conversions from and to elements.

use half::{bf16, f16};
use pulp::Simd;

use super::{Combine, SAFE};
use crate::{
    DType, Element,
    dtype::with_dtype,
    kernel::CpuArg,
    kernels::cpu::{load::load, simd::wide, vectors::SimdFloat},
};

/// A type in which sums are computed: f32 or f64.
pub(crate) trait Real: SimdFloat {
    /// Returns true for a value that is infinite, or so large that sums may be infinite.
    fn may_overflow(self) -> bool;
    /// Returns true if any value is infinite, or so large that sums may be infinite.
    fn any_may_overflow(values: &[Self]) -> bool;
    /// Returns true if all values are finite.
    fn are_finite(values: &[Self]) -> bool;
    /// Subtracts from each element of a line the element that is `step` behind.
    fn subtract(line: &[Self], step: usize, out: &mut [Self]);
    /// Reads elements, from `start` on.
    fn load(arg: &CpuArg<'_>, dtype: DType, start: usize, out: &mut [Self]);
    /// Writes values as elements of a type, rounded to nearest (ties to even).
    fn store(values: &[Self], dtype: DType, out: &mut [u8]);
    /// Converts each value to the element that truncation makes of it.
    fn truncate(values: &mut [Self], dtype: DType);
    /// Combines each value with the element in `old`: the sum of both, or the root of the sum of their squares.
    fn combine(combine: Combine, old: &[u8], values: &mut [Self]);

    /// Returns x y + z. f32 is rounded once if the processor has a fast instruction for it; f64 is rounded twice, as in scipy.
    fn mul_add<S: Simd>(
        simd: S,
        x: Self::Vector<S>,
        y: Self::Vector<S>,
        z: Self::Vector<S>,
    ) -> Self::Vector<S>;
}

/// An element that can be converted from and to type `R`.
trait Cell<R>: Element {
    fn rounded(value: R) -> Self;
    fn truncated(value: R) -> Self;
    fn real(self) -> R;
}

/// Rounds to the nearest integer (ties to even), by adding a value so large that the sum has no bits below 1. Casts
/// would check each value against the bounds of the integer type, one value after the other.
#[inline(always)]
const fn near_f32(value: f32) -> i32 {
    const LARGE: f32 = 1.5 * (1 << 23) as f32;
    (value + LARGE).to_bits().wrapping_sub(LARGE.to_bits()).cast_signed()
}

#[inline(always)]
const fn near_f64(value: f64) -> i64 {
    const LARGE: f64 = 1.5 * (1u64 << 52) as f64;
    (value + LARGE).to_bits().wrapping_sub(LARGE.to_bits()).cast_signed()
}

/// Rounds to the nearest integer, for types of large integers.
#[allow(clippy::cast_possible_truncation, reason = "within the bounds of 32-bit integers")]
#[inline(always)]
const fn near_large(value: f32) -> i64 {
    value.round_ties_even() as i64
}

macro_rules! integers {
    ($($type:ty: $of_f32:ident, $of_f64:ident;)*) => {$(
        integers!(@ $type, f32, $of_f32);
        integers!(@ $type, f64, $of_f64);
    )*};
    // Values beyond the bounds become the bound, and NaN becomes 0.
    (@ $type:ty, $real:ty, $near:ident) => {
        #[allow(clippy::cast_possible_truncation, reason = "within the bounds")]
        impl Cell<$real> for $type {
            #[inline(always)]
            fn rounded(value: $real) -> Self {
                // The largest float up to the bound; the bounds of u32 and i32 are not exact in f32.
                let most = if Self::MAX as $real as i128 > Self::MAX as i128 {
                    (Self::MAX as $real).next_down()
                } else {
                    Self::MAX as $real
                };
                let within = value.max(Self::MIN as $real).min(most);
                let whole = $near(if value.is_nan() { 0.0 } else { within }) as Self;
                if Self::MAX as $real != most && value > most { Self::MAX } else { whole }
            }
            #[inline(always)]
            fn truncated(value: $real) -> Self {
                <Self as Cell<$real>>::rounded(value.trunc())
            }
            #[inline(always)]
            fn real(self) -> $real {
                self as $real
            }
        }
    };
}

integers! {
    u8: near_f32, near_f64;
    i8: near_f32, near_f64;
    u16: near_f32, near_f64;
    i16: near_f32, near_f64;
    u32: near_large, near_f64;
    i32: near_large, near_f64;
}

macro_rules! floats {
    ($($type:ty, $real:ty: $value:ident => $rounded:expr, $to:expr;)*) => {$(
        #[allow(clippy::cast_possible_truncation, reason = "rounding is the point")]
        impl Cell<$real> for $type {
            #[inline(always)]
            fn rounded($value: $real) -> Self {
                $rounded
            }
            #[inline(always)]
            fn truncated(value: $real) -> Self {
                Self::rounded(value)
            }
            #[inline(always)]
            fn real(self) -> $real {
                let $value = self;
                $to
            }
        }
    )*};
}

floats! {
    f32, f32: v => v, v;
    f32, f64: v => v as Self, v.into();
    f64, f32: v => v.into(), v as f32;
    f64, f64: v => v, v;
    f16, f32: v => Self::from_f32(v), v.to_f32();
    f16, f64: v => Self::from_f64(v), v.to_f64();
    bf16, f32: v => Self::from_f32(v), v.to_f32();
    bf16, f64: v => Self::from_f64(v), v.to_f64();
}

macro_rules! real {
    ($real:ident, $vector:ident, $large:expr, $load:expr, $mul_add:expr) => {
        impl Real for $real {
            #[inline(always)]
            fn may_overflow(self) -> bool {
                self.abs() >= Self::from(SAFE)
            }

            fn any_may_overflow(values: &[Self]) -> bool {
                wide(|| values.iter().fold(false, |any, value| any | value.may_overflow()))
            }

            fn are_finite(values: &[Self]) -> bool {
                wide(|| values.iter().fold(true, |finite, value| finite & (value.abs() < Self::INFINITY)))
            }

            fn subtract(line: &[Self], step: usize, out: &mut [Self]) {
                wide(|| {
                    for ((out, x), behind) in out.iter_mut().zip(line).zip(&line[step..]) {
                        *out = x - behind;
                    }
                });
            }

            fn load(arg: &CpuArg<'_>, dtype: DType, start: usize, out: &mut [Self]) {
                if dtype == Self::DTYPE {
                    out.copy_from_slice(&arg.read::<Self>()[start..][..out.len()]);
                } else {
                    $load(arg, dtype, start, out);
                }
            }

            fn store(values: &[Self], dtype: DType, out: &mut [u8]) {
                with_dtype!(dtype, T => {
                    let out: &mut [T] = bytemuck::cast_slice_mut(out);
                    if dtype == Self::DTYPE {
                        out.copy_from_slice(bytemuck::cast_slice(values));
                    } else {
                        wide(|| {
                            for (out, &value) in out.iter_mut().zip(values) {
                                *out = <T as Cell<Self>>::rounded(value);
                            }
                        });
                    }
                });
            }

            fn truncate(values: &mut [Self], dtype: DType) {
                with_dtype!(dtype, T => wide(|| {
                    for value in values.iter_mut() {
                        *value = <T as Cell<Self>>::truncated(*value).real();
                    }
                }));
            }

            fn combine(combine: Combine, old: &[u8], values: &mut [Self]) {
                // The values are scaled by a power of two if their squares may overflow or be nearly 0.
                let length = |x: Self, y: Self| {
                    let [large, by]: [Self; 2] = $large;
                    let most = x.abs().max(y.abs());
                    let scale = if most > large { 1.0 / by } else if most < 1.0 / large { by } else { 1.0 };
                    let (x, y) = (x * scale, y * scale);
                    (x * x + y * y).sqrt() / scale
                };
                let old: &[Self] = bytemuck::cast_slice(old);
                for (value, &old) in values.iter_mut().zip(old) {
                    *value = match combine {
                        Combine::Replace => *value,
                        Combine::Add => old + *value,
                        Combine::Length => length(old, *value),
                    };
                }
            }

            #[inline(always)]
            fn mul_add<S: Simd>(simd: S, x: S::$vector, y: S::$vector, z: S::$vector) -> S::$vector {
                $mul_add(simd, x, y, z)
            }
        }
    };
}

real!(
    f32,
    f32s,
    [62, 100].map(|exponent| Self::from_bits((127 + exponent) << 23)),
    |arg: &CpuArg<'_>, dtype, start, out: &mut [f32]| match dtype {
        DType::U8 => decode(&arg.read::<u8>()[start..], out),
        DType::U16 => decode(&arg.read::<u16>()[start..], out),
        DType::I16 => decode(&arg.read::<i16>()[start..], out),
        _ => load(arg, dtype, start, out),
    },
    |simd: S, x, y, z| simd.mul_add_e_f32s(x, y, z)
);
real!(
    f64,
    f64s,
    [500, 600].map(|exponent| Self::from_bits((1023 + exponent) << 52)),
    |arg: &CpuArg<'_>, dtype, start, out: &mut [f64]| with_dtype!(dtype, T => decode(&arg.read::<T>()[start..], out)),
    |simd: S, x, y, z| simd.add_f64s(simd.mul_f64s(x, y), z)
);

fn decode<T: Cell<R>, R>(stored: &[T], out: &mut [R]) {
    wide(|| {
        for (out, &value) in out.iter_mut().zip(stored) {
            *out = value.real();
        }
    });
}
