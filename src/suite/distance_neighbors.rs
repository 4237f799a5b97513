//! Tests of nearest observations, against a sort of all distances.

use std::collections::BTreeSet;

use super::distance::{RULES, metrics};
use super::*;
use crate::distance::{
    Metric, Missing, NearestSoFar, Neighbors, Options, neighbor_tensors, neighbors, pairwise,
    selection::Order,
};

device_tests! {
    several_blocks, bands, from_others, of_nothing, refused;
    every_metric, every_rule, lists_of_distances, little_crosses,
}

/// Returns a budget for which blocks of a one-term metric have about `side` observations on a side.
fn budget(m: u64, k: u64, side: u64) -> Run {
    let host = 8 * m * (4 * k + 5) + 40 * side * side;
    let device = m * (16 * k + 4) + 4 * 300 + 8 + 40 * side * side;
    Run { memory: Budget::default().host(host).device(device), ..Run::default() }
}

/// Compares neighbors with a stable sort of the distances: to the last bit, unless the device computes distances in pairs of f32.
fn check(x: &Tensor<f32>, y: Option<&Tensor<f32>>, k: usize, metric: Metric, options: &Options, run: &Run) {
    let all = pairwise(x, y, metric, options, &Run::default()).unwrap();
    let is_exact = x.device().limits().f64 || Order::of_sums(metric, options.missing).is_some();
    let is_angle = matches!(metric, Metric::Cosine | Metric::Correlation);
    let noise = if is_angle { 1e-10 } else { 0.0 };
    let near = |found: f64, expected: f64| {
        let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        let bound = expected.abs() / (1u64 << 40) as f64 + noise;
        is_same || !is_exact && (found - expected).abs() <= bound
    };
    let Neighbors { indices, distances } = neighbors(x, y, k, metric, options, run).unwrap();
    assert_eq!((distances.rows(), distances.cols(), indices.len()), (all.rows(), k, all.rows() * k));
    for row in 0..all.rows() {
        let mut sorted: Vec<(usize, f64)> = all.row(row).iter().copied().enumerate().collect();
        sorted.retain(|&(number, _)| y.is_some() || number != row);
        let key = |distance: f64| match (distance.is_nan(), metric) {
            (true, _) => (true, 0.0),
            (_, Metric::InnerProduct) => (false, -distance),
            _ => (false, distance),
        };
        sorted.sort_by(|a, b| key(a.1).partial_cmp(&key(b.1)).unwrap());
        let numbers = &indices[row * k..][..k];
        let what = format_args!("{metric:?} {k} {options:?} of {row}: {numbers:?} {:?}", distances.row(row));
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), k, "{what}");
        for ((&found, &number), (expected_number, expected)) in
            distances.row(row).iter().zip(numbers).zip(sorted)
        {
            assert!(near(found, expected), "{what}: {found:e} for {expected:e}");
            // If two angles differ by rounding only, either may come first.
            let is_as_near = is_angle && !is_exact && near(found, all.row(row)[number as usize]);
            assert!(number == expected_number as u64 || is_as_near, "{what}: {expected_number}");
        }
    }
    // Tensors may order neighbors by sums, and hold distances in f32.
    let found = neighbor_tensors(x, y, k, metric, options, run).unwrap();
    let (numbers, near) = (found.indices.read().unwrap(), found.distances.read().unwrap());
    let shape = [all.rows() as u64, k as u64];
    assert_eq!([found.indices.shape(), found.distances.shape()], [shape; 2]);
    for (i, (number, distance)) in numbers.iter().zip(near).enumerate() {
        let (expected, own) = (distances.data()[i], all.row(i / k)[*number as usize]);
        for expected in [expected, own] {
            let close = (f64::from(distance) - expected).abs() <= 1e-5 * expected.abs() + noise;
            let is_near = close || expected.is_nan() && distance.is_nan();
            assert!(is_near, "{metric} {k} {i}: {distance} of {expected}");
        }
    }
}

/// Returns few different values, so that many distances are equal.
fn with_ties(seed: u32, len: u64) -> Vec<f32> {
    values::<u32>(seed, len).iter().map(|bits| (bits >> 9) as f32).map(|x| x % 3.0).collect()
}

fn every_metric(device: &Device) {
    let (m, n, features) = (23, 70, 4);
    // No observation is all 0, which `jensenshannon` refuses.
    let tensor = |seed, count| {
        let mut values = with_ties(seed, count * features);
        values.iter_mut().step_by(4).for_each(|x| *x += 1.0);
        Tensor::from_slice(device, &values, &[count, features]).unwrap()
    };
    let (x, y) = (tensor(1, m), tensor(2, n));
    let run = Run::default();
    for &metric in Metric::ALL {
        check(&x, Some(&y), 5, metric, &Options::default(), &run);
        check(&y, None, 5, metric, &Options::default(), &run);
    }
    for k in [1, 22] {
        check(&x, None, k, Metric::Euclidean, &Options::default(), &run);
        check(&x, None, k, Metric::KlDivergence, &Options::default(), &run);
    }
    check(&x, Some(&y), 70, Metric::CityBlock, &Options::default(), &run);
}

