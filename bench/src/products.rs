//! Measurements of matrix products in f32.

use teatime::{Device, Error, Tensor, linalg};

use crate::{
    data,
    measure::{Job, Session, Size},
    report::Unit,
};

/// The shape of a product: C (m, n), summed over k.
struct Shape {
    m: u64,
    n: u64,
    k: u64,
    /// True if the left matrix is stored transposed.
    transposed: bool,
}

impl Shape {
    const fn new([m, n, k]: [u64; 3]) -> Self {
        Self { m, n, k, transposed: false }
    }

    const fn transposed([m, n, k]: [u64; 3]) -> Self {
        Self { m, n, k, transposed: true }
    }

    fn size(&self) -> Size {
        let Self { m, n, k, .. } = *self;
        Size {
            text: format!("{m}x{n}x{k}"),
            work: 2.0 * (m * n) as f64 * k as f64,
            memory: 4 * (m * k + k * n + 2 * m * n),
        }
    }

    fn job(&self, device: &Device) -> Result<Job, Error> {
        let Self { m, n, k, transposed } = *self;
        let a = data::matrix(device, 1, if transposed { [k, m] } else { [m, k] })?;
        let b = data::matrix(device, 2, [k, n])?;
        let product: fn(&Tensor<f32>, &Tensor<f32>) -> _ =
            if transposed { linalg::matmul_tn } else { linalg::matmul };
        Ok(Box::new(move || product(&a, &b).map(drop)))
    }
}

/// Measures cubes, and the products of a decomposition, of a long and a narrow matrix. `end` is the suffix of each name.
pub(crate) fn products(session: &mut Session<'_>, end: &str) {
    let cubes = [512, 1024, 2048, 4096, 8192].map(|n| Shape::new([n; 3]));
    let name = |shape: &Shape| format!("matmul {}{end}", shape.m);
    session.each(Unit::Flops, &cubes, name, Shape::size, |device, shape| shape.job(device));
    let thin = [4096, 165_000];
    let name = |shape: &Shape| format!("matmul thin {}{end}", shape.m);
    let shapes = thin.map(|m| Shape::new([m, 20, 1000]));
    session.each(Unit::Flops, &shapes, name, Shape::size, |device, shape| shape.job(device));
    let name = |shape: &Shape| format!("matmul thin {} transposed{end}", shape.k);
    let shapes = thin.map(|k| Shape::transposed([1000, 20, k]));
    session.each(Unit::Flops, &shapes, name, Shape::size, |device, shape| shape.job(device));
}
