//! Opening the stores of a run, and checks that they agree.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

use teatime::{Cancel, Device, Error, MissingChunk, Run};
use teatime_genotype::{
    DoubtfulColumn, GenotypeKind, Genotypes, Karyotype, Match, Variant, VariantCounts, VariantIndex,
    VariantMatches, VariantSource, bed::BedOptions,
};

use crate::{
    array::{check_found, other_names},
    calls::{Calls, PloidyMismatch},
    chosen::Chosen,
    contigs::{ContigArgs, Contigs},
    ends,
    failure::{Failure, PLOIDY_MISMATCH},
    matched::Matched,
    remote::is_remote,
    store::{CountedAllele, Store},
    text,
};

/// The options for opening stores.
#[derive(Debug, Default)]
pub(crate) struct Opening<'a> {
    /// The path of the genotype array within each store, if it has another name.
    pub(crate) array: Option<&'a str>,
    pub(crate) missing: MissingChunk,
    /// The counted allele, which has to exist in such stores.
    pub(crate) counted: Option<CountedAllele>,
    /// True if calls may have any ploidy; otherwise all stores have to hold the same number of alleles in a call.
    pub(crate) any_ploidy: bool,
    /// The tables of the .bed, if they have other names than it.
    pub(crate) tables: BedOptions,
}

/// The stores of a run, which have the same samples; their variants are appended in order.
#[derive(Debug)]
pub(crate) struct Stores {
    pub(crate) paths: Vec<PathBuf>,
    /// The paths of the genotype arrays within each store.
    pub(crate) arrays: Vec<Vec<String>>,
    pub(crate) stores: Vec<Store>,
    pub(crate) samples: Vec<String>,
    /// The families of the samples, if there is a .fam.
    pub(crate) families: Option<Vec<String>>,
    /// The genotypes of the variants that take part.
    pub(crate) genotypes: Genotypes,
    /// `None` before [`take`](Self::take), or if contigs cannot be read and no option needs them.
    pub(crate) contigs: Option<Contigs>,
    /// The files that chose samples or variants, in order.
    pub(crate) chosen: Vec<Chosen>,
    /// Set if calls of another ploidy are treated as missing.
    pub(crate) ploidy_mismatch: Option<PloidyMismatch>,
    /// Set if missing calls were counted.
    pub(crate) calls: Option<Calls>,
    /// Warnings of unusual input, collected so far.
    odd: Vec<String>,
}

