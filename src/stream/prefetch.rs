//! Decoding ahead, bounded in bytes.

use std::{
    collections::VecDeque,
    fmt,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::Instant,
};

use rayon::ThreadPool;

use super::{Band, Digests, RowPlan, StreamStats, digest::digest};
use crate::{Cancel, DecodedChunk, Error, Result};

/// A band and its chunks.
pub(super) type DecodedBand<'a> = (&'a Band, &'a [Vec<u8>]);

/// Number of a band, of a chunk in it, and the chunk with its digest.
type Decoded = (usize, usize, Result<(DecodedChunk, u64)>);

/// Decodes the chunks of a plan's bands in order on a pool, and keeps them until their rows were used.
#[derive(Debug)]
pub(super) struct Prefetch<'a> {
    plan: &'a RowPlan,
    pool: Arc<ThreadPool>,
    /// Most bytes of decoded chunks, unless one block needs more.
    bytes: u64,
    decoders: Arc<Decoders>,
    held: u64,
    /// The first band that is held, and those from it on that were started.
    first: usize,
    bands: VecDeque<Slot>,
    /// Of the chunks that came, where that is asked for.
    pub(super) digests: Option<Digests>,
    /// Set when the pass ends early, so that what is queued is not decoded.
    stop: Cancel,
    cancel: Cancel,
    sender: mpsc::Sender<Decoded>,
    receiver: mpsc::Receiver<Decoded>,
}

#[derive(Debug)]
struct Slot {
    chunks: Vec<Vec<u8>>,
    missing: usize,
}

type Task = Box<dyn FnOnce() + Send>;

/// Starts tasks on a pool, at most some at once: fewer than there are threads, where memory for what decoding takes is short.
/// Others wait here and not on a thread, which has other work to do.
struct Decoders(Mutex<(usize, VecDeque<Task>)>);

impl Decoders {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new((most, VecDeque::new()))))
    }

    fn lock(&self) -> MutexGuard<'_, (usize, VecDeque<Task>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `task` must not panic.
    fn start(self: &Arc<Self>, pool: &ThreadPool, task: Task) {
        let mut state = self.lock();
        if state.0 == 0 {
            return state.1.push_back(task);
        }
        state.0 -= 1;
        let decoders = Arc::clone(self);
        pool.spawn(move || decoders.run(task));
    }

    /// Runs the task, then lets the next have its place on the pool that this thread is of.
    fn run(self: Arc<Self>, task: Task) {
        task();
        let mut state = self.lock();
        match state.1.pop_front() {
            Some(next) => {
                drop(state);
                rayon::spawn(move || self.run(next));
            }
            None => state.0 += 1,
        }
    }
}

impl fmt::Debug for Decoders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoders").finish_non_exhaustive()
    }
}

impl<'a> Prefetch<'a> {
    /// Of a pass in blocks of so many rows.
    pub(super) fn new(
        plan: &'a RowPlan,
        pool: Arc<ThreadPool>,
        rows: u64,
        bytes: u64,
        cancel: Cancel,
    ) -> Self {
        let (sender, receiver) = mpsc::channel();
        let (decoders, bytes) = plan.decoders(pool.current_num_threads(), rows, bytes);
        Self {
            plan,
            pool,
            bytes,
            decoders: Decoders::new(decoders),
            held: 0,
            first: 0,
            bands: VecDeque::new(),
            digests: None,
            stop: Cancel::default(),
            cancel,
            sender,
            receiver,
        }
    }

    /// Waits for the bands of these rows: each with its chunks.
    pub(super) fn bands(
        &mut self,
        rows: &Range<u64>,
        stats: &mut StreamStats,
    ) -> Result<Vec<DecodedBand<'_>>> {
        let needed = self.plan.needed(rows);
        self.start(needed.end);
        stats.peak_chunk_bytes = stats.peak_chunk_bytes.max(self.held);
        while self.bands.range(..needed.end - self.first).any(|slot| slot.missing > 0) {
            self.cancel.check()?;
            let (band, chunk, result) = self.receiver.recv().expect("this end holds a sender too");
            let slot = &mut self.bands[band - self.first];
            slot.missing -= 1;
            let (decoded, digest) = result?;
            if let Some(digests) = &mut self.digests {
                digests.add(self.plan.bands()[band].array, digest);
            }
            stats.read += decoded.read;
            stats.decode += decoded.decode;
            stats.stored_bytes += decoded.stored;
            stats.decoded_bytes += decoded.bytes.len() as u64;
            stats.chunks += 1;
            slot.chunks[chunk] = decoded.bytes;
        }
        let slots = self.bands.range(needed.start - self.first..needed.end - self.first);
        Ok(self.plan.bands()[needed].iter().zip(slots.map(|slot| slot.chunks.as_slice())).collect())
    }

    /// Starts the bands up to `needed`, and further ones while there is room.
    fn start(&mut self, needed: usize) {
        let plan = self.plan;
        while let Some(band) = plan.bands().get(self.first + self.bands.len()) {
            let number = self.first + self.bands.len();
            if number >= needed && self.held.saturating_add(band.bytes) > self.bytes {
                break;
            }
            self.held += band.bytes;
            let chunks = plan.chunks(band);
            self.bands.push_back(Slot { chunks: vec![Vec::new(); chunks.len()], missing: chunks.len() });
            for (i, index) in chunks.into_iter().enumerate() {
                let (array, sender) = (plan.array(band.array).clone(), self.sender.clone());
                let (stop, cancel) = (self.stop.clone(), self.cancel.clone());
                let digested = self.digests.is_some();
                let task = move || {
                    if stop.is_cancelled() || cancel.is_cancelled() {
                        // The consumer may be waiting for this chunk; if it is gone, nobody minds.
                        let _ = sender.send((number, i, Err(Error::Cancelled)));
                        return;
                    }
                    // A panic on the pool's thread would abort the process.
                    let result = catch_unwind(AssertUnwindSafe(|| {
                        let chunk = array.read_chunk(&index)?;
                        let place = (number as u64) << 32 | i as u64;
                        let digest = if digested { digest(place, &chunk.bytes) } else { 0 };
                        Ok((chunk, digest))
                    }));
                    let panicked = |_| Err(Error::chunk(array.name(), &index, "decoding panicked"));
                    let _ = sender.send((number, i, result.unwrap_or_else(panicked)));
                };
                self.decoders.start(&self.pool, Box::new(task));
            }
        }
    }

    /// Frees the bands that end at or before `row`.
    pub(super) fn release(&mut self, row: u64) {
        while self.plan.bands().get(self.first).is_some_and(|band| band.rows.end <= row)
            && !self.bands.is_empty()
        {
            self.bands.pop_front();
            self.held -= self.plan.bands()[self.first].bytes;
            self.first += 1;
        }
    }
}

impl Drop for Prefetch<'_> {
    fn drop(&mut self) {
        let started = Instant::now();
        self.stop.cancel();
        // Chunks in flight hold memory until they end; a second bounds the wait for one that hangs.
        while self.bands.iter().any(|slot| slot.missing > 0) && started.elapsed().as_secs() < 1 {
            let Ok((band, _, _)) = self.receiver.recv_timeout(std::time::Duration::from_millis(100)) else {
                continue;
            };
            self.bands[band - self.first].missing -= 1;
        }
    }
}
