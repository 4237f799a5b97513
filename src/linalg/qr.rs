//! QR factorisation of tall matrices.

use faer::{
    Mat, MatRef, Par,
    dyn_stack::{MemBuffer, MemStack},
    linalg::{cholesky::llt_pivoting::factor as cholesky, triangular_inverse::invert_upper_triangular},
};

use super::{
    gram::gram,
    host,
    matmul::{Op, Product, matmul},
    matrix::Matrix,
    reduce::column_stats,
};
use crate::{
    Error, Real, Result, Tensor,
    array::{Zip, elementwise::converted, max, min, zip},
    extent::to_usize,
    kernels::cpu::simd::end_wide,
    random::random_words,
    timeline::Stage,
    waiting::apart,
};

/// The maximum number of columns. Each of the small factors takes n² values of f64 on the host, and n³ operations.
pub(crate) const MAX_COLUMNS: u64 = 16_384;
/// The maximum number of rounds. Three rounds are enough for condition numbers up to 1e6, and five rounds in f64 for up to 1e16. Dependent
/// columns that are replaced take two or three more rounds.
const MAX_ROUNDS: u64 = 12;

/// Returns the squared distance of a column of length 1 from the other columns, below which a round only enlarges the remainder of the
/// column. This is well above the error of a Gram matrix.
const fn near<R: Real>() -> f64 {
    if R::DTYPE.is_wide() { 1.0 / 16_777_216.0 } else { 1.0 / 65_536.0 }
}

/// Returns the rounding error of one product, relative to the columns that are added up.
const fn noise<R: Real>() -> f64 {
    4.0 * R::EPSILON
}

/// The factors that [`qr`] returns.
#[derive(Debug)]
#[non_exhaustive]
pub struct Qr<R: Real = f32> {
    /// Orthonormal columns (m, n).
    pub q: Tensor<R>,
    /// An upper triangle (n, n) with a nonnegative diagonal.
    pub r: Matrix,
}

/// Factorises `x = Q R` with orthonormal columns in Q and an upper triangle R.
///
/// Columns that rounding cannot tell from combinations of other columns are replaced by random columns (of a fixed seed), made orthogonal to
/// the rest. `x = Q R` still holds, and R has as many small singular values as columns are replaced.
///
/// The method is shifted Cholesky QR: each round forms QᵀQ, factors it on the host and multiplies by the inverse of the factor (Fukaya,
/// Kannan, Nakatsukasa, Yamamoto and Yanagisawa, "Shifted Cholesky QR for computing the QR factorization of ill-conditioned matrices", SIAM
/// J. Sci. Comput. 42, 2020). Instead of a shift, the factor is pivoted, and the remainder of each column that nearly depends on the pivots
/// is enlarged by 256 (in f64 by 4,096), for the next round to factor. This keeps the inverse small, so that `x = Q R` is as accurate as Q is
/// orthonormal.
///
/// # Shapes
/// `x`: (m, n) of f32 or f64 with m >= n -> `q` (m, n), `r` (n, n). At most 16,384 columns.
///
/// # Accuracy
/// max|QᵀQ - I| <= 2e-6 for any x, and ‖x - Q R‖ <= 1e-6 ‖x‖ for each column, whose size may be between 1e-37 and 1e37. If a device flushes
/// f32 below 2^-126 to 0, as many wgpu devices do, each element may be off by another 2^-126. f64 is factored in f64: the two bounds are
/// 1e-13 and 1e-14, and sizes may be between 1e-290 and 1e290.
///
/// # Cost
/// Three rounds, up to five for f64, and fewer if the columns are nearly orthogonal. Each round takes 3 m n² operations on the device and
/// about 3 n³ in f64 on the host, and waits once. The device also holds two more matrices of the size of x, 12 bytes for each element of a
/// matrix (n, n), and at most 8 MiB of other products.
///
/// # Errors
/// [`Error::Shape`] unless x is a matrix with m >= n; [`Error::Argument`] when it holds NaN or infinity (the first
/// such column is named) or has too many columns; [`Error::OutOfMemory`]. [`Error::NoF64`] for f64 on a device that does not
/// [compute in it](crate::Limits::f64).
///
/// ```
/// use teatime::{Device, Tensor, linalg};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[3.0f32, 1.0, 4.0, 2.0, 0.0, 2.0], &[3, 2])?;
/// let factors = linalg::qr(&x)?;
/// assert!((factors.r.row(0)[0] - 5.0).abs() < 1e-5 && factors.r.row(1)[0] == 0.0);
/// assert_eq!(factors.q.shape(), [3, 2]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn qr<R: Real>(x: &Tensor<R>) -> Result<Qr<R>> {
    let factors = factor("qr", x)?;
    Ok(Qr { q: factors.q()?, r: factors.r })
}

/// `x = B F R` with B on the device, and F and R on the host; B F is orthonormal.
/// The product B F is left to the caller, who may have another factor to multiply by.
#[derive(Debug)]
pub(crate) struct Factors<R: Real> {
    pub(crate) basis: Tensor<R>,
    pub(crate) last: Mat<f64>,
    pub(crate) r: Matrix,
}

