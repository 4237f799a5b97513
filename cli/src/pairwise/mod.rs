//! `teatime pairwise`: distances of the observations of arrays.

mod input;
mod write;

use std::path::PathBuf;

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde_json::{Value, json};
use teatime::{
    Cancel, Device, Error, MissingChunk, Run,
    distance::{
        Metric, Missing, Options, StoredDistances, StoredNeighbors, StoredRadiusNeighbors, WrittenDistances,
        neighbors_stored, pairwise_stored, radius_neighbors_stored,
    },
};

use self::{
    input::{Input, extents},
    write::{DISTANCE, FORMATS, Format, Job, NO_NPY, not_finite},
};
use crate::{
    args::{FileArgs, Resources, by_name, default_of, local, named, refuse, with_exits},
    array::Array,
    distance::MISSING,
    failure::Failure,
    output::{
        Output,
        target::{NEIGHBORS, Target},
    },
    progress::Bar,
    remote::input,
    report::Report,
    store_args::MISSING_CHUNKS,
    text,
};

const COMMAND: &str = "pairwise";

/// Distances of the observations of an array from one another, or from those of another array
///
/// Takes numbers of any kind: a .npy file, or a Zarr array (its own folder, within a store or alone; also in a zip file, as
/// STORE.zip/NAME). For genotypes, `teatime distance` knows samples, calls and PLINK's files.
#[derive(Args, Debug)]
#[command(after_long_help = with_exits(HELP, Some("a D.zarr that is written tile by tile stays for --resume")))]
pub(crate) struct PairwiseArgs {
    /// A matrix, each row of which is an observation: a .npy file or the folder of a Zarr array
    #[arg(value_name = "X", value_parser = input())]
    x: PathBuf,
    /// Distances to the observations of this matrix, instead of those of X from one another
    #[arg(long, value_name = "Y", value_parser = input())]
    with: Option<PathBuf>,
    /// File for the distances: its ending, .npy, .tsv or .zarr, says what it is
    #[arg(long, value_name = "FILE", value_parser = local().try_map(|path| Target::new(&path, &FORMATS)))]
    out: Target<Format>,
    /// Measure of how far two observations are from each other
    ///
    /// As scipy defines them, but for `inner_product`, the sum of x y, and hellinger and `kl_divergence`, which are cuVS's and meant for
    /// observations that add up to 1. manhattan and l1 are cityblock, l2 is euclidean.
    #[arg(long, value_parser = metrics(), default_value = Metric::default().name())]
    metric: Metric,
    /// The exponent of --metric minkowski, above 0; inf makes it chebyshev [default: 2]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    p: Option<f64>,
    /// Axis of the observations: the rows of X and Y, or their columns
    #[arg(long, value_name = "WHICH", value_enum, default_value_t)]
    observations: Observations,
    /// The rule for features that one of a pair lacks, being NaN or missing by the array's attributes
    ///
    /// propagate: the distance is NaN. ignore: they are left out, as in sgkit. rescale: sums are multiplied by all features over those that
    /// both have, as scikit-learn's `nan_euclidean_distances`; NaN where there are none. rescale-or-zero: the same, but 0.
    #[arg(long, value_parser = by_name(MISSING, Missing::name), default_value = Missing::default().name())]
    missing: Missing,
    /// Take negative numbers for missing, as NaN is; not with --missing propagate
    #[arg(long)]
    negative_missing: bool,
    /// Round f64 and integers to f32: faster, and what devices do that do not compute in f64
    #[arg(long)]
    narrow: bool,
    /// Write the K nearest of the other observations to each, or of those of Y, and how far they are, instead of the matrix
    ///
    /// Nearest first, and of equal distances the earlier first; by `inner_product`, the largest. Distances that are NaN come last. The
    /// matrix is never made; X and Y are read more than once where the device does not hold them.
    #[arg(long, value_name = "K", conflicts_with = "resume")]
    neighbors: Option<usize>,
    /// Write all of the other observations that are within R of each, or those of Y, and how far they are, instead of the matrix
    ///
    /// The neighbors at a distance of R or less, nearest first; by `inner_product`, those of values of R or more. R may be inf (by
    /// `inner_product`, --radius=-inf): all but those at a distance of NaN. The matrix is never made; half of the memory is for what is within R.
    #[arg(long, value_name = "R", allow_negative_numbers = true, conflicts_with_all = ["neighbors", "resume"])]
    radius: Option<f64>,
    /// Meaning of a chunk of a Zarr array that is not there: damage, or the array's fill value
    #[arg(long, value_name = "MEANS", value_parser = named(MISSING_CHUNKS), default_value = default_of(MISSING_CHUNKS))]
    missing_chunk: MissingChunk,
    #[command(flatten)]
    results: FileArgs,
    /// Go on with D.zarr where a run was stopped, or begin one that can be gone on with
    ///
    /// Distances are written tile by tile: so they are, too, where they do not fit memory. Then X and Y have to fit the device. Ends
    /// with the same bytes wherever runs were stopped. The arrays, with their chunks, the device, the version of teatime and all
    /// options but those of memory have to be the same.
    #[arg(long, conflicts_with = "overwrite")]
    resume: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

const HELP: &str = "\
What is written, by the ending of FILE:
  D.npy   (observations, observations), f64
  D.tsv   a table with the numbers of the observations, from 0
  D.zarr  distance (observations_0, observations_1), f64; with --missing but for
          propagate, shared_features
With --neighbors K, instead:
  D.npy   distances (observations, K), f64; D.neighbors.npy, the neighbors'
          numbers from 0, i64
  D.tsv   observation, rank from 1, neighbor, distance: a line for each pair
  D.zarr  neighbor (observations, neighbors), numbers from 0, i64; distance
With --radius R, instead:
  D.tsv   as with --neighbors; an observation without neighbors has no line
  D.zarr  indptr (observations + 1), i64: those of observation i are from
          indptr[i] to before indptr[i + 1] of neighbor and distance (pairs)
With --with, rows are the observations of X, and columns, or neighbors, those of
Y: in D.zarr (observations, observations_with).
D.run.json is the record of the run: command line, date, device, budgets, times,
memory.
f64 and integers of 32 and 64 bits are computed in f64 on the cpu and CUDA. Other
devices need --narrow for f64, and take such integers up to 2^24.

Examples:
  teatime pairwise vectors.npy --out cosine.npy --metric cosine
  teatime pairwise new.npy --with reference.npy --out nearest.tsv --neighbors 10
  teatime pairwise vectors.npy --out close.zarr --metric cosine --radius 0.1
  teatime pairwise expression.zarr/X --out genes.zarr --observations columns
  teatime pairwise big.npy --out d.zarr --resume";

fn metrics() -> impl TypedValueParser<Value = Metric> {
    PossibleValuesParser::new(Metric::names()).try_map(|name| name.parse::<Metric>())
}

/// The axis of the observations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Observations {
    #[default]
    Rows,
    Columns,
}

