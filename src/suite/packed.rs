//! Tests of products with packed rows, against oracles in whole numbers.

use super::packed_case::{Case, assert_magnitudes, codes, one_operand_in_magnitudes};
use super::*;
use crate::{
    kernels::{cpu::limbs::limbs, packed_adjoint, packed_apply},
    packed::{
        adjoint::{ColumnSums, adjoint_in_tiles, packed_adjoint},
        apply::{PackedRows, apply_in_tiles, packed_apply, packed_weights, weights_in_tiles},
        entry,
        operand::{LimbMatrix, MAX, unit},
        product::PackedProduct,
        row_words,
    },
};

device_tests! {
    missing_codes_of_every_share, panels_change_nothing,
    operands_of_any_magnitude, empty, wrong_shapes, nan_is_refused, many_parts, results_are_the_oracles,
}

/// (entries, columns, rows) around words, groups of four, tiles of 64 rows and tiles of 16 row limbs.
const SIZES: [(u64, u64, u64); 14] = [
    (1, 1, 1),
    (3, 2, 3),
    (15, 5, 4),
    (16, 6, 5),
    (17, 20, 63),
    (63, 21, 64),
    (64, 22, 65),
    (65, 10, 128),
    (127, 3, 7),
    (128, 32, 130),
    (200, 64, 31),
    (1000, 20, 66),
    (257, 1, 513),
    (90, 4, 1030),
];

/// Products are close to those in f64, and every result has the bits of the documented operations, in small tiles and in large ones. Some sizes are
/// around the large tiles of 256 rows and of 256 entries.
fn results_are_the_oracles(device: &Device) {
    let large = [(255, 20, 257), (257, 22, 256)];
    for size in SIZES.into_iter().chain(large) {
        for missing in [false, true] {
            let what = format!("{size:?} {missing}");
            let case = Case::new(device, size, missing);
            let x = case.operand();
            let (ones, factors) = (x.factors(None).unwrap(), case.factors(&x));
            let y = packed_apply(case.rows(), &case.table_on_device, &x, &ones).unwrap();
            assert_eq!(y.shape(), [case.rows as u64, case.columns as u64]);
            let y = y.read().unwrap();
            // An element is accurate to 2^-23 of its column's largest; six operations add 2^-24 each.
            assert_close(&what, &y, &case.products(&x), 4e-6);
            assert_eq!(bits(&y), bits(&case.rounded(&x)), "{what}");
            let weights = packed_weights(case.rows(), &case.table_on_device, &x, &factors).unwrap();
            assert_eq!(weights.read().unwrap(), case.weight_words(&x), "{what}");
            let mut sums = ColumnSums::zeros(device, size.0, size.1).unwrap();
            packed_adjoint(case.rows(), &weights, &mut sums).unwrap();
            assert_eq!(sums.read().unwrap(), case.sums(&x), "{what}");

            let tile = packed_apply::LARGE_TILE;
            let again =
                apply_in_tiles(tile, case.rows(), &case.table_on_device, &x, &ones).unwrap().read().unwrap();
            assert_eq!(bits(&again), bits(&y), "{what}");
            let again = weights_in_tiles(tile, case.rows(), &case.table_on_device, &x, &factors).unwrap();
            assert_eq!(again.read().unwrap(), case.weight_words(&x), "{what}");
            let mut again = ColumnSums::zeros(device, size.0, size.1).unwrap();
            adjoint_in_tiles(packed_adjoint::LARGE_TILE, case.rows(), (&weights).into(), &mut again).unwrap();
            assert_eq!(again.read().unwrap(), case.sums(&x), "{what}");
        }
    }
}

