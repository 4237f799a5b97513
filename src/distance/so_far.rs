//! The nearest neighbors of each observation so far, from blocks of distances, and the result that they become.

use std::{
    cmp::Ordering,
    collections::BinaryHeap,
    fmt::Display,
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use rayon::{ThreadPool, prelude::*};

use super::{
    Metric,
    job::{DistanceBlock, Job, Measure},
    results::zeros,
};
#[cfg(feature = "zarr")]
use crate::store::NewStore;
use crate::{Device, Element, Error, Needs, Result, Run, extent::to_usize, linalg::Matrix, store::write_npy};

/// The number of distances that are compared with their bounds at once.
const STRIP: usize = 64;

/// The nearest neighbors of each observation, nearest first.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Neighbors {
    /// (m, k) in C order: the neighbors' indices, from 0.
    pub indices: Vec<u64>,
    /// (m, k): the distances.
    pub distances: Matrix,
}

impl Neighbors {
    /// Returns [`indices`](Self::indices) as i64, the type in which other programs store them, without a copy.
    pub fn signed_indices(&self) -> &[i64] {
        bytemuck::cast_slice(&self.indices)
    }

    /// Writes two .npy files, both (m, k): the distances in f64, and the indices in i64. Each appears whole and replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_npy(&self, distances: impl AsRef<Path>, indices: impl AsRef<Path>) -> Result<()> {
        self.distances.write_npy(distances)?;
        write_npy(indices, self.signed_indices(), [self.distances.rows(), self.distances.cols()])
    }

    /// Writes a table: a header line (the word `observation`, then `rank`, `neighbor` and `distance`), and a line for each neighbor of each
    /// observation; the nearest has rank 1. `names` are those of observations and of neighbors by their index, and `text` formats a distance.
    ///
    /// # Errors
    /// Fails as `to` does.
    pub fn write_table<N: Display>(
        &self,
        to: &mut dyn Write,
        observation: &str,
        names: [&dyn Fn(usize) -> N; 2],
        text: impl Fn(f64) -> String,
    ) -> io::Result<()> {
        let ([name, neighbor], k) = (names, self.distances.cols());
        writeln!(to, "{observation}\trank\tneighbor\tdistance")?;
        let mut pairs = self.indices.iter().zip(self.distances.data()).enumerate();
        pairs.try_for_each(|(at, (&index, &distance))| {
            let (name, neighbor) = (name(at / k), neighbor(to_usize(index)));
            writeln!(to, "{name}\t{}\t{neighbor}\t{}", at % k + 1, text(distance))
        })
    }

    /// Writes two arrays of a store, with the axes `axis` and `neighbors`: `neighbor`, the indices in i64, and `distance` in f64.
    ///
    /// # Errors
    /// [`Error::Io`].
    #[cfg(feature = "zarr")]
    pub fn write_zarr(&self, store: &NewStore, axis: &str) -> Result<()> {
        let (axes, shape) = ([axis, "neighbors"], [self.distances.rows(), self.distances.cols()]);
        store.put_matrix("neighbor", axes, self.signed_indices(), shape, |number| number)?;
        store.put_matrix("distance", axes, self.distances.data(), shape, |distance| distance)
    }
}

/// Finds the nearest on the host, from blocks of sums. Fails as [`neighbors`](super::neighbors()) does.
pub(super) fn on_host<T: Element>(job: &Job<'_, T>, k: usize, run: &Run) -> Result<NearestSoFar> {
    let ([m, _], measure) = (job.extents(), &job.measure);
    let side = measure.side(NearestSoFar::needs(m as u64, k as u64), &run.memory)?;
    let mut nearest = NearestSoFar::new(&measure.device, m, k, measure.metric == Metric::InnerProduct)?;
    job.each_block(side, run, &mut |block| {
        // In this order, each observation is offered increasing indices.
        nearest.take_block(block, (measure.is_self, measure.is_lower()));
    })?;
    Ok(nearest)
}

/// Computes the distances of the nearest of m observations from kept values and indices.
pub(super) fn sorted(
    measure: &Measure,
    (kept, numbers): (&[f32], &[u32]),
    [m, k]: [usize; 2],
) -> Result<Neighbors> {
    let largest_first = measure.metric == Metric::InnerProduct;
    let count = m.saturating_mul(k);
    let (mut indices, mut distances) = (zeros(count)?, zeros(count)?);
    measure.device.pool()?.install(|| {
        let lines = kept.as_chunks().0.par_chunks(k).zip(numbers.par_chunks(k));
        let results = indices.par_chunks_mut(k).zip(distances.par_chunks_mut(k));
        lines.zip(results).for_each(|((kept, numbers), (indices, distances))| {
            measure.finish_kept(kept, distances);
            // Different sums may give the same distance, so ties are sorted again.
            let neighbor = |(&distance, &number): (&f64, &u32)| Neighbor {
                distance: if largest_first { -distance } else { distance },
                number: number.into(),
            };
            let mut line: Vec<_> = distances.iter().zip(numbers).map(neighbor).collect();
            line.sort_unstable();
            for ((index, distance), nearest) in indices.iter_mut().zip(distances).zip(line) {
                *index = nearest.number;
                *distance = if largest_first { -nearest.distance } else { nearest.distance };
            }
        });
    });
    Ok(Neighbors { indices, distances: Matrix::from_vec(distances, m, k)? })
}

