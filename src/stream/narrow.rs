//! From stored elements to what a device is given.

use std::sync::Arc;

use bytemuck::Pod;
use half::f16;

use crate::{ChunkedArray, Error, Result, StoredType, kernels::cpu::calls::Calls};

/// Element type of a staged row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staged {
    /// Calls, and integer dosages.
    I8,
    /// Fractional dosages.
    F32,
    /// Bytes as they are stored.
    Bytes,
    /// Calls or dosages as codes of two bits, packed on their way.
    Codes(Calls),
}

impl Staged {
    /// Codes of what these arrays hold, where that can be packed: no call is cut by a chunk's end, and no four samples,
    /// whose codes share a byte.
    pub(crate) fn codes(calls: Calls, arrays: &[Arc<dyn ChunkedArray>]) -> Option<Self> {
        let fits = |array: &Arc<dyn ChunkedArray>| {
            let (shape, chunk) = (array.shape(), array.chunk_shape());
            let whole = chunk.get(1).is_some_and(|&samples| samples % 4 == 0 || samples >= shape[1]);
            whole && chunk.get(2) == shape.get(2)
        };
        arrays.iter().all(fits).then_some(Self::Codes(calls))
    }

    /// Bytes of so many stored elements of a row.
    pub(crate) const fn bytes(self, elements: u64) -> u64 {
        match self {
            Self::I8 | Self::Bytes => elements,
            Self::F32 => 4 * elements,
            Self::Codes(calls) => elements.div_ceil(4 * calls.bytes() as u64),
        }
    }
}

/// How elements are narrowed, and which values are out of range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Narrow {
    pub(crate) staged: Staged,
    /// What negative values mean.
    pub(crate) negative: Negative,
    /// Largest value.
    pub(crate) max: f64,
    /// Whether NaN is missing rather than an error.
    pub(crate) nan_is_missing: bool,
}

/// What negative values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Negative {
    /// Codes of alleles, kept as they are: -1 missing, -2 padding.
    Codes,
    /// Missing, whatever the value.
    Missing,
}

impl Narrow {
    /// # Errors
    /// [`Error::Store`] for a floating type where integers are staged.
    pub(crate) fn accepts(&self, name: &str, dtype: StoredType) -> Result<()> {
        let float = matches!(dtype, StoredType::F16 | StoredType::F32 | StoredType::F64);
        if float && self.staged != Staged::F32 {
            let why = format!("calls are integers, and this array holds {dtype:?}");
            return Err(Error::Store { path: name.into(), why: why.into() });
        }
        Ok(())
    }

    /// Converts the elements of a row of `array` from a sample on; what is wrong with the first that does not fit.
    pub(crate) fn convert(
        &self,
        array: &dyn ChunkedArray,
        [row, sample]: [u64; 2],
        from: &[u8],
        to: &mut [u8],
    ) -> Result<(), String> {
        let dtype = array.dtype();
        // A missing call is a negative one, whatever an array of calls says; where negative dosages are missing, so is this.
        let missing = array
            .missing_value()
            .filter(|value| self.negative == Negative::Missing && (value.is_nan() || *value >= 0.0));
        let convert = |to: &mut [u8]| {
            self.elements(dtype, missing, from, to).map_err(|why| format!("row {row}: {why}"))
        };
        let Staged::Codes(calls) = self.staged else { return convert(to) };
        let mut narrow = Vec::new();
        let from = if dtype == StoredType::I8 && missing.is_none() {
            from
        } else {
            narrow.resize(from.len() / dtype.size(), 0);
            convert(&mut narrow)?;
            &narrow
        };
        let Some(at) = calls.pack(from, to) else { return Ok(()) };
        let value = from[at].cast_signed();
        Err(match self.negative {
            Negative::Codes => {
                let sample = sample + (at / calls.bytes()) as u64;
                format!("variant {row}, sample {sample}: {value} is no allele")
            }
            Negative::Missing => format!("row {row}: {}", self.outside(value.into(), at)),
        })
    }

