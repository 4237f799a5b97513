//! Tests of properties of filters on any array: flips, constants, ends of axes, elements far from zero.

use super::filter::{Case, MODES, source};
use super::*;
use crate::{
    filter::{
        GaussianOptions, Mode, Rounding, SeparableOptions, gaussian, gaussian_gradient_magnitude,
        gaussian_laplace, separable,
        taps::{Gaussian, Taps},
    },
    kernels::correlate::Edge,
};

device_tests! {
    of_a_flip_the_flip;
    constants_stay, ties_are_even, truncated_after_each_axis,
    not_finite_at_the_ends, within_2e_6_of_the_range,
    far_from_zero, means_stay_within, differences_beyond_the_type, gradients_of_any_magnitude,
}

const SHAPE: [u64; 3] = [5, 19, 35];
const SIGMA: [f64; 3] = [0.6, 1.1, 0.8];

fn filtered(device: &Device, x: &[f32], order: [u32; 3], mode: Mode) -> Vec<f32> {
    let x = Tensor::from_slice(device, x, &SHAPE).unwrap();
    let options = Case::new(SHAPE, SIGMA, order, [mode; 3]).options(device);
    gaussian::<f32, f32>(&x, SIGMA, &options).unwrap().read().unwrap()
}

/// Returns an array reversed along an axis.
fn flipped(x: &[f32], axis: usize) -> Vec<f32> {
    let inner = SHAPE[axis + 1..].iter().product::<u64>() as usize;
    let lines = x.chunks(inner * SHAPE[axis] as usize);
    lines.flat_map(|line| line.chunks(inner).rev().flatten().copied()).collect()
}

/// Filtering a flipped array gives the flipped result to the bit, negated for derivatives of odd order.
fn of_a_flip_the_flip(device: &Device) {
    let x: Vec<f32> = values(90, SHAPE.iter().product());
    for (axis, order, mode) in [
        (0, [1, 2, 0], Mode::Mirror),
        (1, [0, 3, 1], Mode::Wrap),
        (2, [2, 0, 1], Mode::Nearest),
        (2, [0, 0, 2], Mode::Constant(1.5)),
    ] {
        let sign = if order[axis] % 2 == 1 { -1.0 } else { 1.0 };
        let expected: Vec<f32> =
            flipped(&filtered(device, &x, order, mode), axis).into_iter().map(|x| sign * x).collect();
        let got = filtered(device, &flipped(&x, axis), order, mode);
        assert!(got == expected, "{axis} {order:?} {mode:?}");
    }
}

/// Constants stay constant in each mode except `Constant` with another value; weights reach beyond the first axis.
fn constants_stay(device: &Device) {
    fn check<T: Sample>(device: &Device, constants: [T; 3]) {
        for (i, constant) in constants.into_iter().enumerate() {
            for mode in MODES.into_iter().filter(|mode| !matches!(mode, Mode::Constant(_))) {
                let x = Tensor::from_slice(device, &[constant; 3 * 40], &[3, 40]).unwrap();
                let options = GaussianOptions { mode: mode.into(), ..GaussianOptions::default() };
                let out: Tensor<T> = gaussian(&x, [2.5, 0.7 + i as f64], &options).unwrap();
                assert!(out.read().unwrap() == [constant; 3 * 40], "{constant:?} {mode:?}");
            }
        }
    }
    check::<u8>(device, [0, 13, 255]);
    check::<i8>(device, [-128, 7, 127]);
    check::<u16>(device, [1, 40_001, 65_535]);
    check::<i16>(device, [-32_768, -13, 32_767]);
    if device.limits().f64 {
        check::<i32>(device, [i32::MIN, 1_000_000_007, i32::MAX]);
    }
}

