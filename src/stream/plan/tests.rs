//! Rows, and the memory that a plan says.

use super::*;
use crate::{ArrayFacts, DecodedChunk, FetchedChunk, StoredType, store::MemoryArray, stream::AsStored};

fn plan(rows_and_chunks: &[(u64, u64)], block_rows: u64) -> Plan {
    let array = |&(rows, chunk): &(u64, u64)| -> Arc<dyn ChunkedArray> {
        let values = vec![0i8; usize::try_from(5 * rows).unwrap()];
        Arc::new(MemoryArray::new("array", &values, &[rows, 5], &[chunk, 2]).unwrap())
    };
    let rows = rows_and_chunks.iter().map(|(rows, _)| rows).sum();
    let arrays = rows_and_chunks.iter().map(array).collect();
    let (rows, convert) = (Arc::new(Selection::all(rows)), Arc::new(AsStored(StoredType::I8)));
    Plan::of_rows(arrays, rows, None, convert, block_rows).unwrap()
}

/// The minimum for a pass is that of the block with the most bands, whatever the chunks and blocks are.
#[test]
fn least_memory_is_that_of_some_block() {
    let lists: [&[(u64, u64)]; 6] = [
        &[(1, 1)],
        &[(100, 1)],
        &[(100, 7)],
        &[(64, 16), (1, 3), (30, 9)],
        &[(40, 64), (40, 8)],
        &[(3, 1), (3, 2), (90, 90), (5, 1)],
    ];
    for list in lists {
        for block_rows in [1, 2, 8, 16, 64, 256] {
            let plan = plan(list, block_rows);
            let need = |start: u64| -> u64 {
                let bands = plan.bands_of(&(start..plan.rows().min(start + block_rows)));
                plan.bands()[bands].iter().map(|band| band.bytes).sum()
            };
            let blocks = (0..plan.rows()).step_by(usize::try_from(block_rows).unwrap());
            let most = blocks.map(need).max().unwrap();
            assert_eq!(plan.largest_need(), most + plan.lists, "{list:?} {block_rows}");
        }
    }
}

/// Boxes of 0 rows count as boxes of one row, and a row beyond the end panics.
#[test]
fn rows_that_are_not_there() {
    let plan = plan(&[(10, 4), (5, 4)], 4);
    assert_eq!(plan.largest_need_of(0), plan.largest_need_of(1));
    assert_eq!((plan.staged_bytes(0), plan.ahead(u64::MAX)), (5, u64::MAX));
    assert_eq!((plan.row(14), plan.array_of(14).shape()[0]), (14, 5));
    let quiet = std::panic::AssertUnwindSafe(&plan);
    assert!(std::panic::catch_unwind(|| quiet.row(15)).is_err());
    let message = std::panic::catch_unwind(|| quiet.array_of(15).name().len()).unwrap_err();
    assert_eq!(message.downcast_ref::<String>().unwrap(), "row 15 of 15 that are selected");
}

/// The array has 5 columns in chunks of 2, so a band has three chunks.
#[test]
fn memory_is_shared_by_decoders_and_chunks() {
    let mut plan = plan(&[(100, 10)], 10);
    let least = plan.largest_need();
    assert_eq!(plan.ahead(4), 10 * plan.bands()[0].bytes);
    let decoders = |plan: &Plan, threads, rows, bytes| {
        let at_once = plan.at_once(threads, rows, bytes);
        (at_once.decoders, at_once.bytes)
    };
    assert_eq!(decoders(&plan, 4, 10, 0), (4, 0));
    plan.scratch = 1000;
    assert_eq!(plan.largest_need(), least + 1000);
    assert_eq!(plan.ahead(4), 10 * plan.bands()[0].bytes + 3000);
    for (more, most) in [(0, 1), (1999, 1), (2000, 2), (5999, 3), (6000, 4), (1 << 20, 4)] {
        let bytes = least + 1000 + more;
        let left = bytes - 1000 * most as u64 - plan.lists;
        assert_eq!(decoders(&plan, 4, 10, bytes), (most, left), "{more}");
    }
    // All threads decode if there is enough memory for all of them.
    for scratch in [1, 1000, 1 << 20] {
        plan.scratch = scratch;
        for rows in [10, 40] {
            assert_eq!(decoders(&plan, 64, rows, plan.largest_need_of(rows) + plan.ahead(64)).0, 64);
        }
    }
}

/// Shards along an axis are counted, if there are any, and more chunks are believed then.
#[test]
fn chunks_that_are_believed() {
    /// An array of bytes in chunks of one element.
    #[derive(Debug)]
    struct Claims([u64; 1], Option<u64>);

    impl ChunkedArray for Claims {
        fn facts(&self) -> ArrayFacts<'_> {
            ArrayFacts { name: "claims", shape: &self.0, chunk_shape: &[1], dtype: StoredType::I8 }
        }
        fn shards(&self) -> Option<Shards> {
            let chunks = vec![self.1?];
            Some(Shards { chunks, bytes: 1 << 20, index_bytes: 0, are_whole: false })
        }
        fn decode(&self, _: &[u64], _: FetchedChunk) -> Result<DecodedChunk> {
            unreachable!("a plan reads nothing")
        }
    }
    let refused = |extent, chunks| {
        let (rows, convert) = (Arc::new(Selection::all(1)), Arc::new(AsStored(StoredType::I8)));
        let plan = Plan::of_rows(vec![Arc::new(Claims([extent], chunks))], rows, None, convert, 1);
        plan.err().map(|error| error.to_string())
    };
    let most = MAX_CHUNKS;
    for (extent, chunks, words) in [
        (most + 1, None, "claims 1048577 chunks along axis 0; at most 1048576 "),
        (2 * most + 1, Some(2), "claims 1048577 shards along axis 0; at most 1048576 "),
        (4 * most + 1, Some(1 << 20), "claims 4194305 chunks along axis 0; at most 4194304 "),
    ] {
        let why = refused(extent, chunks).unwrap();
        assert!(why.contains(words) && refused(extent - 1, chunks).is_none(), "{why}");
    }
    // Shards that do not fit the axes are none.
    assert!(refused(1, Some(0)).is_none());
}
