//! Elements of columns: strings and integers out of decoded bytes.

use std::{borrow::Cow, ops::Range};

use super::super::{
    guard::{Decoded, Fault, u32_at},
    layout::integer,
    metadata::{Element, Metadata},
};
use crate::StoredType;

/// A fill value that chunks may be left out for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    Text(&'static str),
    Whole(i64),
}

/// Decoded elements of one chunk.
#[derive(Debug)]
pub(super) enum Values {
    Text(Text),
    Whole(Whole),
    /// The fill value, all of them.
    Filled(Fill),
}

impl Values {
    /// An element; an integer as its digits.
    pub(super) fn text(&self, at: usize) -> Cow<'_, str> {
        match self {
            Self::Text(text) => text.get(at).unwrap_or_default().into(),
            Self::Filled(Fill::Text(text)) => (*text).into(),
            Self::Filled(Fill::Whole(number)) => number.to_string().into(),
            Self::Whole(whole) => whole.numbers[at].to_string().into(),
        }
    }

    /// An element; none where they are strings.
    pub(super) fn whole(&self, at: usize) -> Option<i64> {
        match self {
            Self::Whole(whole) => Some(whole.numbers[at]),
            Self::Filled(Fill::Whole(number)) => Some(*number),
            Self::Filled(Fill::Text(_)) | Self::Text(_) => None,
        }
    }

    /// Whether an element was not there.
    pub(super) fn is_filled(&self, at: usize) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Whole(whole) => {
                let after = whole.filled.partition_point(|range| range.start <= at);
                after > 0 && whole.filled[after - 1].contains(&at)
            }
            Self::Filled(_) => true,
        }
    }
}

/// Integers.
#[derive(Debug)]
pub(super) struct Whole {
    numbers: Vec<i64>,
    /// Rows of them that a shard lacks, in order.
    filled: Vec<Range<usize>>,
}

/// Strings, one after the other.
#[derive(Debug, Default)]
pub(super) struct Text {
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

/// The elements of a decoded chunk, of which a shard lacks these rows.
pub(super) fn parse(metadata: &Metadata, bytes: &[u8], filled: Vec<Range<usize>>) -> Decoded<Values> {
    let spec = &metadata.spec;
    let mut text = Text::default();
    let elements = || bytes.chunks_exact(spec.size.max(1));
    match metadata.element {
        Element::Text => return parse_vlen(bytes, spec.count()).map(Values::Text),
        Element::Number(dtype) => {
            let numbers: Decoded<_> = elements().map(|e| whole(e, dtype)).collect();
            return Ok(Values::Whole(Whole { numbers: numbers?, filled }));
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

pub(super) fn utf32(element: &[u8], text: &mut String) -> Decoded<()> {
    let (units, _) = element.as_chunks::<4>();
    let used = units.iter().rposition(|unit| *unit != [0; 4]).map_or(0, |last| last + 1);
    for unit in &units[..used] {
        text.push(char::from_u32(u32::from_ne_bytes(*unit)).ok_or("has a string that is not UTF-32")?);
    }
    Ok(())
}

pub(super) fn utf8(element: &[u8]) -> Decoded<&str> {
    let used = element.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    std::str::from_utf8(&element[..used]).map_err(|_| "has a string that is not UTF-8".into())
}

pub(super) fn whole(element: &[u8], dtype: StoredType) -> Decoded<i64> {
    let number = integer(element, dtype).filter(|_| dtype != StoredType::Bool);
    let number = number.ok_or("holds no integers")?;
    i64::try_from(number).map_err(|_| "has an integer above 2^63".into())
}