/// Halves of integers are rounded to even.
fn ties_are_even(device: &Device) {
    fn check<T: Sample>(device: &Device) {
        let x: Vec<T> = values(94, 301);
        let tx = Tensor::from_slice(device, &x, &[301]).unwrap();
        let out: Tensor<T> = separable(&tx, [vec![0.5]], &SeparableOptions::default()).unwrap();
        let expected = x.iter().map(|x| (0.5 * x.value()).round_ties_even());
        assert!(out.read().unwrap().into_iter().map(Sample::value).eq(expected), "{:?}", T::DTYPE);
    }
    check::<u8>(device);
    check::<i8>(device);
    check::<u16>(device);
    check::<i16>(device);
    if device.limits().f64 {
        check::<u32>(device);
        check::<i32>(device);
    }
}

/// As in scipy, filtering a volume along all axes equals filtering along each axis in turn.
fn truncated_after_each_axis(device: &Device) {
    // Lines are whole words, which wgpu and CUDA filter along all axes at once.
    let shape = [5, 19, 36];
    let x = Tensor::from_slice(device, &values::<i16>(95, shape.iter().product()), &shape).unwrap();
    let along = |x: &Tensor<i16>, axes: &[usize]| -> Tensor<i16> {
        let options = GaussianOptions {
            axes: Some(axes.to_vec()),
            rounding: Rounding::Scipy,
            narrow: !device.limits().f64,
            ..GaussianOptions::default()
        };
        gaussian(x, axes.iter().map(|&axis| SIGMA[axis]).collect::<Vec<_>>(), &options).unwrap()
    };
    let all = along(&x, &[0, 1, 2]).read().unwrap();
    assert!(all == along(&along(&along(&x, &[0]), &[1]), &[2]).read().unwrap());
}

/// NaN and infinity spread as far as the weights reach: in volumes, and across the ends of axes by the mode.
fn not_finite_at_the_ends(device: &Device) {
    const SHAPE: [u64; 3] = [4, 6, 9];
    const RADIUS: [i64; 3] = [1, 2, 3];
    let places = || (0..4u64).flat_map(|z| (0..6).flat_map(move |y| (0..9).map(move |x| [z, y, x])));
    let all = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for (mode, bad) in MODES.into_iter().flat_map(|mode| all.map(|bad| (mode, bad))) {
        for at in [[0, 0, 0], [3, 5, 8], [0, 3, 8], [1, 2, 4]] {
            let x: Vec<f32> = places().map(|place| if place == at { bad } else { 1.0 }).collect();
            let x = Tensor::from_slice(device, &x, &SHAPE).unwrap();
            let options =
                GaussianOptions { mode: mode.into(), radius: Some([1, 2, 3].into()), ..Default::default() };
            let out: Tensor<f32> = gaussian(&x, 1.5, &options).unwrap();
            for (place, out) in places().zip(out.read().unwrap()) {
                let meets = |axis: usize| {
                    let from = |tap| source(mode, place[axis] as i64 + tap, SHAPE[axis] as i64);
                    (-RADIUS[axis]..=RADIUS[axis]).any(|tap| from(tap) == Some(at[axis] as usize))
                };
                let near = (0..3).all(meets);
                let right =
                    if near { out.is_nan() == bad.is_nan() && !out.is_finite() } else { out.is_finite() };
                assert!(right, "{mode:?} {bad} at {at:?}: {out} at {place:?}");
            }
        }
    }
}

/// Compares Gaussians of each sigma and each order with the definition. From the order and the exact results, `bounds` makes the bound of each error.
fn compare<const N: usize, B: Fn(&Reference) -> f64>(
    device: &Device,
    x: &[f32],
    shape: [u64; N],
    sigmas: [f64; 2],
    orders: &[[u32; N]],
    bounds: impl Fn([u32; N], &[Reference]) -> B,
) {
    let tx = Tensor::from_slice(device, x, &shape).unwrap();
    for (sigma, &order) in sigmas.into_iter().flat_map(|sigma| orders.iter().map(move |order| (sigma, order)))
    {
        let case = Case::new(shape, [sigma; N], order, [Mode::Reflect; N]);
        let options = GaussianOptions { order: order.into(), ..GaussianOptions::default() };
        let out: Tensor<f32> = gaussian(&tx, sigma, &options).unwrap();
        let exact = case.oracle(x);
        let bound = bounds(order, &exact);
        for (out, exact) in out.read().unwrap().into_iter().zip(&exact) {
            let (off, most) = ((f64::from(out) - exact.value).abs(), bound(exact));
            assert!(off <= most, "{sigma} {order:?}: {out} for {}, and the bound is {most}", exact.value);
        }
    }
}

