//! Fetches and decodes chunks on threads, with a bound on how many are in each stage at once.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    time::Instant,
};

use rayon::ThreadPool;

use super::{
    convert::Convert,
    digest::digest,
    part::ChunkPart,
    plan::{AtOnce, decoded_bytes, padded},
    planes::convert_planes,
};
use crate::{Cancel, ChunkedArray, DecodedChunk, Error, FetchedChunk, Result};

/// The key of a chunk in a strip of boxes: the strip, and the chunk's number.
pub(super) type Key = (u64, usize);

/// A chunk's key, and the requested part of the chunk.
pub(super) type Decoded = (Key, Result<DecodedPart>);

/// The requested part of a decoded chunk.
pub(super) struct DecodedPart {
    pub(super) chunk: DecodedChunk,
    /// The digest of the whole chunk; 0 if none was requested.
    pub(super) digest: u64,
    /// True if the chunk was converted, as a whole.
    pub(super) is_converted: bool,
}

/// A chunk that is being fetched or decoded.
pub(super) struct Job {
    pub(super) array: Arc<dyn ChunkedArray>,
    pub(super) index: Vec<u64>,
    pub(super) key: Key,
    /// The requested part of the chunk.
    pub(super) part: ChunkPart,
    pub(super) digested: bool,
    /// The conversion, if it takes bit planes of the chunk.
    pub(super) planes: Option<Arc<dyn Convert>>,
    /// Flags of which either means that the result is no longer needed.
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

    fn decode(&self, fetched: FetchedChunk) -> Result<DecodedPart> {
        if self.stops.iter().any(Cancel::is_cancelled) {
            return Err(Error::Cancelled);
        }
        self.unwinding(|| {
            let (mut chunk, planes) = match &self.planes {
                Some(_) => self.array.decode_planes(&self.index, fetched)?,
                None => (self.array.decode(&self.index, fetched)?, None),
            };
            let (len, expected) = (chunk.bytes.len(), decoded_bytes(&*self.array));
            if len as u64 != expected {
                let why = format!("was decoded to {len} bytes, expected {expected}");
                return Err(Error::chunk(self.array.name(), &self.index, why));
            }
            let digest = if self.digested { digest(self.key.1 as u64, &chunk.bytes) } else { 0 };
            if let (Some(planes), Some(convert)) = (planes, &self.planes) {
                let started = Instant::now();
                let is_converted =
                    convert_planes(&mut chunk.bytes, planes, &**convert).map_err(|requested| {
                        let what = format!("{}: chunk {:?}", self.array.name(), self.index).into();
                        Error::OutOfHostMemory { what, requested }
                    })?;
                chunk.decode += started.elapsed();
                return Ok(DecodedPart { chunk, digest, is_converted });
            }
            let whole = ChunkPart::whole(padded(self.array.chunk_shape()));
            whole.cut(&mut chunk.bytes, &self.part, self.array.dtype().size());
            Ok(DecodedPart { chunk, digest, is_converted: false })
        })
    }

    /// Catches panics, since a panic on the pool's thread would abort the process.
    fn unwinding<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let panicked = |_| Err(Error::chunk(self.array.name(), &self.index, "decoding panicked"));
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
    }

    fn send(self, result: Result<DecodedPart>) {
        // An error of sending is ignored: it means that the receiver is gone.
        let _ = self.sender.send((self.key, result));
    }
}

/// A chunk that was fetched, or (`None`) that the decoding thread will fetch.
type Ready = (Job, Option<Result<FetchedChunk>>);

/// The stages that fetch and decode chunks, each with a bound on its concurrency. Chunks wait in queues here instead of blocking a thread
/// of the pool, which has other work.
#[derive(Default)]
pub(super) struct Stages {
    state: Mutex<State>,
    /// Notified when a change occurs that fetching threads wait for.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of further chunks that may be decoded now. The limit is below the number of threads if memory for decoding is short.
    decoders: usize,
    ready: VecDeque<Ready>,
    /// The number of further chunks that may be held fetched but not decoded.
    room: usize,
    wanted: VecDeque<Job>,
    closed: bool,
}

impl Stages {
    /// Returns the stages, and true if there are threads dedicated to fetching.
    pub(super) fn new(at_once: &AtOnce, pool: &Arc<ThreadPool>) -> (Arc<Self>, bool) {
        let room = at_once.fetched;
        let state = State { decoders: at_once.decoders, room, ..State::default() };
        let stages = Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() });
        let start = |_: &usize| {
            let (stages, pool) = (Arc::clone(&stages), Arc::clone(pool));
            let thread = std::thread::Builder::new().name("teatime-fetch".into());
            thread.spawn(move || stages.fetch_on(&pool)).is_ok()
        };
        // There are fewer threads if the system cannot start more.
        let ahead = (0..at_once.fetches).take_while(start).count() > 0;
        (stages, ahead)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a chunk, on the threads dedicated to fetching if there are any.
    pub(super) fn start(self: &Arc<Self>, pool: &ThreadPool, job: Job, ahead: bool) {
        if ahead {
            self.lock().wanted.push_back(job);
            self.changed.notify_one();
        } else {
            self.decode_on(pool, (job, None));
        }
    }

    /// Fetches chunks until no more are wanted.
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

    /// Decodes a chunk, then starts the next waiting chunk on the pool of this thread.
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

    /// Makes the fetching threads end once no more chunks are wanted.
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
