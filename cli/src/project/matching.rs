//! Which variants of the stores are those of the loadings.

use std::{collections::HashMap, sync::Arc};

use serde::Serialize;
use teatime::{
    Cancel, Result,
    genotype::{Match, Variant},
};

use crate::{contig, progress::Bar, stores::Stores, text, variants::Variants};

/// Where the variants of the loadings are and what their alleles are, in 16 bytes each.
#[derive(Debug, Default)]
pub(crate) struct Index {
    contigs: HashMap<Box<str>, u32>,
    /// Alleles that are not counted, a tab, and those that are.
    alleles: HashMap<Box<str>, u32>,
    keys: Vec<Key>,
}

/// Contig and alleles by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    contig: u32,
    position: u64,
    alleles: u32,
}

impl Key {
    fn place(self) -> (u32, u64) {
        (self.contig, self.position)
    }
}

impl Index {
    /// The next variant of the loadings.
    pub(crate) fn push(&mut self, contig: &str, position: u64, other: &str, counted: &str) {
        let contig = number(&mut self.contigs, contig);
        let alleles = number(&mut self.alleles, &pair(other, counted));
        self.keys.push(Key { contig, position, alleles });
    }

    /// Matches the variants of the stores, in their order, by contig, position and alleles.
    pub(crate) fn matches(
        self,
        stores: &Stores,
        bar: &Bar,
        cancel: &Cancel,
    ) -> Result<(Vec<Option<Match>>, Counts)> {
        let mut matching = Matching::new(self);
        let mut matches = Vec::new();
        let mut variants = Variants::new(&stores.stores);
        for row in stores.genotypes.selected().flatten() {
            cancel.check()?;
            let variant = variants.get(row)?;
            if stores.counts_reference() {
                std::mem::swap(&mut variant.reference, &mut variant.alternate);
            }
            matches.push(matching.find(variant));
            bar.advance(1);
        }
        let counts = matching.counts(matches.len() as u64);
        Ok((matches, counts))
    }
}

/// The number of a name, a new one where it is new.
fn number(names: &mut HashMap<Box<str>, u32>, name: &str) -> u32 {
    if let Some(number) = names.get(name) {
        return *number;
    }
    let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
    names.insert(name.into(), next);
    next
}

/// Two sets of alleles as one name: in capitals, as bases may be in either, and several in one order.
fn pair(other: &str, counted: &str) -> String {
    let sorted = |alleles: &str| {
        if !alleles.contains(',') {
            return alleles.to_ascii_uppercase();
        }
        let mut alleles: Vec<_> = alleles.split(',').map(str::to_ascii_uppercase).collect();
        alleles.sort_unstable();
        alleles.join(",")
    };
    format!("{}\t{}", sorted(other), sorted(counted))
}

/// Variants of the loadings in the order of their keys, and what was found of them.
struct Matching {
    index: Index,
    order: Vec<u32>,
    /// How many of those with the same key are used, at the first of them.
    used: Vec<u32>,
    /// Whether the stores have variants of the same place, at the first of them.
    seen: Vec<bool>,
    counts: Counts,
    /// Contigs by their normalised names; none where the loadings have several of that name.
    alike: HashMap<String, Option<u32>>,
    /// Contigs of the stores, and their numbers in the loadings.
    contigs: HashMap<Arc<str>, Option<u32>>,
    /// The first of the stores.
    contig: Option<String>,
}

impl Matching {
    fn new(index: Index) -> Self {
        let len = index.keys.len();
        let mut order: Vec<u32> = (0..u32::try_from(len).unwrap_or(u32::MAX)).collect();
        order.sort_unstable_by_key(|&row| (index.keys[row as usize], row));
        let (used, seen) = (vec![0; len], vec![false; len]);
        let mut alike = HashMap::new();
        for (name, &number) in &index.contigs {
            alike
                .entry(contig::normalized(name).0)
                .and_modify(|number| *number = None)
                .or_insert(Some(number));
        }
        let counts = Counts::default();
        Self { index, order, used, seen, counts, alike, contigs: HashMap::new(), contig: None }
    }

    /// The loadings' contig of that name; if there is none, the one whose normalised name is the same, so that a genome
    /// with a contig 23 and a contig X has two.
    fn contig(&mut self, name: &Arc<str>) -> Option<u32> {
        if let Some(known) = self.contigs.get(name) {
            return *known;
        }
        let exact = self.index.contigs.get(&**name).copied();
        let found = exact.or_else(|| self.alike.get(&contig::normalized(name).0).copied().flatten());
        self.contigs.insert(Arc::clone(name), found);
        found
    }

    fn key(&self, at: usize) -> Key {
        self.index.keys[self.order[at] as usize]
    }

    /// Where the variants start of which `before` does not hold.
    fn first(&self, before: impl Fn(Key) -> bool) -> usize {
        self.order.partition_point(|&row| before(self.index.keys[row as usize]))
    }

