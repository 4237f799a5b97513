//! The record of a run, as a file and as a page for people.

use std::time::Duration;

use serde::Serialize;
use teatime::stream::StreamStats;
use teatime_genotype::{Method, Pca, Scaler, VariantCounts};

use crate::{
    pca::Job,
    record::{Common, StreamSeconds},
    text,
};

/// Time of the stages that follow each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stages {
    pub(crate) simulate: Option<Duration>,
    /// From the start until the stores and the device are open.
    pub(crate) open: Duration,
    pub(crate) pca: Duration,
    pub(crate) write: Duration,
    pub(crate) loadings: Option<Duration>,
    pub(crate) wall: Duration,
}

/// Estimates, in seconds of one core of a CPU.
#[derive(Debug, Serialize)]
struct Costs {
    exact: f64,
    randomized: f64,
}

/// run.json.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) common: Common,
    variants: VariantsRecord,
    method: &'static str,
    method_reason: String,
    /// What either method was expected to cost.
    method_core_seconds: Costs,
    /// Where genotypes stayed between passes.
    residency: &'static str,
    residency_reason: String,
    scaler: &'static str,
    min_maf: f64,
    max_missing: f64,
    seed: u64,
    oversamples: usize,
    passes: u32,
    converged: bool,
    eigenvalue_convention: String,
    components: Vec<Component>,
    seconds: Seconds,
}

#[derive(Debug, Serialize)]
pub(crate) struct VariantsRecord {
    total: u64,
    used: u64,
    dropped: Dropped,
}

/// Variants dropped by each rule.
#[derive(Debug, Serialize)]
struct Dropped {
    all_missing: u64,
    above_max_missing: u64,
    below_min_maf: u64,
    zero_variance: u64,
}

#[derive(Debug, Serialize)]
struct Component {
    singular_value: f64,
    eigenvalue: f64,
    explained_variance: f64,
    explained_variance_ratio: f64,
    residual: f64,
    converged: bool,
}

#[derive(Debug, Serialize)]
struct Seconds {
    wall: f64,
    simulate: Option<f64>,
    open: f64,
    pca: f64,
    write: f64,
    loadings: Option<f64>,
    #[serde(flatten)]
    stream: StreamSeconds,
    /// What the calling thread did besides: factorisations in f64.
    solve: f64,
}

impl Record {
    pub(crate) fn new(job: &Job, pca: &Pca, stages: &Stages, warnings: Vec<String>) -> Self {
        Self {
            common: job.ran().common(
                &job.stores,
                pca.memory,
                &pca.stats,
                pca.digest,
                Some(pca.singular_values.len()),
                warnings,
            ),
            variants: (&pca.counts).into(),
            method: if pca.method == Method::Exact { "exact" } else { "randomized" },
            method_reason: pca.reason.clone(),
            method_core_seconds: Costs { exact: pca.costs.exact, randomized: pca.costs.randomized },
            residency: pca.residency.name(),
            residency_reason: pca.residency_reason.clone(),
            scaler: pca.scaler.name(),
            min_maf: job.options.filter.min_maf,
            max_missing: job.options.filter.max_missing,
            seed: job.options.svd.seed,
            oversamples: job.options.svd.block(job.options.components) - job.options.components,
            passes: pca.passes,
            converged: pca.converged.iter().all(|converged| *converged),
            eigenvalue_convention: convention(pca.scaler),
            components: components(pca),
            seconds: Seconds::new(stages, &pca.stats),
        }
    }
}

fn convention(scaler: Scaler) -> String {
    let of = match scaler {
        Scaler::Patterson => "s^2 / (2 M), which is s^2 / M of the binom2 scaling",
        _ => "s^2 / M",
    };
    format!("{of}; M counts the variants after --maf and --geno")
}

fn components(pca: &Pca) -> Vec<Component> {
    let (eigenvalues, variance) = (pca.eigenvalues(), pca.explained_variance());
    let ratio = pca.explained_variance_ratio();
    let component = |i: usize| Component {
        singular_value: pca.singular_values[i],
        eigenvalue: eigenvalues[i],
        explained_variance: variance[i],
        explained_variance_ratio: ratio[i],
        residual: pca.residuals[i],
        converged: pca.converged[i],
    };
    (0..pca.singular_values.len()).map(component).collect()
}

