//! Genomic relationship matrices of genotypes bigger than memory.

mod write;

#[cfg(test)]
mod tests;

use teatime::{Budget, Result, linalg::Matrix, stream::StreamStats};

use super::{
    distance::undefined,
    filter::{VariantCounts, VariantFilter},
    pair_sums::PairTerms,
    reader::Reader,
    scaler::{ScaleRule, Scaler},
    source::{Genotypes, check_extents},
};

pub(super) const OP: &str = "grm";

/// The formula by which products of dosages become relationships.
///
/// Here x are the dosages of non-reference alleles at variant i, k is the ploidy, and p = mean / k over the called samples:
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrmMethod {
    /// The mean over the variants of (xⱼ - k p)(xₖ - k p) / (k p (1 - p)), for the diagonal too: GCTA's method (Yang,
    /// Lee, Goddard and Visscher, "GCTA: a tool for genome-wide complex trait analysis", Am. J. Hum. Genet. 88, 2011)
    /// as plink2's `--make-rel` and `--make-grm-bin` compute it. Variants that do not vary add 0, but count.
    #[default]
    Gcta,
    /// The sum of (xⱼ - k p)(xₖ - k p) over the sum of k p (1 - p): the first method of `VanRaden`, "Efficient methods
    /// to compute genomic predictions", J. Dairy Sci. 91, 2008, as sgkit's `genomic_relationship` computes it.
    VanRaden1,
}

teatime::names! { GrmMethod { Gcta = "gcta", VanRaden1 = "vanraden1" } }

/// The rule for missing calls. Both rules give the same result if no call is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingCalls {
    /// All sums of a pair of samples, including the divisor, are over the variants called in both: plink2's
    /// default, and sgkit's `skipna`. Such a matrix may have negative eigenvalues. A pair that shares no variant
    /// is NaN, as in plink2; with [`GrmMethod::VanRaden1`] so is a pair that shares none with p between 0 and 1.
    #[default]
    Pairwise,
    /// A missing call becomes the variant's mean, and all sums are over all variants: plink2's
    /// `meanimpute`. No eigenvalue is negative, except by rounding.
    Mean,
}

teatime::names! { MissingCalls { Pairwise = "pairwise", Mean = "mean" } }

/// Options of [`grm`](crate::grm()).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct GrmOptions {
    /// The formula by which products become relationships.
    pub method: GrmMethod,
    /// The rule for missing calls.
    pub missing: MissingCalls,
    /// The filter of variants.
    pub filter: VariantFilter,
}

/// The relationships of the samples of a genotype matrix.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Grm {
    /// The relationships (samples, samples), symmetric to the bit.
    pub matrix: Matrix,
    /// The number of variants called in both (samples, samples), for [`MissingCalls::Pairwise`].
    pub shared: Option<Matrix>,
    /// Counts of the variants that took part and were dropped. M includes variants without variance
    /// or calls, as in plink2: [`VariantCounts::loaded`].
    pub counts: VariantCounts,
    /// The formula by which products became relationships.
    pub method: GrmMethod,
    /// The rule for missing calls that was used.
    pub missing: MissingCalls,
    /// The 64-bit FNV-1a digest of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub digest: u64,
    /// The memory budgets of the plan, with defaults filled in. A device that shares the host's memory has no budget of its own.
    pub memory: Budget,
    /// The time that each step took.
    pub stats: StreamStats,
}

impl Grm {
    /// Returns the number of variants over which the relationship of samples `j` and `k` is computed.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn variants(&self, j: usize, k: usize) -> f64 {
        self.shared.as_ref().map_or(self.counts.loaded() as f64, |shared| shared.row(j)[k])
    }

    /// Returns the number of pairs of samples, including each sample with itself, whose relationship is NaN.
    pub fn undefined(&self) -> u64 {
        undefined(&self.matrix, true)
    }
}

teatime::setters! {
    GrmOptions {
        method(GrmMethod),
        missing(MissingCalls),
        filter(VariantFilter),
    }
}

impl GrmOptions {
    pub(super) fn check(&self, genotypes: &Genotypes) -> Result<()> {
        check_extents(OP, genotypes)?;
        self.filter.check(OP)
    }

    pub(super) fn sums(&self, reader: &Reader) -> PairTerms {
        let scaler = match self.method {
            GrmMethod::Gcta => Scaler::Binom2,
            GrmMethod::VanRaden1 => Scaler::Center,
        };
        let shared = self.missing == MissingCalls::Pairwise;
        let variance = shared && self.method == GrmMethod::VanRaden1;
        PairTerms { rule: ScaleRule::new(reader, scaler, self.filter), shared, variance }
    }
}
