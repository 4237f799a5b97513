//! Regions of contigs, and places.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{contig::Karyotype, variant::Variant};

/// A contig's normalised name, and a position on it.
pub(super) type Place<'a> = (&'a str, u64);

/// For each first position of regions, the last position of any region that starts there or before.
type Ends = BTreeMap<u64, u64>;

pub(super) struct Regions {
    karyotype: Karyotype,
    contigs: HashMap<String, Ends>,
}

impl Regions {
    pub(super) fn new(karyotype: Karyotype) -> Self {
        Self { karyotype, contigs: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.contigs.is_empty()
    }

    /// Takes regions within others, and those that overlap, into account, once all were added.
    pub(super) fn settle(&mut self) {
        for ends in self.contigs.values_mut() {
            let mut furthest = 0;
            for end in ends.values_mut() {
                furthest = furthest.max(*end);
                *end = furthest;
            }
        }
    }

    /// Returns the regions of a contig, to which more can be added.
    pub(super) fn contig(&mut self, contig: &str) -> &mut Ends {
        self.contigs.entry(self.karyotype.normalized(contig).0).or_default()
    }

    /// Returns the place of a variant if a region holds it. `last` has the contig of the variant before, and its regions.
    pub(super) fn place<'a>(
        &'a self,
        variant: &Variant,
        last: &mut (Arc<str>, Option<(&'a String, &'a Ends)>),
    ) -> Option<Place<'a>> {
        if self.is_empty() {
            return None;
        }
        if variant.contig != last.0 {
            let normal = self.karyotype.normalized(&variant.contig).0;
            *last = (Arc::clone(&variant.contig), self.contigs.get_key_value(&normal));
        }
        let (contig, ends) = last.1?;
        let (_, end) = ends.range(..=variant.position).next_back()?;
        (*end >= variant.position).then_some((contig, variant.position))
    }

    /// Returns the place that a word names, if it is one.
    pub(super) fn named(&self, word: &str) -> Option<Place<'_>> {
        let (contig, position) = place(word)?;
        let (contig, _) = self.contigs.get_key_value(&self.karyotype.normalized(contig).0)?;
        Some((contig, position))
    }
}

/// Returns the contig and the position that a word such as `1:1000` names.
pub(super) fn place(word: &str) -> Option<(&str, u64)> {
    let (contig, position) = word.rsplit_once(':')?;
    let is_number = position.bytes().all(|c| c.is_ascii_digit());
    Some((contig, position.parse().ok().filter(|_| is_number && !contig.is_empty())?))
}
