//! Tests that compare boxes of arrays with a gather of their elements one by one.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex},
};

use super::{
    boxes::{Along, Beyond},
    *,
};
use crate::{
    ChunkedArray, Result, StoredType, assert_err,
    openings::{Hooked, cpu, plan_rows, read_blocks},
    random::philox,
    store::MemoryArray,
};

fn as_stored() -> Arc<dyn Convert> {
    Arc::new(AsStored(StoredType::I32))
}

/// A generator of pseudo-random numbers below a bound.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 += 1;
        u64::from(philox([3, 14], self.0)[0]) % n
    }
}

struct Case {
    arrays: Vec<Arc<Hooked>>,
    reads: Arc<Mutex<Reads>>,
    /// The selected rows, each as an array and a row within that array, and the selected columns.
    rows: Vec<(usize, u64)>,
    columns: Vec<u64>,
    row_ranges: Vec<Range<u64>>,
    column_ranges: Vec<Range<u64>>,
    along: Vec<Along>,
}

/// Returns random non-empty ranges of indices below `extent`.
fn some(numbers: &mut Numbers, extent: u64) -> Vec<Range<u64>> {
    if numbers.below(3) == 0 {
        return std::iter::once(0..extent).collect();
    }
    let mut ranges = Vec::new();
    let mut at = numbers.below(extent);
    while at < extent {
        let end = extent.min(at + 1 + numbers.below(extent));
        ranges.push(at..end);
        at = end + numbers.below(extent);
    }
    ranges
}

fn case(numbers: &mut Numbers) -> Case {
    let axes = 1 + usize::try_from(numbers.below(5)).unwrap();
    let most = [40, 12, 9, 7, 3][axes - 1];
    let shape: Vec<u64> = (0..axes).map(|_| 1 + numbers.below(most)).collect();
    let (mut arrays, mut rows) = (Vec::new(), Vec::new());
    let reads = Arc::new(Mutex::new(Reads::new()));
    for array in 0..1 + usize::try_from(numbers.below(3)).unwrap() {
        let shape = [&[1 + numbers.below(most)], &shape[1..]].concat();
        let small = numbers.below(2) == 0;
        let chunk = shape.iter().map(|extent| 1 + numbers.below(if small { 3 } else { extent + 2 }));
        let chunk: Vec<u64> = chunk.collect();
        let len = i32::try_from(shape.iter().product::<u64>()).unwrap();
        let first = 10_000 * i32::try_from(array).unwrap();
        let values: Vec<i32> = (first..first + len).collect();
        rows.extend((0..shape[0]).map(|row| (array, row)));
        let counts = Arc::clone(&reads);
        let stored = MemoryArray::new(format!("array {array}"), &values, &shape, &chunk).unwrap();
        let mut counted = Hooked::new(stored, move |stored, index, fetched| {
            *counts.lock().unwrap().entry((array, index.to_vec())).or_default() += 1;
            stored.decode(index, fetched)
        });
        counted.scratch = 100;
        arrays.push(Arc::new(counted));
    }
    let row_ranges = some(numbers, rows.len() as u64);
    let rows: Vec<_> =
        row_ranges.iter().cloned().flatten().map(|row| rows[usize::try_from(row).unwrap()]).collect();
    let width = shape.get(1).copied().unwrap_or(1);
    let column_ranges = some(numbers, width);
    let columns: Vec<u64> = column_ranges.iter().cloned().flatten().collect();
    let given = 1 + usize::try_from(numbers.below(axes as u64)).unwrap();
    let extents = [&[rows.len() as u64, columns.len() as u64], &shape[shape.len().min(2)..]].concat();
    let along = extents[..given].iter().map(|extent| {
        let mut halo = || if numbers.below(2) == 0 { 0 } else { numbers.below(3 * most) };
        let halo = [halo(), halo()];
        let beyond = if numbers.below(2) == 0 { Beyond::Clip } else { Beyond::Wrap };
        let size = 1 + numbers.below(most);
        let first = numbers.below(*extent);
        let some = [first, first + 1 + numbers.below(most)];
        let within = if numbers.below(3) == 0 { some } else { Along::ALL };
        Along { size, halo, beyond, within }
    });
    let along = along.collect();
    Case { arrays, reads, rows, columns, row_ranges, column_ranges, along }
}

