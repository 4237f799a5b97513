//! Options of the randomized decomposition, and its result.

use super::{matrix::Matrix, sign::SignRule};

pub(super) const OP: &str = "randomized_svd";
/// Residual at which a component counts as converged when no tolerance is given.
pub(super) const TOLERANCE: f64 = 1e-4;

/// Oversamples of counted iterations, and columns of a block to a tolerance.
const OVERSAMPLES: usize = 10;

/// When [`randomized_svd`](super::randomized_svd) stops.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Stop {
    /// After q power iterations: q + 2 passes, where a method that multiplies by A and Aᵀ in turn makes 2 q + 2.
    PowerIterations(u32),
    /// When the relative residuals of all k components are at most this, or at the pass limit.
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
    /// Columns of the random block beyond k. Default: with [`Stop::PowerIterations`] 10, on which the accuracy depends; with
    /// [`Stop::Tolerance`] what makes 10 columns in all: there the blocks of all passes are kept and used, so that wide blocks cost more
    /// than the passes that they save.
    pub oversamples: Option<usize>,
    /// When to stop.
    pub stop: Stop,
    /// The maximum number of passes with [`Stop::Tolerance`].
    pub max_passes: u32,
    /// Seed of the random block.
    pub seed: u64,
    /// The rule that gives each pair of vectors one of two signs.
    pub sign: SignRule,
}

impl Default for SvdOptions {
    /// Tolerance 1e-4, at most 64 passes, seed 0, stable signs.
    fn default() -> Self {
        Self {
            oversamples: None,
            stop: Stop::Tolerance(TOLERANCE),
            max_passes: 64,
            seed: 0,
            sign: SignRule::Stable,
        }
    }
}

crate::setters! {
    SvdOptions {
        oversamples(impl Into<Option<usize>>) = oversamples.into(),
        stop(Stop),
        max_passes(u32),
        seed(u64),
        sign(SignRule),
    }
}

impl SvdOptions {
    /// Columns of the random block for k components, of a matrix with as many.
    pub fn block(&self, k: usize) -> usize {
        let oversamples = self.oversamples.unwrap_or(match self.stop {
            Stop::PowerIterations(_) => OVERSAMPLES,
            Stop::Tolerance(_) => OVERSAMPLES.saturating_sub(k),
        });
        k.saturating_add(oversamples)
    }
}

/// The k largest singular values of a matrix and their right vectors: what [`randomized_svd`](super::randomized_svd) and [`gram_svd`](super::gram_svd()) return.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RightSvd {
    /// Singular values, falling.
    pub s: Vec<f64>,
    /// Right singular vectors (n, k), orthonormal columns.
    pub v: Matrix,
    /// ‖AᵀA v - σ² v‖ / (σ σ₁) of each component; 0 where σ is 0.
    pub residuals: Vec<f64>,
    /// True where the residual is at most the tolerance (1e-4 where none was given), or as small as products can tell.
    pub converged: Vec<bool>,
    /// Passes over the matrix, that of [`SignRule::MaxAbsU`] among them; 0 from [`gram_svd`](super::gram_svd()), which makes none.
    pub passes: u32,
}

impl RightSvd {
    /// No components of a matrix with n columns.
    pub(crate) fn empty(n: usize) -> Self {
        Self {
            s: Vec::new(),
            v: Matrix::zeros(n, 0),
            residuals: Vec::new(),
            converged: Vec::new(),
            passes: 0,
        }
    }

    /// True if every component converged.
    pub fn is_converged(&self) -> bool {
        self.converged.iter().all(|&converged| converged)
    }
}
