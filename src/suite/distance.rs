//! Tests of distances between all pairs of observations.

use std::fmt::Arguments;

use super::{distance_on_device::compare, *};
use crate::distance::{Metric, Missing, Options, Partial, condensed, pairwise};

device_tests! {
    sizes_around_the_tiles, scipys, empty, refused;
    every_metric, far_and_near, angles, every_type, integers_beyond_f32, missing_elements, observations_in_columns, whole_numbers_are_exact, close_observations_stay_apart,
    what_has_no_distance, several_blocks, long_sums, equal_in_what_both_have,
}

pub(super) const RULES: [Missing; 4] =
    [Missing::Propagate, Missing::Ignore, Missing::Rescale, Missing::RescaleOrZero];

/// The features of each observation.
pub(super) type Rows = Vec<Vec<f64>>;

/// Returns each pair of observations of x and y, with its place.
pub(super) fn each_pair<'a>(x: &'a Rows, y: &'a Rows) -> impl Iterator<Item = ([usize; 2], [&'a [f64]; 2])> {
    let places = (0..x.len()).flat_map(move |i| (0..y.len()).map(move |j| [i, j]));
    places.map(move |[i, j]| ([i, j], [&x[i][..], &y[j][..]]))
}

pub(super) fn rows<T: Sample>(values: &[T], count: u64) -> Rows {
    let width = values.len().checked_div(usize::try_from(count).unwrap()).unwrap_or(0);
    (0..count as usize)
        .map(|row| values[row * width..][..width].iter().map(|x| x.value()).collect())
        .collect()
}

/// An expected distance, and the magnitude that its error is relative to; squared for metrics with a final square root.
pub(super) struct Expected {
    pub(super) value: f64,
    magnitude: f64,
    pub(super) squared: bool,
}

/// Computes a distance by its definition, in f64.
pub(super) fn expected(metric: Metric, x: &[f64], y: &[f64], options: &Options) -> Expected {
    let masked = options.missing != Missing::Propagate;
    let has = |v: f64| !(masked && (v.is_nan() || options.negative && v < 0.0));
    let pairs: Vec<(f64, f64)> =
        x.iter().copied().zip(y.iter().copied()).filter(|&(x, y)| has(x) && has(y)).collect();
    let sum = |term: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|&(x, y)| term(x, y)).sum::<f64>();
    let both = pairs.len() as f64;
    let rescale = match options.missing {
        Missing::Rescale | Missing::RescaleOrZero => x.len() as f64 / both,
        _ => 1.0,
    };
    let plain = |value: f64| Expected { value, magnitude: value.abs(), squared: false };
    let unit = |value: f64| Expected { value, magnitude: 1.0, squared: false };
    let is_nan = pairs.iter().any(|&(x, y)| x.is_nan() || y.is_nan());
    if is_nan || both == 0.0 && options.missing == Missing::Rescale {
        return plain(f64::NAN);
    }
    if both == 0.0 && options.missing == Missing::RescaleOrZero {
        return plain(0.0);
    }
    let one = |holds: bool| f64::from(u8::from(holds));
    let differ = || sum(&|x, y| one((x != 0.0) != (y != 0.0)));
    let shared = || sum(&|x, y| one(x != 0.0 && y != 0.0));
    let share = |part: f64, whole: f64| unit(if whole > 0.0 { part / whole } else { 0.0 });
    let angle = |x0: f64, y0: f64| {
        let [xy, xx, yy] =
            [sum(&|x, y| (x - x0) * (y - y0)), sum(&|x, _| (x - x0).powi(2)), sum(&|_, y| (y - y0).powi(2))];
        unit(if xx * yy > 0.0 { 1.0 - xy / (xx * yy).sqrt() } else { f64::NAN })
    };
    match metric {
        Metric::Euclidean => {
            let value = sum(&|x, y| (x - y).powi(2)) * rescale;
            Expected { value, magnitude: value, squared: true }
        }
        Metric::SqEuclidean => plain(sum(&|x, y| (x - y).powi(2)) * rescale),
        Metric::CityBlock => plain(sum(&|x, y| (x - y).abs()) * rescale),
        Metric::Chebyshev => plain(pairs.iter().map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)),
        Metric::Minkowski(p) => plain((sum(&|x, y| (x - y).abs().powf(p)) * rescale).powf(1.0 / p)),
        Metric::Cosine => angle(0.0, 0.0),
        Metric::Correlation => angle(sum(&|x, _| x) / both, sum(&|_, y| y) / both),
        Metric::InnerProduct => {
            let [value, magnitude] = [sum(&|x, y| x * y), sum(&|x, y| (x * y).abs())];
            Expected { value: value * rescale, magnitude: magnitude * rescale, squared: false }
        }
        Metric::Canberra => {
            let term = |x: f64, y: f64| if x == y { 0.0 } else { (x - y).abs() / (x.abs() + y.abs()) };
            plain(sum(&term) * rescale)
        }
        Metric::BrayCurtis => {
            let whole = sum(&|x, y| (x + y).abs());
            plain(if whole > 0.0 { sum(&|x, y| (x - y).abs()) / whole } else { f64::NAN })
        }
        Metric::Hamming => share(sum(&|x, y| one(x != y)), both),
        Metric::Jaccard => share(differ(), differ() + shared()),
        Metric::Dice => {
            let whole = differ() + 2.0 * shared();
            unit(if whole > 0.0 { differ() / whole } else { f64::NAN })
        }
        Metric::RussellRao => share(both - shared(), both),
        Metric::JensenShannon => {
            let (px, py) = (x.iter().sum::<f64>(), y.iter().sum::<f64>());
            let part = |p: f64, m: f64| if p > 0.0 { p * (p / m).ln() } else { 0.0 };
            let term = |x: f64, y: f64| {
                let (p, q) = (x / px, y / py);
                part(p, (p + q) / 2.0) + part(q, (p + q) / 2.0)
            };
            let value = sum(&term) / 2.0;
            Expected { value, magnitude: value, squared: true }
        }
        Metric::Hellinger => {
            let whole = sum(&|x, y| (x * y).sqrt());
            Expected { value: (1.0 - whole).max(0.0), magnitude: 1.0 + whole, squared: true }
        }
        Metric::KlDivergence => {
            let term = |x: f64, y: f64| match (x > 0.0, y > 0.0) {
                (true, true) => x * (x / y).ln(),
                (true, false) => x * x.ln(),
                _ => 0.0,
            };
            let size = |x: f64, y: f64| term(x, y).abs();
            Expected { value: sum(&term) / 2.0, magnitude: sum(&size), squared: false }
        }
    }
}