/// Makes observations of few different values, some of which are missing.
fn with_gaps(device: &Device, seed: u32, count: u64) -> Tensor<f32> {
    let mut values = with_ties(seed, count * 3);
    values.iter_mut().step_by(7).for_each(|x| *x = f32::NAN);
    // Two observations have only NaN.
    values[3..9].fill(f32::NAN);
    Tensor::from_slice(device, &values, &[count, 3]).unwrap()
}

/// Sums are rescaled by 3 / 2 or 3, so that equal sums stay equal.
fn every_rule(device: &Device) {
    let (x, y) = (with_gaps(device, 9, 23), with_gaps(device, 10, 40));
    for missing in RULES {
        let options = Options { missing, ..Options::default() };
        for metric in metrics().filter(|metric| metric.check(missing).is_ok()) {
            check(&x, Some(&y), 5, metric, &options, &Run::default());
            if missing == Missing::Rescale {
                check(&x, None, 22, metric, &options, &budget(23, 22, 16));
            }
        }
    }
}

/// Lists may be short, long, or of a `k` that is too large for a device.
fn lists_of_distances(device: &Device) {
    let (x, y) = (with_gaps(device, 11, 4), with_gaps(device, 12, 270));
    for (metric, missing) in [
        (Metric::BrayCurtis, Missing::Propagate),
        (Metric::Dice, Missing::Ignore),
        (Metric::InnerProduct, Missing::Rescale),
        (Metric::Euclidean, Missing::RescaleOrZero),
        (Metric::Correlation, Missing::Ignore),
    ] {
        let options = Options { missing, ..Options::default() };
        for k in [1, 16, 17, 256, 257] {
            check(&x, Some(&y), k, metric, &options, &Run::default());
        }
        check(&with_gaps(device, 12, 70), None, 17, metric, &options, &Run::default());
    }
}

/// Only the nearest pairs are transferred to the host.
fn little_crosses(device: &Device) {
    let (device, _lock) = &alone(device);
    let k = 10;
    for (metric, missing) in [
        (Metric::BrayCurtis, Missing::Propagate),
        (Metric::Euclidean, Missing::Ignore),
        (Metric::Correlation, Missing::Rescale),
    ] {
        let moved = |m: u64| {
            let x = Tensor::from_slice(device, &values::<f32>(13, m * 3), &[m, 3]).unwrap();
            let (options, run) = (Options { missing, ..Options::default() }, Run::default());
            let before = device.traffic();
            neighbor_tensors(&x, None, k, metric, &options, &run).unwrap();
            // The cpu device has the host's memory.
            if !device.shares_host_memory() {
                neighbors(&x, None, k, metric, &options, &run).unwrap();
            }
            device.traffic() - before
        };
        let (few, many) = (moved(100), moved(500));
        // The host gets a distance and an index for each neighbor, some numbers for each observation, and the ends of blocks.
        assert!(many.to_host <= 5 * few.to_host + 64, "{metric}: {few:?} {many:?}");
        assert!(many.to_host <= 500 * (12 * k as u64 + 400), "{metric}: {many:?}");
    }
}

fn several_blocks(device: &Device) {
    let tensor = |seed, count| Tensor::from_slice(device, &with_ties(seed, count * 3), &[count, 3]).unwrap();
    let (x, y) = (tensor(4, 300), tensor(5, 90));
    for metric in [Metric::SqEuclidean, Metric::InnerProduct] {
        // One side is no multiple of the tiles.
        for side in [64, 37] {
            check(&x, None, 7, metric, &Options::default(), &budget(300, 7, side));
            check(&x, Some(&y), 7, metric, &Options::default(), &budget(300, 7, side));
            check(&y, Some(&x), 7, metric, &Options::default(), &budget(90, 7, side));
        }
    }
    check(&x, None, 7, Metric::KlDivergence, &Options::default(), &budget(300, 7, 64));
}

