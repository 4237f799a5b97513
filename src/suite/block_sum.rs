//! Tests of sums of blocks, which stay on their device.

use super::*;
use crate::{
    Traffic,
    dtype::nearest_f32,
    linalg::{
        BlockSum, LinearMap, Pass, SignRule, Stop, SvdOptions, matmul_nt, qr, transpose, truncated_svd,
    },
    random::gaussian,
};

device_tests! {
    sums_are_those_of_f64, what_cancels_is_kept, values_far_apart, one_element_is_not_finite, sums_go_elsewhere_and_back,
    rows_of_a_tensor, empty, other_devices_are_refused;
    past_the_largest_grid, little_is_downloaded, thousands_of_blocks, traffic_is_counted,
}

/// Returns the sum of blocks as a device computes it.
fn sums(device: &Device, blocks: &[Vec<f32>], rows: u64, cols: u64, lower: bool) -> Vec<f64> {
    let mut sum =
        if lower { BlockSum::symmetric(device, rows) } else { BlockSum::new(device, rows, cols) }.unwrap();
    for block in blocks {
        sum.add(&Tensor::from_slice(device, block, &[rows, cols]).unwrap()).unwrap();
    }
    sum.finish().unwrap().data().to_vec()
}

/// Returns the rounding error of an addition, relative to the sum of magnitudes.
fn unit(device: &Device) -> f64 {
    if device.limits().f64 { 0.0 } else { 2f64.powi(-47) }
}

fn check(device: &Device, blocks: &[Vec<f32>], rows: u64, cols: u64, lower: bool) {
    let found = sums(device, blocks, rows, cols, lower);
    let least = smallest(device);
    for (place, found) in (0..).zip(found) {
        let (i, j) = (place / cols, place % cols);
        let from = if lower { i.max(j) * cols + i.min(j) } else { place };
        let of = || blocks.iter().map(|block| f64::from(block[from as usize]));
        let (exact, magnitude): (f64, f64) = (of().sum(), of().map(f64::abs).sum());
        let bound = unit(device).mul_add(magnitude, least) * blocks.len() as f64;
        assert!((found - exact).abs() <= bound, "({i}, {j}) of ({rows}, {cols}): {found:e}, not {exact:e}");
    }
}

fn made(seed: u32, count: u64, scale: f32) -> Vec<f32> {
    (0..count).map(|i| scale * nearest_f32(gaussian(seed.into(), i))).collect()
}

