//! Sweeps that map: each box of an array becomes a box of another array.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use super::{
    Place, Sweep, Swept, elements,
    host_box::HostBox,
    operation::UntypedOperation,
    plan::{BoxPlan, Boxes},
    retry::Retry,
    writing::write_all,
};
use crate::{
    Budget, Element, Error, MemoryKind, Result, Status,
    extent::to_usize,
    store::BoxWriter,
    stream::{Block, Plan},
    waiting::lock,
};

/// Parts of an array, each given as a range along each axis.
type Areas = Vec<Vec<Range<u64>>>;

/// The counts of a map, which may take several plans.
struct Mapped {
    swept: Swept,
    /// The number of elements that were read, and the number that were computed from them.
    covered: u64,
    made: u64,
    /// The number of times that chunks of an area were decoded, times the elements of the area.
    decoded: f64,
    status: Status,
}

impl Mapped {
    /// Starts to count; `total` is the number of elements if other members of a group compute some of them.
    fn new(swept: Swept, total: u64) -> Self {
        Self { swept, covered: 0, made: 0, decoded: 0.0, status: Status::new(0, 1, total) }
    }

    /// Begins a plan, in which the boxes marked in `there` are already written, before this sweep if the area `is_new`.
    fn begin(&mut self, plan: &Plan, there: &[bool], is_new: bool) {
        let sum = |which: bool| {
            let boxes = plan.boxes().zip(there).filter(|(_, there)| **there == which);
            boxes.map(|(core, _)| elements(&core)).sum::<u64>()
        };
        if is_new {
            self.swept.found += there.iter().filter(|there| **there).count() as u64;
        }
        if self.status.total == 0 {
            self.status.total = sum(false);
        } else {
            self.status.rows += sum(true);
        }
    }

    fn add(&mut self, other: &Self) {
        self.swept.boxes += other.swept.boxes;
        self.swept.found += other.swept.found;
        self.covered += other.covered;
        self.made += other.made;
        self.decoded += other.decoded;
    }
}

/// The number of areas for each member of a group: members that are faster take more of them.
const AREAS: u64 = 4;

