//! Truncated singular value decomposition of a resident matrix, with both sides' vectors.

use super::{
    gram::BlockSum,
    host,
    map_tensor::{BLOCK, DEPTH},
    matmul::{Op, multiply},
    matrix::Matrix,
    qr::{check_finite, factor, times},
    rows::Rows,
    rsvd::{Plan, RightSvd, Stop, SvdOptions},
    scale_columns::scale_columns,
    sign::SignRule,
    svd::exact,
};
use crate::{Result, Run, Tensor, dtype::nearest_f32, extent::blocks, waiting::apart};

const OP: &str = "truncated_svd";

/// What [`truncated_svd`] returns: `a ≈ U diag(s) Vᵀ` with k components.
#[derive(Debug)]
#[non_exhaustive]
pub struct TruncatedSvd {
    /// Left singular vectors (m, k), orthonormal columns, on the device.
    pub u: Tensor<f32>,
    /// Singular values, falling.
    pub s: Vec<f64>,
    /// Right singular vectors (n, k), orthonormal columns.
    pub v: Matrix,
    /// As [`RightSvd::residuals`], of the iteration; 0 where `a` was decomposed exactly.
    pub residuals: Vec<f64>,
    /// As [`RightSvd::converged`].
    pub converged: Vec<bool>,
    /// Passes over the matrix; 1 where it was decomposed exactly.
    pub passes: u32,
}

impl TruncatedSvd {
    fn new(u: Tensor<f32>, found: RightSvd) -> Self {
        let RightSvd { s, v, residuals, converged, passes } = found;
        Self { u, s, v, residuals, converged, passes }
    }

    /// Whether every component converged.
    pub fn is_converged(&self) -> bool {
        self.converged.iter().all(|&converged| converged)
    }

    /// Gives each pair of vectors the sign that `rule` gives it in the decomposition of `a`, or with `transposed` in that of `aᵀ`, whose
    /// left vectors are V. Costs a copy of U where one is negated, and U read where the rule looks at it.
    ///
    /// # Errors
    /// What the device reports.
    ///
    /// ```
    /// use teatime::{Device, Run, Tensor, linalg::{SignRule, SvdOptions, truncated_svd}};
    /// let device = Device::best()?;
    /// let a = Tensor::from_slice(&device, &[-3.0f32, 0.0, 0.0, 1.0], &[2, 2])?;
    /// let mut svd = truncated_svd(&a, 1, &SvdOptions::default().sign(SignRule::None), &Run::default())?;
    /// svd.set_signs(SignRule::DaskSum, true)?;
    /// assert!(svd.u.read()?[0] > 0.9 && svd.v[(0, 0)] < -0.9);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn set_signs(&mut self, rule: SignRule, transposed: bool) -> Result<()> {
        let of_u = (rule == SignRule::MaxAbsU) != transposed;
        let negative =
            if of_u { rule.negative(&Matrix::from_tensor(&self.u)?) } else { rule.negative(&self.v) };
        if negative.contains(&true) {
            self.v.negate_columns(&negative);
            let signs: Vec<f32> =
                negative.iter().map(|&negative| if negative { -1.0 } else { 1.0 }).collect();
            self.u = scale_columns(&self.u, &signs)?;
        }
        Ok(())
    }
}

/// The `k` largest singular values of a resident matrix with both sides' vectors: `a ≈ U diag(s) Vᵀ`.
///
/// [`randomized_svd`](super::randomized_svd), and then one more pass in which A is projected on the best k +
/// oversamples columns: Y = A V, `Y = Q R`, and the decomposition of Qᵀ A gives the result. That pass squares nothing,
/// so small values are as accurate as f32 allows. Where the iteration could fill the space, so that
/// min(m, n) <= (k + oversamples) times the expected passes, the exact [`svd`](super::svd()) runs instead.
///
/// # Shapes
/// `a`: (m, n) -> U (m, k) on the device; k values and V (n, k) on the host.
///
/// # Accuracy
/// max|UᵀU - I| <= 2e-6, also where `a` is rank deficient; converged values to 1e-6 of the largest;
/// ‖a - U diag(s) Vᵀ‖ within 0.1 % of the optimum plus 1e-5 ‖a‖ in the Frobenius norm once converged. The residuals are
/// those before the last pass, which only improves on them.
///
/// # Cost
/// That of [`randomized_svd`](super::randomized_svd), one pass more, and [`qr`](super::qr()) of (m, k + oversamples); or
/// that of [`svd`](super::svd()). Waits.
///
/// # Errors
/// As [`randomized_svd`](super::randomized_svd); [`Error::Argument`](crate::Error::Argument) also when `a` holds NaN
/// or infinity (the first such column is named).
///
/// ```
/// use teatime::{Device, Run, Tensor, linalg};
/// let device = Device::best()?;
/// let a = Tensor::from_slice(&device, &[3.0f32, 0.0, 0.0, 4.0, 0.0, 0.0], &[3, 2])?;
/// let svd = linalg::truncated_svd(&a, 1, &linalg::SvdOptions::default(), &Run::default())?;
/// assert!((svd.s[0] - 4.0).abs() < 1e-5 && (svd.u.read()?[1] - 1.0).abs() < 1e-5 && (svd.v[(1, 0)] - 1.0).abs() < 1e-5);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn truncated_svd(a: &Tensor<f32>, k: usize, options: &SvdOptions, run: &Run) -> Result<TruncatedSvd> {
    let [m, n] = a.matrix(OP)?;
    let plan = Plan::new(OP, [m, n], k, options, run)?;
    if k == 0 {
        return Ok(TruncatedSvd::new(Tensor::zeros(a.device(), &[m, 0])?, RightSvd::empty(plan.n)));
    }
    let expected = match options.stop {
        Stop::PowerIterations(_) => plan.passes,
        Stop::Tolerance(_) => plan.passes.min(16),
    };
    let fills = m.min(n) <= (plan.l as u64).saturating_mul(expected.into());
    let (u, svd) = if fills { whole(a, k)? } else { projected(a, k, &plan, options.seed, run)? };
    let mut svd = TruncatedSvd::new(u, svd);
    svd.set_signs(options.sign, false)?;
    Ok(svd)
}

