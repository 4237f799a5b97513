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
    /// Version 0.1, whose images have the axes `t`, `c`, `z`, `y` and `x`. Up to version 0.4, arrays are of Zarr version 2.
    V01,
    /// Version 0.2, which has another separator in the names of chunks.
    V02,
    /// Version 0.3, which names the axes.
    V03,
    /// Version 0.4, which also has kinds of axes, units and transformations.
    V04,
    /// Version 0.5, whose arrays are of Zarr version 3.
    V05,
}

pub(crate) struct Metadata {
    file: String,
    pub(crate) version: OmeVersion,
    json: Value,
}

impl Metadata {
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
        version(&ome.get("version"), &[("0.5", OmeVersion::V05)])?;
        Ok(ome)
    }
}

/// Returns the version that an entry names, which is the first of `versions` if it names none.
pub(crate) fn version(entry: &Entry<'_>, versions: &[(&str, OmeVersion)]) -> Result<OmeVersion> {
    let named = entry.text_or_none()?;
    let known = versions.iter().find(|(name, _)| named.is_none_or(|named| named == *name));
    let (first, _) = versions[0];
    known
        .map(|(_, version)| *version)
        .ok_or_else(|| entry.refuse(&format!("{first:?}: versions 0.1 to 0.5 of OME-Zarr are read")))
}