impl Sweep<'_> {
    /// Maps the array, and leaves the writer unfinished. The members of a group take the areas of the array in turn.
    pub(crate) fn map_untyped(
        &self,
        operation: &dyn UntypedOperation,
        writer: &impl BoxWriter,
    ) -> Result<Swept> {
        self.device.has_one_kind(self.op)?;
        let total = self.elements()?;
        let areas = if total > 0 { self.areas(operation, writer) } else { Vec::new() };
        let group = self.device.first_members(areas.len());
        let members = group.members().len();
        let areas = Mutex::new(areas);
        let next = || lock(&areas).pop();
        let counted = group.each_member(self.run, total, |_, device, run| {
            let member = Sweep { array: Arc::clone(&self.array), device, run, ..self.clone() };
            let mut mapped = Mapped::new(member.swept(), if members > 1 { total } else { 0 });
            let mut retry = Retry::new(run.memory);
            while let Some(area) = next() {
                member.map_area(operation, writer, area, &mut retry, &mut mapped)?;
            }
            mapped.swept.memory = retry.memory.planned(device);
            Ok(mapped)
        });
        let counted = counted.map_err(|error| match error {
            Error::Budget { memory, what, budget, minimum, given } if members > 1 => {
                let minimum =
                    self.least(operation, writer, memory).map_or(minimum, |least| least.max(minimum));
                Error::Budget { memory, what, budget, minimum, given }
            }
            error => error,
        })?;
        let mut mapped = Mapped::new(self.swept(), 0);
        counted.iter().for_each(|counted| mapped.add(counted));
        mapped.swept.stats.add_members(counted.iter().map(|counted| &counted.swept.stats));
        let Mapped { mut swept, covered, made, decoded, .. } = mapped;
        swept.devices = counted.iter().filter(|counted| counted.swept.boxes > 0).count().max(1);
        swept.times_covered = covered as f64 / made.max(1) as f64;
        swept.times_decoded = decoded / total.max(1) as f64;
        if let [only] = &counted[..] {
            swept.memory = only.swept.memory;
        }
        Ok(swept)
    }

    /// Returns the areas that the members of a group take, in descending order: whole tiles along one axis. For one device, the whole array. The
    /// axis and the number of areas are those for which the member with most areas reads and computes least, with halos and with chunks that two
    /// areas need.
    fn areas(&self, operation: &dyn UntypedOperation, writer: &impl BoxWriter) -> Areas {
        let members = self.device.members().len() as u64;
        if members == 1 {
            return vec![self.within.clone()];
        }
        let tile = operation.tile(writer.tile_shape());
        let chunks = self.array.chunk_shape();
        let edges = |axis: usize, count: u64| {
            let (Range { start, end }, tile) = (self.within[axis].clone(), tile[axis].max(1));
            let tiles = (end - start).div_ceil(tile);
            (0..=count).map(move |i| end.min(start + tile * (tiles * i / count)))
        };
        let cost = |axis: usize, count: u64| {
            let Range { start, end } = self.within[axis];
            let [before, after] = operation.halo(axis);
            let chunk = chunks[axis].max(1);
            let (mut read, mut decoded) = (0, 0);
            for (from, to) in edges(axis, count).zip(edges(axis, count).skip(1)) {
                let halo = from.saturating_sub(before).max(start)..to.saturating_add(after).min(end);
                read += halo.end - halo.start;
                decoded += halo.end.div_ceil(chunk) - halo.start / chunk;
            }
            let read = read as f64 / (end - start) as f64;
            let decoded = decoded as f64 / (end.div_ceil(chunk) - start / chunk) as f64;
            read.max(decoded) * count.div_ceil(members) as f64 / count as f64
        };
        let tiles =
            |axis: usize| (self.within[axis].end - self.within[axis].start).div_ceil(tile[axis].max(1));
        let cuts = |axis: usize| (1..=AREAS).map(move |times| (axis, (times * members).min(tiles(axis))));
        let cuts = (0..self.within.len()).flat_map(cuts).chain([(0, 1)]);
        let best = cuts.min_by(|&(axis, count), &(other, than)| {
            // As many areas as possible, so that members that are faster take more of them.
            cost(axis, count).total_cmp(&(cost(other, than))).then(than.cmp(&count))
        });
        let (axis, count) = best.unwrap_or((0, 1));
        let area = |(from, to)| {
            let mut area = self.within.clone();
            area[axis] = from..to;
            area
        };
        let mut areas: Areas = edges(axis, count).zip(edges(axis, count).skip(1)).map(area).collect();
        areas.reverse();
        areas
    }

    /// Maps an area, in smaller boxes once the device is full.
    fn map_area(
        &self,
        operation: &dyn UntypedOperation,
        writer: &impl BoxWriter,
        area: Vec<Range<u64>>,
        retry: &mut Retry,
        mapped: &mut Mapped,
    ) -> Result<()> {
        let mut left = vec![(area, true)];
        while let Some((area, is_new)) = left.pop() {
            mapped.swept.times_decoded = 0.0;
            let failed = self.map_once(operation, writer, (&area, is_new), retry, mapped).err();
            mapped.decoded += mapped.swept.times_decoded * elements(&area) as f64;
            if let Some((error, rest)) = failed {
                retry.smaller(error, self.device)?;
                left.extend(rest.into_iter().map(|area| (area, false)));
            }
        }
        Ok(())
    }

    pub(crate) fn map_untyped_to_host<U: Element>(&self, operation: &dyn UntypedOperation) -> Result<Vec<U>> {
        let len = self.elements()?;
        let lacking = |()| Error::OutOfHostMemory {
            what: "a box".into(),
            requested: len.saturating_mul(U::DTYPE.size()),
        };
        let mut out = bytemuck::try_zeroed_vec(to_usize(len)).map_err(lacking)?;
        if len > 0 {
            let writer = HostBox::new(&*self.array, &self.within, bytemuck::cast_slice_mut(&mut out));
            self.map_untyped(operation, &writer)?;
        }
        Ok(out)
    }

    /// Maps an area with one plan. Fails with the error and the areas that remain.
    fn map_once<W: BoxWriter>(
        &self,
        operation: &dyn UntypedOperation,
        writer: &W,
        (area, is_new): (&[Range<u64>], bool),
        retry: &mut Retry,
        mapped: &mut Mapped,
    ) -> Result<(), (Error, Areas)> {
        let whole = |error| (error, vec![area.to_vec()]);
        let planned = self.box_plan(operation, writer, area, &retry.memory).map_err(whole)?;
        retry.taken = planned.on_device;
        let plan = &planned.plan;
        let mut done = self.boxes_there(plan, writer).map_err(whole)?;
        mapped.begin(plan, &done, is_new);
        let mapping = self.map_boxes(operation, writer, area, &planned, &mut done, mapped);
        let left = || plan.boxes().zip(&done).filter(|(_, done)| !**done).map(|(core, _)| core).collect();
        mapping.map_err(|error| (error, left()))
    }

    /// Returns the least memory of a kind, of which the run has too little, for a sweep: that of the area that takes most, for each member.
    pub(crate) fn least(
        &self,
        operation: &dyn UntypedOperation,
        writer: &impl BoxWriter,
        kind: MemoryKind,
    ) -> Option<u64> {
        let areas = self.areas(operation, writer);
        let (memory, each) = match kind {
            MemoryKind::Host => {
                let members = self.device.first_members(areas.len()).members().len() as u64;
                (self.run.memory.host(0).device(u64::MAX), members)
            }
            MemoryKind::Device => (self.run.memory.device(0).host(u64::MAX), 1),
        };
        let least = |area: &Vec<Range<u64>>| match self.box_plan(operation, writer, area, &memory) {
            Err(Error::Budget { memory, minimum, .. }) if memory == kind => {
                Some(minimum.saturating_mul(each))
            }
            _ => None,
        };
        areas.iter().filter_map(least).max()
    }

    fn box_plan<W: BoxWriter>(
        &self,
        operation: &dyn UntypedOperation,
        writer: &W,
        area: &[Range<u64>],
        memory: &Budget,
    ) -> Result<BoxPlan> {
        let [read, written] = operation.types();
        let boxes = Boxes {
            array: &self.array,
            within: area,
            convert: self.conversion(read)?,
            tile: operation.tile(writer.tile_shape()),
            halo: &|axis| (operation.halo(axis), operation.beyond(axis)),
            knows_whole_axes: operation.knows_whole_axes(),
            written: written.size(),
            box_bytes: operation.box_bytes(),
            widest: operation.widest(),
            on_device: 1,
            needs: &|shape| operation.needs(shape, self.device),
            after: writer.after(),
        };
        boxes.plan(self.device, memory, &self.run.cancel)
    }

    /// Returns, for each box of a plan, true if it is already written. The writer may read its tiles to check this.
    fn boxes_there<W: BoxWriter>(&self, plan: &Plan, writer: &W) -> Result<Vec<bool>> {
        let is_there = |core: Vec<Range<u64>>| {
            self.run.cancel.check()?;
            writer.has_box(&core)
        };
        self.device.pool()?.install(|| plan.boxes().map(is_there).collect())
    }

    /// Maps the boxes of a plan that are not done.
    fn map_boxes<W: BoxWriter>(
        &self,
        operation: &dyn UntypedOperation,
        writer: &W,
        area: &[Range<u64>],
        planned: &BoxPlan,
        done: &mut [bool],
        mapped: &mut Mapped,
    ) -> Result<()> {
        let Mapped { swept, covered, made, status, .. } = mapped;
        write_all(writer, planned.writers, self.device, |give| {
            let run = |block: Block<'_>, place: &Place| operation.run(block, place, self.device);
            self.each_box(planned, done.to_vec(), (swept, status), run, |place, values| {
                *covered += place.shape.iter().product::<u64>();
                *made += elements(&place.core);
                let number = planned.number(area, &place.core);
                // `write_all` returns the error of writing.
                let is_taken = give(place.core, values);
                done[number] |= is_taken;
                is_taken
            })
        })
    }
}
