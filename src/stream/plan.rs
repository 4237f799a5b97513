//! A plan of a pass: the chunks that hold each box.

use std::{ops::Range, sync::Arc};

use super::{
    boxes::{ACROSS, AXES, Along, Edge, Pieces},
    convert::Convert,
    selection::Selection,
};
use crate::{ChunkedArray, Error, Result};

const OP: &str = "stream";

/// The maximum number of chunks of an array along an axis; a claim above it is taken for damage.
pub const MAX_CHUNKS: u64 = 1 << 20;

/// The maximum number of times that a halo goes around an axis: each of them is gone through.
const MAX_WRAPS: u64 = 1 << 10;

/// Bytes that keeping track of a chunk takes, from the task that decodes it to its place among the decoded.
pub(super) const TRACKING: u64 = 384;

/// Bytes for each chunk, held or not: whether it was read, and which boxes need it.
const SCHEDULED: u64 = 64;

/// Arrays of 1 to 5 axes, appended along the first, in boxes: of the selected rows and columns, which are those of the first
/// and the second axis.
///
/// Rows and columns are known by their numbers among the selected. Chunks without one of them are not read. A box is staged as its
/// rows, each of which is what its elements are converted to.
#[derive(Debug)]
pub struct Plan {
    arrays: Vec<Arc<dyn ChunkedArray>>,
    rows: Arc<Selection>,
    /// The selected elements of each axis but the first.
    selected: [Arc<Selection>; ACROSS],
    along: [Along; AXES],
    convert: Arc<dyn Convert>,
    bands: Vec<Band>,
    /// For each array the chunks along the axes but the first that are read.
    across: Vec<[Vec<u64>; ACROSS]>,
    /// The maximum number of bytes that reading one chunk takes besides the chunk: what is fetched, and what decoding it takes.
    scratch: u64,
    /// The fetched bytes among these, and the number of chunks that should be fetched at once, ahead of their decoding.
    fetched: u64,
    fetches: u64,
    /// Bytes of the lists of bands, of pieces and of chunks, and of what is cut from a chunk.
    lists: u64,
    /// True where boxes have halos: then elements of a chunk that no box needs any more are freed before its others.
    is_cut: bool,
}

/// The amounts that a pass may have under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtOnce {
    /// Chunks that are decoded.
    pub(crate) decoders: usize,
    /// Threads that do nothing but fetch; none where the thread that decodes a chunk fetches it.
    pub(crate) fetches: usize,
    /// Chunks that are fetched or being fetched, those that are decoded among them, where chunks are fetched ahead.
    pub(crate) fetched: usize,
    /// The maximum number of bytes of decoded chunks.
    pub(crate) bytes: u64,
}

/// The chunks of one array that share a range of rows.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    pub(crate) array: usize,
    /// Index along the first axis of the chunk grid.
    pub(crate) chunk_row: u64,
    /// The row of the appended list that the chunks start with.
    pub(super) first: u64,
    /// The selected rows that they hold.
    pub(crate) rows: Range<u64>,
    /// Bytes of those of its decoded chunks that a box needs at most, and of what keeps track of them.
    pub(crate) bytes: u64,
    /// The bytes among these that keep track of chunks; and the most bytes that a row takes, if no more is held of each than a box needs.
    tracking: u64,
    row_bytes: u64,
    /// Bytes of all bands before it.
    before: u64,
    /// The number of its first chunk among all that are read.
    pub(super) chunk: usize,
}

