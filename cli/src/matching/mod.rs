//! Matches the variants of stores with those of a reference: loadings, or another store, which is treated like loadings.

mod alleles;
pub(crate) mod counts;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, ops::Range, sync::Arc};

use clap::ValueEnum;
use serde::Serialize;
use teatime::{Device, Result, Run};
use teatime_genotype::{GenotypeKind, Match, Variant, carried_alleles};

use self::{
    alleles::{Fit, Names, UNKNOWN, are_same, fit, has, is_unknown, pair},
    counts::{Counts, LoadingsCounts},
};
use crate::{
    contig::{Class, Karyotype},
    progress::Bar,
    store::Variants,
    stores::Stores,
};

/// The name that stands for an unknown position or id.
const NOWHERE: &str = "";

/// The property that variants are matched by, in addition to their alleles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MatchBy {
    /// Contig and position, both in the same genome build
    #[default]
    Position,
    /// Names of variants, such as rs numbers, wherever they are
    Id,
}

impl MatchBy {
    /// Returns true if a variant has a position, or an id. PLINK writes contig 0 or position 0 for an unknown position; rows of plain arrays
    /// have positions but no contig.
    fn knows(self, contig: &str, position: u64, id: &str) -> bool {
        match self {
            Self::Position if contig == UNKNOWN => true,
            Self::Position => {
                position > 0
                    && !(contig.ends_with('0') && Karyotype::HUMAN.normalized(contig).1 == Class::Unplaced)
            }
            Self::Id => ![UNKNOWN, NOWHERE].contains(&id),
        }
    }

    /// Describes a variant without a position, or without an id.
    pub(crate) fn without(self) -> &'static str {
        match self {
            Self::Position => "without a place",
            Self::Id => "without an id",
        }
    }
}

/// The positions and alleles of the loadings' variants, in 16 bytes for each variant.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by: MatchBy,
    /// The name of the loadings in messages.
    reference: &'static str,
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

impl Index {
    pub(crate) fn new(by: MatchBy, reference: &'static str) -> Self {
        Self { by, reference, ..Self::default() }
    }

    /// Adds the next variant of the loadings: its contig, position and id, the alleles that are not counted, and the counted alleles.
    pub(crate) fn push(&mut self, (contig, position, id): (&str, u64, &str), other: &str, counted: &str) {
        let (name, position) = match self.by {
            _ if !self.by.knows(contig, position, id) => (NOWHERE, 0),
            MatchBy::Position => (contig, position),
            MatchBy::Id => (id, 0),
        };
        let name = self.names.number(name);
        let alleles = self.alleles.number(&pair(other, counted));
        self.keys.push(Key { name, position, alleles });
    }

    /// Returns the names of contigs; none if variants are matched by ids.
    fn contigs(&self) -> impl Iterator<Item = &str> {
        self.names.names.iter().map(|name| &**name).filter(|_| self.by == MatchBy::Position)
    }

    /// Matches the variants of the stores, in order. If a variant has several alternate alleles that do not match the loadings, its calls are
    /// read on `device` to find the alleles that samples carry.
    pub(crate) fn matches(
        self,
        stores: &Stores,
        device: &Device,
        bar: &Bar,
        run: &Run,
    ) -> Result<(Vec<Option<Match>>, Counts)> {
        let cancel = &run.cancel;
        let mut variants = Variants::new(&stores.stores, self.by == MatchBy::Position);
        let contigs = stores.contigs.as_ref();
        let karyotype = contigs.map_or(Karyotype::HUMAN, |contigs| contigs.karyotype_with(self.contigs()));
        let mut matching = Matching::new(self, karyotype);
        for row in stores.genotypes.selected().flatten() {
            cancel.check()?;
            let variant = variants.get(row)?;
            if stores.genotypes.counted_allele() == Some(0) {
                std::mem::swap(&mut variant.reference, &mut variant.alternate);
            }
            matching.add(row, variant);
            bar.advance(1);
        }
        let several = matching.several.iter().map(|several| several.row..several.row + 1).collect::<Vec<_>>();
        let carried = match stores.genotypes.kind() {
            GenotypeKind::Calls { .. } if !several.is_empty() => {
                carried_alleles(&stores.genotypes.clone().select(several)?, device, run)?
            }
            // Dosages do not show which alleles are carried.
            _ => vec![u128::MAX; several.len()],
        };
        matching.find_carried(&carried);
        Ok(matching.finish())
    }
}

