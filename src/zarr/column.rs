//! Columns of strings and integers, such as sample names and positions, read by ranges of rows.

use std::{
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    array::StoredArray,
    chain::MAX_TEXT_BYTES,
    guard::{Decoded, Fault, u32_at},
    metadata::{self, Element, Node},
};
use crate::{Budget, DecodedChunk, Error, Result, StoredType};

/// Most elements of one row: alleles of a variant, in practice.
const MAX_ROW: u64 = 1 << 16;

const NUMBERS: &str = "holds numbers, expected strings";
const STRINGS: &str = "holds strings, expected integers";

/// What a string is that nobody knows, as in VCF.
pub(super) const UNKNOWN: &str = ".";

/// Which chunks a writer may have left out, since they hold nothing but the fill value. Others are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// None: names of samples and contigs, and positions, are never all alike.
    Lost,
    /// Those of strings nobody knows, where that is the fill value.
    Unknown,
    /// The same, but for those that hold the first element of each row: a reference allele is always known.
    UnknownBeyondFirst,
    /// Those of indices, where the fill value is below this.
    Index(u64),
}

/// Decoded elements of one chunk.
#[derive(Debug)]
enum Values {
    Text(Text),
    Whole(Vec<i64>),
    /// What the fill value is: an index, or strings nobody knows.
    Filled(i64),
}

/// Strings, one after the other.
#[derive(Debug, Default)]
struct Text {
    bytes: String,
    ends: Vec<usize>,
}

impl Text {
    fn push(&mut self, text: &str) {
        self.bytes.push_str(text);
        self.end();
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    fn get(&self, i: usize) -> Option<&str> {
        let start = if i == 0 { 0 } else { *self.ends.get(i - 1)? };
        self.bytes.get(start..*self.ends.get(i)?)
    }
}

/// The chunk decoded last, since neighbouring ranges share chunks.
#[derive(Debug, Default)]
struct Kept {
    chunk: Option<(Vec<u64>, Arc<Values>)>,
    /// Chunks that were filled, and the last of them.
    filled: u64,
    last: Option<Vec<u64>>,
    /// A chunk was there that might have been left out.
    stored: bool,
    /// The chunks that were filled cannot have held anything else, if the numbers never decrease.
    certain: bool,
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
    pub(super) fn open(store: &Path, path: &str, absent: Absent, memory: Share) -> Result<Option<Self>> {
        if metadata::node(&store.join(path))? == Node::Absent {
            return Ok(None);
        }
        let mut array = StoredArray::open(store, path)?;
        let fill = fill(&array, absent);
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
            _ => 2 * (3 * spec.bytes() as u64 + 8 * count + chain.scratch(spec)),
        };
        let column = Self { array, path: path.into(), absent, fill, memory, kept: Mutex::default() };
        if need > memory.bytes { Err(column.over(need)) } else { Ok(Some(column)) }
    }

    /// The same, where the column has to be there and have `rows` rows.
    pub(super) fn required(
        store: &Path,
        path: &str,
        absent: Absent,
        memory: Share,
        rows: u64,
    ) -> Result<Self> {
        let missing = || Error::store(store.display(), format!("has no array `{path}`"));
        Self::optional(store, path, absent, memory, rows)?.ok_or_else(missing)
    }

    /// The same, where the column has to have `rows` rows if it is there.
    pub(super) fn optional(
        store: &Path,
        path: &str,
        absent: Absent,
        memory: Share,
        rows: u64,
    ) -> Result<Option<Self>> {
        let column = Self::open(store, path, absent, memory)?;
        match column.as_ref().map(Self::rows) {
            Some(got) if got != rows => {
                Err(Error::store(store.join(path).display(), format!("has {got} rows, expected {rows}")))
            }
            _ => Ok(column),
        }
    }

    pub(super) fn rows(&self) -> u64 {
        self.array.metadata.shape[0]
    }

    /// Chunks that were not in the store and were taken for their fill value; each once where rows are read in order.
    pub(super) fn filled(&self) -> u64 {
        self.kept().filled
    }

    /// Whether some chunks were filled that might have held something else, for all that the others say.
    pub(super) fn is_doubtful(&self) -> bool {
        let kept = self.kept();
        kept.filled > 0 && kept.stored && !kept.certain
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
                numbers.extend_from_slice(&all[cells]);
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
                Values::Whole(all) => all[cells.start],
                Values::Filled(number) => *number,
                Values::Text(_) => return Err(self.refuse(STRINGS)),
            };
            match values {
                Values::Filled(_) => open = true,
                _ => open &= next != 0,
            }
            certain &= rows == 0 || next >= number;
            if rows > 0 && next != number {
                f(number, std::mem::take(&mut rows))?;
            }
            (number, rows) = (next, rows + 1);
            Ok(())
        })?;
        self.kept().certain = certain && !open;
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
        let values = Arc::new(self.decode(index)?);
        if !matches!(*values, Values::Filled(_)) {
            kept.stored |= self.fill_at(index).is_some();
        } else if kept.last.as_deref() < Some(index) {
            kept.filled += 1;
            kept.last = Some(index.to_vec());
        }
        kept.chunk = Some((index.to_vec(), Arc::clone(&values)));
        Ok(values)
    }

    /// The fill value, where the chunk may have been left out.
    fn fill_at(&self, index: &[u64]) -> Option<i64> {
        let may_lack =
            self.absent != Absent::UnknownBeyondFirst || index.get(1).is_some_and(|&right| right > 0);
        self.fill.filter(|_| may_lack)
    }

    fn decode(&self, index: &[u64]) -> Result<Values> {
        let text = self.array.metadata.spec.size == 0;
        let fill = self.fill_at(index);
        let inner = fill.map(|_| self.array.metadata.fill.as_slice());
        let parsed = match (self.array.read(index, inner), fill) {
            (Ok(Some(chunk)), _) => parse(&self.array, &chunk),
            (Ok(None), Some(fill)) => Ok(Values::Filled(fill)),
            (Ok(None), None) => Err(Fault::Missing("it is missing from the store".to_owned())),
            (Err(fault), _) => Err(fault),
        };
        parsed.map_err(|fault| match fault {
            Fault::Large(bytes, _) if text && bytes <= MAX_TEXT_BYTES as u64 => self.over(8 * bytes),
            fault => self.array.error(index, fault),
        })
    }
}

