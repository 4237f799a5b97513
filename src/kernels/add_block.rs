//! Adds a block to sums: `sums[i, j] += block[i, j]`, in f64 or in pairs of f32.

use rayon::prelude::*;

use super::wg_alone;
use crate::kernel::{CpuLaunch, Kernel, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        pub(crate) cols: u32,
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
    let block = &block.read::<f32>()[p.block0 as usize..][..rows * cols];
    let sums = &mut sums.write::<f64>()[p.sums0 as usize..][..rows * cols];
    let rows = sums.par_chunks_mut(cols).zip(block.par_chunks(cols)).enumerate();
    rows.with_min_len(LEAST.div_ceil(cols)).for_each(|(i, (sums, block))| {
        let end = if p.lower == 1 { cols.min(p.row0 as usize + i + 1) } else { cols };
        sums.iter_mut().zip(&block[..end]).for_each(|(sum, x)| *sum += f64::from(*x));
    });
}
