//! Tests of every way to compute the sums, against plain sums.

use super::*;
use crate::{kernels::tests::random_codes, random::philox};

/// (rows, entries, words before and after, columns, missing codes in 256): sizes around fours, pieces and strips, with few and many missing.
const SIZES: [(usize, usize, usize, usize, u32); 17] = [
    (1, 1, 0, 1, 0),
    (1, 1, 0, 1, 40),
    (3, 64, 0, 2, 0),
    (4, 65, 0, 3, 255),
    (5, 63, 4, 20, 3),
    (255, 128, 0, 7, 0),
    (256, 100, 8, 20, 2),
    (257, 300, 0, 21, 30),
    (260, 256, 4, 5, 1),
    (300, 257, 0, 33, 0),
    (513, 520, 0, 4, 3),
    (1030, 90, 0, 6, 5),
    // These have each number of vectors of columns.
    (70, 70, 0, 12, 3),
    (70, 70, 0, 30, 3),
    (70, 70, 0, 48, 3),
    (70, 70, 0, 56, 3),
    (70, 70, 0, 100, 3),
];

/// Checks a path with arbitrary weights.
fn check(size: (usize, usize, usize, usize, u32), limb_count: usize, rare: bool, path: Path) {
    let any = |i| philox([2, 0], i as u64)[0];
    check_of(size, limb_count, rare, 2, any, &format!("{path:?}"), |product, sums| {
        path.run(Adjoint { product, sums });
    });
}

/// Checks a product of codes up to `most`; `weights` returns words of four weights.
fn check_of(
    (rows, entries, beside, cols, missing): (usize, usize, usize, usize, u32),
    limb_count: usize,
    rare: bool,
    most: u32,
    word: impl Fn(usize) -> u32,
    name: &str,
    run: impl FnOnce(Operands<'_>, &mut [u32]),
) {
    let row_limbs = (limb_count * cols).next_multiple_of(16);
    let shift = 9;
    let width = if missing > 0 { 2 * row_limbs } else { row_limbs };
    let taken = entries.div_ceil(64) * 4;
    let words = taken + 2 * beside;
    let packed = random_codes([rows, words], missing, rare, most);
    let mut weights: Vec<u32> = (0..rows.div_ceil(4) * width).map(word).collect();
    if rows % 4 > 0 {
        // Rows past the last one have no weights.
        let last = weights.len() - width;
        weights[last..].iter_mut().for_each(|word| *word &= (1 << (8 * (rows % 4))) - 1);
    }
    let before: Vec<u32> = (0..entries * cols * 2).map(|i| philox([3, 0], i as u64)[0]).collect();
    let multiple = |row: usize, row_limb: usize| {
        let limb = |t: usize| {
            let word = weights[row / 4 * width + row_limb + t * cols];
            i64::from((word >> (8 * (row % 4))) as i8)
        };
        (0..limb_count).map(|t| limb(t) << (8 * t)).sum::<i64>() << shift
    };
    let mut expected: Vec<i64> =
        before.as_chunks::<2>().0.iter().map(|&[low, high]| i64::from(low) | i64::from(high) << 32).collect();
    for row in 0..rows {
        let multiples: Vec<i64> = (0..cols).map(|c| multiple(row, c)).collect();
        let filled: Vec<i64> =
            (0..cols).map(|c| if missing > 0 { multiple(row, row_limbs + c) } else { 0 }).collect();
        for entry in 0..entries {
            let word = packed[row * words + beside + entry / 16];
            for c in 0..cols {
                let sum = &mut expected[entry * cols + c];
                *sum = sum.wrapping_add(match word >> (2 * (entry % 16)) & 3 {
                    3 => filled[c],
                    code => i64::from(code) * multiples[c],
                });
            }
        }
    }
    let product = Operands {
        packed: &packed,
        rows,
        words,
        word0: beside,
        word1: beside + taken,
        weights: &weights,
        width,
        row_limbs,
        cols,
        limb_count,
        shift,
        missing: missing > 0,
        cancel: None,
    };
    let mut sums = before;
    run(product, &mut sums);
    let sums = sums.as_chunks::<2>().0.iter().map(|&[low, high]| i64::from(low) | i64::from(high) << 32);
    assert!(
        sums.eq(expected),
        "{name} {rows} x {entries} beside {beside}, {cols} columns, {missing}, {limb_count}"
    );
}

#[test]
fn every_path_is_exact() {
    for size in SIZES {
        for path in Path::supported() {
            for rare in [false, true] {
                check(size, 3, rare, path);
                check(size, 2, rare, path);
                if size.4 == 0 {
                    check(size, 1, rare, path);
                }
            }
        }
    }
}

/// Checks that bits are counted for codes times a factor, with the same results as every path, and are not counted for other weights.
#[cfg(target_arch = "x86_64")]
#[test]
fn counted_bits_are_exact() {
    let Some(popcount) = counted::Popcount::try_new() else {
        return crate::openings::skip("popcount", "no AVX-512 VPOPCNTDQ");
    };
    let sizes = SIZES.into_iter().filter(|size| size.4 == 0).chain([
        (63, 192, 4, 64, 0),
        (64, 256, 0, 64, 0),
        (65, 320, 0, 63, 0),
        (511, 448, 0, 64, 0),
        (512, 512, 4, 5, 0),
        (513, 70, 0, 64, 0),
        (1540, 260, 8, 5, 0),
    ]);
    for size in sizes {
        // All factors are multiplied in the same way, at the end.
        let factors = if size.0 > 100 { &[-64i8][..] } else { &[1, 3, -2, -64] };
        for &factor in factors {
            for (most_held, most) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
                for rare in [false, true] {
                    let codes = |i: usize| {
                        let code = |random: u32| factor * (random % (most + 1)) as i8;
                        u32::from_le_bytes(
                            philox([5, most], i as u64).map(|random| code(random).cast_unsigned()),
                        )
                    };
                    let name = format!("bits, codes up to {most_held}, and to {most} times {factor},");
                    check_of(size, 1, rare, most_held, codes, &name, |product, sums| {
                        assert!(popcount.add(&product, sums), "{name} {size:?}");
                    });
                }
            }
        }
    }
    let size = (300, 70, 0, 20, 0);
    for other in [0x0000_0003, 0x0100_0000, 0x00fe_0000, 0x8000_4000] {
        let words = |i: usize| if i == 710 { other } else { 0x0002_0400 };
        check_of(size, 1, false, 2, words, "other numbers,", |product, sums| {
            assert!(!popcount.add(&product, sums), "{other:x}");
            Path::best().run(Adjoint { product, sums });
        });
    }
}

