//! The truncated SVD of a matrix of which the Gram matrix is known.

use super::{
    eigen::{self, largest},
    matrix::Matrix,
    right_svd::RightSvd,
    sign::SignRule,
    steps::FLOOR,
    threads::Threads,
};
use crate::{Device, Error, Result};

/// The `k` largest singular values of A and their right vectors, from `gram` = AᵀA, in f64 on the threads of `device`. [`BlockSum`](super::BlockSum)
/// has an example.
///
/// # Shapes
/// `gram`: (n, n), symmetric -> k values, `v` (n, k); no more than n. `passes` is 0: none over A.
///
/// # Accuracy
/// That of `gram`, whose rounding is taken for that of sums of f32: a value below about 1.4e-3 of the largest counts as 0. The
/// same bits for any number of threads. Signs are as `sign` says, but [`SignRule::MaxAbsU`] needs A: [`SignRule::apply`] takes
/// that.
///
/// # Cost
/// Few of many values are iterated for: about n³ / 3 + 70 n^(7/3) operations for ten. Else all are found, by 10 n³ operations on one
/// thread. Memory for 3 n² numbers besides `gram`.
///
/// # Errors
/// [`Error::Shape`] for a matrix that is not square; [`Error::Argument`] for k above n, and where `gram` holds NaN or infinity;
/// what starting threads reports. That it is symmetric is not checked.
pub fn gram_svd(gram: &Matrix, k: usize, sign: SignRule, device: &Device) -> Result<RightSvd> {
    let (op, n) = ("gram_svd", gram.rows());
    if gram.cols() != n {
        return Err(Error::shape(op, "a square matrix", format_args!("({n}, {})", gram.cols())));
    }
    if k > n {
        return Err(Error::argument(op, "k", format_args!("{k} of {n}")));
    }
    if gram.data().iter().any(|value| !value.is_finite()) {
        return Err(Error::argument(op, "gram", "holds NaN or infinity"));
    }
    let (values, vectors) = largest(op, (gram.data(), n), k, device)?;
    // Sums of f32 products cannot tell values up to this from zero, as in the randomized method.
    let floor = values.first().map_or(0.0, |largest| FLOOR * f64::from(f32::EPSILON) * largest.max(0.0));
    let s: Vec<f64> = values.iter().map(|&value| if value <= floor { 0.0 } else { value.sqrt() }).collect();
    let image = Threads::new(device)?.product(gram.as_faer(), vectors.as_ref());
    let residual = |j: usize| {
        let difference = (0..n).map(|i| image[(i, j)] - values[j] * vectors[(i, j)]);
        let norm = difference.map(|x| x * x).sum::<f64>().sqrt();
        if s[j] > 0.0 { norm / (s[j] * s[0]) } else { 0.0 }
    };
    let residuals = (0..s.len()).map(residual).collect();
    let mut v = Matrix::from_faer(vectors.as_ref());
    if sign != SignRule::MaxAbsU {
        v.negate_columns(&sign.negative(&v));
    }
    let converged = vec![true; s.len()];
    Ok(RightSvd { s, v, residuals, converged, passes: 0 })
}

/// Seconds that [`gram_svd`] is expected to take of one core of a CPU. For plans of other packages of this workspace.
#[doc(hidden)]
pub fn gram_svd_seconds(n: u64, k: u64) -> f64 {
    eigen::seconds(n, k)
}
