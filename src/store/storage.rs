//! Storage of bytes: values under keys.

use std::{
    fmt,
    fs::File,
    io::{self, ErrorKind, Read, Write},
    ops::Deref,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, SendError, SyncSender},
    },
    thread::JoinHandle,
};

use crate::extent::to_usize;

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
    /// The place of a key, for messages; for the empty key that of the storage.
    fn place(&self, key: &str) -> String;

    /// The number of values that should be asked for at once, where answers take their time; 0, the default, where they do not.
    fn fetches(&self) -> usize {
        0
    }

    /// The value of a key, if it has at most `most` bytes. Takes memory for no more than these.
    ///
    /// # Errors
    /// An error where the storage cannot tell whether there is a value, or cannot read it. That there is none is no error.
    fn get(&self, key: &str, most: u64) -> io::Result<Value>;

    /// Bytes of the value of a key; none where there is no value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn size(&self, key: &str) -> io::Result<Option<u64>>;

    /// The names that follow `prefix`, a key or nothing, in keys of at least one name more. In any order.
    ///
    /// # Errors
    /// An error where they cannot be listed; [`ErrorKind::Unsupported`] where the storage lists nothing.
    fn list(&self, prefix: &str) -> io::Result<Vec<String>>;
}

/// A [`Storage`] that takes values, from any thread.
pub trait WritableStorage: Storage {
    /// Gives a key a value: the whole of it or none, whatever happens meanwhile, also to this process.
    ///
    /// # Errors
    /// An error where it cannot be written; what was there before is there still.
    fn put(&self, key: &str, value: &[u8]) -> io::Result<()>;

    /// Begins to give a key a value, which may be there only when [`flush`](Self::flush) has returned: nothing waits for slow storage. By
    /// default [`put`](Self::put).
    ///
    /// # Errors
    /// As [`put`](Self::put), of this value or of one that was begun before.
    fn begin_put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.put(key, value)
    }

    /// Waits until all values are there that were begun.
    ///
    /// # Errors
    /// An error where one could not be written.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Removes what is left of puts that were cut short, under the keys that begin with `prefix`, a key or nothing.
    ///
    /// # Errors
    /// An error where that cannot be removed.
    fn sweep(&self, prefix: &str) -> io::Result<()>;
}

/// The answer of a [`Storage`] about a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
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

/// The key that a path within a storage names, as metadata have it: `/a//b` is `a/b`. None for one that might lead out of the storage, with
/// a name that is `.` or `..`, or has a backslash, a zero or, on Windows, a colon in it.
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

/// The key of `name` within the group at `path`, which may be empty.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// The files of a folder. Values are put under another name, and then renamed.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Brings files to the disk, where they are wanted there.
    to_disk: Option<ToDisk>,
}

/// A file that has not got its name; without one it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Unnamed {
    file: File,
    scratch: PathBuf,
    path: PathBuf,
    named: bool,
}

/// Brings files to the disk, and gives them their names, in the order in which they were written: on a thread that runs from
/// the first file to [`wait`](Self::wait).
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
    /// Takes a file. Waits where many wait for the disk.
    fn begin(&self, mut unnamed: Unnamed) -> io::Result<()> {
        loop {
            let sender = self.sender()?;
            let Err(SendError(back)) = sender.send(unnamed) else { return Ok(()) };
            drop(sender);
            // The thread ends before its time only for an error, which one of those gets who find it ended.
            self.wait()?;
            unnamed = back;
        }
    }

    fn sender(&self) -> io::Result<SyncSender<Unnamed>> {
        let mut held = self.lock();
        let thread = held.take().map_or_else(Thread::start, Ok)?;
        Ok(held.insert(thread).sender.clone())
    }

    /// Waits until all files have their names.
    fn wait(&self) -> io::Result<()> {
        let Some(Thread { sender, handle }) = self.lock().take() else { return Ok(()) };
        drop(sender);
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Thread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ToDisk {
    fn drop(&mut self) {
        // Who wanted to know waited.
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
    /// The folder at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), to_disk: None }
    }

    /// Makes the folder put its files on the disk before they have their names: a power failure cuts none short.
    /// [`put`](WritableStorage::put) waits for the disk; for [`begin_put`](WritableStorage::begin_put) a thread of its own does.
    #[must_use]
    pub fn durable(self) -> Self {
        Self { to_disk: Some(ToDisk::default()), ..self }
    }

    /// The path of a key, for messages alone: [`within`](Self::within) looks whether it leads out of the folder.
    pub(crate) fn path(&self, key: &str) -> PathBuf {
        let mut path = self.path.clone();
        path.extend(key.split('/').filter(|name| !name.is_empty()));
        path
    }

    /// The path of a key, checked to be within the folder.
    fn within(&self, key: &str) -> io::Result<PathBuf> {
        let key = key_within(key)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "is not a path within the folder"))?;
        Ok(self.path(&key))
    }

    /// Writes a value under a name that nothing else has, beside that of its key.
    pub(crate) fn write(&self, key: &str, value: &[u8]) -> io::Result<Unnamed> {
        let path = self.within(key)?;
        let (file, scratch) = match create_beside(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                std::fs::create_dir_all(path.parent().unwrap_or(&self.path))?;
                create_beside(&path)?
            }
            created => created?,
        };
        let mut unnamed = Unnamed { file, scratch, path, named: false };
        unnamed.file.write_all(value)?;
        Ok(unnamed)
    }

    /// The file of a key and its bytes. It is not opened: opening a named pipe waits for a writer.
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
    /// Gives the file its name: where that is wanted, once it is on the disk.
    pub(crate) fn name(mut self, on_disk: bool) -> io::Result<()> {
        let synced = if on_disk { self.file.sync_data() } else { Ok(()) };
        let named = synced.and_then(|()| std::fs::rename(&self.scratch, &self.path));
        self.named = named.is_ok();
        // It may be told of another file's key.
        named.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if !self.named {
            // The rest of the file is worth nothing, and the error that led here says more.
            std::fs::remove_file(&self.scratch).ok();
        }
    }
}