/// The relative error of a distance: about 2^-22 for terms, 2^-18 for powers, and little more for sums.
pub(super) const BOUND: f64 = 1.0 / (1 << 17) as f64;

/// The relative error of sums in f64 of a few hundred terms, here and in the definitions.
pub(super) const WIDE_BOUND: f64 = 1e-13;

pub(super) fn assert_within(bound: f64, what: Arguments<'_>, actual: f64, expected: &Expected) {
    let value = if expected.squared { actual * actual } else { actual };
    if expected.value.is_nan() {
        assert!(actual.is_nan(), "{what}: {actual} instead of NaN");
    } else {
        let error = (value - expected.value).abs();
        assert!(error <= bound * expected.magnitude, "{what}: {value} instead of {}", expected.value);
    }
}

/// Returns a tensor of observations and their features, as columns if `columns` is true.
pub(super) fn observations<T: Sample>(
    device: &Device,
    values: &[T],
    [count, k]: [u64; 2],
    columns: bool,
) -> Tensor<T> {
    if !columns {
        return Tensor::from_slice(device, values, &[count, k]).unwrap();
    }
    let place = |i: u64| ((i % count) * k + i / count) as usize;
    let turned: Vec<T> = (0..count * k).map(|i| values[place(i)]).collect();
    Tensor::from_slice(device, &turned, &[k, count]).unwrap()
}

