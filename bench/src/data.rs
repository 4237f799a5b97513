//! Values that depend only on a seed and their index, so that every machine measures the same data.

use std::sync::Arc;

use teatime::{Device, Error, Tensor, random::philox, store::MemoryArray, to_usize};
use teatime_genotype::Genotypes;

/// The number of random words that values are made from; longer data repeat them.
const PERIOD: u64 = 1 << 22;

fn words(seed: u32, len: u64) -> impl Iterator<Item = u32> {
    (0..len.div_ceil(4)).flat_map(move |block| philox([seed, 0xbe7c], block)).take(to_usize(len))
}

/// Returns `len` values made from random words, which repeat after 4,194,304 values.
fn repeated<T: Copy>(seed: u32, len: u64, value: impl Fn(u32) -> T) -> Vec<T> {
    let period: Vec<T> = words(seed, len.min(PERIOD)).map(value).collect();
    let mut values = Vec::with_capacity(to_usize(len));
    while values.len() < to_usize(len) {
        let left = to_usize(len) - values.len();
        values.extend_from_slice(&period[..left.min(period.len())]);
    }
    values
}

/// Returns numbers in [-0.5, 0.5).
pub(crate) fn uniform(seed: u32, len: u64) -> Vec<f32> {
    repeated(seed, len, |word| (word >> 8) as f32 / (1 << 24) as f32 - 0.5)
}

/// Returns whole numbers from -8 to 7: f32 holds long sums of their products exactly.
pub(crate) fn small_integers(seed: u32, len: u64) -> Vec<f32> {
    repeated(seed, len, |word| (word >> 28) as f32 - 8.0)
}

pub(crate) fn bytes(seed: u32, len: u64) -> Vec<i8> {
    repeated(seed, len, |word| (word >> 24).to_le_bytes()[0].cast_signed())
}

/// Returns values of `bits` bits, one in each byte.
pub(crate) fn codes(seed: u32, len: u64, bits: u32) -> Vec<u8> {
    repeated(seed, len, |word| (word >> (32 - bits)).to_le_bytes()[0])
}

/// Returns bytes of four calls in .bed format, with one call in 64 missing (code 1).
pub(crate) fn plink_calls(seed: u32, len: u64) -> Vec<u8> {
    // Codes 0, 2 and 3 are calls. Two bits of the word are the code, unless they are 1.
    let call = |word: u32, i: u32| match (word >> (8 * i) & 63, word >> (8 * i + 6) & 3) {
        (0, _) => 1,
        (draw, 1) => 2 + draw % 2,
        (_, code) => code,
    };
    repeated(seed, len, |word| (0..4).map(|i| call(word, i) << (2 * i)).sum::<u32>().to_le_bytes()[0])
}

/// Returns dosages 0, 1 and 2, with one in sixteen missing.
pub(crate) fn dosages(seed: u32, len: u64) -> Vec<i8> {
    const OF: [i8; 16] = [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, -1];
    repeated(seed, len, |word| OF[(word >> 28) as usize])
}

/// Creates a matrix of [`uniform`] numbers.
pub(crate) fn matrix(device: &Device, seed: u32, [rows, cols]: [u64; 2]) -> Result<Tensor<f32>, Error> {
    Tensor::from_slice(device, &uniform(seed, rows * cols), &[rows, cols])
}

/// Returns a matrix of rank 12 with decreasing singular values, plus noise.
pub(crate) fn low_rank(seed: u32, rows: u64, cols: u64) -> Vec<f32> {
    const RANK: u64 = 12;
    let (left, right) = (uniform(seed, rows * RANK), uniform(seed + 1, cols * RANK));
    let noise = uniform(seed + 2, rows * cols);
    let mut values = Vec::with_capacity(noise.len());
    for (row, noise) in left.chunks(to_usize(RANK)).zip(noise.chunks(to_usize(cols))) {
        for (col, noise) in right.chunks(to_usize(RANK)).zip(noise) {
            let terms = row.iter().zip(col).zip(0u8..);
            let sum: f32 = terms.map(|((a, b), i)| a * b / (1.0 + f32::from(i) * 0.5)).sum();
            values.push(sum + 0.01 * noise);
        }
    }
    values
}

/// Returns diploid calls of three populations with different allele frequencies, with one call in 64 missing.
pub(crate) fn genotypes(variants: u64, samples: u64) -> Result<Genotypes, Error> {
    const POPULATIONS: u64 = 3;
    let mut calls = Vec::with_capacity(to_usize(variants * samples * 2));
    for variant in 0..variants {
        let [common, shifts, ..] = philox([0xf4e9, 0], variant);
        // Frequencies are in units of 1/65536, from 0.1 to 0.6, and differ by up to 0.125 between populations.
        let frequency = |population: u64| 6_554 + (common >> 17) + (shifts >> (8 * population) & 0xff) * 32;
        for sample in 0..samples {
            let limit = frequency(sample * POPULATIONS / samples);
            // One block of four words holds two samples.
            let block = philox([0xca11, 1], (variant * samples + sample) / 2);
            let [alleles, missing] =
                if sample % 2 == 0 { [block[0], block[1]] } else { [block[2], block[3]] };
            let call = if missing < 1 << 26 {
                [-1, -1]
            } else {
                [alleles & 0xffff, alleles >> 16].map(|draw| i8::from(draw < limit))
            };
            calls.extend_from_slice(&call);
        }
    }
    let (shape, chunk) = ([variants, samples, 2], [1024.min(variants), samples, 2]);
    Genotypes::new(vec![Arc::new(MemoryArray::new("simulated", &calls, &shape, &chunk)?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_repeats_and_ends() {
        let values = bytes(1, PERIOD + 5);
        assert_eq!(values.len() as u64, PERIOD + 5);
        assert_eq!(values[to_usize(PERIOD)..], values[..5]);
        assert_eq!(bytes(1, 3), values[..3]);
    }

    #[test]
    fn numbers_are_in_range() {
        assert!(small_integers(1, 4096).iter().all(|x| (-8.0..=7.0).contains(x) && x.fract() == 0.0));
        assert!(uniform(1, 4096).iter().all(|x| (-0.5..0.5).contains(x)));
        assert!(dosages(1, 4096).contains(&-1) && dosages(1, 4096).contains(&2));
    }
}
