//! Packed rows in another order.

use std::ops::Range;

use super::{apply::step, row_words};
use crate::{
    Error, Result, Tensor,
    bits::{Width, unpack},
    kernel::{Grid, Program, small},
    kernels::{
        WG, WG_ALONE,
        packed_gather::{PACKED_GATHER, Params, ROWS, Recode},
    },
};

/// The program that [`packed_gather`] launches.
pub(crate) fn program() -> Program {
    Program::new(&PACKED_GATHER, &WG_ALONE)
}

/// Most rows that [`packed_gather`] takes from: what fits a binding, and an order's word.
///
/// # Errors
/// [`Error::Limit`] when 64 rows do not.
pub(crate) fn most_rows(packed: &Tensor<u32>) -> Result<u64> {
    let words = packed.shape()[1];
    Ok(step(packed.device(), words, 4 * words)?.min(ROWS.into()))
}

/// Some rows of `packed`, as numbers: what `numbers` has for codes 0, 1, 2 and 3. Enqueues; does not wait.
///
/// # Shapes
/// `packed`: (.., [`row_words`]) -> (rows, entries).
///
/// # Errors
/// [`Error::Shape`] when `packed` has not those rows, or rows of other lengths; [`Error::Limit`] for more rows than a binding holds;
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
    let order: Vec<u32> = rows.iter().map(|row| Recode::NOTHING.of((row - first) as u32)).collect();
    let gathered = packed_gather(packed, entries, range, &order)?;
    let bytes = gathered.into_elements::<u8>(&[rows.len() as u64, 4 * row_words(entries)]);
    unpack(&bytes, entries, Width::Two, Some(&numbers))
}

/// The rows that `order` names, of these rows of `packed`, recoded as its words say ([`Recode::of`]). Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] when a row of the order is none of `rows`, or those are none of `packed`; [`Error::Limit`] when there
/// are more than [`most_rows`]; [`Error::OutOfMemory`].
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
    let device = packed.device();
    let len = order.len() as u64;
    let mut out = Tensor::<u32>::empty(device, &[len, words])?;
    if out.is_empty() {
        return Ok(out);
    }
    let max = most_rows(packed)?;
    let requested = count.max(len);
    if requested > max {
        return Err(Error::Limit { what: "rows to put in order", requested, max });
    }
    let order = Tensor::from_slice(device, order, &[len])?;
    let x = packed.window(rows.start * words..rows.end * words);
    let places = order.window(0..len);
    let target = out.window_mut(0..len * words);
    let params = Params {
        rows: small(len),
        words: small(words),
        entries: small(entries),
        packed0: x.start,
        order0: places.start,
        out0: target.start,
    };
    let items = len * words;
    let grid = Grid::linear(items.div_ceil(WG.into()), device.limits().groups_per_axis, items)?;
    device.launch(&PACKED_GATHER, &WG_ALONE, grid, &[x.arg, places.arg, target.arg], &params)?;
    Ok(out)
}