/// Tests weights, and sums in small and large tiles, with no, one, few, many and all codes missing, also in rows whose other codes are 0, and in
/// blocks next to blocks without missing codes. Sums start near the overflow of the low word, with both signs. Sizes are around words, blocks and
/// passes of columns, and have rows for several panels of 64 KiB.
fn missing_codes_of_every_share(device: &Device) {
    let sizes = [
        (1, 1, 1),
        (16, 32, 4),
        (17, 33, 5),
        (64, 70, 18),
        (2047, 3, 15),
        (2048, 1, 16),
        (2049, 5, 19),
        (200, 20, 130),
        (33, 3, 4500),
    ];
    let kinds = [-1i64, 0, (1 << 32) - 1, -(1 << 32), 1 << 32, (7 << 32) - 5, -(7 << 32) + 5, 1 << 60];
    for size in sizes {
        let all = (size.0 * size.2) as usize;
        let few = [5, 61, 97, 1009].map(|every| (1, all, every));
        for (code, missing, every) in [(1, 0, 1), (1, 1, 1), (0, all, 97), (1, all, 1)].into_iter().chain(few)
        {
            let what = format!("{size:?} {code} {missing} {every}");
            let mut codes = codes(78, size.2, size.0, false);
            codes.iter_mut().for_each(|held| *held *= code);
            codes.iter_mut().rev().take(missing).step_by(every).for_each(|code| *code = 3);
            let case = Case::of(device, size, codes, true);
            let x = case.operand();
            let weights = packed_weights(case.rows(), &case.table_on_device, &x, &case.factors(&x)).unwrap();
            assert_eq!(weights.read().unwrap(), case.weight_words(&x), "{what}");
            let before: Vec<i64> = (0..size.0 * size.1).map(|i| kinds[i as usize % 8]).collect();
            let words: Vec<u32> = before.iter().flat_map(|&sum| [sum as u32, (sum >> 32) as u32]).collect();
            let expected: Vec<i64> = case.sums(&x).iter().zip(before).map(|(sum, b)| sum + b).collect();
            for tile in [packed_adjoint::TILE, packed_adjoint::LARGE_TILE] {
                let words = Tensor::from_slice(device, &words, &[size.0, size.1, 2]).unwrap();
                let mut sums = ColumnSums { words, first: 0, own: 0, elsewhere: Vec::new() };
                adjoint_in_tiles(tile, case.rows(), (&weights).into(), &mut sums).unwrap();
                assert_eq!(sums.read().unwrap(), expected, "{what} {tile}");
            }
        }
    }
}

fn panels_change_nothing(device: &Device) {
    let case = Case::new(device, (130, 7, 200), true);
    let x = case.operand();
    let mut sums = ColumnSums::zeros(device, 130, 7).unwrap();
    for range in [(0, 64), (64, 68), (68, 199), (199, 200)] {
        let rows = PackedRows { range, ..case.rows() };
        let weights = packed_weights(rows, &case.table_on_device, &x, &case.factors(&x)).unwrap();
        packed_adjoint(rows, &weights, &mut sums).unwrap();
    }
    assert_eq!(sums.read().unwrap(), case.sums(&x));
}

/// Several workgroups add to the same sums at once: 40 on a device of 132 multiprocessors, as the lent emulator has, and 32 on one of two.
fn many_parts(device: &Device) {
    let case = Case::new(device, (64, 8, 20_000), true);
    let x = case.operand();
    let weights = packed_weights(case.rows(), &case.table_on_device, &x, &case.factors(&x)).unwrap();
    let mut sums = ColumnSums::zeros(device, 64, 8).unwrap();
    for _ in 0..16 {
        packed_adjoint(case.rows(), &weights, &mut sums).unwrap();
    }
    let expected: Vec<i64> = case.sums(&x).iter().map(|sum| 16 * sum).collect();
    assert_eq!(sums.read().unwrap(), expected);
}

