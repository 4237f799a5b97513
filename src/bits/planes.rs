//! 2-bit codes as two planes of bits, on which counting is population counts.

use super::{
    Width,
    part::{Part, Rows, grid},
    row_stride, rows_of, too_short, with_last,
};
use crate::{
    Error, Result, Tensor,
    kernel::small,
    kernels::{
        WG_ALONE,
        planes::{MERGE_PLANES, Params, SPLIT_PLANES},
    },
};

/// The low bits and the high bits of packed 2-bit codes, `len` in each row. Enqueues; does not wait.
///
/// # Shapes
/// `codes`: (.., bytes of a row) -> twice (.., `row_bytes`), by default the fewest that hold `len` bits. Bits behind a
/// row's codes are zero in the planes, whatever they are in `codes`.
///
/// # Cost
/// One pass.
///
/// # Errors
/// [`Error::Argument`] when rows hold fewer than `len` codes, or for `row_bytes` too few; [`Error::Shape`] when `codes`
/// has no axis; [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
pub fn split_planes(codes: &Tensor<u8>, len: u64, row_bytes: Option<u64>) -> Result<[Tensor<u8>; 2]> {
    let [mut rows, mut stride] = rows_of("split_planes", codes.shape())?;
    if Width::Two.row_bytes(len) > stride {
        return Err(too_short("split_planes", "len", stride, Width::Two, len));
    }
    let mut plane = row_stride("split_planes", Width::One, len, row_bytes)?;
    let (device, shape) = (codes.device(), with_last(codes.shape(), plane));
    let [mut low, mut high] = [Tensor::empty(device, &shape)?, Tensor::empty(device, &shape)?];
    if low.is_empty() {
        return Ok([low, high]);
    }
    let mut cols = len;
    if cols == 8 * plane && stride == 2 * plane {
        (rows, cols, stride, plane) = (1, rows * cols, rows * stride, rows * plane);
    }
    let limits = device.limits();
    let used = Width::Two.row_bytes(cols);
    let split = Rows { rows, bytes: plane, widest: plane.max(stride), factor: 2 };
    for Part { rows, bytes } in split.parts(limits) {
        let last = rows.end - 1;
        let read = used.min(2 * bytes.start)..used.min(2 * bytes.end);
        let from = rows.start * stride + read.start..last * stride + read.end;
        // Where a part is nothing but bytes behind the bits, the codes may end before.
        let from = codes.window(if read.is_empty() { 0..0 } else { from });
        let to = rows.start * plane + bytes.start..last * plane + bytes.end;
        let [low, high] = [&mut low, &mut high].map(|plane| plane.window_update(to.clone()));
        let count = cols.min(8 * bytes.end) - cols.min(8 * bytes.start);
        let [n, cols, codes_stride, planes_stride] =
            [rows.end - rows.start, count, stride.min(u32::MAX.into()), bytes.end - bytes.start].map(small);
        let (codes0, planes0) = (from.start, low.start);
        let params = Params { rows: n, cols, codes_stride, planes_stride, codes0, planes0 };
        let written = u64::from(n) * u64::from(planes_stride);
        let grid = grid(limits, u64::from(planes0) + written, 8 * written)?;
        device.launch(&SPLIT_PLANES, &WG_ALONE, grid, &[from.arg, low.arg, high.arg], &params)?;
    }
    Ok([low, high])
}

/// Packed 2-bit codes of their low bits and their high bits, `len` in each row. Enqueues; does not wait.
///
/// # Shapes
/// `low`, `high`: (.., bytes of a row) -> (.., `row_bytes`), by default the fewest that hold `len` codes. Bits behind a
/// row's codes are zero in the result, whatever they are in the planes.
///
/// # Cost
/// One pass.
///
/// # Errors
/// [`Error::Shape`] unless both planes have the same shape of at least one axis; [`Error::Argument`] when rows hold fewer
/// than `len` bits, or for `row_bytes` too few; [`Error::WrongDevice`]; [`Error::Limit`] and [`Error::OutOfMemory`] when
/// the device has no room.
pub fn merge_planes(
    low: &Tensor<u8>,
    high: &Tensor<u8>,
    len: u64,
    row_bytes: Option<u64>,
) -> Result<Tensor<u8>> {
    let [mut rows, mut plane] = rows_of("merge_planes", low.shape())?;
    if low.shape() != high.shape() {
        let (low, high) = (low.shape(), high.shape());
        return Err(Error::shape(
            "merge_planes",
            format_args!("two planes of {low:?}"),
            format_args!("{high:?}"),
        ));
    }
    if Width::One.row_bytes(len) > plane {
        return Err(too_short("merge_planes", "len", plane, Width::One, len));
    }
    let mut stride = row_stride("merge_planes", Width::Two, len, row_bytes)?;
    let device = low.device();
    device.has("merge_planes", "high", high.device())?;
    let mut codes = Tensor::empty(device, &with_last(low.shape(), stride))?;
    if codes.is_empty() {
        return Ok(codes);
    }
    let mut cols = len;
    if cols == 8 * plane && stride == 2 * plane {
        (rows, cols, stride, plane) = (1, rows * cols, rows * stride, rows * plane);
    }
    let limits = device.limits();
    let used = Width::One.row_bytes(cols);
    let split = Rows { rows, bytes: stride, widest: plane.max(stride), factor: 1 };
    for Part { rows, bytes } in split.parts(limits) {
        let last = rows.end - 1;
        // A part begins with a whole byte of the planes.
        let read = used.min(bytes.start / 2)..used.min(bytes.end.div_ceil(2));
        let from = rows.start * plane + read.start..last * plane + read.end;
        let from = if read.is_empty() { 0..0 } else { from };
        let [low, high] = [low, high].map(|plane| plane.window(from.clone()));
        let to = codes.window_update(rows.start * stride + bytes.start..last * stride + bytes.end);
        let count = cols.min(4 * bytes.end) - cols.min(4 * bytes.start);
        let [n, cols, codes_stride, planes_stride] =
            [rows.end - rows.start, count, bytes.end - bytes.start, plane.min(u32::MAX.into())].map(small);
        let (codes0, planes0) = (to.start, low.start);
        let params = Params { rows: n, cols, codes_stride, planes_stride, codes0, planes0 };
        let written = u64::from(n) * u64::from(codes_stride);
        let grid = grid(limits, u64::from(codes0) + written, 4 * written)?;
        device.launch(&MERGE_PLANES, &WG_ALONE, grid, &[low.arg, high.arg, to.arg], &params)?;
    }
    Ok(codes)
}
