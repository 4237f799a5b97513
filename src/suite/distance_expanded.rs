//! Tests of squared differences that products of matrices give.

use super::distance::{Rows, expected, rows};
use super::*;
use crate::distance::{
    Metric, Missing, Options, Partial, condensed, neighbor_tensors, neighbors, pairwise, pairwise_counted,
    pairwise_tensor, radius_neighbors,
};

device_tests! {
    sizes_around_the_tiles, refused;
    values_of_all_kinds, every_type, several_blocks, groups,
}

const METRICS: [Metric; 5] =
    [Metric::Euclidean, Metric::SqEuclidean, Metric::Minkowski(2.0), Metric::Cosine, Metric::Correlation];

/// The promised bound of the error of a squared difference, and that of the mean error in a test.
const BOUND: f64 = 1.0 / (1 << 12) as f64;
const USUAL: f64 = 1.0 / (1 << 20) as f64;

fn options() -> Options {
    Options::default().expanded(true)
}

/// Returns observations as a metric compares them: minus their means, of length 1.
fn prepared(metric: Metric, mut rows: Rows) -> Rows {
    for row in &mut rows {
        let mean =
            if metric == Metric::Correlation { row.iter().sum::<f64>() / row.len() as f64 } else { 0.0 };
        row.iter_mut().for_each(|x| *x -= mean);
        if matches!(metric, Metric::Cosine | Metric::Correlation) {
            let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter_mut().for_each(|x| *x /= length);
        }
    }
    rows
}

/// Returns the squared lengths of observations minus the means of `others`.
fn squared_lengths(rows: &Rows, others: &Rows) -> Vec<f64> {
    let known = |feature: usize| others.iter().map(move |row| row[feature]).filter(|x| !x.is_nan());
    let features = others.first().map_or(0, Vec::len);
    let means: Vec<f64> =
        (0..features).map(|feature| known(feature).sum::<f64>() / known(feature).count() as f64).collect();
    rows.iter().map(|row| row.iter().zip(&means).map(|(x, mean)| (x - mean).powi(2)).sum()).collect()
}

/// Checks the distances on the host, those on the device, and the condensed form.
fn check<T: Sample>(device: &Device, metric: Metric, x: &[T], y: Option<&[T]>, [m, n, k]: [u64; 3]) {
    let (tx, run) = (Tensor::from_slice(device, x, &[m, k]).unwrap(), Run::default());
    let ty = y.map(|y| Tensor::from_slice(device, y, &[n, k]).unwrap());
    let options = options().narrow(true);
    let on_host = pairwise(&tx, ty.as_ref(), metric, &options, &run).unwrap();
    let on_device = pairwise_tensor(&tx, ty.as_ref(), metric, &options, &run).unwrap();
    let (on_device, width) = (on_device.read().unwrap(), on_host.cols());
    let half = y.is_none().then(|| condensed(&tx, metric, &options, &run).unwrap());
    let mut half = half.into_iter().flatten();
    let (xs, ys) = (rows(x, m), rows(y.unwrap_or(x), n));
    let [of_x, of_y] = [&xs, &ys].map(|rows| prepared(metric, rows.clone()));
    let [x_lengths, y_lengths] = [&of_x, &of_y].map(|rows| squared_lengths(rows, &of_y));
    let (mut sum, mut count) = (0.0, 0.0);
    for (i, j) in (0..xs.len()).flat_map(|i| (0..ys.len()).map(move |j| (i, j))) {
        let what = format_args!("{metric} {:?} {m} {n} {k} at {i}, {j}", T::DTYPE);
        let wanted = expected(metric, &xs[i], &ys[j], &options).value;
        let mut results = vec![on_host[(i, j)], on_device[i * width + j].into()];
        if y.is_none() {
            let mirrored = [on_host[(j, i)], on_device[j * width + i].into()];
            let mut pairs = results.iter().zip(mirrored);
            assert!(pairs.all(|(x, y)| x.to_bits() == y.to_bits() || x.is_nan()), "{what}");
            results.extend(if i < j { half.next() } else { None });
        }
        for actual in results {
            if wanted.is_nan() {
                assert!(actual.is_nan(), "{what}: {actual}");
                continue;
            }
            if y.is_none() && i == j {
                assert_eq!(actual, 0.0, "{what}");
            }
            // Twice a cosine is a squared difference.
            let (actual, wanted) = match metric {
                Metric::Euclidean => (actual * actual, wanted),
                Metric::Minkowski(_) => (actual * actual, wanted * wanted),
                Metric::SqEuclidean => (actual, wanted),
                _ => (2.0 * actual, 2.0 * wanted),
            };
            let is_angle = matches!(metric, Metric::Cosine | Metric::Correlation);
            let more = if is_angle { 1.0 / f64::from(1 << 21) } else { 0.0 };
            let (error, size) = (((actual - wanted).abs() - more).max(0.0), x_lengths[i] + y_lengths[j]);
            assert!(error <= BOUND * size, "{what}: {actual}, not {wanted}, of {size}");
            if size > 0.0 {
                (sum, count) = (sum + error / size, count + 1.0);
            }
        }
    }
    assert!(sum <= USUAL * count, "{metric} {:?} {m} {n} {k}: mean error {:e}", T::DTYPE, sum / count);
    assert!(half.next().is_none(), "{metric} {m}");
}

