//! One genotype store, in Zarr or PLINK format.

use std::{ops::Range, path::Path, sync::Arc};

use teatime::{Budget, ChunkedArray, Error, MissingChunk};
use teatime_genotype::{
    DoubtfulColumn, GenotypeStore, Variant, VariantSource,
    bed::{BedFile, BedOptions, Sample},
};

use crate::{failure::Failure, foreign, remote};

/// The minimum number of bytes of memory for names and variants, whatever the budget.
const NAMES: u64 = 16 << 20;

/// The counted allele, by its number in [`Genotypes::count_allele`](teatime_genotype::Genotypes::count_allele): its copies are the dosage.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CountedAllele {
    /// An allele of a .bed, given by its column of the .bim.
    OfBed(u8),
    /// An allele of calls, given by its number.
    OfCalls(u8),
}

/// One genotype store, in Zarr or PLINK format.
#[derive(Debug)]
pub(crate) enum Store {
    Zarr(GenotypeStore),
    Plink(BedFile),
}

impl Store {
    /// Opens the PLINK .bed that `path` names, with or without its extension and with the tables of `tables`, or else a Zarr store.
    pub(crate) fn open(
        path: &Path,
        tables: &BedOptions,
        array: Option<&str>,
        missing: MissingChunk,
        memory: Budget,
    ) -> Result<Self, Failure> {
        if !is_bed(path) {
            foreign::refuse(path)?;
            let is_matrix = path.is_file() && path.extension().is_some_and(|extension| extension == "npy");
            let store = match remote::is_remote(path) {
                true => GenotypeStore::open_in(remote::open(path)?, array, missing)?,
                false => GenotypeStore::open(path, array, missing).map_err(|error| match is_matrix {
                    true => {
                        Failure::Error(format!("{error}; `teatime pairwise` takes a matrix of any numbers"))
                    }
                    false => error.into(),
                })?,
            };
            return Ok(Self::Zarr(
                store.with_memory(&memory.host(memory.host.map(|bytes| bytes.max(NAMES)))),
            ));
        }
        if array.is_some() {
            let why = format!("--array names an array of a Zarr store, and {} is a .bed", path.display());
            return Err(Failure::Usage(why));
        }
        Ok(Self::Plink(BedFile::open_with(path, tables)?))
    }

    /// Frees the memory of variants that is kept for reading the next range.
    pub(crate) fn forget_variants(&self) {
        if let Self::Zarr(store) = self {
            store.forget_variants();
        }
    }

    pub(crate) fn n_samples(&self) -> u64 {
        match self {
            Self::Zarr(store) => store.n_samples(),
            Self::Plink(bed) => bed.n_samples(),
        }
    }

    /// Refuses names that would break the lines and columns of a table, or control the terminal that shows them.
    fn plain(&self, what: &str, name: &str) -> teatime::Result<()> {
        // Nearly all names are printable ASCII.
        let is_plain =
            name.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !name.contains(char::is_control);
        if is_plain {
            return Ok(());
        }
        let why = format!("the {what} {name:?} has a control character in its name");
        Err(Error::store(self.arrays()[0].name(), why))
    }

    fn all_plain(&self, variants: Vec<Variant>) -> teatime::Result<Vec<Variant>> {
        for Variant { contig, id, reference, alternate, .. } in &variants {
            for (what, name) in
                [("contig", &**contig), ("variant", id), ("allele", reference), ("allele", alternate)]
            {
                self.plain(what, name)?;
            }
        }
        Ok(variants)
    }

    fn source(&self) -> &dyn VariantSource {
        match self {
            Self::Zarr(store) => store,
            Self::Plink(bed) => bed,
        }
    }

    /// Returns the columns of a Zarr store with chunks that were absent so far and might have held other values than the fill value.
    pub(crate) fn doubtful_columns(&self) -> Vec<DoubtfulColumn> {
        match self {
            Self::Zarr(store) => store.doubtful_columns(),
            Self::Plink(_) => Vec::new(),
        }
    }

    pub(crate) fn arrays(&self) -> &[Arc<dyn ChunkedArray>] {
        match self {
            Self::Zarr(store) => store.arrays(),
            Self::Plink(bed) => std::slice::from_ref(bed.array()),
        }
    }

    /// Returns the names of the samples and of their families, if the store has them.
    pub(crate) fn samples(&self) -> Result<[Option<Vec<String>>; 2], Failure> {
        let [ids, families]: [Option<Vec<String>>; 2] = match self {
            Self::Zarr(store) => [store.sample_ids()?, None],
            Self::Plink(bed) => {
                let names = |name: fn(&Sample) -> &String| bed.samples().iter().map(name).cloned().collect();
                [Some(names(|sample| &sample.id)), Some(names(|sample| &sample.family))]
            }
        };
        ids.iter().flatten().try_for_each(|id| self.plain("sample", id))?;
        families.iter().flatten().try_for_each(|family| self.plain("family", family))?;
        Ok([ids, families])
    }
}

/// The store's own variants, after a check that their names are safe to print.
impl VariantSource for Store {
    fn n_variants(&self) -> u64 {
        self.source().n_variants()
    }

    fn variants(&self, range: Range<u64>) -> teatime::Result<Vec<Variant>> {
        self.source().variants(range).and_then(|variants| self.all_plain(variants))
    }

    fn variants_without_positions(&self, range: Range<u64>) -> teatime::Result<Vec<Variant>> {
        self.source().variants_without_positions(range).and_then(|variants| self.all_plain(variants))
    }

    fn contigs(&self, f: &mut dyn FnMut(&str, u64) -> teatime::Result<()>) -> teatime::Result<()> {
        self.source().contigs(&mut |name, variants| {
            self.plain("contig", name)?;
            f(name, variants)
        })
    }

    fn named_contigs(&self) -> teatime::Result<Vec<(String, Option<u64>)>> {
        self.source().named_contigs()
    }

    fn position(&self, variant: u64) -> teatime::Result<u64> {
        self.source().position(variant)
    }
}

/// Returns true if `path` names a PLINK .bed, by its extension or as the prefix of an existing file.
pub(crate) fn is_bed(path: &Path) -> bool {
    let mut prefixed = path.as_os_str().to_owned();
    prefixed.push(".bed");
    let ends = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bed"));
    !path.is_dir() && (ends || Path::new(&prefixed).is_file())
}
