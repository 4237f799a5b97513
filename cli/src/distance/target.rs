//! Where the results of `teatime distance` go.

use std::path::{Path, PathBuf};

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
const FORMATS: [(&str, Format); 5] = [
    (".dist.bin", Format::PlinkBinary),
    (".dist", Format::Plink),
    (".npy", Format::Npy),
    (".tsv", Format::Table),
    (".zarr", Format::Zarr),
];

/// Endings of the other files.
const RECORD: &str = ".run.json";
const NPY_NAMES: &str = ".id";
const PLINK_NAMES: &str = ".dist.id";
pub(super) const WITH_NAMES: &str = ".with.id";
pub(super) const NEIGHBORS: &str = ".neighbors.npy";
pub(super) const TREE: &str = ".nwk";

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
            let endings: Vec<&str> = FORMATS.iter().rev().map(|(ending, _)| *ending).collect();
            return Err(format!("a name that ends with one of {}", endings.join(", ")));
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let (folder, stem) = (folder.unwrap_or(Path::new(".")).to_path_buf(), stem.to_owned());
        Ok(Self { folder, name, stem, format })
    }

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

    pub(super) fn file(&self, ending: &str) -> String {
        format!("{}{ending}", self.stem)
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
