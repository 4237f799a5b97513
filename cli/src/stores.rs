//! Opening the stores of a run, and whether they agree.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use teatime::{
    Cancel, ChunkedArray, MissingChunk,
    bed::{BedFile, BedOptions, Sample},
    genotype::{CountedAllele, GenotypeKind, Genotypes, Variant},
    zarr::GenotypeStore,
};

use crate::{failure::Failure, text};

/// One store, of either kind.
#[derive(Debug)]
pub(crate) enum Store {
    Zarr(GenotypeStore),
    Plink(BedFile),
}

impl Store {
    /// The PLINK .bed that `path` names, with or without its ending, else the Zarr store.
    fn open(
        path: &Path,
        array: Option<&str>,
        missing: MissingChunk,
        counted: Option<CountedAllele>,
    ) -> Result<Self, Failure> {
        if !is_bed(path) {
            return Ok(Self::Zarr(GenotypeStore::open(path, array, missing)?));
        }
        if array.is_some() {
            let why = format!("--array names an array of a Zarr store, and {} is a .bed", path.display());
            return Err(Failure::Usage(why));
        }
        let options = BedOptions { counted: counted.unwrap_or_default(), ..BedOptions::default() };
        let bed = BedFile::open_with(path, &options)?;
        check_ends(&bed)?;
        Ok(Self::Plink(bed))
    }

    pub(crate) fn n_variants(&self) -> u64 {
        match self {
            Self::Zarr(store) => store.n_variants(),
            Self::Plink(bed) => bed.n_variants(),
        }
    }

    pub(crate) fn variants(&self, range: Range<u64>) -> teatime::Result<Vec<Variant>> {
        match self {
            Self::Zarr(store) => store.variants(range),
            Self::Plink(bed) => bed.variants(range),
        }
    }

    fn arrays(&self) -> &[Arc<dyn ChunkedArray>] {
        match self {
            Self::Zarr(store) => store.arrays(),
            Self::Plink(bed) => std::slice::from_ref(bed.array()),
        }
    }

    /// Names of the samples, and of their families where there are such.
    fn samples(&self) -> Result<(Vec<String>, Option<Vec<String>>), Failure> {
        match self {
            Self::Zarr(store) => Ok((store.sample_ids()?, None)),
            Self::Plink(bed) => {
                let names = |name: fn(&Sample) -> &String| bed.samples().iter().map(name).cloned().collect();
                Ok((names(|sample| &sample.id), Some(names(|sample| &sample.family))))
            }
        }
    }
}

/// Refuses a .bed with calls where its rows are filled up with zeros: where the .fam lacks up to three lines (of a
/// sample-major file, the .bim), the length of the .bed is right, but names are those of other samples. The first rows
/// show it, since few variants have only copies of A1, whose code is 0.
fn check_ends(bed: &BedFile) -> Result<(), Failure> {
    const HEADER: usize = 3;
    let io = Failure::io(bed.path());
    let file = fs::File::open(bed.path()).map_err(&io)?;
    let mut bytes = Vec::new();
    (&file).take(HEADER as u64).read_to_end(&mut bytes).map_err(&io)?;
    let by_variant = bytes.last() == Some(&1);
    let (rows, columns) =
        if by_variant { (bed.n_variants(), bed.n_samples()) } else { (bed.n_samples(), bed.n_variants()) };
    let (width, used) = (columns.div_ceil(4), columns % 4);
    if used == 0 {
        return Ok(());
    }
    let length = width * ((1 << 20) / width).clamp(1, rows);
    bytes.clear();
    file.take(length).read_to_end(&mut bytes).map_err(&io)?;
    let mut ends = bytes.chunks(usize::try_from(width).unwrap_or(usize::MAX)).map(|row| row[row.len() - 1]);
    let Some(row) = ends.position(|end| end >> (2 * used) != 0) else { return Ok(()) };
    let (row, columns) = (row + 1, text::count(columns));
    let (what, kind, table) =
        if by_variant { ("variant", "samples", "fam") } else { ("sample", "variants", "bim") };
    let (path, table) = (bed.path().display(), bed.path().with_extension(table));
    let table = table.display();
    Err(Failure::Error(format!(
        "{path}: {what} {row} has calls after the {columns} {kind} of {table}, where a .bed has zeros: {table} lacks \
         lines or is of other files"
    )))
}