impl Plan {
    /// Plans blocks of `block_rows` of the selected `rows` of `arrays`: boxes of full width, of the selected `columns` or of all.
    /// `convert` says what elements become.
    ///
    /// # Cost
    /// As [`new`](Self::new).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_rows(
        arrays: Vec<Arc<dyn ChunkedArray>>,
        rows: Arc<Selection>,
        columns: Option<Arc<Selection>>,
        convert: Arc<dyn Convert>,
        block_rows: u64,
    ) -> Result<Self> {
        Self::new(arrays, rows, columns, convert, &[Along::each(block_rows)])
    }

    /// Plans boxes of the selected `rows` and `columns` of `arrays`, which agree in all but the first extent; without `columns`, of all.
    /// `convert` says what elements become, `along` how boxes lie along each axis; axes that it does not have are whole.
    ///
    /// # Cost
    /// Reads nothing. Holds some 100 bytes for each chunk along the first axis, and [what the selections do](Selection::bytes).
    ///
    /// # Errors
    /// [`Error::Shape`] when they do not agree, or have no axes or more than five; [`Error::Argument`] for rows or columns that
    /// the arrays do not have, for boxes that are empty or too large to count, that have more axes than the arrays, that end before
    /// they begin, or halos that wrap an axis more than 1024 times; [`Error::Store`] for a type that `convert` does not take,
    /// and for more chunks along the first axis than are believed.
    pub fn new(
        arrays: Vec<Arc<dyn ChunkedArray>>,
        rows: Arc<Selection>,
        columns: Option<Arc<Selection>>,
        convert: Arc<dyn Convert>,
        along: &[Along],
    ) -> Result<Self> {
        let first = arrays.first().ok_or_else(|| Error::argument(OP, "arrays", "none given"))?;
        let [_, across @ ..] = padded(first.shape());
        for array in &arrays {
            check(&**array, &**first)?;
            convert.accepts(&**array)?;
        }
        let whole = |extent| Arc::new(Selection::all(extent));
        let columns = columns.unwrap_or_else(|| whole(across[0]));
        let total = arrays.iter().try_fold(0u64, |total, array| total.checked_add(array.shape()[0]));
        let total = total.ok_or_else(|| Error::argument(OP, "arrays", "they have 2^64 rows or more"))?;
        for (name, selection, extent) in [("rows", &rows, total), ("columns", &columns, across[0])] {
            if selection.end() > extent {
                let why = format!("up to {} are selected, and the arrays have {extent}", selection.end());
                return Err(Error::argument(OP, name, why));
            }
        }
        let selected: [Arc<Selection>; ACROSS] =
            std::array::from_fn(|axis| if axis == 0 { Arc::clone(&columns) } else { whole(across[axis]) });
        let extents =
            std::array::from_fn(|axis| if axis == 0 { rows.len() } else { selected[axis - 1].len() });
        let along = boxes(along, first.shape().len(), extents)?;
        let mut plan = Self {
            is_cut: along.iter().any(|along| along.halo != [0; 2]),
            along,
            selected,
            rows,
            convert,
            bands: Vec::new(),
            across: Vec::new(),
            scratch: 0,
            fetched: 0,
            fetches: 0,
            lists: 0,
            arrays,
        };
        plan.find_bands()?;
        let most = |amount: fn(&dyn ChunkedArray) -> u64| {
            plan.arrays.iter().map(|array| amount(&**array)).max().unwrap_or(0)
        };
        plan.fetched = most(|array| array.fetched_bytes());
        plan.scratch = plan.fetched.saturating_add(most(|array| array.scratch_bytes()));
        if plan.is_cut {
            // A chunk is whole until it is decoded, and one at a time is cut while boxes use it.
            plan.scratch = plan.scratch.saturating_add(most(decoded_bytes));
            plan.lists = plan.lists.saturating_add(most(decoded_bytes) / 4 * 3);
        }
        plan.fetches = most(|array| array.fetches() as u64);
        Ok(plan)
    }

    /// The bands that have selected rows, and what is read across them.
    fn find_bands(&mut self) -> Result<()> {
        let (mut start, mut before, mut pieces, mut chunk) = (0u64, 0u64, 0u64, 0usize);
        for (i, array) in self.arrays.iter().enumerate() {
            let chunks = padded(array.chunk_shape());
            for (axis, (extent, chunk)) in array.shape().iter().zip(array.chunk_shape()).enumerate() {
                let claimed = extent.div_ceil(*chunk);
                if claimed > MAX_CHUNKS {
                    let why = format!(
                        "claims {claimed} chunks along axis {axis}; at most {MAX_CHUNKS} are believed"
                    );
                    return Err(Error::store(array.name(), why));
                }
            }
            let (mut across, mut count) = (<[Vec<u64>; ACROSS]>::default(), 1u64);
            let mut row_bytes = array.dtype().size() as u64;
            for axis in 1..AXES {
                let (mut most, mut widest) = (0, 0);
                for number in 0..self.count(axis) {
                    let box_pieces = self.pieces(i, axis, number);
                    most = most.max(box_pieces.chunks.len());
                    widest = widest
                        .max(box_pieces.ranges().into_iter().map(|range| range.end - range.start).sum());
                    pieces = pieces.max((box_pieces.pieces.len() * 40) as u64);
                    across[axis - 1].extend(box_pieces.chunks);
                }
                across[axis - 1].sort_unstable();
                across[axis - 1].dedup();
                count = count.saturating_mul(most as u64);
                row_bytes = row_bytes.saturating_mul(widest);
            }
            let tracking = count.saturating_mul(TRACKING);
            let bytes = count.saturating_mul(decoded_bytes(&**array)).saturating_add(tracking);
            let band_chunks =
                across.iter().fold(1usize, |product, chunks| product.saturating_mul(chunks.len()));
            let rows = array.shape()[0];
            let bands = rows.div_ceil(chunks[0]);
            for chunk_row in 0..bands {
                let first = start + chunk_row * chunks[0];
                let end = start + rows.min((chunk_row + 1).saturating_mul(chunks[0]));
                let rows = self.rows.before(first)..self.rows.before(end);
                if !rows.is_empty() {
                    let band =
                        Band { array: i, chunk_row, first, rows, bytes, tracking, row_bytes, before, chunk };
                    self.bands.push(band);
                    before = before.saturating_add(bytes);
                    chunk = chunk.saturating_add(band_chunks);
                }
            }
            start += rows;
            self.across.push(across);
        }
        let bands = size_of_val(self.bands.as_slice()) as u64;
        self.lists = bands.saturating_add(pieces).saturating_add((chunk as u64).saturating_mul(SCHEDULED));
        Ok(())
    }

    /// The number of selected rows.
    pub fn rows(&self) -> u64 {
        self.rows.len()
    }

    /// The row of the appended list that is the selected one of that number.
    ///
    /// # Panics
    /// When `number` is not below [`rows`](Self::rows).
    pub fn row(&self, number: u64) -> u64 {
        self.rows.place(number)
    }

    /// The array that the selected row of that number is in.
    ///
    /// # Panics
    /// When `number` is not below [`rows`](Self::rows).
    pub fn array_of(&self, number: u64) -> &Arc<dyn ChunkedArray> {
        assert!(number < self.rows(), "row {number} of {} that are selected", self.rows());
        self.array(self.bands[self.bands.partition_point(|band| band.rows.end <= number)].array)
    }

    /// Bytes that the selection holds.
    pub fn selection_bytes(&self) -> u64 {
        self.rows.bytes() + self.selected[0].bytes()
    }

    /// Rows of a box but for the last, without its halo.
    pub fn block_rows(&self) -> u64 {
        self.along[0].size
    }

    /// The number of arrays.
    pub fn arrays(&self) -> usize {
        self.arrays.len()
    }

    /// One of the arrays.
    ///
    /// # Panics
    /// When `index` is not below [`arrays`](Self::arrays).
    pub fn array(&self, index: usize) -> &Arc<dyn ChunkedArray> {
        &self.arrays[index]
    }

    /// The chunks of an array along the axes but the first that are read.
    pub(super) fn across(&self, array: usize) -> &[Vec<u64>; ACROSS] {
        &self.across[array]
    }

    pub(super) fn convert(&self) -> &dyn Convert {
        &*self.convert
    }

    pub(crate) fn bands(&self) -> &[Band] {
        &self.bands
    }

    /// The maximum number of elements of a box along each axis, its halo among them.
    pub(crate) fn box_shape(&self) -> Vec<u64> {
        let axes = self.arrays[0].shape().len();
        (0..axes).map(|axis| self.along[axis].most(self.extent(axis))).collect()
    }

    /// Bytes of a row of the widest box as staged.
    pub fn row_bytes(&self) -> u64 {
        let most = |axis: usize| self.along[axis].most(self.extent(axis));
        self.convert.bytes((1..AXES).map(most).product())
    }

    /// Bytes of the largest box as staged.
    pub fn block_bytes(&self) -> u64 {
        self.staged_bytes(self.block_rows())
    }

    /// Bytes of a box of so many rows, at least one, or of all if there are fewer, as staged.
    pub fn staged_bytes(&self, rows: u64) -> u64 {
        Along { size: rows.max(1), ..self.along[0] }.most(self.rows()).saturating_mul(self.row_bytes())
    }

    /// The minimum number of bytes that a pass takes: the decoded chunks of any one box, what decoding one of them takes besides, and the
    /// lists of what is read.
    pub fn largest_need(&self) -> u64 {
        self.largest_need_of(self.block_rows())
    }

    /// The minimum number of bytes that a pass takes in boxes of so many rows, at least one.
    pub fn largest_need_of(&self, rows: u64) -> u64 {
        self.chunks_of_box(rows).saturating_add(self.scratch).saturating_add(self.lists)
    }

    /// The maximum number of bytes of decoded chunks that are held for any one box of so many rows, at least one.
    pub(super) fn chunks_of_box(&self, rows: u64) -> u64 {
        let along = Along { size: rows.max(1), ..self.along[0] };
        let cut = |(band, rows): (usize, Range<u64>)| {
            let Band { tracking, row_bytes, .. } = &self.bands[band];
            tracking.saturating_add(row_bytes.saturating_mul(rows.end - rows.start))
        };
        let need = |number| -> u64 {
            if let (true, [array]) = (self.is_cut && along.edge == Edge::Clip, &self.arrays[..])
                && self.rows() == array.shape()[0]
            {
                // Neighbouring rows of chunks alike, of which boxes may be millions.
                let mut spans = along.spans(self.rows(), &along.core(self.rows(), number));
                let span = spans.next().unwrap_or(0..0);
                let bands = self.bands_of(&span);
                let Some(Band { tracking, row_bytes, .. }) = self.bands.get(bands.start) else { return 0 };
                let tracking = tracking.saturating_mul(bands.len() as u64);
                return tracking.saturating_add(row_bytes.saturating_mul(span.end - span.start));
            }
            if self.is_cut {
                return self.rows_of(&along, number).into_iter().map(cut).fold(0, u64::saturating_add);
            }
            self.needed(&along, number).into_iter().map(|bands| self.bytes(bands)).sum()
        };
        let boxes = along.count(self.rows());
        if self.is_cut || along.halo != [0; 2] || boxes <= self.bands.len() as u64 {
            return (0..boxes).map(need).max().unwrap_or(0);
        }
        // A box within a band needs no more than the one in which the band begins, and boxes may be many.
        let begins = |band: &Band| band.rows.start.saturating_sub(along.within[0]) / along.size;
        self.bands.iter().map(begins).filter(|number| *number < boxes).map(need).max().unwrap_or(0)
    }

    /// The bands that hold any of the rows of a box, and of each the rows of its chunks that the box needs.
    pub(super) fn rows_of(&self, along: &Along, number: u64) -> Vec<(usize, Range<u64>)> {
        let mut bands: Vec<(usize, Range<u64>)> = Vec::new();
        for span in along.spans(self.rows(), &along.core(self.rows(), number)) {
            for band in self.bands_of(&span) {
                let Band { array, first, rows, .. } = &self.bands[band];
                let place = |number: u64| self.row(number) - first;
                let (start, end) = (span.start.max(rows.start), span.end.min(rows.end));
                let within = place(start)..place(end - 1) + 1;
                bands
                    .push((band, if self.is_cut { within } else { 0..self.arrays[*array].chunk_shape()[0] }));
            }
        }
        bands.sort_by_key(|(band, _)| *band);
        bands.dedup_by(|(other, more), (band, rows)| {
            let same = other == band;
            if same {
                *rows = rows.start.min(more.start)..rows.end.max(more.end);
            }
            same
        });
        bands
    }

    /// True where elements of a chunk that no box needs any more are freed before its others.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Bytes of a range of bands.
    fn bytes(&self, bands: Range<usize>) -> u64 {
        let Some(last) = self.bands[bands.clone()].last() else { return 0 };
        last.before.saturating_add(last.bytes) - self.bands[bands.start].before
    }

    /// Bytes beyond [`largest_need`](Self::largest_need) that keep so many threads busy: room for each to decode in, and to decode ahead.
    pub fn ahead(&self, threads: u64) -> u64 {
        let band = self.bands.iter().map(|band| band.bytes).max().unwrap_or(0);
        let others = self.scratch.saturating_mul(threads.saturating_sub(1));
        // Decoders get half of what is beyond the least, and chunks that are fetched ahead a quarter.
        let bands =
            band.saturating_mul(threads.saturating_mul(2).saturating_add(2).saturating_add(self.fetches));
        let fetched = self.fetches.saturating_mul(self.fetched);
        bands.max(others).saturating_add(others).saturating_add(fetched).max(fetched.saturating_mul(4))
    }

    /// The amounts that a pass in boxes of `rows` rows may have under way on `threads` threads within `bytes` bytes.
    pub(crate) fn at_once(&self, threads: usize, rows: u64, bytes: u64) -> AtOnce {
        let spare = bytes.saturating_sub(self.largest_need_of(rows));
        let within = |share: u64, unit: u64, most: u64| share.checked_div(unit).unwrap_or(u64::MAX).min(most);
        let others = within(spare / 2, self.scratch, threads.saturating_sub(1) as u64);
        let waiting = within(spare / 4, self.fetched, self.fetches);
        let taken = (1 + others) * self.scratch + waiting * self.fetched;
        let count = |n: u64| usize::try_from(n).unwrap_or(threads);
        AtOnce {
            decoders: count(1 + others),
            fetches: count(self.fetches.min(1 + others + waiting)),
            fetched: count(1 + others + waiting),
            bytes: bytes.saturating_sub(taken).saturating_sub(self.lists),
        }
    }

    /// The elements of each box along each axis without its halo, by numbers among the selected, in C order.
    pub fn boxes(&self) -> impl Iterator<Item = Vec<Range<u64>>> {
        let axes = self.arrays[0].shape().len();
        let counts: [u64; AXES] = std::array::from_fn(|axis| match axis {
            0 => self.along[0].count(self.rows()),
            axis => self.count(axis),
        });
        (0..counts.iter().product()).map(move |number: u64| {
            let mut rest = number;
            let mut cores: Vec<_> = (0..AXES)
                .rev()
                .map(|axis| {
                    let at = rest % counts[axis];
                    rest /= counts[axis];
                    self.along[axis].core(self.extent(axis), at)
                })
                .collect();
            cores.reverse();
            cores.truncate(axes);
            cores
        })
    }

    pub(super) fn along(&self, axis: usize) -> &Along {
        &self.along[axis]
    }

    /// Elements along an axis that are selected.
    pub(super) fn extent(&self, axis: usize) -> u64 {
        if axis == 0 { self.rows() } else { self.selected[axis - 1].len() }
    }

    /// Boxes along an axis but the first: one of none, if it has no elements.
    pub(super) fn count(&self, axis: usize) -> u64 {
        self.along[axis].count(self.extent(axis)).max(1)
    }

    /// The pieces of a box along an axis but the first.
    pub(super) fn pieces(&self, array: usize, axis: usize, number: u64) -> Pieces {
        let (along, extent) = (&self.along[axis], self.extent(axis));
        let spans = along.spans(extent, &along.core(extent, number));
        Pieces::new(&self.selected[axis - 1], spans, padded(self.arrays[array].chunk_shape())[axis])
    }

    /// The bands that hold any of the rows of a box, its halo among them: ranges in ascending order, apart from each other.
    pub(super) fn needed(&self, along: &Along, number: u64) -> Vec<Range<usize>> {
        let spans = along.spans(self.rows(), &along.core(self.rows(), number));
        let mut bands: Vec<Range<usize>> = spans.map(|rows| self.bands_of(&rows)).collect();
        bands.sort_unstable_by_key(|bands| bands.start);
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(bands.len());
        for range in bands {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }

    /// The bands that hold any of the rows.
    pub(super) fn bands_of(&self, rows: &Range<u64>) -> Range<usize> {
        let first = self.bands.partition_point(|band| band.rows.end <= rows.start);
        let end = self.bands.partition_point(|band| band.rows.start < rows.end);
        first..end
    }
}

