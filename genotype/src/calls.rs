//! Packing of stored calls to 2-bit codes, four a byte: 0, 1 and 2 count alleles, 3 is missing.

use std::marker::PhantomData;

use pulp::NullaryFnOnce;

/// The kind of the stored bytes of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// One allele a sample.
    Haploid,
    /// Two alleles a sample.
    Diploid,
    /// A dosage of 0 to 2; a negative one is missing.
    Dosages,
}

impl Calls {
    /// Returns the number of bytes of a sample.
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

/// The layout of [`Calls::Haploid`].
struct Haploid;

impl Stored for Haploid {
    const STEP: usize = 64;

    #[inline(always)]
    fn codes(raw: &[u8]) -> ([u32; 4], u8) {
        bytes(raw, |allele| (if allele < 0 { 3 } else { u8::from(allele > 0) }, allele < -2))
    }
}

/// The layout of [`Calls::Diploid`].
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

/// The layout of [`Calls::Dosages`].
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

/// Packs consecutive samples; returns true if any of them is invalid.
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

/// Packs 64 codes into 4 words.
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

    /// Tests arbitrary bytes at every length around 64 samples.
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

    /// Returns the code that is expected of a call: an invalid one is missing.
    fn code(calls: Calls, call: &[i8]) -> u8 {
        let alternate = |allele: i8| u8::from(allele > 0);
        match (calls, call) {
            (Calls::Dosages, &[dosage @ 0..=2]) => dosage.cast_unsigned(),
            (Calls::Haploid, &[allele]) if allele >= 0 => alternate(allele),
            (Calls::Diploid, &[a, b]) if a >= 0 && b >= 0 => alternate(a) + alternate(b),
            (Calls::Diploid, &[a, -2] | &[-2, a]) if a >= 0 => 2 * alternate(a),
            _ => 3,
        }
    }

    /// One invalid value among many is found wherever it stands.
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