/// Whether `path` names a PLINK .bed: by its ending, or as the prefix of one.
fn is_bed(path: &Path) -> bool {
    let mut prefixed = path.as_os_str().to_owned();
    prefixed.push(".bed");
    let ends = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bed"));
    !path.is_dir() && (ends || Path::new(&prefixed).is_file())
}

/// The stores of a run: the same samples, variants appended in order.
#[derive(Debug)]
pub(crate) struct Stores {
    pub(crate) paths: Vec<PathBuf>,
    /// Paths of the genotype arrays within each store.
    pub(crate) arrays: Vec<Vec<String>>,
    pub(crate) stores: Vec<Store>,
    pub(crate) samples: Vec<String>,
    /// Families of the samples of a .fam.
    pub(crate) families: Option<Vec<String>>,
    pub(crate) genotypes: Genotypes,
}

impl Stores {
    /// Reads metadata and sample names, no genotypes. `counted` is for .bed files and refused without one.
    pub(crate) fn open(
        paths: &[PathBuf],
        array: Option<&str>,
        missing: MissingChunk,
        counted: Option<CountedAllele>,
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        let mut stores: Vec<Store> = Vec::new();
        let (mut samples, mut families) = (Vec::new(), None);
        for path in paths {
            cancel.check()?;
            let store = Store::open(path, array, missing, counted)?;
            let (ids, of) = store.samples()?;
            if stores.is_empty() {
                (samples, families) = (ids, of);
            } else if families.is_some() != of.is_some() {
                let (one, other) = (paths[0].display(), path.display());
                let why = format!("{one} and {other}: PLINK files and Zarr stores do not go together");
                return Err(Failure::Error(why));
            } else {
                let ours = cells(&samples, families.as_ref(), " ");
                let theirs = cells(&ids, of.as_ref(), " ");
                if let Some(why) = difference(&paths[0], &ours, path, &theirs) {
                    return Err(Failure::Error(why));
                }
            }
            stores.push(store);
        }
        if families.is_none() && counted.is_some() {
            return Err(Failure::Usage("--counted-allele is for PLINK .bed files, and there is none".into()));
        }
        if let Some(id) = samples.iter().find(|id| id.contains(['\t', '\n', '\r'])) {
            return Err(Failure::Error(format!("the sample {id:?} has a tab or line break in its name")));
        }
        let all = stores.iter().flat_map(|store| store.arrays().iter().cloned()).collect();
        let genotypes = match families {
            Some(_) => Genotypes::plink(all, samples.len() as u64, counted.unwrap_or_default())?,
            None => Genotypes::new(all)?,
        };
        if genotypes.variants() == 0 || genotypes.samples() == 0 {
            let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            let (names, variants) = (names.join(", "), text::plural(genotypes.variants(), "variant"));
            let samples = text::plural(genotypes.samples(), "sample");
            return Err(Failure::Error(format!("{names}: {variants} of {samples}, nothing to compute with")));
        }
        let arrays = paths.iter().zip(&stores).map(|(path, store)| within(path, store)).collect();
        Ok(Self { paths: paths.to_vec(), arrays, stores, samples, families, genotypes })
    }

