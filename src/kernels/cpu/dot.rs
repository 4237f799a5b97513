//! Dot products of codes and limbs, four bytes per lane, by the best instructions of the processor.

#![cfg_attr(
    target_arch = "x86_64",
    allow(unsafe_code, reason = "pulp has the token of AVX-512 VNNI, and not yet its one instruction")
)]

use bytemuck::Pod;
use pulp::NullaryFnOnce;

/// Vectors of words, and products of four unsigned bytes (0 to 3) with four signed bytes.
pub(crate) trait Dot: Copy + Send + Sync {
    /// A vector in registers.
    type Vector: Pod;
    /// A vector in memory: an array of words without any alignment of its own.
    type Words: Pod;

    /// Runs `f` compiled for these vectors: only code that is inlined into `f` benefits.
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output;

    /// Returns a vector with the same word in all lanes.
    fn splat(self, word: u32) -> Self::Vector;

    /// Adds to each lane of `sums` the products of its four codes and limbs.
    fn dot(self, sums: Self::Vector, codes: Self::Vector, limbs: Self::Vector) -> Self::Vector;

    /// Returns the bytes of `words` shifted right by `shift`, modulo 4.
    fn quads(self, words: Self::Vector, shift: u32) -> Self::Vector;

    /// Looks up codes: for a code in byte r of a word, returns the byte of word r of the table whose index is the code.
    fn lookup(self, table: [u32; 4], codes: Self::Vector) -> Self::Vector;

    /// Returns the number of words that hold a missing code, or with `ANY` a code that is not 0.
    #[inline(always)]
    fn holding<const ANY: bool>(self, words: &[u32]) -> usize {
        holding::<ANY>(words)
    }

    /// Lists the missing codes, or with `ANY` the codes that are not 0, in any order: for each, 32 times the word's index plus the position of the
    /// code's lower bit in the word. Returns their number. `bits` must have space for 16 more entries than there are.
    #[inline(always)]
    fn list<const ANY: bool>(self, words: &[u32], bits: &mut [u32]) -> usize {
        const PART: usize = 64;
        let mut held = [(0, 0); PART];
        let mut used = 0;
        for (first, words) in (0..).step_by(32 * PART).zip(words.chunks(PART)) {
            let mut holding = 0;
            for (place, &word) in (first..).step_by(32).zip(words) {
                // This has no branch: a processor cannot predict which words hold such codes.
                held[holding] = (place, listed::<ANY>(word));
                holding += usize::from(held[holding].1 != 0);
            }
            for &(place, mut left) in &held[..holding] {
                while left != 0 {
                    bits[used] = place + left.trailing_zeros();
                    left &= left - 1;
                    used += 1;
                }
            }
        }
        used
    }

    /// Interleaves four rows byte by byte: byte r of word p is byte p of row r.
    #[inline(always)]
    fn interleave(self, rows: [[u32; 4]; 4]) -> [u32; 16] {
        let bytes: [[u8; 16]; 4] = bytemuck::cast(rows.map(|row| row.map(u32::to_le)));
        std::array::from_fn(|p| u32::from_le_bytes([bytes[0][p], bytes[1][p], bytes[2][p], bytes[3][p]]))
    }
}

/// For each byte of a word, the index at which the byte's part of a table of four words starts.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
const ROWS: u32 = 0x0c08_0400;

/// Returns true if a second product is faster than a loop over the missing codes: if more than four words in five hold one (10 % missing).
pub(crate) const fn is_dense(holding: usize, words: usize) -> bool {
    5 * holding > 4 * words
}

/// Returns 1 at each missing code of a word.
#[inline(always)]
pub(crate) const fn missing(word: u32) -> u32 {
    word & word >> 1 & 0x5555_5555
}

/// Returns 1 at each missing code of a word, or with `ANY` at each code that is not 0.
#[inline(always)]
const fn listed<const ANY: bool>(word: u32) -> u32 {
    if ANY { (word | word >> 1) & 0x5555_5555 } else { missing(word) }
}

