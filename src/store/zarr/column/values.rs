//! Elements of columns: strings and integers parsed from decoded bytes.

use std::borrow::Cow;

use super::super::{
    guard::{Decoded, u32_at},
    layout::integer,
    metadata::{Element, Metadata},
};
use crate::StoredType;

/// The decoded elements of one chunk.
#[derive(Debug)]
pub(super) enum Values {
    Text(Text),
    Whole(Vec<i64>),
}

impl Values {
    /// Returns an element as a string; an integer as its decimal digits.
    pub(super) fn text(&self, at: usize) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => text.get(at).map(Cow::Borrowed),
            Self::Whole(numbers) => numbers.get(at).map(|number| number.to_string().into()),
        }
    }

    /// Returns an element as an integer, or `None` if the elements are strings.
    pub(super) fn whole(&self, at: usize) -> Option<i64> {
        match self {
            Self::Whole(numbers) => numbers.get(at).copied(),
            Self::Text(_) => None,
        }
    }

    /// Returns the number of bytes of memory that the elements take.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => (text.bytes.capacity() + size_of::<u32>() * text.ends.capacity()) as u64,
            Self::Whole(numbers) => size_of_val(&**numbers) as u64,
        }
    }
}

/// Concatenated strings; those of a chunk take less than 4 GiB.
#[derive(Debug)]
pub(super) struct Text {
    bytes: String,
    ends: Vec<u32>,
}

impl Text {
    fn new(bytes: usize, count: usize) -> Self {
        Self { bytes: String::with_capacity(bytes), ends: Vec::with_capacity(count) }
    }

    fn push(&mut self, text: &str) -> Decoded<()> {
        self.bytes.push_str(text);
        self.ends.push(u32::try_from(self.bytes.len()).map_err(|_| "its strings have more than 4 GiB")?);
        Ok(())
    }

    fn get(&self, i: usize) -> Option<&str> {
        let start = if i == 0 { 0 } else { *self.ends.get(i - 1)? };
        self.bytes.get(start as usize..*self.ends.get(i)? as usize)
    }
}

/// Returns the fill value if it is a string or an integer.
pub(super) fn fill(metadata: &Metadata) -> Option<Values> {
    let stored = metadata.fill.as_slice();
    match metadata.element {
        Element::Text => {
            let mut text = Text::new(stored.len(), 1);
            text.push(utf8(stored).ok()?).ok()?;
            Some(Values::Text(text))
        }
        _ => parse(metadata, stored).ok(),
    }
}

pub(super) fn parse(metadata: &Metadata, bytes: &[u8]) -> Decoded<Values> {
    let spec = &metadata.spec;
    let elements = bytes.chunks_exact(spec.size.max(1));
    let mut text = match metadata.element {
        Element::Text => return parse_vlen(bytes, spec.count()).map(Values::Text),
        Element::Number(dtype) => {
            let mut numbers = Vec::with_capacity(elements.len());
            for element in elements {
                numbers.push(whole(element, dtype)?);
            }
            return Ok(Values::Whole(numbers));
        }
        Element::Utf32 { .. } | Element::Utf8 { .. } => Text::new(bytes.len(), elements.len()),
    };
    for element in elements {
        match metadata.element {
            Element::Utf32 { .. } => text.push(&utf32(element)?)?,
            _ => text.push(utf8(element)?)?,
        }
    }
    text.bytes.shrink_to_fit();
    Ok(Values::Text(text))
}

/// Parses strings in the format of numcodecs' `VLenUTF8`: the number of strings, then the length and the bytes of each.
fn parse_vlen(data: &[u8], count: usize) -> Decoded<Text> {
    const CUT: &str = "its strings are cut short";
    let claimed = u32_at(data, 0).ok_or(CUT)?;
    if claimed as usize != count || data.len() / 4 < count {
        return Err(format!("claims {claimed} strings in {} bytes, expected {count}", data.len()).into());
    }
    let mut text = Text::new(data.len() - 4 * count, count);
    let mut at = 4;
    for _ in 0..count {
        let length = u32_at(data, at).ok_or(CUT)? as usize;
        let end = (at + 4).checked_add(length).ok_or(CUT)?;
        let bytes = data.get(at + 4..end).ok_or(CUT)?;
        text.push(std::str::from_utf8(bytes).map_err(|_| "has a string that is not UTF-8")?)?;
        at = end;
    }
    if at == data.len() { Ok(text) } else { Err("has bytes after its last string".into()) }
}

fn utf32(element: &[u8]) -> Decoded<String> {
    let (units, _) = element.as_chunks::<4>();
    let used = units.iter().rposition(|unit| *unit != [0; 4]).map_or(0, |last| last + 1);
    let letters = units[..used].iter().map(|unit| char::from_u32(u32::from_ne_bytes(*unit)));
    letters.collect::<Option<_>>().ok_or_else(|| "has a string that is not UTF-32".into())
}

fn utf8(element: &[u8]) -> Decoded<&str> {
    let used = element.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    std::str::from_utf8(&element[..used]).map_err(|_| "has a string that is not UTF-8".into())
}

fn whole(element: &[u8], dtype: StoredType) -> Decoded<i64> {
    let number = integer(element, dtype).filter(|_| dtype != StoredType::Bool);
    let number = number.ok_or("holds no integers")?;
    i64::try_from(number).map_err(|_| "has an integer above 2^63".into())
}