/// Refuses an array that has not the axes of the first, or no chunks.
fn check(array: &dyn ChunkedArray, first: &dyn ChunkedArray) -> Result<()> {
    let (shape, chunk) = (array.shape(), array.chunk_shape());
    let rest = |shape: &[u64]| shape.get(1..).map(<[u64]>::to_vec);
    let fits = (1..=AXES).contains(&shape.len()) && chunk.len() == shape.len();
    if !fits || rest(shape) != rest(first.shape()) {
        let expected = format!("1 to {AXES} axes, rows of {:?} as in {}", rest(first.shape()), first.name());
        return Err(Error::shape(OP, expected, format_args!("{shape:?} in {}", array.name())));
    }
    if chunk.contains(&0) {
        let got = format_args!("{chunk:?} in {}", array.name());
        return Err(Error::shape(OP, "chunks of at least one element", got));
    }
    Ok(())
}

/// The boxes along every axis.
fn boxes(given: &[Along], axes: usize, extents: [u64; AXES]) -> Result<[Along; AXES]> {
    let refuse = |why: String| Err(Error::argument(OP, "boxes", why));
    if given.len() > axes {
        return refuse(format!("of {} axes, and the arrays have {axes}", given.len()));
    }
    let along: [Along; AXES] = std::array::from_fn(|axis| {
        given.get(axis).copied().unwrap_or_else(|| Along::each(extents[axis].max(1)))
    });
    let mut elements = 1u64;
    for (axis, (along, extent)) in along.iter().zip(extents).enumerate() {
        if along.size == 0 {
            return refuse(format!("have no elements along axis {axis}"));
        }
        if along.within[0] > along.within[1] {
            return refuse(format!(
                "lie within {:?} along axis {axis}, which ends before it begins",
                along.within
            ));
        }
        let wraps = along.halo.iter().any(|&halo| halo > extent.saturating_mul(MAX_WRAPS));
        if along.edge == Edge::Wrap && extent > 0 && wraps {
            let halo = along.halo;
            return refuse(format!(
                "have a halo of {halo:?} along axis {axis}: more than {MAX_WRAPS} times its {extent} elements"
            ));
        }
        let most = along.most(extent);
        match elements.checked_mul(most.max(1)).filter(|_| most < 1 << 62) {
            Some(product) => elements = product,
            None => return refuse(format!("of {along:?} along axis {axis} have 2^64 elements")),
        }
    }
    Ok(along)
}

