//! Tests of distances computed in f64 from f64 and integers, or from f64 rounded to f32.

use super::distance::{WIDE_BOUND as BOUND, assert_within, expected, nonnegative, rows};
use super::*;
use crate::distance::{Metric, Missing, Options, Partial, condensed, neighbors, pairwise, pairwise_counted};

device_tests! {
    narrow_is_f32, refused;   what_f32_does_not_tell_apart, what_has_no_distance, parts,
}

/// Returns values that use all bits of an f64.
fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x) / 3.0).collect()
}

fn what_f32_does_not_tell_apart(device: &Device) {
    if !device.limits().f64 {
        return;
    }
    let matrix = |x: &[f64]| Tensor::from_slice(device, x, &[2, 2]).unwrap();
    let of = |x: &[f64], metric| {
        pairwise(&matrix(x), None, metric, &Options::default(), &Run::default()).unwrap().row(0)[1]
    };
    // These differences are exact.
    let unit = 2f64.powi(-20);
    assert_eq!(of(&[1e9, 0.0, 1e9 + 3.0 * unit, 4.0 * unit], Metric::Euclidean), 5.0 * unit);
    assert_eq!(of(&[1e9, 0.0, 1e9 + 0.25, 0.5], Metric::CityBlock), 0.75);
    assert_eq!(of(&[1.0, 2.0, 1.0 + f64::EPSILON, 2.0], Metric::Hamming), 0.5);
    for scale in [1e-200, 1e200] {
        let close = |actual: f64, expected: f64| {
            assert!((actual / expected - 1.0).abs() < BOUND, "{scale}: {actual} instead of {expected}");
        };
        close(of(&[scale, 0.0, 0.0, 2.0 * scale], Metric::CityBlock), 3.0 * scale);
        close(of(&[scale, 0.0, 0.0, 2.0 * scale], Metric::Chebyshev), 2.0 * scale);
        close(of(&[scale, 0.0, scale, scale], Metric::Cosine), 1.0 - 0.5f64.sqrt());
        close(of(&[scale, 0.0, 3.0 * scale, scale], Metric::BrayCurtis), 0.6);
        close(of(&[scale, 3.0 * scale, scale, scale], Metric::JensenShannon), {
            let term = |p: f64, q: f64| p * (p / (0.5 * (p + q))).ln() / 2.0;
            [(0.25, 0.5), (0.75, 0.5)].iter().map(|&(p, q)| term(p, q) + term(q, p)).sum::<f64>().sqrt()
        });
    }
    // The first observation is almost as long as possible.
    assert_eq!(of(&[4e307, 0.0, 0.0, 1e300], Metric::Cosine), 1.0);
    // The mean is a million times the spread.
    let x: Vec<f64> = values::<f32>(9, 600).iter().map(|&x| f64::from(x) + 1e6).collect();
    let tx = Tensor::from_slice(device, &x, &[2, 300]).unwrap();
    let found = pairwise(&tx, None, Metric::Correlation, &Options::default(), &Run::default()).unwrap();
    let less: Vec<Vec<f64>> = rows(&x, 2).iter().map(|row| row.iter().map(|x| x - 1e6).collect()).collect();
    let exact = expected(Metric::Correlation, &less[0], &less[1], &Options::default());
    assert_within(BOUND, format_args!("a large mean"), found.row(0)[1], &exact);
}

fn what_has_no_distance(device: &Device) {
    if !device.limits().f64 {
        return;
    }
    let run = Run::default();
    let tensor = |x: &[f64], cols: u64| Tensor::from_slice(device, x, &[2, cols]).unwrap();
    for missing in [Missing::Propagate, Missing::Ignore] {
        for constant in [3.0, 0.1, 1e-200, 0.7e150] {
            let x = [[constant; 1000], std::array::from_fn(|i| i as f64)].concat();
            let options = Options { missing, ..Options::default() };
            let distances = pairwise(&tensor(&x, 1000), None, Metric::Correlation, &options, &run).unwrap();
            assert!(distances.row(0).iter().all(|d| d.is_nan()), "{missing:?} {constant}: {distances:?}");
            assert_eq!(distances.row(1)[1], 0.0);
        }
    }
    // An observation in which one element differs in the last bit is not constant.
    let x: Vec<f64> = (0..1000)
        .map(|i| if i == 500 { 0.1 } else { 0.1f64.next_up() })
        .chain((0..1000).map(f64::from))
        .collect();
    let distances =
        pairwise(&tensor(&x, 1000), None, Metric::Correlation, &Options::default(), &run).unwrap();
    assert!(distances.data().iter().all(|d| d.is_finite()), "{distances:?}");
    let says = |x: &[f64], metric, words: &str| {
        assert_refused(pairwise(&tensor(x, 2), None, metric, &Options::default(), &run), &[words]);
    };
    says(&[1.0, 2.0, f64::NAN, f64::NEG_INFINITY], Metric::Euclidean, "observation 1: an infinite element");
    says(&[1.0, 2.0, 1.0, -1e-300], Metric::Hellinger, "observation 1: a negative element");
    says(&[1.7e308, 2.0, 0.0, 1.0], Metric::Cosine, "observation 0 has the length 1.7e308");
    says(&[1.0, 2.0, 1e308, 1e308], Metric::JensenShannon, "observation 1 adds up to inf");
    let nan =
        pairwise(&tensor(&[f64::NAN, 0.0, 1.0, 2.0], 2), None, Metric::CityBlock, &Options::default(), &run)
            .unwrap();
    assert!(nan.row(0).iter().all(|d| d.is_nan()) && nan.row(1)[1] == 0.0);
}

