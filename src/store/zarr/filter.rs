//! Filters of numcodecs, which change the elements of a chunk before it is compressed. Their documentation is the source of the formulas.

use std::{borrow::Cow, ops::Add};

use bytemuck::{NoUninit, Pod, bytes_of, pod_read_unaligned};
use half::f16;
use num_traits::AsPrimitive;
use zarrs::metadata::v3::MetadataV3;

use super::{
    guard::{Decoded, Size, Why, buffer, first, u32_at},
    layout,
};
use crate::{StoredType, dtype::nearest_f32, store::with_stored};

/// Numbers in a byte order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Numbers {
    dtype: StoredType,
    big_endian: bool,
}

/// A filter; of two types, the first is that of the elements, and the second that of what is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Filter {
    /// `delta`: each number is stored as the difference from the one before.
    Delta([Numbers; 2]),
    /// `fixedscaleoffset`: an element is `stored / scale + offset`.
    Scaled { types: [Numbers; 2], scale: f64, offset: f64 },
    /// `astype` and `quantize`: numbers are stored as another type.
    Cast([Numbers; 2]),
    /// `bitround`: elements are stored as they are.
    Nothing,
    /// `packbits`: booleans are bits, after a byte with the number of bits that the last byte has too many.
    Bits,
    /// `shuffle`: the first bytes of all elements of this size come before their second bytes.
    Shuffle(usize),
    /// `fletcher32`: a checksum follows the data.
    Fletcher32,
}

/// Sums as NumPy computes them in a type: integers wrap.
trait Wrapping: Pod {
    fn plus(self, other: Self) -> Self;
}

macro_rules! wrapping {
    ($plus:ident: $($type:ty),*) => {
        $(impl Wrapping for $type {
            fn plus(self, other: Self) -> Self {
                self.$plus(other)
            }
        })*
    };
}

wrapping!(wrapping_add: u8, i8, u16, i16, u32, i32, u64, i64);

wrapping!(add: f16, f32, f64);

impl Numbers {
    /// Parses a name of NumPy, such as `<i2`, or of Zarr. Without a byte order, as in `i2`, it is the native one.
    fn parse(name: &str) -> Option<Self> {
        let kind = name.trim_start_matches(['<', '>', '|', '=']);
        let dtype = StoredType::of_kind(kind).or_else(|| StoredType::of_full_name(name));
        let dtype = dtype.filter(|dtype| *dtype != StoredType::Bool)?;
        let big_endian = match &name[..name.len() - kind.len()] {
            "<" => false,
            ">" => true,
            "" | "|" | "=" => cfg!(target_endian = "big"),
            _ => return None,
        };
        Some(Self { dtype, big_endian })
    }

    /// Reverses the bytes of each number unless they are in native order, in which they are not copied.
    fn swap(self, data: &mut Cow<'_, [u8]>) {
        if self.big_endian != cfg!(target_endian = "big") {
            layout::swap_bytes(data.to_mut(), self.dtype.size());
        }
    }
}

impl Filter {
    /// Parses a filter, named as Zarr 3 names it; `None` for another codec.
    pub(crate) fn parse(codec: &MetadataV3) -> Why<Option<Self>> {
        let Some(name) = codec.name().strip_prefix("numcodecs.") else { return Ok(None) };
        let get = |key: &str| codec.configuration().and_then(|configuration| configuration.get(key));
        let wrong = |key: &str| format!("its `{name}` codec has no usable `{key}`");
        let numbers = |key: &str| {
            let numbers = get(key).and_then(|value| Numbers::parse(value.as_str()?));
            numbers.ok_or_else(|| wrong(key))
        };
        let both = |stored: &str| {
            let decoded = numbers("dtype")?;
            Ok::<_, String>([
                decoded,
                if get(stored).is_some_and(|value| !value.is_null()) { numbers(stored)? } else { decoded },
            ])
        };
        let number = |key: &str| {
            let number = get(key).and_then(serde_json::Value::as_f64).filter(|number| number.is_finite());
            number.ok_or_else(|| wrong(key))
        };
        Ok(Some(match name {
            "delta" => Self::Delta(both("astype")?),
            "fixedscaleoffset" => {
                Self::Scaled { types: both("astype")?, scale: number("scale")?, offset: number("offset")? }
            }
            "quantize" => Self::Cast(both("astype")?),
            "astype" => Self::Cast([numbers("decode_dtype")?, numbers("encode_dtype")?]),
            "bitround" => Self::Nothing,
            "packbits" => Self::Bits,
            "shuffle" => {
                let size = get("elementsize").map_or(Some(4), serde_json::Value::as_u64);
                let size = size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
                Self::Shuffle(size.ok_or_else(|| wrong("elementsize"))?)
            }
            "fletcher32" => Self::Fletcher32,
            _ => return Ok(None),
        }))
    }