/// Offers distances of some rows at a time, each to all observations of the other matrix.
fn from_others(device: &Device) {
    let [x, y] = [(7, 90), (8, 60)]
        .map(|(seed, rows)| Tensor::from_slice(device, &with_ties(seed, rows * 3), &[rows, 3]).unwrap());
    for metric in [Metric::CityBlock, Metric::InnerProduct] {
        let all = pairwise(&x, Some(&y), metric, &Options::default(), &Run::default()).unwrap();
        let mut found = NearestSoFar::new(device, 90, 60, metric == Metric::InnerProduct).unwrap();
        for rows in [70..90, 0..70] {
            let some: Vec<f64> = rows.clone().flat_map(|row| all.row(row)).copied().collect();
            found.offer_others(rows.start, Matrix::from_vec(some, rows.len(), 60).unwrap()).unwrap();
        }
        let expected = neighbors(&x, Some(&y), 60, metric, &Options::default(), &Run::default()).unwrap();
        assert_eq!(found.finish().unwrap(), expected, "{metric}");
    }
    let mut found = NearestSoFar::new(device, 3, 1, false).unwrap();
    for (row, rows) in [(0, 4), (2, 2), (usize::MAX, 1)] {
        assert_err!(found.offer_others(row, Matrix::zeros(rows, 2)), Error::Shape { .. });
    }
}

/// Distances come in bands: some observations against themselves and all later ones.
fn bands(device: &Device) {
    let x = Tensor::from_slice(device, &with_ties(6, 200 * 3), &[200, 3]).unwrap();
    for metric in [Metric::CityBlock, Metric::InnerProduct] {
        let all = pairwise(&x, None, metric, &Options::default(), &Run::default()).unwrap();
        let mut found = NearestSoFar::new(device, 200, 7, metric == Metric::InnerProduct).unwrap();
        for own in [0..1, 1..70, 70..199, 199..200] {
            let mut band: Vec<f64> =
                (own.start..200).flat_map(|row| &all.row(row)[own.clone()]).copied().collect();
            // The diagonal and the part above it are never read.
            (0..own.len()).for_each(|row| band[row * own.len() + row..(row + 1) * own.len()].fill(f64::NAN));
            let band = Matrix::from_vec(band, 200 - own.start, own.len()).unwrap();
            found.offer(own.start, own.start, band).unwrap();
        }
        let expected = neighbors(&x, None, 7, metric, &Options::default(), &Run::default()).unwrap();
        assert_eq!(found.finish().unwrap(), expected, "{metric}");
    }
    assert_err!(NearestSoFar::new(device, 3, 0, false), Error::Argument { name: "k", .. });
    let mut found = NearestSoFar::new(device, 3, 1, false).unwrap();
    found.offer(0, 0, Matrix::zeros(0, 0)).unwrap();
    for (row, column, rows, columns) in [(1, 0, 3, 1), (0, 1, 1, 3), (usize::MAX, 0, 2, 1)] {
        assert_err!(found.offer(row, column, Matrix::zeros(rows, columns)), Error::Shape { .. });
    }
    assert_refused(found.offer(0, 0, Matrix::zeros(2, 3)), &["0 to 3, of rows to 2"]);
    found.offer(0, 0, Matrix::zeros(2, 2)).unwrap();
    assert_refused(found.finish(), &["observation 2 was offered 0 of 1"]);
}

fn of_nothing(device: &Device) {
    let [none, x] =
        [0, 3].map(|count| Tensor::from_slice(device, &vec![1.0; count], &[count as u64, 1]).unwrap());
    check(&none, Some(&x), 2, Metric::Euclidean, &Options::default(), &Run::default());
}

fn refused(device: &Device) {
    let x = Tensor::from_slice(device, &[1.0f32, 2.0, 4.0], &[3, 1]).unwrap();
    let of = |y, k, run: &Run| neighbors(&x, y, k, Metric::Euclidean, &Options::default(), run);
    let run = Run::default();
    for (y, k, words) in [
        (None, 0, "0 of 2 other observations"),
        (None, 3, "3 of 2 other observations"),
        (Some(&x), 0, "0 of 3 observations"),
        (Some(&x), 4, "4 of 3 observations"),
    ] {
        let error = assert_err!(of(y, k, &run), Error::Argument { name: "k", .. });
        assert!(error.to_string().contains(words), "{error}");
    }
    let (bytes, found) = least(|run| of(None, 2, run));
    assert!(bytes >= 3 * 8 * 13 && found == of(None, 2, &run).unwrap(), "{bytes}");
    let cancelled = Run::default();
    cancelled.cancel.cancel();
    assert!(matches!(of(None, 1, &cancelled), Err(Error::Cancelled)));
    // Memory holds lists, flags and distances, and for one pair two sums and a distance.
    let of = |bytes| {
        let memory = Budget::default().host(bytes).device(bytes);
        let run = Run { memory, ..Run::default() };
        neighbor_tensors(&x, None, 2, Metric::Jaccard, &Options::default(), &run)
    };
    let least = 3 * 2 * 16 + 4 * (3 + 3) + 8 + 24;
    let Err(Error::Budget { minimum, given: true, .. }) = of(least - 1) else { panic!() };
    assert_eq!(minimum, least);
    assert!(of(least).is_ok());
}
