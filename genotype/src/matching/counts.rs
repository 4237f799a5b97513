//! Counts of matched and unmatched variants.

use super::MatchBy;

/// The numbers of variants that were matched, and of variants that were not, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatchCounts {
    /// The property that variants were matched by.
    pub by: MatchBy,
    /// Counts of the reference's variants.
    pub reference: ReferenceCounts,
    /// Counts of the genotypes' variants.
    pub genotypes: GenotypeCounts,
    /// The number of the genotypes' variants with unknown alleles at the position of an earlier one. The match of such a variant is a
    /// guess, since nothing tells the two apart.
    pub unknown_repeated: u64,
    /// The first contig of the reference and that of the genotypes, if nothing matched and the reference lacks the genotypes' contig.
    pub contigs: Option<(String, String)>,
}

/// Counts of a reference's variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReferenceCounts {
    /// All variants. Each is used, or counted by one of the reasons from `absent` on.
    pub variants: u64,
    /// Variants that have a match.
    pub used: u64,
    /// Used variants whose counted alleles are those that the genotypes do not count.
    pub swapped: u64,
    /// Used variants whose alleles are unknown.
    pub alleles_unknown: u64,
    /// Used variants for which the genotypes name fewer alleles than the reference.
    pub fewer_alleles: u64,
    /// Variants that the genotypes lack.
    pub absent: u64,
    /// Variants that the genotypes have with other alleles, or with an unnamed allele.
    pub other_alleles: u64,
    /// Variants that repeat the position and alleles of an earlier one, beyond the number of such variants in the genotypes.
    pub repeated: u64,
    /// Variants whose alleles in the genotypes fit several variants of the reference or of the genotypes, or for which the genotypes name
    /// only the possible base before an insertion or deletion.
    pub ambiguous: u64,
    /// Variants without the position or id that they are matched by.
    pub nowhere: u64,
    /// Variants matched by id, whose id occurs more than once in either.
    pub doubled_id: u64,
}

/// Counts of the variants of genotypes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GenotypeCounts {
    /// All selected variants. Each has a match, or is counted by one of the following.
    pub variants: u64,
    /// Variants that the reference lacks, or has with other alleles.
    pub not_in_reference: u64,
    /// Variants that repeat the position and alleles of an earlier one, beyond the number of such variants in the reference.
    pub repeated: u64,
    /// Variants whose alleles fit several variants of the reference or of the genotypes, or that name only the possible base before an
    /// insertion or deletion.
    pub ambiguous: u64,
    /// Variants without the position or id that they are matched by.
    pub nowhere: u64,
    /// Variants matched by id, whose id is in the reference and occurs more than once in either.
    pub doubled_id: u64,
}

/// Returns fields with their names.
macro_rules! named {
    ($counts:ident: $($field:ident)*) => { [$((stringify!($field), $counts.$field)),*] };
}

impl ReferenceCounts {
    /// Returns each count with its name in records: those of all and of used variants, and from the sixth on those of variants without a match.
    pub fn named(&self) -> [(&'static str, u64); 11] {
        named! {
            self: variants used swapped alleles_unknown fewer_alleles
            absent other_alleles repeated ambiguous nowhere doubled_id
        }
    }
}

impl GenotypeCounts {
    /// Returns each count with its name in records: that of all variants, and those of variants without a match.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        named! { self: variants not_in_reference repeated ambiguous nowhere doubled_id }
    }
}

impl MatchCounts {
    /// Returns the fraction of the reference's variants that have no match, if `apart` of those without one do not count.
    pub fn mismatch(&self, apart: u64) -> f64 {
        let ReferenceCounts { variants, used, .. } = self.reference;
        let counted = variants.saturating_sub(apart);
        counted.saturating_sub(used) as f64 / counted.max(1) as f64
    }
}
