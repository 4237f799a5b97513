//! Boxes along an axis, and the pieces of chunks that each is made of.

use std::ops::Range;

use super::selection::Selection;
use crate::{Error, Result};

/// The number of axes that the code handles; axes that an array lacks have one element.
pub(crate) const AXES: usize = 5;

/// The number of axes without the first.
pub(super) const ACROSS: usize = AXES - 1;

/// The maximum number of times that a halo wraps around an axis, since each wrap is processed separately.
const MAX_WRAPS: u64 = 1 << 10;

/// The elements of a halo beyond the ends of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Beyond {
    /// The halo has no elements beyond the ends.
    #[default]
    Clip,
    /// The halo continues at the other end, repeatedly if it is longer than the axis. An axis without elements has no halo.
    Wrap,
}

/// The division of an axis into boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Along {
    /// The number of elements of a box without its halo; the last box may have fewer.
    pub size: u64,
    /// The number of elements of the halo before and after the box; with `Beyond::Wrap`, each is at most 1024 times the axis.
    pub halo: [u64; 2],
    /// The elements of a halo beyond the ends of the axis.
    pub beyond: Beyond,
    /// The first element that is in a box's core, and the element after the last, which may lie beyond the axis.
    pub within: [u64; 2],
}

impl Along {
    /// Divides an axis into boxes of `size` elements, without halos.
    pub const fn each(size: u64) -> Self {
        Self { size, halo: [0; 2], beyond: Beyond::Clip, within: Self::ALL }
    }

    /// The range of all elements of an axis, whatever its extent.
    pub const ALL: [u64; 2] = [0, u64::MAX];

    /// Returns the number of boxes on an axis of `extent` elements.
    pub(super) fn count(&self, extent: u64) -> u64 {
        let [start, end] = self.within;
        end.min(extent).saturating_sub(start).div_ceil(self.size)
    }

    /// Returns the elements of a box without its halo.
    pub(super) fn core(&self, extent: u64, number: u64) -> Range<u64> {
        let [first, end] = self.within;
        let start = (first + number * self.size).min(extent);
        start..end.min(extent).min(start.saturating_add(self.size)).max(start)
    }

    /// Returns the number of elements of the halo before and after the box `core`.
    pub(super) fn halo(&self, extent: u64, core: &Range<u64>) -> [u64; 2] {
        match self.beyond {
            Beyond::Wrap if extent > 0 => self.halo,
            _ => [self.halo[0].min(core.start), self.halo[1].min(extent - core.end)],
        }
    }

    /// Returns the elements of a box with its halo, in order: one range, or several if the halo wraps around.
    pub(super) fn spans(&self, extent: u64, core: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let [before, after] = self.halo(extent, core);
        let mut left = before + (core.end - core.start) + after;
        // Adding a multiple of the extent that is at least `before` keeps the difference from being negative.
        let mut at = (core.start + before.next_multiple_of(extent.max(1)) - before) % extent.max(1);
        std::iter::from_fn(move || {
            let span = at..extent.min(at.saturating_add(left));
            left -= span.end - span.start;
            at = 0;
            (!span.is_empty()).then_some(span)
        })
    }

    /// Returns an upper bound on the number of elements of a box with its halo.
    pub(super) fn most(&self, extent: u64) -> u64 {
        let size = self.size.min(extent);
        let [before, after] = self.halo;
        match self.beyond {
            Beyond::Wrap if extent > 0 => size.saturating_add(before).saturating_add(after),
            _ => {
                // The largest box is not always the first or the last.
                let whole = size.saturating_add(before.min(extent)).saturating_add(after.min(extent));
                whole.min(extent)
            }
        }
    }
}

/// Consecutive elements of a box along an axis that lie in the same chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The index in the box of the piece's first element.
    pub(super) start: u64,
    pub(super) len: u64,
    /// The index of the piece's chunk among the box's chunks along the axis.
    pub(super) chunk: usize,
    /// The index in the chunk of the piece's first element.
    pub(super) from: u64,
}

/// The pieces that a box consists of along an axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    pub(super) pieces: Vec<Piece>,
    /// The indices of the chunks along the axis, in ascending order.
    pub(super) chunks: Vec<u64>,
}

impl Pieces {
    /// Cuts `spans`, given as indices of selected elements, at the ends of chunks of `chunk` elements.
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

    /// Returns, for each chunk, the range from the first to the last of its elements that are in the box.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Option<Range<u64>>> = vec![None; self.chunks.len()];
        for &Piece { len, chunk, from, .. } in &self.pieces {
            let range = ranges[chunk].get_or_insert(from..from + len);
            *range = range.start.min(from)..range.end.max(from + len);
        }
        ranges.into_iter().flatten().collect()
    }

    /// Returns the number of elements of the box.
    pub(super) fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.start + piece.len)
    }

    /// True if the box is exactly one whole chunk of `chunk` elements.
    pub(super) fn is_whole(&self, chunk: u64) -> bool {
        matches!(&*self.pieces, [piece] if piece.from == 0 && piece.len == chunk)
    }

    /// Returns the index of the chunk that stores an element of the box, and the element's index in that chunk.
    pub(super) fn find(&self, element: u64) -> [u64; 2] {
        let piece = &self.pieces[self.pieces.partition_point(|piece| piece.start + piece.len <= element)];
        [self.chunks[piece.chunk], piece.from + (element - piece.start)]
    }
}

