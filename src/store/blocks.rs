//! Blocks of larger arrays in memory, in C order.

/// Returns the distance in elements between neighbours along each axis of a C-ordered array.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Copies the C-ordered block `block` of shape `extent` into `data` of shape `shape` at `origin`.
///
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

/// Returns the runs of a block within an array of `shape`, each contiguous in both: the number of elements of a run, and the start of
/// each run in the array.
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
