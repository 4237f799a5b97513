//! Exact singular value decomposition.

use faer::Mat;

use super::{
    host,
    matrix::Matrix,
    qr::{Factors, MAX_COLUMNS, factor, sizes, times},
    transpose::transpose,
};
use crate::{Error, Real, Result, Tensor, extent::to_usize, timeline::Stage, waiting::apart};

/// The decomposition that [`svd`] returns: `a = U diag(s) Vᵀ` with r = min(m, n).
#[derive(Debug)]
#[non_exhaustive]
pub struct Svd<R: Real = f32> {
    /// Left singular vectors (m, r), orthonormal columns.
    pub u: Tensor<R>,
    /// Singular values, in descending order.
    pub s: Vec<f64>,
    /// Right singular vectors (n, r), orthonormal columns.
    pub v: Tensor<R>,
}

/// Returns the thin singular value decomposition `a = U diag(s) Vᵀ` of a tall or a wide matrix.
///
/// [`qr`](super::qr()) factorises `a` or `aᵀ`, whichever is tall, and R is decomposed on the host in f64. The signs of the vectors are as the
/// factorisation leaves them.
///
/// # Shapes
/// `a`: (m, n) of f32 or f64 -> `u` (m, r), r values, `v` (n, r) with r = min(m, n), at most 16,384.
///
/// # Accuracy
/// max|UᵀU - I| <= 2e-6, also if `a` is rank deficient, and ‖a - U diag(s) Vᵀ‖ <= 3e-6 ‖a‖ in the Frobenius norm. Singular values are right
/// to 1e-6 of the largest. f64 is decomposed in f64, and each of these bounds is then 1e-13.
///
/// # Cost
/// For m >= n, that of [`qr`](super::qr()) and about 25 n³ operations in f64 on one thread of the host, with host memory for about 10 n²
/// values: one second for n = 1,000. A wide matrix is transposed first. Waits.
///
/// # Errors
/// [`Error::Shape`] unless `a` is a matrix; [`Error::Argument`] when it holds NaN or infinity or r is above 16,384
/// ([`randomized_svd`](super::randomized_svd) has no such bound); [`Error::OutOfMemory`]. For f64, as [`qr`](super::qr()).
///
/// ```
/// use teatime::{Device, Tensor, linalg};
/// let device = Device::best()?;
/// let a = Tensor::from_slice(&device, &[0.0f32, 2.0, 0.0, 3.0, 0.0, 0.0], &[2, 3])?;
/// let svd = linalg::svd(&a)?;
/// assert!((svd.s[0] - 3.0).abs() < 1e-5 && (svd.s[1] - 2.0).abs() < 1e-5);
/// assert_eq!((svd.u.shape(), svd.v.shape()), (&[2, 2][..], &[3, 2][..]));
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn svd<R: Real>(a: &Tensor<R>) -> Result<Svd<R>> {
    let op = "svd";
    let [m, n] = a.matrix(op)?;
    let rank = m.min(n);
    let Exact { long, s, short } = exact(op, a, to_usize(rank))?;
    let short = Matrix::from_faer(short.as_ref()).to_real(a.device())?;
    let (u, v) = if m >= n { (long, short) } else { (short, long) };
    Ok(Svd { u, s, v })
}

/// The first components. The vectors of the longer side are on the device, and those of the shorter side are on the host.
#[derive(Debug)]
pub(crate) struct Exact<R: Real> {
    pub(crate) long: Tensor<R>,
    pub(crate) s: Vec<f64>,
    pub(crate) short: Mat<f64>,
}

/// Returns the first `k` components of the decomposition.
pub(crate) fn exact<R: Real>(op: &'static str, a: &Tensor<R>, k: usize) -> Result<Exact<R>> {
    let [m, n] = a.matrix(op)?;
    let rank = m.min(n);
    if rank > MAX_COLUMNS {
        let why = format!(
            "the shorter side of ({m}, {n}) is {rank}; at most {MAX_COLUMNS}: randomized_svd has no such bound"
        );
        return Err(Error::argument(op, "a", why));
    }
    let transposed = if m < n { Some(transpose(a)?) } else { None };
    let factors = factor(op, transposed.as_ref().unwrap_or(a));
    let Factors { basis, last, r } = factors.or_else(|error| match error {
        // The error names a column of the transpose.
        Error::Argument { .. } if transposed.is_some() => sizes(op, a).and(Err(error)),
        error => Err(error),
    })?;
    let span = a.device().span(Stage::Host, op);
    let (last, s, short) = apart(a.device().cancel(), r.rows(), move || {
        let (u, mut s, v) = host::singular(op, r.as_faer())?;
        s.truncate(k);
        let [u, short] = [u, v].map(|x| x.subcols(0, k).to_owned());
        Ok((host::product(last.as_ref(), u.as_ref()), s, short))
    })?;
    drop(span);
    Ok(Exact { long: times(&basis, last.as_ref())?, s, short })
}
