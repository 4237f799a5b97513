//! Selections of rows or columns.

use std::ops::Range;

use crate::{Error, Result};

/// Selected positions along an axis, in ascending order, and the index of each among the selected ones.
///
/// Takes 16 bytes for each run of consecutive positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The first position of each run, and the number of selected positions before the run.
    runs: Vec<[u64; 2]>,
    len: u64,
}

impl Selection {
    /// Selects the first `len` positions.
    pub fn all(len: u64) -> Self {
        Self { runs: vec![[0, 0]], len }
    }

    /// Selects the positions in `ranges`, which are in ascending order; adjacent ranges become one run. Errors name `op`, the operation
    /// that received the ranges, and `name`, its argument.
    ///
    /// # Errors
    /// [`Error::Argument`] for a range that starts before the end of the previous range, or that ends beyond `extent`.
    pub fn new(
        op: &'static str,
        name: &'static str,
        ranges: impl IntoIterator<Item = Range<u64>>,
        extent: u64,
    ) -> Result<Self> {
        let (mut runs, mut len, mut end) = (Vec::new(), 0, 0);
        for range in ranges {
            if range.end > extent || range.start < end || range.start > range.end {
                let why = format!(
                    "{range:?} after {end} of {extent}: ranges have to be in order and within the {name}"
                );
                return Err(Error::argument(op, name, why));
            }
            if range.is_empty() {
                continue;
            }
            if range.start > end || runs.is_empty() {
                runs.push([range.start, len]);
            }
            len += range.end - range.start;
            end = range.end;
        }
        Ok(Self { runs, len })
    }

    /// True if no position is selected.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of selected positions.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the selected position with index `number`.
    ///
    /// # Panics
    /// When `number` is not below [`len`](Self::len).
    pub fn place(&self, number: u64) -> u64 {
        assert!(number < self.len, "number {number} of {} that are selected", self.len);
        let run = self.runs.partition_point(|[_, before]| *before <= number);
        let [first, before] = self.runs[run - 1];
        first + (number - before)
    }

    /// Returns the position after the last selected one; 0 if none is selected.
    pub(super) fn end(&self) -> u64 {
        self.ranges().last().map_or(0, |range| range.end)
    }

    /// Returns the number of selected positions before `place`.
    pub fn before(&self, place: u64) -> u64 {
        let run = self.runs.partition_point(|[first, _]| *first <= place);
        let Some([first, before]) = run.checked_sub(1).map(|run| self.runs[run]) else { return 0 };
        let end = self.runs.get(run).map_or(self.len, |[_, before]| *before);
        end.min(before + (place - first))
    }

    /// Returns the runs of consecutive selected positions.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let ends = self.runs.iter().skip(1).map(|[_, before]| *before).chain([self.len]);
        self.runs.iter().zip(ends).map(|([first, before], end)| *first..first + (end - before))
    }

    /// Returns the selected positions with indices in `numbers`, as ranges; indices from [`len`](Self::len) on are ignored.
    pub fn places(&self, numbers: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let run = self.runs.partition_point(|[_, before]| *before <= numbers.start).saturating_sub(1);
        let runs = self.runs[run.min(self.runs.len())..].iter().enumerate();
        runs.map_while(move |(i, [first, before])| {
            let end = self.runs.get(run + i + 1).map_or(self.len, |[_, before]| *before);
            let numbers = numbers.start.max(*before)..numbers.end.min(end);
            (!numbers.is_empty()).then(|| first + (numbers.start - before)..first + (numbers.end - before))
        })
    }

    /// Returns the bytes of memory that the selection takes.
    pub fn bytes(&self) -> u64 {
        size_of_val(self.runs.as_slice()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_numbers() {
        let rows = Selection::new("test", "rows", [2..4, 4..4, 4..5, 8..9, 11..14], 14).unwrap();
        assert_eq!(rows.runs.len(), 3);
        let selected: Vec<u64> = (0..rows.len()).map(|number| rows.place(number)).collect();
        assert_eq!(selected, [2, 3, 4, 8, 11, 12, 13]);
        assert_eq!(rows.ranges().collect::<Vec<_>>(), [2..5, 8..9, 11..14]);
        for row in 0..=14 {
            let before = selected.iter().filter(|&&other| other < row).count() as u64;
            assert_eq!(rows.before(row), before, "{row}");
        }
        for (start, end) in (0..=7usize).flat_map(|start| (start..=7).map(move |end| (start, end))) {
            let places: Vec<u64> = rows.places(start as u64..end as u64).flatten().collect();
            assert_eq!(places, selected[start..end], "{start}..{end}");
        }
        let all = Selection::all(5);
        assert_eq!((all.len(), all.place(4), all.before(5)), (5, 4, 5));
        assert_eq!(Selection::new("test", "rows", [0..2, 2..5], 5).unwrap(), all);
        let none = Selection::new("test", "rows", [3..3, 4..4], 5).unwrap();
        assert_eq!((none.len(), none.before(5)), (0, 0));
    }

    #[test]
    fn places_of_what_is_not_selected() {
        let none = Selection::new("test", "rows", [3..3, 4..4], 5).unwrap();
        let some = Selection::new("test", "rows", [1..2, 2..3], 5).unwrap();
        assert_eq!((none.end(), some.end(), Selection::all(5).end()), (0, 3, 5));
        for (selection, number) in [(none, 0), (Selection::all(0), 0), (some, 2)] {
            assert_eq!(selection.places(number..9).count(), 0);
            assert!(std::panic::catch_unwind(|| selection.place(number)).is_err(), "{selection:?} {number}");
        }
    }

    #[test]
    fn ranges_out_of_order_are_refused() {
        #[allow(clippy::reversed_empty_ranges, reason = "it is one of the faults")]
        for ranges in [[0..1, 1..6], [2..4, 3..5], [3..4, 0..1], [0..0, 4..2]] {
            let error = Selection::new("test", "rows", ranges.clone(), 5);
            assert!(matches!(error, Err(Error::Argument { name: "rows", .. })), "{ranges:?}: {error:?}");
        }
    }
}
