//! What missing codes add to a transposed product, code by code.

use super::adjoint::Params;
use crate::{
    Device, Result,
    device::Arg,
    kernel::{Grid, Kernel, kernel},
};

pub(crate) static PACKED_MISSING: Kernel<Params> =
    kernel!("packed_missing", Params, [Read, Read, ReadWrite], crate::cpu::packed_missing, specs);

/// Words of a row that a workgroup takes.
pub(crate) const TILE: u32 = 128;
/// Fewest rows of a workgroup, so that starting it costs little beside them.
const LEAST_DEPTH: u64 = 16;

fn spec(slices: u32) -> [(&'static str, u32); 2] {
    [("TILE", TILE), ("SLICES", slices)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [2, 3].map(|slices| spec(slices).to_vec()).into()
}

/// Makes the sums of a product that took each missing code for a 3 those of one that added the second set of digits for it:
/// adds these, less three times the first set. `params` and `args` are those of the product with both sets. Enqueues; does not
/// wait.
///
/// # Errors
/// What the device reports.
pub(super) fn complete(device: &Device, slices: u32, params: Params, args: &[Arg<'_>; 3]) -> Result<()> {
    let limits = device.limits();
    let (rows, words) = (u64::from(params.rows), u64::from(params.word_count));
    let tiles = words.div_ceil(TILE.into());
    let depth = (rows * tiles).div_ceil(2 * u64::from(limits.fill)).max(LEAST_DEPTH).next_multiple_of(4);
    let grid = Grid::linear(tiles * rows.div_ceil(depth), limits.groups_per_axis, rows * words)?;
    let depth = u32::try_from(depth).expect("a panel should be small");
    device.launch(&PACKED_MISSING, &spec(slices), grid, args, &Params { depth, ..params })
}
