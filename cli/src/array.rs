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
        let version = version(place, "").map_err(|source| error(place, source))?;
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

/// Of a file, or of all that a folder holds, in any order.
fn version(path: &Path, name: &str) -> io::Result<u64> {
    let found = match fs::metadata(path) {
        // A link that leads nowhere, or a file that went away.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    if !found.is_dir() {
        let changed = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        return Ok(digest(found.len(), format!("{name} {changed}").as_bytes()));
    }
    fs::read_dir(path)?.try_fold(0, |sum: u64, entry| {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        Ok(sum.wrapping_add(version(&entry.path(), &name)?))
    })
}
