//! Matching of the variants of genotypes with those of a reference: loadings, or other genotypes.

mod alleles;
mod counts;
mod matcher;
#[cfg(test)]
mod tests;

use teatime::{Device, Error, Result, Run, Status, linalg::Pass};

pub use self::counts::{GenotypeCounts, MatchCounts, ReferenceCounts};
use self::{
    alleles::{UNKNOWN, pair},
    matcher::Matching,
};
use crate::{
    carried::carried_alleles,
    contig::{ContigClass, ContigRuns, Karyotype},
    names::Names,
    project::Match,
    source::{GenotypeKind, Genotypes},
    variant::{Variant, VariantReader, VariantSource},
};

/// The name that stands for an unknown position or id.
const NOWHERE: &str = "";

/// The property that variants are matched by, in addition to their alleles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatchBy {
    /// Contig and position, both in the same genome build.
    #[default]
    Position,
    /// Names of variants, such as rs numbers, wherever they are.
    Id,
}

teatime::names! { MatchBy { Position = "position", Id = "id" } }

impl MatchBy {
    /// Returns true if a variant has a position, or an id. An unknown position is contig 0 or position 0 in PLINK; plain arrays have no contig.
    fn knows(self, contig: &str, position: u64, id: &str) -> bool {
        match self {
            Self::Position if contig == UNKNOWN => true,
            Self::Position => {
                position > 0
                    && !(contig.ends_with('0')
                        && Karyotype::HUMAN.normalized(contig).1 == ContigClass::Unplaced)
            }
            Self::Id => ![UNKNOWN, NOWHERE].contains(&id),
        }
    }
}

/// The variants of genotypes, each with its match.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VariantMatches {
    /// The match of each selected variant, if it has one, as [`project`](crate::project()) and
    /// [`SamplePairs::between`](crate::SamplePairs::between) take them. No variant of the reference occurs twice.
    pub matches: Vec<Option<Match>>,
    /// The indices of the reference's variants that are [absent](ReferenceCounts::absent), but on contigs of which the genotypes have
    /// variants, in ascending order. By id, there are none.
    pub absent: Vec<u32>,
    /// The numbers of variants that were matched, and of others by reason.
    pub counts: MatchCounts,
}

/// The positions and alleles of a reference's variants, numbered in the order in which they were pushed.
///
/// Variants are the same if contig and position, or ids, are the same, and if the named alleles are:
/// - in any case of letters, several counted ones in any order;
/// - with reference and alternate allele swapped, which is a [`Match::Swapped`]. Strands are taken as they are;
/// - without alleles that no sample carries. An allele without a name (`.`) is such a one, or the other of two. If the named is the shorter
///   of an insertion or deletion, it may be the base before it, so that nothing matches.
///
/// Variants of the same position and alleles pair up in order. A variant that could be several others matches none. By id, variants with an
/// id that occurs more than once match nothing.
///
/// Takes 16 bytes for each variant, and the names of contigs and of pairs of alleles once; by id, some 150 bytes for each variant.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, store::MemoryArray};
/// use teatime_genotype::{Genotypes, Match, MatchBy, Variant, VariantIndex};
///
/// // `GenotypeStore` and `BedFile` are sources of variants, as lists of them are.
/// let variant = |contig: &str, position, [reference, alternate]: [&str; 2]| Variant {
///     contig: contig.into(),
///     position,
///     id: ".".into(),
///     reference: reference.into(),
///     alternate: alternate.into(),
/// };
/// let genotypes = |dosages: &[i8]| {
///     let shape = [dosages.len() as u64, 1];
///     Genotypes::new(vec![Arc::new(MemoryArray::new("dosages", dosages, &shape, &shape)?)])
/// };
/// let known = vec![variant("1", 10, ["A", "C"]), variant("1", 20, ["G", "T"])];
/// let new = vec![variant("chr1", 20, ["T", "G"]), variant("chr1", 30, ["A", "T"]), variant("chr1", 10, ["A", "C"])];
///
/// let (of_known, of_new) = (genotypes(&[0, 2])?, genotypes(&[1, 0, 2])?);
/// let (device, run) = (Device::cpu(), Run::default());
/// let index = VariantIndex::of_genotypes(MatchBy::Position, &of_known, &[&known], &run)?;
/// let variants = index.matches(&of_new, &[&new], None, &device, &run)?;
/// assert_eq!(variants.matches, [Some(Match::Swapped(1)), None, Some(Match::Same(0))]);
/// assert_eq!((variants.counts.reference.used, variants.counts.genotypes.not_in_reference), (2, 1));
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct VariantIndex {
    by: MatchBy,
    /// The names of contigs, or ids.
    names: Names,
    /// The variants' pairs of alleles, as text.
    alleles: Names,
    keys: Vec<Key>,
}

/// Indices of the contig or id and of the pair of alleles, and the position (0 with ids).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    name: u32,
    position: u64,
    alleles: u32,
}

impl Key {
    fn place(self) -> (u32, u64) {
        (self.name, self.position)
    }
}

impl VariantIndex {
    /// Creates an empty index.
    pub fn new(by: MatchBy) -> Self {
        Self { by, ..Self::default() }
    }

    /// Makes an index of the selected variants of `genotypes`, with their counted alleles. `sources` name all variants, in order.
    ///
    /// # Errors
    /// [`Error::Argument`] if the sources name more or fewer variants than the arrays of `genotypes` have, and for calls of which one alternate
    /// allele alone is counted; otherwise fails as [`push`](Self::push) and [`VariantSource::variants`] do, and with [`Error::Cancelled`].
    pub fn of_genotypes(
        by: MatchBy,
        genotypes: &Genotypes,
        sources: &[&dyn VariantSource],
        run: &Run,
    ) -> Result<Self> {
        let mut index = Self::new(by);
        each("VariantIndex::of_genotypes", by, genotypes, sources, run, |_, variant, [other, counted]| {
            index.push((&variant.contig, variant.position, &variant.id), other, counted)
        })?;
        Ok(index)
    }

