//! Adds blocks to sums: `sums[i, j] += block[i, j]` for each block in order, in f64 or in pairs of f32.

use rayon::prelude::*;

use super::wg_alone;
use crate::kernel::{CpuLaunch, Kernel, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        pub(crate) cols: u32,
        /// The number of blocks, and the number of elements from one block to the next.
        pub(crate) blocks: u32,
        pub(crate) step: u32,
        pub(crate) block0: u32,
        pub(crate) sums0: u32,
        /// 1 if only the lower triangle is added, otherwise 0.
        pub(crate) lower: u32,
        /// The index of the first row in the whole result, which places the diagonal.
        pub(crate) row0: u32,
        /// Always 0, which the shader's compiler cannot know.
        pub(crate) zero: u32,
    }
}

pub(crate) static ADD_BLOCK: Kernel<Params> =
    kernel!("add_block", Params, [Read, ReadWrite], add_block, wg_alone);

/// The minimum number of elements that a thread adds.
const LEAST: usize = 1 << 14;

fn add_block(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [block, sums] = launch.args();
    let (rows, cols) = (p.rows as usize, p.cols as usize);
    let blocks = &block.read::<f32>()[p.block0 as usize..];
    let sums = &mut sums.write::<f64>()[p.sums0 as usize..][..rows * cols];
    let rows = sums.par_chunks_mut(cols).enumerate();
    rows.with_min_len(LEAST.div_ceil(cols * p.blocks as usize)).for_each(|(i, sums)| {
        let end = if p.lower == 1 { cols.min(p.row0 as usize + i + 1) } else { cols };
        for block in 0..p.blocks as usize {
            let row = &blocks[block * p.step as usize + i * cols..][..end];
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
        }
    });
}
