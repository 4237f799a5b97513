//! Loads a stored array into one tensor.

use super::{Blocks, Plan, StreamStats, digest};
use crate::{ChunkedArray, Device, Element, Result, Run, Tensor};

/// The target number of bytes of a box of rows.
pub(super) const BOX: u64 = 8 << 20;

/// Returns the rows that [`load`] should read at once: whole chunks if they are small, and a multiple of 4, to end at a whole word.
pub(crate) fn rows_to_load(array: &dyn ChunkedArray, row_bytes: u64) -> u64 {
    let rows = (BOX / row_bytes.max(1)).max(1);
    let chunk = array.chunk_shape().first().copied().unwrap_or(1).max(1);
    let whole = if chunk <= rows { rows / chunk * chunk } else { rows };
    whole.next_multiple_of(4)
}

/// Reads a whole plan, in boxes of a multiple of 4 rows, into one tensor on the device, whose shape has the same number of rows. Holds
/// the bytes of chunks that [`Blocks::new`] describes. Also returns a digest of all elements, which does not depend on the memory. Fails
/// with the errors of [`Blocks::next_block`], and those of the device.
pub(crate) fn load<T: Element>(
    plan: &Plan,
    device: &Device,
    shape: &[u64],
    bytes: u64,
    run: &Run,
    stats: &mut StreamStats,
) -> Result<(Tensor<T>, u64)> {
    let (mut tensor, mut digested) = (Tensor::for_parts(device, shape)?, 0u64);
    let mut blocks = Blocks::new(plan, device, plan.block_rows(), bytes, &run.cancel)?;
    if !tensor.is_empty() {
        while let Some(mut block) = blocks.next_block()? {
            digested = digested.wrapping_add(digest(block.rows().start, block.bytes()));
            let (row, rows) = (shape[1..].iter().product::<u64>(), block.rows());
            block.put(&mut tensor, rows.start * row..rows.end * row)?;
        }
    }
    stats.add(&blocks.stats);
    Ok((tensor, digested))
}
