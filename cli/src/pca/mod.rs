//! `teatime pca`, and the run from stores to results that `teatime demo` shares.

mod args;
pub(crate) mod loadings;
mod plot;
mod report;
pub(crate) mod tables;

use std::{
    fs,
    path::{Path, PathBuf},
};

use teatime::{Cancel, Device, Error, Run, linalg::Checkpoint, stream::digest};
use teatime_genotype::{Cohort, PcaOptions, VariantSource, Wanted};

use self::{
    args::options,
    loadings::LOADINGS,
    plot::PLOT,
    report::{describe, unconverged},
    tables::{EIGENVAL, EIGENVALUES, EIGENVEC, SCORES},
};
pub(crate) use self::{
    args::{PcaArgs, SCALERS},
    plot::Groups,
};
use crate::{
    array::Files,
    checkpoint,
    failure::Failure,
    output::{Output, RECORD},
    progress::Bar,
    report::Report,
    stores::Stores,
};

const COMMAND: &str = "pca";

/// All files that a run may write.
pub(crate) const RESULTS: [&str; 7] = [RECORD, EIGENVEC, EIGENVAL, SCORES, EIGENVALUES, LOADINGS, PLOT];

pub(crate) fn run(args: &PcaArgs, cancel: &Cancel) -> Result<(), Failure> {
    let (mut report, run) = Report::start(&args.resources, cancel);
    report.took("simulate", None);
    let (options, reason) = options(args)?;
    if args.loadings {
        args.stores.names_alleles("--loadings")?;
    }
    let checkpoint = checkpoint::folder(&args.out, COMMAND, args.iteration.resume)?;
    let output = Output::begin(&args.out, COMMAND, &RESULTS, &[], args.results.overwrite)?;
    let mut stores = args.stores.open(&run)?;
    if args.loadings {
        // This check comes first: a store whose variants cannot be read has no table of loadings.
        for store in &stores.stores {
            store.variants(0..store.n_variants().min(1))?;
            store.forget_variants();
        }
    }
    let device = args.resources.open()?;
    args.stores.settle_ploidy(&mut stores, &device, &run)?;
    let job = Job {
        report,
        run,
        device,
        stores,
        options,
        reason,
        output,
        checkpoint,
        loadings: args.loadings,
        strict: args.strict,
        json: args.results.json,
        groups: None,
    };
    job.run()
}

/// Returns the checkpoint in a folder, with everything that tells whether these stores are those of an earlier run.
fn checkpoint_at(folder: &Path, stores: &Stores) -> Result<Checkpoint, Error> {
    let files: Vec<Files> = stores.paths.iter().map(|path| Files::at(path)).collect::<Result<_, _>>()?;
    let names = stores.samples.join("\n");
    Ok(checkpoint::at(folder, "stores", &files)?
        .property("selection", stores.words(None))
        .property("samples", format!("{} {:016x}", stores.samples.len(), digest(0, names.as_bytes()))))
}

#[derive(Debug)]
pub(crate) struct Job {
    /// The first stage is the simulation of the store.
    pub(crate) report: Report,
    pub(crate) run: Run,
    pub(crate) device: Device,
    pub(crate) stores: Stores,
    pub(crate) options: PcaOptions,
    /// The reason for the method, if the options determine it.
    pub(crate) reason: Option<&'static str>,
    pub(crate) output: Output,
    /// The folder in which a run that resumes keeps products.
    pub(crate) checkpoint: Option<PathBuf>,
    pub(crate) loadings: bool,
    pub(crate) strict: bool,
    pub(crate) json: bool,
    pub(crate) groups: Option<Groups>,
}

impl Job {
    /// Computes the components, writes all results, and reports them.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let (bar, run) = Bar::over(&self.run, "PCA", self.stores.genotypes.variants(), "variants");
        self.report.stage("open");
        let wanted = Wanted::default().pca(&self.options).missing_calls();
        let wanted = if self.loadings { wanted.loadings() } else { wanted };
        let checkpoint =
            self.checkpoint.as_deref().map(|folder| checkpoint_at(folder, &self.stores)).transpose()?;
        let cohort = Cohort::load(&self.stores.genotypes, &self.device, &wanted, &run)?;
        self.stores.check_found()?;
        self.report.devices = cohort.devices();
        let mut result = match (&self.checkpoint, &checkpoint) {
            (Some(folder), Some(checkpoint)) => {
                let pca = cohort.pca_with_checkpoint(&self.options, checkpoint, &run);
                pca.inspect_err(|error| checkpoint::note_left(folder, error))?
            }
            _ => cohort.pca(&self.options, &run)?,
        };
        self.stores.count_calls(&result.counts, cohort.missing_calls());
        let pca = self.report.stage("pca");
        if let Some(reason) = self.reason {
            result.reason = reason.into();
        }
        if let (Some(why), true) = (unconverged(&result, &self.options), self.strict) {
            return Err(Failure::Error(format!("{why} (--strict)")));
        }

        tables::write(&self.output, &result, &self.stores)?;
        plot::write(&self.output, &result, self.groups.as_ref())?;
        self.report.stage("write");
        if self.loadings {
            let run = run.progress(bar.progress("Loadings"));
            let written = loadings::write(&self.output, &self.stores, &cohort, &result, &self.options, &run);
            if let Err(error) = written {
                drop(bar);
                // The file is incomplete. Errors of its removal are ignored.
                drop(fs::remove_file(self.output.path(LOADINGS)));
                return Err(self.output.keep(error.into()));
            }
            self.report.stage("loadings");
        } else {
            self.report.took("loadings", None);
        }
        drop(bar);
        let Self { mut report, device, stores, options, output, checkpoint, json, .. } = self;
        // This comes last, since warnings depend on everything that was read.
        report.head_of_stores((&device, &output), (result.memory, result.stats), &stores, result.digest);
        describe(&mut report, &stores, &options, &result, pca);
        report.finish(output, json)?;
        checkpoint.as_deref().map_or(Ok(()), checkpoint::remove)
    }
}
