//! Arrays in memory.

use bytemuck::Pod;

use super::blocks::{extract_block, in_memory, padded};
use crate::{ArrayFacts, ChunkedArray, DecodedChunk, Error, FetchedChunk, Result, StoredType};

/// An array in memory, which is read in chunks of `chunk_shape`.
#[derive(Debug)]
pub struct MemoryArray {
    name: String,
    bytes: Vec<u8>,
    dtype: StoredType,
    shape: Vec<u64>,
    chunk_shape: Vec<u64>,
}

/// A type that a [`MemoryArray`] can hold.
pub trait Storable: Pod {
    /// The element type as a value.
    const STORED: StoredType;
}

macro_rules! storable {
    ($($type:ty => $stored:ident;)*) => {$(impl Storable for $type { const STORED: StoredType = StoredType::$stored; })*};
}

storable! {
    i8 => I8; u8 => U8; i16 => I16; u16 => U16; i32 => I32; u32 => U32; i64 => I64; u64 => U64;
    half::f16 => F16; f32 => F32; f64 => F64;
}

impl MemoryArray {
    /// Makes an array of the given elements in C order, which is read in chunks of `chunk_shape`.
    ///
    /// # Errors
    /// [`Error::Shape`] when the number of elements, or the rank or the extents of the chunks, do not match.
    pub fn new<T: Storable>(
        name: impl Into<String>,
        values: &[T],
        shape: &[u64],
        chunk_shape: &[u64],
    ) -> Result<Self> {
        let op = "MemoryArray::new";
        if shape.iter().product::<u64>() != values.len() as u64 {
            return Err(Error::shape(op, format_args!("{shape:?}"), format_args!("{} values", values.len())));
        }
        if chunk_shape.len() != shape.len() || chunk_shape.contains(&0) {
            let expected = format!("{} extents of at least 1 for a chunk", shape.len());
            return Err(Error::shape(op, expected, format_args!("{chunk_shape:?}")));
        }
        let bytes = bytemuck::cast_slice(values).to_vec();
        let (name, shape, chunk_shape) = (name.into(), shape.into(), chunk_shape.into());
        Ok(Self { name, bytes, dtype: T::STORED, shape, chunk_shape })
    }

    /// Makes an array from a copy of an `ndarray` in any memory order, which is read in chunks of `chunk_shape`.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    ///
    /// ```
    /// use teatime::{ChunkedArray, store::MemoryArray};
    ///
    /// let array = MemoryArray::from_ndarray("counts", &ndarray::array![[0i8, 1, 2], [2, -1, 0]], &[2, 3])?;
    /// assert_eq!(array.read_chunk(&[0, 0])?.bytes, [0, 1, 2, 2, 255, 0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    #[cfg(feature = "ndarray")]
    pub fn from_ndarray<T: Storable, D: ndarray::Dimension>(
        name: impl Into<String>,
        array: &ndarray::ArrayRef<T, D>,
        chunk_shape: &[u64],
    ) -> Result<Self> {
        let shape: Vec<u64> = array.shape().iter().map(|&extent| extent as u64).collect();
        match array.as_slice() {
            Some(values) => Self::new(name, values, &shape, chunk_shape),
            None => Self::new(name, &array.iter().copied().collect::<Vec<_>>(), &shape, chunk_shape),
        }
    }
}

impl ChunkedArray for MemoryArray {
    fn facts(&self) -> ArrayFacts<'_> {
        ArrayFacts { name: &self.name, shape: &self.shape, chunk_shape: &self.chunk_shape, dtype: self.dtype }
    }

    fn decode(&self, index: &[u64], _: FetchedChunk) -> Result<DecodedChunk> {
        let [shape, chunk, index] = [&self.shape, &self.chunk_shape, index].map(in_memory);
        let origin: Vec<_> = index.iter().zip(&chunk).map(|(i, n)| i * n).collect();
        let within = shape.iter().zip(&origin).map(|(n, first)| n.saturating_sub(*first));
        let extent: Vec<_> = within.zip(&chunk).map(|(n, chunk)| n.min(*chunk)).collect();
        let size = self.dtype.size();
        let mut bytes = extract_block(&self.bytes, &shape, &origin, &extent, size);
        if extent != chunk {
            bytes = padded(&bytes, &extent, &chunk, size);
        }
        let (stored, read, decode) = (bytes.len() as u64, Default::default(), Default::default());
        Ok(DecodedChunk { bytes, stored, read, decode })
    }
}

#[cfg(all(test, feature = "ndarray"))]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_any_memory_order() {
        let rows = ndarray::Array::from_shape_fn((3, 5), |(i, j)| i16::try_from(10 * i + j).unwrap());
        let columns = rows.t().as_standard_layout().into_owned().reversed_axes();
        assert!(columns.as_slice().is_none() && rows == columns);
        let read = |array: &ndarray::Array2<i16>| {
            let array = MemoryArray::from_ndarray("values", array, &[2, 4]).unwrap();
            assert_eq!((array.dtype(), array.shape()), (StoredType::I16, &[3, 5][..]));
            let bytes = array.read_chunk(&[0, 1]).unwrap().bytes;
            bytes.chunks(2).map(|b| i16::from_ne_bytes([b[0], b[1]])).collect::<Vec<_>>()
        };
        assert_eq!(read(&rows), [4, 0, 0, 0, 14, 0, 0, 0]);
        assert_eq!(read(&columns), read(&rows));
        // A view that skips every other column, and an empty view.
        let view = rows.slice(ndarray::s![.., ..;2]);
        let array = MemoryArray::from_ndarray("view", &view, &[3, 3]).unwrap();
        let bytes = array.read_chunk(&[0, 0]).unwrap().bytes;
        assert_eq!(bytes[..6], *bytemuck::bytes_of(&[0i16, 2, 4]));
        let none = ndarray::Array2::<i8>::zeros((0, 5));
        assert_eq!(MemoryArray::from_ndarray("none", &none, &[1, 5]).unwrap().shape(), [0, 5]);
        for chunk in [&[2][..], &[2, 0]] {
            assert!(matches!(MemoryArray::from_ndarray("bad", &rows, chunk), Err(Error::Shape { .. })));
        }
    }
}
