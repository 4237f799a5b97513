//! The matching of variants, one after another, with those of an index.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use super::{
    Key, Match, MatchBy, MatchCounts, NOWHERE, ReferenceCounts, VariantIndex, VariantMatches,
    alleles::{Fit, are_same, fit, has, is_unknown, pair},
};
use crate::{contig::Karyotype, names::Names, variant::Variant};

/// A reference's variants in the order of their keys, and the matches so far.
pub(super) struct Matching<'a> {
    index: &'a VariantIndex,
    karyotype: Karyotype,
    order: Vec<u32>,
    /// The number of used variants with the same key, at the index of the first of them.
    used: Vec<u32>,
    /// True if a variant of the genotypes could be these or other variants, at the index of the first variant with the key.
    ambiguous: Vec<bool>,
    /// The number of the genotypes' variants at a position, at the index of the reference's first variant there.
    seen: Vec<u32>,
    matches: Vec<Option<Match>>,
    claims: Vec<Claim>,
    /// The pairs of alleles that claims refer to.
    claimed: Names,
    counts: MatchCounts,
    /// Contigs by their normalised names; `None` if the reference has several with that name.
    alike: HashMap<String, Option<u32>>,
    /// Contigs of the genotypes, and their indices in the reference.
    contigs: HashMap<Arc<str>, Option<u32>>,
    /// The first contig of the genotypes.
    contig: Option<Arc<str>>,
    pub(super) several: Vec<Several>,
}

/// A variant of the genotypes with several counted alleles, which together match no variant of the reference.
#[derive(Debug)]
pub(super) struct Several {
    /// The variant's row, for reading its calls.
    pub(super) row: u64,
    /// The variant's index in `matches`.
    variant: usize,
    /// The reference's variants at the same position.
    place: Range<usize>,
    /// The allele that is not counted, and the counted alleles, separated by commas.
    other: String,
    counted: String,
}

/// A variant of the genotypes that could be one of the reference's, or one of several with the same key. It is decided after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// The index of the first variant with that key.
    first: usize,
    variant: usize,
    alleles: u32,
    fit: Fit,
}

impl<'a> Matching<'a> {
    pub(super) fn new(index: &'a VariantIndex, karyotype: Karyotype) -> Self {
        let len = index.keys.len();
        let mut order: Vec<u32> = (0..u32::try_from(len).unwrap_or(u32::MAX)).collect();
        order.sort_unstable_by_key(|&row| (index.keys[row as usize], row));
        let mut alike = HashMap::new();
        for (name, number) in index.names.names.iter().zip(0..).filter(|_| index.by == MatchBy::Position) {
            let name = karyotype.normalized(name).0;
            alike.entry(name).and_modify(|number| *number = None).or_insert(Some(number));
        }
        Self {
            index,
            karyotype,
            order,
            used: vec![0; len],
            ambiguous: vec![false; len],
            seen: vec![0; len],
            matches: Vec::new(),
            claims: Vec::new(),
            claimed: Names::default(),
            counts: MatchCounts::default(),
            alike,
            contigs: HashMap::new(),
            contig: None,
            several: Vec::new(),
        }
    }

    fn key(&self, at: usize) -> Key {
        self.index.keys[self.order[at] as usize]
    }

