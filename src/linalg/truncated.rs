//! Truncated singular value decomposition of a resident matrix, with the vectors of both sides.

use super::{
    gram::InnerSum,
    map_tensor::{BLOCK, DEPTH, rows_on},
    matmul::matmul_nt,
    matrix::Matrix,
    qr::{factor, power_near, scale_columns, sizes, times},
    right_svd::{Stop, SvdOptions},
    rows::Rows,
    sign::SignRule,
    steps::SvdSteps,
    svd::{Exact, exact},
    svd_plan::{Products, SvdPlan},
};
use crate::{
    Real, Result, Run, Tensor,
    array::{Zip, zip},
};

const OP: &str = "truncated_svd";

/// The decomposition that [`truncated_svd`] returns: `a ≈ U diag(s) Vᵀ` with k components.
#[derive(Debug)]
#[non_exhaustive]
pub struct TruncatedSvd<R: Real = f32> {
    /// Left singular vectors (m, k), orthonormal columns.
    pub u: Tensor<R>,
    /// Singular values, in descending order.
    pub s: Vec<f64>,
    /// Right singular vectors (n, k), orthonormal columns.
    pub v: Tensor<R>,
    /// The residuals of the iteration, as in [`RightSvd::residuals`](super::RightSvd::residuals); 0 if `a` was decomposed exactly.
    pub residuals: Vec<f64>,
    /// True for each component that converged, as in [`RightSvd::converged`](super::RightSvd::converged).
    pub converged: Vec<bool>,
    /// The number of passes over the matrix; 1 if the matrix was decomposed exactly.
    pub passes: u32,
}

impl<R: Real> TruncatedSvd<R> {
    /// Returns true if every component converged.
    pub fn is_converged(&self) -> bool {
        self.converged.iter().all(|&converged| converged)
    }

    /// Gives each pair of vectors the sign that `rule` gives it in the decomposition of `a`. With `transposed`, it is the decomposition of
    /// `aᵀ`, whose left vectors are V. Reads the vectors that the rule examines, and copies both sides if a vector is negated.
    ///
    /// # Errors
    /// Any error that the device reports.
    ///
    /// ```
    /// use teatime::{Device, Run, Tensor, linalg::{SignRule, SvdOptions, truncated_svd}};
    /// let device = Device::best()?;
    /// let a = Tensor::from_slice(&device, &[-3.0f32, 0.0, 0.0, 1.0], &[2, 2])?;
    /// let mut svd = truncated_svd(&a, 1, &SvdOptions::default().sign(SignRule::None), &Run::default())?;
    /// svd.set_signs(SignRule::DaskSum, true)?;
    /// assert!(svd.u.read()?[0] > 0.9 && svd.v.read()?[0] < -0.9);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn set_signs(&mut self, rule: SignRule, transposed: bool) -> Result<()> {
        if rule == SignRule::None {
            return Ok(());
        }
        let of_u = (rule == SignRule::MaxAbsU) != transposed;
        let negative = rule.negative(&Matrix::from_tensor(if of_u { &self.u } else { &self.v })?);
        if negative.contains(&true) {
            let signs: Vec<R> =
                negative.iter().map(|&negative| R::nearest(if negative { -1.0 } else { 1.0 })).collect();
            (self.u, self.v) = (scale_columns(&self.u, &signs)?, scale_columns(&self.v, &signs)?);
        }
        Ok(())
    }
}

