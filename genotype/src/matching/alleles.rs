//! Names of alleles, and comparisons of the alleles of two variants.

pub(super) const UNKNOWN: &str = ".";

/// Returns the alleles that are not counted, a tab, and the counted ones. Names are in upper case, and sorted; [`UNKNOWN`] stands for none.
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

/// The relation between a variant's alleles and those of a variant of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    Same,
    /// The variant's counted alleles are those that the reference does not count.
    Swapped,
    /// The variant's only named allele may be the reference's allele, or merely the base before another insertion or deletion.
    Anchor,
}

/// Returns the relation of the alleles `ours`, a [`pair`], to those of a variant of the reference, or `None` if they cannot be the same.
/// All named alleles must be among the reference's, on one side each. An allele without a name is one that nobody carries, or the other of
/// two. If it would be longer than the named allele, the named one may be the base of another site.
pub(super) fn fit(ours: &str, theirs: &str) -> Option<Fit> {
    if ours == theirs {
        return Some(Fit::Same);
    }
    let ([other, counted], [no, yes]) = (sides(ours)?, sides(theirs)?);
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

/// Returns true if the allele, in upper case, is one of the pair.
pub(super) fn has(pair: &str, allele: &str) -> bool {
    pair.split(['\t', ',']).any(|other| other == allele)
}

/// Returns true if no allele of the pair has a name.
pub(super) fn is_unknown(pair: &str) -> bool {
    sides(pair) == Some([UNKNOWN; 2])
}

/// Returns true if two pairs have the same alleles, whichever are counted.
pub(super) fn are_same(a: &str, b: &str) -> bool {
    sides(a).zip(sides(b)).is_some_and(|(a, b)| a == b || a == [b[1], b[0]])
}
