//! Philox4x32-10 words.

use rayon::prelude::*;

use crate::{
    driver::cpu::CpuLaunch,
    random::{Params, philox},
};

/// Words that one task makes.
const PIECE: usize = 1 << 14;

pub(crate) fn random(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [out] = launch.args();
    let first = u64::from(p.block_low) | u64::from(p.block_high) << 32;
    out.write::<u32>()[..p.n as usize].par_chunks_mut(PIECE).enumerate().for_each(|(piece, out)| {
        for (i, out) in out.chunks_mut(4).enumerate() {
            let block = first + (piece * PIECE / 4 + i) as u64;
            out.copy_from_slice(&philox([p.seed_low, p.seed_high], block)[..out.len()]);
        }
    });
}
