//! Tests of Gaussian filters, against sums straight from the definition.

use super::*;
use crate::{
    filter::{
        GaussianOptions, Mode, PerAxis, Rounding, SeparableOptions, gaussian, gaussian_into, separable,
    },
    kernels::WG,
};

device_tests! {
    every_type, modes_and_orders, sizes_around_the_tiles, empty, wrong_arguments;
    panels_are_the_whole, axes_in_any_place, weights_longer_than_the_axis, weights_far_longer_than_the_axis,
    weights_that_are_not_folded,
}

pub(super) const MODES: [Mode; 5] =
    [Mode::Reflect, Mode::Constant(1.5), Mode::Nearest, Mode::Mirror, Mode::Wrap];

/// Returns the index of the element at a coordinate, or None for the constant. Folds the coordinate back until it is within the array.
pub(super) fn source(mode: Mode, mut at: i64, n: i64) -> Option<usize> {
    while !(0..n).contains(&at) {
        at = match mode {
            Mode::Constant(_) => return None,
            Mode::Nearest => at.clamp(0, n - 1),
            Mode::Wrap if at < 0 => at + n,
            Mode::Wrap => at - n,
            Mode::Reflect if at < 0 => -1 - at,
            Mode::Reflect => 2 * n - 1 - at,
            Mode::Mirror if n == 1 => 0,
            Mode::Mirror if at < 0 => -at,
            Mode::Mirror => 2 * n - 2 - at,
        };
    }
    usize::try_from(at).ok()
}

/// Returns sums along one axis by the definition, with sums of magnitudes.
pub(super) fn correlate(
    x: &[Reference],
    shape: &[u64],
    axis: usize,
    weights: &[f64],
    mode: Mode,
) -> Vec<Reference> {
    let n = shape[axis] as i64;
    let inner = shape[axis + 1..].iter().product::<u64>() as usize;
    let radius = weights.len() as i64 / 2;
    let constant = if let Mode::Constant(constant) = mode { constant } else { 0.0 };
    let sum = |place: usize| {
        let at = (place / inner) as i64 % n;
        let first = place - at as usize * inner;
        let mut sum = Reference::default();
        for (tap, weight) in (-radius..=radius).zip(weights) {
            let x = source(mode, at + tap, n)
                .map_or(Reference::from(constant), |source| x[first + source * inner]);
            sum.value += weight * x.value;
            sum.magnitude += weight.abs() * x.magnitude;
        }
        sum
    };
    (0..x.len()).map(sum).collect()
}

/// Returns the normalised Gaussian at whole offsets from its centre, or its derivatives by Hermite polynomials, for a correlation.
fn weights(sigma: f64, order: u32, radius: i32) -> Vec<f64> {
    let density = |x: i32| (-f64::from(x * x) / (2.0 * sigma * sigma)).exp();
    let sum: f64 = (-radius..=radius).map(density).sum();
    let polynomial = |x: f64| {
        let t = x / sigma;
        let hermite = match order {
            0 => 1.0,
            1 => t,
            2 => t * t - 1.0,
            _ => t * t * t - 3.0 * t,
        };
        hermite / sigma.powi(order as i32)
    };
    // The derivative's sign (-1)^order cancels with the sign from reversing weights for a correlation.
    (-radius..=radius).map(|x| polynomial(f64::from(x)) * density(x) / sum).collect()
}

/// A filter: sigma, order and mode of each axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<const N: usize> {
    shape: [u64; N],
    sigma: [f64; N],
    order: [u32; N],
    mode: [Mode; N],
}

impl<const N: usize> Case<N> {
    pub(super) fn new(shape: [u64; N], sigma: [f64; N], order: [u32; N], mode: [Mode; N]) -> Self {
        Self { shape, sigma, order, mode }
    }

    pub(super) fn options(&self, device: &Device) -> GaussianOptions {
        GaussianOptions {
            order: PerAxis::Each(self.order.to_vec()),
            mode: PerAxis::Each(self.mode.to_vec()),
            narrow: !device.limits().f64,
            ..GaussianOptions::default()
        }
    }