    /// True if Zarr 3 has the filter among the codecs of elements, before the codec that makes bytes.
    pub(crate) fn is_of_elements(self) -> bool {
        !matches!(self, Self::Shuffle(_) | Self::Fletcher32)
    }

    /// Returns the types of the elements and of what is stored, for a filter of numbers.
    fn types(self) -> Option<[Numbers; 2]> {
        match self {
            Self::Delta(types) | Self::Scaled { types, .. } | Self::Cast(types) => Some(types),
            Self::Nothing | Self::Bits | Self::Shuffle(_) | Self::Fletcher32 => None,
        }
    }

    /// Returns the number of bytes of an element and of what is stored, for a filter of numbers.
    fn sizes(self) -> Option<[usize; 2]> {
        self.types().map(|types| types.map(|numbers| numbers.dtype.size()))
    }

    /// True if the filter takes elements whose numbers have `unit` bytes.
    pub(crate) fn fits(self, unit: usize) -> bool {
        self.sizes().is_none_or(|[decoded, _]| decoded == unit) && (unit == 1 || self != Self::Bits)
    }

    /// Returns the number of bytes of each number that elements of `unit` bytes are stored as.
    pub(crate) fn stored_unit(self, unit: usize) -> usize {
        let other = if self == Self::Nothing { unit } else { 1 };
        self.sizes().map_or(other, |[_, stored]| stored)
    }

    /// Returns the number of bytes that `bytes` bytes of elements are stored as.
    pub(crate) fn encoded(self, bytes: usize) -> usize {
        match (self, self.sizes()) {
            (_, Some([decoded, stored])) => (bytes / decoded).saturating_mul(stored),
            (Self::Bits, _) => 1 + bytes.div_ceil(8),
            (Self::Fletcher32, _) => bytes.saturating_add(4),
            _ => bytes,
        }
    }

    /// Returns the number of bytes that `data` has when it is decoded; `None` if this is no number.
    fn decoded(self, data: &[u8]) -> Option<usize> {
        let whole = |size: usize| data.len().is_multiple_of(size).then_some(data.len() / size);
        match (self, self.sizes()) {
            (_, Some([decoded, stored])) => whole(stored)?.checked_mul(decoded),
            (Self::Bits, _) => {
                let (&more, bits) = data.split_first()?;
                bits.len().checked_mul(8)?.checked_sub(more.into()).filter(|_| more < 8)
            }
            (Self::Shuffle(size), _) => whole(size).map(|_| data.len()),
            (Self::Fletcher32, _) => data.len().checked_sub(4),
            _ => Some(data.len()),
        }
    }

