//! Pairs of stored observations that do not fit the device: some boxes of observations stay on the device while the others pass through.

use std::{
    mem::take,
    ops::Range,
    sync::{Arc, Mutex},
    time::Instant,
};

use super::reading::{OBSERVATION, Plans, StoredOperands, largest_that_fits};
use crate::{
    Budget, Device, Element, Needs, Result, Run, Status, Tensor,
    distance::{
        job::{BlockSink, Measure, Pipeline, most},
        precision::{PLAIN, table},
        shares::dealt,
        sums::{PreparedObservations, largest},
    },
    extent::to_usize,
    kernels::distance::TILE,
    stream::{Plan, StreamStats},
    waiting::lock,
};

/// The minimum number of bytes of a box, unless a block's side of observations is larger.
const BOX: u64 = 8 << 20;

/// The number of boxes on the device in addition to those that stay: one being uploaded, one in use, and one that earlier blocks may still need.
const PASSING: u64 = 3;

/// The memory of a box besides its elements, read or not. Host: its tensors and its place in the order. Device: its table's buffer.
const TRACKING: Needs = Needs { host: 256, device: 512 };

/// The arrays' names in messages.
const NAMES: [&str; 2] = ["x", "y"];

/// The tables of the boxes of x and of y.
type Tables = [Vec<Arc<Tensor<f32>>>; 2];

/// The observations that are prepared: the boxes of the first strip, if this member pairs it, and the tables of all boxes.
pub(super) struct Boxes<T: Element> {
    first_strip: Vec<Tensor<T>>,
    tables: Tables,
}

impl<T: Element> Default for Boxes<T> {
    fn default() -> Self {
        Self { first_strip: Vec::new(), tables: Tables::default() }
    }
}

/// A sink for two boxes whose observations are paired with each other.
type PairsOfBoxes<'a, T> =
    dyn FnMut(&PreparedObservations<'_, T>, &PreparedObservations<'_, T>) -> Result<()> + 'a;

/// A search for neighbors among stored observations, some of which stay on the device while the others pass.
pub(super) struct BoxSearch {
    reading: StoredOperands,
    pub(super) run: Run,
    pub(super) measure: Measure,
    /// A plan for each array, of boxes with all features of some observations.
    plans: Plans,
    pub(super) sizes: BoxSizes,
    /// The number of a member of a group, and the number of members, each of which pairs some strips of boxes of x.
    share: [u64; 2],
    pub(super) extents: [u64; 2],
}

/// The sizes of a search.
#[derive(Clone, Copy)]
pub(super) struct BoxSizes {
    /// The number of observations in a box.
    pub(super) of_box: u64,
    /// The number of boxes of x that stay on the device, at least 1.
    staying: usize,
    /// The number of observations along each side of a block of pairs.
    pub(super) side: u64,
    /// The bytes of chunks that are decoded ahead.
    ahead: u64,
}

/// A search of a member that has prepared its observations, and the time and the bytes that it took so far.
type Prepared<T> = Mutex<(BoxSearch, Boxes<T>, StreamStats)>;

/// The memory of a search: of the neighbors so far, what results take besides once pairs are computed, and that of a pair in a block.
pub(super) type SearchNeeds = [Needs; 3];

