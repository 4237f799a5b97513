//! The product A X of packed rows with limbs.

use std::ops::Range;

use super::{
    operand::{LIMBS, LimbMatrix, row_limbs},
    row_words,
};
use crate::{
    Device, Element, Error, Result, Tensor,
    extent::to_usize,
    kernel::{Grid, Program, small},
    kernels::packed_apply::{LARGE_TILE, PACKED_APPLY, Params, TILE, spec},
};

/// Returns the number of rows of a workgroup that is fastest for `rows` rows. The number is large if these rows fill three quarters of the
/// device, the least that [`RowBatches`](super::row_batches::RowBatches) make of many rows.
fn tile(device: &Device, rows: u64) -> u32 {
    if device.limits().is_filled_by_large(rows / u64::from(LARGE_TILE)) { LARGE_TILE } else { TILE }
}

/// Returns the program that [`packed_weights`] launches for `rows` rows without a missing code.
pub(crate) fn program_of_weights(device: &Device, rows: u64) -> Program {
    Program::new(&PACKED_APPLY, &spec(tile(device, rows), false, true))
}

/// The rows that take part in a product: some rows of a panel.
#[derive(Clone, Copy, Debug)]
pub struct PackedRows<'a> {
    /// The codes of the panel, (rows, [`row_words`] of the entries).
    pub packed: &'a Tensor<u32>,
    /// The index of the first row, and the index after the last row.
    pub range: (u64, u64),
    /// True if a code may be missing. If false, a missing code counts as 3.
    pub missing: bool,
}

impl PackedRows<'_> {
    /// Refuses rows that do not have `entries` entries, or are beyond their panel or their table (rows, 2), if there is
    /// one. Fails with [`Error::Shape`].
    pub(super) fn check(&self, op: &'static str, entries: u64, table: Option<&Tensor<f32>>) -> Result<()> {
        let [held, words] = self.packed.matrix(op)?;
        let [factors, width] = table.map_or(Ok([held, 2]), |table| table.matrix(op))?;
        let (first, end) = self.range;
        if first <= end && end <= held.min(factors) && words == row_words(entries) && width == 2 {
            return Ok(());
        }
        let expected = format!("rows of {entries} entries, and a table (rows, 2)");
        let got =
            format_args!("rows {first} to {end} of ({held}, {words}) words, a table ({factors}, {width})");
        Err(Error::shape(op, expected, got))
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.range.0..self.range.1
    }

    pub(crate) fn device(&self) -> &Device {
        self.packed.device()
    }

    pub(crate) fn words(&self) -> u64 {
        self.packed.shape()[1]
    }

    /// Returns the number of sets of limbs of a weighted product: the limbs of the weights, and if codes are missing the limbs of the weights
    /// times the means.
    pub(crate) fn sets(&self) -> u64 {
        1 + u64::from(self.missing)
    }

    fn tile(&self) -> u32 {
        tile(self.device(), self.range.1 - self.range.0)
    }
}

/// Returns y = A x in f32, (rows, columns), in the units of x times the [factors](LimbMatrix::factors). Enqueues; does not wait.
///
/// For a row with codes g, mean μ and factor s, in `table` for each row of the panel, y = s (Σ g x - μ Σ x). Both sums are over the entries that are not missing, in integers. The
/// other operations each round to f32. Fails with [`Error::Limit`] when a row or the limbs do not fit a binding; [`Error::OutOfMemory`].
pub(crate) fn packed_apply(
    rows: PackedRows<'_>,
    table: &Tensor<f32>,
    x: &LimbMatrix,
    factors: &Tensor<f32>,
) -> Result<Tensor<f32>> {
    apply_in_tiles(rows.tile(), rows, table, x, factors)
}

/// [`packed_apply`] in tiles of a given size. Results stay the same to the bit.
pub(crate) fn apply_in_tiles(
    tile: u32,
    rows: PackedRows<'_>,
    table: &Tensor<f32>,
    x: &LimbMatrix,
    factors: &Tensor<f32>,
) -> Result<Tensor<f32>> {
    let shape = [rows.range.1 - rows.range.0, x.columns];
    launch(tile, rows, table, x, factors, false, shape)
}

