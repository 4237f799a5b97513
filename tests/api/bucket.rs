//! An application's own storage, for tests.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use teatime::store::{Storage, StoredBytes, Value, WritableStorage};

/// Storage that holds values in a map, one of which may be unreadable.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    values: Mutex<BTreeMap<String, Arc<[u8]>>>,
    /// The key that cannot be read.
    pub(crate) refused: Mutex<Option<&'static str>>,
}

impl Bucket {
    fn values(&self) -> MutexGuard<'_, BTreeMap<String, Arc<[u8]>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Bucket {
    fn place(&self, key: &str) -> String {
        format!("bucket/{key}")
    }

    fn fetches(&self) -> usize {
        4
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Value> {
        if *self.refused.lock().unwrap() == Some(key) {
            return Err(io::Error::other("no route to the bucket"));
        }
        Ok(match self.values().get(key) {
            None => Value::Absent,
            Some(bytes) if bytes.len() as u64 > most => Value::Large(bytes.len() as u64),
            Some(bytes) => Value::Bytes(StoredBytes::Shared(bytes.clone())),
        })
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        Ok(self.values().get(key).map(|bytes| bytes.len() as u64))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let rest = |key: &String| Some(key.strip_prefix(&prefix)?.split('/').next()?.to_owned());
        let mut names: Vec<_> = self.values().keys().filter_map(rest).collect();
        names.dedup();
        Ok(names)
    }
}

impl WritableStorage for Bucket {
    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.values().insert(key.to_owned(), value.into());
        Ok(())
    }

    fn sweep(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
}
