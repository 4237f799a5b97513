//! Packed codes to standardised f32.

use std::ops::Range;

use super::row_words;
use crate::{
    Error, Result, Tensor,
    kernel::{Grid, small},
    kernels::{
        WG,
        packed_standardize::{PACKED_STANDARDIZE, Params, spec},
    },
};

/// `(code - shift) scale` in f32, and `fill` where it is missing, with [shift, scale, fill] = `table[i]`, of these rows
/// of `packed`: (rows, samples). Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless the table has as many entries as there are rows, and rows hold `samples`; [`Error::Limit`]
/// when one row does not fit a binding; [`Error::OutOfMemory`].
pub fn packed_standardize(
    packed: &Tensor<u32>,
    rows: Range<u64>,
    samples: u64,
    table: &[[f32; 3]],
) -> Result<Tensor<f32>> {
    let op = "packed_standardize";
    let [held, words] = packed.matrix(op)?;
    let count = rows.end.saturating_sub(rows.start);
    if rows.end > held || table.len() as u64 != count || words != row_words(samples) {
        let expected = format!("{} of {held} rows, {samples} samples", table.len());
        return Err(Error::shape(op, expected, format_args!("rows {rows:?} of {words} words")));
    }
    let device = packed.device();
    let table = Tensor::from_slice(device, table.as_flattened(), &[count, 3])?;
    let mut out = Tensor::empty(device, &[count, samples])?;
    if out.is_empty() {
        return Ok(out);
    }
    let limits = device.limits();
    let step = limits.rows_per_launch(samples.max(words).max(3), WG)?;
    for first in (0..count).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let end = count.min(first.saturating_add(step));
        let x = packed.window((rows.start + first) * words..(rows.start + end) * words);
        let t = table.window(first * 3..end * 3);
        let target = out.window_mut(first * samples..end * samples);
        let params = Params {
            rows: small(end - first),
            words: small(words),
            samples: small(samples),
            packed0: x.start,
            table0: t.start,
            out0: target.start,
        };
        let items = (end - first) * samples.div_ceil(4);
        let grid = Grid::linear(items.div_ceil(WG.into()), limits.groups_per_axis, 4 * items)?;
        device.launch(&PACKED_STANDARDIZE, &spec(), grid, &[x.arg, t.arg, target.arg], &params)?;
    }
    Ok(out)
}
