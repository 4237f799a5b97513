//! Packed rows in another order.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::{cpu::dot::missing, wg_alone};
use crate::kernel::{CpuLaunch, Kernel, kernel};

/// Parameters of the kernel.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Params {
    /// Rows of the result.
    pub(crate) rows: u32,
    /// Words of a row.
    pub(crate) words: u32,
    pub(crate) entries: u32,
    /// Where the operands start, in words.
    pub(crate) packed0: u32,
    pub(crate) order0: u32,
    pub(crate) out0: u32,
}

pub(crate) static PACKED_GATHER: Kernel<Params> =
    kernel!("packed_gather", Params, [Read, Read, Write], packed_gather, wg_alone);

/// In an order: codes 0 and 2 trade places.
pub(crate) const SWAPPED: u32 = 1 << 31;
/// In an order: 1 for a missing code, 0 for others.
pub(crate) const MISSING: u32 = 1 << 30;

/// Rows of a task.
const ROWS: usize = 256;

fn packed_gather(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [packed, order, out] = launch.args();
    let (rows, words, entries) = (p.rows as usize, p.words as usize, p.entries as usize);
    let packed = &packed.read::<u32>()[p.packed0 as usize..];
    let order = &order.read::<u32>()[p.order0 as usize..][..rows];
    let out = &mut out.write::<u32>()[p.out0 as usize..][..rows * words];
    out.par_chunks_mut(ROWS * words).zip(order.par_chunks(ROWS)).for_each(|(out, order)| {
        for (out, &row) in out.chunks_exact_mut(words).zip(order) {
            let from = &packed[(row & !(SWAPPED | MISSING)) as usize * words..][..words];
            if row & MISSING != 0 {
                out.iter_mut().zip(from).for_each(|(out, &word)| *out = missing(word));
            } else if row & SWAPPED == 0 {
                out.copy_from_slice(from);
            } else {
                // The high bit of a code whose low bit is 0; what pads the row stays 0.
                let full = entries / 16;
                out.iter_mut().zip(from).for_each(|(out, &word)| *out = word ^ (!word & 0x5555_5555) << 1);
                if let [first, rest @ ..] = &mut out[full..] {
                    *first &= (1 << (2 * (entries % 16))) - 1;
                    rest.fill(0);
                }
            }
        }
    });
}