    /// Undoes the filter.
    pub(crate) fn decode(self, mut data: Cow<'_, [u8]>, size: Size) -> Decoded<Cow<'_, [u8]>> {
        let bytes =
            self.decoded(&data).ok_or_else(|| format!("{} bytes are no result of its filter", data.len()))?;
        size.check(bytes as u64, "its filter's data makes")?;
        let mut out = Vec::new();
        if !matches!(self, Self::Nothing | Self::Fletcher32) {
            out = buffer(bytes)?;
            out.resize(bytes, 0);
        }
        if let Some([_, stored]) = self.types() {
            stored.swap(&mut data);
        }
        match self {
            Self::Delta([decoded, stored]) => {
                with_stored!(stored.dtype, S => with_stored!(decoded.dtype, T => {
                    let mut sum = T::default();
                    map(&data, &mut out, |x: S| {
                        sum = sum.plus(x.as_());
                        sum
                    });
                }));
            }
            Self::Scaled { types: [decoded, stored], scale, offset } => {
                // NumPy divides f16 in f16, f32 in f32, and integers in f64.
                let singles = [scale, offset].map(nearest_f32);
                let halves = [scale, offset].map(f16::from_f64);
                with_stored!(stored.dtype, S => with_stored!(decoded.dtype, T => match stored.dtype {
                    StoredType::F16 => map(&data, &mut out, |x: S| -> T {
                        let x: f16 = x.as_();
                        (x / halves[0] + halves[1]).as_()
                    }),
                    StoredType::F32 => map(&data, &mut out, |x: S| -> T {
                        let x: f32 = x.as_();
                        (x / singles[0] + singles[1]).as_()
                    }),
                    _ => map(&data, &mut out, |x: S| -> T {
                        let x: f64 = x.as_();
                        (x / scale + offset).as_()
                    }),
                }));
            }
            Self::Cast([decoded, stored]) => {
                with_stored!(stored.dtype, S => with_stored!(decoded.dtype, T => map(&data, &mut out, |x: S| -> T { x.as_() })));
            }
            Self::Nothing => return Ok(data),
            Self::Bits => {
                for (bits, out) in data[1..].iter().zip(out.chunks_mut(8)) {
                    out.iter_mut().zip((0..8).rev()).for_each(|(out, bit)| *out = bits >> bit & 1);
                }
            }
            Self::Shuffle(size) => {
                for (at, bytes) in data.chunks_exact((data.len() / size).max(1)).enumerate() {
                    out[at..].iter_mut().step_by(size).zip(bytes).for_each(|(out, byte)| *out = *byte);
                }
            }
            Self::Fletcher32 => {
                if u32_at(&data, bytes) != Some(fletcher32(&data[..bytes])) {
                    return Err("the fletcher32 checksum does not match: the data is damaged".into());
                }
                return Ok(first(data, bytes));
            }
        }
        let mut out = Cow::Owned(out);
        if let Some([decoded, _]) = self.types() {
            decoded.swap(&mut out);
        }
        Ok(out)
    }
}

/// Converts each number of `data` to one of `out`.
fn map<S: Pod, T: NoUninit>(data: &[u8], out: &mut [u8], mut convert: impl FnMut(S) -> T) {
    let numbers = data.chunks_exact(size_of::<S>()).zip(out.chunks_exact_mut(size_of::<T>()));
    numbers.for_each(|(x, out)| out.copy_from_slice(bytes_of(&convert(pod_read_unaligned(x)))));
}

/// Returns the checksum by which HDF5 and numcodecs check data: two running sums of big-endian words of 16 bits, modulo 2^16 - 1.
fn fletcher32(data: &[u8]) -> u32 {
    /// As many words are added before the sums are folded.
    const WORDS: usize = 360;
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut first, mut second) = (0u32, 0u32);
    for block in data.chunks(2 * WORDS) {
        for word in block.chunks(2) {
            first += u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
            second += first;
        }
        (first, second) = (fold(first), fold(second));
    }
    fold(second) << 16 | fold(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types() {
        let [native, other] = if cfg!(target_endian = "big") { [">", "<"] } else { ["<", ">"] };
        for (kind, whole) in
            [("i1", "int8"), ("u2", "uint16"), ("i4", "int32"), ("f2", "float16"), ("f8", "float64")]
        {
            let expected = Numbers::parse(&format!("{native}{kind}"));
            assert!(
                expected.is_some_and(|numbers| numbers.dtype == StoredType::of_full_name(whole).unwrap()),
                "{kind}"
            );
            for same in [kind, whole, &format!("|{kind}"), &format!("={kind}")] {
                assert_eq!(Numbers::parse(same), expected, "{same}");
            }
            assert_ne!(Numbers::parse(&format!("{other}{kind}")), expected);
        }
        for name in ["", "<", "i3", "<<i4", "<>", "b1", "|b1", "bool", "<int8", "é4"] {
            assert_eq!(Numbers::parse(name), None, "{name}");
        }
    }
}
