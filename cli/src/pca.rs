//! `teatime pca`, and what it shares with the demo: one run from stores to a folder of results.

use std::{
    fs,
    time::{Duration, Instant},
};

use teatime::{
    Budget, Cancel, Device, Run,
    linalg::{Stop, SvdOptions},
};
use teatime_genotype::{Cohort, Method, PcaOptions, Scaler, Wanted};

use crate::{
    args::PcaArgs,
    failure::Failure,
    loadings,
    output::{self, LOADINGS, Output, RESULTS},
    plot::{self, Groups},
    progress::Bar,
    record::Ran,
    report::{Record, Stages, summary},
    stores::Stores,
    text,
};

const COMMAND: &str = "pca";

/// Runs `teatime pca`.
pub(crate) fn run(args: &PcaArgs, cancel: &Cancel) -> Result<(), Failure> {
    let started = Instant::now();
    let (options, reason) = options(args)?;
    if args.loadings {
        args.stores.names_alleles("--loadings")?;
    }
    let output = Output::prepare(&args.out, COMMAND, &RESULTS, &[], args.overwrite)?;
    let mut stores = args.stores.open(args.resources.budget(), cancel)?;
    if args.loadings {
        // Before the work: a store whose variants cannot be read has no table of loadings.
        for store in &stores.stores {
            store.variants(0..store.n_variants().min(1), true)?;
        }
    }
    let device = args.resources.open()?;
    args.stores.settle_ploidy(&mut stores, &device, args.resources.budget(), cancel)?;
    let job = Job {
        command: COMMAND,
        started,
        simulate: None,
        device,
        memory: args.resources.budget(),
        cancel: cancel.clone(),
        stores,
        options,
        reason,
        output,
        loadings: args.loadings,
        strict: args.strict,
        json: args.json,
        groups: None,
    };
    job.run()
}

/// The options, and why their method.
fn options(args: &PcaArgs) -> Result<(PcaOptions, Option<&'static str>), Failure> {
    let stop = match (args.power_iterations, args.tolerance) {
        (Some(n), _) => Some(Stop::PowerIterations(n)),
        (None, t) => t.map(Stop::Tolerance),
    };
    let (method, reason) = match (args.method, stop) {
        (Method::Exact, Some(_)) => {
            let why = "--power-iterations and --tolerance are for --method randomized, not exact";
            return Err(Failure::Usage(why.into()));
        }
        // Whoever counts iterations wants to iterate; the exact method is within any tolerance.
        (Method::Auto, Some(Stop::PowerIterations(_))) => {
            (Method::Randomized, Some("asked for by --power-iterations"))
        }
        (method, _) => (method, None),
    };
    let svd = SvdOptions::default();
    let svd = svd
        .oversamples(args.oversamples)
        .stop(stop.unwrap_or(svd.stop))
        .max_passes(args.max_passes)
        .seed(args.seed);
    let options = PcaOptions::default().components(args.components).method(method).scaler(args.scaler);
    Ok((options.filter((&args.filter).into()).svd(svd), reason))
}

/// One run.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) command: &'static str,
    pub(crate) started: Instant,
    /// How long making the store took.
    pub(crate) simulate: Option<Duration>,
    pub(crate) device: Device,
    pub(crate) memory: Budget,
    pub(crate) cancel: Cancel,
    pub(crate) stores: Stores,
    pub(crate) options: PcaOptions,
    /// Why the method of the options, where the library does not know.
    pub(crate) reason: Option<&'static str>,
    pub(crate) output: Output,
    pub(crate) loadings: bool,
    pub(crate) strict: bool,
    pub(crate) json: bool,
    pub(crate) groups: Option<Groups>,
}

