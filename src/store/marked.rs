//! Arrays whose missing values are read as NaN.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use bytemuck::{Pod, bytes_of, pod_read_unaligned};

use super::{blocks::runs, with_stored};
use crate::{
    ArrayFacts, ChunkedArray, DecodedChunk, Error, FetchedChunk, Hint, Result, StoredType, extent::to_usize,
    waiting::lock,
};

/// The largest integer up to which every integer and its successor are different in f64.
pub(super) const WHOLE: u64 = (1 << 53) - 1;

/// An array in which NaN replaces the [missing value](ChunkedArray::missing_value), so that computations on it do not take missing
/// elements for data: NaN propagates, or is left out.
///
/// Floating-point elements are read as stored, except for the missing value. Integers of 8 and 16 bits and booleans are read as f32, other
/// integers as f64. A 64-bit integer beyond 2^53 - 1 is an [`Error::Chunk`], unless it equals the missing value when converted to f64.
///
/// ```
/// # #[cfg(feature = "zarr")] {
/// use std::sync::Arc;
/// use teatime::{
///     ChunkedArray, MissingChunk, StoredType,
///     store::{ArraySpec, ArrayWriter, Folder, MissingAsNan, ZarrArray},
/// };
/// # let folder = tempfile::tempdir()?;
/// # let store = folder.path();
/// let mut spec = ArraySpec::new(StoredType::U8, &[3], &[3]);
/// spec.attributes.insert("_FillValue".into(), 255.into());
/// let writer = ArrayWriter::create(Arc::new(Folder::new(store)), "x", spec)?;
/// writer.write(&[0], &[1u8, 255, 3])?;
/// writer.finish()?;
///
/// let x = Arc::new(ZarrArray::open(store, "x", MissingChunk::Error)?);
/// let x = MissingAsNan::new(x).expect("a missing value");
/// let values: Vec<f32> = teatime::bytemuck::pod_collect_to_vec(&x.read_chunk(&[0])?.bytes);
/// assert!(values[0] == 1.0 && values[1].is_nan() && values[2] == 3.0);
/// assert_eq!(x.missing_elements(), 1);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MissingAsNan {
    array: Arc<dyn ChunkedArray>,
    missing: f64,
    dtype: StoredType,
    /// The number of missing elements of each decoded chunk that has any.
    counts: Mutex<HashMap<Box<[u64]>, u64>>,
}

