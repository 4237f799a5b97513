//! Tests of the observations within a radius, against a sort of all distances.

use super::distance::{RULES, metrics, nonnegative};
use super::*;
use crate::{
    distance::{Metric, Options, pairwise, radius_neighbors},
    openings::within,
};

device_tests! {
    several_blocks, of_nothing, refused;
    every_metric, every_rule, too_many,
}

/// Returns the neighbors in a matrix of all distances.
/// Compares the neighbors within a radius with a sort of all distances, to the last bit. Returns how many there are.
fn check(
    x: &Tensor<f32>,
    y: Option<&Tensor<f32>>,
    radius: f64,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> usize {
    let found = radius_neighbors(x, y, radius, metric, options, run).unwrap();
    let all = pairwise(x, y, metric, options, &Run::default()).unwrap();
    assert_eq!((found.offsets.len(), found.distances.len()), (all.rows() + 1, found.indices.len()));
    let key = |distance: f64| if metric == Metric::InnerProduct { -distance } else { distance };
    let bits = |(number, distance): (u64, f64)| (number, distance.to_bits());
    for row in 0..all.rows() {
        let mut near: Vec<(u64, f64)> = (0..).zip(all.row(row).iter().copied()).collect();
        near.retain(|&(number, distance)| {
            key(distance) <= key(radius) && (y.is_some() || number != row as u64)
        });
        near.sort_by(|a, b| key(a.1).partial_cmp(&key(b.1)).unwrap());
        let (indices, distances) = found.row(row);
        let listed: Vec<_> = indices.iter().copied().zip(distances.iter().copied()).map(bits).collect();
        let near: Vec<_> = near.into_iter().map(bits).collect();
        assert_eq!(listed, near, "{metric} within {radius} {options:?} of {row}");
    }
    found.indices.len()
}

/// Returns the distance that `share` of all pairs of `x` and `y` are not above, which is a number.
fn quantile(x: &Tensor<f32>, y: &Tensor<f32>, share: f64, metric: Metric, options: &Options) -> f64 {
    let mut all = pairwise(x, Some(y), metric, options, &Run::default()).unwrap().into_vec();
    all.retain(|distance| !distance.is_nan());
    all.sort_by(f64::total_cmp);
    all[((all.len() - 1) as f64 * share) as usize]
}

/// Checks radii that are distances, 0 and infinity.
fn check_radii(x: &Tensor<f32>, y: &Tensor<f32>, metric: Metric, options: &Options) {
    let (own, run) = (quantile(x, y, 0.2, metric, options), Run::default());
    let few = check(x, Some(y), own, metric, options, &run);
    assert!(few > 0, "{metric}");
    check(x, None, own, metric, options, &run);
    check(y, None, quantile(x, y, 0.6, metric, options), metric, options, &run);
    let infinite = if metric == Metric::InnerProduct { f64::NEG_INFINITY } else { f64::INFINITY };
    let all = check(x, Some(y), infinite, metric, options, &run);
    let is_number = |distance: &&f64| !distance.is_nan();
    let matrix = pairwise(x, Some(y), metric, options, &run).unwrap();
    assert_eq!(all, matrix.data().iter().filter(is_number).count(), "{metric}");
    check(x, None, 0.0, metric, options, &run);
}

fn every_metric(device: &Device) {
    let (m, n, features) = (23, 70, 4);
    // Few different values, so that distances tie. No observation is all 0, which `jensenshannon` refuses.
    let tensor = |seed, count| {
        let mut values: Vec<f32> =
            nonnegative(seed, count * features).iter().map(|x| (x / 100.0).round()).collect();
        values.iter_mut().step_by(4).for_each(|x| *x += 1.0);
        Tensor::from_slice(device, &values, &[count, features]).unwrap()
    };
    let (x, y) = (tensor(1, m), tensor(2, n));
    for metric in metrics() {
        check_radii(&x, &y, metric, &Options::default());
    }
    // Values below 0 have a radius too.
    let signed = Tensor::from_slice(device, &values::<f32>(3, 40 * 3), &[40, 3]).unwrap();
    assert!(check(&signed, None, -0.5, Metric::InnerProduct, &Options::default(), &Run::default()) > 700);
    check(&x, None, -0.5, Metric::KlDivergence, &Options::default(), &Run::default());
}

fn every_rule(device: &Device) {
    let tensor = |seed, count: u64| {
        let mut values: Vec<f32> =
            values::<u32>(seed, count * 3).iter().map(|bits| (bits % 4) as f32).collect();
        values.iter_mut().step_by(7).for_each(|x| *x = f32::NAN);
        values[3..9].fill(f32::NAN);
        Tensor::from_slice(device, &values, &[count, 3]).unwrap()
    };
    let (x, y) = (tensor(9, 23), tensor(10, 40));
    for missing in RULES {
        let options = Options { missing, ..Options::default() };
        for metric in Metric::ALL.iter().copied().filter(|metric| metric.check(missing).is_ok()) {
            // `jensenshannon` refuses an observation of zeros.
            if metric != Metric::JensenShannon {
                check_radii(&x, &y, metric, &options);
            }
        }
    }
}

/// Blocks, of which one side is no multiple of the tiles, change nothing.
fn several_blocks(device: &Device) {
    let tensor =
        |seed, count| Tensor::from_slice(device, &values::<f32>(seed, count * 3), &[count, 3]).unwrap();
    let (x, y, options) = (tensor(4, 300), tensor(5, 90), Options::default());
    for (metric, share) in [(Metric::SqEuclidean, 0.008), (Metric::InnerProduct, 0.992)] {
        let radius = quantile(&x, &x, share, metric, &options);
        for side in [64u64, 37] {
            let memory = Budget::default().host(2 * 24 * side * side).device(16 * side * side);
            let run = Run::default().memory(memory);
            let found = check(&x, None, radius, metric, &options, &run);
            assert!((300..700).contains(&found), "{metric}: {found}");
            check(&x, Some(&y), radius, metric, &options, &run);
            check(&y, Some(&x), radius, metric, &options, &run);
        }
    }
    let memory = Budget::default().host(2 * 24 * 64 * 64).device(16 * 64 * 64);
    let (x, run) = (Tensor::from_slice(device, &nonnegative(6, 300 * 3), &[300, 3]).unwrap(), Run::default());
    let radius = quantile(&x, &x, 0.005, Metric::KlDivergence, &options);
    check(&x, None, radius, Metric::KlDivergence, &options, &run.memory(memory));
}

fn of_nothing(device: &Device) {
    let [none, one, x] =
        [0, 1, 3].map(|count| Tensor::from_slice(device, &vec![1.0; count], &[count as u64, 1]).unwrap());
    let of = |x, y| check(x, y, 2.0, Metric::Euclidean, &Options::default(), &Run::default());
    assert_eq!([of(&none, None), of(&none, Some(&x)), of(&x, Some(&none))], [0; 3]);
    assert_eq!([of(&one, None), of(&one, Some(&one))], [0, 1]);
    let featureless = Tensor::<f32>::zeros(device, &[3, 0]).unwrap();
    assert_eq!(of(&featureless, None), 6);
}

/// Neighbors beyond the budget are counted, and the memory that the error names is enough.
fn too_many(device: &Device) {
    let x = Tensor::from_slice(device, &values::<f32>(7, 40 * 3), &[40, 3]).unwrap();
    let of = |metric, radius, run: &Run| radius_neighbors(&x, None, radius, metric, &Options::default(), run);
    for (metric, radius, words) in [
        (Metric::Euclidean, f64::INFINITY, "for the 1560 neighbors within inf,"),
        (Metric::KlDivergence, f64::INFINITY, "neighbors within inf,"),
        (Metric::InnerProduct, f64::NEG_INFINITY, "for the 1560 neighbors within -inf,"),
    ] {
        let x = Tensor::from_slice(device, &nonnegative(8, 40 * 3), &[40, 3]).unwrap();
        let of = |run: &Run| radius_neighbors(&x, None, radius, metric, &Options::default(), run);
        let all = of(&Run::default()).unwrap();
        let (run, statuses) = told(|_| false);
        let error = assert_refused(of(&run.memory(Budget::default().host(20_000))), &[words]);
        let Error::Budget { minimum, budget: 20_000, given: true, .. } = error else { panic!("{error}") };
        let many = all.indices.len() as u64;
        assert!((64 * many..68 * many + 3400).contains(&minimum), "{metric}: {minimum} for {many}");
        assert_eq!(statuses.lock().unwrap().last().map(|status| status.rows), Some(40));
        assert_err!(of(&within(minimum - 1)), Error::Budget { minimum: again, .. } if again == minimum);
        assert_eq!(of(&within(minimum)).unwrap(), all, "{metric}");
    }
    // If no pair is near, the plan names the least.
    let (bytes, found) = least(|run| of(Metric::Euclidean, 0.0, run));
    assert!(bytes >= 2 * 16 * 41 && found.indices.is_empty(), "{bytes}");
}

fn refused(device: &Device) {
    let x = Tensor::from_slice(device, &[1.0f32, 2.0, 4.0], &[3, 1]).unwrap();
    let wide = Tensor::from_slice(device, &[1.0f32; 6], &[3, 2]).unwrap();
    let of = |y, radius, metric, run: &Run| radius_neighbors(&x, y, radius, metric, &Options::default(), run);
    let run = Run::default();
    for (radius, metric, words) in [
        (f64::NAN, Metric::Euclidean, "`radius`: NaN: a number from 0 on, for euclidean"),
        (f64::NAN, Metric::InnerProduct, "`radius`: NaN: a number, for inner_product"),
        (-1e-300, Metric::Cosine, "a number from 0 on, for cosine"),
        (f64::NEG_INFINITY, Metric::Correlation, "`radius`: -inf"),
    ] {
        let error = assert_refused(of(None, radius, metric, &run), &[words]);
        assert!(matches!(error, Error::Argument { name: "radius", .. }), "{error}");
    }
    assert_err!(of(Some(&wide), 1.0, Metric::Euclidean, &run), Error::Shape { .. });
    assert_err!(of(None, 1.0, Metric::Minkowski(-1.0), &run), Error::Argument { name: "metric", .. });
    let cancelled = Run::default();
    cancelled.cancel.cancel();
    assert_err!(of(None, 1.0, Metric::Euclidean, &cancelled), Error::Cancelled);
}
