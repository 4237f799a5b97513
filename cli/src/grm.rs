//! `teatime grm`: relationships of the samples of stores, as files of other tools.

use std::{path::PathBuf, time::Instant};

use clap::{Args, ValueEnum};
use serde::Serialize;
use teatime::{Cancel, Run};
use teatime_genotype::{Cohort, Grm, GrmMethod, GrmOptions, MissingCalls, Wanted};

use crate::{
    args::{FilterArgs, Named, Resources, default_of, local, named},
    failure::Failure,
    output::{Output, RECORD},
    progress::Bar,
    record::{Common, Ran, StreamSeconds},
    report::{VariantsRecord, used},
    store_args::StoreArgs,
    stores::Stores,
    text,
};

/// Relationships of the samples of genotype stores
///
/// Reads the stores that `teatime pca` reads. The dosage of a call is its number of non-reference alleles, or of
/// copies of the --counted-allele; a call with a missing allele is missing. One pass over the stores.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub(crate) struct GrmArgs {
    /// Folder for the results
    #[arg(long, value_name = "DIR", value_parser = local())]
    out: PathBuf,
    /// How products of dosages become relationships
    ///
    /// Of dosages x, y with p = mean / 2: gcta the mean over the variants of (x - 2p) (y - 2p) / (2p (1 - p)), as plink2
    /// --make-rel and GCTA; vanraden1 the sum of (x - 2p) (y - 2p) over the sum of 2p (1 - p), as sgkit.
    #[arg(long, value_parser = named(METHODS), default_value = default_of(METHODS))]
    method: GrmMethod,
    /// What a missing call counts for
    ///
    /// pairwise: the sums of a pair of samples are over the variants called in both, as by plink2's default; NaN where
    /// there are none. mean: it becomes the variant's mean, as by plink2's meanimpute.
    #[arg(long, value_parser = named(MISSING), default_value = default_of(MISSING))]
    missing: MissingCalls,
    /// What to write
    #[arg(long, value_enum, default_value_t)]
    format: FormatArg,
    #[command(flatten)]
    filter: FilterArgs,
    /// Replace the results of this command that the folder holds, as its run.json lists them
    ///
    /// Any other file of the name of a result is an error. The earlier results stay until the new ones are there.
    #[arg(long)]
    overwrite: bool,
    /// Print run.json instead of the summary
    #[arg(long)]
    json: bool,
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
  teatime grm cohort.vcz --out vanraden --method vanraden1 --format npy

Exit codes: 0 done, 1 error, 2 wrong usage, 130, 143 and 129 stopped by Ctrl-C,
SIGTERM and SIGHUP. Unless the code is 0, no result is left behind (but where
only the summary could not be printed, or an error names the folder that has
what is done). run.json is written last and removed first: where it is, all
results are there. While a run writes to DIR, another that would is refused.";

const METHODS: Named<GrmMethod> = &[("gcta", GrmMethod::Gcta), ("vanraden1", GrmMethod::VanRaden1)];

const MISSING: Named<MissingCalls> = &[("pairwise", MissingCalls::Pairwise), ("mean", MissingCalls::Mean)];

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

/// Paths within the folder of results.
const PREFIX: &str = "grm";
const NPY: &str = "grm.npy";
const NAMES: &str = "grm.id";
const ZARR: &str = "grm.zarr";

/// Everything that a run may write.
const RESULTS: [&str; 7] = [RECORD, "grm.grm.bin", "grm.grm.N.bin", "grm.grm.id", NPY, NAMES, ZARR];

/// run.json.
#[derive(Debug, Serialize)]
struct Record {
    #[serde(flatten)]
    common: Common,
    variants: VariantsRecord,
    /// Variants after --maf and --geno, M.
    variants_kept: u64,
    method: &'static str,
    missing: &'static str,
    format: &'static str,
    min_maf: f64,
    max_missing: f64,
    /// Pairs of samples whose relationship is NaN.
    undefined_pairs: u64,
    seconds: Seconds,
}

#[derive(Debug, Serialize)]
struct Seconds {
    wall: f64,
    open: f64,
    grm: f64,
    write: f64,
    #[serde(flatten)]
    stream: StreamSeconds,
}

