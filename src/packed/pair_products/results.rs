//! Results of sums for pairs of columns.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    super::{IntegerSums, adjoint::ColumnSums, check_sums},
    PairProducts, power_of_two,
};
use crate::{Result, extent::to_usize, linalg::Matrix};

impl PairProducts {
    /// Waits, and returns a symmetric matrix. `value` computes each element from the sum of a pair of columns, and from the sums of both
    /// columns with themselves.
    pub(crate) fn matrix(self, value: impl Fn(i64, [i64; 2]) -> f64 + Sync) -> Result<Matrix> {
        Ok(self.panel(Vec::new(), value)?.0)
    }

    /// Waits, and returns a matrix. Its columns are the columns of all groups, and its rows are these columns and all later ones. It is
    /// symmetric if there are no later columns. `squares` are the sums of each column with itself: this function adds those of the groups'
    /// columns and returns all.
    pub(crate) fn panel(
        self,
        mut squares: Vec<i64>,
        value: impl Fn(i64, [i64; 2]) -> f64 + Sync,
    ) -> Result<(Matrix, Vec<i64>)> {
        let n = to_usize(self.columns);
        let ends = self.groups.first().map(own_columns).zip(self.groups.last().map(own_columns));
        let (start, end) = ends.map_or((0, 0), |(first, last)| (first.start, last.end));
        let mut matrix = Matrix::zeros(n - start, end - start);
        // Groups are taken from the last to the first, so that the squares of all columns that a group is paired with are known.
        for sums in self.groups.into_iter().rev() {
            let (own, sums) = (own_columns(&sums), sums.read()?);
            let first = own.start;
            let sum = |i: usize, j: usize| sums[(i - first) * own.len() + j - first];
            squares.resize(n, 0);
            own.clone().for_each(|j| squares[j] = sum(j, j));
            let fill = |(row_of_panel, row): (usize, &mut [f64])| {
                let i = start + row_of_panel;
                let filled = if own.contains(&i) { first..end } else { own.clone() };
                for j in filled {
                    row[j - start] = value(sum(i.max(j), i.min(j)), [squares[i], squares[j]]);
                }
            };
            let rows = matrix.data_mut().par_chunks_mut(end - start).enumerate().skip(first - start);
            self.device.pool()?.install(|| rows.for_each(fill));
        }
        Ok((matrix, squares))
    }

    /// Waits, and returns for [`PairSet::Across`](super::PairSet::Across) a matrix, and the sums of each column with itself. The rows of the
    /// matrix are the columns from the split on, and its columns are the first `own` columns. `value` computes each element as in
    /// [`matrix`](Self::matrix).
    pub(crate) fn across(
        mut self,
        own: usize,
        value: impl Fn(i64, [i64; 2]) -> f64 + Sync,
    ) -> Result<(Matrix, Vec<i64>)> {
        let n = to_usize(self.columns);
        let groups: Vec<ColumnSums> = self.groups.extract_if(.., |group| group.first != group.own).collect();
        let (device, split) =
            (self.device.clone(), groups.first().map_or(n, |group| to_usize(16 * group.first)));
        let squares = self.diagonal()?;
        let mut matrix = Matrix::zeros(n - split, own);
        for group in groups {
            let (columns, sums) = (own_columns(&group), group.read()?);
            let fill = |((i, row), sums): ((usize, &mut [f64]), &[i64])| {
                let both = columns.clone().zip(sums).take(own.saturating_sub(columns.start));
                both.for_each(|(j, &sum)| row[j] = value(sum, [squares[split + i], squares[j]]));
            };
            let rows = matrix.data_mut().par_chunks_mut(own).enumerate().zip(sums.par_chunks(columns.len()));
            device.pool()?.install(|| rows.for_each(fill));
        }
        Ok((matrix, squares))
    }

    /// Waits, and returns the sum of each column with itself, for the columns that have sums.
    pub(crate) fn diagonal(self) -> Result<Vec<i64>> {
        let n = to_usize(self.columns);
        let mut squares = vec![0; n];
        for group in self.groups {
            let (own, sums) = (own_columns(&group), group.read()?);
            own.clone().for_each(|j| squares[j] = sums[(j - own.start) * (own.len() + 1)]);
        }
        Ok(squares)
    }
}

/// The sums are those of the lower triangle, row by row.
impl IntegerSums for PairProducts {
    fn into_sums(self) -> Result<(Vec<i64>, f64)> {
        let n = to_usize(self.columns);
        let mut lower = vec![0; triangle(n)];
        for group in self.groups {
            let (own, sums) = (own_columns(&group), group.read()?);
            for (i, sums) in (own.start..n).zip(sums.chunks_exact(own.len())) {
                let count = own.len().min(i + 1 - own.start);
                lower[triangle(i) + own.start..][..count].copy_from_slice(&sums[..count]);
            }
        }
        Ok((lower, power_of_two(-self.point)))
    }

    fn set_sums(&mut self, lower: &[i64], unit: f64) -> Result<()> {
        let n = to_usize(self.columns);
        check_sums((triangle(n), power_of_two(-self.point)), (lower.len(), unit))?;
        self.groups.iter_mut().try_for_each(|group| {
            let own = own_columns(group);
            let row = |i: usize| own.clone().map(move |j| lower[triangle(i.max(j)) + i.min(j)]);
            group.write((own.start..n).flat_map(row))
        })
    }
}

/// Returns the number of entries of a lower triangle before row `row`.
const fn triangle(row: usize) -> usize {
    row * (row + 1) / 2
}

/// Returns the columns that a group pairs with themselves and all later columns.
fn own_columns(group: &ColumnSums) -> Range<usize> {
    let first = to_usize(16 * group.own);
    first..first + to_usize(group.columns())
}