impl Job {
    /// Computes, writes everything, and prints the summary.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let mut stages =
            Stages { simulate: self.simulate, open: self.started.elapsed(), ..Stages::default() };
        let bar = Bar::new("PCA", self.stores.genotypes.variants());
        let run =
            Run::default().cancel(self.cancel.clone()).progress(bar.progress("PCA")).memory(self.memory);
        let since = Instant::now();
        let wanted = Wanted::default().pca(&self.options).missing_calls();
        let wanted = if self.loadings { wanted.loadings() } else { wanted };
        let cohort = Cohort::load(&self.stores.genotypes, &self.device, &wanted, &run)?;
        self.stores.check_found()?;
        let mut result = cohort.pca(&self.options, &run)?;
        self.stores.count_calls(&result.counts, cohort.missing_calls());
        stages.pca = since.elapsed();
        if let Some(reason) = self.reason {
            result.reason = reason.into();
        }
        if let (Some(why), true) = (unconverged(&result, &self.options), self.strict) {
            return Err(Failure::Error(format!("{why} (--strict)")));
        }

        let since = Instant::now();
        output::tables(&self.output, &result, &self.stores)?;
        plot::write(&self.output, &result, self.groups.as_ref())?;
        stages.write = since.elapsed();
        if self.loadings {
            let since = Instant::now();
            let run = run.clone().progress(bar.progress("Loadings"));
            let written = loadings::write(&self.output, &self.stores, &cohort, &result, &self.options, &run);
            if let Err(error) = written {
                drop(bar);
                // It is not whole; there is nobody to tell that this fails.
                drop(fs::remove_file(self.output.path(LOADINGS)));
                return Err(self.output.keep(error.into()));
            }
            stages.loadings = Some(since.elapsed());
        }
        drop(bar);
        stages.wall = self.started.elapsed();

        // After all that is read.
        let record = Record::new(&self, &result, &stages, self.warnings(&result));
        let page = (!self.json).then(|| summary(&record));
        self.output.finish(&record, &record.common.process.warnings, page, &self.cancel)
    }

    pub(crate) fn ran(&self) -> Ran<'_> {
        let Self { command, started, ref device, memory, ref output, .. } = *self;
        Ran { command, started, device, memory, output }
    }

    fn warnings(&self, result: &teatime_genotype::Pca) -> Vec<String> {
        let mut warnings = Vec::new();
        if !matches!(result.scaler, Scaler::Patterson | Scaler::Binom2) {
            let name = result.scaler.name();
            warnings
                .push(format!("pca.eigenval holds s²/M of the `{name}` scaling, which plink2 does not have"));
        }
        warnings.extend(unconverged(result, &self.options));
        let central = central(result, &self.stores.samples);
        if !central.is_empty() {
            let (n, few) = (text::plural(central.len() as u64, "sample"), text::few(&central));
            warnings.push(format!("{n} at 0 in every component, as those without calls are: {few}"));
        }
        warnings
    }
}

/// Names of the samples that are at 0 in every component, but for what rounding adds to samples without calls. Of few
/// components, other samples may be there by chance.
fn central<'a>(result: &teatime_genotype::Pca, samples: &'a [String]) -> Vec<&'a str> {
    const FEW: usize = 3;
    let most = 1e-3 / (samples.len() as f64).sqrt();
    let components = result.singular_values.len();
    let rows = result.vectors.data().chunks(components.max(1)).zip(samples);
    let central = rows.filter(|(row, _)| components >= FEW && row.iter().all(|v| v.abs() < most));
    central.map(|(_, name)| name.as_str()).collect()
}

/// Which components are not converged, in words.
fn unconverged(result: &teatime_genotype::Pca, options: &PcaOptions) -> Option<String> {
    let n = result.converged.iter().filter(|converged| !**converged).count() as u64;
    let worst = result.residuals.iter().copied().fold(0.0, f64::max);
    let (tolerance, advice) = match options.svd.stop {
        Stop::Tolerance(t) => (t, "--max-passes"),
        _ => (1e-4, "--power-iterations, or give --tolerance"),
    };
    let of = text::plural(result.converged.len() as u64, "component");
    let passes = text::plural(result.passes.into(), "pass");
    let (worst, tolerance) = (text::general(worst, 2), text::general(tolerance, 2));
    (n > 0).then(|| {
        format!(
            "{n} of {of} did not converge in {passes}: the largest residual is {worst}, not at most {tolerance}; \
             raise {advice}"
        )
    })
}
