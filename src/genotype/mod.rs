//! Genotypes: from calls to principal components.

pub(crate) mod dosage;
mod exact;
mod intake;
mod memory;
pub(crate) mod packed;
mod panel;
mod pca;
mod project;
mod residency;
mod scaler;
mod source;
pub(crate) mod standardize;
mod standardized;
mod tally;
mod variant;

#[cfg(test)]
mod tests;

pub use self::{
    pca::{Method, Pca, PcaOptions, VariantCounts, VariantFilter, VariantLoadings, loadings, pca},
    project::{Match, Projection, ReferenceLoadings, project},
    residency::Residency,
    scaler::Scaler,
    source::{CountedAllele, GenotypeKind, Genotypes, MemoryArray, Storable},
    variant::Variant,
};
pub use crate::stream::StreamStats;
