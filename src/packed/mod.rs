//! Genotypes of two bits each, and products with them in whole numbers.
//!
//! A row is a variant: sample `16 w + 4 b + j` is at bits `2 j` of byte `b` of word `w`; 0, 1 and 2 count alleles, 3 is
//! missing. Rows are padded with zeros to a multiple of 16 bytes.
//!
//! Products need no decoding beyond a shift and a mask: `word >> 2 j & 0x03030303` holds four codes as bytes, the
//! *quad* `4 w + j` of the row, and the other operand is stored in the same order.

pub(crate) mod adjoint;
pub(crate) mod apply;
pub(crate) mod digits;
pub(crate) mod gather;
pub(crate) mod gram;
mod matrix;
pub(crate) mod missing;
pub(crate) mod pack;
pub(crate) mod pairs;
pub(crate) mod product;
pub(crate) mod slices;
pub(crate) mod standardize;
pub(crate) mod steps;
pub(crate) mod uniform;
pub(crate) mod weighted;

pub use self::matrix::PackedMatrix;

/// Most samples of a product, or columns of a matrix: 256 times as many, the largest sum of a row's codes times digits, is
/// below 2^31.
pub(crate) const MAX_SAMPLES: u64 = (1 << 23) - 1;

/// Bytes of a panel that stays on the device, about: what fills a GPU, in few launches.
pub(crate) const PANEL_BYTES: u64 = 256 << 20;

/// Most rows of a panel, so that narrow ones do not need a large table of factors.
pub(crate) const PANEL_ROWS: u64 = 1 << 20;

/// Words of a row: a multiple of 4.
pub(crate) const fn row_words(samples: u64) -> u64 {
    samples.div_ceil(64) * 4
}

/// The sample at a place of a quad.
pub(crate) const fn sample(quad: usize, place: usize) -> usize {
    quad / 4 * 16 + 4 * place + quad % 4
}
