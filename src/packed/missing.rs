//! What missing codes add to a transposed product, code by code.

use crate::{
    Device, Result,
    device::Arg,
    kernel::{Grid, small},
    kernels::{
        packed_adjoint::Params,
        packed_missing::{PACKED_MISSING, TILE, spec},
    },
};

/// Fewest rows of a workgroup, so that starting it costs little beside them.
const LEAST_DEPTH: u64 = 16;

/// Makes the sums of a product that took each missing code for a 3 those of one that added the second set of limbs for it:
/// adds these, less three times the first set. `params` and `args` are those of the product with both sets. Enqueues; does not
/// wait.
///
/// # Errors
/// What the device reports.
pub(super) fn complete(device: &Device, limb_count: u32, params: Params, args: &[Arg<'_>; 3]) -> Result<()> {
    let limits = device.limits();
    let (rows, words) = (u64::from(params.rows), u64::from(params.word_count));
    let tiles = words.div_ceil(TILE.into());
    let depth = (rows * tiles).div_ceil(2 * u64::from(limits.fill)).max(LEAST_DEPTH).next_multiple_of(4);
    let grid = Grid::linear(tiles * rows.div_ceil(depth), limits.groups_per_axis, rows * words)?;
    device.launch(&PACKED_MISSING, &spec(limb_count), grid, args, &Params { depth: small(depth), ..params })
}