const fn exponent(metric: Metric) -> Option<f64> {
    if let Metric::Minkowski(p) = metric { Some(p) } else { None }
}

enum Found {
    Distances(StoredDistances),
    Neighbors(StoredNeighbors),
    Within(StoredRadiusNeighbors),
    /// Distances that were written tile by tile, and the numbers of those that are NaN and infinite, unless an earlier run wrote some.
    Tiles(WrittenDistances, Option<[u64; 2]>),
}

pub(crate) fn run(args: &PairwiseArgs, cancel: &Cancel) -> Result<(), Failure> {
    let (mut report, run) = Report::start(&args.resources, cancel);
    let metric = args.p.map_or(Some(args.metric), |p| args.metric.with_exponent(p));
    refuse(&[
        (metric.is_none(), "--p is of --metric minkowski alone"),
        (
            args.negative_missing && args.missing == Missing::Propagate,
            "--negative-missing is for --missing ignore and those that rescale",
        ),
        (args.radius.is_some() && args.out.format == Format::Npy, NO_NPY),
    ])?;
    let metric = metric.unwrap_or(args.metric);
    metric.check(args.missing)?;
    let numbers = args.neighbors.is_some() && args.out.format == Format::Npy;
    let resumed = args.resume.then_some(DISTANCE);
    let mut output =
        args.out.open(COMMAND, &[(args.out.file(NEIGHBORS), numbers)], args.results.overwrite, resumed)?;
    let input = Input::open(args)?;
    let device = args.resources.open()?;
    let options = Options::default()
        .missing(args.missing)
        .negative(args.negative_missing)
        .columns(args.observations == Observations::Columns)
        .narrow(args.narrow);
    let has_lists = args.neighbors.is_some() || args.radius.is_some();
    let in_rows = has_lists || args.resume || args.out.format == Format::Npy;
    let (total, noun) = input.steps(args, in_rows);
    let (bar, run) = Bar::over(&run, "Distances", total, noun);
    report.stage("open");
    let results = find(args, &input, metric, &options, &device, &run, &mut output)?;
    input.matrices().try_for_each(Array::check_found)?;
    report.stage("distances");
    input.y.iter().chain([&input.x]).try_for_each(|matrix| matrix.files.check())?;
    write::write(&output, args, metric, &results)?;
    drop(bar);
    report.stage("write");

    let (memory, stats, devices) = match &results {
        Found::Distances(distances) => (distances.memory, distances.stats, 1),
        Found::Neighbors(neighbors) => (neighbors.memory, neighbors.stats, neighbors.devices),
        Found::Within(within) => (within.memory, within.stats, within.devices),
        Found::Tiles(written, _) => (written.memory, written.stats, usize::MAX),
    };
    report.devices = devices;
    report.head((&device, &output), (memory, stats), &input.x.path, &size(&input.x, args));
    describe(&mut report, args, metric, &input, &results);
    report.times("distances");
    report.finish(output, args.results.json)
}

