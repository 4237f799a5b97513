//! Element types of tensors.

use bytemuck::Pod;
use half::{bf16, f16};

/// The type of a tensor's elements, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
#[non_exhaustive]
pub enum DType {
    F32,
    F16,
    BF16,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F64,
}

impl DType {
    /// All types, in the order of the codes that kernels use.
    pub const ALL: [Self; 10] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F64,
    ];

    /// Returns the number of bytes of an element.
    pub const fn size(self) -> u64 {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::U32 | Self::I32 => 4,
            Self::F16 | Self::BF16 | Self::U16 | Self::I16 => 2,
            Self::U8 | Self::I8 => 1,
        }
    }

    /// True for types with values that f32 does not hold.
    pub(crate) const fn is_wide(self) -> bool {
        matches!(self, Self::F64 | Self::I32 | Self::U32)
    }

    pub(crate) const fn is_integer(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// True if the other type holds all values of this type.
    pub(crate) const fn is_within(self, other: Self) -> bool {
        use DType::{BF16, F16, F32, F64, I8, I16, I32, U8, U16, U32};
        match other {
            F64 => true,
            F32 => !self.is_wide(),
            F16 => matches!(self, F16 | U8 | I8),
            BF16 => matches!(self, BF16 | U8 | I8),
            I32 => matches!(self, I32 | U16 | I16 | U8 | I8),
            U32 => matches!(self, U32 | U16 | U8),
            I16 => matches!(self, I16 | U8 | I8),
            U16 => matches!(self, U16 | U8),
            I8 | U8 => self as u8 == other as u8,
        }
    }

    /// Returns the number by which kernel sources select this type's `load`.
    pub(crate) const fn code(self) -> u32 {
        self as u32
    }

    /// Returns the type with this [`code`](Self::code).
    pub(crate) fn from_code(code: u32) -> Self {
        Self::ALL[code as usize]
    }
}

crate::stable_text! { enum DType { F32, F16, BF16, U8, I8, U16, I16, U32, I32, F64 } }

mod sealed {
    pub trait Sealed {}
}

/// A type that tensors can hold. Operations compute in f32, and convert other types to f32 on loading.
///
/// Elements that f32 may not hold, of f64, `u32` or `i32`, become f32 only on request, by [`Tensor::to_f32`](crate::Tensor::to_f32) or an option
/// `narrow`. Otherwise [products](crate::linalg::matmul()), [distances](crate::distance#accuracy) and [filters](crate::filter#types) compute in
/// f64 if the device [can](crate::Limits::f64), and return [`Error::NoF64`](crate::Error::NoF64) if not. [Statistics](crate::linalg::row_stats)
/// are computed in f64 on every device. Operations that exist only in f32 accept types that are [`InF32`].
pub trait Element: sealed::Sealed + Pod + Send + Sync + PartialEq + std::fmt::Debug {
    /// The type as a value.
    const DTYPE: DType;
    /// The type in which elements are computed: f64 for f64, `u32` and `i32`, otherwise f32.
    type Real: Real;

    /// Returns the value as kernels see it. f64, and integers beyond 2^24, round to nearest.
    fn to_f32(self) -> f32;

    /// Returns the value, exactly.
    fn to_f64(self) -> f64;
}

/// f32 or f64: the types in which [elements](Element::Real) are computed.
pub trait Real: Element<Real = Self> {
    /// The type of a computation that combines both types: f64 if either is f64.
    type With<R: Real>: Real;

    /// The distance from 1 to the next number.
    const EPSILON: f64;

    /// Converts an element, rounding to nearest.
    fn nearest(value: impl Element) -> Self;
}

impl Real for f32 {
    type With<R: Real> = R;
    const EPSILON: f64 = Self::EPSILON as f64;

    #[inline]
    fn nearest(value: impl Element) -> Self {
        value.to_f32()
    }
}

impl Real for f64 {
    type With<R: Real> = Self;
    const EPSILON: Self = Self::EPSILON;

    #[inline]
    fn nearest(value: impl Element) -> Self {
        value.to_f64()
    }
}

/// A type whose values all fit f32: every type but f64, `u32` and `i32`.
#[diagnostic::on_unimplemented(
    message = "f32 does not hold every `{Self}`, and this computes in f32",
    note = "`Tensor::to_f32` makes the nearest f32 of a tensor's elements"
)]
pub trait InF32: Element<Real = f32> {}
impl<T: Element<Real = f32>> InF32 for T {}

/// Returns the nearest f32, infinite beyond the largest.
#[allow(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
#[inline]
pub(crate) const fn nearest_f32(value: f64) -> f32 {
    value as f32
}

/// Returns the number that a device stores in two f32: with f64, the two words of an f64, the low word first; without, the nearest f32 and the
/// remainder.
#[inline]
pub(crate) fn joined(halves: &[f32; 2], in_f64: bool) -> f64 {
    if in_f64 { bytemuck::cast(*halves) } else { f64::from(halves[0]) + f64::from(halves[1]) }
}

/// Splits a number into the two parts that [`joined`] takes.
#[inline]
pub(crate) fn halves(value: f64, in_f64: bool) -> [f32; 2] {
    if in_f64 {
        return bytemuck::cast(value);
    }
    let most = nearest_f32(value);
    [most, if most.is_finite() { nearest_f32(value - f64::from(most)) } else { 0.0 }]
}

macro_rules! elements {
    ($($type:ty => $dtype:ident in $real:ty, $value:ident => $to_f32:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            type Real = $real;
            #[inline]
            fn to_f32(self) -> f32 {
                let $value = self;
                $to_f32
            }
            #[inline]
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    )*};
}

elements! {
    f32 => F32 in f32, v => v;
    f16 => F16 in f32, v => v.to_f32();
    bf16 => BF16 in f32, v => v.to_f32();
    u8 => U8 in f32, v => f32::from(v);
    i8 => I8 in f32, v => f32::from(v);
    u16 => U16 in f32, v => f32::from(v);
    i16 => I16 in f32, v => f32::from(v);
    u32 => U32 in f64, v => v as f32;
    i32 => I32 in f64, v => v as f32;
    f64 => F64 in f64, v => nearest_f32(v);
}

/// Calls a generic function with the type of a run-time [`DType`].
macro_rules! with_dtype {
    (@ $dtype:expr, $T:ident => $body:expr; $($name:ident $type:ty,)*) => {
        match $dtype {
            $($crate::DType::$name => {
                type $T = $type;
                $body
            })*
        }
    };
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::dtype::with_dtype!(@ $dtype, $T => $body;
            F32 f32, F16 half::f16, BF16 half::bf16, U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, F64 f64,)
    };
}
pub(crate) use with_dtype;
