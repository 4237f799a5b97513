//! Chunks of a column that are not there, and whether they may have been left out.

use std::collections::BTreeMap;

use super::{
    super::metadata::{Element, Metadata},
    values::{Fill, utf8, utf32, whole},
};

/// Which chunks, and inner chunks of shards, of a [`Column`](super::Column) a writer may have left out, since they hold nothing
/// but the fill value. They are read as the fill value; others that are not there are lost, which is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOut {
    /// None: rows are never all alike.
    Never,
    /// Those of strings, where the fill value is one of `fill`, and that start at column `from` of the array or beyond.
    Strings {
        /// Strings that whole chunks may hold.
        fill: &'static [&'static str],
        /// The first column of the array of which chunks may be left out: 0 for all.
        from: u64,
    },
    /// Those of integers, where the fill value is at least 0 and below this.
    Below(u64),
}

impl LeftOut {
    /// The fill value, where writers may leave out chunks of nothing else.
    pub(super) fn fill(self, metadata: &Metadata) -> Option<Fill> {
        let stored = metadata.fill.as_slice();
        let text = match metadata.element {
            Element::Number(dtype) => {
                let Self::Below(end) = self else { return None };
                let number = whole(stored, dtype).ok()?;
                return u64::try_from(number).is_ok_and(|n| n < end).then_some(Fill::Whole(number));
            }
            Element::Text | Element::Utf8 { .. } => utf8(stored).ok()?.to_owned(),
            Element::Utf32 { .. } => {
                let mut text = String::new();
                utf32(stored, &mut text).ok()?;
                text
            }
        };
        let Self::Strings { fill, .. } = self else { return None };
        fill.iter().find(|&&fill| fill == text).map(|fill| Fill::Text(fill))
    }

    /// Whether that goes for what starts at this column of the array.
    pub(super) fn allows(self, column: u64) -> bool {
        !matches!(self, Self::Strings { from, .. } if column < from)
    }
}

/// Chunks, and inner chunks of shards, that were not there and were filled.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    pub(super) filled: u64,
    /// The last chunk that lacked something: each counts once where they come in order.
    last: Option<Vec<u64>>,
    /// By the column of the array that they start at: whether some were filled, and whether others are there.
    pub(super) columns: BTreeMap<u64, [bool; 2]>,
    /// What was filled cannot have held anything else, if the numbers never decrease.
    pub(super) certain: bool,
}

impl Gaps {
    /// Notes what of a chunk might be lacking: each with the column that it starts at, and how many were
    /// filled, 0 for what is there.
    pub(super) fn add(&mut self, chunk: &[u64], parts: impl IntoIterator<Item = (u64, u64)>) {
        let counts = self.last.as_deref() < Some(chunk);
        for (column, filled) in parts {
            self.columns.entry(column).or_default()[usize::from(filled == 0)] = true;
            if filled > 0 && counts {
                self.filled += filled;
                self.last = Some(chunk.to_vec());
            }
        }
    }

    /// Whether what was filled might have held something else, for all that the rest says.
    pub(super) fn are_doubtful(&self) -> bool {
        !self.certain && self.columns.values().any(|[filled, there]| *filled && *there)
    }
}
