//! The jobs of a group of devices, each of which computes some of the pairs.

use std::slice::from_ref;

use rayon::prelude::*;

use super::{job::Job, so_far::Neighbor};
use crate::{
    Device, Element, Needs, Result, Run, Tensor, extent::to_usize, kernel::small, kernels::distance::TILE,
    tensor::TensorView,
};

/// The jobs of the members of a group that compute a result together; one job on any other device.
pub(super) struct Jobs<'j, 'a, T: Element> {
    /// A group of as many members as there are jobs.
    device: Device,
    jobs: &'j [Job<'a, T>],
}

impl<'j, 'a, T: Element> Jobs<'j, 'a, T> {
    /// Returns one job, which computes everything.
    pub(super) fn alone(job: &'j Job<'a, T>) -> Self {
        Self { device: job.measure.device.first_members(1), jobs: from_ref(job) }
    }

    pub(super) fn first(&self) -> &'j Job<'a, T> {
        &self.jobs[0]
    }

    pub(super) fn new(device: Device, jobs: &'j [Job<'a, T>]) -> Self {
        Self { device, jobs }
    }

    pub(super) fn count(&self) -> u64 {
        self.jobs.len() as u64
    }

    /// Returns the number of observations along each side of blocks that fit the memory of each member, of which `taken` is in use. Fails
    /// as [`Measure::side`](super::job::Measure::side) does.
    pub(super) fn side(&self, taken: Needs, run: &Run) -> Result<u64> {
        let sides = self.each(run, 0, |_, job, run| job.measure.side(taken, &run.memory))?;
        Ok(sides.into_iter().min().unwrap_or(1))
    }

    /// Calls `work` with each job and its number, as [`Device::each_member`] does. `total` is the number of rows of which progress is a share.
    pub(super) fn each<R: Send>(
        &self,
        run: &Run,
        total: u64,
        work: impl Fn(usize, &'j Job<'a, T>, &Run) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        self.device.each_member(run, total, |i, _, run| work(i, &self.jobs[i], run))
    }
}

/// Calls `work` with jobs that compute the pairs of x and y together: each member of the group of x has the pairs of some observations of x.
/// Fails as [`with_copies`] does.
pub(super) fn with_members<T: Element, R>(
    first: Job<'_, T>,
    operands: (&Tensor<T>, Option<&Tensor<T>>),
    run: &Run,
    work: impl FnOnce(Jobs<'_, '_, T>) -> Result<R>,
) -> Result<R> {
    let most = tiles(first.extents()[0] as u64);
    with_copies(first, operands, most, run, |mut jobs, device| {
        let count = jobs.len() as u64;
        (0..).zip(&mut jobs).for_each(|(member, job)| job.share = [member, count]);
        work(Jobs::new(device, &jobs))
    })
}

/// Calls `work` with the jobs of at most `most` members of the group of x, of which `first` is the first, and with the group of these. Each job
/// has all pairs. Members whose memory is not the host's get copies of x and y. Fails as [`Job::new`] does.
pub(super) fn with_copies<T: Element, R>(
    first: Job<'_, T>,
    (x, y): (&Tensor<T>, Option<&Tensor<T>>),
    most: u64,
    run: &Run,
    work: impl FnOnce(Vec<Job<'_, T>>, Device) -> Result<R>,
) -> Result<R> {
    let device = x.device().first_members(to_usize(most));
    let views = device.each_member(run, 0, |_, member, _| {
        Ok((view(x, member)?, y.map(|y| view(y, member)).transpose()?))
    })?;
    let (metric, options) = (first.measure.metric, first.measure.options);
    let others = device.each_member(run, 0, |i, _, _| {
        let (x, y) = &views[i];
        (i > 0).then(|| Job::new(x, y.as_deref(), metric, &options)).transpose()
    })?;
    work([first].into_iter().chain(others.into_iter().flatten()).collect(), device)
}

/// Returns the number of tiles of m observations, each of which one member of a group computes.
pub(super) fn tiles(m: u64) -> u64 {
    m.div_ceil(TILE.into())
}

/// Returns a view of x on a member of its group, of a copy if the member has other memory.
fn view<'x, T: Element>(x: &'x Tensor<T>, member: &Device) -> Result<TensorView<'x, T>> {
    match x.device().is_same(member) {
        true => Ok(x.seen_from(member)),
        false => x.to_device(member).map(TensorView::new),
    }
}

/// The values by which neighbors were selected, as pairs of f32, (m, 2 k), and their indices, (m, k).
pub(super) type Kept = (Vec<f32>, Vec<u32>);

/// Returns the `k` nearest of those that members kept, each from other pairs: the ones with the lowest `key`, then those with the lowest index.
pub(super) fn merged(
    device: &Device,
    mut lists: Vec<Kept>,
    k: usize,
    key: impl Fn(&[f32; 2]) -> f64 + Sync,
) -> Result<Kept> {
    let (mut values, mut numbers) = lists.swap_remove(0);
    if lists.is_empty() {
        return Ok((values, numbers));
    }
    let candidates = |(values, numbers): (&[[f32; 2]], &[u32])| {
        let with_key =
            |(&pair, &number)| (Neighbor { distance: key(&pair), number: u64::from(number) }, pair);
        values.iter().zip(numbers).map(with_key).collect::<Vec<_>>()
    };
    device.pool()?.install(|| {
        let lines = values.as_chunks_mut().0.par_chunks_mut(k).zip(numbers.par_chunks_mut(k));
        lines.enumerate().for_each(|(line, (values, numbers))| {
            let mut offered = candidates((values, numbers));
            let own = line * k..(line + 1) * k;
            for (values, numbers) in &lists {
                offered.extend(candidates((&values.as_chunks().0[own.clone()], &numbers[own.clone()])));
            }
            offered.sort_unstable_by_key(|(neighbor, _)| *neighbor);
            for ((value, number), (neighbor, pair)) in values.iter_mut().zip(numbers).zip(offered) {
                (*value, *number) = (pair, small(neighbor.number));
            }
        });
    });
    Ok((values, numbers))
}
