//! Columns of strings and integers, such as sample names and positions, read by ranges of rows.

use std::{
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    array::StoredArray,
    guard::{Why, u32_at},
    metadata::{self, Element, Node},
};
use crate::{DecodedChunk, Error, MissingChunk, Result, StoredType};

/// Most elements of one chunk of a column, which bounds the memory that its strings take.
const MAX_CHUNK_ELEMENTS: usize = 1 << 24;

/// Most elements of one row: alleles of a variant, in practice.
const MAX_ROW: u64 = 1 << 16;

const NUMBERS: &str = "holds numbers, expected strings";
const STRINGS: &str = "holds strings, expected integers";

/// Decoded elements of one chunk.
#[derive(Debug)]
enum Values {
    Text(Vec<String>),
    Whole(Vec<i64>),
}

/// An array of strings or integers with one or two axes.
///
/// Keeps the chunk decoded last, since neighbouring ranges share chunks.
#[derive(Debug)]
pub(super) struct Column {
    array: StoredArray,
    kept: Mutex<Option<(Vec<u64>, Arc<Values>)>>,
}

impl Column {
    /// Opens the column at `path`; `None` where nothing is there.
    ///
    /// A missing chunk of it reads as fill values: writers leave out chunks that hold nothing else, such as the
    /// contig indices of a store of one contig.
    pub(super) fn open(store: &Path, path: &str) -> Result<Option<Self>> {
        if metadata::node(&store.join(path))? == Node::Absent {
            return Ok(None);
        }
        let array = StoredArray::open(store, path, MissingChunk::Fill)?;
        let refuse = |why: String| Err(Error::store(array.name(), why));
        let shape = &array.metadata.shape;
        match **shape {
            [_] => {}
            [_, width] if width <= MAX_ROW => {}
            _ => return refuse(format!("its shape {shape:?} is not that of a column")),
        }
        let chunk = &array.metadata.spec.shape;
        if array.metadata.spec.count() > MAX_CHUNK_ELEMENTS {
            return refuse(format!("its chunks {chunk:?} have more than {MAX_CHUNK_ELEMENTS} elements"));
        }
        Ok(Some(Self { array, kept: Mutex::new(None) }))
    }

    /// The same, where the column has to be there and have `rows` rows.
    pub(super) fn required(store: &Path, path: &str, rows: u64) -> Result<Self> {
        let missing = || Error::store(store.display(), format!("has no array `{path}`"));
        Self::optional(store, path, rows)?.ok_or_else(missing)
    }

    /// The same, where the column has to have `rows` rows if it is there.
    pub(super) fn optional(store: &Path, path: &str, rows: u64) -> Result<Option<Self>> {
        let column = Self::open(store, path)?;
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

    /// Strings of the rows in `range`, each row with all of its columns.
    pub(super) fn text(&self, range: Range<u64>) -> Result<Vec<Vec<String>>> {
        self.read(range, |values| match values {
            Values::Text(text) => Ok(text),
            Values::Whole(_) => Err(NUMBERS),
        })
    }

    /// The first string of each row in `range`.
    pub(super) fn names(&self, range: Range<u64>) -> Result<Vec<String>> {
        Ok(self.text(range)?.into_iter().map(|row| row.into_iter().next().unwrap_or_default()).collect())
    }

    /// The first integer of each row in `range`.
    pub(super) fn whole(&self, range: Range<u64>) -> Result<Vec<i64>> {
        let rows = self.read(range, |values| match values {
            Values::Whole(numbers) => Ok(numbers),
            Values::Text(_) => Err(STRINGS),
        })?;
        rows.into_iter()
            .map(|row| {
                row.first().copied().ok_or_else(|| Error::store(self.array.name(), "its rows are empty"))
            })
            .collect()
    }

    /// Gives `f` the first string of each row, in order, and how many rows after each other have it; of neighbouring chunks,
    /// apart.
    pub(super) fn runs_of_names(&self, f: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        self.runs(&mut |values, rows, width| match values {
            Values::Text(text) => runs(text, rows, width, &mut |name, rows| f(name, rows)),
            Values::Whole(_) => Err(Error::store(self.array.name(), NUMBERS)),
        })
    }

    /// The same of the first integers.
    pub(super) fn runs_of_whole(&self, f: &mut dyn FnMut(i64, u64) -> Result<()>) -> Result<()> {
        self.runs(&mut |values, rows, width| match values {
            Values::Whole(numbers) => runs(numbers, rows, width, &mut |number, rows| f(*number, rows)),
            Values::Text(_) => Err(Error::store(self.array.name(), STRINGS)),
        })
    }

    /// Gives `f` the chunks that hold the first element of each row: their elements, rows, and elements of a row.
    fn runs(&self, f: &mut dyn FnMut(&Values, u64, u64) -> Result<()>) -> Result<()> {
        let (shape, chunk) = (&self.array.metadata.shape, &self.array.metadata.chunk_shape);
        if shape.get(1) == Some(&0) {
            return Err(Error::store(self.array.name(), "its rows are empty"));
        }
        for down in 0..self.rows().div_ceil(chunk[0]) {
            let mut index = vec![0; shape.len()];
            index[0] = down;
            let rows = chunk[0].min(self.rows() - down * chunk[0]);
            f(&*self.chunk(&index)?, rows, chunk.get(1).copied().unwrap_or(1))?;
        }
        Ok(())
    }

    fn read<T: Clone>(
        &self,
        range: Range<u64>,
        pick: impl Fn(&Values) -> Result<&Vec<T>, &'static str>,
    ) -> Result<Vec<Vec<T>>> {
        let refuse = |why: &str| Error::store(self.array.name(), why);
        if range.start > range.end || range.end > self.rows() {
            return Err(refuse("a range of rows beyond its end was asked for"));
        }
        let (rows, chunk) = (usize_from(range.end - range.start)?, &self.array.metadata.chunk_shape);
        let mut out: Vec<Vec<T>> = Vec::new();
        out.try_reserve_exact(rows).map_err(|_| refuse("no memory for that many rows"))?;
        out.resize(rows, Vec::new());
        if rows == 0 {
            return Ok(out);
        }
        let width = self.array.metadata.shape.get(1).copied();
        let across = width.map_or(1, |width| width.div_ceil(chunk[1]));
        let (rows_of_chunk, columns_of_chunk) = (chunk[0], chunk.get(1).copied().unwrap_or(1));
        for down in range.start / rows_of_chunk..=(range.end - 1) / rows_of_chunk {
            let first = range.start.max(down * rows_of_chunk);
            let end = range.end.min((down + 1) * rows_of_chunk);
            for right in 0..across {
                let index = if width.is_some() { vec![down, right] } else { vec![down] };
                let values = self.chunk(&index)?;
                let values = pick(&values).map_err(refuse)?;
                let columns = width.map_or(1, |width| columns_of_chunk.min(width - right * columns_of_chunk));
                for row in first..end {
                    let at = usize_from((row - down * rows_of_chunk) * columns_of_chunk)?;
                    let part = &values[at..at + usize_from(columns)?];
                    out[usize_from(row - range.start)?].extend_from_slice(part);
                }
            }
        }
        Ok(out)
    }

    fn chunk(&self, index: &[u64]) -> Result<Arc<Values>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, values)) = &*kept
            && at == index
        {
            return Ok(Arc::clone(values));
        }
        let decoded = self.array.read(index)?;
        let values =
            parse(&self.array, decoded).map_err(|why| Error::chunk(self.array.name(), index, why))?;
        let values = Arc::new(values);
        *kept = Some((index.to_vec(), Arc::clone(&values)));
        Ok(values)
    }
}

