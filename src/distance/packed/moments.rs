//! Sums over single columns, restricted to the rows in which another column is known.

use super::super::{Metric, metric::angle};
use crate::{
    Device, Needs, Result, Tensor,
    packed::{
        PackedRows, WeightedSums,
        absent::{Absent, AbsentSums},
        pair_products::PairSet,
    },
};

/// Sums of the codes of each column, and the part of these sums in rows where another column is missing.
#[derive(Debug)]
pub(super) struct ColumnMoments {
    columns: u64,
    wanted: PairSet,
    codes: WeightedSums,
    /// Sums of codes and of squared codes over the rows in which another column is missing. None before the first missing code.
    absent: Option<AbsentSums<2>>,
}

/// The values of codes 0, 1, 2 and missing: the codes themselves, and their squares.
const NUMBERS: [[u8; 4]; 2] = [[0, 1, 2, 0], [0, 1, 4, 0]];

impl ColumnMoments {
    /// True if the metric needs column moments.
    pub(super) fn serve(metric: Metric) -> bool {
        matches!(metric, Metric::Cosine | Metric::Correlation)
    }

    /// Creates empty sums for the `wanted` pairs. Fails with [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(super) fn new(device: &Device, columns: u64, wanted: PairSet) -> Result<Self> {
        Ok(Self { columns, wanted, codes: WeightedSums::new(device, columns, 1)?, absent: None })
    }

    /// Returns the device memory of the sums, for panels of `rows` rows and for `pairs` ordered pairs of columns.
    pub(super) fn needs(device: &Device, columns: u64, pairs: u64, rows: u64) -> Needs {
        Needs { host: 0, ..WeightedSums::needs(device, columns, 1, rows) } + AbsentSums::<2>::needs(pairs)
    }

    /// Adds rows of `packed` from row `from` on. `rows` says for each row whether it has a missing code, or `None` for a row to skip.
    pub(super) fn add(&mut self, packed: &Tensor<u32>, from: u64, rows: &[Option<bool>]) -> Result<()> {
        let range = (from, from + rows.len() as u64);
        let packed_rows = PackedRows { packed, range, missing: rows.contains(&Some(true)) };
        let is_kept = |row: u64| usize::try_from(row - from).is_ok_and(|row| rows[row].is_some());
        self.codes.add(packed_rows, |row, _, weights| weights[0].one = is_kept(row).into())?;
        let with_missing = (from..).zip(rows).filter(|(_, missing)| **missing == Some(true));
        let absent: Vec<u64> = with_missing.map(|(row, _)| row).collect();
        if absent.is_empty() {
            return Ok(());
        }
        let sums = match &mut self.absent {
            Some(sums) => sums,
            none => none.insert(AbsentSums::new(packed.device(), self.columns, &self.wanted, NUMBERS)?),
        };
        sums.add(packed, &absent)
    }

    /// Adds sums over other rows for the same pairs, which stay on their device.
    pub(super) fn join(&mut self, other: Self) -> Result<()> {
        self.codes.join(other.codes)?;
        match (&mut self.absent, other.absent) {
            (Some(own), Some(other)) => own.join(other),
            (own, other) => {
                *own = own.take().or(other);
                Ok(())
            }
        }
    }

    /// Returns the sums on the host. Waits. `squares` are the products of each column with itself.
    pub(super) fn finish(self, squares: &[i64]) -> Result<Moments> {
        let codes = self.codes.finish(|_, sum| sum as f64)?.data().to_vec();
        let squares = squares.iter().map(|&square| square as f64).collect();
        let absent = self.absent.map(AbsentSums::finish).transpose()?;
        Ok(Moments { codes, squares, absent })
    }
}

/// The sums on the host.
pub(super) struct Moments {
    codes: Vec<f64>,
    squares: Vec<f64>,
    /// The parts of `codes` and `squares` to subtract for rows in which another column is missing. None if no code is missing.
    absent: Option<[Absent; 2]>,
}

impl Moments {
    /// Returns the sums of a column's codes and of their squares, over the rows in which the other column is known.
    pub(super) fn sums(&self, [column, other]: [usize; 2]) -> [f64; 2] {
        let [codes, squares] = [self.codes[column], self.squares[column]];
        match &self.absent {
            Some([once, squared]) => [codes - once.sum(other, column), squares - squared.sum(other, column)],
            None => [codes, squares],
        }
    }

    /// Returns the distance between two columns, from the sum of their products where both are known. All sums are whole numbers.
    pub(super) fn distance(&self, metric: Metric, [i, j]: [usize; 2], product: f64, shared: f64) -> f64 {
        let ([x, xx], [y, yy]) = (self.sums([i, j]), self.sums([j, i]));
        let (part, whole) = match metric {
            Metric::Cosine => (product, xx * yy),
            _ => (shared * product - x * y, (shared * xx - x * x) * (shared * yy - y * y)),
        };
        angle(part, whole)
    }
}
