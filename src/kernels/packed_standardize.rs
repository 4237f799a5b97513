//! Packed codes to standardised f32.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::WG;
use crate::kernel::{CpuLaunch, Kernel, kernel};

/// Parameters of the kernel.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Params {
    pub(crate) rows: u32,
    /// Words of a packed row.
    pub(crate) words: u32,
    pub(crate) samples: u32,
    pub(crate) packed0: u32,
    pub(crate) table0: u32,
    pub(crate) out0: u32,
}

pub(crate) static PACKED_STANDARDIZE: Kernel<Params> =
    kernel!("packed_standardize", Params, [Read, Read, Write], packed_standardize, specs);

pub(crate) fn spec() -> [(&'static str, u32); 1] {
    [("WG", WG)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    vec![spec().to_vec()]
}

fn packed_standardize(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [packed, table, out] = launch.args();
    let (rows, words, samples) = (p.rows as usize, p.words as usize, p.samples as usize);
    let packed = &packed.read::<u32>()[p.packed0 as usize..][..rows * words];
    let table = &table.read::<f32>()[p.table0 as usize..].as_chunks::<3>().0[..rows];
    let out = &mut out.write::<f32>()[p.out0 as usize..][..rows * samples];
    out.par_chunks_mut(samples)
        .zip(packed.par_chunks(words))
        .zip(table)
        .for_each(|((out, codes), terms)| row(codes, *terms, out));
}

/// Not through `simd::wide`: with AVX-512 the compiler takes a sample of 16 words at once rather than the samples of a word,
/// and scatters them, which takes five times as long as SSE2.
fn row(codes: &[u32], terms: [f32; 3], out: &mut [f32]) {
    let (whole, rest) = out.as_chunks_mut::<16>();
    let (inner, last) = codes.split_at(whole.len());
    for (out, &word) in whole.iter_mut().zip(inner) {
        *out = values(word, terms);
    }
    if let (Some(&word), false) = (last.first(), rest.is_empty()) {
        rest.copy_from_slice(&values(word, terms)[..rest.len()]);
    }
}

/// The 16 samples of a word.
#[inline(always)]
fn values(word: u32, [shift, scale, fill]: [f32; 3]) -> [f32; 16] {
    let mut values = [0.0; 16];
    for (j, value) in (0u32..).zip(&mut values) {
        let code = word >> (2 * j) & 3;
        // Through i32, which processors convert at once.
        *value = if code == 3 { fill } else { (code.cast_signed() as f32 - shift) * scale };
    }
    values
}
