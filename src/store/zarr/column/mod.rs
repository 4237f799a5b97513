//! Columns of strings and integers, such as names and positions, read by ranges of rows.

mod gaps;
mod values;

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use self::gaps::LeftOut;
use self::{
    gaps::Gaps,
    values::{Fill, Values, parse},
};
use super::{
    array::StoredArray,
    codec::MAX_TEXT_BYTES,
    guard::Fault,
    metadata::{Element, Metadata},
    node::Node,
    shard::Inner,
};
use crate::{Budget, Error, MemoryKind, Result, store::Storage};

/// Most elements of one row.
const MAX_ROW: u64 = 1 << 16;

const STRINGS: &str = "holds strings, expected integers";

/// True where the bytes of a decoded chunk are as many elements as it has.
pub(super) fn is_text(metadata: &Metadata, bytes: &[u8]) -> bool {
    parse(metadata, bytes, Vec::new()).is_ok()
}

/// The chunk decoded last, since neighbouring ranges share chunks.
#[derive(Debug, Default)]
struct Kept {
    chunk: Option<(Vec<u64>, Arc<Values>)>,
    gaps: Gaps,
}

/// An array of strings or integers of a Zarr v2 or v3 store, with one axis, its rows, or two, read by ranges of rows.
/// [`NewStore`](super::NewStore) has an example.
///
/// Strings are UTF-8 by the codec `vlen-utf8`, or of a fixed length: UTF-32, or UTF-8 padded with zeros. Integers are of any size, as
/// long as they are below 2^63. Codecs are those of [`ZarrArray`](super::ZarrArray), and damage is an error as there.
///
/// Chunks are read and decoded on the calling thread; the last one is kept, so that ranges in order decode each
/// chunk once where there is one axis, or chunks are as wide as the array. Reading from several threads is safe, one
/// decodes at a time.
#[derive(Debug)]
pub struct Column {
    array: StoredArray,
    /// Its path within the store.
    path: Box<str>,
    left_out: LeftOut,
    /// The fill value, where it is one that chunks may be left out for.
    fill: Option<Fill>,
    /// Bytes that the budget allows, half of which a chunk, or the strings of a range, may take.
    budget: u64,
    /// Whether the caller gave the budget.
    given: bool,
    kept: Mutex<Kept>,
}

impl Column {
    /// Opens the column at `path` within `storage`; `None` where nothing is there. Reads its metadata and no data.
    ///
    /// A chunk, and the strings of one range, may take half of the host's memory that `memory` allows.
    ///
    /// # Errors
    /// - [`Error::Store`]: a group, an array of another rank or of more than 65536 columns, and as
    ///   [`ZarrArray::open`](super::ZarrArray::open), but for strings.
    /// - [`Error::Budget`]: its chunks take more memory than they may.
    /// - [`Error::Io`]: the metadata cannot be read.
    pub fn open_in(
        storage: &Arc<dyn Storage>,
        path: &str,
        left_out: LeftOut,
        memory: &Budget,
    ) -> Result<Option<Self>> {
        if Node::at(&**storage, path)? == Node::Absent {
            return Ok(None);
        }
        let budget = memory.host_bytes();
        let mut array = StoredArray::open(storage, path)?;
        let fill = left_out.fill(&array.metadata);
        let refuse = |why: String| Err(Error::store(array.name(), why));
        let shape = &array.metadata.shape;
        match **shape {
            [_] => {}
            [_, width] if width <= MAX_ROW => {}
            _ => return refuse(format!("its shape {shape:?} is not that of a column")),
        }
        if array.metadata.spec.size == 0 {
            // A chunk as it is stored, decoded, and parsed, and as much for what blosc takes.
            array.metadata.spec.text = MAX_TEXT_BYTES.min(usize::try_from(budget / 8).unwrap_or(usize::MAX));
        }
        let (spec, chain) = (&array.metadata.spec, &array.metadata.chain);
        let count = spec.count() as u64;
        // Numbers become 64-bit; strings take up to twice their bytes while they grow, and where each ends.
        let need = match array.metadata.element {
            Element::Text => 8 * 4 * count,
            _ => 2 * (3 * spec.bytes() as u64 + 8 * count + chain.fetched(spec) + chain.scratch(spec)),
        };
        let given = memory.host.is_some();
        let column = Self { array, path: path.into(), left_out, fill, budget, given, kept: Mutex::default() };
        if need > budget { Err(column.over(need)) } else { Ok(Some(column)) }
    }

    /// Extent of its first axis.
    pub fn rows(&self) -> u64 {
        self.array.metadata.shape[0]
    }

    /// Its path within the store, as it was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The integer that chunks hold that were left out; none where none may be left out, or the column is of strings.
    pub fn fill(&self) -> Option<i64> {
        match self.fill {
            Some(Fill::Whole(number)) => Some(number),
            Some(Fill::Text(_)) | None => None,
        }
    }

    /// Chunks, and inner chunks of shards, that were not in the store and were read as the fill value so far; each counts once
    /// where rows are read in order.
    pub fn filled(&self) -> u64 {
        self.kept().gaps.filled
    }

