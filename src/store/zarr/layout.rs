//! Rearranging decoded elements: byte order, axis order, and blocks of a larger array.

use super::guard::{Decoded, buffer};
use crate::StoredType;

/// Reverses the bytes of every `unit`-byte number in place.
pub(crate) fn swap_bytes(data: &mut [u8], unit: usize) {
    if unit > 1 {
        data.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
    }
}

/// A number in words: `element` is one of `dtype`, in native byte order.
pub(crate) fn number(element: &[u8], dtype: StoredType) -> String {
    macro_rules! read {
        ($number:ty) => {
            element.try_into().map(|bytes| <$number>::from_ne_bytes(bytes).to_string()).unwrap_or_default()
        };
    }
    match dtype {
        StoredType::F16 => read!(half::f16),
        StoredType::F32 => read!(f32),
        StoredType::F64 => read!(f64),
        _ => integer(element, dtype).map(|number| number.to_string()).unwrap_or_default(),
    }
}

/// The same of an integer, as a number; none of other types.
pub(crate) fn integer(element: &[u8], dtype: StoredType) -> Option<i128> {
    macro_rules! read {
        ($number:ty) => {
            element.try_into().ok().map(|bytes| <$number>::from_ne_bytes(bytes).into())
        };
    }
    match dtype {
        StoredType::Bool | StoredType::U8 => read!(u8),
        StoredType::I8 => read!(i8),
        StoredType::I16 => read!(i16),
        StoredType::U16 => read!(u16),
        StoredType::I32 => read!(i32),
        StoredType::U32 => read!(u32),
        StoredType::I64 => read!(i64),
        StoredType::U64 => read!(u64),
        StoredType::F16 | StoredType::F32 | StoredType::F64 => None,
    }
}

/// `count` copies of `element`.
pub(crate) fn filled(element: &[u8], count: usize) -> Decoded<Vec<u8>> {
    let bytes = element.len().checked_mul(count).ok_or("more bytes than can be addressed")?;
    let mut data = buffer(bytes)?;
    match *element {
        [byte] => data.resize(bytes, byte),
        _ => (0..count).for_each(|_| data.extend_from_slice(element)),
    }
    Ok(data)
}

/// Elements between neighbours along each axis of a C-ordered array.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Undoes Zarr's `transpose` codec: axis `i` of `data` is axis `order[i]` of the result of `shape`.
pub(crate) fn untranspose(data: &[u8], shape: &[usize], order: &[usize], size: usize) -> Decoded<Vec<u8>> {
    let encoded: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
    let mut source = vec![0; shape.len()];
    for (stride, &axis) in strides(&encoded).into_iter().zip(order) {
        source[axis] = stride;
    }
    let mut out = buffer(data.len())?;
    let (&last, outer) = shape.split_last().ok_or("transposed data without axes")?;
    let mut index = vec![0; outer.len()];
    loop {
        let mut at: usize = index.iter().zip(&source).map(|(i, stride)| i * stride).sum();
        for _ in 0..last {
            out.extend_from_slice(&data[at * size..(at + 1) * size]);
            at += source[outer.len()];
        }
        if !advance(&mut index, outer) {
            return Ok(out);
        }
    }
}

/// Copies the C-ordered block `block` of shape `extent` into `data` of shape `shape` at `origin`.
///
/// `extent + origin` must lie inside `shape`; `size` is the bytes of one element.
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

/// The block of shape `extent` at `origin` of `data`, which has the shape `shape`: the inverse of [`insert_block`].
pub(crate) fn extract_block(
    data: &[u8],
    shape: &[usize],
    origin: &[usize],
    extent: &[usize],
    size: usize,
) -> Vec<u8> {
    let (run, offsets) = runs(shape, origin, extent);
    offsets.flat_map(|offset| &data[offset * size..(offset + run) * size]).copied().collect()
}

/// Of a block within an array of `shape`: elements of a run that is contiguous in both, and where runs start in the array.
fn runs(shape: &[usize], origin: &[usize], extent: &[usize]) -> (usize, impl Iterator<Item = usize>) {
    // Axes that the block covers whole are one run with the axis before them.
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

/// Steps `index` to the next in C order; false, with `index` back at the origin, after the last.
pub(crate) fn advance(index: &mut [usize], shape: &[usize]) -> bool {
    for (i, &extent) in index.iter_mut().zip(shape).rev() {
        *i += 1;
        if *i < extent {
            return true;
        }
        *i = 0;
    }
    false
}
