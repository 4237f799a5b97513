//! Random rows of codes 0, 1 and 2.

use super::{apply::pieces, check_entries, row_words};
use crate::{
    Device, Error, Result, Tensor,
    kernel::{Grid, small},
    kernels::{
        WG, WG_ALONE,
        packed_uniform::{PACKED_UNIFORM, Params},
    },
    random::random_words,
};

/// Returns rows `first..first + rows` of a random matrix of `columns` entries in {0, 1, 2}: (rows, words) of codes. For one seed, the codes
/// are the same on every device and in any pieces. Enqueues; does not wait.
///
/// The codes of word w of row i are the first 16 digits in base 3 of word `i words + w` of the seed's [`random_words`]. Each sequence of 16
/// digits begins 99 or 100 of the 2^32 words.
///
/// # Cost
/// A few dozen operations for each word of 16 entries.
///
/// # Errors
/// [`Error::Limit`] when a row does not fit a binding, or the rows do not fit a buffer; [`Error::OutOfMemory`].
pub fn packed_uniform(
    device: &Device,
    seed: u64,
    first: u64,
    rows: u64,
    columns: u64,
) -> Result<Tensor<u32>> {
    check_entries(columns)?;
    let words = row_words(columns);
    // Rows are whole blocks of four words.
    let Some((block, count)) = first.checked_mul(words / 4).zip(rows.checked_mul(words)) else {
        let requested = first.max(rows);
        return Err(Error::Limit { what: "rows of a random matrix", requested, max: u64::MAX / words });
    };
    let random = random_words(device, seed, block, count)?;
    let mut packed = random.reshape(&[rows, words])?;
    if packed.is_empty() {
        return Ok(packed);
    }
    let limits = device.limits();
    let room = limits.room();
    let items = u64::from(limits.groups_per_axis).saturating_pow(2).saturating_mul(WG.into());
    let step = (room / 4).min(items.saturating_mul(4)) / words;
    if step == 0 {
        return Err(Error::Limit { what: "bytes of a packed row", requested: 4 * words, max: room });
    }
    for (first, end) in pieces(0..rows, step) {
        let n = (end - first) * words;
        let target = packed.window_update(first * words..end * words);
        let params =
            Params { n: small(n), words: small(words), columns: small(columns), packed0: target.start };
        let grid = Grid::linear((n / 4).div_ceil(WG.into()), limits.groups_per_axis, 16 * n)?;
        device.launch(&PACKED_UNIFORM, &WG_ALONE, grid, &[target.arg], &params)?;
    }
    Ok(packed)
}