    /// Whether some of these start at one of the columns of the array in `range`.
    pub fn is_filled_in(&self, range: Range<u64>) -> bool {
        self.kept().gaps.columns.iter().any(|(column, [filled, _])| *filled && range.contains(column))
    }

    /// Whether some of these might have held something else: of the chunks that start at the same column of the array, some were
    /// filled and others are there.
    ///
    /// Not where [`integer_runs`](Self::integer_runs) has shown that they can have held nothing else.
    pub fn is_doubtful(&self) -> bool {
        self.kept().gaps.are_doubtful()
    }

    /// Drops the chunk that was decoded last, and frees its memory.
    pub fn forget(&self) {
        self.kept().chunk = None;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self, minimum: u64) -> Error {
        Error::Budget { memory: MemoryKind::Host, budget: self.budget, minimum, given: self.given }
    }

    /// The first string of each row in `range`. An integer is read as its decimal digits, as pandas and xarray write names that are
    /// numbers.
    ///
    /// # Errors
    /// - [`Error::Argument`]: a range beyond the end.
    /// - [`Error::Store`]: rows without columns.
    /// - [`Error::Budget`]: the strings, or a chunk of strings, take more memory than they may.
    /// - [`Error::Chunk`] and [`Error::OutOfHostMemory`]: a chunk that is lost, damaged, or cannot be read.
    pub fn strings(&self, range: Range<u64>) -> Result<Vec<String>> {
        let mut strings = Vec::new();
        self.cells(range, 1, |_, _, text| {
            strings.push(text.to_owned());
            size_of::<String>() + text.len()
        })?;
        Ok(strings)
    }

    /// Gives each string of the rows in `range` to `f`, with its row, from 0 for the first in `range`, and its place in it: those
    /// of a row in order. `f` says how many bytes of memory it keeps.
    ///
    /// # Errors
    /// As [`strings`](Self::strings), where what `f` keeps counts.
    pub fn for_each_string(&self, range: Range<u64>, f: impl FnMut(usize, u64, &str) -> usize) -> Result<()> {
        self.cells(range, u64::MAX, f)
    }

    fn cells(
        &self,
        range: Range<u64>,
        columns: u64,
        mut f: impl FnMut(usize, u64, &str) -> usize,
    ) -> Result<()> {
        let mut kept = 0_u64;
        self.read(range, columns, |values, first, cells| {
            let start = cells.start;
            for i in cells {
                let text = values.text(i);
                kept = kept.saturating_add(f(first.0, first.1 + (i - start) as u64, &text) as u64);
            }
            if kept > self.budget / 2 { Err(self.over(kept.saturating_mul(2))) } else { Ok(()) }
        })
    }

    /// The first integer of each row in `range`, which take 8 bytes each.
    ///
    /// # Errors
    /// - [`Error::Argument`]: a range beyond the end.
    /// - [`Error::Store`]: rows without columns, or a column of strings.
    /// - [`Error::Chunk`] and [`Error::OutOfHostMemory`]: a chunk that is lost, damaged, or cannot be read, or holds other numbers
    ///   than integers below 2^63.
    pub fn integers(&self, range: Range<u64>) -> Result<Vec<i64>> {
        let mut numbers = Vec::new();
        self.read(range, 1, |values, _, cells| {
            numbers.push(values.whole(cells.start).ok_or_else(|| self.refuse(STRINGS))?);
            Ok(())
        })?;
        Ok(numbers)
    }

    /// Gives `f` the first string of each row, in order, and how many rows after each other have it. Reads all rows, and takes
    /// memory for one chunk.
    ///
    /// # Errors
    /// As [`strings`](Self::strings), and what `f` returns.
    pub fn string_runs(&self, f: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        let (mut text, mut rows) = (String::new(), 0);
        self.read(0..self.rows(), 1, |values, _, cells| {
            let next = values.text(cells.start);
            if rows > 0 && next != text {
                f(&text, std::mem::take(&mut rows))?;
            }
            if rows == 0 {
                text.clear();
                text.push_str(&next);
            }
            rows += 1;
            Ok(())
        })?;
        if rows > 0 { f(&text, rows) } else { Ok(()) }
    }

    /// Gives `f` the first integer of each row, in order, and how many rows after each other have it. Reads all rows, takes memory for one
    /// chunk, and counts filled chunks anew.
    ///
    /// Where the numbers never decrease and a chunk of zeros that is not there comes before a zero that is, it cannot have held
    /// anything else.
    ///
    /// # Errors
    /// As [`integers`](Self::integers), and what `f` returns.
    pub fn integer_runs(&self, f: &mut dyn FnMut(i64, u64) -> Result<()>) -> Result<()> {
        *self.kept() = Kept::default();
        let (mut number, mut rows) = (0, 0);
        let mut certain = self.fill() == Some(0);
        // No zero that is there came after the last chunk that is not.
        let mut open = false;
        self.read(0..self.rows(), 1, |values, _, cells| {
            let next = values.whole(cells.start).ok_or_else(|| self.refuse(STRINGS))?;
            open = values.is_filled(cells.start) || (open && next != 0);
            certain &= rows == 0 || next >= number;
            if rows > 0 && next != number {
                f(number, std::mem::take(&mut rows))?;
            }
            (number, rows) = (next, rows + 1);
            Ok(())
        })?;
        self.kept().gaps.certain = certain && !open;
        if rows > 0 { f(number, rows) } else { Ok(()) }
    }

