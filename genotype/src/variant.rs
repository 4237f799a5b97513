//! A variant: its place and its alleles.

use std::sync::Arc;

/// One variant: where it is and what its alleles are. Unknown parts are `.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name of its contig.
    pub contig: Arc<str>,
    /// One-based position; the index in the array, from 0, where the store has no positions.
    pub position: u64,
    /// Its name.
    pub id: String,
    /// Reference allele; A2 of a PLINK .bim.
    pub reference: String,
    /// Alternate alleles, joined with commas; A1 of a PLINK .bim.
    pub alternate: String,
}
