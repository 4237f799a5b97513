//! Dot products of codes and limbs, four bytes a lane, on what the processor has for them.

#![cfg_attr(
    target_arch = "x86_64",
    allow(unsafe_code, reason = "pulp has the token of AVX-512 VNNI, and not yet its one instruction")
)]

use bytemuck::Pod;
use pulp::NullaryFnOnce;

/// Vectors of words, and the product of four unsigned bytes of 0 to 3 with four signed ones.
pub(crate) trait Dot: Copy + Send + Sync {
    /// A vector in registers.
    type Vector: Pod;
    /// A vector in memory: an array of words, at no alignment of its own.
    type Words: Pod;

    /// Runs `f` compiled for these vectors: only what is inlined into it gains.
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output;

    /// A vector of one word.
    fn splat(self, word: u32) -> Self::Vector;

    /// Adds to each lane of `sums` the products of its four codes and limbs.
    fn dot(self, sums: Self::Vector, codes: Self::Vector, limbs: Self::Vector) -> Self::Vector;

    /// The bytes of `words` shifted right by `shift`, modulo 4.
    fn quads(self, words: Self::Vector, shift: u32) -> Self::Vector;

    /// For a code in byte r of a word, that byte of word r of the table.
    fn lookup(self, table: [u32; 4], codes: Self::Vector) -> Self::Vector;

    /// The number of words that hold a missing code, or with `ANY` one that is not 0.
    #[inline(always)]
    fn holding<const ANY: bool>(self, words: &[u32]) -> usize {
        holding::<ANY>(words)
    }

    /// Writes where each missing code is, or with `ANY` each that is not 0: 32 times its word's place, plus its lower bit's in
    /// the word. In any order; gives how many. `bits` has room for 16 more than there are.
    #[inline(always)]
    fn list<const ANY: bool>(self, words: &[u32], bits: &mut [u32]) -> usize {
        const PART: usize = 64;
        let mut held = [(0, 0); PART];
        let mut used = 0;
        for (first, words) in (0..).step_by(32 * PART).zip(words.chunks(PART)) {
            let mut holding = 0;
            for (place, &word) in (first..).step_by(32).zip(words) {
                // Without a branch: no processor would foretell which hold some.
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

    /// Four rows byte by byte: byte r of word p is byte p of row r.
    #[inline(always)]
    fn interleave(self, rows: [[u32; 4]; 4]) -> [u32; 16] {
        let bytes: [[u8; 16]; 4] = bytemuck::cast(rows.map(|row| row.map(u32::to_le)));
        std::array::from_fn(|p| u32::from_le_bytes([bytes[0][p], bytes[1][p], bytes[2][p], bytes[3][p]]))
    }
}

/// In a table of four words, where each byte's own begins.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
const ROWS: u32 = 0x0c08_0400;

/// True where a second product takes less time than a walk over the missing codes: more than four words in five hold one, as
/// with one code in 10 missing by chance.
pub(crate) const fn is_dense(holding: usize, words: usize) -> bool {
    5 * holding > 4 * words
}

/// 1 at each code of a word that is missing.
#[inline(always)]
pub(crate) const fn missing(word: u32) -> u32 {
    word & word >> 1 & 0x5555_5555
}

/// 1 at each code of a word that is missing, or with `ANY` that is not 0.
#[inline(always)]
const fn listed<const ANY: bool>(word: u32) -> u32 {
    if ANY { (word | word >> 1) & 0x5555_5555 } else { missing(word) }
}

/// [`Dot::holding`] in plain code.
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
    /// Runs. Tiles of `NARROW` words by `WIDE` vectors of sums fit the registers.
    fn run<D: Dot, const NARROW: usize, const WIDE: usize>(self, dot: D);
}

/// A way to compute dot products.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path {
    /// 64 products an instruction.
    #[cfg(target_arch = "x86_64")]
    Vnni(Vnni),
    /// 32 products in three instructions.
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    /// 16 products in four instructions.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(pulp::aarch64::Neon),
    /// Plain code.
    Plain,
}

impl Path {
    /// The fastest one here.
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

    /// Every one that this processor has.
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
            // The codes of 16 more words are listed at the bits between.
            let mut left = simd._mm512_or_si512(listed(even), simd._mm512_slli_epi32::<1>(listed(odd)));
            loop {
                let some = simd._mm512_test_epi32_mask(left, left);
                if some == 0 {
                    break;
                }
                // The lowest of each word: a power of two, which a floating-point number's exponent tells.
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
        // Word w of each row side by side, then the bytes of four words.
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
        // Far from the ends of 16 bits: two products of 3 by 128 at most.
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

/// Vectors of the compiler's own.
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