impl Case {
    fn plan(&self) -> Plan {
        let rows: u64 = self.arrays.iter().map(|array| array.shape()[0]).sum();
        let width = self.arrays[0].shape().get(1).copied().unwrap_or(1);
        let rows = Selection::new("test", "rows", self.row_ranges.clone(), rows).unwrap();
        let columns = Selection::new("test", "columns", self.column_ranges.clone(), width).unwrap();
        let arrays = self.arrays.iter().map(|array| Arc::clone(array) as Arc<dyn ChunkedArray>).collect();
        let convert = Arc::new(AsStored(StoredType::I32));
        Plan::new(arrays, Arc::new(rows), Some(Arc::new(columns)), convert, &self.along).unwrap()
    }

    /// Returns the extents of the selection.
    fn extents(&self) -> Vec<u64> {
        let mut extents = self.arrays[0].shape().to_vec();
        extents[0] = self.rows.len() as u64;
        if let Some(width) = extents.get_mut(1) {
            *width = self.columns.len() as u64;
        }
        extents
    }

    /// Returns a selected element, and the array and the chunk that hold it.
    fn element(&self, at: &[u64]) -> (i32, (usize, Vec<u64>)) {
        let (array, row) = self.rows[usize::try_from(at[0]).unwrap()];
        let mut stored = at.to_vec();
        stored[0] = row;
        if let Some(column) = stored.get_mut(1) {
            *column = self.columns[usize::try_from(*column).unwrap()];
        }
        let (shape, chunk) = (self.arrays[array].shape(), self.arrays[array].chunk_shape());
        let flat = stored.iter().zip(shape).fold(0, |flat, (at, extent)| flat * extent + at);
        let value = 10_000 * i32::try_from(array).unwrap() + i32::try_from(flat).unwrap();
        (value, (array, stored.iter().zip(chunk).map(|(at, chunk)| at / chunk).collect()))
    }

    /// Returns, for each box that is not left out, its core, the halo before the core, its shape and its elements; and all chunks that
    /// these boxes need.
    fn naive(&self, left_out: &[bool]) -> (Vec<Naive>, Reads) {
        let extents = self.extents();
        let whole = |axis: usize| Along::each(extents[axis]);
        let along: Vec<Along> = (0..extents.len())
            .map(|axis| self.along.get(axis).copied().unwrap_or_else(|| whole(axis)))
            .collect();
        let (mut boxes, mut chunks) = (Vec::new(), HashMap::new());
        let within = |along: &Along, extent: u64| along.within[0]..along.within[1].min(extent);
        let count = |(&extent, along): (&u64, &Along)| {
            let within = within(along, extent);
            within.end.saturating_sub(within.start).div_ceil(along.size)
        };
        let counts: Vec<u64> = extents.iter().zip(&along).map(count).collect();
        for (number, place) in grid(&counts).iter().enumerate() {
            if left_out.get(number) == Some(&true) {
                continue;
            }
            // For each axis, the indices of the box's elements in order.
            let (mut core, mut before, mut lists) = (Vec::new(), Vec::new(), Vec::new());
            for ((at, along), &extent) in place.iter().zip(&along).zip(&extents) {
                let within = within(along, extent);
                let start = within.start + at * along.size;
                let end = within.end.min(start + along.size);
                let signed = |n: u64| i64::try_from(n).unwrap();
                let all = signed(start) - signed(along.halo[0])..signed(end) + signed(along.halo[1]);
                let list: Vec<u64> = match along.beyond {
                    Beyond::Wrap => all.map(|i| i.rem_euclid(signed(extent)).unsigned_abs()).collect(),
                    Beyond::Clip => {
                        all.filter(|i| (0..signed(extent)).contains(i)).map(i64::unsigned_abs).collect()
                    }
                };
                before.push(match along.beyond {
                    Beyond::Wrap => along.halo[0],
                    Beyond::Clip => along.halo[0].min(start),
                });
                core.push(start..end);
                lists.push(list);
            }
            let shape: Vec<u64> = lists.iter().map(|list| list.len() as u64).collect();
            let mut values = Vec::new();
            for at in grid(&shape) {
                let at: Vec<u64> =
                    at.iter().zip(&lists).map(|(&i, list)| list[usize::try_from(i).unwrap()]).collect();
                let (value, chunk) = self.element(&at);
                values.push(value);
                chunks.insert(chunk, 1);
            }
            boxes.push((core, before, shape, values));
        }
        (boxes, chunks)
    }

