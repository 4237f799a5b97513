//! The nearest observations of each, without a matrix of all distances.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use rayon::{ThreadPool, prelude::*};

use super::{
    Metric, Options,
    job::{DistanceBlock, Job, Measure},
    search::select,
    zeros,
};
use crate::{Device, Element, Error, Needs, Result, Run, Tensor, linalg::Matrix, tensor::Pending};

/// Distances that are held against their bounds at once.
const STRIP: usize = 64;

/// The nearest of each observation, nearest first.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Neighbors {
    /// (m, k) in C order: their numbers, from 0.
    pub indices: Vec<u64>,
    /// (m, k): how far they are.
    pub distances: Matrix,
}

impl Neighbors {
    /// [`indices`](Self::indices) as i64, as other programs store them; copies nothing.
    pub fn signed_indices(&self) -> &[i64] {
        bytemuck::cast_slice(&self.indices)
    }
}

/// The `k` nearest of the observations of `y` to each of `x`, or of the others of `x`. Waits.
///
/// Nearest first, and of equal distances the lower number first. The nearest by `inner_product`, which is a likeness, have the
/// largest. Distances that are NaN come last, so that there are always `k`.
///
/// # Shapes
/// As [`pairwise`](super::pairwise) -> (m, k) and (m, k), `k` from 1 to n, or to m - 1 without `y`.
///
/// # Accuracy
/// Distances are those of [`pairwise`](super::pairwise), to the last bit. A GPU finds the nearest by the sums that distances are made of,
/// where one sum is enough: where sums differ and their distances do not, the farthest of the `k` may be the one with the nearer sum. Else it
/// makes distances, and finds the nearest by these.
///
/// A GPU that does not [compute in f64](crate::Limits::f64) makes these in pairs of f32: of `braycurtis`, `jaccard` and `dice`; of `cosine`,
/// `correlation`, `hamming` and `russellrao` where elements may be missing; and all that are rescaled. They are within 2^-40 of those of
/// `pairwise`, or 2^-20 where a sum is below 2^-80, and 1/p times that by `minkowski` with p below 1. By `cosine` and `correlation` they are off
/// by as much more, and may be NaN, as [`pairwise_tensor`](super::pairwise_tensor) says. Of two that differ by less than that, either may come
/// first, but equal ratios of whole numbers below 2^24 are equal.
///
/// # Errors
/// [`Error::Argument`] for another `k`; else as [`pairwise`](super::pairwise), budgets being for what is below.
///
/// # Cost
/// That of [`pairwise`](super::pairwise), but on the host, instead of 8 bytes a pair, `32 k + 40` for each observation of `x`. A GPU finds
/// them itself, in `12 k + 4` bytes for each observation of `x` and 4 for each of `y`, and one block of sums; where one sum is not enough, in one
/// of each term and one of distances. Only what it finds crosses to the host; of a `k` above 256, the sums of all pairs do.
///
/// ```
/// use teatime::{Device, Run, Tensor, distance::{Metric, Options, neighbors}};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[0u8, 1, 3, 7], &[4, 1])?;
/// let nearest = neighbors(&x, None, 2, Metric::Euclidean, &Options::default(), &Run::default())?;
/// assert_eq!(nearest.indices, [1, 2, 0, 2, 1, 0, 2, 1]);
/// assert_eq!(nearest.distances.row(3), [4.0, 6.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn neighbors<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    k: usize,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Result<Neighbors> {
    let job = Job::new(x, y, metric, options)?;
    let [m, n] = job.extents();
    check_k(k, n as u64, y.is_none())?;
    // If the device's memory is the host's, the host finds them as fast.
    if !x.device().shares_host_memory() && job.measure.can_search([m as u64, n as u64], k as u64) {
        let (kept, numbers) = select(&job, k as u64, NearestSoFar::needs(m as u64, k as u64), run)?;
        return finished(&job.measure, kept.download()?, numbers.download()?, [m, k]);
    }
    on_host(&job, k, run)
}

/// The nearest, found on the host of blocks of sums.
///
/// # Errors
/// As [`neighbors`].
pub(super) fn on_host<T: Element>(job: &Job<'_, T>, k: usize, run: &Run) -> Result<Neighbors> {
    let ([m, _], measure) = (job.extents(), &job.measure);
    let side = measure.side(NearestSoFar::needs(m as u64, k as u64), &run.memory)?;
    let mut nearest = NearestSoFar::new(&measure.device, m, k, measure.metric == Metric::InnerProduct)?;
    job.each_block(side, run, |block| {
        // In this order the numbers that an observation is offered rise.
        nearest.take_block(block, (measure.is_self, measure.is_lower()));
    })?;
    nearest.finish()
}

