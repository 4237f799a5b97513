//! Metadata of a store that are read once, or come from consolidated ones.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    ops::Range,
    sync::{Arc, Mutex},
};

use serde_json::Value;

use super::json::{MAX_METADATA_BYTES, is_document, read_json};
use crate::{
    Error, Result,
    store::{Storage, StoredBytes, Value as Stored, storage::join},
    waiting::lock,
};

/// A document; `None` if it is known that there is none.
type Document = Option<Arc<[u8]>>;

/// A storage that reads each document once, and takes the place of those that consolidated metadata have.
#[derive(Debug)]
struct Documents {
    storage: Arc<dyn Storage>,
    known: Mutex<BTreeMap<String, Document>>,
    /// True if no documents are there but those that are known.
    is_all: bool,
    /// True if documents that are denied are not there: S3 denies these to those who may read a bucket but not list it.
    denies_absent: bool,
}

/// Returns the storage with its documents at hand, after reading the root's consolidated metadata. Fails as [`read_json`] does.
pub(in crate::store) fn consolidated(storage: Arc<dyn Storage>) -> Result<Arc<dyn Storage>> {
    let (is_all, denies_absent) = (false, false);
    let mut documents = Documents { storage, known: Mutex::default(), is_all, denies_absent };
    let root = match read_json(&documents, "zarr.json") {
        Err(Error::Io { source, path }) if source.kind() == ErrorKind::PermissionDenied => {
            documents.denies_absent = true;
            // A document of the root shows that the store may be read.
            let mut others = [".zgroup", ".zarray", ".zmetadata"].into_iter();
            let is_there = |key| documents.document(key).is_ok_and(|document| document.flatten().is_some());
            if !others.any(is_there) {
                return Err(Error::Io { source, path });
            }
            None
        }
        root => root?,
    };
    let v2 = if root.is_none() { read_json(&documents, ".zmetadata")? } else { None };
    let root = root.unwrap_or_default();
    let nodes = root.pointer("/consolidated_metadata/metadata").and_then(Value::as_object);
    let listed = v2.as_ref().and_then(|v2| v2.get("metadata")?.as_object());
    documents.is_all = nodes.is_some() || listed.is_some() || root["node_type"] == "array";
    if !documents.is_all && root.is_object() {
        // A store of version 3 has no such document.
        let other = documents.document(".zgroup");
        documents.denies_absent = other.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    }
    let nodes = nodes.into_iter().flatten().map(|(path, node)| (join(path, "zarr.json"), node));
    let listed = listed.into_iter().flatten().map(|(key, document)| (key.clone(), document));
    for (key, document) in nodes.chain(listed) {
        lock(&documents.known).insert(key, Some(document.to_string().into_bytes().into()));
    }
    Ok(Arc::new(documents))
}

impl Documents {
    /// Returns the document of a key; the outer `None` for the key of anything else, and for a document that is too large.
    fn document(&self, key: &str) -> io::Result<Option<Document>> {
        if !is_document(key) {
            return Ok(None);
        }
        if let Some(document) = lock(&self.known).get(key) {
            return Ok(Some(document.clone()));
        }
        let document: Document = match self.is_all {
            true => None,
            false => match self.storage.get(key, MAX_METADATA_BYTES) {
                Ok(Stored::Bytes(bytes)) => Some((*bytes).into()),
                Ok(Stored::Absent) => None,
                Ok(Stored::Large(_)) => return Ok(None),
                Err(error) if self.denies_absent && error.kind() == ErrorKind::PermissionDenied => None,
                Err(error) => return Err(error),
            },
        };
        lock(&self.known).insert(key.to_owned(), document.clone());
        Ok(Some(document))
    }
}

impl Storage for Documents {
    fn place(&self, key: &str) -> String {
        self.storage.place(key)
    }

    fn fetches(&self) -> usize {
        self.storage.fetches()
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Stored> {
        Ok(match self.document(key)? {
            None => return self.storage.get(key, most),
            Some(None) => Stored::Absent,
            Some(Some(bytes)) if bytes.len() as u64 > most => Stored::Large(bytes.len() as u64),
            Some(Some(bytes)) => Stored::Bytes(StoredBytes::Shared(bytes)),
        })
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> io::Result<Stored> {
        self.storage.get_range(key, range)
    }

    fn reads_ranges(&self, key: &str) -> io::Result<bool> {
        self.storage.reads_ranges(key)
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        match self.document(key)? {
            Some(document) => Ok(document.map(|bytes| bytes.len() as u64)),
            None => self.storage.size(key),
        }
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        if !self.is_all {
            return self.storage.list(prefix);
        }
        let (prefix, known) = (join(prefix, ""), lock(&self.known));
        let there = known.iter().filter(|(_, document)| document.is_some()).map(|(key, _)| key);
        let below = there.filter_map(|key| key.strip_prefix(&*prefix)?.split_once('/'));
        let mut names: Vec<String> = below.map(|(name, _)| name.to_owned()).collect();
        names.dedup();
        Ok(names)
    }
}
