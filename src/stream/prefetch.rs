//! Chunks that are read ahead and held, with a bound on their bytes.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, mpsc},
    time::Instant,
};

use rayon::ThreadPool;

use super::{
    Digests, Plan, StreamStats,
    kept::is_worth_keeping,
    part::HeldChunk,
    plan::{TRACKING, decoded_bytes},
    planes::takes_planes,
    schedule::{Parts, Schedule, release},
    shards::HeldShards,
    stages::{Decoded, DecodedPart, Job, Key, Stages},
};
use crate::{
    Cancel, Device, Error, OpenChunk, Result,
    fresh::{CHUNKS, Room},
    waiting::awaited,
};

/// Decodes the chunks of a schedule in order on a pool, and keeps the part of each chunk that later boxes need.
#[derive(Debug)]
pub(super) struct Prefetch<'a> {
    plan: &'a Plan,
    schedule: Schedule,
    pool: Arc<ThreadPool>,
    /// The maximum number of bytes of decoded chunks, unless a single box needs more.
    bytes: u64,
    /// True for each array whose chunks may be converted from bit planes, and for each whose chunks are kept.
    planes: Vec<bool>,
    keeps: Vec<bool>,
    stages: Arc<Stages>,
    /// True if chunks are fetched on dedicated threads.
    ahead: bool,
    held: u64,
    /// The number of bytes of held chunks that have arrived.
    arrived: u64,
    /// Room for the buffers of chunks that are still to be read.
    room: Room,
    all_started: bool,
    /// The first step whose chunks were not looked up yet, and the chunks that were looked up but not started, each with its step.
    next: u64,
    waiting: VecDeque<(u64, usize)>,
    /// The chunks that were started and are still held.
    slots: HashMap<Key, Slot>,
    shards: HeldShards,
    /// The number of started chunks that have not arrived.
    coming: usize,
    /// For each chunk, true once it was started.
    seen: Vec<bool>,
    /// The digests of the chunks that arrived, if digests were requested.
    pub(super) digests: Option<Digests>,
    /// A flag that is set when the pass ends early, so that queued chunks are not decoded.
    stop: Cancel,
    cancel: Cancel,
    sender: mpsc::Sender<Decoded>,
    receiver: mpsc::Receiver<Decoded>,
}

#[derive(Debug)]
struct Slot {
    /// The bytes of the chunk; `None` until it arrives.
    chunk: Option<Result<Vec<u8>>>,
    is_converted: bool,
    array: usize,
    /// The parts of the chunk that are held, each until a certain step.
    parts: Parts,
    /// The number of bytes that are held, as planned, and those that have arrived: fewer if the chunk was converted.
    bytes: u64,
    arrived: u64,
    /// True if the chunk was read before.
    again: bool,
    open: Option<OpenChunk>,
}

impl<'a> Prefetch<'a> {
    /// Makes a prefetch for a pass in boxes of `rows` rows, without the boxes marked in `left_out`.
    pub(super) fn new(
        plan: &'a Plan,
        device: &Device,
        rows: u64,
        bytes: u64,
        left_out: Vec<bool>,
        cancel: Cancel,
    ) -> Result<Self> {
        let ((sender, receiver), pool) = (mpsc::channel(), device.pool()?.clone());
        let at_once = plan.at_once(pool.current_num_threads(), rows, bytes);
        let (stages, ahead) = Stages::new(&at_once, &pool, device.timeline());
        (0..plan.arrays()).for_each(|array| stages.note(&**plan.array(array)));
        Ok(Self {
            plan,
            schedule: Schedule::new(plan, rows, at_once.bytes, left_out, &cancel)?,
            bytes: at_once.bytes,
            planes: (0..plan.arrays()).map(|array| takes_planes(plan, array)).collect(),
            keeps: (0..plan.arrays()).map(|array| is_worth_keeping(&**plan.array(array))).collect(),
            stages,
            ahead,
            pool,
            held: 0,
            arrived: 0,
            room: Room::new(&CHUNKS, at_once.bytes),
            all_started: false,
            next: 0,
            waiting: VecDeque::new(),
            slots: HashMap::new(),
            shards: HeldShards::new(at_once.shards),
            coming: 0,
            seen: vec![false; plan.chunks()],
            digests: None,
            stop: Cancel::default(),
            cancel,
            sender,
            receiver,
        })
    }