/// Returns the difference between the largest and the least of these numbers.
fn range(x: impl Iterator<Item = f64> + Clone) -> f64 {
    x.clone().fold(f64::MIN, f64::max) - x.fold(f64::MAX, f64::min)
}

/// In f32, for elements on one side of 0, errors are relative to the input's range; for derivatives, to the output's range.
fn within_2e_6_of_the_range(device: &Device) {
    let x: Vec<f32> = values::<u16>(99, 90 * 70).into_iter().map(f32::from).collect();
    compare(device, &x, [90, 70], [1.0, 10.0], &[[0, 0], [1, 0], [0, 2]], |order, exact| {
        // The input's range is almost all of 16 bits.
        let range = if order == [0, 0] { 65_000.0 } else { range(exact.iter().map(|exact| exact.value)) };
        move |_: &Reference| 2e-6 * range
    });
}

/// Elements are pressures in pascal: errors are relative to their range, and to the output.
fn far_from_zero(device: &Device) {
    let x: Vec<f32> = values::<f32>(97, 40 * 44).into_iter().map(|x| 101_325.0 + x / 4.0).collect();
    let range = range(x.iter().copied().map(f64::from));
    // Sigma 0.8 filters both axes at once, 3.3 one after another.
    let orders = [[0, 0], [0, 1], [1, 0], [0, 2], [2, 0], [1, 1]];
    compare(device, &x, [40, 44], [0.8, 3.3], &orders, |_, _| {
        move |exact: &Reference| {
            let gain = exact.magnitude / 101_325.0;
            2e-6 * range * gain + 2.0 * exact.value.abs() / f64::from(1 << 23)
        }
    });
}

/// A mean is between the least and the largest of its elements.
fn means_stay_within(device: &Device) {
    fn check<T: Sample + PartialOrd>(device: &Device, [least, most]: [T; 2]) {
        for (seed, sigma, truncate) in [(98, 0.7, 4.0), (100, 6.0, 4.0), (102, 3.75, 6.0)] {
            let noise: Vec<u8> = values(seed, 50 * 60);
            // Most elements have one value, or most the other, or a single element differs, whose weights are tiny far from it.
            let lone = |i: usize| i == 50 * 60 / 2 + 30;
            let is_least: [&dyn Fn(usize) -> bool; 5] =
                [&|i| noise[i] < 20, &|i| noise[i] < 128, &|i| noise[i] < 250, &lone, &|i| !lone(i)];
            for (pattern, is_least) in is_least.into_iter().enumerate() {
                let x: Vec<T> = (0..50 * 60).map(|i| if is_least(i) { least } else { most }).collect();
                let tx = Tensor::from_slice(device, &x, &[50, 60]).unwrap();
                let options = GaussianOptions { truncate, ..GaussianOptions::default() };
                let out: Tensor<T> = gaussian(&tx, sigma, &options).unwrap();
                let is_beyond = |out: &T| !(*out >= least && *out <= most);
                let beyond = out.read().unwrap().into_iter().find(is_beyond);
                assert!(beyond.is_none(), "{beyond:?} of {least:?} and {most:?}, {sigma} {pattern}");
            }
        }
    }
    check(device, [0.0f32, 1.0]);
    check(device, [101_325.1f32, 101_325.1]);
    check(device, [f32::MIN, f32::MIN]);
    check(device, [f32::MIN, 100.0]);
    check(device, [f32::MIN, f32::MAX]);
    if device.limits().f64 {
        check(device, [0.0f64, 1.0]);
        check(device, [0.1f64, 0.1]);
        check(device, [f64::MAX, f64::MAX]);
        check(device, [f64::MIN, f64::MAX]);
    }
}

