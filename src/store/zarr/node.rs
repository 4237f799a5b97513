//! Arrays and groups of a store.

use std::io::ErrorKind;

use serde_json::Value;

use super::json::{path_within, read_json};
use crate::{
    Error, Result,
    store::{Storage, storage::join},
};

/// The kind of node at a path of a Zarr store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// An array.
    Array,
    /// A group of arrays and other groups.
    Group,
    /// There is nothing at the path.
    Absent,
}

impl Node {
    /// Looks at `path` within `storage`; an empty path means the root of the storage. Reads at most `zarr.json`; of version 2
    /// it only checks which metadata exist.
    ///
    /// # Errors
    /// - [`Error::Store`]: a path with a name that is `.` or `..`, or has a backslash or a NUL byte in it; a `zarr.json` that is not
    ///   valid, or describes neither an array nor a group.
    /// - [`Error::Io`]: the metadata cannot be read.
    pub fn at(storage: &dyn Storage, path: &str) -> Result<Self> {
        let path = &path_within(storage, path)?;
        if let Some(v3) = read_json(storage, &join(path, "zarr.json"))? {
            return match v3.get("node_type").and_then(Value::as_str) {
                Some("array") => Ok(Self::Array),
                Some("group") => Ok(Self::Group),
                _ => {
                    Err(Error::store(storage.place(path), "its zarr.json names neither an array nor a group"))
                }
            };
        }
        if is_there(storage, &join(path, ".zarray"))? {
            return Ok(Self::Array);
        }
        // Some copies of version 2 groups have lost their `.zgroup`.
        for name in [".zgroup", ".zattrs", ".zmetadata"] {
            if is_there(storage, &join(path, name))? {
                return Ok(Self::Group);
            }
        }
        Ok(Self::Absent)
    }

    /// Lists, for messages, the arrays directly in the group at `path`, in byte order of their names; leaves out what it cannot read.
    pub fn arrays(storage: &dyn Storage, path: &str) -> Vec<String> {
        let mut names = storage.list(path).unwrap_or_default();
        names.retain(|name| matches!(Self::at(storage, &join(path, name)), Ok(Self::Array)));
        names.sort_unstable();
        names
    }
}

/// True if a key has a value.
fn is_there(storage: &dyn Storage, key: &str) -> Result<bool> {
    match storage.size(key) {
        Ok(size) => Ok(size.is_some()),
        // A key below a file cannot exist.
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
        Err(source) => Err(Error::io(storage.place(key), source)),
    }
}
