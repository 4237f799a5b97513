//! The nearest neighbors of each observation from candidates. A product of matrices gives all squared distances with a bounded error, in half the
//! operations. Each observation keeps a few more candidates than neighbors, and their exact sums decide. An observation for which the bound does
//! not exclude all others is searched again among all.

use std::{iter::once, mem::take, ops::Range};

use bytemuck::Zeroable;
use rayon::prelude::*;

use super::{
    Missing,
    job::{Job, Measure, most},
    members::{Jobs, Kept, merged},
    on_device::Ends,
    operands::Operands,
    results::zeros,
    search::select,
    selection::{Order, Selection},
    so_far::{Neighbor, Neighbors, on_host, sorted},
    sums::{ObservationPairs, PreparedObservations},
};
use crate::{
    DType, Element, Error, Needs, Pending, Progress, Result, Run, Status, Tensor,
    array::gather,
    dtype::joined,
    extent::{pieces, to_usize},
    kernel::small,
    kernels::{
        distance::{TILE, Term},
        nearest::SumForm,
    },
    linalg::Matrix,
};

/// The number of candidates beyond those that are wanted, and what their number is a multiple of.
const SPARE: u64 = 6;
const MULTIPLE: u64 = 8;
/// The least numbers of features, of observations of x, and of y for each exact sum. For fewer, exact sums of all pairs take as long.
const LEAST_FEATURES: u64 = 48;
const LEAST_LINES: u64 = 512;
const LEAST_SHARE: u64 = 8;
/// A search by candidates pays if at most one in so many observations of a trial would be searched again.
const UNPROVEN: usize = 8;
/// The maximum number of observations along each side of a block of products on a GPU.
const SIDE: u64 = 4096;
/// The maximum bytes of the gathered candidates' elements, and of their sums, on a GPU and on the host.
const GATHERED: [u64; 2] = [128 << 20, 32 << 20];

/// A candidate, or a neighbor: the distance or the sum by which neighbors are chosen, the index, and the sum as a pair of f32.
#[derive(Clone, Copy, Zeroable)]
struct Candidate {
    key: f64,
    number: u32,
    pair: [f32; 2],
}

/// The neighbors of each observation, (m, k), nearest first.
pub(super) struct Chosen {
    neighbors: Vec<Candidate>,
    k: usize,
    /// True if they are chosen by distance, and not by the sums.
    by_distance: bool,
}

impl Chosen {
    pub(super) fn into_neighbors(self, measure: &Measure) -> Result<Neighbors> {
        let (m, k) = (self.neighbors.len() / self.k, self.k);
        if !self.by_distance {
            let (pairs, numbers) = self.parts();
            return sorted(measure, (&pairs, &numbers), [m, k]);
        }
        let all = self.neighbors.iter();
        let indices = all.clone().map(|neighbor| neighbor.number.into()).collect();
        Ok(Neighbors {
            indices,
            distances: Matrix::from_vec(all.map(|neighbor| neighbor.key).collect(), m, k)?,
        })
    }

    /// Returns the sums, as pairs of f32, and the indices.
    pub(super) fn parts(&self) -> (Vec<f32>, Vec<u32>) {
        let all = self.neighbors.iter();
        (
            all.clone().flat_map(|neighbor| neighbor.pair).collect(),
            all.map(|neighbor| neighbor.number).collect(),
        )
    }
}

/// Writes the nearest of some candidates to `places`. Returns the largest of their sums, NaN if a key is NaN.
fn choose(mut candidates: Vec<Candidate>, places: &mut [Candidate]) -> f64 {
    candidates.sort_unstable_by_key(|&Candidate { key, number, .. }| Neighbor {
        distance: key,
        number: number.into(),
    });
    places.copy_from_slice(&candidates[..places.len()]);
    if places.iter().any(|neighbor| neighbor.key.is_nan()) {
        return f64::NAN;
    }
    places.iter().map(|neighbor| joined(&neighbor.pair, false)).fold(f64::NEG_INFINITY, f64::max)
}

