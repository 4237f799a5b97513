//! Conversion of stored elements to f32 or f64.

use crate::{DType, Real, dtype::with_dtype, kernel::CpuArg};

/// Reads the `out.len()` elements of an argument from `start` on and writes them as f32 or f64.
pub(crate) fn load<R: Real>(arg: &CpuArg<'_>, dtype: DType, start: usize, out: &mut [R]) {
    with_dtype!(dtype, T => {
        for (out, value) in out.iter_mut().zip(&arg.read::<T>()[start..]) {
            *out = R::nearest(*value);
        }
    });
}