    /// Returns how often each chunk was decoded since the last call.
    fn reads(&self) -> Reads {
        mem::take(&mut self.reads.lock().unwrap())
    }
}

/// The number of times that each chunk is decoded, by array and chunk index.
type Reads = HashMap<(usize, Vec<u64>), u64>;

/// The core of a box, the halo before the core, the shape of the box, and its elements.
type Naive = (Vec<Range<u64>>, Vec<u64>, Vec<u64>, Vec<i32>);

/// Returns all positions of a grid, in C order.
fn grid(counts: &[u64]) -> Vec<Vec<u64>> {
    let mut places = vec![Vec::new()];
    for &count in counts {
        places = places.iter().flat_map(|at| (0..count).map(|i| [&at[..], &[i]].concat())).collect();
    }
    places
}

/// Reads a pass. Returns its boxes in C order, its stats, and the average number of reads of a chunk that it reports.
fn read(plan: &Plan, bytes: u64, left_out: &[bool]) -> (Vec<Naive>, StreamStats, f64) {
    let left_out = left_out.to_vec();
    let mut blocks = Blocks::of_boxes(plan, cpu(), bytes, left_out, &Cancel::default()).unwrap();
    let mut boxes = Vec::new();
    while let Some(mut block) = blocks.next_block().unwrap() {
        let values: Vec<i32> = bytemuck::pod_collect_to_vec(block.bytes());
        let (core, before, shape) = (block.core.clone(), block.before.clone(), block.shape.clone());
        // The tensor equals the bytes on the host, for both staging slots.
        let tensor = block.tensor::<i32>(&shape).unwrap();
        assert!(tensor.read().unwrap() == values);
        boxes.push((core, before, shape, values));
    }
    boxes.sort_by_key(|(core, ..)| core.iter().map(|range| range.start).collect::<Vec<_>>());
    (boxes, blocks.stats, blocks.times_read())
}

#[test]
fn boxes_are_what_a_gather_gives() {
    let mut numbers = Numbers(0);
    let (mut again, mut halos) = (0, 0);
    for round in 0..400 {
        let case = case(&mut numbers);
        let (expected, chunks) = case.naive(&[]);
        let plan = case.plan();
        let least = plan.largest_need();
        let about = format!("round {round}: {:?} {:?}", case.arrays[0].shape(), case.along);
        halos += usize::from(case.along.iter().any(|along| along.halo != [0; 2]));
        let mut before = None;
        for more in [0, 1000, 4000, 1 << 30] {
            let (boxes, stats, times) = read(&plan, least + more, &[]);
            assert!(boxes == expected, "{about}, {more} more");
            let reads = case.reads();
            assert!(reads.keys().all(|chunk| chunks.contains_key(chunk)), "{about}: unselected");
            assert_eq!(reads.len(), chunks.len(), "{about}");
            let total: u64 = reads.values().sum();
            assert_eq!(stats.chunks, total);
            assert!((times - total as f64 / chunks.len() as f64).abs() < 1e-9, "{about}: {times}");
            assert!(stats.peak_chunk_bytes <= least + more, "{about}");
            again += usize::from(total > chunks.len() as u64);
            assert!(*before.get_or_insert(total) >= total, "{about}: more memory, more reads");
            before = Some(total);
            if more == 1 << 30 {
                assert!(reads == chunks, "{about}: each once");
            }
        }
        let widest = expected.iter().map(|(_, _, _, values)| 4 * values.len() as u64).max().unwrap();
        assert!(plan.block_bytes() >= widest, "{about}");
    }
    assert!(again > 20 && halos > 100, "{again} {halos}");
}

