//! Rows of chunked arrays in blocks, decoded ahead of their use.
//!
//! The unit of decoding is the storage chunk, so each is decoded once per pass, whatever the blocks are. Chunks are
//! decoded on the device's host pool, in the order of their first use, as far ahead as a bound on bytes allows; the
//! thread that asks for a block waits for its chunks and has their rows copied into a staging slot, narrowed or packed.

mod digest;
mod narrow;
mod plan;
mod prefetch;
mod rows;

use std::time::{Duration, Instant};

use rayon::prelude::*;

pub(crate) use self::plan::MAX_BANDS;
pub(crate) use self::{
    digest::Digests,
    narrow::{Narrow, Negative, Staged},
    plan::RowPlan,
    rows::Rows,
};
use self::{plan::Band, prefetch::Prefetch};
use crate::{Cancel, Device, Result};

/// Where a pass spent its time and what it moved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Time in reading files, summed over threads.
    pub read: Duration,
    /// Time in decoding chunks, summed over threads.
    pub decode: Duration,
    /// Time the consumer waited for chunks.
    pub stalled: Duration,
    /// Time in copying or packing rows into staging slots and handing them to the device.
    pub upload: Duration,
    /// Time in launching work and waiting for its results.
    pub compute: Duration,
    /// Bytes read from storage.
    pub stored_bytes: u64,
    /// Bytes after decoding.
    pub decoded_bytes: u64,
    /// Chunks decoded.
    pub chunks: u64,
    /// Most bytes of decoded chunks held at once, with what keeps track of them.
    pub peak_chunk_bytes: u64,
}

impl StreamStats {
    /// Adds another pass.
    pub(crate) fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.decode += other.decode;
        self.stalled += other.stalled;
        self.upload += other.upload;
        self.compute += other.compute;
        self.stored_bytes += other.stored_bytes;
        self.decoded_bytes += other.decoded_bytes;
        self.chunks += other.chunks;
        self.peak_chunk_bytes = self.peak_chunk_bytes.max(other.peak_chunk_bytes);
    }
}

/// The blocks of one pass, in order.
#[derive(Debug)]
pub(crate) struct Blocks<'a> {
    plan: &'a RowPlan,
    device: &'a Device,
    prefetch: Prefetch<'a>,
    /// Rows of a block.
    rows: u64,
    next: u64,
    pub(crate) stats: StreamStats,
}

impl<'a> Blocks<'a> {
    /// Starts a pass in blocks of so many rows that holds at most `bytes` bytes of decoded chunks (or what one block needs, if that is more).
    pub(crate) fn new(
        plan: &'a RowPlan,
        device: &'a Device,
        rows: u64,
        bytes: u64,
        cancel: &Cancel,
    ) -> Result<Self> {
        let prefetch = Prefetch::new(plan, device.pool()?.clone(), rows, bytes, cancel.clone());
        Ok(Self { plan, device, prefetch, rows, next: 0, stats: StreamStats::default() })
    }

    /// Digests what is read from now on.
    pub(crate) fn digest(&mut self) {
        self.prefetch.digests = Some(Digests::new(self.plan.arrays()));
    }

    /// Digests of what was read, where they were asked for.
    pub(crate) fn digests(&self) -> Option<&Digests> {
        self.prefetch.digests.as_ref()
    }

    /// Fills `slot` with the rows of the next block; their range, or none at the end.
    ///
    /// `slot` holds [`RowPlan::staged_bytes`] of a block.
    pub(crate) fn next(&mut self, slot: &mut [u8]) -> Result<Option<std::ops::Range<u64>>> {
        let rows = self.next..self.plan.rows().min(self.next + self.rows);
        if rows.is_empty() {
            return Ok(None);
        }
        let started = Instant::now();
        let bands = self.prefetch.bands(&rows, &mut self.stats)?;
        let waited = started.elapsed();
        let width = usize::try_from(self.plan.row_bytes()).unwrap_or(usize::MAX);
        let len = usize::try_from(rows.end - rows.start).unwrap_or(usize::MAX) * width;
        let fill = |(row, out): (usize, &mut [u8])| {
            let row = rows.start + row as u64;
            let at = bands.partition_point(|(band, _)| band.rows.end <= row);
            let (band, chunks) = &bands[at];
            self.plan.copy_row(band, chunks, row, out)
        };
        let (slot, width) = (&mut slot[..len], width.max(1));
        let filled =
            self.device.pool()?.install(|| slot.par_chunks_mut(width).enumerate().try_for_each(fill));
        if filled.is_err() {
            // The first error by the order of rows, whichever a thread met first.
            slot.chunks_mut(width).enumerate().try_for_each(fill)?;
        }
        self.stats.stalled += waited;
        self.stats.upload += started.elapsed().saturating_sub(waited);
        self.next = rows.end;
        self.prefetch.release(rows.end);
        Ok(Some(rows))
    }
}
