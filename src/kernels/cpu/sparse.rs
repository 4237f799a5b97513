//! Rows of which most codes are 0. What the others add is found one by one.

use super::dot::Dot;

/// A row is sparse with a code in one word of as many: then its codes take less than a third of a product's time.
const SPARSE: usize = 4;

/// True where a row is sparse.
#[inline(always)]
pub(crate) fn is_sparse<D: Dot>(dot: D, packed: &[u32]) -> bool {
    dot.holding::<true>(packed) * SPARSE <= packed.len()
}

/// The maximum number of codes of a sparse row of so many words that are not 0.
pub(crate) const fn most_codes(words: usize) -> usize {
    16 * (words / SPARSE)
}

/// The code at a bit of a row.
#[inline(always)]
pub(crate) const fn code(packed: &[u32], bit: u32) -> u32 {
    packed[bit as usize / 32] >> (bit % 32) & 3
}

/// Rows in the order in which they are multiplied.
pub(crate) struct Split {
    /// The rows that are not sparse, then those that are.
    pub(crate) order: Vec<u32>,
    pub(crate) dense: usize,
}

impl Split {
    /// Splits rows of so many words.
    #[inline(always)]
    pub(crate) fn new<D: Dot>(dot: D, packed: &[u32], words: usize) -> Self {
        let rows = packed.len() / words;
        let mut order = Vec::with_capacity(rows);
        let mut sparse = Vec::new();
        for (row, packed) in (0..).zip(packed.chunks_exact(words)) {
            let list = if is_sparse(dot, packed) { &mut sparse } else { &mut order };
            list.push(row);
        }
        let dense = order.len();
        order.append(&mut sparse);
        Self { order, dense }
    }
}
