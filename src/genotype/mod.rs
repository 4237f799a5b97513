//! Genotypes: from calls to principal components and relationships.

mod choice;
pub(crate) mod dosage;
mod exact;
mod filter;
mod grm;
mod intake;
mod memory;
mod of_ploidy;
mod options;
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
#[cfg(feature = "zarr")]
mod vcf_zarr;

#[cfg(test)]
mod tests;

#[cfg(feature = "zarr")]
pub use self::vcf_zarr::{FilledColumn, GenotypeStore, VcfZarrHeader, VcfZarrWriter};
pub use self::{
    choice::MethodCosts,
    filter::{VariantCounts, VariantFilter},
    grm::{Grm, GrmMethod, GrmOptions, MissingCalls, grm},
    options::{Method, PcaOptions},
    pca::{Pca, VariantLoadings, loadings, pca},
    ploidy::{CallPloidies, call_ploidies},
    project::{Match, ProjectMethod, Projection, ReferenceLoadings, project},
    residency::Residency,
    scaler::Scaler,
    source::{CountedAllele, GenotypeKind, Genotypes},
    variant::Variant,
};
pub use crate::stream::StreamStats;
