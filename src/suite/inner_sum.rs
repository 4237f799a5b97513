//! Tests of sums of products. Thin products are computed many at once.

use super::*;
use crate::{
    dtype::nearest_f32,
    extent::blocks,
    linalg::{gram::InnerSum, qr, rows::Rows},
    random::gaussian,
};

device_tests! { sums_are_those_of_f64; cuts_change_no_bit, small_launches_change_no_bit, launches_do_not_grow_with_rows }

/// The terms of a sum in f32, and the rows of a product that is not thin.
type Rule = [u64; 2];
const RULE: Rule = [64, 512];

fn values(seed: u64, count: u64, mean: f32) -> Vec<f32> {
    (0..count).map(|i| mean + nearest_f32(gaussian(seed, i))).collect()
}

/// Returns the sum of `aᵀ b`, of `cut` rows at a time.
fn sum<A: Element, B: Element>(
    a: &Tensor<A>,
    b: &Tensor<B>,
    lower: bool,
    [depth, step]: Rule,
    cut: u64,
) -> Matrix {
    let ([m, n], [_, l]) = (a.matrix("test").unwrap(), b.matrix("test").unwrap());
    let mut sum = InnerSum::<f32>::new("test", a.device(), [n, l], lower, [depth, step, cut]).unwrap();
    for rows in blocks(m, cut) {
        sum.add(Rows::new(a, rows.clone()), Rows::new(b, rows)).unwrap();
    }
    sum.finish().unwrap()
}

/// Extents around the tiles of a product, around the rows of one product, and past the columns of a thin product.
const EXTENTS: [[u64; 3]; 14] = [
    [0, 3, 3],
    [1, 1, 1],
    [63, 20, 20],
    [64, 63, 64],
    [65, 65, 65],
    [129, 1, 300],
    [700, 7, 130],
    [1000, 128, 128],
    [1030, 129, 129],
    [1030, 20, 20],
    [1124, 20, 20],
    [200, 0, 4],
    [2100, 2, 1],
    [600, 20, 20],
];

fn sums_are_those_of_f64(device: &Device) {
    for [m, n, l] in EXTENTS {
        for mean in [0.0, 1e4] {
            let (x, y) = (values(1, m * n, mean), values(2, m * l, mean));
            let a = Tensor::from_slice(device, &x, &[m, n]).unwrap();
            let b = Tensor::from_slice(device, &y, &[m, l]).unwrap();
            let check = |sum: &Matrix, y: &[f32], l: u64| {
                assert_eq!([sum.rows() as u64, sum.cols() as u64], [n, l]);
                for (i, j) in (0..n).flat_map(|i| (0..l).map(move |j| (i, j))) {
                    let term =
                        |row| f64::from(x[(row * n + i) as usize]) * f64::from(y[(row * l + j) as usize]);
                    let (exact, magnitude) =
                        (0..m).map(term).fold((0.0, 0.0), |(sum, all), x| (sum + x, all + f64::abs(x)));
                    let off = (sum.row(i as usize)[j as usize] - exact).abs();
                    assert!(off <= 2e-6 * magnitude, "{:?}: {off:e} of {magnitude:e} at {i}, {j}", [m, n, l]);
                }
            };
            check(&sum(&a, &b, false, RULE, m.max(1)), &y, l);
            if n == l {
                check(&sum(&a, &a, true, RULE, m.max(1)), &x, n);
            }
        }
    }
    // Elements of other types are decoded as they are read.
    let bytes: Vec<u8> = (0..300 * 5).map(|i| (i * 7 % 251) as u8).collect();
    let a = Tensor::from_slice(device, &bytes, &[300, 5]).unwrap();
    let ones = Tensor::from_slice(device, &[1.0f32; 300], &[300, 1]).unwrap();
    let columns = (0..5).map(|j| bytes.iter().skip(j).step_by(5).map(|&x| f64::from(x)).sum::<f64>());
    assert_eq!(sum(&a, &ones, false, RULE, 300).data(), columns.collect::<Vec<_>>());
}

fn cuts_change_no_bit(device: &Device) {
    for [m, n, l] in EXTENTS {
        let a = Tensor::from_slice(device, &values(3, m * n, 0.5), &[m, n]).unwrap();
        let b = Tensor::from_slice(device, &values(4, m * l, 0.5), &[m, l]).unwrap();
        let halves: Vec<u8> = (0..m * l).map(|i| (i % 251) as u8).collect();
        let bytes = Tensor::from_slice(device, &halves, &[m, l]).unwrap();
        for rule in [RULE, [256, 1024]] {
            let sums = |cut| {
                [
                    sum(&a, &b, false, rule, cut),
                    sum(&a, &a, true, rule, cut),
                    sum(&a, &bytes, false, rule, cut),
                ]
            };
            let whole = sums(1 << 20);
            // The last rows may be alone in a cut. Of few rows, both cuts hold all.
            for cut in [rule[1], 2 * rule[1]].into_iter().take(if m > rule[1] { 2 } else { 1 }) {
                assert_eq!(sums(cut), whole, "{:?} by {cut}", [m, n, l]);
            }
        }
    }
}

/// The rows of several products are added in two launches.
fn small_launches_change_no_bit(device: &Device) {
    let options = DeviceOptions { groups_per_axis: Some(16), ..DeviceOptions::default() };
    let small = Device::open_with(&device.info().name, &options).unwrap();
    let whole = Device::open(&device.info().name).unwrap();
    let (x, y) = (values(6, 600 * 200, 0.5), values(7, 600 * 190, 0.5));
    let sums = |device| {
        let a = Tensor::from_slice(device, &x, &[600, 200]).unwrap();
        let b = Tensor::from_slice(device, &y, &[600, 190]).unwrap();
        [(&b, false), (&a, true)].map(|(b, lower)| sum(&a, b, lower, [256, 1024], 600))
    };
    assert_eq!(sums(&small), sums(&whole));
}

fn launches_do_not_grow_with_rows(device: &Device) {
    let (device, _lock) = alone(device);
    // Low limits divide the work.
    if u64::from(device.limits().groups_per_axis) < 2048 {
        return;
    }
    let launches = [1000u64, 16_000].map(|rows| {
        let x = Tensor::from_slice(&device, &values(5, rows * 5, 0.0), &[rows, 5]).unwrap();
        let before = device.traffic();
        drop(qr(&x).unwrap());
        (device.traffic() - before).launches
    });
    assert!(launches[1] <= launches[0] + 8, "{launches:?}");
}