/// Returns the `k` largest singular values of a resident matrix with the vectors of both sides: `a ≈ U diag(s) Vᵀ`.
///
/// [`randomized_svd`](super::randomized_svd) runs, and then one more pass projects A on the best k + oversamples columns: Y = A V, `Y = Q R`,
/// and the decomposition of Qᵀ A gives the result. That pass squares nothing, so small values are as accurate as f32 or f64 allows. If the
/// iteration could fill the space, so that min(m, n) <= (k + oversamples) times the expected passes, the exact [`svd`](super::svd()) runs
/// instead.
///
/// # Shapes
/// `a`: (m, n) of f32 or f64 -> U (m, k) and V (n, k) of the same type, and k values.
///
/// # Accuracy
/// max|UᵀU - I| <= 2e-6, also if `a` is rank deficient. Converged values are right to 1e-6 of the largest. ‖a - U diag(s) Vᵀ‖ is within 0.1 %
/// of the optimum plus 1e-5 ‖a‖ in the Frobenius norm once converged. The residuals are those before the last pass, which only improves the
/// components. For f64, max|UᵀU - I| <= 1e-13, and with a tolerance of 1e-11 values are right to 1e-13 of the largest.
///
/// # Cost
/// That of [`randomized_svd`](super::randomized_svd), of one more pass, and of [`qr`](super::qr()) of (m, k + oversamples) and of (n, k +
/// oversamples); or that of [`svd`](super::svd()), if it runs instead. Waits.
///
/// # Errors
/// As [`randomized_svd`](super::randomized_svd); [`Error::Argument`](crate::Error::Argument) also when `a` holds NaN or infinity (the first
/// such column is named). For f64, as [`qr`](super::qr()).
///
/// ```
/// use teatime::{Device, Run, Tensor, linalg};
/// let device = Device::best()?;
/// let a = Tensor::from_slice(&device, &[3.0f32, 0.0, 0.0, 4.0, 0.0, 0.0], &[3, 2])?;
/// let svd = linalg::truncated_svd(&a, 1, &linalg::SvdOptions::default(), &Run::default())?;
/// assert!((svd.s[0] - 4.0).abs() < 1e-5 && (svd.u.read()?[1] - 1.0).abs() < 1e-5 && (svd.v.read()?[1] - 1.0).abs() < 1e-5);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn truncated_svd<R: Real>(
    a: &Tensor<R>,
    k: usize,
    options: &SvdOptions,
    run: &Run,
) -> Result<TruncatedSvd<R>> {
    let [m, n] = a.matrix(OP)?;
    a.device().computes::<R>(OP)?;
    // Left vectors come from the last pass.
    let options = &options.left(false);
    let plan = SvdPlan::new(OP, Products::from_map(a, options.block(k), "a")?, k, options, run)?;
    if k == 0 {
        let [u, v] = [m, n].map(|rows| Tensor::zeros(a.device(), &[rows, 0]));
        let (residuals, converged) = (Vec::new(), Vec::new());
        return Ok(TruncatedSvd { u: u?, s: Vec::new(), v: v?, residuals, converged, passes: 0 });
    }
    let expected = match options.stop {
        Stop::PowerIterations(_) => plan.passes,
        Stop::Tolerance(_) => plan.passes.min(16),
    };
    let fills = m.min(n) <= (plan.l as u64).saturating_mul(expected.into());
    let mut svd = if fills { whole(a, k)? } else { projected(a, k, plan, run)? };
    svd.set_signs(options.sign, false)?;
    Ok(svd)
}

/// Returns `a` divided by a power of two, and that power, if products of four elements might leave the range of the type.
fn scaled<R: Real>(a: &Tensor<R>) -> Result<(Option<Tensor<R>>, f64)> {
    let largest = sizes(OP, a)?.into_iter().fold(0.0, f64::max);
    let (scale, most) = (power_near::<R>(largest), if R::DTYPE.is_wide() { 200 } else { 20 });
    if (2f64.powi(-most)..2f64.powi(most)).contains(&scale) {
        return Ok((None, 1.0));
    }
    Ok((Some(zip(Zip::Multiply, a, scale.recip())?.cast()), scale))
}

/// Decomposes `a` exactly, with the signs that the decomposition leaves.
pub(crate) fn whole<R: Real>(a: &Tensor<R>, k: usize) -> Result<TruncatedSvd<R>> {
    let Exact { long, s, short } = exact(OP, a, k)?;
    let short = Matrix::from_faer(short.as_ref()).to_real(a.device())?;
    let (u, v) = if a.shape()[0] >= a.shape()[1] { (long, short) } else { (short, long) };
    Ok(TruncatedSvd { u, s, v, residuals: vec![0.0; k], converged: vec![true; k], passes: 1 })
}

/// Runs the iteration, and projects on more columns than are wanted.
fn projected<R: Real>(a: &Tensor<R>, k: usize, plan: SvdPlan, run: &Run) -> Result<TruncatedSvd<R>> {
    let (scaled, scale) = scaled(a)?;
    let a = scaled.as_ref().unwrap_or(a);
    let (l, mut steps) = (plan.l, SvdSteps::start(plan)?);
    steps.run(a, None, run)?;
    let passes = steps.given() + 1;
    let SvdSteps { krylov, found, .. } = steps;
    let vectors = krylov.vectors(&krylov.ritz(l)?)?;
    drop(krylov);
    let best = rows_on::<R>(OP, a.device(), &vectors)?;
    // The product is of type R too, which the compiler cannot see.
    let q = factor(OP, &matmul_nt(a, &best)?.cast::<R>())?.q()?;
    let Exact { long: v, s, short } = exact(OP, &product_tn(a, &q)?, k)?;
    let (s, u) = (s.iter().map(|s| s * scale).collect(), times(&q, short.as_ref())?);
    Ok(TruncatedSvd { u, s, v, residuals: found.residuals, converged: found.converged, passes })
}

/// Returns `aᵀ b`, added up over canonical blocks of rows.
fn product_tn<R: Real>(a: &Tensor<R>, b: &Tensor<R>) -> Result<Tensor<R>> {
    let ([m, n], [_, l]) = (a.matrix(OP)?, b.matrix(OP)?);
    let mut sum = InnerSum::<R>::new(OP, a.device(), [n, l], false, [DEPTH, BLOCK, m])?;
    a.device().in_a_row(|| sum.add(Rows::new(a, 0..m), Rows::new(b, 0..m)))?;
    sum.into_tensor()
}
