//! Stores that tests make: written by the library, and edited if the library never writes such a store.

use std::{fs, sync::Arc};

use serde_json::Value;

use teatime::{
    StoredType,
    store::{ArraySpec, ArrayWriter, Folder, Storable, ZarrFormat},
};

use crate::tests::Scratch;

impl Scratch {
    /// Makes a folder that is a group of Zarr version 2.
    pub(super) fn group() -> Self {
        let scratch = Self::new();
        scratch.put(".zgroup", r#"{"zarr_format":2}"#);
        scratch
    }

    /// Removes the file or the folder of a key.
    pub(super) fn lose(&self, key: &str) {
        let path = self.path().join(key);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    /// Creates an array, and replaces an existing one.
    pub(super) fn array(&self, path: &str, spec: ArraySpec) -> ArrayWriter {
        if self.path().join(path).is_dir() {
            self.lose(path);
        }
        ArrayWriter::create(Arc::new(Folder::new(self.path())), path, spec).unwrap()
    }

    /// Writes an array of numbers, in one chunk.
    pub(super) fn numbers<T: Storable>(&self, path: &str, shape: &[u64], numbers: &[T]) {
        self.array(path, v2(T::STORED, shape, shape)).write(&vec![0; shape.len()], numbers).unwrap();
    }

    /// Writes an array of strings, in one chunk.
    pub(super) fn text(&self, path: &str, shape: &[u64], strings: &[&str]) {
        let writer = self.array(path, v2(None, shape, shape));
        writer.write_text(&vec![0; shape.len()], strings.iter().copied()).unwrap();
    }

    /// Edits a JSON file of metadata.
    pub(super) fn edit(&self, key: &str, change: impl FnOnce(&mut Value)) {
        let mut metadata = serde_json::from_slice(&fs::read(self.path().join(key)).unwrap()).unwrap();
        change(&mut metadata);
        self.put(key, metadata.to_string());
    }
}

/// Returns the spec of an uncompressed array of Zarr version 2 without a fill value.
pub(super) fn v2(dtype: impl Into<Option<StoredType>>, shape: &[u64], chunk_shape: &[u64]) -> ArraySpec {
    let mut spec = ArraySpec::new(dtype, shape, chunk_shape);
    (spec.format, spec.fill) = (ZarrFormat::V2, Value::Null);
    spec
}
