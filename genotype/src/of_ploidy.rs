//! An array of calls, presented as calls of another ploidy.

use std::sync::Arc;

use bytemuck::Pod;

use teatime::{
    ArrayFacts, ChunkedArray, DecodedChunk, Error, FetchedChunk, Result, Shards, StoredType, WholeShard,
    to_usize,
};

/// Returns true if a call of `alleles` alleles fits a matrix of that ploidy: haploid calls among diploid ones count twice.
pub(super) fn fits(alleles: u64, ploidy: u64) -> bool {
    alleles == ploidy || (alleles, ploidy) == (1, 2)
}

/// The values of alleles that are missing, and of those that a call of a lower ploidy does not have.
const MISSING: i8 = -1;
const ABSENT: i8 = -2;

/// Returns the number of alleles of a call; none if an allele is missing or invalid, or all are absent.
pub(super) fn alleles<T: Copy + PartialOrd + From<i8>>(call: &[T]) -> Option<usize> {
    let known = call.iter().filter(|&&allele| allele > MISSING.into()).count();
    let absent = call.iter().filter(|&&allele| allele == ABSENT.into()).count();
    (known > 0 && known + absent == call.len()).then_some(known)
}

/// The calls of an array as calls of one ploidy.
#[derive(Debug)]
pub(crate) struct OfPloidy {
    array: Arc<dyn ChunkedArray>,
    /// True if calls that do not fit the ploidy become missing; otherwise no call has more alleles.
    fitting: bool,
    shape: [u64; 3],
    chunk_shape: [u64; 3],
}

impl OfPloidy {
    /// Keeps the calls that fit the ploidy; other calls become missing.
    pub(crate) fn fitting(array: &Arc<dyn ChunkedArray>, ploidy: u64) -> Result<Arc<dyn ChunkedArray>> {
        // Calls of one or two alleles all fit a ploidy of two.
        Self::wrap(array, ploidy, ploidy > 2)
    }

    /// Pads calls of at most `ploidy` alleles to that ploidy.
    pub(crate) fn filled(array: &Arc<dyn ChunkedArray>, ploidy: u64) -> Result<Arc<dyn ChunkedArray>> {
        Self::wrap(array, ploidy, false)
    }

    fn wrap(array: &Arc<dyn ChunkedArray>, ploidy: u64, fitting: bool) -> Result<Arc<dyn ChunkedArray>> {
        let stored = array.shape()[2];
        if stored == ploidy && !fitting {
            return Ok(Arc::clone(array));
        }
        let signed = [StoredType::I8, StoredType::I16, StoredType::I32, StoredType::I64];
        if !signed.contains(&array.dtype()) {
            let why = format!("holds {:?}; calls of several ploidies are signed integers", array.dtype());
            return Err(Error::store(array.name(), why));
        }
        let (shape, chunk) = (array.shape(), array.chunk_shape());
        let (shape, chunk_shape) = ([shape[0], shape[1], ploidy], [chunk[0], chunk[1], ploidy]);
        let fitting = fitting || stored > ploidy;
        Ok(Arc::new(Self { array: Arc::clone(array), fitting, shape, chunk_shape }))
    }

    /// Returns the number of chunks over which the alleles of a call are spread.
    fn deep(&self) -> u64 {
        self.array.shape()[2].div_ceil(self.array.chunk_shape()[2])
    }

    /// True if the stored chunks of a call are in one shard, where they are in shards.
    fn is_in_shard(&self) -> bool {
        self.array.shards().is_none_or(|shards| shards.chunks[2] >= self.deep())
    }

    /// Returns the indices of the stored chunks that hold the calls of the chunk at `index`.
    fn parts(&self, index: &[u64]) -> Result<Vec<[u64; 3]>> {
        let &[row, column, 0] = index else {
            return Err(Error::chunk(self.name(), index, "there is one chunk along the alleles"));
        };
        Ok((0..self.deep()).map(|allele| [row, column, allele]).collect())
    }

    /// Joins the chunks along the axis of alleles, and returns their calls as calls of the ploidy.
    fn calls<T: Pod + PartialOrd + From<i8>>(&self, chunks: &[DecodedChunk]) -> Vec<u8> {
        let [absent, missing] = [ABSENT, MISSING].map(T::from);
        let [stored, deep] = [self.array.shape()[2], self.array.chunk_shape()[2]].map(to_usize);
        let ploidy = to_usize(self.shape[2]);
        let calls = to_usize(self.chunk_shape[0] * self.chunk_shape[1]);
        let (mut call, mut fitted) = (vec![absent; stored], vec![absent; ploidy]);
        let mut out = Vec::with_capacity(calls * ploidy * size_of::<T>());
        for at in 0..calls {
            for (allele, to) in call.iter_mut().enumerate() {
                let from = (at * deep + allele % deep) * size_of::<T>();
                let bytes = &chunks[allele / deep].bytes[from..from + size_of::<T>()];
                *to = bytemuck::pod_read_unaligned(bytes);
            }
            let there = call.iter().filter(|&&allele| allele != absent);
            let fits = match alleles(&call) {
                Some(alleles) => !self.fitting || fits(alleles as u64, ploidy as u64),
                // A call that misses some alleles keeps the known ones, since its alleles may be taken as haplotypes.
                None => there.clone().count() == ploidy,
            };
            // A value that is no allele is passed on, for the conversion to refuse.
            if let Some(bad) = call.iter().find(|&&allele| allele < absent) {
                fitted.fill(*bad);
            } else if fits {
                fitted.fill(absent);
                fitted.iter_mut().zip(there).for_each(|(to, allele)| *to = *allele);
            } else {
                fitted.fill(missing);
            }
            out.extend_from_slice(bytemuck::cast_slice(&fitted));
        }
        out
    }
}

