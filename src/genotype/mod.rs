//! Genotypes: from calls to principal components.

pub(crate) mod dosage;
pub(crate) mod standardize;
