//! Vectors of f32 or f64, as wide as the processor supports.

use bytemuck::Pod;
use pulp::Simd;

/// A type that vectors can hold: f32 or f64.
pub(crate) trait SimdFloat: Copy {
    /// A vector that fills a register.
    type Vector<S: Simd>: Pod;

    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;
    fn vectors<S: Simd>(values: &[Self]) -> &[Self::Vector<S>];
    fn vectors_mut<S: Simd>(values: &mut [Self]) -> &mut [Self::Vector<S>];
    fn add_vectors<S: Simd>(simd: S, x: Self::Vector<S>, y: Self::Vector<S>) -> Self::Vector<S>;
    fn sub_vectors<S: Simd>(simd: S, x: Self::Vector<S>, y: Self::Vector<S>) -> Self::Vector<S>;
    fn mul_vectors<S: Simd>(simd: S, x: Self::Vector<S>, y: Self::Vector<S>) -> Self::Vector<S>;
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

macro_rules! vectors {
    ($($real:ident: $vector:ident $splat:ident $vectors:ident $vectors_mut:ident $add:ident $sub:ident $mul:ident $mul_add:ident $abs:ident $load:ident $sum:ident;)*) => {$(
        impl SimdFloat for $real {
            type Vector<S: Simd> = S::$vector;

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
            fn add_vectors<S: Simd>(simd: S, x: S::$vector, y: S::$vector) -> S::$vector {
                simd.$add(x, y)
            }
            #[inline(always)]
            fn sub_vectors<S: Simd>(simd: S, x: S::$vector, y: S::$vector) -> S::$vector {
                simd.$sub(x, y)
            }
            #[inline(always)]
            fn mul_vectors<S: Simd>(simd: S, x: S::$vector, y: S::$vector) -> S::$vector {
                simd.$mul(x, y)
            }
            #[inline(always)]
            fn mul_add_vectors<S: Simd>(simd: S, x: S::$vector, y: S::$vector, sum: S::$vector) -> S::$vector {
                simd.$mul_add(x, y, sum)
            }
            #[inline(always)]
            fn partial_load<S: Simd>(simd: S, values: &[Self]) -> S::$vector {
                simd.$load(values)
            }
            #[inline(always)]
            fn reduce_sum<S: Simd>(simd: S, x: S::$vector) -> Self {
                simd.$sum(x)
            }
            #[inline(always)]
            fn abs_vector<S: Simd>(simd: S, x: S::$vector) -> S::$vector {
                simd.$abs(x)
            }
        }
    )*};
}

vectors! {
    f32: f32s splat_f32s as_simd_f32s as_mut_simd_f32s add_f32s sub_f32s mul_f32s mul_add_f32s abs_f32s partial_load_f32s reduce_sum_f32s;
    f64: f64s splat_f64s as_simd_f64s as_mut_simd_f64s add_f64s sub_f64s mul_f64s mul_add_f64s abs_f64s partial_load_f64s reduce_sum_f64s;
}
