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

/// For each column i and each j, sums of numbers for j's code over the rows in which i is missing.
#[derive(Debug)]
pub(crate) struct AbsentSums<const N: usize> {
    columns: u64,
    /// Where columns j before it are only taken with columns i from it on, and the other way round.
    split: Option<u64>,
    /// What each code counts, in each of the sums.
    numbers: [[u8; 4]; N],
    /// The columns j of a group, and the sums of the columns i with these.
    groups: Vec<(Range<u64>, [ColumnSums; N])>,
}

/// The sums on the host.
#[derive(Debug)]
pub(crate) struct Absent {
    /// The first column j of the second part, and the first column i of the first.
    split: usize,
    first: usize,
    /// (columns i, columns j) of the columns j before the split, and of the others.
    parts: [Matrix; 2],
}

impl Absent {
    /// The sum for column j over the rows in which column i is missing.
    pub(crate) fn sum(&self, i: usize, j: usize) -> f64 {
        let [before, behind] = &self.parts;
        match j.checked_sub(self.split) {
            None => before.row(i - self.first)[j],
            Some(j) => behind.row(i)[j],
        }
    }
}

impl<const N: usize> AbsentSums<N> {
    /// Sums over no rows. With a split, a multiple of 64, of the columns before it and those from it on alone.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(crate) fn new(
        device: &Device,
        columns: u64,
        split: Option<u64>,
        numbers: [[u8; 4]; N],
    ) -> Result<Self> {
        let groups = (0..columns).step_by(to_usize(COLUMNS)).map(|first| {
            let own = first..columns.min(first + COLUMNS);
            let (from, end) = match split {
                Some(split) if first < split => (split, columns),
                Some(split) => (0, split),
                None => (0, columns),
            };
            let of_group = [from / 16, first / 16];
            let sums = numbers.map(|_| ColumnSums::zeros_from(device, of_group, end, own.end - own.start));
            Ok((own, all(sums)?))
        });
        Ok(Self { columns, split, numbers, groups: groups.collect::<Result<_>>()? })
    }

    /// Bytes on the device, for so many pairs of columns i and j.
    pub(crate) fn device_bytes(pairs: u64) -> u64 {
        pairs.saturating_mul(8 * N as u64)
    }

    /// Adds these rows of `packed`. Enqueues; does not wait.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn add(&mut self, packed: &Tensor<u32>, rows: &[u64]) -> Result<()> {
        let step = most_rows(packed)?;
        for rows in rows.chunk_by(|a, b| a / step == b / step) {
            let batches = batches(packed.device(), self.columns, SETS, LIMBS);
            for (first, end) in batches.of((0, rows.len() as u64)) {
                self.add_batch(packed, &rows[to_usize(first)..to_usize(end)])?;
            }
        }
        Ok(())
    }

    /// The same of rows that stay near the processor.
    fn add_batch(&mut self, packed: &Tensor<u32>, rows: &[u64]) -> Result<()> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        let (device, count) = (packed.device(), rows.len() as u64);
        let gathered = |recode: Recode| {
            #[allow(clippy::cast_possible_truncation, reason = "below 2^24")]
            let order: Vec<u32> = rows.iter().map(|row| recode.of((row - first) as u32)).collect();
            packed_gather(packed, self.columns, *first..last + 1, &order)
        };
        let (left, right) = (gathered(ALONE)?, gathered(Recode::NOTHING)?);
        let tables = all(self.numbers.map(|numbers| {
            let entries = [0, 0, u32::from_le_bytes(numbers), 0].repeat(rows.len());
            Tensor::from_slice(device, &entries, &[count, SETS * LIMBS])
        }))?;
        // Products of codes alone read no means or factors.
        let factors = Tensor::<f32>::empty(device, &[0, 2])?;
        let left = PackedRows { packed: &left, table: &factors, range: (0, count), missing: true };
        device.each(&mut self.groups, |(own, sums)| {
            tables.iter().zip(sums).try_for_each(|(words, sums)| {
                let table = Table { words, first: 0, sets: SETS, limb_count: LIMBS };
                let limbs = packed_limbs(&right, left.range(), own.clone(), table)?;
                packed_adjoint(left, Weights { words: &limbs, limb_count: LIMBS, shift: 0 }, sums)
            })
        })
    }

    /// Waits: for each of the numbers.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn finish(self) -> Result<[Absent; N]> {
        let n = to_usize(self.columns);
        let split = self.split.map_or(n, to_usize);
        let first = self.split.map_or(0, to_usize);
        let mut finished = self.numbers.map(|_| Absent {
            split,
            first,
            parts: [Matrix::zeros(n - first, split), Matrix::zeros(split, n - split)],
        });
        for (own, sums) in self.groups {
            let own = to_usize(own.start)..to_usize(own.end);
            let part = usize::from(own.start >= split);
            let columns = own.start - part * split..own.end - part * split;
            for (Absent { parts, .. }, sums) in finished.iter_mut().zip(sums) {
                let (matrix, sums) = (&mut parts[part], sums.read()?);
                let width = matrix.cols();
                for (row, sums) in matrix.data_mut().chunks_mut(width).zip(sums.chunks(own.len())) {
                    row[columns.clone()].iter_mut().zip(sums).for_each(|(value, &sum)| *value = sum as f64);
                }
            }
        }
        Ok(finished)
    }
}

/// All of them, or the first error.
fn all<T, const N: usize>(results: [Result<T>; N]) -> Result<[T; N]> {
    let results = results.into_iter().collect::<Result<Vec<T>>>()?;
    results.try_into().map_err(|_| unreachable!("there should be as many"))
}