/// Sums of whole numbers do not depend on the order of additions.
#[test]
fn threads_change_nothing() {
    for threads in [1, 3, 16] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| [false, true].map(|rare| check((2100, 70, 0, 5, 4), 3, rare, Path::best())));
    }
}

/// Checks sums of the largest multiples for an entry that is missing in every row, which come as close as possible to overflow in 32 bits.
#[test]
fn the_largest_numbers_do_not_wrap() {
    for (rows, sign) in [(256, 1), (1030, 1), (1030, -1)] {
        for path in Path::supported() {
            let (row_limbs, words) = (16, 4);
            // Few other codes are missing, so that missing codes are added one by one.
            let code = |row: usize, entry: usize| {
                if entry == 5 || (row + entry).is_multiple_of(50) { 3 } else { 1 }
            };
            let word = |i: usize| (0..16).map(|j| code(i / words, i % words * 16 + j) << (2 * j)).sum();
            let packed: Vec<u32> = (0..rows * words).map(word).collect();
            let limb = if sign > 0 { 0x7f7f_7f7f } else { 0x8181_8181 };
            let mut weights = vec![0; rows.div_ceil(4) * 2 * row_limbs];
            weights.chunks_mut(2 * row_limbs).for_each(|four| four[row_limbs..row_limbs + 3].fill(limb));
            let product = Operands {
                packed: &packed,
                rows,
                words,
                word0: 0,
                word1: words,
                weights: &weights,
                width: 2 * row_limbs,
                row_limbs,
                cols: 1,
                limb_count: 3,
                shift: 0,
                missing: true,
                cancel: None,
            };
            let mut sums = vec![0; 2 * 64];
            path.run(Adjoint { product, sums: &mut sums });
            for (entry, &[low, high]) in sums.as_chunks::<2>().0.iter().enumerate() {
                let gaps = (0..rows).filter(|&row| code(row, entry) == 3).count() as i64;
                let sum = i64::from(low) | i64::from(high) << 32;
                assert_eq!(sum, gaps * sign * 8_355_711, "{path:?}, {rows} rows, entry {entry}");
            }
        }
    }
}
