//! Metadata of OME-Zarr groups.

use serde_json::Value;
use teatime::{
    Result,
    store::{Storage, join, read_json},
};

use crate::entry::Entry;

/// A version of OME-Zarr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OmeVersion {
    /// Version 0.4, whose arrays are of Zarr version 2.
    V04,
    /// Version 0.5, whose arrays are of Zarr version 3.
    V05,
}

/// The metadata of an OME-Zarr group.
pub(crate) struct Metadata {
    file: String,
    pub(crate) version: OmeVersion,
    json: Value,
}

impl Metadata {
    /// Reads the metadata of the group at `path`.
    pub(crate) fn read(storage: &dyn Storage, path: &str) -> Result<Self> {
        let key = join(path, "zarr.json");
        if let Some(json) = read_json(storage, &key)? {
            return Ok(Self { file: storage.place(&key), version: OmeVersion::V05, json });
        }
        let key = join(path, ".zattrs");
        let json = read_json(storage, &key)?.unwrap_or_default();
        Ok(Self { file: storage.place(&key), version: OmeVersion::V04, json })
    }

    /// Returns the metadata of OME, if there are any.
    pub(crate) fn ome(&self) -> Result<Entry<'_>> {
        let json = Entry::new(&self.file, &self.json);
        if self.version == OmeVersion::V04 {
            return Ok(json);
        }
        let ome = json.get("attributes").get("ome");
        is_version(&ome.get("version"), "0.5")?;
        Ok(ome)
    }
}

/// Refuses an entry with a version other than the expected one.
pub(crate) fn is_version(entry: &Entry<'_>, expected: &str) -> Result<()> {
    match entry.text_or_none()? {
        Some(found) if found != expected => {
            Err(entry.refuse(&format!("{expected:?}: versions 0.4 and 0.5 of OME-Zarr are read")))
        }
        _ => Ok(()),
    }
}
