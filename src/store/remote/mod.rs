//! Remote storages: S3, Google Cloud Storage, Azure and HTTP, through `object_store`.

mod connect;
mod fault;
mod profile;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, ErrorKind},
    ops::Range,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{Attribute, GetOptions, GetResult, ObjectMeta, ObjectStore, RetryConfig, path::Path};
use tokio::runtime::{Builder, Handle, Runtime};

use self::fault::Fault;
use super::{Storage, StoredBytes, Value, options::StorageOptions};
use crate::{Cancel, Error, Result, extent::to_usize, fresh, waiting::lock};

/// The size of an object, or range of one, that is read in parts, of a part, and the number of parts at once.
const PARTED: usize = 16 << 20;
const PART: usize = 8 << 20;
const PARTS_AT_ONCE: usize = 4;

/// The version of an object that is not there.
const ABSENT: u64 = 0;

/// The time between two checks of a flag during a request.
const BETWEEN: Duration = Duration::from_millis(50);

/// The objects below a URL.
struct RemoteStorage {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The URL without secrets.
    url: String,
    can_list: bool,
    fetches: usize,
    retries: RetryConfig,
    cancel: Cancel,
    /// A hash of the version of each object that was read, by a hash of its path; [`ABSENT`] if it was not there.
    seen: Mutex<HashMap<u64, u64>>,
    /// The object that was last read as a whole, since the server sends no ranges of it.
    whole: Mutex<Option<(Path, Arc<[u8]>)>>,
    /// True once the server has sent a whole object in place of a part.
    has_no_ranges: AtomicBool,
}

/// Opens the storage below a URL of a known scheme. Reads nothing but credentials, and the region of a bucket of S3.
pub(super) fn open(text: &str, options: &StorageOptions) -> Result<Arc<dyn Storage>> {
    let url = super::redacted(text).trim_end_matches('/').to_owned();
    let connection = connect::connect(text, options).map_err(|why| Error::store(&url, why))?;
    let connect::Connection { store, prefix, can_list, fetches, retries } = connection;
    let (seen, has_no_ranges, cancel) = (Mutex::default(), AtomicBool::new(false), options.cancel.clone());
    let whole = Mutex::default();
    let storage =
        RemoteStorage { store, prefix, url, can_list, fetches, retries, cancel, seen, whole, has_no_ranges };
    Ok(Arc::new(storage))
}

