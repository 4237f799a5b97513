//! Decoding of stored elements to f32.

use crate::{DType, Element, driver::cpu::CpuArg, dtype::with_dtype};

/// Writes the `out.len()` elements from `start` of an argument as f32.
pub(super) fn load(arg: &CpuArg<'_>, dtype: DType, start: usize, out: &mut [f32]) {
    with_dtype!(dtype, T => {
        for (out, value) in out.iter_mut().zip(&arg.read::<T>()[start..]) {
            *out = value.to_f32();
        }
    });
}
