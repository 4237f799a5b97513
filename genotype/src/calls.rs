//! Packing of stored calls to 2-bit codes, four a byte: 0, 1 and 2 count alleles, 3 is missing.

use std::marker::PhantomData;

use pulp::NullaryFnOnce;

/// The kind of the stored bytes of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    Haploid,
    Diploid,
    /// A dosage of 0 to 2; a negative one is missing.
    Dosages,
}

impl Calls {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Diploid => 2,
            Self::Haploid | Self::Dosages => 1,
        }
    }

    /// Packs consecutive samples to the bytes that their codes fill, with zeros after the last.
    /// Returns the index of the first byte that is not a valid allele or dosage, if there is one.
    pub(crate) fn pack(self, raw: &[u8], out: &mut [u8]) -> Option<usize> {
        let any_bad = match self {
            Self::Haploid => pack::<Haploid>(raw, out),
            Self::Diploid => pack::<Diploid>(raw, out),
            Self::Dosages => pack::<Dosage>(raw, out),
        };
        if any_bad { raw.iter().position(|&byte| self.refuses(byte.cast_signed())) } else { None }
    }

    /// Packs alleles from their bit planes, 8 from each byte of a plane. Returns false for dosages, and if an allele is not -2, -1, 0 or 1.
    pub(crate) fn pack_planes(self, planes: [&[u8]; 8], out: &mut [u8]) -> bool {
        match self {
            Self::Haploid => pack_planes::<Haploid>(planes, out),
            Self::Diploid => pack_planes::<Diploid>(planes, out),
            Self::Dosages => false,
        }
    }

    fn refuses(self, value: i8) -> bool {
        match self {
            Self::Haploid | Self::Diploid => value < -2,
            Self::Dosages => value > 2,
        }
    }
}

/// A way of storing a sample. It is a trait rather than a closure, since the compiler may not
/// inline a closure, and would then compile it without wide vectors.
trait Stored {
    /// The number of bytes of 64 samples.
    const STEP: usize;

    /// Returns the codes of up to 64 samples, 0 after the last, and the number of invalid samples.
    fn codes(raw: &[u8]) -> ([u32; 4], u8);
}

struct Haploid;

impl Stored for Haploid {
    const STEP: usize = 64;

    #[inline(always)]
    fn codes(raw: &[u8]) -> ([u32; 4], u8) {
        bytes(raw, |allele| (if allele < 0 { 3 } else { u8::from(allele > 0) }, allele < -2))
    }
}

struct Diploid;

impl Stored for Diploid {
    const STEP: usize = 128;

    #[inline(always)]
    fn codes(raw: &[u8]) -> ([u32; 4], u8) {
        let raw = padded::<128>(raw);
        let (mut codes, mut bad) = ([0; 64], 0);
        for (&[a, b], out) in raw.as_chunks().0.iter().zip(&mut codes) {
            // One 16-bit integer holds both alleles.
            let call = i16::from_le_bytes([a, b]);
            let (code, is_bad) = diploid(call << 8 >> 8, call >> 8);
            *out = code;
            bad += u8::from(is_bad);
        }
        (words(&codes), bad)
    }
}

struct Dosage;

impl Stored for Dosage {
    const STEP: usize = 64;

    #[inline(always)]
    fn codes(raw: &[u8]) -> ([u32; 4], u8) {
        bytes(raw, |dosage| {
            let missing = !(0..=2).contains(&dosage);
            (if missing { 3 } else { dosage.cast_unsigned() }, dosage > 2)
        })
    }
}

fn pack<S: Stored>(raw: &[u8], out: &mut [u8]) -> bool {
    pulp::Arch::new().dispatch(Run::<S> { raw, out, stored: PhantomData })
}

struct Run<'a, S> {
    raw: &'a [u8],
    out: &'a mut [u8],
    stored: PhantomData<S>,
}

impl<S: Stored> NullaryFnOnce for Run<'_, S> {
    type Output = bool;

    #[inline(always)]
    fn call(self) -> bool {
        let mut bad = 0;
        for (out, raw) in self.out.chunks_mut(16).zip(self.raw.chunks(S::STEP)) {
            let (words, wrong) = S::codes(raw);
            bad |= wrong;
            let words = words.map(u32::to_le_bytes);
            out.copy_from_slice(&words.as_flattened()[..out.len()]);
        }
        bad != 0
    }
}

