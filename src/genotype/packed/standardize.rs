//! Packed codes to standardised f32.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::row_words;
use crate::{
    Error, Result, Tensor,
    kernel::{Grid, Kernel, kernel},
};

/// Parameters of the kernel.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Params {
    pub(crate) rows: u32,
    /// Words of a packed row.
    pub(crate) words: u32,
    pub(crate) samples: u32,
    pub(crate) packed0: u32,
    pub(crate) table0: u32,
    pub(crate) out0: u32,
}

pub(crate) static PACKED_STANDARDIZE: Kernel<Params> =
    kernel!("packed_standardize", Params, [Read, Read, Write], crate::cpu::packed_standardize, specs);

const WG: u32 = 256;

fn spec() -> [(&'static str, u32); 1] {
    [("WG", WG)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    vec![spec().to_vec()]
}

/// `(code - shift) scale` in f32, and `fill` where it is missing, with [shift, scale, fill] = `table[i]`, of these rows
/// of `packed`: (rows, samples). Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless the table has as many entries as there are rows, and rows hold `samples`; [`Error::Limit`]
/// when one row does not fit a binding; [`Error::OutOfMemory`].
pub(crate) fn packed_standardize(
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
        let small = |n: u64| u32::try_from(n).expect("a panel should be small");
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
