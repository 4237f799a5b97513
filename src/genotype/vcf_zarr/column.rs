//! Columns of strings and integers, such as sample names and positions, read by ranges of rows.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    gaps::{Absent, Gaps, UNKNOWN},
    values::{Values, parse},
};
use crate::{
    Budget, Error, Result,
    store::{
        Storage,
        zarr::{Element, Fault, Inner, MAX_TEXT_BYTES, Node, StoredArray, node},
    },
};

/// Most elements of one row: alleles of a variant, in practice.
const MAX_ROW: u64 = 1 << 16;

const NUMBERS: &str = "holds numbers, expected strings";
const STRINGS: &str = "holds strings, expected integers";

/// The chunk decoded last, since neighbouring ranges share chunks.
#[derive(Debug, Default)]
struct Kept {
    chunk: Option<(Vec<u64>, Arc<Values>)>,
    gaps: Gaps,
}

/// What columns may take of the host's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) bytes: u64,
    given: bool,
}

impl Share {
    pub(super) fn of(budget: &Budget) -> Self {
        Self { bytes: budget.host_bytes(), given: budget.host.is_some() }
    }

    pub(super) fn over(self, minimum: u64) -> Error {
        Error::Budget { what: "memory budget", budget: self.bytes, minimum, given: self.given }
    }
}

/// An array of strings or integers with one or two axes.
#[derive(Debug)]
pub(super) struct Column {
    array: StoredArray,
    /// Its path within the store.
    path: Box<str>,
    absent: Absent,
    /// The fill value, where it is one that chunks may be left out for; 0 for a string nobody knows.
    fill: Option<i64>,
    /// Bytes that the budget allows, half of which a chunk, or the strings of a range, may take.
    memory: Share,
    kept: Mutex<Kept>,
}

impl Column {
    /// Opens the column at `path`, within a budget of so many bytes; `None` where nothing is there.
    pub(super) fn open(
        storage: &Arc<dyn Storage>,
        path: &str,
        absent: Absent,
        memory: Share,
    ) -> Result<Option<Self>> {
        if node(&**storage, path)? == Node::Absent {
            return Ok(None);
        }
        let mut array = StoredArray::open(storage, path)?;
        let fill = absent.fill(&array.metadata);
        let refuse = |why: String| Err(Error::store(array.name(), why));
        let shape = &array.metadata.shape;
        match **shape {
            [_] => {}
            [_, width] if width <= MAX_ROW => {}
            _ => return refuse(format!("its shape {shape:?} is not that of a column")),
        }
        if array.metadata.spec.size == 0 {
            // A chunk as it is stored, decoded, and parsed, and as much for what blosc takes.
            array.metadata.spec.text =
                MAX_TEXT_BYTES.min(usize::try_from(memory.bytes / 8).unwrap_or(usize::MAX));
        }
        let (spec, chain) = (&array.metadata.spec, &array.metadata.chain);
        let count = spec.count() as u64;
        // Numbers become 64-bit; strings take up to twice their bytes while they grow, and where each ends.
        let need = match array.metadata.element {
            Element::Text => 8 * 4 * count,
            _ => 2 * (3 * spec.bytes() as u64 + 8 * count + chain.fetched(spec) + chain.scratch(spec)),
        };
        let column = Self { array, path: path.into(), absent, fill, memory, kept: Mutex::default() };
        if need > memory.bytes { Err(column.over(need)) } else { Ok(Some(column)) }
    }

    /// The same, where the column has to be there and have `rows` rows.
    pub(super) fn required(
        storage: &Arc<dyn Storage>,
        path: &str,
        absent: Absent,
        memory: Share,
        rows: u64,
    ) -> Result<Self> {
        let missing = || Error::store(storage.place(""), format!("has no array `{path}`"));
        Self::optional(storage, path, absent, memory, rows)?.ok_or_else(missing)
    }

    /// The same, where the column has to have `rows` rows if it is there.
    pub(super) fn optional(
        storage: &Arc<dyn Storage>,
        path: &str,
        absent: Absent,
        memory: Share,
        rows: u64,
    ) -> Result<Option<Self>> {
        let column = Self::open(storage, path, absent, memory)?;
        match column.as_ref().map(Self::rows) {
            Some(got) if got != rows => {
                Err(Error::store(storage.place(path), format!("has {got} rows, expected {rows}")))
            }
            _ => Ok(column),
        }
    }

