//! What a PCA computes, and how.

use teatime::{Error, Result, linalg::RandomizedSvd};

use super::{
    filter::VariantFilter,
    scaler::Scaler,
    source::{Genotypes, check_extents},
};

pub(super) const OP: &str = "pca";

/// How the components are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Exact where the Gram matrix of the samples fits the memory budget and costs less than the passes that the
    /// randomized method is expected to make; else randomized.
    #[default]
    Auto,
    /// Eigenvectors of the Gram matrix of the samples, formed in one pass.
    Exact,
    /// Randomized block Krylov iteration, some passes.
    Randomized,
}

/// What to compute, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PcaOptions {
    /// Number of components.
    pub components: usize,
    /// How they are computed.
    pub method: Method,
    /// Centring and scaling of the dosages.
    pub scaler: Scaler,
    /// Which variants take part.
    pub filter: VariantFilter,
    /// The randomized method's settings; its sign rule holds for the exact method too. Its passes are those of products.
    pub svd: RandomizedSvd,
}

impl PcaOptions {
    /// # Errors
    /// [`Error::Argument`] for no samples or variants, more components than there are, and filters out of range.
    pub(super) fn check(&self, genotypes: &Genotypes) -> Result<()> {
        check_extents(OP, genotypes)?;
        let (samples, variants) = (genotypes.samples(), genotypes.variants());
        let most = samples.min(variants);
        if self.components as u64 > most {
            let why = format!(
                "{}, but {variants} variants of {samples} samples have at most {most}",
                self.components
            );
            return Err(Error::argument(OP, "components", why));
        }
        self.filter.check(OP)
    }
}
