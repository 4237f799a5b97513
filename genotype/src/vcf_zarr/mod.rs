//! Reading genotypes from Zarr stores, and writing them.
//!
//! [`GenotypeStore`] finds the genotypes, samples and variants of a store in the layout of
//! VCF-Zarr, of scikit-allel, or of plain arrays; [`VcfZarrWriter`] writes VCF-Zarr.

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
