//! Packed rows in another order.

use std::ops::Range;

use super::{apply::step, row_words};
use crate::{
    Error, Result, Tensor,
    bits::{Width, unpack},
    extent::to_usize,
    kernel::{Grid, Program, small},
    kernels::{
        WG, WG_ALONE,
        packed_gather::{PACKED_GATHER, Params, ROWS, Recode},
    },
};

/// Returns the program that [`packed_gather`] launches.
pub(crate) fn program() -> Program {
    Program::new(&PACKED_GATHER, &WG_ALONE)
}

/// Returns the maximum number of rows that [`packed_gather`] takes from: those that fit a binding, and that a word of
/// an order can name. Fails with [`Error::Limit`] when 64 rows do not fit.
pub(crate) fn most_rows(packed: &Tensor<u32>) -> Result<u64> {
    let words = packed.shape()[1];
    Ok(step(packed.device(), words, 4 * words)?.min(ROWS.into()))
}

/// Returns some rows of `packed` as numbers: code i becomes `numbers[i]`. Enqueues; does not wait.
///
/// # Shapes
/// `packed`: (.., [`row_words`]) -> (rows, entries).
///
/// # Cost
/// One pass over the rows and over the result.
///
/// # Errors
/// [`Error::Shape`] when `packed` does not have these rows, or has rows of another length; [`Error::Limit`] for more rows than a binding
/// holds;
/// [`Error::OutOfMemory`].
///
/// ```
/// use teatime::{Device, Tensor, packed::{recode, row_words, unpack_rows}};
/// let device = Device::cpu();
/// let codes = Tensor::from_slice(&device, &[0b01_10_01_00u8, 0b11_00_00_10], &[2, 1])?;
/// let mut panel = Tensor::zeros(&device, &[2, row_words(4)])?;
/// recode(&codes, [0, 1, 2, 3], 4, &mut panel, 0)?.wait()?;
/// assert_eq!(unpack_rows(&panel, &[1], 4, [0.0, 1.0, 2.0, -1.0])?.read()?, [2.0, 0.0, 0.0, -1.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn unpack_rows(
    packed: &Tensor<u32>,
    rows: &[u64],
    entries: u64,
    numbers: [f32; 4],
) -> Result<Tensor<f32>> {
    let (first, last) = (rows.iter().min().copied().unwrap_or(0), rows.iter().max().copied());
    let range = first..last.map_or(first, |last| last.saturating_add(1));
    let max = u64::from(ROWS);
    if range.end - range.start > max {
        return Err(Error::Limit { what: "rows to unpack", requested: range.end - range.start, max });
    }
    #[allow(clippy::cast_possible_truncation, reason = "at most 2^24")]
    let order: Vec<u32> = rows.iter().map(|row| Recode::NOTHING.word((row - first) as u32)).collect();
    let gathered = packed_gather(packed, entries, range, &order)?;
    let bytes = gathered.into_elements::<u8>(&[rows.len() as u64, 4 * row_words(entries)]);
    unpack(&bytes, entries, Width::Two, Some(&numbers))
}

/// Returns the rows of `packed` that `order` names, counted from the first of `rows`, and recoded as the words of `order` say
/// ([`Recode::word`]). Enqueues; does not wait. Fails with [`Error::Shape`] when a row of the order is not one of
/// `rows`, or `rows` are not in `packed`; [`Error::Limit`] for more rows than [`most_rows`]; [`Error::OutOfMemory`].
pub(crate) fn packed_gather(
    packed: &Tensor<u32>,
    entries: u64,
    rows: Range<u64>,
    order: &[u32],
) -> Result<Tensor<u32>> {
    let op = "packed_gather";
    let [held, words] = packed.matrix(op)?;
    let count = rows.end.saturating_sub(rows.start);
    if rows.end > held
        || words != row_words(entries)
        || order.iter().any(|&word| u64::from(Recode::split(word).1) >= count)
    {
        let expected = format!("rows of {held} of {entries} entries, an order of {count}");
        return Err(Error::shape(op, expected, format_args!("{rows:?}, {:?}", order.iter().max())));
    }
    let len = order.len() as u64;
    let mut out = Tensor::<u32>::empty(packed.device(), &[len, words])?;
    if out.is_empty() {
        return Ok(out);
    }
    let max = most_rows(packed)?;
    let requested = count.max(len);
    if requested > max {
        return Err(Error::Limit { what: "rows to put in order", requested, max });
    }
    gather_into(packed, entries, rows, order, (&mut out, 0, 0))?;
    Ok(out)
}