/// Computes [`Dot::holding`] in plain code.
#[inline(always)]
fn holding<const ANY: bool>(words: &[u32]) -> usize {
    let mut holding = 0;
    for &word in words {
        holding += usize::from(listed::<ANY>(word) != 0);
    }
    holding
}

/// Work that runs on the vectors of a [`Path`].
pub(crate) trait Work {
    /// Runs the work. Tiles of `NARROW` words by `WIDE` vectors of sums fit the registers.
    fn run<D: Dot, const NARROW: usize, const WIDE: usize>(self, dot: D);
}

/// A way to compute dot products.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path {
    /// 64 products per instruction.
    #[cfg(target_arch = "x86_64")]
    Vnni(Vnni),
    /// 32 products in three instructions.
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    /// 16 products in four instructions.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(pulp::aarch64::Neon),
    /// Code without vector instructions.
    Plain,
}

impl Path {
    /// Returns the fastest path of this processor.
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(vnni) = Vnni::try_new() {
            return Self::Vnni(vnni);
        } else if let Some(avx2) = pulp::x86::V3::try_new() {
            return Self::Avx2(avx2);
        }
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        if let Some(neon) = pulp::aarch64::Neon::try_new() {
            return Self::Neon(neon);
        }
        Self::Plain
    }

    /// Returns all paths that this processor supports.
    #[cfg(test)]
    pub(crate) fn supported() -> Vec<Self> {
        #[allow(unused_mut, reason = "one on other processors")]
        let mut paths = vec![Self::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            paths.extend(Vnni::try_new().map(Self::Vnni));
            paths.extend(pulp::x86::V3::try_new().map(Self::Avx2));
        }
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        paths.extend(pulp::aarch64::Neon::try_new().map(Self::Neon));
        paths
    }

    pub(crate) fn run(self, work: impl Work) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni(vnni) => work.run::<_, 4, 4>(vnni),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => work.run::<_, 3, 2>(avx2),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(neon) => work.run::<_, 3, 4>(neon),
            Self::Plain => work.run::<_, 3, 2>(Plain),
        }
    }
}

#[cfg(target_arch = "x86_64")]
pulp::simd_type! {
    /// Proof that the processor has AVX-512 with VNNI.
    pub(crate) struct Vnni {
        pub(crate) avx2: "avx2",
        pub(crate) bmi1: "bmi1",
        pub(crate) bmi2: "bmi2",
        pub(crate) popcnt: "popcnt",
        pub(crate) lzcnt: "lzcnt",
        pub(crate) avx512f: "avx512f",
        pub(crate) avx512bw: "avx512bw",
        pub(crate) avx512dq: "avx512dq",
        pub(crate) avx512vl: "avx512vl",
        pub(crate) avx512vnni: "avx512vnni",
    }
}

#[cfg(target_arch = "x86_64")]
impl Dot for Vnni {
    type Vector = std::arch::x86_64::__m512i;
    type Words = [u32; 16];

    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output {
        Self::vectorize(self, f)
    }

    #[inline(always)]
    fn splat(self, word: u32) -> Self::Vector {
        self.avx512f._mm512_set1_epi32(word.cast_signed())
    }

    #[inline(always)]
    fn dot(self, sums: Self::Vector, codes: Self::Vector, limbs: Self::Vector) -> Self::Vector {
        // SAFETY: `self` proves that the processor has AVX-512 VNNI.
        unsafe { std::arch::x86_64::_mm512_dpbusd_epi32(sums, codes, limbs) }
    }

    #[inline(always)]
    fn quads(self, words: Self::Vector, shift: u32) -> Self::Vector {
        let shifted = self.avx512f._mm512_srlv_epi32(words, self.splat(shift));
        self.avx512f._mm512_and_si512(shifted, self.splat(0x0303_0303))
    }

    #[inline(always)]
    fn lookup(self, table: [u32; 4], codes: Self::Vector) -> Self::Vector {
        let places = self.avx512f._mm512_or_si512(codes, self.splat(ROWS));
        self.avx512bw._mm512_shuffle_epi8(pulp::cast([table; 4]), places)
    }

