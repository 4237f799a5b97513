//! Sums of blocks that stay on their device.

use std::sync::{Mutex, PoisonError};

use super::{cpu, device_tests};
use crate::{
    Device, DeviceOptions, Error, Run, Status, Tensor,
    dtype::nearest_f32,
    linalg::{BlockSum, LinearMap, Matrix, Pass, qr},
    random::gaussian,
};

device_tests! {
    sums_are_those_of_f64, what_cancels_is_kept, values_far_apart, one_element_is_not_finite, sums_go_elsewhere_and_back,
    rows_of_a_tensor, empty, other_devices_are_refused;
    past_the_largest_grid, little_is_downloaded,
}

/// Sums in f64 of blocks with the magnitude of their terms, and NaN where a triangle leaves an element out.
fn sums(device: &Device, blocks: &[Vec<f32>], rows: u64, cols: u64, lower: bool) -> Vec<f64> {
    let mut sum =
        if lower { BlockSum::symmetric(device, rows) } else { BlockSum::new(device, rows, cols) }.unwrap();
    for block in blocks {
        sum.add(&Tensor::from_slice(device, block, &[rows, cols]).unwrap()).unwrap();
    }
    sum.finish().unwrap().data().to_vec()
}

/// The rounding of an addition, relative to the sum of magnitudes.
fn unit(device: &Device) -> f64 {
    if device.limits().f64 { 0.0 } else { 2f64.powi(-47) }
}

fn check(device: &Device, blocks: &[Vec<f32>], rows: u64, cols: u64, lower: bool) {
    let found = sums(device, blocks, rows, cols, lower);
    for (place, found) in (0..).zip(found) {
        let (i, j) = (place / cols, place % cols);
        let from = if lower { i.max(j) * cols + i.min(j) } else { place };
        let of = || blocks.iter().map(|block| f64::from(block[from as usize]));
        let (exact, magnitude): (f64, f64) = (of().sum(), of().map(f64::abs).sum());
        let bound = unit(device) * magnitude * blocks.len() as f64;
        assert!((found - exact).abs() <= bound, "({i}, {j}) of ({rows}, {cols}): {found:e}, not {exact:e}");
    }
}

fn made(seed: u32, count: u64, scale: f32) -> Vec<f32> {
    (0..count).map(|i| scale * nearest_f32(gaussian(seed.into(), i))).collect()
}

fn sums_are_those_of_f64(device: &Device) {
    // Around the elements of a workgroup, and of a thread.
    for (rows, cols) in [(1, 1), (1, 255), (3, 86), (1, 257), (16, 16), (65, 33), (200, 300)] {
        let blocks: Vec<_> = (0..9).map(|block| made(block, rows * cols, 1.0)).collect();
        check(device, &blocks, rows, cols, false);
    }
    for n in [1, 2, 15, 16, 17, 150] {
        let mut blocks: Vec<_> = (0..5).map(|block| made(50 + block, n * n, 10.0)).collect();
        for block in &mut blocks {
            (0..n * n)
                .filter(|place| place % n > place / n)
                .for_each(|place| block[place as usize] = f32::NAN);
        }
        check(device, &blocks, n, n, true);
    }
}

fn past_the_largest_grid(device: &Device) {
    let (rows, cols) = (12, 16_000);
    let blocks: Vec<_> = (0..2).map(|block| made(70 + block, rows * cols, 1.0)).collect();
    check(device, &blocks, rows, cols, false);
    let n = 700;
    let blocks: Vec<_> = (0..2).map(|block| made(80 + block, n * n, 1.0)).collect();
    check(device, &blocks, n, n, true);
}

/// Of f32 alone nothing would be left.
fn what_cancels_is_kept(device: &Device) {
    let blocks = [[1e8, 3e7], [1.0, -0.25], [1.0, 0.125], [-1e8, -3e7]].map(|block| block.to_vec());
    assert_eq!(sums(device, &blocks, 1, 2, false), [2.0, -0.125]);
    // A thousand small ones, each below half a unit of the large one.
    let mut blocks = vec![vec![1e8]];
    blocks.extend(vec![vec![1.0]; 1000]);
    assert_eq!(sums(device, &blocks, 1, 1, false), [100_001_000.0]);
}

