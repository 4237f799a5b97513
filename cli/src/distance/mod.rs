//! `teatime distance`: distances of the samples of stores.

mod args;
mod bands;
mod with;
mod write;

use std::iter;

use serde_json::json;
use teatime::{
    Cancel,
    distance::{Metric, Missing},
};
use teatime_genotype::{DistanceFacts, Linkage, SampleMetric, SamplePairs, distances, sample_neighbors};

pub(crate) use self::args::{DistanceArgs, MISSING};
use self::{with::With, write::Results};
use crate::{
    failure::Failure,
    progress::Bar,
    report::{Report, variants},
    stores::Stores,
    text,
};

const COMMAND: &str = "distance";

pub(crate) fn run(args: &DistanceArgs, cancel: &Cancel) -> Result<(), Failure> {
    let (mut report, run) = Report::start(&args.resources, cancel);
    let (target, options) = (&args.out, args.options()?);
    let beside = target.beside(args.tree.is_some(), args.neighbors.is_some(), args.with.store.is_some());
    let mut output =
        target.open(COMMAND, &beside, args.results.overwrite, args.resume.then_some("distance"))?;
    let mut stores = args.stores.open(&run)?;
    if target.format.is_plinks() {
        // This check comes first, so that no work is wasted.
        stores.refuse_splitting("PLINK's .id cannot hold; other formats can")?;
    }
    let device = args.resources.open()?;
    let mut with = With::open(args, &mut stores, &device, &run)?;
    for stores in iter::once(&mut stores).chain(with.as_mut().map(|with| &mut with.stores)) {
        args.stores.settle_ploidy(stores, &device, &run)?;
        if args.haplotypes {
            stores.take_haplotypes()?;
        }
    }
    let (bar, run) = Bar::over(&run, "Distances", stores.genotypes.variants(), "variants");
    report.stage("open");
    let pairs =
        with.as_ref().map_or_else(|| SamplePairs::from(&stores.genotypes), |with| with.pairs(&stores));
    let results = match (args.neighbors, &with) {
        (Some(k), _) => Results::Neighbors(sample_neighbors(pairs, &device, &options, k, &run)?),
        (None, Some(_)) => Results::Matrix(distances(pairs, &device, &options, &run)?),
        (None, None) => bands::compute(&mut output, args, &stores, &device, &options, &run)?,
    };
    for stores in iter::once(&stores).chain(with.as_ref().map(|with| &with.stores)) {
        stores.check_found()?;
    }
    let (undefined, facts) = results.facts();
    if with.is_none() {
        stores.count_calls(&facts.counts, None);
    }
    report.stage("distances");
    results.write(&output, target, &stores, with.as_ref().map(|with| &*with.stores.samples))?;
    drop(bar);
    report.stage("write");

    report.devices = facts.devices;
    report.head_of_stores((&device, &output), (facts.memory, facts.stats), &stores, facts.digest);
    describe(&mut report, args, &stores, &results, (undefined, facts), with.as_ref());
    report.times("distances");
    report.finish(output, args.results.json)
}

fn describe(
    report: &mut Report,
    args: &DistanceArgs,
    stores: &Stores,
    results: &Results,
    (undefined, facts): (u64, &DistanceFacts),
    with: Option<&With>,
) {
    let DistanceFacts { counts, multiallelic, merged, options, .. } = *facts;
    let (metric, missing) = (options.metric, options.missing_rule());
    let warning = (undefined > 0).then(|| {
        let why = match (metric, missing) {
            (_, Missing::Propagate) => "a call is missing",
            (SampleMetric::Of(Metric::Correlation | Metric::Cosine), _) => {
                "no variant is called in both, or the dosages of one do not vary there"
            }
            _ => "no variant is called in both, or their dosages add up to 0",
        };
        format!("the distance of {} of samples is NaN: {why}", text::plural(undefined, "pair"))
    });
    let alleles = (multiallelic > 0).then(|| {
        let (variants, how) =
            (text::plural(multiallelic, "variant"), if merged { "taken for one" } else { "told apart" });
        format!("{variants} of more than two alleles, of which all but the reference are {how}")
    });
    let unasked = alleles.clone().filter(|_| merged && !options.merge_alleles);
    report.warn(warning.into_iter().chain(unasked).chain(with.iter().flat_map(|with| with.warnings())));
    let linkage = options.tree.map(Linkage::name);
    let (bands, neighbors) = match results {
        Results::Written(bands) => (Some(bands), None),
        Results::Neighbors(result) => (None, Some((result.nearest.distances.cols(), result.bands))),
        Results::Matrix(_) => (None, None),
    };
    report.put(json!({
        "variants": variants(&counts),
        "variants_kept": counts.loaded(),
        "metric": metric.name(),
        "p": metric.exponent(),
        "het_het": metric.het_het(),
        "missing": missing.name(),
        "multiallelic": multiallelic,
        "merged": merged,
        "haplotypes": args.haplotypes,
        "tree": linkage,
        "min_maf": options.filter.min_maf,
        "max_missing": options.filter.max_missing,
        "undefined_pairs": undefined,
        "with": with.map(With::record),
        // Each band of samples took one pass; null if all distances were computed at once.
        "bands": bands.map(|written| json!({ "computed": written.bands, "squares": written.squares, "found": written.found })),
        "neighbors": neighbors.map(|(k, bands)| json!({ "k": k, "bands": bands })),
    }));
    with.into_iter().for_each(|with| with.describe(report));
    report.line("variants", format!("{} used", text::count(counts.loaded())));
    report.lines(alleles);
    report.lines(args.haplotypes.then(|| "each sample is one haplotype".into()));
    report.lines(stores.changes());
    let p = metric.exponent().map_or_else(String::new, |p| format!(" of p = {p}"));
    let half = if metric.het_het() == Some(0.5) { " of 0.5 for two heterozygous calls" } else { "" };
    let peaks = report.peaks("; ");
    report.line("metric", format!("{}{p}{half}, missing {}{peaks}", metric.name(), missing.name()));
    if let Some(linkage) = linkage {
        report.line("tree", format!("{linkage} linkage"));
    }
    if let Some(written) = bands {
        let there = if written.found > 0 { format!("; {} were there", written.found) } else { String::new() };
        let squares = format!("{} squares of each array{there}", written.squares);
        report.line("bands", format!("{} of samples, one after another; {squares}", written.bands));
    }
    if let Some((k, bands)) = neighbors {
        let how = bands.map_or_else(
            || "of the matrix of all distances".to_owned(),
            |bands| format!("of distances in {}", text::plural(bands.into(), "band")),
        );
        report.line("neighbors", format!("{} of each sample, {how}", text::count(k as u64)));
    }
}