    #[inline(always)]
    fn holding<const ANY: bool>(self, words: &[u32]) -> usize {
        let simd = self.avx512f;
        let (vectors, rest) = words.as_chunks::<16>();
        let mut holding = holding::<ANY>(rest);
        for &words in vectors {
            let words = pulp::cast(words);
            let held = if ANY {
                simd._mm512_test_epi32_mask(words, words)
            } else {
                let both = simd._mm512_and_si512(words, simd._mm512_srli_epi32::<1>(words));
                simd._mm512_test_epi32_mask(both, self.splat(0x5555_5555))
            };
            holding += held.count_ones() as usize;
        }
        holding
    }

    #[inline(always)]
    fn list<const ANY: bool>(self, words: &[u32], bits: &mut [u32]) -> usize {
        let simd = self.avx512f;
        let (vectors, rest) = words.as_chunks::<32>();
        let mut last = [0; 32];
        last[..rest.len()].copy_from_slice(rest);
        let mut first =
            pulp::cast([0u32, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 480]);
        let mut used = 0;
        for &words in vectors.iter().chain((!rest.is_empty()).then_some(&last)) {
            let [even, odd]: [Self::Vector; 2] = pulp::cast(words);
            let listed = |words| {
                let shifted = simd._mm512_srli_epi32::<1>(words);
                let bits = if ANY {
                    simd._mm512_or_si512(words, shifted)
                } else {
                    simd._mm512_and_si512(words, shifted)
                };
                simd._mm512_and_si512(bits, self.splat(0x5555_5555))
            };
            // The codes of 16 more words are listed at the bits in between.
            let mut left = simd._mm512_or_si512(listed(even), simd._mm512_slli_epi32::<1>(listed(odd)));
            loop {
                let some = simd._mm512_test_epi32_mask(left, left);
                if some == 0 {
                    break;
                }
                // Takes the lowest bit of each word: a power of two, whose position is the exponent of its floating-point value.
                let lowest = simd._mm512_and_si512(left, simd._mm512_sub_epi32(self.splat(0), left));
                left = simd._mm512_andnot_si512(lowest, left);
                let power = simd._mm512_castps_si512(simd._mm512_cvtepu32_ps(lowest));
                let bit = simd._mm512_sub_epi32(simd._mm512_srli_epi32::<23>(power), self.splat(127));
                let in_word = simd._mm512_and_si512(bit, self.splat(30));
                let half = simd._mm512_slli_epi32::<9>(simd._mm512_and_si512(bit, self.splat(1)));
                let bit = simd._mm512_add_epi32(first, simd._mm512_or_si512(half, in_word));
                let bits: &mut [u32; 16] = &mut bits[used..].as_chunks_mut().0[0];
                *bits = pulp::cast(simd._mm512_maskz_compress_epi32(some, bit));
                used += some.count_ones() as usize;
            }
            first = simd._mm512_add_epi32(first, self.splat(1024));
        }
        used
    }

    #[inline(always)]
    fn interleave(self, rows: [[u32; 4]; 4]) -> [u32; 16] {
        // Brings word w of all rows together, then interleaves the bytes of these four words.
        const WORDS: [u32; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
        const BYTES: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
        let fours = self.avx512f._mm512_permutexvar_epi32(pulp::cast(WORDS), pulp::cast(rows));
        pulp::cast(self.avx512bw._mm512_shuffle_epi8(fours, pulp::cast([BYTES; 4])))
    }
}

#[cfg(target_arch = "x86_64")]
impl Dot for pulp::x86::V3 {
    type Vector = std::arch::x86_64::__m256i;
    type Words = [u32; 8];

    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output {
        Self::vectorize(self, f)
    }

    #[inline(always)]
    fn splat(self, word: u32) -> Self::Vector {
        self.avx._mm256_set1_epi32(word.cast_signed())
    }

