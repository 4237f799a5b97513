//! Tests of the nearest observations that are found from candidates, against a search among all.

use super::*;
use crate::distance::{Metric, Missing, Neighbors, Options, candidates::found, neighbors};

device_tests! {
    equal_observations, equal_distances, without_numbers, other_searches;
    near_and_far, tiny_elements, small_launches, large_inputs_take_them
}

/// Metrics whose distance is a function of the sum of squared differences.
const METRICS: [Metric; 5] =
    [Metric::Euclidean, Metric::SqEuclidean, Metric::Minkowski(2.0), Metric::Cosine, Metric::Correlation];

/// The bytes of bindings that hold the candidates of a tile.
const LARGE: u64 = 1 << 20;

/// Compares both searches, to the last bit. Returns the share of observations that were searched again; none if bindings are too small for
/// candidates.
fn check<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    k: usize,
    metric: Metric,
    side: u64,
) -> Option<f64> {
    let options = Options::default();
    let Some((found, again)) = found((x, y), k as u64, metric, &options, Some(side)).unwrap() else {
        assert!(x.device().limits().room() < LARGE);
        return None;
    };
    let expected = neighbors(x, y, k, metric, &options, &Run::default()).unwrap();
    let what = format_args!("{metric} {k} {side}");
    assert_eq!(found.indices, expected.indices, "{what}");
    let bits = |found: &Neighbors| {
        found.distances.data().iter().map(|distance| distance.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(bits(&found), bits(&expected), "{what}");
    Some(again as f64 / expected.distances.rows() as f64)
}

/// Returns observations of 50 normal values each, times `scale`, plus a shift of each group of observations.
fn observations(
    device: &Device,
    seed: u32,
    count: u64,
    scale: f32,
    shift: impl Fn(u64) -> f32,
) -> Tensor<f32> {
    let values = values::<f32>(seed, count * 50).into_iter().zip(0..);
    let values: Vec<f32> = values.map(|(value, i)| scale * value + shift(i / 50)).collect();
    Tensor::from_slice(device, &values, &[count, 50]).unwrap()
}

fn near_and_far(device: &Device) {
    let groups: [(f32, &dyn Fn(u64) -> f32); 7] = [
        (1.0, &|_| 0.0),
        // All are far from zero, and differ little.
        (1e-3, &|_| 1000.0),
        (1e6, &|_| 0.0),
        // One is far from all others.
        (1.0, &|i| if i == 7 { 1e6 } else { 0.0 }),
        // Two groups are far from each other: the errors of products are as large as the distances within a group, and larger.
        (1.0, &|i| if i % 2 == 0 { 0.0 } else { 30_000.0 }),
        (1.0, &|i| if i % 2 == 0 { 0.0 } else { 1000.0 }),
        (1.0, &|i| if i % 2 == 0 { 0.0 } else { 100.0 }),
    ];
    for (number, (scale, shift)) in groups.into_iter().enumerate() {
        let (x, y) = (observations(device, 1, 131, scale, shift), observations(device, 2, 200, scale, shift));
        let metrics = &METRICS[..if number == 0 { METRICS.len() } else { 1 }];
        for &metric in metrics {
            let again = [check(&x, Some(&y), 2, metric, 64), check(&y, None, 10, metric, 128)];
            let mut again = again.into_iter().flatten();
            assert!(number != 0 || again.all(|again| again < 0.1), "{metric}: many are searched again");
            assert!(number != 4 || again.all(|again| again > 0.9), "{metric}: few are searched again");
        }
    }
}

/// Squares and products of most elements are no normal numbers, and those of two observations are.
fn tiny_elements(device: &Device) {
    for (scale, count) in [(6e-23, 1000), (1e-22, 1000), (1e-19, 200)] {
        let mut values: Vec<f32> = values::<f32>(7, count * 50).iter().map(|value| scale * value).collect();
        (values[0], values[50]) = (1.0, -1.0);
        check(&Tensor::from_slice(device, &values, &[count, 50]).unwrap(), None, 2, Metric::Euclidean, 512);
    }
}

/// Two sums differ, and their roots are equal. Observations have more features than a block of sums.
fn equal_distances(device: &Device) {
    let mut values: Vec<f32> = values::<f32>(8, 100 * 300).iter().map(|value| 100.0 * value).collect();
    values[..100 * 30].iter_mut().for_each(|value| *value = 0.0);
    for (observation, small) in [(3, 1.0 / (1u32 << 26) as f32), (5, 0.0)] {
        (values[300 * observation], values[300 * observation + 256]) = (1.0, small);
    }
    let y = Tensor::from_slice(device, &values, &[100, 300]).unwrap();
    let x = Tensor::from_slice(device, &values[..300], &[1, 300]).unwrap();
    for k in 1..12 {
        check(&x, Some(&y), k, Metric::Euclidean, 64);
    }
    check(&y, None, 9, Metric::SqEuclidean, 64);
}

/// A launch has the sums of one tile, or of a part of its candidates.
fn small_launches(device: &Device) {
    if device.limits().room() < LARGE {
        return;
    }
    let options = DeviceOptions { work: Some(1 << 18), ..DeviceOptions::default() };
    let device = Device::open_with(&device.info().name, &options).unwrap();
    let again = check(&observations(&device, 9, 200, 1.0, |_| 0.0), None, 10, Metric::Cosine, 192);
    // Wrong sums would exclude no observation.
    assert!(again.is_some_and(|again| again < 0.05), "{again:?}");
}

/// More observations than candidates are at the same distance.
fn equal_observations(device: &Device) {
    let ties: Vec<f32> = values::<u32>(3, 150 * 50).iter().map(|bits| (bits >> 30) as f32).collect();
    let (few, same) = (Tensor::from_slice(device, &ties, &[150, 50]).unwrap(), vec![2.5f32; 70 * 50]);
    check(&few, None, 5, Metric::Euclidean, 64);
    let same = Tensor::from_slice(device, &same, &[70, 50]).unwrap();
    for (x, y) in [(&same, None), (&few, Some(&same))] {
        assert!(check(x, y, 3, Metric::SqEuclidean, 64).is_none_or(|again| again == 1.0));
    }
}

fn without_numbers(device: &Device) {
    let mut values = values::<f32>(4, 120 * 50);
    // Some have a NaN, and some are zeros, whose angles are undefined.
    values.chunks_mut(50).step_by(17).for_each(|one| one[3] = f32::NAN);
    values.chunks_mut(50).skip(1).step_by(13).for_each(|one| one.fill(0.0));
    let x = Tensor::from_slice(device, &values, &[120, 50]).unwrap();
    for metric in METRICS {
        check(&x, None, 4, metric, 64);
        check(&x, Some(&x), 4, metric, 64);
    }
    for k in [1, 33, 100] {
        check(&x, None, k, Metric::Euclidean, 64);
    }
}

/// Elements that f32 does not hold, missing ones and other metrics are searched otherwise.
fn other_searches(device: &Device) {
    fn takes<T: Element>(device: &Device, metric: Metric, options: Options) -> bool {
        let x = Tensor::<T>::zeros(device, &[100, 50]).unwrap();
        found((&x, None), 3, metric, &options, Some(64)).unwrap().is_some()
    }
    fn of_type<T: Element>(device: &Device) {
        let exact = !matches!(T::DTYPE, DType::U16 | DType::I16);
        let narrow = Options { narrow: true, ..Options::default() };
        let is_small = device.limits().room() < LARGE;
        assert_eq!(takes::<T>(device, Metric::Euclidean, narrow), exact && !is_small, "{:?}", T::DTYPE);
    }
    for_each_type!(in_f32 of_type(device));
    let ignore = Options { missing: Missing::Ignore, ..Options::default() };
    let columns = Options { columns: true, ..Options::default() };
    assert!(!takes::<f32>(device, Metric::Euclidean, ignore));
    assert!(!takes::<f32>(device, Metric::Euclidean, columns));
    assert!(!takes::<f32>(device, Metric::CityBlock, Options::default()));
    assert!(!takes::<f32>(device, Metric::InnerProduct, Options::default()));
}

/// Candidates are taken for many observations.
fn large_inputs_take_them(device: &Device) {
    if device.limits().room() < LARGE {
        return;
    }
    let (x, y) = (observations(device, 5, 520, 1.0, |_| 3.0), observations(device, 6, 4100, 1.0, |_| 3.0));
    let options = Options::default();
    let (found, _) = found((&x, Some(&y)), 2, Metric::Euclidean, &options, None).unwrap().unwrap();
    let Neighbors { indices, distances } =
        neighbors(&x, Some(&y), 2, Metric::Euclidean, &options, &Run::default()).unwrap();
    assert_eq!((found.indices, found.distances), (indices.clone(), distances.clone()));
    let run = Run::default();
    run.cancel.cancel();
    assert_err!(neighbors(&x, Some(&y), 2, Metric::Euclidean, &options, &run), Error::Cancelled);
    let (x, y) = (x.read().unwrap(), y.read().unwrap());
    for (i, own) in x.chunks(50).enumerate().step_by(7) {
        let distance = |other: &[f32]| {
            let squares = own.iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2));
            squares.sum::<f64>().sqrt()
        };
        let mut all: Vec<(f64, u64)> = y.chunks(50).map(distance).zip(0..).collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let numbers = &indices[2 * i..2 * i + 2];
        assert_eq!(numbers, [all[0].1, all[1].1], "{i}");
        assert!((distances.row(i)[1] - all[1].0).abs() <= 1e-6 * all[1].0, "{i}");
    }
}
