//! Tests of exact and truncated decompositions with vectors of both sides: identities against known spectra.

use faer::Mat;

use super::{spectrum::*, *};
use crate::linalg::{SignRule, Stop, SvdOptions, TruncatedSvd, gram::gram, host, svd, truncated_svd};

device_tests! {
    sizes, truncated_sizes, signs, bad_values_are_named;
    waits_and_downloads_of_any_height, any_condition_number;
    truncated_any_condition_number, truncated_small_values, any_scale, truncated_to_the_last_digit, constant_matrix,
    truncated_rank_deficient, rank_deficient, two_runs_are_equal,
}

/// Returns ‖a - U diag(s) Vᵀ‖ in the Frobenius norm.
fn distance(a: &Mat<f64>, u: &Mat<f64>, s: &[f64], v: &Mat<f64>) -> f64 {
    let scaled = Mat::from_fn(u.nrows(), s.len(), |i, j| u[(i, j)] * s[j]);
    (a - host::product(scaled.as_ref(), v.transpose())).norm_l2()
}

/// Checks a decomposition; in f64 too, if the device computes in f64.
fn check(name: &str, dev: &Device, a: &Mat<f64>, spectrum: &[f64]) {
    if dev.limits().f64 {
        check_in::<f64>(&format!("{name} of f64"), dev, a, spectrum);
    }
    check_in::<f32>(name, dev, a, spectrum);
}

fn check_in<R: Real>(name: &str, dev: &Device, a: &Mat<f64>, spectrum: &[f64]) {
    let [distant, exact] = if R::DTYPE.is_wide() { [1e-13; 2] } else { [3e-6, 1e-6] };
    let found = svd(&upload::<R>(dev, a.as_ref())).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (u, v) = (download(&found.u), download(&found.v));
    assert_eq!((u.shape(), v.shape()), ((a.nrows(), found.s.len()), (a.ncols(), found.s.len())), "{name}");
    assert_orthonormal::<R>(&format!("{name}: u"), u.as_ref());
    assert_orthonormal::<R>(&format!("{name}: v"), v.as_ref());
    let error = distance(a, &u, &found.s, &v);
    assert!(error <= distant * a.norm_l2(), "{name}: off by {:.1e}", error / a.norm_l2());
    assert!(found.s.is_sorted_by(|x, y| x >= y), "{name}: not falling");
    for (i, s) in found.s.iter().enumerate() {
        let expected = spectrum.get(i).copied().unwrap_or(0.0);
        assert!((s - expected).abs() <= exact * spectrum[0], "{name}: value {i} is {s}, not {expected}");
    }
}

fn any_condition_number(dev: &Device) {
    for (m, n) in [(1100, 50), (50, 1100), (201, 199)] {
        for condition in [1.0, 1e3, 1e6] {
            let spectrum = geometric(m.min(n), condition);
            let a = with_spectrum(m, n, &spectrum, 3);
            check(&format!("({m}, {n}), condition {condition:.0e}"), dev, a, &spectrum);
        }
    }
}

fn rank_deficient(dev: &Device) {
    for (m, n, rank) in [(400, 60, 1), (400, 60, 20), (60, 400, 20), (100, 100, 50)] {
        let spectrum = geometric(rank, 100.0);
        let a = with_spectrum(m, n, &spectrum, 3);
        check(&format!("({m}, {n}) of rank {rank}"), dev, a, &spectrum);
    }
    check("zeros", dev, &Mat::zeros(40, 9), &[0.0]);
}

fn sizes(dev: &Device) {
    for (m, n) in [(1, 1), (1, 7), (7, 1), (2, 2), (64, 65), (257, 3), (3, 257)] {
        let spectrum = geometric(m.min(n), 10.0);
        check(&format!("({m}, {n})"), dev, with_spectrum(m, n, &spectrum, 5), &spectrum);
    }
    for (m, n) in [(0, 3), (3, 0), (0, 0)] {
        let found = svd(&Tensor::<f32>::zeros(dev, &[m, n]).unwrap()).unwrap();
        assert_eq!((found.u.shape(), found.v.shape()), (&[m, 0][..], &[n, 0][..]));
        assert!(found.s.is_empty());
    }
}