fn lacking(bytes: u64, count: usize) -> Error {
    let requested = bytes.saturating_mul(count as u64);
    Error::OutOfHostMemory { what: "neighbors".into(), requested }
}

/// The nearest neighbors of each observation so far, from distances that arrive block by block.
///
/// ```
/// use teatime::{Device, distance::NearestSoFar, linalg::Matrix};
/// // The observations are 0, 1, 3 and 7. First come the distances of all to 0 and 1, then those of 3 and 7 to each other.
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
    /// Creates empty lists of the `k` nearest for each observation, or of the `k` largest values if `largest_first`. Uses the host threads of
    /// `device`.
    ///
    /// # Errors
    /// [`Error::Argument`] if `k` is 0; [`Error::OutOfHostMemory`]; errors from starting threads.
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

    /// Returns the memory of the results: a distance and an index for each neighbor, twice for sorting, and a constant for each observation.
    pub fn needs(observations: u64, k: u64) -> Needs {
        let [lists, results] = Self::lists_and_results(observations, k);
        lists + results
    }

    /// Returns the memory of the lists, and that of the results that [`finish`](Self::finish) makes of them.
    pub(super) fn lists_and_results(observations: u64, k: u64) -> [Needs; 2] {
        [(Needs::host(16) * k + Needs::host(40)) * observations, Needs::host(16) * k * observations]
    }

    /// Takes the distances between observations from `row` on and observations from `column` on, (rows, columns). Each distance counts for both
    /// observations. Values on the diagonal and above are not read.
    ///
    /// Each pair must be offered once, in this order: blocks of lower columns first, and among blocks of the same columns, those of lower rows
    /// first.
    ///
    /// # Errors
    /// [`Error::Shape`] for more observations than there are; [`Error::Argument`] for columns beyond the last row, whose pairs would be lost.
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

    /// Takes the distances from the observations from `row` on to all observations of another set, (rows, others), among which the nearest are
    /// found. Each observation must be offered the others once, and nothing else.
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

    /// Returns the nearest of what members found, each among other pairs of the same observations. Fails as [`finish`](Self::finish) does.
    pub(super) fn finish_all(mut found: Vec<Self>) -> Result<Neighbors> {
        let mut nearest = found.swap_remove(0);
        for other in found {
            let both = nearest.nearest.par_iter_mut().zip(other.nearest);
            let offer = |(own, other): (&mut Nearest, Nearest)| {
                other.heap.into_iter().for_each(|neighbor| own.offer_any(neighbor));
            };
            nearest.threads.install(|| both.for_each(offer));
        }
        nearest.finish()
    }

    pub(super) fn take_block(&mut self, block: &mut DistanceBlock, how: (bool, bool)) {
        let (starts, width) = ([block.rows.start, block.columns.start], block.columns.len());
        self.take(starts, &mut block.distances, width, how);
    }

    /// Takes the distances of a block that begins at `starts`. `is_self` says that observations are paired with themselves. `is_lower` says that
    /// distances above the diagonal mirror those below; otherwise columns are only offered to rows.
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

    /// Returns the nearest neighbors of each observation, nearest first.
    ///
    /// # Errors
    /// [`Error::Argument`] if an observation was offered fewer than `k`; [`Error::OutOfHostMemory`].
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

/// Offers a block's columns to its rows, except each observation to itself.
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
        // The position of the diagonal in this row.
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

/// Offers a block's rows to its columns, below the diagonal.
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

/// True if a distance may be among the nearest, given the farthest kept distance. NaN distances may be, and with a NaN bound all may be.
#[inline(always)]
fn is_within(distance: f64, bound: f64) -> bool {
    (distance < bound) | distance.is_nan() | bound.is_nan()
}

/// The nearest neighbors so far of one observation.
#[derive(Debug)]
struct Nearest {
    /// The farthest neighbor is on top.
    heap: BinaryHeap<Neighbor>,
    k: usize,
    /// The distance of the farthest neighbor; NaN while there are fewer than k.
    bound: f64,
}

impl Nearest {
    fn new(k: usize) -> Result<Self> {
        let mut heap = BinaryHeap::new();
        heap.try_reserve_exact(k).map_err(|_| lacking(16, k))?;
        Ok(Self { heap, k, bound: f64::NAN })
    }

    /// Offers observations with consecutive indices from `first` on.
    fn offer_all(&mut self, distances: &[f64], first: usize) {
        for (strip, distances) in distances.chunks(STRIP).enumerate() {
            let bound = self.bound;
            if distances.iter().fold(false, |some, &distance| some | is_within(distance, bound)) {
                let numbers = first + strip * STRIP..;
                distances.iter().zip(numbers).for_each(|(&distance, number)| self.offer(distance, number));
            }
        }
    }

    /// Offers an observation whose index is above all earlier ones. At equal distance, it ranks behind the farthest.
    fn offer(&mut self, distance: f64, number: usize) {
        if !is_within(distance, self.bound) {
            return;
        }
        self.offer_any(Neighbor { distance, number: number as u64 });
    }

    /// Offers any other observation.
    fn offer_any(&mut self, offered: Neighbor) {
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

/// A neighbor, ordered by distance (NaN last), then by index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbor {
    pub(super) distance: f64,
    pub(super) number: u64,
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
