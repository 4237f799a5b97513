//! Tests of sums, means, extremes and their indices along an axis.

use super::*;
use crate::{
    array::{any, argmax, argmin, max, mean, min, sum, sum_pairs},
    dtype::joined,
};

device_tests! {
    every_type, lengths_around_the_blocks, nan_and_infinity, first_of_equal_ones, far_from_zero, tiny_and_huge, constants,
    rows_within_a_word, parts_change_no_bit, more_columns_than_fit, pairs, nothing, refused;
    three_stages, past_the_largest_grid, more_terms_than_f32_counts,
}

/// The results of every operation on one line.
struct Line {
    sum: Reference,
    least: usize,
    most: usize,
    values: Vec<f64>,
}

impl Line {
    fn of(values: Vec<f64>) -> Self {
        let mut line = Self { sum: Reference::default(), least: 0, most: 0, values };
        let first_nan = line.values.iter().position(|x| x.is_nan());
        for (i, &value) in line.values.iter().enumerate() {
            line.sum.add(value);
            line.least = if value < line.values[line.least] { i } else { line.least };
            line.most = if value > line.values[line.most] { i } else { line.most };
        }
        if let Some(nan) = first_nan {
            (line.least, line.most) = (nan, nan);
        }
        line
    }
}

/// Returns the lines along an axis of an array in C order, in the order of the results.
fn lines<T: Sample>(x: &[T], shape: &[u64], axis: usize) -> Vec<Line> {
    let [outer, inner] =
        [&shape[..axis], &shape[axis + 1..]].map(|part| part.iter().product::<u64>() as usize);
    let len = shape[axis] as usize;
    let line = |o: usize, i: usize| (0..len).map(|l| x[(o * len + l) * inner + i].value()).collect();
    (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).map(|(o, i)| Line::of(line(o, i))).collect()
}

