//! Genotypes, from stored calls to principal components, relationship matrices and projections, on the devices of
//! [`teatime`].
//!
//! [`Genotypes`] are calls or dosages of variants by samples: arrays of VCF-Zarr and MalariaGEN stores (`GenotypeStore`, feature
//! `zarr`), PLINK's `.bed` files ([`bed`]), or any other [`ChunkedArray`](teatime::ChunkedArray). [`pca()`], [`grm()`] and [`project()`]
//! read them once for one result, [`Cohort`] once for several, [`CohortPart`] a range of variants at a time, elsewhere or later.

pub mod bed;
mod calls;
mod choice;
mod cohort;
mod conversion;
mod counts;
mod distance;
mod filter;
mod grm;
mod intake;
mod memory;
mod of_ploidy;
mod options;
mod pair_sums;
mod panel;
mod part;
mod ploidy;
mod project;
mod reader;
mod residency;
mod scaler;
mod source;
#[cfg(feature = "zarr")]
mod square_store;
mod totals;
mod variant;
#[cfg(feature = "zarr")]
mod vcf_zarr;

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "test sizes are small")]
mod suite_of_genotypes;
#[cfg(test)]
mod tests;

#[cfg(feature = "zarr")]
pub use self::distance::WrittenBands;
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
    distance::{
        DistanceBand, DistanceBands, DistanceOptions, Distances, DistancesBetween, Linkage, Merge,
        SampleMetric, SampleNeighbors, Tree, distances, distances_between, sample_neighbors,
        sample_neighbors_between,
    },
    filter::{VariantCounts, VariantFilter},
    grm::{Grm, GrmMethod, GrmOptions, MissingCalls},
    options::{Method, PcaOptions},
    part::{CohortPart, PartSums, SumValues},
    ploidy::{CallPloidies, call_ploidies},
    project::{Match, ProjectMethod, Projection, ReferenceLoadings},
    residency::Residency,
    scaler::Scaler,
    source::{GenotypeKind, Genotypes},
    variant::Variant,
};

/// What stores name as their writer.
#[cfg(feature = "zarr")]
const SOURCE: &str = concat!("teatime-", env!("CARGO_PKG_VERSION"));

/// An extent as the host counts.
fn to_usize(extent: u64) -> usize {
    usize::try_from(extent).expect("what fits the host's memory should fit its address space")
}
