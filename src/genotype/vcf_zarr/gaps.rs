//! What of a column is not there, and whether it may have been left out.

use std::collections::BTreeMap;

use super::values::{utf8, utf32, whole};
use crate::store::zarr::{Element, Metadata};

/// What a string is that nobody knows, as in VCF.
pub(super) const UNKNOWN: &str = ".";

/// Which chunks, and inner chunks of shards, a writer may have left out, since they hold nothing but the fill value. Others are
/// lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// None: names of samples and contigs, and positions, are never all alike.
    Lost,
    /// Those of strings nobody knows, where that is the fill value.
    Unknown,
    /// The same of alternate alleles: few variants have none.
    Alternate,
    /// The same of all alleles, but for what holds the first of each row: a reference allele is always known.
    BeyondFirst,
    /// Those of indices, where the fill value is below this.
    Index(u64),
}

impl Absent {
    /// The fill value as a number, 0 for a string nobody knows, where writers may leave out chunks of nothing else.
    pub(super) fn fill(self, metadata: &Metadata) -> Option<i64> {
        let fill = metadata.fill.as_slice();
        let text = match metadata.element {
            Element::Number(dtype) => {
                let Self::Index(end) = self else { return None };
                return whole(fill, dtype)
                    .ok()
                    .filter(|&index| u64::try_from(index).is_ok_and(|index| index < end));
            }
            Element::Text | Element::Utf8 { .. } => utf8(fill).ok()?.to_owned(),
            Element::Utf32 { .. } => {
                let mut text = String::new();
                utf32(fill, &mut text).ok()?;
                text
            }
        };
        let unknown = matches!(self, Self::Unknown | Self::Alternate | Self::BeyondFirst);
        (unknown && ["", UNKNOWN].contains(&text.as_str())).then_some(0)
    }

    /// Whether that goes for what starts at this column of the array.
    pub(super) fn allows(self, column: u64) -> bool {
        self != Self::BeyondFirst || column > 0
    }
}

/// Chunks, and inner chunks of shards, that were not there and were filled.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    pub(super) filled: u64,
    /// The last chunk that lacked something: each counts once where they come in order.
    last: Option<Vec<u64>>,
    /// By the column of the array that they start at: whether some were filled, and whether others are there.
    columns: BTreeMap<u64, [bool; 2]>,
    /// What was filled cannot have held anything else, if the numbers never decrease.
    pub(super) certain: bool,
    /// What was filled is not where it would be if it had held that.
    pub(super) misplaced: bool,
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
    pub(super) fn are_doubtful(&self, absent: Absent) -> bool {
        let some = self.columns.values().any(|[filled, there]| *filled && *there);
        match absent {
            Absent::Lost | Absent::Unknown => some,
            // The second allele is the first alternate one.
            Absent::Alternate | Absent::BeyondFirst => {
                some || self.columns.range(..=1).any(|(_, [filled, _])| *filled)
            }
            Absent::Index(_) => self.misplaced || (some && !self.certain),
        }
    }
}