/// Finds the `k` nearest of each observation from candidates, with the other members of a group: by distance if `by_distance`, otherwise by
/// sums. `None` if that does not pay, or there is no memory for it. Waits. Fails as [`neighbors`](super::neighbors()) does.
pub(super) fn nearest<T: Element>(
    jobs: &Jobs<'_, '_, T>,
    k: u64,
    by_distance: bool,
    run: &Run,
) -> Result<Option<Chosen>> {
    let job = jobs.first();
    let [m, n] = job.extents().map(|extent| extent as u64);
    let of_tile = LEAST_SHARE * u64::from(TILE);
    let pays = job.measure.features >= LEAST_FEATURES && m >= LEAST_LINES && n / of_tile >= candidates(k);
    if !pays || !suits::<T>(&job.measure, [m, n], k) {
        return Ok(None);
    }
    let made = jobs.each(run, 0, |_, job, run| Search::new(job, k, by_distance, run));
    let chosen = made.and_then(|searches| {
        let Some(searches) = searches.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        if searches[0].pays(run)? {
            choose_all(jobs, searches, run).map(|(chosen, _)| Some(chosen))
        } else {
            Ok(None)
        }
    });
    match chosen {
        Err(Error::OutOfMemory { .. } | Error::OutOfHostMemory { .. } | Error::Limit { .. }) => Ok(None),
        chosen => chosen,
    }
}

/// Finds the `k` nearest of each observation as [`neighbors`](super::neighbors()) does, but from candidates: in any case if there is a `side`, the
/// number of observations of blocks and pieces. Returns them, and the number of observations that were searched again, where candidates suit.
#[cfg(test)]
pub(crate) fn found<T: Element>(
    (x, y): (&Tensor<T>, Option<&Tensor<T>>),
    k: u64,
    metric: super::Metric,
    options: &super::Options,
    side: Option<u64>,
) -> Result<Option<(Neighbors, usize)>> {
    let run = Run::default();
    super::members::with_members(Job::new(x, y, metric, options)?, (x, y), &run, |jobs| {
        let (measure, extents) = (&jobs.first().measure, jobs.first().extents().map(|extent| extent as u64));
        let by_distance = !measure.finds_nearest(extents, k);
        let found = match side {
            Some(side) if suits::<T>(measure, extents, k) => {
                let made = jobs.each(&run, 0, |_, job, run| Search::new(job, k, by_distance, run))?;
                let of_side = |search| Search { side, batch: side, ..search };
                let searches: Option<Vec<_>> = made.into_iter().map(|search| search.map(of_side)).collect();
                searches.map(|searches| choose_all(&jobs, searches, &run)).transpose()?
            }
            Some(_) => None,
            None => nearest(&jobs, k, by_distance, &run)?.map(|chosen| (chosen, 0)),
        };
        let with = |(chosen, again): (Chosen, usize)| Ok((chosen.into_neighbors(measure)?, again));
        found.map(with).transpose()
    })
}

/// Returns the number of candidates of an observation.
fn candidates(k: u64) -> u64 {
    (k + SPARE).next_multiple_of(MULTIPLE)
}

/// True if the distance is a function of the sum of squared differences in f32, for elements whose sums are of f32 on all devices.
fn suits<T: Element>(measure: &Measure, extents: [u64; 2], k: u64) -> bool {
    let Measure { options, terms, wide, factors, .. } = measure;
    let narrow = [DType::F32, DType::F16, DType::BF16, DType::U8, DType::I8].contains(&T::DTYPE);
    let plain = !wide && !options.columns && options.missing == Missing::Propagate;
    let square = terms[..] == [Term::Square] && factors[..] == [1.0];
    narrow && plain && square && measure.can_search(extents, candidates(k))
}

/// A search by candidates.
struct Search<'a, 'j, T: Element> {
    job: &'a Job<'j, T>,
    k: u64,
    by_distance: bool,
    operands: Operands,
    /// The number of observations along each side of a block of products.
    side: u64,
    /// The number of observations whose candidates are gathered at once.
    batch: u64,
}

