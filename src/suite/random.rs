//! Random numbers.

use super::device_tests;
use crate::{
    Device, Error,
    random::{philox, random_words},
};

device_tests! { words_are_philox, counters_carry, several_launches, the_stream_ends, empty }

fn oracle(seed: u64, first: u64, len: u64) -> Vec<u32> {
    let key = [seed as u32, (seed >> 32) as u32];
    let words = (0..len.div_ceil(4)).flat_map(|block| philox(key, first + block));
    words.take(len as usize).collect()
}

fn check(device: &Device, seed: u64, first: u64, len: u64) {
    let words = random_words(device, seed, first, len).unwrap().read().unwrap();
    let expected = oracle(seed, first, len);
    let wrong = words.iter().zip(&expected).position(|(word, expected)| word != expected);
    assert_eq!(
        (wrong, words.len() as u64),
        (None, len),
        "seed {seed:#x}, first block {first:#x}, {len} words"
    );
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
    }
}

/// More than 16 x 16 groups.
fn several_launches(device: &Device) {
    check(device, 5, 1, 3 * 16 * 16 * 1024 + 5);
}

fn the_stream_ends(device: &Device) {
    check(device, 1, u64::MAX, 4);
    for (first, len) in [(u64::MAX, 5), (u64::MAX - 1, 9), (u64::MAX - 300, 1205)] {
        let error = random_words(device, 1, first, len);
        assert!(matches!(error, Err(Error::Argument { name: "first_block", .. })), "{first} {len}");
    }
}

fn empty(device: &Device) {
    assert!(random_words(device, 1, 2, 0).unwrap().read().unwrap().is_empty());
}
