//! Where the results of `teatime pairwise` go.

use std::path::{Path, PathBuf};

use super::COMMAND;
use crate::{distance::refuse_unfinished, failure::Failure, output::Output};

/// What a file of distances is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Table,
    Zarr,
}

const FORMATS: [(&str, Format); 3] =
    [(".npy", Format::Npy), (".tsv", Format::Table), (".zarr", Format::Zarr)];

const RECORD: &str = ".run.json";
const NEIGHBORS: &str = ".neighbors.npy";

/// Where distances go.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) folder: PathBuf,
    /// The file, its name without the ending, and what it is.
    pub(super) name: String,
    stem: String,
    pub(super) format: Format,
}

impl Target {
    pub(super) fn new(path: PathBuf) -> Result<Self, String> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let found = FORMATS.iter().find_map(|(ending, format)| Some((name.strip_suffix(ending)?, *format)));
        let Some((stem, format)) = found.filter(|(stem, _)| !stem.is_empty()) else {
            return Err("a name that ends with one of .npy, .tsv, .zarr".into());
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let (folder, stem) = (folder.unwrap_or(Path::new(".")).to_path_buf(), stem.to_owned());
        Ok(Self { folder, name, stem, format })
    }

    /// The file of the neighbors' numbers, where they have one.
    pub(super) fn neighbors(&self) -> String {
        format!("{}{NEIGHBORS}", self.stem)
    }

    /// The folder of results, of neighbors or distances.
    pub(super) fn prepare(&self, neighbors: bool, resume: bool, overwrite: bool) -> Result<Output, Failure> {
        let file = |ending: &str| format!("{}{ending}", self.stem);
        let record = file(RECORD);
        let numbers = (neighbors && self.format == Format::Npy).then(|| self.neighbors());
        let written: Vec<&str> =
            [record.as_str(), self.name.as_str()].into_iter().chain(numbers.as_deref()).collect();
        let all: Vec<String> =
            FORMATS.iter().map(|(ending, _)| *ending).chain([NEIGHBORS]).map(file).collect();
        let others: Vec<&str> =
            all.iter().map(String::as_str).filter(|name| !written.contains(name)).collect();
        if !resume {
            refuse_unfinished(&self.folder, &self.name, &record)?;
            return Output::prepare(&self.folder, COMMAND, &written, &others, overwrite);
        }
        if self.format != Format::Zarr {
            return Err(Failure::Usage("--resume is for --out D.zarr alone".into()));
        }
        Output::resume(&self.folder, COMMAND, [&written, &others], &self.name)
    }

    /// Before tiles are written where they stay.
    ///
    /// # Errors
    /// [`Failure::Error`] where an earlier result would be lost.
    pub(super) fn refuse_to_lose(&self, overwrite: bool) -> Result<(), Failure> {
        if !overwrite || !self.folder.join(&self.name).exists() {
            return Ok(());
        }
        let why = "distances that do not fit memory are written where they stay, and --overwrite would lose";
        let why = format!("{why} those of {} if it were stopped; move them away", self.name);
        Err(Failure::Error(why))
    }
}