/// Chunks that only left-out boxes need are not read, and left-out boxes do not extend the time for which other chunks are held.
#[test]
fn boxes_may_be_left_out() {
    let mut numbers = Numbers(1 << 40);
    let mut unread = 0;
    for round in 0..200 {
        let case = case(&mut numbers);
        let plan = case.plan();
        let cores: Vec<Vec<Range<u64>>> = plan.boxes().collect();
        let left_out: Vec<bool> = cores.iter().map(|_| numbers.below(3) > 0).collect();
        let (all, every) = case.naive(&[]);
        assert!(cores.iter().eq(all.iter().map(|(core, ..)| core)), "round {round}");
        let (expected, chunks) = case.naive(&left_out);
        for more in [0, 1000, 1 << 30] {
            let (boxes, stats, times) = read(&plan, plan.largest_need() + more, &left_out);
            assert!(boxes == expected, "round {round}, {more} more");
            let reads = case.reads();
            assert!(reads.keys().all(|chunk| chunks.contains_key(chunk)) && reads.len() == chunks.len());
            assert!((times - stats.chunks as f64 / chunks.len().max(1) as f64).abs() < 1e-9, "round {round}");
            assert!(stats.peak_chunk_bytes <= plan.largest_need() + more);
            assert!(more < 1 << 30 || reads == chunks, "round {round}: each once");
        }
        unread += every.len() - chunks.len();
    }
    assert!(unread > 100, "{unread}");
}

/// Blocks of rows read no chunk twice, however small the memory is.
#[test]
fn blocks_of_rows_read_each_chunk_once() {
    let mut numbers = Numbers(1 << 32);
    for _ in 0..100 {
        let mut case = case(&mut numbers);
        case.along = vec![Along::each(1 + numbers.below(20))];
        let (expected, chunks) = case.naive(&[]);
        let plan = case.plan();
        let (boxes, stats, times) = read(&plan, 0, &[]);
        assert!(boxes == expected && case.reads() == chunks);
        assert!((times - 1.0).abs() < 1e-9 && stats.peak_chunk_bytes <= plan.largest_need());
    }
}