fn sizes_around_the_tiles(device: &Device) {
    for [m, n, k] in [[0, 3, 5], [3, 0, 5], [1, 1, 1], [2, 65, 3], [63, 64, 4], [65, 1, 257], [130, 66, 1030]]
    {
        let (x, y) = (values::<f32>(1, m * k), values::<f32>(2, n * k));
        check(device, Metric::Euclidean, &x, Some(&y), [m, n, k]);
        check(device, Metric::Euclidean, &x, None, [m, m, k]);
    }
    // No feature tells observations apart.
    let x = Tensor::from_slice(device, &[0.0f32; 0], &[3, 0]).unwrap();
    let found = pairwise(&x, None, Metric::Euclidean, &options(), &Run::default()).unwrap();
    assert_eq!(found.data(), [0.0; 9]);
}

/// Observations are far from zero, tiny, huge, constant, equal, or have NaN. The mean is subtracted, and elements are scaled.
fn values_of_all_kinds(device: &Device) {
    let (m, n, k) = (40, 67, 66);
    for (shift, size) in [(0.0, 1.0), (1e4, 1.0), (-3e7, 1e3), (0.0, 1e-30), (0.0, 1e30), (5.0, 0.0)] {
        let make = |seed, count: u64| -> Vec<f32> {
            values::<f32>(seed, count * k).iter().map(|x| shift + size * x).collect()
        };
        let (mut x, mut y) = (make(3, m), make(4, n));
        // One is constant, two are equal, and one has a NaN.
        x[..66].fill(shift + size);
        x.copy_within(66..132, 660);
        y[70] = f32::NAN;
        for metric in METRICS {
            // Each feature has a NaN, which leaves one element for its mean.
            if metric == Metric::Euclidean && shift == 1e4 {
                let mut y = y.clone();
                (0..66).for_each(|i| y[66 * (i % 60) + i] = f32::NAN);
                check(device, metric, &x, Some(&y), [m, n, k]);
            }
            let skipped = match metric {
                // Correlations of constant observations far from zero hang on the rounding of their elements.
                Metric::Correlation => shift != 0.0 || size == 0.0,
                // As f32, squares of these are 0 or infinite.
                Metric::SqEuclidean => [1e-30, 1e30].contains(&size),
                _ => false,
            };
            if skipped {
                continue;
            }
            check(device, metric, &x, Some(&y), [m, n, k]);
            check(device, metric, &y, None, [n, n, k]);
        }
    }
}

fn every_type(device: &Device) {
    fn check_type<T: Sample>(device: &Device) {
        let (m, n, k) = (9, 66, 40);
        let (x, y) = (values::<T>(5, m * k), values::<T>(6, n * k));
        for metric in [Metric::Euclidean, Metric::Cosine] {
            check(device, metric, &x, Some(&y), [m, n, k]);
        }
    }
    for_each_type!(in_f32 check_type(device));
}

/// The least memory that an error names is enough, and its small blocks give nearly the same distances.
fn several_blocks(device: &Device) {
    let (m, k) = (24, 20);
    let x = Tensor::from_slice(device, &values::<f32>(7, m * k), &[m, k]).unwrap();
    let whole = pairwise(&x, None, Metric::SqEuclidean, &options(), &Run::default()).unwrap();
    let near = |x: f64, y: &f64| assert!((x - y).abs() < 1e-4, "{x} {y}");
    let (_, blocks) = least(|run| pairwise(&x, None, Metric::SqEuclidean, &options(), run));
    blocks.data().iter().zip(whole.data()).for_each(|(x, y)| near(*x, y));
    if device.shares_host_memory() {
        let (_, blocks) = least(|run| pairwise_tensor(&x, None, Metric::SqEuclidean, &options(), run));
        blocks.read().unwrap().into_iter().zip(whole.data()).for_each(|(x, y)| near(x.into(), y));
    }
}

fn groups(device: &Device) {
    let (m, n, k) = (200, 70, 30);
    let group = group_of(device, 3);
    let [x, y] = [(8, m), (9, n)].map(|(seed, count)| values::<f32>(seed, count * k));
    check(&group, Metric::Euclidean, &x, Some(&y), [m, n, k]);
    check(&group, Metric::Cosine, &x, None, [m, m, k]);
}

fn refused(device: &Device) {
    let x = Tensor::from_slice(device, &[1.0f32, 2.0, 0.0, 3.0], &[2, 2]).unwrap();
    let run = Run::default();
    let says = |message: String, words: &str| {
        assert!(message.contains("`options`") && message.contains(words), "{message}");
    };
    let message = |metric, options: &Options| says_of(pairwise(&x, None, metric, options, &run).map(drop));
    says(message(Metric::CityBlock, &options()), "not of cityblock");
    says(message(Metric::Euclidean, &options().columns(true)), "are rows");
    let ignore = options().missing(Missing::Ignore);
    says(message(Metric::Euclidean, &ignore), "missing elements");
    says(says_of(pairwise_counted(&x, None, Metric::Euclidean, &ignore, &run).map(drop)), "missing elements");
    let words = "all distances of tensors";
    says(says_of(neighbors(&x, None, 1, Metric::Euclidean, &options(), &run).map(drop)), words);
    says(says_of(neighbor_tensors(&x, None, 1, Metric::Euclidean, &options(), &run).map(drop)), words);
    says(says_of(radius_neighbors(&x, None, 1.0, Metric::Euclidean, &options(), &run).map(drop)), words);
    says(says_of(Partial::new(device, 2, None, Metric::Euclidean, &options()).map(drop)), words);
    if device.limits().f64 {
        let wide = Tensor::from_slice(device, &[1.0f64, 2.0], &[2, 1]).unwrap();
        says(says_of(pairwise(&wide, None, Metric::Euclidean, &options(), &run).map(drop)), "`narrow`");
    }
}

fn says_of(result: Result<()>) -> String {
    assert_err!(result, Error::Argument { .. }).to_string()
}
