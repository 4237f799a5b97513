//! Conversions from stored elements to staged bytes.

use std::{fmt, sync::Arc};

use bytemuck::Pod;

use crate::{ChunkedArray, DType, Error, Hint, Result, StoredType, dtype::nearest_f32, store::with_stored};

/// A conversion of stored elements before they are uploaded: [`AsStored`], [`Narrow`], or one of your own.
///
/// A conversion is applied to runs of the elements of a row, which are those of all axes except the first, in C order. Several runs are
/// converted concurrently, on threads of the device's pool.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{
///     Cancel, ChunkedArray, Device, Error, Result, StoredType,
///     store::MemoryArray,
///     stream::{Blocks, Convert, Misfit, Plan, Selection},
/// };
///
/// /// Converts an i16 to a byte: 1 if it is above 100. Refuses negative numbers.
/// #[derive(Debug)]
/// struct Above;
///
/// impl Convert for Above {
///     fn accepts(&self, array: &dyn ChunkedArray) -> Result<()> {
///         let is_i16 = array.dtype() == StoredType::I16;
///         if is_i16 { Ok(()) } else { Err(Error::store(array.name(), "is to be of i16")) }
///     }
///
///     fn bytes(&self, elements: u64) -> u64 {
///         elements
///     }
///
///     fn convert(&self, _: &dyn ChunkedArray, from: &[u8], to: &mut [u8]) -> Result<(), Misfit> {
///         for (at, (from, to)) in from.chunks(2).zip(to).enumerate() {
///             let value = i16::from_ne_bytes([from[0], from[1]]);
///             if value < 0 {
///                 return Err(Misfit::new(at, format_args!("{value} is negative")));
///             }
///             *to = (value > 100).into();
///         }
///         Ok(())
///     }
/// }
///
/// let array = Arc::new(MemoryArray::new("x", &[7i16, 300, 101, 100], &[2, 2], &[1, 2])?);
/// let plan = Plan::of_rows(vec![array], Arc::new(Selection::all(2)), None, Arc::new(Above), 2)?;
/// let device = Device::cpu();
/// let mut blocks = Blocks::new(&plan, &device, 2, plan.largest_need(), &Cancel::default())?;
/// assert!(blocks.next_block()?.is_some_and(|mut block| block.bytes() == [0, 1, 1, 0]));
/// # Ok::<(), teatime::Error>(())
/// ```
pub trait Convert: fmt::Debug + Send + Sync {
    /// Refuses an array whose elements cannot be converted.
    ///
    /// # Errors
    /// [`Error::Store`], which names the array and its type.
    fn accepts(&self, array: &dyn ChunkedArray) -> Result<()>;

    /// Returns the number of elements that are converted to whole bytes together. A run starts at a multiple of this number in its row,
    /// and its length is a multiple of it, unless the run ends the row.
    fn unit(&self) -> u64 {
        1
    }

    /// Returns the number of bytes that `elements` elements of a row are converted to.
    fn bytes(&self, elements: u64) -> u64;

    /// Converts the elements `from` of a run of `array`, and writes the resulting bytes to `to`.
    ///
    /// # Errors
    /// The first element that does not fit.
    fn convert(&self, array: &dyn ChunkedArray, from: &[u8], to: &mut [u8]) -> Result<(), Misfit>;

    /// True if converting copies the bytes, so that elements may be read where they belong. By default it is false.
    fn is_copy(&self) -> bool {
        false
    }

    /// True if [`convert_planes`](Self::convert_planes) converts elements of `array`, which are of one byte. By default it is false.
    fn takes_planes(&self, array: &dyn ChunkedArray) -> bool {
        let _ = array;
        false
    }

    /// Converts one-byte elements from their bit planes, eight elements from each byte of a plane: bit `i % 8` of byte `i / 8` of plane `b` is
    /// bit `b` of element `i`. Writes to `to` what [`convert`](Self::convert) would write for these elements. Returns false if it cannot;
    /// the elements are then put in order and converted one run at a time.
    ///
    /// The staged elements must have the same number of bits each, and [`unit`](Self::unit) must divide 8.
    fn convert_planes(&self, planes: [&[u8]; 8], to: &mut [u8]) -> bool {
        let _ = (planes, to);
        false
    }

    /// Converts a run as [`convert`](Self::convert) does, which the provided method calls. `place` returns the place of the run's first element in
    /// the arrays: its row among the rows of all arrays, and its index in that row.
    ///
    /// # Errors
    /// As `convert`.
    fn convert_at(
        &self,
        array: &dyn ChunkedArray,
        _place: &dyn Fn() -> [u64; 2],
        from: &[u8],
        to: &mut [u8],
    ) -> Result<(), Misfit> {
        self.convert(array, from, to)
    }

    /// Describes the position of an element of a row in messages.
    fn place(&self, row: u64, element: u64) -> String {
        format!("row {row}, element {element}")
    }
}