/// Runs a request on this thread, until it ends or the flag is set. Fails with [`ErrorKind::Interrupted`] once the flag is set, and if the
/// system cannot start the threads of the network.
fn wait<T: Send>(cancel: &Cancel, request: impl Future<Output = T> + Send) -> io::Result<T> {
    let runtime = runtime()?;
    let work = || {
        runtime.block_on(async {
            let mut request = std::pin::pin!(request);
            while !cancel.is_cancelled() {
                if let Ok(done) = tokio::time::timeout(BETWEEN, &mut request).await {
                    return Ok(done);
                }
            }
            Err(io::Error::new(ErrorKind::Interrupted, "the request was cancelled"))
        })
    };
    // A thread that runs tasks of an application's own runtime may not wait itself.
    match Handle::try_current() {
        Err(_) => work(),
        Ok(_) => std::thread::scope(|scope| scope.spawn(work).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Returns the runtime of all remote storages, whose two threads move bytes between connections and requests.
fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    // Of two runtimes one would be dropped, which a thread of another runtime may not do.
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = lock(&STARTING);
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    // An application may have chosen another provider of TLS, which then stays.
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime =
        Builder::new_multi_thread().worker_threads(2).thread_name("teatime-net").enable_all().build()?;
    Ok(RUNTIME.get_or_init(|| runtime))
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns a hash of an object's version: of its `ETag`, or else of its size and the time of its change.
fn version(meta: &ObjectMeta) -> u64 {
    match &meta.e_tag {
        Some(tag) => hash(tag),
        None => hash((meta.size, meta.last_modified)),
    }
}

/// Reads a body into `out`, which it has to fill.
async fn fill(got: GetResult, out: &mut [u8]) -> Result<(), Fault> {
    let (mut body, mut at) = (got.into_stream(), 0);
    while at < out.len() {
        let Some(bytes) = body.next().await else { return Err(Fault::Short { got: at, of: out.len() }) };
        let bytes = bytes.map_err(Fault::Body)?;
        let len = bytes.len().min(out.len() - at);
        out[at..at + len].copy_from_slice(&bytes[..len]);
        at += len;
    }
    Ok(())
}

impl RemoteStorage {
    fn path(&self, key: &str) -> io::Result<Path> {
        let key =
            super::key_within(key).and_then(|key| Path::parse(super::join(self.prefix.as_ref(), &key)).ok());
        key.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "is not a path within the storage"))
    }

    /// Reads an object, or a range of it, if it has at most `most` bytes. Begins anew if a body ends early, but for bodies with an `ETag`,
    /// which the store has then tried to go on with.
    async fn read(&self, path: &Path, range: Option<Range<u64>>, most: u64) -> Result<Value, Fault> {
        let (started, mut tries) = (Instant::now(), 0);
        loop {
            let options = GetOptions { range: range.clone().map(Into::into), ..GetOptions::default() };
            let got = match self.store.get_opts(path, options).await {
                Err(error) if fault::is_absent(&error) => {
                    return self.check_version(path, ABSENT).map(|()| Value::Absent);
                }
                got => got.map_err(Fault::Request)?,
            };
            self.check(&got)?;
            let size = got.range.end - got.range.start;
            // Servers cut ranges at the end.
            if let Some(of) = range.as_ref().map(|range| range.end - range.start).filter(|of| *of != size) {
                return Err(Fault::Short { got: to_usize(size), of: to_usize(of) });
            }
            if size > most {
                return Ok(Value::Large(size));
            }
            let is_tagged = got.meta.e_tag.is_some();
            let mut bytes = fresh::chunk(to_usize(size)).map_err(|_| Fault::Memory)?;
            bytes.resize(to_usize(size), 0);
            let read = if bytes.len() > PARTED && !self.has_no_ranges.load(Relaxed) {
                self.fill_in_parts(path, got, &mut bytes).await
            } else {
                fill(got, &mut bytes).await
            };
            match read {
                Ok(()) => return Ok(Value::Bytes(StoredBytes::Owned(bytes))),
                // Only parts, which are no more asked for, have this fault.
                Err(fault) if fault.is_no_part() => self.has_no_ranges.store(true, Relaxed),
                Err(Fault::Body(_) | Fault::Short { .. })
                    if !is_tagged
                        && tries < self.retries.max_retries
                        && started.elapsed() < self.retries.retry_timeout =>
                {
                    tokio::time::sleep(Duration::from_millis(100 << tries.min(7))).await;
                    tries += 1;
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Fills `out` with a large object or range: the first part by the answer that told its size, further ones by their own requests.
    async fn fill_in_parts(&self, path: &Path, first: GetResult, out: &mut [u8]) -> Result<(), Fault> {
        let (head, rest) = out.split_at_mut(PART);
        let start = first.range.start;
        let part = |(part, out)| self.fill_part(path, start + ((part + 1) * PART) as u64, out);
        let parts: Vec<_> = rest.chunks_mut(PART).enumerate().map(part).collect();
        let parts = stream::iter(parts).buffer_unordered(PARTS_AT_ONCE).try_collect::<()>();
        futures_util::future::try_join(fill(first, head), parts).await.map(drop)
    }

    /// Fills `out` with a part of an object that begins at `start`.
    async fn fill_part(&self, path: &Path, start: u64, out: &mut [u8]) -> Result<(), Fault> {
        let range = start..start + out.len() as u64;
        let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
        let got = self.store.get_opts(path, options).await.map_err(Fault::Request)?;
        self.check(&got)?;
        fill(got, out).await
    }

    /// Refuses an object that has changed since it was first read, and one in another encoding than it was stored in.
    fn check(&self, got: &GetResult) -> Result<(), Fault> {
        if let Some(encoding) = got.attributes.get(&Attribute::ContentEncoding)
            && !matches!(&**encoding, "" | "identity" | "aws-chunked")
        {
            return Err(Fault::Encoded(encoding.to_string()));
        }
        self.check_version(&got.meta.location, version(&got.meta))
    }

    fn check_version(&self, path: &Path, version: u64) -> Result<(), Fault> {
        let mut seen = lock(&self.seen);
        if *seen.entry(hash(path.as_ref())).or_insert(version) == version {
            Ok(())
        } else {
            Err(Fault::Changed)
        }
    }

    fn wait<T: Send>(&self, request: impl Future<Output = Result<T, Fault>> + Send) -> io::Result<T> {
        wait(&self.cancel, request)?.map_err(Fault::into_io)
    }
}

impl Storage for RemoteStorage {
    fn place(&self, key: &str) -> String {
        if key.is_empty() { self.url.clone() } else { format!("{}/{key}", self.url) }
    }

    fn fetches(&self) -> usize {
        self.fetches
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Value> {
        let path = self.path(key)?;
        self.wait(self.read(&path, None, most))
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> io::Result<Value> {
        let path = self.path(key)?;
        if !self.has_no_ranges.load(Relaxed) {
            match wait(&self.cancel, self.read(&path, Some(range.clone()), u64::MAX))? {
                Err(fault) if fault.is_no_part() => {}
                read => return read.map_err(Fault::into_io),
            }
            self.has_no_ranges.store(true, Relaxed);
        }
        // Without ranges a small object is read as a whole, once.
        let mut whole = lock(&self.whole);
        if whole.as_ref().is_none_or(|(of, _)| *of != path) {
            match self.wait(self.read(&path, None, PARTED as u64))? {
                Value::Bytes(bytes) => *whole = Some((path, Arc::from(&*bytes))),
                Value::Absent => return Ok(Value::Absent),
                Value::Large(_) => return Err(Fault::NoRanges.into_io()),
            }
        }
        let bytes = whole.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        let part = bytes.get(to_usize(range.start)..to_usize(range.end));
        let short = || Fault::Short { got: bytes.len(), of: to_usize(range.end) }.into_io();
        Ok(Value::Bytes(StoredBytes::Shared(part.ok_or_else(short)?.into())))
    }

    /// Asks a server of HTTP for a byte of the object, unless it is known to send no ranges; clouds send them.
    fn reads_ranges(&self, key: &str) -> io::Result<bool> {
        if !self.can_list && !self.has_no_ranges.load(Relaxed) {
            let path = self.path(key)?;
            let read = wait(&self.cancel, self.read(&path, Some(0..1), u64::MAX))?;
            // Any other fault is one of this object alone.
            self.has_no_ranges.fetch_or(read.is_err_and(|fault| fault.is_no_part()), Relaxed);
        }
        Ok(!self.has_no_ranges.load(Relaxed))
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        let path = self.path(key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        self.wait(async {
            let mut got = self.store.get_opts(&path, options).await;
            if matches!(got, Err(object_store::Error::PermissionDenied { .. })) {
                // A signature may allow GET alone, which tells the size of the whole with a part.
                let part = GetOptions { range: Some((0..1).into()), ..GetOptions::default() };
                got = self.store.get_opts(&path, part).await.or(got);
            }
            match got {
                Err(error) if fault::is_absent(&error) => Ok(None),
                got => Ok(Some(got.map_err(Fault::Request)?.meta.size)),
            }
        })
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        if !self.can_list {
            let why = "HTTP lists no names: consolidated metadata would name the arrays (zarr.consolidate_metadata in Python)";
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        let path = self.path(prefix)?;
        let listing =
            self.wait(async { self.store.list_with_delimiter(Some(&path)).await.map_err(Fault::Request) })?;
        Ok(listing.common_prefixes.iter().filter_map(|path| Some(path.filename()?.to_owned())).collect())
    }
}

impl fmt::Debug for RemoteStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The store's own text may show credentials.
        f.debug_struct("RemoteStorage").field("url", &self.url).finish_non_exhaustive()
    }
}