impl MissingAsNan {
    /// Wraps the array; returns `None` if it names no missing value.
    pub fn new(array: Arc<dyn ChunkedArray>) -> Option<Self> {
        use StoredType::{Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        let dtype = match array.dtype() {
            Bool | I8 | U8 | I16 | U16 | F32 => F32,
            F16 => F16,
            I32 | U32 | I64 | U64 | F64 => F64,
        };
        let missing = array.missing_value()?;
        Some(Self { array, missing, dtype, counts: Mutex::default() })
    }

    /// Keeps integers as stored, for results that are integers too; a missing element is then an [`Error::Chunk`].
    #[must_use]
    pub fn keeping_integers(self) -> Self {
        Self { dtype: self.array.dtype(), ..self }
    }

    /// Returns the number of missing elements, including NaN, in the chunks decoded so far; a chunk that is decoded again counts once.
    pub fn missing_elements(&self) -> u64 {
        lock(&self.counts).values().sum()
    }

    /// Returns the missing value as stored.
    pub fn stored(&self) -> f64 {
        self.missing
    }

    /// Returns the elements of the chunk at `index` that lie within the array: the length of a run, and the start of each run.
    fn within(&self, index: &[u64]) -> (usize, Vec<usize>) {
        let whole: Vec<usize> = self.chunk_shape().iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
        let extents = self.shape().iter().zip(index).zip(&whole);
        let extents: Vec<usize> = extents
            .map(|((&shape, &at), &chunk)| {
                let left = shape.saturating_sub(at.saturating_mul(chunk as u64));
                to_usize(left).min(chunk)
            })
            .collect();
        let origin = vec![0; whole.len()];
        let (run, starts) = runs(&whole, &origin, &extents);
        (run, starts.collect())
    }

    /// Counts the missing floating-point elements, and replaces them by NaN.
    fn floats<T: Pod + Into<f64>>(&self, bytes: &mut [u8], index: &[u64], nan: T) -> u64 {
        let ((run, starts), size) = (self.within(index), size_of::<T>());
        let mut count = 0;
        for start in starts {
            for element in bytes[start * size..][..run * size].chunks_exact_mut(size) {
                let value: f64 = pod_read_unaligned::<T>(element).into();
                if value == self.missing || value.is_nan() {
                    count += 1;
                    element.copy_from_slice(bytes_of(&nan));
                }
            }
        }
        count
    }

    /// Counts the missing integers; converts the elements to floating point unless integers are kept.
    fn integers<const N: usize>(
        &self,
        bytes: &mut Vec<u8>,
        index: &[u64],
        number: impl Fn([u8; N]) -> i128,
    ) -> Result<u64> {
        let refuse = |why: String| Err(Error::chunk(self.name(), index, why));
        #[allow(clippy::cast_precision_loss, reason = "as other readers compare it")]
        let is_missing = |value: i128| value as f64 == self.missing;
        let (run, starts) = self.within(index);
        let (elements, _) = bytes.as_chunks::<N>();
        let mut count = 0;
        for start in starts {
            for &element in &elements[start..start + run] {
                let value = number(element);
                if is_missing(value) {
                    count += 1;
                } else if self.dtype == StoredType::F64 && value.unsigned_abs() > WHOLE.into() {
                    return refuse(format!(
                        "value {value} is beyond {WHOLE}, up to which f64 holds integers"
                    ));
                }
            }
        }
        if self.dtype == self.array.dtype() {
            if count > 0 {
                let why = format!(
                    "{count} missing elements ({} by its attributes): {:?} has no NaN to put there",
                    self.missing, self.dtype
                );
                let hint = Hint::new("dtype", ", as results of floating point have");
                return Err(Error::chunk(self.name(), index, why).hinting(hint));
            }
            return Ok(0);
        }
        let size = self.dtype.size();
        let mut out = Vec::new();
        let requested = elements.len().saturating_mul(size);
        out.try_reserve_exact(requested).map_err(|_| Error::OutOfHostMemory {
            what: format!("{}: chunk {index:?}", self.name()).into(),
            requested: requested as u64,
        })?;
        for &element in elements {
            let value = number(element);
            #[allow(clippy::cast_precision_loss, reason = "checked above")]
            let value = if is_missing(value) { f64::NAN } else { value as f64 };
            #[allow(clippy::cast_possible_truncation, reason = "of 16 bits at most")]
            match self.dtype {
                StoredType::F32 => out.extend_from_slice(&(value as f32).to_ne_bytes()),
                _ => out.extend_from_slice(&value.to_ne_bytes()),
            }
        }
        *bytes = out;
        Ok(count)
    }
}

impl ChunkedArray for MissingAsNan {
    fn facts(&self) -> ArrayFacts<'_> {
        ArrayFacts { dtype: self.dtype, ..self.array.facts() }
    }

    fn inner(&self) -> Option<&dyn ChunkedArray> {
        Some(&*self.array)
    }

    fn missing_value(&self) -> Option<f64> {
        Some(f64::NAN)
    }

    fn scratch_bytes(&self) -> u64 {
        let elements = self.chunk_shape().iter().fold(1, |product: u64, &n| product.saturating_mul(n));
        let is_changed = self.dtype != self.array.dtype();
        let stored = if is_changed { self.array.dtype().size() as u64 } else { 0 };
        self.array.scratch_bytes().saturating_add(elements.saturating_mul(stored))
    }

    fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
        let mut chunk = self.array.decode(index, fetched)?;
        let bytes = &mut chunk.bytes;
        let count = with_stored!(self.array.dtype(),
            T => self.integers(bytes, index, |bytes| T::from_ne_bytes(bytes).into())?,
            T => self.floats(bytes, index, T::NAN)
        );
        if count > 0 {
            lock(&self.counts).insert(index.into(), count);
        }
        Ok(chunk)
    }
}
