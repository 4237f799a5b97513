//! Where the results of `teatime distance` go.

use crate::target::{self, NEIGHBORS};

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
    /// The other files, each with whether a run writes it, with a tree or without, of distances or neighbors, with others or without.
    pub(super) fn beside(&self, tree: bool, neighbors: bool, with: bool) -> [(String, bool); 5] {
        let npy = self.format == Format::Npy;
        let plink = matches!(self.format, Format::Plink | Format::PlinkBinary);
        [
            (NEIGHBORS, neighbors && npy),
            (NPY_NAMES, npy),
            (PLINK_NAMES, plink),
            (WITH_NAMES, with && npy),
            (TREE, tree),
        ]
        .map(|(ending, written)| (self.file(ending), written))
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
