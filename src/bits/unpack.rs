//! Unpacking of values into elements.

use half::f16;

use super::{
    Width,
    part::{Strip, StripPart, grid},
    rows_of, too_short, with_last,
};
use crate::{
    Element, Error, Result, Tensor,
    kernel::small,
    kernels::unpack::{Params, UNPACK, spec},
};

/// A type that packed values can become: `u8`, `i8`, `f16` or `f32`.
pub trait Unpackable: Element {
    /// Returns the bits of a table's entry as this type, rounded to nearest; `None` for an integer type that does not hold the entry.
    fn bits(entry: f32) -> Option<u32>;
}

impl Unpackable for u8 {
    fn bits(entry: f32) -> Option<u32> {
        // Only an entry that the type holds equals its conversion back.
        #[allow(clippy::cast_possible_truncation, reason = "compared with what it came from")]
        let byte = entry as Self;
        (f32::from(byte) == entry).then_some(byte.into())
    }
}

impl Unpackable for i8 {
    fn bits(entry: f32) -> Option<u32> {
        #[allow(clippy::cast_possible_truncation, reason = "compared with what it came from")]
        let byte = entry as Self;
        (f32::from(byte) == entry).then_some(byte.cast_unsigned().into())
    }
}

impl Unpackable for f16 {
    fn bits(entry: f32) -> Option<u32> {
        Some(Self::from_f32(entry).to_bits().into())
    }
}

impl Unpackable for f32 {
    fn bits(entry: f32) -> Option<u32> {
        Some(entry.to_bits())
    }
}

/// Unpacks rows of `len` values, optionally through a table with an entry for each code of the width. Enqueues; does not wait.
///
/// # Shapes
/// `packed`: (.., bytes of a row) -> (.., len). Bits and bytes after a row's values are ignored.
///
/// # Cost
/// One pass over the result. Rows that fill their bytes are processed as one long row.
///
/// # Errors
/// [`Error::Argument`] when rows hold fewer than `len` values, for a table without exactly one entry for each code, or for an entry that an
/// integer type does not hold; [`Error::Shape`] when `packed` has no axis; [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no
/// room.
pub fn unpack<T: Unpackable>(
    packed: &Tensor<u8>,
    len: u64,
    width: Width,
    table: Option<&[f32]>,
) -> Result<Tensor<T>> {
    let [_, stride] = rows_of("unpack", packed.shape())?;
    if width.row_bytes(len) > stride {
        return Err(too_short("unpack", "len", stride, width, len));
    }
    let mut out = Tensor::empty(packed.device(), &with_last(packed.shape(), len))?;
    unpack_into(packed, width, table, &mut out)?;
    Ok(out)
}

/// Unpacks like [`unpack`], into an existing tensor whose last axis gives the number of values of a row.
///
/// # Shapes
/// `packed`: (.., bytes of a row), `out`: (.., len).
///
/// # Errors
/// As [`unpack`]; [`Error::Shape`] unless the leading axes are those of `packed`.
pub fn unpack_into<T: Unpackable>(
    packed: &Tensor<u8>,
    width: Width,
    table: Option<&[f32]>,
    out: &mut Tensor<T>,
) -> Result<()> {
    let table = entries::<T>(width, table)?;
    let ([mut rows, mut stride], [_, mut cols]) =
        (rows_of("unpack", packed.shape())?, rows_of("unpack", out.shape())?);
    if width.row_bytes(cols) > stride {
        return Err(too_short("unpack", "len", stride, width, cols));
    }
    if *out.shape() != *with_last(packed.shape(), cols) {
        let (packed, out) = (packed.shape(), out.shape());
        return Err(Error::shape("unpack", format_args!("rows of {packed:?}"), format_args!("{out:?}")));
    }
    if out.is_empty() {
        return Ok(());
    }
    let per = width.values_per_byte();
    if cols == stride * per {
        (rows, cols, stride) = (1, rows * cols, rows * stride);
    }
    let device = packed.device();
    let limits = device.limits();
    let table = Tensor::from_slice(device, &table, &[16])?;
    let (size, bytes) = (T::DTYPE.size(), width.row_bytes(cols));
    let split = Strip { rows, bytes, widest: (cols * size).max(stride), factor: per * size };
    for StripPart { rows, bytes } in split.parts(limits) {
        let values = bytes.start * per..cols.min(bytes.end * per);
        let last = rows.end - 1;
        let from = packed.window(rows.start * stride + bytes.start..last * stride + bytes.end);
        let to = out.window_update(rows.start * cols + values.start..last * cols + values.end);
        let [n, count, stride] =
            [rows.end - rows.start, values.end - values.start, stride.min(u32::MAX.into())].map(small);
        let params = Params { rows: n, cols: count, stride, packed0: from.start, out0: to.start };
        let written = u64::from(n) * u64::from(count);
        let grid = grid(limits, (u64::from(to.start) + written) * size, written)?;
        let args = [from.arg, table.window(0..16).arg, to.arg];
        device.launch(&UNPACK, &spec(width.bits(), size), grid, &args, &params)?;
    }
    Ok(())
}

/// Returns the bits of each code's element; zeros after the codes of the width.
fn entries<T: Unpackable>(width: Width, table: Option<&[f32]>) -> Result<[u32; 16]> {
    let codes = width.codes();
    let identity: [f32; 16] = std::array::from_fn(|i| i as f32);
    let table = table.unwrap_or(&identity[..codes]);
    if table.len() != codes {
        let why = format!("{} entries; values of {} bits have {codes}", table.len(), width.bits());
        return Err(Error::argument("unpack", "table", why));
    }
    let mut words = [0; 16];
    for (i, (word, &entry)) in words.iter_mut().zip(table).enumerate() {
        *word = T::bits(entry).ok_or_else(|| {
            let why = format!("entry {i} is {entry}, which {:?} does not hold", T::DTYPE);
            Error::argument("unpack", "table", why)
        })?;
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_each_type() {
        assert_eq!(entries::<u8>(Width::One, Some(&[255.0, 0.0])).unwrap()[..2], [255, 0]);
        assert_eq!(entries::<i8>(Width::One, Some(&[-1.0, -128.0])).unwrap()[..2], [0xff, 0x80]);
        assert_eq!(entries::<f16>(Width::One, Some(&[1.0, 0.5])).unwrap()[..2], [0x3c00, 0x3800]);
        assert_eq!(entries::<f32>(Width::Two, None).unwrap()[3], 3f32.to_bits());
        for (bad, shown) in [(256.0, "256"), (-1.0, "-1"), (0.5, "0.5"), (f32::NAN, "NaN")] {
            let error = entries::<u8>(Width::One, Some(&[0.0, bad])).unwrap_err().to_string();
            assert_eq!(error, format!("unpack: `table`: entry 1 is {shown}, which U8 does not hold"));
        }
        assert!(entries::<i8>(Width::One, Some(&[0.0, 128.0])).is_err());
        let error = entries::<u8>(Width::Four, Some(&[0.0])).unwrap_err().to_string();
        assert_eq!(error, "unpack: `table`: 1 entries; values of 4 bits have 16");
    }
}
