//! The search for the nearest on a device: by the sums of one term, or by distances that it makes of the sums of all.

use std::ops::Range;

use super::{
    Missing,
    job::{Job, Measure},
    on_device::each_block,
    selection::{Order, Selection},
};
#[cfg(doc)]
use crate::Error;
use crate::{
    Budget, Element, Needs, Result, Run, Tensor,
    dtype::joined,
    kernel::small,
    kernels::finish_distance::{Formula, Params},
};

/// Finds the nearest of each observation on the device, beside what is taken: gives the pairs (m, 2 k) that they were found by, and
/// their numbers (m, k).
///
/// # Errors
/// As [`neighbors`](super::neighbors()).
pub(super) fn select<T: Element>(
    job: &Job<'_, T>,
    k: u64,
    taken: Needs,
    run: &Run,
) -> Result<(Tensor<f32>, Tensor<u32>)> {
    let (measure, [m, n]) = (&job.measure, job.extents().map(|extent| extent as u64));
    let side = measure.search_side([m, n], k, taken, &run.memory)?;
    let (device, lower) = (&measure.device, measure.is_lower());
    let undefined = [0, usize::from(!measure.is_self)].map(|side| &measure.undefined[side][..]);
    let by_sums = measure.order_of_sums();
    let order = by_sums.unwrap_or_else(|| Order::of_distances(measure.metric));
    let (in_f64, is_self) = (measure.keeps_f64(), measure.is_self);
    let mut selection = Selection::new(device, [m, k], order, in_f64, undefined, is_self)?;
    if by_sums.is_some() {
        each_block(job, &measure.terms[..1], side, run, |sums, rows, columns| {
            selection.offer(sums, rows, columns, lower)
        })?;
    } else {
        let mut made = Tensor::empty(device, &[m.min(side), 2 * n.min(side)])?;
        each_block(job, &measure.terms, side, run, |sums, rows, columns| {
            measure.make_pairs(sums, [&rows, &columns], &mut made)?;
            selection.offer(&made, rows, columns, lower)
        })?;
    }
    Ok(selection.into_tensors())
}

impl Measure {
    /// True if a device can find the k nearest of so many observations among so many.
    pub(super) fn can_search(&self, extents: [u64; 2], k: u64) -> bool {
        k <= Selection::MOST as u64 && extents.iter().all(|&n| n < u32::MAX.into())
    }

    /// Tells how many observations are along each side of a block, where a device finds the k nearest of m observations among n, beside
    /// what is taken.
    ///
    /// # Errors
    /// As [`side`](Self::side).
    pub(super) fn search_side(
        &self,
        extents: [u64; 2],
        k: u64,
        taken: Needs,
        memory: &Budget,
    ) -> Result<u64> {
        let [kept, pair] = self.search_needs(extents, k);
        self.side_of(pair, kept + taken, memory)
    }

    /// The memory of the nearest, and of a pair, where a device finds the k nearest of m observations among n.
    pub(super) fn search_needs(&self, [m, n]: [u64; 2], k: u64) -> [Needs; 2] {
        // Their distances come last.
        let kept = Selection::needs(m, m.saturating_add(n), k) + Needs::device(4) * m * k;
        // A pair has the sum of one term, or those of all and what is made of them.
        let of_pair = if self.order_of_sums().is_some() { 8 } else { 8 * (self.terms.len() as u64 + 1) };
        [kept, Needs::device(of_pair)]
    }

    /// Gives the order by the sums of the first term, where the nearest are found by these alone.
    fn order_of_sums(&self) -> Option<Order> {
        Order::of_sums(self.metric, self.options.missing)
    }

    /// True where pairs that are kept are sums, of which [`finish_kept`](Self::finish_kept) makes distances.
    fn keeps_sums(&self) -> bool {
        self.terms.len() == 1 || self.metric.is_of_sum()
    }

    /// True where pairs that are kept are of f64.
    fn keeps_f64(&self) -> bool {
        if self.order_of_sums().is_some() { self.wide } else { self.device.limits().f64 }
    }

    /// Enqueues the pairs that the nearest are found by, of the sums of all terms of a block: distances, or rescaled sums where the distance
    /// is a function of one.
    fn make_pairs(
        &self,
        sums: &Tensor<f32>,
        [rows, columns]: [&Range<u64>; 2],
        out: &mut Tensor<f32>,
    ) -> Result<()> {
        let [height, width] = [rows, columns].map(|range| small(range.end - range.start));
        let least = rows.start.min(columns.start);
        let formula = match self.formula() {
            (Formula::Root | Formula::Power, _) => Formula::Plain,
            (formula, _) => formula,
        };
        let params = Params {
            rows: height,
            cols: width,
            term_step: height * width,
            row0: small(rows.start - least),
            col0: small(columns.start - least),
            lower: self.is_lower().into(),
            paired: 1,
            ..self.params(formula, 1.0)
        };
        self.finish_rows((sums, self.wide), out, &params)
    }

    /// Makes distances of pairs that were kept, NaN of one that is NaN.
    pub(super) fn finish_kept(&self, kept: &[[f32; 2]], distances: &mut [f64]) {
        let (is_sum, in_f64) = (self.keeps_sums(), self.keeps_f64());
        for (distance, pair) in distances.iter_mut().zip(kept) {
            let value = joined(pair, in_f64);
            *distance = if value.is_nan() {
                f64::NAN
            } else if is_sum {
                let sum = self.factors[0] * value;
                self.metric.distance(&[sum], self.features as f64, Missing::Propagate, 0.0)
            } else {
                value
            };
        }
    }

    /// Makes distances of kept pairs on the device, as f32: (m, 2 k) -> (m, k). Enqueues; does not wait.
    ///
    /// # Errors
    /// [`Error::Limit`] when a row of pairs does not fit a binding; what the device reports.
    pub(super) fn finish_kept_on_device(&self, kept: &Tensor<f32>) -> Result<Tensor<f32>> {
        let [m, width] = kept.matrix("distance")?;
        let mut out = Tensor::empty(&self.device, &[m, width / 2])?;
        let (formula, factor) = if self.keeps_sums() { self.formula() } else { (Formula::Plain, 1.0) };
        let params = Params {
            rows: small(m),
            cols: small(width / 2),
            terms: 1,
            missing: Missing::Propagate as u32,
            ..self.params(formula, factor)
        };
        self.finish_rows((kept, self.keeps_f64()), &mut out, &params)?;
        Ok(out)
    }
}
