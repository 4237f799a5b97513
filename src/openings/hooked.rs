//! A stored array for tests, with a function in place of its decoding.

use std::fmt;

use crate::{
    ArrayFacts, ChunkedArray, DecodedChunk, FetchedChunk, Result,
    store::{MemoryArray, Storable},
};

type Decode = dyn Fn(&MemoryArray, &[u64], FetchedChunk) -> Result<DecodedChunk> + Send + Sync;

/// An array in memory whose chunks a function decodes, and which may claim other extents than it has.
pub struct Hooked {
    array: MemoryArray,
    /// The shape and the chunk shape, if they are not the array's.
    claimed: Option<[Vec<u64>; 2]>,
    /// The number of bytes that decoding a chunk is said to take in addition to the chunk.
    pub scratch: u64,
    decode: Box<Decode>,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hooked({:?})", self.array)
    }
}

impl Hooked {
    pub fn new(
        array: MemoryArray,
        decode: impl Fn(&MemoryArray, &[u64], FetchedChunk) -> Result<DecodedChunk> + Send + Sync + 'static,
    ) -> Self {
        Self { array, claimed: None, scratch: 0, decode: Box::new(decode) }
    }

    /// Returns an array of elements of this type, with a claimed shape and chunk shape, that nobody may read.
    pub fn claiming<T: Storable>(shape: &[u64], chunk_shape: &[u64]) -> Self {
        let array = MemoryArray::new::<T>("claims", &[], &[0], &[1]).unwrap();
        let claimed = Some([shape.to_vec(), chunk_shape.to_vec()]);
        Self { claimed, ..Self::new(array, |_, _, _| unreachable!("nobody reads it")) }
    }
}

impl ChunkedArray for Hooked {
    fn facts(&self) -> ArrayFacts<'_> {
        let facts = self.array.facts();
        match &self.claimed {
            Some([shape, chunk_shape]) => ArrayFacts { shape, chunk_shape, ..facts },
            None => facts,
        }
    }

    fn scratch_bytes(&self) -> u64 {
        self.scratch
    }

    fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
        (self.decode)(&self.array, index, fetched)
    }
}
