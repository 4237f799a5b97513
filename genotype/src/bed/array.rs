//! The packed calls, a chunk of variants at a time.

use std::{
    fs::File,
    io,
    time::{Duration, Instant},
};

use teatime::{
    ArrayFacts, ChunkedArray, DecodedChunk, Error, FetchedChunk, Result, StoredType, store::read_at,
    stream::MAX_CHUNKS, to_usize,
};

/// The number of bytes before the calls.
pub(super) const HEADER: u64 = 3;

/// The number of bytes of a chunk, unless one row is longer.
const CHUNK: u64 = 1 << 20;

/// The number of variants in a chunk of a sample-major file, so that each sample's bytes in the chunk, 4 KiB, are worth a read.
const ACROSS: u64 = 1 << 14;

/// The maximum number of bytes of a chunk of a sample-major file, unless a row of [`CHUNK`] is longer.
const MAX_ACROSS: u64 = 64 << 20;

/// The number of samples transposed at a time, and the number of bytes of each: source and target of a tile stay in the L1 cache.
const STRIP: usize = 256;
const TILE: usize = 64;

/// The axis of the file that comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// A row per variant, four samples a byte: mode 1.
    Variants,
    /// A row per sample, four variants a byte: mode 0.
    Samples,
}

#[derive(Debug)]
pub(super) struct BedArray {
    name: String,
    file: File,
    order: Order,
    samples: u64,
    /// The number of variants, and of bytes of a variant.
    shape: [u64; 2],
    chunk_shape: [u64; 2],
}

impl BedArray {
    /// Makes the array of the calls, `[variants, samples]`, from a file whose length was checked.
    pub(super) fn new(name: String, file: File, order: Order, [variants, samples]: [u64; 2]) -> Self {
        let width = samples.div_ceil(4);
        let rows = match order {
            // Files of very many variants get longer chunks, so that the number of chunks stays within what a plan takes.
            Order::Variants => (CHUNK / width).max(variants.div_ceil(MAX_CHUNKS)).clamp(1, variants),
            // A chunk has whole bytes of each sample.
            Order::Samples => {
                let rows = ACROSS.min(MAX_ACROSS / width).max(CHUNK / width).min(variants);
                rows.next_multiple_of(4)
            }
        };
        Self { name, file, order, samples, shape: [variants, width], chunk_shape: [rows, width] }
    }

    /// Fills the start of a chunk with the variants from `first` on, with one read.
    fn read_variants(&self, first: u64, count: u64, chunk: &mut DecodedChunk) -> io::Result<()> {
        let started = Instant::now();
        chunk.stored = count * self.shape[1];
        read_at(&self.file, &mut chunk.bytes[..to_usize(chunk.stored)], HEADER + first * self.shape[1])?;
        chunk.read = started.elapsed();
        Ok(())
    }

    /// Does as [`read_variants`](Self::read_variants) for a sample-major file, with one read for each sample.
    fn read_samples(&self, first: u64, count: u64, chunk: &mut DecodedChunk) -> io::Result<()> {
        let (row, part) = (self.shape[0].div_ceil(4), to_usize(count.div_ceil(4)));
        let (width, samples) = (to_usize(self.shape[1]), to_usize(self.samples));
        let mut strip = vec![0; STRIP * part];
        for start in (0..samples).step_by(STRIP) {
            let started = Instant::now();
            let height = STRIP.min(samples - start);
            // The previous strip left bytes beyond the last sample.
            strip[height * part..].fill(0);
            for (sample, part) in (start as u64..).zip(strip[..height * part].chunks_exact_mut(part)) {
                read_at(&self.file, part, HEADER + sample * row + first / 4)?;
            }
            chunk.stored += (height * part) as u64;
            let read = Instant::now();
            transpose(&strip, part, height.div_ceil(4), &mut chunk.bytes, width, start / 4);
            chunk.read += read - started;
            chunk.decode += read.elapsed();
        }
        Ok(())
    }
}

impl ChunkedArray for BedArray {
    fn facts(&self) -> ArrayFacts<'_> {
        ArrayFacts {
            name: &self.name,
            shape: &self.shape,
            chunk_shape: &self.chunk_shape,
            dtype: StoredType::U8,
        }
    }

    fn scratch_bytes(&self) -> u64 {
        match self.order {
            Order::Variants => 0,
            Order::Samples => STRIP as u64 * self.chunk_shape[0].div_ceil(4),
        }
    }

    /// Also reads the bytes, since they are used here: most are already packed calls.
    fn decode(&self, index: &[u64], _: FetchedChunk) -> Result<DecodedChunk> {
        let fail = |why: &dyn std::fmt::Display| Error::chunk(&self.name, index, why);
        let [variants, width] = self.shape;
        let rows = self.chunk_shape[0];
        let chunks = variants.div_ceil(rows);
        let first = match *index {
            [row, 0] if row < chunks => row * rows,
            _ => return Err(fail(&format_args!("there are {chunks} by 1 chunks"))),
        };
        let count = rows.min(variants - first);
        let bytes = vec![0; to_usize(rows * width)];
        let mut chunk = DecodedChunk { bytes, stored: 0, read: Duration::ZERO, decode: Duration::ZERO };
        let read = match self.order {
            Order::Variants => self.read_variants(first, count, &mut chunk),
            Order::Samples => self.read_samples(first, count, &mut chunk),
        };
        read.map_err(|error| fail(&format_args!("cannot be read: {error}")))?;
        Ok(chunk)
    }
}

/// Transposes 2-bit fields. `from` has `groups` groups of four rows of `part` bytes, which become
/// the columns of `to` from byte `at` on; rows of `to` have `width` bytes.
fn transpose(from: &[u8], part: usize, groups: usize, to: &mut [u8], width: usize, at: usize) {
    for tile in (0..part).step_by(TILE) {
        for group in 0..groups {
            for column in tile..part.min(tile + TILE) {
                let bytes = [0, 1, 2, 3].map(|row| from[(4 * group + row) * part + column]);
                for (row, byte) in transposed(bytes).into_iter().enumerate() {
                    to[(4 * column + row) * width + at + group] = byte;
                }
            }
        }
    }
}

/// Returns the bytes in which field i of byte j is field j of byte i of `bytes`: transposes fields in 2 x 2 blocks, then the blocks.
fn transposed(bytes: [u8; 4]) -> [u8; 4] {
    let x = u32::from_le_bytes(bytes);
    let t = (x ^ (x >> 6)) & 0x00cc_00cc;
    let x = x ^ t ^ (t << 6);
    let t = (x ^ (x >> 12)) & 0x0000_f0f0;
    (x ^ t ^ (t << 12)).to_le_bytes()
}
