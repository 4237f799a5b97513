//! Columns of strings and integers, such as names and positions, each read as a whole.

mod values;

use std::{borrow::Cow, collections::BTreeMap, ops::Range, sync::Arc};

use self::values::{Values, fill, parse};
use super::{
    codec::MAX_TEXT_BYTES,
    guard::{Decoded, Fault},
    metadata::Metadata,
    node::Node,
    stored::StoredArray,
};
use crate::{Budget, Error, Result, Shards, WholeShard, extent::to_usize, store::Storage};

/// The maximum number of elements in one row.
const MAX_ROW: u64 = 1 << 16;

/// True if the bytes of a decoded chunk parse as its number of elements.
pub(super) fn is_text(metadata: &Metadata, bytes: &[u8]) -> bool {
    parse(metadata, bytes).is_ok()
}

/// A column in memory: an array of strings or integers from a Zarr v2 or v3 store, whose first axis is the rows; it may have a second axis.
/// [`NewStore`](super::NewStore) has an example.
///
/// Strings are UTF-8 with the codec `vlen-utf8`, or of a fixed length: UTF-32, or UTF-8 padded with zeros. Integers may have any type,
/// but their values must be below 2^63. The supported codecs are those of [`ZarrArray`](super::ZarrArray), and damage is an error as for
/// that type.
#[derive(Debug)]
pub struct Column {
    name: String,
    /// The column's path within the store.
    path: Box<str>,
    shape: [u64; 2],
    chunk: [u64; 2],
    /// The elements of each chunk, in C order; `None` for a chunk that was left out.
    chunks: Vec<Option<Values>>,
    /// The fill value as the only element, if the column can have such an element.
    fill: Option<Values>,
    gaps: Gaps,
}

/// The chunks that were missing and were filled.
#[derive(Debug, Default)]
struct Gaps {
    /// The numbers of filled chunks and of present chunks, by the column of the array at which the chunks start.
    columns: BTreeMap<u64, [u64; 2]>,
    /// The rows whose first element was filled, in ascending order.
    rows: Vec<Range<u64>>,
}

impl Gaps {
    /// Records a chunk that starts at `column` of the array.
    fn note(&mut self, column: u64, rows: Range<u64>, there: bool) {
        self.columns.entry(column).or_default()[usize::from(there)] += 1;
        match self.rows.last_mut() {
            _ if there || column > 0 => {}
            Some(last) if last.end == rows.start => last.end = rows.end,
            _ => self.rows.push(rows),
        }
    }
}

impl Column {
    /// Reads the column at `path` within `storage`; returns `None` if nothing is there. Reads and decodes the chunks one after another on
    /// the calling thread.
    ///
    /// `left_out` says whether a writer may have left out chunks that hold only the fill value. Its
    /// arguments are the column of the array at which the chunk starts, and the fill value (the digits of an integer).
    /// Missing chunks that `left_out` accepts are read as the fill value. Other missing chunks are lost, which is an error.
    ///
    /// The column, together with the memory for decoding a chunk, may take half of the host's memory that `memory` allows.
    ///
    /// # Errors
    /// - [`Error::Store`]: a group; an array of another rank, without columns or with more than 65536; the errors of
    ///   [`ZarrArray::open`](super::ZarrArray::open), except that strings are allowed.
    /// - [`Error::Budget`]: the column takes more memory than allowed.
    /// - [`Error::Chunk`] and [`Error::OutOfHostMemory`]: a chunk is lost, damaged, or cannot be read, or holds numbers other than
    ///   integers below 2^63.
    /// - [`Error::Io`]: the metadata cannot be read.
    pub fn read_in(
        storage: &Arc<dyn Storage>,
        path: &str,
        left_out: &dyn Fn(u64, &str) -> bool,
        memory: &Budget,
    ) -> Result<Option<Self>> {
        if Node::at(&**storage, path)? == Node::Absent {
            return Ok(None);
        }
        let array = StoredArray::open(storage, path)?;
        let Metadata { shape, chunk_shape, .. } = &array.metadata;
        let refuse = |why: String| Err(Error::store(array.name(), why));
        let shape = match **shape {
            [rows] => [rows, 1],
            [(1..), 0] => return refuse("its rows are empty".into()),
            [rows, width] if width <= MAX_ROW => [rows, width],
            _ => return refuse(format!("its shape {shape:?} is not that of a column")),
        };
        let mut column = Self {
            name: array.name().to_owned(),
            path: path.into(),
            shape,
            chunk: [chunk_shape[0], chunk_shape.get(1).copied().unwrap_or(1)],
            chunks: Vec::new(),
            fill: fill(&array.metadata),
            gaps: Gaps::default(),
        };
        column.read(array, left_out, memory)?;
        Ok(Some(column))
    }

