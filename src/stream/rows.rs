//! Which rows of appended arrays take part.

use std::ops::Range;

use crate::{Error, Result};

/// Rows of a list of arrays, counted over all of them, in ascending order, and their numbers among themselves.
///
/// 16 bytes for each run of neighbouring rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Of each run, its first row and how many are selected before it.
    runs: Vec<[u64; 2]>,
    len: u64,
}

impl Rows {
    /// The first so many rows.
    pub(crate) fn all(rows: u64) -> Self {
        Self { runs: vec![[0, 0]], len: rows }
    }

    /// The rows of `ranges`, which are in ascending order; neighbouring ones become one run.
    ///
    /// # Errors
    /// [`Error::Argument`] for a range that starts before the end of the one before, or that ends beyond `rows`.
    pub(crate) fn new(
        op: &'static str,
        ranges: impl IntoIterator<Item = Range<u64>>,
        rows: u64,
    ) -> Result<Self> {
        let (mut runs, mut len, mut end) = (Vec::new(), 0, 0);
        for range in ranges {
            if range.end > rows || range.start < end || range.start > range.end {
                let why = format!(
                    "{range:?} after {end} of {rows}: ranges have to be in order and within the rows"
                );
                return Err(Error::argument(op, "rows", why));
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

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The row of that number, which is below [`len`](Self::len).
    pub(crate) fn row(&self, number: u64) -> u64 {
        let run = self.runs.partition_point(|[_, before]| *before <= number);
        let [first, before] = self.runs[run - 1];
        first + (number - before)
    }

    /// How many of them are before that row.
    pub(crate) fn before(&self, row: u64) -> u64 {
        let run = self.runs.partition_point(|[first, _]| *first <= row);
        let Some([first, before]) = run.checked_sub(1).map(|run| self.runs[run]) else { return 0 };
        let end = self.runs.get(run).map_or(self.len, |[_, before]| *before);
        end.min(before + (row - first))
    }

    /// The runs.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let ends = self.runs.iter().skip(1).map(|[_, before]| *before).chain([self.len]);
        self.runs.iter().zip(ends).map(|([first, before], end)| *first..first + (end - before))
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(self.runs.as_slice()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_numbers() {
        let rows = Rows::new("test", [2..4, 4..4, 4..5, 8..9, 11..14], 14).unwrap();
        assert_eq!(rows.runs.len(), 3);
        let selected: Vec<u64> = (0..rows.len()).map(|number| rows.row(number)).collect();
        assert_eq!(selected, [2, 3, 4, 8, 11, 12, 13]);
        assert_eq!(rows.ranges().collect::<Vec<_>>(), [2..5, 8..9, 11..14]);
        for row in 0..=14 {
            let before = selected.iter().filter(|&&other| other < row).count() as u64;
            assert_eq!(rows.before(row), before, "{row}");
        }
        let all = Rows::all(5);
        assert_eq!((all.len(), all.row(4), all.before(5)), (5, 4, 5));
        assert_eq!(Rows::new("test", [0..2, 2..5], 5).unwrap(), all);
        let none = Rows::new("test", [3..3, 4..4], 5).unwrap();
        assert_eq!((none.len(), none.before(5)), (0, 0));
    }

    #[test]
    fn ranges_out_of_order_are_refused() {
        #[allow(clippy::reversed_empty_ranges, reason = "it is one of the faults")]
        for ranges in [[0..1, 1..6], [2..4, 3..5], [3..4, 0..1], [0..0, 4..2]] {
            let error = Rows::new("test", ranges.clone(), 5);
            assert!(matches!(error, Err(Error::Argument { name: "rows", .. })), "{ranges:?}: {error:?}");
        }
    }
}
