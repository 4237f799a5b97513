//! A plan of a pass: the chunks that hold each box.

use std::{ops::Range, sync::Arc};

use super::{
    boxes::{ACROSS, AXES, Along, Edge, Pieces},
    convert::Convert,
    selection::Selection,
};
use crate::{ChunkedArray, Error, Result};

const OP: &str = "stream";

/// The maximum number of chunks of an array along an axis; metadata that claim more are taken to be damaged.
pub const MAX_CHUNKS: u64 = 1 << 20;

/// The maximum number of times that a halo wraps around an axis, since each wrap is processed separately.
const MAX_WRAPS: u64 = 1 << 10;

/// The bytes of bookkeeping for a chunk, from its decoding task to its entry among the decoded chunks.
pub(super) const TRACKING: u64 = 384;

/// The bytes of bookkeeping for each chunk, held or not: whether it was read, and which boxes need it.
const SCHEDULED: u64 = 64;

/// A plan of a pass: arrays of 1 to 5 axes, concatenated along the first, are read in boxes of selected rows (elements of the first axis)
/// and selected columns (elements of the second axis).
///
/// Rows and columns are identified by their indices among the selected ones. Chunks without a selected row or column are not read. A box
/// is staged row by row, as the converted elements of each row.
#[derive(Debug)]
pub struct Plan {
    arrays: Vec<Arc<dyn ChunkedArray>>,
    rows: Arc<Selection>,
    /// The selected elements of each axis except the first.
    selected: [Arc<Selection>; ACROSS],
    along: [Along; AXES],
    convert: Arc<dyn Convert>,
    bands: Vec<Band>,
    /// For each array, the indices of the chunks that are read, along each axis except the first.
    across: Vec<[Vec<u64>; ACROSS]>,
    /// The maximum number of bytes that reading one chunk takes in addition to the chunk: its fetched bytes, and scratch memory of the
    /// decoding.
    scratch: u64,
    /// The part of `scratch` for fetched bytes, and the number of chunks to fetch concurrently, ahead of their decoding.
    fetched: u64,
    fetches: u64,
    /// The bytes of the lists of bands, pieces and chunks, and of the copy that is made when a chunk is cut.
    lists: u64,
    /// True if boxes have halos. Parts of a chunk that no box needs any more are then freed before the rest of the chunk.
    is_cut: bool,
}

/// The amounts of work that a pass may have in progress at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtOnce {
    /// The number of chunks being decoded.
    pub(crate) decoders: usize,
    /// The number of threads dedicated to fetching; 0 if the decoding thread fetches its own chunk.
    pub(crate) fetches: usize,
    /// The number of chunks that are being fetched, are fetched or are being decoded, if chunks are fetched ahead.
    pub(crate) fetched: usize,
    /// The maximum number of bytes of decoded chunks.
    pub(crate) bytes: u64,
}

/// The chunks of one array that share a range of rows.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    pub(crate) array: usize,
    /// The band's index along the first axis of the chunk grid.
    pub(crate) chunk_row: u64,
    /// The first row of the band's chunks, as an index into the concatenated arrays.
    pub(super) first: u64,
    /// The selected rows that the band holds.
    pub(crate) rows: Range<u64>,
    /// The maximum number of bytes of the band's decoded chunks that one box needs, including their bookkeeping.
    pub(crate) bytes: u64,
    /// The part of `bytes` for bookkeeping; and the maximum number of bytes of a row, if only the part of each chunk that a box needs is
    /// held.
    tracking: u64,
    row_bytes: u64,
    /// The number of bytes of all bands before this one.
    before: u64,
    /// The number of the band's first chunk among all chunks that are read.
    pub(super) chunk: usize,
}

impl Plan {
    /// Plans blocks of `block_rows` of the selected `rows` of `arrays`, with the selected `columns`, or with all if `columns` is `None`.
    /// `convert` defines the conversion of elements.
    ///
    /// # Cost
    /// See [`new`](Self::new).
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn of_rows(
        arrays: Vec<Arc<dyn ChunkedArray>>,
        rows: Arc<Selection>,
        columns: Option<Arc<Selection>>,
        convert: Arc<dyn Convert>,
        block_rows: u64,
    ) -> Result<Self> {
        Self::new(arrays, rows, columns, convert, &[Along::each(block_rows)])
    }