    fn alleles(&self, at: usize) -> &'a str {
        &self.index.alleles.names[self.key(at).alleles as usize]
    }

    /// Returns the range of the variants whose position or key is `value`; `value_of` extracts it from a key.
    fn range<T: PartialOrd>(&self, value_of: impl Fn(Key) -> T, value: T) -> Range<usize> {
        let key = |row: &u32| value_of(self.index.keys[*row as usize]);
        let first = self.order.partition_point(|row| key(row) < value);
        // A binary search, not a scan: all variants may have one position.
        first..first + self.order[first..].partition_point(|row| key(row) == value)
    }

    /// Adds the next variant of the genotypes, which is in row `row`, with the alleles that are not counted and the counted ones.
    pub(super) fn add(&mut self, row: u64, variant: &Variant, alleles: [&str; 2]) {
        let matched = self.place(variant).and_then(|place| self.find(place, row, alleles));
        self.matches.push(matched);
    }

    /// Returns the range of the reference's variants at the same position.
    fn place(&mut self, variant: &Variant) -> Option<Range<usize>> {
        let Variant { contig, position, id, .. } = variant;
        let by = self.index.by;
        if !by.knows(contig, *position, id) {
            self.counts.genotypes.nowhere += 1;
            return None;
        }
        let place = match by {
            MatchBy::Position => (self.contig(contig)?, *position),
            MatchBy::Id => (self.index.names.get(id)?, 0),
        };
        let place = self.range(Key::place, place);
        let seen = self.seen.get_mut(place.start).filter(|_| !place.is_empty())?;
        *seen = seen.saturating_add(1);
        Some(place)
    }

    /// Returns the index of the reference's contig of that name, or else of that normalised name: contigs 23 and X of a genome stay apart.
    fn contig(&mut self, name: &Arc<str>) -> Option<u32> {
        if let Some(known) = self.contigs.get(name) {
            return *known;
        }
        let exact = self.index.names.get(name);
        let number = exact.or_else(|| self.alike.get(&self.karyotype.normalized(name).0).copied().flatten());
        self.contig.get_or_insert_with(|| Arc::clone(name));
        self.contigs.insert(Arc::clone(name), number);
        number
    }

    /// Finds a variant among the reference's at its position. If none has the same alleles, and always with ids, this is decided later.
    fn find(&mut self, place: Range<usize>, row: u64, [other, counted]: [&str; 2]) -> Option<Match> {
        if self.index.by == MatchBy::Id && place.len() > 1 {
            return None;
        }
        let variant = self.matches.len();
        if let Some(matched) = self.same(&place, other, counted) {
            return matched;
        }
        if counted.contains(',') {
            let [other, counted] = [other, counted].map(str::to_owned);
            self.several.push(Several { row, variant, place, other, counted });
        } else {
            self.claim(variant, place, &pair(other, counted));
        }
        None
    }

    /// Returns the first unused variant of the reference at the position with the same alleles, preferably with the same counted alleles. Returns
    /// `Some(None)` if all such variants are used, and `None` if there are none.
    fn same(&mut self, place: &Range<usize>, other: &str, counted: &str) -> Option<Option<Match>> {
        if self.index.by == MatchBy::Id {
            return None;
        }
        let [same, swapped] = [pair(other, counted), pair(counted, other)];
        let mut repeated = false;
        for (swapped, pair) in [(false, &same), (true, &swapped)] {
            let Some(alleles) = self.index.alleles.get(pair) else { continue };
            let keys = self.range(|key| key, Key { alleles, ..self.key(place.start) });
            let matched = self.take(keys.clone(), &same, swapped);
            if matched.is_some() {
                return Some(matched);
            }
            repeated |= !keys.is_empty();
        }
        if repeated {
            self.repeated(&same);
        }
        repeated.then_some(None)
    }

    /// Matches the variants with several counted alleles by the alleles that samples carry. An allele that nobody carries changes no dosage,
    /// but the reference may know the variant by it. `carried` has a bit mask of alleles for each variant.
    pub(super) fn find_carried(&mut self, carried: &[u128]) {
        let several = std::mem::take(&mut self.several);
        for (Several { variant, place, other, counted, .. }, carried) in several.into_iter().zip(carried) {
            let pairs: Vec<_> = place.clone().map(|at| self.alleles(at)).collect();
            let is_known = |allele: &str| pairs.iter().any(|pair| has(pair, &allele.to_ascii_uppercase()));
            // No call has an allele above 127.
            let is_carried = |number: u32| carried.checked_shr(number).is_some_and(|bits| bits & 1 == 1);
            let named = |known: bool| {
                let alleles = counted.split(',').zip(1_u32..);
                let alleles =
                    alleles.filter(|(allele, number)| is_carried(*number) || known && is_known(allele));
                alleles.map(|(allele, _)| allele).collect::<Vec<_>>().join(",")
            };
            let [carried, known] = [named(false), named(true)];
            let matched =
                [&carried, &known].into_iter().find_map(|alleles| self.same(&place, &other, alleles));
            match matched {
                Some(matched) => self.matches[variant] = matched,
                None => self.claim(variant, place, &pair(&other, &known)),
            }
        }
    }

    /// Uses the first unused variant of the reference among `keys`, for a variant with these alleles.
    fn take(&mut self, keys: Range<usize>, alleles: &str, swapped: bool) -> Option<Match> {
        let next = keys.start + *self.used.get(keys.start)? as usize;
        if next >= keys.end {
            return None;
        }
        self.used[keys.start] += 1;
        let known = self.alleles(next);
        let counts = &mut self.counts.reference;
        counts.swapped += u64::from(swapped);
        counts.alleles_unknown += u64::from(is_unknown(alleles));
        counts.fewer_alleles += u64::from(!are_same(alleles, known));
        let row = self.order[next];
        Some(if swapped { Match::Swapped(row) } else { Match::Same(row) })
    }

    /// Counts a variant whose matches in the reference are all used.
    fn repeated(&mut self, alleles: &str) {
        self.counts.genotypes.repeated += 1;
        self.counts.unknown_repeated += u64::from(is_unknown(alleles));
    }

    /// Records which of the reference's variants at a position a variant could be.
    fn claim(&mut self, variant: usize, place: Range<usize>, alleles: &str) {
        let mut could = Vec::new();
        let mut first = place.start;
        while first < place.end {
            could.extend(fit(alleles, self.alleles(first)).map(|fit| (first, fit)));
            first = self.range(|key| key, self.key(first)).end;
        }
        match could[..] {
            [] => {}
            [(first, fit)] => {
                let alleles = self.claimed.number(alleles);
                self.claims.push(Claim { first, variant, alleles, fit });
            }
            _ => {
                could.iter().for_each(|(first, _)| self.ambiguous[*first] = true);
                self.counts.genotypes.ambiguous += 1;
            }
        }
    }

    /// Decides the claims on unused variants. Variants that claim the same variant are matched in order if they have the same alleles.
    /// Otherwise, or if an allele may be the base of another site, none of them is matched, and they are counted as ambiguous.
    fn settle(&mut self) {
        let mut claims = std::mem::take(&mut self.claims);
        let claimed = std::mem::take(&mut self.claimed).names;
        claims.sort_unstable();
        for group in claims.chunk_by(|a, b| a.first == b.first) {
            let first = group[0].first;
            if self.index.by == MatchBy::Id && self.seen[first] > 1 {
                continue;
            }
            let unclear = |claim: &Claim| claim.alleles != group[0].alleles || claim.fit == Fit::Anchor;
            if group.iter().any(unclear) {
                self.ambiguous[first] = true;
                self.counts.genotypes.ambiguous += group.len() as u64;
                continue;
            }
            let keys = self.range(|key| key, self.key(first));
            for claim in group {
                let alleles = &claimed[claim.alleles as usize];
                let matched = self.take(keys.clone(), alleles, claim.fit == Fit::Swapped);
                if matched.is_none() {
                    self.repeated(alleles);
                }
                self.matches[claim.variant] = matched;
            }
        }
    }

    pub(super) fn finish(mut self) -> VariantMatches {
        self.settle();
        let absent = self.count();
        let Self { index, mut counts, matches, .. } = self;
        let (own, used) = (&mut counts.genotypes, counts.reference.used);
        own.variants = matches.len() as u64;
        own.not_in_reference =
            own.variants - (used + own.repeated + own.ambiguous + own.nowhere + own.doubled_id);
        if used == 0 && index.by == MatchBy::Position {
            let theirs = self.contig.filter(|name| self.contigs.get(name).is_some_and(Option::is_none));
            let ours = index.names.names.iter().find(|name| ***name != *NOWHERE);
            counts.contigs = ours.map(ToString::to_string).zip(theirs.as_deref().map(str::to_owned));
        }
        VariantMatches { matches, absent, counts }
    }

    /// Counts the reference's variants, and the genotypes' variants whose id occurs more than once. Returns the reference's variants that
    /// are absent on contigs that the genotypes have.
    fn count(&mut self) -> Vec<u32> {
        let contigs: HashSet<u32> = self.contigs.values().flatten().copied().collect();
        let mut absent = Vec::new();
        let mut counts = std::mem::take(&mut self.counts);
        counts.by = self.index.by;
        counts.reference.variants = self.order.len() as u64;
        let mut first = 0;
        while first < self.order.len() {
            let place = self.range(Key::place, self.key(first).place());
            first = place.end;
            let (seen, variants) = (self.seen[place.start], place.len() as u64);
            let reference = &mut counts.reference;
            if self.index.names.get(NOWHERE) == Some(self.key(place.start).name) {
                reference.nowhere += variants;
            } else if self.index.by == MatchBy::Id && (seen > 1 || variants > 1) {
                reference.doubled_id += variants;
                counts.genotypes.doubled_id += u64::from(seen);
            } else {
                let is_here = contigs.contains(&self.key(place.start).name);
                self.count_place(place, reference, &mut |row| absent.extend(is_here.then_some(row)));
            }
        }
        self.counts = counts;
        absent.sort_unstable();
        absent
    }

    /// Counts the reference's variants at a place, and hands each absent one to `lacks`.
    fn count_place(&self, place: Range<usize>, counts: &mut ReferenceCounts, lacks: &mut dyn FnMut(u32)) {
        let mut first = place.start;
        while first < place.end {
            let variants = self.range(|key| key, self.key(first)).len();
            let used = u64::from(self.used[first]);
            let left = variants as u64 - used;
            counts.used += used;
            // If none of them is used, the first is not counted as repeated.
            let once = left.min(u64::from(used == 0));
            counts.repeated += left - once;
            let why = match (self.seen[place.start], self.ambiguous[first]) {
                (0, _) => {
                    lacks(self.order[first]);
                    &mut counts.absent
                }
                (_, true) => &mut counts.ambiguous,
                (_, false) => &mut counts.other_alleles,
            };
            *why += once;
            first += variants;
        }
    }
}