    fn refuse(&self, why: &str) -> Error {
        Error::store(self.array.name(), why)
    }

    /// Gives the first `columns` elements of each row in `range` to `f`, chunk by chunk: the chunk, the row and column
    /// of the first, and which elements of the chunk they are.
    fn read(
        &self,
        range: Range<u64>,
        columns: u64,
        mut f: impl FnMut(&Values, (usize, u64), Range<usize>) -> Result<()>,
    ) -> Result<()> {
        if range.start > range.end || range.end > self.rows() {
            let why = format!("{range:?} is not within the {} rows of {}", self.rows(), self.array.name());
            return Err(Error::argument("Column", "range", why));
        }
        let chunk = &self.array.metadata.chunk_shape;
        let (height, chunk_width) = (chunk[0], chunk.get(1).copied().unwrap_or(1));
        let width = self.array.metadata.shape.get(1).copied();
        if width == Some(0) && !range.is_empty() {
            return Err(self.refuse("its rows are empty"));
        }
        let wanted = width.unwrap_or(1).min(columns);
        let mut row = range.start;
        while row < range.end {
            let down = row / height;
            let end = range.end.min((down + 1) * height);
            for right in 0..wanted.div_ceil(chunk_width) {
                let index = [down, right];
                let values = self.chunk(&index[..self.array.metadata.shape.len()])?;
                let here = chunk_width.min(wanted - right * chunk_width);
                for row in row..end {
                    let at = (row - down * height) * chunk_width;
                    let (at, end) = (usize_from(at)?, usize_from(at + here)?);
                    f(&values, (usize_from(row - range.start)?, right * chunk_width), at..end)?;
                }
            }
            row = end;
        }
        Ok(())
    }

    fn chunk(&self, index: &[u64]) -> Result<Arc<Values>> {
        let mut kept = self.kept();
        if let Some((at, values)) = &kept.chunk
            && at == index
        {
            return Ok(Arc::clone(values));
        }
        // What is kept makes room first.
        kept.chunk = None;
        let values = Arc::new(self.decode(index, &mut kept.gaps)?);
        kept.chunk = Some((index.to_vec(), Arc::clone(&values)));
        Ok(values)
    }

    /// The fill value, where what starts at this column of the array may have been left out.
    fn fill_from(&self, column: u64) -> Option<Fill> {
        self.fill.filter(|_| self.left_out.allows(column))
    }

    fn decode(&self, index: &[u64], gaps: &mut Gaps) -> Result<Values> {
        let metadata = &self.array.metadata;
        let text = metadata.spec.size == 0;
        let first = index.get(1).map_or(0, |right| right * metadata.chunk_shape[1]);
        let fill = self.fill_from(first);
        // Inner chunks that might be lacking, runs of which are one part, and rows of those that do.
        let (mut parts, mut rows) = (Vec::new(), Vec::<Range<usize>>::new());
        let fetched = self.array.fetch(index);
        let mut fill_of = |inner: &Inner| {
            let column = first + inner.origin.get(1).map_or(0, |&at| at as u64);
            self.fill_from(column)?;
            match parts.last_mut() {
                Some((last, filled)) if *last == column && (*filled > 0) != inner.there => {
                    *filled += u64::from(!inner.there);
                }
                _ => parts.push((column, u64::from(!inner.there))),
            }
            let start = inner.origin[0];
            match rows.last_mut() {
                _ if inner.there => {}
                Some(last) if last.end == start => last.end += inner.shape[0],
                _ => rows.push(start..start + inner.shape[0]),
            }
            Some(metadata.fill.as_slice())
        };
        let read = fetched.and_then(|fetched| self.array.decode(index, fetched, &mut fill_of));
        let parsed = match (read, fill) {
            (Ok(Some(chunk)), _) => {
                if parts.is_empty() && fill.is_some() {
                    parts.push((first, 0));
                }
                parse(metadata, &chunk.bytes, rows)
            }
            (Ok(None), Some(fill)) => {
                parts.push((first, 1));
                Ok(Values::Filled(fill))
            }
            (Ok(None), None) => Err(Fault::Missing("it is missing from the store".to_owned())),
            (Err(fault), _) => Err(fault),
        };
        gaps.add(index, parts);
        parsed.map_err(|fault| match fault {
            Fault::Large(bytes, _) if text && bytes <= MAX_TEXT_BYTES as u64 => self.over(8 * bytes),
            fault => self.array.error(index, fault),
        })
    }
}

fn usize_from(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::Limit {
        what: "rows at once",
        requested: n,
        max: usize::MAX as u64,
    })
}
