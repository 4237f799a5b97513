//! f32 and f64, and vectors of them that are as wide as the processor supports.

use std::ops::{Add, AddAssign, Div, Mul, Sub};

use bytemuck::Pod;
use pulp::Simd;

use crate::Real;

/// f32 or f64: the types in which functions for the cpu compute.
pub(crate) trait SimdFloat:
    Real
    + Default
    + From<f32>
    + PartialOrd
    + AddAssign
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// A vector that fills a register.
    type Vector<S: Simd>: Pod;

    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn ln(self) -> Self;
    fn powf(self, exponent: Self) -> Self;
    fn is_nan(self) -> bool;

    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;
    fn vectors<S: Simd>(values: &[Self]) -> &[Self::Vector<S>];
    fn vectors_mut<S: Simd>(values: &mut [Self]) -> &mut [Self::Vector<S>];
    fn add_vectors<S: Simd>(simd: S, x: Self::Vector<S>, y: Self::Vector<S>) -> Self::Vector<S>;
    fn sub_vectors<S: Simd>(simd: S, x: Self::Vector<S>, y: Self::Vector<S>) -> Self::Vector<S>;
    fn mul_vectors<S: Simd>(simd: S, x: Self::Vector<S>, y: Self::Vector<S>) -> Self::Vector<S>;
    /// Returns x y + sum.
    fn mul_add_vectors<S: Simd>(
        simd: S,
        x: Self::Vector<S>,
        y: Self::Vector<S>,
        sum: Self::Vector<S>,
    ) -> Self::Vector<S>;
    fn abs_vector<S: Simd>(simd: S, x: Self::Vector<S>) -> Self::Vector<S>;
    /// Returns a vector of fewer values than it holds, and zeros.
    fn partial_load<S: Simd>(simd: S, values: &[Self]) -> Self::Vector<S>;
    fn reduce_sum<S: Simd>(simd: S, x: Self::Vector<S>) -> Self;
}

macro_rules! floats {
    ($($real:ident: $vector:ident $splat:ident $vectors:ident $vectors_mut:ident $load:ident $sum:ident
        [$($name:ident($($x:ident),*) $operation:ident),*];)*) => {$(
        impl SimdFloat for $real {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn abs(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn ln(self) -> Self {
                self.ln()
            }
            #[inline(always)]
            fn powf(self, exponent: Self) -> Self {
                self.powf(exponent)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            $(
                #[inline(always)]
                fn $name<S: Simd>(simd: S, $($x: S::$vector),*) -> S::$vector {
                    simd.$operation($($x),*)
                }
            )*
            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }
            #[inline(always)]
            fn vectors<S: Simd>(values: &[Self]) -> &[S::$vector] {
                S::$vectors(values).0
            }
            #[inline(always)]
            fn vectors_mut<S: Simd>(values: &mut [Self]) -> &mut [S::$vector] {
                S::$vectors_mut(values).0
            }
            #[inline(always)]
            fn partial_load<S: Simd>(simd: S, values: &[Self]) -> S::$vector {
                simd.$load(values)
            }
            #[inline(always)]
            fn reduce_sum<S: Simd>(simd: S, x: S::$vector) -> Self {
                simd.$sum(x)
            }
        }
    )*};
}

floats! {
    f32: f32s splat_f32s as_simd_f32s as_mut_simd_f32s partial_load_f32s reduce_sum_f32s
        [add_vectors(x, y) add_f32s, sub_vectors(x, y) sub_f32s, mul_vectors(x, y) mul_f32s, mul_add_vectors(x, y, sum) mul_add_f32s,
            abs_vector(x) abs_f32s];
    f64: f64s splat_f64s as_simd_f64s as_mut_simd_f64s partial_load_f64s reduce_sum_f64s
        [add_vectors(x, y) add_f64s, sub_vectors(x, y) sub_f64s, mul_vectors(x, y) mul_f64s, mul_add_vectors(x, y, sum) mul_add_f64s,
            abs_vector(x) abs_f64s];
}
