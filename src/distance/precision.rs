//! The choice between f32 and f64, and tables of f64 values for kernels in either type.

use super::{Metric, Options, metric::Prepare};
use crate::{DType, Device, Element, Error, Result, Tensor, dtype::nearest_f32, kernels::distance::Term};

/// The table entry of an observation without preparation: two parts of the value to subtract, and the factor of the difference.
pub(super) const PLAIN: [f64; 3] = [0.0, 0.0, 1.0];

/// True if sums are in f64: those of f64 are, and on devices with f64 those of integers that f32 would round. Fails with [`Error::NoF64`].
pub(super) fn is_wide<T: Element>(
    device: &Device,
    terms: &[Term],
    prepare: Prepare,
    options: &Options,
) -> Result<bool> {
    match T::DTYPE {
        DType::F64 if !options.narrow => device.computes_f64("distance").map(|()| true),
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => Ok(false),
        _ => Ok(!options.narrow && device.limits().f64 && !is_exact::<T>(terms, prepare)),
    }
}

/// True if f32 holds all terms exactly: terms of bytes that are whole numbers.
pub(super) fn is_exact<T: Element>(terms: &[Term], prepare: Prepare) -> bool {
    let bytes = matches!(T::DTYPE, DType::U8 | DType::I8);
    bytes && matches!(prepare, Prepare::Nothing | Prepare::Scale) && terms.iter().all(|term| term.is_whole())
}

pub(super) fn is_normal(value: f64, wide: bool) -> bool {
    if wide { value.is_normal() } else { nearest_f32(value).is_normal() }
}

/// Returns the factor that a term's sums gain when all elements are multiplied by `scale`, a power of two.
pub(super) fn factor(term: Term, metric: Metric, scale: f64) -> f64 {
    let [x, y] = term.degrees(metric.power());
    (scale.log2() * (x + y)).exp2()
}

/// Returns the table that divides observations by their sums. All distances from an observation with sum 0 are NaN. Fails with
/// [`Error::Argument`] for a sum below 0, or a sum whose reciprocal is not a normal number.
pub(super) fn shares(
    (name, first): (&'static str, u64),
    sums: &[f64],
    undefined: &mut [bool],
    wide: bool,
) -> Result<Vec<[f64; 3]>> {
    let mut entries = vec![PLAIN; sums.len()];
    for (number, (entry, sum)) in entries.iter_mut().zip(sums).enumerate() {
        undefined[number] |= *sum == 0.0;
        if undefined[number] {
            continue;
        }
        entry[2] = sum.recip();
        if !(is_normal(entry[2], wide) && *sum > 0.0) {
            let why = format_args!("observation {} adds up to {sum:e}", first + number as u64);
            return Err(Error::argument("distance", name, why));
        }
    }
    Ok(entries)
}

/// Uploads three values for each observation, as f32 or as the words of f64.
pub(super) fn table(device: &Device, entries: &[[f64; 3]], wide: bool) -> Result<Tensor<f32>> {
    let (numbers, count) = (entries.as_flattened(), entries.len() as u64);
    if wide {
        return Tensor::from_slice(device, bytemuck::cast_slice(numbers), &[count, 6]);
    }
    Tensor::from_slice(device, &numbers.iter().copied().map(nearest_f32).collect::<Vec<_>>(), &[count, 3])
}
