//! Lists of the nearest items of each line, updated with one block of sums of pairs after the other.

use std::{cmp::Ordering, ops::Range};

use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::cpu::simd::wide;
use crate::{
    Cancel,
    dtype::{halves, joined},
    kernel::{CpuLaunch, Kernel, codes, kernel, params, small},
};

params! {
    /// Parameters of the kernel: extents, steps and offsets, in sums, flags and indices.
    pub(crate) struct Params {
        pub(crate) lines: u32,
        pub(crate) items: u32,
        /// The number of items that a line keeps, at most [`MOST_KEPT`].
        pub(crate) k: u32,
        /// The number of sums from one line to the next, and from one item to the next.
        pub(crate) line_step: u32,
        pub(crate) item_step: u32,
        /// The index of the sum of the first line and the first item.
        pub(crate) sums0: u32,
        /// The indices of the first line and of the first item in the whole result.
        pub(crate) line0: u32,
        pub(crate) item0: u32,
        /// The offsets of the flags of the lines and of the items.
        pub(crate) line_flags0: u32,
        pub(crate) item_flags0: u32,
        /// The offsets of the first line's list: its sums and its item indices.
        pub(crate) kept0: u32,
        pub(crate) numbers0: u32,
        /// An [`Offered`].
        pub(crate) offered: u32,
        /// 1 if larger sums are nearer, otherwise 0.
        pub(crate) falling: u32,
        /// The bits of two f32, the lower and the upper bound to which sums are limited.
        pub(crate) low: u32,
        pub(crate) high: u32,
        /// 1 if lists count as empty, whatever they hold.
        pub(crate) fresh: u32,
        /// Always 0, which the shader's compiler cannot know.
        pub(crate) zero: u32,
    }
}

pub(crate) static NEAREST: Kernel<Params> =
    kernel!("nearest", Params, [Read, Read, Read, ReadWrite, ReadWrite], nearest, specs, [Offered]);

/// The maximum number of items that a line keeps.
pub(crate) const MOST_KEPT: u32 = 256;
pub(crate) const WG: u32 = 64;
/// The item index that marks an empty place of a list.
pub(crate) const NOWHERE: u32 = u32::MAX;

codes! {
    /// The items that a line is offered, by their indices.
    pub(crate) enum Offered {
        All,
        /// Items whose index is below the line's own.
        Below,
        Above,
        /// All items but the one with the line's own index.
        Others,
    }
}

/// The maximum length of short lists: a multiprocessor can run more workgroups with short lists.
const SHORT: u64 = 16;

/// The form in which sums are offered and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumForm {
    /// One f32. It is kept as a pair.
    Plain,
    /// An f32 and its rounding error.
    Pair,
    /// The two words of an f64.
    Wide,
}

impl SumForm {
    pub(crate) fn from_wide(wide: bool) -> Self {
        if wide { Self::Wide } else { Self::Pair }
    }

    /// Returns the number of f32 of an offered sum.
    pub(crate) const fn words(self) -> u64 {
        if matches!(self, Self::Plain) { 1 } else { 2 }
    }
}

