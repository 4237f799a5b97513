//! For pairs of columns, sums over the rows in which one of the columns is missing.

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

/// The sets of limbs, for known and for missing codes, and the limbs of each set: the fewest that kernels take for missing codes.
const SETS: u64 = 2;
const LIMBS: u64 = 2;
/// Missing codes, in the form that products take. All other codes become 0.
const ALONE: Recode = Recode([0, 0, 0, 3]);

/// For each column i and each column j, the sums of numbers for j's code over the rows in which i is missing.
#[derive(Debug)]
pub(crate) struct AbsentSums<const N: usize> {
    columns: u64,
    /// Two blocks of pairs of columns j and i.
    parts: [PairBlock; 2],
    /// The number that each code counts as, for each of the N sums.
    numbers: [[u8; 4]; N],
    /// The columns j of each group, and their sums with the columns i.
    groups: Vec<(Range<u64>, [ColumnSums; N])>,
}

/// A block of pairs: some columns j, and the columns i with which each of them is paired.
#[derive(Clone, Debug)]
struct PairBlock {
    j: Range<u64>,
    i: Range<u64>,
}

impl PairBlock {
    /// Returns both blocks, in order of j. For each wanted pair, they hold each column as j with the other as i.
    fn split(columns: u64, wanted: &PairSet) -> [Self; 2] {
        let [first, second] = match wanted {
            PairSet::From(own) => [own.clone(), own.end..columns],
            PairSet::Across(split) => [0..*split, *split..columns],
            PairSet::Diagonal => [0..0, 0..0],
        };
        let others = match wanted {
            // The columns of `own` are paired with one another, too.
            PairSet::From(own) => own.start..columns,
            _ => second.clone(),
        };
        [Self { j: first.clone(), i: others }, Self { j: second, i: first }]
    }
}

/// The sums on the host.
#[derive(Debug)]
pub(crate) struct Absent {
    /// A matrix (columns i, columns j) for each of the two blocks.
    parts: [(PairBlock, Matrix); 2],
}

impl Absent {
    /// Returns the sum for column j over the rows in which column i is missing.
    pub(crate) fn sum(&self, i: usize, j: usize) -> f64 {
        let [first, second] = &self.parts;
        let (part, matrix) = if (j as u64) < first.0.j.end { first } else { second };
        matrix.row(i - to_usize(part.i.start))[j - to_usize(part.j.start)]
    }
}

impl<const N: usize> AbsentSums<N> {
    /// Creates sums over no rows, for the pairs of columns in `wanted`. Fails with [`Error::OutOfMemory`](crate::Error::OutOfMemory).
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

    /// Returns the device memory of the sums, for `pairs` pairs of columns i and j.
    pub(crate) fn needs(pairs: u64) -> Needs {
        Needs::device(8 * N as u64) * pairs
    }

    /// Adds the rows `rows` of `packed`. Enqueues; does not wait.
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

    /// Adds a batch of rows that stays in the cache.
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
        let left = PackedRows { packed: &left, range: (0, count), missing: true };
        device.each(&mut self.groups, |(own, sums)| {
            tables.iter().zip(sums).try_for_each(|(words, sums)| {
                let table = Table { words, first: 0, sets: SETS, limb_count: LIMBS };
                let limbs = packed_limbs(&right, left.range(), own.clone(), table)?;
                packed_adjoint(left, Weights { words: &limbs, limb_count: LIMBS, shift: 0 }, sums)
            })
        })
    }

    /// Adds sums over other rows for the same pairs, which stay on their device. Fails with
    /// [`Error::Shape`](crate::Error::Shape) for sums of other pairs.
    pub(crate) fn join(&mut self, other: Self) -> Result<()> {
        let groups = self.groups.iter_mut().zip(other.groups);
        let mut both = groups.flat_map(|((_, own), (_, other))| own.iter_mut().zip(other));
        both.try_for_each(|(own, other)| own.join(other))
    }

    /// Waits, and returns the sums for each of the N tables of numbers.
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

/// Returns all values, or the first error.
fn collected<T, const N: usize>(results: [Result<T>; N]) -> Result<[T; N]> {
    let results = results.into_iter().collect::<Result<Vec<T>>>()?;
    results.try_into().map_err(|_| unreachable!("there should be as many"))
}