/// Returns rows of two packed matrices side by side, one for each element of `codes`. Rows of the first matrix are taken from its row index
/// on, and code i of row j becomes `codes[j][i]`. Rows of the second matrix are taken from its row index on, unchanged. The entries of the
/// first matrix are padded to a multiple of 64, and the entries of the second matrix follow. Enqueues; does not wait.
///
/// # Shapes
/// (.., [`row_words`] of the first matrix's entries) and (.., [`row_words`] of the second matrix's entries) -> (rows, the words of both
/// matrices).
///
/// # Cost
/// One pass over the rows and over the result.
///
/// # Errors
/// [`Error::Shape`] when a matrix does not have these rows, or has rows of another length; [`Error::Argument`] for codes above 3;
/// [`Error::Limit`] when 64 rows do not fit a binding; [`Error::OutOfMemory`].
///
/// ```
/// use teatime::{Device, Tensor, packed::{recode, row_words, side_by_side, unpack_rows}};
/// let device = Device::cpu();
/// let codes = Tensor::from_slice(&device, &[0b01_10_01_00u8, 0b11_00_00_10], &[2, 1])?;
/// let mut panel = Tensor::zeros(&device, &[2, row_words(4)])?;
/// recode(&codes, [0, 1, 2, 3], 4, &mut panel, 0)?.wait()?;
/// // The second row, 2 0 0 missing, its codes 0 and 2 turned round, beside the first.
/// let both = side_by_side((&panel, 4, 1), (&panel, 4, 0), &[[2, 1, 0, 3]])?;
/// let numbers = unpack_rows(&both, &[0], 68, [0.0, 1.0, 2.0, -1.0])?.read()?;
/// assert_eq!((&numbers[..4], &numbers[64..]), (&[0.0, 2.0, 2.0, -1.0][..], &[0.0, 1.0, 2.0, 1.0][..]));
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn side_by_side(
    (left, left_entries, left_row): (&Tensor<u32>, u64, u64),
    (right, right_entries, right_row): (&Tensor<u32>, u64, u64),
    codes: &[[u8; 4]],
) -> Result<Tensor<u32>> {
    let op = "side_by_side";
    if let Some(codes) = codes.iter().find(|codes| codes.iter().any(|&code| code > 3)) {
        return Err(Error::argument(op, "codes", format_args!("{codes:?}: codes are 0 to 3")));
    }
    let rows = codes.len() as u64;
    let sides = [(left, left_entries, left_row), (right, right_entries, right_row)];
    for (packed, entries, row) in sides {
        let [held, words] = packed.matrix(op)?;
        if words != row_words(entries) || row.checked_add(rows).is_none_or(|end| end > held) {
            let expected = format!("{rows} rows of {entries} entries from row {row} on");
            return Err(Error::shape(op, expected, format_args!("({held}, {words}) words")));
        }
    }
    let width = row_words(left_entries);
    let mut out = Tensor::<u32>::empty(left.device(), &[rows, width + row_words(right_entries)])?;
    let step = most_rows(&out)?;
    for first in (0..rows).step_by(to_usize(step)) {
        let end = rows.min(first + step);
        let codes = codes[to_usize(first)..to_usize(end)].iter().map(|codes| Recode(*codes));
        let recoded = [codes.collect(), vec![Recode::NOTHING; to_usize(end - first)]];
        for (((packed, entries, row), word), recode) in sides.into_iter().zip([0, width]).zip(recoded) {
            let order: Vec<u32> = recode.iter().zip(0..).map(|(recode, row)| recode.word(row)).collect();
            gather_into(packed, entries, row + first..row + end, &order, (&mut out, first, word))?;
        }
    }
    Ok(out)
}

/// Gathers as [`packed_gather`] does, to the rows of `out` from `row` on, and to the words of each row from `word` on. Empty rows are
/// skipped.
fn gather_into(
    packed: &Tensor<u32>,
    entries: u64,
    rows: Range<u64>,
    order: &[u32],
    (out, row, word): (&mut Tensor<u32>, u64, u64),
) -> Result<()> {
    let (device, len) = (packed.device(), order.len() as u64);
    let (words, stride) = (row_words(entries), out.shape()[1]);
    if len * words == 0 {
        return Ok(());
    }
    let order = Tensor::from_slice(device, order, &[len])?;
    let x = packed.window(rows.start * words..rows.end * words);
    let places = order.window(0..len);
    let target = out.window_mut(row * stride..(row + len) * stride);
    let params = Params {
        rows: small(len),
        words: small(words),
        stride: small(stride),
        entries: small(entries),
        packed0: x.start,
        order0: places.start,
        out0: target.start + small(word),
    };
    let items = len * words;
    let grid = Grid::linear(items.div_ceil(WG.into()), device.limits().groups_per_axis, items)?;
    device.launch(&PACKED_GATHER, &WG_ALONE, grid, &[x.arg, places.arg, target.arg], &params)
}
