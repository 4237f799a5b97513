//! The files that the results of `teatime distance` go to.

use crate::output::target::{self, NEIGHBORS};

/// The format of a file of distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Table,
    Zarr,
    Plink,
    PlinkBinary,
}

impl Format {
    /// True of formats that hold the distances of samples from one another alone.
    pub(super) const fn is_plinks(self) -> bool {
        matches!(self, Self::Plink | Self::PlinkBinary)
    }
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
pub(super) const NPY_NAMES: &str = ".id";
pub(super) const PLINK_NAMES: &str = ".dist.id";
pub(super) const WITH_NAMES: &str = ".with.id";
pub(super) const TREE: &str = ".nwk";

/// The file that distances go to.
pub(super) type Target = target::Target<Format>;

impl Target {
    /// The other files, each with whether a run writes it, with a tree or without, of distances or neighbors, with others or without.
    pub(super) fn beside(&self, tree: bool, neighbors: bool, with: bool) -> [(String, bool); 5] {
        let npy = self.format == Format::Npy;
        [
            (NEIGHBORS, neighbors && npy),
            (NPY_NAMES, npy),
            (PLINK_NAMES, self.format.is_plinks()),
            (WITH_NAMES, with && npy),
            (TREE, tree),
        ]
        .map(|(ending, written)| (self.file(ending), written))
    }
}
