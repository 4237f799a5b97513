//! `teatime distance`: distances of the samples of stores.

mod bands;
mod with;

use std::{
    iter,
    path::{Path, PathBuf},
    time::Instant,
};

use clap::{Args, builder::TypedValueParser};
use serde::Serialize;
use teatime::{
    Cancel, Run,
    distance::{Metric, Missing},
};
use teatime_genotype::{DistanceOptions, Distances, Linkage, SampleMetric};

use self::{
    bands::{BandsRecord, Found},
    with::{With, WithArgs, WithRecord},
};
use crate::{
    args::{FilterArgs, Named, Resources, local, named},
    failure::Failure,
    grm::splitting,
    output::Output,
    progress::Bar,
    record::{Common, Ran, StreamSeconds},
    report::VariantsRecord,
    store_args::StoreArgs,
    stores::Stores,
    text,
};

/// Distances of the samples of genotype stores from one another, or from those of another store
///
/// Reads the stores that `teatime pca` reads. The dosage of a call is its number of non-reference alleles, or of one allele with
/// --allele (of a .bed, see --counted-allele); a call with a missing allele is missing. One pass over the stores.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub(crate) struct DistanceArgs {
    /// File for the distances: its ending, .npy, .tsv, .zarr, .dist or .dist.bin, says what it is
    #[arg(long, value_name = "FILE", value_parser = local().try_map(Target::new))]
    out: Target,
    /// How far two samples are from each other
    ///
    /// Of dosages, as scipy defines them but for `inner_product` (the sum of x y) and ibs (a similarity, 1 - mean of |x - y| / ploidy:
    /// PLINK's --distance ibs). cityblock with --missing rescale is PLINK's --distance flat-missing. The first seven and ibs are sums of
    /// whole numbers, and fastest; others are in f32.
    #[arg(long, value_parser = named(METRICS), default_value = "euclidean")]
    metric: SampleMetric,
    /// The exponent of --metric minkowski, above 0 [default: 2]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    p: Option<f64>,
    /// What becomes of variants that one of a pair has no call of
    ///
    /// ignore: they are left out, as in sgkit. rescale: sums are multiplied by the variants over those called in both, as PLINK's
    /// flat-missing; NaN where there are none. rescale-or-zero: the same, but 0. propagate: distances of samples with a missing
    /// call are NaN. ibs, a mean, takes ignore and propagate.
    #[arg(long, value_parser = named(MISSING), default_value = "ignore")]
    missing: Missing,
    /// Take each haplotype of the calls for a sample, named `SAMPLE_1`, `SAMPLE_2` ...
    ///
    /// Its dosage is 0 where its allele is the reference, 1 where it is any other, and missing where that allele is. The order of
    /// alleles in a call is taken for that of haplotypes: it means nothing where calls are not phased. For stores of calls.
    #[arg(long)]
    haplotypes: bool,
    /// Count copies of allele I (0 is the reference) instead of those of all other alleles than the reference; for stores of calls
    #[arg(long, value_name = "I", value_parser = clap::value_parser!(u8).range(0..=127))]
    allele: Option<u8>,
    /// Also cluster the samples by their distances, and write the tree: D.nwk beside FILE
    ///
    /// As scipy's linkage: single, complete, average (UPGMA), weighted (WPGMA), or ward, which supposes Euclidean distances. Of ibs, by 1 - ibs;
    /// not of `inner_product`. Takes 4 samples² bytes of memory more. A distance that is NaN is an error.
    #[arg(long, value_name = "METHOD", value_parser = named(LINKAGES))]
    tree: Option<Linkage>,
    #[command(flatten)]
    with: WithArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Replace the results of this command that are there, in any of its formats, as the record beside them lists them
    ///
    /// Any other file of the name of a result is an error. The earlier results stay until the new ones are there.
    #[arg(long)]
    overwrite: bool,
    /// Go on with D.zarr where a run was stopped, or begin one that can be gone on with
    ///
    /// Distances are computed for some samples at a time, as many as memory allows, and written at once: so they are, too, where all
    /// do not fit memory. Ends with the same bytes wherever runs were stopped. The stores and all options but those of devices
    /// and memory have to be the same. For euclidean, sqeuclidean, cityblock, hamming, `inner_product` and ibs, of dosages 0, 1 and 2.
    #[arg(long, conflicts_with_all = ["overwrite", "tree"])]
    resume: bool,
    /// Print the record instead of the summary
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    stores: StoreArgs,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