/// An element that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The index of the element in its run.
    pub at: usize,
    /// The reason why the element does not fit, with its value.
    pub why: String,
    /// An option that accepts the element.
    pub hint: Option<Hint>,
}

impl Misfit {
    /// Creates the misfit of an element, without a hint.
    pub fn new(at: usize, why: impl fmt::Display) -> Self {
        Self { at, why: why.to_string(), hint: None }
    }
}

/// A conversion that copies every byte as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsStored(pub StoredType);

impl Convert for AsStored {
    fn accepts(&self, array: &dyn ChunkedArray) -> Result<()> {
        if array.dtype() == self.0 {
            return Ok(());
        }
        Err(Error::store(array.name(), format!("holds {:?}, expected {:?}", array.dtype(), self.0)))
    }

    fn bytes(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.0.size() as u64)
    }

    fn convert(&self, _: &dyn ChunkedArray, from: &[u8], to: &mut [u8]) -> Result<(), Misfit> {
        to.copy_from_slice(from);
        Ok(())
    }

    fn is_copy(&self) -> bool {
        true
    }
}

/// Returns the conversion of a stored type to a device type, which refuses values beyond that type; `None` if there is none.
pub(super) fn to_elements(stored: StoredType, to: DType) -> Option<Arc<dyn Convert>> {
    if stored.element() == Some(to) || stored == StoredType::Bool && to == DType::U8 {
        return Some(Arc::new(AsStored(stored)));
    }
    let to = match to {
        DType::F32 if stored != StoredType::F64 => Narrowed::F32,
        DType::F64 => Narrowed::F64,
        _ => return None,
    };
    let is_float = matches!(stored, StoredType::F16 | StoredType::F32);
    let most = if is_float { f64::INFINITY } else { to.whole() };
    Some(Arc::new(Narrow { to, range: [-most, most], negative_is_missing: false, nan_is_missing: true }))
}

/// A conversion of any stored numbers to one type, which refuses numbers outside a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Narrow {
    /// The type of the staged elements.
    pub to: Narrowed,
    /// The minimum and the maximum value. Floating-point infinity is refused unless it is one of the two.
    pub range: [f64; 2],
    /// If true, negative integers mean missing, and are staged as -1; an array's missing value is then staged as -1, too. Other negative
    /// floating-point numbers are an error, since they are more often data. If false, negative values are ordinary numbers, and an
    /// array's missing value is ignored.
    pub negative_is_missing: bool,
    /// If true, NaN means missing instead of being an error: it is staged as -1 if `negative_is_missing`, and as NaN otherwise.
    pub nan_is_missing: bool,
}

/// The type of staged elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Narrowed {
    /// `i8`, only for stored integers.
    I8,
    /// `f32`; numbers are rounded to the nearest.
    F32,
    /// `f64`; 64-bit integers are rounded to the nearest.
    F64,
}

impl Narrowed {
    /// Returns the largest integer up to which the type represents every integer unambiguously: 127, 2^24 and 2^53 - 1. Larger 64-bit
    /// integers are also larger after conversion to f64, in which values are compared with it.
    pub const fn whole(self) -> f64 {
        match self {
            Self::I8 => i8::MAX as f64,
            Self::F32 => (1u32 << 24) as f64,
            Self::F64 => ((1u64 << 53) - 1) as f64,
        }
    }
}

impl Convert for Narrow {
    fn accepts(&self, array: &dyn ChunkedArray) -> Result<()> {
        let dtype = array.dtype();
        if self.to == Narrowed::I8 && matches!(dtype, StoredType::F16 | StoredType::F32 | StoredType::F64) {
            let why = format!("holds {dtype:?}, where integers are expected");
            return Err(Error::store(array.name(), why));
        }
        Ok(())
    }

    fn bytes(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.width() as u64)
    }

    fn convert(&self, array: &dyn ChunkedArray, from: &[u8], to: &mut [u8]) -> Result<(), Misfit> {
        let missing = self.missing(array);
        if array.dtype() == StoredType::I8 && self.keeps_bytes() {
            to.copy_from_slice(from);
            return Ok(());
        }
        with_stored!(array.dtype(),
            T => self.integers::<T>(missing, from, to),
            T => self.floats::<T>(missing, from, to)
        )
    }
}

impl Narrow {
    /// Creates a conversion that refuses infinity and, if `exactly`, integers that `to` may not represent.
    pub(crate) fn finite(to: Narrowed, exactly: bool, nan_is_missing: bool) -> Self {
        let most = match to {
            _ if exactly => to.whole(),
            Narrowed::F64 => f64::MAX,
            _ => f32::MAX.into(),
        };
        Self { to, range: [-most, most], negative_is_missing: false, nan_is_missing }
    }

    /// Returns the array's missing value if it needs its own check: not if it is ignored, or is a negative integer, which is missing
    /// anyway.
    pub fn missing(&self, array: &dyn ChunkedArray) -> Option<f64> {
        let floats = matches!(array.dtype(), StoredType::F16 | StoredType::F32 | StoredType::F64);
        let counts = |value: &f64| self.negative_is_missing && (floats || value.is_nan() || *value >= 0.0);
        array.missing_value().filter(counts)
    }