/// Bytes of a decoded chunk.
pub(super) fn decoded_bytes(array: &dyn ChunkedArray) -> u64 {
    let size = array.dtype().size() as u64;
    array.chunk_shape().iter().fold(size, |bytes, &extent| bytes.saturating_mul(extent))
}

/// An extent for each axis; 1 for those that are not there.
pub(super) fn padded(shape: &[u64]) -> [u64; AXES] {
    std::array::from_fn(|axis| shape.get(axis).copied().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StoredType, store::MemoryArray, stream::AsStored};

    fn plan(rows_and_chunks: &[(u64, u64)], block_rows: u64) -> Plan {
        let array = |&(rows, chunk): &(u64, u64)| -> Arc<dyn ChunkedArray> {
            let values = vec![0i8; usize::try_from(5 * rows).unwrap()];
            Arc::new(MemoryArray::new("array", &values, &[rows, 5], &[chunk, 2]).unwrap())
        };
        let rows = rows_and_chunks.iter().map(|(rows, _)| rows).sum();
        let arrays = rows_and_chunks.iter().map(array).collect();
        Plan::of_rows(
            arrays,
            Arc::new(Selection::all(rows)),
            None,
            Arc::new(AsStored(StoredType::I8)),
            block_rows,
        )
        .unwrap()
    }

    /// The least that a pass takes is that of the block with the most bands, whatever chunks and blocks are.
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

    /// Boxes of no rows count as those of one, and of rows that are not there nothing is told.
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

    /// The array has 5 columns in chunks of 2, three a band.
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
        // All threads decode if there is memory for all.
        for scratch in [1, 1000, 1 << 20] {
            plan.scratch = scratch;
            for rows in [10, 40] {
                assert_eq!(decoders(&plan, 64, rows, plan.largest_need_of(rows) + plan.ahead(64)).0, 64);
            }
        }
    }
}