/// The distances of the nearest, of the pairs and numbers that a device kept.
fn finished(
    measure: &Measure,
    kept: Pending<f32>,
    numbers: Pending<u32>,
    [m, k]: [usize; 2],
) -> Result<Neighbors> {
    let (kept, numbers) = (kept.wait()?, numbers.wait()?);
    let largest_first = measure.metric == Metric::InnerProduct;
    let count = m.saturating_mul(k);
    let (mut indices, mut distances) = (zeros(count)?, zeros(count)?);
    measure.device.pool()?.install(|| {
        let lines = kept.as_chunks().0.par_chunks(k).zip(numbers.par_chunks(k));
        let results = indices.par_chunks_mut(k).zip(distances.par_chunks_mut(k));
        lines.zip(results).for_each(|((kept, numbers), (indices, distances))| {
            measure.finish_kept(kept, distances);
            // Sums that differ may make the same distance.
            let mut line: Vec<_> = distances
                .iter()
                .zip(numbers)
                .map(|(&distance, &number)| Neighbor {
                    distance: if largest_first { -distance } else { distance },
                    number: number.into(),
                })
                .collect();
            line.sort_unstable();
            for ((index, distance), nearest) in indices.iter_mut().zip(distances).zip(line) {
                *index = nearest.number;
                *distance = if largest_first { -nearest.distance } else { nearest.distance };
            }
        });
    });
    Ok(Neighbors { indices, distances: Matrix::from_vec(distances, m, k)? })
}

/// # Errors
/// [`Error::Argument`] unless an observation has so many of `n`, or of the others of `n`.
pub(super) fn check_k(k: usize, n: u64, is_self: bool) -> Result<()> {
    let (most, others) = if is_self { (n.saturating_sub(1), "other ") } else { (n, "") };
    if k == 0 || k as u64 > most {
        let why = format_args!("{k} of {most} {others}observations: from 1 to as many");
        return Err(Error::argument("neighbors", "k", why));
    }
    Ok(())
}

fn lacking(bytes: u64, count: usize) -> Error {
    let requested = bytes.saturating_mul(count as u64);
    Error::OutOfHostMemory { what: "neighbors".into(), requested }
}

/// The nearest observations of each so far, of distances that come block by block.
///
/// ```
/// use teatime::{Device, distance::NearestSoFar, linalg::Matrix};
/// // Of 0, 1, 3 and 7: the first two from all, and then the others from themselves.
/// let mut so_far = NearestSoFar::new(&Device::cpu(), 4, 2, false)?;
/// let first = vec![0.0, 1.0, 1.0, 0.0, 3.0, 2.0, 7.0, 6.0];
/// so_far.offer(0, 0, Matrix::from_vec(first, 4, 2)?)?;
/// so_far.offer(2, 2, Matrix::from_vec(vec![0.0, 4.0, 4.0, 0.0], 2, 2)?)?;
/// let nearest = so_far.finish()?;
/// assert_eq!(nearest.indices, [1, 2, 0, 2, 1, 0, 2, 1]);
/// assert_eq!(nearest.distances.row(3), [4.0, 6.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct NearestSoFar {
    threads: Arc<ThreadPool>,
    nearest: Vec<Nearest>,
    k: usize,
    largest_first: bool,
}

impl NearestSoFar {
    /// The `k` nearest of each of so many observations, or those with the largest likeness; of none so far. The host's threads are
    /// those of `device`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a `k` of 0; [`Error::OutOfHostMemory`]; what starting threads reports.
    pub fn new(device: &Device, observations: usize, k: usize, largest_first: bool) -> Result<Self> {
        if k == 0 {
            return Err(Error::argument("NearestSoFar", "k", "0: at least 1"));
        }
        let mut nearest = Vec::new();
        let requested = size_of::<Nearest>() as u64;
        nearest.try_reserve_exact(observations).map_err(|_| lacking(requested, observations))?;
        for _ in 0..observations {
            nearest.push(Nearest::new(k)?);
        }
        Ok(Self { threads: device.pool()?.clone(), nearest, k, largest_first })
    }

