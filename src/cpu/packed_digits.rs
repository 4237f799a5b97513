//! Packed codes to digits of a table.

use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::simd::wide;
use crate::{driver::cpu::CpuLaunch, genotype::packed::digits::Params};

/// Fours of rows of a task.
const FOURS: usize = 64;

pub(crate) fn packed_digits(launch: CpuLaunch<'_>) {
    match (launch.constant("SETS"), launch.constant("SLICES")) {
        (1, 1) => all::<1, 1>(launch),
        (1, 2) => all::<1, 2>(launch),
        (1, _) => all::<1, 3>(launch),
        (_, 2) => all::<2, 2>(launch),
        _ => all::<2, 3>(launch),
    }
}

fn all<const SETS: usize, const SLICES: usize>(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [packed, table, out] = launch.args();
    let (rows, words, columns) = (p.rows as usize, p.words as usize, p.columns as usize);
    let (entries, width) = (SETS * SLICES, SETS * p.lanes as usize);
    let packed = &packed.read::<u32>()[p.packed0 as usize..][..rows * words];
    let table = &table.read::<u32>()[p.table0 as usize..][..rows * entries];
    let out = &mut out.write::<u32>()[p.out0 as usize..][..rows.div_ceil(4) * width];
    let pieces = out
        .par_chunks_mut(FOURS * width)
        .zip(packed.par_chunks(4 * FOURS * words))
        .zip(table.par_chunks(4 * FOURS * entries));
    let word0 = p.word0 as usize;
    pieces.for_each(|((out, packed), table)| {
        wide(Fours::<SETS, SLICES> { packed: &packed[word0..], words, table, columns, width, out });
    });
}

/// Fours of rows.
struct Fours<'a, const SETS: usize, const SLICES: usize> {
    /// From the first column's word on.
    packed: &'a [u32],
    words: usize,
    table: &'a [u32],
    columns: usize,
    width: usize,
    out: &'a mut [u32],
}

impl<const SETS: usize, const SLICES: usize> NullaryFnOnce for Fours<'_, SETS, SLICES> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let fours = self.out.chunks_exact_mut(self.width).zip(self.packed.chunks(4 * self.words));
        for ((out, packed), table) in fours.zip(self.table.chunks(4 * SETS * SLICES)) {
            four::<SETS, SLICES>(packed, self.words, table, self.columns, out);
        }
    }
}

/// Digits of up to four rows, of which `packed` begins with the first column's word.
#[inline(always)]
fn four<const SETS: usize, const SLICES: usize>(
    packed: &[u32],
    words: usize,
    table: &[u32],
    columns: usize,
    out: &mut [u32],
) {
    for first in (0..columns).step_by(16) {
        let len = 16.min(columns - first);
        let mut digits = [[[0; 16]; SLICES]; SETS];
        let rows = (0..).step_by(8).zip(packed[first / 16..].iter().step_by(words));
        for ((shift, &word), table) in rows.zip(table.chunks_exact(SETS * SLICES)) {
            // All bits of a place: whether the code there is 1 or 3, 2 or 3, and 3.
            let (mut low, mut high, mut both) = ([0; 16], [0; 16], [0; 16]);
            for (j, place) in (0..16).zip((0..).step_by(2)) {
                let code = word >> place;
                low[j] = 0u32.wrapping_sub(code & 1);
                high[j] = 0u32.wrapping_sub(code >> 1 & 1);
                both[j] = low[j] & high[j];
            }
            for (digits, &entry) in digits.as_flattened_mut().iter_mut().zip(table) {
                let [zero, one, two, three] = entry.to_le_bytes().map(|digit| u32::from(digit) << shift);
                let (one, two, three) = (zero ^ one, zero ^ two, zero ^ one ^ two ^ three);
                for j in 0..16 {
                    digits[j] |= zero ^ low[j] & one ^ high[j] & two ^ both[j] & three;
                }
            }
        }
        for (out, digits) in out.chunks_exact_mut(out.len() / SETS).zip(&digits) {
            for (slice, digits) in digits.iter().enumerate() {
                out[slice * columns + first..][..len].copy_from_slice(&digits[..len]);
            }
        }
    }
    for out in out.chunks_exact_mut(out.len() / SETS) {
        out[SLICES * columns..].fill(0);
    }
}
