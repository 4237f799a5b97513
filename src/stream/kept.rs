//! Chunks that stay in memory as they are stored, so that later passes need not read them again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{ChunkedArray, FetchedChunk, store::StoredBytes, waiting::lock};

/// The bytes of bookkeeping for a kept chunk, and those of pages, in which an allocator counts.
const ENTRY: u64 = 256;
const PAGE: u64 = 4096;

/// Fetched chunks by their number in a plan. Those that come first stay: passes read in the same order, so chunks that took the place of others
/// would be gone before their turn.
#[derive(Debug, Default)]
pub(super) struct KeptChunks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of bytes that chunks may take, and that they take.
    room: u64,
    held: u64,
    chunks: HashMap<usize, FetchedChunk>,
}

impl KeptChunks {
    pub(super) fn held(&self) -> u64 {
        lock(&self.0).held
    }

    pub(super) fn get(&self, number: usize) -> Option<FetchedChunk> {
        lock(&self.0).chunks.get(&number).cloned()
    }

    pub(super) fn has(&self, number: usize) -> bool {
        lock(&self.0).chunks.contains_key(&number)
    }

    /// Returns the number of these chunks that no pass kept.
    pub(super) fn lacking(&self, numbers: impl Iterator<Item = usize>) -> u64 {
        let state = lock(&self.0);
        numbers.filter(|number| !state.chunks.contains_key(number)).count() as u64
    }

    /// Returns a chunk that shares its bytes with `fetched`, if there is room for it, until it is [settled](Self::settle).
    pub(super) fn share(&self, fetched: &mut FetchedChunk) -> Option<FetchedChunk> {
        let mut state = lock(&self.0);
        state.held = state.held.checked_add(bytes(fetched)).filter(|held| *held <= state.room)?;
        drop(state);
        Some(shared(fetched))
    }

    /// Keeps a chunk that was shared if it is `good`: if it could be decoded.
    pub(super) fn settle(&self, number: usize, chunk: FetchedChunk, good: bool) {
        let (mut state, bytes) = (lock(&self.0), bytes(&chunk));
        if !good || state.held > state.room {
            state.held -= bytes;
        } else if let Some(other) = state.chunks.insert(number, chunk) {
            // Two strips read it at once.
            state.held -= self::bytes(&other);
        }
    }

    /// Sets the number of bytes that chunks may take, and drops those that are too many.
    pub(super) fn set_room(&self, room: u64) {
        let mut state = lock(&self.0);
        let State { held, chunks, .. } = &mut *state;
        if room < *held {
            chunks.retain(|_, chunk| {
                let stays = *held <= room;
                *held -= if stays { 0 } else { bytes(chunk) };
                stays
            });
            chunks.shrink_to_fit();
        }
        state.room = room;
    }
}

/// Returns the bytes of memory of a chunk and its entry.
fn bytes(chunk: &FetchedChunk) -> u64 {
    memory_of(chunk.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
        + chunk.parts.iter().map(bytes).sum::<u64>()
}

/// Returns the number of bytes of memory that a kept chunk of so many bytes takes.
pub(super) fn memory_of(stored: u64) -> u64 {
    stored.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX).saturating_add(ENTRY)
}

/// Makes a chunk's bytes shared, and returns another with them.
fn shared(chunk: &mut FetchedChunk) -> FetchedChunk {
    let bytes = chunk.bytes.take().map(|bytes| match bytes {
        StoredBytes::Owned(bytes) => StoredBytes::Shared(Arc::from(bytes)),
        shared @ StoredBytes::Shared(_) => shared,
    });
    chunk.bytes.clone_from(&bytes);
    FetchedChunk { bytes, parts: chunk.parts.iter_mut().map(shared).collect(), read: Duration::ZERO }
}