/// Compares every pair with the definition, the condensed form with the square form, and distances that stay on the device with both.
pub(super) fn check<T: Sample>(
    device: &Device,
    metric: Metric,
    x: &[T],
    y: Option<&[T]>,
    extents: [u64; 3],
    options: &Options,
) {
    let [m, n, k] = extents;
    let tensor = |values: &[T], count: u64| observations(device, values, [count, k], options.columns);
    let (tx, ty) = (tensor(x, m), y.map(|y| tensor(y, n)));
    let is_narrow = options.narrow || matches!(T::DTYPE, DType::F32 | DType::F16 | DType::BF16);
    let bound = if device.limits().f64 && !is_narrow { WIDE_BOUND } else { BOUND };
    let run = Run::default();
    let distances = pairwise(&tx, ty.as_ref(), metric, options, &run).unwrap();
    assert_eq!([distances.rows(), distances.cols()], [m, n].map(|extent| extent as usize));
    let (rows_x, rows_y) = (rows(x, m), rows(y.unwrap_or(x), n));
    for ([i, j], [x, y_row]) in each_pair(&rows_x, &rows_y) {
        let what = format_args!("{metric:?} {:?} {m} {n} {k} {options:?} at {i}, {j}", T::DTYPE);
        let actual = distances.row(i)[j];
        assert_within(bound, what, actual, &expected(metric, x, y_row, options));
        if y.is_none() && metric.is_symmetric() {
            assert_eq!(actual.to_bits(), distances.row(j)[i].to_bits(), "{what}");
        }
        if y.is_none() && i == j && metric.is_zero_on_diagonal() {
            assert!(actual == 0.0 || actual.is_nan(), "{what}: {actual}");
        }
    }
    if y.is_none() && metric.is_symmetric() {
        let upper = (0..m as usize).flat_map(|i| distances.row(i)[i + 1..].to_vec());
        let condensed = condensed(&tx, metric, options, &run).unwrap();
        assert!(condensed.iter().map(|d| d.to_bits()).eq(upper.map(f64::to_bits)), "{metric:?}");
    }
    compare(&tx, ty.as_ref(), metric, options, &run, &distances);
}

/// Returns true for metrics of shares, whose elements are neither negative nor missing.
pub(super) fn of_shares(metric: Metric) -> bool {
    matches!(metric, Metric::JensenShannon | Metric::Hellinger | Metric::KlDivergence)
}

pub(super) fn metrics() -> impl Iterator<Item = Metric> {
    Metric::ALL.iter().copied().chain([0.5, 1.0, 3.0].map(Metric::Minkowski))
}

/// Returns nonnegative values, a third of them 0, for metrics of zeros and metrics of shares.
pub(super) fn nonnegative(seed: u32, len: u64) -> Vec<f32> {
    values::<u32>(seed, len)
        .iter()
        .map(|&bits| if bits.is_multiple_of(3) { 0.0 } else { (bits >> 8) as f32 / 65536.0 })
        .collect()
}

fn every_metric(device: &Device) {
    every_metric_of(device, |x| x);
    if device.limits().f64 {
        // The values use all bits of an f64.
        every_metric_of(device, |x| f64::from(x) / 3.0);
    }
}

fn every_metric_of<T: Sample>(device: &Device, of: impl Fn(f32) -> T) {
    // Sums of more than 256 features are added in several parts; `few` are one part.
    let (m, n, k, few) = (19, 70, 300, 30);
    let make = |x: Vec<f32>| x.into_iter().map(&of).collect::<Vec<_>>();
    let (x, y) = (make(nonnegative(1, 5 * k)), make(nonnegative(2, n * k)));
    // The observations are close, so that series replace logarithms.
    let first = nonnegative(1, few);
    let near = make(first.iter().cycle().zip(nonnegative(2, m * few)).map(|(x, y)| x + y / 64.0).collect());
    let signed = make(values(3, m * few));
    for metric in metrics().chain([Metric::Minkowski(1.0 / 3.0)]) {
        let of_few = |x| check(device, metric, x, None, [m, m, few], &Options::default());
        of_few(&x[..(m * few) as usize]);
        check(device, metric, &x, Some(&y), [5, n, k], &Options::default());
        of_few(if of_shares(metric) { &near } else { &signed });
    }
}

/// Tests each type in f32, and in f64 where the device has it, at once and in parts.
fn every_type(device: &Device) {
    const METRICS: [Metric; 7] = [
        Metric::Euclidean,
        Metric::CityBlock,
        Metric::Chebyshev,
        Metric::Correlation,
        Metric::Hamming,
        Metric::Canberra,
        Metric::JensenShannon,
    ];
    fn with<T: Sample>(device: &Device) {
        let x = values::<T>(4, 9 * 45);
        let is_negative = x.iter().any(|x| x.value() < 0.0);
        let cases = [(true, Missing::Propagate), (false, Missing::Propagate), (false, Missing::Ignore)];
        for (narrow, missing) in cases.into_iter().take(if device.limits().f64 { 3 } else { 1 }) {
            let options = Options { narrow, missing, negative: true, ..Options::default() };
            for metric in METRICS.into_iter().filter(|metric| metric.check(missing).is_ok()) {
                if is_negative && of_shares(metric) {
                    continue;
                }
                check(device, metric, &x, None, [9, 9, 45], &options);
                if metric == Metric::JensenShannon {
                    continue;
                }
                let mut partial = Partial::new(device, 9, None, metric, &options).unwrap();
                partial.add(&observations(device, &x, [9, 45], false), None).unwrap();
                let parts = partial.export().unwrap().finish().unwrap().distances;
                let is_narrow = narrow || matches!(T::DTYPE, DType::F32 | DType::F16 | DType::BF16);
                let bound = if is_narrow { BOUND } else { WIDE_BOUND };
                let rows = rows(&x, 9);
                let what = format_args!("{metric:?} {:?} in parts {options:?}", T::DTYPE);
                assert_within(bound, what, parts.row(4)[2], &expected(metric, &rows[4], &rows[2], &options));
            }
        }
    }
    for_each_type!(with(device));
}

