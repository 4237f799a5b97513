//! Genotypes from, and to, [Zarr](https://zarr.dev) v2 and v3 stores on a local file system.
//!
//! [`GenotypeStore`] finds the genotypes, samples and variants of a store; [`ZarrArray`] is one array of it;
//! [`VcfZarrWriter`] writes a store; [`Grm::write_zarr`](crate::genotype::Grm::write_zarr) a matrix of relationships.
//! Metadata is parsed by the `zarrs` crate, which nothing outside this module names; chunks are decoded under
//! the guards of `guard.rs`.

mod array;
mod attributes;
mod bitshuffle;
mod chain;
mod column;
mod folder;
mod gaps;
mod guard;
mod layout;
mod metadata;
mod relationship;
mod shard;
mod store;
mod values;
mod variants;
mod write;

pub use crate::genotype::Variant;
pub use array::ZarrArray;
pub use metadata::MAX_CHUNK_BYTES;
pub(crate) use relationship::write_relationship;
pub use store::GenotypeStore;
pub use variants::FilledColumn;
pub use write::{VcfZarrHeader, VcfZarrWriter};

#[cfg(test)]
mod tests;
