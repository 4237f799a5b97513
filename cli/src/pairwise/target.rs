//! Where the results of `teatime pairwise` go.

use super::COMMAND;
use crate::{
    failure::Failure,
    output::Output,
    target::{self, NEIGHBORS, RECORD},
};

/// What a file of distances is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Table,
    Zarr,
}

pub(super) const FORMATS: [(&str, Format); 3] =
    [(".zarr", Format::Zarr), (".tsv", Format::Table), (".npy", Format::Npy)];

/// Where distances go.
pub(super) type Target = target::Target<Format>;

impl Target {
    /// The folder of results, of neighbors or distances.
    pub(super) fn prepare(&self, neighbors: bool, resume: bool, overwrite: bool) -> Result<Output, Failure> {
        let record = self.file(RECORD);
        let numbers = (neighbors && self.format == Format::Npy).then(|| self.file(NEIGHBORS));
        let written: Vec<&str> =
            [record.as_str(), self.name.as_str()].into_iter().chain(numbers.as_deref()).collect();
        let endings = FORMATS.iter().map(|(ending, _)| *ending).chain([NEIGHBORS]);
        let all: Vec<String> = endings.map(|ending| self.file(ending)).collect();
        let others: Vec<&str> =
            all.iter().map(String::as_str).filter(|name| !written.contains(name)).collect();
        if !resume {
            self.refuse_unfinished()?;
            return Output::prepare(&self.folder, COMMAND, &written, &others, overwrite);
        }
        if self.format != Format::Zarr {
            return Err(Failure::Usage("--resume is for --out D.zarr alone".into()));
        }
        Output::resume(&self.folder, COMMAND, [&written, &others], &self.name)
    }
}