/// The end of the names of files that are being written.
const PARTIAL: &str = ".partial";

/// True for the name of a file that is being written, or that a killed process left.
pub(super) fn is_partial(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(PARTIAL)
}

/// A new file, hidden, in the folder of `path`.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let scratch = path.with_file_name(format!(".{name}.{}-{next}{PARTIAL}", std::process::id()));
        match File::options().write(true).create_new(true).open(&scratch) {
            // The file is of a process that was killed, and had the number that this one has.
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

    fn get(&self, key: &str, most: u64) -> io::Result<Value> {
        let Some((path, size)) = self.file(key)? else { return Ok(Value::Absent) };
        if size > most {
            return Ok(Value::Large(size));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(to_usize(size))?;
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
    use crate::openings::Map;

    /// A begun value is there after a flush, or when the folder is gone; one that fails is named, leaves nothing, and stops none after it.
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
            let all = Map::of(path).values;
            assert_eq!(all.len(), 3 * WAITING);
            assert!(keys().all(|key| *all[&key] == *key.as_bytes()));
            // A folder has the name of the file.
            let failed = folder.begin_put("a", b"x").and_then(|()| folder.flush()).unwrap_err();
            assert!(failed.to_string().contains(&path.join("a").display().to_string()), "{failed}");
            folder.flush().unwrap();
            folder.begin_put("b", b"y").unwrap();
            drop(folder);
            assert_eq!(Map::of(path).values.len(), 3 * WAITING + 1);
            std::fs::remove_dir_all(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }
    }

    /// A folder and the map of its files answer alike; what is put is there, and what was cut short is swept.
    #[test]
    fn a_folder_is_values_under_keys() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path();
        let folder = Folder::new(path).durable();
        folder.sweep("").unwrap();
        for (key, value) in [("a/b/c", &b"12345"[..]), ("a/d", b""), ("e", b"x"), ("e", b"yz")] {
            folder.put(key, value).unwrap();
        }
        // As of a process that was killed.
        std::mem::forget(folder.write("a/b/f", b"cut short").unwrap());
        assert_eq!(Map::of(path).values.len(), 4);
        folder.sweep("a").unwrap();
        let map = Map::of(path);
        assert_eq!(map.values.keys().collect::<Vec<_>>(), ["a/b/c", "a/d", "e"]);
        for storage in [&folder as &dyn Storage, &map] {
            let get = |key: &str, most| storage.get(key, most).unwrap();
            assert!(matches!(get("a/b/c", 5), Value::Bytes(bytes) if *bytes == *b"12345"));
            assert!(matches!(get("a/b/c", 4), Value::Large(5)));
            assert!(matches!(get("e", u64::MAX), Value::Bytes(bytes) if *bytes == *b"yz"));
            assert!(matches!(get("a/b/f", 9), Value::Absent));
            let sizes = ["a/b/c", "a/d", "b"].map(|key| storage.size(key).unwrap());
            assert_eq!(sizes, [Some(5), Some(0), None]);
            assert_eq!(
                (storage.list("").unwrap(), storage.list("a").unwrap()),
                (vec!["a".into()], vec!["b".into()])
            );
        }
        // A file beside the folder is none of its values.
        let beside = Folder::new(path.join("a"));
        for key in ["../e", "b/../../e"] {
            assert!(
                beside.get(key, 9).is_err() && beside.size(key).is_err() && beside.put(key, b"x").is_err()
            );
            assert!(beside.list(key).is_err() && beside.sweep(key).is_err());
        }
        assert!(matches!(beside.get("/d", 9).unwrap(), Value::Bytes(_)));
        assert!(folder.get("a", 9).is_err() && folder.size("a").is_err());
        assert!(folder.put("a", b"a folder is there").is_err() && folder.list("b").is_err());
        assert_eq!(Map::of(path).values.len(), 3);
    }
}
