//! Tests of distances that stay on the device, against those on the host; each test of `distance` compares them too.

use super::distance::{RULES, nonnegative};
use super::*;
use crate::{
    distance::{Metric, Missing, Options, pairwise, pairwise_tensor},
    dtype::nearest_f32,
};

device_tests! {
    sizes, refused;
    little_crosses,   every_rule_of_angles,   what_has_no_distance, several_blocks,
}

/// The distance from 1 to the next f32: the largest relative size of a unit in the last place.
const UNIT: f64 = 1.0 / (1 << 23) as f64;

/// Compares distances with those that the host computes, and returns them.
fn check<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Vec<f32> {
    let expected = pairwise(x, y, metric, options, &Run::default()).unwrap();
    compare(x, y, metric, options, run, &expected)
}

/// Compares every pair with the distances on the host, and mirrored pairs to the bit; returns the distances.
pub(super) fn compare<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    metric: Metric,
    options: &Options,
    run: &Run,
    expected: &Matrix,
) -> Vec<f32> {
    let found = pairwise_tensor(x, y, metric, options, run).unwrap();
    let (m, n) = (expected.rows(), expected.cols());
    assert_eq!(found.shape(), [m as u64, n as u64]);
    let found = found.read().unwrap();
    let is_angle = matches!(metric, Metric::Cosine | Metric::Correlation);
    let noise = if is_angle && options.missing != Missing::Propagate { 1e-10 } else { 0.0 };
    let bound = |size: f64| match (x.device().limits().f64, metric) {
        (true, Metric::Minkowski(_)) => UNIT * size,
        (true, _) => 0.0,
        (false, Metric::Minkowski(p)) if p != 1.0 && p != 2.0 => size / f64::from(1 << 18),
        (false, _) => 4.0 * UNIT * size + noise,
    };
    for (place, (&actual, &expected)) in found.iter().zip(expected.data()).enumerate() {
        let (i, j) = (place / n, place % n);
        let what = format_args!("{metric:?} {:?} {options:?} {m} {n} at {i}, {j}", T::DTYPE);
        let (bound, error) = (bound(expected.abs()), (f64::from(actual) - expected).abs());
        let is_near = bound > 0.0 && error <= bound + f64::from(f32::MIN_POSITIVE);
        let is_right = is_near || actual == nearest_f32(expected) || actual.is_nan() && expected.is_nan();
        assert!(is_right, "{what}: {actual} for {expected}");
        if y.is_none() && metric.is_symmetric() {
            let mirrored = found[j * n + i];
            assert!(actual.to_bits() == mirrored.to_bits() || actual.is_nan() && mirrored.is_nan(), "{what}");
        }
        if y.is_none() && i == j && metric.is_zero_on_diagonal() {
            assert!(actual == 0.0 || actual.is_nan(), "{what}: {actual}");
        }
    }
    found
}

/// Returns a tensor of observations, as columns if the options say so.
fn observations<T: Sample>(device: &Device, values: &[T], count: u64, options: &Options) -> Tensor<T> {
    distance::observations(device, values, [count, values.len() as u64 / count], options.columns)
}

/// Returns budgets for which blocks of a metric of `terms` terms have `side` observations on a side.
fn within([m, n]: [u64; 2], terms: u64, side: u64) -> Run {
    let bytes = Some(4 * m * n + 8 * terms * side * side);
    Run { memory: Budget::default().host(bytes).device(bytes), ..Run::default() }
}

/// All six terms have sums here, and their products cancel.
fn every_rule_of_angles(device: &Device) {
    let (m, n, k) = (66, 9, 257);
    for shift in [0.0f32, 3.0, 1e8] {
        let with_gaps = |seed, count: u64| {
            let mut x: Vec<f32> =
                values::<f32>(seed, count * k).iter().map(|x| shift + x * shift.max(1.0)).collect();
            x.iter_mut().step_by(5).for_each(|x| *x = f32::NAN);
            // The first observation is constant.
            x[..k as usize].fill(0.1);
            observations(device, &x, count, &Options::default())
        };
        let (x, y) = (with_gaps(6, m), with_gaps(7, n));
        let few = x.rows(0..9).unwrap();
        for &missing in &RULES[1..if shift == 3.0 { 4 } else { 2 }] {
            let options = Options { missing, ..Options::default() };
            for metric in [Metric::Cosine, Metric::Correlation] {
                // Pairs of many observations with themselves take long, so one case has them.
                let is_large = shift == 3.0 && missing == Missing::Ignore;
                check(if is_large { &x } else { &*few }, None, metric, &options, &Run::default());
                check(&x, Some(&y), metric, &options, &Run::default());
            }
        }
    }
}

