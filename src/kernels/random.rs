//! Philox4x32-10 random words, and f32 numbers and packed codes made from them.

use std::f32::consts::FRAC_PI_4;

use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::{WG, cpu::simd::wide};
use crate::kernel::{CpuLaunch, Kernel, codes, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) n: u32,
        pub(crate) seed_low: u32,
        pub(crate) seed_high: u32,
        /// The index of the first block of four words.
        pub(crate) block_low: u32,
        pub(crate) block_high: u32,
        pub(crate) out0: u32,
        /// The number of words of a row of codes, a multiple of four, and of codes that are not 0.
        pub(crate) words: u32,
        pub(crate) columns: u32,
    }
}

pub(crate) static RANDOM: Kernel<Params> = kernel!("random", Params, [Write], random, specs, [Made]);

codes! {
    /// The kind of numbers that are made from random words.
    pub(crate) enum Made {
        /// The random words themselves.
        Words,
        /// A uniform f32 from each word, by [`uniform`].
        Uniform,
        /// Two standard normal f32 from each two words, by [`normal_pair`].
        Normal,
        /// 16 codes of two bits from each word, by [`codes()`].
        Codes,
    }
}

pub(crate) fn spec(made: Made) -> [(&'static str, u32); 2] {
    [("WG", WG), ("KIND", made as u32)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    Made::ALL.iter().map(|&made| spec(made).to_vec()).collect()
}

/// Computes Philox4x32-10: four random words from a 64-bit key and a 64-bit counter.
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

/// Returns the low and the high word.
#[allow(clippy::cast_possible_truncation, reason = "the two halves of the value")]
pub(crate) const fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// Returns the upper 24 bits of a word as a fraction, exactly.
#[inline(always)]
pub(crate) fn uniform(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / (1u32 << 24) as f32)
}

/// The bits of the f32 nearest to the square root of 1/2.
const ROOT_HALF: u32 = 0x3f35_04f3;

/// Makes two standard normal numbers from two words, by the transform of Box and Muller ("A note on the generation of random normal deviates", 1958).
/// The radius is the root of -2 ln u with u = (first + 1/2) / 2^32, and the angle is second / 2^32 of a turn.
///
/// Logarithm, sine and cosine are the same polynomials on every device, since WGSL's functions are accurate only to a few digits. The coefficients
/// minimise the largest error (by a linear program); tests check each number to 1e-6 of the radius.
#[inline(always)]
pub(crate) fn normal_pair([first, second]: [u32; 2]) -> [f32; 2] {
    // This uses u, or 1 - u if that is smaller, so that no digit is lost near 1, and the radius is never 0.
    let least = first.min(!first);
    let part = (2 * least + 1) as f32 * (1.0 / (1u64 << 33) as f32);
    let mirrored = first != least;
    // u = 2^exponent (1 + rest), with 1 + rest from sqrt(1/2) to sqrt(2).
    let u = if mirrored { 1.0 - part } else { part };
    let bits = u.to_bits().wrapping_sub(ROOT_HALF);
    let exponent = bits.cast_signed() >> 23;
    let above = f32::from_bits((bits & 0x7f_ffff) + ROOT_HALF) - 1.0;
    let rest = if mirrored && exponent == 0 { -part } else { above };
    // -2 ln(1 + rest) = rest (rest log_rest - 2).
    let log_rest = polynomial(
        rest,
        [
            0.999_999_64,
            -0.666_678_67,
            0.500_051_7,
            -0.399_269_5,
            0.331_035_32,
            -0.297_673_8,
            0.288_540_07,
            -0.179_592_88,
        ],
    );
    // The factor of the exponent is -2 ln 2.
    let radius = (exponent as f32 * -1.386_294_4 + rest * (rest * log_rest - 2.0)).sqrt();
    // `quarter` is the nearest quarter of a turn, and x is the remainder in eighths of a turn, from -1 to 1.
    let turned = second.wrapping_add(1 << 29);
    let quarter = turned >> 30;
    let x = ((turned & 0x3fff_ffff).cast_signed() - (1 << 29)) as f32 * (1.0 / (1u32 << 29) as f32);
    let z = x * x;
    let sine = x * polynomial(z, [FRAC_PI_4, -0.080_745_6, 0.002_490_308_6, -3.611_676_2e-5]);
    let cosine = polynomial(z, [1.0, -0.308_425_13, 0.015_854_329, -0.000_325_942_56, 3.531_385e-6]);
    let (across, up) = if quarter & 1 == 1 { (sine, cosine) } else { (cosine, sine) };
    let signed = |number: f32, sign: u32| f32::from_bits(number.to_bits() ^ (sign << 30));
    [signed(radius * across, (quarter + 1) & 2), signed(radius * up, quarter & 2)]
}

/// Returns the value at `x` of the polynomial with these coefficients, the constant first.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut value = coefficients[N - 1];
    for i in (0..N - 1).rev() {
        value = value * x + coefficients[i];
    }
    value
}