    /// The memory of the results: a distance and an index for each of the nearest, twice, since they are sorted, and the facts of each observation.
    pub fn needs(observations: u64, k: u64) -> Needs {
        (Needs::host(32) * k + Needs::host(40)) * observations
    }

    /// Takes the distances of the observations from `row` on from those from `column` on, (rows, columns), and those of the second
    /// from the first, which are the same. What is on the diagonal and above is not read.
    ///
    /// Each pair has to be offered once, in this order: all blocks of lower columns first, and of those with the same columns the upper
    /// ones first.
    ///
    /// # Errors
    /// [`Error::Shape`] for more observations than there are; [`Error::Argument`] for columns beyond the last row, whose pairs would
    /// be lost.
    pub fn offer(&mut self, row: usize, column: usize, mut distances: Matrix) -> Result<()> {
        let (n, op) = (self.nearest.len(), "NearestSoFar::offer");
        let end = |start: usize, count: usize| start.checked_add(count).filter(|&end| end <= n);
        let ends = (end(row, distances.rows()), end(column, distances.cols()));
        let (Some(last), Some(end)) = ends else {
            let got = format!("({}, {}) from ({row}, {column}) on", distances.rows(), distances.cols());
            return Err(Error::shape(op, format_args!("distances of {n} observations"), got));
        };
        if end > last {
            let why = format_args!("{column} to {end}, of rows to {last}");
            return Err(Error::argument(op, "column", why));
        }
        let width = distances.cols();
        self.take([row, column], distances.data_mut(), width, (true, true));
        Ok(())
    }

    /// Takes the distances of the observations from `row` on from all of some others, (rows, others), of which the nearest are found
    /// then. Each observation has to be offered them once, and nothing else.
    ///
    /// # Errors
    /// [`Error::Shape`] for more observations than there are.
    pub fn offer_others(&mut self, row: usize, mut distances: Matrix) -> Result<()> {
        let (n, width) = (self.nearest.len(), distances.cols());
        if row.checked_add(distances.rows()).is_none_or(|end| end > n) {
            let expected = format_args!("distances of {n} observations");
            let got = format_args!("({}, {width}) from row {row} on", distances.rows());
            return Err(Error::shape("NearestSoFar::offer_others", expected, got));
        }
        self.take([row, 0], distances.data_mut(), width, (false, false));
        Ok(())
    }

    /// Takes a block, as [`take`](Self::take) does.
    pub(super) fn take_block(&mut self, block: &mut DistanceBlock, how: (bool, bool)) {
        let (starts, width) = ([block.rows.start, block.columns.start], block.columns.len());
        self.take(starts, &mut block.distances, width, how);
    }

    /// Takes the distances of a block that begins at `starts`. `is_self` says whether observations are taken with themselves, `is_lower`
    /// whether distances above the diagonal are those below: else columns are offered to rows alone.
    fn take(
        &mut self,
        starts: [usize; 2],
        block: &mut [f64],
        width: usize,
        (is_self, is_lower): (bool, bool),
    ) {
        let Self { threads, nearest, largest_first, .. } = self;
        if block.is_empty() {
            return;
        }
        threads.install(|| {
            if *largest_first {
                block.par_iter_mut().for_each(|distance| *distance = -*distance);
            }
            offer_columns(starts, block, width, nearest, (is_self, is_lower));
            if is_lower {
                offer_rows(starts, block, width, nearest);
            }
        });
    }

    /// The nearest of each, nearest first.
    ///
    /// # Errors
    /// [`Error::Argument`] where an observation was offered fewer than `k`; [`Error::OutOfHostMemory`].
    pub fn finish(self) -> Result<Neighbors> {
        let Self { nearest, k, largest_first, .. } = self;
        if let Some((number, few)) = nearest.iter().enumerate().find(|(_, nearest)| nearest.heap.len() < k) {
            let why = format_args!("observation {number} was offered {} of {k}", few.heap.len());
            return Err(Error::argument("NearestSoFar::finish", "self", why));
        }
        let m = nearest.len();
        let count = m.saturating_mul(k);
        let (mut indices, mut distances) = (Vec::new(), zeros(count)?);
        indices.try_reserve_exact(count).map_err(|_| lacking(8, count))?;
        for (own, distances) in nearest.into_iter().zip(distances.chunks_mut(k)) {
            for (neighbor, distance) in own.heap.into_sorted_vec().into_iter().zip(distances) {
                indices.push(neighbor.number);
                *distance = if largest_first { -neighbor.distance } else { neighbor.distance };
            }
        }
        Ok(Neighbors { indices, distances: Matrix::from_vec(distances, m, k)? })
    }
}

