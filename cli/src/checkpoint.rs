//! The products that a decomposition with `--resume` keeps in the folder of results until the results are there.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use teatime::{Error, linalg::Checkpoint, plain, store::Folder};

use crate::{array::Files, failure::Failure, note};

/// Returns the folder of products of a command's run that resumes, in the folder of results. Fails if the run does not resume, and an
/// earlier run left products.
pub(crate) fn folder(results: &Path, command: &str, resume: bool) -> Result<Option<PathBuf>, Failure> {
    let path = results.join(format!("{command}.checkpoint"));
    if !resume && path.symlink_metadata().is_ok() {
        let why = "is there, of a run that was stopped; --resume goes on with it, or move it away";
        return Err(Failure::Error(format!("{}: {why}", path.display())));
    }
    Ok(resume.then_some(path))
}

/// Returns the checkpoint in a folder for an input, which messages call `name`, in these files.
pub(crate) fn at<'a>(
    folder: &Path,
    name: &str,
    files: impl IntoIterator<Item = &'a Files>,
) -> Result<Checkpoint, Error> {
    let files: Vec<String> = files.into_iter().map(Files::words).collect::<Result<_, _>>()?;
    let storage = Arc::new(Folder::new(folder).durable());
    Ok(Checkpoint::new(storage, "").property(name, files.join(", ")))
}

/// Tells the user that a run that failed left products.
pub(crate) fn note_left(folder: &Path, error: &Error) {
    if !matches!(error, Error::Store { .. }) && folder.join("job").exists() {
        let folder = folder.display().to_string();
        note(&format!("{} has the passes so far: --resume goes on with them", plain(&folder)));
    }
}

/// Removes the products of a run whose results are there.
pub(crate) fn remove(folder: &Path) -> Result<(), Failure> {
    if folder.exists() { fs::remove_dir_all(folder).map_err(Failure::io(folder)) } else { Ok(()) }
}
