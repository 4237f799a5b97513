//! The memory that a pass takes: what is staged, the chunks of a box, and what is decoded ahead.

use std::{
    collections::BTreeSet,
    iter,
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use super::{Band, Plan, decoded_bytes};
use crate::stream::{
    boxes::{AXES, Along, Beyond},
    kept::{is_worth_keeping, memory_of},
};

/// The amounts of work that a pass may have in progress at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtOnce {
    /// The number of chunks being decoded.
    pub(crate) decoders: usize,
    /// The number of threads dedicated to fetching; 0 if the decoding thread fetches its own chunk.
    pub(crate) fetches: usize,
    /// The number of chunks that are being fetched, are fetched or are being decoded, if chunks are fetched ahead.
    pub(crate) fetched: usize,
    /// The number of bytes of shards that are held, each read as a whole.
    pub(crate) shards: u64,
    /// The maximum number of bytes of decoded chunks.
    pub(crate) bytes: u64,
}

impl Plan {
    /// Returns the number of bytes of a row of the widest box as staged.
    pub fn row_bytes(&self) -> u64 {
        let most = |axis: usize| self.along[axis].most(self.extent(axis));
        self.convert.bytes((1..AXES).map(most).product())
    }

    /// Returns the number of bytes of the largest box as staged.
    pub fn block_bytes(&self) -> u64 {
        self.staged_bytes(self.block_rows())
    }

    /// Returns the number of bytes, as staged, of a box of `rows` rows (at least one, and at most all rows).
    pub fn staged_bytes(&self, rows: u64) -> u64 {
        Along { size: rows.max(1), ..self.along[0] }.most(self.rows()).saturating_mul(self.row_bytes())
    }

    /// Returns the minimum number of bytes that a pass takes: for the decoded chunks of any one box, for the shards that hold it if these
    /// are always read as a whole, for scratch memory to decode a chunk, and for the lists of what is read.
    pub fn largest_need(&self) -> u64 {
        self.largest_need_of(self.block_rows())
    }

    /// Returns the minimum number of bytes that a pass takes in boxes of `rows` rows (at least one).
    pub fn largest_need_of(&self, rows: u64) -> u64 {
        let held = self.chunks_of_box(rows).saturating_add(self.shards_of_box(rows));
        held.saturating_add(self.scratch).saturating_add(self.lists)
    }

    /// Returns the maximum number of bytes of decoded chunks that are held for any one box of `rows` rows (at least one).
    pub(in crate::stream) fn chunks_of_box(&self, rows: u64) -> u64 {
        let along = Along { size: rows.max(1), ..self.along[0] };
        let held = |(band, rows): (usize, Range<u64>)| {
            let Band { bytes, tracking, row_bytes, .. } = &self.bands[band];
            match self.is_cut {
                true => tracking.saturating_add(row_bytes.saturating_mul(rows.end - rows.start)),
                false => *bytes,
            }
        };
        let need = |number| -> u64 {
            if let (true, [array]) = (self.is_cut && along.beyond == Beyond::Clip, &self.arrays[..])
                && self.rows() == array.shape()[0]
            {
                // All rows of chunks are alike and adjacent here, so this avoids a list of bands for each of perhaps millions of boxes.
                let mut spans = along.spans(self.rows(), &along.core(self.rows(), number));
                let span = spans.next().unwrap_or(0..0);
                let bands = self.bands_of(&span);
                let Some(Band { tracking, row_bytes, .. }) = self.bands.get(bands.start) else { return 0 };
                let tracking = tracking.saturating_mul(bands.len() as u64);
                return tracking.saturating_add(row_bytes.saturating_mul(span.end - span.start));
            }
            self.rows_of(&along, number).into_iter().map(held).fold(0, u64::saturating_add)
        };
        let boxes = along.count(self.rows());
        if self.is_cut || along.halo != [0; 2] || boxes <= self.bands.len() as u64 {
            return (0..boxes).map(need).max().unwrap_or(0);
        }
        // A box within a band needs no more than the box in which the band begins, so only these are checked: there may be many boxes.
        let begins = |band: &Band| band.rows.start.saturating_sub(along.within[0]) / along.size;
        self.bands.iter().map(begins).filter(|number| *number < boxes).map(need).max().unwrap_or(0)
    }

    /// Returns the most bytes of shards, where these are always read as a whole, that hold any one box of `rows` rows (at least one).
    fn shards_of_box(&self, rows: u64) -> u64 {
        let whole = |array: usize| self.shards(array).filter(|shards| shards.are_whole);
        let across = |array: usize| {
            let shards = whole(array)?;
            let along = |(axis, n): (usize, &u64)| {
                let shards_at = |number| {
                    let chunks = self.pieces(array, axis, number).chunks;
                    chunks.chunk_by(|a, b| a / n == b / n).count() as u64
                };
                (0..self.count(axis)).map(shards_at).max().unwrap_or(0)
            };
            let axes = shards.chunks.iter().enumerate().skip(1);
            Some(axes.map(along).fold(shards.bytes, u64::saturating_mul))
        };
        if !self.holds_whole() {
            return 0;
        }
        let across: Vec<Option<u64>> = (0..self.arrays()).map(across).collect();
        let along = Along { size: rows.max(1), ..self.along[0] };
        let rows_of_shards = |number: u64| {
            let shard_row = |(band, _): (usize, Range<u64>)| {
                let Band { array, chunk_row, .. } = self.bands[band];
                Some((array, chunk_row / whole(array)?.chunks[0]))
            };
            let rows: BTreeSet<_> = self.rows_of(&along, number).into_iter().filter_map(shard_row).collect();
            rows.into_iter().filter_map(|(array, _)| across[array]).fold(0, u64::saturating_add)
        };
        (0..along.count(self.rows())).map(rows_of_shards).max().unwrap_or(0)
    }

