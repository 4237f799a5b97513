//! Division of packed rows into parts that fit one launch.

use std::ops::Range;

use crate::{Limits, Result, extent::blocks, kernel::Grid, kernels::WG};

/// The part of the rows for one launch: whole rows, or some bytes of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StripPart {
    pub(super) rows: Range<u64>,
    /// The bytes of each row, on the side whose bytes are divided.
    pub(super) bytes: Range<u64>,
}

/// Rows to be divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strip {
    pub(super) rows: u64,
    /// The number of bytes of a row on the divided side.
    pub(super) bytes: u64,
    /// The row stride in bytes of the wider side.
    pub(super) widest: u64,
    /// The maximum number of bytes of another side for each byte of a row.
    pub(super) factor: u64,
}

/// The granularity in bytes for dividing a row.
const STEP: u64 = 64;

impl Strip {
    /// Returns the parts in order: as many rows as every side's binding and the grid hold, or pieces of single rows in multiples of [`STEP`]
    /// bytes if a row does not fit.
    pub(super) fn parts(&self, limits: &Limits) -> Vec<StripPart> {
        let written = u64::from(limits.groups_per_axis).saturating_pow(2).saturating_mul(u64::from(4 * WG));
        // Windows start up to an alignment early and end with a whole word; kernels count in u32.
        let room = limits.binding.min(u32::MAX.into()).min(written).saturating_sub(limits.alignment + 64);
        let rows = room / self.widest.max(1);
        if rows > 0 {
            let whole = |rows| StripPart { rows, bytes: 0..self.bytes };
            return blocks(self.rows, rows).map(whole).collect();
        }
        let step = (room / self.factor / STEP).max(1) * STEP;
        let of_row = |row| blocks(self.bytes, step).map(move |bytes| StripPart { rows: row..row + 1, bytes });
        (0..self.rows).flat_map(of_row).collect()
    }
}

/// Returns a grid with a group for each `WG` words up to byte `end` of the written window.
pub(super) fn grid(limits: &Limits, end: u64, work: u64) -> Result<Grid> {
    Grid::linear(end.div_ceil(u64::from(4 * WG)), limits.groups_per_axis, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    fn limits(binding: u64, groups_per_axis: u32) -> Limits {
        Limits { binding, groups_per_axis, alignment: 256, ..Device::cpu().limits().clone() }
    }

    #[test]
    fn rows_are_split_by_what_fits() {
        let rows = Strip { rows: 100, bytes: 250, widest: 1000, factor: 4 };
        let parts = rows.parts(&limits(16 << 10, 65_535));
        assert_eq!(parts.len(), 100_usize.div_ceil((16_384 - 320) / 1000));
        assert_eq!(parts[6], StripPart { rows: 96..100, bytes: 0..250 });
        // The grid is the limit here: 16 x 16 groups of 1 KiB.
        let parts = rows.parts(&limits(1 << 30, 16));
        assert_eq!(parts, [StripPart { rows: 0..100, bytes: 0..250 }]);
        assert_eq!(Strip { rows: 1000, ..rows }.parts(&limits(1 << 30, 16)).len(), 4);
    }

    #[test]
    fn long_rows_are_split_alone() {
        let rows = Strip { rows: 2, bytes: 5000, widest: 20_000, factor: 4 };
        let parts = rows.parts(&limits(16 << 10, 65_535));
        let of_row = |row| [0..3968, 3968..5000].map(|bytes| StripPart { rows: row..row + 1, bytes });
        assert_eq!(parts, [of_row(0), of_row(1)].concat());
    }
}
