//! Tests of shards: which bytes are read of them, and in what memory.

use std::{
    io,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use super::*;
use crate::{
    StoredType, WholeShard,
    extent::to_usize,
    openings::{Map, assert_refused, elements, plan_rows, read_blocks, stored, zip},
    store::{Value as Got, open_storage},
    stream::{Along, AsStored, Plan, Selection},
};

/// A storage that notes which bytes are asked for: a range, or `None` for a whole value; and how many sizes.
#[derive(Debug)]
struct Noted {
    map: Map,
    asked: Mutex<Vec<(String, Option<Range<u64>>)>>,
    sizes: AtomicUsize,
    /// True if it answers late, and if it reads parts of values.
    is_late: bool,
    reads_ranges: bool,
    /// True while no value is read.
    is_broken: AtomicBool,
}

impl Noted {
    fn reads(&self) -> io::Result<()> {
        if self.is_broken.load(SeqCst) { Err(io::Error::other("no route")) } else { Ok(()) }
    }
}

impl Storage for Noted {
    fn place(&self, key: &str) -> String {
        self.map.place(key)
    }

    fn fetches(&self) -> usize {
        if self.is_late { 2 } else { 0 }
    }

    fn reads_ranges(&self, _: &str) -> io::Result<bool> {
        Ok(self.reads_ranges)
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Got> {
        self.asked.lock().unwrap().push((key.to_owned(), None));
        self.reads()?;
        self.map.get(key, most)
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> io::Result<Got> {
        self.asked.lock().unwrap().push((key.to_owned(), Some(range.clone())));
        self.map.get_range(key, range)
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        self.sizes.fetch_add(1, SeqCst);
        self.reads()?;
        self.map.size(key)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.map.list(prefix)
    }
}

/// Returns the array `a` of a scratch folder, and its storage, which answers late and reads ranges.
fn noted(scratch: &Scratch) -> (Arc<ZarrArray>, Arc<Noted>) {
    noted_as(scratch, true, true)
}

fn noted_as(scratch: &Scratch, is_late: bool, reads_ranges: bool) -> (Arc<ZarrArray>, Arc<Noted>) {
    let (map, is_broken) = (Map::of(scratch.path()), AtomicBool::new(false));
    let (asked, sizes) = (Mutex::default(), AtomicUsize::new(0));
    let noted = Arc::new(Noted { map, asked, sizes, is_late, reads_ranges, is_broken });
    let storage = Arc::clone(&noted) as Arc<dyn Storage>;
    let array = Arc::new(ZarrArray::open_in(&storage, "a", MissingChunk::Error).unwrap());
    noted.asked.lock().unwrap().clear();
    (array, noted)
}

/// Plans a pass over some rows, in blocks of 4.
fn plan(array: &Arc<ZarrArray>, rows: Range<u64>) -> Plan {
    let rows = Arc::new(Selection::new("pass", "rows", [rows], array.shape()[0]).unwrap());
    let array = Arc::clone(array) as Arc<dyn ChunkedArray>;
    Plan::new(vec![array], rows, None, Arc::new(AsStored(StoredType::U8)), &[Along::each(4)]).unwrap()
}

/// Makes a pass within the least memory. Returns the elements, and the ranges of shards, or the keys of whole shards, that were read.
fn read(plan: &Plan, noted: &Noted) -> (Vec<u8>, Vec<Range<u64>>, String) {
    let all = read_blocks(plan, 4, plan.largest_need()).unwrap().0;
    let (mut ranges, mut whole) = (Vec::new(), Vec::new());
    for (key, range) in noted.asked.lock().unwrap().drain(..) {
        match range {
            Some(range) => ranges.push(range),
            None => whole.push(key),
        }
    }
    whole.sort();
    (all, ranges, whole.join(" "))
}

/// Makes a pass over some rows within the least memory, and `room` for whole shards.
fn pass(scratch: &Scratch, rows: Range<u64>, room: u64) -> (Vec<u8>, Vec<Range<u64>>, String) {
    let (array, noted) = noted(scratch);
    let plan = plan(&array, rows);
    plan.hold_shards(room);
    read(&plan, &noted)
}

/// Writes an array of [60, 8] bytes in shards of [32, 8], each with 16 chunks of [4, 4]; the last has 14 within the array.
fn numbered() -> (Scratch, Vec<u8>) {
    let at = |row: u64, column: u64| (row * 8 + column).to_le_bytes()[0];
    let chunk = |shard: u64, number: u64| -> Option<Vec<u8>> {
        let (row, column) = (32 * shard + number / 2 * 4, number % 2 * 4);
        (row < 60).then(|| (0..16).map(|i| at(row + i / 4, column + i % 4)).collect())
    };
    let shards = [0, 1].map(|number| shard(&(0..16).map(|i| chunk(number, i)).collect::<Vec<_>>(), true));
    let ([first, second], codecs) = (shards, in_shards(&[4, 4], bytes(), index_codecs(true)));
    let metadata = v3(&[60, 8], &[32, 8], "uint8", codecs);
    let scratch = Scratch::of(&metadata, &[("c/0/0", first), ("c/1/0", second)]);
    (scratch, (0..60).flat_map(|row| (0..8).map(move |column| at(row, column))).collect())
}

/// Few rows are read by ranges, and the index once; half of a shard's chunks or more by the whole shard, once, if there is memory for it.
#[test]
fn what_is_read_of_shards() {
    const INDEX: u64 = 16 * 16 + 4;
    let (scratch, all) = numbered();
    let of = |rows: Range<u64>| &all[to_usize(8 * rows.start)..to_usize(8 * rows.end)];
    let is_index = |range: &Range<u64>| range.end - range.start == INDEX;
    for (rows, indexes, chunks) in
        [(0..4, 1, 2), (5..7, 1, 2), (0..12, 1, 6), (20..40, 2, 10), (56..60, 1, 2)]
    {
        let (elements, ranges, whole) = pass(&scratch, rows.clone(), 1 << 30);
        assert_eq!(elements, of(rows.clone()), "{rows:?}");
        let found = ranges.iter().filter(|range| is_index(range)).count();
        assert_eq!((found, ranges.len() - found, &*whole), (indexes, chunks, ""), "{rows:?}");
        assert!(ranges.iter().all(|range| is_index(range) || range.end - range.start == 16));
    }
    // Of the second shard, 7 rows of chunks are within the array.
    for (rows, chunks, shards) in
        [(0..60, 0, "a/c/0/0 a/c/1/0"), (0..16, 0, "a/c/0/0"), (44..60, 0, "a/c/1/0"), (12..44, 6, "a/c/0/0")]
    {
        let (elements, ranges, whole) = pass(&scratch, rows.clone(), 1 << 30);
        assert_eq!((&*elements, &*whole), (of(rows.clone()), shards));
        assert_eq!(ranges.iter().filter(|range| !is_index(range)).count(), chunks, "{rows:?}");
    }
    let (elements, ranges, whole) = pass(&scratch, 0..60, 0);
    assert_eq!((elements, ranges.len(), &*whole), (all, 2 + 30, ""));
}

/// With memory for one whole shard beside all else, a pass reads one of two that are side by side as a whole, and the other by ranges.
#[test]
fn whole_shards_are_within_memory() {
    let [left, right] = [1, 2].map(|value| shard(&[(); 3].map(|()| Some(vec![value; 8])), true));
    let metadata = v3(&[6, 8], &[6, 4], "uint8", in_shards(&[2, 4], bytes(), index_codecs(true)));
    let scratch = Scratch::of(&metadata, &[("c/0/0", left), ("c/0/1", right)]);
    let all: Vec<u8> = (0..6).flat_map(|_| [1, 1, 1, 1, 2, 2, 2, 2]).collect();
    let (array, _) = noted(&scratch);
    let shard = array.shards().unwrap().bytes;
    let (elements, ranges, whole) = pass(&scratch, 0..6, 2 * shard - 1);
    assert_eq!((&elements, ranges.len(), &*whole), (&all, 4, "a/c/0/0"));
    let (elements, ranges, whole) = pass(&scratch, 0..6, 2 * shard);
    assert_eq!((&elements, ranges.len(), &*whole), (&all, 0, "a/c/0/0 a/c/0/1"));
    let held = [shard - 1, shard, 2 * shard - 1, u64::MAX].map(|room| plan(&array, 0..6).hold_shards(room));
    assert_eq!(held, [0, shard, shard, 2 * shard]);
    // Local files are read by ranges.
    let (array, noted) = noted_as(&scratch, false, true);
    let plan = plan(&array, 0..6);
    assert_eq!(plan.hold_shards(u64::MAX), 0);
    let (elements, ranges, whole) = read(&plan, &noted);
    assert_eq!((elements, ranges.len(), &*whole), (all, 8, ""));
}

/// Chunks that an earlier pass kept are not wanted of a shard.
#[test]
fn chunks_that_are_kept_are_not_wanted() {
    let (scratch, all) = numbered();
    // Each chunk takes a page and an entry: there is room for most of the first shard's 16, or for few.
    for (kept, others, shards) in [(9, 16 - 9, "a/c/1/0"), (4, 0, "a/c/0/0 a/c/1/0")] {
        let (array, noted) = noted(&scratch);
        let plan = plan(&array, 0..60);
        plan.keep_chunks(kept * (4096 + 256));
        let (elements, ranges, whole) = read(&plan, &noted);
        assert_eq!((&elements, ranges.len(), &*whole), (&all, 2 + 30, ""));
        plan.hold_shards(u64::MAX);
        let (elements, ranges, whole) = read(&plan, &noted);
        assert_eq!((&elements, ranges.len(), &*whole), (&all, others, shards));
    }
}

/// A pass reads each shard once, in memory that is counted, if storage does not read ranges or the bytes of shards are encoded. A chunk by
/// itself reads the shard.
#[test]
fn shards_that_are_always_whole() {
    let (plain, all) = numbered();
    let mut metadata: Value =
        serde_json::from_slice(&fs::read(plain.path().join("a/zarr.json")).unwrap()).unwrap();
    metadata["codecs"].as_array_mut().unwrap().extend([zstd_codec(), json!("crc32c")]);
    let keys = ["c/0/0", "c/1/0"];
    let shards = keys.map(|key| (key, crc(zstd(&fs::read(plain.path().join("a").join(key)).unwrap()))));
    let encoded = Scratch::of(&metadata, &shards);
    let by_ranges = plan(&noted(&plain).0, 0..60).largest_need();
    for (scratch, is_late, reads_ranges) in
        [(&plain, true, false), (&plain, false, false), (&encoded, true, true), (&encoded, false, true)]
    {
        let (array, noted) = noted_as(scratch, is_late, reads_ranges);
        let shards = array.shards().unwrap();
        assert!(shards.are_whole && shards.index_bytes == 0);
        let plan = plan(&array, 0..60);
        // No box has rows of both shards, and no indexes are kept.
        let beside = by_ranges + shards.bytes - plan.largest_need();
        // Two threads fetch, and read two indexes at once.
        let index = 16 * 16 + 4;
        assert_eq!(beside, 2 * (index + 384) + 2 * 2 * index);
        let (elements, ranges, whole) = read(&plan, &noted);
        assert_eq!((&elements, ranges.len(), &*whole), (&all, 0, "a/c/0/0 a/c/1/0"));
        assert_eq!(array.read_chunk(&[8, 1]).unwrap().bytes[..4], all[32 * 8 + 4..][..4]);
        assert_eq!(noted.asked.lock().unwrap().drain(..).collect::<Vec<_>>(), [("a/c/1/0".to_owned(), None)]);
    }
    // Damage is found before a chunk is read.
    let [(_, mut shard), _] = shards;
    shard[9] ^= 1;
    encoded.put("a/c/0/0", shard);
    assert_refused(noted(&encoded).0.read_chunk(&[0, 0]), &["chunk [0, 0]: shard c/0/0: the crc32c"]);
}

/// A shard that is written anew, or comes later, is read as it is; a whole shard that cannot be read is asked for once.
#[test]
fn shards_that_change_or_fail() {
    let (scratch, _) = numbered();
    let (array, noted) = noted_as(&scratch, false, true);
    let first = array.read_chunk(&[0, 0]).unwrap().bytes;
    let chunk = |byte: u8| Some(vec![byte; 16]);
    // The chunk is at another place now.
    noted.map.set("a/c/0/0", shard(&[vec![chunk(5), chunk(6)], vec![None; 14]].concat(), true));
    assert_eq!((array.read_chunk(&[0, 1]).unwrap().bytes, first[0]), (vec![6; 16], 0));
    noted.map.remove("a/c/0/0");
    let fill = |array: &ZarrArray| array.fetch(&[0, 1]).unwrap().bytes.is_none();
    assert!(fill(&array) && fill(&array));
    noted.map.set("a/c/0/0", shard(&[vec![None, chunk(7)], vec![None; 14]].concat(), true));
    assert_eq!(array.read_chunk(&[0, 1]).unwrap().bytes, [7; 16]);
    noted.is_broken.store(true, SeqCst);
    assert_refused(array.read_chunk(&[8, 0]), &["chunk [8, 0]: shard c/1/0: cannot be read: no route"]);
    let whole = WholeShard::default();
    noted.asked.lock().unwrap().clear();
    for index in [[8, 0], [9, 1]] {
        let words = format!("chunk {index:?}: shard c/1/0: cannot be read: no route");
        assert_refused(array.fetch_from(&whole, &index), &[&words]);
    }
    assert_eq!(noted.asked.lock().unwrap().len(), 1);
}

/// An index that cannot be read is asked for once for all that wait for it, and again for others; late storage is asked once for a shard
/// that it lacks.
#[test]
fn indexes_that_fail_or_lack() {
    let (scratch, all) = numbered();
    fs::remove_file(scratch.path().join("a/c/1/0")).unwrap();
    let (_, noted) = noted(&scratch);
    let storage = Arc::clone(&noted) as Arc<dyn Storage>;
    let array = StoredArray::open(&storage, "a").unwrap();
    let shard = array.metadata.shard.as_ref().unwrap();
    let fetch = |index: [u64; 2]| array.fetch(&index, None).map(|fetched| fetched.bytes);
    noted.is_broken.store(true, SeqCst);
    let waiting = array.indexes.known(shard, &[0, 0]);
    let fault = fetch([0, 0]).unwrap_err();
    assert_eq!(waiting.lock().unwrap().as_ref().unwrap().as_ref().unwrap_err(), &fault);
    noted.is_broken.store(false, SeqCst);
    assert_eq!(fetch([0, 1]).unwrap().unwrap()[..4], all[4..8]);
    let failed = array.indexes.known(shard, &[0, 0]);
    *failed.lock().unwrap() = Some(Err(fault.clone()));
    assert_eq!(fetch([0, 0]).unwrap_err(), fault);
    noted.sizes.store(0, SeqCst);
    assert!((0..14).all(|number| fetch([8 + number / 2, number % 2]).unwrap().is_none()));
    assert_eq!(noted.sizes.load(SeqCst), 1);
}

/// A pass over shards takes the memory of a pass over their chunks, and that of the indexes.
#[test]
fn memory_is_by_chunk() {
    let chunks: Vec<_> = (0..1024_u32).map(|i| Some(vec![i.to_le_bytes()[0]; 1024])).collect();
    let codecs = in_shards(&[32, 32], bytes(), index_codecs(true));
    let metadata = v3(&[1024, 1024], &[1024, 1024], "uint8", codecs);
    let scratch = Scratch::of(&metadata, &[("c/0/0", shard(&chunks, true))]);
    scratch.array("b", &v3(&[1024, 1024], &[32, 32], "uint8", bytes()), &[]);
    let plan = |path: &str| {
        let array: Arc<dyn ChunkedArray> =
            Arc::new(ZarrArray::open(scratch.path(), path, MissingChunk::Error).unwrap());
        plan_rows(array, 32)
    };
    let (sharded, plain) = (plan("a"), plan("b"));
    // The index is kept, and takes twice as much while it is read.
    let index = sharded.largest_need() - plain.largest_need();
    assert!((48 << 10..49 << 10).contains(&index), "{index}");
    assert!(sharded.largest_need() < 256 << 10);
    assert!(sharded.ahead(2) - plain.ahead(2) <= 4 << 14);
    let number = |row: usize, column: usize| (32 * (row / 32) + column / 32).to_le_bytes()[0];
    let expected = (0..1024).flat_map(|row| (0..1024).map(move |column| number(row, column)));
    let (found, _) = read_blocks(&sharded, 32, sharded.largest_need()).unwrap();
    assert!(found.into_iter().eq(expected));
}

/// Indexes beyond the bound are dropped, and read again when they are needed.
#[test]
fn indexes_are_bounded() {
    let mut codecs = in_shards(&[1], bytes(), index_codecs(false));
    codecs[0]["configuration"]["index_location"] = "start".into();
    // Two indexes of 8 MB are kept.
    let (count, bytes) = (500_000_u64, 8_000_000_u64);
    let mut shard = vec![0xff; to_usize(bytes)];
    shard[..16].copy_from_slice(&[bytes.to_le_bytes(), 1_u64.to_le_bytes()].concat());
    shard.push(7);
    let shards = ["c/0", "c/1", "c/2"].map(|key| (key, shard.clone()));
    let scratch = Scratch::of(&v3(&[3 * count], &[count], "uint8", codecs), &shards);
    let (array, noted) = noted(&scratch);
    for (shard, read) in [(0, 1), (0, 1), (1, 2), (0, 2), (2, 3), (1, 3), (0, 4)] {
        assert_eq!(array.read_chunk(&[shard * count]).unwrap().bytes, [7]);
        let asked = noted.asked.lock().unwrap();
        let indexes = asked.iter().filter(|(_, range)| *range == Some(0..bytes));
        assert_eq!(indexes.count(), read, "{shard}");
    }
    assert_eq!(array.shards().unwrap().index_bytes, 2 * (bytes + 384));
    // The index of a whole shard is in the shard.
    let (array, noted) = self::noted(&scratch);
    let fetched = array.fetch_from(&WholeShard::default(), &[0]).unwrap();
    assert_eq!(fetched.bytes.as_deref(), Some(&[7][..]));
    assert_eq!(*noted.asked.lock().unwrap(), [("a/c/0".to_owned(), None)]);
}

/// Arrays that zarr-python wrote have the same elements from whole shards, from ranges, from a zip archive, and as strict arrays say which
/// chunk is missing.
#[test]
fn shards_of_zarr_python() {
    let mut found = 0;
    for case in numcodecs::cases().iter().filter(|case| case.name.contains("in shards")) {
        let scratch = Scratch::new();
        case.files.iter().for_each(|(key, bytes)| scratch.put(key, bytes));
        let entries: Vec<_> = case.files.iter().map(|(key, bytes)| stored(key, bytes)).collect();
        let archive = scratch.path().join("x.zip");
        fs::write(&archive, zip(&entries)).unwrap();
        for place in [scratch.path(), &*archive] {
            let storage = open_storage(place, &Default::default()).unwrap();
            let array = Arc::new(ZarrArray::open_in(&storage, "", MissingChunk::Fill).unwrap());
            assert!(array.shards().is_some() && array.shard_shape().unwrap() > array.chunk_shape().to_vec());
            let size = array.dtype().size();
            let all = elements::<u8>(array);
            let expected = case.elements.chunks(size).flat_map(|element| {
                let mut element = element.to_vec();
                if cfg!(target_endian = "big") {
                    element.reverse();
                }
                element
            });
            assert!(all.into_iter().eq(expected), "{}", case.name);
        }
        found += 1;
    }
    assert_eq!(found, 5);
}

/// A whole shard is read once for all of its chunks; one that is absent is asked for once.
#[test]
fn whole_shards() {
    let (scratch, all) = numbered();
    fs::remove_file(scratch.path().join("a/c/1/0")).unwrap();
    let (array, noted) = noted(&scratch);
    let whole = WholeShard::default();
    for number in 0..16_u64 {
        let index = [number / 2, number % 2];
        let fetched = array.fetch_from(&whole, &index).unwrap();
        let DecodedChunk { bytes, stored, .. } = array.decode(&index, fetched).unwrap();
        let at = to_usize(number / 2 * 32 + number % 2 * 4);
        assert_eq!((&bytes[..4], stored), (&all[at..at + 4], 16));
    }
    assert_eq!(*noted.asked.lock().unwrap(), [("a/c/0/0".to_owned(), None)]);
    let whole = WholeShard::default();
    for number in 0..14 {
        let index = [8 + number / 2, number % 2];
        let fetched = array.fetch_from(&whole, &index).unwrap();
        let words = format!("a: chunk {index:?}: it is missing");
        assert_refused(array.decode(&index, fetched), &[&words]);
    }
    // The errors also read which program wrote the store.
    let asked = noted.asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|(key, _)| key.contains("/c/")).count(), 2);
    assert_eq!(array.looked_for(), LookedFor { there: true, absent: 14, other_names: false });
}
