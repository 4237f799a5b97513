//! Conversion of two-bit codes by a table to the rows of a packed matrix, with the counts of each row's codes.

use std::ops::Range;

use super::row_words;
use crate::{
    Error, Result, Tensor,
    extent::to_usize,
    kernel::{Grid, Program, small},
    kernels::recode::{Params, RECODE, SPEC},
    linalg::Stats,
    tensor::Pending,
};

/// Returns the program that [`recode`] launches.
pub(super) fn program() -> Program {
    Program::new(&RECODE, &SPEC)
}

/// The counts that [`recode`] makes for each row, while they are being downloaded.
#[derive(Debug)]
#[must_use = "nothing waits for what was enqueued, and no error is seen"]
pub struct PendingCounts {
    counts: Pending<u32>,
    columns: u64,
}

impl PendingCounts {
    /// Waits, and returns for each row, in order, the sum, the sum of squares and the number of the codes 0, 1 and 2. Code 3 is missing.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub fn wait(self) -> Result<Vec<Stats>> {
        let words = self.counts.wait()?;
        let stats = words.as_chunks::<4>().0.iter().map(|&[_, ones, twos, missing]| {
            let [ones, twos] = [ones, twos].map(f64::from);
            Stats {
                sum: ones + 2.0 * twos,
                sum_squares: ones + 4.0 * twos,
                count: self.columns - u64::from(missing),
                bad: 0,
            }
        });
        Ok(stats.collect())
    }
}

/// Writes the codes of the rows of `raw` to the rows of `packed` from `first` on, with code i as `table[i]`, and counts the written codes.
/// Enqueues; does not wait. The page of [the module](crate::packed) has an example.
///
/// # Shapes
/// `raw`: (rows, a fourth of `columns`, rounded up) bytes with four codes each, the first in the lowest bits. The bits after the last code
/// may have any value. `packed`: (at least first + rows, [`row_words`] of `columns`). `table`: codes 0 to 3.
///
/// # Cost
/// One pass over `raw` and over the result; 16 bytes a row are downloaded.
///
/// # Errors
/// [`Error::Shape`] when the shapes do not fit; [`Error::Argument`] for a table of other codes; [`Error::Limit`] when a row does not fit
/// a binding; [`Error::OutOfMemory`].
pub fn recode(
    raw: &Tensor<u8>,
    table: [u8; 4],
    columns: u64,
    packed: &mut Tensor<u32>,
    first: u64,
) -> Result<PendingCounts> {
    let op = "recode";
    let [rows, row_bytes] = raw.matrix(op)?;
    let [room, words] = packed.matrix(op)?;
    if row_bytes != columns.div_ceil(4)
        || words != row_words(columns)
        || first.checked_add(rows).is_none_or(|end| end > room)
    {
        let expected = format!("rows of {columns} codes, {room} at most");
        let got = format_args!("{rows} x {row_bytes} bytes from row {first}, {words} words");
        return Err(Error::shape(op, expected, got));
    }
    if table.iter().any(|&code| code > 3) {
        return Err(Error::argument(op, "table", format_args!("{table:?}: codes are 0 to 3")));
    }
    let table = table.iter().rev().fold(0, |word, &code| word << 2 | u32::from(code));
    let device = raw.device();
    let limits = device.limits();
    let mut counts = Tensor::<u32>::empty(device, &[rows, 4])?;
    let binding = limits.room();
    let widest = row_bytes.max(4 * words).max(16);
    let step = (binding / widest).min(u64::from(limits.groups_per_axis).saturating_pow(2));
    if step == 0 {
        return Err(Error::Limit { what: "bytes of a row of codes", requested: widest, max: binding });
    }
    for start in (0..if columns == 0 { 0 } else { rows }).step_by(to_usize(step)) {
        let Range { start, end } = start..rows.min(start + step);
        let x = raw.window(start * row_bytes..end * row_bytes);
        let p = packed.window_mut((first + start) * words..(first + end) * words);
        let c = counts.window_mut(start * 4..end * 4);
        let params = Params {
            rows: small(end - start),
            cols: small(columns),
            row_bytes: small(row_bytes),
            words: small(words),
            raw0: x.start,
            packed0: p.start,
            counts0: c.start,
            table,
        };
        let grid = Grid::linear(end - start, limits.groups_per_axis, (end - start) * columns)?;
        device.launch(&RECODE, &SPEC, grid, &[x.arg, p.arg, c.arg], &params)?;
    }
    let counts = if columns == 0 { Tensor::zeros(device, &[rows, 4])? } else { counts };
    Ok(PendingCounts { counts: counts.download()?, columns })
}