/// Returns the constants of a program for lists of k items.
pub(crate) fn spec(k: u64, form: SumForm) -> [(&'static str, u32); 4] {
    let [wide, plain] = [SumForm::Wide, SumForm::Plain].map(|other| (form == other).into());
    let most = if k <= SHORT { small(SHORT) } else { MOST_KEPT };
    [("WG", WG), ("MOST_KEPT", most), ("WIDE", wide), ("PLAIN", plain)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    let specs_of = |k| [SumForm::Pair, SumForm::Wide, SumForm::Plain].map(|form| spec(k, form).to_vec());
    [SHORT, MOST_KEPT.into()].into_iter().flat_map(specs_of).collect()
}

/// Returns the maximum number of loop iterations of an invocation per [`WG`] items, for ranking candidates and the list's items.
pub(crate) fn iterations(k: u64) -> u64 {
    let wg = u64::from(WG);
    (wg + 1) * (1 + k.div_ceil(wg)) + 16
}

/// The number of sums that are compared with a bound at once; and the number of lines that one task takes if lines are adjacent.
const STRIP: usize = 64;
/// The number of lines that one task takes if items are adjacent.
const LINES: usize = 8;

/// A sum, as two f32 or as the words of one f64.
type Pair = [f32; 2];

/// An offered sum.
trait Sum: bytemuck::Pod + Sync {
    fn pair(self) -> Pair;
}

impl Sum for Pair {
    #[inline(always)]
    fn pair(self) -> Pair {
        self
    }
}

impl Sum for f32 {
    #[inline(always)]
    fn pair(self) -> Pair {
        [self, 0.0]
    }
}

/// The way in which sums are compared.
#[derive(Clone, Copy)]
struct Keys {
    low: f64,
    high: f64,
    sign: f64,
}

impl Keys {
    /// Returns a key that is smaller for a nearer item; NaN stays NaN.
    #[inline(always)]
    fn key(self, sum: &impl Sum, in_f64: bool) -> f64 {
        let value = joined(&sum.pair(), in_f64);
        let value = if value < self.low { self.low } else { value };
        let value = if value > self.high { self.high } else { value };
        self.sign * value
    }
}

/// An item in a list.
#[derive(Clone, Copy)]
struct Entry {
    key: f64,
    number: u32,
    sum: Pair,
}

impl Entry {
    /// Compares entries by key. NaN comes last, and of equal keys the higher index comes last.
    fn order(&self, other: &Self) -> Ordering {
        let by_key = self.key.partial_cmp(&other.key);
        let by_key = by_key.unwrap_or_else(|| self.key.is_nan().cmp(&other.key.is_nan()));
        by_key.then(self.number.cmp(&other.number))
    }
}

/// The nearest items of a line so far, in order.
struct List {
    entries: Vec<Entry>,
    k: usize,
    /// The key of the last item; NaN while the list is not full.
    bound: f64,
    has_changed: bool,
}

impl List {
    fn offer(&mut self, entry: Entry) {
        let is_full = self.entries.len() == self.k;
        if is_full && self.entries.last().is_some_and(|last| last.order(&entry).is_lt()) {
            return;
        }
        let place = self.entries.partition_point(|kept| kept.order(&entry).is_lt());
        if is_full {
            self.entries.pop();
        }
        self.entries.insert(place, entry);
        self.has_changed = true;
        self.find_bound();
    }

    fn find_bound(&mut self) {
        let last = self.entries.last().filter(|_| self.entries.len() == self.k);
        self.bound = last.map_or(f64::NAN, |last| last.key);
    }

    fn store(&self, nothing: Pair, sums: &mut [Pair], numbers: &mut [u32]) {
        let empty = Entry { key: f64::NAN, number: NOWHERE, sum: nothing };
        let entries = self.entries.iter().copied().chain(std::iter::repeat(empty));
        for ((sum, number), entry) in sums.iter_mut().zip(numbers).zip(entries) {
            (*sum, *number) = (entry.sum, entry.number);
        }
    }
}

/// Returns true if an item with this key may be among the nearest. `bound` is the key of the last of them; NaN admits all items.
#[inline(always)]
fn is_within(key: f64, bound: f64) -> bool {
    (key <= bound) | bound.is_nan()
}

/// Finds the start of the first strip of a line's items, from `from` on, that has an item which may be among the nearest.
struct NextStrip<'a, S> {
    sums: &'a [S],
    from: usize,
    keys: Keys,
    in_f64: bool,
    bound: f64,
}

impl<S: Sum> NextStrip<'_, S> {
    #[inline(always)]
    fn find(&self, in_f64: bool) -> usize {
        for start in (self.from..self.sums.len()).step_by(STRIP) {
            let strip = &self.sums[start..self.sums.len().min(start + STRIP)];
            let within = |some: bool, sum: &S| some | is_within(self.keys.key(sum, in_f64), self.bound);
            if strip.iter().fold(false, within) {
                return start;
            }
        }
        self.sums.len()
    }
}