impl Stores {
    /// Opens the stores and reads metadata and sample names, but no genotypes.
    pub(crate) fn open(paths: &[PathBuf], opening: &Opening<'_>, run: &Run) -> Result<Self, Failure> {
        let &Opening { array, missing, counted, any_ploidy, ref tables } = opening;
        let mut stores: Vec<Store> = Vec::new();
        let (mut samples, mut families, mut odd) = (Vec::new(), None, Vec::new());
        for path in paths {
            run.cancel.check()?;
            let store = Store::open(path, tables, array, missing, run.memory)?;
            if let Store::Plink(bed) = &store {
                odd.extend(ends::check(bed)?);
            }
            let [ids, family_ids] = store.samples()?;
            let ids = match ids {
                Some(ids) => ids,
                None if paths.len() > 1 => {
                    let why = "it has no names of samples (`sample_id`, or scikit-allel's `samples`), so nothing tells \
                               whether they are those of the others";
                    return Err(Failure::Error(format!("{}: {why}", path.display())));
                }
                None => {
                    let path = path.display();
                    odd.push(format!("{path} has no names of samples: they are numbered from S0001 on"));
                    let samples = store.n_samples();
                    let width = samples.max(1000).to_string().len();
                    (1..=samples).map(|number| format!("S{number:0width$}")).collect()
                }
            };
            if stores.is_empty() {
                (samples, families) = (ids, family_ids);
            } else if families.is_some() != family_ids.is_some() {
                let (one, other) = (paths[0].display(), path.display());
                let why = format!("{one} and {other}: PLINK files and Zarr stores do not go together");
                return Err(Failure::Error(why));
            } else {
                let ours = cells(&samples, families.as_ref(), " ");
                let theirs = cells(&ids, family_ids.as_ref(), " ");
                if let Some(why) = difference(&paths[0], &ours, path, &theirs) {
                    return Err(Failure::Error(why));
                }
            }
            stores.push(store);
        }
        let arrays = stores.iter().flat_map(|store| store.arrays().iter().cloned()).collect();
        let genotypes = match families {
            Some(_) => Genotypes::plink(arrays, samples.len() as u64)?,
            None if any_ploidy => Genotypes::of_any_ploidy(arrays)?,
            None => Genotypes::new(arrays.clone()).map_err(|error| match error {
                Error::Shape { expected, got, .. } if Genotypes::of_any_ploidy(arrays).is_ok() => {
                    Failure::Error(format!("expected {expected}{PLOIDY_MISMATCH}, got {got}"))
                }
                _ => error.into(),
            })?,
        };
        let genotypes = match (counted, genotypes.kind()) {
            (None, _) => genotypes,
            (Some(CountedAllele::OfBed(allele)), GenotypeKind::Plink) => genotypes.count_allele(allele)?,
            (Some(CountedAllele::OfBed(_)), _) => {
                let why = "--counted-allele a1 and a2 are of a .bed; of calls it is a number, such as 1";
                return Err(Failure::Usage(why.into()));
            }
            (Some(CountedAllele::OfCalls(_)), GenotypeKind::Plink) => {
                return Err(Failure::Usage("--counted-allele of a .bed is a1 or a2".into()));
            }
            (Some(CountedAllele::OfCalls(allele)), _) => genotypes.count_allele(allele)?,
        };
        if genotypes.variants() == 0 || genotypes.samples() == 0 {
            let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            let (names, variants) = (names.join(", "), text::plural(genotypes.variants(), "variant"));
            let samples = text::plural(genotypes.samples(), "sample");
            return Err(Failure::Error(format!("{names}: {variants} of {samples}, nothing to compute with")));
        }
        let arrays = paths.iter().zip(&stores).map(|(path, store)| within(path, store)).collect();
        let paths = paths.to_vec();
        Ok(Self {
            paths,
            arrays,
            stores,
            samples,
            families,
            genotypes,
            contigs: None,
            chosen: Vec::new(),
            ploidy_mismatch: None,
            calls: None,
            odd,
        })
    }

