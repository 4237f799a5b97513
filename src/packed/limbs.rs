//! Conversion of packed codes to limbs of the numbers that a table has for the codes.

use std::ops::Range;

use super::{
    apply::{pieces, step},
    operand::row_limbs,
};
use crate::{
    Error, Result, Tensor,
    kernel::{Grid, Program, small},
    kernels::{
        WG,
        packed_limbs::{PACKED_LIMBS, Params, spec},
    },
};

/// Returns the program that [`packed_limbs`] launches for `sets` sets of `limb_count` limbs.
pub(crate) fn program(sets: u64, limb_count: u64) -> Program {
    Program::new(&PACKED_LIMBS, &spec(sets, limb_count))
}

/// The numbers, in limbs, that replace the codes of each row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    /// (rows, sets x limbs) words: byte g is the limb for code g.
    pub(crate) words: &'a Tensor<u32>,
    /// The row of the table for the first packed row.
    pub(crate) first: u64,
    /// The number of sets of numbers, 1 or 2, and the number of limbs of each number: at most 3, and not 1 with 2 sets.
    pub(crate) sets: u64,
    pub(crate) limb_count: u64,
}

/// Returns the limbs of the entries `columns` of the rows `rows` of `packed`, in the order of
/// [`packed_weights`](super::apply::packed_weights): (⌈rows / 4⌉, sets x row limbs) words. Enqueues; does not wait.
///
/// `columns` start at the first entry of a word: a multiple of 16. Fails with [`Error::Shape`] when the shapes do not
/// fit; [`Error::Limit`] when a row does not fit a binding; [`Error::OutOfMemory`].
pub(crate) fn packed_limbs(
    packed: &Tensor<u32>,
    rows: Range<u64>,
    columns: Range<u64>,
    table: Table<'_>,
) -> Result<Tensor<u32>> {
    let op = "packed_limbs";
    let [held, words] = packed.matrix(op)?;
    let (count, entries) = (rows.end.saturating_sub(rows.start), table.sets * table.limb_count);
    let [tabled, width] = table.words.matrix(op)?;
    if rows.end > held || tabled < table.first + count || width != entries {
        let expected = format!("{held} rows, a table of {} x {entries}", table.first + count);
        return Err(Error::shape(op, expected, format_args!("rows {rows:?}, {tabled} x {width}")));
    }
    if columns.end > 16 * words || !columns.start.is_multiple_of(16) {
        let expected = format!("some of {} entries, from a multiple of 16 on", 16 * words);
        return Err(Error::shape(op, expected, format_args!("entries {columns:?}")));
    }
    let device = packed.device();
    let across = columns.end.saturating_sub(columns.start);
    let row_limbs = row_limbs(table.limb_count, across);
    let wide = table.sets * row_limbs;
    let mut out = Tensor::<u32>::empty(device, &[count.div_ceil(4), wide])?;
    if out.is_empty() {
        return Ok(out);
    }
    let step = step(device, words, (4 * words).max(wide).max(4 * entries))?;
    for (first, end) in pieces(0..count, step) {
        let x = packed.window((rows.start + first) * words..(rows.start + end) * words);
        let terms = table.words.window((table.first + first) * entries..(table.first + end) * entries);
        let target = out.window_mut(first / 4 * wide..end.div_ceil(4) * wide);
        let params = Params {
            rows: small(end - first),
            words: small(words),
            word0: small(columns.start / 16),
            columns: small(across),
            row_limbs: small(row_limbs),
            packed0: x.start,
            table0: terms.start,
            out0: target.start,
        };
        let items = (end - first).div_ceil(4) * across;
        let groups = items.div_ceil(WG.into());
        let grid = Grid::linear(groups, device.limits().groups_per_axis, 4 * items * entries)?;
        let args = [x.arg, terms.arg, target.arg];
        device.launch(&PACKED_LIMBS, &spec(table.sets, table.limb_count), grid, &args, &params)?;
    }
    Ok(out)
}
