//! Tests of random numbers.

use std::f64::consts::TAU;

use super::*;
use crate::{
    kernels::{WG, random::normal_pair},
    random::{normal, philox, random_words, uniform},
};

device_tests! {
    words_are_philox, counters_carry, several_launches, the_stream_ends, empty, uniform_is_of_words,
    normal_is_of_words, parts_are_of_the_whole
}

/// The maximum error of a normal number on any device, relative to its radius.
const OF_RADIUS: f64 = 1e-6;

/// Lengths around a block, a workgroup, and the launches of a small device.
const LENGTHS: [u64; 12] = [0, 1, 2, 3, 4, 5, GROUP - 1, GROUP, GROUP + 1, GROUP + 6, 16_385, 49_159];
/// The words that a workgroup makes.
const GROUP: u64 = 4 * WG as u64;

fn oracle(seed: u64, first: u64, len: u64) -> Vec<u32> {
    let key = [seed as u32, (seed >> 32) as u32];
    let words = (0..len.div_ceil(4)).flat_map(|block| philox(key, first + block));
    words.take(len as usize).collect()
}

/// Returns the two normally distributed numbers that Box-Muller makes from two random words, computed in f64. Errors are measured against the
/// radius.
fn exact([first, second]: [u32; 2]) -> [Reference; 2] {
    // Close to 1, the logarithm is computed from 1 less a fraction, so that no digit is lost.
    let fraction = |word: u32| (f64::from(word) + 0.5) / 2f64.powi(32);
    let log = if first < 1 << 31 { fraction(first).ln() } else { (-fraction(!first)).ln_1p() };
    let radius = (-2.0 * log).sqrt();
    let (sin, cos) = (TAU * f64::from(second) / 2f64.powi(32)).sin_cos();
    [cos, sin].map(|of_radius| Reference { value: radius * of_radius, magnitude: radius })
}

/// Compares a device's normal numbers with the formula, for words that the device made.
fn check_normal(device: &Device, seed: u64, first: u64, len: u64) {
    let numbers = normal(device, seed, first, len).unwrap().read().unwrap();
    let blocks = len.div_ceil(4);
    let words = random_words(device, seed, first, 4 * blocks).unwrap().read().unwrap();
    let mut expected: Vec<_> = words.as_chunks::<2>().0.iter().flat_map(|&pair| exact(pair)).collect();
    expected.truncate(len as usize);
    let what = format!("seed {seed:#x}, first block {first:#x}, {len} numbers");
    assert_close(&what, &numbers, &expected, OF_RADIUS);
}

fn check(device: &Device, seed: u64, first: u64, len: u64) {
    let words = random_words(device, seed, first, len).unwrap().read().unwrap();
    let expected = oracle(seed, first, len);
    let wrong = words.iter().zip(&expected).position(|(word, expected)| word != expected);
    let what = format!("seed {seed:#x}, first block {first:#x}, {len} words");
    assert_eq!((wrong, words.len() as u64), (None, len), "{what}");
}

fn words_are_philox(device: &Device) {
    for len in [1, 2, 3, 4, 5, 255, 256, 1023, 1024, 1025, 2051] {
        check(device, 7, 0, len);
    }
    for seed in [0, 1, u64::MAX, 0xdead_beef_0123_4567, 0x8000_0000_8000_0000] {
        check(device, seed, 3, 100);
    }
}

fn counters_carry(device: &Device) {
    for first in [u64::from(u32::MAX) - 1, u64::from(u32::MAX) << 7, u64::MAX - 300] {
        check(device, 99, first, 1000);
        check_normal(device, 99, first, 1000);
    }
    // The cpu device makes these in several tasks, one of which begins after the carry.
    check(device, 99, u64::from(u32::MAX) - 5000, 40_000);
}

/// The numbers need more than 16 x 16 workgroups.
fn several_launches(device: &Device) {
    check(device, 5, 1, 3 * 16 * 16 * 1024 + 5);
}