/// Elements are the largest numbers, as fill values are: differences between elements are infinite, but results are not.
fn differences_beyond_the_type(device: &Device) {
    let bounds = |exact: &Reference| 2e-6 * exact.magnitude;
    let (shape, volume) = ([30, 36], [12, 14, 20]);
    compare(device, &beyond(&shape), shape, [1.0, 3.3], &[[0, 0], [1, 0], [0, 1]], |_, _| bounds);
    let orders = [[0, 0, 0], [1, 0, 0], [0, 0, 1]];
    compare(device, &beyond(&volume), volume, [1.0, 3.3], &orders, |_, _| bounds);
    // One derivative is added to the other.
    let x = beyond(&shape);
    let tx = Tensor::from_slice(device, &x, &shape).unwrap();
    let out: Tensor<f32> = gaussian_laplace(&tx, 3.3, &GaussianOptions::default()).unwrap();
    let [down, across] =
        [[2, 0], [0, 2]].map(|order| Case::new(shape, [3.3; 2], order, [Mode::Reflect; 2]).oracle(&x));
    for ((out, down), across) in out.read().unwrap().into_iter().zip(down).zip(across) {
        let off = (f64::from(out) - down.value - across.value).abs();
        let bound = 2e-6 * (down.magnitude + across.magnitude);
        assert!(off <= bound, "{out} for {} and {}", down.value, across.value);
    }
}

/// Returns elements whose differences exceed f32.
fn beyond(shape: &[u64]) -> Vec<f32> {
    let noise: Vec<u8> = values(101, shape.iter().product());
    noise.iter().map(|byte| [-3.4e38, 3e38, 250.0, -3.4e38][usize::from(byte % 4)]).collect()
}

/// Squares of large elements overflow and those of small ones underflow, but gradient magnitudes do not.
fn gradients_of_any_magnitude(device: &Device) {
    let shape = [14, 15, 16];
    let x: Vec<f32> = values::<u8>(104, shape.iter().product()).into_iter().map(f32::from).collect();
    let lengths = |exponent: i32| {
        let scale = 2.0f32.powi(exponent);
        let x: Vec<f32> = x.iter().map(|x| x * scale).collect();
        let tx = Tensor::from_slice(device, &x, &shape).unwrap();
        let out: Tensor<f32> = gaussian_gradient_magnitude(&tx, 1.0, &GaussianOptions::default()).unwrap();
        out.read().unwrap().into_iter().map(|length| length / scale).collect::<Vec<_>>()
    };
    let wanted = lengths(0);
    for exponent in [-90, -66, 60, 115] {
        for (length, wanted) in lengths(exponent).into_iter().zip(&wanted) {
            assert!((length - wanted).abs() <= 1e-6 * wanted, "2^{exponent}: {length} for {wanted}");
        }
    }
}

/// The rounding errors of f32 weights are added to the centre, so that weights add up to 1 except for the centre's rounding.
#[test]
fn weights_add_up() {
    for tenths in 3..200 {
        let sigma = f64::from(tenths) / 10.0;
        let radius = (4.0 * sigma + 0.5).floor();
        let weights = Gaussian { sigma, order: 0, radius }.weights("test").unwrap();
        let narrow = Taps::new(weights, Edge::Nearest, 0.0).narrow(true);
        let sum: f64 = narrow.iter().copied().map(f64::from).sum();
        let centre: f64 = narrow[narrow.len() / 2].into();
        assert!((sum - 1.0).abs() <= centre / f64::from(1 << 24), "{sigma}: {sum}");
    }
}