    /// True if shards of some array are always read as a whole. Those of others are not then.
    pub(in crate::stream) fn holds_whole(&self) -> bool {
        self.shards.iter().flatten().any(|shards| shards.are_whole)
    }

    /// Lets passes of the plan read shards as a whole of which they want at least half of the chunks, in at most `most` bytes of host
    /// memory that nothing else takes. Returns the bytes that they may take, which are no more than they have use for. By default they take
    /// none. Shards that are always read as a whole are read ahead in it. For others it has a use only with storage of
    /// [high latency](crate::ChunkedArray::fetches), since other storage sends parts as fast.
    pub fn hold_shards(&self, most: u64) -> u64 {
        let [bytes, shards] = self.whole_shards();
        let room = most.checked_div(bytes).unwrap_or(0).min(shards) * bytes;
        self.shard_room.store(room, Relaxed);
        room
    }

    /// Returns the most bytes of a shard that may be read as a whole, and the number of such shards in two rows of shards.
    fn whole_shards(&self) -> [u64; 2] {
        let shards = (0..self.arrays()).filter_map(|array| Some((array, self.shards(array)?)));
        let whole = self.holds_whole();
        let shards = shards.filter(|(array, shards)| {
            shards.are_whole == whole && (whole || self.array(*array).fetches() > 0)
        });
        shards.fold([0; 2], |[bytes, most], (array, shards)| {
            let rows = self.bands().chunk_by(|a, b| {
                a.array == b.array && a.chunk_row / shards.chunks[0] == b.chunk_row / shards.chunks[0]
            });
            let across = iter::zip(self.across(array), shards.chunks.iter().skip(1));
            let across = across.map(|(chunks, n)| chunks.chunk_by(|a, b| a / n == b / n).count() as u64);
            let count = across.fold(rows.take(2).count() as u64, u64::saturating_mul);
            [bytes.max(shards.bytes), most.max(count)]
        })
    }

    /// Returns the bytes beyond [`largest_need`](Self::largest_need) that keep `threads` threads busy: scratch memory for each thread, and
    /// room to decode ahead.
    pub fn ahead(&self, threads: u64) -> u64 {
        let band = self.bands.iter().map(|band| band.bytes).max().unwrap_or(0);
        let others = self.scratch.saturating_mul(threads.saturating_sub(1));
        // Decoders get half of the bytes beyond the minimum, and chunks that are fetched ahead get a quarter.
        let bands =
            band.saturating_mul(threads.saturating_mul(2).saturating_add(2).saturating_add(self.fetches));
        let fetched = self.fetches.saturating_mul(self.fetched);
        bands.max(others).saturating_add(others).saturating_add(fetched).max(fetched.saturating_mul(4))
    }

    /// Returns the amounts that a pass in boxes of `rows` rows may have in progress on `threads` threads within `bytes` bytes.
    pub(crate) fn at_once(&self, threads: usize, rows: u64, bytes: u64) -> AtOnce {
        let spare = bytes.saturating_sub(self.largest_need_of(rows));
        let within = |share: u64, unit: u64, most: u64| share.checked_div(unit).unwrap_or(u64::MAX).min(most);
        let others = within(spare / 2, self.scratch, threads.saturating_sub(1) as u64);
        let waiting = within(spare / 4, self.fetched, self.fetches);
        let taken = (1 + others) * self.scratch + waiting * self.fetched;
        let of_box = self.shards_of_box(rows);
        let count = |n: u64| usize::try_from(n).unwrap_or(threads);
        AtOnce {
            decoders: count(1 + others),
            fetches: count(self.fetches.min(1 + others + waiting)),
            fetched: count(1 + others + waiting),
            shards: of_box.saturating_add(self.shard_room.load(Relaxed)),
            bytes: bytes.saturating_sub(taken).saturating_sub(self.lists).saturating_sub(of_box),
        }
    }

    /// Keeps chunks as stored, in at most `bytes` bytes of host memory, so that later passes of the plan need not read them again. Chunks beyond
    /// that are dropped at once, and all with the plan. By default none are kept.
    ///
    /// Only chunks that could be decoded are kept, and only those that are compressed or come from storage with
    /// [high latency](crate::ChunkedArray::fetches): the operating system keeps files that are not compressed.
    pub fn keep_chunks(&self, bytes: u64) {
        self.kept.set_room(bytes);
    }

    /// Returns the number of bytes of memory of the chunks that are [kept](Self::keep_chunks).
    pub fn kept_bytes(&self) -> u64 {
        self.kept.held()
    }

    /// Returns the maximum number of bytes of memory that chunks which are kept take.
    pub(in crate::stream) fn most_kept(&self) -> u64 {
        let arrays = self.arrays.iter().filter(|array| is_worth_keeping(&***array));
        let stored = arrays.map(|array| array.fetched_bytes().max(decoded_bytes(&**array))).max();
        stored.map_or(0, memory_of).saturating_mul(self.chunks() as u64)
    }

    /// Shares kept chunks with a plan that reads the same elements of the same arrays.
    pub(in crate::stream) fn keeping(mut self, other: &Self) -> Self {
        self.kept = Arc::clone(&other.kept);
        self
    }
}
