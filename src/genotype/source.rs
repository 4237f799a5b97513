//! Genotype arrays as one matrix of variants by samples.

use std::sync::Arc;

use bytemuck::Pod;

use crate::{ChunkedArray, DecodedChunk, Error, Result, StoredType};

/// What the numbers of a genotype array are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenotypeKind {
    /// Alleles of each call, (variants, samples, ploidy): 0 reference, above 0 alternate, -1 missing, -2 padding.
    Calls {
        /// Alleles of a call.
        ploidy: u64,
    },
    /// Dosages of non-reference alleles, (variants, samples), of diploids: 0 to 2, negative missing.
    Dosages,
}

/// Genotype arrays of the same samples, their variants appended in order.
#[derive(Clone, Debug)]
pub struct Genotypes {
    arrays: Vec<Arc<dyn ChunkedArray>>,
    kind: GenotypeKind,
    samples: u64,
    variants: u64,
    nan_is_missing: bool,
}

impl Genotypes {
    /// Appends arrays along variants: calls where they have three axes, dosages where they have two.
    ///
    /// # Errors
    /// [`Error::Argument`] without an array; [`Error::Shape`] for other ranks, a ploidy of 0 or above 127, or arrays
    /// that differ in samples, ploidy or rank.
    pub fn new(arrays: Vec<Arc<dyn ChunkedArray>>) -> Result<Self> {
        let op = "Genotypes::new";
        let first = arrays.first().ok_or_else(|| Error::argument(op, "arrays", "none given"))?;
        let kind = match *first.shape() {
            [_, _] => GenotypeKind::Dosages,
            [_, _, ploidy @ 1..=127] => GenotypeKind::Calls { ploidy },
            _ => {
                let expected = "(variants, samples) or (variants, samples, ploidy of 1 to 127)";
                return Err(Error::shape(
                    op,
                    expected,
                    format_args!("{:?} in {}", first.shape(), first.name()),
                ));
            }
        };
        let samples = first.shape()[1];
        for array in &arrays {
            if array.shape().len() != first.shape().len() || array.shape()[1..] != first.shape()[1..] {
                let expected =
                    format!("the samples and ploidy {:?} of {}", &first.shape()[1..], first.name());
                return Err(Error::shape(
                    op,
                    expected,
                    format_args!("{:?} in {}", array.shape(), array.name()),
                ));
            }
        }
        let variants = arrays.iter().map(|array| array.shape()[0]).sum();
        Ok(Self { arrays, kind, samples, variants, nan_is_missing: false })
    }

    /// Takes NaN in dosages for a missing one; it is an error otherwise, since it is more often a fault.
    #[must_use]
    pub fn nan_is_missing(self, yes: bool) -> Self {
        Self { nan_is_missing: yes, ..self }
    }

    /// The arrays, in order.
    pub fn arrays(&self) -> &[Arc<dyn ChunkedArray>] {
        &self.arrays
    }

    /// What the numbers are.
    pub fn kind(&self) -> GenotypeKind {
        self.kind
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Number of variants of all arrays.
    pub fn variants(&self) -> u64 {
        self.variants
    }

    /// What NaN means.
    pub(crate) fn nan(&self) -> bool {
        self.nan_is_missing
    }

    /// Alleles of a call.
    pub(crate) fn ploidy(&self) -> u64 {
        match self.kind {
            GenotypeKind::Calls { ploidy } => ploidy,
            GenotypeKind::Dosages => 2,
        }
    }
}

/// An array in memory, in one chunk per `chunk_shape`.
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
    /// The type as a value.
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
    /// An array with the given elements in C order, read in chunks of `chunk_shape`.
    ///
    /// # Errors
    /// [`Error::Shape`] when the number of elements, or the rank or extents of the chunks, do not fit.
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
        Ok(Self {
            name: name.into(),
            bytes,
            dtype: T::STORED,
            shape: shape.into(),
            chunk_shape: chunk_shape.into(),
        })
    }
}

impl ChunkedArray for MemoryArray {
    fn name(&self) -> &str {
        &self.name
    }

    fn shape(&self) -> &[u64] {
        &self.shape
    }

    fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    fn dtype(&self) -> StoredType {
        self.dtype
    }

    fn read_chunk(&self, index: &[u64]) -> Result<DecodedChunk> {
        let to_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let size = self.dtype.size();
        let rank = self.shape.len();
        let len = self.chunk_shape.iter().product::<u64>();
        let mut bytes = vec![0; to_usize(len) * size];
        let first: Vec<u64> = index.iter().zip(&self.chunk_shape).map(|(i, c)| i * c).collect();
        let extent: Vec<u64> =
            (0..rank).map(|a| self.chunk_shape[a].min(self.shape[a].saturating_sub(first[a]))).collect();
        // One run along the last axis at a time.
        let runs: u64 = extent[..rank - 1].iter().product();
        for run in 0..runs {
            let (mut left, mut from, mut to) = (run, 0, 0);
            let (mut from_stride, mut to_stride) = (self.shape[rank - 1], self.chunk_shape[rank - 1]);
            for axis in (0..rank - 1).rev() {
                let at = left % extent[axis];
                left /= extent[axis];
                from += (first[axis] + at) * from_stride;
                to += at * to_stride;
                from_stride *= self.shape[axis];
                to_stride *= self.chunk_shape[axis];
            }
            let (from, to) = (to_usize(from + first[rank - 1]) * size, to_usize(to) * size);
            let run = to_usize(extent[rank - 1]) * size;
            bytes[to..to + run].copy_from_slice(&self.bytes[from..from + run]);
        }
        Ok(DecodedChunk {
            stored: bytes.len() as u64,
            bytes,
            read: Default::default(),
            decode: Default::default(),
        })
    }
}
