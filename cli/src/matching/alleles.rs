//! Alleles by name, and whether those of two variants are the same.

use std::{collections::HashMap, sync::Arc};

/// An allele, a contig or an id that nobody knows.
pub(super) const UNKNOWN: &str = ".";

/// Names and their numbers.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<Arc<str>, u32>,
    pub(super) names: Vec<Arc<str>>,
}

impl Names {
    /// The number of a name, a new one where it is new.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.get(name) {
            return number;
        }
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let name: Arc<str> = name.into();
        self.numbers.insert(Arc::clone(&name), next);
        self.names.push(name);
        next
    }

    pub(super) fn get(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }
}

/// Alleles that are not counted, a tab, and those that are: in capitals, as bases may be in either, and several in one
/// order; [`UNKNOWN`] where there is none.
pub(super) fn pair(other: &str, counted: &str) -> String {
    let sorted = |alleles: &str| {
        if alleles.is_empty() {
            return UNKNOWN.to_owned();
        }
        if !alleles.contains(',') {
            return alleles.to_ascii_uppercase();
        }
        let mut alleles: Vec<_> = alleles.split(',').map(str::to_ascii_uppercase).collect();
        alleles.sort_unstable();
        alleles.join(",")
    };
    format!("{}\t{}", sorted(other), sorted(counted))
}

/// The way in which the alleles of a variant are those of a variant of the loadings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    Same,
    /// The counted alleles are those that the loadings do not count.
    Swapped,
    /// The one that has a name may be that of the loadings, or the base before an insertion or deletion, which says nothing
    /// of that.
    Anchor,
}

/// Returns how alleles `ours`, a [`pair`], can be those of a variant of the loadings, if they can: all that have a name are among
/// its own, on one side each. An allele without a name is one that nobody carries, or the other of two; where it would be
/// longer than the one with a name, that may be the base of a site of its own.
pub(super) fn fit(ours: &str, loadings: &str) -> Option<Fit> {
    if ours == loadings {
        return Some(Fit::Same);
    }
    let ([other, counted], [no, yes]) = (sides(ours)?, sides(loadings)?);
    let among = |part: &str, whole: &str| {
        part == UNKNOWN || part.split(',').all(|allele| whole.split(',').any(|other| other == allele))
    };
    let longest = |part: &str| part.split(',').map(str::len).max();
    let anchor = |unknown: &str, known: &str, is: &str| unknown == UNKNOWN && longest(known) < longest(is);
    let (fit, [no, yes]) = match () {
        () if is_unknown(ours) => return None,
        () if among(other, no) && among(counted, yes) => (Fit::Same, [no, yes]),
        () if among(other, yes) && among(counted, no) => (Fit::Swapped, [yes, no]),
        () => return None,
    };
    Some(if anchor(other, counted, no) || anchor(counted, other, yes) { Fit::Anchor } else { fit })
}

fn sides(pair: &str) -> Option<[&str; 2]> {
    pair.split_once('\t').map(<[&str; 2]>::from)
}

/// True for an allele, in capitals, that is one of a pair.
pub(super) fn has(pair: &str, allele: &str) -> bool {
    pair.split(['\t', ',']).any(|other| other == allele)
}

/// True where no allele of a pair has a name.
pub(super) fn is_unknown(pair: &str) -> bool {
    sides(pair) == Some([UNKNOWN; 2])
}

/// True where two pairs are of the same alleles, whichever are counted.
pub(super) fn are_same(a: &str, b: &str) -> bool {
    sides(a).zip(sides(b)).is_some_and(|(a, b)| a == b || a == [b[1], b[0]])
}
