//! Genotypes: from calls to principal components.

pub(crate) mod dosage;
mod exact;
mod memory;
mod pca;
mod scaler;
mod source;
pub(crate) mod standardize;
mod standardized;
mod variant;

#[cfg(test)]
mod tests;

pub use self::{
    pca::{Method, Pca, PcaOptions, VariantCounts, VariantFilter, VariantLoadings, loadings, pca},
    scaler::Scaler,
    source::{CountedAllele, GenotypeKind, Genotypes, MemoryArray, Storable},
    variant::Variant,
};
pub use crate::stream::StreamStats;