/// The loadings' variants in the order of their keys, and the matches so far.
struct Matching {
    index: Index,
    karyotype: Karyotype,
    order: Vec<u32>,
    /// The number of used variants with the same key, at the index of the first of them.
    used: Vec<u32>,
    /// True if a variant of the stores could be these or other variants, at the index of the first variant with the key.
    ambiguous: Vec<bool>,
    /// The number of the stores' variants at a position, at the index of the loadings' first variant there.
    seen: Vec<u32>,
    matches: Vec<Option<Match>>,
    claims: Vec<Claim>,
    /// The pairs of alleles that claims refer to.
    claimed: Names,
    counts: Counts,
    /// Contigs by their normalised names; `None` if the loadings have several with that name.
    alike: HashMap<String, Option<u32>>,
    /// Contigs of the stores, and their indices in the loadings.
    contigs: HashMap<Arc<str>, Option<u32>>,
    /// The first contig of the stores.
    contig: Option<Arc<str>>,
    several: Vec<Several>,
}

/// A variant of the stores with several alternate alleles, which together match no variant of the loadings.
#[derive(Debug)]
struct Several {
    /// The variant's row, for reading its calls.
    row: u64,
    /// The variant's index in `matches`.
    variant: usize,
    /// The loadings' variants at the same position.
    place: Range<usize>,
    /// The reference allele, and the alternate alleles, separated by commas.
    reference: String,
    alternate: String,
}

/// A variant of the stores that could be one of the loadings' variants, or one of several with the same key. It is decided once all variants
/// have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// The index of the first variant with that key.
    first: usize,
    variant: usize,
    alleles: u32,
    fit: Fit,
}