/// Returns the boxes along every axis.
pub(super) fn along_axes(
    op: &'static str,
    given: &[Along],
    axes: usize,
    extents: [u64; AXES],
) -> Result<[Along; AXES]> {
    let refuse = |why: String| Err(Error::argument(op, "boxes", why));
    if given.len() > axes {
        return refuse(format!("of {} axes, and the arrays have {axes}", given.len()));
    }
    let along: [Along; AXES] = std::array::from_fn(|axis| {
        given.get(axis).copied().unwrap_or_else(|| Along::each(extents[axis].max(1)))
    });
    let mut elements = 1u64;
    for (axis, (along, extent)) in along.iter().zip(extents).enumerate() {
        if along.size == 0 {
            return refuse(format!("have no elements along axis {axis}"));
        }
        if along.within[0] > along.within[1] {
            return refuse(format!(
                "lie within {:?} along axis {axis}, which ends before it begins",
                along.within
            ));
        }
        let wraps = along.halo.iter().any(|&halo| halo > extent.saturating_mul(MAX_WRAPS));
        if along.beyond == Beyond::Wrap && extent > 0 && wraps {
            let halo = along.halo;
            return refuse(format!(
                "have a halo of {halo:?} along axis {axis}: more than {MAX_WRAPS} times its {extent} elements"
            ));
        }
        let most = along.most(extent);
        match elements.checked_mul(most.max(1)).filter(|_| most < 1 << 62) {
            Some(product) => elements = product,
            None => return refuse(format!("of {along:?} along axis {axis} have 2^64 elements")),
        }
    }
    Ok(along)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_with_halos() {
        let spans = |along: Along, extent, number| -> Vec<[u64; 2]> {
            along.spans(extent, &along.core(extent, number)).map(|span| [span.start, span.end]).collect()
        };
        let of = |size, halo, beyond| Along { halo, beyond, ..Along::each(size) };
        let clip = of(4, [2, 3], Beyond::Clip);
        assert_eq!([0, 1, 2].map(|i| spans(clip, 10, i)), [vec![[0, 7]], vec![[2, 10]], vec![[6, 10]]]);
        let wrap = of(4, [2, 3], Beyond::Wrap);
        assert_eq!(spans(wrap, 10, 0), [[8, 10], [0, 7]]);
        assert_eq!(spans(wrap, 10, 1), [[2, 10], [0, 1]]);
        assert_eq!(spans(wrap, 10, 2), [[6, 10], [0, 3]]);
        // A halo that wraps several times.
        let wrapped = spans(of(3, [7, 4], Beyond::Wrap), 3, 0);
        assert_eq!(wrapped, [[2, 3], [0, 3], [0, 3], [0, 3], [0, 3], [0, 1]]);
        assert_eq!(spans(of(4, [u64::MAX, 9], Beyond::Clip), 10, 1), [[0, 10]]);
        // An axis without elements has no halo, even with `Wrap`.
        assert_eq!((wrap.halo(0, &(0..0)), wrap.most(0)), ([0, 0], 0));
        // `most` is an upper bound for every box.
        for extent in 1..12 {
            for along in [clip, wrap, of(3, [0, 0], Beyond::Clip), of(5, [9, 1], Beyond::Clip)] {
                let len = |i| spans(along, extent, i).iter().map(|[start, end]| end - start).sum::<u64>();
                let most = (0..along.count(extent)).map(len).max().unwrap();
                assert!(most <= along.most(extent), "{along:?} {extent}");
            }
        }
    }

    #[test]
    fn pieces_of_selected_elements() {
        let selection = Selection::new("test", "columns", [1..3, 4..9, 11..12], 12).unwrap();
        // The selected indices are 1 2 4 5 6 7 8 11.
        let pieces = Pieces::new(&selection, [6..8, 0..5].into_iter(), 4);
        assert_eq!(pieces.chunks, [0, 1, 2]);
        let flat: Vec<_> = pieces.pieces.iter().map(|p| (p.start, p.len, p.chunk, p.from)).collect();
        assert_eq!(flat, [(0, 1, 2, 0), (1, 1, 2, 3), (2, 2, 0, 1), (4, 3, 1, 0)]);
        let found: Vec<u64> = (0..pieces.len()).map(|i| pieces.find(i)).map(|[c, at]| 4 * c + at).collect();
        assert_eq!(found, [8, 11, 1, 2, 4, 5, 6]);
    }
}