impl ChunkedArray for OfPloidy {
    fn facts(&self) -> ArrayFacts<'_> {
        ArrayFacts { shape: &self.shape, chunk_shape: &self.chunk_shape, ..self.array.facts() }
    }

    /// Returns the bytes of the fetched chunks over which a call is spread, which are held together.
    fn fetched_bytes(&self) -> u64 {
        self.deep().saturating_mul(self.array.fetched_bytes())
    }

    fn scratch_bytes(&self) -> u64 {
        let bytes = self.deep().saturating_mul(self.dtype().size() as u64);
        let stored =
            self.array.chunk_shape().iter().fold(bytes, |bytes, &extent| bytes.saturating_mul(extent));
        self.array.scratch_bytes().saturating_add(stored)
    }

    fn fetches(&self) -> usize {
        self.array.fetches()
    }

    fn shards(&self) -> Option<Shards> {
        let stored = self.array.shards()?;
        let [rows, columns, bytes] = match self.is_in_shard() {
            true => [stored.chunks[0], stored.chunks[1], stored.bytes],
            // One shard after another is read for a chunk if there is no other way.
            false if stored.are_whole => [1, 1, stored.bytes],
            false => [1, 1, u64::MAX],
        };
        Some(Shards { chunks: vec![rows, columns, 1], bytes, ..stored })
    }

    fn fetch_from(&self, shard: &WholeShard, index: &[u64]) -> Result<FetchedChunk> {
        if !self.is_in_shard() {
            return self.fetch(index);
        }
        let parts = self.parts(index)?.into_iter().map(|index| self.array.fetch_from(shard, &index));
        Ok(FetchedChunk { parts: parts.collect::<Result<_>>()?, ..FetchedChunk::default() })
    }

    fn fetch(&self, index: &[u64]) -> Result<FetchedChunk> {
        let parts = self.parts(index)?.iter().map(|index| self.array.fetch(index)).collect::<Result<_>>()?;
        Ok(FetchedChunk { parts, ..FetchedChunk::default() })
    }

    fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
        let parts = self.parts(index)?;
        let chunks = parts.iter().zip(fetched.parts).map(|(index, part)| self.array.decode(index, part));
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        let bytes = match self.dtype() {
            StoredType::I8 => self.calls::<i8>(&chunks),
            StoredType::I16 => self.calls::<i16>(&chunks),
            StoredType::I32 => self.calls::<i32>(&chunks),
            _ => self.calls::<i64>(&chunks),
        };
        Ok(DecodedChunk {
            bytes,
            stored: chunks.iter().map(|chunk| chunk.stored).sum(),
            read: chunks.iter().map(|chunk| chunk.read).sum(),
            decode: chunks.iter().map(|chunk| chunk.decode).sum(),
        })
    }
}

#[cfg(all(test, feature = "zarr"))]
mod tests {
    use teatime::{
        MissingChunk,
        store::{ArraySpec, ArrayWriter, Folder, ZarrArray},
    };

    use super::*;

    /// Chunks come from a shard that is read as a whole as they come one by one.
    #[test]
    fn chunks_of_whole_shards() {
        let scratch = tempfile::tempdir().unwrap();
        let storage = Arc::new(Folder::new(scratch.path()));
        for (name, chunk, alleles, shards) in [
            ("deep", [2, 2, 1], 3, [2, 2, 1]),
            ("flat", [2, 2, 3], 3, [2, 2, 1]),
            ("apart", [2, 2, 1], 1, [1, 1, 1]),
        ] {
            let spec = ArraySpec::new(StoredType::I8, &[8, 4, 3], &chunk).shard_shape(vec![4, 4, alleles]);
            let writer = ArrayWriter::create(storage.clone(), name, spec).unwrap();
            for index in writer.tiles() {
                let of = |at: u64| i8::try_from((at + 3 * index[0] + index[2]) % 3).unwrap();
                let tile: Vec<i8> = (0..16 * alleles).map(of).collect();
                writer.write(&index, &tile).unwrap();
            }
            writer.finish().unwrap();
            let stored: Arc<dyn ChunkedArray> =
                Arc::new(ZarrArray::open(scratch.path(), name, MissingChunk::Error).unwrap());
            let calls = OfPloidy::filled(&stored, 4).unwrap();
            let of = calls.shards().unwrap();
            let bytes = if name == "apart" { u64::MAX } else { stored.shards().unwrap().bytes };
            assert_eq!((&*of.chunks, of.bytes), (&shards[..], bytes));
            let whole = WholeShard::default();
            for index in [[0, 0, 0], [1, 1, 0], [0, 1, 0]] {
                let fetched = calls.fetch_from(&whole, &index).unwrap();
                let found = calls.decode(&index, fetched).unwrap().bytes;
                assert_eq!(found, calls.read_chunk(&index).unwrap().bytes, "{name}");
            }
        }
    }
}