/// `a` divided by a power of two where products of four of its elements might leave the range of f32.
fn scaled(a: &Tensor<f32>) -> Result<(Option<Tensor<f32>>, f64)> {
    let stats = check_finite(OP, a)?;
    let largest = stats.iter().fold(0.0, |largest: f64, stats| largest.max(stats.sum_squares));
    let exponent: f64 = match largest.sqrt() {
        length if length == f64::INFINITY => 100.0,
        length if length < 2f64.powi(-60) => -110.0,
        length if (2f64.powi(-20)..2f64.powi(20)).contains(&length) => return Ok((None, 1.0)),
        length => length.log2().round(),
    };
    let factors = vec![nearest_f32((-exponent).exp2()); stats.len()];
    Ok((Some(scale_columns(a, &factors)?), exponent.exp2()))
}

/// By the exact decomposition.
fn whole(a: &Tensor<f32>, k: usize) -> Result<(Tensor<f32>, RightSvd)> {
    let found = exact(OP, a, k)?;
    let short = Matrix::from_faer(found.short.as_ref());
    let (u, v) = if a.shape()[0] >= a.shape()[1] {
        (found.long, short)
    } else {
        (short.to_tensor(a.device())?, Matrix::from_tensor(&found.long)?)
    };
    let (residuals, converged) = (vec![0.0; k], vec![true; k]);
    Ok((u, RightSvd { s: found.s, v, residuals, converged, passes: 1 }))
}

/// By the iteration, and a projection on more columns than are wanted.
fn projected(
    a: &Tensor<f32>,
    k: usize,
    plan: &Plan,
    seed: u64,
    run: &Run,
) -> Result<(Tensor<f32>, RightSvd)> {
    let (scaled, scale) = scaled(a)?;
    let a = scaled.as_ref().unwrap_or(a);
    let (krylov, found) = plan.iterate(a, seed, run)?;
    let best = krylov.vectors(&krylov.ritz(plan.l)?);
    let q = factor(OP, &times(a, best.as_ref())?)?.q()?;
    let z = product_tn(a, &q)?;
    let cancel = a.device().cancel();
    let (v, s, rotation) = apart(cancel, z.rows(), move || host::singular(OP, z.as_faer()))?;
    let u = times(&q, rotation.as_ref().subcols(0, k))?;
    let mut svd = plan.result(&krylov, &found);
    svd.passes += 1;
    svd.s = s[..k].iter().map(|s| s * scale).collect();
    svd.v = Matrix::from_faer(v.as_ref().subcols(0, k));
    Ok((u, svd))
}

/// `aᵀ b` in f32 over canonical blocks of rows, which [`BlockSum`] adds.
fn product_tn(a: &Tensor<f32>, b: &Tensor<f32>) -> Result<Matrix> {
    let ([m, n], [_, l]) = (a.matrix(OP)?, b.matrix(OP)?);
    let mut sum = BlockSum::new(a.device(), n, l)?;
    let mut block = Tensor::empty(a.device(), &[n, l])?;
    a.device().in_a_row(|| {
        blocks(m, BLOCK).try_for_each(|rows| {
            multiply(OP, Op::Tn, Rows::new(a, rows.clone()), Rows::new(b, rows), DEPTH, &mut block)?;
            sum.enqueue(&block)
        })
    })?;
    sum.finish()
}