/// Offers the observations of a block's rows those of its columns, but themselves.
fn offer_columns(
    [start, first]: [usize; 2],
    block: &[f64],
    width: usize,
    nearest: &mut [Nearest],
    (is_self, is_lower): (bool, bool),
) {
    let rows = block.par_chunks(width).zip(&mut nearest[start..start + block.len() / width]);
    rows.enumerate().for_each(|(row, (distances, nearest))| {
        let row = start + row;
        // The diagonal is at this place of the row.
        let at = row.saturating_sub(first).min(width);
        let (before, after) = match (is_self, is_lower) {
            (false, _) => (distances, &[][..]),
            (true, true) => (&distances[..at], &[][..]),
            (true, false) if row < first => (&[][..], distances),
            (true, false) => (&distances[..at], distances.get(at + 1..).unwrap_or_default()),
        };
        nearest.offer_all(before, first);
        nearest.offer_all(after, first + width - after.len());
    });
}

/// Offers the observations of a block's columns those of its rows below the diagonal.
fn offer_rows([start, first]: [usize; 2], block: &[f64], width: usize, nearest: &mut [Nearest]) {
    nearest[first..first + width].par_chunks_mut(STRIP).enumerate().for_each(|(strip, nearest)| {
        let (at, first) = (strip * STRIP, first + strip * STRIP);
        let mut bounds: Vec<f64> = nearest.iter().map(|nearest| nearest.bound).collect();
        for (row, distances) in (start..).zip(block.chunks(width)) {
            let below = row.saturating_sub(first).min(nearest.len());
            let distances = &distances[at..at + below];
            let some =
                distances.iter().zip(&bounds).fold(false, |some, (&d, &bound)| some | is_within(d, bound));
            if some {
                for ((nearest, bound), &distance) in nearest.iter_mut().zip(&mut bounds).zip(distances) {
                    nearest.offer(distance, row);
                    *bound = nearest.bound;
                }
            }
        }
    });
}

/// True where a distance may be among the nearest, of which the farthest is at the bound; NaN may, and all may if the bound is NaN.
#[inline(always)]
fn is_within(distance: f64, bound: f64) -> bool {
    (distance < bound) | distance.is_nan() | bound.is_nan()
}

/// The nearest so far of one observation.
#[derive(Debug)]
struct Nearest {
    /// The farthest first.
    heap: BinaryHeap<Neighbor>,
    k: usize,
    /// The distance of the farthest; NaN while there are not enough.
    bound: f64,
}

impl Nearest {
    fn new(k: usize) -> Result<Self> {
        let mut heap = BinaryHeap::new();
        heap.try_reserve_exact(k).map_err(|_| lacking(16, k))?;
        Ok(Self { heap, k, bound: f64::NAN })
    }

    /// Offers observations with rising numbers.
    fn offer_all(&mut self, distances: &[f64], first: usize) {
        for (strip, distances) in distances.chunks(STRIP).enumerate() {
            let bound = self.bound;
            if distances.iter().fold(false, |some, &distance| some | is_within(distance, bound)) {
                let numbers = first + strip * STRIP..;
                distances.iter().zip(numbers).for_each(|(&distance, number)| self.offer(distance, number));
            }
        }
    }

    /// Offers an observation whose number is above those of all before: at the same distance as the farthest, it is farther.
    fn offer(&mut self, distance: f64, number: usize) {
        if !is_within(distance, self.bound) {
            return;
        }
        let offered = Neighbor { distance, number: number as u64 };
        if self.heap.len() < self.k {
            self.heap.push(offered);
        } else if let Some(mut farthest) = self.heap.peek_mut()
            && offered < *farthest
        {
            *farthest = offered;
        }
        if self.heap.len() == self.k {
            self.bound = self.heap.peek().map_or(f64::NAN, |farthest| farthest.distance);
        }
    }
}

/// Another observation: ordered by distance, NaN last, then by number.
#[derive(Clone, Copy, Debug)]
struct Neighbor {
    distance: f64,
    number: u64,
}

impl Ord for Neighbor {
    fn cmp(&self, other: &Self) -> Ordering {
        let [a, b] = [self.distance, other.distance];
        let by_distance = a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
        by_distance.then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Neighbor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Neighbor {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Neighbor {}