/// Integers that f32 does not hold are computed in f64, or refused: they are never rounded unless requested.
fn integers_beyond_f32(device: &Device) {
    let x = Tensor::from_slice(device, &[16_777_217i32, 0, 16_777_216, 0], &[2, 2]).unwrap();
    let of = |options: &Options| pairwise(&x, None, Metric::CityBlock, options, &Run::default());
    match of(&Options::default()) {
        Ok(found) if device.limits().f64 => assert_eq!(found.data()[1], 1.0),
        Err(Error::Argument { name: "x", why, .. }) if !device.limits().f64 => {
            assert!(why.contains("observation 0") && why.contains("narrow"), "{why}");
        }
        other => panic!("{device:?}: {other:?}"),
    }
    assert_eq!(of(&Options::default().narrow(true)).unwrap().data()[1], 0.0);
    let small = Tensor::from_slice(device, &[16_777_215u32, 1], &[2, 1]).unwrap();
    let found = pairwise(&small, None, Metric::CityBlock, &Options::default(), &Run::default());
    assert_eq!(found.unwrap().data()[1], 16_777_214.0);
}

fn sizes_around_the_tiles(device: &Device) {
    for k in [1, 15, 16, 17, 255, 256, 257, 513] {
        let x = values::<i8>(5, 5 * k);
        check(device, Metric::SqEuclidean, &x, None, [5, 5, k], &Options::default());
    }
    for m in [1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 129] {
        let (x, y) = (values::<i8>(6, m * 3), values::<i8>(7, 3 * 3));
        check(device, Metric::CityBlock, &x, None, [m, m, 3], &Options::default());
        check(device, Metric::CityBlock, &x, Some(&y), [m, 3, 3], &Options::default());
        check(device, Metric::CityBlock, &y, Some(&x), [3, m, 3], &Options::default());
    }
}

fn missing_elements(device: &Device) {
    missing_elements_of(device, |x| x);
    if device.limits().f64 {
        // The values use all bits of an f64, except in an observation whose elements are equal.
        missing_elements_of(device, |x| if x == -2.0 { -2.0 } else { f64::from(x) / 3.0 });
    }
}

fn missing_elements_of<T: Sample>(device: &Device, of: impl Fn(f32) -> T) {
    let (m, k) = (12, 30);
    let mut x: Vec<f32> = values::<u32>(8, m * k).iter().map(|bits| (bits % 5) as f32 - 1.0).collect();
    x.iter_mut().step_by(7).for_each(|x| *x = f32::NAN);
    // One observation has only NaN, and one has only negative elements.
    x[..30].fill(f32::NAN);
    x[30..60].fill(-2.0);
    // A zero is not missing, whatever its sign.
    x.iter_mut().filter(|x| **x == 0.0).step_by(2).for_each(|x| *x = -0.0);
    let x: Vec<T> = x.into_iter().map(of).collect();
    for missing in RULES {
        let all = match missing {
            // Nothing depends on what counts as negative.
            Missing::Propagate => &[(true, true), (false, false)][..],
            Missing::Ignore => &[(true, true), (true, false), (false, false)],
            // The host rescales the same sums, so one case is enough.
            _ => &[(true, true)],
        };
        for &(negative, columns) in all {
            let options = Options { missing, negative, columns, ..Options::default() };
            for metric in metrics().filter(|&metric| !of_shares(metric)) {
                check(device, metric, &x, None, [m, m, k], &options);
            }
        }
    }
    let calls = values::<u8>(9, m * k).iter().map(|&byte| (byte % 4) as i8 - 1).collect::<Vec<_>>();
    let options = Options::default().missing(Missing::Ignore).negative(true).columns(true);
    for metric in [Metric::Euclidean, Metric::Correlation] {
        check(device, metric, &calls, None, [m, m, k], &options);
    }
}

