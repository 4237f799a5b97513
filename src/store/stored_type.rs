//! The names of stored types, and their types in Rust.

use super::StoredType;

macro_rules! names {
    ($($dtype:ident $kind:literal $name:literal;)*) => {
        impl StoredType {
            /// Returns NumPy's name of the type without a byte order, such as `f4`.
            const fn kind(self) -> &'static str {
                match self {
                    $(Self::$dtype => $kind,)*
                }
            }

            /// Returns the type that has this name of [`kind`](Self::kind).
            pub(super) fn of_kind(kind: &str) -> Option<Self> {
                match kind {
                    $($kind => Some(Self::$dtype),)*
                    _ => None,
                }
            }

            /// Returns the type's full name in NumPy and in Zarr 3, such as `float32`.
            #[cfg(feature = "zarr")]
            pub(super) const fn full_name(self) -> &'static str {
                match self {
                    $(Self::$dtype => $name,)*
                }
            }

            #[cfg(feature = "zarr")]
            pub(super) fn of_full_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$dtype),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    Bool "b1" "bool";
    I8 "i1" "int8";
    U8 "u1" "uint8";
    I16 "i2" "int16";
    U16 "u2" "uint16";
    I32 "i4" "int32";
    U32 "u4" "uint32";
    I64 "i8" "int64";
    U64 "u8" "uint64";
    F16 "f2" "float16";
    F32 "f4" "float32";
    F64 "f8" "float64";
}

impl StoredType {
    /// Returns NumPy's name of the type with a byte order, such as `<f4`.
    pub(super) fn descr(self, is_big_endian: bool) -> String {
        let order = match is_big_endian {
            _ if self.size() == 1 => '|',
            true => '>',
            false => '<',
        };
        format!("{order}{}", self.kind())
    }
}

/// Evaluates an expression with the Rust type of a stored type as `$T`, which is `u8` for booleans; or the first of two expressions for
/// integers, and the second for floating point.
macro_rules! with_stored {
    ($dtype:expr, $T:ident => $then:expr) => {
        $crate::store::with_stored!($dtype, $T => $then, $T => $then)
    };
    ($dtype:expr, $I:ident => $integer:expr, $F:ident => $float:expr) => {
        $crate::store::with_stored!(@ $dtype,
            Bool $I = u8 => $integer, U8 $I = u8 => $integer, I8 $I = i8 => $integer,
            U16 $I = u16 => $integer, I16 $I = i16 => $integer, U32 $I = u32 => $integer, I32 $I = i32 => $integer,
            U64 $I = u64 => $integer, I64 $I = i64 => $integer,
            F16 $F = half::f16 => $float, F32 $F = f32 => $float, F64 $F = f64 => $float)
    };
    (@ $dtype:expr, $($variant:ident $T:ident = $type:ty => $then:expr),*) => {
        match $dtype {
            $($crate::StoredType::$variant => {
                #[allow(dead_code, reason = "an expression may need no type")]
                type $T = $type;
                $then
            })*
        }
    };
}

pub(crate) use with_stored;
