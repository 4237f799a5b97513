//! Stored genotypes to 2-bit rows, with the counts of each row.

use rayon::prelude::*;

use crate::{driver::cpu::CpuLaunch, genotype::packed::pack::Params};

pub(crate) fn pack_genotypes(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let coding = launch.constant("CODING");
    let [raw, packed, counts] = launch.args();
    let (rows, samples, words) = (p.rows as usize, p.samples as usize, p.words as usize);
    let raw = &raw.read::<u8>()[p.raw0 as usize..][..rows * p.row_bytes as usize];
    let packed = &mut packed.write::<u32>()[p.packed0 as usize..][..rows * words];
    let counts = &mut counts.write::<u32>()[p.counts0 as usize..].as_chunks_mut::<4>().0[..rows];
    let rows = packed.par_chunks_mut(words).zip(raw.par_chunks(p.row_bytes as usize)).zip(counts);
    rows.for_each(|((packed, raw), counts)| {
        *counts = [0; 4];
        packed.fill(0);
        for i in 0..samples {
            let (code, bad) = code(raw, i, coding);
            packed[i / 16] |= code << (2 * (i % 16));
            if code > 0 {
                counts[code as usize - 1] += 1;
            }
            counts[3] += u32::from(bad);
        }
    });
}

/// The code of sample `i`, and whether what is stored is no genotype.
fn code(raw: &[u8], i: usize, coding: u32) -> (u32, bool) {
    match coding {
        0 => match raw[i].cast_signed() {
            -2 | -1 => (3, false),
            allele => {
                if allele < 0 {
                    (3, true)
                } else {
                    (u32::from(allele > 0), false)
                }
            }
        },
        1 => match [raw[2 * i], raw[2 * i + 1]].map(u8::cast_signed) {
            [a, b] if a < -2 || b < -2 => (3, true),
            [-1, _] | [_, -1] | [-2, -2] => (3, false),
            [-2, a] | [a, -2] => (2 * u32::from(a > 0), false),
            [a, b] => (u32::from(a > 0) + u32::from(b > 0), false),
        },
        2 => match raw[i].cast_signed() {
            -1 => (3, false),
            dosage @ 0..=2 => (u32::from(dosage.cast_unsigned()), false),
            _ => (3, true),
        },
        _ => {
            let stored = raw[i / 4] >> (2 * (i % 4)) & 3;
            let codes = if coding == 3 { [2, 3, 1, 0] } else { [0, 3, 1, 2] };
            (codes[stored as usize], false)
        }
    }
}