/// Runs `teatime grm`.
pub(crate) fn run(args: &GrmArgs, cancel: &Cancel) -> Result<(), Failure> {
    let started = Instant::now();
    let output = Output::prepare(&args.out, COMMAND, &RESULTS, &[], args.overwrite)?;
    let mut stores = args.stores.open(args.resources.budget(), cancel)?;
    if let (FormatArg::Gcta, Some(id)) = (args.format, splitting(&stores.samples)) {
        // Before the work, which would be for nothing.
        let why = format!(
            "the sample {id:?} has no name or white space in it, which --format gcta cannot hold; npy and zarr can"
        );
        return Err(Failure::Error(why));
    }
    let device = args.resources.open()?;
    args.stores.settle_ploidy(&mut stores, &device, args.resources.budget(), cancel)?;
    let options =
        GrmOptions::default().method(args.method).missing(args.missing).filter((&args.filter).into());
    let bar = Bar::new("GRM", stores.genotypes.variants());
    let run =
        Run::default().cancel(cancel.clone()).progress(bar.progress("GRM")).memory(args.resources.budget());
    let opened = Instant::now();
    let wanted = Wanted::default().grm(&options).missing_calls();
    let cohort = Cohort::load(&stores.genotypes, &device, &wanted, &run)?;
    stores.check_found()?;
    let result = cohort.grm(&options, &run)?;
    stores.count_calls(&result.counts, cohort.missing_calls());
    drop(cohort);
    let computed = Instant::now();
    write(&output, args.format, &result, &stores)?;
    drop(bar);

    let seconds = Seconds {
        wall: started.elapsed().as_secs_f64(),
        open: (opened - started).as_secs_f64(),
        grm: (computed - opened).as_secs_f64(),
        write: computed.elapsed().as_secs_f64(),
        stream: (&result.stats).into(),
    };
    let memory = args.resources.budget();
    let ran = Ran { command: COMMAND, started, device: &device, memory, output: &output };
    let record = record(args, &ran, &stores, &result, seconds);
    let page = (!args.json).then(|| summary(&record));
    output.finish(&record, &record.common.process.warnings, page, cancel)
}

/// A name that readers of words would take for none or two.
pub(crate) fn splitting(samples: &[String]) -> Option<&String> {
    samples.iter().find(|id| id.is_empty() || id.contains(char::is_whitespace))
}

fn write(output: &Output, format: FormatArg, grm: &Grm, stores: &Stores) -> Result<(), Failure> {
    let samples = &stores.samples;
    match format {
        FormatArg::Gcta => grm.write_gcta(output.path(PREFIX), stores.families.as_deref(), samples)?,
        FormatArg::Npy => {
            grm.write_npy(output.path(NPY))?;
            output.table(NAMES, |file| samples.iter().try_for_each(|id| writeln!(file, "{id}")))?;
        }
        FormatArg::Zarr => grm.write_zarr(output.path(ZARR), samples)?,
    }
    Ok(())
}

fn record(args: &GrmArgs, ran: &Ran<'_>, stores: &Stores, grm: &Grm, seconds: Seconds) -> Record {
    let undefined = grm.undefined();
    let warning = (undefined > 0).then(|| {
        let pairs = text::plural(undefined, "pair");
        format!("{pairs} of samples share no variant that counts: their relationship is NaN (--missing mean has none)")
    });
    let warnings = warning.into_iter().collect();
    Record {
        common: ran.common(stores, grm.memory, &grm.stats, grm.digest, None, warnings),
        variants: (&grm.counts).into(),
        variants_kept: grm.counts.loaded(),
        method: grm.method.name(),
        missing: grm.missing.name(),
        format: match args.format {
            FormatArg::Gcta => "gcta",
            FormatArg::Npy => "npy",
            FormatArg::Zarr => "zarr",
        },
        min_maf: args.filter.maf,
        max_missing: args.filter.geno,
        undefined_pairs: undefined,
        seconds,
    }
}

/// What the command prints when it is done.
fn summary(record: &Record) -> String {
    let Record { common, seconds, .. } = record;
    let mut out = common.head();
    let mut line = |name: &str, what: String| out += &format!("{name:<10}{what}\n");
    line("variants", used(&record.variants));
    common.changes.iter().for_each(|change| line("", change.clone()));
    let (peak, on_device) = common.process.peaks();
    let peak = peak.map_or_else(String::new, |peak| format!("; peak memory {peak}"));
    line("method", format!("{}, missing {}{peak}, of the device {on_device}", record.method, record.missing));
    let Seconds { wall, open, grm, write, stream } = seconds;
    let StreamSeconds { upload, compute, stalled, read, decode } = stream;
    line("time", format!("{wall:.2} s: open {open:.2} s, GRM {grm:.2} s, write {write:.2} s"));
    line("GRM", format!("waiting for chunks {stalled:.2} s, upload {upload:.2} s, compute {compute:.2} s;"));
    line("", format!("meanwhile, summed over threads: read {read:.2} s, decode {decode:.2} s"));
    out + &common.process.wrote()
}
