//! Blocks of larger arrays in memory, in C order.

use crate::extent::to_usize;

/// Returns extents, or an index, as indices of memory.
pub(super) fn in_memory(extents: &[u64]) -> Vec<usize> {
    extents.iter().copied().map(to_usize).collect()
}

/// Returns the distance in elements between neighbours along each axis of a C-ordered array.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Copies the C-ordered block `block` of shape `extent` into `data` of shape `shape` at `origin`.
/// `extent + origin` must lie inside `shape`; `size` is the number of bytes of one element.
pub(crate) fn insert_block(
    data: &mut [u8],
    shape: &[usize],
    origin: &[usize],
    block: &[u8],
    extent: &[usize],
    size: usize,
) {
    let (run, offsets) = runs(shape, origin, extent);
    for (part, offset) in block.chunks_exact((run * size).max(1)).zip(offsets) {
        data[offset * size..(offset + run) * size].copy_from_slice(part);
    }
}

/// Returns the block of shape `extent` at `origin` of `data`, whose shape is `shape`: the inverse of [`insert_block`].
pub(crate) fn extract_block(
    data: &[u8],
    shape: &[usize],
    origin: &[usize],
    extent: &[usize],
    size: usize,
) -> Vec<u8> {
    let (run, offsets) = runs(shape, origin, extent);
    let mut block = Vec::with_capacity(extent.iter().product::<usize>() * size);
    offsets.for_each(|offset| block.extend_from_slice(&data[offset * size..(offset + run) * size]));
    block
}

/// Returns a chunk of shape `chunk` with a block of shape `extent` in its first places, and zeros in the others.
pub(super) fn padded(block: &[u8], extent: &[usize], chunk: &[usize], size: usize) -> Vec<u8> {
    let mut whole = vec![0; chunk.iter().product::<usize>() * size];
    insert_block(&mut whole, chunk, &vec![0; chunk.len()], block, extent, size);
    whole
}

/// Writes elements in C order to `out`, which has shape `shape`: axis `i` of `data` is axis `order[i]` of the result.
pub(super) fn untranspose(data: &[u8], shape: &[usize], order: &[usize], size: usize, out: &mut [u8]) {
    let encoded: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
    let mut source = vec![0; shape.len()];
    for (stride, &axis) in strides(&encoded).into_iter().zip(order) {
        source[axis] = stride;
    }
    let Some((&last, outer)) = shape.split_last() else { return out.copy_from_slice(data) };
    let mut index = vec![0; outer.len()];
    for line in out.chunks_exact_mut((last * size).max(1)) {
        let at: usize = index.iter().zip(&source).map(|(i, stride)| i * stride).sum();
        let step = source[outer.len()];
        match size {
            1 => gather::<1>(data, line, at, step),
            2 => gather::<2>(data, line, at, step),
            4 => gather::<4>(data, line, at, step),
            8 => gather::<8>(data, line, at, step),
            _ => line.chunks_exact_mut(size).zip((at..).step_by(step.max(1))).for_each(|(out, at)| {
                out.copy_from_slice(&data[at * size..(at + 1) * size]);
            }),
        }
        advance(&mut index, outer);
    }
}

/// Copies every `step`-th element from `at` on to `out`; the compiler knows the element size.
fn gather<const SIZE: usize>(data: &[u8], out: &mut [u8], at: usize, step: usize) {
    let elements = data.as_chunks::<SIZE>().0;
    out.as_chunks_mut::<SIZE>().0.iter_mut().enumerate().for_each(|(i, out)| *out = elements[at + i * step]);
}

/// Returns the runs of a block in an array of `shape`, contiguous in both: the number of elements of a run, and where each starts.
pub(super) fn runs(
    shape: &[usize],
    origin: &[usize],
    extent: &[usize],
) -> (usize, impl Iterator<Item = usize>) {
    // Axes that the block covers entirely are merged into one run with the preceding axis.
    let mut axis = shape.len();
    let mut run = 1;
    while axis > 0 {
        axis -= 1;
        run *= extent[axis];
        if extent[axis] != shape[axis] {
            break;
        }
    }
    let strides = strides(shape);
    let first: usize = origin.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
    let outer = extent[..axis].to_vec();
    let mut index = vec![0; axis];
    let offsets = (0..outer.iter().product::<usize>()).map(move |_| {
        let offset = first + index.iter().zip(&strides).map(|(at, stride)| at * stride).sum::<usize>();
        advance(&mut index, &outer);
        offset
    });
    (run, offsets)
}

/// Advances `index` to the next position in C order; returns false after the last, with `index` back at the origin.
pub(super) fn advance(index: &mut [usize], shape: &[usize]) -> bool {
    for (i, &extent) in index.iter_mut().zip(shape).rev() {
        *i += 1;
        if *i < extent {
            return true;
        }
        *i = 0;
    }
    false
}
