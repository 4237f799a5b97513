//! Small dense matrices in f64 on the host, with faer.
//!
//! Everything runs on the calling thread: sums split over threads would make results depend on their number.

use faer::{
    Accum, Conj, Mat, MatRef, Par,
    diag::DiagMut,
    dyn_stack::{MemBuffer, MemStack, StackReq},
    linalg::{evd, householder, matmul::matmul, qr::no_pivoting::factor as qr, svd},
};

use crate::{Cancel, Error, Result, waiting::apart};

/// `a b`.
pub(crate) fn product(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    matmul(&mut out, Accum::Replace, a, b, 1.0, Par::Seq);
    out
}

/// The `count` largest eigenvalues of a symmetric matrix, falling, and their vectors; reads its lower triangle.
///
/// # Errors
/// [`Error::Argument`] for NaN and infinity; as [`apart`].
pub(crate) fn eigen(
    op: &'static str,
    a: MatRef<'_, f64>,
    count: usize,
    cancel: Option<&Cancel>,
) -> Result<(Vec<f64>, Mat<f64>)> {
    let n = a.nrows();
    if n == 0 {
        // faer's size of its scratch memory would underflow.
        return Ok((Vec::new(), Mat::zeros(0, 0)));
    }
    // faer's vectors of matrices of 1e30 or 1e-30 are wrong in the third digit.
    let scale = match a.norm_max() {
        largest if largest > 0.0 && largest.is_finite() => largest.log2().floor().exp2(),
        _ => 1.0,
    };
    let scaled = Mat::from_fn(n, n, |i, j| a[(i, j)] / scale);
    let (mut values, vectors) = apart(cancel, n, move || {
        let (mut values, mut vectors) = (vec![0.0; n], Mat::zeros(n, n));
        let params = Default::default();
        let scratch =
            evd::self_adjoint_evd_scratch::<f64>(n, evd::ComputeEigenvectors::Yes, Par::Seq, params);
        let mut memory = buffer(op, scratch)?;
        let diagonal = DiagMut::from_slice_mut(&mut values);
        let stack = MemStack::new(&mut memory);
        evd::self_adjoint_evd(scaled.as_ref(), diagonal, Some(vectors.as_mut()), Par::Seq, stack, params)
            .map_err(|_| not_finite(op))?;
        Ok((values, vectors))
    })?;
    values.reverse();
    values.truncate(count);
    values.iter_mut().for_each(|value| *value *= scale);
    Ok((values, Mat::from_fn(n, count, |i, j| vectors[(i, n - 1 - j)])))
}

/// The thin singular value decomposition: u, the values falling, v.
pub(crate) fn singular(op: &'static str, a: MatRef<'_, f64>) -> Result<(Mat<f64>, Vec<f64>, Mat<f64>)> {
    let (m, n) = a.shape();
    let r = m.min(n);
    let (mut u, mut values, mut v) = (Mat::zeros(m, r), vec![0.0; r], Mat::zeros(n, r));
    let (thin, params) = (svd::ComputeSvdVectors::Thin, Default::default());
    let mut memory = buffer(op, svd::svd_scratch::<f64>(m, n, thin, thin, Par::Seq, params))?;
    let diagonal = DiagMut::from_slice_mut(&mut values);
    let stack = MemStack::new(&mut memory);
    svd::svd(a, diagonal, Some(u.as_mut()), Some(v.as_mut()), Par::Seq, stack, params)
        .map_err(|_| not_finite(op))?;
    Ok((u, values, v))
}

/// `a = Q R` for a square a, with a diagonal of R that is not negative.
pub(crate) fn upper(op: &'static str, a: MatRef<'_, f64>) -> Result<(Mat<f64>, Mat<f64>)> {
    let n = a.nrows();
    let mut packed = a.to_owned();
    let block = qr::recommended_block_size::<f64>(n, n);
    let mut coefficients = Mat::zeros(block, n);
    let params = Default::default();
    let factor = qr::qr_in_place_scratch::<f64>(n, n, block, Par::Seq, params);
    let expand =
        householder::apply_block_householder_sequence_on_the_left_in_place_scratch::<f64>(n, block, n);
    let mut memory = buffer(op, factor.or(expand))?;
    let stack = MemStack::new(&mut memory);
    qr::qr_in_place(packed.as_mut(), coefficients.as_mut(), Par::Seq, stack, params);
    let sign: Vec<f64> = (0..n).map(|i| if packed[(i, i)] < 0.0 { -1.0 } else { 1.0 }).collect();
    let mut q = Mat::from_fn(n, n, |i, j| if i == j { sign[i] } else { 0.0 });
    householder::apply_block_householder_sequence_on_the_left_in_place_with_conj(
        packed.as_ref(),
        coefficients.as_ref(),
        Conj::No,
        q.as_mut(),
        Par::Seq,
        MemStack::new(&mut memory),
    );
    let r = Mat::from_fn(n, n, |i, j| if i <= j { sign[i] * packed[(i, j)] } else { 0.0 });
    Ok((q, r))
}

/// Scratch memory for faer.
pub(crate) fn buffer(op: &'static str, scratch: StackReq) -> Result<MemBuffer> {
    let requested = scratch.unaligned_bytes_required() as u64;
    MemBuffer::try_new(scratch).map_err(|_| {
        Error::argument(op, "k", format_args!("no host memory for {requested} bytes of small matrices"))
    })
}

/// faer's decompositions fail only on input that is not finite.
pub(crate) fn not_finite(op: &'static str) -> Error {
    Error::argument(op, "a", "its products hold NaN or infinity, or overflow f32")
}
