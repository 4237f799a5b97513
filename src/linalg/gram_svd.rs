//! The truncated SVD of a matrix whose Gram matrix is known.

use super::{
    eigen::{self, largest},
    matrix::Matrix,
    right_svd::RightSvd,
    sign::SignRule,
    svd_plan::FLOOR,
    threads::Threads,
};
use crate::{Device, Error, Result};

/// Returns the `k` largest singular values of A and their right vectors, computed from `gram` = AᵀA in f64 on the threads of `device`.
/// [`BlockSum`](super::BlockSum) has an example.
///
/// # Shapes
/// `gram`: (n, n), symmetric -> k values and `v` (n, k), with k <= n. `passes` is 0, since no pass over A is made.
///
/// # Accuracy
/// The result is as accurate as `gram`, whose rounding error is assumed to be that of sums in f32: a value below about 1.4e-3 of the largest
/// counts as 0. Results are the same to the bit for any number of threads. `sign` determines the signs, except that [`SignRule::MaxAbsU`]
/// needs A, which [`SignRule::apply`] takes.
///
/// # Cost
/// A few of many values are found by iteration, which takes about n³ / 3 + 70 n^(7/3) operations for ten. Otherwise all values are computed,
/// by 10 n³ operations on one thread. Both take memory for 3 n² values of f64 in addition to `gram`.
///
/// # Errors
/// [`Error::Shape`] for a matrix that is not square; [`Error::Argument`] for k above n, and if `gram` holds NaN or infinity; any error of
/// starting threads. Symmetry is not checked.
pub fn gram_svd(gram: &Matrix, k: usize, sign: SignRule, device: &Device) -> Result<RightSvd> {
    gram_svd_of(gram, k, sign, device, f32::EPSILON.into())
}

/// [`gram_svd`] of a Gram matrix of this relative precision.
pub(crate) fn gram_svd_of(
    gram: &Matrix,
    k: usize,
    sign: SignRule,
    device: &Device,
    precision: f64,
) -> Result<RightSvd> {
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
    // Products cannot tell values up to this bound from zero, as in the randomized method.
    let floor = values.first().map_or(0.0, |largest| FLOOR * precision * largest.max(0.0));
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
    Ok(RightSvd { s, v, residuals, converged, passes: 0, found: 0, image: None })
}

/// Returns the seconds that [`gram_svd`] is expected to take on one CPU core for a matrix of n columns and k singular values. This is an
/// estimate, for a choice between methods, from times on processors with AVX2.
pub fn gram_svd_seconds(n: u64, k: u64) -> f64 {
    eigen::seconds(n, k)
}
