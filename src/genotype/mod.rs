//! Genotypes: from calls to principal components and relationships.

mod calls;
mod choice;
mod cohort;
mod conversion;
mod counts;
mod exact;
mod filter;
mod grm;
mod intake;
mod memory;
mod of_ploidy;
mod options;
mod pair_sums;
pub(crate) mod panel;
mod part;
mod ploidy;
mod project;
mod reader;
mod residency;
pub(crate) mod scaler;
mod source;
mod totals;
mod variant;
#[cfg(feature = "zarr")]
mod vcf_zarr;

#[cfg(test)]
mod tests;

#[cfg(feature = "zarr")]
pub use self::vcf_zarr::{FilledColumn, GenotypeStore, VcfZarrHeader, VcfZarrWriter};
pub use self::{
    choice::MethodCosts,
    cohort::{
        Cohort,
        grm::grm,
        pca::{LoadingsSink, Pca, VariantLoadings, loadings, pca},
        plan::Wanted,
        project::project,
    },
    counts::CountsByVariant,
    filter::{VariantCounts, VariantFilter},
    grm::{Grm, GrmMethod, GrmOptions, MissingCalls},
    options::{Method, PcaOptions},
    part::{CohortPart, PartSums, SumValues},
    ploidy::{CallPloidies, call_ploidies},
    project::{Match, ProjectMethod, Projection, ReferenceLoadings},
    residency::Residency,
    scaler::Scaler,
    source::{CountedAllele, GenotypeKind, Genotypes},
    variant::Variant,
};
pub use crate::stream::StreamStats;

/// What stores name as their writer.
#[cfg(feature = "zarr")]
const SOURCE: &str = concat!("teatime-", env!("CARGO_PKG_VERSION"));