    pub(super) fn oracle<T: Sample>(&self, x: &[T]) -> Vec<Reference> {
        let mut sums: Vec<Reference> = x.iter().map(|x| x.value().into()).collect();
        for (axis, &sigma) in self.sigma.iter().enumerate().filter(|(_, sigma)| **sigma > 0.0) {
            let weights = weights(sigma, self.order[axis], (4.0 * sigma + 0.5) as i32);
            sums = correlate(&sums, &self.shape, axis, &weights, self.mode[axis]);
        }
        sums
    }

    /// Returns the documented tolerance.
    fn tolerance(&self, wide: bool) -> f64 {
        let terms: f64 = self.sigma.iter().map(|sigma| (4.0 * sigma + 0.5).floor() + 4.0).sum();
        if wide { terms / (1u64 << 52) as f64 } else { terms / (1 << 23) as f64 }
    }
}

fn is_wide<T: Element, U: Element>(device: &Device) -> bool {
    let wide = [DType::F64, DType::I32, DType::U32];
    device.limits().f64 && (wide.contains(&T::DTYPE) || wide.contains(&U::DTYPE))
}

/// Checks outputs in f32, in f64 (if sums are in f64), and in the type itself.
fn check<T: Sample, const N: usize>(device: &Device, seed: u32, case: Case<N>) {
    let x: Vec<T> = values(seed, case.shape.iter().product());
    let tx = Tensor::from_slice(device, &x, &case.shape).unwrap();
    let expected = case.oracle(&x);
    let options = case.options(device);
    let what = format!("{:?} {case:?}", T::DTYPE);
    let wide = is_wide::<T, f64>(device);
    let out: Tensor<f64> = gaussian(&tx, case.sigma.to_vec(), &options).unwrap();
    let out = out.read().unwrap();
    for (i, (out, expected)) in out.iter().zip(&expected).enumerate() {
        let error = (out - expected.value).abs();
        let bound = case.tolerance(wide) * expected.magnitude;
        assert!(error <= bound, "{what} [{i}]: {out} for {}", expected.value);
    }
    let out: Tensor<f32> = gaussian(&tx, case.sigma.to_vec(), &options).unwrap();
    assert_close(&what, &out.read().unwrap(), &expected, case.tolerance(false));
    let out: Tensor<T> = gaussian(&tx, case.sigma.to_vec(), &options).unwrap();
    let unit = match T::DTYPE {
        DType::F16 => 1.0 / 2048.0,
        DType::BF16 => 1.0 / 256.0,
        _ => 0.0,
    };
    let (least, most) = bounds(T::DTYPE);
    for (i, (out, expected)) in out.read().unwrap().iter().zip(&expected).enumerate() {
        let (out, value) = (out.value(), expected.value.clamp(least, most));
        let rounding =
            if least < most && least.is_finite() { 0.5 } else { unit * value.abs() + 1e-7 * unit.signum() };
        let error = (out - value).abs();
        let bound = rounding + case.tolerance(is_wide::<T, T>(device)) * expected.magnitude;
        assert!(error <= bound, "{what} [{i}]: {out} for {value}");
    }
}

/// Returns the bounds of an integer type.
fn bounds(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::U16 => (0.0, 65535.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::U32 => (0.0, f64::from(u32::MAX)),
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    }
}

fn every_type(device: &Device) {
    fn with<T: Sample>(device: &Device) {
        let mode = [Mode::Reflect, Mode::Constant(2.0), Mode::Wrap];
        check::<T, _>(device, 60, Case::new([5, 7, 35], [0.5, 0.7, 1.0], [0; 3], mode));
        let mode = [Mode::Reflect, Mode::Constant(2.0)];
        check::<T, _>(device, 61, Case::new([19, 33], [1.5, 0.3], [1, 0], mode));
    }
    for_each_type!(with(device));
}

