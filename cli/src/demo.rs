//! `teatime demo`.

use std::time::Instant;

use teatime::{Cancel, MissingChunk};
use teatime_genotype::PcaOptions;

use crate::{
    args::DemoArgs,
    contigs::ContigArgs,
    failure::Failure,
    output::{Output, RESULTS, made_by},
    pca::Job,
    plot::Groups,
    progress::Bar,
    simulate::Model,
    stores::Stores,
};

const COMMAND: &str = "demo";
const STORE: &str = "genotypes.vcz";
const POPULATIONS: &str = "populations.tsv";

/// Calls of the largest demo: 20 GB before compression.
const MOST_CALLS: u64 = 10_000_000_000;

/// Runs `teatime demo`.
pub(crate) fn run(args: &DemoArgs, cancel: &Cancel) -> Result<(), Failure> {
    let started = Instant::now();
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
        Output::prepare(&args.out, COMMAND, &names, &[], made_by(&args.out).as_deref() == Some(COMMAND))?;
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
    let simulate = Some(since.elapsed());
    let groups = Groups {
        names: model.population_names(),
        of: (0..model.samples).map(|sample| model.population(sample)).collect(),
    };
    let mut stores = Stores::open(
        &[output.path(STORE)],
        None,
        MissingChunk::Error,
        None,
        false,
        args.resources.budget(),
        cancel,
    )?;
    stores.take(&ContigArgs::default(), cancel)?;
    // Where it will be.
    stores.paths = vec![args.out.join(STORE)];
    let job = Job {
        command: COMMAND,
        started,
        simulate,
        device,
        memory: args.resources.budget(),
        cancel: cancel.clone(),
        stores,
        options: PcaOptions::default().components(args.components),
        reason: None,
        output,
        loadings: false,
        strict: false,
        json: args.json,
        groups: Some(groups),
    };
    job.run()
}

/// Writes the store and the table of populations.
fn simulate(model: &Model, output: &Output, threads: Option<usize>, cancel: &Cancel) -> Result<(), Failure> {
    let bar = Bar::new("Simulating", model.variants);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    let pool = pool.map_err(|error| Failure::Error(format!("no threads: {error}")))?;
    pool.install(|| model.write(&output.path(STORE), cancel, &bar))?;
    let populations = model.population_names();
    output.table(POPULATIONS, |file| {
        writeln!(file, "sample\tpopulation")?;
        for (i, id) in model.sample_names().iter().enumerate() {
            writeln!(file, "{id}\t{}", populations[model.population(i)])?;
        }
        Ok(())
    })
}