impl BoxSizes {
    /// Returns the sizes of the largest boxes that fit memory together with the sums of pairs, on each of some members of a group. Fails
    /// with [`Error::Budget`](crate::Error::Budget) or [`Error::Limit`](crate::Error::Limit).
    pub(super) fn within(
        reading: &StoredOperands,
        measure: &Measure,
        [kept, results, pair]: SearchNeeds,
        members: u64,
        memory: &Budget,
    ) -> Result<Self> {
        let (device, tile) = (&measure.device, u64::from(TILE));
        let observations = reading.observations();
        let tables = Needs::device(if measure.wide { 24 } else { 12 }) * observations;
        let known = kept + Needs::host(OBSERVATION) * observations + tables;
        let of_observation = reading.features.saturating_mul(reading.staged.size()).max(1);
        let largest = reading.counts.iter().copied().max().unwrap_or(0).max(1);
        let of_box = (BOX / of_observation).max(1).next_multiple_of(most(device));
        let of_box = of_box.min(largest.checked_next_power_of_two().unwrap_or(u64::MAX));
        // Tracking many boxes takes memory too, so the smallest boxes do not always need the least.
        let smaller = |of_box| of_box / 2;
        let (plans, of_box, block, least, pairs, left) = largest_that_fits(of_box, smaller, |of_box| {
            let plans = reading.plans(Some(of_box), reading.features)?;
            let most = |size: fn(&Plan) -> u64| plans.iter().map(size).max().unwrap_or(0);
            let (block, chunks) = (most(Plan::block_bytes), most(Plan::largest_need));
            // At least five boxes stay if they are larger than a tile: with fewer, reading would take longer than computing.
            let (least, side) = (if of_box > tile { 5 } else { 1 }, of_box.min(good_side(device)));
            let pairs = side * side;
            let boxes = observations.div_ceil(of_box) + 1;
            let of_boxes = Needs::device(block) * (least + PASSING) + TRACKING * boxes;
            let staged = Needs::host(block) * 2 + Needs::host(chunks);
            // Staging and the host's part of pairs are freed before results are made.
            let rest = memory.fit(device, known + (of_boxes + staged + pair * pairs).max(results))?;
            Ok((plans, of_box, block, least, pairs, rest.left(device)))
        })?;
        // A third of the memory goes to pairs, an eighth of the host's to chunks, and the rest to boxes.
        let first = (pair * pairs).on(device);
        let memory =
            Budget::default().host(first.host + left.host / 3).device(first.device + left.device / 3);
        let side = measure.side_of(pair, Needs::default(), &memory)?;
        let ahead = plans.iter().map(|plan| plan.ahead(device.threads() as u64)).max().unwrap_or(0);
        let ahead = ahead.min(left.host / 8);
        let more = (pair * (side * side).saturating_sub(pairs)).on(device);
        let taken = more.of_tensors(device) + if device.shares_host_memory() { ahead } else { 0 };
        let staying = to_usize(least + left.of_tensors(device).saturating_sub(taken) / block.max(1));
        // Each member has two strips, so that members take about as long.
        let boxes = reading.counts[0].div_ceil(of_box);
        let most = if members == 1 { boxes } else { boxes.div_ceil(2 * members) };
        Ok(Self { of_box, staying: staying.min(to_usize(most)).max(1), side, ahead })
    }
}

impl BoxSearch {
    /// Fails as [`Measure::new`] does.
    fn new<T: Element>(reading: StoredOperands, sizes: BoxSizes, share: [u64; 2], run: &Run) -> Result<Self> {
        let plans = reading.plans(Some(sizes.of_box), reading.features)?;
        let (measure, extents) = (reading.measure::<T>()?, reading.extents());
        let plans = reading.with_bytes(plans, sizes.ahead);
        Ok(Self { reading, run: run.clone(), measure, plans, sizes, share, extents })
    }

    /// Prepares a search on each member of the group, which has the pairs of some observations of x, and passes it to `work`. Progress reports two
    /// passes: the first reads and prepares all observations, the second computes distances. Fails as
    /// [`neighbors_stored`](super::neighbors_stored) does.
    pub(super) fn on_members<T: Element, R: Send>(
        reading: &StoredOperands,
        sizes: BoxSizes,
        run: &Run,
        stats: &mut StreamStats,
        work: impl Fn(&Self, Boxes<T>, &mut StreamStats) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let m = reading.counts[0];
        let strips = m.div_ceil(sizes.of_box.saturating_mul(sizes.staying as u64));
        let device = reading.device.first_members(to_usize(strips));
        let prepared = Self::prepared::<T>(reading, sizes, &device, run)?;
        let results = device.each_member(run, m, |i, _, run| {
            let (search, boxes, stats) = &mut *lock(&prepared[i]);
            search.run = run.clone();
            let result = work(search, take(boxes), stats)?;
            let rows =
                search.strips().map(|strip| search.rows_of(&strip)).map(|rows| rows.end - rows.start).sum();
            run.progress.tell(Status { rows, ..Status::new(1, 2, m) });
            Ok(result)
        })?;
        prepared.iter().for_each(|prepared| stats.add(&lock(prepared).2));
        Ok(results)
    }

