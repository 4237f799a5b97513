//! Arrays of numbers, in files of any supported format.

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
    store::{MissingAsNan, NpyArray, ZarrArray, zip_archive},
    stream::digest,
};

use crate::{failure::Failure, foreign, remote, text};

/// An array of numbers that a command reads.
#[derive(Debug)]
pub(crate) struct Array {
    /// The path of the array, which messages show.
    pub(crate) path: String,
    pub(crate) files: Files,
    /// The array for computations, with NaN in place of missing elements.
    pub(crate) array: Arc<dyn ChunkedArray>,
    /// The array with a count of its missing elements, if its attributes name a missing value.
    missing: Option<Arc<MissingAsNan>>,
    /// The type of the elements in the file.
    pub(crate) dtype: StoredType,
    /// The shape of a shard, if the array has shards.
    pub(crate) shard: Option<Vec<u64>>,
}

impl Array {
    /// Opens a .npy file or a Zarr array, on a disk or behind a URL, and reads its metadata. Integers of a type for which `keeps` is true keep
    /// their stored type, for results that are integers too; then a missing element is an error. Fails for a file of another format.
    pub(crate) fn open(
        path: &Path,
        missing: MissingChunk,
        keeps: impl Fn(StoredType) -> bool,
    ) -> Result<Self, Failure> {
        let (name, files) = (path.display().to_string(), Files::at(path)?);
        foreign::refuse(path)?;
        if !remote::is_file(path) {
            let array = ZarrArray::open_in(&remote::open(path)?, "", missing)?;
            return Ok(Self::of_zarr(name, files, array, keeps));
        }
        let array = match remote::is_remote(path) {
            true => NpyArray::open_in(&remote::open(path)?, "")?,
            false => NpyArray::open(path)?,
        };
        Ok(Self::new(name, files, Arc::new(array), None, keeps))
    }

    /// Opens a matrix, as [`open`](Self::open) does. Fails for an array that has not two axes.
    pub(crate) fn matrix(path: &Path, missing: MissingChunk) -> Result<Self, Failure> {
        let matrix = Self::open(path, missing, |_| false)?;
        let (path, shape) = (&matrix.path, matrix.array.shape());
        let why = format!("{path}: an array of shape {shape:?}, not a matrix");
        if shape.len() == 2 { Ok(matrix) } else { Err(Failure::Error(why)) }
    }

    /// Wraps an opened Zarr array, whose elements are in `files`.
    pub(crate) fn of_zarr(
        path: String,
        files: Files,
        array: ZarrArray,
        keeps: impl Fn(StoredType) -> bool,
    ) -> Self {
        let shard = array.shard_shape();
        Self::new(path, files, Arc::new(array), shard, keeps)
    }

    fn new(
        path: String,
        files: Files,
        array: Arc<dyn ChunkedArray>,
        shard: Option<Vec<u64>>,
        keeps: impl Fn(StoredType) -> bool,
    ) -> Self {
        let dtype = array.dtype();
        let missing = MissingAsNan::new(Arc::clone(&array));
        let missing =
            missing.map(|missing| Arc::new(if keeps(dtype) { missing.keeping_integers() } else { missing }));
        let array = missing.clone().map_or(array, |missing| missing as Arc<dyn ChunkedArray>);
        Self { path, files, array, missing, dtype, shard }
    }

    /// Returns the name of the stored type of the elements.
    pub(crate) fn type_name(&self) -> String {
        self.dtype.stable_text().to_lowercase()
    }

    /// Adds to the record how many of the elements read are missing by the array's attributes (null if they name no missing value), and how many
    /// chunks were absent and read as the fill value.
    pub(crate) fn record_gaps(&self, record: &mut Value) {
        record["missing"] = self.missing.as_ref().map(|missing| missing.missing_elements()).into();
        record["absent_chunks"] = self.array.looked_for().absent.into();
    }

    /// Fails if every chunk that was looked for is absent.
    pub(crate) fn check_found(&self) -> Result<(), Failure> {
        check_found(&self.path, &*self.array)
    }