    /// What is odd, yet allowed: stores that are given more than once, and samples of one name in a .fam.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let file = |(path, store): (&PathBuf, &Store)| match store {
            Store::Plink(bed) => bed.path().canonicalize(),
            Store::Zarr(_) => path.canonicalize(),
        };
        // A path that is gone by now is not compared.
        let files: Vec<_> = self.paths.iter().zip(&self.stores).filter_map(|of| file(of).ok()).collect();
        let given = |(file, times): (&PathBuf, u64)| {
            format!("{} is given {times} times: so often do its variants count", file.display())
        };
        let names = cells(&self.samples, self.families.as_ref(), " ");
        let names: Vec<_> = doubled(&names).map(|(name, _)| name).collect();
        let named = (!names.is_empty()).then(|| {
            let n = text::plural(names.len() as u64, "name");
            format!("{n} of more than one sample: {}", text::few(&names))
        });
        doubled(&files).map(given).chain(named).collect()
    }

    /// Heading of the columns of [`sample_cells`](Self::sample_cells): of names alone, or of families and names.
    pub(crate) fn sample_header(&self, [alone, both]: [&str; 2]) -> String {
        if self.families.is_some() { both.into() } else { alone.into() }
    }

    /// Each sample's name, after its family where the store has families, in columns.
    pub(crate) fn sample_cells(&self) -> impl Iterator<Item = String> {
        cells(&self.samples, self.families.as_ref(), "\t").into_iter()
    }

    /// The allele, or alleles, of a variant whose copies are the dosage.
    pub(crate) fn counted<'a>(&self, variant: &'a Variant) -> &'a str {
        if self.counts_reference() { &variant.reference } else { &variant.alternate }
    }

    /// Whether copies of the reference allele are the dosage.
    pub(crate) fn counts_reference(&self) -> bool {
        matches!(self.genotypes.kind(), GenotypeKind::Plink { counted: CountedAllele::A2 })
    }

    /// Alleles of a call; dosages are of diploids.
    pub(crate) fn ploidy(&self) -> u64 {
        match self.genotypes.kind() {
            GenotypeKind::Calls { ploidy } => ploidy,
            GenotypeKind::Dosages | GenotypeKind::Plink { .. } => 2,
        }
    }
}

fn cells(ids: &[String], families: Option<&Vec<String>>, between: &str) -> Vec<String> {
    match families {
        Some(families) => {
            families.iter().zip(ids).map(|(family, id)| format!("{family}{between}{id}")).collect()
        }
        None => ids.to_vec(),
    }
}

/// What occurs more than once, and how often, in order.
fn doubled<T: Ord>(all: &[T]) -> impl Iterator<Item = (&T, u64)> {
    let mut times = BTreeMap::new();
    all.iter().for_each(|one| *times.entry(one).or_insert(0) += 1);
    times.into_iter().filter(|&(_, times)| times > 1)
}

/// Paths of a store's genotype arrays within it.
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

    fn differ(a: &[&str], b: &[&str]) -> Option<String> {
        let [a, b] = [a, b].map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>());
        difference(Path::new("a.zarr"), &a, Path::new("b.zarr"), &b)
    }

    fn open(names: &[&str], counted: Option<CountedAllele>) -> Result<Stores, Failure> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
        let paths: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
        Stores::open(&paths, None, MissingChunk::Error, counted, &Cancel::default())
    }

    #[test]
    fn samples_of_a_fam_are_named_as_plink2_names_them() {
        let stores = open(&["plink1/biallelic.bed"], None).unwrap();
        let theirs = include_str!("../../tests/fixtures/plink2/bed.eigenvec");
        let mut names = theirs.lines().map(|line| line.split('\t').take(2).collect::<Vec<_>>().join("\t"));
        assert_eq!(names.next(), Some(stores.sample_header(["#IID", "#FID\tIID"])));
        assert_eq!(names.collect::<Vec<_>>(), stores.sample_cells().collect::<Vec<_>>());
        let zarr = open(&["biallelic.vcz"], None).unwrap();
        assert_eq!(zarr.sample_header(["#IID", "#FID\tIID"]), "#IID");
        assert_eq!(zarr.sample_cells().next().unwrap(), "A00");
    }

    #[test]
    fn beds_are_known_by_ending_or_prefix() {
        for (counted, allele) in [(None, "T"), (Some(CountedAllele::A1), "T"), (Some(CountedAllele::A2), "A")]
        {
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
        assert!(why(&["biallelic.vcz", "plink1/biallelic"], None).contains("do not go together"));
        assert!(why(&["biallelic.vcz"], Some(CountedAllele::A1)).contains("--counted-allele"));
        assert!(why(&["plink1/none.bed"], None).contains("none.bed"));
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
