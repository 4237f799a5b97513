//! The record of a run, as a file and as a page for people.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;
use teatime::{DeviceInfo, stream::StreamStats};
use teatime_genotype::{CountedAllele, GenotypeKind, Genotypes, Method, Pca, Scaler, VariantCounts};

use crate::{
    contigs::Contigs,
    pca::Job,
    provenance::Provenance,
    store::Store,
    stores::{PloidyMismatch, Stores},
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
    schema_version: u32,
    command: &'static str,
    teatime_version: &'static str,
    #[serde(flatten)]
    provenance: Provenance,
    device: DeviceRecord,
    stores: Vec<StoreRecord>,
    shape: Shape,
    /// Column of a .bim; null where non-reference alleles are counted.
    counted_allele: Option<&'static str>,
    variants: VariantsRecord,
    contigs: Option<Contigs>,
    ploidy_mismatch: Option<PloidyMismatch>,
    #[serde(skip)]
    changes: Vec<String>,
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
    bytes: Bytes,
    /// Digest of every variant's sum of dosages and number of called samples.
    allele_counts: String,
    pub(crate) warnings: Vec<String>,
    out: String,
    files: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DeviceRecord {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) vendor: String,
    pub(crate) backend: String,
    pub(crate) api: String,
    pub(crate) kind: String,
    pub(crate) driver: String,
    pub(crate) memory: Option<u64>,
    /// PCI address or UUID, where the driver tells.
    pub(crate) identity: String,
    /// Major and minor, of NVIDIA GPUs.
    pub(crate) compute_capability: Option<(u32, u32)>,
}