    #[inline(always)]
    fn dot(self, sums: Self::Vector, codes: Self::Vector, limbs: Self::Vector) -> Self::Vector {
        // The sums are far from the bounds of 16 bits: at most two products of 3 by 128.
        let pairs = self.avx2._mm256_maddubs_epi16(codes, limbs);
        let fours = self.avx2._mm256_madd_epi16(pairs, self.splat(0x0001_0001));
        self.avx2._mm256_add_epi32(sums, fours)
    }

    #[inline(always)]
    fn quads(self, words: Self::Vector, shift: u32) -> Self::Vector {
        let shifted = self.avx2._mm256_srlv_epi32(words, self.splat(shift));
        self.avx2._mm256_and_si256(shifted, self.splat(0x0303_0303))
    }

    #[inline(always)]
    fn lookup(self, table: [u32; 4], codes: Self::Vector) -> Self::Vector {
        let places = self.avx2._mm256_or_si256(codes, self.splat(ROWS));
        self.avx2._mm256_shuffle_epi8(pulp::cast([table; 2]), places)
    }
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
impl Dot for pulp::aarch64::Neon {
    type Vector = std::arch::aarch64::uint32x4_t;
    type Words = [u32; 4];

    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output {
        Self::vectorize(self, f)
    }

    #[inline(always)]
    fn splat(self, word: u32) -> Self::Vector {
        self.neon.vdupq_n_u32(word)
    }

    #[inline(always)]
    fn dot(self, sums: Self::Vector, codes: Self::Vector, limbs: Self::Vector) -> Self::Vector {
        let neon = self.neon;
        let (codes, limbs) = (pulp::cast(codes), pulp::cast(limbs));
        let low = neon.vmull_s8(neon.vget_low_s8(codes), neon.vget_low_s8(limbs));
        let pairs = neon.vpaddq_s16(low, neon.vmull_high_s8(codes, limbs));
        pulp::cast(neon.vpadalq_s16(pulp::cast(sums), pairs))
    }

    #[inline(always)]
    fn quads(self, words: Self::Vector, shift: u32) -> Self::Vector {
        let shift = self.neon.vdupq_n_s32(-shift.cast_signed());
        self.neon.vandq_u32(self.neon.vshlq_u32(words, shift), self.splat(0x0303_0303))
    }

    #[inline(always)]
    fn lookup(self, table: [u32; 4], codes: Self::Vector) -> Self::Vector {
        let places = self.neon.vorrq_u32(codes, self.splat(ROWS));
        pulp::cast(self.neon.vqtbl1q_u8(pulp::cast(table), pulp::cast(places)))
    }
}

/// The path without explicit vector instructions: the compiler vectorises it by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

impl Dot for Plain {
    type Vector = [u32; 8];
    type Words = [u32; 8];

    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output {
        pulp::Arch::new().dispatch(f)
    }

    #[inline(always)]
    fn splat(self, word: u32) -> Self::Vector {
        [word; 8]
    }

    #[inline(always)]
    fn dot(self, mut sums: Self::Vector, codes: Self::Vector, limbs: Self::Vector) -> Self::Vector {
        for byte in 0..4 {
            for ((sum, code), limb) in sums.iter_mut().zip(codes).zip(limbs) {
                let limb = (limb << (24 - 8 * byte)).cast_signed() >> 24;
                *sum = sum.wrapping_add((code >> (8 * byte) & 3).wrapping_mul(limb.cast_unsigned()));
            }
        }
        sums
    }

    #[inline(always)]
    fn quads(self, words: Self::Vector, shift: u32) -> Self::Vector {
        words.map(|word| word >> shift & 0x0303_0303)
    }

    #[inline(always)]
    fn lookup(self, table: [u32; 4], codes: Self::Vector) -> Self::Vector {
        codes.map(|codes| {
            let of_row = |r: u32| (table[r as usize] >> (8 * (codes >> (8 * r) & 3)) & 255) << (8 * r);
            of_row(0) | of_row(1) | of_row(2) | of_row(3)
        })
    }
}

#[cfg(test)]
mod tests;
