//! Options of the randomized decomposition, and its result.

use std::sync::Arc;

use super::{kept::Image, matrix::Matrix, sign::SignRule};

pub(super) const OP: &str = "randomized_svd";
/// The residual at which a component counts as converged if no tolerance is given.
pub(super) const TOLERANCE: f64 = 1e-4;

/// The default oversamples for a number of power iterations, and the default columns of a block for a tolerance.
const OVERSAMPLES: usize = 10;

/// The condition on which [`randomized_svd`](super::randomized_svd) stops.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Stop {
    /// Stops after q power iterations. They take q + 2 passes, while a method that multiplies by A and Aᵀ in turn takes 2 q + 2.
    PowerIterations(u32),
    /// Stops when the relative residuals of all k components are at most this, or at the pass limit.
    Tolerance(f64),
}

/// Options of [`randomized_svd`](super::randomized_svd) and [`truncated_svd`](super::truncated_svd).
///
/// ```
/// use teatime::linalg::{Stop, SvdOptions};
/// let options = SvdOptions::default().stop(Stop::PowerIterations(2)).seed(7);
/// assert_eq!(options.block(20), 30);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SvdOptions {
    /// The number of columns of the random block beyond k. With [`Stop::PowerIterations`] the default is 10, and the accuracy depends on it.
    /// With [`Stop::Tolerance`] the default makes 10 columns in all: the blocks of all passes are kept and used, so wide blocks cost more
    /// than the passes that they save.
    pub oversamples: Option<usize>,
    /// The condition on which the iteration stops.
    pub stop: Stop,
    /// The maximum number of passes with [`Stop::Tolerance`].
    pub max_passes: u32,
    /// The seed of the random block.
    pub seed: u64,
    /// The rule that gives each pair of vectors one of two signs.
    pub sign: SignRule,
    /// True if [`left_vectors`](super::left_vectors) will be asked for. [`randomized_svd`](super::randomized_svd) then keeps the products with
    /// the matrix that its passes make, so that the left vectors, and the signs of [`SignRule::MaxAbsU`], need no pass.
    /// [`truncated_svd`](super::truncated_svd) has left vectors anyway.
    pub left: bool,
}

impl Default for SvdOptions {
    /// Returns a tolerance of 1e-4, at most 64 passes, seed 0 and stable signs, without left vectors.
    fn default() -> Self {
        let (stop, sign) = (Stop::Tolerance(TOLERANCE), SignRule::Stable);
        Self { oversamples: None, stop, max_passes: 64, seed: 0, sign, left: false }
    }
}

crate::setters! {
    SvdOptions {
        oversamples(impl Into<Option<usize>>) = oversamples.into(),
        stop(Stop), max_passes(u32), seed(u64), sign(SignRule), left(bool),
    }
}

impl SvdOptions {
    /// Returns the number of columns of the random block for k components, if the matrix has as many columns.
    pub fn block(&self, k: usize) -> usize {
        let oversamples = self.oversamples.unwrap_or(match self.stop {
            Stop::PowerIterations(_) => OVERSAMPLES,
            Stop::Tolerance(_) => OVERSAMPLES.saturating_sub(k),
        });
        k.saturating_add(oversamples)
    }
}

/// The k largest singular values of a matrix and their right vectors, which [`randomized_svd`](super::randomized_svd) and
/// [`gram_svd`](super::gram_svd()) return.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RightSvd {
    /// Singular values, in descending order.
    pub s: Vec<f64>,
    /// Right singular vectors (n, k), orthonormal columns.
    pub v: Matrix,
    /// ‖AᵀA v - σ² v‖ / (σ σ₁) of each component, or 0 if σ is 0.
    pub residuals: Vec<f64>,
    /// True if the residual is at most the tolerance (1e-4 if none was given), or as small as the precision of products allows.
    pub converged: Vec<bool>,
    /// The number of passes over the matrix, including that of [`SignRule::MaxAbsU`] if it made one; 0 from
    /// [`gram_svd`](super::gram_svd()), which makes none.
    pub passes: u32,
    /// The number of these passes whose products a [`Checkpoint`](super::Checkpoint) had, so that they were not made again.
    pub found: u32,
    /// The product of the matrix with `v`, if it was [kept](SvdOptions::left).
    pub(super) image: Option<Arc<Image>>,
}

impl RightSvd {
    /// Returns no components, for a matrix with n columns.
    pub(crate) fn empty(n: usize) -> Self {
        let (s, v, residuals, converged) = (Vec::new(), Matrix::zeros(n, 0), Vec::new(), Vec::new());
        Self { s, v, residuals, converged, passes: 0, found: 0, image: None }
    }

    /// Returns true if the product of the matrix with `v` was kept, so that left vectors need no pass.
    pub(crate) const fn has_image(&self) -> bool {
        self.image.is_some()
    }

    /// Returns true if every component converged.
    pub fn is_converged(&self) -> bool {
        self.converged.iter().all(|&converged| converged)
    }
}
