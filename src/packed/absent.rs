//! Sums over rows of what columns have where others are missing.

use std::ops::Range;

use super::{
    adjoint::{ColumnSums, Weights, packed_adjoint},
    apply::PackedRows,
    gather::{most_rows, packed_gather},
    limbs::{Table, packed_limbs},
    pair_products::{COLUMNS, batches},
};
use crate::{
    Device, Result, Tensor,
    kernels::packed_gather::Recode,
    linalg::{Matrix, gram::to_usize},
};

/// Sets of limbs, of known codes and of missing ones, and limbs of each: the fewest that kernels take for missing codes.
const SETS: u64 = 2;
const LIMBS: u64 = 2;
/// Missing codes, as products take them, and nothing else.
const ALONE: Recode = Recode([0, 0, 0, 3]);

/// For each column i and each j, the sum of a number for j's code over the rows in which i is missing.
#[derive(Debug)]
pub(crate) struct AbsentSums {
    columns: u64,
    /// What each code counts.
    numbers: [u8; 4],
    /// The columns j of a group, and the sums of all i with these.
    groups: Vec<(Range<u64>, ColumnSums)>,
}

impl AbsentSums {
    /// Sums over no rows.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(crate) fn new(device: &Device, columns: u64, numbers: [u8; 4]) -> Result<Self> {
        let groups = (0..columns).step_by(to_usize(COLUMNS)).map(|first| {
            let own = first..columns.min(first + COLUMNS);
            let sums = ColumnSums::zeros(device, columns, own.end - own.start)?;
            Ok((own, sums))
        });
        Ok(Self { columns, numbers, groups: groups.collect::<Result<_>>()? })
    }

    /// Bytes on the device.
    pub(crate) fn device_bytes(columns: u64) -> u64 {
        columns.saturating_mul(columns).saturating_mul(8)
    }

    /// Adds these rows of `packed`. Enqueues; does not wait.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn add(&mut self, packed: &Tensor<u32>, rows: &[u64]) -> Result<()> {
        let device = packed.device();
        let step = most_rows(packed)?;
        for rows in rows.chunk_by(|a, b| a / step == b / step) {
            let (Some(first), Some(last)) = (rows.first(), rows.last()) else { break };
            let gathered = |recode: Recode| {
                #[allow(clippy::cast_possible_truncation, reason = "below 2^24")]
                let order: Vec<u32> = rows.iter().map(|row| recode.of((row - first) as u32)).collect();
                packed_gather(packed, self.columns, *first..last + 1, &order)
            };
            let (left, right) = (gathered(ALONE)?, gathered(Recode::NOTHING)?);
            let entries = [0, 0, u32::from_le_bytes(self.numbers), 0];
            let words =
                Tensor::from_slice(device, &entries.repeat(rows.len()), &[rows.len() as u64, SETS * LIMBS])?;
            // Products of codes alone read no means or factors.
            let factors = Tensor::<f32>::empty(device, &[0, 2])?;
            for range in batches(device, self.columns, SETS, LIMBS).of((0, rows.len() as u64)) {
                let of_batch = PackedRows { packed: &left, table: &factors, range, missing: true };
                let table = Table { words: &words, first: range.0, sets: SETS, limb_count: LIMBS };
                device.each(&mut self.groups, |(own, sums)| {
                    let limbs = packed_limbs(&right, of_batch.range(), own.clone(), table)?;
                    packed_adjoint(of_batch, Weights { words: &limbs, limb_count: LIMBS, shift: 0 }, sums)
                })?;
            }
        }
        Ok(())
    }

    /// Waits: (columns, columns), a row for each column that is missing.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn matrix(self) -> Result<Matrix> {
        let n = to_usize(self.columns);
        let mut matrix = Matrix::zeros(n, n);
        for (own, sums) in self.groups {
            let sums = sums.read()?;
            let own = to_usize(own.start)..to_usize(own.end);
            for (row, sums) in matrix.data_mut().chunks_mut(n).zip(sums.chunks(own.len())) {
                row[own.clone()].iter_mut().zip(sums).for_each(|(value, &sum)| *value = sum as f64);
            }
        }
        Ok(matrix)
    }
}
