//! The products that `teatime pca --resume` keeps in the folder of results until the results are there.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use teatime::{Error, linalg::Checkpoint, plain, stable_text::StableText, store::Folder, stream::digest};

use crate::{array::Files, failure::Failure, note, stores::Stores};

/// The name of the folder of products.
const NAME: &str = "pca.checkpoint";

/// Returns the folder of products of a run that resumes, in the folder of results.
///
/// # Errors
/// [`Failure::Error`] if the run does not resume, and an earlier run left products.
pub(super) fn folder(results: &Path, resume: bool) -> Result<Option<PathBuf>, Failure> {
    let path = results.join(NAME);
    if !resume && path.symlink_metadata().is_ok() {
        let why = "is there, of a run that was stopped; --resume goes on with it, or move it away";
        return Err(Failure::Error(format!("{}: {why}", path.display())));
    }
    Ok(resume.then_some(path))
}

/// Returns the checkpoint in a folder, with everything that tells whether these stores are those of an earlier run.
pub(super) fn at(folder: &Path, stores: &Stores) -> Result<Checkpoint, Error> {
    let files: Vec<String> =
        stores.paths.iter().map(|path| Files::at(path)?.words()).collect::<Result<_, _>>()?;
    let genotypes = &stores.genotypes;
    let parts: [&dyn StableText; 6] = [
        &stores.arrays,
        &stores.contigs,
        &stores.ploidy_mismatch,
        &genotypes.counted_allele(),
        &genotypes.kind(),
        &genotypes.variants(),
    ];
    let names = stores.samples.join("\n");
    Ok(Checkpoint::new(Arc::new(Folder::new(folder).durable()), "")
        .property("stores", files.join(", "))
        .property("selection", parts.map(StableText::stable_text).join(" "))
        .property("samples", format!("{} {:016x}", stores.samples.len(), digest(0, names.as_bytes()))))
}

/// Tells the user that a run that failed left products.
pub(super) fn note_left(folder: &Path, error: &Error) {
    if !matches!(error, Error::Store { .. }) && folder.join("job").exists() {
        note(&format!(
            "{} has the passes so far: --resume goes on with them",
            plain(&folder.display().to_string())
        ));
    }
}

/// Removes the products of a run whose results are there.
///
/// # Errors
/// [`Failure::Error`].
pub(super) fn remove(folder: &Path) -> Result<(), Failure> {
    if folder.exists() { fs::remove_dir_all(folder).map_err(Failure::io(folder)) } else { Ok(()) }
}