fn find(
    args: &PairwiseArgs,
    input: &Input,
    metric: Metric,
    options: &Options,
    device: &Device,
    run: &Run,
    output: &mut Output,
) -> Result<Found, Failure> {
    let (x, y) = (&input.x.array, input.y.as_ref().map(|y| &y.array));
    let named = |error| input.named(error);
    if let Some(k) = args.neighbors {
        let neighbors = neighbors_stored(x, y, k, metric, options, device, run);
        return neighbors.map(Found::Neighbors).map_err(named);
    }
    if let Some(radius) = args.radius {
        let within = radius_neighbors_stored(x, y, radius, metric, options, device, run);
        return within.map(Found::Within).map_err(named);
    }
    let whole = || pairwise_stored(x, y, metric, options, device, run).map(Found::Distances);
    let job = Job { args, input, metric, options, device, run };
    // Matrices that do not fit the device are read some features at a time, for which all distances have to fit memory. A table is
    // written from memory, and so is a store that is not to be resumed, unless it does not fit.
    let result = match args.out.format {
        Format::Zarr if args.resume => job.store(output),
        Format::Npy => or_of_less_memory(job.npy(output), whole),
        Format::Table => whole(),
        Format::Zarr => match whole() {
            Err(error) if is_memory(&error) => {
                args.out.refuse_to_lose(args.results.overwrite)?;
                or_of_less_memory(Err(error), || job.store(output))
            }
            result => result,
        },
    };
    result.map_err(named)
}

const fn is_memory(error: &Error) -> bool {
    matches!(error, Error::Budget { .. } | Error::OutOfMemory { .. } | Error::OutOfHostMemory { .. })
}

/// Finds distances in another way if there was too little memory for the first. If that lacks memory too, the error is that of the way that
/// needs less.
fn or_of_less_memory(
    first: Result<Found, Error>,
    other: impl FnOnce() -> Result<Found, Error>,
) -> Result<Found, Error> {
    match first {
        Err(error) if is_memory(&error) => match other() {
            Err(tiles @ Error::Budget { .. }) => Err(tiles.or_of_less_memory(error)),
            second => second,
        },
        first => first,
    }
}

