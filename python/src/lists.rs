//! Lists that choose samples and variants of a store.

use std::{ops::Range, path::PathBuf};

use pyo3::prelude::*;
use teatime::{Budget, Cancel, Error, Result, to_usize};
use teatime_genotype::{
    ContigChoice, ContigRuns, Genotypes, Karyotype, Listed, SampleList, VariantList, VariantListKind,
    VariantSource,
};

/// The samples of a store.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    /// The ids of all samples, if the store has them, and their families, if it is a .bed.
    pub(crate) ids: Option<Vec<String>>,
    pub(crate) families: Option<Vec<String>>,
    /// The samples that are selected.
    pub(crate) left: Vec<Range<u64>>,
}

impl Samples {
    /// Returns the ids of the selected samples.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        let ids = self.ids.as_ref()?;
        Some(self.left.iter().cloned().flatten().map(|row| ids[to_usize(row)].clone()).collect())
    }

    /// Returns the haplotypes of the samples as samples.
    pub(crate) fn haplotypes(self, ploidy: u64) -> Self {
        let each = |ids: Vec<String>, name: fn(&str, u64) -> String| {
            ids.iter()
                .flat_map(|id| (1..=ploidy).map(|number| name(id, number)).collect::<Vec<_>>())
                .collect()
        };
        Self {
            ids: self.ids.map(|ids| each(ids, |id, number| format!("{id}_{number}"))),
            families: self.families.map(|families| each(families, |family, _| family.to_owned())),
            left: self.left.into_iter().map(|rows| ploidy * rows.start..ploidy * rows.end).collect(),
        }
    }
}

/// A list: the path of a file, or ids.
#[derive(Debug, FromPyObject)]
enum List {
    File(PathBuf),
    Ids(Vec<String>),
}

/// The lists that Python passes.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Lists {
    keep: Option<List>,
    remove: Option<List>,
    extract: Option<List>,
    exclude: Option<List>,
}

/// The name of an argument, the number of distinct ids that it lists, and how many of these nothing has.
pub(crate) type Absent = (&'static str, u64, u64);

impl Lists {
    /// Takes the samples and variants that the lists leave, of the selected ones. Returns the genotypes, and the lists with ids that nothing has.
    /// Fails with [`Error::Argument`] for genotypes without names, and if nothing is left; fails as reading lists does.
    pub(crate) fn choose(
        self,
        mut genotypes: Genotypes,
        samples: &mut Samples,
        source: Option<&dyn VariantSource>,
    ) -> Result<(Genotypes, Vec<Absent>)> {
        let (memory, cancel, mut told) = (Budget::default(), Cancel::default(), Vec::new());
        for (name, list) in [("keep", self.keep), ("remove", self.remove)] {
            let Some(list) = list else { continue };
            let ids = samples.ids.as_deref().ok_or_else(|| unnamed(name, "samples"))?;
            let list = match list {
                List::File(path) => SampleList::read(path, &memory)?,
                List::Ids(ids) => SampleList::of_ids(ids),
            };
            let listed = list.find(ids, samples.families.as_deref())?;
            samples.left = left(name, "samples", &listed, &samples.left, &mut told)?;
            genotypes = genotypes.select_samples(samples.left.iter().cloned())?;
        }
        for (name, list) in [("extract", self.extract), ("exclude", self.exclude)] {
            let Some(list) = list else { continue };
            let source = source.ok_or_else(|| unnamed(name, "variants"))?;
            let list = match list {
                List::File(path) => {
                    let (path, kind) = VariantListKind::of_argument(&path);
                    VariantList::read(path, kind, &memory)?
                }
                List::Ids(ids) => VariantList::of_ids(ids),
            };
            let among: Vec<_> = genotypes.selected().collect();
            let listed = list.find(&[source], &among, None, &cancel)?;
            let rows = left(name, "variants", &listed, &among, &mut told)?;
            genotypes = genotypes.select(rows)?;
        }
        Ok((genotypes, told))
    }
}

/// Takes the variants on the contigs of a list, or with no list on the autosomes, of which there are `count` if that is given. Returns the
/// listed names that no variant is on.
/// Fails with [`Error::Argument`] for genotypes without names, a text that is no list, a `count` that is not 1 to 95,
/// and if no variant is left; fails as [`ContigRuns::read`] does.
pub(crate) fn on_contigs(
    genotypes: Genotypes,
    source: Option<&dyn VariantSource>,
    list: Option<&str>,
    count: Option<i64>,
) -> Result<(Genotypes, Vec<String>)> {
    let refuse = |name, why: String| Error::argument("genotypes", name, why);
    let count = count.map(|count| {
        let fits = u8::try_from(count).ok().filter(|count| (1..=95).contains(count));
        fits.ok_or_else(|| refuse("n_autosomes", format!("{count}; it is 1 to 95")))
    });
    let (count, source) = (count.transpose()?, source.ok_or_else(|| unnamed("contigs", "variants"))?);
    let runs = ContigRuns::read(&[source], &Cancel::default())?;
    let karyotype = count.map_or(runs.karyotype(), |count| Karyotype(Some(count)));
    let choice = match list {
        Some(text) => ContigChoice::listed(text, karyotype)
            .map_err(|why| refuse("contigs", format!("{text:?}: {why}")))?,
        None => ContigChoice::autosomes(karyotype),
    };
    let rows = runs.rows(|name| choice.takes(name));
    if rows.is_empty() {
        let mut names: Vec<_> = runs.names().iter().map(|name| &**name).collect();
        names.sort_unstable();
        let more = if names.len() > 10 { " ..." } else { "" };
        names.truncate(10);
        let hint =
            if karyotype.0.is_none() { "; `n_autosomes` says how many autosomes there are" } else { "" };
        let names = names.join(", ");
        let why = format!("no variant is on such a contig; the store has {names}{more}{hint}");
        return Err(refuse("contigs", why));
    }
    Ok((genotypes.select(rows)?, choice.absent(&runs)))
}

fn unnamed(name: &'static str, what: &str) -> Error {
    Error::argument(
        "genotypes",
        name,
        format_args!("the {what} have no names: an array has none, nor have some stores"),
    )
}

/// Returns what a list leaves of `among`. Fails with [`Error::Argument`] if that is nothing.
fn left(
    name: &'static str,
    what: &str,
    listed: &Listed,
    among: &[Range<u64>],
    told: &mut Vec<Absent>,
) -> Result<Vec<Range<u64>>> {
    let rows = listed.choose(among, ["remove", "exclude"].contains(&name));
    let &Listed { entries, absent, .. } = listed;
    if rows.is_empty() {
        let candidates: u64 = among.iter().map(|rows| rows.end - rows.start).sum();
        let why =
            format_args!("none of {candidates} {what} is left; {absent} of {entries} ids are not among them");
        return Err(Error::argument("genotypes", name, why));
    }
    if absent > 0 {
        told.push((name, entries, absent));
    }
    Ok(rows)
}