/// The fill value as a number, where it is one that writers may leave out chunks for.
fn fill(array: &StoredArray, absent: Absent) -> Option<i64> {
    let fill = array.metadata.fill.as_slice();
    let text = match array.metadata.element {
        Element::Number(dtype) => {
            let Absent::Index(end) = absent else { return None };
            return whole(fill, dtype)
                .ok()
                .filter(|&index| u64::try_from(index).is_ok_and(|index| index < end));
        }
        Element::Text | Element::Utf8 { .. } => utf8(fill).ok()?.to_owned(),
        Element::Utf32 { .. } => {
            let mut text = String::new();
            utf32(fill, &mut text).ok()?;
            text
        }
    };
    let unknown = matches!(absent, Absent::Unknown | Absent::UnknownBeyondFirst);
    (unknown && ["", UNKNOWN].contains(&text.as_str())).then_some(0)
}

fn usize_from(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::Limit {
        what: "rows at once",
        requested: n,
        max: usize::MAX as u64,
    })
}

fn parse(array: &StoredArray, chunk: &DecodedChunk) -> Decoded<Values> {
    let spec = &array.metadata.spec;
    let mut text = Text::default();
    let elements = || chunk.bytes.chunks_exact(spec.size.max(1));
    match array.metadata.element {
        Element::Text => return parse_vlen(&chunk.bytes, spec.count()).map(Values::Text),
        Element::Number(dtype) => {
            let numbers: Decoded<_> = elements().map(|e| whole(e, dtype)).collect();
            return numbers.map(Values::Whole);
        }
        Element::Utf32 { .. } => elements().try_for_each(|element| {
            utf32(element, &mut text.bytes)?;
            text.end();
            Ok::<_, Fault>(())
        })?,
        Element::Utf8 { .. } => elements().try_for_each(|element| {
            text.push(utf8(element)?);
            Ok::<_, Fault>(())
        })?,
    }
    Ok(Values::Text(text))
}

/// Strings as numcodecs' `VLenUTF8` serialises them: their number, then each as its length and bytes.
fn parse_vlen(data: &[u8], count: usize) -> Decoded<Text> {
    const CUT: &str = "its strings are cut short";
    let claimed = u32_at(data, 0).ok_or(CUT)?;
    if claimed as usize != count || data.len() / 4 < count {
        return Err(format!("claims {claimed} strings in {} bytes, expected {count}", data.len()).into());
    }
    let mut text = Text::default();
    let mut at = 4;
    for _ in 0..count {
        let length = u32_at(data, at).ok_or(CUT)? as usize;
        let end = (at + 4).checked_add(length).ok_or(CUT)?;
        let bytes = data.get(at + 4..end).ok_or(CUT)?;
        text.push(std::str::from_utf8(bytes).map_err(|_| "has a string that is not UTF-8")?);
        at = end;
    }
    if at == data.len() { Ok(text) } else { Err("has bytes after its last string".into()) }
}

fn utf32(element: &[u8], text: &mut String) -> Decoded<()> {
    let (units, _) = element.as_chunks::<4>();
    let used = units.iter().rposition(|unit| *unit != [0; 4]).map_or(0, |last| last + 1);
    for unit in &units[..used] {
        text.push(char::from_u32(u32::from_ne_bytes(*unit)).ok_or("has a string that is not UTF-32")?);
    }
    Ok(())
}

fn utf8(element: &[u8]) -> Decoded<&str> {
    let used = element.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    std::str::from_utf8(&element[..used]).map_err(|_| "has a string that is not UTF-8".into())
}

fn whole(element: &[u8], dtype: StoredType) -> Decoded<i64> {
    macro_rules! read {
        ($number:ty) => {
            element.try_into().ok().and_then(|bytes| i64::try_from(<$number>::from_ne_bytes(bytes)).ok())
        };
    }
    let value = match dtype {
        StoredType::I8 => read!(i8),
        StoredType::U8 => read!(u8),
        StoredType::I16 => read!(i16),
        StoredType::U16 => read!(u16),
        StoredType::I32 => read!(i32),
        StoredType::U32 => read!(u32),
        StoredType::I64 => read!(i64),
        StoredType::U64 => read!(u64),
        StoredType::Bool | StoredType::F16 | StoredType::F32 | StoredType::F64 => {
            return Err("holds no integers".into());
        }
    };
    value.ok_or_else(|| "has an integer above 2^63".into())
}
