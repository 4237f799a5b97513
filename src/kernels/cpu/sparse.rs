//! Rows in which most codes are 0, and whose other codes are processed one by one.

use super::dot::Dot;

/// A row is sparse if at most one word in this number holds a code that is not 0: its codes then take less than a third of a product's time.
const SPARSE: usize = 4;

/// Returns the maximum number of nonzero codes of a sparse row of `words` words.
pub(crate) const fn most_codes(words: usize) -> usize {
    16 * (words / SPARSE)
}

/// Returns the code at a bit of a row.
#[inline(always)]
pub(crate) const fn code(packed: &[u32], bit: u32) -> u32 {
    packed[bit as usize / 32] >> (bit % 32) & 3
}

/// Rows in the order in which they are multiplied.
pub(crate) struct Split {
    /// The indices of the rows that are not sparse, then those of the sparse rows.
    pub(crate) order: Vec<u32>,
    pub(crate) dense: usize,
}

impl Split {
    /// Splits rows of `words` words.
    #[inline(always)]
    pub(crate) fn new<D: Dot>(dot: D, packed: &[u32], words: usize) -> Self {
        let rows = packed.len() / words;
        let mut order = Vec::with_capacity(rows);
        let mut sparse = Vec::new();
        for (row, packed) in (0..).zip(packed.chunks_exact(words)) {
            let is_sparse = dot.holding::<true>(packed) * SPARSE <= packed.len();
            if is_sparse { sparse.push(row) } else { order.push(row) }
        }
        let dense = order.len();
        order.append(&mut sparse);
        Self { order, dense }
    }
}
