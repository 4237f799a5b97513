//! From stored elements to what is staged.

use std::{fmt, sync::Arc};

use bytemuck::Pod;
use half::f16;

use crate::{ChunkedArray, DType, Error, Result, StoredType, dtype::nearest_f32};

/// A conversion of stored elements before they are uploaded: [`AsStored`], [`Narrow`], or one of your own.
///
/// It is given runs of the elements of a row: those of all axes but the first, in C order; several at once, on threads of the device's pool.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{
///     Cancel, ChunkedArray, Device, Error, Result, StoredType,
///     store::MemoryArray,
///     stream::{Blocks, Convert, Misfit, Plan, Selection},
/// };
///
/// /// Whether an i16 is above 100, as a byte; negative ones are refused.
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
///                 return Err(Misfit { at, why: format!("{value} is negative") });
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
    /// Refuses an array whose elements it does not take.
    ///
    /// # Errors
    /// [`Error::Store`], which names the array and says what it holds.
    fn accepts(&self, array: &dyn ChunkedArray) -> Result<()>;

    /// The number of elements that become whole bytes together: a run starts at a multiple of it in its row, and has whole ones,
    /// unless the row ends with it.
    fn unit(&self) -> u64 {
        1
    }

    /// Bytes that so many elements of a row become.
    fn bytes(&self, elements: u64) -> u64;

    /// Converts the elements of a run of `array`, which are `from`, to the bytes that they become.
    ///
    /// # Errors
    /// The first element that does not fit.
    fn convert(&self, array: &dyn ChunkedArray, from: &[u8], to: &mut [u8]) -> Result<(), Misfit>;

    /// Names an element of a row in messages.
    fn place(&self, row: u64, element: u64) -> String {
        format!("row {row}, element {element}")
    }
}

/// An element that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Its place in its run.
    pub at: usize,
    /// A text that says why it does not fit, with its value.
    pub why: String,
}

/// Every byte as it is stored.
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
}

/// The rule by which elements of a stored type become those of a type of the device, which holds each of them: none where it does not.
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

/// Numbers of one type, whatever is stored, within a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Narrow {
    /// The type that is staged.
    pub to: Narrowed,
    /// The least and the largest value. Infinity, of floating point, is refused unless it is one of them.
    pub range: [f64; 2],
    /// If true, negative integers are missing, and staged as -1; then an array's missing value is too, and other negative numbers of
    /// floating point are an error, since they are more often data. Else negative values are numbers like others, and an array's missing
    /// value means nothing.
    pub negative_is_missing: bool,
    /// If true, NaN is missing rather than an error: staged as -1 where negative values are missing, else as NaN.
    pub nan_is_missing: bool,
}

/// Type of what is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Narrowed {
    /// `i8`, of stored integers alone.
    I8,
    /// `f32`, rounded to the nearest.
    F32,
    /// `f64`; integers of 64 bits rounded to the nearest.
    F64,
}

impl Narrowed {
    /// The largest whole number up to which it holds every whole number: 127, 2^24 and 2^53 - 1. A larger one of 64 bits is
    /// larger as f64 too, in which values are compared with it.
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
        match array.dtype() {
            StoredType::I8 if self.keeps_bytes() => to.copy_from_slice(from),
            StoredType::Bool | StoredType::U8 => self.integers::<u8>(missing, from, to)?,
            StoredType::I8 => self.integers::<i8>(missing, from, to)?,
            StoredType::I16 => self.integers::<i16>(missing, from, to)?,
            StoredType::U16 => self.integers::<u16>(missing, from, to)?,
            StoredType::I32 => self.integers::<i32>(missing, from, to)?,
            StoredType::U32 => self.integers::<u32>(missing, from, to)?,
            StoredType::I64 => self.integers::<i64>(missing, from, to)?,
            StoredType::U64 => self.integers::<u64>(missing, from, to)?,
            StoredType::F16 => self.floats(missing, from, to, |x: f16| f64::from(x.to_f32()))?,
            StoredType::F32 => self.floats(missing, from, to, |x: f32| f64::from(x))?,
            StoredType::F64 => self.floats(missing, from, to, |x: f64| x)?,
        }
        Ok(())
    }
}

impl Narrow {
    /// The array's missing value, unless that is one anyway.
    pub fn missing(&self, array: &dyn ChunkedArray) -> Option<f64> {
        let floats = matches!(array.dtype(), StoredType::F16 | StoredType::F32 | StoredType::F64);
        let counts = |value: &f64| self.negative_is_missing && (floats || value.is_nan() || *value >= 0.0);
        array.missing_value().filter(counts)
    }

    /// True where every byte of `i8` is staged as it is.
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
                // Only u64 fails to convert, whatever the range allows.
                let [_, most] = self.range;
                let most = if most < i64::MAX as f64 { most.to_string() } else { i64::MAX.to_string() };
                Misfit { at, why: format!("value {from} is above {most}") }
            })?;
            let value = if missing == Some(value as f64) { -1 } else { value };
            let value = if self.negative_is_missing { value.max(-1) } else { value };
            self.check(value as f64).map_err(|why| Misfit { at, why })?;
            match self.to {
                Narrowed::F64 => to.copy_from_slice(&(value as f64).to_ne_bytes()),
                Narrowed::F32 => to.copy_from_slice(&(value as f32).to_ne_bytes()),
                Narrowed::I8 => {
                    let value = i8::try_from(value).map_err(|e| Misfit { at, why: e.to_string() })?;
                    to.copy_from_slice(&value.to_ne_bytes());
                }
            }
        }
        Ok(())
    }

    /// Refuses a value that is out of the range, with a text that says why.
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

    fn floats<T: Pod>(
        &self,
        missing: Option<f64>,
        from: &[u8],
        to: &mut [u8],
        wide: impl Fn(T) -> f64,
    ) -> Result<(), Misfit> {
        let nan_is_missing = self.nan_is_missing || missing.is_some_and(f64::is_nan);
        for (at, (from, to)) in stored::<T>(from).zip(to.chunks_exact_mut(self.width())).enumerate() {
            let value = wide(from);
            let is_missing = missing == Some(value) || value.is_nan() && nan_is_missing;
            let refuse = |why: String| Err(Misfit { at, why });
            if is_missing && self.negative_is_missing {
                self.put(-1.0, to);
                continue;
            }
            if value.is_nan() && self.nan_is_missing {
                self.put(value, to);
                continue;
            }
            if value.is_nan() {
                return refuse("NaN: an error unless NaN is said to be missing".into());
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
            self.check(value).map_err(|why| Misfit { at, why })?;
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

    /// Bytes of an element.
    fn width(&self) -> usize {
        match self.to {
            Narrowed::I8 => 1,
            Narrowed::F32 => 4,
            Narrowed::F64 => 8,
        }
    }
}

/// Elements of bytes that need not be aligned.
fn stored<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}
