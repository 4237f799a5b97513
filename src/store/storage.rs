//! Storage of bytes: values under keys.

use std::{
    fmt,
    fs::File,
    io::{self, ErrorKind, Read, Write},
    ops::{Deref, Range},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, SendError, SyncSender},
    },
    thread::JoinHandle,
};

use crate::{extent::to_usize, files::read_at, fresh, waiting::lock};

/// Values under keys, such as the files of a folder or the objects of a bucket, read from any thread.
///
/// A key is a path of names with `/` between them, such as `values/c/0/3`; none of the names is empty, `.` or `..`.
///
/// ```
/// # #[cfg(feature = "zarr")] {
/// use std::{collections::BTreeMap, io, sync::Arc};
/// use teatime::{
///     ChunkedArray, MissingChunk,
///     store::{Storage, StoredBytes, Value, ZarrArray},
/// };
///
/// /// Values in a map, in place of the objects of a bucket.
/// #[derive(Debug)]
/// struct Bucket(BTreeMap<&'static str, Arc<[u8]>>);
///
/// impl Storage for Bucket {
///     fn place(&self, key: &str) -> String {
///         format!("bucket/{key}")
///     }
///     fn get(&self, key: &str, most: u64) -> io::Result<Value> {
///         Ok(match self.0.get(key) {
///             None => Value::Absent,
///             Some(bytes) if bytes.len() as u64 > most => Value::Large(bytes.len() as u64),
///             Some(bytes) => Value::Bytes(StoredBytes::Shared(bytes.clone())),
///         })
///     }
///     fn size(&self, key: &str) -> io::Result<Option<u64>> {
///         Ok(self.0.get(key).map(|bytes| bytes.len() as u64))
///     }
///     fn list(&self, _: &str) -> io::Result<Vec<String>> {
///         Err(io::ErrorKind::Unsupported.into())
///     }
/// }
///
/// let metadata = r#"{"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": "|u1", "fill_value": 0,
///     "order": "C", "filters": null, "compressor": null}"#;
/// let values = [("x/.zarray", Arc::from(metadata.as_bytes())), ("x/0", Arc::from([7, 8, 9].as_slice()))];
/// let storage: Arc<dyn Storage> = Arc::new(Bucket(values.into()));
/// let x = ZarrArray::open_in(&storage, "x", MissingChunk::Error)?;
/// assert_eq!(x.read_chunk(&[0])?.bytes, [7, 8, 9]);
/// # }
/// # Ok::<(), teatime::Error>(())
/// ```
pub trait Storage: fmt::Debug + Send + Sync {
    /// Returns the place of a key, for messages; for the empty key, the place of the storage.
    fn place(&self, key: &str) -> String;

    /// Returns the number of values to request concurrently if the storage has high latency; otherwise 0, the default.
    fn fetches(&self) -> usize {
        0
    }

    /// True if values [open](Self::open_value): if local files hold them as they are. By default it is false.
    fn opens_values(&self) -> bool {
        false
    }

    /// Opens the file that holds a key's value, if values [open](Self::opens_values), so that parts of it are read without
    /// [`get`](Self::get); and returns which of its bytes are the value. `None` if the key has no value, or one that does not open.
    fn open_value(&self, key: &str) -> Option<(Arc<File>, Range<u64>)> {
        let _ = key;
        None
    }

    /// Returns the value of a key if it has at most `most` bytes. Allocates memory for no more than `most` bytes.
    ///
    /// # Errors
    /// An error if the storage cannot tell whether the key has a value, or cannot read the value. A missing value is not an error.
    fn get(&self, key: &str, most: u64) -> io::Result<Value>;

    /// Returns the bytes of a key's value that are in `range`. By default reads the whole value.
    ///
    /// # Errors
    /// See [`get`](Self::get); [`ErrorKind::UnexpectedEof`] for a range beyond the end.
    fn get_range(&self, key: &str, range: Range<u64>) -> io::Result<Value> {
        let Value::Bytes(bytes) = self.get(key, u64::MAX)? else { return Ok(Value::Absent) };
        let part = bytes.get(to_usize(range.start)..to_usize(range.end)).ok_or(ErrorKind::UnexpectedEof)?;
        Ok(Value::Bytes(StoredBytes::Shared(part.into())))
    }