impl<R: Real> Factors<R> {
    pub(crate) fn q(&self) -> Result<Tensor<R>> {
        times(&self.basis, self.last.as_ref())
    }
}

/// Returns `x y` for y on the host.
pub(crate) fn times<R: Real>(x: &Tensor<R>, y: MatRef<'_, f64>) -> Result<Tensor<R>> {
    let y = Matrix::from_faer(y).to_real::<R>(x.device())?;
    // The product is of type R too, which the compiler cannot see.
    Ok(matmul(x, &y)?.cast())
}

/// Factorises `x` as [`qr`] does, without the last product.
pub(crate) fn factor<R: Real>(op: &'static str, x: &Tensor<R>) -> Result<Factors<R>> {
    let [m, n] = x.matrix(op)?;
    x.device().computes::<R>(op)?;
    if m < n {
        return Err(Error::shape(op, "at least as many rows as columns", format_args!("({m}, {n})")));
    }
    if n > MAX_COLUMNS {
        return Err(Error::argument(op, "x", format_args!("{n} columns; at most {MAX_COLUMNS}")));
    }
    let (mut basis, scales) = scaled(op, x)?;
    let n = to_usize(n);
    let mut product = Mat::from_fn(n, n, |i, j| if i == j { scales[i] } else { 0.0 });
    let (near, noise_of_one) = (near::<R>(), noise::<R>());
    let mut noise = vec![0.0; n];
    let cancel = x.device().cancel();
    for seed in 0..MAX_ROUNDS {
        let gram = gram(&basis)?;
        let span = x.device().span(Stage::Host, op);
        let (round, so_far) = apart(cancel, n, move || {
            let round = Round::new(op, &gram, &noise, near, noise_of_one)?;
            let product = host::product(round.factor.as_ref(), product.as_ref());
            Ok((round, product))
        })?;
        if round.is_last {
            let (last, r) = apart(cancel, n, move || {
                let (q, r) = host::upper(so_far.as_ref());
                Ok((host::product(round.inverse.as_ref(), q.as_ref()), r))
            })?;
            return Ok(Factors { basis, last, r: Matrix::from_faer(r.as_ref()) });
        }
        drop(span);
        basis = round.apply(&basis, seed)?;
        (noise, product) = (round.noise, so_far);
    }
    Err(Error::argument(op, "x", format_args!("not orthonormal after {MAX_ROUNDS} rounds")))
}

/// Returns each column's size, if all are finite: its length, or its largest magnitude for f64 and where squares leave the range of f32.
pub(crate) fn sizes<R: Real>(op: &'static str, x: &Tensor<R>) -> Result<Vec<f64>> {
    if !R::DTYPE.is_wide() {
        let stats = column_stats(x)?;
        if let Some(column) = stats.iter().position(|stats| stats.bad > 0) {
            return Err(not_finite(op, column, stats[column].bad));
        }
        if stats.iter().all(|stats| (2f64.powi(-80)..f64::INFINITY).contains(&stats.sum_squares)) {
            return Ok(stats.iter().map(|stats| stats.sum_squares.sqrt()).collect());
        }
    }
    if x.is_empty() {
        return Ok(vec![0.0; to_usize(x.shape()[1])]);
    }
    let [least, most] = [min(x, 0)?, max(x, 0)?];
    let (least, most) = (least.read()?, most.read()?);
    let size = |(least, most): (&R, &R)| {
        if least.to_f64().is_nan() { f64::NAN } else { most.to_f64().max(-least.to_f64()) }
    };
    let sizes: Vec<_> = least.iter().zip(&most).map(size).collect();
    if let Some(column) = sizes.iter().position(|size| !size.is_finite()) {
        return Err(not_finite(op, column, column_stats(x)?[column].bad));
    }
    Ok(sizes)
}

fn not_finite(op: &'static str, column: usize, bad: u64) -> Error {
    let why = format!("column {column} holds {bad} values that are NaN or infinite");
    Error::argument(op, if op == "qr" { "x" } else { "a" }, why)
}

/// Returns a power of two near `size`. Neither the power nor its inverse is subnormal in R.
pub(crate) fn power_near<R: Real>(size: f64) -> f64 {
    let most = if R::DTYPE.is_wide() { 1022.0 } else { 126.0 };
    if size > 0.0 { size.log2().round().clamp(-most, most).exp2() } else { 1.0 }
}

/// Returns `x` with column j multiplied by `factors[j]`. Enqueues.
pub(super) fn scale_columns<R: Real>(x: &Tensor<R>, factors: &[R]) -> Result<Tensor<R>> {
    let factors = Tensor::from_slice(x.device(), factors, &[factors.len() as u64])?;
    // The product is of type R too, which the compiler cannot see.
    Ok(zip(Zip::Multiply, x, &factors)?.cast())
}

/// Returns x with each column divided by a power of two, so that its size is about 1, and the powers.
fn scaled<R: Real>(op: &'static str, x: &Tensor<R>) -> Result<(Tensor<R>, Vec<f64>)> {
    let scales: Vec<f64> = sizes(op, x)?.into_iter().map(power_near::<R>).collect();
    let factors: Vec<R> = scales.iter().map(|scale| R::nearest(scale.recip())).collect();
    Ok((scale_columns(x, &factors)?, scales))
}

