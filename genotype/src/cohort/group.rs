//! Loading onto the members of a group of devices: each reads, counts and keeps some of the variants.

use teatime::{
    Device, Error, Result, Run,
    packed::PackedMatrix,
    stream::{Digests, StreamStats},
};

use super::{
    Cohort, Sums,
    part::PartRead,
    plan::{LoadPlan, NeedsBeside, Part, Wanted},
    with_less_memory,
};
use crate::{
    memory::Allowance, options::Method, part::CohortPart, reader::Read, residency::Residency,
    source::Genotypes,
};

/// The result of loading onto a group: a cohort, or the reason why the first device has to load alone.
pub(super) type OntoMembers = Result<Cohort, String>;

impl Cohort {
    /// Loads as [`load`](Self::load) does, each member of the group some of the variants.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(super) fn load_onto_members(
        genotypes: &Genotypes,
        device: &Device,
        wanted: &Wanted<'_>,
        run: &Run,
        needs: &NeedsBeside<'_>,
    ) -> Result<OntoMembers> {
        let members = device.members();
        let ranges = Self::part_ranges(genotypes, members.len() as u64);
        if ranges.len() < 2 {
            return Ok(Err("the variants are no more than one block".into()));
        }
        let group = Device::group(&members[..ranges.len()])?;
        let plan = LoadPlan::new(genotypes, None, &group, wanted, needs, run)?;
        if !plan.reader.form.is_packed() {
            return Ok(Err("two bits do not hold a genotype".into()));
        }
        let exact = plan.choice.as_ref().is_some_and(|(_, choice)| choice.method == Method::Exact);
        let settled = wanted.settled(|_| exact);
        let part = |i: usize| Part { rows: ranges[i].clone(), members: Some(ranges.len() as u64) };
        let planned = group.each_member(run, 0, |i, device, run| {
            LoadPlan::new(genotypes, Some(&part(i)), device, &settled, needs, run).map(|plan| {
                (plan.again && plan.allowance.residency == Residency::Store, plan.allowance.reason)
            })
        });
        match planned {
            Err(error @ Error::Budget { .. }) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
            Ok(planned) => {
                if let Some((_, why)) = planned.into_iter().find(|(is_read_again, _)| *is_read_again) {
                    return Ok(Err(why));
                }
            }
        }
        let loaded = group.each_member(run, genotypes.variants(), |i, device, run| {
            with_less_memory(device, run, |run| {
                let plan = LoadPlan::new(genotypes, Some(&part(i)), device, &settled, needs, run)?;
                Loaded::read(plan, genotypes, &settled, &part(i), run)
            })
        })?;
        Self::of_members(plan, loaded, &group, wanted).map(Ok)
    }

    /// Makes a cohort of all parts.
    fn of_members(
        mut plan: LoadPlan,
        loaded: Vec<Loaded>,
        group: &Device,
        wanted: &Wanted<'_>,
    ) -> Result<Self> {
        let count = loaded.len();
        let (mut whole, mut kept, mut missing) = (None::<CohortPart>, Vec::new(), None::<Vec<u64>>);
        let mut stats = StreamStats::default();
        for Loaded { read: PartRead { part, missing_calls, read }, kept: panels, allowance } in loaded {
            whole = Some(match whole {
                None => part,
                Some(whole) => whole.merge(part)?,
            });
            if let (Some(sums), Some(calls)) = (&mut missing, &missing_calls) {
                sums.iter_mut().zip(calls).for_each(|(sum, calls)| *sum += calls);
            } else {
                missing = missing_calls;
            }
            kept.extend(panels);
            stats.add(&read.stats);
            plan.allowance = allowance;
        }
        let mut sums = Sums::new(&plan, wanted.matched())?;
        if let Some(whole) = &whole {
            sums.set_part(&plan.reader, whole)?;
        }
        // A member whose device was full has kept nothing, and later passes read the store.
        let kept = (kept.len() == count).then(|| PackedMatrix::join(group, kept)).transpose()?;
        plan.memory = plan.memory.of_members(count as u64);
        plan.allowance.reason = format!("on each of {count} devices: {}", plan.allowance.reason);
        let read = Read { stats, digests: None::<Digests> };
        let cohort = Self::finish(plan, sums, kept, Some(read))?;
        Ok(Self { missing_calls: missing, ..cohort })
    }
}

/// The part of a member.
struct Loaded {
    read: PartRead,
    /// The genotypes, if they stay.
    kept: Option<PackedMatrix>,
    allowance: Allowance,
}

impl Loaded {
    fn read(
        plan: LoadPlan,
        genotypes: &Genotypes,
        wanted: &Wanted<'_>,
        part: &Part,
        run: &Run,
    ) -> Result<Self> {
        let host_rows = match plan.allowance.residency {
            Residency::Device => Some(None),
            Residency::Host => Some(Some(plan.allowance.host_rows)),
            Residency::Store => None,
        };
        let (device, samples) = (&plan.reader.device, plan.reader.samples());
        let mut kept = host_rows.map(|rows| PackedMatrix::in_panels(device, samples, rows));
        let read = plan.read_part(genotypes, wanted, &part.rows, run, &mut |panel, _| {
            kept.as_mut().map_or(Ok(()), |kept| kept.keep(panel))
        })?;
        kept.as_mut().map_or(Ok(()), PackedMatrix::complete)?;
        Ok(Self { read, kept, allowance: plan.allowance })
    }
}