    /// Reads the contigs of the variants, and selects the variants on the requested contigs.
    pub(crate) fn take(&mut self, args: &ContigArgs, cancel: &Cancel) -> Result<(), Failure> {
        match Contigs::read(&self.sources(), args, cancel) {
            Ok((contigs, rows)) => {
                self.genotypes = self.genotypes.clone().select(rows)?;
                self.odd.extend(contigs.absent());
                self.contigs = Some(contigs);
                Ok(())
            }
            // If no option needs contigs, the run continues without them.
            Err(Failure::Error(why)) if args.asked().is_none() => {
                self.odd.push(format!("which contigs the variants are on is not known: {why}"));
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Treats every haplotype as a sample, named after the sample with `_1`, `_2` ... appended.
    pub(crate) fn take_haplotypes(&mut self) -> teatime::Result<()> {
        let numbers = 1..=self.genotypes.ploidy();
        self.genotypes = self.genotypes.clone().haplotypes()?;
        let names = |id: &String| numbers.clone().map(|number| format!("{id}_{number}")).collect::<Vec<_>>();
        self.samples = self.samples.iter().flat_map(names).collect();
        Ok(())
    }

    pub(crate) fn sources(&self) -> Vec<&dyn VariantSource> {
        self.stores.iter().map(|store| store as &dyn VariantSource).collect()
    }

    /// Matches the variants that take part with those of `index`, whose name in messages is `reference`. Contigs are counted again, for the
    /// matched variants only. Also returns the variants of `index` that the stores lack on their contigs.
    pub(crate) fn match_with(
        &mut self,
        index: &VariantIndex,
        reference: &'static str,
        device: &Device,
        run: &Run,
    ) -> teatime::Result<(Vec<Option<Match>>, Vec<u32>, Matched)> {
        let mut contigs = self.contigs.take();
        let karyotype = contigs.as_ref().map_or(Karyotype::HUMAN, |contigs| contigs.karyotype_with(index));
        let matched = index.matches(&self.genotypes, &self.sources(), Some(karyotype), device, run)?;
        let VariantMatches { matches, absent, counts, .. } = matched;
        if let Some(contigs) = &mut contigs {
            let rows = self.genotypes.selected().flatten().zip(&matches).filter(|(_, used)| used.is_some());
            contigs.count_only(&self.sources(), rows.map(|(row, _)| row))?;
        }
        self.contigs = contigs;
        Ok((matches, absent, Matched { counts, reference, as_reference: 0 }))
    }

    /// Records how many calls were missing in the variants that were read, in all and, if counted, for each sample.
    pub(crate) fn count_calls(&mut self, counts: &VariantCounts, by_sample: Option<&[u64]>) {
        let names = cells(&self.samples, self.families.as_ref(), " ");
        self.calls = Some(Calls::new(counts.total, &names, counts.missing_calls, by_sample));
    }

    /// Fails if every chunk of an array that was looked for is absent.
    pub(crate) fn check_found(&self) -> Result<(), Failure> {
        let mut arrays = self.stores.iter().flat_map(Store::arrays);
        arrays.try_for_each(|array| check_found(array.name(), &**array))
    }

    /// Returns the number of chunks of genotypes that were absent and read as the fill value.
    pub(crate) fn absent_chunks(&self) -> u64 {
        self.stores.iter().flat_map(Store::arrays).map(|array| array.looked_for().absent).sum()
    }

    /// Returns warnings of unusual input that is no error: stores given more than once, samples with equal names in a .fam or with white space
    /// in names, absent chunks of columns, and warnings from opening the stores.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let file = |(path, store): (&PathBuf, &Store)| match store {
            Store::Zarr(_) if is_remote(path) => Ok(path.clone()),
            Store::Plink(bed) => bed.path().canonicalize(),
            Store::Zarr(_) => path.canonicalize(),
        };
        // A path that no longer exists is not compared.
        let files: Vec<_> =
            self.paths.iter().zip(&self.stores).filter_map(|store| file(store).ok()).collect();
        let given = |(file, times): (&PathBuf, u64)| {
            format!("{} is given {times} times: so often do its variants count", file.display())
        };
        let told = |names: Vec<&String>, what: &str| {
            let n = text::plural(names.len() as u64, "name");
            (!names.is_empty()).then(|| format!("{n} of {what}: {}", text::few(&names)))
        };
        let names = cells(&self.samples, self.families.as_ref(), " ");
        let named = told(doubled(&names).map(|(name, _)| name).collect(), "more than one sample");
        let spaced = self.samples.iter().filter(|id| id.contains(char::is_whitespace)).collect();
        let spaced = told(spaced, "samples with white space, at which plink2 and R divide columns");
        let filled = self.paths.iter().zip(&self.stores).flat_map(|(path, store)| {
            store.doubtful_columns().into_iter().map(|column| filled(path, &column))
        });
        let arrays = self.stores.iter().flat_map(Store::arrays);
        let renamed = arrays.filter_map(|array| other_names(array.name(), &**array));
        let calls = self.calls.iter().flat_map(Calls::warnings);
        let chosen = self.chosen.iter().flat_map(Chosen::warnings);
        let odd = self.odd.iter().cloned().chain(chosen).chain(renamed).chain(calls);
        doubled(&files).map(given).chain(named).chain(spaced).chain(filled).chain(odd).collect()
    }

    /// Refuses a sample whose name is empty or has white space, since programs that split lines at white space would misread it. `format`
    /// ends the message: it says which file format cannot hold such a name.
    pub(crate) fn refuse_splitting(&self, format: &str) -> Result<(), Failure> {
        match self.samples.iter().find(|id| id.is_empty() || id.contains(char::is_whitespace)) {
            Some(id) => {
                let why = format!("the sample {id:?} has no name or white space in it, which {format}");
                Err(Failure::Error(why))
            }
            None => Ok(()),
        }
    }

    /// Returns lines of the summary about genotypes that are not used as stored.
    pub(crate) fn changes(&self) -> Vec<String> {
        let mismatch = self.ploidy_mismatch.map(|PloidyMismatch { stored, ploidy, calls }| {
            let calls = text::plural(calls, "call");
            format!("{calls} of another ploidy than {ploidy} taken as missing; there is room for {stored} alleles a call")
        });
        let counted = self.counted_allele().filter(|allele| allele != "A1");
        let counted = counted.map(|allele| format!("dosages are copies of allele {allele}"));
        let contigs = self.contigs.as_ref().and_then(Contigs::left_out);
        let calls = self.calls.as_ref().and_then(Calls::line);
        let chosen = self.chosen.iter().map(Chosen::line);
        contigs.into_iter().chain(chosen).chain(mismatch).chain(counted).chain(calls).collect()
    }

    /// Returns the header of [`sample_cells`](Self::sample_cells): for names alone, or for families and names.
    pub(crate) fn sample_header(&self, [alone, both]: [&str; 2]) -> String {
        if self.families.is_some() { both.into() } else { alone.into() }
    }

    /// Returns each sample's name, with its family in a column before it if the store has families.
    pub(crate) fn sample_cells(&self) -> impl Iterator<Item = String> {
        cells(&self.samples, self.families.as_ref(), "\t").into_iter()
    }

    /// Returns the counted allele: a column of a .bim or a number; `None` if all alleles but the reference are counted.
    pub(crate) fn counted_allele(&self) -> Option<String> {
        match (self.genotypes.kind(), self.genotypes.counted_allele()?) {
            (GenotypeKind::Plink, 0) => Some("A2".into()),
            (GenotypeKind::Plink, _) => Some("A1".into()),
            (_, number) => Some(number.to_string()),
        }
    }

    /// Returns the counted allele or alleles of a variant, whose copies are the dosage.
    pub(crate) fn counted<'a>(&self, variant: &'a Variant) -> &'a str {
        if self.genotypes.counted_allele() == Some(0) { &variant.reference } else { &variant.alternate }
    }
}

