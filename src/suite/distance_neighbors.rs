//! The nearest of other observations, beside a sort of all distances.

use super::{data::values, device_tests};
use crate::{
    Budget, Device, Error, Run, Tensor,
    distance::{Metric, Missing, NearestSoFar, Neighbors, Options, neighbor_tensors, neighbors, pairwise},
    linalg::Matrix,
};

device_tests! { several_blocks, bands, from_others, of_nothing, refused; every_metric, missing_elements }

/// A budget by which blocks of a metric of one term have about this many observations on a side.
fn budget(m: u64, k: u64, side: u64) -> Run {
    let host = 8 * m * (4 * k + 5) + 40 * side * side;
    let device = m * (16 * k + 4) + 4 * 300 + 8 + 40 * side * side;
    Run { memory: Budget { host: Some(host), device: Some(device) }, ..Run::default() }
}

/// What a stable sort of the distances says, to the last bit.
fn check(x: &Tensor<f32>, y: Option<&Tensor<f32>>, k: usize, metric: Metric, options: &Options, run: &Run) {
    let all = pairwise(x, y, metric, options, &Run::default()).unwrap();
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
        let expected = sorted[..k].iter().map(|&(number, distance)| (number as u64, distance.to_bits()));
        let found =
            indices[row * k..][..k].iter().copied().zip(distances.row(row).iter().map(|d| d.to_bits()));
        assert!(found.eq(expected), "{metric} {k} {options:?} of {row}: {:?}", distances.row(row));
    }
    // Tensors may have them in the order of sums, and distances of f32.
    let found = neighbor_tensors(x, y, k, metric, options, run).unwrap();
    let (numbers, near) = (found.indices.read().unwrap(), found.distances.read().unwrap());
    assert_eq!(
        (found.indices.shape(), found.distances.shape()),
        (&[all.rows() as u64, k as u64][..], &[all.rows() as u64, k as u64][..])
    );
    for (i, (number, distance)) in numbers.iter().zip(near).enumerate() {
        let (expected, own) = (distances.data()[i], all.row(i / k)[*number as usize]);
        for expected in [expected, own] {
            let close = (f64::from(distance) - expected).abs() <= 1e-5 * expected.abs();
            assert!(
                close || expected.is_nan() && distance.is_nan(),
                "{metric} {k} {i}: {distance} of {expected}"
            );
        }
    }
}

/// Few different values: many distances are equal.
fn with_ties(seed: u32, len: u64) -> Vec<f32> {
    values::<u32>(seed, len).iter().map(|bits| (bits >> 9) as f32).map(|x| x % 3.0).collect()
}

fn every_metric(device: &Device) {
    let (m, n, features) = (23, 70, 4);
    // No observation of 0s alone, which `jensenshannon` refuses.
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

/// NaN comes last, by number.
fn missing_elements(device: &Device) {
    let mut x = with_ties(3, 40 * 3);
    x.iter_mut().step_by(7).for_each(|x| *x = f32::NAN);
    x[..6].fill(f32::NAN);
    let x = Tensor::from_slice(device, &x, &[40, 3]).unwrap();
    for missing in [Missing::Propagate, Missing::Rescale] {
        for metric in [Metric::Euclidean, Metric::InnerProduct] {
            for k in [3, 39] {
                let options = Options { missing, ..Options::default() };
                check(&x, None, k, metric, &options, &budget(40, k as u64, 16));
            }
        }
    }
}

fn several_blocks(device: &Device) {
    let tensor = |seed, count| Tensor::from_slice(device, &with_ties(seed, count * 3), &[count, 3]).unwrap();
    let (x, y) = (tensor(4, 300), tensor(5, 90));
    for metric in [Metric::SqEuclidean, Metric::InnerProduct] {
        // One of them is no multiple of the tiles.
        for side in [64, 37] {
            check(&x, None, 7, metric, &Options::default(), &budget(300, 7, side));
            check(&x, Some(&y), 7, metric, &Options::default(), &budget(300, 7, side));
            check(&y, Some(&x), 7, metric, &Options::default(), &budget(90, 7, side));
        }
    }
    check(&x, None, 7, Metric::KlDivergence, &Options::default(), &budget(300, 7, 64));
}

/// Distances of some observations at a time from all of others.
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
        let error = found.offer_others(row, Matrix::zeros(rows, 2)).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
}

/// Distances that come in bands of some observations from themselves and all that follow.
fn bands(device: &Device) {
    let x = Tensor::from_slice(device, &with_ties(6, 200 * 3), &[200, 3]).unwrap();
    for metric in [Metric::CityBlock, Metric::InnerProduct] {
        let all = pairwise(&x, None, metric, &Options::default(), &Run::default()).unwrap();
        let mut found = NearestSoFar::new(device, 200, 7, metric == Metric::InnerProduct).unwrap();
        for own in [0..1, 1..70, 70..199, 199..200] {
            let mut band: Vec<f64> =
                (own.start..200).flat_map(|row| &all.row(row)[own.clone()]).copied().collect();
            // What is on the diagonal and above is not read.
            (0..own.len()).for_each(|row| band[row * own.len() + row..(row + 1) * own.len()].fill(f64::NAN));
            let band = Matrix::from_vec(band, 200 - own.start, own.len()).unwrap();
            found.offer(own.start, own.start, band).unwrap();
        }
        let expected = neighbors(&x, None, 7, metric, &Options::default(), &Run::default()).unwrap();
        assert_eq!(found.finish().unwrap(), expected, "{metric}");
    }
    let error = NearestSoFar::new(device, 3, 0, false).unwrap_err();
    assert!(matches!(error, Error::Argument { name: "k", .. }), "{error}");
    let mut found = NearestSoFar::new(device, 3, 1, false).unwrap();
    found.offer(0, 0, Matrix::zeros(0, 0)).unwrap();
    for (row, column, rows, columns) in [(1, 0, 3, 1), (0, 1, 1, 3), (usize::MAX, 0, 2, 1)] {
        let error = found.offer(row, column, Matrix::zeros(rows, columns)).unwrap_err();
        assert!(matches!(error, Error::Shape { .. }), "{error}");
    }
    let error = found.offer(0, 0, Matrix::zeros(2, 3)).unwrap_err();
    assert!(error.to_string().contains("0 to 3, of rows to 2"), "{error}");
    found.offer(0, 0, Matrix::zeros(2, 2)).unwrap();
    let error = found.finish().unwrap_err().to_string();
    assert!(error.contains("observation 2 was offered 0 of 1"), "{error}");
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
        let error = of(y, k, &run).unwrap_err();
        assert!(matches!(error, Error::Argument { name: "k", .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let within = |host| Run { memory: Budget { host: Some(host), device: None }, ..Run::default() };
    let Err(Error::Budget { minimum, given: true, .. }) = of(None, 2, &within(3)) else { panic!() };
    assert!(minimum >= 3 * 8 * 13, "{minimum}");
    assert_eq!(of(None, 2, &within(minimum)).unwrap(), of(None, 2, &run).unwrap());
    assert!(of(None, 2, &within(minimum - 1)).is_err());
    let cancelled = Run::default();
    cancelled.cancel.cancel();
    assert!(matches!(of(None, 1, &cancelled), Err(Error::Cancelled)));
}