fn what_has_no_distance(device: &Device) {
    let plain = Options::default();
    let x = observations(device, &[0.0f32, 0.0, 1.0, 2.0], 2, &plain);
    let cosine = check(&x, None, Metric::Cosine, &plain, &Run::default());
    assert!(cosine[..3].iter().all(|d| d.is_nan()) && cosine[3] == 0.0);
    // Every block contains NaN.
    let mut x = nonnegative(11, 150 * 6);
    x.iter_mut().step_by(6 * 37).for_each(|x| *x = f32::NAN);
    let y = observations(device, &nonnegative(12, 90 * 6), 90, &plain);
    let x = observations(device, &x, 150, &plain);
    for metric in [Metric::Euclidean, Metric::Correlation, Metric::Dice, Metric::InnerProduct] {
        for side in [64, 50] {
            let found = check(&x, None, metric, &plain, &within([150, 150], 2, side));
            assert!(found[37 * 150 + 1].is_nan() && found[150 + 37].is_nan() && !found[150 + 2].is_nan());
            check(&x, Some(&y), metric, &plain, &within([150, 90], 2, side));
            check(&y, Some(&x), metric, &plain, &within([90, 150], 2, side));
        }
    }
}

fn sizes(device: &Device) {
    for m in [1, 2, 63, 64, 65, 129] {
        let (x, y) = (values::<i8>(13, m * 3), values::<i8>(14, 5 * 3));
        let [x, y] = [(&x, m), (&y, 5)].map(|(x, count)| observations(device, x, count, &Options::default()));
        for metric in [Metric::Euclidean, Metric::RussellRao] {
            for run in [Run::default(), within([m, m.max(5)], 1, 64), within([m, m.max(5)], 1, 21)] {
                check(&x, None, metric, &Options::default(), &run);
                check(&x, Some(&y), metric, &Options::default(), &run);
                check(&y, Some(&x), metric, &Options::default(), &run);
            }
        }
    }
}

/// There are more observations than a block has without a budget.
fn several_blocks(device: &Device) {
    let (m, n) = (2100, 70);
    let [x, y] = [(15, m), (16, n)]
        .map(|(seed, count)| observations(device, &values::<i8>(seed, count), count, &Options::default()));
    check(&x, Some(&y), Metric::CityBlock, &Options::default(), &Run::default());
    check(&y, Some(&x), Metric::CityBlock, &Options::default(), &Run::default());
    let (run, told) = told(|_| false);
    let run = run.memory(within([n, n], 1, 16).memory);
    pairwise_tensor(&y, None, Metric::CityBlock, &Options::default(), &run).unwrap();
    let told = told.lock().unwrap();
    let told = told.iter().map(|status| (status.rows, status.total));
    assert!(told.eq([16, 32, 48, 64, 70].map(|rows| (rows, 70))));
}

/// Nothing is transferred to the host for each pair.
fn little_crosses(device: &Device) {
    let (device, _lock) = &alone(device);
    let moved = |m| {
        let x = observations(device, &values::<f32>(17, m * 3), m, &Options::default());
        let before = device.traffic();
        pairwise_tensor(&x, None, Metric::Euclidean, &Options::default(), &within([m, m], 1, 128)).unwrap();
        device.traffic() - before
    };
    let (few, many) = (moved(100), moved(500));
    // The host reads some numbers for each observation, and the ends of blocks.
    let of_observations = 5 * few.to_host + 10 * 4;
    assert!(many.to_host <= of_observations, "{few:?} {many:?}");
}

fn refused(device: &Device) {
    let tensor = |values: &[f32], shape: &[u64]| Tensor::from_slice(device, values, shape).unwrap();
    let (x, plain) = (tensor(&[1.0, 2.0, 0.0, 0.0, -1.0, 3.0], &[3, 2]), Options::default());
    let of = |y: Option<&Tensor<f32>>, metric, run: &Run| pairwise_tensor(&x, y, metric, &plain, run);
    let run = Run::default();
    assert_err!(of(Some(&tensor(&[1.0; 3], &[1, 3])), Metric::Euclidean, &run), Error::Shape { .. });
    for metric in [Metric::Minkowski(0.0), Metric::Hellinger] {
        assert_err!(of(None, metric, &run), Error::Argument { .. });
    }
    if !device.shares_host_memory() {
        let y = Tensor::from_slice(cpu(), &[1.0f32; 2], &[1, 2]).unwrap();
        assert_err!(of(Some(&y), Metric::Euclidean, &run), Error::WrongDevice { name: "y", .. });
    }
    // Memory holds nine distances, and the sums of one pair.
    let least = within([3, 3], 2, 1);
    assert!(of(None, Metric::Jaccard, &least).is_ok());
    let bytes = least.memory.host.map(|bytes| bytes - 1);
    let less = Run { memory: Budget::default().host(bytes).device(bytes), ..Run::default() };
    assert_err!(of(None, Metric::Jaccard, &less), Error::Budget { minimum: 52, given: true, .. });
    let cancelled = Run::default();
    cancelled.cancel.cancel();
    assert!(matches!(of(None, Metric::Euclidean, &cancelled), Err(Error::Cancelled)));
    // The distances of one observation exceed a binding.
    let n = device.limits().binding / 4 + 1;
    if n < 1 << 20 {
        let [one, many] = [1, n].map(|count| Tensor::<u8>::zeros(device, &[count, 1]).unwrap());
        assert_err!(pairwise_tensor(&one, Some(&many), Metric::CityBlock, &plain, &run), Error::Limit { .. });
        let found = pairwise_tensor(&many, Some(&one), Metric::CityBlock, &plain, &run).unwrap();
        assert!(found.read().unwrap() == vec![0.0; n as usize]);
    }
}