    /// The first of the loadings' variants with that place and those alleles that no variant before was; one that
    /// counts the same alleles rather than one that counts the others. The alternate alleles of `variant` are counted.
    fn find(&mut self, variant: &Variant) -> Option<Match> {
        let Variant { contig, position, reference, alternate, .. } = variant;
        if self.contig.is_none() {
            self.contig = Some(contig.to_string());
        }
        let Some(contig) = self.contig(contig) else {
            self.counts.stores.not_in_loadings += 1;
            return None;
        };
        let place = (contig, *position);
        let first = self.first(|key| key.place() < place);
        if first == self.order.len() || self.key(first).place() != place {
            self.counts.stores.not_in_loadings += 1;
            return None;
        }
        self.seen[first] = true;
        let unknown = reference == "." || alternate == ".";
        let mut repeated = false;
        for (swapped, pair) in [(false, pair(reference, alternate)), (true, pair(alternate, reference))] {
            let Some(&alleles) = self.index.alleles.get(&*pair) else { continue };
            let key = Key { contig, position: *position, alleles };
            let first = self.first(|other| other < key);
            let end = self.first(|other| other <= key);
            if first == end {
                continue;
            }
            let next = first + self.used[first] as usize;
            if next == end {
                repeated = true;
                continue;
            }
            self.used[first] += 1;
            self.counts.loadings.swapped += u64::from(swapped);
            self.counts.loadings.alleles_unknown += u64::from(unknown);
            let row = self.order[next];
            return Some(if swapped { Match::Swapped(row) } else { Match::Same(row) });
        }
        self.counts.ambiguous += u64::from(repeated && unknown);
        let stores = &mut self.counts.stores;
        *if repeated { &mut stores.repeated } else { &mut stores.not_in_loadings } += 1;
        None
    }

    fn counts(mut self, variants: u64) -> Counts {
        let mut counts = std::mem::take(&mut self.counts);
        counts.stores.variants = variants;
        counts.loadings.variants = self.order.len() as u64;
        let (mut place, mut first) = (0, 0);
        while first < self.order.len() {
            let key = self.key(first);
            if self.key(place).place() != key.place() {
                place = first;
            }
            let end = first + (first..self.order.len()).take_while(|&at| self.key(at) == key).count();
            let used = u64::from(self.used[first]);
            let left = (end - first) as u64 - used;
            counts.loadings.used += used;
            // Of those that the stores do not have at all, the first is no repeat.
            let once = left.min(u64::from(used == 0));
            counts.loadings.repeated += left - once;
            let why = if self.seen[place] {
                &mut counts.loadings.other_alleles
            } else {
                &mut counts.loadings.absent
            };
            *why += once;
            first = end;
        }
        if counts.loadings.used == 0 {
            let ours = self.index.contigs.iter().min_by_key(|(_, number)| **number);
            let theirs = self.contig.filter(|name| self.contigs.get(&**name).is_some_and(Option::is_none));
            counts.contigs = ours.map(|(name, _)| name.to_string()).zip(theirs);
        }
        counts
    }
}

/// How many variants were matched, and why the others were not.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) loadings: LoadingsCounts,
    pub(crate) stores: StoresCounts,
    /// Variants of the stores whose alleles nobody knows, of the same place as one before: which of them the loadings mean
    /// cannot be told.
    #[serde(skip)]
    pub(crate) ambiguous: u64,
    /// Where nothing matched: the first contig of the loadings, and of the stores, if the loadings do not have it.
    #[serde(skip)]
    contigs: Option<(String, String)>,
}

/// Variants of the loadings.
#[derive(Debug, Default, Serialize)]
pub(crate) struct LoadingsCounts {
    pub(crate) variants: u64,
    pub(crate) used: u64,
    /// Of the used, those whose reference and alternate allele have changed places.
    pub(crate) swapped: u64,
    /// Of the used, those whose alleles nobody knows.
    pub(crate) alleles_unknown: u64,
    /// Not in the stores.
    pub(crate) absent: u64,
    /// In the stores with other alleles.
    pub(crate) other_alleles: u64,
    /// Of the same place and alleles as one before, and not as often in the stores.
    pub(crate) repeated: u64,
}

/// Variants of the stores.
#[derive(Debug, Default, Serialize)]
pub(crate) struct StoresCounts {
    pub(crate) variants: u64,
    pub(crate) not_in_loadings: u64,
    /// Of the same place and alleles as one before, and not as often in the loadings.
    pub(crate) repeated: u64,
}

impl Counts {
    /// The share of the loadings' variants that cannot be used.
    pub(crate) fn mismatch(&self) -> f64 {
        let LoadingsCounts { variants, used, .. } = self.loadings;
        (variants - used) as f64 / variants.max(1) as f64
    }