/// Describes the absent chunks of a column.
fn filled(store: &Path, DoubtfulColumn { path, chunks, value }: &DoubtfulColumn) -> String {
    let (n, are) = (text::plural(*chunks, "chunk"), if *chunks == 1 { "is" } else { "are" });
    let kind = if path.ends_with("variant_contig") { "contig " } else { "" };
    format!(
        "{}: {n} of {path} {are} not there and {are} read as its fill value ({kind}`{value}`), as writers leave out chunks \
         of nothing else; lost ones would look the same",
        store.display()
    )
}

fn cells(ids: &[String], families: Option<&Vec<String>>, between: &str) -> Vec<String> {
    match families {
        Some(families) => {
            families.iter().zip(ids).map(|(family, id)| format!("{family}{between}{id}")).collect()
        }
        None => ids.to_vec(),
    }
}

/// Returns the items that occur more than once, with their counts, in order.
fn doubled<T: Ord>(items: &[T]) -> impl Iterator<Item = (&T, u64)> {
    let mut times = BTreeMap::new();
    items.iter().for_each(|one| *times.entry(one).or_insert(0) += 1);
    times.into_iter().filter(|&(_, times)| times > 1)
}

/// Returns the paths of a store's genotype arrays within it.
fn within(path: &Path, store: &Store) -> Vec<String> {
    let inner = |name: &str| {
        let inner = Path::new(name).strip_prefix(path).map_or(name.into(), Path::to_string_lossy);
        if inner.is_empty() { ".".into() } else { inner.into_owned() }
    };
    match store {
        Store::Zarr(store) => store.arrays().iter().map(|array| inner(array.name())).collect(),
        Store::Plink(_) => vec![".".into()],
    }
}

