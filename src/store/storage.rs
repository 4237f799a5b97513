//! Where stored bytes are: values under keys.

use std::{
    fmt,
    fs::File,
    io::{self, ErrorKind, Read},
    ops::Deref,
    path::PathBuf,
    sync::Arc,
};

/// Values under keys, such as the files of a folder or the objects of a bucket, read from any thread.
///
/// A key is a path of names with `/` between them, such as `calls/c/0/3`; none of the names is empty, `.` or `..`.
pub trait Storage: fmt::Debug + Send + Sync {
    /// Where a key is, for messages; for the empty key where the storage is.
    fn place(&self, key: &str) -> String;

    /// How many values should be asked for at once, where answers take their time; 0, the default, where they do not.
    fn fetches(&self) -> usize {
        0
    }

    /// The value of a key, if it has at most `most` bytes. Takes memory for no more than these.
    ///
    /// # Errors
    /// Where it cannot be told whether there is a value, or the value cannot be read, for any other reason than that there
    /// is none.
    fn get(&self, key: &str, most: u64) -> io::Result<Value>;

    /// Bytes of the value of a key; none where there is no value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn size(&self, key: &str) -> io::Result<Option<u64>>;

    /// The names that follow `prefix`, a key or nothing, in keys of at least one name more. In any order.
    ///
    /// # Errors
    /// Where they cannot be listed; [`ErrorKind::Unsupported`] where the storage lists nothing.
    fn list(&self, prefix: &str) -> io::Result<Vec<String>>;
}

/// What a [`Storage`] has under a key.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing.
    Absent,
    /// More bytes than were asked for: how many.
    Large(u64),
    /// The value.
    Bytes(StoredBytes),
}

/// Bytes as they are stored: the reader's own, or shared with what keeps them.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the type says it")]
pub enum StoredBytes {
    Owned(Vec<u8>),
    Shared(Arc<[u8]>),
}

impl Deref for StoredBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// The key of `name` within `path`, which may be empty.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// The files of a folder.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn path(&self, key: &str) -> PathBuf {
        let mut path = self.0.clone();
        path.extend(key.split('/').filter(|name| !name.is_empty()));
        path
    }

    /// The file of a key and its bytes. It is not opened: opening a named pipe waits for a writer.
    fn file(&self, key: &str) -> io::Result<Option<(PathBuf, u64)>> {
        let path = self.path(key);
        match path.metadata() {
            Ok(metadata) if metadata.is_file() => Ok(Some((path, metadata.len()))),
            Ok(_) => Err(io::Error::new(ErrorKind::InvalidInput, "is not a file")),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Err(_) if path.symlink_metadata().is_ok() => {
                Err(io::Error::new(ErrorKind::InvalidInput, "is a link to nothing"))
            }
            Err(_) => Ok(None),
        }
    }
}

impl Storage for Folder {
    fn place(&self, key: &str) -> String {
        self.path(key).display().to_string()
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Value> {
        let Some((path, size)) = self.file(key)? else { return Ok(Value::Absent) };
        if size > most {
            return Ok(Value::Large(size));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX))?;
        // It may have grown meanwhile.
        File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        let size = bytes.len() as u64;
        Ok(if size > most { Value::Large(size) } else { Value::Bytes(StoredBytes::Owned(bytes)) })
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        Ok(self.file(key)?.map(|(_, size)| size))
    }

    /// Folders, and links that lead nowhere and might be some.
    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path(prefix))? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && (entry.path().is_dir() || !entry.path().exists())
            {
                names.push(name);
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        collections::BTreeMap,
        path::Path,
        sync::atomic::{AtomicU64, Ordering::Relaxed},
    };

    use super::*;

    /// Values in memory. Counts what is asked for.
    #[derive(Debug, Default)]
    pub(crate) struct Map {
        pub(crate) values: BTreeMap<String, Arc<[u8]>>,
        pub(crate) gets: AtomicU64,
        pub(crate) bytes: AtomicU64,
    }

    impl Map {
        /// The files of a folder.
        pub(crate) fn of(folder: &Path) -> Self {
            let mut map = Self::default();
            map.add(folder, "");
            map
        }

        fn add(&mut self, folder: &Path, prefix: &str) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let key = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
                if path.is_dir() {
                    self.add(&path, &format!("{key}/"));
                } else {
                    self.values.insert(key, std::fs::read(path).unwrap().into());
                }
            }
        }
    }

    impl Storage for Map {
        fn place(&self, key: &str) -> String {
            format!("map:{key}")
        }

        fn get(&self, key: &str, most: u64) -> io::Result<Value> {
            self.gets.fetch_add(1, Relaxed);
            Ok(match self.values.get(key) {
                None => Value::Absent,
                Some(value) if value.len() as u64 > most => Value::Large(value.len() as u64),
                Some(value) => {
                    self.bytes.fetch_add(value.len() as u64, Relaxed);
                    Value::Bytes(StoredBytes::Shared(Arc::clone(value)))
                }
            })
        }

        fn size(&self, key: &str) -> io::Result<Option<u64>> {
            Ok(self.values.get(key).map(|value| value.len() as u64))
        }

        fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
            let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
            let names = self.values.keys().filter_map(|key| key.strip_prefix(&prefix)?.split_once('/'));
            let mut names: Vec<String> = names.map(|(name, _)| name.to_owned()).collect();
            names.dedup();
            Ok(names)
        }
    }
}