    pub(super) fn has_started(&self) -> bool {
        self.next > 0
    }

    pub(super) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Waits for the chunks of a step's box.
    pub(super) fn wait(&mut self, step: u64, chunks: &[usize], stats: &mut StreamStats) -> Result<()> {
        self.start(step);
        stats.peak_chunk_bytes = stats.peak_chunk_bytes.max(self.held);
        for &chunk in chunks {
            let key = (self.schedule.strip(step), chunk);
            while self.slots.get(&key).is_some_and(|slot| slot.chunk.is_none()) {
                self.cancel.check()?;
                // A chunk may never come.
                let chunk = awaited(&self.receiver, || self.cancel.check())?;
                let (key, result) = chunk.expect("this end holds a sender too");
                self.take(key, result, stats);
            }
            self.cancel.check()?;
            // The error of a chunk is returned only when the chunk is needed, so that errors come in order.
            if let Some(Slot { chunk: Some(result @ Err(_)), .. }) = self.slots.get_mut(&key) {
                let (array, index) = self.plan.chunk(chunk);
                let why = "could not be read before, which ended the pass";
                let after = Error::chunk(self.plan.array(array).name(), &index, why);
                return std::mem::replace(result, Err(after)).map(|_| ());
            }
        }
        Ok(())
    }

    /// Stores a chunk that arrived.
    fn take(&mut self, key: Key, result: Result<DecodedPart>, stats: &mut StreamStats) {
        self.coming -= 1;
        let Some(slot) = self.slots.get_mut(&key) else { return };
        slot.arrived = slot.bytes;
        slot.chunk =
            Some(result.map(|DecodedPart { chunk: decoded, digest, is_converted, open, was_kept }| {
                slot.open = open;
                if is_converted {
                    slot.arrived = decoded.bytes.len() as u64 + TRACKING;
                }
                slot.is_converted = is_converted;
                if let Some(digests) = self.digests.as_mut().filter(|_| !slot.again) {
                    digests.add(slot.array, digest);
                }
                stats.read += decoded.read;
                stats.decode += decoded.decode;
                stats.stored_bytes += decoded.stored;
                stats.decoded_bytes += decoded_bytes(&**self.plan.array(slot.array));
                stats.chunks += 1;
                stats.kept_chunks += u64::from(was_kept);
                decoded.bytes
            }));
        self.arrived += slot.arrived;
        self.make_room();
    }

    /// Makes room for chunks that did not arrive yet: for all that may be held, or for the last ones.
    fn make_room(&mut self) {
        let most = if self.all_started { self.held } else { self.bytes };
        self.room.set(most.saturating_sub(self.arrived));
        self.stages.hold(self.arrived);
    }

