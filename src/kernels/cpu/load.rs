//! Decoding of stored elements to f32.

use crate::{DType, Element, dtype::with_dtype, kernel::CpuArg};

/// Writes the `out.len()` elements from `start` of an argument as f32.
pub(crate) fn load(arg: &CpuArg<'_>, dtype: DType, start: usize, out: &mut [f32]) {
    with_dtype!(dtype, T => {
        for (out, value) in out.iter_mut().zip(&arg.read::<T>()[start..]) {
            *out = value.to_f32();
        }
    });
}