/// Observations whose elements are equal in the features that both have vary by rounding errors alone, so there is no correlation.
fn equal_in_what_both_have(device: &Device) {
    let x: Vec<f32> = (1..=24).flat_map(|i| [0.1 * i as f32, 0.1 * i as f32, 0.1 * i as f32, 5.7]).collect();
    let tx = Tensor::from_slice(device, &x, &[24, 4]).unwrap();
    let ty = Tensor::from_slice(device, &[1.0f32, 2.0, 4.0, f32::NAN], &[1, 4]).unwrap();
    let options = Options { missing: Missing::Ignore, ..Options::default() };
    let run = Run::default();
    let distances = pairwise(&tx, Some(&ty), Metric::Correlation, &options, &run).unwrap();
    let found: Vec<f64> = (0..24).map(|i| distances.row(i)[0]).collect();
    assert!(found.iter().all(|distance| distance.is_nan()), "{found:?}");
    compare(&tx, Some(&ty), Metric::Correlation, &options, &run, &distances);
}

fn observations_in_columns(device: &Device) {
    let options = Options { columns: true, ..Options::default() };
    for (m, n, k) in [(1, 3, 5), (40, 66, 29), (65, 2, 270)] {
        let (x, y) = (nonnegative(10, m * k), nonnegative(11, n * k));
        for metric in [Metric::Euclidean, Metric::Correlation, Metric::KlDivergence] {
            check(device, metric, &x, None, [m, m, k], &options);
            check(device, metric, &x, Some(&y), [m, n, k], &options);
        }
    }
}

/// Sums of bytes beyond 2^24 are equal to the last bit on every device.
fn whole_numbers_are_exact(device: &Device) {
    let k = 3001;
    let x: Vec<u8> = values::<u8>(12, 3 * k)
        .iter()
        .enumerate()
        .map(|(i, &x)| if i < 3001 { x | 240 } else { x & 15 })
        .collect();
    let tensor = Tensor::from_slice(device, &x, &[3, k]).unwrap();
    let rows = rows(&x, 3);
    for metric in [
        Metric::Euclidean,
        Metric::SqEuclidean,
        Metric::CityBlock,
        Metric::Chebyshev,
        Metric::InnerProduct,
        Metric::BrayCurtis,
        Metric::Hamming,
        Metric::Jaccard,
        Metric::Dice,
        Metric::RussellRao,
    ] {
        let distances = pairwise(&tensor, None, metric, &Options::default(), &Run::default()).unwrap();
        for ([i, j], [x, y]) in each_pair(&rows, &rows) {
            let exact = expected(metric, x, y, &Options::default());
            let exact = if exact.squared { exact.value.sqrt() } else { exact.value };
            assert_eq!(distances.row(i)[j], exact, "{metric:?} {i} {j}");
        }
    }
}

/// Distances of close observations stay above 0 where |x|² + |y|² - 2 x·y in f32 would cancel.
fn close_observations_stay_apart(device: &Device) {
    let k = 1000;
    let near = |step: f32| (0..k).map(move |i| 1000.0 + (i % 7) as f32 + step * (i % 3) as f32);
    let x: Vec<f32> = near(0.0).chain(near(0.001)).chain(near(0.002)).collect();
    for metric in [Metric::Euclidean, Metric::Minkowski(2.0)] {
        check(device, metric, &x, None, [3, 3, k], &Options::default());
    }
    // The distances are 3e-13 to 2e-12, which 1 - cos in f32 would round to 0.
    let tensor = Tensor::from_slice(device, &x, &[3, k]).unwrap();
    let cosine = pairwise(&tensor, None, Metric::Cosine, &Options::default(), &Run::default()).unwrap();
    let rows = rows(&x, 3);
    for ([i, j], [x, y]) in each_pair(&rows, &rows) {
        let expected = expected(Metric::Cosine, x, y, &Options::default()).value;
        // Elements of unit vectors are rounded twice.
        let bound = (2.0 * expected.max(0.0)).sqrt() * 4.0 * 2f64.powi(-24) + 1e-14;
        assert!((cosine.row(i)[j] - expected).abs() < bound, "{cosine:?}: {expected}");
    }
}