const HELP: &str = "\
What is written, by the ending of FILE:
  D.npy       (samples, samples), f64; D.id has the name of each sample
  D.tsv       a table with the names of the samples
  D.zarr      distance (samples_0, samples_1), f64; shared_variants, where calls
              are missing; sample_id
  D.dist      PLINK's lower triangle, as text; D.dist.id has family and name
  D.dist.bin  PLINK's square matrix (--distance square bin), f64; D.dist.id
With --with, rows are the samples of the stores and columns those of STORE2, of
which D.with.id and, in D.zarr (samples, samples_with), sample_id_with have the
names; PLINK's files hold no such distances.
Beside it, with --tree, D.nwk has the tree as Newick: ultrametric, two samples are
as far apart along the branches as the height at which they are merged.
D.run.json is the record of the run: command line, date, device,
budgets, times, memory, counts.
Where the distances do not fit memory, D.zarr is written some samples at a time,
with --resume always: one pass first, and one for each of these groups.

Variants that do not vary take part, as in PLINK's.

Examples:
  teatime distance cohort.vcz --out distances.npy
  teatime distance cohort.bed --out cohort.dist.bin --metric cityblock \
    --missing rescale
  teatime distance chr1.vcz chr2.vcz --out ibs.zarr --metric ibs --maf 0.01
  teatime distance biobank.bed --out d.zarr --resume
  teatime distance new.vcz --with reference.bed --out d.tsv --metric ibs
  teatime distance phased.vcz --out h.npy --haplotypes --metric cityblock --tree average

Exit codes: 0 done, 1 error, 2 wrong usage, 130, 143 and 129 stopped by Ctrl-C,
SIGTERM and SIGHUP. Unless the code is 0, no result is left behind (but where
only the summary could not be printed, or an error names the folder that has
what is done; a D.zarr that is written some samples at a time stays for --resume).
The record is written last and removed first: where it is, all
results are there.";

const METRICS: Named<SampleMetric> = &[
    ("euclidean", SampleMetric::Of(Metric::Euclidean)),
    ("sqeuclidean", SampleMetric::Of(Metric::SqEuclidean)),
    ("cityblock", SampleMetric::Of(Metric::CityBlock)),
    ("hamming", SampleMetric::Of(Metric::Hamming)),
    ("correlation", SampleMetric::Of(Metric::Correlation)),
    ("cosine", SampleMetric::Of(Metric::Cosine)),
    ("inner_product", SampleMetric::Of(Metric::InnerProduct)),
    ("chebyshev", SampleMetric::Of(Metric::Chebyshev)),
    ("minkowski", SampleMetric::Of(Metric::Minkowski(2.0))),
    ("canberra", SampleMetric::Of(Metric::Canberra)),
    ("braycurtis", SampleMetric::Of(Metric::BrayCurtis)),
    ("jaccard", SampleMetric::Of(Metric::Jaccard)),
    ("dice", SampleMetric::Of(Metric::Dice)),
    ("russellrao", SampleMetric::Of(Metric::RussellRao)),
    ("ibs", SampleMetric::Ibs),
];

const MISSING: Named<Missing> = &[
    ("ignore", Missing::Ignore),
    ("rescale", Missing::Rescale),
    ("rescale-or-zero", Missing::RescaleOrZero),
    ("propagate", Missing::Propagate),
];

const LINKAGES: Named<Linkage> = &[
    ("single", Linkage::Single),
    ("complete", Linkage::Complete),
    ("average", Linkage::Average),
    ("weighted", Linkage::Weighted),
    ("ward", Linkage::Ward),
];

const COMMAND: &str = "distance";

/// What a file of distances is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
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
const WITH_NAMES: &str = ".with.id";
const TREE: &str = ".nwk";

/// Where distances go.
#[derive(Clone, Debug)]
struct Target {
    folder: PathBuf,
    /// The file, its name without the ending, and what it is.
    name: String,
    stem: String,
    format: Format,
}

