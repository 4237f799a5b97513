//! Rearranging decoded elements: byte order and axis order.

use super::guard::{Decoded, buffer};
use crate::{
    StoredType,
    store::{blocks, with_stored},
};

/// Reverses the bytes of every `unit`-byte number in place.
pub(crate) fn swap_bytes(data: &mut [u8], unit: usize) {
    if unit > 1 {
        data.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
    }
}

/// Formats a number: `element` is an element of `dtype` in native byte order.
pub(crate) fn number(element: &[u8], dtype: StoredType) -> String {
    with_stored!(dtype, T => {
        element.try_into().map(|bytes| T::from_ne_bytes(bytes).to_string()).unwrap_or_default()
    })
}

/// Returns the value of an integer: `element` is an element of `dtype` in native byte order. `None` for other types.
pub(crate) fn integer(element: &[u8], dtype: StoredType) -> Option<i128> {
    with_stored!(dtype, T => element.try_into().ok().map(|bytes| T::from_ne_bytes(bytes).into()), T => None)
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
    if shape.is_empty() {
        return Err("transposed data without axes".into());
    }
    let mut out = buffer(data.len())?;
    out.resize(data.len(), 0);
    blocks::untranspose(data, shape, order, size, &mut out);
    Ok(out)
}
