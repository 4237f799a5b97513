//! `teatime svd`: the singular value decomposition of arrays.

mod plot;
mod write;

use std::path::PathBuf;

use clap::{ArgAction, Args};
use serde_json::json;
use teatime::{
    Cancel, Error, MissingChunk, Run,
    stream::{
        Center, StoredSvd, StoredSvdOptions, SvdMethod, SvdRoute, svd_stored, svd_stored_with_checkpoint,
    },
};

use self::{
    plot::SCREE,
    write::{Format, SINGULAR_VALUES},
};
use crate::{
    args::{FolderArgs, Named, Resources, at_least_one, default_of, local, named, refuse, with_exits},
    array::Array,
    checkpoint,
    failure::Failure,
    iteration::{IterationArgs, unconverged},
    output::{Output, RECORD},
    progress::Bar,
    remote::input,
    report::Report,
    store_args::MISSING_CHUNKS,
    text,
};

const COMMAND: &str = "svd";

/// All files that a run may write.
const RESULTS: [&str; 9] = [
    RECORD,
    SINGULAR_VALUES,
    SCREE,
    "left.npy",
    "left.zarr",
    "left.tsv",
    "right.npy",
    "right.zarr",
    "right.tsv",
];

/// Singular values and vectors of an array of any numbers, which need not fit memory
///
/// Takes .npy files and Zarr arrays (a Zarr array's own folder, within a store or alone; also in a zip file, as STORE.zip/NAME). For
/// genotypes, `teatime pca` knows samples, calls and PLINK's files. The first pass computes means, and counts what is missing; the method
/// then takes one pass, or one for each product where the matrix does not fit the device.
#[derive(Args, Debug)]
#[command(after_long_help = with_exits(HELP, Some("the DIR/svd.checkpoint of --resume stays")))]
pub(crate) struct SvdArgs {
    /// Matrices: .npy files or folders of Zarr arrays; several are appended along their rows, in the order given
    #[arg(value_name = "X", required = true, value_parser = input())]
    arrays: Vec<PathBuf>,
    /// Folder for the results
    #[arg(long, value_name = "DIR", value_parser = local())]
    out: PathBuf,
    /// Number of components [default: 10, or all of a smaller matrix]
    #[arg(short = 'k', long, value_name = "N", value_parser = at_least_one)]
    components: Option<usize>,
    /// The means that are subtracted: of each column, as for principal components of the rows; of each row; both; or none
    #[arg(long, value_name = "WHICH", value_parser = named(CENTERS), default_value = default_of(CENTERS))]
    center: Center,
    /// Divide by the standard deviation of each column, or with --center rows of each row
    ///
    /// As scikit-learn's `StandardScaler`, with the number of rows as divisor. What is constant is divided by 1. Not with --center both.
    #[arg(long)]
    scale: bool,
    /// Method that computes the components
    ///
    /// exact: by QR where the matrix fits the device and its shorter side is at most 1,024; else by the Gram matrix of that side, which
    /// loses singular values below 1.4e-3 of the largest (6e-8 in f64). randomized: block Krylov iteration, which loses them too.
    /// auto: QR where it takes about a second or no longer than the iteration, else what is expected to cost least.
    #[arg(long, value_parser = named(METHODS), default_value = default_of(METHODS))]
    method: SvdMethod,
    #[command(flatten)]
    iteration: IterationArgs,
    /// Also write the left singular vectors, a row for each row of X; may take one more pass
    #[arg(long)]
    left: bool,
    /// Also write the right singular vectors, a row for each column of X
    #[arg(long)]
    right: bool,
    /// Format of the vectors
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The rule for elements that are NaN, or missing by the array's attributes
    ///
    /// error: the error counts them. mean: they become the mean of their column, as by scikit-learn's `SimpleImputer`.
    #[arg(long, value_name = "RULE", value_parser = named(MISSING), default_value = "error", action = ArgAction::Set)]
    missing: bool,
    /// Compute f64 and integers of 32 and 64 bits in f32: faster, and what devices do that do not compute in f64
    ///
    /// They are centred and scaled in f64 first, so that deviations from a large mean keep their digits.
    #[arg(long)]
    narrow: bool,
    /// Meaning of a chunk of a Zarr array that is not there: damage, or the array's fill value
    #[arg(long, value_name = "MEANS", value_parser = named(MISSING_CHUNKS), default_value = default_of(MISSING_CHUNKS))]
    missing_chunk: MissingChunk,
    /// Fail when a component has not converged, instead of warning
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    results: FolderArgs,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

const HELP: &str = "\
Files in DIR, where A = U diag(s) Vᵀ is the centred and scaled matrix:
  singular_values.tsv  s, share of the sum of the squares of A, residual,
                       converged; with --center columns or both, instead of the
                       share, the explained variance s² / (rows - 1) and its
                       share, as scikit-learn's PCA has them
  left.npy, right.npy  U (rows, k) and V (columns, k), f64; or by --format
                       left.zarr and right.zarr, or left.tsv and right.tsv with
                       the numbers of rows and columns, from 0
  scree.svg            the shares
  run.json             the record of the run: command line, date, device,
                       budgets, times, memory

f64 and integers of 32 and 64 bits are computed in f64 on the cpu and CUDA. Other
devices need --narrow for f64.

Examples:
  teatime svd matrix.npy --out svd --left --right
  teatime svd counts.zarr/X --out pca -k 50 --center columns --scale --right
  teatime svd a.npy b.npy --out svd --tolerance 1e-6 --memory 2G --resume";

const CENTERS: Named<Center> =
    &[("none", Center::None), ("columns", Center::Columns), ("rows", Center::Rows), ("both", Center::Both)];

const METHODS: Named<SvdMethod> =
    &[("auto", SvdMethod::Auto), ("exact", SvdMethod::Exact), ("randomized", SvdMethod::Randomized)];

/// The values of --missing; true if missing elements become the mean.
const MISSING: Named<bool> = &[("error", false), ("mean", true)];

/// The number of components if none is given.
const COMPONENTS: u64 = 10;

#[derive(Debug)]
struct Input {
    arrays: Vec<Array>,
    shape: [u64; 2],
}

impl Input {
    /// Opens the matrices and reads only their metadata.
    fn open(args: &SvdArgs) -> Result<Self, Failure> {
        let open = |path: &PathBuf| Array::matrix(path, args.missing_chunk);
        let arrays = args.arrays.iter().map(open).collect::<Result<Vec<_>, Failure>>()?;
        let extent = |array: &Array, axis: usize| array.array.shape()[axis];
        let columns = extent(&arrays[0], 1);
        if let Some(array) = arrays.iter().find(|array| extent(array, 1) != columns) {
            let (other, first) = (text::plural(extent(array, 1), "column"), &arrays[0].path);
            return Err(Failure::Error(format!("{}: {other}, and {first} has {columns}", array.path)));
        }
        let rows = arrays.iter().fold(0u64, |rows, array| rows.saturating_add(extent(array, 0)));
        let input = Self { arrays, shape: [rows, columns] };
        if rows == 0 || columns == 0 {
            return Err(Failure::Error(format!("{}: {}, nothing to decompose", input.names(), input.size())));
        }
        Ok(input)
    }