/// Samples whose alleles are all -2, -1, 0 or 1, which the lowest and the highest bit of each tell apart.
trait StoredPlanes {
    /// The number of bytes of the codes of 64 alleles.
    const STEP: usize;

    /// Returns the codes of 64 alleles from their lowest and their highest bits.
    fn codes(low: u64, sign: u64) -> [u64; 2];
}

/// The lower bit of each code, or the first of two alleles.
const FIRST: u64 = 0x5555_5555_5555_5555;

impl StoredPlanes for Haploid {
    const STEP: usize = 16;

    #[inline(always)]
    fn codes(low: u64, sign: u64) -> [u64; 2] {
        // This moves bit i of a half to bit 2 i.
        let spread = |half: u64| {
            let steps = [(16, 0x0000_ffff_0000_ffff), (8, 0x00ff_00ff_00ff_00ff), (4, 0x0f0f_0f0f_0f0f_0f0f)];
            let steps = steps.into_iter().chain([(2, 0x3333_3333_3333_3333), (1, FIRST)]);
            steps.fold(half, |bits, (shift, mask)| (bits | bits << shift) & mask)
        };
        [0, 32].map(|at| {
            let half = |bits: u64| spread(bits >> at & 0xffff_ffff);
            half(low | sign) | half(sign) << 1
        })
    }
}

impl StoredPlanes for Diploid {
    const STEP: usize = 8;

    #[inline(always)]
    fn codes(low: u64, sign: u64) -> [u64; 2] {
        let [low_a, low_b, sign_a, sign_b] = [low, low >> 1, sign, sign >> 1].map(|bits| bits & FIRST);
        let [a, b] = [low_a & !sign_a, low_b & !sign_b];
        let missing = low_a & sign_a | low_b & sign_b | sign_a & sign_b;
        // An absent allele (-2) leaves a haploid call, which counts twice.
        let haploid = sign_a & !low_a | sign_b & !low_b;
        let one = (a ^ b) & !haploid | missing;
        let two = a & b | haploid & (a | b) | missing;
        [one | two << 1, 0]
    }
}

fn pack_planes<S: StoredPlanes>([low, between @ .., sign]: [&[u8]; 8], out: &mut [u8]) -> bool {
    let fits = between.iter().all(|plane| *plane == sign);
    if fits {
        pulp::Arch::new().dispatch(RunPlanes::<S> { low, sign, out, stored: PhantomData });
    }
    fits
}

struct RunPlanes<'a, S> {
    low: &'a [u8],
    sign: &'a [u8],
    out: &'a mut [u8],
    stored: PhantomData<S>,
}

impl<S: StoredPlanes> NullaryFnOnce for RunPlanes<'_, S> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let codes =
            |low, sign| S::codes(u64::from_le_bytes(low), u64::from_le_bytes(sign)).map(u64::to_le_bytes);
        let ((low, last_low), (sign, last_sign)) = (self.low.as_chunks(), self.sign.as_chunks());
        let (out, last) = self.out.split_at_mut(low.len() * S::STEP);
        for (out, (&low, &sign)) in out.chunks_exact_mut(S::STEP).zip(low.iter().zip(sign)) {
            out.copy_from_slice(&codes(low, sign).as_flattened()[..S::STEP]);
        }
        last.copy_from_slice(&codes(padded(last_low), padded(last_sign)).as_flattened()[..last.len()]);
    }
}

#[inline(always)]
fn bytes(raw: &[u8], code: impl Fn(i8) -> (u8, bool)) -> ([u32; 4], u8) {
    let raw = padded::<64>(raw);
    let (mut codes, mut bad) = ([0; 64], 0);
    for (&raw, out) in raw.iter().zip(&mut codes) {
        let (code, is_bad) = code(raw.cast_signed());
        *out = code;
        bad += u8::from(is_bad);
    }
    (words(&codes), bad)
}

/// Returns the code of two alleles, and true if one is invalid. An absent allele (-2) leaves a haploid call, which counts twice.
#[inline(always)]
fn diploid(a: i16, b: i16) -> (u8, bool) {
    let (low, high) = (a.min(b), a.max(b));
    let missing = (high < 0) | (low < 0) & (low != -2);
    let second = if low < 0 { high } else { low };
    (if missing { 3 } else { u8::from(high > 0) + u8::from(second > 0) }, low < -2)
}

/// Returns the stored bytes, with zeros after the end of the row.
#[inline(always)]
fn padded<const BYTES: usize>(raw: &[u8]) -> [u8; BYTES] {
    raw.first_chunk().copied().unwrap_or_else(|| {
        let mut bytes = [0; BYTES];
        bytes[..raw.len()].copy_from_slice(raw);
        bytes
    })
}