fn the_stream_ends(device: &Device) {
    check(device, 1, u64::MAX, 4);
    check_normal(device, 1, u64::MAX, 4);
    for (first, len) in [(u64::MAX, 5), (u64::MAX - 1, 9), (u64::MAX - 300, 1205)] {
        let errors = [
            ("random_words", random_words(device, 1, first, len).err()),
            ("uniform", uniform(device, 1, first, len).err()),
            ("normal", normal(device, 1, first, len).err()),
        ];
        for (of, error) in errors {
            let told = matches!(error, Some(Error::Argument { op, name: "first_block", .. }) if op == of);
            assert!(told, "{of} {first} {len}: {error:?}");
        }
    }
}

fn empty(device: &Device) {
    assert!(random_words(device, 1, 2, 0).unwrap().read().unwrap().is_empty());
}

fn uniform_is_of_words(device: &Device) {
    for len in LENGTHS {
        let numbers = uniform(device, 7, 2, len).unwrap().read().unwrap();
        let words = random_words(device, 7, 2, len).unwrap().read().unwrap();
        // The value is exact in f64 and in f32.
        let expected = words.iter().map(|word| (f64::from(word >> 8) / 2f64.powi(24)) as f32);
        assert!(expected.map(f32::to_bits).eq(numbers.iter().map(|number| number.to_bits())), "{len}");
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)), "{len}");
    }
}

fn normal_is_of_words(device: &Device) {
    for len in LENGTHS {
        check_normal(device, 7, 2, len);
    }
    check_normal(device, u64::MAX - 5, 1, 3 * 16 * 16 * 1024 + 5);
}

fn parts_are_of_the_whole(device: &Device) {
    let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for make in [uniform, normal] {
        let made = |first, len| bits(make(device, 3, first, len).unwrap().read().unwrap());
        let whole = made(10, 5000);
        for (block, len) in [(0, 1), (0, 7), (1, 4), (3, 1025), (255, 6), (256, 2049), (1249, 3)] {
            let part = made(10 + block as u64, len as u64);
            assert!(part == whole[4 * block..][..len], "block {block}, {len} numbers");
        }
    }
}

/// Applies the test of Kolmogorov and Smirnov, at a level of 1 %. Other devices compute the same formula of the same words.
#[test]
fn normal_by_its_distribution() {
    const MANY: u64 = 100_000;
    let numbers = normal(&Device::cpu(), 7, 0, MANY).unwrap().read().unwrap();
    let mut numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
    numbers.sort_by(f64::total_cmp);
    // The density is integrated up to each number, from one number to the next by Simpson's rule.
    let density = |x: f64| (-x * x / 2.0).exp() / TAU.sqrt();
    let (mut below, mut at, mut farthest) = (0.0, -9.0, 0f64);
    for (i, &x) in numbers.iter().enumerate() {
        // The first and the last numbers are far from their neighbours and need more steps.
        let steps = ((x - at) / 0.05).ceil();
        let step = (x - at) / steps.max(1.0);
        for k in 0..steps as u32 {
            let from = at + f64::from(k) * step;
            below += step / 6.0 * (density(from) + 4.0 * density(from + step / 2.0) + density(from + step));
        }
        at = x;
        let n = MANY as f64;
        farthest = farthest.max((below - i as f64 / n).abs()).max(((i + 1) as f64 / n - below).abs());
    }
    assert!(farthest < 1.63 / (MANY as f64).sqrt(), "{farthest}");
}

#[test]
fn extreme_words_give_finite_numbers() {
    let around = |word: u32| [-2, -1, 0, 1, 2].map(|step| word.wrapping_add_signed(step));
    // The words are the ends, the middle, the root of 1/2 with its double and half, then words that round to 1.
    let first = [0, 1 << 24, 1 << 30, 0x5a82_799a, 1 << 31, 0xb504_f334, 0xffff_ff00, 0xffff_ff80];
    // The angles are multiples of an eighth of a turn.
    let second = (0u32..8).map(|eighth| eighth << 29);
    let all = second
        .flat_map(around)
        .flat_map(|second| first.into_iter().flat_map(around).map(move |first| [first, second]));
    for words in all {
        let numbers = normal_pair(words);
        assert!(numbers.iter().all(|number| number.is_finite()), "{words:x?}: {numbers:?}");
        assert_close(&format!("{words:x?}"), &numbers, &exact(words), OF_RADIUS / 2.0);
    }
    assert_eq!(normal_pair([0, 0])[1], 0.0);
    assert!(normal_pair([u32::MAX, 0])[0] > 0.0);
}
