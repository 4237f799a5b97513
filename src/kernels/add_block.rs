//! `sums[i, j] += block[i, j]`, in f64 or in two f32.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::wg_alone;
use crate::kernel::{CpuLaunch, Kernel, kernel};

/// Parameters of the kernel.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Params {
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    pub(crate) block0: u32,
    pub(crate) sums0: u32,
    /// 1 where the lower triangle alone is added, else 0.
    pub(crate) lower: u32,
    /// The number of the first row, for the triangle.
    pub(crate) row0: u32,
    /// 0.
    pub(crate) zero: u32,
}

pub(crate) static ADD_BLOCK: Kernel<Params> =
    kernel!("add_block", Params, [Read, ReadWrite, ReadWrite], add_block, wg_alone);

/// Elements that a thread adds at least.
const LEAST: usize = 1 << 14;

#[allow(clippy::cast_possible_truncation, reason = "the low word of two")]
fn add_block(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [block, low, high] = launch.args();
    let (rows, cols) = (p.rows as usize, p.cols as usize);
    let block = &block.read::<f32>()[p.block0 as usize..][..rows * cols];
    let [low, high] = [low, high].map(|words| &mut words.write::<u32>()[p.sums0 as usize..][..rows * cols]);
    let sums = low.par_chunks_mut(cols).zip(high.par_chunks_mut(cols));
    let rows = sums.zip(block.par_chunks(cols)).enumerate().with_min_len(LEAST.div_ceil(cols));
    rows.for_each(|(i, ((low, high), block))| {
        let end = if p.lower == 1 { cols.min(p.row0 as usize + i + 1) } else { cols };
        for ((low, high), x) in low.iter_mut().zip(high).zip(&block[..end]) {
            let bits = u64::from(*high) << 32 | u64::from(*low);
            let bits = (f64::from_bits(bits) + f64::from(*x)).to_bits();
            (*low, *high) = (bits as u32, (bits >> 32) as u32);
        }
    });
}
