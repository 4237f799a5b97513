//! Fetches and decodes chunks on threads, with a bound on how many are in each stage at once.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use rayon::ThreadPool;

use super::{
    convert::Convert,
    digest::digest,
    kept::KeptChunks,
    part::ChunkPart,
    plan::{AtOnce, decoded_bytes, padded},
    planes::convert_planes,
};
use crate::{
    Cancel, ChunkedArray, DecodedChunk, Error, FetchedChunk, OpenChunk, Result, WholeShard,
    timeline::{Span, Stage, Timeline},
    waiting::lock,
};

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
    /// The chunk, if it was opened instead of decoded.
    pub(super) open: Option<OpenChunk>,
    /// True if the chunk was not read, since an earlier pass kept it.
    pub(super) was_kept: bool,
}

/// A chunk that is being fetched or decoded.
pub(super) struct Job {
    pub(super) array: Arc<dyn ChunkedArray>,
    pub(super) index: Vec<u64>,
    pub(super) key: Key,
    pub(super) part: ChunkPart,
    pub(super) digested: bool,
    /// True if the chunk is to be opened.
    pub(super) in_place: bool,
    /// Chunks of earlier passes, if those of the array are kept.
    pub(super) kept: Option<Arc<KeptChunks>>,
    /// True if the chunk was among them.
    pub(super) was_kept: bool,
    /// The chunk's shard, if it is read as a whole.
    pub(super) whole: Option<Arc<WholeShard>>,
    /// The conversion, if it takes bit planes of the chunk.
    pub(super) planes: Option<Arc<dyn Convert>>,
    /// Flags of which either means that the result is no longer needed.
    pub(super) stops: [Cancel; 2],
    pub(super) sender: mpsc::Sender<Decoded>,
}

impl Job {
    fn fetch(&mut self, timeline: Option<&Timeline>) -> Result<FetchedChunk> {
        if self.stops.iter().any(Cancel::is_cancelled) {
            return Err(Error::Cancelled);
        }
        // The last of a shard's chunks to be fetched frees the shard.
        let whole = self.whole.take();
        let bytes = |chunk: &FetchedChunk| chunk.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let bytes = |chunk: &FetchedChunk| bytes(chunk) + chunk.parts.iter().map(bytes).sum::<u64>();
        if let Some(chunk) = self.kept.as_ref().and_then(|kept| kept.get(self.key.1)) {
            self.was_kept = true;
            drop(Span::new(timeline, Stage::Fetch, "chunks kept in memory").bytes(bytes(&chunk)));
            return Ok(chunk);
        }
        let mut span = self.span(timeline, Stage::Fetch);
        let fetched = self.unwinding(|| match &whole {
            Some(shard) => self.array.fetch_from(shard, &self.index),
            None => self.array.fetch(&self.index),
        })?;
        span.bytes = bytes(&fetched);
        drop(span);
        Ok(fetched)
    }

    /// Opens the chunk if its elements are to be read where they are stored, and if it opens.
    fn open(&self) -> Option<DecodedPart> {
        let open = self.in_place.then(|| self.array.open_chunk(&self.index))??;
        let (stored, none) = (decoded_bytes(&*self.array), Duration::ZERO);
        let chunk = DecodedChunk { bytes: Vec::new(), stored, read: none, decode: none };
        Some(DecodedPart { chunk, digest: 0, is_converted: false, open: Some(open), was_kept: false })
    }

    fn decode(&self, mut fetched: FetchedChunk, timeline: Option<&Timeline>) -> Result<DecodedPart> {
        if self.stops.iter().any(Cancel::is_cancelled) {
            return Err(Error::Cancelled);
        }
        let kept = self.kept.as_ref().filter(|_| !self.was_kept);
        let shared = kept.and_then(|kept| Some((kept, kept.share(&mut fetched)?)));
        let decoded = self.decode_fetched(fetched, timeline);
        if let Some((kept, chunk)) = shared {
            kept.settle(self.key.1, chunk, decoded.is_ok());
        }
        decoded
    }