fn modes_and_orders(device: &Device) {
    for (i, mode) in MODES.into_iter().enumerate() {
        let next = MODES[(i + 1) % MODES.len()];
        for order in [[0, 0], [1, 2], [2, 0], [3, 1]] {
            let case = Case::new([18, 35], [1.0, 0.8], order, [mode, next]);
            check::<f32, _>(device, 62, case);
        }
        check::<i16, _>(device, 63, Case::new([6, 5, 9], [0.6, 1.2, 0.9], [0; 3], [mode; 3]));
    }
}

/// A workgroup computes 8 rows or more of strips of some hundred elements, the cpu 4 rows and 64 elements of a line; a word holds up to 4 elements.
fn sizes_around_the_tiles(device: &Device) {
    for [rows, columns] in [[1, 1], [1, 70], [2, 31], [15, 32], [16, 33], [17, 64], [33, 65], [5, 3]] {
        let case = Case::new([rows, columns], [0.8, 1.1], [0; 2], [Mode::Reflect; 2]);
        check::<f32, _>(device, 64, case);
        check::<u8, _>(device, 65, case);
    }
    for n in [1, 2, 63, 64, 65, 1030] {
        check::<f32, _>(device, 66, Case::new([n], [2.0], [0], [Mode::Mirror]));
    }
    // The radius is 13: each axis has a pass of its own if a workgroup has the least memory.
    check::<f32, _>(device, 67, Case::new([40, 50], [3.2, 3.3], [0; 2], [Mode::Nearest; 2]));
}

fn weights_longer_than_the_axis(device: &Device) {
    for mode in MODES {
        check::<f32, _>(device, 68, Case::new([3, 2, 5], [3.0, 2.0, 4.0], [0; 3], [mode; 3]));
        check::<u8, _>(device, 69, Case::new([1, 7], [2.0, 6.0], [0; 2], [mode; 2]));
        // Radii are many times the axis, equal to it, or close to it.
        for (n, sigma) in [(6, 40.0), (7, 40.0), (8, 2.0), (9, 2.0), (7, 2.0), (2, 5.0), (1, 5.0)] {
            for order in [0, 1, 2] {
                let case = Case::new([n, 5], [sigma, 0.5], [order, 0], [mode; 2]);
                check::<f64, _>(device, 70, case);
                check::<f32, _>(device, 71, case);
            }
        }
    }
}

/// With scipy's rounding, taps reach beyond an axis several times, to coordinates that are whole periods away. Sums are of whole numbers.
fn weights_that_are_not_folded(device: &Device) {
    let taps: Vec<f64> = (1..=23).map(f64::from).collect();
    for mode in MODES.map(|mode| if let Mode::Constant(_) = mode { Mode::Constant(2.0) } else { mode }) {
        let options = SeparableOptions::default().mode(mode).rounding(Rounding::Scipy);
        let options = options.narrow(!device.limits().f64);
        for (n, axis) in (1..=4).flat_map(|n| [(n, 0), (n, 1)]) {
            let shape = if axis == 0 { [n, 5] } else { [5, n] };
            let x: Vec<i16> = (0..5 * n).map(|i| (i * i % 7) as i16).collect();
            let tensor = Tensor::from_slice(device, &x, &shape).unwrap();
            let out: Tensor<i16> =
                separable(&tensor, [taps.clone()], &options.clone().axes(vec![axis])).unwrap();
            let x: Vec<Reference> = x.iter().map(|&x| f64::from(x).into()).collect();
            let expected = correlate(&x, &shape, axis, &taps, mode).into_iter().map(|sum| sum.value);
            assert!(out.read().unwrap().into_iter().map(f64::from).eq(expected), "{mode:?}, {n}, {axis}");
        }
    }
}

