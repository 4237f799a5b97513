//! A plan of a pass: the chunks that hold each box.

mod in_place;
mod memory;
#[cfg(test)]
mod tests;

use std::{
    ops::Range,
    sync::{Arc, atomic::AtomicU64},
};

pub(crate) use self::memory::AtOnce;
use super::{
    boxes::{ACROSS, AXES, Along, Pieces, along_axes},
    convert::Convert,
    kept::KeptChunks,
    selection::Selection,
};
use crate::{ChunkedArray, Error, Result, Shards, extent::index_at};

const OP: &str = "stream";

/// The maximum number of chunks of an array along an axis, or of shards if chunks are in these; metadata that claim more are taken to be
/// damaged.
pub const MAX_CHUNKS: u64 = 1 << 20;

/// The maximum number of chunks along an axis, if they are in shards, of which [`MAX_CHUNKS`] are believed.
const MAX_CHUNKS_IN_SHARDS: u64 = 4 * MAX_CHUNKS;

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
    pub(super) kept: Arc<KeptChunks>,
    bands: Vec<Band>,
    /// For each array, the indices of the chunks that are read, along each axis except the first.
    across: Vec<[Vec<u64>; ACROSS]>,
    /// The most bytes that reading a chunk takes besides the chunk: its fetched bytes, and scratch memory of the decoding.
    scratch: u64,
    /// The part of `scratch` for fetched bytes, and the number of chunks to fetch concurrently, ahead of their decoding.
    fetched: u64,
    fetches: u64,
    /// The shards of each array, if its chunks are in shards, and the bytes of memory for those that need not be read as a whole.
    shards: Vec<Option<Shards>>,
    shard_room: AtomicU64,
    /// The bytes of the lists of bands, pieces and chunks, of the indexes of shards, and of the copy that is made when a chunk is cut.
    lists: u64,
    /// True for each array whose elements are read where they are stored, so that no chunks are held.
    in_place: Vec<bool>,
    /// True if boxes have halos. Parts of a chunk that no box needs any more are then freed before the rest of the chunk.
    is_cut: bool,
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
    /// The part of `bytes` for bookkeeping; and the most bytes of a row, if only the part of each chunk that a box needs is held.
    tracking: u64,
    row_bytes: u64,
    /// The number of the band's first chunk among all chunks that are read.
    pub(super) chunk: usize,
}

impl Plan {
    /// Plans blocks of `block_rows` of the selected `rows` of `arrays`, with the selected `columns`, or with all if `columns` is `None`.
    /// `convert` defines the conversion of elements. The cost is that of [`new`](Self::new).
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
    /// more than `MAX_CHUNKS` chunks along an axis, or shards if chunks are in these.
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
        let along = along_axes(OP, along, first.shape().len(), extents)?;
        let mut plan = Self {
            in_place: vec![false; arrays.len()],
            shards: arrays.iter().map(|array| shards_of(&**array)).collect(),
            shard_room: AtomicU64::new(0),
            is_cut: along.iter().any(|along| along.halo != [0; 2]),
            along,
            selected,
            rows,
            convert,
            kept: Arc::default(),
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
        let indexes = plan.shards.iter().flatten().map(|shards| shards.index_bytes).sum::<u64>();
        plan.lists = plan.lists.saturating_add(indexes);
        plan.fetched = most(|array| array.fetched_bytes());
        plan.scratch = plan.fetched.saturating_add(most(|array| array.scratch_bytes()));
        // A chunk in bit planes is there until it is converted.
        let in_planes = plan.arrays.iter().filter(|array| plan.convert.takes_planes(&***array));
        let converted = in_planes.map(|array| plan.convert.bytes(decoded_bytes(&**array))).max();
        plan.scratch = plan.scratch.saturating_add(converted.unwrap_or(0));
        if plan.is_cut {
            // A chunk is whole until it is decoded, and one chunk at a time is cut while boxes use it.
            plan.scratch = plan.scratch.saturating_add(most(decoded_bytes));
            plan.lists = plan.lists.saturating_add(most(decoded_bytes) / 4 * 3);
        }
        plan.fetches = most(|array| array.fetches() as u64);
        Ok(plan)
    }

    /// True if boxes are whole rows, without halos.
    pub(super) fn has_whole_rows(&self) -> bool {
        !self.is_cut && (1..AXES).all(|axis| self.count(axis) == 1)
    }

