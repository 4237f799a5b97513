//! Packed rows in another order.

use rayon::prelude::*;

use crate::{
    driver::cpu::CpuLaunch,
    genotype::packed::gather::{Params, SWAPPED},
};

/// Rows of a task.
const ROWS: usize = 256;

pub(crate) fn packed_gather(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [packed, order, out] = launch.args();
    let (rows, words, samples) = (p.rows as usize, p.words as usize, p.samples as usize);
    let packed = &packed.read::<u32>()[p.packed0 as usize..];
    let order = &order.read::<u32>()[p.order0 as usize..][..rows];
    let out = &mut out.write::<u32>()[p.out0 as usize..][..rows * words];
    out.par_chunks_mut(ROWS * words).zip(order.par_chunks(ROWS)).for_each(|(out, order)| {
        for (out, &row) in out.chunks_exact_mut(words).zip(order) {
            let from = &packed[(row & !SWAPPED) as usize * words..][..words];
            if row & SWAPPED == 0 {
                out.copy_from_slice(from);
            } else {
                // The high bit of a code whose low bit is 0; what pads the row stays 0.
                let full = samples / 16;
                out.iter_mut().zip(from).for_each(|(out, &word)| *out = word ^ (!word & 0x5555_5555) << 1);
                if let [first, rest @ ..] = &mut out[full..] {
                    *first &= (1 << (2 * (samples % 16))) - 1;
                    rest.fill(0);
                }
            }
        }
    });
}