/// Asserts that the error is within the rounding of the result, and of the additions in f64 or in two f32.
#[track_caller]
fn assert_near<T: Element>(what: &str, device: &Device, found: f64, exact: Reference, len: usize) {
    if !exact.value.is_finite() {
        let same = found == exact.value || found.is_nan() && exact.value.is_nan();
        assert!(same, "{what}: {found}, not {}", exact.value);
        return;
    }
    let result = if T::DTYPE.is_wide() { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let addition = if device.limits().f64 { f64::EPSILON } else { 2f64.powi(-46) };
    let bound = result * exact.value.abs() + addition * len as f64 * exact.magnitude;
    assert!((found - exact.value).abs() <= bound, "{what}: {found:e}, not {:e}", exact.value);
}

fn same(a: f64, b: f64) -> bool {
    a == b || a.is_nan() && b.is_nan()
}

fn check_tensor<T: Sample>(tx: &Tensor<T>, x: &[T], axis: usize) {
    let (device, shape) = (tx.device(), tx.shape());
    let mut left = shape.to_vec();
    left.remove(axis);
    let what = format!("{:?} {shape:?} along {axis}", T::DTYPE);
    let lines = lines(x, shape, axis);
    let read = |made: Result<Tensor<T::Real>>| {
        let made = made.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(made.shape(), left, "{what}");
        made.read().unwrap().into_iter().map(Element::to_f64).collect::<Vec<_>>()
    };
    let (sums, means) = (read(sum(tx, axis)), read(mean(tx, axis)));
    let (least, most) = (read(min(tx, axis)), read(max(tx, axis)));
    let [lowest, highest] = [argmin(tx, axis), argmax(tx, axis)].map(|made| made.unwrap().read().unwrap());
    let some = any(tx, axis).unwrap();
    assert_eq!(some.shape(), left, "{what}");
    let some = some.read().unwrap();
    assert_eq!(lines.len(), sums.len(), "{what}");
    for (i, line) in lines.iter().enumerate() {
        let (what, len) = (format!("{what}: {i}"), line.values.len());
        assert_near::<T>(&format!("{what}, sum"), device, sums[i], line.sum, len);
        let [value, magnitude] = [line.sum.value, line.sum.magnitude].map(|part| part / len as f64);
        assert_near::<T>(&format!("{what}, mean"), device, means[i], Reference { value, magnitude }, len);
        assert_eq!((lowest[i] as usize, highest[i] as usize), (line.least, line.most), "{what}");
        let [a, b] = [line.least, line.most].map(|place| line.values[place]);
        let found = [least[i], most[i]];
        assert!(same(found[0], a) && same(found[1], b), "{what}: {found:?}, not {a} and {b}");
        let not_zero = line.values.iter().any(|&x| x != 0.0);
        assert_eq!(some[i], u8::from(not_zero), "{what}");
    }
}

fn check<T: Sample>(device: &Device, x: &[T], shape: &[u64]) {
    let tx = Tensor::from_slice(device, x, shape).unwrap();
    (0..shape.len()).for_each(|axis| check_tensor(&tx, x, axis));
}

fn every_type(device: &Device) {
    fn of<T: Sample>(device: &Device) {
        let shape = [3, 70, 5];
        let mut x = values::<T>(80, 3 * 70 * 5);
        if T::DTYPE.is_wide() && !device.limits().f64 {
            let tx = Tensor::from_slice(device, &x, &shape).unwrap();
            assert!(matches!(sum(&tx, 0), Err(Error::NoF64 { op: "sum", .. })));
            assert!(matches!(mean(&tx, 0), Err(Error::NoF64 { op: "mean", .. })));
            assert!(matches!(min(&tx, 1), Err(Error::NoF64 { op: "min", .. })));
            assert!(matches!(max(&tx, 1), Err(Error::NoF64 { op: "max", .. })));
            assert!(matches!(argmin(&tx, 2), Err(Error::NoF64 { op: "argmin", .. })));
            assert!(matches!(argmax(&tx, 2), Err(Error::NoF64 { op: "argmax", .. })));
            assert!(matches!(any(&tx, 2), Err(Error::NoF64 { op: "any", .. })));
            return;
        }
        check(device, &x, &shape);
        check(device, &values::<T>(81, 2 * 1100), &[2, 1100]);
        // One line is all zeros except a single number.
        let number = x[1];
        x[..1000].fill(bytemuck::Zeroable::zeroed());
        x[500] = number;
        check(device, &x, &shape);
    }
    for_each_type!(of(device));
}

fn lengths_around_the_blocks(device: &Device) {
    for n in [1, 2, 63, 64, 65, 127, 1023, 1024, 1025, 3000] {
        check(device, &values::<f32>(82, n), &[n]);
        check(device, &values::<i8>(83, 3 * n), &[3, n]);
        check(device, &values::<f32>(84, 3 * n), &[n, 3]);
        check(device, &values::<f16>(85, 4 * n), &[2, n, 2]);
    }
}

fn nan_and_infinity(device: &Device) {
    fn of<T: Sample>(device: &Device, [nan, plus, minus]: [T; 3]) {
        let n = 1500;
        for shape in [[6, n], [n, 6]] {
            let mut x = values::<T>(86, 6 * n);
            let at = |line: u64, i: u64| {
                let place = if shape[1] == n { line * n + i } else { i * 6 + line };
                place as usize
            };
            (x[at(0, 700)], x[at(0, 1200)]) = (nan, nan);
            x[at(1, 1499)] = plus;
            x[at(2, 3)] = minus;
            (x[at(3, 5)], x[at(3, 1300)]) = (plus, minus);
            (x[at(4, 0)], x[at(4, 1025)]) = (plus, nan);
            check(device, &x, &shape);
        }
        // No element is greater or less than the others.
        check(device, &[minus; 5], &[5]);
        check(device, &[plus; 5], &[5]);
        check(device, &[nan, minus, nan], &[3]);
    }
    of(device, [f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
    of(device, [-f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
    of(device, [f16::NAN, f16::INFINITY, f16::NEG_INFINITY]);
    if device.limits().f64 {
        of(device, [f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    }
}

fn first_of_equal_ones(device: &Device) {
    let n = 2500;
    let x: Vec<u8> = (0..n).map(|i| [3, 1, 4, 1, 4][i as usize % 5]).collect();
    check(device, &x, &[n]);
    check(device, &x, &[n / 2, 2]);
    let zeros: Vec<f32> = (0..n).map(|i| if i % 2 == 0 { -0.0 } else { 0.0 }).collect();
    check(device, &zeros, &[n]);
    let x = Tensor::from_slice(device, &[-0.0f32, 0.0, 0.0, -0.0], &[2, 2]).unwrap();
    for found in [min(&x, 1), max(&x, 1)] {
        assert_eq!(bits(&found.unwrap().read().unwrap()), [0x8000_0000, 0]);
    }
    // Devices may flush these values to 0 when they compute.
    let least = [3e-45f32, 1e-45, 6e-45, 1e-45];
    let x = Tensor::from_slice(device, &least, &[4]).unwrap();
    let places = [argmin(&x, 0), argmax(&x, 0)].map(|found| found.unwrap().read().unwrap()[0]);
    assert_eq!((places, any(&x, 0).unwrap().read().unwrap()[0]), ([1, 2], 1));
    assert_eq!(bits(&min(&x, 0).unwrap().read().unwrap()), [least[1].to_bits()]);
}

fn far_from_zero(device: &Device) {
    let n = 3000;
    let x: Vec<f32> = values::<f32>(87, 2 * n).iter().map(|x| 1e6 + x).collect();
    check(device, &x, &[2, n]);
    check(device, &x, &[n, 2]);
    // A single f32 would lose the digits that remain after cancellation.
    let x: Vec<f32> = (0..n).map(|i| if i % 2 == 0 { 1e8 } else { -1e8 } + (i % 7) as f32 * 8.0).collect();
    check(device, &x, &[n]);
}

fn tiny_and_huge(device: &Device) {
    for scale in [1e-30, 1e-10, 1e10, 1e34] {
        let x: Vec<f32> = values::<f32>(88, 2000).iter().map(|x| scale * x).collect();
        check(device, &x, &[2000]);
        check(device, &x, &[1000, 2]);
    }
    let x = Tensor::from_slice(device, &[3e38f32, 3e38, -3e38, -3e38], &[2, 2]).unwrap();
    assert_eq!(sum(&x, 1).unwrap().read().unwrap(), [f32::INFINITY, f32::NEG_INFINITY]);
    assert_eq!(sum(&x, 0).unwrap().read().unwrap(), [0.0, 0.0]);
    let beyond = if device.limits().f64 { 3e38 } else { f32::INFINITY };
    assert_eq!(mean(&x, 1).unwrap().read().unwrap(), [beyond, -beyond]);
}

/// The mean of equal numbers is that number, and whole numbers are added exactly.
fn constants(device: &Device) {
    for n in [3u64, 7, 1000, 2049] {
        let number = 0.1f32;
        let x = Tensor::from_slice(device, &vec![number; n as usize], &[n]).unwrap();
        assert_eq!(mean(&x, 0).unwrap().read().unwrap(), [number], "{n}");
        let x = Tensor::from_slice(device, &vec![255u8; 3 * n as usize], &[n, 3]).unwrap();
        assert_eq!(sum(&x, 0).unwrap().read().unwrap(), [255.0 * n as f32; 3], "{n}");
    }
}

/// The nearest f32 of the number of terms is one more than that number.
fn more_terms_than_f32_counts(device: &Device) {
    let n = (1u64 << 24) + 3;
    let x = Tensor::from_slice(device, &vec![1u8; n as usize], &[n]).unwrap();
    assert_eq!(mean(&x, 0).unwrap().read().unwrap(), [1.0]);
}

fn rows_within_a_word(device: &Device) {
    fn of<T: Sample>(device: &Device) {
        let x = values::<T>(89, 9 * 1031);
        let tx = Tensor::from_slice(device, &x, &[9, 1031]).unwrap();
        let rows = tx.rows(1..4).unwrap();
        (0..2).for_each(|axis| check_tensor(&rows, &x[1031..4 * 1031], axis));
    }
    of::<u8>(device);
    of::<i16>(device);
    of::<f32>(device);
}

/// Rows have the same bits alone as together.
fn parts_change_no_bit(device: &Device) {
    for (n, inner) in [(1, 9), (50, 1), (1500, 1), (1500, 3), (20, 2000)] {
        let rows = 5;
        let x = values::<f32>(90, rows * n * inner);
        let tx = Tensor::from_slice(device, &x, &[rows, n, inner]).unwrap();
        let of = |x: &Tensor<f32>| {
            let mut found = bits(&sum(x, 1).unwrap().read().unwrap());
            found.extend(bits(&mean(x, 1).unwrap().read().unwrap()));
            found.extend(argmax(x, 1).unwrap().read().unwrap());
            found
        };
        let whole = of(&tx);
        for row in 0..rows {
            let width = inner as usize;
            let expected = whole.chunks(width).skip(row as usize).step_by(rows as usize).flatten();
            assert!(of(&tx.rows(row..row + 1).unwrap()).iter().eq(expected), "({n}, {inner}) {row}");
        }
    }
}

/// On a device with low limits, a launch has part of a row.
fn more_columns_than_fit(device: &Device) {
    for (n, cols) in [(3, 20_000), (1030, 70), (40, 5000), (1, 20_000)] {
        let x = values::<f32>(92, n * cols);
        check_tensor(&Tensor::from_slice(device, &x, &[n, cols]).unwrap(), &x, 0);
        let x = values::<u8>(93, n * cols);
        check_tensor(&Tensor::from_slice(device, &x, &[n, cols]).unwrap(), &x, 0);
    }
}

fn pairs(device: &Device) {
    for extents in [[2, 1500, 3], [4, 100, 1], [1, 2100, 1], [3, 7, 5]] {
        let [outer, len, inner] = extents;
        let x: Vec<f32> = values::<f32>(94, outer * len * inner).iter().map(|x| 1e6 + x).collect();
        let tx = Tensor::from_slice(device, &x, &[outer * len * inner]).unwrap();
        let found = sum_pairs(&tx, extents).unwrap();
        assert_eq!(found.shape(), [outer * inner, 2]);
        let found = found.read().unwrap();
        for (pair, line) in found.as_chunks::<2>().0.iter().zip(lines(&x, &extents, 1)) {
            let error = (joined(pair, device.limits().f64) - line.sum.value).abs();
            let bound = if device.limits().f64 { f64::EPSILON } else { 2f64.powi(-46) };
            assert!(error <= bound * len as f64 * line.sum.magnitude, "{extents:?}: {error:e}");
        }
    }
    let nothing = Tensor::<f32>::zeros(device, &[0]).unwrap();
    assert_eq!(sum_pairs(&nothing, [2, 0, 1]).unwrap().read().unwrap(), [0.0; 4]);
}

fn nothing(device: &Device) {
    let rows = Tensor::<f32>::zeros(device, &[3, 0]).unwrap();
    let refused = |error: Error, name: &str, why: &str| {
        assert!(matches!(&error, Error::Argument { op, name: "x", .. } if *op == name), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(mean(&rows, 1).unwrap_err(), "mean", "the mean of nothing");
    refused(min(&rows, 1).unwrap_err(), "min", "no extreme");
    refused(max(&rows, 1).unwrap_err(), "max", "no extreme");
    refused(argmin(&rows, 1).unwrap_err(), "argmin", "no extreme");
    refused(argmax(&rows, 1).unwrap_err(), "argmax", "no extreme");
}

fn refused(device: &Device) {
    let x = Tensor::<u8>::zeros(device, &[2, 3]).unwrap();
    assert_err!(sum(&x, 2), Error::Argument { op: "sum", name: "axis", .. });
    let number = Tensor::<f32>::zeros(device, &[]).unwrap();
    assert_err!(argmin(&number, 0), Error::Argument { op: "argmin", name: "axis", .. });
    // The error for such a long axis comes before anything is computed; a tensor without elements takes no memory.
    let long = Tensor::<f32>::zeros(device, &[1 << 32, 0]).unwrap();
    assert!(matches!(argmax(&long, 0), Err(Error::Limit { requested: 0x1_0000_0000, .. })));
}

/// The axis is so long that blocks of blocks are reduced once more.
fn three_stages(device: &Device) {
    let n = 1_050_000;
    let mut x = values::<i8>(95, n);
    x[1_040_001] = -128;
    check(device, &x, &[n]);
    let x: Vec<f32> = values::<f32>(96, 2 * n).iter().map(|x| 1e3 + x).collect();
    check_tensor(&Tensor::from_slice(device, &x, &[n, 2]).unwrap(), &x, 0);
}

/// There are so many workgroups that a device with low limits splits the grid, whose last row is not full.
fn past_the_largest_grid(device: &Device) {
    let Some(axis) = low_groups_per_axis(device) else { return };
    let rows = axis + 401;
    let x = values::<u8>(97, rows * 65);
    let found = sum(&Tensor::from_slice(device, &x, &[rows, 65]).unwrap(), 1).unwrap().read().unwrap();
    let expected = x.chunks(65).map(|row| row.iter().map(|&x| f32::from(x)).sum::<f32>());
    assert!(expected.eq(found));
}