fn sums_are_those_of_f64(device: &Device) {
    // The sizes are around the elements of a workgroup and of a thread.
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

/// The rounding error stays within its bound.
fn thousands_of_blocks(device: &Device) {
    let blocks: Vec<_> = (0..2000).map(|block| made(1000 + block, 6, 1.0)).collect();
    check(device, &blocks, 2, 3, false);
}

fn past_the_largest_grid(device: &Device) {
    let (rows, cols) = (40, 6000);
    let blocks: Vec<_> = (0..2).map(|block| made(70 + block, rows * cols, 1.0)).collect();
    check(device, &blocks, rows, cols, false);
    let n = 700;
    let blocks: Vec<_> = (0..2).map(|block| made(80 + block, n * n, 1.0)).collect();
    check(device, &blocks, n, n, true);
}

/// A sum in a single f32 would lose all digits of the small terms.
fn what_cancels_is_kept(device: &Device) {
    let blocks = [[1e8, 3e7], [1.0, -0.25], [1.0, 0.125], [-1e8, -3e7]].map(|block| block.to_vec());
    assert_eq!(sums(device, &blocks, 1, 2, false), [2.0, -0.125]);
    // There are a thousand small terms, each below half a unit of the large one.
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
    // Each small term alone is rounded off, but their sum is a unit of the largest f32.
    let [most, least] = [f32::MAX, 2f32.powi(103) * 0.99];
    let beyond = sums(device, &[vec![most], vec![least], vec![least]], 1, 1, false);
    let exact = f64::from(most) + 2.0 * f64::from(least);
    assert_eq!(beyond, [if device.limits().f64 { exact } else { f64::INFINITY }]);
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

/// The part does not start at the device's alignment.
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

fn matrix(device: &Device, rows: u64, cols: u64) -> Tensor<f32> {
    Tensor::from_slice(device, &made(3, rows * cols, 1.0), &[rows, cols]).unwrap()
}

/// Only factors and sums are transferred, never rows, however many there are.
fn little_is_downloaded(device: &Device) {
    let (device, _lock) = alone(device);
    let moved = [3000, 9000].map(|rows| {
        let x = matrix(&device, rows, 20);
        let before = device.traffic();
        drop(qr(&x).unwrap());
        let qr = device.traffic() - before;
        let thin = Matrix::from_vec(vec![1.0; 40], 20, 2).unwrap();
        let (run, before) = (Run::default(), device.traffic());
        x.apply_normal(&thin, &Pass::new(&run, Status::new(0, 1, rows))).unwrap();
        let normal = device.traffic() - before;
        assert_eq!((normal.waits, normal.to_host, normal.to_device), (1, 8 * 40, 4 * 40));
        (qr.waits, qr.to_host, qr.to_device)
    });
    assert_eq!(moved[0], moved[1]);
    if device.limits().f64 {
        // A further pass of the iteration transfers small matrices only, whose number of elements does not depend on the extents.
        let [short, long] = [[300u64, 200], [700, 500]].map(|[rows, cols]| {
            let x = matrix(&device, rows, cols);
            [1, 2].map(|q| {
                let options = SvdOptions::default().stop(Stop::PowerIterations(q)).sign(SignRule::None);
                let before = device.traffic();
                drop(truncated_svd(&x, 2, &options, &Run::default()).unwrap());
                let moved = device.traffic() - before;
                [moved.to_host, moved.to_device, moved.waits]
            })
        });
        let more = |[less, more]: [[u64; 3]; 2]| [0, 1, 2].map(|i| more[i] - less[i]);
        assert_eq!(more(short), more(long));
        assert!(more(long)[0] < 8 * 12 * 12 * 12, "{long:?}");
    }
    // One number per block reports that the block was added.
    let (mut sum, block) = (BlockSum::new(&device, 1, 500).unwrap(), matrix(&device, 1, 500));
    let before = device.traffic();
    (0..10).for_each(|_| sum.add(&block).unwrap());
    sum.finish().unwrap();
    let moved = device.traffic() - before;
    assert_eq!((moved.waits, moved.to_host, moved.launches), (11, 10 * 8 + 8 * 500, 10));
}

fn traffic_is_counted(device: &Device) {
    let (device, _lock) = alone(device);
    let counted = |call: &mut dyn FnMut()| {
        let before = device.traffic();
        call();
        let moved = device.traffic() - before;
        assert_eq!(before - device.traffic(), Traffic::default());
        [moved.to_device, moved.to_host, moved.between, moved.waits, moved.launches]
    };
    let mut x = matrix(&device, 3, 5);
    assert_eq!(counted(&mut || x.write(&[0.5; 15]).unwrap()), [60, 0, 0, 0, 0]);
    assert_eq!(counted(&mut || drop(x.try_clone().unwrap())), [0, 0, 60, 0, 0]);
    assert_eq!(counted(&mut || drop(x.read().unwrap())), [0, 60, 0, 1, 0]);
    assert_eq!(counted(&mut || drop(x.download().unwrap().wait().unwrap())), [0, 60, 0, 1, 0]);
    assert_eq!(counted(&mut || device.synchronize().unwrap()), [0, 0, 0, 1, 0]);
    assert_eq!(counted(&mut || drop(transpose(&x).unwrap())), [0, 0, 0, 0, 1]);
    // The product is computed by a vendor's library or by our own kernel.
    assert_eq!(counted(&mut || drop(matmul_nt(&x, &x).unwrap())), [0, 0, 0, 0, 1]);
    let mut x = Some(x);
    assert_eq!(counted(&mut || drop(x.take().unwrap().into_values().unwrap())), [0, 60, 0, 1, 0]);
}
