//! Rows of packed values, which are halved until each part is small enough for a task.

use bytemuck::Pod;

/// The approximate number of values of a task.
const PIECE: usize = 1 << 16;
/// The number of values to a multiple of which pieces of a row start: whole bytes at every bit width.
const STEP: usize = 64;

/// The layout of the rows of an array.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// The number of elements from one row to the next.
    pub(crate) stride: usize,
    /// The number of values in an element.
    pub(crate) per: usize,
}

/// Rows of two arrays that hold the same values, or a piece of one such row.
pub(crate) struct PairedRows<'a, A, B> {
    pub(crate) from: &'a [A],
    pub(crate) input: Layout,
    /// The output; elements behind a row's values are set to zero.
    pub(crate) to: &'a mut [B],
    pub(crate) output: Layout,
    pub(crate) rows: usize,
    /// The number of values of a row.
    pub(crate) len: usize,
    /// The index of the first value among all values, without the padding behind rows.
    pub(crate) first: usize,
}

impl<A: Pod + Sync, B: Pod + Send> PairedRows<'_, A, B> {
    /// Calls `f` for each row or piece of a row with the index of its first value, the elements to read, and the
    /// elements to write. The shape alone determines the pieces, which run in parallel.
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
