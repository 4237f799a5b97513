//! Philox4x32-10 words.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::wg_alone;
use crate::kernel::{CpuLaunch, Kernel, kernel};

/// Parameters of the kernel.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Params {
    pub(crate) n: u32,
    pub(crate) seed_low: u32,
    pub(crate) seed_high: u32,
    /// Number of the first block of four words.
    pub(crate) block_low: u32,
    pub(crate) block_high: u32,
}

pub(crate) static RANDOM: Kernel<Params> = kernel!("random", Params, [Write], random, wg_alone);

/// Philox4x32-10: four words for a 64-bit key and a 64-bit counter.
///
/// Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
pub fn philox(key: [u32; 2], counter: u64) -> [u32; 4] {
    let [mut k0, mut k1] = key;
    let [low, high] = split(counter);
    let mut x = [low, high, 0, 0];
    for _ in 0..10 {
        let [low0, high0] = split(u64::from(x[0]) * 0xd251_1f53);
        let [low1, high1] = split(u64::from(x[2]) * 0xcd9e_8d57);
        x = [high1 ^ x[1] ^ k0, low1, high0 ^ x[3] ^ k1, low0];
        k0 = k0.wrapping_add(0x9e37_79b9);
        k1 = k1.wrapping_add(0xbb67_ae85);
    }
    x
}

/// The low and the high word.
#[allow(clippy::cast_possible_truncation, reason = "the two halves of the value")]
pub(crate) const fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// Words that one task makes.
const PIECE: usize = 1 << 14;

fn random(launch: CpuLaunch<'_>) {
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