impl<'a, 'j, T: Element> Search<'a, 'j, T> {
    /// Prepares the operands. Returns `None` if the memory budget has no room.
    fn new(job: &'a Job<'j, T>, k: u64, by_distance: bool, run: &Run) -> Result<Option<Self>> {
        let (measure, device) = (&job.measure, &job.measure.device);
        let ([m, n], count) = (job.extents().map(|extent| extent as u64), candidates(k));
        let (room, tile) = (device.limits().room(), u64::from(TILE));
        let on_host = device.shares_host_memory();
        let side = if on_host { most(device) } else { SIDE.min((room / 4).isqrt() / tile * tile) };
        // The candidates of a tile: their elements, or their sums with the observations of the tile.
        let of_tile = tile * count * (measure.features * T::DTYPE.size()).max(8 * tile);
        let tiles = (GATHERED[usize::from(on_host)].min(room) / of_tile.max(1)).clamp(1, m.div_ceil(tile));
        let needs = Operands::needs([m, n], measure.features, measure.is_self)
            + Selection::needs(m, m + n, count)
            // Another block, or batch, may begin before the memory of the previous one is free.
            + Needs::device(8) * side.min(m) * side.min(n)
            + Needs::device(4 * of_tile) * tiles
            // The candidates' products, indices and sums; then neighbors, and the results.
            + (Needs::host(20) * count + Needs::host(48) * k) * m;
        if of_tile > room || side == 0 || run.memory.fit(device, needs).is_err() {
            return Ok(None);
        }
        Ok(Some(Self { job, k, by_distance, operands: job.product_operands()?, side, batch: tiles * tile }))
    }

    /// True if few observations of a trial would be searched again. An observation is its own neighbor here.
    fn pays(&self, run: &Run) -> Result<bool> {
        let (m, tile) = (self.job.extents()[0] as u64, u64::from(TILE));
        let first = m / 2 / tile * tile;
        let lines = first..m.min(first + tile);
        let run = Run { progress: Progress::default(), ..run.clone() };
        let kept = self.keep(lines.clone(), &mut once(0..lines.end - lines.start), false, &run)?;
        let k = self.k + u64::from(self.job.measure.is_self);
        let (_, unproven) = self.decide(lines.clone(), (&kept.0, &kept.1), k, &run)?;
        Ok(unproven.len() * UNPROVEN <= to_usize(lines.end - lines.start))
    }

    /// Keeps candidates for some observations, or for parts of them: pairs of their products and 0, and their indices. If `is_self`, the
    /// observations are all, and none is its own candidate. Progress ends at three quarters of the rows.
    fn keep(
        &self,
        lines: Range<u64>,
        parts: &mut dyn Iterator<Item = Range<u64>>,
        is_self: bool,
        run: &Run,
    ) -> Result<Kept> {
        let (measure, n) = (&self.job.measure, self.job.extents()[1] as u64);
        let (device, count) = (&measure.device, lines.end - lines.start);
        let undefined = [
            &measure.undefined[0][to_usize(lines.start)..to_usize(lines.end)],
            &measure.undefined[usize::from(!measure.is_self)][..],
        ];
        let (shape, order) = ([count, candidates(self.k)], Order::FALLING);
        let mut selection = Selection::new(device, shape, order, SumForm::Plain, undefined, is_self)?;
        let (mut ends, mut status) = (Ends::new(device)?, Status::new(0, 1, count));
        let mut passed = 0;
        for rows in parts.flat_map(|part| pieces(part, self.side)) {
            for columns in pieces(0..if is_self { rows.end } else { n }, self.side) {
                run.cancel.check()?;
                let own = lines.start + rows.start..lines.start + rows.end;
                let products = self.operands.products(own, columns.clone(), false)?;
                selection.offer(&products, rows.clone(), columns, is_self)?;
                if let Some(done) = ends.enqueue(passed / 4 * 3)?
                    && done > status.rows
                {
                    status.rows = done;
                    run.progress.tell(status);
                }
            }
            passed += rows.end - rows.start;
        }
        let (products, numbers) = selection.into_tensors();
        Ok((products.read()?, numbers.read()?))
    }

