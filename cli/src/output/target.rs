//! A result file, whose extension determines its format, and the files beside it.

use std::path::{Path, PathBuf};

use teatime::{
    Error, plain,
    store::{Folder, is_free, read_json},
};

use super::{Output, listed};
use crate::{failure::Failure, note};

/// The file extension of the record.
pub(crate) const RECORD: &str = ".run.json";
/// The file extension of the neighbors' indices, beside a .npy of their distances.
pub(crate) const NEIGHBORS: &str = ".neighbors.npy";

/// The path of a result, and its format among `formats`.
#[derive(Clone, Debug)]
pub(crate) struct Target<F: 'static> {
    pub(crate) folder: PathBuf,
    /// The file name; `stem` is the name without its extension.
    pub(crate) name: String,
    stem: String,
    pub(crate) format: F,
    formats: &'static [(&'static str, F)],
}

impl<F: Copy + 'static> Target<F> {
    /// Parses a path. `formats` are file extensions; one that ends with another comes before it.
    pub(crate) fn new(path: &Path, formats: &'static [(&'static str, F)]) -> Result<Self, String> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let stem_and_format =
            formats.iter().find_map(|(ending, format)| Some((name.strip_suffix(ending)?, *format)));
        let Some((stem, format)) = stem_and_format.filter(|(stem, _)| !stem.is_empty()) else {
            let endings: Vec<&str> = formats.iter().rev().map(|(ending, _)| *ending).collect();
            return Err(format!("a name that ends with one of {}", endings.join(", ")));
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let (folder, stem) = (folder.unwrap_or(Path::new(".")).to_path_buf(), stem.to_owned());
        Ok(Self { folder, name, stem, format, formats })
    }

    /// Returns the file name with another extension.
    pub(crate) fn file(&self, ending: &str) -> String {
        format!("{}{ending}", self.stem)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Opens the folder of results, for a new run or for one that resumes the array `resumed` of a .zarr.
    ///
    /// `beside` are the files that the command writes in addition to the result and the record, each with true if this run does. Results of the
    /// command in other formats are removed. Fails if the format cannot be resumed, or if another file or store is in the way.
    pub(crate) fn open(
        &self,
        command: &str,
        beside: &[(String, bool)],
        overwrite: bool,
        resumed: Option<&str>,
    ) -> Result<Output, Failure> {
        let record = self.file(RECORD);
        let written = beside.iter().filter(|(_, written)| *written).map(|(name, _)| name);
        let names: Vec<&str> = [&record, &self.name].into_iter().chain(written).map(String::as_str).collect();
        let formats: Vec<String> = self.formats.iter().map(|(ending, _)| self.file(ending)).collect();
        let results = formats.iter().chain(beside.iter().map(|(name, _)| name)).map(String::as_str);
        let others: Vec<&str> = results.filter(|name| !names.contains(name)).collect();
        let Some(array) = resumed else {
            if !self.folder.join(&record).exists() && self.is_begun() {
                let path = self.path();
                let why = "is there, of a run that was stopped; --resume goes on with it, or move it away";
                return Err(Failure::Error(format!("{}: {why}", path.display())));
            }
            return Output::begin(&self.folder, command, &names, &others, overwrite);
        };
        if !self.name.ends_with(".zarr") {
            return Err(Failure::Usage("--resume is for a .zarr alone".into()));
        }
        // This check comes first, so that no work is wasted.
        is_free(self.path(), array)?;
        // The result that is resumed and its record may exist.
        let begun: Vec<&str> = names.into_iter().filter(|name| *name != self.name).collect();
        let is_ours = listed(&self.folder.join(&record))
            .is_some_and(|(other, files)| other == command && files.contains(&self.name));
        Output::begin(&self.folder, command, &begun, &others, is_ours)
    }

    /// Checks, before a store is written at its final path, that no earlier result would be lost.
    pub(crate) fn refuse_to_lose(&self, overwrite: bool) -> Result<(), Failure> {
        if !overwrite || !self.path().exists() {
            return Ok(());
        }
        let why = "distances that do not fit memory are written where they stay, and --overwrite would lose";
        let why = format!("{why} those of {} if it were stopped; move them away", self.name);
        Err(Failure::Error(why))
    }

    /// Tells the user that a run that failed left an incomplete store at its final path.
    pub(crate) fn note_unfinished(&self, error: &Error) {
        if !matches!(error, Error::Store { .. }) && self.is_begun() {
            let path = self.path().display().to_string();
            note(&format!("{} is not complete: --resume goes on with it", plain(&path)));
        }
    }

    /// Returns true if the store has an array that a run wrote, completely or partly, at its final path.
    fn is_begun(&self) -> bool {
        ["distance/.zattrs", "zarr.json", ".zattrs", "0/zarr.json", "0/.zattrs"].iter().any(|metadata| {
            let metadata = read_json(&Folder::new(self.path()), metadata).ok().flatten();
            metadata.is_some_and(|metadata| {
                ["/teatime/job", "/attributes/teatime/job"].iter().any(|job| metadata.pointer(job).is_some())
            })
        })
    }
}
