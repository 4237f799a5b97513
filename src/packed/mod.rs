//! Matrices of 0, 1, 2 and missing entries, two bits each, and products with them in whole numbers.
//!
//! Entry `16 w + 4 b + j` of a row is at bits `2 j` of byte `b` of word `w`. Its code is 0, 1 or 2, or 3 where it is missing.
//! Rows are padded with zeros to a multiple of 16 bytes. The entries of a row are the columns of the matrix; where it is
//! multiplied by another matrix, `columns` are that one's.
//!
//! Products need no decoding beyond a shift and a mask: `word >> 2 j & 0x03030303` holds four codes as bytes, the
//! *quad* `4 w + j` of the row, and the other operand is stored in the same order.

pub(crate) mod adjoint;
pub(crate) mod apply;
pub(crate) mod gather;
pub(crate) mod gram;
pub(crate) mod host_panels;
pub(crate) mod known_pairs;
pub(crate) mod limbs;
mod matrix;
pub(crate) mod missing;
pub(crate) mod operand;
mod pair_products;
pub(crate) mod pairs;
pub(crate) mod product;
pub(crate) mod recode;
mod row_batches;
pub(crate) mod uniform;
pub(crate) mod weighted;

pub use self::matrix::PackedMatrix;
use crate::{Error, Result};

/// Most entries of a product, or columns of a matrix: 256 times as many, the largest sum of a row's codes times limbs, is
/// below 2^31.
pub(crate) const MAX_ENTRIES: u64 = (1 << 23) - 1;

/// # Errors
/// [`Error::Limit`] for more entries of a row than sums are exact for.
fn check_entries(requested: u64) -> Result<()> {
    let what = "entries of a packed row";
    if requested > MAX_ENTRIES { Err(Error::Limit { what, requested, max: MAX_ENTRIES }) } else { Ok(()) }
}

/// Sums in whole numbers that can leave a device, to be added to others over other rows, and come back.
pub(crate) trait WholeSums: Sized {
    /// Waits: the sums, and what they are multiples of.
    ///
    /// # Errors
    /// What the device reports.
    fn into_sums(self) -> Result<(Vec<i64>, f64)>;

    /// Puts sums in the place of its own.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number or unit than its own; [`Error::OutOfMemory`].
    fn set_sums(&mut self, sums: &[i64], unit: f64) -> Result<()>;
}

/// # Errors
/// [`Error::Shape`] unless there are so many sums of that unit.
fn check_sums(expected: (usize, f64), got: (usize, f64)) -> Result<()> {
    let words = |(count, unit)| format!("{count} sums in units of {unit:e}");
    if expected == got { Ok(()) } else { Err(Error::shape("sums", words(expected), words(got))) }
}

/// Bytes of a panel that stays on the device, about: what fills a GPU, in few launches.
pub(crate) const PANEL_BYTES: u64 = 256 << 20;

/// Most rows of a panel, so that narrow ones do not need a large table of factors.
pub(crate) const PANEL_ROWS: u64 = 1 << 20;

/// Words of a row: a multiple of 4.
pub(crate) const fn row_words(entries: u64) -> u64 {
    entries.div_ceil(64) * 4
}

/// The entry at a place of a quad.
pub(crate) const fn entry(quad: usize, place: usize) -> usize {
    quad / 4 * 16 + 4 * place + quad % 4
}