/// Squares, powers and sums of elements are beyond f32, or elements differ in their last bits only.
fn far_and_near(device: &Device) {
    let m = 5;
    // Sums of more than 256 features are added in several parts.
    for (shift, scale, k) in
        [(0.0, 1e-30, 20), (0.0, 3e36, 300), (1e8, 1e3, 20), (3e18, 1e17, 20), (1e-25, 1e-30, 20)]
    {
        let x: Vec<f32> = nonnegative(21, m * k).iter().map(|&x| shift + x / 256.0 * scale).collect();
        for metric in metrics().chain([Metric::Minkowski(f64::INFINITY)]) {
            // Shares in f32 do not distinguish such elements, and x log x is beyond f32.
            if of_shares(metric) && (shift > 0.0 || scale > 1.0) || metric == Metric::Hellinger {
                continue;
            }
            // With an infinite exponent, scipy's definition of Minkowski has no value even in f64.
            let of = if metric == Metric::Minkowski(f64::INFINITY) { Metric::Chebyshev } else { metric };
            for missing in [Missing::Propagate, Missing::Ignore] {
                if of.check(missing).is_err() {
                    continue;
                }
                let options = Options { missing, ..Options::default() };
                let tensor = Tensor::from_slice(device, &x, &[m, k]).unwrap();
                let found = pairwise(&tensor, None, metric, &options, &Run::default()).unwrap();
                compare(&tensor, None, metric, &options, &Run::default(), &found);
                let rows = rows(&x, m);
                for (i, j) in [(0, 1), (4, 2), (3, 1)] {
                    let what = format_args!("{metric:?} of {shift} + {scale} {options:?} at {i}, {j}");
                    assert_within(BOUND, what, found.row(i)[j], &expected(of, &rows[i], &rows[j], &options));
                }
            }
        }
    }
    // The sum of the two magnitudes is beyond f32.
    let x = Tensor::from_slice(device, &[2e38f32, 1.0, 1.9e38, 3.0], &[2, 2]).unwrap();
    let of = |metric| pairwise(&x, None, metric, &Options::default(), &Run::default()).unwrap().row(0)[1];
    assert!((of(Metric::Canberra) - (0.1 / 3.9 + 0.5)).abs() < 1e-6, "{device:?}");
    assert!((of(Metric::BrayCurtis) - 0.1 / 3.9).abs() < 1e-6, "{device:?}");
}

/// Angular distances stay within 0 to 2, even if rounding would exceed that range.
fn angles(device: &Device) {
    // The four observations of a seed are multiples of one another.
    let fours = |seed: u32| {
        let x = values::<f32>(30 + seed, 30);
        [1.0, -1.0, 3.0, -0.3].map(|by| x.iter().map(|x| x * by).collect::<Vec<_>>()).concat()
    };
    let all: Vec<f32> = (0..16).flat_map(fours).collect();
    let tensor = Tensor::from_slice(device, &all, &[64, 30]).unwrap();
    for metric in [Metric::Cosine, Metric::Correlation] {
        for missing in [Missing::Propagate, Missing::Ignore] {
            let options = Options { missing, ..Options::default() };
            let found = pairwise(&tensor, Some(&tensor), metric, &options, &Run::default()).unwrap();
            let mut partial = Partial::new(device, 64, Some(64), metric, &options).unwrap();
            partial.add(&tensor, Some(&tensor)).unwrap();
            let in_parts = partial.export().unwrap().finish().unwrap().distances;
            for (i, j) in (0..64).flat_map(|i| (0..64).map(move |j| (i, j))) {
                let expected = [0.0, 2.0][(i + j) % 2];
                for distance in [found.row(i)[j], in_parts.row(i)[j]] {
                    let is_near = i / 4 != j / 4 || (distance - expected).abs() < BOUND;
                    let right = (0.0..=2.0).contains(&distance) && is_near;
                    assert!(right, "{metric:?} {missing:?} {i} {j}: {distance}");
                }
            }
        }
    }
}