    /// True if [`get_range`](Self::get_range) reads parts of values without the rest of them: of the value of `key`, and of those beside
    /// and below it. By default it is false. Shards are then read as a whole.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn reads_ranges(&self, key: &str) -> io::Result<bool> {
        let _ = key;
        Ok(false)
    }

    /// Returns the number of bytes of a key's value, or `None` if the key has no value.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    fn size(&self, key: &str) -> io::Result<Option<u64>>;

    /// Lists, in any order, the names that directly follow `prefix` in longer keys; `prefix` is a key or empty.
    ///
    /// # Errors
    /// An error if the names cannot be listed; [`ErrorKind::Unsupported`] if the storage cannot list names at all.
    fn list(&self, prefix: &str) -> io::Result<Vec<String>>;
}

/// A [`Storage`] that any thread can write values to.
pub trait WritableStorage: Storage {
    /// Sets the value of a key atomically: the whole value is written or nothing, even if this process is killed meanwhile.
    ///
    /// # Errors
    /// An error if the value cannot be written; an earlier value of the key is kept.
    fn put(&self, key: &str, value: &[u8]) -> io::Result<()>;

    /// Begins to set the value of a key, which may become visible only when [`flush`](Self::flush) has returned, so that the caller does
    /// not wait for slow storage. Calls [`put`](Self::put) by default.
    ///
    /// # Errors
    /// The errors of [`put`](Self::put), for this value or for one begun earlier.
    fn begin_put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.put(key, value)
    }

    /// Waits until all values that were begun are written.
    ///
    /// # Errors
    /// An error if one of the values could not be written.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Removes the leftovers of interrupted puts under the keys that begin with `prefix`, which is a key or empty.
    ///
    /// # Errors
    /// An error if a leftover cannot be removed.
    fn sweep(&self, prefix: &str) -> io::Result<()>;
}

/// The answer of a [`Storage`] about a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// The key has no value.
    Absent,
    /// The value has more bytes than were allowed; holds their number.
    Large(u64),
    /// The bytes of the value.
    Bytes(StoredBytes),
}

/// Bytes as stored: owned by the reader, or shared with the storage.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the type says it")]
#[non_exhaustive]
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

/// Returns the key for a path within a storage as metadata give it: `/a//b` becomes `a/b`. Returns `None` for a path that might lead out
/// of the storage: one with a name that is `.` or `..`, or that has a backslash, a NUL byte or, on Windows, a colon in it.
///
/// ```
/// use teatime::store::key_within;
///
/// assert_eq!(key_within("/a//b").as_deref(), Some("a/b"));
/// assert_eq!(key_within("a/../../b"), None);
/// ```
pub fn key_within(path: &str) -> Option<String> {
    let leads_out = |name: &&str| {
        matches!(*name, "." | "..") || name.contains(['\\', '\0']) || cfg!(windows) && name.contains(':')
    };
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    (!names.iter().any(leads_out)).then(|| names.join("/"))
}

/// Returns the key of `name` within the group at `path`, which may be empty.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// The files of a folder. A value is written to a temporary file, which is then renamed.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Syncs files to the disk, if the folder is durable.
    to_disk: Option<ToDisk>,
}

/// A temporary file, not yet renamed to its final name. It is removed if this is dropped before the rename.
#[derive(Debug)]
pub(crate) struct Unnamed {
    file: File,
    scratch: PathBuf,
    path: PathBuf,
    named: bool,
}

/// Syncs files to the disk and renames them in the order in which they were written. A thread does this from the first file to
/// [`wait`](Self::wait).
#[derive(Debug, Default)]
struct ToDisk(Mutex<Option<Thread>>);

#[derive(Debug)]
struct Thread {
    sender: SyncSender<Unnamed>,
    handle: JoinHandle<io::Result<()>>,
}

/// The maximum number of files that may wait to be written to the disk.
const WAITING: usize = 4;

impl ToDisk {
    /// Queues a file. Waits while the queue is full.
    fn begin(&self, mut unnamed: Unnamed) -> io::Result<()> {
        loop {
            let sender = self.sender()?;
            let Err(SendError(back)) = sender.send(unnamed) else { return Ok(()) };
            drop(sender);
            // The thread ends early only after an error, which one of the callers that find it ended returns.
            self.wait()?;
            unnamed = back;
        }
    }

    fn sender(&self) -> io::Result<SyncSender<Unnamed>> {
        let mut held = lock(&self.0);
        let thread = held.take().map_or_else(Thread::start, Ok)?;
        Ok(held.insert(thread).sender.clone())
    }