    fn elements(
        &self,
        dtype: StoredType,
        missing: Option<f64>,
        from: &[u8],
        to: &mut [u8],
    ) -> Result<(), String> {
        // Alleles as int8 are what nearly every store holds, and every byte is staged as it is.
        if self.staged == Staged::Bytes || dtype == StoredType::I8 && self.negative == Negative::Codes {
            to.copy_from_slice(from);
            return Ok(());
        }
        match dtype {
            StoredType::Bool | StoredType::U8 => self.integers::<u8>(missing, from, to),
            StoredType::I8 => self.integers::<i8>(missing, from, to),
            StoredType::I16 => self.integers::<i16>(missing, from, to),
            StoredType::U16 => self.integers::<u16>(missing, from, to),
            StoredType::I32 => self.integers::<i32>(missing, from, to),
            StoredType::U32 => self.integers::<u32>(missing, from, to),
            StoredType::I64 => self.integers::<i64>(missing, from, to),
            StoredType::U64 => self.integers::<u64>(missing, from, to),
            StoredType::F16 => self.floats(missing, from, to, |x: f16| f64::from(x.to_f32())),
            StoredType::F32 => self.floats(missing, from, to, |x: f32| f64::from(x)),
            StoredType::F64 => self.floats(missing, from, to, |x: f64| x),
        }
    }

    fn integers<T: Pod + TryInto<i64>>(
        &self,
        missing: Option<f64>,
        from: &[u8],
        to: &mut [u8],
    ) -> Result<(), String> {
        let floor = if self.negative == Negative::Codes { -2 } else { i64::MIN };
        for (i, (from, to)) in stored::<T>(from).zip(to.chunks_exact_mut(self.width())).enumerate() {
            // Only u64 beyond i64 fails to convert, and that is out of any range.
            let value: i64 = from.try_into().unwrap_or(i64::MAX);
            let value = if missing == Some(value as f64) { -1 } else { value };
            if value < floor || value as f64 > self.max {
                return Err(self.outside(value, i));
            }
            let value = if self.negative == Negative::Missing { value.max(-1) } else { value };
            if self.staged == Staged::F32 {
                to.copy_from_slice(&(value as f32).to_ne_bytes());
            } else {
                to.copy_from_slice(&i8::try_from(value).map_err(|e| e.to_string())?.to_ne_bytes());
            }
        }
        Ok(())
    }

    fn outside(&self, value: i64, element: usize) -> String {
        format!("value {value} at element {element} is outside -2 to {}", self.max)
    }

    fn floats<T: Pod>(
        &self,
        missing: Option<f64>,
        from: &[u8],
        to: &mut [u8],
        wide: impl Fn(T) -> f64,
    ) -> Result<(), String> {
        let nan_is_missing = self.nan_is_missing || missing.is_some_and(f64::is_nan);
        for (i, (from, to)) in stored::<T>(from).zip(to.chunks_exact_mut(4)).enumerate() {
            let value = wide(from);
            let is_missing = missing == Some(value) || value.is_nan() && nan_is_missing;
            let value = if is_missing { -1.0 } else { value };
            #[allow(
                clippy::cast_possible_truncation,
                reason = "rounding to f32 is the point; overflow is checked"
            )]
            let narrow = value as f32;
            if value.is_nan() {
                return Err(format!(
                    "NaN at element {i}: missing dosages are negative, unless NaN is said to be missing"
                ));
            }
            if !narrow.is_finite() {
                return Err(format!("value {value} at element {i} is not a finite 32-bit number"));
            }
            if value > self.max {
                return Err(format!("value {value} at element {i} is above {}", self.max));
            }
            to.copy_from_slice(&if value < 0.0 { -1.0f32 } else { narrow }.to_ne_bytes());
        }
        Ok(())
    }

    /// Bytes of an element, before it is packed.
    fn width(&self) -> usize {
        if self.staged == Staged::F32 { 4 } else { 1 }
    }
}

/// Elements of bytes that need not be aligned.
fn stored<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}