fn what_has_no_distance(device: &Device) {
    let distances = |metric, x: &[f32]| {
        let x = Tensor::from_slice(device, x, &[2, 2]).unwrap();
        pairwise(&x, None, metric, &Options::default(), &Run::default()).unwrap()
    };
    let zero = [0.0, 0.0, 1.0, 2.0];
    assert!(distances(Metric::Cosine, &zero).row(0).iter().all(|d| d.is_nan()));
    assert_eq!(distances(Metric::Cosine, &zero).row(1)[1], 0.0);
    // Only one observation adds up to 0.
    let divergence = distances(Metric::JensenShannon, &zero);
    assert!(divergence.row(0).iter().all(|d| d.is_nan()) && divergence.row(1)[0].is_nan());
    assert_eq!(divergence.row(1)[1], 0.0);
    // The observation is constant, even if its mean is rounded.
    for constant in [3.0, 0.1, 1e-30, 0.7e20] {
        let x: Vec<f32> = [[constant; 1000], std::array::from_fn(|i| i as f32)].concat();
        let x = Tensor::from_slice(device, &x, &[2, 1000]).unwrap();
        let distances =
            pairwise(&x, None, Metric::Correlation, &Options::default(), &Run::default()).unwrap();
        let has_none = distances.row(0).iter().all(|d| d.is_nan()) && distances.row(1)[1] == 0.0;
        assert!(has_none, "{constant}: {distances:?}");
    }
    // The squares of lengths are beyond f32.
    for scale in [1e20, 1e-25] {
        let cosine = distances(Metric::Cosine, &[scale, 0.0, scale, scale]);
        assert!((cosine.row(0)[1] - (1.0 - 0.5f64.sqrt())).abs() < 1e-6, "{scale}: {cosine:?}");
    }
    assert_eq!(distances(Metric::Hellinger, &[0.25, 0.25, 0.25, 0.25]).data(), [0.5f64.sqrt(); 4]);
    let nan = distances(Metric::CityBlock, &[f32::NAN, 0.0, 1.0, 2.0]);
    assert_eq!(nan.row(1)[1], 0.0);
    assert!([nan.row(0)[0], nan.row(0)[1], nan.row(1)[0]].iter().all(|d| d.is_nan()));
    let f16s = Tensor::from_slice(device, &[f16::NAN, f16::ONE], &[2, 1]).unwrap();
    let f16s = pairwise(&f16s, None, Metric::Hamming, &Options::default(), &Run::default()).unwrap();
    assert!(f16s.row(0).iter().all(|d| d.is_nan()) && f16s.row(1)[1] == 0.0);
}

/// Distances equal those of scipy, even for observations that are all 0.
fn scipys(device: &Device) {
    let text = include_str!("../../tests/fixtures/distance/scipy.txt");
    let mut tensor = None;
    for line in text.lines() {
        let (name, rest) = line.split_once(' ').unwrap();
        if name == "matrix" {
            let mut words = rest.split(' ').skip(1);
            let rows: u64 = words.next().unwrap().parse().unwrap();
            let values: Vec<f32> = words.map(|word| word.parse().unwrap()).collect();
            let shape = [rows, values.len() as u64 / rows];
            tensor = Some(Tensor::from_slice(device, &values, &shape).unwrap());
            continue;
        }
        let metric: Metric = name.parse().unwrap();
        let distances =
            condensed(tensor.as_ref().unwrap(), metric, &Options::default(), &Run::default()).unwrap();
        let expected = rest.split(' ').map(|word| word.parse::<f64>().unwrap());
        for (i, (actual, expected)) in distances.iter().zip(expected).enumerate() {
            let close = (actual - expected).abs() <= 1e-6 * expected.abs().max(1.0);
            assert!(close || actual.is_nan() && expected.is_nan(), "{name} {i}: {actual}, {expected}");
        }
    }
}

fn empty(device: &Device) {
    for columns in [false, true] {
        let options = Options { columns, ..Options::default() };
        for metric in [Metric::CityBlock, Metric::Correlation, Metric::BrayCurtis] {
            check::<f32>(device, metric, &[], None, [0, 0, 5], &options);
            check::<f32>(device, metric, &[], Some(&[1.0; 10]), [0, 2, 5], &options);
            check::<f32>(device, metric, &[], None, [3, 3, 0], &options);
        }
    }
}

