//! Element types of tensors.

use bytemuck::Pod;
use half::{bf16, f16};

/// Type of a tensor's elements, as a value.
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
    /// Every type, in the order of the codes that kernels know them by.
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

    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::U32 | Self::I32 => 4,
            Self::F16 | Self::BF16 | Self::U16 | Self::I16 => 2,
            Self::U8 | Self::I8 => 1,
        }
    }

    /// The number by which kernel sources select this type's `load`.
    pub(crate) const fn code(self) -> u32 {
        self as u32
    }

    /// The type with this [`code`](Self::code).
    pub(crate) fn from_code(code: u32) -> Self {
        Self::ALL[code as usize]
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type that tensors can hold. Operations compute in f32, and make f32 of other types as they load them.
///
/// [Distances](crate::distance#accuracy) of f64 and [filters](crate::filter#types) of f64 and 32-bit integers compute in f64, where the
/// device [can](crate::Limits::f64).
pub trait Element: sealed::Sealed + Pod + Send + Sync + PartialEq + std::fmt::Debug {
    /// The type as a value.
    const DTYPE: DType;

    /// The value as kernels see it. f64, and integers beyond 2^24, round to nearest.
    fn to_f32(self) -> f32;
}

/// The nearest f32, infinite beyond the largest.
#[allow(clippy::cast_possible_truncation, reason = "rounding to f32 is the point")]
#[inline]
pub(crate) const fn nearest_f32(value: f64) -> f32 {
    value as f32
}

macro_rules! elements {
    ($($type:ty => $dtype:ident, $value:ident => $to_f32:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            #[inline]
            fn to_f32(self) -> f32 {
                let $value = self;
                $to_f32
            }
        }
    )*};
}

elements! {
    f32 => F32, v => v;
    f16 => F16, v => v.to_f32();
    bf16 => BF16, v => v.to_f32();
    u8 => U8, v => f32::from(v);
    i8 => I8, v => f32::from(v);
    u16 => U16, v => f32::from(v);
    i16 => I16, v => f32::from(v);
    u32 => U32, v => v as f32;
    i32 => I32, v => v as f32;
    f64 => F64, v => nearest_f32(v);
}

/// Calls a generic function with the type that a run-time [`DType`] names.
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
