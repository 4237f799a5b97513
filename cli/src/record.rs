//! What the record of every command says.

use std::{
    path::PathBuf,
    time::{Instant, SystemTime},
};

use serde::Serialize;
use teatime::{Budget, Device, DeviceInfo, plain, stream::StreamStats};
use teatime_genotype::{GenotypeKind, Genotypes};

use crate::{
    args::Resources,
    calls::Calls,
    contigs::Contigs,
    output::Output,
    store::Store,
    stores::{PloidyMismatch, Stores},
    text,
};

/// A run that is to be recorded.
#[derive(Debug)]
pub(crate) struct Ran<'a> {
    pub(crate) command: &'static str,
    pub(crate) started: Instant,
    pub(crate) device: &'a Device,
    /// What was given.
    pub(crate) memory: Budget,
    pub(crate) output: &'a Output,
}

/// The part of run.json that all commands have.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    schema_version: u32,
    command: &'static str,
    teatime_version: &'static str,
    /// The program and its arguments.
    command_line: Vec<String>,
    /// When it started: UTC, as RFC 3339 has it.
    started: String,
    /// Threads that decode and, on the cpu device, compute.
    threads: usize,
    budgets: Budgets,
    device: DeviceRecord,
    bytes: Bytes,
    pub(crate) warnings: Vec<String>,
    out: String,
    files: Vec<String>,
}

/// The part that all commands have which read genotypes.
#[derive(Debug, Serialize)]
pub(crate) struct Common {
    #[serde(flatten)]
    pub(crate) process: Process,
    stores: Vec<StoreRecord>,
    pub(crate) shape: Shape,
    contigs: Option<Contigs>,
    /// Column of a .bim, or number of an allele of calls; null where all alleles but the reference are counted.
    counted_allele: Option<String>,
    ploidy_mismatch: Option<PloidyMismatch>,
    /// Null where `project` counts those of the variants that it uses.
    calls: Option<Calls>,
    /// Chunks of genotypes that were not there and were taken for the fill value.
    absent_chunks: u64,
    #[serde(skip)]
    pub(crate) changes: Vec<String>,
    /// Digest of every variant's sum of dosages and number of called samples.
    allele_counts: String,
}

/// Memory that was planned with.
#[derive(Debug, Serialize)]
struct Budgets {
    host: Option<Share>,
    /// Null where the device shares the host's memory.
    device: Option<Share>,
}

#[derive(Debug, Serialize)]
struct Share {
    bytes: u64,
    /// Whether it was asked for; else it is the default.
    given: bool,
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
struct StoreRecord {
    path: String,
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

#[derive(Debug, Serialize)]
struct Bytes {
    stored: u64,
    decoded: u64,
    chunks_decoded: u64,
    peak_chunks: u64,
    peak_host: Option<u64>,
    peak_device: u64,
}

/// Read and decode are summed over threads and overlap the others.
#[derive(Debug, Serialize)]
pub(crate) struct StreamSeconds {
    pub(crate) read: f64,
    pub(crate) decode: f64,
    pub(crate) stalled: f64,
    pub(crate) upload: f64,
    pub(crate) compute: f64,
}

impl From<&StreamStats> for StreamSeconds {
    fn from(stats: &StreamStats) -> Self {
        Self {
            read: stats.read.as_secs_f64(),
            decode: stats.decode.as_secs_f64(),
            stalled: stats.stalled.as_secs_f64(),
            upload: stats.upload.as_secs_f64(),
            compute: stats.compute.as_secs_f64(),
        }
    }
}

/// Of distances, those of samples or of any observations.
#[derive(Debug, Serialize)]
pub(crate) struct DistanceSeconds {
    pub(crate) wall: f64,
    pub(crate) open: f64,
    /// With what is written meanwhile.
    pub(crate) distances: f64,
    pub(crate) write: f64,
    #[serde(flatten)]
    pub(crate) stream: StreamSeconds,
}

impl DistanceSeconds {
    /// Lines of what a command prints when it is done.
    pub(crate) fn summary(&self) -> [(&'static str, String); 3] {
        let Self { wall, open, distances, write, stream } = self;
        let StreamSeconds { upload, compute, stalled, read, decode } = stream;
        [
            (
                "time",
                format!("{wall:.2} s: open {open:.2} s, distances {distances:.2} s, write {write:.2} s"),
            ),
            (
                "distances",
                format!("waiting for chunks {stalled:.2} s, upload {upload:.2} s, compute {compute:.2} s;"),
            ),
            ("", format!("meanwhile, summed over threads: read {read:.2} s, decode {decode:.2} s")),
        ]
    }
}

impl Ran<'_> {
    /// What its record says besides results: what it planned with and took, how many components it has, and, after those of any
    /// command, these warnings.
    pub(crate) fn common(
        &self,
        stores: &Stores,
        planned: Budget,
        stats: &StreamStats,
        digest: u64,
        components: Option<usize>,
        warnings: Vec<String>,
    ) -> Common {
        let unasked = stores.contigs.as_ref().and_then(Contigs::unasked);
        let warnings = stores.warnings().into_iter().chain(unasked).chain(warnings).collect();
        Common {
            process: self.process(planned, stats, warnings),
            stores: store_records(stores),
            shape: Shape::new(&stores.genotypes, components),
            contigs: stores.contigs.clone(),
            counted_allele: stores.counted_allele(),
            ploidy_mismatch: stores.ploidy_mismatch,
            calls: stores.calls.clone(),
            absent_chunks: stores.absent_chunks(),
            changes: stores.changes(),
            allele_counts: format!("fnv1a64:{digest:016x}"),
        }
    }

