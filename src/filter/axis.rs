//! An axis of a box: its extents, and the weights along it.

use std::ops::Range;

use super::taps::Taps;
use crate::extent::to_usize;

/// One axis of a box.
#[derive(Clone, Debug)]
pub(crate) struct BoxAxis {
    /// The extents of the input and of the output along the axis.
    pub(crate) n: u64,
    pub(crate) m: u64,
    /// The index in the input of the position of the first output.
    pub(crate) offset: u64,
    /// The weights; `None` if the axis is not filtered, in which case the output has the input's whole extent.
    pub(crate) taps: Option<Taps>,
}

impl BoxAxis {
    pub(crate) const fn whole(n: u64, taps: Option<Taps>) -> Self {
        Self { n, m: n, offset: 0, taps }
    }

    /// Returns the number of elements to either side that a sum along the axis covers.
    pub(super) fn radius(&self) -> u64 {
        self.taps.as_ref().map_or(0, Taps::radius)
    }

    /// Returns the number of weights of a sum along the axis; 0 if the axis is not filtered.
    pub(crate) fn weights(&self) -> u64 {
        self.taps.as_ref().map_or(0, |taps| taps.weights.len() as u64)
    }

    /// Returns the range of input elements that the sums of these outputs cover.
    pub(super) fn needed(&self, outputs: &Range<u64>) -> Range<u64> {
        let Some(taps) = &self.taps else { return outputs.clone() };
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let first = signed(outputs.start + self.offset) - signed(taps.radius());
        let end = signed(outputs.end + self.offset) + signed(taps.radius());
        let extent = to_usize(self.n);
        let sources = || (first..end).filter_map(|at| taps.edge.source(at, extent)).map(|at| at as u64);
        sources().min().unwrap_or(0)..sources().max().map_or(1, |last| last + 1)
    }
}