/// One round, from Q with Gram matrix G to Q `inverse`, where `factor` is the inverse of `inverse`.
#[derive(Debug)]
struct Round {
    /// D P R⁻¹, where D scales columns to length 1 and P orders them by pivots. Rows of replaced columns are 0.
    inverse: Mat<f64>,
    /// R Pᵀ D⁻¹, so that Q = (Q inverse) factor.
    factor: Mat<f64>,
    /// The columns of the result that are replaced by random columns.
    replaced: Vec<usize>,
    /// The length of the rounding error in each column of the result.
    noise: Vec<f64>,
    /// True if the result is orthonormal.
    is_last: bool,
}

impl Round {
    fn new(op: &'static str, gram: &Matrix, noise: &[f64], near: f64, noise_of_one: f64) -> Result<Self> {
        let n = gram.cols();
        let lengths: Vec<f64> = (0..n).map(|i| gram.row(i)[i].max(0.0).sqrt()).collect();
        let dead: Vec<bool> = lengths.iter().zip(noise).map(|(length, noise)| length <= noise).collect();
        let mut g = Mat::from_fn(n, n, |i, j| match (i == j, dead[i] || dead[j]) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => gram.row(i)[j] / (lengths[i] * lengths[j]),
        });
        let order = pivoted_cholesky(op, &mut g)?;
        let pivots = (0..n).take_while(|&i| g[(i, i)] * g[(i, i)] > near).count();
        let r = Mat::from_fn(n, n, |i, j| match (i < pivots, i.cmp(&j)) {
            (true, std::cmp::Ordering::Less | std::cmp::Ordering::Equal) => g[(j, i)],
            (false, std::cmp::Ordering::Equal) => near.sqrt(),
            _ => 0.0,
        });
        let mut r_inverse = Mat::zeros(n, n);
        invert_upper_triangular(r_inverse.as_mut(), r.as_ref(), Par::Seq);
        end_wide();
        let least = (0..n).fold(1.0, |least: f64, i| least.min(r[(i, i)]));
        let mut place = vec![0; n];
        order.iter().enumerate().for_each(|(position, &column)| place[column] = position);
        let inverse = Mat::from_fn(n, n, |i, j| match dead[i] {
            true => 0.0,
            false => r_inverse[(place[i], j)] / lengths[i],
        });
        let factor = Mat::from_fn(n, n, |i, j| if dead[j] { 0.0 } else { r[(i, place[j])] * lengths[j] });
        let replaced: Vec<usize> = (0..n).filter(|&j| dead[order[j]]).collect();
        let noise = r_inverse.col_iter().map(|column| noise_of_one * column.norm_l2()).collect();
        let is_last = least >= 0.5 && pivots == n && replaced.is_empty();
        Ok(Self { inverse, factor, replaced, noise, is_last })
    }

    fn apply<R: Real>(&self, basis: &Tensor<R>, seed: u64) -> Result<Tensor<R>> {
        let device = basis.device();
        let mut next = times(basis, self.inverse.as_ref())?;
        if self.replaced.is_empty() {
            return Ok(next);
        }
        let [m, n] = next.matrix("qr")?;
        let count = self.replaced.len();
        // Random words, read as signed integers, have mean 0 and variance 2^64 / 12.
        let words = random_words(device, seed, 0, m * count as u64)?.cast::<i32>();
        let scale = 12f64.sqrt() / (2f64.powi(32) * (m as f64).sqrt());
        let mut places = Matrix::zeros(count, to_usize(n));
        for (i, &column) in self.replaced.iter().enumerate() {
            places.data_mut()[i * to_usize(n) + column] = scale;
        }
        let words = converted::<R, i32>("qr", &words.reshape(&[m, count as u64])?)?;
        let places = places.to_real::<R>(device)?;
        Product { accumulate: true, ..Product::of_tensors("qr", Op::Nn, &words, &places)? }.run(&mut next)?;
        Ok(next)
    }
}

/// Writes L with `Pᵀ g P = L Lᵀ` to the lower triangle of g, and returns P as the index of the column at each position.
/// Stops when rounding leaves no positive pivot. The rest of the diagonal is then set to 0.
fn pivoted_cholesky(op: &'static str, g: &mut Mat<f64>) -> Result<Vec<usize>> {
    let n = g.nrows();
    let (mut order, mut places) = (vec![0usize; n], vec![0usize; n]);
    let params = Default::default();
    let scratch = cholesky::cholesky_in_place_scratch::<usize, f64>(n, Par::Seq, params);
    let mut memory: MemBuffer = host::buffer(op, scratch)?;
    let stack = MemStack::new(&mut memory);
    let (info, _) = cholesky::cholesky_in_place(g.as_mut(), &mut order, &mut places, Par::Seq, stack, params)
        .map_err(|_| host::not_finite(op))?;
    for i in info.rank..n {
        g[(i, i)] = 0.0;
    }
    Ok(order)
}