    fn prepared<T: Element>(
        reading: &StoredOperands,
        sizes: BoxSizes,
        device: &Device,
        run: &Run,
    ) -> Result<Vec<Prepared<T>>> {
        let count = device.members().len() as u64;
        device.each_member(run, count * reading.observations(), |i, member, run| {
            let mut stats = StreamStats::default();
            let mut search = Self::new::<T>(reading.on(member), sizes, [i as u64, count], run)?;
            let boxes = search.prepare::<T>(&mut stats)?;
            Ok(Mutex::new((search, boxes, stats)))
        })
    }

    pub(super) const fn is_first(&self) -> bool {
        self.share[0] == 0
    }

    /// Returns this member's strips, each the numbers of some boxes of x.
    fn strips(&self) -> impl Iterator<Item = Range<usize>> {
        let (staying, count) = (self.sizes.staying, self.boxes(0));
        let strips =
            (0..count).step_by(staying).map(move |first| first..count.min(first.saturating_add(staying)));
        dealt(strips, self.share)
    }

    fn rows_of(&self, strip: &Range<usize>) -> Range<u64> {
        let [start, end] = [strip.start, strip.end].map(|number| self.observations(0, number).start);
        start..end
    }

    /// Passes each block of distances to `sink`. Fails as [`neighbors_stored`](super::neighbors_stored) does.
    pub(super) fn each_block<T: Element>(
        &self,
        boxes: Boxes<T>,
        stats: &mut StreamStats,
        sink: &mut BlockSink<'_>,
    ) -> Result<()> {
        let mut pipeline = Pipeline::new(&self.measure, self.sizes.side, &self.run, sink);
        self.each_strip(boxes, stats, &mut |x, y| pipeline.add((x, x.range()), (y, y.range())))?;
        let started = Instant::now();
        pipeline.finish()?;
        stats.compute += started.elapsed();
        Ok(())
    }

    /// Passes each box of this member's share of x with each box that it is paired with to `sink`, strip by strip.
    pub(super) fn each_strip<T: Element>(
        &self,
        boxes: Boxes<T>,
        stats: &mut StreamStats,
        sink: &mut PairsOfBoxes<'_, T>,
    ) -> Result<()> {
        let (Boxes { mut first_strip, tables }, mut status) = (boxes, Status::new(1, 2, self.extents[0]));
        for strip in self.strips() {
            let mut here = take(&mut first_strip);
            if strip.start > 0 {
                self.each(0, strip.clone(), stats, &mut |_, x| {
                    here.push(x);
                    Ok(())
                })?;
            }
            self.strip(strip, &here, &tables, &mut status, stats, sink)?;
        }
        Ok(())
    }

    /// Passes each box of a strip, which is on the device, to `sink` with each box of y, or with those of the strip itself and the preceding
    /// boxes of x (all boxes unless symmetric).
    fn strip<T: Element>(
        &self,
        strip: Range<usize>,
        here: &[Tensor<T>],
        tables: &Tables,
        status: &mut Status,
        stats: &mut StreamStats,
        sink: &mut PairsOfBoxes<'_, T>,
    ) -> Result<()> {
        let (is_self, is_lower) = (self.reading.others().is_none(), self.measure.is_lower());
        let of_columns = usize::from(!is_self);
        let rows = strip.clone().zip(here).map(|(number, x)| self.operand((0, number), x, tables));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let boxes = self.boxes(of_columns);
        let (before, after) = match (is_self, is_lower) {
            (true, true) => (0..strip.start, boxes..boxes),
            (true, false) => (0..strip.start, strip.end..boxes),
            (false, _) => (0..boxes, boxes..boxes),
        };
        let Range { start, end } = self.rows_of(&strip);
        let before_strip = status.rows;
        let columns = if is_lower { strip.end } else { boxes } as u64;
        // In this order of columns and rows, each observation is offered increasing indices.
        let mut column = |number: usize, y: &Tensor<T>| -> Result<()> {
            let y = &self.operand((of_columns, number), y, tables)?;
            let mut below = rows.iter().filter(|x| !is_lower || x.range().start >= y.range().start);
            below.try_for_each(|x| sink(x, y))?;
            // The last block is still in transfer.
            status.rows = before_strip + (end - start) / columns.max(1) * number as u64;
            self.run.progress.tell(*status);
            Ok(())
        };
        self.each(of_columns, before, stats, &mut |number, y| column(number, &y))?;
        if is_self {
            let started = Instant::now();
            strip.zip(here).try_for_each(|(number, y)| column(number, y))?;
            stats.compute += started.elapsed();
        }
        self.each(of_columns, after, stats, &mut |number, y| column(number, &y))?;
        status.rows = before_strip + (end - start);
        Ok(())
    }