    /// Returns the held part of a chunk that was waited for, in the strip of a step.
    pub(super) fn chunk(&self, step: u64, chunk: usize) -> Option<HeldChunk<'_>> {
        let slot = self.slots.get(&(self.schedule.strip(step), chunk))?;
        let (_, part) = slot.parts.last()?;
        let bytes = slot.chunk.as_ref()?.as_deref().ok()?;
        Some(HeldChunk { bytes, part, is_converted: slot.is_converted, open: slot.open.as_ref() })
    }

    /// Starts the chunks of all boxes up to that of `step`, and further chunks while memory allows.
    fn start(&mut self, step: u64) {
        loop {
            let Some(&(first, chunk)) = self.waiting.front() else {
                let Some((first, place)) = self.schedule.steps(self.next).next() else {
                    self.all_started = true;
                    return self.make_room();
                };
                let needs = self.schedule.needs(self.plan, place);
                self.waiting.extend(needs.chunks(self.plan).map(|chunk| (first, chunk)));
                self.next = first + 1;
                continue;
            };
            let key = (self.schedule.strip(first), chunk);
            if !self.slots.contains_key(&key) {
                let parts = self.schedule.parts(self.plan, chunk, first);
                let bytes = self.plan.bytes_of(chunk, &parts);
                // Chunks that open hold no memory, but are read ahead by the system.
                let is_far = first > step + 1 && self.plan.is_in_place(self.plan.chunk(chunk).0);
                let is_full = first > step
                    && (self.held.saturating_add(bytes) > self.bytes
                        || !self.shards.has_room(self.plan, chunk));
                if is_far || is_full {
                    return;
                }
                self.load(key, parts, bytes);
            }
            self.waiting.pop_front();
        }
    }

    /// Starts a chunk.
    fn load(&mut self, key: Key, parts: Parts, bytes: u64) {
        let Some((_, part)) = parts.last().cloned() else { return };
        self.held += bytes;
        self.coming += 1;
        let (array, index) = self.plan.chunk(key.1);
        let again = std::mem::replace(&mut self.seen[key.1], true);
        let whole = self.shards.whole_shard(self.plan, key.1, again);
        self.slots.insert(
            key,
            Slot { chunk: None, is_converted: false, array, parts, bytes, arrived: 0, again, open: None },
        );
        let job = Job {
            array: Arc::clone(self.plan.array(array)),
            index,
            key,
            part,
            digested: self.digests.is_some(),
            in_place: self.plan.is_in_place(array),
            kept: self.keeps[array].then(|| Arc::clone(&self.plan.kept)),
            was_kept: false,
            whole,
            planes: self.planes[array].then(|| Arc::clone(self.plan.convert())),
            stops: [self.stop.clone(), self.cancel.clone()],
            sender: self.sender.clone(),
        };
        self.stages.start(&self.pool, job, self.ahead);
    }

    /// Frees the parts of a step's chunks that no later box of its strip needs.
    pub(super) fn release(&mut self, step: u64, chunks: &[usize]) {
        for &chunk in chunks {
            let key = (self.schedule.strip(step), chunk);
            let Some(mut slot) = self.slots.remove(&key) else { continue };
            let Some((_, before)) = slot.parts.last().cloned() else { continue };
            release(&mut slot.parts, step);
            let bytes = self.plan.bytes_of(chunk, &slot.parts);
            self.held = self.held - slot.bytes + bytes;
            // A chunk that was converted has no parts.
            let arrived = if slot.is_converted && !slot.parts.is_empty() { slot.arrived } else { bytes };
            self.arrived = self.arrived - slot.arrived + arrived;
            (slot.bytes, slot.arrived) = (bytes, arrived);
            self.make_room();
            match (slot.parts.last(), &mut slot.chunk) {
                (Some((_, part)), Some(Ok(bytes))) => {
                    before.cut(bytes, part, self.plan.array(slot.array).dtype().size());
                }
                (None, Some(Ok(bytes))) => CHUNKS.keep(std::mem::take(bytes)),
                _ => {}
            }
            if !slot.parts.is_empty() {
                self.slots.insert(key, slot);
            }
        }
    }
}

