//! `teatime demo`: simulated data.

use std::{path::PathBuf, time::Instant};

use clap::Args;
use teatime::Cancel;
use teatime_genotype::PcaOptions;

use crate::{
    args::{Resources, at_least_one, between, local},
    contigs::ContigArgs,
    failure::Failure,
    output::{Output, made_by},
    pca::{Groups, Job, RESULTS},
    progress::Bar,
    report::Report,
    simulate::Model,
    stores::{Opening, Stores},
};

const COMMAND: &str = "demo";
const STORE: &str = "genotypes.vcz";
const POPULATIONS: &str = "populations.tsv";

/// The maximum number of calls of a demo: 20 GB before compression.
const MOST_CALLS: u64 = 10_000_000_000;

/// Simulate a genotype store and show its PCA: needs no data and no GPU
///
/// Draws populations by the Balding-Nichols model, writes the genotypes as a VCF-Zarr store, and runs the same PCA as
/// `teatime pca`. A seed gives the same genotypes on every machine.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Folder for the store and the results; an earlier demo's is replaced
    #[arg(long, value_name = "DIR", default_value = "teatime-demo", value_parser = local())]
    out: PathBuf,
    /// Number of variants
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    variants: u64,
    /// Number of samples
    #[arg(long, value_name = "N", default_value_t = 1_500, value_parser = at_least_one)]
    samples: usize,
    /// Number of populations
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    populations: usize,
    /// Fraction of missing calls (0 to 1)
    #[arg(long, value_name = "X", default_value_t = 0.01, value_parser = between(0.0, 1.0))]
    missing: f64,
    /// Distance of the populations from one another: `F_ST` (0 to 0.95)
    #[arg(long, value_name = "X", default_value_t = 0.01, value_parser = between(0.0, 0.95))]
    fst: f64,
    /// Seed of the simulation
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of components
    #[arg(short = 'k', long, value_name = "N", default_value_t = PcaOptions::default().components, value_parser = at_least_one)]
    components: usize,
    /// Print run.json instead of the summary
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

pub(crate) fn run(args: &DemoArgs, cancel: &Cancel) -> Result<(), Failure> {
    let (mut report, run) = Report::start(&args.resources, cancel);
    if args.populations > args.samples {
        let why = format!("--populations {} is more than --samples {}", args.populations, args.samples);
        return Err(Failure::Usage(why));
    }
    let calls = args.variants.saturating_mul(args.samples as u64);
    if calls > MOST_CALLS {
        let why = format!("--variants {} x --samples {} are {calls} calls", args.variants, args.samples);
        return Err(Failure::Usage(format!("{why}; the demo simulates at most {MOST_CALLS}")));
    }
    if args.components as u64 > args.variants.min(args.samples as u64) {
        let least = args.variants.min(args.samples as u64);
        return Err(Failure::Usage(format!("-k {} is more than the {least} there can be", args.components)));
    }
    let names: Vec<&str> = RESULTS.into_iter().chain([POPULATIONS, STORE]).collect();
    let output =
        Output::begin(&args.out, COMMAND, &names, &[], made_by(&args.out).as_deref() == Some(COMMAND))?;
    let device = args.resources.open()?;
    let model = Model {
        variants: args.variants,
        samples: args.samples,
        populations: args.populations,
        missing: args.missing,
        fst: args.fst,
        seed: args.seed,
    };
    let since = Instant::now();
    simulate(&model, &output, args.resources.threads, cancel)?;
    report.took("simulate", Some(since.elapsed()));
    let groups = Groups {
        names: model.population_names(),
        of: (0..model.samples).map(|sample| model.population(sample)).collect(),
    };
    let mut stores = Stores::open(&[output.path(STORE)], &Opening::default(), &run)?;
    stores.take(&ContigArgs::default(), cancel)?;
    // The store is moved to this path at the end.
    stores.paths = vec![args.out.join(STORE)];
    let job = Job {
        report,
        run,
        device,
        stores,
        options: PcaOptions::default().components(args.components),
        reason: None,
        output,
        checkpoint: None,
        loadings: false,
        strict: false,
        json: args.json,
        groups: Some(groups),
    };
    job.run()
}

/// Writes the store and the table of populations.
fn simulate(model: &Model, output: &Output, threads: Option<usize>, cancel: &Cancel) -> Result<(), Failure> {
    let bar = Bar::new("Simulating", model.variants, "variants");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    let pool = pool.map_err(|error| Failure::Error(format!("no threads: {error}")))?;
    pool.install(|| model.write(&output.path(STORE), cancel, &bar))?;
    let populations = model.population_names();
    output.put(POPULATIONS, |file| {
        writeln!(file, "sample\tpopulation")?;
        for (i, id) in model.sample_names().iter().enumerate() {
            writeln!(file, "{id}\t{}", populations[model.population(i)])?;
        }
        Ok(())
    })
}