#[inline(always)]
fn words(codes: &[u8; 64]) -> [u32; 4] {
    let mut bytes = [0; 16];
    for (byte, four) in bytes.iter_mut().zip(codes.as_chunks().0) {
        // The multiplication moves each code to its place in the highest byte, and nothing carries into that byte.
        let sum = u32::from_le_bytes(*four).wrapping_mul(1 << 24 | 1 << 18 | 1 << 12 | 1 << 6);
        *byte = sum.to_le_bytes()[3];
    }
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use teatime::random::philox;

    use super::*;
    use crate::tests::code;

    #[test]
    fn codes_at_every_length() {
        let byte = |i: usize| philox([7, 7], i as u64)[0].to_le_bytes()[0];
        for calls in [Calls::Haploid, Calls::Diploid, Calls::Dosages] {
            for samples in 0..200 {
                // The first list has mostly valid values, the second any.
                for kinds in [&[0i8, 1, 2, -1, 0, -2][..], &[0, 1, 127, -2, -128, -3, 3, -1]] {
                    let raw: Vec<i8> = (0..samples * calls.bytes())
                        .map(|i| kinds[usize::from(byte(samples * 400 + i)) % kinds.len()])
                        .collect();
                    let mut expected = vec![0; samples.div_ceil(4)];
                    for (i, call) in raw.chunks(calls.bytes()).enumerate() {
                        expected[i / 4] |= code(calls, call) << (2 * (i % 4));
                    }
                    let mut out = vec![255; expected.len()];
                    let bad = calls.pack(bytemuck::cast_slice(&raw), &mut out);
                    assert_eq!(out, expected, "{calls:?} {samples}");
                    let is_bad = |&x: &i8| if calls == Calls::Dosages { x > 2 } else { x < -2 };
                    assert_eq!(bad, raw.iter().position(is_bad), "{calls:?} {samples}");
                }
            }
        }
    }

    /// Codes from bit planes are those of the alleles themselves; other alleles are refused, wherever they stand.
    #[test]
    fn codes_from_planes_at_every_length() {
        let number = |i: usize| philox([7, 8], i as u64)[0] as usize;
        let planes_of = |raw: &[u8]| -> [Vec<u8>; 8] {
            std::array::from_fn(|b| {
                let bits = |eight: &[u8]| (0..8).fold(0, |byte, i| byte | (eight[i] >> b & 1) << i);
                raw.chunks(8).map(bits).collect()
            })
        };
        for calls in [Calls::Haploid, Calls::Diploid] {
            for bytes in (0..40).chain([255, 256, 257]) {
                let alleles = [0i8, 1, -1, -2, 0, 1, 0, 0];
                let mut raw: Vec<u8> =
                    (0..8 * bytes).map(|i| alleles[number(bytes * 4096 + i) % 8].cast_unsigned()).collect();
                let mut expected = vec![0; (raw.len() / calls.bytes()).div_ceil(4)];
                assert_eq!(calls.pack(&raw, &mut expected), None);
                let mut out = vec![255; expected.len()];
                let planes = planes_of(&raw);
                assert!(calls.pack_planes(planes.each_ref().map(|plane| &plane[..]), &mut out));
                assert_eq!(out, expected, "{calls:?} {bytes}");
                for bad in [2i8, 3, 64, 127, -3, -128, -127, -66].iter().filter(|_| bytes > 0) {
                    let at = number(bytes) % raw.len();
                    let good = std::mem::replace(&mut raw[at], bad.cast_unsigned());
                    let planes = planes_of(&raw);
                    assert!(!calls.pack_planes(planes.each_ref().map(|plane| &plane[..]), &mut out), "{bad}");
                    raw[at] = good;
                }
            }
        }
    }

    #[test]
    fn a_bad_value_is_found_anywhere() {
        for calls in [Calls::Haploid, Calls::Diploid, Calls::Dosages] {
            let mut raw = vec![0u8; 150 * calls.bytes()];
            for at in 0..raw.len() {
                raw[at] = if calls == Calls::Dosages { 3 } else { (-3i8).cast_unsigned() };
                assert_eq!(calls.pack(&raw, &mut [0; 38]), Some(at), "{calls:?}");
                raw[at] = 0;
            }
            assert_eq!(calls.pack(&raw, &mut [0; 38]), None);
        }
    }
}