    /// Finds the bands that have selected rows, and the chunks that are read along the other axes.
    fn find_bands(&mut self) -> Result<()> {
        let (mut start, mut pieces, mut chunk) = (0u64, 0u64, 0usize);
        for (i, array) in self.arrays.iter().enumerate() {
            let chunks = padded(array.chunk_shape());
            check_chunks(&**array, self.shards(i))?;
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
                    let band = Band { array: i, chunk_row, first, rows, bytes, tracking, row_bytes, chunk };
                    self.bands.push(band);
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

    pub(super) fn shards(&self, array: usize) -> Option<&Shards> {
        self.shards[array].as_ref()
    }

    pub(super) fn convert(&self) -> &Arc<dyn Convert> {
        &self.convert
    }

    pub(crate) fn bands(&self) -> &[Band] {
        &self.bands
    }

    /// Returns the maximum number of elements of a box along each axis, including its halo.
    pub(crate) fn box_shape(&self) -> Vec<u64> {
        let axes = self.arrays[0].shape().len();
        (0..axes).map(|axis| self.along[axis].most(self.extent(axis))).collect()
    }

    /// Returns the bands that hold any row of a box or its halo, in ascending order, with the rows of each band's chunks that are held for the box.
    pub(super) fn rows_of(&self, along: &Along, number: u64) -> Vec<(usize, Range<u64>)> {
        let mut bands: Vec<(usize, Range<u64>)> = Vec::new();
        for span in along.spans(self.rows(), &along.core(self.rows(), number)) {
            for band in self.bands_of(&span) {
                let Band { array, first, rows, .. } = &self.bands[band];
                let place = |number: u64| self.row(number) - first;
                let (start, end) = (span.start.max(rows.start), span.end.min(rows.end));
                let held = match self.is_cut {
                    true => place(start)..place(end - 1) + 1,
                    false => 0..self.arrays[*array].chunk_shape()[0],
                };
                bands.push((band, held));
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

    /// Returns the core of each box in C order: its range along each axis, without its halo, as indices among the selected elements.
    pub fn boxes(&self) -> impl Iterator<Item = Vec<Range<u64>>> {
        let axes = self.arrays[0].shape().len();
        let counts: [u64; AXES] = std::array::from_fn(|axis| match axis {
            0 => self.along[0].count(self.rows()),
            axis => self.count(axis),
        });
        (0..counts.iter().product()).map(move |number| {
            let place = index_at(number, &counts);
            (0..axes).map(|axis| self.along[axis].core(self.extent(axis), place[axis])).collect::<Vec<_>>()
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

    /// Returns the bands that hold any of these rows.
    pub(super) fn bands_of(&self, rows: &Range<u64>) -> Range<usize> {
        let first = self.bands.partition_point(|band| band.rows.end <= rows.start);
        let end = self.bands.partition_point(|band| band.rows.start < rows.end);
        first..end
    }
}

/// Returns the shards of an array; `None` also for shards that do not fit its axes.
fn shards_of(array: &dyn ChunkedArray) -> Option<Shards> {
    let fits = |of: &Shards| of.chunks.len() == array.shape().len() && !of.chunks.contains(&0);
    array.shards().filter(fits)
}

/// Refuses an array that claims too many chunks, or shards, along an axis.
fn check_chunks(array: &dyn ChunkedArray, shards: Option<&Shards>) -> Result<()> {
    for (axis, (extent, chunk)) in array.shape().iter().zip(array.chunk_shape()).enumerate() {
        let claimed = extent.div_ceil(*chunk);
        let in_shards = shards.map(|of| ("shards", claimed.div_ceil(of.chunks[axis]), MAX_CHUNKS));
        let most = if shards.is_some() { MAX_CHUNKS_IN_SHARDS } else { MAX_CHUNKS };
        let mut all = in_shards.into_iter().chain([("chunks", claimed, most)]);
        if let Some((what, claimed, most)) = all.find(|(_, claimed, most)| claimed > most) {
            let why = format!("claims {claimed} {what} along axis {axis}; at most {most} are believed");
            return Err(Error::store(array.name(), why));
        }
    }
    Ok(())
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

pub(super) fn decoded_bytes(array: &dyn ChunkedArray) -> u64 {
    let size = array.dtype().size() as u64;
    array.chunk_shape().iter().fold(size, |bytes, &extent| bytes.saturating_mul(extent))
}

/// Returns an extent for each axis; 1 for axes that the array lacks.
pub(super) fn padded(shape: &[u64]) -> [u64; AXES] {
    std::array::from_fn(|axis| shape.get(axis).copied().unwrap_or(1))
}