    /// Waits until all files are renamed.
    fn wait(&self) -> io::Result<()> {
        let Some(Thread { sender, handle }) = lock(&self.0).take() else { return Ok(()) };
        drop(sender);
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for ToDisk {
    fn drop(&mut self) {
        // A caller that needed the result has called `wait`.
        drop(self.wait());
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let (sender, files) = mpsc::sync_channel::<Unnamed>(WAITING);
        let name_all = move || files.into_iter().try_for_each(|file| file.name(true));
        let handle = std::thread::Builder::new().name("teatime-disk".into()).spawn(name_all)?;
        Ok(Self { sender, handle })
    }
}

impl Folder {
    /// Makes a storage of the folder at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), to_disk: None }
    }

    /// Makes the folder sync each file to the disk before its rename, so that a power failure truncates no file.
    /// [`put`](WritableStorage::put) waits for the disk; [`begin_put`](WritableStorage::begin_put) leaves that to another thread.
    #[must_use]
    pub fn durable(self) -> Self {
        Self { to_disk: Some(ToDisk::default()), ..self }
    }

    /// Returns the path of a key, for messages only: [`within`](Self::within) checks whether a key leads out of the folder.
    pub(crate) fn path(&self, key: &str) -> PathBuf {
        let mut path = self.path.clone();
        path.extend(key.split('/').filter(|name| !name.is_empty()));
        path
    }

    /// Returns the path of a key, checked to be within the folder.
    fn within(&self, key: &str) -> io::Result<PathBuf> {
        let key = key_within(key)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "is not a path within the folder"))?;
        Ok(self.path(&key))
    }

    /// Writes a value to a temporary file with a unique name, in the same folder as the file of its key.
    pub(crate) fn write(&self, key: &str, value: &[u8]) -> io::Result<Unnamed> {
        let path = self.within(key)?;
        let create = || create_beside(&path, |path| File::options().write(true).create_new(true).open(path));
        let (file, scratch) = match create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                std::fs::create_dir_all(path.parent().unwrap_or(&self.path))?;
                create()?
            }
            created => created?,
        };
        let mut unnamed = Unnamed { file, scratch, path, named: false };
        unnamed.file.write_all(value)?;
        Ok(unnamed)
    }

    /// Returns the path and the size of a key's file. Does not open the file, since opening a named pipe waits for a writer.
    fn file(&self, key: &str) -> io::Result<Option<(PathBuf, u64)>> {
        let path = self.within(key)?;
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

impl Unnamed {
    /// Renames the file to its final name; if `on_disk`, syncs it to the disk first.
    pub(crate) fn name(mut self, on_disk: bool) -> io::Result<()> {
        let synced = if on_disk { self.file.sync_data() } else { Ok(()) };
        let named = synced.and_then(|()| std::fs::rename(&self.scratch, &self.path));
        self.named = named.is_ok();
        // The caller may be handling another key, so the error names this file.
        named.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if !self.named {
            // The partial file is useless, and the error that led here is more informative than one of its removal.
            std::fs::remove_file(&self.scratch).ok();
        }
    }
}

/// The suffix of the names of temporary files.
const PARTIAL: &str = ".partial";

/// True for the name of a temporary file, including one that a killed process left.
pub(super) fn is_partial(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(PARTIAL)
}

/// Creates a new hidden file or folder in the folder of `path`, and also returns its path. `create` has to fail with
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists) where something is already: then another name is tried.
pub(super) fn create_beside<T>(
    path: &Path,
    create: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let scratch = path.with_file_name(format!(".{name}.{}-{next}{PARTIAL}", std::process::id()));
        match create(&scratch) {
            // The file or folder belongs to a killed process that had the same process id.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return Ok((created?, scratch)),
        }
    }
}

impl WritableStorage for Folder {
    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.write(key, value)?.name(self.to_disk.is_some())
    }

    fn begin_put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        let unnamed = self.write(key, value)?;
        match &self.to_disk {
            Some(to_disk) => to_disk.begin(unnamed),
            None => unnamed.name(false),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.to_disk.as_ref().map_or(Ok(()), ToDisk::wait)
    }

    fn sweep(&self, prefix: &str) -> io::Result<()> {
        let mut folders = vec![self.within(prefix)?];
        while let Some(folder) = folders.pop() {
            let entries = match std::fs::read_dir(folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else if is_partial(&entry.file_name().to_string_lossy()) {
                    std::fs::remove_file(entry.path())?;
                }
            }
        }
        Ok(())
    }
}

impl Storage for Folder {
    fn place(&self, key: &str) -> String {
        self.path(key).display().to_string()
    }

    fn opens_values(&self) -> bool {
        true
    }

