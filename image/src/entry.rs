//! Values of a metadata file, with their keys for messages.

use serde_json::Value;
use teatime::{Error, Result};

/// The maximum number of characters of a value that a message shows.
const SHOWN: usize = 60;

/// The value under a key of a metadata file, or nothing if the key is absent.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    file: &'a str,
    key: String,
    value: Option<&'a Value>,
}

impl<'a> Entry<'a> {
    /// Returns the entry of the whole file.
    pub(crate) fn new(file: &'a str, value: &'a Value) -> Self {
        Self { file, key: String::new(), value: Some(value) }
    }

    /// Returns the entry under a name of an object. Null counts as absent.
    pub(crate) fn get(&self, name: &str) -> Self {
        let dot = if self.key.is_empty() { "" } else { "." };
        let value = self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
        Self { file: self.file, key: format!("{}{dot}{name}", self.key), value }
    }

    /// Returns the entry under a name, if it is present.
    pub(crate) fn find(&self, name: &str) -> Option<Self> {
        Some(self.get(name)).filter(|entry| entry.value.is_some())
    }

    pub(crate) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    pub(crate) fn items(&self) -> Result<Vec<Self>> {
        let items = self.value.and_then(Value::as_array).ok_or_else(|| self.refuse("a list"))?;
        let item =
            |(at, value)| Self { file: self.file, key: format!("{}[{at}]", self.key), value: Some(value) };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub(crate) fn text(&self) -> Result<&'a str> {
        self.value.and_then(Value::as_str).ok_or_else(|| self.refuse("a string"))
    }

    /// Returns a string, or `None` if the entry is absent.
    pub(crate) fn text_or_none(&self) -> Result<Option<&'a str>> {
        self.value.map(|_| self.text()).transpose()
    }

    /// Returns a list of `count` finite numbers, one for each axis.
    pub(crate) fn numbers(&self, count: usize) -> Result<Vec<f64>> {
        let numbers = self.value.and_then(Value::as_array).filter(|numbers| numbers.len() == count);
        let numbers =
            numbers.and_then(|numbers| numbers.iter().map(Value::as_f64).collect::<Option<Vec<_>>>());
        numbers.ok_or_else(|| self.refuse(&format!("a list of {count} numbers, one for each axis")))
    }

    /// Returns the error of an entry that is not as expected.
    pub(crate) fn refuse(&self, expected: &str) -> Error {
        let Some(value) = self.value else {
            return Error::store(self.file, format_args!("has no `{}`, expected {expected}", self.key));
        };
        let mut value = value.to_string();
        if let Some((end, _)) = value.char_indices().nth(SHOWN) {
            value.truncate(end);
            value.push_str("...");
        }
        Error::store(self.file, format_args!("`{}` is {value}, expected {expected}", self.key))
    }
}
