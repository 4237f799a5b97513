//! Sums over rows of what columns have where others are missing.

use std::ops::Range;

use super::{
    adjoint::{ColumnSums, Weights, packed_adjoint},
    apply::PackedRows,
    gather::{most_rows, packed_gather},
    limbs::{Table, packed_limbs},
    pair_products::{COLUMNS, PairSet, batches},
};
use crate::{
    Device, Needs, Result, Tensor, extent::to_usize, kernels::packed_gather::Recode, linalg::Matrix,
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
    /// The columns j, and the columns i that these are taken with.
    parts: [PairBlock; 2],
    /// For each of the sums, the number that each code counts as.
    numbers: [[u8; 4]; N],
    /// The columns j of a group, and the sums of the columns i with these.
    groups: Vec<(Range<u64>, [ColumnSums; N])>,
}

/// Some columns j, and the columns i that these are taken with.
#[derive(Clone, Debug)]
struct PairBlock {
    j: Range<u64>,
    i: Range<u64>,
}

impl PairBlock {
    /// Both parts, in order of j: of all pairs that are wanted, each column where the other is missing.
    fn split(columns: u64, wanted: &PairSet) -> [Self; 2] {
        let [first, second] = match wanted {
            PairSet::From(own) => [own.clone(), own.end..columns],
            PairSet::Across(split) => [0..*split, *split..columns],
            PairSet::Diagonal => [0..0, 0..0],
        };
        let others = match wanted {
            // These have one another, too.
            PairSet::From(own) => own.start..columns,
            _ => second.clone(),
        };
        [Self { j: first.clone(), i: others }, Self { j: second, i: first }]
    }
}

/// The sums on the host.
#[derive(Debug)]
pub(crate) struct Absent {
    /// The two blocks of pairs of columns i and j, each with its sums.
    parts: [(PairBlock, Matrix); 2],
}

impl Absent {
    /// The sum for column j over the rows in which column i is missing.
    pub(crate) fn sum(&self, i: usize, j: usize) -> f64 {
        let [first, second] = &self.parts;
        let (part, matrix) = if (j as u64) < first.0.j.end { first } else { second };
        matrix.row(i - to_usize(part.i.start))[j - to_usize(part.j.start)]
    }
}

impl<const N: usize> AbsentSums<N> {
    /// Sums over no rows, of the pairs of columns that are wanted.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(crate) fn new(
        device: &Device,
        columns: u64,
        wanted: &PairSet,
        numbers: [[u8; 4]; N],
    ) -> Result<Self> {
        let parts = PairBlock::split(columns, wanted);
        let firsts = parts.iter().flat_map(|part| {
            part.j
                .clone()
                .step_by(to_usize(COLUMNS))
                .map(move |first| (first..part.j.end.min(first + COLUMNS), part))
        });
        let groups = firsts.map(|(own, part)| {
            let of_group = [part.i.start / 16, own.start / 16];
            let zeros = |_| ColumnSums::zeros_from(device, of_group, part.i.end, own.end - own.start);
            Ok((own.clone(), collected(numbers.map(zeros))?))
        });
        let groups = groups.collect::<Result<_>>()?;
        Ok(Self { columns, parts, numbers, groups })
    }

    /// The memory of the sums on the device, for so many pairs of columns i and j.
    pub(crate) fn needs(pairs: u64) -> Needs {
        Needs::device(8 * N as u64) * pairs
    }

    /// Adds these rows of `packed`. Enqueues; does not wait.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub(crate) fn add(&mut self, packed: &Tensor<u32>, rows: &[u64]) -> Result<()> {
        let step = most_rows(packed)?;
        for rows in rows.chunk_by(|a, b| a / step == b / step) {
            let batches = batches(packed.device(), self.columns, SETS, LIMBS);
            for (first, end) in batches.split((0, rows.len() as u64)) {
                self.add_batch(packed, &rows[to_usize(first)..to_usize(end)])?;
            }
        }
        Ok(())
    }

    /// Adds a batch of rows, which stays near the processor.
    fn add_batch(&mut self, packed: &Tensor<u32>, rows: &[u64]) -> Result<()> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        let (device, count) = (packed.device(), rows.len() as u64);
        let gathered = |recode: Recode| {
            #[allow(clippy::cast_possible_truncation, reason = "below 2^24")]
            let order: Vec<u32> = rows.iter().map(|row| recode.word((row - first) as u32)).collect();
            packed_gather(packed, self.columns, *first..last + 1, &order)
        };
        let (left, right) = (gathered(ALONE)?, gathered(Recode::NOTHING)?);
        let tables = collected(self.numbers.map(|numbers| {
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
    /// Any error that the device reports.
    pub(crate) fn finish(self) -> Result<[Absent; N]> {
        let zeros = |part: PairBlock| {
            let [rows, cols] = [&part.i, &part.j].map(|range| to_usize(range.end - range.start));
            (part, Matrix::zeros(rows, cols))
        };
        let mut finished = self.numbers.map(|_| Absent { parts: self.parts.clone().map(zeros) });
        for (own, sums) in self.groups {
            let which = usize::from(own.start >= self.parts[0].j.end);
            for (Absent { parts }, sums) in finished.iter_mut().zip(sums) {
                let ((part, matrix), sums) = (&mut parts[which], sums.read()?);
                let columns = to_usize(own.start - part.j.start)..to_usize(own.end - part.j.start);
                let width = matrix.cols();
                for (row, sums) in matrix.data_mut().chunks_mut(width).zip(sums.chunks(columns.len())) {
                    row[columns.clone()].iter_mut().zip(sums).for_each(|(value, &sum)| *value = sum as f64);
                }
            }
        }
        Ok(finished)
    }
}

/// All of them, or the first error.
fn collected<T, const N: usize>(results: [Result<T>; N]) -> Result<[T; N]> {
    let results = results.into_iter().collect::<Result<Vec<T>>>()?;
    results.try_into().map_err(|_| unreachable!("there should be as many"))
}