/// Returns the result, checked against the best approximation of rank k; in f64 too, if the device computes in f64.
fn check_truncated(
    name: &str,
    dev: &Device,
    a: &Mat<f64>,
    spectrum: &[f64],
    k: usize,
    options: &SvdOptions,
) -> TruncatedSvd {
    if dev.limits().f64 {
        check_truncated_in::<f64>(&format!("{name} of f64"), dev, a, spectrum, k, options);
    }
    check_truncated_in::<f32>(name, dev, a, spectrum, k, options)
}

fn check_truncated_in<R: Real>(
    name: &str,
    dev: &Device,
    a: &Mat<f64>,
    spectrum: &[f64],
    k: usize,
    options: &SvdOptions,
) -> TruncatedSvd<R> {
    let found = truncated_svd(&upload::<R>(dev, a.as_ref()), k, options, &Run::default());
    let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
    let (u, v) = (download(&found.u), download(&found.v));
    assert_eq!((u.shape(), v.shape()), ((a.nrows(), k), (a.ncols(), k)), "{name}");
    assert_orthonormal::<R>(&format!("{name}: u"), u.as_ref());
    assert_orthonormal::<R>(&format!("{name}: v"), v.as_ref());
    // The tail is relative to the largest value, since squares of values may be beyond f64.
    let largest = spectrum[0].max(f64::MIN_POSITIVE);
    let tail =
        |k: usize| largest * spectrum.iter().skip(k).map(|s| (s / largest).powi(2)).sum::<f64>().sqrt();
    let (error, best, whole) = (distance(a, &u, &found.s, &v), tail(k), tail(0));
    assert!(error <= 1.001 * best + 1e-5 * whole, "{name}: off by {error:.3e}, the best is {best:.3e}");
    for (i, s) in found.s.iter().enumerate().filter(|(i, _)| found.converged[*i]) {
        let expected = spectrum.get(i).copied().unwrap_or(0.0);
        let close = (s - expected).abs() <= 1e-5 * expected + 1e-6 * spectrum[0];
        assert!(close, "{name}: value {i} is {s}, not {expected}");
    }
    found
}

fn truncated_any_condition_number(dev: &Device) {
    for (m, n) in [(1100, 100), (100, 1100)] {
        for condition in [1.0, 1e6] {
            let spectrum = geometric(m.min(n), condition);
            let a = with_spectrum(m, n, &spectrum, 3);
            for k in [10, 100] {
                let name = format!("({m}, {n}), condition {condition:.0e}, k = {k}");
                check_truncated(&name, dev, a, &spectrum, k, &SvdOptions::default());
            }
        }
    }
}

/// The sizes are beyond those for which the exact decomposition is chosen. Values are far below the square root of f32's rounding error, so AᵀA
/// alone would lose them.
fn truncated_small_values(dev: &Device) {
    for (m, n, condition) in [(400, 1100, 1e3), (1100, 400, 1e6)] {
        let spectrum = geometric(20, condition);
        let a = with_spectrum(m, n, &spectrum, 6);
        for stop in [Stop::Tolerance(1e-4), Stop::PowerIterations(0), Stop::PowerIterations(2)] {
            let name = format!("({m}, {n}), condition {condition:.0e}, {stop:?}");
            let options = SvdOptions { stop, ..SvdOptions::default() };
            let found = check_truncated(&name, dev, a, &spectrum, 20, &options);
            assert!(found.passes > 1, "{name}: exact");
            let is_done = found.is_converged() || stop == Stop::PowerIterations(0);
            assert!(is_done, "{name}: {:?}", found.residuals);
        }
    }
}

fn truncated_rank_deficient(dev: &Device) {
    let spectrum = geometric(5, 10.0);
    for (m, n) in [(500, 450), (450, 500), (200, 40)] {
        let a = with_spectrum(m, n, &spectrum, 3);
        let found =
            check_truncated(&format!("({m}, {n}) of rank 5"), dev, a, &spectrum, 12, &SvdOptions::default());
        assert!(found.is_converged());
    }
    let found = check_truncated("zeros", dev, &Mat::zeros(500, 400), &[0.0], 3, &SvdOptions::default());
    assert!(found.s == [0.0; 3] && found.is_converged());
}