fn refused(device: &Device) {
    let tensor = |values: &[f32], shape: &[u64]| Tensor::from_slice(device, values, shape).unwrap();
    let run = Run::default();
    let message = |x: &Tensor<f32>, y: Option<&Tensor<f32>>, metric, options: &Options| {
        pairwise(x, y, metric, options, &run).unwrap_err().to_string()
    };
    let (x, plain) = (tensor(&[1.0, 2.0, 0.0, 0.0, -1.0, 3.0], &[3, 2]), Options::default());
    let says = |message: String, words: &str| assert!(message.contains(words), "{message}");
    says(message(&x, Some(&tensor(&[1.0; 3], &[1, 3])), Metric::Euclidean, &plain), "as many features");
    for p in [0.0, -1.0, f64::NAN] {
        says(message(&x, None, Metric::Minkowski(p), &plain), "above 0");
    }
    says(message(&x, None, Metric::Hellinger, &plain), "observation 2: a negative element");
    let tiny = tensor(&[1.0, 2.0, 1e-40, 0.0], &[2, 2]);
    match pairwise(&tiny, None, Metric::JensenShannon, &plain, &run) {
        Err(error) => says(error.to_string(), "observation 1 adds up to"),
        // If the device flushes 1e-40 to 0, the observation has no distances, just as an observation of zeros has none.
        Ok(found) => assert!(smallest(device) > 0.0 && found[(0, 1)].is_nan() && found[(1, 1)].is_nan()),
    }
    for infinite in [f32::INFINITY, f32::NEG_INFINITY] {
        let x = tensor(&[1.0, f32::NAN, 0.0, infinite], &[2, 2]);
        for missing in [Missing::Propagate, Missing::Ignore] {
            let options = Options { missing, ..plain };
            says(message(&x, None, Metric::Euclidean, &options), "observation 1: an infinite element");
        }
    }
    let ignore = Options { missing: Missing::Ignore, ..plain };
    says(message(&x, None, Metric::KlDivergence, &ignore), "no rule for missing elements");
    says(condensed(&x, Metric::KlDivergence, &plain, &run).unwrap_err().to_string(), "not symmetric");
    says("metric".parse::<Metric>().unwrap_err().to_string(), "euclidean, sqeuclidean");
    for (name, metric) in
        [("cityblock", Metric::CityBlock), ("manhattan", Metric::CityBlock), ("l2", Metric::Euclidean)]
    {
        assert_eq!(name.parse::<Metric>().unwrap(), metric);
        assert_eq!(metric.with_exponent(3.0), None);
    }
    assert_eq!(Metric::Minkowski(2.0).with_exponent(3.0), Some(Metric::Minkowski(3.0)));
    assert_eq!(Metric::Minkowski(2.0).with_exponent(f64::INFINITY), Some(Metric::Chebyshev));
    if !device.shares_host_memory() {
        let y = Tensor::from_slice(cpu(), &[1.0f32; 2], &[1, 2]).unwrap();
        let mixed = pairwise(&x, Some(&y), Metric::Euclidean, &plain, &run);
        assert!(matches!(mixed, Err(Error::WrongDevice { name: "y", .. })));
    }
    let z = tensor(&[1.0, f32::INFINITY], &[1, 2]);
    says(message(&x, Some(&z), Metric::Euclidean, &plain), "`y`");
    // The host needs nine distances of 8 bytes, and the sums of one pair.
    let jaccard = |run: &Run| pairwise(&x, None, Metric::Jaccard, &plain, run);
    let (bytes, small) = least(jaccard);
    assert!(bytes > 72 && small == jaccard(&run).unwrap(), "{bytes}");
    if !device.shares_host_memory() {
        let run = Run::default().memory(Budget::default().host(1 << 20).device(31));
        assert_err!(jaccard(&run), Error::Budget { budget: 31, minimum: 32, .. });
    }
    let cancelled = Run::default();
    cancelled.cancel.cancel();
    assert!(matches!(pairwise(&x, None, Metric::Euclidean, &plain, &cancelled), Err(Error::Cancelled)));
}

/// There are more observations than the 2,048 of a block.
fn several_blocks(device: &Device) {
    let (m, n) = (2100, 70);
    let (x, y) = (values::<i8>(13, m), values::<i8>(14, n));
    let [tx, ty] =
        [(&x, m), (&y, n)].map(|(values, count)| Tensor::from_slice(device, values, &[count, 1]).unwrap());
    let run = Run::default();
    let cases = [(&x, &y, &tx, Some(&ty)), (&y, &x, &ty, Some(&tx)), (&x, &x, &tx, None)];
    // An emulated GPU takes long for millions of pairs.
    let is_slow = cfg!(feature = "cuda-emulator") && device.info().backend == Backend::Cuda;
    for (x, y, tx, ty) in cases.into_iter().take(if is_slow { 2 } else { 3 }) {
        let distances = pairwise(tx, ty, Metric::CityBlock, &Options::default(), &run).unwrap();
        for (i, x) in x.iter().enumerate() {
            let row = y.iter().map(|y| (x.value() - y.value()).abs());
            assert!(row.eq(distances.row(i).iter().copied()), "row {i}");
        }
        if ty.is_some() {
            compare(tx, ty, Metric::CityBlock, &Options::default(), &run, &distances);
        }
    }
}

/// There are more features than an invocation may have iterations.
fn long_sums(device: &Device) {
    if device.limits().iterations == u32::MAX {
        return;
    }
    let k = 70_001;
    let x = Tensor::from_slice(device, &[1u8, 3].repeat(70_001), &[k, 2]).unwrap();
    let options = Options { columns: true, ..Options::default() };
    let found = pairwise(&x, None, Metric::CityBlock, &options, &Run::default()).unwrap();
    assert_eq!(found.data(), [0.0, (2 * k) as f64, (2 * k) as f64, 0.0]);
}
