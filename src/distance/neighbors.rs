//! The nearest observations of each, without a matrix of all distances.

use std::{cmp::Ordering, collections::BinaryHeap};

use rayon::prelude::*;

use super::{
    Metric, Options,
    job::{Block, Job},
    zeros,
};
use crate::{Element, Error, Result, Run, Tensor, linalg::Matrix};

/// Distances that are held against their bounds at once.
const STRIP: usize = 64;

/// The nearest of each observation, nearest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbors {
    /// (m, k) in C order: their numbers, from 0.
    pub indices: Vec<u64>,
    /// (m, k): how far they are.
    pub distances: Matrix,
}

/// The `k` nearest of the observations of `y` to each of `x`, or of the others of `x`. Waits.
///
/// Nearest first, and of equal distances the lower number first. The nearest by `inner_product`, which is a likeness, have the
/// largest. Distances that are NaN come last, so that there are always `k`. Distances are those of [`pairwise`](super::pairwise),
/// to the last bit.
///
/// # Shapes
/// As [`pairwise`](super::pairwise) -> (m, k) and (m, k), `k` from 1 to n, or to m - 1 without `y`.
///
/// # Errors
/// [`Error::Argument`] for another `k`; else as [`pairwise`](super::pairwise), the budget of the host being for what is below.
///
/// # Cost
/// That of [`pairwise`](super::pairwise), but on the host, instead of 8 bytes a pair, `32 k + 40` for each observation of `x`.
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
    let (most, others) = if y.is_some() { (n, "") } else { (n.saturating_sub(1), "other ") };
    if k == 0 || k > most {
        let why = format_args!("{k} of {most} {others}observations: from 1 to as many");
        return Err(Error::argument("neighbors", "k", why));
    }
    // While they are found a distance and a number, then these again, sorted; and what is known of each observation.
    let numbers = (m as u64).saturating_mul((k as u64).saturating_mul(4).saturating_add(5));
    let side = job.side(numbers, &run.memory)?;
    let mut found = (0..m).map(|_| Nearest::of(k)).collect::<Result<Vec<_>>>()?;
    let pool = x.device().pool()?;
    let largest_first = metric == Metric::InnerProduct;
    job.each_block(side, run, |mut block| {
        if largest_first {
            block.distances.iter_mut().for_each(|distance| *distance = -*distance);
        }
        // In this order the numbers that an observation is offered rise.
        pool.install(|| {
            offer_columns(&block, &mut found, y.is_none(), job.is_lower());
            if job.is_lower() {
                offer_rows(&block, &mut found);
            }
        });
    })?;
    let (mut indices, mut distances) = (Vec::new(), zeros(m * k)?);
    indices.try_reserve_exact(m * k).map_err(|_| lacking(8, m * k))?;
    for (found, distances) in found.into_iter().zip(distances.chunks_mut(k)) {
        for (nearest, distance) in found.heap.into_sorted_vec().into_iter().zip(distances) {
            indices.push(nearest.number);
            *distance = if largest_first { -nearest.distance } else { nearest.distance };
        }
    }
    Ok(Neighbors { indices, distances: Matrix::from_vec(distances, m, k)? })
}

fn lacking(bytes: u64, count: usize) -> Error {
    let requested = bytes.saturating_mul(count as u64);
    Error::OutOfHostMemory { what: "neighbors".into(), requested }
}

/// Offers the observations of a block's rows those of its columns, but themselves.
fn offer_columns(block: &Block, found: &mut [Nearest], is_self: bool, is_lower: bool) {
    let (first, width) = (block.columns.start, block.columns.len());
    let rows = block.distances.par_chunks(width).zip(&mut found[block.rows.clone()]);
    rows.zip(block.rows.clone()).for_each(|((distances, found), row)| {
        // Where the diagonal is.
        let at = row.saturating_sub(first).min(width);
        let (before, after) = match (is_self, is_lower) {
            (false, _) => (distances, &[][..]),
            (true, true) => (&distances[..at], &[][..]),
            (true, false) if row < first => (&[][..], distances),
            (true, false) => (&distances[..at], distances.get(at + 1..).unwrap_or_default()),
        };
        found.offer_all(before, first);
        found.offer_all(after, first + width - after.len());
    });
}

/// Offers the observations of a block's columns those of its rows below the diagonal.
fn offer_rows(block: &Block, found: &mut [Nearest]) {
    let width = block.columns.len();
    found[block.columns.clone()].par_chunks_mut(STRIP).enumerate().for_each(|(strip, found)| {
        let (at, first) = (strip * STRIP, block.columns.start + strip * STRIP);
        let mut bounds: Vec<f64> = found.iter().map(|found| found.bound).collect();
        for (row, distances) in block.rows.clone().zip(block.distances.chunks(width)) {
            let below = row.saturating_sub(first).min(found.len());
            let distances = &distances[at..at + below];
            let some =
                distances.iter().zip(&bounds).fold(false, |some, (&d, &bound)| some | is_within(d, bound));
            if some {
                for ((found, bound), &distance) in found.iter_mut().zip(&mut bounds).zip(distances) {
                    found.offer(distance, row);
                    *bound = found.bound;
                }
            }
        }
    });
}

/// Whether a distance may be among the nearest, of which the farthest is at the bound; NaN may, and all may if the bound is NaN.
#[inline(always)]
fn is_within(distance: f64, bound: f64) -> bool {
    (distance < bound) | distance.is_nan() | bound.is_nan()
}

/// The nearest so far of one observation.
struct Nearest {
    /// The farthest first.
    heap: BinaryHeap<Neighbor>,
    k: usize,
    /// The distance of the farthest; NaN while there are not enough.
    bound: f64,
}

impl Nearest {
    fn of(k: usize) -> Result<Self> {
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
#[derive(Clone, Copy)]
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
