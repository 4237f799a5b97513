//! The nearest observations of stored matrices, which need not fit the device: some boxes of observations stay there while the others come and
//! go.

use std::{mem::take, ops::Range, sync::Arc, time::Instant};

use super::reading::{OBSERVATION, Reading};
use crate::{
    Budget, Device, Element, Result, Run, Status, Tensor,
    distance::{
        Metric, Missing, NearestSoFar, Neighbors, Options,
        job::{Block, Measure, Pipeline, most},
        metric::Prepare,
        neighbors::check_k,
        precision::{PLAIN, is_wide, table},
        sums::{Operand, largest},
    },
    extent::to_usize,
    kernels::distance::TILE,
    stream::{Blocks, Plan, StreamStats},
};

/// Bytes of a box of observations, where as many observations as a block's side have fewer.
const BOX: u64 = 8 << 20;

/// Boxes that are on the device beside those that stay: one that is uploaded, one that is worked on, and one that blocks before may still
/// need.
const PASSING: u64 = 3;

/// The k nearest of the observations of `reading`.
///
/// # Errors
/// As [`neighbors_stored`](super::neighbors_stored).
pub(super) fn nearest<T: Element>(
    reading: &Reading<'_>,
    k: usize,
    (metric, options): (Metric, &Options),
    device: &Device,
    run: &Run,
    stats: &mut StreamStats,
) -> Result<Neighbors> {
    let (m, others) = (reading.counts[0], reading.others());
    check_k(k, others.unwrap_or(m), others.is_none())?;
    let (terms, prepare) = metric.recipe(options.missing != Missing::Propagate);
    let wide = is_wide::<T>(device, &terms, prepare, options)?;
    let mut measure = Measure::new(device, metric, options, reading.features, wide, others.is_none());
    let search = Search::within(reading, &measure, k, (device, run), (metric, options, wide))?;
    let Prepared { tables, mut kept, undefined } = search.prepare::<T>(&mut measure, prepare, stats)?;
    measure.undefined = undefined;

    let mut found = NearestSoFar::new(device, to_usize(m), k, metric == Metric::InnerProduct)?;
    let how = (others.is_none(), measure.is_lower());
    let sink = |block: &mut Block| found.take_block(block, how);
    let mut pipeline = Pipeline::new(&measure, search.side, run, sink);
    let mut status = Status::new(1, 2, m);
    for first in (0..search.boxes(0)).step_by(search.staying) {
        let strip = first..search.boxes(0).min(first + search.staying);
        let mut here = take(&mut kept[0]);
        if first > 0 {
            search.each(0, strip.clone(), stats, &mut |_, x| {
                here.push(x);
                Ok(())
            })?;
        }
        let rows = strip.clone().zip(&here).map(|(number, x)| search.operand(0, number, x, &tables));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let of_columns = usize::from(others.is_some());
        let all = search.boxes(of_columns);
        // In this order of columns and rows, the numbers that an observation is offered rise.
        let mut column = |number: usize, y: &Tensor<T>| -> Result<()> {
            let y = search.operand(of_columns, number, y, &tables)?;
            let below = rows.iter().filter(|x| !how.1 || x.all().start >= y.all().start);
            below.into_iter().try_for_each(|x| pipeline.add((x, x.all()), (&y, y.all())))?;
            // A share of the strip's observations.
            let [start, end] = [strip.start, strip.end].map(|number| m.min(number as u64 * search.of_box));
            let columns = if how.1 { strip.end } else { all } as u64;
            status.rows = start + (end - start) * (number as u64 + 1) / columns;
            run.progress.tell(status);
            Ok(())
        };
        let (before, after) = match how {
            (true, true) => (0..first, all..all),
            (true, false) => (0..first, strip.end..all),
            (false, _) => (kept[1].len()..all, all..all),
        };
        search.each(of_columns, before, stats, &mut |number, y| column(number, &y))?;
        let started = Instant::now();
        let staying =
            if others.is_some() { (0..kept[1].len()).zip(&kept[1]) } else { strip.clone().zip(&here) };
        staying.into_iter().try_for_each(|(number, y)| column(number, y))?;
        stats.compute += started.elapsed();
        search.each(of_columns, after, stats, &mut |number, y| column(number, &y))?;
    }
    let started = Instant::now();
    pipeline.finish()?;
    stats.compute += started.elapsed();
    found.finish()
}

