//! Rows of which most codes are 0: rare variants. What the others add is found one by one.

use super::dot::{Dot, missing};

/// A row is sparse with a code in one word of as many: then its codes take less than a third of a product's time.
const SPARSE: usize = 4;

/// Whether a row is sparse. `places` has room for 16 more than there are words.
#[inline(always)]
pub(super) fn is_sparse<D: Dot>(dot: D, packed: &[u32], places: &mut [u32]) -> bool {
    dot.find::<true>(packed, places) * SPARSE <= packed.len()
}

/// Rows in the order in which they are multiplied.
pub(super) struct Split {
    /// Those that are not sparse, then those that are.
    pub(super) order: Vec<u32>,
    pub(super) dense: usize,
}

impl Split {
    /// Of rows of so many words.
    #[inline(always)]
    pub(super) fn new<D: Dot>(dot: D, packed: &[u32], words: usize, places: &mut Vec<u32>) -> Self {
        places.resize(words + 16, 0);
        let rows = packed.len() / words;
        let mut order = Vec::with_capacity(rows);
        let mut sparse = Vec::new();
        for (row, packed) in (0..).zip(packed.chunks_exact(words)) {
            let of = if is_sparse(dot, packed, places) { &mut sparse } else { &mut order };
            of.push(row);
        }
        let dense = order.len();
        order.append(&mut sparse);
        Self { order, dense }
    }
}

/// Lists the quad and the code, in its byte, of each code of a row that is not 0, and of each missing one.
#[inline(always)]
pub(super) fn list<D: Dot>(
    dot: D,
    packed: &[u32],
    places: &mut Vec<u32>,
    codes: &mut Vec<(u32, u32)>,
    absent: &mut Vec<(u32, u32)>,
) {
    places.resize(packed.len() + 16, 0);
    codes.clear();
    absent.clear();
    let used = dot.find::<true>(packed, places);
    for &place in &places[..used] {
        let word = packed[place as usize];
        let mut rest = word;
        while rest != 0 {
            let bit = rest.trailing_zeros() & !1;
            codes.push((4 * place + bit / 2 % 4, (rest >> bit & 3) << (bit & 24)));
            rest &= !(3 << bit);
        }
        let mut gaps = missing(word);
        while gaps != 0 {
            let bit = gaps.trailing_zeros();
            gaps &= gaps - 1;
            absent.push((4 * place + bit / 2 % 4, 1 << (bit & 24)));
        }
    }
}
