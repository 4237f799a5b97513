//! New samples on the components of a reference.

mod reference;
pub(super) mod solve;
mod sums;
#[cfg(test)]
mod tests;

use teatime::{Budget, linalg::Matrix, stream::StreamStats};

pub use self::reference::{Match, ReferenceLoadings};
pub(crate) use self::{reference::Matched, sums::ProjectionSums};

pub(super) const OP: &str = "project";

/// The rule of a projection for calls that a sample lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProjectMethod {
    /// A missing call is the reference's mean, which adds nothing once centred: scores lie nearer to zero by about the share
    /// of the reference's variants that a sample has no call of. flashpca's, scikit-allel's and plink2's.
    #[default]
    Mean,
    /// The scores t that minimise Σ (z - Σ u t)² over the variants that the sample has a call of, with z its standardised
    /// dosages and u their loadings: not nearer to zero, but the less certain the fewer those are. Variants of the reference that the
    /// genotypes lack count as missing for all samples. EIGENSOFT's `lsqproject`.
    ///
    /// A sample that has a call of each of the reference's variants has the scores of [`Mean`](Self::Mean), to the bit, if the loadings are
    /// of unit norm and orthogonal, as those of all variants of a PCA are. A component whose loadings are all 0 has scores of 0.
    /// A sample whose variants do not determine its scores (fewer of them than components, or of a component's
    /// squared loadings no more than a part in 100,000 is not explained by other components) is NaN.
    LeastSquares,
}

impl ProjectMethod {
    /// The method's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::LeastSquares => "least-squares",
        }
    }
}

/// New samples on the components of a reference.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Projection {
    /// Coordinates of the samples (samples, components), on the scale of [`Pca::scores`](super::Pca::scores).
    pub scores: Matrix,
    /// Variants that took part.
    pub used: u64,
    /// Missing calls of those variants, over all samples.
    pub missing_calls: u64,
    /// The number of those variants that each sample has a call of.
    pub called: Vec<u64>,
    /// Samples whose scores are NaN, since the variants that they have calls of do not determine them: none but with
    /// [`ProjectMethod::LeastSquares`].
    pub undetermined: u64,
    /// 64-bit FNV-1a of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub digest: u64,
    /// The memory budgets of the plan, with defaults filled in; none for a device that shares the host's memory.
    pub memory: Budget,
    /// The time that each step took.
    pub stats: StreamStats,
}
