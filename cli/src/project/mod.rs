//! `teatime project`: new samples on the components of an earlier PCA.

mod samples;
mod table;

use std::path::PathBuf;

use clap::{ArgAction, Args};
use serde_json::{Value, json};
use teatime::Cancel;
use teatime_genotype::{Cohort, MatchBy, ProjectMethod, Projection, Wanted};

use self::{
    samples::Samples,
    table::{Header, Table},
};
use crate::{
    args::{FolderArgs, Named, Resources, between, by_name, local, match_by, named, refuse, with_exits},
    failure::Failure,
    matched::Matched,
    output::{Output, RECORD},
    pca::tables::{eigenvec, scores},
    progress::Bar,
    report::Report,
    store_args::StoreArgs,
    stores::Stores,
    text,
};

const COMMAND: &str = "project";
const SCORES: &str = "projection.tsv";
const EIGENVEC: &str = "projection.eigenvec";
const SAMPLES: &str = "projection.samples.tsv";

/// The values of --absent; true if variants that the stores lack are homozygous reference.
const ABSENT: Named<bool> = &[("missing", false), ("reference", true)];

/// All files that a run may write.
const RESULTS: [&str; 4] = [RECORD, SCORES, EIGENVEC, SAMPLES];

/// Place new samples on the components of an earlier PCA
///
/// Takes the loadings that `teatime pca --loadings` wrote, and genotypes of new samples as `teatime pca` reads them. Each
/// variant is centred and scaled as the reference was. Variants are matched
/// by contig, position and alleles, or by id and alleles, in any order; where reference and alternate allele have changed
/// places, dosages are turned round. Where an allele has no name, since no new sample carries it (`0` in a .bim, ALT `.`
/// in VCF), the other tells which way round, unless it is the shorter of an insertion or deletion, as the base before it
/// is: that is left out. Alternate alleles that no new sample carries do not count, though they have a name. Strands are taken as they are.
#[derive(Args, Debug)]
#[command(after_long_help = with_exits(HELP, None))]
pub(crate) struct ProjectArgs {
    /// The reference's loadings: loadings.tsv.gz of `teatime pca --loadings`
    ///
    /// Held in memory: 24 bytes and 4 for each component of each variant, and some 30 more until they are matched
    /// (by id, some 150).
    #[arg(long, value_name = "FILE", value_parser = local())]
    loadings: PathBuf,
    /// Folder for the results
    #[arg(long, value_name = "DIR", value_parser = local())]
    out: PathBuf,
    /// Property that variants are matched by, besides their alleles
    ///
    /// Positions are those of one genome build; `chr1` and `1`, `chrM` and `MT`, 23 and X are the same contigs. By id,
    /// variants without one (`.`), and those of an id that occurs more than once, are left out.
    #[arg(long = "match", value_name = "WHAT", value_parser = match_by(), default_value = MatchBy::default().name())]
    match_by: MatchBy,
    /// Rule for calls that a sample lacks
    ///
    /// mean: a missing call is the reference's mean and adds nothing, nor does a variant that the stores lack, so that
    /// scores come nearer to zero by about the share of those, as in flashpca and plink2. least-squares: the scores that
    /// explain best what is called, as EIGENSOFT's lsqproject: not nearer to zero, but the less certain the fewer
    /// calls there are; NaN for a sample whose calls do not determine them.
    #[arg(long, value_parser = by_name(ProjectMethod::ALL, ProjectMethod::name), default_value = ProjectMethod::default().name())]
    missing: ProjectMethod,
    /// Largest fraction of the loadings' variants that may not be usable (0 to 1)
    ///
    /// Variants that the stores lack, or have with other alleles, are missing of all samples. Up to this fraction that is a
    /// warning, beyond it an error.
    #[arg(long, value_name = "X", default_value_t = 0.05, value_parser = between(0.0, 1.0))]
    max_mismatch: f64,
    /// Meaning of a variant of the loadings at a place that the stores do not have
    ///
    /// missing: no sample has a call of it. reference: all samples have only the loadings' reference allele there. That is right for a
    /// whole genome's call set that has only the sites at which a sample varies, and wrong for genotyping arrays, for exomes, and for
    /// stores that a filter thinned. Variants on contigs that the stores lack, or at places with other alleles, stay missing;
    /// --max-mismatch then is their largest fraction among all but those that are taken as reference.
    #[arg(long, value_name = "MEANS", value_parser = named(ABSENT), default_value = "missing", action = ArgAction::Set)]
    absent: bool,
    #[command(flatten)]
    results: FolderArgs,
    #[command(flatten)]
    stores: StoreArgs,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

const HELP: &str = "\
Files in DIR, where a score is the sum of loading x (dosage - mean) / scale:
  projection.tsv       scores, as in scores.tsv of the reference, whose own
                       samples get the same numbers: scikit-allel's transform
  projection.eigenvec  scores / singular values, as in its pca.eigenvec
  projection.samples.tsv
                       of each sample: variants used (that it has a call of),
                       missing calls, and their share
  run.json             the record of the run: command line, date, device,
                       budgets, times, variants matched and left out
flashpca --project has scores / √M, of patterson scaling scores / √(2M); M is
reference.variants in run.json.

A missing call adds nothing, so that a sample's scores are nearer to zero by
about its share of missing calls; a warning names samples with more than 5 %.
With --missing least-squares they are not; a sample without a missing call has
the same scores either way, where the stores have all variants of the loadings.

With --absent reference, samples of a call set that has only the sites at which
one of them varies get the scores that all sites would give: at the others they
have the allele that the loadings name in the column ref.

Scores of new samples lie nearer to zero than those of the reference's own, the
more so the fewer those are; as in flashpca and plink2, nothing corrects it. To
compare like with like, leave some samples out of the PCA and project them too.

Examples:
  teatime pca reference.vcz --out reference --loadings
  teatime project new.vcz --loadings reference/loadings.tsv.gz --out new
  teatime project new.bed --loadings reference/loadings.tsv.gz --out by-id --match id
  teatime project array.vcz --loadings reference/loadings.tsv.gz --out array \
    --missing least-squares --max-mismatch 0.4";

pub(crate) fn run(args: &ProjectArgs, cancel: &Cancel) -> Result<(), Failure> {
    let (mut report, run) = Report::start(&args.resources, cancel);
    args.stores.names_alleles("teatime project")?;
    refuse(&[
        (
            args.absent && args.match_by == MatchBy::Id,
            "--absent reference is about places, and --match id knows none: a variant of another id is not absent",
        ),
        (
            args.absent && args.stores.lists.choose_variants(),
            "--absent reference needs all variants of the stores: those that --extract or --exclude leave out are not absent",
        ),
    ])?;
    let output = Output::begin(&args.out, COMMAND, &RESULTS, &[], args.results.overwrite)?;
    let mut stores = args.stores.open(&run)?;
    let device = args.resources.open()?;
    args.stores.settle_ploidy(&mut stores, &device, &run)?;
    report.stage("open");
    let mut table = Table::read(&args.loadings, stores.genotypes.ploidy(), args.match_by, cancel)?;
    let (bar, matching) = Bar::over(&run, "Matching", stores.genotypes.variants(), "variants");
    let index = std::mem::take(&mut table.index);
    let (matches, absent, mut matched) = stores.match_with(&index, "the loadings", &device, &matching)?;
    drop(index);
    let absent = if args.absent { table.as_reference(&absent) } else { Vec::new() };
    matched.as_reference = absent.len() as u64;
    let mut warnings = check(args, &matched)?;
    let used = matched.counts.reference.used;
    report.stage("matching");

    let run = run.progress(bar.progress("Projection"));
    let wanted = Wanted::default().projection(&table.reference, &matches, args.missing).absent(&absent);
    let cohort = Cohort::load(&stores.genotypes, &device, &wanted, &run)?;
    report.devices = cohort.devices();
    let Some(result) = cohort.projection() else { unreachable!("a projection that is wanted was made") };
    stores.check_found()?;
    report.stage("project");
    if result.missing_calls == used * stores.genotypes.samples() {
        let n = text::plural(used, "variant");
        return Err(Failure::Error(format!(
            "the stores have no call of the {n} that are also in the loadings"
        )));
    }
    let (samples, header) = (Samples(result), &table.header);
    warnings.extend(samples.warnings(args.missing, &stores));
    scores(&output, SCORES, &stores, &result.scores)?;
    if let Some(values) = &header.singular_values {
        // Beyond the reference's rank, singular values, loadings and scores are 0.
        let over = |i: usize, score: f64| if values[i] > 0.0 { score / values[i] } else { 0.0 };
        eigenvec(&output, EIGENVEC, &stores, &result.scores, over)?;
    }
    samples.write(&output, &stores)?;
    drop(bar);

    report.head_of_stores((&device, &output), (result.memory, result.stats), &stores, result.digest);
    report.components(result.scores.cols());
    report.warn(warnings);
    describe(&mut report, args, &stores, header, result, &matched, &samples);
    report.seconds();
    report.page.push('\n');
    report.finish(output, args.results.json)
}

fn describe(
    report: &mut Report,
    args: &ProjectArgs,
    stores: &Stores,
    header: &Header,
    result: &Projection,
    matched: &Matched,
    samples: &Samples<'_>,
) {
    let (path, scaler) = (args.loadings.display().to_string(), header.scaler.name());
    let counts = &matched.counts;
    let loadings = &counts.reference;
    report.put(json!({
        // Null if the table of an earlier version lacks the value. Variants are counted after the filters of the PCA.
        "reference": {
            "path": path,
            "scaler": scaler,
            "samples": header.samples,
            "variants": header.variants,
            "singular_values": header.singular_values,
        },
        "matched": {
            "loadings": loadings.named().into_iter().collect::<Value>(),
            "stores": matched.of_stores("not_in_loadings").into_iter().collect::<Value>(),
            "by": counts.by.name(),
        },
        "max_mismatch": args.max_mismatch,
        "absent": ABSENT[usize::from(args.absent)].0,
        // The number of the loadings' variants that the stores lack and that were taken as homozygous reference.
        "absent_as_reference": matched.as_reference,
        "missing": args.missing.name(),
        // The number of missing calls of the used variants, summed over samples.
        "missing_calls": result.missing_calls,
        "samples": samples.record(),
    }));
    let variants = text::plural(loadings.variants, "variant");
    let components = text::plural(result.scores.cols() as u64, "component");
    report.line("loadings", format!("{path}: {variants} x {components}, scaler {scaler}"));
    report.line("variants", matched.used());
    report.line("", matched.ignored());
    report.lines(stores.changes());
    let calls = result.used as f64 * stores.genotypes.samples() as f64;
    let share = text::general(100.0 * result.missing_calls as f64 / calls, 3);
    report.line("missing", format!("{share} % of the calls, {}", args.missing.name()));
    let peaks = report.peaks("");
    report.line("memory", peaks.trim_start_matches(", "));
}

/// Fails if too few of the loadings' variants can be used, and returns warnings.
fn check(args: &ProjectArgs, matched: &Matched) -> Result<Vec<String>, Failure> {
    let (loadings, apart) = (&matched.counts.reference, matched.as_reference);
    let (mismatch, others) = (matched.counts.mismatch(apart), loadings.variants - apart);
    let (total, left) = (text::count(others), others - loadings.used);
    let (path, most, reasons) = (args.loadings.display(), args.max_mismatch, matched.reasons());
    matched.check(&args.loadings)?;
    let share = text::general(100.0 * mismatch, 3);
    let what = format!("{} of {total} variants of {path} ({share} %)", text::count(left));
    if mismatch > most {
        return Err(Failure::Error(format!(
            "{what} cannot be used, more than --max-mismatch {most} allows: {reasons}; a higher one goes on without them"
        )));
    }
    let mut warnings = Vec::new();
    if left > 0 {
        let shrinks = match args.missing {
            ProjectMethod::Mean => ", which brings scores nearer to zero",
            _ => "",
        };
        warnings.push(format!("{what} are left out{shrinks}: {reasons}"));
    }
    warnings.extend(matched.unsure());
    Ok(warnings)
}
