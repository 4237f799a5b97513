//! Arrays of numbers, in any file that is read.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

use serde_json::Value;
use teatime::{
    ChunkedArray, Error, LookedFor, MissingChunk, StoredType,
    stable_text::StableText,
    store::{MissingAsNan, NpyArray, ZarrArray},
    stream::digest,
};

use crate::{failure::Failure, foreign, text};

/// An array of numbers.
#[derive(Debug)]
pub(crate) struct Array {
    /// The path, by which messages name the array.
    pub(crate) path: String,
    pub(crate) files: Files,
    /// The array that is computed with: NaN where an element is missing.
    pub(crate) array: Arc<dyn ChunkedArray>,
    /// That array again, where its attributes name a missing value: it counts them.
    missing: Option<Arc<MissingAsNan>>,
    /// Type of the elements as they are stored.
    pub(crate) dtype: StoredType,
    /// Extents of a shard's chunks, where chunks are shards.
    pub(crate) inner_chunk: Option<Vec<u64>>,
}

impl Array {
    /// A .npy file, or a Zarr array: its metadata. Integers of a type that `keeps` are kept as they are stored, for results that are integers
    /// too: a missing one is an error.
    ///
    /// # Errors
    /// As those of its kind; [`Failure::Error`] for a file of another format.
    pub(crate) fn open(
        path: &Path,
        missing: MissingChunk,
        keeps: impl Fn(StoredType) -> bool,
    ) -> Result<Self, Failure> {
        let (name, files) = (path.display().to_string(), Files::at(path)?);
        foreign::refuse(path)?;
        Ok(match path.metadata().is_ok_and(|metadata| !metadata.is_dir()) {
            true => Self::new(name, files, Arc::new(NpyArray::open(path)?), None, keeps),
            false => Self::of_zarr(name, files, ZarrArray::open(path, "", missing)?, keeps),
        })
    }

    /// A Zarr array of these files.
    pub(crate) fn of_zarr(
        path: String,
        files: Files,
        array: ZarrArray,
        keeps: impl Fn(StoredType) -> bool,
    ) -> Self {
        let inner_chunk = array.inner_chunk_shape();
        Self::new(path, files, Arc::new(array), inner_chunk, keeps)
    }

    fn new(
        path: String,
        files: Files,
        array: Arc<dyn ChunkedArray>,
        inner_chunk: Option<Vec<u64>>,
        keeps: impl Fn(StoredType) -> bool,
    ) -> Self {
        let dtype = array.dtype();
        let missing = MissingAsNan::new(Arc::clone(&array));
        let missing =
            missing.map(|missing| Arc::new(if keeps(dtype) { missing.keeping_integers() } else { missing }));
        let array = missing.clone().map_or(array, |missing| missing as Arc<dyn ChunkedArray>);
        Self { path, files, array, missing, dtype, inner_chunk }
    }

    /// Type of the elements as they are stored, by its name.
    pub(crate) fn type_name(&self) -> String {
        self.dtype.stable_text().to_lowercase()
    }

    /// Adds what it lacked, of what was read, to its record: elements that are missing by its attributes, null where these name no missing
    /// value, and chunks that were not there and were taken for the fill value.
    pub(crate) fn record_gaps(&self, record: &mut Value) {
        record["missing"] = self.missing.as_ref().map(|missing| missing.found()).into();
        record["absent_chunks"] = self.array.looked_for().absent.into();
    }

    /// # Errors
    /// [`Failure::Error`] where no chunk was there.
    pub(crate) fn check_found(&self) -> Result<(), Failure> {
        check_found(&self.path, &*self.array)
    }

    /// Warnings of missing elements, with what becomes of them, and of chunks of other names.
    pub(crate) fn warnings(&self, what_becomes: &str) -> Vec<String> {
        let missing = self.missing.as_ref().filter(|missing| missing.found() > 0).map(|missing| {
            let (n, value) = (missing.found(), text::general(missing.stored(), 8));
            let are = if n == 1 { "is" } else { "are" };
            format!(
                "{}: {} {are} missing, being {value} as its attributes say: {what_becomes}",
                self.path,
                text::plural(n, "element")
            )
        });
        missing.into_iter().chain(other_names(&self.path, &*self.array)).collect()
    }