    /// Reads all chunks within the budget. If strings exceed it, reading goes on to count the bytes that they need.
    fn read(
        &mut self,
        mut array: StoredArray,
        left_out: &dyn Fn(u64, &str) -> bool,
        memory: &Budget,
    ) -> Result<()> {
        let memory = memory.fit_host(0)?;
        // Since `read` uses half of the remaining memory, twice the bytes, plus one, are certain not to fit.
        let over = |bytes: u64| memory.fit_host(bytes.saturating_mul(2).saturating_add(1)).map(drop);
        let (allowed, grid, axes) = (memory.left_of_host() / 2, self.grid(), array.metadata.shape.len());
        let (spec, codecs, shards) = (&array.metadata.spec, &array.metadata.codecs, array.shards());
        let (is_text, count, bytes) = (spec.size == 0, spec.count() as u64, spec.bytes() as u64);
        // A chunk of text counts four times, with four bytes of length per string: stored, decoded, parsed, and as scratch memory of blosc.
        let need = if is_text {
            4 * 4 * count
        } else {
            2 * bytes + codecs.fetched(spec) + array.scratch() + 8 * count
        };
        let shard = shards
            .as_ref()
            .map_or([1; 2], |shards| [shards.chunks[0], shards.chunks.get(1).copied().unwrap_or(1)]);
        // Shards of the same rows are read whole, if there is room for them, or if they have to be.
        let of_rows = |shards: &Shards| shards.bytes.saturating_mul(grid[1].div_ceil(shard[1]));
        let (must, of_rows) =
            shards.as_ref().map_or((false, 0), |shards| (shards.are_whole, of_rows(shards)));
        let mut need = need + shards.as_ref().map_or(0, |shards| shards.index_bytes);
        need = need.saturating_add(if must { of_rows } else { 0 });
        let chunks = grid[0].saturating_mul(grid[1]);
        let mut held = chunks.saturating_mul(size_of::<Option<Values>>() as u64);
        let most = held.saturating_add(chunks.saturating_mul(bytes + 8 * count)).saturating_add(need);
        let mut peak = held.saturating_add(need);
        if peak > allowed {
            return over(most);
        }
        let mut whole = Vec::new();
        let are_whole = must || of_rows > 0 && most.saturating_add(of_rows) <= allowed;
        need += if are_whole && !must { of_rows } else { 0 };
        for (down, right) in (0..grid[0]).flat_map(|down| (0..grid[1]).map(move |right| (down, right))) {
            if are_whole && right == 0 && down % shard[0] == 0 {
                whole = (0..grid[1].div_ceil(shard[1])).map(|_| WholeShard::default()).collect();
            }
            let whole = whole.get(to_usize(right / shard[1]));
            if !is_text && held + need > allowed {
                return over(most);
            }
            let index = &[down, right][..axes];
            let (values, took) = loop {
                let used = if peak > allowed { 0 } else { held };
                if is_text {
                    array.metadata.spec.text = MAX_TEXT_BYTES.min(to_usize((allowed - used) / 4));
                }
                match self.chunk(&array, index, whole, left_out) {
                    Err(Fault::Large(bytes, _)) if is_text && bytes <= MAX_TEXT_BYTES as u64 => {
                        peak = peak.max(held.saturating_add(4 * bytes));
                        if used == 0 {
                            return over(peak);
                        }
                        // From now on nothing is kept, and the remaining chunks are only counted.
                        peak = peak.max(allowed + 1);
                        self.chunks = Vec::new();
                    }
                    chunk => break chunk.map_err(|fault| array.error(index, fault))?,
                }
            };
            if is_text {
                peak = peak.max(held + 4 * took);
            }
            held += values.as_ref().map_or(0, Values::bytes);
            if peak <= allowed {
                self.chunks.push(values);
            } else {
                self.chunks = Vec::new();
            }
        }
        if peak > allowed { over(peak) } else { Ok(()) }
    }

