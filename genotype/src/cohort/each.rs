//! Work that passes do on panels: on one device, or on each member of a group, whose results are joined.

use std::{ops::Range, time::Instant};

use teatime::{
    Device, Result, Run, Status,
    linalg::{Pass, Stats},
    packed::{PackedMatrix, Panel},
};

use super::{
    Cohort, lock,
    plan::{LoadPlan, NeedsBeside},
};
use crate::reader::{CountedSink, Reader, Reading};

/// The work that a pass does besides loading: the memory that it takes, its start over no variants, the addition of a panel with the sums of its
/// rows, and the addition of what another member of a group made of other variants. `add` keeps state only in the result of `start`, since
/// everything starts again if the device is full.
pub(crate) struct Each<'a, T> {
    pub(crate) needs: &'a NeedsBeside<'a>,
    pub(crate) start: &'a (dyn Fn(&Reader) -> Result<T> + Sync),
    pub(crate) add: &'a AddPanel<'a, T>,
    pub(crate) join: &'a Join<'a, T>,
}

type AddRows<'a, T> = dyn Fn(&mut T, &Panel, &Range<u64>, &[Stats]) -> Result<()> + Sync + 'a;

/// A function that adds the second to the first.
type Join<'a, T> = dyn Fn(&mut T, T) -> Result<()> + Sync + 'a;

/// Joins what the members of a group made, at least one.
pub(super) fn joined<T>(made: Vec<T>, join: &Join<'_, T>) -> Result<T> {
    let mut made = made.into_iter();
    let Some(mut first) = made.next() else { unreachable!("a group should have a member") };
    made.try_for_each(|other| join(&mut first, other))?;
    Ok(first)
}

type AddPanel<'a, T> = dyn Fn(&mut T, &Reader, &Panel, &[Stats]) -> Result<()> + Sync + 'a;

impl<T> Each<'_, T> {
    /// Makes the pass `read`. Also returns what is made of its panels, from the first on while others are read, and the panels that stay.
    pub(super) fn of_pass<R>(
        &self,
        plan: &LoadPlan,
        read: impl FnOnce(&mut CountedSink<'_>) -> Result<R>,
    ) -> Result<(R, T, Option<PackedMatrix>)> {
        let (mut started, mut kept) = (None, plan.place());
        let read = read(&mut |panel, stats| {
            let made = match &mut started {
                Some(made) => made,
                none => none.insert((self.start)(&plan.reader)?),
            };
            (self.add)(made, &plan.reader, &panel, stats)?;
            kept.as_mut().map_or(Ok(()), |kept| kept.keep(panel))
        })?;
        kept.as_mut().map_or(Ok(()), PackedMatrix::complete)?;
        Ok((read, started.map_or_else(|| (self.start)(&plan.reader), Ok)?, kept))
    }
}

impl Cohort {
    /// Makes a pass that adds the rows of all panels, with their sums, to what `start` makes of no variants. If genotypes stay on the
    /// members of a group, each of these adds up its own, and they are joined.
    pub(crate) fn add_up<T: Send>(
        &self,
        (run, status): (&Run, Status),
        reading: Reading,
        start: &(dyn Fn(&Device) -> Result<T> + Sync),
        add: &AddRows<'_, T>,
        join: &Join<'_, T>,
    ) -> Result<T> {
        let add = |made: &mut T, panel: &Panel| {
            let mut steps = self.reader.steps(&panel.rows);
            steps.try_for_each(|rows| add(made, panel, &rows, &self.stats_of(&rows)))
        };
        let place = self.place();
        let Some(kept) = place.kept.as_ref().filter(|_| self.devices > 1) else {
            let mut made = start(self.device())?;
            let pass = Pass::new(run, status);
            self.each_panel(&pass, reading, &mut |panel| add(&mut made, panel))?;
            return Ok(made);
        };
        let (passes, started) = (kept.passes(), Instant::now());
        let made = kept.device().each_member(run, self.reader.variants(), |i, device, run| {
            let mut made = start(device)?;
            passes[i](&Pass::new(run, status), &mut |panel| add(&mut made, panel))?;
            Ok(made)
        })?;
        lock(&self.stats).compute += started.elapsed();
        joined(made, join)
    }
}