fn truncated_sizes(dev: &Device) {
    for (m, n) in [(1, 1), (1, 7), (7, 1), (2, 2), (30, 31)] {
        let spectrum = geometric(m.min(n), 10.0);
        let a = with_spectrum(m, n, &spectrum, 5);
        for k in 0..=m.min(n).min(3) {
            check_truncated(&format!("({m}, {n})"), dev, a, &spectrum, k, &SvdOptions::default());
        }
    }
    let none = Tensor::<f32>::zeros(dev, &[0, 4]).unwrap();
    let found = truncated_svd(&none, 0, &SvdOptions::default(), &Run::default()).unwrap();
    assert_eq!((found.u.shape(), found.v.shape()), (&[0, 0][..], &[4, 0][..]));
}

fn any_scale(dev: &Device) {
    let spectrum = geometric(330, 1e3);
    let a = with_spectrum(400, 330, &spectrum, 3);
    for scale in [1e30, 1e-30] {
        let scaled = Mat::from_fn(400, 330, |i, j| a[(i, j)] * scale);
        let spectrum: Vec<f64> = spectrum.iter().map(|s| s * scale).collect();
        check_truncated(&format!("{scale:e}"), dev, &scaled, &spectrum, 3, &SvdOptions::default());
        check(&format!("{scale:e}"), dev, &scaled, &spectrum);
    }
    for scale in [1e290, 1e-290].into_iter().filter(|_| dev.limits().f64) {
        let scaled = Mat::from_fn(400, 330, |i, j| a[(i, j)] * scale);
        let spectrum: Vec<f64> = spectrum.iter().map(|s| s * scale).collect();
        let (name, options) = (format!("{scale:e} of f64"), SvdOptions::default());
        check_truncated_in::<f64>(&name, dev, &scaled, &spectrum, 3, &options);
        check_in::<f64>(&name, dev, &scaled, &spectrum);
    }
}

/// Sums stay on the device, so that what is waited for and downloaded depends on the number of columns alone.
fn waits_and_downloads_of_any_height(dev: &Device) {
    fn of<R: Real>(dev: &Device) {
        let [short, tall] = [4000, 8000].map(|rows| {
            let x = upload::<R>(dev, random(rows, 20, 5).as_ref());
            let before = dev.traffic();
            gram(&x).unwrap();
            let sums = dev.traffic() - before;
            assert_eq!((sums.waits, sums.to_host, sums.to_device), (1, 8 * 20 * 20, 0), "{rows}");
            let before = dev.traffic();
            svd(&x).unwrap();
            let whole = dev.traffic() - before;
            (whole.waits, whole.to_host, whole.to_device)
        });
        assert_eq!(short, tall);
        assert!(short.0 <= 10, "{} waits", short.0);
    }
    let (dev, _lock) = alone(dev);
    of::<f32>(&dev);
    if dev.limits().f64 {
        of::<f64>(&dev);
    }
}

/// Adding equal numbers rounds in the same direction every time.
fn constant_matrix(dev: &Device) {
    let a = Mat::from_fn(1030, 330, |_, _| f64::from(0.7f32));
    let spectrum = [a.norm_l2()];
    check("constant", dev, &a, &spectrum);
    let found = check_truncated("constant", dev, &a, &spectrum, 1, &SvdOptions::default());
    assert!((found.s[0] / spectrum[0] - 1.0).abs() <= 1e-5, "{} is not {}", found.s[0], spectrum[0]);
}

fn signs(dev: &Device) {
    let a = with_spectrum(80, 50, &geometric(50, 20.0), 3);
    for sign in [SignRule::Stable, SignRule::DaskSum, SignRule::MaxAbsU, SignRule::MaxAbsV, SignRule::None] {
        let options = SvdOptions { sign, ..SvdOptions::default() };
        let found = truncated_svd(&upload::<f32>(dev, a.as_ref()), 6, &options, &Run::default()).unwrap();
        let (u, v) = (download(&found.u), download(&found.v));
        let largest = |x: Vec<f64>| x.into_iter().max_by(|x, y| x.abs().total_cmp(&y.abs())).unwrap();
        for j in 0..6 {
            match sign {
                SignRule::DaskSum => assert!(v.col(j).sum() >= 0.0),
                SignRule::MaxAbsU => assert!(largest(u.col(j).iter().copied().collect()) > 0.0),
                SignRule::Stable | SignRule::MaxAbsV => {
                    assert!(largest(v.col(j).iter().copied().collect()) > 0.0)
                }
                SignRule::None => {}
            }
        }
        let error = distance(a, &u, &found.s, &v);
        let tail = geometric(50, 20.0).iter().skip(6).map(|s| s * s).sum::<f64>().sqrt();
        assert!(error <= 1.001 * tail, "{sign:?}: u and v disagree");
        let wide = upload::<f32>(dev, a.transpose());
        let mut turned = truncated_svd(&wide, 6, &options.sign(SignRule::None), &Run::default()).unwrap();
        turned.set_signs(sign, true).unwrap();
        for (j, turned) in download(&turned.u).col_iter().enumerate() {
            let along = turned.transpose() * v.col(j);
            assert!(along > 0.99 || sign == SignRule::None, "{sign:?} of the transposed: {along}");
        }
    }
}

