//! Matrices of 0, 1, 2 and missing entries with two bits each, and integer products with them, which are the same to the bit on every device.
//!
//! | for | take |
//! |---|---|
//! | a matrix that a device or the host's memory holds, for [`randomized_svd`](crate::linalg::randomized_svd) | [`PackedMatrix`] |
//! | a matrix with a mean and a factor for each row, wherever its panels are | [`PanelMap`] |
//! | converting other two-bit codes, and counting them | [`recode()`] |
//! | sums for each pair of columns | [`Gram`]; for codes that are not missing, [`KnownPairs`] |
//! | products with other matrices, panel by panel | [`PackedProduct`] |
//! | weighted sums of rows for each column | [`WeightedSums`] |
//! | distances of columns | [`PackedPairs`](crate::distance::PackedPairs) |
//!
//! # Layout
//!
//! Entry `16 w + 4 b + j` of a row is at bits `2 j` of byte `b` of word `w`. Its code is 0, 1 or 2, or 3 if it is missing. Rows are padded
//! with zeros to a multiple of 16 bytes. The entries of a row are the columns of the matrix. When the matrix is multiplied by another matrix,
//! `columns` are the columns of that other matrix.
//!
//! Products need no decoding beyond a shift and a mask: `word >> 2 j & 0x03030303` holds four codes as bytes. They are the *quad* `4 w + j`
//! of the row, and the other operand is stored in the same order.
//!
//! Sums over rows take panels of rows one after the other, each a tensor (rows, [`row_words`]), so that a matrix need not fit the device.
//! [`Gram`] and [`KnownPairs`] are sums for pairs of columns, [`WeightedSums`] for each column, and [`PackedProduct`] for products with other
//! matrices. [`PackedMatrix`] keeps panels on a device or in the host's memory, and [`PanelMap`] multiplies them.
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
mod panel;
mod panel_map;
pub(crate) mod product;
pub(crate) mod recode;
mod row_batches;
pub(crate) mod uniform;
pub(crate) mod weighted;

pub use self::{
    apply::PackedRows,
    gather::{side_by_side, unpack_rows},
    gram::{Gram, GramOptions, RowScale},
    known_pairs::{KnownPairs, KnownRow},
    matrix::PackedMatrix,
    panel::{Entries, Panel, RowFactors},
    panel_map::{PanelMap, PanelPass, PanelSink},
    product::{PackedProduct, ProductSums},
    recode::{PendingCounts, recode},
    uniform::packed_uniform,
    weighted::{Weight, WeightedSums, weight_unit},
};
use crate::{Device, Error, Result};

/// The maximum number of entries of a product, or of columns of a matrix. The largest sum of a row's codes times limbs is 256 times this
/// number, which is below 2^31.
pub const MAX_ENTRIES: u64 = (1 << 23) - 1;

/// Fails with [`Error::Limit`] for more entries of a row than sums are exact for.
fn check_entries(requested: u64) -> Result<()> {
    let what = "entries of a packed row";
    if requested > MAX_ENTRIES { Err(Error::Limit { what, requested, max: MAX_ENTRIES }) } else { Ok(()) }
}

/// Integer sums that can leave a device, be added to sums over other rows, and come back.
pub trait IntegerSums: Sized {
    /// Waits, and returns the sums and their unit.
    ///
    /// # Errors
    /// Any error that the device reports.
    fn into_sums(self) -> Result<(Vec<i64>, f64)>;

    /// Replaces the object's sums by `sums`.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of sums or another unit than the object's; [`Error::OutOfMemory`].
    fn set_sums(&mut self, sums: &[i64], unit: f64) -> Result<()>;
}

/// Fails with [`Error::Shape`] unless the number of sums and their unit are the expected ones.
fn check_sums(expected: (usize, f64), got: (usize, f64)) -> Result<()> {
    let words = |(count, unit)| format!("{count} sums in units of {unit:e}");
    if expected == got { Ok(()) } else { Err(Error::shape("sums", words(expected), words(got))) }
}

/// The least bytes of a panel: a matrix then has so few panels that their tables and allocations cost little on any device.
const PANEL: u64 = 256 << 20;

/// Returns about the number of bytes of a panel that stays on a device, for rows of `entries` entries. Such a panel fills the device in few
/// launches and in whole waves of workgroups. It has 256 MiB, or up to 3 GiB on a large CUDA device.
pub fn panel_bytes(device: &Device, entries: u64) -> u64 {
    let limits = device.limits();
    let bytes = limits.step.max(PANEL).min(limits.buffer / 2);
    let wave = 4 * row_words(entries) * row_batches::wave(limits);
    if bytes < wave { bytes } else { bytes - bytes % wave.max(1) }
}

/// The maximum number of rows of a panel, so that panels of narrow rows do not need a large table of factors.
pub const PANEL_ROWS: u64 = 1 << 20;

/// Returns the number of words of a row: a multiple of 4.
pub const fn row_words(entries: u64) -> u64 {
    entries.div_ceil(64) * 4
}

/// Returns the index of the entry at place `place` of quad `quad`.
pub(crate) const fn entry(quad: usize, place: usize) -> usize {
    quad / 4 * 16 + 4 * place + quad % 4
}