    fn open_value(&self, key: &str) -> Option<(Arc<File>, Range<u64>)> {
        let (path, size) = self.file(key).ok()??;
        Some((Arc::new(File::open(path).ok()?), 0..size))
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Value> {
        let Some((path, size)) = self.file(key)? else { return Ok(Value::Absent) };
        if size > most {
            return Ok(Value::Large(size));
        }
        let mut bytes = fresh::chunk(to_usize(size))?;
        // The file may have grown since its size was read.
        File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        let size = bytes.len() as u64;
        Ok(if size > most { Value::Large(size) } else { Value::Bytes(StoredBytes::Owned(bytes)) })
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> io::Result<Value> {
        let Some((path, size)) = self.file(key)? else { return Ok(Value::Absent) };
        if range.end > size {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let len = to_usize(range.end.saturating_sub(range.start));
        let mut bytes = fresh::chunk(len)?;
        bytes.resize(len, 0);
        read_at(&File::open(path)?, &mut bytes, range.start)?;
        Ok(Value::Bytes(StoredBytes::Owned(bytes)))
    }

    fn reads_ranges(&self, _: &str) -> io::Result<bool> {
        Ok(true)
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        Ok(self.file(key)?.map(|(_, size)| size))
    }

    /// Lists folders, and also broken links, which might have been links to folders.
    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.within(prefix)?)? {
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
mod tests {
    use super::*;
    use crate::openings::{Map, files};

    /// A begun value exists after a flush or after the folder is dropped. A put that fails is reported with its path, leaves no file, and
    /// stops no later put.
    #[test]
    fn files_that_are_begun() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path();
        for folder in [Folder::new(path), Folder::new(path).durable()] {
            let keys = || (0..3 * WAITING).map(|i| format!("a/{i}"));
            std::thread::scope(|scope| {
                for key in keys() {
                    let folder = &folder;
                    scope.spawn(move || folder.begin_put(&key, key.as_bytes()).unwrap());
                }
            });
            folder.flush().unwrap();
            let all = files(path);
            assert_eq!(all.len(), 3 * WAITING);
            assert!(keys().all(|key| *all[&key] == *key.as_bytes()));
            // A folder already has the path of the file.
            let failed = folder.begin_put("a", b"x").and_then(|()| folder.flush()).unwrap_err();
            assert!(failed.to_string().contains(&path.join("a").display().to_string()), "{failed}");
            folder.flush().unwrap();
            folder.begin_put("b", b"y").unwrap();
            drop(folder);
            assert_eq!(files(path).len(), 3 * WAITING + 1);
            std::fs::remove_dir_all(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }
    }

    /// A folder and a map of its files give the same answers; values that are put are found, and interrupted puts are swept.
    #[test]
    fn a_folder_is_values_under_keys() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path();
        let folder = Folder::new(path).durable();
        folder.sweep("").unwrap();
        for (key, value) in [("a/b/c", &b"12345"[..]), ("a/d", b""), ("e", b"x"), ("e", b"yz")] {
            folder.put(key, value).unwrap();
        }
        // This leaves a file as a killed process would.
        std::mem::forget(folder.write("a/b/f", b"cut short").unwrap());
        assert_eq!(files(path).len(), 4);
        folder.sweep("a").unwrap();
        let map = Map::of(path);
        assert_eq!(map.all().keys().collect::<Vec<_>>(), ["a/b/c", "a/d", "e"]);
        for storage in [&folder as &dyn Storage, &map] {
            let get = |key: &str, most| storage.get(key, most).unwrap();
            assert!(matches!(get("a/b/c", 5), Value::Bytes(bytes) if *bytes == *b"12345"));
            assert!(matches!(get("a/b/c", 4), Value::Large(5)));
            assert!(matches!(get("e", u64::MAX), Value::Bytes(bytes) if *bytes == *b"yz"));
            assert!(matches!(get("a/b/f", 9), Value::Absent));
            let sizes = ["a/b/c", "a/d", "b"].map(|key| storage.size(key).unwrap());
            assert_eq!(sizes, [Some(5), Some(0), None]);
            assert_eq!(storage.list("").unwrap(), ["a"]);
            assert_eq!(storage.list("a").unwrap(), ["b"]);
        }
        // A file outside the folder cannot be reached.
        let beside = Folder::new(path.join("a"));
        for key in ["../e", "b/../../e"] {
            assert!(beside.get(key, 9).is_err() && beside.size(key).is_err());
            assert!(
                beside.put(key, b"x").is_err() && beside.list(key).is_err() && beside.sweep(key).is_err()
            );
        }
        assert!(matches!(beside.get("/d", 9).unwrap(), Value::Bytes(_)));
        assert!(folder.get("a", 9).is_err() && folder.size("a").is_err());
        assert!(folder.put("a", b"a folder is there").is_err() && folder.list("b").is_err());
        assert_eq!(files(path).len(), 3);
    }
}