/// Words that are replaced by the bits of normal numbers: a whole number of pairs.
struct Normal<'a>(&'a mut [u32]);

impl NullaryFnOnce for Normal<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for pair in self.0.as_chunks_mut::<2>().0 {
            let [first, second] = normal_pair(*pair);
            *pair = [first.to_bits(), second.to_bits()];
        }
    }
}

/// Returns the first 16 base-3 digits of the fraction `rest` / 2^32, two bits each.
#[inline(always)]
pub(crate) fn codes(mut rest: u32) -> u32 {
    let mut codes = 0;
    for j in 0..16 {
        // The constants are 2^32 / 3 and 2^33 / 3, rounded up.
        let digit = u32::from(rest >= 0x5555_5556) + u32::from(rest >= 0xaaaa_aaab);
        codes |= digit << (2 * j);
        rest = rest.wrapping_mul(3);
    }
    codes
}

/// Words that are replaced by their codes.
struct Codes<'a>(&'a mut [u32]);

impl NullaryFnOnce for Codes<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for word in self.0 {
            *word = codes(*word);
        }
    }
}

/// Replaces words by the numbers made from them. There are whole blocks of words, and whole rows of codes.
fn make(made: Made, words: &mut [u32], p: &Params) {
    match made {
        Made::Words => {}
        Made::Uniform => wide(|| words.iter_mut().for_each(|word| *word = uniform(*word).to_bits())),
        Made::Normal => wide(Normal(words)),
        Made::Codes => {
            wide(Codes(words));
            for row in words.chunks_exact_mut(p.words as usize) {
                if let [first, rest @ ..] = &mut row[p.columns as usize / 16..] {
                    *first &= (1 << (2 * (p.columns % 16))) - 1;
                    rest.fill(0);
                }
            }
        }
    }
}

/// The approximate number of words that one task makes.
const PIECE: usize = 1 << 14;

fn random(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let made = Made::from_code(launch.constant("KIND"));
    let [out] = launch.args();
    let first = u64::from(p.block_low) | u64::from(p.block_high) << 32;
    let out = &mut out.write::<u32>()[p.out0 as usize..][..p.n as usize];
    let words = p.words as usize;
    let size = (PIECE / words).max(1) * words;
    out.par_chunks_mut(size).enumerate().for_each(|(piece, out)| {
        let first = first + (piece * size / 4) as u64;
        let block = |i: usize| philox([p.seed_low, p.seed_high], first + i as u64);
        let (whole, rest) = out.as_chunks_mut::<4>();
        for (i, out) in whole.iter_mut().enumerate() {
            *out = block(i);
        }
        make(made, whole.as_flattened_mut(), &p);
        if !rest.is_empty() {
            // The last number may be the first of a pair.
            let mut last = block(whole.len());
            make(made, &mut last, &p);
            rest.copy_from_slice(&last[..rest.len()]);
        }
    });
}