impl From<&VariantCounts> for VariantsRecord {
    fn from(counts: &VariantCounts) -> Self {
        let dropped = Dropped {
            all_missing: counts.all_missing,
            above_max_missing: counts.above_missing,
            below_min_maf: counts.below_maf,
            zero_variance: counts.zero_variance,
        };
        Self { total: counts.total, used: counts.used, dropped }
    }
}

impl Seconds {
    fn new(stages: &Stages, stats: &StreamStats) -> Self {
        let busy = stats.stalled + stats.upload + stats.compute;
        Self {
            wall: stages.wall.as_secs_f64(),
            simulate: stages.simulate.map(|time| time.as_secs_f64()),
            open: stages.open.saturating_sub(stages.simulate.unwrap_or_default()).as_secs_f64(),
            pca: stages.pca.as_secs_f64(),
            write: stages.write.as_secs_f64(),
            loadings: stages.loadings.map(|time| time.as_secs_f64()),
            stream: stats.into(),
            solve: stages.pca.saturating_sub(busy).as_secs_f64(),
        }
    }
}

/// What the command prints when it is done.
pub(crate) fn summary(record: &Record) -> String {
    let Record { common, variants, seconds, .. } = record;
    let mut out = common.head();
    let mut line = |name: &str, what: String| out += &format!("{name:<10}{what}\n");
    line("variants", used(variants));
    common.changes.iter().for_each(|change| line("", change.clone()));
    line("method", format!("{}: {}", record.method, record.method_reason));
    if record.passes > 1 {
        let place = match record.residency {
            "device" => "kept on the device",
            "host" => "kept in the host's memory",
            _ => "read again in each pass",
        };
        line("genotypes", format!("{place}: {}", record.residency_reason));
    }
    let passes = text::plural(record.passes.into(), "pass");
    let (peak, on_device) = common.process.peaks();
    let peak = peak.map_or_else(String::new, |peak| format!(", peak memory {peak}"));
    line("", format!("{passes}, scaler {}{peak}, of the device {on_device}", record.scaler));
    let made = seconds.simulate.map_or_else(String::new, |s| format!("simulate {s:.2} s, "));
    let last = seconds.loadings.map_or_else(String::new, |s| format!(", loadings {s:.2} s"));
    let Seconds { wall, open, pca, write, .. } = seconds;
    line("time", format!("{wall:.2} s: {made}open {open:.2} s, PCA {pca:.2} s, write {write:.2} s{last}"));
    let (StreamSeconds { upload, compute, stalled, read, decode }, solve) = (&seconds.stream, seconds.solve);
    let wait = format!("waiting for chunks {stalled:.2} s");
    line("PCA", format!("{wait}, upload {upload:.2} s, compute {compute:.2} s, solve {solve:.2} s;"));
    line("", format!("meanwhile, summed over threads: read {read:.2} s, decode {decode:.2} s"));
    out + "\n" + &table(record) + "\n" + &common.process.wrote()
}

/// How many variants took part, in words.
pub(crate) fn used(variants: &VariantsRecord) -> String {
    let Dropped { all_missing, above_max_missing, below_min_maf, zero_variance } = variants.dropped;
    let rules = [
        (zero_variance, "do not vary"),
        (all_missing, "have no call"),
        (above_max_missing, "have too many missing calls"),
        (below_min_maf, "have too low a minor allele frequency"),
    ];
    let dropped = rules.iter().filter(|(n, _)| *n > 0);
    let dropped: String = dropped.map(|(n, why)| format!(", {} {why}", text::count(*n))).collect();
    format!("{} used{dropped}", text::count(variants.used))
}

fn table(record: &Record) -> String {
    let mut out = String::from("component   eigenvalue  singular value  explained variance  residual\n");
    for (i, c) in record.components.iter().enumerate() {
        let [value, s, residual] =
            [(c.eigenvalue, 6), (c.singular_value, 6), (c.residual, 2)].map(|(v, n)| text::general(v, n));
        let (share, i) = (100.0 * c.explained_variance_ratio, i + 1);
        let mark = if c.converged { "" } else { "  not converged" };
        out += &format!("{i:>9} {value:>12} {s:>15} {share:>17.3} % {residual:>9}{mark}\n");
    }
    out
}
