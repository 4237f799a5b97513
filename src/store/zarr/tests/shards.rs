//! Tests of shards: which bytes are read of them, and in what memory.

use std::{io, ops::Range, sync::Mutex};

use super::*;
use crate::{
    Cancel, StoredType, WholeShard,
    extent::to_usize,
    openings::{Map, cpu, elements, stored, zip},
    store::{Value as Got, open_storage},
    stream::{Along, AsStored, Blocks, Plan, Selection},
};

/// A storage that notes which bytes are asked for: a range, or `None` for a whole value; sizes are not noted.
#[derive(Debug)]
struct Noted {
    map: Map,
    asked: Mutex<Vec<(String, Option<Range<u64>>)>>,
}

impl Storage for Noted {
    fn place(&self, key: &str) -> String {
        self.map.place(key)
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Got> {
        self.asked.lock().unwrap().push((key.to_owned(), None));
        self.map.get(key, most)
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> io::Result<Got> {
        self.asked.lock().unwrap().push((key.to_owned(), Some(range.clone())));
        self.map.get_range(key, range)
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        self.map.size(key)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.map.list(prefix)
    }
}

/// Returns the array `a` of a scratch folder, and its storage.
fn noted(scratch: &Scratch) -> (Arc<ZarrArray>, Arc<Noted>) {
    let noted = Arc::new(Noted { map: Map::of(scratch.path()), asked: Mutex::default() });
    let storage = Arc::clone(&noted) as Arc<dyn Storage>;
    let array = Arc::new(ZarrArray::open_in(&storage, "a", MissingChunk::Error).unwrap());
    noted.asked.lock().unwrap().clear();
    (array, noted)
}

/// Makes a pass over some rows, in blocks of 4, within the least memory and `more`. Returns the elements, and the ranges of shards, or
/// whole shards, that were read.
fn pass(
    scratch: &Scratch,
    rows: Range<u64>,
    more: fn(&Plan) -> u64,
) -> (Vec<u8>, Vec<Range<u64>>, Vec<String>) {
    let (array, noted) = noted(scratch);
    let rows = Arc::new(Selection::new("pass", "rows", [rows], array.shape()[0]).unwrap());
    let plan =
        Plan::new(vec![array], rows, None, Arc::new(AsStored(StoredType::U8)), &[Along::each(4)]).unwrap();
    let bytes = plan.largest_need() + more(&plan);
    let mut blocks = Blocks::new(&plan, cpu(), 4, bytes, &Cancel::default()).unwrap();
    let mut all = Vec::new();
    while let Some(mut block) = blocks.next_block().unwrap() {
        all.extend_from_slice(block.bytes());
    }
    let (mut ranges, mut whole) = (Vec::new(), Vec::new());
    for (key, range) in noted.asked.lock().unwrap().iter().cloned() {
        match range {
            Some(range) => ranges.push(range),
            None => whole.push(key),
        }
    }
    whole.sort();
    (all, ranges, whole)
}

/// Writes an array of [60, 8] bytes in shards of [32, 8], each with 16 chunks of [4, 4]; the last has 14 within the array.
fn numbered() -> (Scratch, Vec<u8>) {
    let scratch = Scratch::new();
    let codecs = json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": [4, 4], "codecs": [{ "name": "bytes" }], "index_codecs": index_codecs(true),
    }}]);
    let at = |row: u64, column: u64| (row * 8 + column).to_le_bytes()[0];
    let chunk = |shard: u64, number: u64| -> Option<Vec<u8>> {
        let (row, column) = (32 * shard + number / 2 * 4, number % 2 * 4);
        (row < 60).then(|| (0..16).map(|i| at(row + i / 4, column + i % 4)).collect())
    };
    let shards = [0, 1].map(|number| shard(&(0..16).map(|i| chunk(number, i)).collect::<Vec<_>>(), true));
    let [first, second] = shards;
    scratch.array("a", &v3(&[60, 8], &[32, 8], "uint8", codecs), &[("c/0/0", first), ("c/1/0", second)]);
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
        let (elements, ranges, whole) = pass(&scratch, rows.clone(), |_| 1 << 30);
        assert_eq!(elements, of(rows.clone()), "{rows:?}");
        let found = ranges.iter().filter(|range| is_index(range)).count();
        assert_eq!((found, ranges.len() - found, whole.len()), (indexes, chunks, 0), "{rows:?}");
        assert!(ranges.iter().all(|range| is_index(range) || range.end - range.start == 16));
    }
    // Of the second shard, 7 rows of chunks are within the array.
    for (rows, chunks, shards) in [
        (0..60, 0, &["a/c/0/0", "a/c/1/0"][..]),
        (0..16, 0, &["a/c/0/0"]),
        (44..60, 0, &["a/c/1/0"]),
        (12..44, 6, &["a/c/0/0"]),
    ] {
        let (elements, ranges, whole) = pass(&scratch, rows.clone(), |_| 1 << 30);
        assert_eq!(
            (elements.as_slice(), whole),
            (of(rows.clone()), shards.iter().map(ToString::to_string).collect())
        );
        assert_eq!(ranges.iter().filter(|range| !is_index(range)).count(), chunks, "{rows:?}");
    }
    let (elements, ranges, whole) = pass(&scratch, 0..60, |_| 0);
    assert_eq!((elements, ranges.len(), whole.len()), (all, 2 + 30, 0));
}