impl Matching {
    fn new(index: Index, karyotype: Karyotype) -> Self {
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
            counts: Counts::default(),
            alike,
            contigs: HashMap::new(),
            contig: None,
            several: Vec::new(),
        }
    }

    fn key(&self, at: usize) -> Key {
        self.index.keys[self.order[at] as usize]
    }

    /// Returns the range of the variants whose position or key is `value`; `value_of` extracts it from a key.
    fn range<T: PartialOrd>(&self, value_of: impl Fn(Key) -> T, value: T) -> Range<usize> {
        let key = |row: &u32| value_of(self.index.keys[*row as usize]);
        let first = self.order.partition_point(|row| key(row) < value);
        // A binary search, not a scan: all variants may have one position.
        first..first + self.order[first..].partition_point(|row| key(row) == value)
    }

    /// Adds the next variant of the stores, which is in row `row`.
    fn add(&mut self, row: u64, variant: &Variant) {
        let matched = self.place(variant).and_then(|place| self.find(place, row, variant));
        self.matches.push(matched);
    }

    /// Returns the range of the loadings' variants at the same position.
    fn place(&mut self, variant: &Variant) -> Option<Range<usize>> {
        let Variant { contig, position, id, .. } = variant;
        let by = self.index.by;
        if !by.knows(contig, *position, id) {
            self.counts.stores.nowhere += 1;
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

    /// Returns the index of the loadings' contig with that name, or if there is none, with the same normalised name. So contigs 23 and X of one
    /// genome stay different.
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

    /// Finds a variant among the loadings' variants at its position. Its alternate alleles are the counted ones. If no variant has the same
    /// alleles, and always with ids, the match is decided later.
    fn find(&mut self, place: Range<usize>, row: u64, variant: &Variant) -> Option<Match> {
        if self.index.by == MatchBy::Id && place.len() > 1 {
            return None;
        }
        let (number, Variant { reference, alternate, .. }) = (self.matches.len(), variant);
        if let Some(matched) = self.same(&place, reference, alternate) {
            return matched;
        }
        if alternate.contains(',') {
            let (reference, alternate) = (reference.clone(), alternate.clone());
            self.several.push(Several { row, variant: number, place, reference, alternate });
        } else {
            self.claim(number, place, &pair(reference, alternate));
        }
        None
    }

    /// Returns the first unused variant of the loadings at the position with the same alleles, preferably with the same counted alleles. Returns
    /// `Some(None)` if all such variants are used, and `None` if there are none.
    fn same(&mut self, place: &Range<usize>, reference: &str, alternate: &str) -> Option<Option<Match>> {
        if self.index.by == MatchBy::Id {
            return None;
        }
        let [same, swapped] = [pair(reference, alternate), pair(alternate, reference)];
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

    /// Matches the variants with several alternate alleles by the alleles that samples carry. An allele that nobody carries changes no dosage,
    /// but the loadings may know the variant by it. `carried` has a bit mask of alleles for each variant.
    fn find_carried(&mut self, carried: &[u128]) {
        let several = std::mem::take(&mut self.several);
        for (Several { variant, place, reference, alternate, .. }, carried) in
            several.into_iter().zip(carried)
        {
            let names =
                place.clone().map(|at| Arc::clone(&self.index.alleles.names[self.key(at).alleles as usize]));
            let names: Vec<_> = names.collect();
            let is_known = |allele: &str| names.iter().any(|names| has(names, &allele.to_ascii_uppercase()));
            // No call has an allele above 127.
            let is_carried = |number: u32| carried.checked_shr(number).is_some_and(|bits| bits & 1 == 1);
            let named = |known: bool| {
                let alleles = alternate.split(',').zip(1_u32..);
                let alleles =
                    alleles.filter(|(allele, number)| is_carried(*number) || known && is_known(allele));
                alleles.map(|(allele, _)| allele).collect::<Vec<_>>().join(",")
            };
            let [carried, known] = [named(false), named(true)];
            let matched =
                [&carried, &known].into_iter().find_map(|alleles| self.same(&place, &reference, alleles));
            match matched {
                Some(matched) => self.matches[variant] = matched,
                None => self.claim(variant, place, &pair(&reference, &known)),
            }
        }
    }

    /// Uses the first unused variant of the loadings among `keys`, for a variant with these alleles.
    fn take(&mut self, keys: Range<usize>, alleles: &str, swapped: bool) -> Option<Match> {
        let next = keys.start + *self.used.get(keys.start)? as usize;
        if next >= keys.end {
            return None;
        }
        self.used[keys.start] += 1;
        let known = &self.index.alleles.names[self.key(next).alleles as usize];
        let counts = &mut self.counts.loadings;
        counts.swapped += u64::from(swapped);
        counts.alleles_unknown += u64::from(is_unknown(alleles));
        counts.fewer_alleles += u64::from(!are_same(alleles, known));
        let row = self.order[next];
        Some(if swapped { Match::Swapped(row) } else { Match::Same(row) })
    }

    /// Counts a variant whose matches in the loadings are all used.
    fn repeated(&mut self, alleles: &str) {
        self.counts.stores.repeated += 1;
        self.counts.unknown_repeated += u64::from(is_unknown(alleles));
    }

    /// Records which of the loadings' variants at a position a variant could be.
    fn claim(&mut self, variant: usize, place: Range<usize>, alleles: &str) {
        let mut could = Vec::new();
        let mut first = place.start;
        while first < place.end {
            let key = self.key(first);
            let known = &self.index.alleles.names[key.alleles as usize];
            could.extend(fit(alleles, known).map(|fit| (first, fit)));
            first = self.range(|key| key, key).end;
        }
        match could[..] {
            [] => {}
            [(first, fit)] => {
                let alleles = self.claimed.number(alleles);
                self.claims.push(Claim { first, variant, alleles, fit });
            }
            _ => {
                could.iter().for_each(|(first, _)| self.ambiguous[*first] = true);
                self.counts.stores.ambiguous += 1;
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
                self.counts.stores.ambiguous += group.len() as u64;
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

    fn finish(mut self) -> (Vec<Option<Match>>, Counts) {
        self.settle();
        self.count();
        let Self { index, mut counts, matches, .. } = self;
        let (stores, used) = (&mut counts.stores, counts.loadings.used);
        stores.variants = matches.len() as u64;
        let others = used + stores.repeated + stores.ambiguous + stores.nowhere + stores.doubled_id;
        stores.not_in_loadings = stores.variants - others;
        if used == 0 && index.by == MatchBy::Position {
            let theirs = self.contig.filter(|name| self.contigs.get(name).is_some_and(Option::is_none));
            let ours = index.names.names.iter().find(|name| ***name != *NOWHERE);
            counts.contigs = ours.map(ToString::to_string).zip(theirs.as_deref().map(str::to_owned));
        }
        (matches, counts)
    }

    /// Counts the loadings' variants, and the stores' variants whose id occurs more than once.
    fn count(&mut self) {
        let mut counts = std::mem::take(&mut self.counts);
        (counts.by, counts.reference) = (self.index.by, self.index.reference);
        counts.loadings.variants = self.order.len() as u64;
        let mut first = 0;
        while first < self.order.len() {
            let place = self.range(Key::place, self.key(first).place());
            first = place.end;
            let (seen, variants) = (self.seen[place.start], place.len() as u64);
            let loadings = &mut counts.loadings;
            if self.index.names.get(NOWHERE) == Some(self.key(place.start).name) {
                loadings.nowhere += variants;
            } else if self.index.by == MatchBy::Id && (seen > 1 || variants > 1) {
                loadings.doubled_id += variants;
                counts.stores.doubled_id += u64::from(seen);
            } else {
                self.count_place(place, loadings);
            }
        }
        self.counts = counts;
    }

    fn count_place(&self, place: Range<usize>, counts: &mut LoadingsCounts) {
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
                (0, _) => &mut counts.absent,
                (_, true) => &mut counts.ambiguous,
                (_, false) => &mut counts.other_alleles,
            };
            *why += once;
            first += variants;
        }
    }
}
