//! Distances of some pairs of observations, on the host: of a rectangle of pairs, or of a range of the condensed form.

use std::{
    mem::take,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use rayon::prelude::*;

use super::{
    Distances,
    job::DistanceBlock,
    members::Jobs,
    results::{matrix, zeros},
};
use crate::{
    Element, Result, Run,
    extent::to_usize,
    linalg::{Matrix, matrix::SIDE},
    waiting::lock,
};

impl<T: Element> Jobs<'_, '_, T> {
    /// Returns the distances from some observations of x to some of y, and the numbers of features that both have if `counted`. Blocks have `side`
    /// observations along each side. Fails as [`each_block_of`](super::job::Job::each_block_of) does, and with
    /// [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory).
    pub(super) fn rectangle(
        &self,
        [rows, columns]: [Range<u64>; 2],
        side: u64,
        counted: bool,
        run: &Run,
    ) -> Result<Distances> {
        let is_lower = self.first().measure.is_lower();
        let mut square = self.computed([&rows, &columns], side, counted, run)?;
        if is_lower && rows == columns {
            square.matrices().for_each(Matrix::mirror_lower);
        } else if is_lower && rows.start + 1 < columns.end {
            // Distances above the diagonal are computed below the diagonal and transposed.
            let mut below = self.computed([&columns, &rows], side, counted, run)?;
            for (square, below) in square.matrices().zip(below.matrices()) {
                let (width, turned) = (square.cols(), below.transposed());
                for (i, row) in square.data_mut().chunks_mut(width).enumerate() {
                    let above = rows.start + i as u64 + 1;
                    let first = to_usize(above.clamp(columns.start, columns.end) - columns.start);
                    row[first..].copy_from_slice(&turned.row(i)[first..]);
                }
            }
        }
        Ok(square)
    }

    /// Returns what [`rectangle`](Self::rectangle) returns, but with arbitrary values above the diagonal if only the lower triangle is computed.
    fn computed(&self, ranges: [&Range<u64>; 2], side: u64, counted: bool, run: &Run) -> Result<Distances> {
        let extents = ranges.map(|range| to_usize(range.end - range.start));
        let shared = counted.then(|| matrix(extents)).transpose()?;
        let square = Mutex::new(Distances { distances: matrix(extents)?, shared });
        let first = ranges.map(|range| to_usize(range.start));
        self.each(run, ranges[0].end - ranges[0].start, |_, job, run| {
            let pool = job.measure.device.pool()?;
            job.each_block_of(ranges.map(Range::clone), side, run, &mut |block| {
                let (Distances { distances, shared }, width) = (&mut *lock(&square), block.columns.len());
                pool.install(|| {
                    fill(block, |i| block.distances[i * width..].iter().copied(), first, distances);
                    if let Some(shared) = shared {
                        fill(block, |i| block.shared(i * width), first, shared);
                    }
                });
            })
        })?;
        Ok(square.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the distances of a range of the condensed form, in blocks of `side`. Fails as [`rectangle`](Self::rectangle) does.
    pub(super) fn condensed(&self, pairs: Range<usize>, side: u64, run: &Run) -> Result<Vec<f64>> {
        let (m, mut out) = (self.first().extents()[0], zeros(pairs.len())?);
        if pairs.is_empty() {
            return Ok(out);
        }
        let places = Mutex::new(&mut out[..]);
        let [(first, row), (last, last_row)] = [pairs.start, pairs.end - 1].map(|pair| observations(m, pair));
        let rows = if first == last { row..last_row + 1 } else { first..m };
        let area = [rows, first..last + 1].map(|range| range.start as u64..range.end as u64);
        self.each(run, m as u64, |_, job, run| {
            let pool = job.measure.device.pool()?;
            job.each_block_of(area.each_ref().map(Range::clone), side, run, &mut |block| {
                let mut out = lock(&places);
                let mut columns = columns_of(block, m, &pairs, &mut out);
                pool.install(|| put_columns(block, &mut columns));
            })
        })?;
        Ok(out)
    }
}

/// Returns the places of each column of a block, of which there is the first row, among those of a range of pairs of the condensed form.
fn columns_of<'o>(
    block: &DistanceBlock,
    m: usize,
    pairs: &Range<usize>,
    out: &'o mut [f64],
) -> Vec<(usize, &'o mut [f64])> {
    let (rows, mut left, mut passed) = (&block.rows, out, pairs.start);
    let places = block.columns.clone().map(|col| {
        // The pairs of a column are adjacent in the condensed form. Some may lie outside of the range.
        let first = rows.start.max(col + 1);
        let places = [first, rows.end.max(first)].map(|row| condensed_place(m, col, row));
        let [start, end] = places.map(|place| place.clamp(pairs.start, pairs.end));
        let (before, rest) = take(&mut left).split_at_mut(end - passed);
        let own = &mut before[start - passed..];
        (left, passed) = (rest, end);
        (first + start.saturating_sub(places[0]) - rows.start, own)
    });
    places.collect()
}

/// Copies a block's distances to the places of its columns.
fn put_columns(block: &DistanceBlock, columns: &mut [(usize, &mut [f64])]) {
    let (rows, width) = (block.rows.len(), block.columns.len());
    columns.par_chunks_mut(SIDE).enumerate().for_each(|(group, columns)| {
        for row in (0..rows).step_by(SIDE) {
            for (j, (first, out)) in (group * SIDE..).zip(&mut *columns) {
                for i in row.max(*first)..(row + SIDE).min(*first + out.len()) {
                    out[i - *first] = block.distances[i * width + j];
                }
            }
        }
    });
}

impl Distances {
    pub(super) fn matrices(&mut self) -> impl Iterator<Item = &mut Matrix> {
        [&mut self.distances].into_iter().chain(&mut self.shared)
    }
}

/// Copies the values of each row of a block into the matrix whose first element is the pair `first`.
fn fill<I: Iterator<Item = f64>>(
    block: &DistanceBlock,
    values: impl Fn(usize) -> I + Sync,
    [top, left]: [usize; 2],
    matrix: &mut Matrix,
) {
    let (columns, width) = (block.columns.start - left..block.columns.end - left, matrix.cols());
    let rows = matrix.data_mut().par_chunks_mut(width).skip(block.rows.start - top).take(block.rows.len());
    rows.enumerate().for_each(|(i, row)| {
        row[columns.clone()].iter_mut().zip(values(i)).for_each(|(out, value)| *out = value);
    });
}

/// Returns the number of pairs in the condensed form of `m` observations.
pub(super) fn condensed_len(m: usize) -> usize {
    m.saturating_mul(m.saturating_sub(1)) / 2
}

/// Returns the index of a pair in the condensed form. All pairs whose first observation is before `first` precede it.
fn condensed_place(m: usize, first: usize, second: usize) -> usize {
    first * (2 * m - first - 1) / 2 + second - first - 1
}

/// Returns the two observations of a pair of the condensed form, the lower index first.
fn observations(m: usize, pair: usize) -> (usize, usize) {
    let (mut first, mut end) = (0, m);
    while end - first > 1 {
        let middle = usize::midpoint(first, end);
        if condensed_place(m, middle, middle + 1) <= pair { first = middle } else { end = middle }
    }
    (first, pair - condensed_place(m, first, first + 1) + first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Includes pair counts beyond 2^30, 2^31 and 2^32.
    #[test]
    fn pairs_of_many_observations() {
        for m in [2, 3, 64, 65, 46_341, 46_342, 65_536, 65_537, 92_683, 3_000_000_000] {
            let len = condensed_len(m);
            assert_eq!(condensed_place(m, m - 2, m - 1), len - 1);
            let near = [0, 1 << 30, 1 << 31, 1 << 32, len - 1, len / 2].into_iter();
            for pair in
                near.flat_map(|pair: usize| pair.saturating_sub(2)..pair + 3).filter(|&pair| pair < len)
            {
                let (first, second) = observations(m, pair);
                assert!(first < second && second < m, "{m} {pair}: {first} {second}");
                assert_eq!(condensed_place(m, first, second), pair);
            }
        }
    }
}