/// Describes how the samples of two stores differ, if they do.
fn difference(path: &Path, samples: &[String], other_path: &Path, other: &[String]) -> Option<String> {
    if samples == other {
        return None;
    }
    let (path, other_path) = (path.display(), other_path.display());
    let only = |ids: &[String], others: &[String]| {
        let others: HashSet<&String> = others.iter().collect();
        ids.iter().filter(|id| !others.contains(id)).cloned().collect::<Vec<_>>()
    };
    let (left, right) = (only(samples, other), only(other, samples));
    if left.is_empty() && right.is_empty() {
        let at = samples.iter().zip(other).position(|(a, b)| a != b)?;
        let (number, ours, theirs) = (at + 1, &samples[at], &other[at]);
        return Some(format!(
            "{other_path} has the samples of {path} in another order: sample {number} is `{theirs}`, there it is `{ours}`"
        ));
    }
    let part = |ids: &[String], here, there| {
        let n = text::plural(ids.len() as u64, "sample");
        (!ids.is_empty()).then(|| format!("{n} of {here} not in {there}: {}", text::few(ids)))
    };
    let parts = [part(&left, &path, &other_path), part(&right, &other_path, &path)];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    Some(format!("the stores differ in their samples: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(names: &[&str], counted: Option<CountedAllele>) -> Result<Stores, Failure> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../genotype/tests/fixtures");
        let paths: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
        Stores::open(&paths, &Opening { counted, ..Opening::default() }, &Run::default())
    }

    #[test]
    fn samples_of_a_fam_are_named_as_plink2_names_them() {
        let stores = open(&["plink1/biallelic.bed"], None).unwrap();
        let theirs = include_str!("../../genotype/tests/fixtures/plink2/bed.eigenvec");
        let mut names = theirs.lines().map(|line| line.split('\t').take(2).collect::<Vec<_>>().join("\t"));
        assert_eq!(names.next(), Some(stores.sample_header(["#IID", "#FID\tIID"])));
        assert_eq!(names.collect::<Vec<_>>(), stores.sample_cells().collect::<Vec<_>>());
        let zarr = open(&["biallelic.vcz"], None).unwrap();
        assert_eq!(zarr.sample_header(["#IID", "#FID\tIID"]), "#IID");
        assert_eq!(zarr.sample_cells().next().unwrap(), "A00");
    }

    #[test]
    fn beds_are_known_by_ending_or_prefix() {
        for (counted, allele) in [(None, "T"), (Some(1), "T"), (Some(0), "A")] {
            let counted = counted.map(CountedAllele::OfBed);
            for name in ["plink1/few5", "plink1/few5.bed"] {
                let stores = open(&[name], counted).unwrap();
                assert_eq!((stores.genotypes.variants(), stores.genotypes.samples()), (17, 5));
                let variant = stores.stores[0].variants(0..1).unwrap().swap_remove(0);
                assert_eq!(stores.counted(&variant), allele);
            }
        }
        let why = |names: &[&str], counted| open(names, counted).unwrap_err().to_string();
        assert_eq!(open(&["plink1/few5"], None).unwrap().warnings(), [""; 0]);
        let warnings = open(&["plink1/few5", "plink1/few5.bed"], None).unwrap().warnings();
        assert!(warnings.len() == 1 && warnings[0].contains("few5.bed is given 2 times"), "{warnings:?}");
        assert!(why(&["plink1/few5", "plink1/few4"], None).contains("1 sample of"));
        assert!(why(&["plink1/none.bed"], None).contains("none.bed"));
    }
}
