//! Random rows of codes 0, 1 and 2.

use super::{check_entries, row_words};
use crate::{Device, Error, Result, Tensor, kernels::random::Made, random::made};

/// Returns rows `first..first + rows` of a random matrix of `columns` entries in {0, 1, 2}: (rows, words) of codes. For one seed, the codes
/// are the same on every device and in any pieces. Enqueues; does not wait.
///
/// The codes of word w of row i are the first 16 digits in base 3 of word `i words + w` of the seed's
/// [`random_words`](crate::random::random_words). Each sequence of 16
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
    let blocks = first.checked_mul(words / 4).zip(rows.checked_mul(words));
    let Some((block, count)) = blocks.filter(|(block, count)| block.checked_add(count / 4).is_some()) else {
        let requested = first.max(rows);
        return Err(Error::Limit {
            what: "rows of a random matrix",
            requested,
            max: u64::MAX / words.max(1),
        });
    };
    let row = [words, columns];
    made("packed_uniform", Made::Codes, device, seed, block, count, row)?.reshape(&[rows, words])
}