/// Returns the limbs of w = s A x, followed by the limbs of μ w if codes are missing: (⌈rows / 4⌉, sets x row limbs) words. Byte b of word
/// (i, limb) belongs to row 4 i + b. Enqueues; does not wait.
///
/// `factors` are the [factors](LimbMatrix::factors) of the units of the weights, in the units of x: |w| and |μ w| are at most
/// [`MAX`](super::operand::MAX) of these units. Fails as [`packed_apply`] does.
pub(crate) fn packed_weights(
    rows: PackedRows<'_>,
    table: &Tensor<f32>,
    x: &LimbMatrix,
    factors: &Tensor<f32>,
) -> Result<Tensor<u32>> {
    weights_in_tiles(rows.tile(), rows, table, x, factors)
}

/// [`packed_weights`] in tiles of a given size. Results stay the same to the bit.
pub(crate) fn weights_in_tiles(
    tile: u32,
    rows: PackedRows<'_>,
    table: &Tensor<f32>,
    x: &LimbMatrix,
    factors: &Tensor<f32>,
) -> Result<Tensor<u32>> {
    let count = rows.range.1 - rows.range.0;
    let shape = [count.div_ceil(4), rows.sets() * row_limbs(LIMBS, x.columns)];
    launch(tile, rows, table, x, factors, true, shape)
}

/// Returns a product of this shape; if `limbs`, the limbs of the weights.
fn launch<T: Element>(
    tile: u32,
    rows: PackedRows<'_>,
    table: &Tensor<f32>,
    x: &LimbMatrix,
    factors: &Tensor<f32>,
    limbs: bool,
    shape @ [_, width]: [u64; 2],
) -> Result<Tensor<T>> {
    let (device, words) = (rows.device(), rows.words());
    if words == 0 {
        return Tensor::zeros(device, &shape);
    }
    let mut out = Tensor::empty(device, &shape)?;
    if out.is_empty() {
        return Ok(out);
    }
    let per_row = if limbs { width } else { 4 * width };
    let step = step(device, words, per_row.max(4 * words).max(8))?;
    let from = rows.range.0;
    for (first, last) in pieces(rows.range(), step) {
        let packed = rows.packed.window(first * words..last * words);
        let table = table.window(first * 2..last * 2);
        let place = if limbs {
            (first - from) / 4 * width..(last - from).div_ceil(4) * width
        } else {
            (first - from) * width..(last - from) * width
        };
        let target = out.window_mut(place);
        let params = Params {
            rows: small(last - first),
            words: small(words),
            columns: small(x.columns),
            row_limbs: small(row_limbs(LIMBS, x.columns)),
            packed0: packed.start,
            table0: table.start,
            out0: target.start,
            zero: 0,
        };
        let work = (last - first).saturating_mul(16 * words).saturating_mul(x.columns);
        let groups = (last - first).div_ceil(tile.into());
        let grid = Grid::linear(groups, device.limits().groups_per_axis, work)?;
        let xs = x.words.window(0..x.words.len());
        let args = [packed.arg, xs.arg, table.arg, factors.window(0..factors.len()).arg, target.arg];
        device.launch(&PACKED_APPLY, &spec(tile, rows.missing, limbs), grid, &args, &params)?;
    }
    Ok(out)
}

/// Returns the number of rows of one launch: whole tiles that fit a binding if the widest operand has `widest` bytes a row.
pub(super) fn step(device: &Device, words: u64, widest: u64) -> Result<u64> {
    let limits = device.limits();
    let binding = limits.room();
    let tiles = (binding / widest / u64::from(TILE)).min(u64::from(limits.groups_per_axis).saturating_pow(2));
    if tiles == 0 {
        let requested = widest * u64::from(TILE);
        return Err(Error::Limit { what: "bytes of 64 packed rows", requested, max: binding });
    }
    debug_assert!(words > 0, "rows should hold entries");
    Ok(tiles * u64::from(TILE))
}

/// Returns consecutive parts of a range, each of at most `longest` elements.
pub(super) fn pieces(Range { start, end }: Range<u64>, longest: u64) -> impl Iterator<Item = (u64, u64)> {
    let step = to_usize(longest);
    (start..end).step_by(step).map(move |first| (first, end.min(first.saturating_add(longest))))
}
