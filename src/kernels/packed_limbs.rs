//! Converts packed codes to limbs by a table.

use bytemuck::{cast_slice, cast_slice_mut};
use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::{
    WG,
    cpu::dot::{Dot, Path, Work},
};
use crate::kernel::{CpuLaunch, Kernel, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        /// The number of words of a packed row.
        pub(crate) words: u32,
        /// The index of the word that holds the first column's entry.
        pub(crate) word0: u32,
        pub(crate) columns: u32,
        /// The number of bytes of a row of one set of limbs.
        pub(crate) row_limbs: u32,
        /// The offset of each operand, in words.
        pub(crate) packed0: u32,
        pub(crate) table0: u32,
        pub(crate) out0: u32,
    }
}

pub(crate) static PACKED_LIMBS: Kernel<Params> =
    kernel!("packed_limbs", Params, [Read, Read, Write], packed_limbs, specs);

pub(crate) fn spec(sets: u64, limb_count: u64) -> [(&'static str, u32); 3] {
    let [sets, limb_count] = [sets, limb_count].map(|n| u32::try_from(n).expect("limbs should be few"));
    [("WG", WG), ("SETS", sets), ("LIMBS", limb_count)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3)]
        .map(|(sets, limb_count)| spec(sets, limb_count).to_vec())
        .to_vec()
}

/// The number of groups of four rows of a task.
const FOURS: usize = 64;

fn packed_limbs(launch: CpuLaunch<'_>) {
    match (launch.constant("SETS"), launch.constant("LIMBS")) {
        (1, 1) => make_limbs::<1, 1>(launch),
        (1, 2) => make_limbs::<1, 2>(launch),
        (1, _) => make_limbs::<1, 3>(launch),
        (_, 2) => make_limbs::<2, 2>(launch),
        _ => make_limbs::<2, 3>(launch),
    }
}

fn make_limbs<const SETS: usize, const LIMBS: usize>(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [packed, table, out] = launch.args();
    let (rows, words, columns) = (p.rows as usize, p.words as usize, p.columns as usize);
    let (entries, width) = (SETS * LIMBS, SETS * p.row_limbs as usize);
    let packed = &packed.read::<u32>()[p.packed0 as usize..][..rows * words];
    let table = &table.read::<u32>()[p.table0 as usize..][..rows * entries];
    let out = &mut out.write::<u32>()[p.out0 as usize..][..rows.div_ceil(4) * width];
    let pieces = out
        .par_chunks_mut(FOURS * width)
        .zip(packed.par_chunks(4 * FOURS * words))
        .zip(table.par_chunks(4 * FOURS * entries));
    let word0 = p.word0 as usize;
    pieces.for_each(|((out, packed), table)| {
        Path::best().run(Fours::<SETS, LIMBS> {
            packed: &packed[word0..],
            words,
            table,
            columns,
            width,
            out,
        });
    });
}

/// The groups of four rows of a task.
struct Fours<'a, const SETS: usize, const LIMBS: usize> {
    /// The packed rows, from the first column's word on.
    packed: &'a [u32],
    words: usize,
    table: &'a [u32],
    columns: usize,
    width: usize,
    out: &'a mut [u32],
}

impl<const SETS: usize, const LIMBS: usize> Work for Fours<'_, SETS, LIMBS> {
    fn run<D: Dot, const NARROW: usize, const WIDE: usize>(self, dot: D) {
        dot.vectorize(VectorizedFours { dot, fours: self });
    }
}

struct VectorizedFours<'a, D, const SETS: usize, const LIMBS: usize> {
    dot: D,
    fours: Fours<'a, SETS, LIMBS>,
}

impl<D: Dot, const SETS: usize, const LIMBS: usize> NullaryFnOnce for VectorizedFours<'_, D, SETS, LIMBS> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { dot, fours: Fours { packed, words, table, columns, width, out } } = self;
        let fours = out.chunks_exact_mut(width).zip(packed.chunks(4 * words));
        for ((out, packed), table) in fours.zip(table.chunks(4 * SETS * LIMBS)) {
            let row_limbs = out.len() / SETS;
            for first in (0..columns).step_by(64) {
                let len = 64.min(columns - first);
                // Rows past the last one are zeros, and so are their limbs.
                let mut rows = [[0; 4]; 4];
                for (row, packed) in rows.iter_mut().zip(packed.chunks(words)) {
                    let held = &packed[first / 16..];
                    let taken = held.len().min(4);
                    row[..taken].copy_from_slice(&held[..taken]);
                }
                let bytes = dot.interleave(rows);
                for set in 0..SETS {
                    for limb in 0..LIMBS {
                        let entry = set * LIMBS + limb;
                        let mut entries = [0; 4];
                        for (of_row, table) in entries.iter_mut().zip(table.chunks_exact(SETS * LIMBS)) {
                            *of_row = table[entry];
                        }
                        let limbs = limbs(dot, &bytes, entries);
                        let out = &mut out[set * row_limbs + limb * columns + first..][..len];
                        match out.first_chunk_mut() {
                            Some(whole) => *whole = limbs,
                            None => out.copy_from_slice(&limbs[..len]),
                        }
                    }
                }
            }
            for out in out.chunks_exact_mut(row_limbs) {
                out[LIMBS * columns..].fill(0);
            }
        }
    }
}

/// Returns the limbs of 64 entries of four rows, whose codes are interleaved byte by byte. Byte g of each row's table entry is the limb of code g.
#[inline(always)]
fn limbs<D: Dot>(dot: D, bytes: &[u32; 16], entries: [u32; 4]) -> [u32; 64] {
    // Word p of `quads[j]` has the limbs of entry 4 p + j.
    let mut quads = [[0; 16]; 4];
    for (shift, quads) in (0..).step_by(2).zip(&mut quads) {
        let (bytes, quads): (&[D::Words], &mut [D::Words]) = (cast_slice(bytes), cast_slice_mut(quads));
        for (&bytes, quads) in bytes.iter().zip(quads) {
            *quads = pulp::cast(dot.lookup(entries, dot.quads(pulp::cast(bytes), shift)));
        }
    }
    std::array::from_fn(|entry| quads[entry % 4][entry / 4])
}
