//! Rearranging decoded elements: byte order and axis order.

use super::guard::{Decoded, buffer};
use crate::{
    StoredType,
    store::blocks::{advance, strides},
};

/// Reverses the bytes of every `unit`-byte number in place.
pub(crate) fn swap_bytes(data: &mut [u8], unit: usize) {
    if unit > 1 {
        data.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
    }
}

/// Formats a number: `element` is an element of `dtype` in native byte order.
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

/// Returns the value of an integer: `element` is an element of `dtype` in native byte order. `None` for other types.
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

/// Returns `count` copies of `element`.
pub(crate) fn filled(element: &[u8], count: usize) -> Decoded<Vec<u8>> {
    let bytes = element.len().checked_mul(count).ok_or("more bytes than can be addressed")?;
    let mut data = buffer(bytes)?;
    match *element {
        [byte] => data.resize(bytes, byte),
        _ => (0..count).for_each(|_| data.extend_from_slice(element)),
    }
    Ok(data)
}

/// Undoes Zarr's `transpose` codec: axis `i` of `data` is axis `order[i]` of the result, which has shape `shape`.
pub(crate) fn untranspose(data: &[u8], shape: &[usize], order: &[usize], size: usize) -> Decoded<Vec<u8>> {
    let encoded: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
    let mut source = vec![0; shape.len()];
    for (stride, &axis) in strides(&encoded).into_iter().zip(order) {
        source[axis] = stride;
    }
    let mut out = buffer(data.len())?;
    out.resize(data.len(), 0);
    let (&last, outer) = shape.split_last().ok_or("transposed data without axes")?;
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
    Ok(out)
}

/// Copies every `step`-th element from `at` on to `out`; the compiler knows the element size.
fn gather<const SIZE: usize>(data: &[u8], out: &mut [u8], at: usize, step: usize) {
    let elements = data.as_chunks::<SIZE>().0;
    out.as_chunks_mut::<SIZE>().0.iter_mut().enumerate().for_each(|(i, out)| *out = elements[at + i * step]);
}
