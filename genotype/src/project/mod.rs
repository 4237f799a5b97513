//! The projection of new samples onto the components of a reference.

mod reference;
pub(super) mod solve;
mod sums;
#[cfg(test)]
mod tests;

use teatime::{Budget, linalg::Matrix, stream::StreamStats};

pub use self::reference::{Match, ReferenceLoadings};
pub(crate) use self::{reference::Matched, sums::ProjectionSums};

pub(super) const OP: &str = "project";

/// The rule of a projection for the missing calls of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProjectMethod {
    /// A missing call becomes the reference's mean, which adds nothing once centred. Scores then lie nearer to zero by about
    /// the share of the reference's variants that are missing in a sample. flashpca, scikit-allel and plink2 do the same.
    #[default]
    Mean,
    /// The scores t that minimise Σ (z - Σ u t)² over the variants called in the sample, with z its standardised dosages
    /// and u the loadings. Scores do not get nearer to zero, but are less certain the fewer variants are called. Variants
    /// of the reference that the genotypes lack count as missing for all samples. EIGENSOFT's `lsqproject` does the same.
    ///
    /// A sample with a call of each of the reference's variants has the scores of [`Mean`](Self::Mean), to the bit, if the
    /// loadings are of unit norm and orthogonal, as loadings of all variants of a PCA are. A component whose loadings are all
    /// 0 has scores of 0. The scores of a sample are NaN if its called variants do not determine them: if there are fewer
    /// variants than components, or if other components explain all but 1/100,000 or less of a component's squared loadings.
    LeastSquares,
}

teatime::names! { ProjectMethod { Mean = "mean", LeastSquares = "least-squares" } }

/// The result of a projection: new samples on the components of a reference.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Projection {
    /// Coordinates of the samples (samples, components), on the scale of [`Pca::scores`](super::Pca::scores).
    pub scores: Matrix,
    /// The number of variants that took part.
    pub used: u64,
    /// The number of missing calls of those variants, over all samples.
    pub missing_calls: u64,
    /// The number of those variants that are called in each sample.
    pub called: Vec<u64>,
    /// The number of samples whose scores are NaN, since their called variants do not determine
    /// them: always 0 except with [`ProjectMethod::LeastSquares`].
    pub undetermined: u64,
    /// The 64-bit FNV-1a digest of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub digest: u64,
    /// The memory budgets of the plan, with defaults filled in. A device that shares the host's memory has no budget of its own.
    pub memory: Budget,
    /// The time that each step took.
    pub stats: StreamStats,
}