    pub(super) fn rows(&self) -> u64 {
        self.array.metadata.shape[0]
    }

    /// Chunks that were not in the store and were taken for their fill value; each once where rows are read in order.
    pub(super) fn filled(&self) -> u64 {
        self.kept().gaps.filled
    }

    /// Whether some chunks were filled that might have held something else, for all that the others say.
    pub(super) fn is_doubtful(&self) -> bool {
        self.kept().gaps.are_doubtful(self.absent)
    }

    /// Says that what was filled is not where it would be if it had held the fill value.
    pub(super) fn doubt(&self) {
        self.kept().gaps.misplaced = true;
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// What chunks that are not there hold: a number, or 0 for a string nobody knows.
    pub(super) fn fill(&self) -> Option<i64> {
        self.fill
    }

    /// Drops the chunk that was decoded last.
    pub(super) fn forget(&self) {
        self.kept().chunk = None;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self, minimum: u64) -> Error {
        self.memory.over(minimum)
    }

    /// The first string of each row in `range`.
    pub(super) fn names(&self, range: Range<u64>) -> Result<Vec<String>> {
        let mut names = Vec::new();
        self.cells(range, 1, |_, _, name| {
            names.push(name.to_owned());
            name.len()
        })?;
        Ok(names)
    }

    /// Gives each string of the rows in `range` to `f`, with its row, from 0, and its place in it: those of a row in
    /// order, and of a row without columns none. `f` says how many bytes it keeps.
    pub(super) fn text(&self, range: Range<u64>, f: impl FnMut(usize, u64, &str) -> usize) -> Result<()> {
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
                let text = match values {
                    Values::Text(text) => text.get(i).unwrap_or_default(),
                    Values::Filled(_) => UNKNOWN,
                    Values::Whole(_) => return Err(self.refuse(NUMBERS)),
                };
                kept += f(first.0, first.1 + (i - start) as u64, text) as u64;
            }
            if kept > self.memory.bytes / 2 { Err(self.over(2 * kept)) } else { Ok(()) }
        })
    }

    /// The first integer of each row in `range`.
    pub(super) fn whole(&self, range: Range<u64>) -> Result<Vec<i64>> {
        let mut numbers = Vec::new();
        self.read(range, 1, |values, _, cells| match values {
            Values::Whole(all) => {
                numbers.extend_from_slice(&all.numbers[cells]);
                Ok(())
            }
            Values::Filled(number) => {
                numbers.extend(cells.map(|_| *number));
                Ok(())
            }
            Values::Text(_) => Err(self.refuse(STRINGS)),
        })?;
        Ok(numbers)
    }

    /// Gives `f` the first string of each row, in order, and how many rows after each other have it.
    pub(super) fn runs_of_names(&self, f: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        let (mut name, mut rows) = (String::new(), 0);
        self.read(0..self.rows(), 1, |values, _, cells| {
            let next = match values {
                Values::Text(text) => text.get(cells.start).unwrap_or_default(),
                Values::Filled(_) => UNKNOWN,
                Values::Whole(_) => return Err(self.refuse(NUMBERS)),
            };
            if rows > 0 && next != name {
                f(&name, std::mem::take(&mut rows))?;
            }
            if rows == 0 {
                next.clone_into(&mut name);
            }
            rows += 1;
            Ok(())
        })?;
        if rows > 0 { f(&name, rows) } else { Ok(()) }
    }

    /// The same of the first integers. Counts filled chunks anew.
    ///
    /// Where the numbers never decrease and a chunk of zeros that is not there comes before a zero that is, it cannot have held
    /// anything else.
    pub(super) fn runs_of_whole(&self, f: &mut dyn FnMut(i64, u64) -> Result<()>) -> Result<()> {
        *self.kept() = Kept::default();
        let (mut number, mut rows) = (0, 0);
        let mut certain = self.fill == Some(0);
        // No zero that is there came after the last chunk that is not.
        let mut open = false;
        self.read(0..self.rows(), 1, |values, _, cells| {
            let next = match values {
                Values::Whole(all) => all.numbers[cells.start],
                Values::Filled(number) => *number,
                Values::Text(_) => return Err(self.refuse(STRINGS)),
            };
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
            return Err(self.refuse("a range of rows beyond its end was asked for"));
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
    fn fill_from(&self, column: u64) -> Option<i64> {
        self.fill.filter(|_| self.absent.allows(column))
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
