//! `teatime pca`, and what it shares with the demo: one run from stores to a folder of results.

mod args;
pub(crate) mod loadings;
mod plot;
mod report;
pub(crate) mod tables;

use std::fs;

use teatime::{Cancel, Device, Run};
use teatime_genotype::{Cohort, PcaOptions, Wanted};

use self::{
    args::options,
    loadings::LOADINGS,
    plot::PLOT,
    report::{report, unconverged},
    tables::{EIGENVAL, EIGENVALUES, EIGENVEC, SCORES},
};
pub(crate) use self::{
    args::{PcaArgs, SCALERS},
    plot::Groups,
};
use crate::{
    failure::Failure,
    output::{Output, RECORD},
    progress::Bar,
    report::{Ran, Stages},
    stores::Stores,
};

const COMMAND: &str = "pca";

/// Everything that a run may write.
pub(crate) const RESULTS: [&str; 7] = [RECORD, EIGENVEC, EIGENVAL, SCORES, EIGENVALUES, LOADINGS, PLOT];

/// Runs `teatime pca`.
pub(crate) fn run(args: &PcaArgs, cancel: &Cancel) -> Result<(), Failure> {
    let (mut stages, run) = (Stages::start(), args.resources.run(cancel));
    stages.took("simulate", None);
    let (options, reason) = options(args)?;
    if args.loadings {
        args.stores.names_alleles("--loadings")?;
    }
    let output = Output::prepare(&args.out, COMMAND, &RESULTS, &[], args.overwrite)?;
    let mut stores = args.stores.open(&run)?;
    if args.loadings {
        // Before the work: a store whose variants cannot be read has no table of loadings.
        for store in &stores.stores {
            store.variants(0..store.n_variants().min(1), true)?;
            store.forget_variants();
        }
    }
    let device = args.resources.open()?;
    args.stores.settle_ploidy(&mut stores, &device, &run)?;
    let job = Job {
        stages,
        run,
        device,
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

/// One run.
#[derive(Debug)]
pub(crate) struct Job {
    /// The first stage is the making of the store, if there is one.
    pub(crate) stages: Stages,
    pub(crate) run: Run,
    pub(crate) device: Device,
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
    /// Computes, writes everything, and reports it.
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let (bar, run) = Bar::over(&self.run, "PCA", self.stores.genotypes.variants(), "variants");
        self.stages.end("open");
        let wanted = Wanted::default().pca(&self.options).missing_calls();
        let wanted = if self.loadings { wanted.loadings() } else { wanted };
        let cohort = Cohort::load(&self.stores.genotypes, &self.device, &wanted, &run)?;
        self.stores.check_found()?;
        let mut result = cohort.pca(&self.options, &run)?;
        self.stores.count_calls(&result.counts, cohort.missing_calls());
        let pca = self.stages.end("pca");
        if let Some(reason) = self.reason {
            result.reason = reason.into();
        }
        if let (Some(why), true) = (unconverged(&result, &self.options), self.strict) {
            return Err(Failure::Error(format!("{why} (--strict)")));
        }

        tables::write(&self.output, &result, &self.stores)?;
        plot::write(&self.output, &result, self.groups.as_ref())?;
        self.stages.end("write");
        if self.loadings {
            let run = run.progress(bar.progress("Loadings"));
            let written = loadings::write(&self.output, &self.stores, &cohort, &result, &self.options, &run);
            if let Err(error) = written {
                drop(bar);
                // It is not whole; there is nobody to tell that this fails.
                drop(fs::remove_file(self.output.path(LOADINGS)));
                return Err(self.output.keep(error.into()));
            }
            self.stages.end("loadings");
        } else {
            self.stages.took("loadings", None);
        }
        drop(bar);
        let Self { stages, run, device, output, .. } = self;
        let ran = Ran { stages, device, run, planned: result.memory, stats: result.stats, output };
        // After all that is read.
        report(ran, &self.stores, &self.options, &result, pca).finish(self.json)
    }
}