/// With memory for one whole shard beside all else, a pass reads one of two that are side by side as a whole, and the other by ranges.
#[test]
fn whole_shards_are_within_memory() {
    let scratch = Scratch::new();
    let codecs = json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": [2, 4], "codecs": [{ "name": "bytes" }], "index_codecs": index_codecs(true),
    }}]);
    let [left, right] =
        [1, 2].map(|value| shard(&[vec![value; 8], vec![value; 8], vec![value; 8]].map(Some), true));
    scratch.array("a", &v3(&[6, 8], &[6, 4], "uint8", codecs), &[("c/0/0", left), ("c/0/1", right)]);
    let all: Vec<u8> = (0..6).flat_map(|_| [1, 1, 1, 1, 2, 2, 2, 2]).collect();
    fn ahead(plan: &Plan) -> u64 {
        plan.ahead(cpu().pool().unwrap().current_num_threads() as u64)
    }
    let (elements, ranges, whole) =
        pass(&scratch, 0..6, |plan| ahead(plan) - plan.array(0).shards().unwrap().bytes);
    assert_eq!((&elements, ranges.len(), &*whole), (&all, 4, &["a/c/0/0".to_owned()][..]));
    let (elements, ranges, whole) = pass(&scratch, 0..6, ahead);
    assert_eq!((elements, ranges.len(), whole.len()), (all, 0, 2));
}

/// A pass over shards takes the memory of a pass over their chunks, and that of the indexes.
#[test]
fn memory_is_by_chunk() {
    let scratch = Scratch::new();
    let bytes = json!([{ "name": "bytes" }]);
    let codecs = json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": [32, 32], "codecs": bytes, "index_codecs": index_codecs(true),
    }}]);
    let chunks: Vec<_> = (0..1024_u32).map(|i| Some(vec![i.to_le_bytes()[0]; 1024])).collect();
    let one = shard(&chunks, true);
    scratch.array("a", &v3(&[1024, 1024], &[1024, 1024], "uint8", codecs), &[("c/0/0", one)]);
    scratch.array("b", &v3(&[1024, 1024], &[32, 32], "uint8", bytes), &[]);
    let plan = |path: &str| {
        let array: Arc<dyn ChunkedArray> =
            Arc::new(ZarrArray::open(scratch.path(), path, MissingChunk::Error).unwrap());
        let (rows, convert) = (Arc::new(Selection::all(1024)), Arc::new(AsStored(StoredType::U8)));
        Plan::of_rows(vec![array], rows, None, convert, 32).unwrap()
    };
    let (sharded, plain) = (plan("a"), plan("b"));
    let index = sharded.largest_need() - plain.largest_need();
    assert!((16 << 10..17 << 10).contains(&index), "{index}");
    assert!(sharded.largest_need() < 256 << 10);
    // Memory for a whole shard is used only if nothing else needs it.
    assert!(sharded.ahead(2) > plain.ahead(2) + (1 << 20));
    let shards = |bytes| sharded.at_once(2, 32, bytes).shards;
    let [least, bytes] = [sharded.largest_need() + plain.ahead(2), sharded.array(0).shards().unwrap().bytes];
    assert_eq!((shards(least + bytes - 1), shards(least + bytes)), (0, 1));
    assert_eq!(shards(sharded.largest_need() + sharded.ahead(2)), 1);
    let mut blocks = Blocks::new(&sharded, cpu(), 32, sharded.largest_need(), &Cancel::default()).unwrap();
    for row in 0..32_usize {
        let mut block = blocks.next_block().unwrap().unwrap();
        let expected = |at: usize| (32 * row + at % 1024 / 32).to_le_bytes()[0];
        assert!(block.bytes().iter().enumerate().all(|(at, byte)| *byte == expected(at)), "{row}");
    }
}

/// Indexes beyond the bound are dropped, and read again when they are needed.
#[test]
fn indexes_are_bounded() {
    let scratch = Scratch::new();
    let codecs = json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": [1], "codecs": [{ "name": "bytes" }], "index_codecs": index_codecs(false),
        "index_location": "start",
    }}]);
    let count = 1_u64 << 20;
    let mut first = vec![0xff; 16 << 20];
    first[..16].copy_from_slice(&[(16_u64 << 20).to_le_bytes(), 1_u64.to_le_bytes()].concat());
    first.push(7);
    scratch.array(
        "a",
        &v3(&[2 * count], &[count], "uint8", codecs),
        &[("c/0", first.clone()), ("c/1", first)],
    );
    let (array, noted) = noted(&scratch);
    for (index, read) in [(0, 1), (0, 1), (count, 2), (count, 2), (0, 3)] {
        assert_eq!(array.read_chunk(&[index]).unwrap().bytes, [7]);
        let asked = noted.asked.lock().unwrap();
        let indexes = asked.iter().filter(|(_, range)| *range == Some(0..16 << 20));
        assert_eq!(indexes.count(), read, "{index}");
    }
    // A whole shard stays where its index was dropped.
    let whole = WholeShard::default();
    for index in [0, count, 0] {
        let fetched = if index == 0 { array.fetch_from(&whole, &[0]) } else { array.fetch(&[index]) };
        assert_eq!(fetched.unwrap().bytes.as_deref(), Some(&[7][..]));
    }
    assert_eq!(noted.asked.lock().unwrap().iter().filter(|(_, range)| range.is_none()).count(), 1);
    assert_eq!(array.shards().unwrap().index_bytes, (16 << 20) + 384);
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
        let error = array.decode(&index, fetched).unwrap_err().to_string();
        assert!(error.contains(&format!("a: chunk {index:?}: it is missing")), "{error}");
    }
    // The errors also read which program wrote the store.
    let asked = noted.asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|(key, _)| key.contains("/c/")).count(), 2);
    assert_eq!(array.looked_for(), LookedFor { there: true, absent: 14, other_names: false });
}
