//! Arguments about genotype stores.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use teatime::{Device, MissingChunk, Run};
use teatime_genotype::{GenotypeKind, bed::BedOptions, call_ploidies};

use crate::{
    args::{Named, default_of, named},
    calls::PloidyMismatch,
    contigs::ContigArgs,
    failure::Failure,
    lists::ListArgs,
    progress::Bar,
    remote::input,
    store::{CountedAllele, is_bed},
    stores::{Opening, Stores},
};

pub(crate) const MISSING_CHUNKS: Named<MissingChunk> =
    &[("error", MissingChunk::Error), ("fill", MissingChunk::Fill)];

/// The values of --ploidy-mismatch; true if calls of another ploidy become missing.
const PLOIDY_MISMATCHES: Named<bool> = &[("error", false), ("missing", true)];

/// Arguments of every command that reads genotypes.
#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// Zarr stores (folders, .zip files or URLs), or PLINK .bed files, with or without the ending; the variants of several are appended
    /// in the order given
    #[arg(value_name = "STORE", required = true, value_parser = input())]
    paths: Vec<PathBuf>,
    /// Table of variants of the .bed, where it is not the .bim beside it
    #[arg(long, value_name = "FILE")]
    bim: Option<PathBuf>,
    /// Table of samples of the .bed, where it is not the .fam beside it
    #[arg(long, value_name = "FILE")]
    fam: Option<PathBuf>,
    /// Path of the genotype array within each store, where it has another name
    #[arg(long, value_name = "PATH")]
    array: Option<String>,
    /// Meaning of a genotype chunk that is not there: damage, or the array's fill value
    ///
    /// Zarr lets writers leave out chunks that hold nothing but the fill value, so most readers take a lost file for
    /// one; where that value is 0, its calls become homozygous reference.
    #[arg(long, value_name = "MEANS", value_parser = named(MISSING_CHUNKS), default_value = default_of(MISSING_CHUNKS))]
    missing_chunk: MissingChunk,
    /// Meaning of a call of another number of alleles than most, where a Zarr store has more than two alleles a call
    ///
    /// One triploid call makes every call of a store, or of a contig's group, three alleles wide. missing: one more pass
    /// finds the ploidy that most calls of all stores fit (calls of one or two alleles fit 2), and all others become
    /// missing and are counted.
    #[arg(long, value_name = "MEANS", value_parser = named(PLOIDY_MISMATCHES), default_value = "error", action = ArgAction::Set)]
    ploidy_mismatch: bool,
    /// Take NaN in dosages for missing, as negative integers are; without this it is an error
    #[arg(long)]
    nan_missing: bool,
    /// Refuse a dosage above 2 whatever the scaler: whole ones then take two bits, and products are exact
    #[arg(long)]
    bounded_dosages: bool,
    /// The allele whose copies are the dosage: a1 or a2 of a .bed [default: a1], a number of calls [default: all but 0]
    ///
    /// a1 and a2 are the fifth and sixth column of the .bim. A1 is the alternate allele of files that plink2 or bio2zarr made
    /// or will read, so that the dosages are those of the same genotypes as VCF or Zarr. PLINK 1.9 makes A1 the rarer one.
    /// Components of centred dosages do not depend on it; loadings and frequencies do. The numbers are those that the calls
    /// have: 0 is the reference. Where variants are matched by the names of their alleles (project, pca --loadings,
    /// distance --with), calls take no number.
    #[arg(long, value_name = "ALLELE", value_parser = counted_allele)]
    counted_allele: Option<CountedAllele>,
    #[command(flatten)]
    contigs: ContigArgs,
    #[command(flatten)]
    pub(crate) lists: ListArgs,
}

impl StoreArgs {
    /// Opens the stores, without reading genotypes, and selects the requested samples and variants.
    pub(crate) fn open(&self, run: &Run) -> Result<Stores, Failure> {
        let mut tables = BedOptions::default();
        (tables.bim, tables.fam) = (self.bim.clone(), self.fam.clone());
        for (option, table) in [("--bim", &tables.bim), ("--fam", &tables.fam)] {
            if table.is_some() && !matches!(&self.paths[..], [path] if is_bed(path)) {
                return Err(Failure::Usage(format!(
                    "{option} is the table of one .bed, which has to be the only store"
                )));
            }
        }
        let mut stores = self.stores(&self.paths, tables, self.array.as_deref(), self.counted_allele, run)?;
        self.lists.take_samples(&mut stores, run)?;
        stores.take(&self.contigs, &run.cancel)?;
        self.lists.take_variants(&mut stores, run)?;
        Ok(stores)
    }

    /// Opens another store, whose variants will be matched with those of `self`'s stores. All its samples and variants take part, and a
    /// .bed may count either allele.
    pub(crate) fn open_other(&self, path: &Path, run: &Run) -> Result<Stores, Failure> {
        let array = self.array.as_deref().filter(|_| !is_bed(path));
        self.stores(&[path.to_path_buf()], BedOptions::default(), array, None, run)
    }

    fn stores(
        &self,
        paths: &[PathBuf],
        tables: BedOptions,
        array: Option<&str>,
        counted: Option<CountedAllele>,
        run: &Run,
    ) -> Result<Stores, Failure> {
        let (missing, any_ploidy) = (self.missing_chunk, self.ploidy_mismatch);
        let mut stores = Stores::open(paths, &Opening { array, missing, counted, any_ploidy, tables }, run)?;
        stores.genotypes =
            stores.genotypes.nan_is_missing(self.nan_missing).dosages_are_bounded(self.bounded_dosages);
        Ok(stores)
    }

    /// Refuses a number as --counted-allele, since `what` matches variants by the names of their alleles.
    pub(crate) fn names_alleles(&self, what: &str) -> Result<(), Failure> {
        match self.counted_allele {
            Some(CountedAllele::OfCalls(number)) => Err(Failure::Usage(format!(
                "--counted-allele {number}: {what} matches variants by the names of their alleles, and takes no number"
            ))),
            _ => Ok(()),
        }
    }

    /// If --ploidy-mismatch asks for it, finds the ploidy of most calls, in one pass over the stores.
    pub(crate) fn settle_ploidy(
        &self,
        stores: &mut Stores,
        device: &Device,
        run: &Run,
    ) -> Result<(), Failure> {
        let GenotypeKind::Calls { ploidy: stored @ 3.. } = stores.genotypes.kind() else { return Ok(()) };
        if !self.ploidy_mismatch {
            return Ok(());
        }
        let (_bar, run) = Bar::over(run, "Ploidy", stores.genotypes.variants(), "variants");
        let ploidies = call_ploidies(&stores.genotypes, device, &run)?;
        let ploidy = ploidies.common();
        let calls = ploidies.unfit(ploidy);
        if ploidy != stored || calls > 0 {
            stores.genotypes = stores.genotypes.clone().with_ploidy(ploidy)?;
        }
        stores.ploidy_mismatch = Some(PloidyMismatch { stored, ploidy, calls });
        Ok(())
    }
}

/// Parses the name of a .bim's allele column, or the number of an allele of calls.
fn counted_allele(text: &str) -> Result<CountedAllele, String> {
    match (text.to_ascii_lowercase().as_str(), text.parse()) {
        ("a1", _) => Ok(CountedAllele::OfBed(1)),
        ("a2", _) => Ok(CountedAllele::OfBed(0)),
        (_, Ok(number @ 0..=127)) => Ok(CountedAllele::OfCalls(number)),
        _ => Err("neither a1 nor a2, as of a .bed, nor a number from 0 to 127, as of calls".into()),
    }
}