impl Target {
    fn new(path: PathBuf) -> Result<Self, String> {
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

    /// What a run writes, with a tree or others or without, the record first; and what else of this name other runs write.
    fn files(&self, tree: bool, with: bool) -> [Vec<String>; 2] {
        let tree = tree.then(|| self.file(TREE));
        let with = (with && self.format == Format::Npy).then(|| self.file(WITH_NAMES));
        let results = [self.file(RECORD), self.name.clone()];
        let written: Vec<String> = results.into_iter().chain(self.names()).chain(with).chain(tree).collect();
        let endings = FORMATS.iter().map(|(ending, _)| *ending);
        let all = endings.chain([NPY_NAMES, PLINK_NAMES, WITH_NAMES, TREE]).map(|ending| self.file(ending));
        let others = all.filter(|name| !written.contains(name)).collect();
        [written, others]
    }

    fn file(&self, ending: &str) -> String {
        format!("{}{ending}", self.stem)
    }

    /// The file of the samples' names, where they are not in the other.
    fn names(&self) -> Option<String> {
        let ending = match self.format {
            Format::Npy => NPY_NAMES,
            Format::Plink | Format::PlinkBinary => PLINK_NAMES,
            Format::Table | Format::Zarr => return None,
        };
        Some(self.file(ending))
    }
}

/// The record of a run.
#[derive(Debug, Serialize)]
struct Record {
    #[serde(flatten)]
    common: Common,
    variants: VariantsRecord,
    /// Variants after --maf and --geno.
    variants_kept: u64,
    metric: &'static str,
    /// The exponent of minkowski.
    p: Option<f64>,
    missing: &'static str,
    /// Whether each sample is a haplotype.
    haplotypes: bool,
    /// The allele that is counted; null for all but the reference.
    allele: Option<u8>,
    /// How samples were clustered.
    tree: Option<&'static str>,
    min_maf: f64,
    max_missing: f64,
    /// Pairs of samples whose distance is NaN.
    undefined_pairs: u64,
    /// Whose samples distances are to; null where from one another.
    with: Option<WithRecord>,
    /// How distances were computed for some samples at a time; null where all were at once.
    bands: Option<BandsRecord>,
    seconds: Seconds,
}

#[derive(Debug, Serialize)]
struct Seconds {
    wall: f64,
    open: f64,
    /// With what is written meanwhile.
    distances: f64,
    write: f64,
    #[serde(flatten)]
    stream: StreamSeconds,
}

/// Runs `teatime distance`.
pub(crate) fn run(args: &DistanceArgs, cancel: &Cancel) -> Result<(), Failure> {
    let started = Instant::now();
    let target = &args.out;
    let metric = match (args.metric, args.p) {
        (SampleMetric::Of(Metric::Minkowski(_)), Some(p)) => SampleMetric::Of(Metric::Minkowski(p)),
        (_, Some(_)) => return Err(Failure::Usage("--p is of --metric minkowski alone".into())),
        (metric, None) => metric,
    };
    args.with.check(args)?;
    let mut output = bands::prepare(args)?;
    let mut stores = args.stores.open(args.resources.budget(), cancel)?;
    let mut with = With::open(args, &mut stores, cancel)?;
    if let (Format::Plink | Format::PlinkBinary, Some(id)) = (target.format, splitting(&stores.samples)) {
        // Before the work, which would be for nothing.
        let why = format!(
            "the sample {id:?} has no name or white space in it, which PLINK's .id cannot hold; other formats can"
        );
        return Err(Failure::Error(why));
    }
    if let Some(allele) = args.allele {
        stores.genotypes = stores.genotypes.clone().count_allele(allele)?;
    }
    let device = args.resources.open()?;
    for stores in iter::once(&mut stores).chain(with.as_mut().map(|with| &mut with.stores)) {
        args.stores.settle_ploidy(stores, &device, args.resources.budget(), cancel)?;
        if args.haplotypes {
            stores.take_haplotypes()?;
        }
    }
    let options =
        DistanceOptions { metric, missing: args.missing, filter: (&args.filter).into(), tree: args.tree };
    let bar = Bar::new("Distances", stores.genotypes.variants());
    let run =
        Run { cancel: cancel.clone(), progress: bar.progress("Distances"), memory: args.resources.budget() };
    let opened = Instant::now();
    let (found, computed) = if let Some(with) = &with {
        let result = with.compute(&stores, &device, &options, &run)?;
        let computed = Instant::now();
        with.write(&output, target, &result, &stores)?;
        (Found::from(&result), computed)
    } else {
        let (found, matrix) = bands::compute(&mut output, args, &stores, &device, &options, &run)?;
        let computed = Instant::now();
        matrix.map_or(Ok(()), |result| write(&output, target, &result, &stores))?;
        (found, computed)
    };
    drop(bar);

    let seconds = Seconds {
        wall: started.elapsed().as_secs_f64(),
        open: (opened - started).as_secs_f64(),
        distances: (computed - opened).as_secs_f64(),
        write: computed.elapsed().as_secs_f64(),
        stream: (&found.stats).into(),
    };
    let memory = args.resources.budget();
    let ran = Ran { command: COMMAND, started, device: &device, memory, stores: &stores, output: &output };
    let record = Record::new(&ran, args, &options, found, with, seconds);
    let page = (!args.json).then(|| record.summary());
    output.finish(&record, &record.common.warnings, page, cancel)
}

fn write(output: &Output, target: &Target, result: &Distances, stores: &Stores) -> Result<(), Failure> {
    let (path, samples) = (output.path(&target.name), &stores.samples);
    match target.format {
        Format::Npy => result.write_npy(path)?,
        Format::Table => result.write_table(path, samples, text::exact)?,
        Format::Zarr => result.write_zarr(path, samples)?,
        Format::Plink => result.write_plink(path, |distance| text::general(distance, 6))?,
        Format::PlinkBinary => result.write_plink_binary(path)?,
    }
    if let Some(tree) = &result.tree {
        let tree = tree.newick(samples, text::exact)?;
        output.table(&target.file(TREE), |file| writeln!(file, "{tree}"))?;
    }
    let Some(names) = target.names() else { return Ok(()) };
    output.table(&names, |file| match target.format {
        Format::Npy => samples.iter().try_for_each(|id| writeln!(file, "{id}")),
        // PLINK has a sample's name for its family where it knows none.
        _ => samples.iter().enumerate().try_for_each(|(i, id)| {
            let family = stores.families.as_ref().map_or(id, |families| &families[i]);
            writeln!(file, "{family}\t{id}")
        }),
    })
}

impl Record {
    fn new(
        ran: &Ran<'_>,
        args: &DistanceArgs,
        options: &DistanceOptions,
        found: Found,
        with: Option<With>,
        seconds: Seconds,
    ) -> Self {
        let Found { undefined, counts, digest, memory, stats, bands } = found;
        let warning = (undefined > 0).then(|| {
            let pairs = text::plural(undefined, "pair");
            let why = match (options.metric, options.missing) {
                (_, Missing::Propagate) => "a call is missing",
                (SampleMetric::Of(Metric::Correlation | Metric::Cosine), _) => {
                    "no variant is called in both, or the dosages of one do not vary there"
                }
                _ => "no variant is called in both, or their dosages add up to 0",
            };
            format!("the distance of {pairs} of samples is NaN: {why}")
        });
        let warnings = warning.into_iter().chain(with.iter().flat_map(With::warnings));
        Self {
            common: ran.common(memory, &stats, digest, None, warnings.collect()),
            variants: (&counts).into(),
            variants_kept: counts.loaded(),
            metric: options.metric.name(),
            p: options.metric.exponent(),
            missing: options.missing.name(),
            haplotypes: args.haplotypes,
            allele: args.allele,
            tree: options.tree.map(Linkage::name),
            min_maf: options.filter.min_maf,
            max_missing: options.filter.max_missing,
            undefined_pairs: undefined,
            with: with.map(With::record),
            bands,
            seconds,
        }
    }