fn bad_values_are_named(dev: &Device) {
    for bad in [f64::NAN, f64::INFINITY] {
        for (m, n) in [(40, 9), (9, 40), (400, 350)] {
            let a = Mat::from_fn(m, n, |i, j| if (i, j) == (4, 7) { bad } else { 1.0 + i as f64 });
            let a = upload::<f32>(dev, a.as_ref());
            let truncated = truncated_svd(&a, 2, &SvdOptions::default(), &Run::default()).unwrap_err();
            for error in [svd(&a).unwrap_err(), truncated] {
                assert!(matches!(error, Error::Argument { name: "a", .. }));
                assert!(error.to_string().contains("column 7 holds 1 values"), "{error}");
            }
        }
    }
    if dev.limits().f64 {
        let a = Mat::from_fn(40, 9, |i, j| if (i, j) == (4, 7) { f64::NEG_INFINITY } else { 1.0 });
        assert_refused(svd(&upload::<f64>(dev, a.as_ref())), &["column 7 holds 1 values"]);
    } else {
        let a = Tensor::<f64>::zeros(dev, &[4, 3]).unwrap();
        let truncated = truncated_svd(&a, 1, &SvdOptions::default(), &Run::default());
        assert!(matches!(svd(&a), Err(Error::NoF64 { op: "svd", .. })));
        assert!(matches!(truncated, Err(Error::NoF64 { op: "truncated_svd", .. })));
    }
    let flat = Tensor::<f32>::zeros(dev, &[8]).unwrap();
    assert!(matches!(svd(&flat), Err(Error::Shape { .. })));
    assert_err!(truncated_svd(&flat, 1, &SvdOptions::default(), &Run::default()), Error::Shape { .. });
}

type Everything<R> = [(Vec<R>, Vec<f64>, Vec<R>); 2];

fn everything<R: Real>(dev: &Device) -> Everything<R> {
    let a = upload(dev, with_spectrum(420, 340, &geometric(340, 1e4), 4).as_ref());
    let whole = svd(&a).unwrap();
    let found = truncated_svd(&a, 5, &SvdOptions::default(), &Run::default()).unwrap();
    assert!(found.passes > 1);
    [(whole.u, whole.s, whole.v), (found.u, found.s, found.v)]
        .map(|(u, s, v)| (u.read().unwrap(), s, v.read().unwrap()))
}

/// The tolerance is below what f32 can reach.
fn truncated_to_the_last_digit(dev: &Device) {
    if !dev.limits().f64 {
        return;
    }
    let spectrum = geometric(300, 1e12);
    let options = SvdOptions::default().stop(Stop::Tolerance(1e-11));
    for (m, n) in [(1100, 300), (300, 1100)] {
        let a = with_spectrum(m, n, &spectrum, 8);
        let found = check_truncated_in::<f64>("to 1e-11", dev, a, &spectrum, 8, &options);
        assert!(found.is_converged() && found.passes > 1);
        for (s, expected) in found.s.iter().zip(&spectrum) {
            assert!((s - expected).abs() <= 1e-13, "{s} is not {expected}");
        }
    }
}

fn two_runs_are_equal(dev: &Device) {
    assert!(everything::<f32>(dev) == everything(dev));
    if dev.limits().f64 {
        assert!(everything::<f64>(dev) == everything(dev));
    }
}

#[test]
fn threads_change_nothing() {
    assert!(everything::<f32>(&threads(1)) == everything(&threads(3)));
    assert!(everything::<f64>(&threads(1)) == everything(&threads(3)));
}

#[test]
fn too_long_sides_are_named() {
    let a = Tensor::<f32>::empty(&Device::cpu(), &[16_385, 16_386]).unwrap();
    assert_refused(svd(&a), &["(16385, 16386)", "randomized_svd"]);
}
