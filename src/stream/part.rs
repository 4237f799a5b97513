//! The part of a decoded chunk that is held.

use std::ops::Range;

use super::boxes::AXES;
use crate::{OpenChunk, extent::to_usize, fresh::CHUNKS, store::extract_block};

/// A part of a chunk: its elements within a range along each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChunkPart(pub(super) [Range<u64>; AXES]);

/// The bytes of the held part of a chunk.
pub(super) struct HeldChunk<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) part: &'a ChunkPart,
    pub(super) is_converted: bool,
    /// The chunk, if its elements are read where they are stored; it has no bytes then.
    pub(super) open: Option<&'a OpenChunk>,
}

impl ChunkPart {
    pub(super) fn whole(chunk: [u64; AXES]) -> Self {
        Self(chunk.map(|extent| 0..extent))
    }

    pub(super) fn elements(&self) -> u64 {
        self.0.iter().fold(1, |product, range| product.saturating_mul(range.end - range.start))
    }

    /// Returns the smallest part that contains both parts.
    pub(super) fn with(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|axis| {
            let (a, b) = (&self.0[axis], &other.0[axis]);
            a.start.min(b.start)..a.end.max(b.end)
        }))
    }

    /// Returns the index within the part of an element of the chunk.
    fn place(&self, at: &[u64; AXES]) -> usize {
        let along = self.0.iter().zip(at);
        to_usize(along.fold(0, |place, (range, at)| place * (range.end - range.start) + (at - range.start)))
    }

    /// Reduces `bytes`, the part's elements of `size` bytes each, to those of a smaller part. Copies them to new memory, because
    /// shrinking in place would leave gaps in the heap that are too small for the next chunk.
    pub(super) fn cut(&self, bytes: &mut Vec<u8>, to: &Self, size: usize) {
        if self == to {
            return;
        }
        let extents = |part: &Self| part.0.each_ref().map(|range| to_usize(range.end - range.start));
        let origin: [usize; AXES] =
            std::array::from_fn(|axis| to_usize(to.0[axis].start - self.0[axis].start));
        let part = extract_block(bytes, &extents(self), &origin, &extents(to), size);
        CHUNKS.keep(std::mem::replace(bytes, part));
    }
}

impl<'a> HeldChunk<'a> {
    /// Returns `len` consecutive elements of the chunk, starting at `at`, each of `size` bytes.
    pub(super) fn run(&self, at: &[u64; AXES], len: usize, size: usize) -> &'a [u8] {
        &self.bytes[self.part.place(at) * size..][..len * size]
    }

    /// Copies `len` consecutive elements of `bits` bits each of a converted chunk, from `at` on; zeros fill the last byte.
    pub(super) fn copy_converted(&self, at: &[u64; AXES], len: usize, bits: usize, to: &mut [u8]) {
        let first = self.part.place(at) * bits;
        let (from, shift) = (&self.bytes[first / 8..], first % 8);
        if shift == 0 {
            to.copy_from_slice(&from[..to.len()]);
        } else {
            let next = from[1..].iter().copied().chain([0]);
            for (to, (byte, next)) in to.iter_mut().zip(from.iter().zip(next)) {
                *to = byte >> shift | next << (8 - shift);
            }
        }
        if let (Some(last), 1..) = (to.last_mut(), len * bits % 8) {
            *last &= (1 << (len * bits % 8)) - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts() {
        let part = |ranges: [[u64; 2]; AXES]| ChunkPart(ranges.map(|[start, end]| start..end));
        let whole = ChunkPart::whole([2, 3, 1, 4, 5]);
        let mut bytes: Vec<u8> = (0..240u8).flat_map(|i| [i / 2, i % 2 + 100]).collect();
        bytes.truncate(240);
        let all = bytes.clone();
        let first = part([[0, 2], [1, 3], [0, 1], [1, 4], [0, 4]]);
        let second = part([[1, 2], [1, 3], [0, 1], [2, 3], [1, 4]]);
        assert_eq!([&whole, &first, &second].map(ChunkPart::elements), [120, 48, 6]);
        assert_eq!((first.with(&second), second.with(&whole)), (first.clone(), whole.clone()));
        let check = |held: &ChunkPart, bytes: &[u8]| {
            assert_eq!(bytes.len() as u64, 2 * held.elements());
            for i in 0..held.elements() {
                let mut left = i;
                let mut at = [0; AXES];
                for (at, range) in at.iter_mut().zip(&held.0).rev() {
                    *at = range.start + left % (range.end - range.start);
                    left /= range.end - range.start;
                }
                let (here, there) = (
                    HeldChunk { bytes, part: held, is_converted: false, open: None },
                    HeldChunk { bytes: &all, part: &whole, is_converted: false, open: None },
                );
                assert_eq!(here.run(&at, 1, 2), there.run(&at, 1, 2));
            }
        };
        whole.cut(&mut bytes, &whole, 2);
        check(&whole, &bytes);
        whole.cut(&mut bytes, &first, 2);
        check(&first, &bytes);
        first.cut(&mut bytes, &second, 2);
        check(&second, &bytes);
    }
}
