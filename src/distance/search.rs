//! The nearest neighbors of each observation, found by a device: by the sums of one term, or by distances that the device computes from the sums
//! of all terms.

use std::ops::Range;

use super::{
    Missing,
    job::{Job, Measure},
    on_device::BlockSums,
    selection::{Order, Selection},
};
use crate::{
    Element, Needs, Result, Run, Tensor,
    dtype::joined,
    kernel::small,
    kernels::{
        distance::Term,
        finish_distance::{Formula, Params},
        nearest::SumForm,
    },
};

/// Finds the nearest neighbors of each observation on the device, with `taken` memory in use already. Returns the values by which they were
/// selected, (m, 2 k), and their indices, (m, k). Fails as [`neighbors`](super::neighbors()) does.
pub(super) fn select<T: Element>(
    job: &Job<'_, T>,
    k: u64,
    taken: Needs,
    run: &Run,
) -> Result<(Tensor<f32>, Tensor<u32>)> {
    let (measure, extents) = (&job.measure, job.extents().map(|extent| extent as u64));
    let [kept, pair] = measure.search_needs(extents, k);
    let side = measure.side_of(pair, kept + taken, &run.memory)?;
    let mut search = Search::new(measure, extents, k, side)?;
    let mut blocks = BlockSums::new(measure, measure.search_terms(), extents, side, run)?;
    blocks.each(job, &mut |sums, rows, columns| search.offer(sums, rows, columns))?;
    Ok(search.into_tensors())
}

/// A search for the nearest neighbors on the device, one block of pairs after another.
pub(super) struct Search<'a> {
    measure: &'a Measure,
    selection: Selection,
    /// The distances of a block, unless the order of neighbors is that of one sum.
    distances: Option<Tensor<f32>>,
}

impl<'a> Search<'a> {
    /// Takes the memory of the k nearest of n for each of m, and of the distances of a block of at most `side` along each side. Enqueues.
    pub(super) fn new(measure: &'a Measure, [m, n]: [u64; 2], k: u64, side: u64) -> Result<Self> {
        let (device, by_sums) = (&measure.device, measure.order_of_sums());
        let undefined = [0, usize::from(!measure.is_self)].map(|side| &measure.undefined[side][..]);
        let order = by_sums.unwrap_or_else(|| Order::of_distances(measure.metric));
        let (in_f64, is_self) = (measure.keeps_f64(), measure.is_self);
        let selection =
            Selection::new(device, [m, k], order, SumForm::from_wide(in_f64), undefined, is_self)?;
        let shape = [m.min(side), 2 * n.min(side)];
        let distances = if by_sums.is_none() { Some(Tensor::empty(device, &shape)?) } else { None };
        Ok(Self { measure, selection, distances })
    }

    /// Offers the pairs of a block, from the sums of [`search_terms`](Measure::search_terms). Enqueues.
    pub(super) fn offer(&mut self, sums: &Tensor<f32>, rows: Range<u64>, columns: Range<u64>) -> Result<()> {
        let Self { measure, selection, distances } = self;
        let pairs = match distances {
            Some(distances) => {
                measure.make_pairs(sums, [&rows, &columns], distances)?;
                distances
            }
            None => sums,
        };
        selection.offer(pairs, rows, columns, measure.is_lower())
    }

    /// Returns the values by which the nearest were selected, (m, 2 k), and their indices, (m, k).
    pub(super) fn into_tensors(self) -> (Tensor<f32>, Tensor<u32>) {
        self.selection.into_tensors()
    }
}

impl Measure {
    /// True if a device can find the k nearest neighbors for these numbers of observations.
    pub(super) fn can_search(&self, extents: [u64; 2], k: u64) -> bool {
        k <= Selection::MOST as u64 && extents.iter().all(|&n| n < u32::MAX.into())
    }

    /// True if the device finds the k nearest for the host. A device whose memory is the host's does not: the host finds them as fast.
    pub(super) fn finds_nearest(&self, extents: [u64; 2], k: u64) -> bool {
        !self.device.shares_host_memory() && self.can_search(extents, k)
    }

    /// Returns the memory of the kept neighbors, and that of a pair in a block, if a device finds the k nearest of n observations for each of m.
    pub(super) fn search_needs(&self, [m, n]: [u64; 2], k: u64) -> [Needs; 2] {
        // Their final distances take 4 bytes each.
        let kept = Selection::needs(m, m.saturating_add(n), k) + Needs::device(4) * m * k;
        // A pair takes the sum of one term, or the sums of all terms and the distance computed from them.
        let of_pair = if self.order_of_sums().is_some() { 8 } else { 8 * (self.terms.len() as u64 + 1) };
        [kept, Needs::device(of_pair)]
    }

    /// Returns the terms whose sums order neighbors.
    pub(super) fn search_terms(&self) -> &[Term] {
        if self.order_of_sums().is_some() { &self.terms[..1] } else { &self.terms }
    }

    /// Returns a value that is lower for a nearer neighbor, from a kept pair.
    pub(super) fn key(&self, pair: &[f32; 2]) -> f64 {
        let order = self.order_of_sums().unwrap_or_else(|| Order::of_distances(self.metric));
        order.key(joined(pair, self.keeps_f64()))
    }

    /// Returns the order by sums of the first term, or `None` if the nearest cannot be found by these sums alone.
    fn order_of_sums(&self) -> Option<Order> {
        Order::of_sums(self.metric, self.options.missing)
    }

    /// True if the kept pairs are sums, from which [`finish_kept`](Self::finish_kept) computes distances.
    fn keeps_sums(&self) -> bool {
        self.terms.len() == 1 || self.metric.is_of_sum()
    }

    /// True if the kept pairs are f64.
    fn keeps_f64(&self) -> bool {
        if self.order_of_sums().is_some() { self.wide } else { self.device.limits().f64 }
    }

    /// Enqueues the computation of the values by which neighbors are selected, from the sums of all terms of a block: distances, or rescaled
    /// sums if the distance is a function of one sum.
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

    /// Computes distances from kept pairs, NaN from a pair that is NaN.
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

    /// Computes distances from kept pairs on the device, as f32: (m, 2 k) -> (m, k). Enqueues; does not wait. Fails with
    /// [`Error::Limit`](crate::Error::Limit) when a row of pairs does not fit a binding; with what the device reports.
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