/// Sums in f32 take no chunk of f64, but sums of both types merge.
fn parts(device: &Device) {
    if !device.limits().f64 {
        return;
    }
    // Elements are far from 0, or their products are beyond f64.
    let far: Vec<f64> = values::<f32>(6, 600).iter().map(|&x| f64::from(x) + 1e10).collect();
    for (metric, scale) in [(Metric::Cosine, 1e-200), (Metric::Cosine, 1e200), (Metric::Correlation, 1e-200)]
    {
        let x: Vec<f64> = values::<f32>(7, 600).iter().map(|&x| f64::from(x)).collect();
        let scaled: Vec<f64> = x.iter().map(|x| x * scale).collect();
        let mut partial = Partial::new(device, 2, None, metric, &Options::default()).unwrap();
        partial.add(&Tensor::from_slice(device, &scaled, &[2, 300]).unwrap(), None).unwrap();
        let distance = partial.export().unwrap().finish().unwrap().distances.row(0)[1];
        let rows = rows(&x, 2);
        let exact = expected(metric, &rows[0], &rows[1], &Options::default());
        assert_within(BOUND, format_args!("{metric:?} {scale}"), distance, &exact);
    }
    let mut partial = Partial::new(device, 2, None, Metric::Correlation, &Options::default()).unwrap();
    partial.add(&Tensor::from_slice(device, &far, &[2, 300]).unwrap(), None).unwrap();
    let distance = partial.export().unwrap().finish().unwrap().distances.row(0)[1];
    let rows = rows(&far.iter().map(|x| x - 1e10).collect::<Vec<_>>(), 2);
    let exact = expected(Metric::Correlation, &rows[0], &rows[1], &Options::default());
    assert_within(BOUND, format_args!("far from 0"), distance, &exact);
    let mut partial = Partial::new(device, 2, None, Metric::CityBlock, &Options::default()).unwrap();
    let bytes = Tensor::from_slice(device, &[1u8, 5], &[2, 1]).unwrap();
    partial.add(&bytes, None).unwrap();
    let f64s = Tensor::from_slice(device, &[1e300, 0.0], &[2, 1]).unwrap();
    assert_refused(partial.add(&f64s, None), &["f64 after sums in f32 in one `Partial`"]);
    assert!(partial.export().unwrap().wide, "sums of bytes are exact");
    partial.add(&Tensor::from_slice(device, &[0.1f32, 0.1], &[2, 1]).unwrap(), None).unwrap();
    let mut sums = partial.export().unwrap();
    assert_eq!((sums.features, sums.sums[0][1]), (2, 4.0));
    let mut partial = Partial::new(device, 2, None, Metric::CityBlock, &Options::default()).unwrap();
    partial.add(&f64s, None).unwrap();
    partial.add(&bytes, None).unwrap();
    sums.merge(&partial.export().unwrap()).unwrap();
    assert!(!sums.wide && partial.export().unwrap().wide);
    assert_eq!(sums.finish().unwrap().distances.row(0)[1], 1e300);
}

/// `narrow` gives the bits of f32 on every device.
fn narrow_is_f32(device: &Device) {
    let (m, k) = (5, 40);
    let mut x = wide(&nonnegative(5, m * k));
    x[7] = f64::NAN;
    let narrow: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let wide = Tensor::from_slice(device, &x, &[m, k]).unwrap();
    let f32s = Tensor::from_slice(device, &narrow, &[m, k]).unwrap();
    for metric in [Metric::Euclidean, Metric::Correlation, Metric::Canberra] {
        for missing in [Missing::Propagate, Missing::Ignore] {
            let options = Options { missing, narrow: true, ..Options::default() };
            let run = Run::default();
            let [of_wide, of_f32s] = [
                pairwise_counted(&wide, None, metric, &options, &run).unwrap(),
                pairwise_counted(&f32s, None, metric, &options, &run).unwrap(),
            ];
            let bits = |d: &Matrix| d.data().iter().map(|d| d.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&of_wide.distances), bits(&of_f32s.distances), "{metric:?} {missing:?}");
            assert_eq!(of_wide.shared, of_f32s.shared);
        }
    }
    let beyond = Tensor::from_slice(device, &[1.0, 1e200], &[2, 1]).unwrap();
    let options = Options { narrow: true, ..Options::default() };
    let refused = pairwise(&beyond, None, Metric::CityBlock, &options, &Run::default());
    assert_refused(refused, &["observation 1: an infinite element"]);
}

/// A device without f64 refuses f64 unless f32 is requested.
fn refused(device: &Device) {
    let x = Tensor::from_slice(device, &[1.0, 2.0, 3.0, 5.0], &[2, 2]).unwrap();
    let (plain, run) = (Options::default(), Run::default());
    let all = |options: &Options| {
        let mut partial = Partial::new(device, 2, None, Metric::CityBlock, options).unwrap();
        [
            pairwise(&x, None, Metric::CityBlock, options, &run).map(|d| d.row(0)[1]),
            condensed(&x, Metric::CityBlock, options, &run).map(|d| d[0]),
            neighbors(&x, None, 1, Metric::CityBlock, options, &run).map(|found| found.distances.row(0)[0]),
            partial.add(&x, None).and_then(|()| Ok(partial.export()?.sums[0][1])),
        ]
    };
    for result in all(&plain) {
        match result {
            Ok(distance) => assert!(device.limits().f64 && distance == 5.0),
            Err(error) => {
                assert!(!device.limits().f64, "{error}");
                let words = format!("{} computes in f32", device.info().name);
                let error = assert_refused::<()>(Err(error), &[&words]);
                assert!(matches!(error, Error::NoF64 { op: "distance", .. }), "{error}");
            }
        }
    }
    let narrow = Options { narrow: true, ..plain };
    assert!(all(&narrow).iter().all(|distance| matches!(distance, Ok(5.0))));
}
