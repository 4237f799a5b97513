//! Variants, and the sources from which they are read.

use std::{fmt::Debug, ops::Range, sync::Arc};

use teatime::{Error, Result};

use crate::to_usize;

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

/// Numbered variants that are read some at a time: those of a store, of a .bed, or a list in memory.
pub trait VariantSource: Debug + Send + Sync {
    /// Returns the number of variants.
    fn n_variants(&self) -> u64;

    /// Returns the variants in `range`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a range that ends beyond the last variant; otherwise any of the source's own.
    fn variants(&self, range: Range<u64>) -> Result<Vec<Variant>>;

    /// Returns the variants in `range` as [`variants`](Self::variants) does, but with 0 for the positions of a .bim, which need not be numbers.
    ///
    /// # Errors
    /// Fails as [`variants`](Self::variants) does.
    fn variants_without_positions(&self, range: Range<u64>) -> Result<Vec<Variant>> {
        self.variants(range)
    }

    /// Gives `f` the contigs of the variants in order: a name, and the number of consecutive variants on it. A name may be given several times in
    /// succession.
    ///
    /// # Errors
    /// Fails as [`variants`](Self::variants) does, and with any error of `f`.
    fn contigs(&self, f: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()>;

    /// Returns the contigs that the source names in addition to those of its variants, and their lengths in bases if they are known.
    ///
    /// # Errors
    /// Fails as [`contigs`](Self::contigs) does.
    fn named_contigs(&self) -> Result<Vec<(String, Option<u64>)>> {
        Ok(Vec::new())
    }

    /// Returns the position of a variant.
    ///
    /// # Errors
    /// Fails as [`variants`](Self::variants) does.
    fn position(&self, variant: u64) -> Result<u64> {
        Ok(self.variants(variant..variant + 1)?.iter().map(|variant| variant.position).sum())
    }
}

impl VariantSource for Vec<Variant> {
    fn n_variants(&self) -> u64 {
        self.len() as u64
    }

    fn variants(&self, range: Range<u64>) -> Result<Vec<Variant>> {
        let variants = self.get(to_usize(range.start)..to_usize(range.end)).map(<[Variant]>::to_vec);
        variants.ok_or_else(|| {
            Error::argument("variants", "range", format_args!("{range:?} is not within the {}", self.len()))
        })
    }

    fn contigs(&self, f: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        self.iter().try_for_each(|variant| f(&variant.contig, 1))
    }
}

/// The number of variants that are read at once.
const BATCH: u64 = 4096;

/// The variants of several sources, which are appended in order and read in batches of 4,096.
#[derive(Debug)]
pub struct VariantReader<'a> {
    sources: Vec<&'a dyn VariantSource>,
    positions: bool,
    batch: Vec<Variant>,
    first: u64,
}

impl<'a> VariantReader<'a> {
    /// Creates a reader. Without `positions`, the positions of a .bim are 0 and need not be numbers.
    pub fn new(sources: &[&'a dyn VariantSource], positions: bool) -> Self {
        Self { sources: sources.to_vec(), positions, batch: Vec::new(), first: 0 }
    }

    /// Returns the variant with that index, counted over all sources. Indices in ascending order read each variant once.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sources have no variant with that index; otherwise fails as [`VariantSource::variants`] does.
    pub fn get(&mut self, number: u64) -> Result<&Variant> {
        let within = |first: u64| to_usize(number.saturating_sub(first));
        if number < self.first || within(self.first) >= self.batch.len() {
            let mut start = 0;
            for source in &self.sources {
                let end = start + source.n_variants();
                if number < end {
                    let range = number - start..end.min(number + BATCH) - start;
                    self.batch = match self.positions {
                        true => source.variants(range)?,
                        false => source.variants_without_positions(range)?,
                    };
                    self.first = number;
                    break;
                }
                start = end;
            }
        }
        self.batch.get(within(self.first)).ok_or_else(|| {
            Error::argument("variants", "sources", format_args!("none of them has the variant {number}"))
        })
    }
}
