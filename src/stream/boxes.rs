//! Boxes along an axis, and the pieces of chunks that each is made of.

use std::ops::Range;

use super::selection::Selection;

/// Axes of an array; those that it lacks have one element.
pub(crate) const AXES: usize = 5;

/// The axes but the first.
pub(super) const ACROSS: usize = AXES - 1;

/// The elements that a halo has beyond the ends of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edge {
    /// Nothing: a halo ends there.
    #[default]
    Clip,
    /// The other end: a halo longer than the axis has it several times. An axis without elements has no halo.
    Wrap,
}

/// Boxes along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Along {
    /// Elements of a box, but for the last, without its halo.
    pub size: u64,
    /// Elements of the halo before and after it; where it is wrapped, at most 1024 times the axis each.
    pub halo: [u64; 2],
    /// The elements that a halo has beyond the ends.
    pub edge: Edge,
    /// The first element that boxes hold without halos, and the end of them, which may be beyond the axis'.
    pub within: [u64; 2],
}

impl Along {
    /// Boxes of so many elements, without a halo.
    pub const fn each(size: u64) -> Self {
        Self { size, halo: [0; 2], edge: Edge::Clip, within: Self::ALL }
    }

    /// All elements of an axis, whatever its extent.
    pub const ALL: [u64; 2] = [0, u64::MAX];

    /// The number of boxes on `extent` elements.
    pub(super) fn count(&self, extent: u64) -> u64 {
        let [start, end] = self.within;
        end.min(extent).saturating_sub(start).div_ceil(self.size)
    }

    /// The elements of a box, without its halo.
    pub(super) fn core(&self, extent: u64, number: u64) -> Range<u64> {
        let [first, end] = self.within;
        let start = (first + number * self.size).min(extent);
        start..end.min(extent).min(start.saturating_add(self.size)).max(start)
    }

    /// Elements of the halo before and after the box `core`.
    pub(super) fn halo(&self, extent: u64, core: &Range<u64>) -> [u64; 2] {
        match self.edge {
            Edge::Wrap if extent > 0 => self.halo,
            _ => [self.halo[0].min(core.start), self.halo[1].min(extent - core.end)],
        }
    }

    /// The elements of a box with its halo, in order: one range, or some where it is wrapped.
    pub(super) fn spans(&self, extent: u64, core: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let [before, after] = self.halo(extent, core);
        let mut left = before + (core.end - core.start) + after;
        // A multiple of the extent that is no less than the halo.
        let mut at = (core.start + before.next_multiple_of(extent.max(1)) - before) % extent.max(1);
        std::iter::from_fn(move || {
            let span = at..extent.min(at.saturating_add(left));
            left -= span.end - span.start;
            at = 0;
            (!span.is_empty()).then_some(span)
        })
    }

    /// The maximum number of elements of a box with its halo.
    pub(super) fn most(&self, extent: u64) -> u64 {
        let size = self.size.min(extent);
        let [before, after] = self.halo;
        match self.edge {
            Edge::Wrap if extent > 0 => size.saturating_add(before).saturating_add(after),
            _ => {
                // The most of any box is not always that of the first or the last.
                let whole = size.saturating_add(before.min(extent)).saturating_add(after.min(extent));
                whole.min(extent)
            }
        }
    }
}

/// Neighbouring elements of a box along an axis that one chunk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The first of them in the box.
    pub(super) start: u64,
    pub(super) len: u64,
    /// The number of its chunk among the box's chunks along the axis.
    pub(super) chunk: usize,
    /// The first of them in the chunk.
    pub(super) from: u64,
}

/// The pieces that make a box along an axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    pub(super) pieces: Vec<Piece>,
    /// The chunks, by their index along the axis, in ascending order.
    pub(super) chunks: Vec<u64>,
}