    /// Adds the next variant of the reference: its contig, position and id, the alleles that are not counted, and the counted alleles. Several
    /// alleles are joined with commas, and `.` is an unknown one.
    ///
    /// # Errors
    /// [`Error::Argument`] for more than 2^32 - 1 variants.
    pub fn push(
        &mut self,
        (contig, position, id): (&str, u64, &str),
        other: &str,
        counted: &str,
    ) -> Result<()> {
        if self.keys.len() as u64 >= u64::from(u32::MAX) {
            return Err(Error::argument("VariantIndex::push", "variants", "more than 2^32 - 1"));
        }
        let (name, position) = match self.by {
            _ if !self.by.knows(contig, position, id) => (NOWHERE, 0),
            MatchBy::Position => (contig, position),
            MatchBy::Id => (id, 0),
        };
        let name = self.names.number(name);
        let alleles = self.alleles.number(&pair(other, counted));
        self.keys.push(Key { name, position, alleles });
        Ok(())
    }

    /// Returns the karyotype of the reference and of genotypes of the karyotype `own` together: human only if both are.
    pub fn karyotype_with(&self, own: Karyotype) -> Karyotype {
        let contigs = self.names.names.iter().filter(|_| self.by == MatchBy::Position);
        match Karyotype::from_contigs(contigs.map(|name| (&**name, None))) {
            Karyotype::HUMAN => own,
            other => other,
        }
    }

    /// Matches the selected variants of `genotypes` with the reference's. `sources` name all variants of `genotypes`, in order.
    ///
    /// Names of contigs are compared as `karyotype` [normalises](Karyotype::normalized) them. If `None`, it is that of the sources' contigs
    /// and of the reference's [together](Self::karyotype_with). If variants have several counted alleles that do not match, their calls are read
    /// on `device` to find the alleles that samples carry.
    ///
    /// # Cost
    /// Reads the variants once, and without `karyotype` their contigs once more; [`carried_alleles`] of variants with several counted
    /// alleles. Takes 13 bytes of memory for each variant of the reference, 4 more for each absent one, and 8 for each of `genotypes`
    /// besides those of the index, and more for variants that are decided last, since their alleles differ from the reference's.
    ///
    /// # Errors
    /// Fails as [`of_genotypes`](Self::of_genotypes), [`ContigRuns::read`] and [`carried_alleles`] do. Finding no match is no error.
    pub fn matches(
        &self,
        genotypes: &Genotypes,
        sources: &[&dyn VariantSource],
        karyotype: Option<Karyotype>,
        device: &Device,
        run: &Run,
    ) -> Result<VariantMatches> {
        let karyotype = match karyotype {
            None if self.by == MatchBy::Position => {
                self.karyotype_with(ContigRuns::read(sources, &run.cancel)?.karyotype())
            }
            karyotype => karyotype.unwrap_or_default(),
        };
        let mut matching = Matching::new(self, karyotype);
        each("VariantIndex::matches", self.by, genotypes, sources, run, |row, variant, alleles| {
            matching.add(row, variant, alleles);
            Ok(())
        })?;
        let several: Vec<_> = matching.several.iter().map(|several| several.row..several.row + 1).collect();
        let carried = match genotypes.kind() {
            GenotypeKind::Calls { .. } if !several.is_empty() => {
                carried_alleles(&genotypes.clone().select(several)?, device, run)?
            }
            // Dosages do not show which alleles are carried.
            _ => vec![u128::MAX; several.len()],
        };
        matching.find_carried(&carried);
        Ok(matching.finish())
    }
}

/// The number of variants between reports of progress.
const STEP: u64 = 4096;

/// Gives `take` each selected variant of `genotypes`: its row, itself, and the alleles that are not counted and those that are.
fn each(
    op: &'static str,
    by: MatchBy,
    genotypes: &Genotypes,
    sources: &[&dyn VariantSource],
    run: &Run,
    mut take: impl FnMut(u64, &Variant, [&str; 2]) -> Result<()>,
) -> Result<()> {
    let rows: u64 = genotypes.arrays().iter().map(|array| array.shape()[0]).sum();
    let named: u64 = sources.iter().map(|source| source.n_variants()).sum();
    if named != rows {
        let why = format!("they name {named} variants, and the genotypes have {rows}");
        return Err(Error::argument(op, "sources", why));
    }
    let is_swapped = match (genotypes.kind(), genotypes.counted_allele()) {
        (GenotypeKind::Calls { .. }, Some(number @ 1..)) => {
            let why = format!("copies of allele {number} are their dosages, and its name is not known");
            return Err(Error::argument(op, "genotypes", why));
        }
        (_, allele) => allele == Some(0),
    };
    let mut variants = VariantReader::new(sources, by == MatchBy::Position);
    let pass = Pass::new(run, Status::new(0, 1, genotypes.variants()));
    for (done, row) in (1..).zip(genotypes.selected().flatten()) {
        let variant = variants.get(row)?;
        let Variant { reference, alternate, .. } = variant;
        take(row, variant, if is_swapped { [alternate, reference] } else { [reference, alternate] })?;
        if done % STEP == 0 || done == genotypes.variants() {
            pass.tell(done)?;
        }
    }
    Ok(())
}
