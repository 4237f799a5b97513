//! Consolidated metadata in place of requests.

use std::{collections::BTreeMap, io, ops::Range, sync::Arc};

use serde_json::Value;

use super::json::read_json;
use crate::{
    Result,
    store::{Storage, StoredBytes, Value as Stored, storage::join},
};

/// The names of the documents that describe arrays and groups.
const DOCUMENTS: [&str; 5] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/// A storage that answers for the metadata of a Zarr store, and for lists of names, from its consolidated metadata.
#[derive(Debug)]
struct Consolidated {
    storage: Arc<dyn Storage>,
    documents: BTreeMap<String, Arc<[u8]>>,
    /// True if no other documents are there.
    is_all: bool,
}

/// Reads the consolidated metadata at the root of `storage`, if there are any.
///
/// # Errors
/// The errors of [`read_json`].
pub(in crate::store) fn consolidated(storage: Arc<dyn Storage>) -> Result<Arc<dyn Storage>> {
    let mut documents = BTreeMap::new();
    let mut put = |key: String, value: &Value| documents.insert(key, value.to_string().into_bytes().into());
    let root = read_json(&*storage, "zarr.json")?;
    let nodes = root.as_ref().and_then(|root| root.pointer("/consolidated_metadata/metadata"));
    let mut is_all = root.as_ref().is_some_and(|root| root["node_type"] == "array");
    if let Some(root) = &root {
        put("zarr.json".into(), root);
    }
    if let Some(nodes) = nodes.and_then(Value::as_object) {
        nodes.iter().for_each(|(path, node)| drop(put(join(path, "zarr.json"), node)));
        is_all = true;
    }
    let root_of_v2 = if root.is_none() { read_json(&*storage, ".zmetadata")? } else { None };
    if let Some(all) = root_of_v2.as_ref().and_then(|root| root.get("metadata")?.as_object()) {
        all.iter().for_each(|(key, value)| drop(put(key.clone(), value)));
        is_all = true;
    }
    Ok(if documents.is_empty() { storage } else { Arc::new(Consolidated { storage, documents, is_all }) })
}

impl Consolidated {
    /// Returns the document of a key; `Some(None)` if there is none of this name.
    fn document(&self, key: &str) -> Option<Option<&Arc<[u8]>>> {
        let found = self.documents.get(key);
        let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
        (found.is_some() || self.is_all && DOCUMENTS.contains(&name)).then_some(found)
    }
}

impl Storage for Consolidated {
    fn place(&self, key: &str) -> String {
        self.storage.place(key)
    }

    fn fetches(&self) -> usize {
        self.storage.fetches()
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Stored> {
        Ok(match self.document(key) {
            None => return self.storage.get(key, most),
            Some(None) => Stored::Absent,
            Some(Some(bytes)) if bytes.len() as u64 > most => Stored::Large(bytes.len() as u64),
            Some(Some(bytes)) => Stored::Bytes(StoredBytes::Shared(Arc::clone(bytes))),
        })
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> io::Result<Stored> {
        self.storage.get_range(key, range)
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        match self.document(key) {
            Some(document) => Ok(document.map(|bytes| bytes.len() as u64)),
            None => self.storage.size(key),
        }
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        if !self.is_all {
            return self.storage.list(prefix);
        }
        let prefix = join(prefix, "");
        let below = self.documents.keys().filter_map(|key| key.strip_prefix(&*prefix)?.split_once('/'));
        let mut names: Vec<String> = below.map(|(name, _)| name.to_owned()).collect();
        names.dedup();
        Ok(names)
    }
}