    fn operand<'t, T: Element>(
        &self,
        (array, number): (usize, usize),
        x: &'t Tensor<T>,
        tables: &Tables,
    ) -> Result<PreparedObservations<'t, T>> {
        let (first, table) = (self.observations(array, number).start, Arc::clone(&tables[array][number]));
        let Measure { wide, options, .. } = &self.measure;
        PreparedObservations::prepared((NAMES[array], x, first), table, *wide, options)
    }

    fn boxes(&self, array: usize) -> usize {
        to_usize(self.reading.counts[array].div_ceil(self.sizes.of_box))
    }

    /// Returns the observations of a box; an empty range for a box after the last.
    fn observations(&self, array: usize, number: usize) -> Range<u64> {
        let first = (number as u64).saturating_mul(self.sizes.of_box);
        let end = self.reading.counts[array];
        first.min(end)..end.min(first.saturating_add(self.sizes.of_box))
    }

    /// Reads all observations once and prepares them.
    fn prepare<T: Element>(&mut self, stats: &mut StreamStats) -> Result<Boxes<T>> {
        let (mut first_strip, mut tables) = (Vec::new(), Tables::default());
        let (mut undefined, mut size) = (<[Vec<_>; 2]>::default(), 0.0f64);
        let wide = self.measure.wide;
        let mut status = Status::new(0, 2, self.reading.observations());
        for (array, tables) in tables.iter_mut().enumerate().take(self.plans.len()) {
            self.each(array, 0..self.boxes(array), stats, &mut |number, x: Tensor<T>| {
                let range = self.observations(array, number);
                let mut operand = self.measure.prepared((NAMES[array], &x, range.start))?;
                size = size.max(largest(&operand.sizes));
                undefined[array].append(&mut operand.undefined);
                tables.push(operand.table);
                if array == 0 && self.is_first() && number < self.sizes.staying {
                    first_strip.push(x);
                }
                status.rows += range.end - range.start;
                self.run.progress.tell(status);
                Ok(())
            })?;
        }
        self.measure.undefined = undefined;
        if let Some(scale) = self.measure.scale(size) {
            let [shift, rest, _] = PLAIN;
            for (array, tables) in tables.iter_mut().enumerate() {
                for (number, own) in tables.iter_mut().enumerate() {
                    let range = self.observations(array, number);
                    let entries = vec![[shift, rest, scale]; to_usize(range.end - range.start)];
                    *own = table(&self.measure.device, &entries, wide)?.into();
                }
            }
        }
        Ok(Boxes { first_strip, tables })
    }

    /// Passes the boxes `numbers` of an array to `sink`, in order.
    fn each<T: Element>(
        &self,
        array: usize,
        numbers: Range<usize>,
        stats: &mut StreamStats,
        sink: &mut dyn FnMut(usize, Tensor<T>) -> Result<()>,
    ) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let columns = self.reading.options.columns;
        if self.reading.features == 0 {
            return numbers.into_iter().try_for_each(|number| {
                let range = self.observations(array, number);
                let count = range.end - range.start;
                let shape = if columns { [0, count] } else { [count, 0] };
                sink(number, Tensor::zeros(&self.measure.device, &shape)?)
            });
        }
        let left_out: Vec<bool> = (0..self.boxes(array)).map(|number| !numbers.contains(&number)).collect();
        let plan = &self.plans[array..=array];
        self.reading.each(plan, &left_out, &self.run.cancel, stats, &mut |core, x| {
            let number = to_usize(core[usize::from(columns)].start / self.sizes.of_box);
            x.into_iter().try_for_each(|x| sink(number, x))
        })
    }
}

/// Returns the number of observations along each side of blocks of pairs for which boxes leave room. On the host, blocks of 512 take up to a
/// tenth longer than those of 1,024, and blocks of one tile five times as long.
pub(super) fn good_side(device: &Device) -> u64 {
    most(device) / 2
}
