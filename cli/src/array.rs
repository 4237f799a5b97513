//! Arrays of numbers, in any file that is read.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

use teatime::{
    ChunkedArray, Error, MissingChunk,
    store::{NpyArray, ZarrArray},
    stream::digest,
};

use crate::failure::Failure;

/// A .npy file, or a Zarr array: its metadata.
pub(crate) fn open(path: &Path, missing: MissingChunk) -> Result<Arc<dyn ChunkedArray>, Error> {
    Ok(match path.metadata().is_ok_and(|found| !found.is_dir()) {
        true => Arc::new(NpyArray::open(path)?),
        false => Arc::new(ZarrArray::open(path, "", missing)?),
    })
}

/// The files that hold an array, as they are before it is opened.
#[derive(Debug)]
pub(crate) struct Files {
    place: PathBuf,
    version: u64,
}

impl Files {
    /// Those of a file, or of a folder. Reads none of them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn at(place: &Path) -> Result<Self, Error> {
        let real = place.canonicalize().unwrap_or_else(|_| place.to_path_buf());
        let version = version(&real, "", false).map_err(|source| error(place, source))?;
        Ok(Self { place: place.to_path_buf(), version })
    }

    /// What tells them from others: where they are, and a digest of their names, sizes and times of change.
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
    Error::Io { path: place.display().to_string().into(), source }
}

/// Of a file, or of all that a folder holds, in any order. What is found by a `link` to a folder is looked at, but no further such links
/// in it: they may lead around in circles.
fn version(path: &Path, name: &str, link: bool) -> io::Result<u64> {
    let found = match fs::metadata(path) {
        // A link that leads nowhere, or a file that went away.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    if !found.is_dir() {
        let changed = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        return Ok(digest(found.len(), format!("{name} {changed}").as_bytes()));
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