/// True if chunks of an array are worth keeping: they are compressed, or come from storage with high latency. The operating system keeps the
/// others' files in memory itself, and arrays in memory are there already.
pub(super) fn is_worth_keeping(array: &dyn ChunkedArray) -> bool {
    array.fetched_bytes() > 0 || array.fetches() > 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;
    use crate::{
        ArrayFacts, DecodedChunk, Device, Error, Result, Run, StoredType,
        linalg::{Stop, SvdOptions},
        openings::{assert_refused, least, read_blocks, within},
        store::MemoryArray,
        stream::{
            Along, AsStored, Plan, Selection, StoredSvdOptions, StreamStats, SvdMethod, SvdRoute, svd_stored,
        },
    };

    const CHUNKS: u64 = 12;
    /// The bytes of a chunk.
    const BYTES: usize = 12_000;

    /// An array whose chunks are stored with another bit in each byte, but for one that is absent; it counts what is fetched.
    #[derive(Debug)]
    struct Stored {
        array: MemoryArray,
        threads: usize,
        fetched: AtomicU64,
        /// The number of the fetch that gets other bytes.
        damaged: u64,
    }

    impl Stored {
        fn new(threads: usize, damaged: u64) -> Arc<Self> {
            let mut values: Vec<i8> = (0..2400 * 60).map(|i| (i * 7 % 101) as i8).collect();
            // Chunk [1, 1] holds zeros.
            (400..800).for_each(|row| values[60 * row + 30..60 * row + 60].fill(0));
            let array = MemoryArray::new("stored", &values, &[2400, 60], &[400, 30]).unwrap();
            Arc::new(Self { array, threads, fetched: AtomicU64::new(0), damaged })
        }

        fn take_fetched(&self) -> u64 {
            self.fetched.swap(0, SeqCst)
        }
    }

    impl ChunkedArray for Stored {
        fn facts(&self) -> ArrayFacts<'_> {
            ArrayFacts { name: "stored", dtype: StoredType::I8, ..self.array.facts() }
        }
        fn fetched_bytes(&self) -> u64 {
            BYTES as u64
        }
        fn fetches(&self) -> usize {
            self.threads
        }
        fn fetch(&self, index: &[u64]) -> Result<FetchedChunk> {
            let number = self.fetched.fetch_add(1, SeqCst);
            let bytes =
                self.array.decode(index, FetchedChunk::default())?.bytes.into_iter().map(|byte| byte ^ 64);
            let bytes = (index != [1, 1]).then(|| StoredBytes::Owned(bytes.collect()));
            let bytes = if number == self.damaged { Some(StoredBytes::Owned(vec![0; 3])) } else { bytes };
            Ok(FetchedChunk { bytes, ..FetchedChunk::default() })
        }
        fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
            let stored = fetched.bytes.map_or_else(|| vec![64; BYTES], |bytes| bytes.to_vec());
            if stored.len() != BYTES {
                return Err(Error::chunk("stored", index, "cut short"));
            }
            let bytes = stored.iter().map(|byte| byte ^ 64).collect();
            Ok(DecodedChunk { bytes, stored: BYTES as u64, read: Duration::ZERO, decode: Duration::ZERO })
        }
    }

    fn plan(array: &Arc<Stored>, along: &[Along]) -> Plan {
        let (array, as_stored) =
            (Arc::clone(array) as Arc<dyn ChunkedArray>, Arc::new(AsStored(StoredType::I8)));
        Plan::new(vec![array], Arc::new(Selection::all(2400)), None, as_stored, along).unwrap()
    }

    /// Makes a pass, in the least memory.
    fn pass(plan: &Plan) -> Result<(Vec<u8>, StreamStats)> {
        read_blocks(plan, plan.block_rows(), plan.largest_need())
    }

    /// A later pass reads the chunks that were not kept, and gives the same elements.
    #[test]
    fn later_passes_read_the_rest() {
        const CHUNK: u64 = ENTRY + 3 * PAGE;
        for threads in [0, 4] {
            for (room, kept) in
                [(0, 0), (CHUNK - 1, 0), (6 * CHUNK, 6), (11 * CHUNK + ENTRY, CHUNKS), (1 << 30, CHUNKS)]
            {
                let array = Stored::new(threads, u64::MAX);
                let plan = plan(&array, &[Along::each(500)]);
                let (expected, stats) = pass(&plan).unwrap();
                assert_eq!((array.take_fetched(), stats.kept_chunks, plan.kept_bytes()), (CHUNKS, 0, 0));
                plan.keep_chunks(room);
                for first in [true, false, false] {
                    let (found, stats) = pass(&plan).unwrap();
                    // The absent chunk, which takes little room, may be kept in place of another or beside the others.
                    let (fetched, held) = (array.take_fetched(), plan.kept_bytes());
                    let was_kept = if first { 0 } else { CHUNKS - fetched };
                    assert!(found == expected && held <= room, "{threads} {room}: {held}");
                    assert_eq!((stats.chunks, stats.kept_chunks), (CHUNKS, was_kept), "{threads} {room}");
                    assert_eq!(stats.stored_bytes, BYTES as u64 * fetched);
                    let or_absent = was_kept == kept + 1 && (1..=6 * CHUNK).contains(&room);
                    assert!(first || was_kept == kept || or_absent, "{room}: {was_kept}");
                }
                // With less room some are dropped, and all with none.
                plan.keep_chunks(room.min(2 * CHUNK));
                assert!(plan.kept_bytes() <= 2 * CHUNK);
                plan.keep_chunks(0);
                assert!(plan.kept_bytes() == 0 && pass(&plan).unwrap().0 == expected);
                assert_eq!(array.take_fetched(), CHUNKS);
            }
        }
    }

    /// Boxes in strips that read chunks several times in a pass read them once from storage.
    #[test]
    fn strips_read_once() {
        let array = Stored::new(0, u64::MAX);
        let plan = plan(
            &array,
            &[Along { halo: [300; 2], ..Along::each(200) }, Along { halo: [18; 2], ..Along::each(15) }],
        );
        let (expected, stats) = pass(&plan).unwrap();
        assert!(stats.chunks > CHUNKS && array.take_fetched() == stats.chunks, "{stats:?}");
        plan.keep_chunks(1 << 20);
        let (found, stats) = pass(&plan).unwrap();
        assert!(found == expected && stats.kept_chunks == stats.chunks - array.take_fetched());
        assert!(pass(&plan).unwrap().1.stored_bytes == 0 && array.take_fetched() == 0);
    }

    #[test]
    fn a_chunk_that_two_strips_read_counts_once() {
        let kept = KeptChunks::default();
        kept.set_room(1 << 20);
        let chunk =
            || FetchedChunk { bytes: Some(StoredBytes::Owned(vec![1; BYTES])), ..FetchedChunk::default() };
        let both = [kept.share(&mut chunk()).unwrap(), kept.share(&mut chunk()).unwrap()];
        both.into_iter().for_each(|chunk| kept.settle(3, chunk, true));
        assert_eq!(kept.held(), bytes(&chunk()));
    }

    /// A chunk that could not be decoded is fetched again, and what shared its bytes leaves the room.
    #[test]
    fn damaged_chunks_are_not_kept() {
        for threads in [0, 4] {
            let array = Stored::new(threads, 3);
            let plan = plan(&array, &[Along::each(500)]);
            plan.keep_chunks(1 << 20);
            assert_refused(pass(&plan), &["cut short"]);
            let held = plan.kept_bytes();
            let before = array.fetched.load(SeqCst);
            let found = pass(&plan).unwrap().0;
            let read = array.fetched.load(SeqCst) - before;
            assert_eq!(read + held.div_ceil(ENTRY + 3 * PAGE), CHUNKS, "{held}");
            let whole = self::plan(&Stored::new(0, u64::MAX), &[Along::each(500)]);
            assert!(found == pass(&whole).unwrap().0);
        }
    }

    /// A decomposition in little memory reads as much as does not fit beside its basis, and gives the same bits.
    #[test]
    fn decompositions_read_once_what_fits() {
        let svd = SvdOptions::default().stop(Stop::PowerIterations(2)).oversamples(1);
        let options = StoredSvdOptions::default().method(SvdMethod::Randomized).svd(svd);
        let array = Stored::new(0, u64::MAX);
        let solve = |run: &Run| svd_stored(vec![array.clone()], 2, &options, &Device::cpu(), run);
        let (least, _) = least(solve);
        let whole = solve(&Run::default()).unwrap();
        array.take_fetched();
        let mut before = u64::MAX;
        // The basis does not restart in these.
        for more in [80_000, 160_000, 400_000] {
            let found = solve(&within(least + more)).unwrap();
            let (fetched, stats) = (array.take_fetched(), found.stats());
            assert_eq!((found.route, found.readings), (SvdRoute::KrylovStreamed, 5));
            assert_eq!((&found.s, stats.kept_chunks), (&whole.s, 5 * CHUNKS - fetched));
            assert!(fetched < before, "{more}: {fetched}");
            before = fetched;
        }
        assert_eq!(before, CHUNKS);
    }
}
