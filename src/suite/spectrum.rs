//! Helpers for tests of factorisations, by identities on matrices of known spectra.
#![allow(clippy::cast_possible_truncation, reason = "small extents")]

use std::{
    collections::BTreeMap,
    f64::consts::TAU,
    sync::{Mutex, OnceLock},
};

use faer::{Mat, MatRef};

use crate::{Device, DeviceOptions, Element, Real, Tensor, linalg::host, random::gaussian};

/// Returns the bound of max|QᵀQ - I|, for any x.
pub(super) fn orthonormal<R: Real>() -> f64 {
    if R::DTYPE.is_wide() { 1e-13 } else { 2e-6 }
}

/// Opens a cpu device with this many threads.
pub(super) fn threads(threads: usize) -> Device {
    let options = DeviceOptions { checked: true, threads: Some(threads), ..DeviceOptions::default() };
    Device::open_with("cpu", &options).unwrap()
}

pub(super) fn random(rows: usize, cols: usize, seed: u64) -> Mat<f64> {
    Mat::from_fn(rows, cols, |i, j| gaussian(seed, (i * cols + j) as u64))
}

/// Returns U diag(s) Vᵀ with dense orthonormal U and V, computed once for all devices.
pub(super) fn with_spectrum(m: usize, n: usize, s: &[f64], seed: u64) -> &'static Mat<f64> {
    type Key = (usize, usize, Vec<u64>, u64);
    static MADE: Mutex<BTreeMap<Key, &'static OnceLock<Mat<f64>>>> = Mutex::new(BTreeMap::new());
    let key = (m, n, s.iter().map(|s| s.to_bits()).collect(), seed);
    let made = *MADE.lock().unwrap().entry(key).or_insert_with(|| Box::leak(Box::default()));
    made.get_or_init(|| {
        let mut rows = vec![vec![0.0; n]; m];
        s.iter().enumerate().for_each(|(i, &s)| rows[i][i] = s);
        rotate(&mut rows, seed);
        let mut columns: Vec<Vec<f64>> = (0..n).map(|j| rows.iter().map(|row| row[j]).collect()).collect();
        rotate(&mut columns, seed + 1);
        Mat::from_fn(m, n, |i, j| columns[j][i])
    })
}

/// Multiplies by an orthogonal matrix: random rotations of pairs in a butterfly, done twice.
fn rotate(rows: &mut [Vec<f64>], seed: u64) {
    let len = rows.len();
    let once = (0..usize::BITS).map(|bit| 1 << bit).take_while(|&stride| stride < len);
    for (layer, stride) in once.clone().chain(once).enumerate() {
        for i in (0..len - stride).filter(|i| i & stride == 0) {
            let (sin, cos) = (TAU * gaussian(seed + layer as u64, i as u64)).sin_cos();
            let (above, below) = rows.split_at_mut(i + stride);
            for (x, y) in above[i].iter_mut().zip(&mut below[0]) {
                (*x, *y) = (cos * *x + sin * *y, cos * *y - sin * *x);
            }
        }
    }
}

/// Returns `count` values that decrease geometrically from 1 to 1 / condition.
pub(super) fn geometric(count: usize, condition: f64) -> Vec<f64> {
    (0..count).map(|i| condition.powf(-(i as f64) / (count.max(2) - 1) as f64)).collect()
}

pub(super) fn upload<R: Real>(dev: &Device, a: MatRef<'_, f64>) -> Tensor<R> {
    let values: Vec<R> = a.row_iter().flat_map(|row| row.iter().map(|&x| R::nearest(x))).collect();
    Tensor::from_slice(dev, &values, &[a.nrows() as u64, a.ncols() as u64]).unwrap()
}

pub(super) fn download<T: Element>(x: &Tensor<T>) -> Mat<f64> {
    let (values, cols) = (x.read().unwrap(), x.shape()[1] as usize);
    Mat::from_fn(x.shape()[0] as usize, cols, |i, j| values[i * cols + j].to_f64())
}

/// Returns max|QᵀQ - I|.
pub(super) fn distance_from_orthonormal(q: MatRef<'_, f64>) -> f64 {
    let gram = host::product(q.transpose(), q);
    (gram - Mat::<f64>::identity(q.ncols(), q.ncols())).norm_max()
}

pub(super) fn assert_orthonormal<R: Real>(name: &str, q: MatRef<'_, f64>) {
    let distance = distance_from_orthonormal(q);
    assert!(distance <= orthonormal::<R>(), "{name}: max|QᵀQ - I| = {distance:.2e}");
}
