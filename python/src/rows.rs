//! Rows of a NumPy array, used as a stored array without a copy.

use std::{fmt, ops::Range};

use numpy::PyUntypedArrayMethods;
use pyo3::{exceptions::PyTypeError, prelude::*};
use teatime::{
    ArrayFacts, ChunkedArray, DecodedChunk, Error, FetchedChunk, Result, StoredType, store::Storable,
};

use crate::{
    array::{extents, host_parts, sizes},
    operand::Given,
};

/// The approximate number of bytes of a chunk.
const CHUNK: usize = 1 << 20;

/// Consecutive rows of a larger array, in C order in a NumPy array. The other rows are elsewhere.
pub(crate) struct Rows {
    /// The index of the first row that is here.
    first: usize,
    /// The elements of these rows, which `_owner` keeps in place. This reference is never handed out.
    bytes: &'static [u8],
    _owner: Py<PyAny>,
    dtype: StoredType,
    shape: Vec<u64>,
    chunk_shape: Vec<u64>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("shape", &self.shape).field("first", &self.first).finish_non_exhaustive()
    }
}

impl Rows {
    /// Wraps an array's rows as the rows from `first` on, of `rows` in all.
    /// Fails with `ValueError` if `rows` are fewer; `TypeError` for an array in a GPU's memory or not in C order.
    #[allow(unsafe_code, reason = "memory of Python's")]
    pub(crate) fn new<T: Storable + numpy::Element>(
        array: &Given<'_, T>,
        first: u64,
        rows: Option<u64>,
    ) -> PyResult<Self> {
        let Given::Host(array) = array else {
            return Err(PyTypeError::new_err("genotypes are in the host's memory"));
        };
        let (values, here) = host_parts(array)?;
        let mut shape = extents(array.shape());
        let count = here.first().copied().unwrap_or_default();
        let rows = rows.unwrap_or(count);
        if first.checked_add(count).is_none_or(|end| end > rows) {
            let why = format!("{count} rows from {first} on, of {rows}");
            return Err(pyo3::exceptions::PyValueError::new_err(why));
        }
        if let Some(extent) = shape.first_mut() {
            *extent = rows;
        }
        let row = size_of_val(values).checked_div(sizes(&here)[0]).unwrap_or(1);
        let mut chunk_shape: Vec<u64> = shape.iter().map(|&extent| extent.max(1)).collect();
        chunk_shape[0] = ((CHUNK / row.max(1)) as u64).clamp(1, chunk_shape[0]);
        // SAFETY: the elements are a slice, and the owner, which is kept alive, neither frees nor moves them. If Python writes to them
        // meanwhile, that is the caller's error, as with any NumPy function that releases the lock.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
        Ok(Self {
            first: sizes(&[first])[0],
            bytes,
            _owner: array.as_any().clone().unbind(),
            dtype: T::STORED,
            shape,
            chunk_shape,
        })
    }
}

impl ChunkedArray for Rows {
    fn facts(&self) -> ArrayFacts<'_> {
        ArrayFacts { name: "array", shape: &self.shape, chunk_shape: &self.chunk_shape, dtype: self.dtype }
    }

    fn decode(&self, index: &[u64], _: FetchedChunk) -> Result<DecodedChunk> {
        let [chunk, at] = [self.chunk_shape[0], index[0]].map(|n| sizes(&[n])[0]);
        let row = self.dtype.size() * sizes(&self.shape[1..]).iter().product::<usize>();
        let rows = at * chunk..(at + 1) * chunk;
        let held = self.first..self.first + self.bytes.len().checked_div(row).unwrap_or_default();
        let wanted = rows.start.max(held.start)..rows.end.min(held.end);
        if wanted.is_empty() && row > 0 {
            let why = format!("rows {rows:?}, and those here are {held:?}");
            return Err(Error::chunk(self.name(), index, why));
        }
        let within = |from: usize| (wanted.start - from) * row..(wanted.end - from) * row;
        let mut bytes = Vec::with_capacity(chunk * row);
        bytes.resize((wanted.start - rows.start) * row, 0);
        bytes.extend_from_slice(&self.bytes[within(held.start)]);
        bytes.resize(chunk * row, 0);
        Ok(DecodedChunk {
            stored: bytes.len() as u64,
            bytes,
            read: Default::default(),
            decode: Default::default(),
        })
    }
}

/// Converts two numbers from Python to a range.
pub(crate) fn range((start, end): (u64, u64)) -> Range<u64> {
    start..end
}
