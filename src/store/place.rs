//! Places of storages: paths of folders, and URLs.

use std::{borrow::Cow, fmt, path::Path, sync::Arc};

use super::{Folder, Storage};
use crate::{Cancel, Error, Result};

/// The schemes of URLs that are read.
const SCHEMES: [&str; 8] = ["s3", "gs", "az", "abfs", "abfss", "http", "https", "file"];

/// The options of remote storages; local folders have none.
///
/// A key is one of `object_store` for the kind of the URL, with or without the kind's prefix: for `s3://` `region`, `endpoint`,
/// `skip_signature` (for public data), `access_key_id` and others; for `gs://` `service_account`; for `az://` `account_name`, `sas_key`;
/// for all of them `proxy_url`, `read_timeout` (30 s), `connect_timeout` (5 s). These are also read from the environment, as `AWS_REGION`,
/// `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`; an option wins. Further keys: `fetches`, the number of requests at once (64, or
/// `TEATIME_FETCHES`); `max_retries` (10) and `retry_timeout` (180s) of a request; for `s3://` `profile`, a profile of the AWS files.
///
/// ```
/// use teatime::store::StorageOptions;
///
/// let options = StorageOptions::default().option("skip_signature", "true").option("region", "eu-west-1");
/// // The values may be secrets.
/// assert_eq!(format!("{options:?}"), r#"StorageOptions(["skip_signature", "region"])"#);
/// ```
#[derive(Clone, Default)]
pub struct StorageOptions {
    pub(super) options: Vec<(String, String)>,
    #[cfg_attr(not(feature = "remote"), allow(dead_code, reason = "there are no requests"))]
    pub(super) cancel: Cancel,
}

impl StorageOptions {
    /// Sets an option; the last value of a key counts. [`open_storage`] checks it.
    #[must_use]
    pub fn option(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.push((key.into(), value.into()));
        self
    }

    /// Sets the flag that ends requests under way, and with them the calls that wait for these. Passes over arrays end by the flag of their
    /// [`Run`](crate::Run), whatever a request waits for.
    #[must_use]
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.options.iter().map(|(key, _)| key).collect();
        f.debug_tuple("StorageOptions").field(&keys).finish()
    }
}

/// Returns the scheme of a URL, in any case; `None` for a path. A path with such a beginning is written with `./` before it.
fn scheme(place: &str) -> Option<&str> {
    let (scheme, _) = place.split_once("://")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_name)).then_some(scheme)
}

/// Returns the local path that `place` means: itself, or that of a `file://` URL. `None` for any other URL.
///
/// ```
/// use std::path::Path;
/// use teatime::store::local_path;
///
/// assert_eq!(local_path(Path::new("a/b")).as_deref(), Some(Path::new("a/b")));
/// assert_eq!(local_path(Path::new("file:///a/b%20c")).as_deref(), Some(Path::new("/a/b c")));
/// assert_eq!(local_path(Path::new("s3://bucket/a")), None);
/// ```
pub fn local_path(place: &Path) -> Option<Cow<'_, Path>> {
    let Some((text, scheme)) = place.to_str().and_then(|text| Some((text, scheme(text)?))) else {
        return Some(Cow::Borrowed(place));
    };
    let path = text[scheme.len() + 3..].trim_start_matches("localhost");
    // A host's share is no local path.
    if !scheme.eq_ignore_ascii_case("file") || !path.starts_with('/') {
        return None;
    }
    let path = if cfg!(windows) { path.trim_start_matches('/') } else { path };
    Some(Cow::Owned(decoded(path).into()))
}

/// Replaces `%20` and the like by the bytes that they mean.
fn decoded(path: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), path.as_bytes());
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        let (byte, len) = hex.filter(|_| *first == b'%').map_or((*first, 1), |byte| (byte, 3));
        out.push(byte);
        rest = &rest[len..];
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns a text without what may be secret in its URLs: queries, and the names and passwords before the hosts of `http` and `https`.
///
/// ```
/// use teatime::store::redacted;
///
/// let text = "no answer from https://me:key@host/x.vcz?sig=abc: refused";
/// assert_eq!(redacted(text), "no answer from https://host/x.vcz refused");
/// ```
pub fn redacted(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let is_http = ["http://", "https://"].iter().any(|end| before.to_ascii_lowercase().ends_with(end));
        out.push_str(before);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>');
        let (url, behind) = after.split_at(after.find(ends).unwrap_or(after.len()));
        let url = url.split_once('?').map_or(url, |(url, _)| url);
        let host = &url[..url.find('/').unwrap_or(url.len())];
        let name = host.rfind('@').filter(|_| is_http).map_or(0, |at| at + 1);
        out.push_str(&url[name..]);
        rest = behind;
    }
    out + rest
}

/// Opens the storage at `place`: a folder, or a URL with one of the schemes `s3`, `gs`, `az`, `abfs`, `abfss`, `http`, `https` and `file`.
/// A remote storage only reads. It needs the feature `remote`.
///
/// Where a Zarr store has consolidated metadata (`.zmetadata`, or those within `zarr.json`), they take the place of requests for the
/// metadata of its arrays, and of lists of names, which HTTP has not. So opening takes one or two requests; S3 without a region takes one
/// more, to learn the bucket's.
///
/// Credentials are those of the options, else of the environment, else of files: `~/.aws/credentials` and `~/.aws/config`, Google's
/// `application_default_credentials.json`. If there are none, and no service of the machine's cloud answers within a second, requests are
/// not signed, as for public data.
///
/// A value is read into one buffer of its size; one above 16 MiB as parts of 8 MiB, four at once, if the server has ranges. Requests are
/// repeated after answers of 5xx, 408 and 429, after failures of the network, and after a body that ends early.
///
/// # Errors
/// [`Error::Store`] for another scheme, an unknown option or a wrong value, credentials that cannot be used, and a build without `remote`.
/// [`Error::Io`] if the metadata cannot be read.
pub fn open_storage(place: impl AsRef<Path>, options: &StorageOptions) -> Result<Arc<dyn Storage>> {
    let place = place.as_ref();
    if let Some(path) = local_path(place) {
        return Ok(Arc::new(Folder::new(path)));
    }
    let text = &*place.to_string_lossy();
    let is_known = scheme(text).is_some_and(|scheme| SCHEMES.contains(&&*scheme.to_ascii_lowercase()));
    if !is_known {
        let known = SCHEMES.map(|scheme| format!("{scheme}://")).join(" ");
        return Err(Error::store(redacted(text), format!("is a URL of another scheme than {known}")));
    }
    opened(text, options)
}

#[cfg(feature = "remote")]
fn opened(url: &str, options: &StorageOptions) -> Result<Arc<dyn Storage>> {
    let storage = super::remote::open(url, options)?;
    // A file has nothing below it.
    let is_file = storage.place("").to_ascii_lowercase().ends_with(".npy");
    if is_file { Ok(storage) } else { super::zarr::consolidated(storage) }
}

#[cfg(not(feature = "remote"))]
fn opened(url: &str, _: &StorageOptions) -> Result<Arc<dyn Storage>> {
    let why = "is remote, and this build of teatime has no remote stores, which the feature `remote` of its crate adds";
    Err(Error::store(redacted(url), why))
}
