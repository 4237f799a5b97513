//! Tests of QR: identities for any condition number, rank, scale and shape.

use faer::{Mat, MatRef};

use super::{spectrum::*, *};
use crate::linalg::{host, qr};

device_tests! {
    sizes, structured_dependence, columns_of_any_scale, bad_values_are_named, bad_shapes_are_named,
    two_runs_are_equal;
    ;
    any_condition_number, constant_columns, dependent_columns,
}

/// Checks that Q is orthonormal, R is upper triangular with a diagonal >= 0, and each column of x - Q R is small relative to x's; in f64 too, if the
/// device has it.
fn check(name: &str, dev: &Device, x: MatRef<'_, f64>) -> Mat<f64> {
    if dev.limits().f64 {
        check_in::<f64>(&format!("{name} of f64"), dev, x);
    }
    check_in::<f32>(name, dev, x)
}

fn check_in<R: Real>(name: &str, dev: &Device, x: MatRef<'_, f64>) -> Mat<f64> {
    let x = upload::<R>(dev, x);
    let factors = qr(&x).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (q, x) = (download(&factors.q), download(&x));
    let r = factors.r.as_faer();
    assert_orthonormal::<R>(name, q.as_ref());
    for i in 0..r.nrows() {
        assert!(r[(i, i)] >= 0.0 && (0..i).all(|j| r[(i, j)] == 0.0), "{name}: row {i} of R");
    }
    let (product, bound) = (host::product(q.as_ref(), r), if R::DTYPE.is_wide() { 1e-14 } else { 2e-6 });
    let least = if R::DTYPE.is_wide() { 0.0 } else { smallest(dev) * (x.nrows() as f64).sqrt() };
    for j in 0..x.ncols() {
        let (error, length) = ((product.col(j) - x.col(j)).norm_l2(), x.col(j).norm_l2());
        let is_near = error <= bound * length + least;
        assert!(is_near, "{name}: column {j} of length {length:.1e} is off by {error:.1e}");
    }
    r.to_owned()
}

fn any_condition_number(dev: &Device) {
    // There are more columns than one, two and four tiles of 64, and fewer.
    for (m, n) in [(2100, 40), (300, 130), (257, 257)] {
        for condition in [1.0, 1e4, 1e8, 1e16] {
            let a = with_spectrum(m, n, &geometric(n, condition), 3);
            check(&format!("({m}, {n}), condition {condition:.0e}"), dev, a.as_ref());
        }
    }
}

fn sizes(dev: &Device) {
    for (m, n) in [(1, 1), (2, 1), (2, 2), (255, 7), (256, 64), (257, 65), (1025, 3), (5, 0), (0, 0)] {
        check(&format!("({m}, {n})"), dev, random(m, n, 5).as_ref());
    }
}

fn dependent_columns(dev: &Device) {
    let base = random(600, 30, 7);
    let mixing = random(30, 80, 8);
    let low = host::product(base.as_ref(), mixing.as_ref());
    let r = check("rank 30 of 80", dev, low.as_ref());
    let (_, s, _) = host::singular("test", r.as_ref()).unwrap();
    assert!(s[30] < 2e-6 * s[0] && s[29] > 1e-3 * s[0], "rank is lost: {:?}", &s[28..32]);
    let twice = Mat::from_fn(600, 60, |i, j| base[(i, j % 30)]);
    check("each column twice", dev, twice.as_ref());
    let holes = Mat::from_fn(600, 30, |i, j| if j % 3 == 1 { 0.0 } else { base[(i, j)] });
    check("zero columns", dev, holes.as_ref());
    let same = Mat::from_fn(90, 90, |i, _| base[(i, 0)]);
    check("one column 90 times", dev, same.as_ref());
}

/// Exact sums leave no rounding noise that would make columns independent.
fn structured_dependence(dev: &Device) {
    check("all zero", dev, Mat::zeros(300, 20).as_ref());
    check("all zero, square", dev, Mat::zeros(60, 60).as_ref());
    check("all one", dev, Mat::from_fn(512, 64, |_, _| 1.0).as_ref());
    check("unit vector", dev, Mat::from_fn(100, 40, |i, _| f64::from(i == 3)).as_ref());
    check("identity, twice", dev, Mat::from_fn(64, 64, |i, j| f64::from(i == j % 32)).as_ref());
    check("integers", dev, Mat::from_fn(64, 64, |i, j| ((i * j) % 3) as f64).as_ref());
}

