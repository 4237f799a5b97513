//! Finds the variants of stores in a reference: in loadings, or in another store, which is treated as loadings are.

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

/// The name of all places, or ids, that nobody knows.
const NOWHERE: &str = "";

/// The property that a variant is known by, besides its alleles.
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
    /// True where a variant has a place, or an id. PLINK has contig 0 or position 0 where it knows none; rows of plain arrays
    /// have numbers on no contig.
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

    /// Words for a variant that has no place, or no id.
    pub(crate) fn without(self) -> &'static str {
        match self {
            Self::Position => "without a place",
            Self::Id => "without an id",
        }
    }
}

/// The places and the alleles of the variants of the loadings, in 16 bytes each.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by: MatchBy,
    /// The name of the loadings in messages.
    reference: &'static str,
    /// Contigs, or ids.
    names: Names,
    /// Pairs of alleles.
    alleles: Names,
    keys: Vec<Key>,
}

/// Place and alleles by their numbers. All ids are at position 0.
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

    /// The next variant of the loadings: its contig, position and id, and the alleles that are not counted and those that are.
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

    /// Names of contigs; none where variants are matched by ids.
    fn contigs(&self) -> impl Iterator<Item = &str> {
        self.names.names.iter().map(|name| &**name).filter(|_| self.by == MatchBy::Position)
    }

    /// Matches the variants of the stores, in their order. Of those with several alternate alleles that the loadings do not have, the calls
    /// are read on `device`, for which alleles are carried.
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
            // Nobody knows that of dosages.
            _ => vec![u128::MAX; several.len()],
        };
        matching.find_carried(&carried);
        Ok(matching.finish())
    }
}

/// Variants of the loadings in the order of their keys, and what was found of them.
struct Matching {
    index: Index,
    karyotype: Karyotype,
    order: Vec<u32>,
    /// The number of variants with the same key that are used, at the first of them.
    used: Vec<u32>,
    /// True where variants of the stores could be these or others, at the first of those with the same key.
    ambiguous: Vec<bool>,
    /// The number of variants of the stores at a place, at the first variant of the loadings there.
    seen: Vec<u32>,
    matches: Vec<Option<Match>>,
    claims: Vec<Claim>,
    /// Alleles of the claims.
    claimed: Names,
    counts: Counts,
    /// Contigs by their normalised names; none where the loadings have several of that name.
    alike: HashMap<String, Option<u32>>,
    /// Contigs of the stores, and their numbers in the loadings.
    contigs: HashMap<Arc<str>, Option<u32>>,
    /// The first of the stores.
    contig: Option<Arc<str>>,
    several: Vec<Several>,
}

/// A variant of the stores with several alternate alleles that is none of the loadings' with all of them.
#[derive(Debug)]
struct Several {
    /// Reads them of the stores.
    row: u64,
    /// Its number.
    variant: usize,
    /// The loadings' variants of its place.
    place: Range<usize>,
    /// Alternate alleles, in order.
    reference: String,
    alternate: String,
}

/// A variant of the stores that could be one of the loadings', or one of several with the same key, which is decided once all
/// variants are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// The first of that key.
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

    /// The range of the variants with the place or the key `value`, which `value_of` makes of a key.
    fn range<T: PartialOrd>(&self, value_of: impl Fn(Key) -> T, value: T) -> Range<usize> {
        let key = |row: &u32| value_of(self.index.keys[*row as usize]);
        let first = self.order.partition_point(|row| key(row) < value);
        // Not counted one by one: all may have one place.
        first..first + self.order[first..].partition_point(|row| key(row) == value)
    }

    /// The next variant of the stores, which is in that row.
    fn add(&mut self, row: u64, variant: &Variant) {
        let matched = self.place(variant).and_then(|place| self.find(place, row, variant));
        self.matches.push(matched);
    }

    /// The loadings' variants of the same place.
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

    /// The loadings' contig of that name; if there is none, the one whose normalised name is the same, so that a genome
    /// with a contig 23 and a contig X has two.
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

    /// Finds a variant among the loadings' variants of its place. The alternate alleles of `variant` are counted. Where none has the same
    /// alleles, and of ids always, what it may be is decided later.
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

    /// The first of the loadings' variants of that place with the same alleles that no variant before was; one that
    /// counts the same alleles rather than one that counts the others. None within where all are used, and where none has these.
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

    /// Finds the variants with several alternate alleles by those of them that samples carry: one that nobody carries makes no dosage
    /// another, but it may be the name by which the loadings know the variant. `carried` has a number for each, with a bit for each allele.
    fn find_carried(&mut self, carried: &[u128]) {
        let several = std::mem::take(&mut self.several);
        for (Several { variant, place, reference, alternate, .. }, carried) in
            several.into_iter().zip(carried)
        {
            let names =
                place.clone().map(|at| Arc::clone(&self.index.alleles.names[self.key(at).alleles as usize]));
            let names: Vec<_> = names.collect();
            let is_known = |allele: &str| names.iter().any(|names| has(names, &allele.to_ascii_uppercase()));
            // Alleles beyond 127 have no calls.
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

    /// The first of the loadings' variants with the same key that is not used yet, for a variant of these alleles.
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

    /// A variant for which nothing is left of what it is.
    fn repeated(&mut self, alleles: &str) {
        self.counts.stores.repeated += 1;
        self.counts.unknown_repeated += u64::from(is_unknown(alleles));
    }

    /// Notes which of the loadings' variants of a place a variant could be.
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

    /// Decides the claims on what was left: in order, where all that claim the same have the same alleles, else not at
    /// all, since their copies may be those of different alleles; nor where these may be a base of something else.
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

    /// Counts the loadings' variants, and the stores' that are of ids which occur twice.
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
            // The first of those that the stores do not have at all is no repeat.
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
