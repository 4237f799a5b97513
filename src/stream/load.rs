//! A stored array as one tensor.

use super::{Block, Blocks, Plan, StreamStats, digest};
use crate::{ChunkedArray, Device, Element, Result, Run, Tensor};

/// Bytes of a box of rows, where a row has fewer.
const BOX: u64 = 8 << 20;

/// The number of rows that [`load`] should read at once: whole chunks where these are small, and whole words of any type.
pub(crate) fn rows_to_load(array: &dyn ChunkedArray, row_bytes: u64) -> u64 {
    let rows = (BOX / row_bytes.max(1)).max(1);
    let chunk = array.chunk_shape().first().copied().unwrap_or(1).max(1);
    let whole = if chunk <= rows { rows / chunk * chunk } else { rows };
    whole.next_multiple_of(4)
}

/// Reads all of a plan, in boxes of a multiple of 4 rows, into one tensor on the device, of a shape with as many rows. Holds as many bytes of
/// chunks as [`Blocks::new`] says. To `digested` a digest of all elements is added, which is the same whatever the memory.
///
/// # Errors
/// As [`Blocks::next_block`]; what the device reports.
pub(crate) fn load<T: Element>(
    plan: &Plan,
    device: &Device,
    shape: &[u64],
    bytes: u64,
    run: &Run,
    stats: &mut StreamStats,
    digested: &mut u64,
) -> Result<Tensor<T>> {
    let mut tensor = Tensor::for_parts(device, shape)?;
    let mut blocks = Blocks::new(plan, device, plan.block_rows(), bytes, &run.cancel)?;
    if !tensor.is_empty() {
        while let Some(mut block) = blocks.next_block()? {
            *digested = digested.wrapping_add(digest(block.rows().start, block.bytes()));
            put(block, &mut tensor)?;
        }
    }
    stats.add(&blocks.stats);
    Ok(tensor)
}

/// Puts a box into its rows. Enqueues the upload; what is enqueued from now on sees it.
fn put<T: Element>(block: Block<'_>, tensor: &mut Tensor<T>) -> Result<()> {
    let (row, rows) = (tensor.shape()[1..].iter().product::<u64>(), block.rows());
    tensor.put(block.slot, rows.start * row..rows.end * row)
}
