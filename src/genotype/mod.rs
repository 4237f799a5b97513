//! Genotypes: from calls to principal components and relationships.

pub(crate) mod dosage;
mod exact;
mod grm;
mod memory;
mod pair_sums;
mod pca;
mod scaler;
mod source;
pub(crate) mod standardize;
mod standardized;

#[cfg(test)]
mod tests;

pub use self::{
    grm::{Grm, GrmMethod, GrmOptions, MissingCalls, grm},
    pca::{Method, Pca, PcaOptions, VariantCounts, VariantFilter, VariantLoadings, loadings, pca},
    scaler::Scaler,
    source::{GenotypeKind, Genotypes, MemoryArray, Storable},
};
pub use crate::stream::StreamStats;
