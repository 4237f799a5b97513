//! Genotypes from, and to, Zarr stores.
//!
//! [`GenotypeStore`] finds the genotypes, samples and variants of a store, as VCF-Zarr, scikit-allel or plain arrays have
//! them; [`VcfZarrWriter`] writes VCF-Zarr.

mod columns;
mod store;
mod variants;
mod write;

pub use self::{
    store::GenotypeStore,
    variants::DoubtfulColumn,
    write::{VcfZarrHeader, VcfZarrWriter},
};

#[cfg(test)]
mod tests;