/// How stored observations are searched.
struct Search<'a> {
    reading: &'a Reading<'a>,
    device: &'a Device,
    run: &'a Run,
    metric: Metric,
    options: &'a Options,
    wide: bool,
    /// Boxes of all features of some observations, of each array.
    plans: Vec<Plan>,
    /// Observations of a box.
    of_box: u64,
    /// Bytes of chunks.
    chunk_bytes: u64,
    /// Boxes of x that stay on the device, at least 1, and whether all boxes of all arrays do.
    staying: usize,
    all_stay: bool,
    /// Observations along each side of a block of pairs.
    side: u64,
}

/// What is known of all observations.
struct Prepared<T: Element> {
    /// The tables of the boxes of x, and of y.
    tables: [Vec<Arc<Tensor<f32>>>; 2],
    /// Boxes that stay on the device, of x and of y.
    kept: [Vec<Tensor<T>>; 2],
    undefined: [Vec<bool>; 2],
}

impl<'a> Search<'a> {
    /// The largest boxes that memory holds, with the sums of pairs.
    ///
    /// # Errors
    /// [`Error::Budget`](crate::Error::Budget); [`Error::Limit`](crate::Error::Limit).
    fn within(
        reading: &'a Reading<'_>,
        measure: &Measure,
        k: usize,
        (device, run): (&'a Device, &'a Run),
        (metric, options, wide): (Metric, &'a Options, bool),
    ) -> Result<Self> {
        let tile = u64::from(TILE);
        let observations = reading.counts.iter().fold(0, |all: u64, &count| all.saturating_add(count));
        let known = NearestSoFar::host_bytes(reading.counts[0], k as u64)
            .saturating_add(observations.saturating_mul(OBSERVATION));
        let tables = observations.saturating_mul(if wide { 24 } else { 12 });
        let of_observation = reading.features.saturating_mul(reading.staged.size()).max(1);
        let [of_device, of_host] = measure.pair_bytes();
        let shared = device.shares_host_memory();
        let mut of_box = (BOX / of_observation).max(1).next_multiple_of(most(device));
        let (plans, block, least, pairs, [host, on_device]) = loop {
            let plans = reading.plans(Some(of_box), reading.features)?;
            let most = |of: fn(&Plan) -> u64| plans.iter().map(of).max().unwrap_or(0);
            let (block, chunks) = (most(Plan::block_bytes), most(Plan::largest_need));
            // Where boxes are small, reading takes longer than distances: then two of them rather than few.
            let (least, pairs) = if of_box > tile { (5, tile * tile) } else { (1, 1) };
            let staged = block.saturating_mul(2).saturating_add(chunks).saturating_add(of_host * pairs);
            let on_device = block.saturating_mul(least + PASSING).saturating_add(of_device * pairs);
            let needs = [known.saturating_add(staged), tables.saturating_add(on_device)];
            match run.memory.left(device, needs[0], needs[1]) {
                Ok(left) => break (plans, block, least, pairs, left),
                Err(error) if of_box == 1 => return Err(error),
                Err(_) => of_box = (of_box / 2).max(1),
            }
        };
        // A third for pairs, an eighth of the host's for chunks, and the rest for boxes.
        let on_device = if shared { host } else { on_device };
        let of_pairs = if shared { of_host + of_device } else { of_host } * pairs;
        let memory =
            Budget { host: Some(of_pairs + host / 3), device: Some(of_device * pairs + on_device / 3) };
        let side = measure.side(0, &memory)?;
        let ahead =
            plans.iter().map(|plan| plan.ahead(device.threads() as u64)).max().unwrap_or(0).min(host / 8);
        let of_host = if shared { of_host } else { 0 };
        let taken =
            (side * side).saturating_sub(pairs) * (of_device + of_host) + if shared { ahead } else { 0 };
        let staying = least + on_device.saturating_sub(taken) / block.max(1);
        let chunk_bytes = ahead + plans.iter().map(Plan::largest_need).max().unwrap_or(0);
        let boxes = reading.counts.iter().map(|count| count.div_ceil(of_box)).sum::<u64>();
        let all_stay = boxes <= staying + PASSING;
        let staying = usize::try_from(if all_stay { boxes } else { staying }).unwrap_or(usize::MAX);
        Ok(Self {
            reading,
            device,
            run,
            metric,
            options,
            wide,
            plans,
            of_box,
            chunk_bytes,
            staying,
            all_stay,
            side,
        })
    }

    /// How many boxes an array has.
    fn boxes(&self, array: usize) -> usize {
        to_usize(self.reading.counts[array].div_ceil(self.of_box))
    }

    /// The observations of a box.
    fn observations(&self, array: usize, number: usize) -> Range<u64> {
        let first = number as u64 * self.of_box;
        first..self.reading.counts[array].min(first + self.of_box)
    }

    /// A box that is prepared.
    fn operand<'t, T: Element>(
        &self,
        array: usize,
        number: usize,
        x: &'t Tensor<T>,
        tables: &[Vec<Arc<Tensor<f32>>>; 2],
    ) -> Result<Operand<'t, T>> {
        let first = self.observations(array, number).start;
        Operand::prepared((NAMES[array], x, first), tables[array][number].clone(), self.wide, self.options)
    }

    /// Reads all observations once and prepares them.
    fn prepare<T: Element>(
        &self,
        measure: &mut Measure,
        prepare: Prepare,
        stats: &mut StreamStats,
    ) -> Result<Prepared<T>> {
        let mut prepared =
            Prepared { tables: Default::default(), kept: Default::default(), undefined: Default::default() };
        let mut status = Status::new(0, 2, self.reading.counts.iter().sum());
        let mut size = 0.0f64;
        for array in 0..self.plans.len() {
            self.each(array, 0..self.boxes(array), stats, &mut |number, x: Tensor<T>| {
                let (named, all) = ((NAMES[array], &x), self.observations(array, number));
                let mut operand = Operand::new(
                    (named.0, named.1, all.start),
                    self.metric,
                    prepare,
                    self.wide,
                    self.options,
                )?;
                size = size.max(largest(&operand.sizes));
                prepared.undefined[array].append(&mut operand.undefined);
                prepared.tables[array].push(operand.table);
                if self.all_stay || array == 0 && number < self.staying {
                    prepared.kept[array].push(x);
                }
                status.rows += all.end - all.start;
                self.run.progress.tell(status);
                Ok(())
            })?;
        }
        if let Some(scale) = measure.scale(size) {
            let [shift, rest, _] = PLAIN;
            for (array, tables) in prepared.tables.iter_mut().enumerate() {
                for (number, own) in tables.iter_mut().enumerate() {
                    let all = self.observations(array, number);
                    let entries = vec![[shift, rest, scale]; to_usize(all.end - all.start)];
                    *own = table(self.device, &entries, self.wide)?.into();
                }
            }
        }
        Ok(prepared)
    }

    /// Gives some boxes of an array, in order.
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
        if self.reading.features == 0 {
            return numbers.into_iter().try_for_each(|number| {
                let all = self.observations(array, number);
                let count = all.end - all.start;
                let shape = if self.reading.columns { [0, count] } else { [count, 0] };
                sink(number, Tensor::zeros(self.device, &shape)?)
            });
        }
        let left_out = (0..self.boxes(array)).map(|number| !numbers.contains(&number)).collect();
        let plan = &self.plans[array];
        let mut blocks = Blocks::of_boxes(plan, self.device, self.chunk_bytes, left_out, &self.run.cancel)?;
        let mut compute = std::time::Duration::ZERO;
        while let Some(block) = blocks.next_block()? {
            let number = to_usize(block.core[usize::from(self.reading.columns)].start / self.of_box);
            let shape = block.shape.clone();
            let x = block.tensor(&shape)?;
            let started = Instant::now();
            sink(number, x)?;
            compute += started.elapsed();
        }
        blocks.stats.compute += compute;
        stats.add(&blocks.stats);
        Ok(())
    }
}

/// What messages call the arrays.
const NAMES: [&str; 2] = ["x", "y"];