/// Neither the bytes that strips hold nor the reads per chunk grow with the array, along any axis.
#[test]
fn memory_is_flat() {
    let plan = |shape: [u64; 3]| {
        let elements = usize::try_from(shape.iter().product::<u64>()).unwrap();
        let array = MemoryArray::new("volume", &vec![0i32; elements], &shape, &[8; 3]).unwrap();
        let along = [Along { halo: [2, 2], ..Along::each(8) }; 3];
        Plan::new(vec![Arc::new(array)], Arc::new(Selection::all(shape[0])), None, as_stored(), &along)
            .unwrap()
    };
    let small = plan([32; 3]);
    let bytes = [0, 30_000, 60_000, 200_000];
    let times = |plan: &Plan| {
        bytes.map(|more| plan.times_read(1, plan.largest_need() + more, &Cancel::default()).unwrap())
    };
    let of_small = times(&small);
    // The strips are of one box, of 2 x 2 and of 4 x 4 boxes, along 4 boxes.
    assert!(of_small[0] >= 6.25 && of_small[3] == 1.0, "{of_small:?}");
    assert!(of_small.is_sorted_by(|a, b| a > b), "{of_small:?}");
    for shape in [[256, 32, 32], [32, 256, 32], [32, 32, 256]] {
        let large = plan(shape);
        // A box holds 8 + 2 + 2 elements along each axis of the 27 chunks around it.
        assert_eq!([&small, &large].map(|plan| plan.chunks_of_box(8)), [4 * 12 * 12 * 12 + 27 * 384; 2]);
        let of_large = times(&large);
        let is_flat = of_large.iter().zip(&of_small).all(|(large, small)| large <= &(1.2 * small));
        assert!(is_flat, "{of_large:?} {of_small:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let array = |shape: &[u64], chunk: &[u64]| -> Arc<dyn ChunkedArray> {
        let values = vec![0i32; usize::try_from(shape.iter().product::<u64>()).unwrap()];
        Arc::new(MemoryArray::new("array", &values, shape, chunk).unwrap())
    };
    let plan = |arrays: Vec<Arc<dyn ChunkedArray>>, along: &[Along]| {
        let rows = Arc::new(Selection::all(arrays.iter().map(|array| array.shape()[0]).sum()));
        Plan::new(arrays, rows, None, Arc::new(AsStored(StoredType::I32)), along)
    };
    let refused = |arrays, along: &[Along], needle: &str| {
        let error = plan(arrays, along).expect_err(needle).to_string();
        assert!(error.contains(needle), "`{needle}` is not in: {error}");
    };
    let (two, other) = (array(&[4, 3], &[2, 2]), array(&[4, 5], &[2, 2]));
    let each = Along::each(2);
    refused(Vec::new(), &[each], "none given");
    refused(vec![array(&[1; 6], &[1; 6])], &[each], "1 to 5 axes");
    refused(vec![Arc::clone(&two), other], &[each], "rows of Some([3])");
    refused(vec![Arc::clone(&two)], &[each; 3], "of 3 axes, and the arrays have 2");
    refused(vec![Arc::clone(&two)], &[each, Along::each(0)], "no elements along axis 1");
    let turned = Along { within: [2, 1], ..each };
    let needle = "within [2, 1] along axis 1, which ends before it begins";
    refused(vec![Arc::clone(&two)], &[each, turned], needle);
    for halo in [[u64::MAX, 1], [1 << 62, 0], [0, 4 * 1024 + 1]] {
        let along = Along { halo, beyond: Beyond::Wrap, ..Along::each(2) };
        let needle = format!("a halo of {halo:?} along axis 0: more than 1024 times its 4 elements");
        refused(vec![Arc::clone(&two)], &[along], &needle);
        refused(vec![Arc::clone(&two)], &[each, along], "along axis 1: more than 1024 times its 3 elements");
    }
    // Wrapping halos of the maximum length, and clipped halos of any length, are accepted.
    let most = Along { halo: [4 * 1024, 4 * 1024], beyond: Beyond::Wrap, ..Along::each(2) };
    for along in [most, Along { halo: [u64::MAX; 2], beyond: Beyond::Clip, ..most }] {
        assert!(plan(vec![Arc::clone(&two)], &[along]).is_ok());
    }
    let huge: Arc<dyn ChunkedArray> = Arc::new(Hooked::claiming::<i32>(&[1 << 40; 2], &[1 << 40; 2]));
    refused(vec![Arc::clone(&huge)], &[Along::each(1 << 40); 2], "along axis 1 have 2^64 elements");
    let more: Arc<dyn ChunkedArray> = Arc::new(Hooked::claiming::<i32>(&[u64::MAX, 3], &[u64::MAX, 3]));
    let error =
        Plan::of_rows(vec![Arc::clone(&two), more], Arc::new(Selection::all(1)), None, as_stored(), 2)
            .unwrap_err();
    assert!(matches!(error, Error::Argument { name: "arrays", .. }), "{error}");
    let bytes: Arc<dyn ChunkedArray> =
        Arc::new(MemoryArray::new("bytes", &[0u8; 12], &[4, 3], &[2, 2]).unwrap());
    refused(vec![two, bytes], &[each], "bytes: holds U8, expected I32");
}

/// Rows and columns that the arrays lack, boxes without rows, and tensors of a wrong size are refused.
#[test]
fn what_is_not_there_is_refused() {
    let array = || -> Arc<dyn ChunkedArray> {
        Arc::new(MemoryArray::new("array", &[7i32; 12], &[4, 3], &[2, 2]).unwrap())
    };
    let plan = |rows: Vec<Range<u64>>, columns: Vec<Range<u64>>| {
        let select = |ranges| Arc::new(Selection::new("test", "any", ranges, 100).unwrap());
        Plan::of_rows(vec![array(), array()], select(rows), Some(select(columns)), as_stored(), 3)
    };
    let refused = |plan: Result<Plan>, argument: &str, why: &str| {
        let Err(Error::Argument { name, why: found, .. }) = plan else { panic!("{plan:?}") };
        assert_eq!((name, &*found), (argument, why));
    };
    let of = |range: Range<u64>| vec![range];
    refused(plan(vec![0..2, 7..9], of(0..3)), "rows", "up to 9 are selected, and the arrays have 8");
    // Two chunks of 2 columns hold the 3 columns and one column of padding.
    refused(plan(of(0..8), vec![0..1, 3..4]), "columns", "up to 4 are selected, and the arrays have 3");
    let plan = plan(of(1..8), of(1..3)).unwrap();
    let blocks = |rows| Blocks::new(&plan, cpu(), rows, 0, &Cancel::default());
    assert_err!(blocks(0), Error::Argument { name: "rows", .. });
    for shape in [&[3, 3][..], &[3], &[], &[1 << 32, 1 << 32], &[1 << 62, 1 << 2], &[0]] {
        let mut blocks = blocks(3).unwrap();
        let error = blocks.next_block().unwrap().unwrap().tensor::<i32>(shape).unwrap_err();
        assert!(matches!(error, Error::Shape { op: "Block::tensor", .. }), "{shape:?}: {error}");
    }
    let mut blocks = blocks(3).unwrap();
    let block = blocks.next_block().unwrap().unwrap();
    assert_eq!(block.tensor::<u8>(&[24]).unwrap().read().unwrap().len(), 24);
}

/// Digests must be requested first, since chunks read earlier would be missing from them.
#[test]
fn digests_are_asked_for_first() {
    let array = Arc::new(MemoryArray::new("array", &[7i32; 12], &[4, 3], &[2, 2]).unwrap());
    let plan = plan_rows(array, 2);
    let mut blocks = Blocks::new(&plan, cpu(), 2, 0, &Cancel::default()).unwrap();
    blocks.digest().unwrap();
    blocks.next_block().unwrap();
    assert!(matches!(blocks.digest(), Err(Error::Argument { name: "self", .. })));
}

/// An element that does not fit is reported with its stored row and its index in that row, whichever columns are selected.
#[test]
fn a_misfit_is_named_by_where_it_is_stored() {
    let mut values = vec![0.0f64; 6 * 5 * 2];
    (values[4 * 10 + 7], values[5 * 10]) = (1e300, f64::NAN);
    let array: Arc<dyn ChunkedArray> =
        Arc::new(MemoryArray::new("array", &values, &[6, 5, 2], &[4, 2, 1]).unwrap());
    let narrow =
        Narrow { to: Narrowed::F32, range: [0.0, 2.0], negative_is_missing: true, nan_is_missing: false };
    let error = |rows: Range<u64>, columns: Range<u64>, convert: Arc<dyn Convert>| {
        let rows = Selection::new("test", "rows", [rows], 6).unwrap();
        let columns = Selection::new("test", "columns", [columns], 5).unwrap();
        let (rows, columns) = (Arc::new(rows), Some(Arc::new(columns)));
        let plan = Plan::of_rows(vec![Arc::clone(&array)], rows, columns, convert, 3).unwrap();
        read_blocks(&plan, 3, 0).err().map_or_else(String::new, |error| error.to_string())
    };
    let in_range = |most| Arc::new(Narrow { range: [0.0, most], ..narrow });
    let found = error(1..6, 1..5, in_range(2.0));
    assert!(found.contains("chunk [1, 1, 1]: row 4, element 7: value 1000"), "{found}");
    assert!(found.contains("is not a finite 32-bit number"), "{found}");
    let found = error(5..6, 0..5, in_range(2.0));
    assert!(found.contains("chunk [1, 0, 0]: row 5, element 0: NaN"), "{found}");
    assert_eq!(error(5..6, 1..5, in_range(2.0)), "");
    assert_eq!(error(5..6, 0..5, Arc::new(Narrow { nan_is_missing: true, ..narrow })), "");
}

/// A conversion that refuses an element that is not 100 times its row plus its column.
#[derive(Debug)]
struct Placed;

impl Convert for Placed {
    fn accepts(&self, _: &dyn ChunkedArray) -> Result<()> {
        Ok(())
    }
    fn bytes(&self, elements: u64) -> u64 {
        elements
    }
    fn convert(&self, _: &dyn ChunkedArray, _: &[u8], _: &mut [u8]) -> Result<(), Misfit> {
        unreachable!("`convert_at` calls it by default")
    }
    fn convert_at(
        &self,
        _: &dyn ChunkedArray,
        place: &dyn Fn() -> [u64; 2],
        from: &[u8],
        _: &mut [u8],
    ) -> Result<(), Misfit> {
        let [row, column] = place();
        for (at, bytes) in from.as_chunks().0.iter().enumerate() {
            let (value, expected) = (i32::from_ne_bytes(*bytes) as u64, 100 * row + column + at as u64);
            if value != expected {
                return Err(Misfit::new(at, format_args!("{value} is not {expected}")));
            }
        }
        Ok(())
    }
}

#[test]
fn a_conversion_is_told_where_elements_are() {
    let array = |first: i32, rows: i32| -> Arc<dyn ChunkedArray> {
        let values: Vec<i32> = (0..rows * 17).map(|i| 100 * (first + i / 17) + i % 17).collect();
        Arc::new(MemoryArray::new("a", &values, &[rows as u64, 17], &[3, 4]).unwrap())
    };
    let arrays = vec![array(0, 7), array(7, 8)];
    let rows = Arc::new(Selection::new("test", "rows", [1..6, 9..15], 15).unwrap());
    let columns = Arc::new(Selection::new("test", "columns", [1..7, 9..17], 17).unwrap());
    for size in [[20, 20], [4, 5], [20, 3]] {
        let (rows, columns) = (Arc::clone(&rows), Some(Arc::clone(&columns)));
        let plan =
            Plan::new(arrays.clone(), rows, columns, Arc::new(Placed), &size.map(Along::each)).unwrap();
        read_blocks(&plan, size[0], plan.largest_need()).unwrap();
    }
}

/// Tests the conversion of every stored type to every staged type, and values that are out of range or missing.
#[test]
fn numbers_are_narrowed() {
    fn narrowed<T: crate::store::Storable>(value: T, narrow: Narrow) -> std::result::Result<f64, String> {
        let array = MemoryArray::new("array", &[value], &[1, 1], &[1, 1]).unwrap();
        narrow.accepts(&array).map_err(|error| error.to_string())?;
        let mut to = vec![0; to_usize(narrow.bytes(1))];
        narrow.convert(&array, bytemuck::bytes_of(&value), &mut to).map_err(|misfit| misfit.why)?;
        Ok(match narrow.to {
            Narrowed::I8 => to[0].cast_signed().into(),
            Narrowed::F32 => f32::from_ne_bytes(to.try_into().unwrap()).into(),
            Narrowed::F64 => f64::from_ne_bytes(to.try_into().unwrap()),
        })
    }
    for to in [Narrowed::I8, Narrowed::F32, Narrowed::F64] {
        let narrow = Narrow { to, range: [0.0, 100.0], negative_is_missing: true, nan_is_missing: false };
        let kept = Narrow { range: [-128.0, 127.0], negative_is_missing: false, ..narrow };
        assert_eq!(narrowed(7u8, narrow), Ok(7.0));
        assert_eq!(narrowed(-7i8, narrow), Ok(-1.0));
        assert_eq!(narrowed(-7i8, kept), Ok(-7.0));
        assert_eq!(narrowed(-700i16, narrow), Ok(-1.0));
        assert_eq!(narrowed(7u16, narrow), Ok(7.0));
        assert_eq!(narrowed(-70i32, kept), Ok(-70.0));
        assert_eq!(narrowed(7u32, narrow), Ok(7.0));
        assert_eq!(narrowed(i64::MIN, narrow), Ok(-1.0));
        assert_eq!(narrowed(-129i64, kept).unwrap_err(), "value -129 is below -128");
        assert_eq!(narrowed(101i8, narrow).unwrap_err(), "value 101 is above 100");
        assert!(narrowed(u64::MAX, narrow).unwrap_err().ends_with("is above 100"));
        for most in [1e19, f64::INFINITY] {
            let refused = narrowed(1u64 << 63, Narrow { range: [0.0, most], ..narrow }).unwrap_err();
            assert_eq!(refused, "value 9223372036854775808 is above 9223372036854775807");
        }
        let half = half::f16::from_f32(0.5);
        match to {
            Narrowed::I8 => {
                let refused = narrowed(0.5f32, narrow).unwrap_err();
                assert!(refused.contains("holds F32, where integers are expected"), "{refused}");
            }
            Narrowed::F32 | Narrowed::F64 => {
                assert_eq!([narrowed(half, narrow), narrowed(0.5f64, narrow)], [Ok(0.5), Ok(0.5)]);
                assert_eq!(narrowed(-0.5f32, kept), Ok(-0.5));
                // Negative floats are refused, since they are more often data than missing.
                for value in [-0.5f32, -1.0] {
                    let refused = narrowed(value, narrow).unwrap_err();
                    assert!(refused.starts_with(&format!("value {value} is negative")), "{refused}");
                }
                assert_eq!(narrowed(100.5f32, narrow).unwrap_err(), "value 100.5 is above 100");
                // NaN stays NaN if negative values are ordinary numbers.
                let nan = [true, false].map(|negative_is_missing| {
                    narrowed(f64::NAN, Narrow { nan_is_missing: true, negative_is_missing, ..kept }).unwrap()
                });
                assert!(nan[0] == -1.0 && nan[1].is_nan(), "{nan:?}");
                assert!(narrowed(f64::NAN, kept).unwrap_err().starts_with("NaN"));
            }
        }
    }
    let of_f64 = |value: f64| {
        let range = [-f64::MAX, f64::MAX];
        let narrow = Narrow { to: Narrowed::F64, range, negative_is_missing: false, nan_is_missing: true };
        let array = MemoryArray::new("array", &[value], &[1, 1], &[1, 1]).unwrap();
        let mut to = [0; 8];
        narrow.convert(&array, &value.to_ne_bytes(), &mut to).map(|()| f64::from_ne_bytes(to))
    };
    assert_eq!([of_f64(0.1), of_f64(-1e300)], [Ok(0.1), Ok(-1e300)]);
    assert!(of_f64(f64::INFINITY).unwrap_err().why.contains("not a finite 64-bit number"));
}

/// Uploads count as such, and not as computing.
#[test]
fn uploads_are_counted() {
    let values: Vec<u8> = (0..200).collect();
    let array = Arc::new(MemoryArray::new("values", &values, &[50, 4], &[10, 4]).unwrap());
    let plan = plan_rows(array, 10);
    let mut blocks = Blocks::new(&plan, cpu(), 10, 1 << 20, &Cancel::default()).unwrap();
    let (mut within, mut uploads) = (Duration::ZERO, 0);
    loop {
        let started = Instant::now();
        let Some(block) = blocks.next_block().unwrap() else { break };
        let (converted, shape, computing) = (block.stats.upload, block.shape.clone(), Instant::now());
        drop(block.tensor::<u8>(&shape).unwrap());
        uploads += u32::from(blocks.stats.upload > converted);
        blocks.computed(computing);
        within += started.elapsed();
    }
    let StreamStats { stalled, upload, compute, .. } = blocks.stats;
    assert_eq!(uploads, 5);
    assert!(compute + upload + stalled <= within, "{compute:?} {upload:?} {stalled:?} {within:?}");
}
