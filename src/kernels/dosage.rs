//! Number of non-reference alleles of each call.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::{WG, cpu::simd::wide};
use crate::kernel::{CpuLaunch, Kernel, kernel};

/// Parameters of the kernel.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Params {
    /// Calls.
    pub(crate) len: u32,
    /// Alleles of each.
    pub(crate) ploidy: u32,
}

pub(crate) static DOSAGE: Kernel<Params> = kernel!("dosage", Params, [Read, Write], dosage, specs);

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    vec![vec![("WG", WG)]]
}

/// Calls that one task counts.
const PIECE: usize = 1 << 16;

fn dosage(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [calls, out] = launch.args();
    let (len, ploidy) = (p.len as usize, p.ploidy as usize);
    let calls = &calls.read::<i8>()[..len * ploidy];
    let pieces = out.write::<i8>()[..len].par_chunks_mut(PIECE).zip(calls.par_chunks(PIECE * ploidy));
    pieces.for_each(|(out, calls)| match ploidy {
        // The fixed width lets the compiler vectorise the common case.
        2 => wide(|| count::<2>(calls.as_chunks().0, out)),
        _ => calls.chunks_exact(ploidy).zip(out).for_each(|(call, out)| *out = count_call(call)),
    });
}

#[inline(always)]
fn count<const PLOIDY: usize>(calls: &[[i8; PLOIDY]], out: &mut [i8]) {
    for (call, out) in calls.iter().zip(out) {
        *out = count_call(call);
    }
}

/// The smallest allele where one is negative, else the number of alleles above 0. Branch-free.
#[inline(always)]
fn count_call(call: &[i8]) -> i8 {
    let lowest = call.iter().fold(0, |low: i8, &allele| low.min(allele));
    let count = call.iter().fold(0i8, |count, &allele| count.wrapping_add(i8::from(allele > 0)));
    if lowest < 0 { lowest } else { count }
}
