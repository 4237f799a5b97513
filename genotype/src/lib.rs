//! Principal components, relationship matrices, projections and distances of genotypes bigger than memory, on the devices of [`teatime`].
//!
//! # Concepts
//!
//! | concept | item | |
//! |---|---|---|
//! | store | [`GenotypeStore`], [`bed::BedFile`] | VCF-Zarr, scikit-allel's and MalariaGEN's layout; PLINK 1 files: genotypes, names of samples, variants |
//! | genotypes | [`Genotypes`] | calls or dosages of variants by samples, as one matrix: arrays of stores, or any [`ChunkedArray`](teatime::ChunkedArray); some of the variants or samples, haplotypes, one allele |
//! | dosage | [`GenotypeKind`] | copies of non-reference alleles, or of one allele ([`Genotypes::count_allele`]) |
//! | result | [`pca()`], [`grm()`], [`project()`], [`distances()`] | each reads the genotypes for itself |
//! | cohort | [`Cohort`] | genotypes that are read once for several results |
//! | part | [`CohortPart`]; of distances [`distance_sums()`] | counts and sums over a range of variants, made elsewhere or later; parts merge |
//! | filter, scaler | [`VariantFilter`], [`Scaler`] | which variants take part; how dosages are centred and scaled |
//! | run | [`Run`](teatime::Run) | a flag that stops a call, a callback for progress, memory budgets |
//!
//! # A first program
//!
//! ```
//! use std::sync::Arc;
//! use teatime::{Device, Run, store::MemoryArray};
//! use teatime_genotype::{Genotypes, PcaOptions, pca};
//!
//! // Four variants of four samples, in memory.
//! // The pages of `GenotypeStore` and `bed::BedFile` open stores and files.
//! let dosages = [[0i8, 0, 2, 2], [2, 2, 0, 1], [0, 1, 2, 2], [2, 2, 0, 0]];
//! let array = MemoryArray::new("dosages", dosages.as_flattened(), &[4, 4], &[2, 4])?;
//! let genotypes = Genotypes::new(vec![Arc::new(array)])?;
//!
//! let options = PcaOptions::default().components(2);
//! let result = pca(&genotypes, &Device::best()?, &options, &Run::default())?;
//! let scores = result.scores();
//! assert!(scores.row(0)[0] * scores.row(3)[0] < 0.0, "the first sample and the last are apart");
//! # Ok::<(), teatime::Error>(())
//! ```
//!
//! # Where to look
//!
//! | for | item |
//! |---|---|
//! | loadings of the variants; new samples on components | [`loadings()`], [`ReferenceLoadings`], [`project()`] |
//! | distances of some samples at a time, where the matrix does not fit memory | [`DistanceBands`] |
//! | distances from the samples of other genotypes | [`SamplePairs::between`] |
//! | the variants of other genotypes, or of loadings, that are the same | [`VariantIndex`] |
//! | the nearest of each sample | [`sample_neighbors`] |
//! | some variants, some samples | [`Genotypes::select`], [`Genotypes::select_samples`] |
//! | those of a list | [`SampleList`], [`VariantList`] |
//! | haplotypes for samples; copies of one allele | [`Genotypes::haplotypes`], [`Genotypes::count_allele`] |
//! | calls of one ploidy among several | [`call_ploidies`], [`Genotypes::with_ploidy`] |
//! | whole dosages in two bits under any scaler | [`Genotypes::dosages_are_bounded`] |
//! | several processes | [`Cohort::part`], [`CohortPart::merge`], [`Cohort::of_part`] |
//! | writing a store | [`VcfZarrWriter`] |
//!
//! # Coming from sgkit, scikit-allel or plink2
//!
//! | there | here |
//! |---|---|
//! | sgkit `pca`, `pca_transform`; scikit-allel `randomized_pca`, `pca`; plink2 `--pca` | [`pca()`], [`project()`] |
//! | sgkit `genomic_relationship`; plink2 `--make-rel`, `--make-grm-bin` | [`grm()`] |
//! | sgkit `pairwise_distance`, `identity_by_state`; scikit-allel `pairwise_distance`; plink 1.9 `--distance` | [`distances()`] |
//! | plink2 `--maf`, `--geno` | [`VariantFilter`] |
//! | plink2 `--keep`, `--extract` | [`SampleList`], [`VariantList`] |
//! | sgkit `load_dataset`; `allel.GenotypeDaskArray` | [`GenotypeStore`] |
//!
//! # Cargo features
//!
//! | feature | gives |
//! |---|---|
//! | `cuda`, `wgpu` | devices, as in [`teatime`] |
//! | `zarr` | [`GenotypeStore`], [`VcfZarrWriter`], results as Zarr stores |
//!
//! All are on by default. `cuda-emulator` is for tests.
//!
//! # Costs and errors
//!
//! A result takes one pass over the store, unless its page says otherwise. Genotypes take two bits each if two bits can hold them, and
//! products with them are exact: the same bits for any chunks, threads and devices. Memory is planned before anything is read, within
//! [`Run::memory`](teatime::Run::memory). Errors are [`teatime::Error`]; errors in stored genotypes name the array and the chunk.
//!
#![cfg_attr(
    not(feature = "zarr"),
    doc = "[`GenotypeStore`]: Genotypes
[`VcfZarrWriter`]: Genotypes"
)]
// docs.rs shows for each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Types that hold a device are nested deep.
#![recursion_limit = "256"]

pub mod bed;
mod calls;
mod carried;
mod choice;
mod cohort;
mod contig;
mod contig_choice;
mod conversion;
mod counts;
mod distance;
mod filter;
mod grm;
mod intake;
mod lists;
mod matching;
mod memory;
mod names;
mod of_ploidy;
mod options;
mod pair_sums;
mod panel_sum;
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
pub use self::vcf_zarr::{DoubtfulColumn, GenotypeStore, VcfZarrHeader, VcfZarrWriter};
pub use self::{
    carried::carried_alleles,
    choice::MethodCosts,
    cohort::{
        Cohort,
        grm::grm,
        pca::{LoadingsSink, Pca, VariantLoadings, loadings, pca},
        plan::Wanted,
        project::project,
    },
    contig::{ContigClass, ContigRuns, Karyotype},
    contig_choice::ContigChoice,
    counts::CountsByVariant,
    distance::{
        DistanceBand, DistanceBands, DistanceFacts, DistanceOptions, Distances, Linkage, Merge, SampleMetric,
        SampleNeighbors, SamplePairs, Tree, distance_sums, distances, sample_neighbors,
    },
    filter::{VariantCounts, VariantFilter},
    grm::{Grm, GrmMethod, GrmOptions, MissingCalls},
    lists::{Listed, SampleList, VariantList, VariantListKind},
    matching::{GenotypeCounts, MatchBy, MatchCounts, ReferenceCounts, VariantIndex, VariantMatches},
    options::{Method, PcaOptions},
    part::{CohortPart, PartSums, SumValues},
    ploidy::{CallPloidies, call_ploidies},
    project::{Match, ProjectMethod, Projection, ReferenceLoadings},
    residency::Residency,
    scaler::Scaler,
    source::{GenotypeKind, Genotypes},
    variant::{Variant, VariantReader, VariantSource},
};

/// The program name that stores record as their writer.
#[cfg(feature = "zarr")]
const SOURCE: &str = concat!("teatime-", env!("CARGO_PKG_VERSION"));

use teatime::to_usize;