impl Drop for Prefetch<'_> {
    fn drop(&mut self) {
        let started = Instant::now();
        self.stop.cancel();
        self.stages.close();
        // Chunks in flight hold memory until they end; a chunk that hangs delays this by at most a second.
        while self.coming > 0 && started.elapsed().as_secs() < 1 {
            if self.receiver.recv_timeout(std::time::Duration::from_millis(100)).is_ok() {
                self.coming -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;
    use crate::{
        ArrayFacts, ChunkedArray, DecodedChunk, Device, FetchedChunk,
        openings::{Hooked, cpu, plan_rows, read_blocks},
        store::{MemoryArray, StoredBytes},
        stream::Blocks,
    };

    const FETCHED: usize = 1000;

    /// An array with slow storage, which counts the chunks that are in each stage now, and their maximum.
    #[derive(Debug)]
    struct Late {
        array: MemoryArray,
        fetches: usize,
        broken: fn(&[u64]) -> bool,
        panics: bool,
        /// The number of bytes by which its decoded chunks are too short.
        short: usize,
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
            Self { array, fetches, broken: |_| false, panics: false, short: 0, now, most }
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
        fn facts(&self) -> ArrayFacts<'_> {
            ArrayFacts { name: "late", ..self.array.facts() }
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
            // Fetches overlap only if each of them takes a while.
            let millis = if self.fetches > 1 { 10 } else { 1 };
            std::thread::sleep(std::time::Duration::from_millis(millis));
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
            let mut chunk = self.array.decode(index, FetchedChunk::default())?;
            self.leave(DECODING);
            self.leave(HELD);
            chunk.bytes.truncate(chunk.bytes.len() - self.short);
            Ok(chunk)
        }
    }

    fn plan(array: &Arc<Late>) -> Plan {
        plan_rows(Arc::clone(array) as Arc<dyn ChunkedArray>, 16)
    }

    /// For any number of concurrent fetches and any budget, the rows are the same, and neither stage exceeds its planned number.
    #[test]
    fn both_steps_keep_to_their_bounds() {
        let threads = cpu().pool().unwrap().current_num_threads();
        for fetches in [0, 1, 24] {
            let array = Arc::new(Late::new(fetches));
            let plan = plan(&array);
            for more in [0, 4 * FETCHED as u64, 12 * FETCHED as u64, plan.ahead(threads as u64)] {
                let bytes = plan.largest_need() + more;
                let at_once = plan.at_once(threads, 16, bytes);
                array.most.iter().for_each(|most| most.store(0, SeqCst));
                let (rows, _) = read_blocks(&plan, 16, bytes).unwrap();
                assert!(rows.iter().enumerate().all(|(i, &value)| usize::from(value) == i % 3));
                let case = format!("{fetches} {more} {at_once:?} {:?}", array.most);
                let fetched = if fetches == 0 { at_once.decoders } else { at_once.fetched };
                assert!(array.most(DECODING) <= at_once.decoders && array.most(HELD) <= fetched, "{case}");
                let fetches = if fetches == 0 { threads } else { at_once.fetches };
                assert!(array.most(FETCHING) <= fetches, "{case}");
                assert!(array.now.iter().all(|now| now.load(SeqCst) == 0), "{case}");
            }
            // With enough memory, all requested fetches run concurrently: the bands that are started hold two chunks each.
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
                let cancel = Cancel::default();
                let mut blocks = Blocks::new(&plan, &device, 16, 1 << 20, &cancel).unwrap();
                for _ in 0..5 {
                    blocks.next_block().unwrap().unwrap();
                }
                let Err(Error::Chunk { index, why, .. }) = blocks.next_block() else { panic!("read it") };
                assert!(index[0] >= 20 && index[0] < 24, "{index:?}");
                assert_eq!(&*why, if panics { "decoding panicked" } else { "gone" });
                let Err(Error::Chunk { index: again, why, .. }) = blocks.next_block() else {
                    panic!("went on")
                };
                assert_eq!((again, &*why), (index, "could not be read before, which ended the pass"));
                cancel.cancel();
                assert!(matches!(blocks.next_block(), Err(Error::Cancelled)));
                let started = Instant::now();
                drop(blocks);
                assert!(started.elapsed().as_secs() < 1);
            }
        }
    }

    #[test]
    fn chunks_of_other_lengths_are_refused() {
        let mut array = Late::new(0);
        array.short = 1;
        let error = read_blocks(&plan(&Arc::new(array)), 16, 0).unwrap_err().to_string();
        assert!(error.contains("late: chunk [0, 0]: was decoded to 15 bytes, expected 16"), "{error}");
    }

    /// When the consumer is dropped, the fetching threads end.
    #[test]
    fn a_pass_that_is_dropped_ends_its_threads() {
        let device = Device::cpu();
        let array = Arc::new(Late::new(4));
        let plan = plan(&array);
        let mut blocks = Blocks::new(&plan, &device, 16, 1 << 20, &Cancel::default()).unwrap();
        blocks.next_block().unwrap();
        let stages = Arc::downgrade(&blocks.prefetch.stages);
        drop(blocks);
        let started = Instant::now();
        while stages.strong_count() > 0 {
            assert!(started.elapsed().as_secs() < 10, "somebody still waits");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_chunk_that_never_comes_holds_no_cancelled_pass() {
        let (go_on, hangs) = mpsc::channel::<()>();
        let (array, hangs) =
            (MemoryArray::new("hanging", &[1i8; 8], &[8, 1], &[8, 1]).unwrap(), std::sync::Mutex::new(hangs));
        let array: Arc<dyn ChunkedArray> = Arc::new(Hooked::new(array, move |array, index, fetched| {
            // The sender is dropped in the end.
            let _ = hangs.lock().unwrap().recv();
            array.decode(index, fetched)
        }));
        let plan = plan_rows(array, 8);
        let (device, cancel) = (Device::cpu(), Cancel::default());
        let mut blocks = Blocks::new(&plan, &device, 8, 1 << 20, &cancel).unwrap();
        let flag = cancel.clone();
        let later = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            flag.cancel();
        });
        assert!(matches!(blocks.next_block(), Err(Error::Cancelled)));
        drop(blocks);
        drop(go_on);
        later.join().unwrap();
    }
}