impl<S: Sum> NullaryFnOnce for NextStrip<'_, S> {
    type Output = usize;

    #[inline(always)]
    fn call(self) -> usize {
        // The branch is outside of the loop, so that the loop can use vectors.
        if self.in_f64 { self.find(true) } else { self.find(false) }
    }
}

/// Finds the first of some items that may be among the nearest of at least one of some adjacent lines; `bounds` are the bounds of these lines.
struct NextItem<'a, S> {
    /// The sums, from the first line on.
    sums: &'a [S],
    step: usize,
    items: Range<usize>,
    keys: Keys,
    in_f64: bool,
    bounds: &'a [f64],
}

impl<S: Sum> NextItem<'_, S> {
    #[inline(always)]
    fn find(&self, in_f64: bool) -> usize {
        for item in self.items.clone() {
            let sums = self.sums[item * self.step..][..self.bounds.len()].iter().zip(self.bounds);
            let within =
                |some: bool, (sum, bound): (&S, &f64)| some | is_within(self.keys.key(sum, in_f64), *bound);
            if sums.fold(false, within) {
                return item;
            }
        }
        self.items.end
    }
}

impl<S: Sum> NullaryFnOnce for NextItem<'_, S> {
    type Output = usize;

    #[inline(always)]
    fn call(self) -> usize {
        if self.in_f64 { self.find(true) } else { self.find(false) }
    }
}

/// The pairs that a launch offers to the lists.
struct OfferedPairs<'a, S> {
    p: Params,
    in_f64: bool,
    keys: Keys,
    offered: Offered,
    /// The sums, from the first line and item on.
    sums: &'a [S],
    undefined: [&'a [u32]; 2],
    /// The pair that a list keeps for a sum that is not a number.
    nothing: Pair,
}

impl<S: Sum> OfferedPairs<'_, S> {
    fn list(&self, sums: &[Pair], numbers: &[u32]) -> List {
        let places = sums.iter().zip(numbers).filter(|_| self.p.fresh == 0);
        let kept = places.take_while(|(_, number)| **number != NOWHERE);
        let entry =
            |(&sum, &number): (&Pair, &u32)| Entry { key: self.keys.key(&sum, self.in_f64), number, sum };
        let mut entries = Vec::with_capacity(sums.len());
        entries.extend(kept.map(entry));
        let mut list = List { entries, k: sums.len(), bound: f64::NAN, has_changed: self.p.fresh != 0 };
        list.find_bound();
        list
    }

    /// Returns the range of items that a line is offered, which may include the item with the line's own index.
    fn range(&self, line: usize) -> Range<usize> {
        let (items, number) = (self.p.items as usize, self.p.line0 as usize + line);
        let below = number.saturating_sub(self.p.item0 as usize).min(items);
        match self.offered {
            Offered::All | Offered::Others => 0..items,
            Offered::Below => 0..below,
            Offered::Above => below..items,
        }
    }

    fn offer(&self, list: &mut List, line: usize, item: usize, sum: &S) {
        let number = self.p.item0 + small(item as u64);
        if self.offered != Offered::All && number == self.p.line0 + small(line as u64) {
            return;
        }
        let [lines, items] = self.undefined;
        let key = self.keys.key(sum, self.in_f64);
        let is_nothing = lines[line] != 0 || items[item] != 0 || key.is_nan();
        list.offer(match is_nothing {
            true => Entry { key: f64::NAN, number, sum: self.nothing },
            false => Entry { key, number, sum: sum.pair() },
        });
    }

    /// Offers a line its items, which are adjacent.
    fn offer_items(&self, line: usize, list: &mut List) {
        let Range { start: mut from, end } = self.range(line);
        while from < end {
            let sums = &self.sums[line * self.p.line_step as usize..][..end];
            let (keys, in_f64) = (self.keys, self.in_f64);
            let start = wide(NextStrip { sums, from, keys, in_f64, bound: list.bound });
            from = end.min(start + STRIP);
            for (item, sum) in (start..).zip(&sums[start..from]) {
                if is_within(keys.key(sum, in_f64), list.bound) {
                    self.offer(list, line, item, sum);
                }
            }
        }
    }

    /// Offers adjacent lines their items.
    fn offer_across(&self, first: usize, lists: &mut [List]) {
        let mut items = self.range(first).start..self.range(first + lists.len() - 1).end;
        let mut bounds: Vec<f64> = lists.iter().map(|list| list.bound).collect();
        let (step, keys, in_f64) = (self.p.item_step as usize, self.keys, self.in_f64);
        while !items.is_empty() {
            let sums = &self.sums[first..];
            let item = wide(NextItem { sums, step, items: items.clone(), keys, in_f64, bounds: &bounds });
            if item < items.end {
                for (i, (list, bound)) in lists.iter_mut().zip(&mut bounds).enumerate() {
                    let sum = &sums[item * step + i];
                    if is_within(keys.key(sum, in_f64), *bound) && self.range(first + i).contains(&item) {
                        self.offer(list, first + i, item, sum);
                        *bound = list.bound;
                    }
                }
            }
            items.start = items.end.min(item + 1);
        }
    }
}