    /// What the command prints when it is done.
    fn summary(&self) -> String {
        let Self { common, seconds, .. } = self;
        let mut out = common.head();
        let mut line = |name: &str, what: String| out += &format!("{name:<10}{what}\n");
        if let Some(with) = &self.with {
            with.summary().into_iter().for_each(|(name, what)| line(name, what));
        }
        line("variants", format!("{} used", text::count(self.variants_kept)));
        if self.haplotypes {
            line("", "each sample is one haplotype".into());
        }
        if let Some(allele) = self.allele {
            line("dosage", format!("copies of allele {allele}"));
        }
        common.changes.iter().for_each(|change| line("", change.clone()));
        let (peak, on_device) = common.peaks();
        let peak = peak.map_or_else(String::new, |peak| format!("; peak memory {peak}"));
        let p = self.p.map_or_else(String::new, |p| format!(" of p = {p}"));
        line(
            "metric",
            format!("{}{p}, missing {}{peak}, of the device {on_device}", self.metric, self.missing),
        );
        if let Some(linkage) = self.tree {
            line("tree", format!("{linkage} linkage"));
        }
        if let Some(bands) = &self.bands {
            line("bands", bands.summary());
        }
        let Seconds { wall, open, distances, write, stream } = seconds;
        let StreamSeconds { upload, compute, stalled, read, decode } = stream;
        line(
            "time",
            format!("{wall:.2} s: open {open:.2} s, distances {distances:.2} s, write {write:.2} s"),
        );
        line(
            "distances",
            format!("waiting for chunks {stalled:.2} s, upload {upload:.2} s, compute {compute:.2} s;"),
        );
        line("", format!("meanwhile, summed over threads: read {read:.2} s, decode {decode:.2} s"));
        out + &common.wrote()
    }
}
