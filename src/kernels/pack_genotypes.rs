//! Stored genotypes to 2-bit rows, with the counts of each row.

use bytemuck::{Pod, Zeroable};
use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::cpu::calls::{Diploid, Dosage, Haploid, Stored, padded};
use crate::kernel::{CpuLaunch, Kernel, kernel};

/// Parameters of the kernel.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Params {
    pub(crate) rows: u32,
    pub(crate) samples: u32,
    /// Bytes of a row of `raw`.
    pub(crate) row_bytes: u32,
    /// Words of a row of `packed`.
    pub(crate) words: u32,
    /// Where `raw` starts, in bytes, and `packed` and `counts`, in words.
    pub(crate) raw0: u32,
    pub(crate) packed0: u32,
    pub(crate) counts0: u32,
}

pub(crate) static PACK_GENOTYPES: Kernel<Params> =
    kernel!("pack_genotypes", Params, [Read, Write, Write], pack_genotypes, specs);

const WG: u32 = 64;

/// How genotypes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// One allele a sample, i8: 0 reference, above 0 alternate, -1 or -2 missing.
    Haploid = 0,
    /// Two alleles a sample, i8: 0 reference, above 0 alternate, -1 missing, -2 not there.
    Diploid = 1,
    /// Dosages of 0 to 2, i8; -1 is missing.
    Dosages = 2,
    /// PLINK's codes, four a byte, counting the first allele of the .bim file.
    PlinkA1 = 3,
    /// The same, counting the second.
    PlinkA2 = 4,
    /// Our codes, four a byte: packed before.
    Codes = 5,
}

impl Coding {
    /// Bytes of a row.
    pub(crate) const fn row_bytes(self, samples: u64) -> u64 {
        match self {
            Self::Haploid | Self::Dosages => samples,
            Self::Diploid => 2 * samples,
            Self::PlinkA1 | Self::PlinkA2 | Self::Codes => samples.div_ceil(4),
        }
    }
}

pub(crate) fn spec(coding: Coding) -> [(&'static str, u32); 2] {
    [("WG", WG), ("CODING", coding as u32)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    use Coding::{Codes, Diploid, Dosages, Haploid, PlinkA1, PlinkA2};
    [Haploid, Diploid, Dosages, PlinkA1, PlinkA2, Codes].iter().map(|&coding| spec(coding).to_vec()).collect()
}

/// Least bytes that a task reads.
const PIECE: usize = 1 << 16;

const HAPLOID: u32 = Coding::Haploid as u32;
const DIPLOID: u32 = Coding::Diploid as u32;
const DOSAGES: u32 = Coding::Dosages as u32;
const PLINK_A1: u32 = Coding::PlinkA1 as u32;
const PLINK_A2: u32 = Coding::PlinkA2 as u32;
const CODES: u32 = Coding::Codes as u32;

fn pack_genotypes(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let coding = launch.constant("CODING");
    let [raw, packed, counts] = launch.args();
    let (rows, samples, words) = (p.rows as usize, p.samples as usize, p.words as usize);
    let row_bytes = p.row_bytes as usize;
    let raw = &raw.read::<u8>()[p.raw0 as usize..][..rows * row_bytes];
    let packed = &mut packed.write::<u32>()[p.packed0 as usize..][..rows * words];
    let counts = &mut counts.write::<u32>()[p.counts0 as usize..].as_chunks_mut::<4>().0[..rows];
    let pack = match coding {
        HAPLOID => row::<HAPLOID>,
        DIPLOID => row::<DIPLOID>,
        DOSAGES => row::<DOSAGES>,
        PLINK_A1 => row::<PLINK_A1>,
        PLINK_A2 => row::<PLINK_A2>,
        _ => row::<CODES>,
    };
    let rows = packed.par_chunks_mut(words).zip(raw.par_chunks(row_bytes)).zip(counts);
    rows.with_min_len(PIECE.div_ceil(row_bytes)).for_each(|((packed, raw), counts)| {
        *counts = pack(raw, samples, packed.as_chunks_mut().0);
    });
}

/// Packs a row; gives its counts.
fn row<const CODING: u32>(raw: &[u8], samples: usize, packed: &mut [[u32; 4]]) -> [u32; 4] {
    pulp::Arch::new().dispatch(Row::<CODING> { raw, samples, packed })
}

struct Row<'a, const CODING: u32> {
    raw: &'a [u8],
    samples: usize,
    packed: &'a mut [[u32; 4]],
}

/// No closure: the compiler need not inline one, and compiles it without wide vectors then.
impl<const CODING: u32> NullaryFnOnce for Row<'_, CODING> {
    type Output = [u32; 4];

    #[inline(always)]
    fn call(self) -> [u32; 4] {
        match CODING {
            HAPLOID => self.calls::<Haploid>(),
            DIPLOID => self.calls::<Diploid>(),
            DOSAGES => self.calls::<Dosage>(),
            _ => self.fields(),
        }
    }
}

impl<const CODING: u32> Row<'_, CODING> {
    /// A byte or two a sample.
    #[inline(always)]
    fn calls<S: Stored>(self) -> [u32; 4] {
        let mut counts = [0; 4];
        for (words, raw) in self.packed.iter_mut().zip(self.raw.chunks(S::STEP)) {
            let bad;
            (*words, bad) = S::codes(raw);
            count(words, bad, &mut counts);
        }
        counts
    }

    /// Two bits a sample.
    #[inline(always)]
    fn fields(self) -> [u32; 4] {
        let words = self.packed.as_flattened_mut();
        let (stored, rest) = self.raw.as_chunks();
        for (word, &stored) in words.iter_mut().zip(stored) {
            *word = recode::<CODING>(stored);
        }
        if !rest.is_empty() {
            words[stored.len()] = recode::<CODING>(padded(rest));
        }
        // What follows the last sample, in its word and after that.
        let used = self.samples.div_ceil(16);
        if !self.samples.is_multiple_of(16) {
            words[used - 1] &= (1 << (2 * (self.samples % 16))) - 1;
        }
        words[used..].fill(0);
        let mut counts = [0; 4];
        for words in self.packed {
            count(words, 0, &mut counts);
        }
        counts
    }
}

/// 16 samples. In a .bed file, 0 is two of the first allele, 1 is missing, 2 is one of each and 3 two of the second.
#[inline(always)]
fn recode<const CODING: u32>(stored: [u8; 4]) -> u32 {
    let stored = u32::from_le_bytes(stored);
    if CODING == CODES {
        return stored;
    }
    let (low, high) = (stored & 0x5555_5555, stored >> 1 & 0x5555_5555);
    let twice = if CODING == PLINK_A1 { high ^ 0x5555_5555 } else { low };
    low ^ high | twice << 1
}

/// Adds the ones, twos and missing codes of 64 samples, and the bad ones.
#[inline(always)]
fn count(words: &[u32; 4], bad: u8, counts: &mut [u32; 4]) {
    const LOW: u64 = 0x5555_5555_5555_5555;
    let [a, b] = [0, 2].map(|i| u64::from(words[i]) | u64::from(words[i + 1]) << 32);
    // The low bits of all codes, those of the second pair beside those of the first, and the high ones.
    let (low, high) = (a & LOW | (b & LOW) << 1, a >> 1 & LOW | b & !LOW);
    let missing = (low & high).count_ones();
    counts[0] += low.count_ones() - missing;
    counts[1] += high.count_ones() - missing;
    counts[2] += missing;
    counts[3] += u32::from(bad);
}
