//! Fetching chunks and decoding them on threads, each at most some at once.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
};

use rayon::ThreadPool;

use super::{
    digest::digest,
    part::ChunkPart,
    plan::{AtOnce, decoded_bytes, padded},
};
use crate::{Cancel, ChunkedArray, DecodedChunk, Error, FetchedChunk, Result};

/// A chunk of a strip of boxes: the strip, and the chunk's number.
pub(super) type Key = (u64, usize);

/// A chunk's key, and the part that was asked for with the digest of the whole.
pub(super) type Decoded = (Key, Result<(DecodedChunk, u64)>);

/// One chunk on its way.
pub(super) struct Job {
    pub(super) array: Arc<dyn ChunkedArray>,
    pub(super) index: Vec<u64>,
    pub(super) key: Key,
    /// The part that is wanted.
    pub(super) part: ChunkPart,
    pub(super) digested: bool,
    /// Either means that nobody waits for it.
    pub(super) stops: [Cancel; 2],
    pub(super) sender: mpsc::Sender<Decoded>,
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
            let mut chunk = self.array.decode(&self.index, fetched)?;
            let (len, expected) = (chunk.bytes.len(), decoded_bytes(&*self.array));
            if len as u64 != expected {
                let why = format!("was decoded to {len} bytes, expected {expected}");
                return Err(Error::chunk(self.array.name(), &self.index, why));
            }
            let digest = if self.digested { digest(self.key.1 as u64, &chunk.bytes) } else { 0 };
            let whole = ChunkPart::whole(padded(self.array.chunk_shape()));
            whole.cut(&mut chunk.bytes, &self.part, self.array.dtype().size());
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
        let _ = self.sender.send((self.key, result));
    }
}

/// A chunk that was fetched, or that the thread that decodes it fetches.
type Ready = (Job, Option<Result<FetchedChunk>>);

/// Fetches chunks and decodes them, each at most some at once. What waits does so here and not on a thread of the pool, which
/// has other work to do.
#[derive(Default)]
pub(super) struct Stages {
    state: Mutex<State>,
    /// Something changed that those who fetch wait for.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of chunks more that may be decoded: fewer than there are threads, where memory for decoding is short.
    decoders: usize,
    ready: VecDeque<Ready>,
    /// The number of chunks more that may be fetched and not yet decoded.
    room: usize,
    wanted: VecDeque<Job>,
    closed: bool,
}

impl Stages {
    /// And whether there are threads that do nothing but fetch.
    pub(super) fn new(at_once: &AtOnce, pool: &Arc<ThreadPool>) -> (Arc<Self>, bool) {
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
    pub(super) fn start(self: &Arc<Self>, pool: &ThreadPool, job: Job, ahead: bool) {
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
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stages").finish_non_exhaustive()
    }
}