/// Weights span the axis hundreds of thousands of times, so they are folded: otherwise each output would sum two million products.
fn weights_far_longer_than_the_axis(device: &Device) {
    let x: Vec<f32> = values(72, 4096);
    let x = Tensor::from_slice(device, &x, &[512, 8]).unwrap();
    for (mode, mean) in [(Mode::Reflect, true), (Mode::Wrap, true), (Mode::Constant(0.0), false)] {
        let options = GaussianOptions::default().mode(mode).axes(vec![1]);
        let blurred: Tensor<f32> = gaussian(&x, 250_000.0, &options).unwrap();
        let (x, blurred) = (x.read().unwrap(), blurred.read().unwrap());
        for (x, blurred) in x.chunks(8).zip(blurred.chunks(8)) {
            let expected = if mean { x.iter().sum::<f32>() / 8.0 } else { 0.0 };
            let is_near = blurred.iter().all(|value| (value - expected).abs() < 2e-5);
            assert!(is_near, "{mode:?}: {blurred:?} of {x:?}");
        }
    }
}

/// Unfiltered axes are first, in between, last and short, or last and long.
fn axes_in_any_place(device: &Device) {
    let r = Mode::Reflect;
    for (shape, sigma) in [
        ([3, 6, 7, 9], [0.0, 0.7, 0.5, 0.6]),
        ([4, 5, 6, 20], [0.8, 0.0, 0.7, 0.9]),
        ([5, 6, 7, 3], [0.6, 0.7, 0.5, 0.0]),
        ([3, 4, 9, 5], [0.6, 0.7, 0.5, 0.0]),
        ([3, 4, 5, 12], [0.6, 0.7, 0.5, 0.0]),
        ([4, 5, 6, 33], [0.5, 0.8, 0.7, 0.0]),
        ([4, 5, 6, 17], [0.0, 0.8, 0.0, 0.0]),
        ([4, 5, 6, 7], [0.9, 0.6, 0.5, 0.7]),
        ([4, 5, 6, 7], [0.0, 0.0, 0.0, 0.0]),
    ] {
        check::<f32, _>(device, 70, Case::new(shape, sigma, [0; 4], [r; 4]));
        check::<i16, _>(device, 71, Case::new(shape, sigma, [0; 4], [r; 4]));
    }
}

/// Arrays are larger than a binding of the devices with low limits, so they are filtered in panels.
fn panels_are_the_whole(device: &Device) {
    fn check<T: Sample>(device: &Device, shape: &[u64], sigma: f64, bound: f64) {
        let x: Vec<T> = values(81, shape.iter().product());
        let on = |device: &Device| {
            let x = Tensor::from_slice(device, &x, shape).unwrap();
            let options = GaussianOptions::default().mode(Mode::Mirror).narrow(true);
            gaussian::<T, T>(&x, sigma, &options).unwrap().read().unwrap()
        };
        let (got, expected) = (on(device), on(cpu()));
        let far = got.iter().zip(&expected).filter(|(a, b)| (a.value() - b.value()).abs() > bound).count();
        assert_eq!(far, 0, "{shape:?}");
        if device.info().name == "cpu" {
            assert_eq!(got, expected, "{shape:?}");
        }
    }
    check::<f32>(device, &[9, 40, 70], 0.6, 1e-5);
    check::<f32>(device, &[150, 161], 1.0, 1e-5);
    check::<f32>(device, &[150, 161], 3.5, 1e-5);
    check::<f32>(device, &[30_001], 2.0, 1e-5);
    // Panels share words. In a rounding tie, devices may choose either of two integers.
    check::<u8>(device, &[300, 251], 1.0, 1.0);
    // A second panel would begin within a word, in rows that do and do not end with a whole word.
    let room = device.limits().room();
    if room < 1 << 20 {
        let radius = (1..).find(|radius| (room - 2 * radius) % 4 == 2).unwrap();
        for more in [4 * u64::from(WG), 4 * u64::from(WG) + 2] {
            check::<u8>(device, &[room - 2 * radius + more], radius as f64 / 4.0, 1.0);
        }
    }
}