fn describe(report: &mut Report, args: &PairwiseArgs, metric: Metric, input: &Input, results: &Found) {
    let distances = match results {
        Found::Distances(stored) => Some(stored.distances.data()),
        Found::Neighbors(stored) => Some(stored.nearest.distances.data()),
        Found::Within(stored) => Some(&stored.within.distances[..]),
        Found::Tiles(..) => None,
    };
    let [undefined, infinite] = match results {
        Found::Tiles(_, counts) => counts.map_or([None; 2], |counts| counts.map(Some)),
        // Distances that are NaN are not among them.
        Found::Within(stored) => [None, Some(not_finite(&stored.within.distances)[1])],
        _ => distances.map_or([None; 2], |distances| not_finite(distances).map(Some)),
    };
    let warning = |count: Option<u64>, why: String| match count {
        None | Some(0) => None,
        Some(1) => Some(format!("1 distance is {why}")),
        Some(count) => Some(format!("{} distances are {why}", text::count(count))),
    };
    report.warn(input.warnings(args));
    report.warn(warning(undefined, format!("NaN: {}", why_undefined(metric, args.missing))));
    report.warn(warning(infinite, "infinite: sums of squares, powers or products are beyond f64".into()));
    let p = exponent(metric);
    report.put(json!({
        "x": record(&input.x, args),
        "with": input.y.as_ref().map(|y| record(y, args)),
        "metric": metric.name(),
        "p": p,
        "missing": args.missing.name(),
        "negative_missing": args.negative_missing,
        "narrow": args.narrow,
        // The number of distances that are NaN; null if an earlier run may have written some, and of those within a radius.
        "undefined": undefined,
        "neighbors": args.neighbors,
        "radius": args.radius.map(number),
        // The number of pairs within the radius.
        "pairs": args.radius.and(distances).map(<[f64]>::len),
        "tiles": distances.is_none(),
    }));
    if let Some(y) = &input.y {
        report.line("with", &y.path);
        report.line("", size(y, args));
    }
    let p = p.map_or_else(String::new, |p| format!(" of p = {p}"));
    let how = format!("{}{p}, missing {}{}", metric.name(), args.missing.name(), report.peaks("; "));
    report.line("metric", how);
    if let Some(k) = args.neighbors {
        report.line("neighbors", format!("{} of each observation", text::count(k as u64)));
    }
    if let (Some(radius), Some(distances)) = (args.radius, distances) {
        let count = text::plural(distances.len() as u64, "neighbor");
        report.line("radius", format!("{radius}: {count} of all observations"));
    }
    if distances.is_none() && args.out.format == Format::Zarr {
        report.line("tiles", "written one after another");
    }
}

/// Returns a number, or its text if JSON has no such number.
fn number(x: f64) -> Value {
    if x.is_finite() { x.into() } else { x.to_string().into() }
}

fn record(matrix: &Array, args: &PairwiseArgs) -> Value {
    let ([observations, features], dtype) = (extents(matrix, args.observations), matrix.type_name());
    let mut record =
        json!({ "path": matrix.path, "observations": observations, "features": features, "dtype": dtype });
    matrix.record_gaps(&mut record);
    record
}

fn size(matrix: &Array, args: &PairwiseArgs) -> String {
    let [observations, features] = extents(matrix, args.observations);
    let [observations, features] =
        [text::plural(observations, "observation"), text::plural(features, "feature")];
    format!("{observations} of {features}, {}", matrix.type_name())
}

fn why_undefined(metric: Metric, missing: Missing) -> String {
    let lacking = match missing {
        Missing::Propagate => "an element is NaN",
        _ => "no feature is in both",
    };
    let where_both = if missing == Missing::Propagate { "" } else { ", of the features that are in both" };
    let divisor = match metric {
        Metric::Cosine => "all elements of an observation are 0",
        Metric::Correlation => "all elements of an observation are the same",
        Metric::JensenShannon => "an observation adds up to 0",
        Metric::BrayCurtis => "all sums of two elements are 0",
        Metric::Dice => "all elements of two observations are 0",
        _ => return lacking.into(),
    };
    format!("{lacking}, or {divisor}{where_both}")
}
