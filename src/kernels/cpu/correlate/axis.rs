//! One axis of a box, and the input elements that a tap reads along it.

use std::ops::Range;

use super::Kind;
use crate::kernel::codes;

codes! {
    /// A rule for the elements beyond the ends of an axis, named as in scipy (so `Mirror` does not repeat the last element).
    pub(crate) enum Edge {
        /// `d c b a | a b c d | d c b a`
        Reflect,
        /// `d c b | a b c d | c b a`
        Mirror,
        /// `a a a | a b c d | d d d`
        Nearest,
        /// `b c d | a b c d | a b c`
        Wrap,
        /// `k k k | a b c d | k k k`
        Constant,
    }
}

impl Edge {
    /// Returns the index of the element, of at least one, that is used at a coordinate; `None` if the constant is used.
    pub(crate) fn source(self, at: i64, n: usize) -> Option<usize> {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        let source = match self {
            _ if (0..n).contains(&at) => at,
            Self::Reflect => {
                let at = at.rem_euclid(2 * n);
                at.min(2 * n - 1 - at)
            }
            Self::Mirror if n == 1 => 0,
            Self::Mirror => {
                let at = at.rem_euclid(2 * n - 2);
                at.min(2 * n - 2 - at)
            }
            Self::Nearest => at.clamp(0, n - 1),
            Self::Wrap => at.rem_euclid(n),
            Self::Constant => return None,
        };
        usize::try_from(source).ok()
    }
}

/// An axis, and the weights along the axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis<'a, R> {
    /// The extents of the input and of the output.
    pub(crate) n: usize,
    pub(crate) m: usize,
    /// The input's coordinate of the first output.
    pub(crate) offset: i64,
    /// The part of the input that is available: its start and its length.
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) edge: Edge,
    /// The value beyond the ends with [`Edge::Constant`].
    pub(crate) constant: R,
    /// The way to sum; `None` if nothing is summed along this axis. In that case input, output and the available part have the same extent.
    pub(crate) kind: Option<Kind>,
    pub(crate) weights: &'a [R],
}

/// The lines that some outputs along an axis need, and the place where each line is kept.
pub(super) struct Plan {
    /// The place of the line that each tap reads: for all taps of the first output, then for the last tap of each further output.
    pub(super) places: Vec<usize>,
    /// For each tap, the line to load into its place; `None` if the line is there already.
    pub(super) fills: Vec<Option<usize>>,
    /// The number of places; the last one holds the constant.
    pub(super) count: usize,
}

/// Elements of a line that are consecutive elements of the input, or all the constant.
pub(super) struct Part {
    pub(super) to: usize,
    pub(super) len: usize,
    /// The first element of the input; `None` for the constant.
    pub(super) from: Option<usize>,
}

impl<R: Default> Axis<'_, R> {
    /// Makes an axis along which nothing is summed.
    pub(crate) fn plain(n: usize) -> Self {
        let (edge, constant) = (Edge::Nearest, R::default());
        Self { n, m: n, offset: 0, first: 0, count: n, edge, constant, kind: None, weights: &[] }
    }

    pub(super) const fn radius(&self) -> usize {
        self.weights.len() / 2
    }

    /// Returns the indices of the elements that the taps of some outputs read.
    fn sources(&self, outputs: &Range<usize>) -> impl Iterator<Item = Option<usize>> {
        let taps = outputs.len() + 2 * self.radius();
        let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let first = signed(outputs.start) + self.offset - signed(self.radius());
        (0..signed(taps)).map(move |tap| self.edge.source(first + tap, self.n))
    }

    /// Plans the places so that a line stays from the first to the last group of `group` outputs that needs it.
    pub(super) fn plan(&self, outputs: &Range<usize>, group: usize) -> Plan {
        let taps = outputs.len() + 2 * self.radius();
        let (mut places, mut fills) = (Vec::with_capacity(taps), Vec::with_capacity(taps));
        // The source in each place, and the last tap that needs the source.
        let mut kept: Vec<(usize, usize)> = Vec::new();
        for (tap, source) in self.sources(outputs).enumerate() {
            let Some(source) = source else {
                places.push(usize::MAX);
                fills.push(None);
                continue;
            };
            let begun = tap.saturating_sub(2 * self.radius()) / group * group;
            let there = kept.iter().rposition(|&(other, _)| other == source);
            fills.push(there.is_none().then_some(source));
            let place =
                there.or_else(|| kept.iter().position(|&(_, last)| last < begun)).unwrap_or(kept.len());
            if place == kept.len() {
                kept.push((source, tap));
            }
            kept[place] = (source, tap);
            places.push(place);
        }
        let constant = kept.len();
        places.iter_mut().filter(|place| **place == usize::MAX).for_each(|place| *place = constant);
        Plan { places, fills, count: constant + 1 }
    }

    /// Returns the line of elements that the taps of some outputs read, in parts.
    pub(super) fn parts(&self, outputs: &Range<usize>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (to, from) in self.sources(outputs).enumerate() {
            match parts.last_mut() {
                Some(part) if from == part.from.map(|first| first + part.len) && from.is_some() => {
                    part.len += 1
                }
                Some(part) if from.is_none() && part.from.is_none() => part.len += 1,
                _ => parts.push(Part { to, len: 1, from }),
            }
        }
        parts
    }
}