    /// True if every `i8` byte is staged unchanged.
    fn keeps_bytes(&self) -> bool {
        let keeps_all = self.range[0] <= i8::MIN.into() && self.range[1] >= i8::MAX.into();
        self.to == Narrowed::I8 && !self.negative_is_missing && keeps_all
    }

    fn integers<T: Pod + TryInto<i64> + fmt::Display>(
        &self,
        missing: Option<f64>,
        from: &[u8],
        to: &mut [u8],
    ) -> Result<(), Misfit> {
        for (at, (from, to)) in stored::<T>(from).zip(to.chunks_exact_mut(self.width())).enumerate() {
            let value: i64 = from.try_into().map_err(|_| {
                // Only u64 values fail to convert, whatever the range is.
                let [_, most] = self.range;
                let most = if most < i64::MAX as f64 { most.to_string() } else { i64::MAX.to_string() };
                Misfit::new(at, format_args!("value {from} is above {most}"))
            })?;
            let value = if missing == Some(value as f64) { -1 } else { value };
            let value = if self.negative_is_missing { value.max(-1) } else { value };
            self.check(value as f64).map_err(|why| Misfit::new(at, why))?;
            match self.to {
                Narrowed::F64 => to.copy_from_slice(&(value as f64).to_ne_bytes()),
                Narrowed::F32 => to.copy_from_slice(&(value as f32).to_ne_bytes()),
                Narrowed::I8 => {
                    let value = i8::try_from(value).map_err(|why| Misfit::new(at, why))?;
                    to.copy_from_slice(&value.to_ne_bytes());
                }
            }
        }
        Ok(())
    }

    /// Refuses a value that is out of range, with the reason as text.
    fn check(&self, value: f64) -> Result<(), String> {
        let [least, most] = self.range;
        if value > most {
            return Err(format!("value {value} is above {most}"));
        }
        if value < least && !(self.negative_is_missing && value < 0.0) {
            return Err(format!("value {value} is below {least}"));
        }
        Ok(())
    }

    fn floats<T: Pod + Into<f64>>(
        &self,
        missing: Option<f64>,
        from: &[u8],
        to: &mut [u8],
    ) -> Result<(), Misfit> {
        let nan_is_missing = self.nan_is_missing || missing.is_some_and(f64::is_nan);
        for (at, (from, to)) in stored::<T>(from).zip(to.chunks_exact_mut(self.width())).enumerate() {
            let value: f64 = from.into();
            let is_missing = missing == Some(value) || value.is_nan() && nan_is_missing;
            let refuse = |why: String| Err(Misfit::new(at, why));
            if is_missing && self.negative_is_missing {
                self.put(-1.0, to);
                continue;
            }
            if value.is_nan() && self.nan_is_missing {
                self.put(value, to);
                continue;
            }
            if value.is_nan() {
                let hint = Some(Hint::new("nan_is_missing", " unless NaN is said to be missing"));
                return Err(Misfit { hint, ..Misfit::new(at, "NaN: an error") });
            }
            if self.negative_is_missing && value < 0.0 {
                return refuse(format!(
                    "value {value} is negative: in floating point that is missing only where the array's attribute \
                     `_FillValue` or `missing_value` says so"
                ));
            }
            let staged = if self.to == Narrowed::F64 { value } else { nearest_f32(value).into() };
            let is_meant = value.is_infinite() && self.check(value).is_ok();
            if !staged.is_finite() && !is_meant {
                return refuse(format!("value {value} is not a finite {}-bit number", 8 * self.width()));
            }
            self.check(value).map_err(|why| Misfit::new(at, why))?;
            self.put(value, to);
        }
        Ok(())
    }

    fn put(&self, value: f64, to: &mut [u8]) {
        match self.to {
            Narrowed::F64 => to.copy_from_slice(&value.to_ne_bytes()),
            _ => to.copy_from_slice(&nearest_f32(value).to_ne_bytes()),
        }
    }

    /// Returns the number of bytes of a staged element.
    fn width(&self) -> usize {
        match self.to {
            Narrowed::I8 => 1,
            Narrowed::F32 => 4,
            Narrowed::F64 => 8,
        }
    }
}

/// Converts stored elements to the nearest f64; of integers beyond 2^53, that is another integer.
pub(super) fn widen(dtype: StoredType, from: &[u8], to: &mut [f64]) {
    fn each<T: Pod>(from: &[u8], to: &mut [f64], wide: impl Fn(T) -> f64) {
        for (from, to) in stored::<T>(from).zip(to) {
            *to = wide(from);
        }
    }
    with_stored!(dtype, T => each(from, to, |x: T| x as f64), T => each::<T>(from, to, Into::into));
}

/// Reads elements from bytes that need not be aligned.
fn stored<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}
