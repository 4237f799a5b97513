//! Opening the stores of a run, and whether they agree.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use teatime::{
    Cancel, MissingChunk,
    genotype::{GenotypeKind, Genotypes},
    zarr::GenotypeStore,
};

use crate::{failure::Failure, text};

/// The stores of a run: the same samples, variants appended in order.
#[derive(Debug)]
pub(crate) struct Stores {
    pub(crate) paths: Vec<PathBuf>,
    /// Paths of the genotype arrays within each store.
    pub(crate) arrays: Vec<Vec<String>>,
    pub(crate) stores: Vec<GenotypeStore>,
    pub(crate) samples: Vec<String>,
    pub(crate) genotypes: Genotypes,
}

impl Stores {
    /// Reads metadata and sample names, no genotypes.
    pub(crate) fn open(
        paths: &[PathBuf],
        array: Option<&str>,
        missing: MissingChunk,
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        let mut stores: Vec<GenotypeStore> = Vec::new();
        let mut samples: Vec<String> = Vec::new();
        for path in paths {
            cancel.check()?;
            let store = GenotypeStore::open(path, array, missing)?;
            let ids = store.sample_ids()?;
            if stores.is_empty() {
                samples = ids;
            } else if let Some(why) = difference(&paths[0], &samples, path, &ids) {
                return Err(Failure::Error(why));
            }
            stores.push(store);
        }
        if let Some(id) = samples.iter().find(|id| id.contains(['\t', '\n', '\r'])) {
            return Err(Failure::Error(format!("the sample {id:?} has a tab or line break in its name")));
        }
        let all = stores.iter().flat_map(|store| store.arrays().iter().cloned()).collect();
        let genotypes = Genotypes::new(all)?;
        let arrays = paths.iter().zip(&stores).map(|(path, store)| within(path, store)).collect();
        Ok(Self { paths: paths.to_vec(), arrays, stores, samples, genotypes })
    }

    /// Alleles of a call; dosages are of diploids.
    pub(crate) fn ploidy(&self) -> u64 {
        match self.genotypes.kind() {
            GenotypeKind::Calls { ploidy } => ploidy,
            GenotypeKind::Dosages => 2,
        }
    }
}

/// Paths of a store's genotype arrays within it.
fn within(path: &Path, store: &GenotypeStore) -> Vec<String> {
    let inner = |name: &str| {
        let inner = Path::new(name).strip_prefix(path).map_or(name.into(), Path::to_string_lossy);
        if inner.is_empty() { ".".into() } else { inner.into_owned() }
    };
    store.arrays().iter().map(|array| inner(array.name())).collect()
}

/// How the samples of two stores differ, in words.
fn difference(path: &Path, samples: &[String], other_path: &Path, other: &[String]) -> Option<String> {
    if samples == other {
        return None;
    }
    let (path, other_path) = (path.display(), other_path.display());
    let only = |these: &[String], those: &[String]| {
        let those: HashSet<&String> = those.iter().collect();
        these.iter().filter(|id| !those.contains(id)).cloned().collect::<Vec<_>>()
    };
    let (left, right) = (only(samples, other), only(other, samples));
    if left.is_empty() && right.is_empty() {
        let at = samples.iter().zip(other).position(|(a, b)| a != b)?;
        return Some(format!(
            "{other_path} has the samples of {path} in another order: sample {} is `{}`, there it is `{}`",
            at + 1,
            other[at],
            samples[at]
        ));
    }
    let part = |ids: &[String], here, there| {
        let few: Vec<_> = ids.iter().take(5).map(|id| format!("`{id}`")).collect();
        let dots = if ids.len() > few.len() { ", ..." } else { "" };
        let n = text::plural(ids.len() as u64, "sample");
        (!ids.is_empty()).then(|| format!("{n} of {here} not in {there}: {}{dots}", few.join(", ")))
    };
    let parts = [part(&left, &path, &other_path), part(&right, &other_path, &path)];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    Some(format!("the stores differ in their samples: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(a: &[&str], b: &[&str]) -> Option<String> {
        let [a, b] = [a, b].map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>());
        difference(Path::new("a.zarr"), &a, Path::new("b.zarr"), &b)
    }

    #[test]
    fn differences_are_named() {
        assert_eq!(differ(&["x", "y"], &["x", "y"]), None);
        let order = differ(&["x", "y", "z"], &["x", "z", "y"]).unwrap();
        assert!(order.contains("another order") && order.contains("sample 2 is `z`"), "{order}");
        let ids = differ(&["x", "y"], &["x", "p", "q"]).unwrap();
        assert!(ids.contains("1 sample of a.zarr not in b.zarr: `y`"), "{ids}");
        assert!(ids.contains("2 samples of b.zarr not in a.zarr: `p`, `q`"), "{ids}");
    }
}
