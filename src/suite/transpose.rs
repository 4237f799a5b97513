//! Tests of transposing.

use super::*;
use crate::linalg::transpose;

device_tests! {
    sizes_around_the_tiles, every_bit_is_kept, rows_of_a_tensor, empty, wrong_shapes;
    past_the_largest_grid, row_beyond_a_binding,
}

fn check<T: Element>(device: &Device, rows: u64, cols: u64, of: impl Fn(u64) -> T) {
    let x: Vec<T> = (0..rows * cols).map(of).collect();
    let found = transpose(&Tensor::from_slice(device, &x, &[rows, cols]).unwrap()).unwrap();
    assert_eq!(found.shape(), [cols, rows]);
    for (place, found) in (0..).zip(found.read().unwrap()) {
        let (j, i) = (place / rows, place % rows);
        assert_eq!(found, x[(i * cols + j) as usize], "({j}, {i}) of ({cols}, {rows})");
    }
}

fn sizes_around_the_tiles(device: &Device) {
    for rows in [1, 2, 31, 32, 33, 65] {
        for cols in [1, 7, 31, 32, 33, 64, 100] {
            check(device, rows, cols, |i| i as f32);
            check(device, rows, cols, |i| i as f64 + 1e-9);
        }
    }
}

/// Each launch takes some of the rows, or some of the columns.
fn past_the_largest_grid(device: &Device) {
    for (rows, cols) in [(5, 12_000), (12_000, 5), (9000, 33), (700, 800)] {
        check(device, rows, cols, |i| i as f32);
    }
}

fn every_bit_is_kept(device: &Device) {
    let bits = [0x7fa0_0001u32, 0xff80_0000, 0x8000_0000, 1, 0x7f7f_ffff, 0xffc1_2345];
    let x = Tensor::from_slice(device, &bits.map(f32::from_bits), &[2, 3]).unwrap();
    let found: Vec<u32> = transpose(&x).unwrap().read().unwrap().into_iter().map(f32::to_bits).collect();
    assert_eq!(found, [0, 3, 1, 4, 2, 5].map(|place: usize| bits[place]));
}

/// The part does not start at the device's alignment.
fn rows_of_a_tensor(device: &Device) {
    let x: Vec<f32> = (0..70 * 3).map(|i| i as f32).collect();
    let x = Tensor::from_slice(device, &x, &[70, 3]).unwrap();
    let part = x.rows(1..69).unwrap();
    let back = transpose(&transpose(&part).unwrap()).unwrap();
    assert_eq!(back.read().unwrap(), part.read().unwrap());
}

fn empty(device: &Device) {
    for shape in [[0, 0], [0, 5], [5, 0]] {
        let found = transpose(&Tensor::<f32>::zeros(device, &shape).unwrap()).unwrap();
        assert_eq!(found.shape(), [shape[1], shape[0]]);
    }
}

fn wrong_shapes(device: &Device) {
    for shape in [&[6][..], &[1, 2, 3]] {
        let found = transpose(&Tensor::<f32>::zeros(device, shape).unwrap());
        assert!(matches!(found, Err(Error::Shape { op: "transpose", .. })));
    }
    let found = transpose(&Tensor::<u8>::zeros(device, &[4, 4]).unwrap());
    assert!(matches!(found, Err(Error::Argument { op: "transpose", name: "x", .. })));
}

fn row_beyond_a_binding(device: &Device) {
    let most = device.limits().binding / 4;
    if most > 1 << 20 {
        return;
    }
    for shape in [[1, most + 1], [most + 1, 1]] {
        assert_err!(transpose(&Tensor::<f32>::zeros(device, &shape).unwrap()), Error::Limit { .. });
    }
}
