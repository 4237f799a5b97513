//! Digests of bytes, by which a change is detected.

/// Returns a digest of bytes, such as a chunk's, seeded with their position. Each step is a bijection, so every change of a single word is
/// detected. The digest uses no secret: it detects accidents, not attacks.
pub fn digest(place: u64, bytes: &[u8]) -> u64 {
    // The constants are those of FNV-1a, but applied to words: applied to bytes, it would take as long as decoding.
    const PRIME: u64 = 0x0100_0000_01b3;
    let (words, rest) = bytes.as_chunks::<8>();
    let words =
        words.iter().map(|word| u64::from_le_bytes(*word)).chain(rest.iter().map(|&byte| byte.into()));
    let start = 0xcbf2_9ce4_8422_2325 ^ place;
    // The rotation lets a change in a word's high bits affect the low bits.
    words.fold(start, |state, word| (state ^ word).wrapping_mul(PRIME).rotate_left(23))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_place_and_order_counts() {
        let bytes: Vec<u8> = (0..77).collect();
        let whole = digest(3, &bytes);
        assert_eq!(whole, digest(3, &bytes));
        assert_ne!(whole, digest(4, &bytes));
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(whole, digest(3, &other), "bit {bit}");
        }
        // Swapping two bytes at any distance changes the digest.
        let long = vec![0u8; 4096];
        for (i, j) in (1..64).map(|j| (7, 7 + 8 * j)).chain((8..4000).map(|j| (7, j))) {
            let (mut one, mut other) = (long.clone(), long.clone());
            (one[i], other[j]) = (1, 1);
            assert_ne!(digest(0, &one), digest(0, &other), "{i} and {j}");
        }
    }
}