    /// Plans boxes of the selected `rows` and `columns` of `arrays`, whose shapes may differ only in the first extent; `None` selects all
    /// columns. `convert` defines the conversion of elements, `along` the boxes along each axis; further axes are not divided.
    ///
    /// # Cost
    /// Reads nothing. Holds some 100 bytes for each chunk along the first axis, and [the memory of the selections](Selection::bytes).
    ///
    /// # Errors
    /// [`Error::Shape`] when the arrays' shapes do not agree, or have no axes or more than five; [`Error::Argument`] for rows or columns
    /// that the arrays do not have, for boxes that are empty, are too large to count, have more axes than the arrays, or end before they
    /// begin, and for halos that wrap an axis more than 1024 times; [`Error::Store`] for a type that `convert` does not accept, and for
    /// more than `MAX_CHUNKS` chunks along an axis.
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
            // A chunk is whole until it is decoded, and one chunk at a time is cut while boxes use it.
            plan.scratch = plan.scratch.saturating_add(most(decoded_bytes));
            plan.lists = plan.lists.saturating_add(most(decoded_bytes) / 4 * 3);
        }
        plan.fetches = most(|array| array.fetches() as u64);
        Ok(plan)
    }

    /// Finds the bands that have selected rows, and the chunks that are read along the other axes.
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

    /// Returns the number of selected rows.
    pub fn rows(&self) -> u64 {
        self.rows.len()
    }

    /// Returns the index, in the concatenated arrays, of the selected row `number`.
    ///
    /// # Panics
    /// When `number` is not below [`rows`](Self::rows).
    pub fn row(&self, number: u64) -> u64 {
        self.rows.place(number)
    }

    /// Returns the array that holds the selected row `number`.
    ///
    /// # Panics
    /// When `number` is not below [`rows`](Self::rows).
    pub fn array_of(&self, number: u64) -> &Arc<dyn ChunkedArray> {
        assert!(number < self.rows(), "row {number} of {} that are selected", self.rows());
        self.array(self.bands[self.bands.partition_point(|band| band.rows.end <= number)].array)
    }

    /// Returns the number of bytes of memory that the selections hold.
    pub fn selection_bytes(&self) -> u64 {
        self.rows.bytes() + self.selected[0].bytes()
    }

    /// Returns the number of rows of a box without its halo; the last box may have fewer.
    pub fn block_rows(&self) -> u64 {
        self.along[0].size
    }

    /// Returns the number of arrays.
    pub fn arrays(&self) -> usize {
        self.arrays.len()
    }

    /// Returns the array at `index`.
    ///
    /// # Panics
    /// When `index` is not below [`arrays`](Self::arrays).
    pub fn array(&self, index: usize) -> &Arc<dyn ChunkedArray> {
        &self.arrays[index]
    }

    /// Returns the indices of an array's chunks that are read, along each axis except the first.
    pub(super) fn across(&self, array: usize) -> &[Vec<u64>; ACROSS] {
        &self.across[array]
    }

    pub(super) fn convert(&self) -> &dyn Convert {
        &*self.convert
    }

    pub(crate) fn bands(&self) -> &[Band] {
        &self.bands
    }

    /// Returns the maximum number of elements of a box along each axis, including its halo.
    pub(crate) fn box_shape(&self) -> Vec<u64> {
        let axes = self.arrays[0].shape().len();
        (0..axes).map(|axis| self.along[axis].most(self.extent(axis))).collect()
    }

    /// Returns the number of bytes of a row of the widest box as staged.
    pub fn row_bytes(&self) -> u64 {
        let most = |axis: usize| self.along[axis].most(self.extent(axis));
        self.convert.bytes((1..AXES).map(most).product())
    }

    /// Returns the number of bytes of the largest box as staged.
    pub fn block_bytes(&self) -> u64 {
        self.staged_bytes(self.block_rows())
    }

    /// Returns the number of bytes, as staged, of a box of `rows` rows (at least one, and at most all rows).
    pub fn staged_bytes(&self, rows: u64) -> u64 {
        Along { size: rows.max(1), ..self.along[0] }.most(self.rows()).saturating_mul(self.row_bytes())
    }

    /// Returns the minimum number of bytes that a pass takes: for the decoded chunks of any one box, for scratch memory to decode a
    /// chunk, and for the lists of what is read.
    pub fn largest_need(&self) -> u64 {
        self.largest_need_of(self.block_rows())
    }

    /// Returns the minimum number of bytes that a pass takes in boxes of `rows` rows (at least one).
    pub fn largest_need_of(&self, rows: u64) -> u64 {
        self.chunks_of_box(rows).saturating_add(self.scratch).saturating_add(self.lists)
    }

    /// Returns the maximum number of bytes of decoded chunks that are held for any one box of `rows` rows (at least one).
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
                // All rows of chunks are alike and adjacent here, so this avoids a list of bands for each of perhaps millions of boxes.
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
        // A box within a band needs no more than the box in which the band begins, so only these are checked: there may be many boxes.
        let begins = |band: &Band| band.rows.start.saturating_sub(along.within[0]) / along.size;
        self.bands.iter().map(begins).filter(|number| *number < boxes).map(need).max().unwrap_or(0)
    }

    /// Returns the bands that hold any row of a box, with the rows of each band's chunks that the box needs.
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

    /// True if parts of a chunk that no box needs any more are freed before the rest of the chunk.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the number of bytes of a range of bands.
    fn bytes(&self, bands: Range<usize>) -> u64 {
        let Some(last) = self.bands[bands.clone()].last() else { return 0 };
        last.before.saturating_add(last.bytes) - self.bands[bands.start].before
    }

    /// Returns the bytes beyond [`largest_need`](Self::largest_need) that keep `threads` threads busy: scratch memory for each thread,
    /// and room to decode ahead.
    pub fn ahead(&self, threads: u64) -> u64 {
        let band = self.bands.iter().map(|band| band.bytes).max().unwrap_or(0);
        let others = self.scratch.saturating_mul(threads.saturating_sub(1));
        // Decoders get half of the bytes beyond the minimum, and chunks that are fetched ahead get a quarter.
        let bands =
            band.saturating_mul(threads.saturating_mul(2).saturating_add(2).saturating_add(self.fetches));
        let fetched = self.fetches.saturating_mul(self.fetched);
        bands.max(others).saturating_add(others).saturating_add(fetched).max(fetched.saturating_mul(4))
    }

    /// Returns the amounts that a pass in boxes of `rows` rows may have in progress on `threads` threads within `bytes` bytes.
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

    /// Returns the core of each box in C order: its range along each axis, without its halo, as indices among the selected elements.
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

    /// Returns the number of selected elements along an axis.
    pub(super) fn extent(&self, axis: usize) -> u64 {
        if axis == 0 { self.rows() } else { self.selected[axis - 1].len() }
    }

    /// Returns the number of boxes along an axis except the first; an axis without elements has one empty box.
    pub(super) fn count(&self, axis: usize) -> u64 {
        self.along[axis].count(self.extent(axis)).max(1)
    }

    /// Returns the pieces of a box along an axis except the first.
    pub(super) fn pieces(&self, array: usize, axis: usize, number: u64) -> Pieces {
        let (along, extent) = (&self.along[axis], self.extent(axis));
        let spans = along.spans(extent, &along.core(extent, number));
        Pieces::new(&self.selected[axis - 1], spans, padded(self.arrays[array].chunk_shape())[axis])
    }

    /// Returns the bands that hold any row of a box or its halo, as disjoint ranges in ascending order.
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

    /// Returns the bands that hold any of these rows.
    pub(super) fn bands_of(&self, rows: &Range<u64>) -> Range<usize> {
        let first = self.bands.partition_point(|band| band.rows.end <= rows.start);
        let end = self.bands.partition_point(|band| band.rows.start < rows.end);
        first..end
    }
}

/// Refuses an array whose extents after the first axis differ from those of `first`, or that has empty chunks.
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

/// Returns the boxes along every axis.
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

/// Returns the number of bytes of a decoded chunk.
pub(super) fn decoded_bytes(array: &dyn ChunkedArray) -> u64 {
    let size = array.dtype().size() as u64;
    array.chunk_shape().iter().fold(size, |bytes, &extent| bytes.saturating_mul(extent))
}

/// Returns an extent for each axis; 1 for axes that the array lacks.
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
}
