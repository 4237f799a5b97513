//! Rows of packed values, halved until each part is a task's.

use bytemuck::Pod;

/// Values that one task works on, about.
const PIECE: usize = 1 << 16;
/// Values that the pieces of a row are multiples of: whole bytes of every width.
const STEP: usize = 64;

/// The layout of the rows of an array.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Elements from row to row.
    pub(crate) stride: usize,
    /// Values of an element.
    pub(crate) per: usize,
}

/// Rows of two arrays that have the same values, or of one row a piece.
pub(crate) struct PairedRows<'a, A, B> {
    pub(crate) from: &'a [A],
    pub(crate) input: Layout,
    /// Elements behind a row's values are zeroed.
    pub(crate) to: &'a mut [B],
    pub(crate) output: Layout,
    pub(crate) rows: usize,
    /// Values of a row.
    pub(crate) len: usize,
    /// Place of the first value, counted without what is behind the values of rows.
    pub(crate) first: usize,
}

impl<A: Pod + Sync, B: Pod + Send> PairedRows<'_, A, B> {
    /// Calls `f` with the place of the first value, the elements of a row or of a piece of it, and those to write. Pieces
    /// are fixed by the shape and run in parallel.
    pub(crate) fn for_each(self, f: &(impl Fn(usize, &[A], &mut [B]) + Sync)) {
        let Self { from, input, to, output, rows, len, first } = self;
        let (mid_row, mid) = match rows {
            0 => return,
            1 => (0, (len / 2).next_multiple_of(STEP)),
            _ => (rows / 2, 0),
        };
        if rows * len <= PIECE || mid == len {
            return PairedRows { from, input, to, output, rows, len, first }.run(f);
        }
        let at = |layout: Layout| mid_row * layout.stride + mid / layout.per;
        let (from, from_after) = from.split_at(at(input));
        let (to, to_after) = to.split_at_mut(at(output));
        let ([rows, len], [rows_after, len_after]) = match rows {
            1 => ([1, mid], [1, len - mid]),
            _ => ([mid_row, len], [rows - mid_row, len]),
        };
        let after = PairedRows {
            from: from_after,
            input,
            to: to_after,
            output,
            rows: rows_after,
            len: len_after,
            first: first + mid_row * len + mid,
        };
        let before = PairedRows { from, input, to, output, rows, len, first };
        rayon::join(|| before.for_each(f), || after.for_each(f));
    }

    fn run(self, f: &impl Fn(usize, &[A], &mut [B])) {
        let Self { from, input, to, output, rows, len, first } = self;
        let [reads, writes] = [input, output].map(|layout| len.div_ceil(layout.per));
        for row in 0..rows {
            let end = to.len().min((row + 1) * output.stride);
            let (values, behind) = to[row * output.stride..end].split_at_mut(writes);
            behind.fill(B::zeroed());
            f(first + row * len, &from[row * input.stride..][..reads], values);
        }
    }
}
