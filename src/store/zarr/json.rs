//! The JSON documents of a store, in all forms that programs write.

use std::io::ErrorKind;

use serde_json::Value;

use crate::{
    Error, Result,
    store::{Storage, Value as Stored, storage::key_within},
};

/// The names of the documents that describe arrays and groups.
pub(in crate::store) const DOCUMENTS: [&str; 5] =
    ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/// True for the key of such a document.
pub(in crate::store) fn is_document(key: &str) -> bool {
    DOCUMENTS.contains(&key.rsplit_once('/').map_or(key, |(_, name)| name))
}

/// The maximum number of bytes of the metadata of one array.
pub(super) const MAX_METADATA_BYTES: u64 = 16 << 20;

/// Reads a JSON value of at most 16 MiB, such as the metadata of a group; returns `None` if there is no such key. The numbers `NaN`,
/// `Infinity` and `-Infinity`, which Python writes although they are not JSON, are read as strings.
///
/// # Errors
/// [`Error::Store`]: the value is longer, or is not JSON, or the key might lead [out of the storage](crate::store::key_within).
/// [`Error::Io`]: the value cannot be read.
pub fn read_json(storage: &dyn Storage, key: &str) -> Result<Option<Value>> {
    let key = &path_within(storage, key)?;
    let refuse = |why: String| Err(Error::store(storage.place(key), why));
    match storage.get(key, MAX_METADATA_BYTES) {
        Ok(Stored::Bytes(bytes)) => match parse_json(&bytes) {
            Ok(json) => Ok(Some(json)),
            Err(error) => refuse(format!("is not valid JSON: {error}")),
        },
        Ok(Stored::Absent) => Ok(None),
        Ok(Stored::Large(_)) => refuse(format!("has more than {MAX_METADATA_BYTES} bytes")),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(None),
        Err(source) => Err(Error::io(storage.place(key), source)),
    }
}

/// Returns the path without empty names, or an error if it might lead out of the store.
pub(super) fn path_within(storage: &dyn Storage, path: &str) -> Result<String> {
    key_within(path)
        .ok_or_else(|| Error::store(storage.place(""), format!("`{path}` is not a path within the store")))
}

/// Parses JSON that may begin with a byte order mark, and may contain the numbers that Python writes.
fn parse_json(bytes: &[u8]) -> serde_json::Result<Value> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    serde_json::from_slice(bytes).or_else(|error| serde_json::from_slice(&quoted(bytes)).map_err(|_| error))
}

/// Returns JSON text in which `NaN`, `Infinity` and `-Infinity` are quoted as strings.
fn quoted(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest, mut in_string) = (Vec::with_capacity(text.len()), text, false);
    while let Some(&byte) = rest.first() {
        let number =
            ["NaN", "Infinity", "-Infinity"].into_iter().find(|number| rest.starts_with(number.as_bytes()));
        let len = match number {
            Some(number) if !in_string => {
                out.extend_from_slice(format!("\"{number}\"").as_bytes());
                number.len()
            }
            _ => {
                in_string ^= byte == b'"';
                let len = if in_string && byte == b'\\' { rest.len().min(2) } else { 1 };
                out.extend_from_slice(&rest[..len]);
                len
            }
        };
        rest = &rest[len..];
    }
    out
}