    /// Returns warnings of missing elements, with `what_becomes` of these elements, and of chunks whose names use the other separator.
    pub(crate) fn warnings(&self, what_becomes: &str) -> Vec<String> {
        let missing = self.missing.as_ref().filter(|missing| missing.missing_elements() > 0).map(|missing| {
            let (n, value) = (missing.missing_elements(), text::general(missing.stored(), 8));
            let (elements, are) = (text::plural(n, "element"), if n == 1 { "is" } else { "are" });
            let path = &self.path;
            format!("{path}: {elements} {are} missing, being {value} as its attributes say: {what_becomes}")
        });
        missing.into_iter().chain(other_names(&self.path, &*self.array)).collect()
    }
}

/// Fails if every chunk of the array that was looked for is absent.
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

/// Returns a warning if chunks have other names than the metadata say.
pub(crate) fn other_names(path: &str, array: &dyn ChunkedArray) -> Option<String> {
    array.looked_for().other_names.then(|| {
        format!(
            "{path}: its chunks have names of the other separator (`0/0` for `0.0`, or the other way round) than its metadata say, \
             and are read by these"
        )
    })
}

/// The files that hold an array, in their state before the array is opened.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) place: PathBuf,
    version: u64,
}

impl Files {
    /// Records the name, size and modification time of a file, or of every file in a folder, without reading contents.
    pub(crate) fn at(place: &Path) -> Result<Self, Error> {
        let (file, _) = on_disk(place);
        let real = file.canonicalize().unwrap_or(file);
        // A remote storage watches its own objects.
        let version = if remote::is_remote(place) { Ok(0) } else { version(&real, "", false) };
        let version = version.map_err(|source| error(place, source))?;
        Ok(Self { place: place.to_path_buf(), version })
    }

    /// Returns a text that identifies the files: their path, and a digest of their names, sizes and modification times; of remote ones the
    /// URL without secrets.
    pub(crate) fn words(&self) -> Result<String, Error> {
        let (file, within) = on_disk(&self.place);
        let real = if remote::is_remote(&file) { Ok(file) } else { file.canonicalize() };
        let place = real.map_err(|source| error(&self.place, source))?;
        Ok(format!("{}{within} {:016x}", place.display(), self.version))
    }

    /// Fails if the files have changed: the data read may mix old and new contents.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if Self::at(&self.place)?.version == self.version {
            return Ok(());
        }
        let why = "changed while it was read: something else writes to it; run again";
        Err(Failure::Error(format!("{}: {why}", self.place.display())))
    }
}

/// Returns the file or folder that a place is, or the zip archive that it lies within, and the path within that.
fn on_disk(place: &Path) -> (PathBuf, String) {
    match zip_archive(place) {
        Some((archive, within)) if within.is_empty() => (archive, within),
        Some((archive, within)) => (archive, format!("/{within}")),
        None => (place.to_path_buf(), String::new()),
    }
}

fn error(place: &Path, source: io::Error) -> Error {
    Error::io(place.display(), source)
}

/// Returns a digest of a file, or of all files of a folder, independent of their order. If `link`, `path` is inside a linked folder, and links
/// to folders within it are not followed: they may form cycles.
fn version(path: &Path, name: &str, link: bool) -> io::Result<u64> {
    let metadata = match fs::metadata(path) {
        // The path is a dangling link, or a file that was removed meanwhile.
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

    /// An array in an archive changes with the archive, and is another than those beside it.
    #[test]
    fn archives_that_change() {
        let scratch = tempfile::tempdir().expect("the temporary folder should be writable");
        let archive = scratch.path().join("x.zip");
        let write = |text| fs::write(&archive, text).expect("a file");
        write("1");
        let files = ["a", "b", ""].map(|name| Files::at(&archive.join(name)).expect("it can be read"));
        let [a, b, whole] = files.each_ref().map(|files| files.words().expect("it can be read"));
        assert!(a != b && a.contains("x.zip/a ") && whole.contains("x.zip "), "{a} {b} {whole}");
        write("12");
        for files in files {
            assert!(matches!(files.check(), Err(Failure::Error(why)) if why.contains("changed while")));
        }
    }
}
