//! Sweeps that map: each box of an array becomes a box of another array.

use std::ops::Range;

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
};

/// Parts of an array, each given as a range along each axis.
type Areas = Vec<Vec<Range<u64>>>;

/// The counts of a map, which may take several plans.
struct Mapped {
    swept: Swept,
    /// The number of elements that were read, and the number that were computed from them.
    covered: u64,
    made: u64,
    status: Status,
}

impl Mapped {
    fn new(swept: Swept) -> Self {
        Self { swept, covered: 0, made: 0, status: Status::new(0, 1, 0) }
    }

    /// Begins a plan, in which the boxes marked in `there` are already written. The first plan sets the total amount of work.
    fn begin(&mut self, plan: &Plan, there: &[bool]) {
        let sum = |which: bool| {
            let boxes = plan.boxes().zip(there).filter(|(_, there)| **there == which);
            boxes.map(|(core, _)| elements(&core)).sum::<u64>()
        };
        if self.status.total == 0 {
            self.swept.found = there.iter().filter(|there| **there).count() as u64;
            self.status.total = sum(false);
        } else {
            self.status.rows += sum(true);
        }
    }
}

impl Sweep<'_> {
    /// Maps the array, and leaves the writer unfinished.
    pub(crate) fn map_untyped(
        &self,
        operation: &dyn UntypedOperation,
        writer: &impl BoxWriter,
    ) -> Result<Swept> {
        let (mut retry, mut mapped) = (Retry::new(self.run.memory), Mapped::new(self.swept()));
        let mut left = Vec::new();
        if self.elements()? > 0 {
            left.push(self.within.clone());
        }
        while let Some(area) = left.pop() {
            if let Err((error, rest)) = self.map_once(operation, writer, &area, &mut retry, &mut mapped) {
                retry.smaller(error, self.device)?;
                left.extend(rest);
            }
        }
        let Mapped { mut swept, covered, made, .. } = mapped;
        swept.times_covered = covered as f64 / made.max(1) as f64;
        swept.memory = retry.memory.planned(self.device);
        Ok(swept)
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

    /// Maps an area with one plan.
    ///
    /// # Errors
    /// The error, and the areas that remain.
    fn map_once<W: BoxWriter>(
        &self,
        operation: &dyn UntypedOperation,
        writer: &W,
        area: &[Range<u64>],
        retry: &mut Retry,
        mapped: &mut Mapped,
    ) -> Result<(), (Error, Areas)> {
        let whole = |error| (error, vec![area.to_vec()]);
        let planned = self.box_plan(operation, writer, area, &retry.memory).map_err(whole)?;
        retry.taken = planned.on_device;
        let plan = &planned.plan;
        let mut done = self.boxes_there(plan, writer).map_err(whole)?;
        mapped.begin(plan, &done);
        let mapping = self.map_boxes(operation, writer, area, &planned, &mut done, mapped);
        let left = || plan.boxes().zip(&done).filter(|(_, done)| !**done).map(|(core, _)| core).collect();
        mapping.map_err(|error| (error, left()))
    }

    /// Returns the least memory of a kind, of which the run has too little, for a sweep.
    pub(crate) fn least(
        &self,
        operation: &dyn UntypedOperation,
        writer: &impl BoxWriter,
        kind: MemoryKind,
    ) -> Option<u64> {
        let memory = match kind {
            MemoryKind::Host => self.run.memory.host(0).device(u64::MAX),
            MemoryKind::Device => self.run.memory.device(0).host(u64::MAX),
        };
        match self.box_plan(operation, writer, &self.within, &memory) {
            Err(Error::Budget { memory, minimum, .. }) if memory == kind => Some(minimum),
            _ => None,
        }
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
            halo: &|axis| (operation.halo(axis), operation.edge(axis)),
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
        let Mapped { swept, covered, made, status } = mapped;
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
