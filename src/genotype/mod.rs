//! Genotypes: from calls to principal components and relationships.

mod choice;
pub(crate) mod dosage;
mod exact;
mod grm;
mod in_memory;
mod intake;
mod memory;
pub(crate) mod packed;
mod pair_sums;
pub(crate) mod panel;
mod pca;
mod ploidy;
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
    choice::MethodCosts,
    grm::{Grm, GrmMethod, GrmOptions, MissingCalls, grm},
    in_memory::{MemoryArray, Storable},
    packed::PackedMatrix,
    pca::{Method, Pca, PcaOptions, VariantCounts, VariantFilter, VariantLoadings, loadings, pca},
    ploidy::{CallPloidies, call_ploidies},
    project::{Match, Projection, ReferenceLoadings, project},
    residency::Residency,
    scaler::Scaler,
    source::{CountedAllele, GenotypeKind, Genotypes},
    variant::Variant,
};
pub use crate::stream::StreamStats;
