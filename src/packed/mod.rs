//! Matrices of 0, 1, 2 and missing entries, two bits each, and products with them in whole numbers: the same bits on every
//! device.
//!
//! | for | take |
//! |---|---|
//! | a matrix that one device holds, for [`randomized_svd`](crate::linalg::randomized_svd) | [`PackedMatrix`] |
//! | making codes of other fields of two bits, and counting them | [`recode()`] |
//! | sums for each pair of columns | [`Gram`]; of what is not missing, [`KnownPairs`] |
//! | products with other matrices, panel by panel | [`PackedProduct`] |
//! | weighted sums of rows for each column | [`WeightedSums`] |
//! | distances of columns | [`PackedPairs`](crate::distance::PackedPairs) |
//! | keeping panels in the host's memory | [`HostPanels`] |
//!
//! # Layout
//!
//! Entry `16 w + 4 b + j` of a row is at bits `2 j` of byte `b` of word `w`. Its code is 0, 1 or 2, or 3 where it is missing.
//! Rows are padded with zeros to a multiple of 16 bytes. The entries of a row are the columns of the matrix; where it is
//! multiplied by another matrix, `columns` are that one's.
//!
//! Products need no decoding beyond a shift and a mask: `word >> 2 j & 0x03030303` holds four codes as bytes, the
//! *quad* `4 w + j` of the row, and the other operand is stored in the same order.
//!
//! Sums over rows are given panels of rows one after the other, each a tensor (rows, [`row_words`]), so that a matrix need not
//! fit the device: [`Gram`] and [`KnownPairs`] for pairs of columns, [`WeightedSums`] for each column, [`PackedProduct`] for products
//! with other matrices. [`PackedMatrix`] keeps all panels on one device.
//!
//! ```
//! use teatime::{Device, Tensor, packed::{Gram, GramOptions, RowScale, recode, row_words}};
//!
//! let device = Device::cpu();
//! // Two rows of four codes, the first in the lowest bits: 0 1 2 1, and 2 0 0 missing.
//! let codes = Tensor::from_slice(&device, &[0b01_10_01_00u8, 0b11_00_00_10], &[2, 1])?;
//! let mut panel = Tensor::zeros(&device, &[2, row_words(4)])?;
//! let stats = recode(&codes, [0, 1, 2, 3], 4, &mut panel, 0)?.wait()?;
//! assert_eq!((stats[1].sum, stats[1].count), (2.0, 3));
//!
//! // Rows less their means, a missing code being the mean.
//! let scales: Vec<RowScale> = stats
//!     .iter()
//!     .map(|row| RowScale { mean: row.sum / row.count as f64, factor: 1.0, known: row.count })
//!     .collect();
//! let mut gram = Gram::new(&device, 4, 2, GramOptions::default().centred(true).unit_factors(true))?;
//! gram.add(&panel, 0, 0, &scales)?;
//! let gram = gram.finish()?;
//! assert!((gram.row(0)[0] - (1.0 + (4.0f64 / 3.0).powi(2))).abs() < 1e-5);
//! assert!((gram.row(3)[3]).abs() < 1e-5);
//! # Ok::<(), teatime::Error>(())
//! ```

pub(crate) mod absent;
pub(crate) mod adjoint;
pub(crate) mod apply;
pub(crate) mod gather;
pub(crate) mod gram;
pub(crate) mod host_panels;
pub(crate) mod known_pairs;
pub(crate) mod limbs;
mod matrix;
pub(crate) mod operand;
pub(crate) mod pair_products;
pub(crate) mod pairs;
pub(crate) mod product;
pub(crate) mod recode;
mod row_batches;
pub(crate) mod uniform;
pub(crate) mod weighted;

pub use self::{
    apply::PackedRows,
    gather::{side_by_side, unpack_rows},
    gram::{Gram, GramOptions, RowScale},
    host_panels::{HostPanels, PanelSink},
    known_pairs::{KnownPairs, KnownRow},
    matrix::PackedMatrix,
    product::PackedProduct,
    recode::{PendingCounts, recode, recode_program},
    uniform::packed_uniform,
    weighted::{Weight, WeightedSums, weight_unit},
};
use crate::{Device, Error, Result};

/// The maximum number of entries of a product, or columns of a matrix: 256 times as many, the largest sum of a row's codes times limbs, is
/// below 2^31.
pub const MAX_ENTRIES: u64 = (1 << 23) - 1;

/// # Errors
/// [`Error::Limit`] for more entries of a row than sums are exact for.
fn check_entries(requested: u64) -> Result<()> {
    let what = "entries of a packed row";
    if requested > MAX_ENTRIES { Err(Error::Limit { what, requested, max: MAX_ENTRIES }) } else { Ok(()) }
}

/// Sums in whole numbers that can leave a device, to be added to others over other rows, and come back.
pub trait IntegerSums: Sized {
    /// Waits: the sums, and what they are multiples of.
    ///
    /// # Errors
    /// Any error that the device reports.
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

/// Bytes of a panel that stays on a device, of rows of so many entries, about: what fills it, in few launches and in whole waves of workgroups.
/// 256 MiB, and up to 3 GiB of a large CUDA device.
pub fn panel_bytes(device: &Device, entries: u64) -> u64 {
    let limits = device.limits();
    let bytes = limits.step.max(256 << 20).min(limits.buffer / 2);
    let wave = 4 * row_words(entries) * row_batches::wave(limits);
    if bytes < wave { bytes } else { bytes - bytes % wave.max(1) }
}

/// The maximum number of rows of a panel, so that narrow ones do not need a large table of factors.
pub const PANEL_ROWS: u64 = 1 << 20;

/// Words of a row: a multiple of 4.
pub const fn row_words(entries: u64) -> u64 {
    entries.div_ceil(64) * 4
}

/// The entry at a place of a quad.
pub(crate) const fn entry(quad: usize, place: usize) -> usize {
    quad / 4 * 16 + 4 * place + quad % 4
}
