//! Factorisations, by identities on matrices of known spectra.
#![allow(clippy::cast_possible_truncation, reason = "small extents, and values rounded to f32 on purpose")]

mod qr;
mod rsvd;
mod svd;

use faer::{Mat, MatRef};

use super::host;
use crate::{Device, DeviceOptions, Tensor, random::gaussian};

/// max|QᵀQ - I|, for any x.
const ORTHONORMAL: f64 = 2e-6;

/// A device that poisons new memory and checks guard words.
fn checked(threads: usize) -> Device {
    let options = DeviceOptions { checked: true, threads: Some(threads), ..DeviceOptions::default() };
    Device::open_with("cpu", &options).unwrap()
}

/// Runs functions of a device as tests on the cpu device.
macro_rules! on_cpu {
    ($($name:ident),* $(,)?) => {
        mod on_cpu { $(#[test] fn $name() { super::$name(&crate::linalg::tests::checked(2)) })* }
    };
}
use on_cpu;

fn random(rows: usize, cols: usize, seed: u64) -> Mat<f64> {
    Mat::from_fn(rows, cols, |i, j| gaussian(seed, (i * cols + j) as u64))
}

fn orthonormal(rows: usize, cols: usize, seed: u64) -> Mat<f64> {
    let once = host::orthonormalize("test", random(rows, cols, seed).as_ref(), 0.0).unwrap();
    host::orthonormalize("test", once.as_ref(), 0.0).unwrap()
}

/// U diag(s) Vᵀ with random orthonormal U and V.
fn with_spectrum(m: usize, n: usize, s: &[f64], seed: u64) -> Mat<f64> {
    let (mut u, v) = (orthonormal(m, s.len(), seed), orthonormal(n, s.len(), seed + 1));
    u.as_mut().col_iter_mut().zip(s).for_each(|(column, s)| column.iter_mut().for_each(|x| *x *= s));
    host::product(u.as_ref(), v.transpose())
}

/// `count` values falling by equal factors from 1 to 1 / condition.
fn geometric(count: usize, condition: f64) -> Vec<f64> {
    (0..count).map(|i| condition.powf(-(i as f64) / (count.max(2) - 1) as f64)).collect()
}

fn upload(dev: &Device, a: MatRef<'_, f64>) -> Tensor<f32> {
    let values: Vec<f32> = a.row_iter().flat_map(|row| row.iter().map(|&x| x as f32)).collect();
    Tensor::from_slice(dev, &values, &[a.nrows() as u64, a.ncols() as u64]).unwrap()
}

fn download(x: &Tensor<f32>) -> Mat<f64> {
    let (values, cols) = (x.read().unwrap(), x.shape()[1] as usize);
    Mat::from_fn(x.shape()[0] as usize, cols, |i, j| f64::from(values[i * cols + j]))
}

/// max|QᵀQ - I|.
fn distance_from_orthonormal(q: MatRef<'_, f64>) -> f64 {
    let gram = host::product(q.transpose(), q);
    (gram - Mat::<f64>::identity(q.ncols(), q.ncols())).norm_max()
}

fn assert_orthonormal(name: &str, q: MatRef<'_, f64>) {
    let distance = distance_from_orthonormal(q);
    assert!(distance <= ORTHONORMAL, "{name}: max|QᵀQ - I| = {distance:.2e}");
}