impl From<&DeviceInfo> for DeviceRecord {
    fn from(info: &DeviceInfo) -> Self {
        Self {
            name: info.name.clone(),
            description: info.description.clone(),
            vendor: info.vendor.clone(),
            backend: info.backend.to_string(),
            api: info.api.clone(),
            kind: info.kind.to_string(),
            driver: info.driver.clone(),
            memory: info.memory,
            identity: info.identity.clone(),
            compute_capability: info.compute_capability,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct StoreRecord {
    pub(crate) path: String,
    arrays: Vec<String>,
    variants: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Shape {
    pub(crate) variants: u64,
    pub(crate) samples: u64,
    /// Alleles of a call; null where the store holds dosages.
    ploidy: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    components: Option<usize>,
}

impl Shape {
    pub(crate) fn new(genotypes: &Genotypes, components: Option<usize>) -> Self {
        let ploidy = match genotypes.kind() {
            GenotypeKind::Calls { ploidy } => Some(ploidy),
            GenotypeKind::Dosages => None,
            GenotypeKind::Plink { .. } => Some(2),
        };
        Self { variants: genotypes.variants(), samples: genotypes.samples(), ploidy, components }
    }
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

/// Read and decode are summed over threads and overlap the others.
#[derive(Debug, Serialize)]
struct Seconds {
    wall: f64,
    simulate: Option<f64>,
    open: f64,
    pca: f64,
    write: f64,
    loadings: Option<f64>,
    read: f64,
    decode: f64,
    stalled: f64,
    upload: f64,
    compute: f64,
    /// What the calling thread did besides: factorisations in f64.
    solve: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Bytes {
    stored: u64,
    decoded: u64,
    chunks_decoded: u64,
    peak_chunks: u64,
    pub(crate) peak_host: Option<u64>,
    pub(crate) peak_device: u64,
}

impl Record {
    pub(crate) fn new(job: &Job, pca: &Pca, stages: &Stages, warnings: Vec<String>) -> Self {
        let counted_allele = match job.stores.genotypes.kind() {
            GenotypeKind::Plink { counted: CountedAllele::A1 } => Some("A1"),
            GenotypeKind::Plink { counted: CountedAllele::A2 } => Some("A2"),
            _ => None,
        };
        Self {
            schema_version: 1,
            command: job.command,
            teatime_version: env!("CARGO_PKG_VERSION"),
            provenance: Provenance::new(job.started, &job.device, job.memory, pca.memory),
            device: job.device.info().into(),
            stores: store_records(&job.stores),
            shape: Shape::new(&job.stores.genotypes, Some(pca.singular_values.len())),
            counted_allele,
            variants: (&pca.counts).into(),
            contigs: job.stores.contigs.clone(),
            ploidy_mismatch: job.stores.ploidy_mismatch,
            changes: job.stores.changes(),
            method: if pca.method == Method::Exact { "exact" } else { "randomized" },
            method_reason: pca.reason.clone(),
            method_core_seconds: Costs { exact: pca.costs.exact, randomized: pca.costs.randomized },
            residency: pca.residency.name(),
            residency_reason: pca.residency_reason.clone(),
            scaler: pca.scaler.name(),
            min_maf: job.options.filter.min_maf,
            max_missing: job.options.filter.max_missing,
            seed: job.options.svd.seed,
            oversamples: job.options.svd.oversamples,
            passes: pca.passes,
            converged: pca.converged.iter().all(|converged| *converged),
            eigenvalue_convention: convention(pca.scaler),
            components: components(pca),
            seconds: Seconds::new(stages, &pca.stats),
            bytes: Bytes::new(&pca.stats, job.device.peak_bytes()),
            allele_counts: format!("fnv1a64:{:016x}", pca.digest),
            warnings,
            out: job.output.target().display().to_string(),
            files: job.output.files(),
        }
    }
}

/// What a run reads.
pub(crate) fn store_records(stores: &Stores) -> Vec<StoreRecord> {
    let all = stores.paths.iter().zip(&stores.arrays).zip(&stores.stores);
    let record = |((path, arrays), store): ((&PathBuf, &Vec<String>), &Store)| StoreRecord {
        path: path.display().to_string(),
        arrays: arrays.clone(),
        variants: store.n_variants(),
    };
    all.map(record).collect()
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
            read: stats.read.as_secs_f64(),
            decode: stats.decode.as_secs_f64(),
            stalled: stats.stalled.as_secs_f64(),
            upload: stats.upload.as_secs_f64(),
            compute: stats.compute.as_secs_f64(),
            solve: stages.pca.saturating_sub(busy).as_secs_f64(),
        }
    }
}

impl Bytes {
    pub(crate) fn new(stats: &StreamStats, peak_device: u64) -> Self {
        Self {
            stored: stats.stored_bytes,
            decoded: stats.decoded_bytes,
            chunks_decoded: stats.chunks,
            peak_chunks: stats.peak_chunk_bytes,
            peak_host: peak_host(),
            peak_device,
        }
    }
}

/// Most memory that the process has had, in bytes, where the system tells.
fn peak_host() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// What the command prints when it is done.
pub(crate) fn summary(record: &Record) -> String {
    let mut out = String::new();
    let mut line = |name: &str, what: String| out += &format!("{name:<10}{what}\n");
    let Record { device, shape, variants, seconds, bytes, .. } = record;
    line("device", format!("{} ({})", device.name, device.description));
    let paths: Vec<_> = record.stores.iter().map(|store| store.path.as_str()).collect();
    line("input", paths.join(", "));
    let size = [text::plural(shape.variants, "variant"), text::plural(shape.samples, "sample")];
    line("", size.join(" x "));
    line("variants", used(variants));
    record.changes.iter().for_each(|change| line("", change.clone()));
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
    let (peak, on_device) = (bytes.peak_host.map(text::bytes), text::bytes(bytes.peak_device));
    let peak = peak.map_or_else(String::new, |peak| format!(", peak memory {peak}"));
    line("", format!("{passes}, scaler {}{peak}, of the device {on_device}", record.scaler));
    let made = seconds.simulate.map_or_else(String::new, |s| format!("simulate {s:.2} s, "));
    let last = seconds.loadings.map_or_else(String::new, |s| format!(", loadings {s:.2} s"));
    let Seconds { wall, open, pca, write, .. } = seconds;
    line("time", format!("{wall:.2} s: {made}open {open:.2} s, PCA {pca:.2} s, write {write:.2} s{last}"));
    let Seconds { upload, compute, stalled, solve, read, decode, .. } = seconds;
    let wait = format!("waiting for chunks {stalled:.2} s");
    line("PCA", format!("{wait}, upload {upload:.2} s, compute {compute:.2} s, solve {solve:.2} s;"));
    line("", format!("meanwhile, summed over threads: read {read:.2} s, decode {decode:.2} s"));
    out + "\n" + &table(record) + &wrote(record)
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

fn wrote(record: &Record) -> String {
    format!("\nwrote     {}: {}\n", record.out, record.files.join(", "))
}
