//! Loading onto the members of a group of devices: each reads, counts and keeps some of the variants.

use teatime::{Device, Error, Result, Run, packed::PackedMatrix, stream::StreamStats};

use super::{
    Cohort, Sums,
    part::{MAX_PROJECTED, PartRead},
    plan::{LoadPlan, NeedsBeside, Part, Wanted},
    with_less_memory,
};
use crate::{
    memory::Allowance, options::Method, part::CohortPart, reader::Read, residency::Residency,
    source::Genotypes,
};

/// The result of loading onto a group.
pub(super) enum Loading {
    Shared(Box<Cohort>),
    /// The reason why the first device has to load alone.
    Alone(String),
}

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
    ) -> Result<Loading> {
        let members = device.members();
        let ranges = Self::part_ranges(genotypes, members.len() as u64);
        if ranges.len() < 2 {
            return Ok(Loading::Alone("the variants are no more than one block".into()));
        }
        if wanted.matched().is_some() && genotypes.variants() > MAX_PROJECTED {
            return Ok(Loading::Alone(format!("a projection of more than {MAX_PROJECTED} variants")));
        }
        let group = Device::group(&members[..ranges.len()])?;
        let plan = LoadPlan::new(genotypes, None, &group, wanted, needs, run)?;
        if !plan.reader.form.is_packed() {
            return Ok(Loading::Alone("two bits do not hold a genotype".into()));
        }
        let exact = plan.choice.as_ref().is_some_and(|(_, choice)| choice.method == Method::Exact);
        let settled = wanted.settled(|_| exact);
        let part = |i: usize| Part { rows: ranges[i].clone(), members: Some(ranges.len() as u64) };
        let planned = group.each_member(run, 0, |i, device, run| {
            LoadPlan::new(genotypes, Some(&part(i)), device, &settled, needs, run).map(|plan| {
                (plan.again && plan.allowance.residency == Residency::Store, plan.allowance.reason)
            })
        });
        let planned = match too_much(planned)? {
            Ok(planned) => planned,
            Err(why) => return Ok(Loading::Alone(why)),
        };
        if let Some((_, why)) = planned.into_iter().find(|(is_read_again, _)| *is_read_again) {
            return Ok(Loading::Alone(why));
        }
        let loaded = group.each_member(run, genotypes.variants(), |i, device, run| {
            with_less_memory(device, run, |run| {
                let plan = LoadPlan::new(genotypes, Some(&part(i)), device, &settled, needs, run)?;
                Loaded::read(plan, genotypes, &settled, &part(i), run)
            })
        });
        let cohort = loaded.and_then(|loaded| Self::of_members(plan, loaded, &group, wanted));
        Ok(match too_much(cohort)? {
            Ok(cohort) => Loading::Shared(Box::new(cohort)),
            Err(why) => Loading::Alone(why),
        })
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
        let mut first = None;
        let mut stats = StreamStats::default();
        stats.add_members(loaded.iter().map(|loaded| &loaded.read.read.stats));
        for Loaded { read: PartRead { part, missing_calls, .. }, kept: panels, allowance } in loaded {
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
            // The first range is the longest.
            first.get_or_insert(allowance);
        }
        let mut sums = Sums::new(&plan, wanted.matched())?;
        if let Some(whole) = &whole {
            sums.set_part(&plan.reader, whole)?;
        }
        plan.allowance = first.unwrap_or(plan.allowance);
        let is_kept = kept.len() == count;
        plan.allowance.reason = if plan.again && !is_kept {
            format!("one of {count} devices had less memory left than it said")
        } else {
            format!("on each of {count} devices: {}", plan.allowance.reason)
        };
        // If a member has kept nothing, later passes read the store.
        let kept = is_kept.then(|| PackedMatrix::join(group, kept)).transpose()?;
        let read = Read { stats, digests: None };
        let cohort = Self::finish(plan, sums, kept, Some(read))?;
        Ok(Self { missing_calls: missing, devices: count, ..cohort })
    }
}

/// Returns the reason as text if memory was too small, which it need not be for one device.
fn too_much<T>(result: Result<T>) -> Result<Result<T, String>> {
    match result {
        Err(error @ (Error::Budget { .. } | Error::OutOfMemory { .. })) => Ok(Err(error.to_string())),
        result => result.map(Ok),
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
        let mut kept = plan.place();
        let read = plan.read_part(genotypes, wanted, &part.rows, run, &mut |panel, _| {
            kept.as_mut().map_or(Ok(()), |kept| kept.keep(panel))
        })?;
        kept.as_mut().map_or(Ok(()), PackedMatrix::complete)?;
        Ok(Self { read, kept, allowance: plan.allowance })
    }
}
