//! Products in f32: `cargo bench -p teatime-bench --bench matmul`. The shape is the rows and columns of A and the columns of B. An element of
//! criterion's throughput is an addition or a multiplication, as in `benches/peers/matmul_numpy.py` for numpy.
//!
//! The result is checked once before it is timed.

mod support;

use support::{Bench, float, random};
use teatime::{DeviceKind, Error, Tensor, linalg, random::philox};

type Product = fn(&Tensor<f32>, &Tensor<f32>) -> Result<Tensor<f32>, Error>;

/// Compares a few elements with sums in f64.
fn check(a: &[f32], b: &[f32], c: &[f32], [n, k]: [usize; 2], transposed: bool) {
    let m = c.len() / n;
    for i in 0..16u64 {
        let [row, col, ..] = philox([9, 9], i);
        let (row, col) = (row as usize % m, col as usize % n);
        let a = |at: usize| f64::from(if transposed { a[at * m + row] } else { a[row * k + at] });
        let expected: f64 = (0..k).map(|at| a(at) * f64::from(b[at * n + col])).sum();
        let error = (f64::from(c[row * n + col]) - expected).abs();
        assert!(error <= 1e-6 * k as f64, "({row}, {col}): {} against {expected}", c[row * n + col]);
    }
}

fn case(bench: &mut Bench, shape: [u64; 3], transposed: bool) {
    let [rows, cols, n] = shape;
    let device = &bench.device.clone();
    let (op, product, m, k): (_, Product, _, _) = match transposed {
        true => ("matmul_tn", linalg::matmul_tn, cols, rows),
        false => ("matmul", linalg::matmul, rows, cols),
    };
    bench.case(op, &shape, 4 * (m * k + k * n + m * n), Some(2 * m * n * k), || {
        let a = random(device, 1, &[rows, cols], |word| float(word) - 0.5)?;
        let b = random(device, 2, &[k, n], |word| float(word) - 0.5)?;
        let extents = [n, k].map(|extent| usize::try_from(extent).expect("the shape should be small"));
        check(&a.read()?, &b.read()?, &product(&a, &b)?.read()?, extents, transposed);
        Ok(move || product(&a, &b).map(drop))
    });
}

fn main() -> Result<(), Error> {
    let mut bench = Bench::new()?;
    case(&mut bench, [1024; 3], false);
    // Software adapters take seconds for the large shapes.
    if bench.device.info().kind == DeviceKind::Software {
        return Ok(());
    }
    case(&mut bench, [2048; 3], false);
    for rows in [165_000, 4096] {
        case(&mut bench, [rows, 1000, 20], false);
        case(&mut bench, [rows, 1000, 20], true);
    }
    Ok(())
}