fn nearest(launch: CpuLaunch<'_>) {
    if launch.constant("PLAIN") != 0 { nearest_of::<f32>(launch) } else { nearest_of::<Pair>(launch) }
}

fn nearest_of<S: Sum>(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let in_f64 = launch.constant("WIDE") != 0;
    let cancel = launch.cancel();
    let [sums, undefined_lines, undefined_items, kept_sums, kept_numbers] = launch.args();
    let [low, high] = [p.low, p.high].map(|bits| f64::from(f32::from_bits(bits)));
    let flags = [(&undefined_lines, p.line_flags0), (&undefined_items, p.item_flags0)];
    let block = OfferedPairs {
        p,
        in_f64,
        keys: Keys { low, high, sign: if p.falling == 0 { 1.0 } else { -1.0 } },
        offered: Offered::from_code(p.offered),
        sums: &sums.read::<S>()[p.sums0 as usize..],
        undefined: flags.map(|(arg, start)| &arg.read::<u32>()[start as usize..]),
        nothing: halves(f64::NAN, in_f64),
    };
    let (k, lines) = (p.k as usize, p.lines as usize);
    let kept_sums = &mut kept_sums.write::<Pair>()[p.kept0 as usize..][..lines * k];
    let kept_numbers = &mut kept_numbers.write::<u32>()[p.numbers0 as usize..][..lines * k];
    let piece = if p.item_step == 1 { LINES } else { STRIP };
    let pieces = kept_sums.par_chunks_mut(piece * k).zip(kept_numbers.par_chunks_mut(piece * k));
    pieces.enumerate().for_each(|(number, (sums, numbers))| {
        if Cancel::is_set(cancel) {
            return;
        }
        let kept = sums.chunks(k).zip(numbers.chunks(k));
        let mut lists: Vec<List> = kept.map(|(sums, numbers)| block.list(sums, numbers)).collect();
        let first = number * piece;
        if p.item_step == 1 {
            let lines = lists.iter_mut().zip(first..);
            lines.for_each(|(list, line)| block.offer_items(line, list));
        } else {
            block.offer_across(first, &mut lists);
        }
        let kept = sums.chunks_mut(k).zip(numbers.chunks_mut(k)).zip(&lists);
        let changed = kept.filter(|(_, list)| list.has_changed);
        changed.for_each(|((sums, numbers), list)| list.store(block.nothing, sums, numbers));
    });
}