impl Pieces {
    /// Cuts `spans` of the selected elements at the ends of chunks of `chunk` elements.
    pub(super) fn new(selection: &Selection, spans: impl Iterator<Item = Range<u64>>, chunk: u64) -> Self {
        let (mut cut, mut start) = (Vec::new(), 0);
        for range in spans.flat_map(|span| selection.places(span)) {
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min((at / chunk + 1).saturating_mul(chunk));
                cut.push((at / chunk, Piece { start, len: end - at, chunk: 0, from: at % chunk }));
                start += end - at;
                at = end;
            }
        }
        let mut chunks: Vec<u64> = cut.iter().map(|(chunk, _)| *chunk).collect();
        chunks.sort_unstable();
        chunks.dedup();
        let place = |(chunk, piece)| Piece { chunk: chunks.partition_point(|&other| other < chunk), ..piece };
        Self { pieces: cut.into_iter().map(place).collect(), chunks }
    }

    /// For each chunk the range from the first to the last of its elements in the box.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Option<Range<u64>>> = vec![None; self.chunks.len()];
        for &Piece { len, chunk, from, .. } in &self.pieces {
            let range = ranges[chunk].get_or_insert(from..from + len);
            *range = range.start.min(from)..range.end.max(from + len);
        }
        ranges.into_iter().flatten().collect()
    }

    /// Elements of the box.
    pub(super) fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.start + piece.len)
    }

    /// True where the box is all of one chunk of `chunk` elements.
    pub(super) fn is_whole(&self, chunk: u64) -> bool {
        matches!(&*self.pieces, [piece] if piece.from == 0 && piece.len == chunk)
    }

    /// The chunk that stores an element of the box, and the element's place in it.
    pub(super) fn find(&self, element: u64) -> [u64; 2] {
        let piece = &self.pieces[self.pieces.partition_point(|piece| piece.start + piece.len <= element)];
        [self.chunks[piece.chunk], piece.from + (element - piece.start)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_with_halos() {
        let spans = |along: Along, extent, number| -> Vec<[u64; 2]> {
            along.spans(extent, &along.core(extent, number)).map(|span| [span.start, span.end]).collect()
        };
        let of = |size, halo, edge| Along { halo, edge, ..Along::each(size) };
        let clip = of(4, [2, 3], Edge::Clip);
        assert_eq!([0, 1, 2].map(|i| spans(clip, 10, i)), [vec![[0, 7]], vec![[2, 10]], vec![[6, 10]]]);
        let wrap = of(4, [2, 3], Edge::Wrap);
        assert_eq!(spans(wrap, 10, 0), [[8, 10], [0, 7]]);
        assert_eq!(spans(wrap, 10, 1), [[2, 10], [0, 1]]);
        assert_eq!(spans(wrap, 10, 2), [[6, 10], [0, 3]]);
        // Several times.
        assert_eq!(spans(of(3, [7, 4], Edge::Wrap), 3, 0), [[2, 3], [0, 3], [0, 3], [0, 3], [0, 3], [0, 1]]);
        assert_eq!(spans(of(4, [u64::MAX, 9], Edge::Clip), 10, 1), [[0, 10]]);
        // Nothing goes around an axis without elements.
        assert_eq!((wrap.halo(0, &(0..0)), wrap.most(0)), ([0, 0], 0));
        // The most that any box has.
        for extent in 1..12 {
            for along in [clip, wrap, of(3, [0, 0], Edge::Clip), of(5, [9, 1], Edge::Clip)] {
                let len = |i| spans(along, extent, i).iter().map(|[start, end]| end - start).sum::<u64>();
                let most = (0..along.count(extent)).map(len).max().unwrap();
                assert!(most <= along.most(extent), "{along:?} {extent}");
            }
        }
    }

    #[test]
    fn pieces_of_selected_elements() {
        let selection = Selection::new("test", "columns", [1..3, 4..9, 11..12], 12).unwrap();
        // Their places: 1 2 4 5 6 7 8 11.
        let pieces = Pieces::new(&selection, [6..8, 0..5].into_iter(), 4);
        assert_eq!(pieces.chunks, [0, 1, 2]);
        let flat: Vec<_> = pieces.pieces.iter().map(|p| (p.start, p.len, p.chunk, p.from)).collect();
        assert_eq!(flat, [(0, 1, 2, 0), (1, 1, 2, 3), (2, 2, 0, 1), (4, 3, 1, 0)]);
        let found: Vec<u64> = (0..pieces.len()).map(|i| pieces.find(i)).map(|[c, at]| 4 * c + at).collect();
        assert_eq!(found, [8, 11, 1, 2, 4, 5, 6]);
    }
}
