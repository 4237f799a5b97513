//! `teatime distance`: distances of the samples of stores.

mod args;
mod bands;
mod neighbors;
mod record;
mod target;
mod with;

use std::{iter, time::Instant};

use teatime::{Cancel, Run, distance::Metric};
use teatime_genotype::{
    DistanceOptions, Distances, DistancesBetween, SampleMetric, SampleNeighbors, sample_neighbors,
};

pub(crate) use self::args::{DistanceArgs, MISSING};
use self::{
    record::Record,
    target::{Format, TREE, Target, WITH_NAMES},
    with::With,
};
use crate::{
    failure::Failure,
    grm::splitting,
    output::Output,
    progress::Bar,
    record::{DistanceSeconds, Ran},
    stores::Stores,
    text,
};

const COMMAND: &str = "distance";

/// What is to be written.
enum Results {
    Matrix(Distances),
    Between(DistancesBetween),
    Neighbors(SampleNeighbors),
}

/// Runs `teatime distance`.
pub(crate) fn run(args: &DistanceArgs, cancel: &Cancel) -> Result<(), Failure> {
    let started = Instant::now();
    let target = &args.out;
    let metric = match (args.metric, args.p) {
        (metric, None) => metric,
        (SampleMetric::Of(metric @ Metric::Minkowski(_)), Some(p)) => {
            SampleMetric::Of(metric.with_exponent(p).unwrap_or(metric))
        }
        (_, Some(_)) => return Err(Failure::Usage("--p is of --metric minkowski alone".into())),
    };
    let metric = match (metric, args.het_het) {
        (SampleMetric::Ibs, Some(metric)) => metric,
        (_, Some(_)) => return Err(Failure::Usage("--het-het is of --metric ibs alone".into())),
        (metric, None) => metric,
    };
    neighbors::check(args)?;
    args.with.check(args)?;
    let beside = target.beside(args.tree.is_some(), args.neighbors.is_some(), args.with.is_given());
    let mut output = target.open(COMMAND, &beside, args.overwrite, args.resume.then_some("distance"))?;
    let mut stores = args.stores.open(args.resources.budget(), cancel)?;
    if let (Format::Plink | Format::PlinkBinary, Some(id)) = (target.format, splitting(&stores.samples)) {
        // Before the work, which would be for nothing.
        let why = format!(
            "the sample {id:?} has no name or white space in it, which PLINK's .id cannot hold; other formats can"
        );
        return Err(Failure::Error(why));
    }
    let device = args.resources.open()?;
    let mut with = With::open(args, &mut stores, &device, cancel)?;
    for stores in iter::once(&mut stores).chain(with.as_mut().map(|with| &mut with.stores)) {
        args.stores.settle_ploidy(stores, &device, args.resources.budget(), cancel)?;
        if args.haplotypes {
            stores.take_haplotypes()?;
        }
    }
    let options = DistanceOptions::default()
        .metric(metric)
        .missing(args.missing)
        .filter((&args.filter).into())
        .tree(args.tree)
        .merge_alleles(args.merge_alleles);
    let bar = Bar::new("Distances", stores.genotypes.variants());
    let run = Run::default()
        .cancel(cancel.clone())
        .progress(bar.progress("Distances"))
        .memory(args.resources.budget());
    let opened = Instant::now();
    let (found, results) = match (args.neighbors, &with) {
        (Some(k), Some(with)) => neighbors::found(with.neighbors(&stores, &device, &options, k, &run)?),
        (Some(k), None) => neighbors::found(sample_neighbors(&stores.genotypes, &device, &options, k, &run)?),
        (None, Some(with)) => with.compute(&stores, &device, &options, &run)?,
        (None, None) => bands::compute(&mut output, args, &stores, &device, &options, &run)?,
    };
    for stores in iter::once(&stores).chain(with.as_ref().map(|with| &with.stores)) {
        stores.check_found()?;
    }
    if with.is_none() {
        stores.count_calls(&found.counts, None);
    }
    let computed = Instant::now();
    if let Some(results) = results {
        let others = with.as_ref().map(|with| &*with.stores.samples);
        match &results {
            Results::Matrix(result) => write(&output, target, result, &stores)?,
            Results::Between(result) => {
                with::write(&output, target, result, [&stores.samples, others.unwrap_or_default()])?;
            }
            Results::Neighbors(result) => {
                neighbors::write(&output, target, result, &stores.samples, others)?;
            }
        }
        write_names(&output, target, &stores, others)?;
    }
    drop(bar);

    let seconds = DistanceSeconds {
        wall: started.elapsed().as_secs_f64(),
        open: (opened - started).as_secs_f64(),
        distances: (computed - opened).as_secs_f64(),
        write: computed.elapsed().as_secs_f64(),
        stream: (&found.stats).into(),
    };
    let memory = args.resources.budget();
    let ran = Ran { command: COMMAND, started, device: &device, memory, output: &output };
    let record = Record::new(&ran, &stores, args, &options, found, with, seconds);
    let page = (!args.json).then(|| record.summary());
    output.finish(&record, &record.common.process.warnings, page, cancel)
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
    Ok(())
}

fn write_names(
    output: &Output,
    target: &Target,
    stores: &Stores,
    others: Option<&[String]>,
) -> Result<(), Failure> {
    let samples = &stores.samples;
    if let (Format::Npy, Some(others)) = (target.format, others) {
        let names = target.file(WITH_NAMES);
        output.table(&names, |file| others.iter().try_for_each(|id| writeln!(file, "{id}")))?;
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
