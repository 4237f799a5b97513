//! Genotypes: from calls to principal components.

pub(crate) mod dosage;
mod exact;
mod memory;
mod pca;
mod project;
mod scaler;
mod source;
pub(crate) mod standardize;
mod standardized;

#[cfg(test)]
mod tests;

pub use self::{
    pca::{Method, Pca, PcaOptions, VariantCounts, VariantFilter, VariantLoadings, loadings, pca},
    project::{Match, Projection, ReferenceLoadings, project},
    scaler::Scaler,
    source::{GenotypeKind, Genotypes, MemoryArray, Storable},
};
pub use crate::stream::StreamStats;
