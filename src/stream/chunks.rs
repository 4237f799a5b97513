//! The numbering of the chunks that a plan reads: those that cover the first rows come first, in C order among chunks of the same rows.

use std::ops::Range;

use super::{
    boxes::{ACROSS, AXES, Pieces},
    plan::{Band, Plan, TRACKING},
    schedule::Parts,
};

/// A shard: its array, and its index among the array's shards.
pub(super) type ShardOf = (usize, Vec<u64>);

impl Plan {
    /// Returns the number of chunks that the plan reads, each counted once.
    pub(super) fn chunks(&self) -> usize {
        self.bands().last().map_or(0, |band| band.chunk + self.chunks_across(band.array))
    }

    fn chunks_across(&self, array: usize) -> usize {
        self.across(array).iter().map(Vec::len).product()
    }

    /// Returns the indices in [`across`](Self::across) of the chunks of `pieces`, which lie along `axis`, not the first axis.
    pub(super) fn places(&self, array: usize, axis: usize, pieces: &Pieces) -> impl Iterator<Item = usize> {
        let across = &self.across(array)[axis - 1];
        pieces.chunks.iter().map(|chunk| across.partition_point(|other| other < chunk))
    }

    /// Returns the numbers of a band's chunks that hold these pieces, in C order.
    pub(super) fn numbers(&self, band: usize, pieces: &[Pieces; ACROSS]) -> Vec<usize> {
        let band = &self.bands()[band];
        let mut numbers = vec![0];
        for axis in 1..AXES {
            let count = self.across(band.array)[axis - 1].len();
            let places: Vec<usize> = self.places(band.array, axis, &pieces[axis - 1]).collect();
            numbers =
                numbers.iter().flat_map(|at| places.iter().map(move |place| at * count + place)).collect();
        }
        numbers.iter().map(|at| band.chunk + at).collect()
    }

    /// Returns the band of a chunk, given by its number, and the chunk's index along each of the other axes.
    pub(super) fn find(&self, number: usize) -> (usize, [usize; ACROSS]) {
        let band = self.bands().partition_point(|band| band.chunk <= number) - 1;
        let (mut left, mut at) = (number - self.bands()[band].chunk, [0; ACROSS]);
        for (at, chunks) in at.iter_mut().zip(self.across(self.bands()[band].array)).rev() {
            *at = left % chunks.len();
            left /= chunks.len();
        }
        (band, at)
    }

    /// Returns the number of bytes that are held for a chunk, including its bookkeeping; 0 if nothing is held.
    pub(super) fn bytes_of(&self, number: usize, parts: &Parts) -> u64 {
        let Some((_, part)) = parts.last() else { return 0 };
        let array = self.bands()[self.find(number).0].array;
        if self.is_in_place(array) {
            return TRACKING;
        }
        let size = self.array(array).dtype().size() as u64;
        part.elements().saturating_mul(size).saturating_add(TRACKING)
    }

    /// Returns the shard of a chunk, if the array's chunks are in shards.
    pub(super) fn shard_of(&self, array: usize, index: &[u64]) -> Option<ShardOf> {
        let chunks = &self.shards(array)?.chunks;
        Some((array, index.iter().zip(chunks).map(|(at, n)| at / n).collect()))
    }

    /// Returns the number of a shard's chunks that are read and are not kept, and of all that the shard has within its array.
    pub(super) fn wanted_of(&self, (array, shard): &ShardOf) -> [u64; 2] {
        let Some(shards) = self.shards(*array) else { return [0; 2] };
        let x = self.array(*array);
        let (mut bands, mut offsets, mut there) = (0..0, vec![0], 1);
        for (axis, (at, n)) in shard.iter().zip(&shards.chunks).enumerate() {
            let chunks = at * n..x.shape()[axis].div_ceil(x.chunk_shape()[axis]).min((at + 1) * n);
            there *= chunks.end - chunks.start;
            let Some(axis) = axis.checked_sub(1) else {
                let place = |band: &Band| (band.array, band.chunk_row);
                bands = within(self.bands(), &((*array, chunks.start)..(*array, chunks.end)), place);
                continue;
            };
            let across = &self.across(*array)[axis];
            let places = within(across, &chunks, |chunk| *chunk);
            let along =
                |at: &usize| places.clone().map(|place| at * across.len() + place).collect::<Vec<_>>();
            offsets = offsets.iter().flat_map(along).collect();
        }
        let bands = &self.bands()[bands];
        let numbers = bands.iter().flat_map(|band| offsets.iter().map(move |at| band.chunk + at));
        [self.kept.lacking(numbers), there]
    }

    /// Returns the array of chunk `number`, and the chunk's index in the array's grid.
    pub(super) fn chunk(&self, number: usize) -> (usize, Vec<u64>) {
        let (band, at) = self.find(number);
        let Band { array, chunk_row, .. } = self.bands()[band];
        let across = at.iter().zip(self.across(array)).map(|(at, chunks)| chunks[*at]);
        let axes = self.array(array).shape().len();
        (array, std::iter::once(chunk_row).chain(across).take(axes).collect())
    }
}

/// Returns the places of the items whose keys, which ascend, are in a range.
fn within<T, K: Ord>(items: &[T], range: &Range<K>, key: impl Fn(&T) -> K) -> Range<usize> {
    let before = |end: &K| items.partition_point(|item| key(item) < *end);
    before(&range.start)..before(&range.end)
}
