//! `teatime grm`: relationships of the samples of stores, in files for other tools.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;
use teatime::Cancel;
use teatime_genotype::{Cohort, Grm, GrmMethod, GrmOptions, MissingCalls, Wanted};

use crate::{
    args::{FilterArgs, FolderArgs, Resources, by_name, local, with_exits},
    failure::Failure,
    output::{Output, RECORD},
    progress::Bar,
    report::{Report, used, variants},
    store_args::StoreArgs,
    stores::Stores,
    text,
};

/// Relationships of the samples of genotype stores
///
/// Reads the stores that `teatime pca` reads. The dosage of a call is its number of non-reference alleles, or of
/// copies of the --counted-allele; a call with a missing allele is missing. One pass over the stores.
#[derive(Args, Debug)]
#[command(after_long_help = with_exits(HELP, None))]
pub(crate) struct GrmArgs {
    /// Folder for the results
    #[arg(long, value_name = "DIR", value_parser = local())]
    out: PathBuf,
    /// Rule by which products of dosages become relationships
    ///
    /// For dosages x, y with p = mean / 2, gcta is the mean over the variants of (x - 2p) (y - 2p) / (2p (1 - p)), as in plink2
    /// --make-rel and GCTA; vanraden1 is the sum of (x - 2p) (y - 2p) over the sum of 2p (1 - p), as in sgkit.
    #[arg(long, value_parser = by_name(GrmMethod::ALL, GrmMethod::name), default_value = GrmMethod::default().name())]
    method: GrmMethod,
    /// Rule for missing calls
    ///
    /// pairwise: the sums of a pair of samples are over the variants called in both, as by plink2's default; NaN where
    /// there are none. mean: it becomes the variant's mean, as by plink2's meanimpute.
    #[arg(long, value_parser = by_name(MissingCalls::ALL, MissingCalls::name), default_value = MissingCalls::default().name())]
    missing: MissingCalls,
    /// Format of the results
    #[arg(long, value_enum, default_value_t)]
    format: FormatArg,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    results: FolderArgs,
    #[command(flatten)]
    stores: StoreArgs,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

const HELP: &str = "\
Files in DIR, by --format:
  gcta  grm.grm.bin    lower triangle with the diagonal, row by row, f32
        grm.grm.N.bin  likewise the number of variants of each entry
        grm.grm.id     family (0 where there is no .fam) and name of each sample
        so that GCTA and others take them as --grm DIR/grm
  npy   grm.npy        (samples, samples), f64
        grm.id         name of each sample, a line each
  zarr  grm.zarr       genomic_relationship (samples_0, samples_1), f64;
                       shared_variants, with --missing pairwise; sample_id
  run.json             the record of the run: command line, date, device,
                       budgets, times, memory, counts

M, by which gcta divides, counts the variants after --maf and --geno, those that
do not vary included, as plink2's does. Where calls are missing, pairwise takes
about twice the time of mean (vanraden1: three times).

Examples:
  teatime grm cohort.vcz --out grm
  teatime grm chr1.vcz chr2.vcz --out common --maf 0.01 --missing mean
  teatime grm cohort.vcz --out vanraden --method vanraden1 --format npy";

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum FormatArg {
    /// Binary files as GCTA and plink2 --make-grm-bin write them
    #[default]
    Gcta,
    /// A numpy array
    Npy,
    /// A Zarr store, for xarray
    Zarr,
}

const COMMAND: &str = "grm";

/// The paths of the results within their folder.
const PREFIX: &str = "grm";
const NPY: &str = "grm.npy";
const NAMES: &str = "grm.id";
const ZARR: &str = "grm.zarr";

/// All files that a run may write.
const RESULTS: [&str; 7] = [RECORD, "grm.grm.bin", "grm.grm.N.bin", "grm.grm.id", NPY, NAMES, ZARR];

pub(crate) fn run(args: &GrmArgs, cancel: &Cancel) -> Result<(), Failure> {
    let (mut report, run) = Report::start(&args.resources, cancel);
    let output = Output::begin(&args.out, COMMAND, &RESULTS, &[], args.results.overwrite)?;
    let mut stores = args.stores.open(&run)?;
    if matches!(args.format, FormatArg::Gcta) {
        // This check comes first, so that no work is wasted.
        stores.refuse_splitting("--format gcta cannot hold; npy and zarr can")?;
    }
    let device = args.resources.open()?;
    args.stores.settle_ploidy(&mut stores, &device, &run)?;
    let options =
        GrmOptions::default().method(args.method).missing(args.missing).filter((&args.filter).into());
    let (bar, run) = Bar::over(&run, "GRM", stores.genotypes.variants(), "variants");
    report.stage("open");
    let wanted = Wanted::default().grm(&options).missing_calls();
    let cohort = Cohort::load(&stores.genotypes, &device, &wanted, &run)?;
    report.devices = cohort.devices();
    stores.check_found()?;
    let result = cohort.grm(&options, &run)?;
    stores.count_calls(&result.counts, cohort.missing_calls());
    drop(cohort);
    report.stage("grm");
    write(&output, args.format, &result, &stores)?;
    drop(bar);
    report.stage("write");

    report.head_of_stores((&device, &output), (result.memory, result.stats), &stores, result.digest);
    describe(&mut report, args, &stores, &result);
    report.times("grm");
    report.finish(output, args.results.json)
}

fn describe(report: &mut Report, args: &GrmArgs, stores: &Stores, grm: &Grm) {
    let undefined = grm.undefined();
    report.warn((undefined > 0).then(|| {
        let pairs = text::plural(undefined, "pair");
        format!("{pairs} of samples share no variant that counts: their relationship is NaN (--missing mean has none)")
    }));
    let [method, missing] = [grm.method.name(), grm.missing.name()];
    report.put(json!({
        "variants": variants(&grm.counts),
        // The number of variants that pass --maf and --geno.
        "variants_kept": grm.counts.loaded(),
        "method": method,
        "missing": missing,
        "format": args.format.to_possible_value().map(|format| format.get_name().to_owned()),
        "min_maf": args.filter.maf,
        "max_missing": args.filter.geno,
        // The number of pairs whose relationship is NaN.
        "undefined_pairs": undefined,
    }));
    report.line("variants", used(&grm.counts));
    report.lines(stores.changes());
    report.line("method", format!("{method}, missing {missing}{}", report.peaks("; ")));
}

fn write(output: &Output, format: FormatArg, grm: &Grm, stores: &Stores) -> Result<(), Failure> {
    let samples = &stores.samples;
    match format {
        FormatArg::Gcta => grm.write_gcta(output.path(PREFIX), stores.families.as_deref(), samples)?,
        FormatArg::Npy => {
            grm.matrix.write_npy(output.path(NPY))?;
            output.list(NAMES, samples)?;
        }
        FormatArg::Zarr => grm.write_zarr(output.path(ZARR), samples)?,
    }
    Ok(())
}