    /// Chooses the `k` nearest of the candidates of each observation, by their exact sums. Returns them, and the observations that may have nearer
    /// ones.
    fn decide(
        &self,
        lines: Range<u64>,
        (products, numbers): (&[f32], &[u32]),
        k: u64,
        run: &Run,
    ) -> Result<(Vec<Candidate>, Vec<u64>)> {
        let (measure, count, k) = (&self.job.measure, to_usize(candidates(self.k)), to_usize(k));
        let sums = self.sums(&lines, numbers, run)?;
        let mut neighbors: Vec<Candidate> = zeros(to_usize(lines.end - lines.start) * k)?;
        let decide = |(i, (places, pairs)): (usize, (&mut [Candidate], &[[f32; 2]]))| {
            let (line, of_line) = (lines.start + i as u64, i * count..(i + 1) * count);
            let mut keys = vec![0.0; count];
            match self.by_distance {
                true => measure.finish_kept(pairs, &mut keys),
                false => keys.iter_mut().zip(pairs).for_each(|(key, pair)| *key = measure.key(pair)),
            }
            let all = keys.into_iter().zip(&numbers[of_line.clone()]).zip(pairs);
            let all = all.map(|((key, &number), &pair)| Candidate { key, number, pair });
            let largest = choose(all.collect(), places);
            let lowest = products[2 * (of_line.end - 1)].into();
            // Undefined observations are candidates only where too few others are, and have no product.
            (!self.operands.excludes(line, lowest, largest)).then_some(line)
        };
        let unproven = measure.device.pool()?.install(|| {
            let pairs = sums.as_chunks().0.par_chunks(count);
            neighbors.par_chunks_mut(k).zip(pairs).enumerate().filter_map(decide).collect()
        });
        Ok((neighbors, unproven))
    }

    /// Returns the exact sums of candidates, as pairs of f32. A launch pairs the observations of a tile with all candidates of these.
    fn sums(&self, lines: &Range<u64>, numbers: &[u32], run: &Run) -> Result<Vec<f32>> {
        let (measure, count, tile) = (&self.job.measure, candidates(self.k), u64::from(TILE));
        let ([x, y], device, options) = (self.job.operands(), &measure.device, &measure.options);
        let (width, total) = (tile * count, lines.end - lines.start);
        let mut out = zeros(2 * numbers.len())?;
        let (mut left, mut before): (_, Option<(&mut [f32], Pending<f32>)>) = (&mut out[..], None);
        for part in pieces(lines.clone(), self.batch) {
            run.cancel.check()?;
            let (rows, first) = (part.end - part.start, part.start - lines.start);
            let own = to_usize(first * count)..to_usize((first + rows) * count);
            let mut indices: Vec<u64> = numbers[own].iter().map(|&number| number.into()).collect();
            indices.resize(to_usize(rows.next_multiple_of(tile) * count), 0);
            let (elements, table) = (gather(y.x, &indices)?, gather(&y.table, &indices)?.into());
            let others = PreparedObservations::prepared(("y", &elements, 0), table, false, options)?;
            let (y, y_step) = ((&others, 0..width), width);
            let features = 0..measure.features;
            let mut sums = Tensor::empty(device, &[rows, 2 * width])?;
            let pairs = ObservationPairs { x: (x, part), y, features, accumulate: false, sums0: 0, y_step };
            pairs.add(Term::Square, 1.0, options, false, &mut sums)?;
            // A row of sums has those of all candidates of the tile.
            let of_lines: Vec<u64> = (0..rows).map(|row| row * tile + row % tile).collect();
            let pending = gather(&sums.reshape(&[rows * tile, 2 * count])?, &of_lines)?.download()?;
            let (places, rest) = take(&mut left).split_at_mut(to_usize(2 * rows * count));
            left = rest;
            if let Some((places, pending)) = before.replace((places, pending)) {
                places.copy_from_slice(&pending.wait()?);
                run.progress.tell(Status { rows: total / 4 * 3 + first / 4, ..Status::new(0, 1, total) });
            }
        }
        if let Some((places, pending)) = before {
            places.copy_from_slice(&pending.wait()?);
        }
        Ok(out)
    }
}