/// Adding equal numbers rounds in the same direction every time.
fn constant_columns(dev: &Device) {
    for (n, value) in [(4, 0.7), (4, 1.3), (130, 0.7), (260, 1.1)] {
        let rest = random(2100, n, 11);
        let x = Mat::from_fn(2100, n, |i, j| if j == 0 { value } else { rest[(i, j)] });
        check(&format!("a column of {value} before {n}"), dev, x.as_ref());
    }
}

fn columns_of_any_scale(dev: &Device) {
    let base = random(500, 24, 9);
    let scale = |j: usize| [1e30, 1e-30, 1.0, 1e37, 1e-37, 1e12, 1e-12, 3.0][j % 8];
    let x = Mat::from_fn(500, 24, |i, j| base[(i, j)] * scale(j));
    check("columns from 1e-37 to 1e37", dev, x.as_ref());
    check("all 1e30", dev, Mat::from_fn(500, 24, |i, j| base[(i, j)] * 1e30).as_ref());
    check("all 1e-30", dev, Mat::from_fn(500, 24, |i, j| base[(i, j)] * 1e-30).as_ref());
    if dev.limits().f64 {
        let scale = |j: usize| [1e-290, 1.0, 1e290, 1e160, 1e-160, 1e304][j % 6];
        let x = Mat::from_fn(500, 24, |i, j| base[(i, j)] * scale(j));
        check_in::<f64>("columns from 1e-290 to 1e304", dev, x.as_ref());
    }
}

fn bad_values_are_named(dev: &Device) {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let x = Mat::from_fn(40, 5, |i, j| if (i, j) == (17, 3) { bad } else { 1.0 + i as f64 });
        let error = qr(&upload::<f32>(dev, x.as_ref())).unwrap_err();
        assert!(matches!(error, Error::Argument { op: "qr", name: "x", .. }));
        assert!(error.to_string().contains("column 3 holds 1 values"), "{error}");
    }
}

fn bad_shapes_are_named(dev: &Device) {
    let wide = qr(&upload::<f32>(dev, random(3, 4, 1).as_ref())).unwrap_err();
    assert!(matches!(&wide, Error::Shape { got, .. } if got.contains("(3, 4)")), "{wide}");
    if !dev.limits().f64 {
        assert_err!(qr(&Tensor::<f64>::zeros(dev, &[4, 3]).unwrap()), Error::NoF64 { op: "qr", .. });
    }
    let flat = qr(&Tensor::<f32>::zeros(dev, &[8]).unwrap()).unwrap_err();
    assert!(matches!(&flat, Error::Shape { got, .. } if got.contains("[8]")), "{flat}");
}

fn factors<R: Real>(dev: &Device) -> (Vec<R>, Matrix) {
    let a = with_spectrum(900, 70, &geometric(60, 1e5), 4);
    let factors = qr(&upload(dev, a.as_ref())).unwrap();
    (factors.q.read().unwrap(), factors.r)
}

fn two_runs_are_equal(dev: &Device) {
    assert_eq!(factors::<f32>(dev), factors(dev));
    if dev.limits().f64 {
        assert_eq!(factors::<f64>(dev), factors(dev));
    }
}

#[test]
fn threads_change_nothing() {
    assert_eq!(factors::<f32>(&threads(1)), factors(&threads(3)));
    assert_eq!(factors::<f64>(&threads(1)), factors(&threads(3)));
}

#[test]
fn too_many_columns_are_named() {
    // Memory that is never touched is not allocated.
    let x = Tensor::<f32>::empty(&Device::cpu(), &[16_385, 16_385]).unwrap();
    let error = qr(&x).unwrap_err();
    assert!(matches!(&error, Error::Argument { name: "x", why, .. } if why.contains("16385")), "{error}");
}
