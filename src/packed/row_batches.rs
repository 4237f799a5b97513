//! Batches of rows: both of two products are computed for one batch, before either goes on to the next batch.

use super::apply::pieces;
use crate::{
    Limits,
    kernels::packed_apply::{LARGE_TILE, at_once},
};

/// Batches of rows. A batch is small enough to stay in the cache between the two products, but large enough to fill the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBatches {
    rows: u64,
    /// Batch sizes are multiples of this number: the rows of a tile, or of a wave of tiles.
    unit: u64,
}

/// Returns the number of rows of a wave of the first product's large tiles, if the device is known, and otherwise of one tile.
pub(super) fn wave(limits: &Limits) -> u64 {
    u64::from(LARGE_TILE) * u64::from(at_once(limits.processor_memory) * limits.processors).max(1)
}

impl RowBatches {
    /// Creates batches of at least about `least` rows. A row takes `row_bytes` bytes, including the data that one product passes to the
    /// other.
    pub(crate) fn new(limits: &Limits, row_bytes: u64, least: u64) -> Self {
        let rows = (limits.step / row_bytes.max(1)).max(least).max(1);
        let wave = wave(limits);
        Self { rows, unit: if rows < wave { LARGE_TILE.into() } else { wave } }
    }

    /// Returns the parts of `first..end`, which are equal except for the last. They are whole tiles, or whole waves of tiles if the device is
    /// known and there are enough rows.
    pub(crate) fn split(self, (first, end): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
        let count = end.saturating_sub(first);
        let parts = ((count + self.rows / 2) / self.rows).max(1);
        let unit = if count < self.unit { LARGE_TILE.into() } else { self.unit };
        let each = count.div_ceil(parts);
        // Without waves, the last part is about as long as the other parts, since a short part would not fill the device.
        let rows = if unit > LARGE_TILE.into() {
            (each + unit / 2) / unit * unit
        } else {
            each.next_multiple_of(unit)
        };
        let rows = rows.max(unit);
        pieces(first..end, rows)
    }

    /// Returns the maximum number of rows of a part of `count` rows.
    pub(crate) fn longest(self, count: u64) -> u64 {
        (self.rows + self.rows / 2 + self.unit).min(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn parts_are_equal_and_none_is_longer_than_planned() {
        let limits = Limits { step: 1 << 20, ..Device::cpu().limits().clone() };
        for (row_bytes, least) in [(100, 512), (1000, 512), (1 << 18, 512), (1 << 18, 4096), (0, 0)] {
            let batches = RowBatches::new(&limits, row_bytes, least);
            for count in [0, 1, 255, 256, 700, 5000, 10_485, 15_000, 100_000, 3_000_000] {
                let parts: Vec<_> = batches.split((7, 7 + count)).collect();
                let mut next = 7;
                for &(first, end) in &parts {
                    assert!(first == next && first < end && end - first <= batches.longest(count));
                    next = end;
                }
                assert_eq!(next, 7 + count, "{count} rows of {row_bytes} bytes");
                let whole = parts.len().saturating_sub(1);
                for &(first, end) in &parts[..whole] {
                    assert!((end - first).is_multiple_of(LARGE_TILE.into()));
                    assert!(4 * (end - first) >= 3 * batches.rows.min(count));
                }
            }
        }
        // Parts are whole waves of a large device, if there are enough rows.
        let large = Limits { step: 3 << 30, processors: 132, processor_memory: 100 << 10, ..limits.clone() };
        let batches = RowBatches::new(&large, 5072, 512);
        for count in [1000, 67_584, 600_000, 1_000_000, 10_000_000] {
            let parts: Vec<_> = batches.split((0, count)).collect();
            assert_eq!(parts.last().unwrap().1, count);
            let whole = &parts[..parts.len() - 1];
            assert!(whole.iter().all(|(first, end)| (end - first).is_multiple_of(2 * 132 * 256)));
            assert!(parts.iter().all(|(first, end)| end - first <= batches.longest(count)));
        }
        // A batch has the rows that stay in the cache, or the rows that fill the device if these are more.
        assert_eq!(RowBatches::new(&limits, 1024, 512).rows, 1024);
        assert_eq!(RowBatches::new(&limits, 1 << 18, 512).rows, 512);
    }
}
