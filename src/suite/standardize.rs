//! Tests of centring and scaling rows.

use super::*;
use crate::{InF32, linalg::standardize::standardize};

device_tests! {
    every_type, sizes_around_the_groups, missing_is_filled, negative_is_a_number, dosages_agree_with_cpu,
    empty, wrong_shapes, row_beyond_a_binding;
    past_the_largest_grid,
}

fn table(rows: u64) -> Vec<[f32; 3]> {
    (0..rows).map(|i| [0.25 * (i % 9) as f32, 1.0 / (1 + i % 7) as f32, -0.5 * (i % 3) as f32]).collect()
}

fn oracle<T: Sample>(x: T, negative_is_missing: bool, [shift, scale, fill]: [f32; 3]) -> Reference {
    if !(x.value().is_nan() || negative_is_missing && x.value() < 0.0) {
        let (shift, scale) = (f64::from(shift), f64::from(scale));
        let magnitude = (x.value().abs() + shift.abs()) * scale.abs();
        Reference { value: (x.value() - shift) * scale, magnitude }
    } else {
        f64::from(fill).into()
    }
}

fn check<T: Sample + InF32>(device: &Device, x: &[T], rows: u64, cols: u64) {
    check_of(device, x, true, rows, cols);
}

fn check_of<T: Sample + InF32>(device: &Device, x: &[T], negative_is_missing: bool, rows: u64, cols: u64) {
    let tx = Tensor::from_slice(device, x, &[rows, cols]).unwrap();
    let table = table(rows);
    let out = standardize(&tx, &table, negative_is_missing).unwrap().read().unwrap();
    let expected = (0..).zip(x).map(|(i, &x)| oracle(x, negative_is_missing, table[(i / cols) as usize]));
    let expected: Vec<Reference> = expected.collect();
    assert_close(&format!("{:?} {rows} {cols}", T::DTYPE), &out, &expected, 2.0 * ONE_OPERATION);
}

fn every_type(device: &Device) {
    fn with<T: Sample + InF32>(device: &Device) {
        check(device, &matrix::<T>(device, 40, 9, 131).0, 9, 131);
    }
    for_each_type!(in_f32 with(device));
}

fn sizes_around_the_groups(device: &Device) {
    for cols in [1, 3, 255, 256, 257, 515] {
        for rows in [1, 2, 65, 300] {
            check(device, &matrix::<i8>(device, 41, rows, cols).0, rows, cols);
            check(device, &matrix::<f32>(device, 42, rows, cols).0, rows, cols);
        }
    }
}

fn missing_is_filled(device: &Device) {
    fn with<T: Sample + InF32>(device: &Device, x: &[T]) {
        // The first row is filled with 0.
        check(device, &x.repeat(2), 2, x.len() as u64);
    }
    let tiny = f32::from_bits(0x8000_0001);
    with(device, &[f32::NAN, -f32::NAN, f32::NEG_INFINITY, -1.0, -0.0, 0.0, 2.0, f32::MIN, tiny]);
    with(device, &[f16::NAN, -f16::NAN, f16::NEG_INFINITY, -f16::ONE, f16::NEG_ZERO, f16::ONE]);
    with(device, &[bf16::NAN, -bf16::NAN, bf16::NEG_INFINITY, -bf16::ONE, bf16::NEG_ZERO, bf16::ONE]);
    with(device, &[-128i8, -2, -1, 0, 1, 2, 127]);
    with(device, &[i16::MIN, -1, 0, i16::MAX]);
}

fn negative_is_a_number(device: &Device) {
    check_of(device, &[f32::NAN, -f32::NAN, -1.0, -0.0, 0.0, 2.0, -1e30, -3.5, 7.0], false, 1, 9);
    let infinite = [f32::INFINITY, -f32::INFINITY];
    let x = Tensor::from_slice(device, &infinite, &[1, 2]).unwrap();
    assert_eq!(standardize(&x, &[[1.0, 2.0, 7.0]], false).unwrap().read().unwrap(), infinite);
    check_of(device, &[f16::NAN, -f16::NAN, -f16::ONE, f16::NEG_ZERO, f16::ONE], false, 1, 5);
    check_of(device, &[-128i8, -2, -1, 0, 1, 2, 127], false, 1, 7);
    check_of(device, &[i16::MIN, -1, 0, i16::MAX], false, 1, 4);
}

/// The streamed PCA computes one subtraction and one product, rounded equally on every device.
fn dosages_agree_with_cpu(device: &Device) {
    let x: Vec<i8> = (0..40 * 333).map(|i| (i * 7 % 11 % 4) as i8 - 1).collect();
    let table: Vec<[f32; 3]> =
        (0..40).map(|i| [0.37 + 0.01 * i as f32, 1.3 - 0.02 * i as f32, 0.0]).collect();
    let on = |device| {
        let x = Tensor::from_slice(device, &x, &[40, 333]).unwrap();
        bits(&standardize(&x, &table, true).unwrap().read().unwrap())
    };
    assert_eq!(on(device), on(cpu()));
}

/// A workgroup takes 256 elements, and there are more workgroups than on a grid's axis of a device with low limits.
fn past_the_largest_grid(device: &Device) {
    let Some(axis) = low_groups_per_axis(device) else { return };
    let cols = 4000;
    let rows = axis * 256 / cols + 2;
    let x: Vec<i8> = (0..rows * cols).map(|i| (i % 4) as i8 - 1).collect();
    let tx = Tensor::from_slice(device, &x, &[rows, cols]).unwrap();
    let table: Vec<[f32; 3]> = (0..rows).map(|i| [0.0, 1.0 + (i % 16) as f32, 100.0]).collect();
    let out = standardize(&tx, &table, true).unwrap().read().unwrap();
    let expected = |i: u64| match (i % 4) as f32 - 1.0 {
        -1.0 => 100.0,
        x => x * (1.0 + (i / cols % 16) as f32),
    };
    assert_eq!((0..).zip(&out).position(|(i, &out)| out != expected(i)), None);
}

fn empty(device: &Device) {
    for shape in [[0, 3], [3, 0], [0, 0]] {
        let x = Tensor::<f32>::zeros(device, &shape).unwrap();
        let table = vec![[0.0; 3]; shape[0] as usize];
        assert_eq!(standardize(&x, &table, true).unwrap().shape(), shape);
    }
}

fn wrong_shapes(device: &Device) {
    let x = Tensor::<f32>::zeros(device, &[3, 4]).unwrap();
    assert!(matches!(standardize(&x, &[[0.0; 3]; 4], true), Err(Error::Shape { op: "standardize", .. })));
}

fn row_beyond_a_binding(device: &Device) {
    let binding = device.limits().binding;
    if binding > 1 << 20 {
        return;
    }
    let x = Tensor::<i8>::zeros(device, &[1, binding]).unwrap();
    assert!(matches!(standardize(&x, &[[0.0; 3]], true), Err(Error::Limit { .. })));
}