fn operands_of_any_magnitude(device: &Device) {
    let case = Case::new(device, (200, 1, 130), true);
    for centred in [false, true] {
        let [y, scaled] = one_operand_in_magnitudes(200).map(|x| {
            let new = |bounds| PackedProduct::new(device, &x, centred, bounds).unwrap();
            let mut gram = new(Some([100.0, 1000.0]));
            gram.add(case.rows(), &case.table_on_device).unwrap();
            let used = PackedRows { range: (0, 7), ..case.rows() };
            let mut applied = Matrix::zeros(0, 0);
            let mut sink = |_, rows: &Matrix| {
                applied.clone_from(rows);
                Ok(())
            };
            new(None).each_part([used].into_iter(), &case.table_on_device, &mut sink).unwrap();
            [applied, gram.finish().unwrap()]
        });
        scaled.iter().zip(&y).for_each(|(scaled, y)| assert_magnitudes(scaled, y));
    }
}

fn empty(device: &Device) {
    for (entries, rows) in [(0, 3), (5, 0), (0, 0)] {
        let packed = Tensor::<u32>::zeros(device, &[rows, row_words(entries)]).unwrap();
        let table = Tensor::<f32>::zeros(device, &[rows, 2]).unwrap();
        let rows = PackedRows { packed: &packed, range: (0, rows), missing: true };
        let x =
            LimbMatrix::new(device, &Matrix::zeros(entries as usize, 2), 0, 2, row_words(entries)).unwrap();
        let y = packed_apply(rows, &table, &x, &x.factors(None).unwrap()).unwrap();
        assert!(y.read().unwrap().iter().all(|&y| y == 0.0));
        let weights = packed_weights(rows, &table, &x, &x.factors(Some(&[1.0; 2])).unwrap()).unwrap();
        let mut sums = ColumnSums::zeros(device, entries, 2).unwrap();
        packed_adjoint(rows, &weights, &mut sums).unwrap();
        assert!(sums.read().unwrap().iter().all(|&sum| sum == 0));
    }
}

fn wrong_shapes(device: &Device) {
    let packed = Tensor::<u32>::zeros(device, &[2, row_words(5)]).unwrap();
    let rows = PackedRows { packed: &packed, range: (0, 2), missing: false };
    let weights = Tensor::<u32>::zeros(device, &[1, 32]).unwrap();
    let mut sums = ColumnSums::zeros(device, 5, 2).unwrap();
    assert_err!(packed_adjoint(rows, &weights, &mut sums), Error::Shape { op: "packed_adjoint", .. });
}

fn nan_is_refused(device: &Device) {
    for bad in [f64::NAN, f64::INFINITY] {
        let x = Matrix::from_vec(vec![0.0, bad], 1, 2).unwrap();
        assert_refused(LimbMatrix::new(device, &x, 0, 2, row_words(1)), &["column 1"]);
    }
}

#[test]
fn limbs_are_balanced_and_whole() {
    for multiple in
        (-8_355_711..=8_355_711).step_by(977).chain([8_355_711, 0, -1, 127, 128, -128, -129, 32_767])
    {
        let [low, middle, high] = limbs(multiple).map(i32::from);
        assert_eq!(low + 256 * middle + 65_536 * high, multiple);
    }
}

#[test]
fn units_use_the_range() {
    let smallest = f64::from_bits(1);
    let sizes = [1e-11, 0.3, 1.0, MAX, 1.0001 * MAX, 7e15];
    let extremes = [smallest, 3e-310, f64::MIN_POSITIVE, 1e-300, 1e300, f64::MAX];
    for largest in sizes.into_iter().chain(extremes) {
        let unit = unit(largest);
        assert!(largest / unit <= MAX && (largest / unit > MAX / 2.01 || unit == smallest), "{largest:e}");
        assert_eq!(unit.log2().fract(), 0.0);
    }
    assert_eq!(unit(0.0), 1.0);
}

#[test]
fn quads_hold_every_entry_once() {
    let mut entries: Vec<usize> =
        (0..16).flat_map(|quad| (0..4).map(move |place| entry(quad, place))).collect();
    entries.sort_unstable();
    assert!(entries.iter().copied().eq(0..64));
}
