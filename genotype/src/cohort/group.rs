//! Loading onto the members of a group of devices, and parts that they read: each reads, counts and keeps some of the variants.

use std::ops::Range;

use teatime::{Device, Error, Needs, Result, packed::PackedMatrix, stream::StreamStats};

use super::{
    Cohort, Sums,
    each::{Each, joined},
    part::{MAX_PROJECTED, PartRead, ranges_of},
    plan::{LoadPlan, Part, Request, Wanted},
};
use crate::{memory::Allowance, options::Method, part::CohortPart, reader::Read, residency::Residency};

impl Cohort {
    /// Loads as [`load_with`](Self::load_with) does, each member some of the variants; or says why the first device has to load alone.
    pub(super) fn load_onto_members<T: Send>(
        request: Request<'_>,
        each: &Each<'_, T>,
    ) -> Result<Result<(T, Self), String>> {
        let Request { genotypes, device, wanted, run } = request;
        let members = device.members();
        let ranges = Self::part_ranges(genotypes, members.len() as u64);
        if ranges.len() < 2 {
            return Ok(Err("the variants are no more than one block".into()));
        }
        if wanted.matched().is_some() && genotypes.variants() > MAX_PROJECTED {
            return Ok(Err(format!("a projection of more than {MAX_PROJECTED} variants")));
        }
        let group = Device::group(&members[..ranges.len()])?;
        let plan = LoadPlan::new(Request { device: &group, ..request }, None, each.needs)?;
        if !plan.reader.form.is_packed() {
            return Ok(Err("two bits do not hold a genotype".into()));
        }
        let settled = plan.settled(wanted);
        let part = |i: usize| Part { rows: ranges[i].clone(), members: Some(ranges.len() as u64) };
        let planned = group.each_member(run, 0, |i, device, run| {
            let request = Request { genotypes, device, wanted: &settled, run };
            let LoadPlan { again, allowance, .. } = LoadPlan::new(request, Some(&part(i)), each.needs)?;
            Ok((again && allowance.residency == Residency::Store).then_some(allowance.reason))
        });
        let read_again = |reasons: Vec<Option<String>>| reasons.into_iter().flatten().next();
        if let Some(why) = too_much(planned)?.map_or_else(Some, read_again) {
            return Ok(Err(why));
        }
        let loaded = group.each_member(run, genotypes.variants(), |i, device, run| {
            let request = Request { genotypes, device, wanted: &settled, run };
            request.with_less_memory(|request| {
                let part = part(i);
                let plan = LoadPlan::new(request, Some(&part), each.needs)?;
                let (read, made, kept) =
                    each.of_pass(&plan, |sink| plan.read_part(request, &part.rows, sink))?;
                Ok(Loaded { read, made, kept, allowance: plan.allowance })
            })
        });
        too_much(loaded.and_then(|loaded| Self::of_members(plan, loaded, &group, (wanted, each))))
    }

    /// Reads a part as [`part`](Self::part) does, each member some of the variants; None if the first device has to read alone.
    pub(super) fn part_by_members(request: Request<'_>, rows: &Range<u64>) -> Result<Option<CohortPart>> {
        let Request { genotypes, device, wanted, run } = request;
        let members = device.members();
        let ranges = ranges_of(rows, genotypes.samples(), members.len() as u64);
        if ranges.len() < 2 {
            return Ok(None);
        }
        let group = Device::group(&members[..ranges.len()])?;
        let part = Part { rows: rows.clone(), members: None };
        let plan = LoadPlan::new(Request { device: &group, ..request }, Some(&part), &|_| Needs::default())?;
        if !plan.reader.form.is_packed() {
            return Ok(None);
        }
        let settled = plan.settled(wanted);
        let parts = group.each_member(run, rows.end - rows.start, |i, device, run| {
            Self::part_on(Request { genotypes, device, wanted: &settled, run }, ranges[i].clone())
        });
        let Ok(parts) = too_much(parts)? else { return Ok(None) };
        merged(parts).map(Some)
    }

    /// Makes a cohort of all parts, and joins what was made of them.
    fn of_members<T>(
        mut plan: LoadPlan,
        loaded: Vec<Loaded<T>>,
        group: &Device,
        (wanted, each): (&Wanted<'_>, &Each<'_, T>),
    ) -> Result<(T, Self)> {
        let count = loaded.len();
        let (mut parts, mut results, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let (mut first, mut missing) = (None, None::<Vec<u64>>);
        let mut stats = StreamStats::default();
        stats.add_members(loaded.iter().map(|loaded| &loaded.read.read.stats));
        for Loaded { read: PartRead { part, missing_calls, .. }, made, kept: panels, allowance } in loaded {
            results.push(made);
            parts.push(part);
            if let (Some(sums), Some(calls)) = (&mut missing, &missing_calls) {
                sums.iter_mut().zip(calls).for_each(|(sum, calls)| *sum += calls);
            } else {
                missing = missing_calls;
            }
            kept.extend(panels);
            // The first range is the longest.
            first.get_or_insert(allowance);
        }
        let mut sums = Sums::new(&plan, wanted.matched(), false)?;
        sums.set_part(&plan.reader, &merged(parts)?)?;
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
        Ok((joined(results, each.join)?, Self { missing_calls: missing, devices: count, ..cohort }))
    }
}

fn merged(parts: Vec<CohortPart>) -> Result<CohortPart> {
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else { unreachable!("a group should have a member") };
    parts.try_fold(first, CohortPart::merge)
}

impl LoadPlan {
    /// Returns what is wanted with the method for components that this plan chose.
    fn settled<'a>(&self, wanted: &Wanted<'a>) -> Wanted<'a> {
        let exact = self.choice.as_ref().is_some_and(|(_, choice)| choice.method == Method::Exact);
        wanted.settled(|_| exact)
    }
}

/// Returns the reason as text if memory was too small, which it need not be for one device.
fn too_much<T>(result: Result<T>) -> Result<Result<T, String>> {
    match result {
        Err(error @ (Error::Budget { .. } | Error::OutOfMemory { .. })) => Ok(Err(error.to_string())),
        result => result.map(Ok),
    }
}

struct Loaded<T> {
    read: PartRead,
    made: T,
    /// The genotypes, if they stay.
    kept: Option<PackedMatrix>,
    allowance: Allowance,
}
