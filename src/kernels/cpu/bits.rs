//! Rows of packed values, halved until each part is a task's.

use bytemuck::Pod;

/// Values that one task works on, about.
const PIECE: usize = 1 << 16;
/// Values that the pieces of a row are multiples of: whole bytes of every width.
const STEP: usize = 64;

/// How the rows of an array are laid out.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Elements from row to row.
    pub(crate) stride: usize,
    /// Values of an element.
    pub(crate) per: usize,
}

/// Rows of arrays that have the same values, or of one row a piece.
pub(crate) struct Rows<'a, A, B, const I: usize, const O: usize> {
    pub(crate) inputs: [&'a [A]; I],
    pub(crate) input: Layout,
    /// Elements behind a row's values are zeroed.
    pub(crate) outputs: [&'a mut [B]; O],
    pub(crate) output: Layout,
    pub(crate) rows: usize,
    /// Values of a row.
    pub(crate) len: usize,
    /// Place of the first value, counted without what is behind the values of rows.
    pub(crate) first: usize,
}

impl<A: Pod + Sync, B: Pod + Send, const I: usize, const O: usize> Rows<'_, A, B, I, O> {
    /// Calls `f` with the place of the first value, the elements of a row or of a piece of it, and those to write. Pieces
    /// are fixed by the shape and run in parallel.
    pub(crate) fn for_each(self, f: &(impl Fn(usize, [&[A]; I], [&mut [B]; O]) + Sync)) {
        let Self { inputs, input, outputs, output, rows, len, first } = self;
        let (mid_row, mid) = match rows {
            0 => return,
            1 => (0, (len / 2).next_multiple_of(STEP)),
            _ => (rows / 2, 0),
        };
        if rows * len <= PIECE || mid == len {
            return Rows { inputs, input, outputs, output, rows, len, first }.run(f);
        }
        let at = |layout: Layout| mid_row * layout.stride + mid / layout.per;
        let inputs = inputs.map(|array| array.split_at(at(input)));
        let outputs = outputs.map(|array| array.split_at_mut(at(output)));
        let (before, after) = match rows {
            1 => ([1, mid], [1, len - mid]),
            _ => ([mid_row, len], [rows - mid_row, len]),
        };
        let mut right = Vec::with_capacity(O);
        let outputs = outputs.map(|(before, after)| {
            right.push(after);
            before
        });
        let Ok(right) = <[&mut [B]; O]>::try_from(right) else { unreachable!("each output has two halves") };
        let half = |inputs, outputs, [rows, len]: [usize; 2], first| Rows {
            inputs,
            input,
            outputs,
            output,
            rows,
            len,
            first,
        };
        let left = half(inputs.map(|(before, _)| before), outputs, before, first);
        let right = half(inputs.map(|(_, after)| after), right, after, first + mid_row * len + mid);
        rayon::join(|| left.for_each(f), || right.for_each(f));
    }

    fn run(self, f: &impl Fn(usize, [&[A]; I], [&mut [B]; O])) {
        let Self { inputs, input, mut outputs, output, rows, len, first } = self;
        let [reads, writes] = [input, output].map(|layout| len.div_ceil(layout.per));
        for row in 0..rows {
            let inputs = inputs.map(|array| &array[row * input.stride..][..reads]);
            let outputs = outputs.each_mut().map(|array| {
                let end = array.len().min((row + 1) * output.stride);
                let (values, behind) = array[row * output.stride..end].split_at_mut(writes);
                behind.fill(B::zeroed());
                values
            });
            f(first + row * len, inputs, outputs);
        }
    }
}
