//! Genotypes: from calls to principal components and relationships.

pub(crate) mod dosage;
mod exact;
mod grm;
mod intake;
mod memory;
pub(crate) mod packed;
mod pair_sums;
pub(crate) mod panel;
mod pca;
mod project;
mod residency;
pub(crate) mod scaler;
mod source;
pub(crate) mod standardize;
mod standardized;
mod tally;
mod variant;

#[cfg(test)]
mod tests;

pub use self::{
    grm::{Grm, GrmMethod, GrmOptions, MissingCalls, grm},
    packed::PackedMatrix,
    pca::{Method, Pca, PcaOptions, VariantCounts, VariantFilter, VariantLoadings, loadings, pca},
    project::{Match, Projection, ReferenceLoadings, project},
    residency::Residency,
    scaler::Scaler,
    source::{CountedAllele, GenotypeKind, Genotypes, MemoryArray, Storable},
    variant::Variant,
};
pub use crate::stream::StreamStats;