    /// Returns the number of chunks along each axis.
    fn grid(&self) -> [u64; 2] {
        [0, 1].map(|axis| self.shape[axis].div_ceil(self.chunk[axis]))
    }

    /// Returns the elements of a chunk (`None` if it was left out) and its number of bytes, stored or decoded, whichever is larger.
    fn chunk(
        &mut self,
        array: &StoredArray,
        index: &[u64],
        whole: Option<&WholeShard>,
        left_out: &dyn Fn(u64, &str) -> bool,
    ) -> Decoded<(Option<Values>, u64)> {
        let metadata = &array.metadata;
        let (row, first) = (index[0] * self.chunk[0], index.get(1).map_or(0, |right| right * self.chunk[1]));
        let fill = self.fill.as_ref().and_then(|fill| fill.text(0));
        let chunk = array.decode(array.fetch(index, whole)?, false)?;
        let is_lost = chunk.is_none() && !fill.is_some_and(|fill| left_out(first, &fill));
        if is_lost {
            return Err(Fault::Missing("it is missing from the store".to_owned()));
        }
        self.gaps.note(first, row..self.shape[0].min(row + self.chunk[0]), chunk.is_some());
        let Some((chunk, _)) = chunk else { return Ok((None, 0)) };
        Ok((Some(parse(metadata, &chunk.bytes)?), chunk.stored.max(chunk.bytes.len() as u64)))
    }

    /// Returns the number of bytes of host memory that the column takes.
    pub fn bytes(&self) -> u64 {
        let place = size_of::<Option<Values>>() as u64;
        self.chunks.iter().map(|values| place + values.as_ref().map_or(0, Values::bytes)).sum()
    }

    /// Returns the number of rows, the extent of the first axis.
    pub fn rows(&self) -> u64 {
        self.shape[0]
    }

    /// Returns the column's path within the store, as it was read.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the number of chunks that were missing from the store and were read as the fill value.
    pub fn filled(&self) -> u64 {
        self.gaps.columns.values().map(|[filled, _]| filled).sum()
    }

    /// True if some filled chunks start at a column of the array within `range`.
    pub fn is_filled_in(&self, range: Range<u64>) -> bool {
        self.gaps.columns.range(range).any(|(_, [filled, _])| *filled > 0)
    }

    /// Returns the rows whose first element was in a filled chunk, in ascending order.
    pub fn filled_rows(&self) -> &[Range<u64>] {
        &self.gaps.rows
    }

    /// True if some filled chunks might have held other values: among the chunks that start at the same column of the array, some were
    /// filled and some are present.
    pub fn is_doubtful(&self) -> bool {
        self.gaps.columns.values().any(|[filled, there]| *filled > 0 && *there > 0)
    }

    /// Returns the chunk of an element, and the element's index in it; `None` beyond the end.
    fn at(&self, row: u64, place: u64) -> Option<(&Values, usize)> {
        if row >= self.shape[0] || place >= self.shape[1] {
            return None;
        }
        let [height, width] = self.chunk;
        let chunk = self.chunks.get(to_usize(row / height * self.grid()[1] + place / width))?;
        match chunk {
            Some(values) => Some((values, to_usize(row % height * width + place % width))),
            None => Some((self.fill.as_ref()?, 0)),
        }
    }

    /// Returns the string at `place` in a row; `None` beyond the end. An integer is returned as its decimal digits, as pandas and xarray
    /// write numeric names.
    pub fn text(&self, row: u64, place: u64) -> Option<Cow<'_, str>> {
        self.at(row, place).and_then(|(values, at)| values.text(at))
    }

    /// Returns the first string of each row, like [`text`](Self::text).
    pub fn strings(&self) -> impl Iterator<Item = Cow<'_, str>> {
        (0..self.rows()).map_while(|row| self.text(row, 0))
    }

    /// Returns the first integer of a row.
    ///
    /// # Errors
    /// - [`Error::Argument`]: a row beyond the end.
    /// - [`Error::Store`]: a column of strings.
    pub fn integer(&self, row: u64) -> Result<i64> {
        let beyond = || {
            let why = format!("{row} is not one of the {} rows of {}", self.rows(), self.name);
            Error::argument("Column", "row", why)
        };
        let (values, at) = self.at(row, 0).ok_or_else(beyond)?;
        values.whole(at).ok_or_else(|| Error::store(&self.name, "holds strings, expected integers"))
    }
}
