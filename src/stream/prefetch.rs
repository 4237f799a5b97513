//! Fetching and decoding ahead, both bounded in bytes.

use std::{
    collections::VecDeque,
    fmt,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    time::Instant,
};

use rayon::ThreadPool;

use super::{Band, Digests, RowPlan, StreamStats, digest::digest, plan::AtOnce};
use crate::{Cancel, ChunkedArray, DecodedChunk, Error, FetchedChunk, Result};

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
    stages: Arc<Stages>,
    /// Whether chunks are fetched on threads that do nothing else.
    ahead: bool,
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

/// One chunk on its way.
struct Job {
    array: Arc<dyn ChunkedArray>,
    index: Vec<u64>,
    /// Number of its band, and its own in the band.
    place: (usize, usize),
    digested: bool,
    /// Either means that nobody waits for it.
    stops: [Cancel; 2],
    sender: mpsc::Sender<Decoded>,
}

impl Job {
    fn fetch(&self) -> Result<FetchedChunk> {
        if self.stops.iter().any(Cancel::is_cancelled) {
            return Err(Error::Cancelled);
        }
        self.unwinding(|| self.array.fetch(&self.index))
    }

    fn decode(&self, fetched: FetchedChunk) -> Result<(DecodedChunk, u64)> {
        if self.stops.iter().any(Cancel::is_cancelled) {
            return Err(Error::Cancelled);
        }
        self.unwinding(|| {
            let chunk = self.array.decode(&self.index, fetched)?;
            let place = (self.place.0 as u64) << 32 | self.place.1 as u64;
            let digest = if self.digested { digest(place, &chunk.bytes) } else { 0 };
            Ok((chunk, digest))
        })
    }

    /// A panic on the pool's thread would abort the process.
    fn unwinding<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let panicked = |_| Err(Error::chunk(self.array.name(), &self.index, "decoding panicked"));
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
    }

    fn send(self, result: Result<(DecodedChunk, u64)>) {
        // If the consumer is gone, nobody minds.
        let _ = self.sender.send((self.place.0, self.place.1, result));
    }
}

/// A chunk that was fetched, or that the thread that decodes it fetches.
type Ready = (Job, Option<Result<FetchedChunk>>);

/// Fetches chunks and decodes them, each at most some at once. What waits does so here and not on a thread of the pool, which
/// has other work to do.
#[derive(Default)]
struct Stages {
    state: Mutex<State>,
    /// Something changed that those who fetch wait for.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How many more may be decoded: fewer than there are threads, where memory for what decoding takes is short.
    decoders: usize,
    ready: VecDeque<Ready>,
    /// How many more may be fetched and not yet decoded.
    room: usize,
    wanted: VecDeque<Job>,
    closed: bool,
}