    /// An error of memory, with what takes it where that is shards.
    pub(crate) fn with_shards(&self, error: Error) -> Failure {
        let is_of_shards = matches!(error, Error::Budget { .. }) && self.inner_chunk.is_some();
        match error.into() {
            Failure::Error(why) if is_of_shards => {
                let elements: u64 = self.array.chunk_shape().iter().product();
                let bytes = text::bytes(elements.saturating_mul(self.dtype.size() as u64));
                Failure::Error(format!("{why}; its shards are decoded whole, each of {bytes}"))
            }
            failure => failure,
        }
    }
}

/// # Errors
/// [`Failure::Error`] where no chunk of an array was there that was looked for.
pub(crate) fn check_found(path: &str, array: &dyn ChunkedArray) -> Result<(), Failure> {
    let LookedFor { there, absent, .. } = array.looked_for();
    if there || absent == 0 {
        return Ok(());
    }
    let chunks =
        if absent == 1 { "the chunk".into() } else { format!("any of the {} chunks", text::count(absent)) };
    Err(Failure::Error(format!(
        "{path}: the store does not have {chunks} that were looked for: all elements would be the fill value. Its metadata may be of \
         another array"
    )))
}

/// A warning of chunks that have other names than the metadata say.
pub(crate) fn other_names(path: &str, array: &dyn ChunkedArray) -> Option<String> {
    array.looked_for().other_names.then(|| {
        format!(
            "{path}: its chunks have names of the other separator (`0/0` for `0.0`, or the other way round) than its metadata say, \
             and are read by these"
        )
    })
}

/// The files that hold an array, as they are before it is opened.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) place: PathBuf,
    version: u64,
}

impl Files {
    /// Notes names, sizes and times of change of a file, or of all files of a folder. Reads none of them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn at(place: &Path) -> Result<Self, Error> {
        let real = place.canonicalize().unwrap_or_else(|_| place.to_path_buf());
        let version = version(&real, "", false).map_err(|source| error(place, source))?;
        Ok(Self { place: place.to_path_buf(), version })
    }

    /// Words that tell them from others: their place, and a digest of their names, sizes and times of change.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn words(&self) -> Result<String, Error> {
        let place = self.place.canonicalize().map_err(|source| error(&self.place, source))?;
        Ok(format!("{} {:016x}", place.display(), self.version))
    }

    /// # Errors
    /// [`Failure::Error`] where they are others by now: what was read may be of both.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if Self::at(&self.place)?.version == self.version {
            return Ok(());
        }
        let why = "changed while it was read: something else writes to it; run again";
        Err(Failure::Error(format!("{}: {why}", self.place.display())))
    }
}

fn error(place: &Path, source: io::Error) -> Error {
    Error::io(place.display(), source)
}

/// A digest of a file, or of all files of a folder, in any order. A `link` to a folder is followed, but no further such link within it:
/// these may lead around in circles.
fn version(path: &Path, name: &str, link: bool) -> io::Result<u64> {
    let metadata = match fs::metadata(path) {
        // A link that leads nowhere, or a file that went away.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        metadata => metadata?,
    };
    if !metadata.is_dir() {
        let changed = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        return Ok(digest(metadata.len(), format!("{name} {changed}").as_bytes()));
    }
    let is_link = path.is_symlink();
    if link && is_link {
        return Ok(0);
    }
    fs::read_dir(path)?.try_fold(0, |sum: u64, entry| {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        Ok(sum.wrapping_add(version(&entry.path(), &name, link || is_link)?))
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A file that is written anew is another, also behind a link; links that lead around in circles are no matter.
    #[test]
    fn files_that_change() {
        let scratch = tempfile::tempdir().expect("the temporary folder should be writable");
        let [array, elsewhere] = ["array", "elsewhere"].map(|name| scratch.path().join(name));
        fs::create_dir_all(&array).expect("a folder");
        fs::create_dir_all(&elsewhere).expect("a folder");
        symlink(&elsewhere, array.join("c")).expect("a link");
        for name in ["a", "b", "d", "e"] {
            symlink(&elsewhere, elsewhere.join(name)).expect("a link");
        }
        let write = |path: PathBuf, text: &str| fs::write(path, text).expect("a file");
        write(array.join("zarr.json"), "{}");
        let mut files = Files::at(&array).expect("it can be read");
        for (path, text) in [("zarr.json", "{ }"), ("c/0", "1"), ("c/0", "12")] {
            files.check().expect("nothing changed");
            write(array.join(path), text);
            assert!(
                matches!(files.check(), Err(Failure::Error(why)) if why.contains("changed while it was read"))
            );
            files = Files::at(&array).expect("it can be read");
        }
    }
}
