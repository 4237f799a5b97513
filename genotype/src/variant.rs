//! A variant: its position and its alleles.

use std::sync::Arc;

/// One variant: its position and its alleles. Unknown parts are `.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name of the variant's contig.
    pub contig: Arc<str>,
    /// The position, counted from 1; if the store has no positions, the index in the array, from 0.
    pub position: u64,
    /// The variant's name.
    pub id: String,
    /// The reference allele; A2 of a PLINK .bim.
    pub reference: String,
    /// The alternate alleles, joined with commas; A1 of a PLINK .bim.
    pub alternate: String,
}