    fn names(&self) -> String {
        self.arrays.iter().map(|array| array.path.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn size(&self) -> String {
        let [rows, columns] = self.shape;
        format!("{} x {}", text::plural(rows, "row"), text::plural(columns, "column"))
    }

    /// Converts an error, with options and paths in place of argument names.
    fn named(&self, error: Error) -> Failure {
        match &error {
            Error::Argument { name: "k", why, .. } => Failure::Error(format!("-k: {why}")),
            Error::Argument { name: "arrays", why, .. } => Failure::Error(format!("{}: {why}", self.names())),
            _ => error.into(),
        }
    }

    /// Fails for arrays without a chunk, and for files that have changed.
    fn check(&self) -> Result<(), Failure> {
        self.arrays.iter().try_for_each(|array| array.check_found().and_then(|()| array.files.check()))
    }
}

pub(crate) fn run(args: &SvdArgs, cancel: &Cancel) -> Result<(), Failure> {
    let (mut report, run) = Report::start(&args.resources, cancel);
    refuse(&[(args.scale && args.center == Center::Both, "--scale is not for --center both")])?;
    let methods = [SvdMethod::Auto, SvdMethod::Exact, SvdMethod::Randomized];
    let (method, reason) = args.iteration.method(args.method, methods)?;
    let options = StoredSvdOptions::default()
        .center(args.center)
        .scale(args.scale)
        .missing_mean(args.missing)
        .narrow(args.narrow)
        .method(method)
        .svd(args.iteration.options().left(args.left));
    let folder = checkpoint::folder(&args.out, COMMAND, args.iteration.resume)?;
    let output = Output::begin(&args.out, COMMAND, &RESULTS, &[], args.results.overwrite)?;
    let input = Input::open(args)?;
    let device = args.resources.open()?;
    let most = input.shape[0].min(input.shape[1]).min(COMPONENTS);
    let k = args.components.unwrap_or(teatime::to_usize(most));
    let (bar, run) = Bar::over(&run, "SVD", input.shape[0], "rows");
    report.stage("open");
    let arrays = input.arrays.iter().map(|array| array.array.clone()).collect();
    let svd = match &folder {
        Some(folder) => {
            let at = checkpoint::at(folder, "arrays", input.arrays.iter().map(|array| &array.files))?;
            svd_stored_with_checkpoint(arrays, k, &options, &at, &device, &run)
                .inspect_err(|error| checkpoint::note_left(folder, error))
        }
        None => svd_stored(arrays, k, &options, &device, &run),
    };
    let mut svd = svd.map_err(|error| input.named(error))?;
    if let Some(reason) = reason {
        svd.reason = reason.into();
    }
    input.check()?;
    let (time, stats) = (report.stage("svd"), svd.stats());
    let warning = unconverged(&svd.converged, &svd.residuals, svd.passes, &options.svd);
    if let (Some(why), true) = (&warning, args.strict) {
        return Err(Failure::Error(format!("{why} (--strict)")));
    }
    write::values(&output, &svd)?;
    plot::write(&output, &svd, &input.size())?;
    let run: Run = run.progress(bar.progress("Vectors"));
    for (side, is_wanted) in [(write::Side::Left, args.left), (write::Side::Right, args.right)] {
        if is_wanted {
            write::vectors(&output, &svd, side, args.format, &run).map_err(|error| input.named(error))?;
        }
    }
    // Vectors may have taken another pass.
    input.check()?;
    drop(bar);
    report.stage("write");
    report.devices = svd.devices;
    report.head((&device, &output), (svd.memory, svd.stats()), &input.names(), &input.size());
    report.warn(warning);
    describe(&mut report, args, &options, &input, &svd);
    report.solved("svd", time, &stats);
    components(&mut report, &svd);
    report.finish(output, args.results.json)?;
    folder.as_deref().map_or(Ok(()), checkpoint::remove)
}

fn name_of<T: PartialEq>(values: Named<T>, value: &T) -> &'static str {
    values.iter().find(|(_, other)| other == value).map_or("", |(name, _)| name)
}

fn describe(report: &mut Report, args: &SvdArgs, options: &StoredSvdOptions, input: &Input, svd: &StoredSvd) {
    let becomes = "taken as the mean of their column, by --missing mean";
    report.warn(input.arrays.iter().flat_map(|array| array.warnings(becomes)));
    let method = if matches!(svd.route, SvdRoute::Qr | SvdRoute::Gram) { "exact" } else { "randomized" };
    let arrays = input.arrays.iter().map(|array| {
        let mut record =
            json!({ "path": array.path, "rows": array.array.shape()[0], "dtype": array.type_name() });
        array.record_gaps(&mut record);
        record
    });
    let (variance, shares) = (svd.explained_variance(), svd.shares());
    let component = |i: usize| {
        json!({
            "singular_value": svd.s[i],
            "explained_variance": variance.as_ref().map(|variance| variance[i]),
            "share": shares[i],
            "residual": svd.residuals[i],
            "converged": svd.converged[i],
        })
    };
    let k = svd.s.len();
    report.put(json!({
        "arrays": arrays.collect::<Vec<_>>(),
        "shape": { "rows": input.shape[0], "columns": input.shape[1], "components": k },
        "center": name_of(CENTERS, &args.center),
        "scale": args.scale,
        "missing": name_of(MISSING, &args.missing),
        "missing_elements": svd.missing,
        "computed_in": if svd.in_f64 { "f64" } else { "f32" },
        "method": method,
        "method_reason": svd.reason,
        "route": svd.route.name(),
        "seed": options.svd.seed,
        "oversamples": options.svd.block(k) - k,
        // Vectors may take one more.
        "passes": svd.readings,
        "products": svd.passes,
        // The products that --resume did not make again.
        "products_found": svd.found,
        "converged": svd.converged.iter().all(|converged| *converged),
        // Elements are squared once they are centred and scaled.
        "sum_of_squares": svd.total,
        "components": (0..k).map(component).collect::<Vec<_>>(),
    }));
    report.line("method", format!("{method} ({}): {}", svd.route.name(), svd.reason));
    let scaled = if args.scale { ", scaled" } else { "" };
    let (passes, center) = (text::plural(svd.readings.into(), "pass"), name_of(CENTERS, &args.center));
    let resumed = match u64::from(svd.found) {
        0 => String::new(),
        resumed => format!(", {} from before a stop", text::plural(resumed, "product")),
    };
    report.line("", format!("{passes}{resumed}, center {center}{scaled}{}", report.peaks(", ")));
}

fn components(report: &mut Report, svd: &StoredSvd) {
    report.page += "\ncomponent  singular value       share  residual\n";
    for (i, share) in svd.shares().into_iter().enumerate() {
        let [s, residual] = [(svd.s[i], 6), (svd.residuals[i], 2)].map(|(value, n)| text::general(value, n));
        let mark = if svd.converged[i] { "" } else { "  not converged" };
        report.page += &format!("{:>9} {s:>15} {:>9.3} % {residual:>9}{mark}\n", i + 1, 100.0 * share);
    }
    report.page.push('\n');
}
