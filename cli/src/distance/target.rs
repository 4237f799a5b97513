//! Where the results of `teatime distance` go.

use crate::target::{self, NEIGHBORS, RECORD};

/// What a file of distances is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Table,
    Zarr,
    Plink,
    PlinkBinary,
}

/// Their endings, the longest of those that end alike first.
pub(super) const FORMATS: [(&str, Format); 5] = [
    (".dist.bin", Format::PlinkBinary),
    (".dist", Format::Plink),
    (".npy", Format::Npy),
    (".tsv", Format::Table),
    (".zarr", Format::Zarr),
];

/// Endings of the other files.
const NPY_NAMES: &str = ".id";
const PLINK_NAMES: &str = ".dist.id";
pub(super) const WITH_NAMES: &str = ".with.id";
pub(super) const TREE: &str = ".nwk";

/// Where distances go.
pub(super) type Target = target::Target<Format>;

impl Target {
    /// What a run writes, with a tree or without, of distances or neighbors, with others or without, the record first; and what
    /// else of this name other runs write.
    pub(super) fn files(&self, tree: bool, neighbors: bool, with: bool) -> [Vec<String>; 2] {
        let tree = tree.then(|| self.file(TREE));
        let neighbors = (neighbors && self.format == Format::Npy).then(|| self.file(NEIGHBORS));
        let with = (with && self.format == Format::Npy).then(|| self.file(WITH_NAMES));
        let written: Vec<String> = [self.file(RECORD), self.name.clone()]
            .into_iter()
            .chain(neighbors)
            .chain(self.names())
            .chain(with)
            .chain(tree)
            .collect();
        let endings = FORMATS.iter().map(|(ending, _)| *ending);
        let all = endings
            .chain([NEIGHBORS, NPY_NAMES, PLINK_NAMES, WITH_NAMES, TREE])
            .map(|ending| self.file(ending));
        let others = all.filter(|name| !written.contains(name)).collect();
        [written, others]
    }

    /// The file of the samples' names, where they are not in the other.
    pub(super) fn names(&self) -> Option<String> {
        let ending = match self.format {
            Format::Npy => NPY_NAMES,
            Format::Plink | Format::PlinkBinary => PLINK_NAMES,
            Format::Table | Format::Zarr => return None,
        };
        Some(self.file(ending))
    }
}