/// Gives `f` the first element of each of so many rows, and how many rows after each other have it.
fn runs<T: PartialEq>(
    values: &[T],
    rows: u64,
    width: u64,
    f: &mut dyn FnMut(&T, u64) -> Result<()>,
) -> Result<()> {
    let mut firsts = values.iter().step_by(usize_from(width)?).take(usize_from(rows)?).peekable();
    while let Some(value) = firsts.next() {
        let mut run = 1;
        while firsts.next_if(|next| *next == value).is_some() {
            run += 1;
        }
        f(value, run)?;
    }
    Ok(())
}

fn usize_from(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::Limit {
        what: "rows at once",
        requested: n,
        max: usize::MAX as u64,
    })
}

fn parse(array: &StoredArray, chunk: Option<DecodedChunk>) -> Why<Values> {
    let spec = &array.metadata.spec;
    let Some(chunk) = chunk else {
        let fill =
            String::from_utf8(array.metadata.fill.clone()).map_err(|_| "its fill value is not UTF-8")?;
        return Ok(Values::Text(vec![fill; spec.count()]));
    };
    let elements = chunk.bytes.chunks_exact(spec.size.max(1));
    match array.metadata.element {
        Element::Text => parse_vlen(&chunk.bytes, spec.count()).map(Values::Text),
        Element::Utf32 { .. } => elements.map(utf32).collect::<Why<_>>().map(Values::Text),
        Element::Utf8 { .. } => elements.map(utf8).collect::<Why<_>>().map(Values::Text),
        Element::Number(dtype) => elements.map(|e| whole(e, dtype)).collect::<Why<_>>().map(Values::Whole),
    }
}

/// Strings as numcodecs' `VLenUTF8` serialises them: their number, then each as its length and bytes.
fn parse_vlen(data: &[u8], count: usize) -> Why<Vec<String>> {
    let cut = || "its strings are cut short".to_owned();
    let claimed = u32_at(data, 0).ok_or_else(cut)?;
    if claimed as usize != count || data.len() / 4 < count {
        return Err(format!("claims {claimed} strings in {} bytes, expected {count}", data.len()));
    }
    let mut strings = Vec::with_capacity(count);
    let mut at = 4;
    for _ in 0..count {
        let length = u32_at(data, at).ok_or_else(cut)? as usize;
        let end = (at + 4).checked_add(length).ok_or_else(cut)?;
        let bytes = data.get(at + 4..end).ok_or_else(cut)?;
        strings.push(String::from_utf8(bytes.to_vec()).map_err(|_| "has a string that is not UTF-8")?);
        at = end;
    }
    if at == data.len() { Ok(strings) } else { Err("has bytes after its last string".to_owned()) }
}

fn utf32(element: &[u8]) -> Why<String> {
    let (units, _) = element.as_chunks::<4>();
    let used = units.iter().rposition(|unit| *unit != [0; 4]).map_or(0, |last| last + 1);
    let text = units[..used].iter().map(|unit| char::from_u32(u32::from_ne_bytes(*unit)));
    text.collect::<Option<String>>().ok_or_else(|| "has a string that is not UTF-32".to_owned())
}

fn utf8(element: &[u8]) -> Why<String> {
    let used = element.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let text = String::from_utf8(element[..used].to_vec());
    text.map_err(|_| "has a string that is not UTF-8".to_owned())
}

fn whole(element: &[u8], dtype: StoredType) -> Why<i64> {
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
            return Err("holds no integers".to_owned());
        }
    };
    value.ok_or_else(|| "has an integer above 2^63".to_owned())
}
