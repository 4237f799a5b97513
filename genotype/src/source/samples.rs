//! The selection of samples.

use std::{ops::Range, sync::Arc, time::Instant};

use teatime::{ArrayFacts, ChunkedArray, DecodedChunk, FetchedChunk, Result, stream::Selection, to_usize};

use super::{GenotypeKind, Genotypes};

impl Genotypes {
    /// Selects only these samples, as [`select`](Self::select) selects variants; replaces any earlier selection. The ranges are in ascending order
    /// and do not overlap.
    /// Chunks without a selected sample are not read, and results equal those of arrays with only the selected samples.
    ///
    /// Takes 16 bytes of memory for each run of neighbouring samples. A chunk of PLINK's packed calls, which holds every sample, is decoded
    /// whole, beside the chunk of the selected ones that is made of it.
    ///
    /// # Errors
    /// [`Error::Argument`](teatime::Error::Argument) for ranges that are not in order, overlap, or end beyond the last sample.
    pub fn select_samples(self, samples: impl IntoIterator<Item = Range<u64>>) -> Result<Self> {
        let is_packed = self.kind == GenotypeKind::Plink;
        let extent = match self.arrays.first() {
            Some(array) if !is_packed => array.shape()[1],
            _ => self.stored_samples,
        };
        let columns = Arc::new(Selection::new("Genotypes::select_samples", "samples", samples, extent)?);
        let arrays = match is_packed {
            true => self.stored.iter().map(|array| PackedSamples::wrap(array, &columns, extent)).collect(),
            false => self.arrays,
        };
        Ok(Self { arrays, columns, ..self })
    }
}

/// PLINK's packed calls of some of the samples, which follow one another. Chunks have the same rows.
#[derive(Debug)]
struct PackedSamples {
    array: Arc<dyn ChunkedArray>,
    columns: Arc<Selection>,
    shape: [u64; 2],
    chunk_shape: [u64; 2],
}

impl PackedSamples {
    fn wrap(array: &Arc<dyn ChunkedArray>, columns: &Arc<Selection>, stored: u64) -> Arc<dyn ChunkedArray> {
        if columns.len() == stored {
            return Arc::clone(array);
        }
        // Without a sample there is no result, but a chunk has to have an extent.
        let width = columns.len().div_ceil(4).max(1);
        let packed = |extents: &[u64]| [extents[0], width];
        let (shape, chunk_shape) = (packed(array.shape()), packed(array.chunk_shape()));
        Arc::new(Self { array: Arc::clone(array), columns: Arc::clone(columns), shape, chunk_shape })
    }
}

impl ChunkedArray for PackedSamples {
    fn facts(&self) -> ArrayFacts<'_> {
        ArrayFacts { shape: &self.shape, chunk_shape: &self.chunk_shape, ..self.array.facts() }
    }

    fn inner(&self) -> Option<&dyn ChunkedArray> {
        Some(&*self.array)
    }

    fn scratch_bytes(&self) -> u64 {
        let whole = self.array.chunk_shape().iter().fold(1u64, |bytes, &extent| bytes.saturating_mul(extent));
        self.array.scratch_bytes().saturating_add(whole)
    }

    fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
        let mut chunk = self.array.decode(index, fetched)?;
        let started = Instant::now();
        let [stored, width] = [self.array.chunk_shape()[1], self.chunk_shape[1]].map(to_usize);
        let mut bytes = vec![0; to_usize(self.chunk_shape[0]) * width];
        for (from, to) in chunk.bytes.chunks_exact(stored).zip(bytes.chunks_exact_mut(width)) {
            gather(from, &self.columns, to);
        }
        chunk.bytes = bytes;
        chunk.decode += started.elapsed();
        Ok(chunk)
    }
}

/// Copies the fields of two bits at the selected places of a row to the first places of `to`, which is 0.
fn gather(from: &[u8], places: &Selection, to: &mut [u8]) {
    let mut at = 0;
    for run in places.ranges() {
        let (mut place, end) = (to_usize(run.start), to_usize(run.end));
        while place < end {
            // As many fields as are left of a byte of `to` come from at most two bytes of `from`.
            let count = (4 - at % 4).min(end - place);
            let next = from.get(place / 4 + 1).copied().unwrap_or_default();
            let [fields, _] = (u16::from_le_bytes([from[place / 4], next]) >> (place % 4 * 2)).to_le_bytes();
            to[at / 4] |= (fields & (u8::MAX >> (8 - 2 * count))) << (at % 4 * 2);
            (at, place) = (at + count, place + count);
        }
    }
}
