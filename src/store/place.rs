//! Places of storages: paths of folders and of zip archives, and URLs.

#[cfg(feature = "zarr")]
use std::path::PathBuf;
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

/// Returns the zip archive that `place` is, or lies within, and the path within the archive, which may be empty. An archive is a file, or a
/// part of a URL's path, whose name ends in `.zip` or `.ozx`, in any case.
///
/// ```
/// use std::path::Path;
/// use teatime::store::zip_archive;
///
/// let found = zip_archive(Path::new("s3://bucket/cohort.vcz.ZIP/a/x"));
/// assert_eq!(found, Some(("s3://bucket/cohort.vcz.ZIP".into(), "a/x".into())));
/// assert_eq!(zip_archive(Path::new("https://name.zip/cohort.vcz")), None);
/// assert_eq!(zip_archive(Path::new("no/such/file.zip")), None);
/// ```
#[cfg(feature = "zarr")]
pub fn zip_archive(place: &Path) -> Option<(PathBuf, String)> {
    let is_zip = |path: &Path| {
        let ending = path.extension().unwrap_or_default();
        ["zip", "ozx"].iter().any(|zip| ending.eq_ignore_ascii_case(zip))
    };
    if let Some(path) = local_path(place) {
        // A slash at the end asks for a folder.
        let path: PathBuf = path.components().collect();
        let archive = path.ancestors().find(|path| is_zip(path) && path.is_file())?;
        let names = path.strip_prefix(archive).ok()?.components();
        let names: Option<Vec<&str>> = names.map(|name| name.as_os_str().to_str()).collect();
        return Some((archive.to_path_buf(), names?.join("/")));
    }
    let text = place.to_str()?;
    let (url, query) = text.split_at(text.find(['?', '#']).unwrap_or(text.len()));
    let host = url.find("://")? + 3;
    let ends = url.match_indices('/').map(|(at, _)| at).chain([url.len()]).filter(|end| *end > host);
    // The first is the end of the host.
    let end = ends.skip(1).find(|end| is_zip(Path::new(&url[..*end])))?;
    Some((format!("{}{query}", &url[..end]).into(), decoded(url[end..].trim_matches('/'))))
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

/// Opens the storage at `place`: a folder, or a URL with one of the schemes `s3`, `gs`, `az`, `abfs`, `abfss`, `http`, `https` and `file`,
/// or a zip archive (`zip_archive` says which names) at either. A remote storage only reads. It needs the feature `remote`.
///
/// A path may go on within an archive (`cohort.zarr.zip/a/x`). If its root has no metadata, and one folder in it has, as `zip -r` makes
/// archives, paths may also begin in this folder, which stands for the archive. Entries are stored or deflated; their checksums are
/// checked if they are read as a whole, and of several with one name the last counts. An archive has at most a million entries, in a
/// directory of at most 256 MiB, which is read when it is opened, remotely by two or three requests. Names that are no
/// [keys](super::key_within) are passed over. Without the feature `zarr` an archive is a file like others.
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
/// [`Error::Store`] for another scheme, an unknown option or a wrong value, credentials that cannot be used, a build without `remote`, and
/// an archive that is damaged, was split, is larger than that, or has entries that overlap. [`Error::Io`] if the metadata cannot be read.
/// Entries that are encrypted, or compressed in another way, are errors once they are read.
pub fn open_storage(place: impl AsRef<Path>, options: &StorageOptions) -> Result<Arc<dyn Storage>> {
    let place = place.as_ref();
    if let Some(path) = local_path(place) {
        #[cfg(feature = "zarr")]
        if let Some((archive, within)) = zip_archive(&path) {
            return Ok(Arc::new(super::zip::ZipStorage::open(&archive, &within)?));
        }
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
    if let Some((archive, within)) = zip_archive(Path::new(url)) {
        let archive = super::remote::open(&archive.to_string_lossy(), options)?;
        return super::zarr::consolidated(Arc::new(super::zip::ZipStorage::within(archive, &within)?));
    }
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