    /// What the record of any command says besides what it read and its results, with these warnings among others.
    pub(crate) fn process(&self, planned: Budget, stats: &StreamStats, warnings: Vec<String>) -> Process {
        let Ran { command, started, device, memory, output } = *self;
        let share = |bytes: Option<u64>, given: Option<u64>| {
            bytes.map(|bytes| Share { bytes, given: given.is_some() })
        };
        let started = SystemTime::now() - started.elapsed();
        Process {
            schema_version: 1,
            command,
            teatime_version: env!("CARGO_PKG_VERSION"),
            command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            started: humantime::format_rfc3339_seconds(started).to_string(),
            threads: device.threads(),
            budgets: Budgets {
                host: share(planned.host, memory.host),
                device: share(planned.device, memory.device),
            },
            device: device.info().into(),
            bytes: Bytes::new(stats, device.peak_bytes()),
            warnings: Resources::warnings(device)
                .into_iter()
                .chain(output.warnings())
                .chain(warnings)
                .collect(),
            out: output.target().display().to_string(),
            files: output.files(),
        }
    }
}

impl Common {
    /// The first lines of what a command prints when it is done.
    pub(crate) fn head(&self) -> String {
        let Self { process, shape, .. } = self;
        let paths: Vec<_> = self.stores.iter().map(|store| store.path.as_str()).collect();
        let size = [text::plural(shape.variants, "variant"), text::plural(shape.samples, "sample")];
        process.head(&paths.join(", "), &size.join(" x "))
    }
}

impl Process {
    /// The first lines of what a command prints when it is done, with what it read.
    pub(crate) fn head(&self, input: &str, size: &str) -> String {
        let device = format!("{} ({})", self.device.name, self.device.description);
        let lines = [("device", device.as_str()), ("input", input), ("", size)];
        lines.iter().map(|(name, what)| format!("{name:<10}{}\n", plain(what))).collect()
    }

    /// The last line.
    pub(crate) fn wrote(&self) -> String {
        format!("wrote     {}\n", plain(&format!("{}: {}", self.out, self.files.join(", "))))
    }

    /// The most memory, where the system tells, and the most of the device.
    pub(crate) fn peaks(&self) -> (Option<String>, String) {
        (self.bytes.peak_host.map(text::bytes), text::bytes(self.bytes.peak_device))
    }
}

impl Shape {
    fn new(genotypes: &Genotypes, components: Option<usize>) -> Self {
        let ploidy = match genotypes.kind() {
            GenotypeKind::Dosages => None,
            _ => Some(genotypes.ploidy()),
        };
        Self { variants: genotypes.variants(), samples: genotypes.samples(), ploidy, components }
    }
}

impl Bytes {
    fn new(stats: &StreamStats, peak_device: u64) -> Self {
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

/// What a run reads.
fn store_records(stores: &Stores) -> Vec<StoreRecord> {
    let all = stores.paths.iter().zip(&stores.arrays).zip(&stores.stores);
    let record = |((path, arrays), store): ((&PathBuf, &Vec<String>), &Store)| StoreRecord {
        path: path.display().to_string(),
        arrays: arrays.clone(),
        variants: store.n_variants(),
    };
    all.map(record).collect()
}