fn values_far_apart(device: &Device) {
    for scale in [1e-30, 1e-10, 1e10, 1e37] {
        let blocks: Vec<_> = (0..7).map(|block| made(90 + block, 40, scale)).collect();
        check(device, &blocks, 5, 8, false);
    }
    let huge = sums(device, &[vec![3e38], vec![3e38]], 1, 1, false);
    assert_eq!(huge, [if device.limits().f64 { 2.0 * f64::from(3e38f32) } else { f64::INFINITY }]);
}

fn one_element_is_not_finite(device: &Device) {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let found = sums(device, &[vec![1.0, bad, 3.0], vec![1.0, 2.0, 3.0]], 1, 3, false);
        assert_eq!([found[0], found[2]], [2.0, 6.0]);
        assert_eq!((found[1].is_nan(), found[1] == f64::from(bad)), (bad.is_nan(), !bad.is_nan()));
    }
}

fn sums_go_elsewhere_and_back(device: &Device) {
    for lower in [false, true] {
        let new =
            || if lower { BlockSum::symmetric(device, 3) } else { BlockSum::new(device, 3, 3) }.unwrap();
        let block = |seed| Tensor::from_slice(device, &made(seed, 9, 1e6), &[3, 3]).unwrap();
        let (mut whole, mut first, mut second) = (new(), new(), new());
        for seed in [1, 2] {
            whole.add(&block(seed)).unwrap();
            first.add(&block(seed)).unwrap();
        }
        let sums = first.into_sums().unwrap();
        assert_eq!(sums.len(), if lower { 6 } else { 9 });
        assert!(matches!(second.set_sums(&sums[1..]), Err(Error::Shape { op: "sums", .. })));
        second.set_sums(&sums).unwrap();
        for seed in [3, 4] {
            whole.add(&block(seed)).unwrap();
            second.add(&block(seed)).unwrap();
        }
        assert_eq!(whole.finish().unwrap(), second.finish().unwrap());
    }
}

/// What does not start at the device's alignment.
fn rows_of_a_tensor(device: &Device) {
    let values = made(8, 15, 1.0);
    let tensor = Tensor::from_slice(device, &values, &[5, 3]).unwrap();
    let mut sum = BlockSum::new(device, 2, 3).unwrap();
    sum.add(&tensor.rows(1..3).unwrap()).unwrap();
    sum.add(&tensor.rows(3..5).unwrap()).unwrap();
    let exact: Vec<f64> = (0..6).map(|i| f64::from(values[3 + i]) + f64::from(values[9 + i])).collect();
    assert_eq!(sum.finish().unwrap().data(), exact);
}

fn empty(device: &Device) {
    for (rows, cols) in [(0, 0), (0, 4), (4, 0)] {
        assert!(sums(device, &[vec![], vec![]], rows, cols, false).is_empty());
    }
    assert_eq!(sums(device, &[], 2, 2, true), [0.0; 4]);
}

fn other_devices_are_refused(device: &Device) {
    let block = Tensor::from_slice(cpu(), &[1.0f32], &[1, 1]).unwrap();
    let added = BlockSum::new(device, 1, 1).unwrap().add(&block);
    assert_eq!(matches!(added, Err(Error::WrongDevice { name: "block", .. })), !device.shares_host_memory());
}

/// Factors and one sum, not a block of rows.
fn little_is_downloaded(device: &Device) {
    // No test beside this one counts there.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let options = DeviceOptions { threads: Some(3), ..DeviceOptions::default() };
    let device = &Device::open_with(&device.info().name, &options).unwrap();
    let (rows, cols) = (9000, 20);
    let x = Tensor::from_slice(device, &made(3, rows * cols, 1.0), &[rows, cols]).unwrap();
    let before = device.traffic();
    drop(qr(&x).unwrap());
    let moved = device.traffic() - before;
    assert!(moved.waits <= 20 && moved.to_host <= 20 * 8 * cols * cols, "{moved:?}");
    let thin = Matrix::from_vec(vec![1.0; 40], 20, 2).unwrap();
    let (run, before) = (Run::default(), device.traffic());
    let product = x.apply_normal(&thin, &Pass::new(&run, Status::new(0, 1, rows))).unwrap();
    let moved = device.traffic() - before;
    // A sum has two numbers.
    assert_eq!((moved.waits, moved.to_host, moved.to_device, product.cols()), (2, 8 * 40, 4 * 40, 2));
}
