//! Values of 1, 2 and 4 bits, packed into bytes.
//!
//! | task | function |
//! |---|---|
//! | packing an array into bytes, and unpacking | [`pack()`], [`unpack()`], each optionally through a table of codes |
//! | the same with an existing output tensor and any row stride | [`pack_into`], [`unpack_into`] |
//!
//! The first value of a byte is in its lowest bits. The last axis is packed, each row by itself: a row begins at a byte, and unused bits and
//! bytes after its last value are zero. For one bit, this is NumPy's `packbits(.., bitorder="little")`. Through a table, files of 2-bit codes
//! with any meaning can be read and written. Values that do not fit cause an error with their number and the index of the first.
//!
//! ```
//! use teatime::{Device, Tensor, bits::{PackOptions, Width, pack, unpack}};
//!
//! let device = Device::best()?;
//! // Two rows of five counts; -1 is missing.
//! let counts = Tensor::from_slice(&device, &[0i8, 1, 2, -1, 0, 2, 2, 0, 0, 1], &[2, 5])?;
//!
//! // As a file has them: 00 is 2, 01 missing, 10 is 1, 11 is 0.
//! let coding = PackOptions::default().table(&[3, 2, 0]).missing(1);
//! let packed = pack(&counts, Width::Two, &coding)?;
//! assert_eq!(packed.shape(), [2, 2]);
//! assert_eq!(packed.read()?, [0b01_00_10_11, 0b11, 0b11_11_00_00, 0b10]);
//!
//! let values = unpack::<f32>(&packed, 5, Width::Two, Some(&[2.0, f32::NAN, 1.0, 0.0]))?.read()?;
//! assert_eq!(values[..3], [0.0, 1.0, 2.0]);
//! assert!(values[3].is_nan());
//! # Ok::<(), teatime::Error>(())
//! ```

mod pack;
mod part;
mod unpack;

pub use self::{
    pack::{PackOptions, Packable, PendingPack, pack, pack_into},
    unpack::{Unpackable, unpack, unpack_into},
};
use crate::{Error, Result, tensor::checked_len};

/// The number of bits of a packed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Width {
    /// 0 and 1, eight to a byte.
    One,
    /// 0 to 3, four to a byte.
    Two,
    /// 0 to 15, two to a byte.
    Four,
}

impl Width {
    /// Every width.
    pub const ALL: [Self; 3] = [Self::One, Self::Two, Self::Four];

    /// Returns the number of bits of a value.
    pub const fn bits(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
        }
    }

    /// Returns the number of values in a byte.
    pub const fn values_per_byte(self) -> u64 {
        8 / self.bits() as u64
    }

    /// Returns the number of different values.
    pub const fn codes(self) -> usize {
        1 << self.bits()
    }

    /// Returns the minimum number of bytes for a row of `len` values.
    pub const fn row_bytes(self, len: u64) -> u64 {
        len.div_ceil(self.values_per_byte())
    }
}

/// Returns the number of rows and the length of a row; the last axis is a row.
fn rows_of(op: &'static str, shape: &[u64]) -> Result<[u64; 2]> {
    match shape.split_last() {
        Some((&len, leading)) => Ok([checked_len(op, leading)?, len]),
        None => Err(Error::shape(op, "at least one axis", "a tensor without axes")),
    }
}

/// Returns a shape with another length of the last axis.
fn with_last(shape: &[u64], len: u64) -> Vec<u64> {
    let leading = shape.len().saturating_sub(1);
    shape[..leading].iter().copied().chain([len]).collect()
}

/// Returns the row stride in bytes: the `wanted` one, or the minimum.
fn row_stride(op: &'static str, width: Width, len: u64, wanted: Option<u64>) -> Result<u64> {
    let least = width.row_bytes(len);
    match wanted {
        Some(bytes) if bytes < least => Err(too_short(op, "row_bytes", bytes, width, len)),
        _ => Ok(wanted.unwrap_or(least)),
    }
}

fn too_short(op: &'static str, name: &'static str, bytes: u64, width: Width, len: u64) -> Error {
    let (least, bits) = (width.row_bytes(len), width.bits());
    let why = format_args!("a row has {bytes} bytes, and {len} values of {bits} bits take {least}");
    Error::argument(op, name, why)
}