/// Finds the nearest of all observations. Returns them, and the number of observations that were searched again.
fn choose_all<T: Element>(
    jobs: &Jobs<'_, '_, T>,
    searches: Vec<Search<'_, '_, T>>,
    run: &Run,
) -> Result<(Chosen, usize)> {
    let (job, Search { k, by_distance, .. }) = (jobs.first(), &searches[0]);
    let (is_self, m, k, by_distance) = (job.measure.is_self, job.extents()[0] as u64, *k, *by_distance);
    let lists = jobs.each(run, m, |i, job, run| {
        let search = &searches[i];
        search.keep(0..m, &mut job.parts(0..m), is_self, run)
    })?;
    let count = candidates(k);
    let (products, numbers) =
        merged(&job.measure.device, lists, to_usize(count), |&[product, _]| -f64::from(product))?;
    let lines: Vec<_> = pieces(0..m, m.div_ceil(jobs.count()).max(1)).collect();
    let decided = jobs.each(run, m, |i, _, run| {
        let Some(lines) = lines.get(i) else { return Ok((Vec::new(), Vec::new())) };
        let own = to_usize(lines.start * count)..to_usize(lines.end * count);
        let kept = (&products[2 * own.start..2 * own.end], &numbers[own]);
        searches[i].decide(lines.clone(), kept, k, run)
    })?;
    // This frees the operands and the candidates.
    drop((searches, products, numbers));
    let k = to_usize(k);
    let mut decided = decided.into_iter();
    let (mut neighbors, mut unproven) = decided.next().unwrap_or_default();
    decided.for_each(|(more, lines)| {
        neighbors.extend(more);
        unproven.extend(lines);
    });
    if !unproven.is_empty() {
        let shares: Vec<&[u64]> = unproven.chunks(unproven.len().div_ceil(to_usize(jobs.count()))).collect();
        let again = jobs.each(run, m, |i, job, run| match shares.get(i) {
            Some(lines) => search_again(job, lines, (k, by_distance), run),
            None => Ok(Vec::new()),
        })?;
        let found = again.iter().flat_map(|found| found.chunks(k));
        for (&line, found) in unproven.iter().zip(found) {
            neighbors[to_usize(line) * k..][..k].copy_from_slice(found);
        }
    }
    run.progress.tell(Status { rows: m, ..Status::new(0, 1, m) });
    Ok((Chosen { neighbors, k, by_distance }, unproven.len()))
}

/// Searches the neighbors of some observations among all.
fn search_again<T: Element>(
    job: &Job<'_, T>,
    lines: &[u64],
    (k, by_distance): (usize, bool),
    run: &Run,
) -> Result<Vec<Candidate>> {
    let is_self = job.measure.is_self;
    let x = gather(job.operands()[0].x, lines)?;
    let again = job.of_lines(lines, &x)?;
    // Each may be its own neighbor.
    let wanted = k + usize::from(is_self);
    let run = Run { progress: Progress::default(), ..run.clone() };
    let all: Vec<Candidate> = if by_distance {
        let nearest = on_host(&again, wanted, &run)?.finish()?;
        let all = nearest.distances.data().iter().zip(nearest.indices);
        all.map(|(&key, number)| Candidate { key, number: small(number), pair: [0.0; 2] }).collect()
    } else {
        let (pairs, numbers) = select(&again, wanted as u64, Needs::device(x.bytes()), &run)?;
        let (pairs, numbers) = (pairs.read()?, numbers.read()?);
        let all = pairs.as_chunks().0.iter().zip(numbers);
        all.map(|(&pair, number)| Candidate { key: joined(&pair, false), number, pair }).collect()
    };
    let neighbors = lines.iter().zip(all.chunks(wanted)).flat_map(|(&line, all)| {
        let others = all.iter().filter(move |candidate| !is_self || u64::from(candidate.number) != line);
        others.take(k).copied()
    });
    Ok(neighbors.collect())
}
