//! One store, of either kind.

use std::{ops::Range, path::Path, sync::Arc};

use teatime::{Budget, ChunkedArray, Error, MissingChunk, to_usize};
use teatime_genotype::{
    DoubtfulColumn, GenotypeStore, Variant,
    bed::{BedFile, Sample},
};

use crate::{failure::Failure, foreign};

/// Bytes that names and variants may take whatever the budget is: the process has more besides.
const NAMES: u64 = 16 << 20;

/// The allele whose copies are the dosage, by its number in [`Genotypes::count_allele`](teatime_genotype::Genotypes::count_allele).
#[derive(Clone, Copy, Debug)]
pub(crate) enum CountedAllele {
    /// An allele of a .bed, named after its column of the .bim.
    OfBed(u8),
    /// An allele of calls.
    OfCalls(u8),
}

/// One store, of either kind.
#[derive(Debug)]
pub(crate) enum Store {
    Zarr(GenotypeStore),
    Plink(BedFile),
}

impl Store {
    /// The PLINK .bed that `path` names, with or without its ending, else the Zarr store.
    pub(crate) fn open(
        path: &Path,
        array: Option<&str>,
        missing: MissingChunk,
        memory: Budget,
    ) -> Result<Self, Failure> {
        if !is_bed(path) {
            foreign::refuse(path)?;
            let store = GenotypeStore::open(path, array, missing)?;
            return Ok(Self::Zarr(
                store.with_memory(&memory.host(memory.host.map(|bytes| bytes.max(NAMES)))),
            ));
        }
        if array.is_some() {
            let why = format!("--array names an array of a Zarr store, and {} is a .bed", path.display());
            return Err(Failure::Usage(why));
        }
        Ok(Self::Plink(BedFile::open(path)?))
    }

    pub(crate) fn n_variants(&self) -> u64 {
        match self {
            Self::Zarr(store) => store.n_variants(),
            Self::Plink(bed) => bed.n_variants(),
        }
    }

    /// Frees what is kept of variants for the next range of them.
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

    /// The variants in `range`, whose names may be written. Without `positions`, those of a .bim are 0 and need not be numbers.
    pub(crate) fn variants(&self, range: Range<u64>, positions: bool) -> teatime::Result<Vec<Variant>> {
        let variants = match self {
            Self::Zarr(store) => store.variants(range),
            Self::Plink(bed) if positions => bed.variants(range),
            Self::Plink(bed) => bed.variants_without_positions(range),
        }?;
        for Variant { contig, id, reference, alternate, .. } in &variants {
            for (what, name) in
                [("contig", &**contig), ("variant", id), ("allele", reference), ("allele", alternate)]
            {
                self.plain(what, name)?;
            }
        }
        Ok(variants)
    }

    /// Refuses names that would break the lines and columns of a table, or act on the terminal that shows them.
    fn plain(&self, what: &str, name: &str) -> teatime::Result<()> {
        // Nearly all are of these.
        let is_plain =
            name.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !name.contains(char::is_control);
        if is_plain {
            return Ok(());
        }
        let why = format!("the {what} {name:?} has a control character in its name");
        Err(Error::Store { path: self.arrays()[0].name().into(), why: why.into() })
    }

    /// Gives `f` the contigs of the variants in order, and how many variants after each other are on one.
    pub(crate) fn contigs(&self, f: &mut dyn FnMut(&str, u64) -> teatime::Result<()>) -> teatime::Result<()> {
        let f = &mut |name: &str, variants| {
            self.plain("contig", name)?;
            f(name, variants)
        };
        match self {
            Self::Zarr(store) => store.contigs(f),
            Self::Plink(bed) => bed.contigs(f),
        }
    }

    /// Contigs that a store names, whether or not a variant is on them, and their lengths.
    pub(crate) fn named_contigs(&self) -> teatime::Result<Vec<(String, Option<u64>)>> {
        match self {
            Self::Zarr(store) => store.named_contigs(),
            Self::Plink(_) => Ok(Vec::new()),
        }
    }

    /// The position of a variant.
    pub(crate) fn position(&self, variant: u64) -> teatime::Result<u64> {
        match self {
            Self::Zarr(store) => store.position(variant),
            Self::Plink(bed) => {
                Ok(bed.variants(variant..variant + 1)?.iter().map(|variant| variant.position).sum())
            }
        }
    }

    /// Columns of a Zarr store of which chunks were not there, so far, and might have held something else than was taken for them.
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

    /// Names of the samples, if the store has some, and of their families where there are such.
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

/// True where `path` names a PLINK .bed: by its ending, or as the prefix of one.
pub(crate) fn is_bed(path: &Path) -> bool {
    let mut prefixed = path.as_os_str().to_owned();
    prefixed.push(".bed");
    let ends = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bed"));
    !path.is_dir() && (ends || Path::new(&prefixed).is_file())
}

/// Variants read at once.
const BATCH: u64 = 4096;

/// The variants of all stores, read in batches.
pub(crate) struct Variants<'a> {
    stores: &'a [Store],
    positions: bool,
    batch: Vec<Variant>,
    first: u64,
}

impl<'a> Variants<'a> {
    /// Without `positions`, those of a .bim are 0 and need not be numbers.
    pub(crate) fn new(stores: &'a [Store], positions: bool) -> Self {
        Self { stores, positions, batch: Vec::new(), first: 0 }
    }

    /// The variant of that number, counted over all stores; numbers come in ascending order.
    ///
    /// # Panics
    /// Panics where the stores have no variant of that number.
    pub(crate) fn get(&mut self, number: u64) -> teatime::Result<&mut Variant> {
        let within = |first: u64| to_usize(number.saturating_sub(first));
        if number < self.first || within(self.first) >= self.batch.len() {
            let mut start = 0;
            for store in self.stores {
                let end = start + store.n_variants();
                if number < end {
                    let range = number - start..end.min(number + BATCH) - start;
                    self.batch = store.variants(range, self.positions)?;
                    self.first = number;
                    break;
                }
                start = end;
            }
        }
        let at = within(self.first);
        Ok(self.batch.get_mut(at).expect("a variant that takes part should be in a store"))
    }
}
