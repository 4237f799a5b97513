//! What the kernels of packed genotypes share: where codes are missing.

/// 1 at each code of a word that is missing.
#[inline(always)]
pub(super) const fn missing(word: u32) -> u32 {
    word & word >> 1 & 0x5555_5555
}

/// The same of the two words of a pair.
#[inline(always)]
pub(super) fn missing_of_pair(&[low, high]: &[u32; 2]) -> u64 {
    let pair = u64::from(low) | u64::from(high) << 32;
    pair & pair >> 1 & 0x5555_5555_5555_5555
}

/// Finds the pairs of words in which a code is missing; gives the number of pairs and of codes.
#[inline(always)]
pub(super) fn find(words: &[u32], pairs: &mut [u16]) -> (usize, usize) {
    let (mut used, mut codes) = (0, 0);
    for (i, pair) in (0..).zip(words.as_chunks::<2>().0) {
        let gaps = missing_of_pair(pair);
        // Without a branch: no processor would foretell which are empty.
        pairs[used] = i;
        used += usize::from(gaps != 0);
        codes += gaps.count_ones();
    }
    (used, codes as usize)
}
