//! Places of storages: paths of folders, and URLs.

use std::{borrow::Cow, path::Path, sync::Arc};

use super::{Folder, Storage, options::StorageOptions, redacted::redacted};
use crate::{Error, Result};

/// The schemes of URLs that are read.
const SCHEMES: [&str; 8] = ["s3", "gs", "az", "abfs", "abfss", "http", "https", "file"];

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
pub(super) fn decoded(path: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), path.as_bytes());
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        let (byte, len) = hex.filter(|_| *first == b'%').map_or((*first, 1), |byte| (byte, 3));
        out.push(byte);
        rest = &rest[len..];
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Opens the storage at `place`: a folder, or a URL with one of the schemes `s3`, `gs`, `az`, `abfs`, `abfss`, `http`, `https` and `file`.
/// A remote storage only reads. It needs the feature `remote`.
///
/// If a Zarr store has consolidated metadata (`.zmetadata`, or those within `zarr.json`), they take the place of requests for the
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