fn empty(device: &Device) {
    for shape in [&[0][..], &[0, 3], &[3, 0], &[2, 0, 5], &[1, 2, 3, 0]] {
        let x = Tensor::<f32>::zeros(device, shape).unwrap();
        let out: Tensor<f32> = gaussian(&x, 1.0, &GaussianOptions::default()).unwrap();
        assert_eq!((out.shape(), out.len()), (shape, 0));
    }
}

#[track_caller]
fn refused(result: Result<Tensor<f32>>, argument: &str) {
    match result.unwrap_err() {
        Error::Argument { op: "gaussian", name, why } => assert_eq!(name, argument, "{why}"),
        error => panic!("{error}"),
    }
}

fn wrong_arguments(device: &Device) {
    let x = Tensor::<f32>::zeros(device, &[3, 4]).unwrap();
    let plain = GaussianOptions::default();
    for sigma in [-1.0, f64::NAN, f64::INFINITY] {
        refused(gaussian(&x, sigma, &plain), "sigma");
        refused(gaussian(&x, [1.0, sigma], &plain), "sigma");
        refused(gaussian(&x, 1.0, &GaussianOptions { truncate: sigma, ..plain.clone() }), "truncate");
    }
    refused(gaussian(&x, [1.0; 3], &plain), "sigma");
    refused(gaussian(&x, 1.0, &GaussianOptions { order: [0; 3].into(), ..plain.clone() }), "order");
    refused(gaussian(&x, 1.0, &GaussianOptions { order: 101.into(), ..plain.clone() }), "order");
    refused(gaussian(&x, 1.0, &GaussianOptions { mode: [Mode::Wrap; 1].into(), ..plain.clone() }), "mode");
    refused(gaussian(&x, 1.0, &GaussianOptions { radius: Some([1; 5].into()), ..plain.clone() }), "radius");
    for axes in [vec![2], vec![0, 0]] {
        refused(gaussian(&x, 1.0, &GaussianOptions { axes: Some(axes), ..plain.clone() }), "axes");
    }
    refused(gaussian(&x, 1e-12, &GaussianOptions { order: 60.into(), ..plain.clone() }), "sigma");
    assert!(matches!(gaussian::<_, f32>(&x, 1e9, &plain), Err(Error::Limit { .. })));
    // The seventh row of outputs needs 17 consecutive rows of 4,000 bytes, the first such group that does not fit a binding.
    if device.limits().binding <= 64 << 10 {
        let options = GaussianOptions { radius: Some([10, 1].into()), ..plain.clone() };
        let rows = gaussian::<_, f32>(&Tensor::<f32>::zeros(device, &[40, 1000]).unwrap(), 1.0, &options);
        assert!(matches!(rows, Err(Error::Limit { requested: 68_000, .. })));
    }
    let other: Result<Tensor<u8>> = gaussian(&x, 1.0, &plain);
    assert!(matches!(other, Err(Error::Argument { name: "out", .. })));
    for shape in [&[][..], &[1; 6]] {
        let x = Tensor::<f32>::zeros(device, shape).unwrap();
        assert!(matches!(gaussian::<_, f32>(&x, 1.0, &plain), Err(Error::Shape { op: "gaussian", .. })));
    }
    let mut out = Tensor::<f32>::zeros(device, &[4, 3]).unwrap();
    assert!(matches!(gaussian_into(&x, 1.0, &plain, &mut out), Err(Error::Shape { op: "gaussian", .. })));
    let x = Tensor::<f64>::zeros(device, &[3]).unwrap();
    let result = gaussian::<_, f32>(&x, 1.0, &plain);
    assert_eq!(matches!(result, Err(Error::NoF64 { op: "gaussian", .. })), !device.limits().f64);
    let mut out = Tensor::<f64>::zeros(cpu(), &[3]).unwrap();
    let result = gaussian_into(&x, 1.0, &plain, &mut out);
    assert_eq!(matches!(result, Err(Error::WrongDevice { name: "out", .. })), !device.shares_host_memory());
}