impl Stages {
    /// And whether there are threads that do nothing but fetch.
    fn new(at_once: &AtOnce, pool: &Arc<ThreadPool>) -> (Arc<Self>, bool) {
        let room = at_once.fetched;
        let state = State { decoders: at_once.decoders, room, ..State::default() };
        let stages = Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() });
        let start = |_: &usize| {
            let (stages, pool) = (Arc::clone(&stages), Arc::clone(pool));
            let thread = std::thread::Builder::new().name("teatime-fetch".into());
            thread.spawn(move || stages.fetch_on(&pool)).is_ok()
        };
        // Fewer where the system has no more.
        let ahead = (0..at_once.fetches).take_while(start).count() > 0;
        (stages, ahead)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a chunk: on threads that do nothing but fetch, if there are any.
    fn start(self: &Arc<Self>, pool: &ThreadPool, job: Job, ahead: bool) {
        if ahead {
            self.lock().wanted.push_back(job);
            self.changed.notify_one();
        } else {
            self.decode_on(pool, (job, None));
        }
    }

    /// Fetches until nothing more is wanted.
    fn fetch_on(self: Arc<Self>, pool: &ThreadPool) {
        loop {
            let job = {
                let mut state = self.lock();
                loop {
                    if state.room > 0
                        && let Some(job) = state.wanted.pop_front()
                    {
                        state.room -= 1;
                        break job;
                    }
                    if state.closed && state.wanted.is_empty() {
                        return;
                    }
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            };
            let fetched = job.fetch();
            self.decode_on(pool, (job, Some(fetched)));
        }
    }

    fn decode_on(self: &Arc<Self>, pool: &ThreadPool, ready: Ready) {
        let mut state = self.lock();
        if state.decoders == 0 {
            return state.ready.push_back(ready);
        }
        state.decoders -= 1;
        let stages = Arc::clone(self);
        pool.spawn(move || stages.decode(ready));
    }

    /// Decodes a chunk, then lets the next have its place on the pool that this thread is of.
    fn decode(self: Arc<Self>, (job, fetched): Ready) {
        let ahead = fetched.is_some();
        let result = fetched.unwrap_or_else(|| job.fetch()).and_then(|fetched| job.decode(fetched));
        job.send(result);
        let mut state = self.lock();
        if ahead {
            state.room += 1;
            self.changed.notify_one();
        }
        match state.ready.pop_front() {
            Some(next) => {
                drop(state);
                rayon::spawn(move || self.decode(next));
            }
            None => state.decoders += 1,
        }
    }

    /// Lets those who fetch go once nothing more is wanted.
    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stages").finish_non_exhaustive()
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
        let at_once = plan.at_once(pool.current_num_threads(), rows, bytes);
        let (stages, ahead) = Stages::new(&at_once, &pool);
        Self {
            plan,
            bytes: at_once.bytes,
            stages,
            ahead,
            pool,
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
                let job = Job {
                    array: Arc::clone(plan.array(band.array)),
                    index,
                    place: (number, i),
                    digested: self.digests.is_some(),
                    stops: [self.stop.clone(), self.cancel.clone()],
                    sender: self.sender.clone(),
                };
                self.stages.start(&self.pool, job, self.ahead);
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
        self.stages.close();
        // Chunks in flight hold memory until they end; a second bounds the wait for one that hangs.
        while self.bands.iter().any(|slot| slot.missing > 0) && started.elapsed().as_secs() < 1 {
            let Ok((band, _, _)) = self.receiver.recv_timeout(std::time::Duration::from_millis(100)) else {
                continue;
            };
            self.bands[band - self.first].missing -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;
    use crate::{
        Device, StoredType,
        store::{MemoryArray, StoredBytes},
        stream::{Blocks, Narrow, Negative, Rows, Staged},
    };

    const FETCHED: usize = 1000;

    /// Storage that takes its time: how many of its chunks are in each step, and the most there were.
    #[derive(Debug)]
    struct Late {
        array: MemoryArray,
        fetches: usize,
        broken: fn(&[u64]) -> bool,
        panics: bool,
        now: [AtomicUsize; 3],
        most: [AtomicUsize; 3],
    }

    const FETCHING: usize = 0;
    const HELD: usize = 1;
    const DECODING: usize = 2;

    impl Late {
        fn new(fetches: usize) -> Self {
            let values: Vec<i8> = (0..1280).map(|i| (i % 3) as i8).collect();
            let array = MemoryArray::new("late", &values, &[160, 8], &[4, 4]).unwrap();
            let (now, most) = Default::default();
            Self { array, fetches, broken: |_| false, panics: false, now, most }
        }

        fn enter(&self, step: usize) {
            self.most[step].fetch_max(1 + self.now[step].fetch_add(1, SeqCst), SeqCst);
        }

        fn leave(&self, step: usize) {
            self.now[step].fetch_sub(1, SeqCst);
        }

        fn most(&self, step: usize) -> usize {
            self.most[step].load(SeqCst)
        }
    }

    impl ChunkedArray for Late {
        fn name(&self) -> &str {
            "late"
        }
        fn shape(&self) -> &[u64] {
            self.array.shape()
        }
        fn chunk_shape(&self) -> &[u64] {
            self.array.chunk_shape()
        }
        fn dtype(&self) -> StoredType {
            self.array.dtype()
        }
        fn fetched_bytes(&self) -> u64 {
            FETCHED as u64
        }
        fn fetches(&self) -> usize {
            self.fetches
        }
        fn fetch(&self, index: &[u64]) -> Result<FetchedChunk> {
            self.enter(FETCHING);
            self.enter(HELD);
            std::thread::sleep(std::time::Duration::from_millis(10));
            self.leave(FETCHING);
            if (self.broken)(index) {
                self.leave(HELD);
                assert!(!self.panics, "the storage's own fault");
                return Err(Error::chunk("late", index, "gone"));
            }
            let bytes = Some(StoredBytes::Owned(vec![0; FETCHED]));
            Ok(FetchedChunk { bytes, ..FetchedChunk::default() })
        }
        fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
            assert_eq!(fetched.bytes.as_deref().map(<[u8]>::len), Some(FETCHED));
            self.enter(DECODING);
            let chunk = self.array.decode(index, FetchedChunk::default());
            self.leave(DECODING);
            self.leave(HELD);
            chunk
        }
    }

    fn plan(array: &Arc<Late>) -> RowPlan {
        let narrow =
            Narrow { staged: Staged::I8, negative: Negative::Missing, max: 2.0, nan_is_missing: false };
        let array = Arc::clone(array) as Arc<dyn ChunkedArray>;
        RowPlan::new(vec![array], Arc::new(Rows::all(160)), narrow, 16).unwrap()
    }

    fn read(plan: &RowPlan, device: &Device, bytes: u64) -> Result<Vec<u8>> {
        let mut blocks = Blocks::new(plan, device, 16, bytes, &Cancel::default())?;
        let (mut slot, mut all) = (vec![0; 16 * 8], Vec::new());
        while blocks.next(&mut slot)?.is_some() {
            all.extend_from_slice(&slot);
        }
        Ok(all)
    }

    /// However many are fetched at once, and whatever the budget: the same rows, and never more than was planned of either step.
    #[test]
    fn both_steps_keep_to_their_bounds() {
        let device = Device::cpu();
        let threads = device.pool().unwrap().current_num_threads();
        for fetches in [0, 1, 24] {
            let array = Arc::new(Late::new(fetches));
            let plan = plan(&array);
            for more in [0, 4 * FETCHED as u64, 12 * FETCHED as u64, plan.ahead(threads as u64)] {
                let bytes = plan.largest_need() + more;
                let at_once = plan.at_once(threads, 16, bytes);
                array.most.iter().for_each(|most| most.store(0, SeqCst));
                let rows = read(&plan, &device, bytes).unwrap();
                assert!(rows.iter().enumerate().all(|(i, &value)| usize::from(value) == i % 3));
                let case = format!("{fetches} {more} {at_once:?} {:?}", array.most);
                let fetched = if fetches == 0 { at_once.decoders } else { at_once.fetched };
                assert!(array.most(DECODING) <= at_once.decoders && array.most(HELD) <= fetched, "{case}");
                assert!(
                    array.most(FETCHING) <= if fetches == 0 { threads } else { at_once.fetches },
                    "{case}"
                );
                assert!(array.now.iter().all(|now| now.load(SeqCst) == 0), "{case}");
            }
            // With memory enough, as many as were asked for: the bands that are started hold two chunks each.
            assert!(array.most(FETCHING) >= fetches, "{fetches}: {:?}", array.most);
        }
    }

    #[test]
    fn faults_of_storage_come_in_order_and_end_the_pass() {
        let device = Device::cpu();
        for fetches in [0, 8] {
            for panics in [false, true] {
                let mut array = Late::new(fetches);
                array.broken = |index| index[0] >= 20;
                array.panics = panics;
                let array = Arc::new(array);
                let plan = plan(&array);
                let mut blocks = Blocks::new(&plan, &device, 16, 1 << 20, &Cancel::default()).unwrap();
                let mut slot = vec![0; 16 * 8];
                for _ in 0..5 {
                    blocks.next(&mut slot).unwrap().unwrap();
                }
                let Err(Error::Chunk { index, why, .. }) = blocks.next(&mut slot) else { panic!("read it") };
                assert!(index[0] >= 20 && index[0] < 24, "{index:?}");
                assert_eq!(&*why, if panics { "decoding panicked" } else { "gone" });
                let started = Instant::now();
                drop(blocks);
                assert!(started.elapsed().as_secs() < 1);
            }
        }
    }

    /// A consumer that goes leaves nobody waiting: the threads that fetch end.
    #[test]
    fn a_pass_that_is_dropped_ends_its_threads() {
        let device = Device::cpu();
        let array = Arc::new(Late::new(4));
        let plan = plan(&array);
        let mut blocks = Blocks::new(&plan, &device, 16, 1 << 20, &Cancel::default()).unwrap();
        blocks.next(&mut [0; 16 * 8]).unwrap();
        let stages = Arc::downgrade(&blocks.prefetch.stages);
        drop(blocks);
        let started = Instant::now();
        while stages.strong_count() > 0 {
            assert!(started.elapsed().as_secs() < 10, "somebody still waits");
            std::thread::yield_now();
        }
    }
}
