//! Small dense matrices in f64 on the host, with faer.
//!
//! Everything runs on the calling thread, since sums split over threads would make results depend on the number of threads.

use faer::{
    Accum, Mat, MatMut, MatRef, Par,
    diag::DiagMut,
    dyn_stack::{MemBuffer, MemStack, StackReq},
    linalg::{evd, matmul::matmul, svd},
    reborrow::*,
};

use crate::{Cancel, Error, Result, kernels::cpu::simd::end_wide, waiting::apart};

pub(crate) fn product(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    matmul(&mut out, Accum::Replace, a, b, 1.0, Par::Seq);
    end_wide();
    out
}

/// Returns the `count` largest eigenvalues of a symmetric matrix in descending order, and their vectors. Reads the lower triangle. Fails
/// with [`Error::Argument`] for NaN and infinity; the errors of [`apart`].
pub(crate) fn eigen(
    op: &'static str,
    a: MatRef<'_, f64>,
    count: usize,
    cancel: Option<&Cancel>,
) -> Result<(Vec<f64>, Mat<f64>)> {
    let n = a.nrows();
    if n == 0 {
        // For n = 0, the size of faer's scratch memory would underflow.
        return Ok((Vec::new(), Mat::zeros(0, 0)));
    }
    let (scaled, scale) = scaled(a);
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
        end_wide();
        Ok((values, vectors))
    })?;
    values.reverse();
    values.truncate(count);
    values.iter_mut().for_each(|value| *value *= scale);
    Ok((values, Mat::from_fn(n, count, |i, j| vectors[(i, n - 1 - j)])))
}

/// Returns the matrix divided by a power of two near its largest element, and that power. Without this, faer's vectors of matrices of 1e30 or
/// 1e-30 are wrong in the third digit.
fn scaled(a: MatRef<'_, f64>) -> (Mat<f64>, f64) {
    let scale = match a.norm_max() {
        largest if largest > 0.0 && largest.is_finite() => largest.log2().floor().exp2(),
        _ => 1.0,
    };
    (Mat::from_fn(a.nrows(), a.ncols(), |i, j| a[(i, j)] / scale), scale)
}

/// Returns the thin singular value decomposition: u, the values in descending order, and v.
pub(crate) fn singular(op: &'static str, a: MatRef<'_, f64>) -> Result<(Mat<f64>, Vec<f64>, Mat<f64>)> {
    let (m, n) = a.shape();
    let r = m.min(n);
    let (mut u, mut values, mut v) = (Mat::zeros(m, r), vec![0.0; r], Mat::zeros(n, r));
    let (a, scale) = scaled(a);
    let (thin, params) = (svd::ComputeSvdVectors::Thin, Default::default());
    let mut memory = buffer(op, svd::svd_scratch::<f64>(m, n, thin, thin, Par::Seq, params))?;
    let diagonal = DiagMut::from_slice_mut(&mut values);
    let stack = MemStack::new(&mut memory);
    svd::svd(a.as_ref(), diagonal, Some(u.as_mut()), Some(v.as_mut()), Par::Seq, stack, params)
        .map_err(|_| not_finite(op))?;
    end_wide();
    values.iter_mut().for_each(|value| *value *= scale);
    Ok((u, values, v))
}

/// The number of columns that [`upper`] reflects before it updates the remaining columns.
const PANEL: usize = 32;

/// Factorises a square a as `a = Q R`, with a nonnegative diagonal of R, by Householder reflections.
/// Each column of the product is right to rounding, however little of the column is orthogonal to the previous columns; faer's `qr_in_place`
/// does not reflect such columns.
pub(crate) fn upper(a: MatRef<'_, f64>) -> (Mat<f64>, Mat<f64>) {
    let n = a.nrows();
    let (mut r, mut panels) = (a.to_owned(), Vec::new());
    for first in (0..n).step_by(PANEL) {
        let width = PANEL.min(n - first);
        let (mut panel, mut rest) = r.as_mut().subrows_mut(first, n - first).split_at_col_mut(first + width);
        let reflector = Reflector::new(panel.as_mut().subcols_mut(first, width));
        reflector.apply(rest.as_mut(), true);
        panels.push((first, reflector));
    }
    let sign: Vec<f64> = (0..n).map(|i| if r[(i, i)] < 0.0 { -1.0 } else { 1.0 }).collect();
    let mut q = Mat::from_fn(n, n, |i, j| if i == j { sign[i] } else { 0.0 });
    for (first, reflector) in panels.iter().rev() {
        reflector.apply(q.as_mut().submatrix_mut(*first, *first, n - first, n - first), false);
    }
    let r = Mat::from_fn(n, n, |i, j| if i <= j { sign[i] * r[(i, j)] } else { 0.0 });
    (q, r)
}

/// The product I - V T Vᵀ of the reflections of a panel's columns (Schreiber and Van Loan, "A storage-efficient WY representation for
/// products of Householder transformations", SIAM J. Sci. Stat. Comput. 10, 1989).
struct Reflector {
    v: Mat<f64>,
    t: Mat<f64>,
}

impl Reflector {
    /// Reflects the columns of a panel into an upper triangle. The elements below the triangle are to be ignored.
    fn new(mut panel: MatMut<'_, f64>) -> Self {
        let (rows, width) = panel.shape();
        let (mut v, mut t) = (Mat::zeros(rows, width), Mat::zeros(width, width));
        for j in 0..width {
            let column = panel.rb().col(j).subrows(j, rows - j);
            let (head, length) = (column[0], column.norm_l2());
            let end = if head < 0.0 { length } else { -length };
            if head == end || length == 0.0 {
                v[(j, j)] = 1.0;
                continue;
            }
            let factor = (end - head) / end;
            for i in 1..rows - j {
                v[(j + i, j)] = column[i] / (head - end);
            }
            v[(j, j)] = 1.0;
            panel[(j, j)] = end;
            let reflected = v.subcols(j, 1).subrows(j, rows - j);
            let mut rest = panel.rb_mut().submatrix_mut(j, j + 1, rows - j, width - j - 1);
            let along = product(reflected.transpose(), rest.rb());
            matmul(rest.rb_mut(), Accum::Add, reflected, along.as_ref(), -factor, Par::Seq);
            // Extends T by one reflection: its column is -factor T Vᵀ v.
            let along = product(v.submatrix(j, 0, rows - j, j).transpose(), reflected);
            let column = product(t.submatrix(0, 0, j, j), along.as_ref());
            (0..j).for_each(|i| t[(i, j)] = -factor * column[(i, 0)]);
            t[(j, j)] = factor;
        }
        Self { v, t }
    }

    /// Reflects `columns`; if `transposed`, in the reverse order.
    fn apply(&self, columns: MatMut<'_, f64>, transposed: bool) {
        let along = product(self.v.transpose(), columns.rb());
        let along = product(if transposed { self.t.transpose() } else { self.t.as_ref() }, along.as_ref());
        matmul(columns, Accum::Add, self.v.as_ref(), along.as_ref(), -1.0, Par::Seq);
        end_wide();
    }
}

/// Allocates scratch memory for faer.
pub(crate) fn buffer(op: &'static str, scratch: StackReq) -> Result<MemBuffer> {
    let requested = scratch.unaligned_bytes_required() as u64;
    MemBuffer::try_new(scratch).map_err(|_| {
        Error::argument(op, "k", format_args!("no host memory for {requested} bytes of small matrices"))
    })
}

/// Returns the error of faer's decompositions, which fail only on input that is not finite.
pub(crate) fn not_finite(op: &'static str) -> Error {
    Error::argument(op, "a", "its products hold NaN or infinity, or overflow")
}