    /// Why variants of the loadings cannot be used.
    pub(crate) fn reasons(&self) -> String {
        let LoadingsCounts { absent, other_alleles, repeated, .. } = self.loadings;
        let reasons = [
            (absent, "not in the stores"),
            (other_alleles, "there with other alleles"),
            (repeated, "repeated in the loadings"),
        ];
        let some = reasons.iter().filter(|(n, _)| *n > 0);
        let mut reasons: Vec<_> = some.map(|(n, why)| format!("{} {why}", text::count(*n))).collect();
        if let Some((ours, theirs)) = &self.contigs {
            reasons.push(format!("the loadings are of contig `{ours}`, the stores of `{theirs}`"));
        }
        reasons.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(contig: &str, position: u64, reference: &str, alternate: &str) -> Variant {
        let [reference, alternate] = [reference, alternate].map(str::to_owned);
        Variant { contig: contig.into(), position, id: ".".into(), reference, alternate }
    }

    fn matching(rows: &[(&str, u64, &str, &str)]) -> Matching {
        let mut index = Index::default();
        for (contig, position, other, counted) in rows {
            index.push(contig, *position, other, counted);
        }
        Matching::new(index)
    }

    #[test]
    fn by_place_and_alleles() {
        let rows = [
            ("2", 10, "A", "C"),
            ("1", 10, "A", "C"),
            ("1", 5, "G", "T"),
            ("1", 5, "G", "A"),
            ("1", 7, "A", "T,C"),
            ("1", 9, "AT", "A"),
            ("1", 99, "A", "C"),
        ];
        let mut matching = matching(&rows);
        for (contig, position, reference, alternate, expected) in [
            ("1", 5, "G", "A", Some(Match::Same(3))),
            ("1", 5, "T", "G", Some(Match::Swapped(2))),
            ("1", 7, "a", "c,t", Some(Match::Same(4))),
            ("1", 9, "A", "AT", Some(Match::Swapped(5))),
            ("1", 10, "T", "G", None),
            ("1", 10, "A", ".", None),
            ("2", 10, "A", "C", Some(Match::Same(0))),
            ("2", 10, "C", "A", None),
            ("3", 10, "A", "C", None),
            ("1", 11, "A", "C", None),
        ] {
            let found = matching.find(&variant(contig, position, reference, alternate));
            assert_eq!(found, expected, "{contig}:{position} {reference} {alternate}");
        }
        let counts = matching.counts(10);
        let LoadingsCounts { variants, used, swapped, absent, other_alleles, repeated, .. } = counts.loadings;
        assert_eq!((variants, used, swapped, absent, other_alleles, repeated), (7, 5, 2, 1, 1, 0));
        let StoresCounts { variants, not_in_loadings, repeated } = counts.stores;
        assert_eq!((variants, not_in_loadings, repeated), (10, 4, 1));
        assert!((counts.mismatch() - 2.0 / 7.0).abs() < 1e-15);
        assert_eq!(counts.reasons(), "1 not in the stores, 1 there with other alleles");
    }

    #[test]
    fn repeats_pair_up_in_order() {
        let mut pairs =
            matching(&[("1", 5, "A", "C"), ("1", 5, "C", "A"), ("1", 5, "A", "C"), ("1", 6, "A", "C")]);
        let found = [("A", "C"), ("C", "A"), ("A", "C"), ("A", "C")]
            .map(|(reference, alternate)| pairs.find(&variant("1", 5, reference, alternate)));
        assert_eq!(found, [Some(Match::Same(0)), Some(Match::Same(1)), Some(Match::Same(2)), None]);
        let counts = pairs.counts(4);
        assert_eq!((counts.loadings.used, counts.loadings.absent, counts.stores.repeated), (3, 1, 1));

        let mut pairs = matching(&[("1", 5, "A", "C"), ("1", 5, "A", "C")]);
        assert_eq!(pairs.find(&variant("1", 5, "C", "A")), Some(Match::Swapped(0)));
        let counts = pairs.counts(1);
        assert_eq!((counts.loadings.used, counts.loadings.repeated), (1, 1));
    }

    #[test]
    fn places_without_alleles_are_ambiguous_if_repeated() {
        let mut pairs = matching(&[(".", 0, ".", "."), (".", 1, ".", ".")]);
        for (position, expected) in [(0, Some(Match::Same(0))), (1, Some(Match::Same(1))), (0, None)] {
            assert_eq!(pairs.find(&variant(".", position, ".", ".")), expected);
        }
        let counts = pairs.counts(3);
        assert_eq!((counts.loadings.alleles_unknown, counts.ambiguous), (2, 1));
    }

    #[test]
    fn names_of_a_contig() {
        let rows = [("1", 5, "A", "C"), ("chrX", 5, "A", "C"), ("23", 5, "A", "C"), ("M", 5, "A", "C")];
        for (name, expected) in [
            ("chr1", Some(0)),
            ("01", Some(0)),
            ("X", None),
            ("chrX", Some(1)),
            ("23", Some(2)),
            ("26", Some(3)),
        ] {
            let found = matching(&rows).find(&variant(name, 5, "A", "C"));
            assert_eq!(found, expected.map(Match::Same), "{name}");
        }
        let mut pairs = matching(&rows[..1]);
        assert_eq!(pairs.find(&variant("2", 5, "A", "C")), None);
        let reasons = pairs.counts(1).reasons();
        assert_eq!(reasons, "1 not in the stores, the loadings are of contig `1`, the stores of `2`");
    }
}