    fn decode_fetched(&self, fetched: FetchedChunk, timeline: Option<&Timeline>) -> Result<DecodedPart> {
        let (mut span, before) = (self.span(timeline, Stage::Decode), fetched.read);
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
            // Some formats read while they decode.
            span.split(Stage::Fetch, self.array.name(), chunk.read.saturating_sub(before), chunk.stored);
            span.bytes = len as u64;
            let was_kept = self.was_kept;
            chunk.stored = if was_kept { 0 } else { chunk.stored };
            let digest = if self.digested { digest(self.key.1 as u64, &chunk.bytes) } else { 0 };
            if let (Some(planes), Some(convert)) = (planes, &self.planes) {
                let started = Instant::now();
                let is_converted =
                    convert_planes(&mut chunk.bytes, planes, &**convert).map_err(|requested| {
                        let what = format!("{}: chunk {:?}", self.array.name(), self.index).into();
                        Error::OutOfHostMemory { what, requested }
                    })?;
                chunk.decode += started.elapsed();
                return Ok(DecodedPart { chunk, digest, is_converted, open: None, was_kept });
            }
            let whole = ChunkPart::whole(padded(self.array.chunk_shape()));
            whole.cut(&mut chunk.bytes, &self.part, self.array.dtype().size());
            Ok(DecodedPart { chunk, digest, is_converted: false, open: None, was_kept })
        })
    }

    /// Begins a span of the chunk, which has its number in C order.
    fn span<'a>(&'a self, timeline: Option<&'a Timeline>, stage: Stage) -> Span<'a> {
        let place =
            || self.index.iter().zip(grid(&*self.array)).fold(0, |place, (at, extent)| place * extent + at);
        Span::new(timeline, stage, self.array.name()).item(timeline.map_or(u64::MAX, |_| place()))
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

/// The stages that fetch and decode chunks, within bounds. Chunks wait in queues, and block no thread of the pool.
#[derive(Default)]
pub(super) struct Stages {
    state: Mutex<State>,
    /// Notified when a change occurs that fetching threads wait for.
    changed: Condvar,
    timeline: Option<Timeline>,
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
    pub(super) fn new(
        at_once: &AtOnce,
        pool: &Arc<ThreadPool>,
        timeline: Option<&Timeline>,
    ) -> (Arc<Self>, bool) {
        let room = at_once.fetched;
        let state = State { decoders: at_once.decoders, room, ..State::default() };
        let (state, timeline) = (Mutex::new(state), timeline.cloned());
        let stages = Arc::new(Self { state, changed: Condvar::new(), timeline });
        let start = |_: &usize| {
            let (stages, pool) = (Arc::clone(&stages), Arc::clone(pool));
            let thread = std::thread::Builder::new().name("teatime-fetch".into());
            thread.spawn(move || stages.fetch_on(&pool)).is_ok()
        };
        // There are fewer threads if the system cannot start more.
        let ahead = (0..at_once.fetches).take_while(start).count() > 0;
        (stages, ahead)
    }

    /// Notes an array's numbers of chunks in the timeline.
    pub(super) fn note(&self, array: &dyn ChunkedArray) {
        if let Some(timeline) = &self.timeline {
            timeline.grid(array.name(), grid(array));
        }
    }

    /// Records the number of bytes of chunks that are held now.
    pub(super) fn hold(&self, bytes: u64) {
        if let Some(timeline) = &self.timeline {
            timeline.hold("decoded chunks", bytes);
        }
    }

    /// Starts a chunk, on the threads dedicated to fetching if there are any.
    pub(super) fn start(self: &Arc<Self>, pool: &ThreadPool, job: Job, ahead: bool) {
        if ahead && !job.in_place {
            lock(&self.state).wanted.push_back(job);
            self.changed.notify_one();
        } else {
            self.decode_on(pool, (job, None));
        }
    }

    /// Fetches chunks until no more are wanted.
    fn fetch_on(self: Arc<Self>, pool: &ThreadPool) {
        loop {
            let mut job = {
                let mut state = lock(&self.state);
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
            let fetched = job.fetch(self.timeline.as_ref());
            self.decode_on(pool, (job, Some(fetched)));
        }
    }

    fn decode_on(self: &Arc<Self>, pool: &ThreadPool, ready: Ready) {
        let mut state = lock(&self.state);
        if state.decoders == 0 {
            return state.ready.push_back(ready);
        }
        state.decoders -= 1;
        let stages = Arc::clone(self);
        pool.spawn(move || stages.decode(ready));
    }

    /// Decodes a chunk, then starts the next waiting chunk on the pool of this thread.
    fn decode(self: Arc<Self>, (mut job, fetched): Ready) {
        let (ahead, timeline) = (fetched.is_some(), self.timeline.as_ref());
        let result = match job.open() {
            Some(part) => Ok(part),
            None => {
                let fetched = fetched.unwrap_or_else(|| job.fetch(timeline));
                fetched.and_then(|fetched| job.decode(fetched, timeline))
            }
        };
        job.send(result);
        let mut state = lock(&self.state);
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
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }
}

/// Returns the number of chunks along each axis.
fn grid(array: &dyn ChunkedArray) -> impl Iterator<Item = u64> {
    array.shape().iter().zip(array.chunk_shape()).map(|(extent, chunk)| extent.div_ceil((*chunk).max(1)))
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stages").finish_non_exhaustive()
    }
}
