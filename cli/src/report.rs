//! The report of a run: its record, for run.json, and its page, for the terminal.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value, json};
use teatime::{Budget, Device, DeviceInfo, Run, plain, stream::StreamStats};
use teatime_genotype::{GenotypeKind, VariantCounts};

use crate::{
    args::Resources, contigs::Contigs, failure::Failure, interrupt::own_status, output::Output,
    stores::Stores, text,
};

/// The times of a run's consecutive stages.
#[derive(Debug)]
pub(crate) struct Stages {
    started: Instant,
    /// The time is `None` for a stage that did not occur.
    times: Vec<(&'static str, Option<Duration>)>,
}

impl Stages {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), times: Vec::new() }
    }

    /// Ends a stage, whose time is all the time that no earlier stage has.
    pub(crate) fn end(&mut self, stage: &'static str) -> Duration {
        let before: Duration = self.times.iter().filter_map(|(_, time)| *time).sum();
        let time = self.started.elapsed().saturating_sub(before);
        self.took(stage, Some(time));
        time
    }

    /// Adds a stage with this time.
    pub(crate) fn took(&mut self, stage: &'static str, time: Option<Duration>) {
        self.times.push((stage, time));
    }
}

/// A finished run, for the report.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stages: Stages,
    pub(crate) device: Device,
    /// The run, with the memory budgets that the user gave.
    pub(crate) run: Run,
    /// The memory budgets that the plan used.
    pub(crate) planned: Budget,
    pub(crate) stats: StreamStats,
    pub(crate) output: Output,
}

/// A record, whose entries keep the order in which they were added, and a page of lines.
#[derive(Debug)]
pub(crate) struct Report {
    record: Map<String, Value>,
    pub(crate) page: String,
    warnings: Vec<String>,
    ran: Ran,
    /// The seconds from the start to the report.
    pub(crate) wall: f64,
}

impl Report {
    /// Returns a report with the entries that all commands have, these warnings in addition to others, and the page's first lines; `input` names
    /// the input.
    pub(crate) fn new(ran: Ran, warnings: Vec<String>, input: &str, size: &str) -> Self {
        let Ran { stages, device, run, planned, stats, output } = &ran;
        let (wall, info, given) = (stages.started.elapsed(), device.info(), run.memory);
        let share = |bytes: Option<u64>, given: Option<u64>| {
            bytes.map(|bytes| json!({ "bytes": bytes, "given": given.is_some() }))
        };
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let warnings: Vec<String> =
            Resources::warnings(device).into_iter().chain(output.left.clone()).chain(warnings).collect();
        let record = json!({
            "schema_version": 1,
            "command": output.command,
            "teatime_version": env!("CARGO_PKG_VERSION"),
            "command_line": words.collect::<Vec<_>>(),
            "started": humantime::format_rfc3339_seconds(SystemTime::now() - wall).to_string(),
            "threads": device.threads(),
            // The device's budget is null if it shares the host's memory.
            "budgets": { "host": share(planned.host, given.host), "device": share(planned.device, given.device) },
            "device": device_entry(info),
            "bytes": {
                "stored": stats.stored_bytes,
                "decoded": stats.decoded_bytes,
                "chunks_decoded": stats.chunks,
                "peak_chunks": stats.peak_chunk_bytes,
                "peak_host": peak_host(),
                "peak_device": device.peak_bytes(),
            },
            "warnings": warnings,
            "out": output.target.display().to_string(),
            "files": output.files(),
        });
        let device = format!("{} ({})", info.name, info.description);
        let (page, wall) = (String::new(), wall.as_secs_f64());
        let mut report = Self { record: Map::new(), page, warnings, ran, wall };
        report.put(record);
        for (name, what) in [("device", &*device), ("input", input), ("", size)] {
            report.line(name, plain(what));
        }
        report
    }

    /// Returns the report of [`new`](Self::new), with the entries that all commands have that read genotypes. `digest` is a digest of every
    /// variant's sum of dosages and number of called samples.
    pub(crate) fn of_stores(
        ran: Ran,
        stores: &Stores,
        digest: u64,
        components: Option<usize>,
        warnings: Vec<String>,
    ) -> Self {
        let (genotypes, paths) =
            (&stores.genotypes, stores.paths.iter().map(|path| path.display().to_string()));
        let paths: Vec<_> = paths.collect();
        let unasked = stores.contigs.as_ref().and_then(Contigs::unasked);
        let warnings = stores.warnings().into_iter().chain(unasked).chain(warnings).collect();
        let mut report =
            Self::new(ran, warnings, &paths.join(", "), &size(genotypes.variants(), genotypes.samples()));
        let read = paths.iter().zip(&stores.arrays).zip(&stores.stores).map(|((path, arrays), store)| {
            json!({ "path": path, "arrays": arrays, "variants": store.n_variants() })
        });
        let ploidy = (genotypes.kind() != GenotypeKind::Dosages).then(|| genotypes.ploidy());
        let mut shape =
            json!({ "variants": genotypes.variants(), "samples": genotypes.samples(), "ploidy": ploidy });
        if let Some(components) = components {
            shape["components"] = components.into();
        }
        report.put(json!({
            "stores": read.collect::<Vec<_>>(),
            "shape": shape,
            "contigs": stores.contigs,
            "counted_allele": stores.counted_allele(),
            "ploidy_mismatch": stores.ploidy_mismatch,
            // Null for `project`, which counts the missing calls of the used variants only.
            "calls": stores.calls,
            "absent_chunks": stores.absent_chunks(),
            "allele_counts": format!("fnv1a64:{digest:016x}"),
        }));
        report
    }

    /// Adds the entries of an object to the record.
    pub(crate) fn put(&mut self, entries: Value) {
        if let Value::Object(entries) = entries {
            self.record.extend(entries);
        }
    }

    /// Adds a line to the page.
    pub(crate) fn line(&mut self, name: &str, what: impl AsRef<str>) {
        self.page += &format!("{name:<10}{}\n", what.as_ref());
    }

    /// Adds lines without a name to the page.
    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = String>) {
        lines.into_iter().for_each(|line| self.line("", line));
    }

    /// Describes the peak memory of the process, if the system tells, and of the device, after the text `before`.
    pub(crate) fn peaks(&self, before: &str) -> String {
        let bytes = &self.record["bytes"];
        let peak =
            bytes["peak_host"].as_u64().map(|peak| format!("{before}peak memory {}", text::bytes(peak)));
        let on_device = text::bytes(bytes["peak_device"].as_u64().unwrap_or_default());
        format!("{}, of the device {on_device}", peak.unwrap_or_default())
    }

    /// Adds the seconds of the stages, null for a stage that did not occur. If several occurred, also adds a line to the page.
    pub(crate) fn seconds(&mut self) {
        let StreamStats { read, decode, stalled, upload, compute, .. } = self.ran.stats;
        let streamed = [
            ("read", read),
            ("decode", decode),
            ("stalled", stalled),
            ("upload", upload),
            ("compute", compute),
        ];
        let stages = &self.ran.stages.times;
        let mut seconds = json!({ "wall": self.wall });
        for (stage, time) in stages.iter().copied().chain(streamed.map(|(stage, time)| (stage, Some(time)))) {
            seconds[stage] = json!(time.map(|time| time.as_secs_f64()));
        }
        let each = stages.iter().filter_map(|(stage, time)| Some((label(stage), (*time)?.as_secs_f64())));
        let each: Vec<_> = each.map(|(stage, seconds)| format!("{stage} {seconds:.2} s")).collect();
        self.put(json!({ "seconds": seconds }));
        if each.len() > 1 {
            self.line("time", format!("{:.2} s: {}", self.wall, each.join(", ")));
        }
    }

    /// Adds an entry to the seconds of the stages.
    pub(crate) fn also_seconds(&mut self, stage: &str, time: Duration) {
        self.record["seconds"][stage] = json!(time.as_secs_f64());
    }

    /// Adds lines to the page about how a stage spent its time; `before` and `after` surround the first line's text.
    pub(crate) fn streamed(&mut self, stage: &str, before: &str, after: &str) {
        let StreamStats { read, decode, stalled, upload, compute, .. } = self.ran.stats;
        let [read, decode, stalled, upload, compute] =
            [read, decode, stalled, upload, compute].map(|time| time.as_secs_f64());
        let waits =
            format!("waiting for chunks {stalled:.2} s, upload {upload:.2} s, compute {compute:.2} s");
        self.line(label(stage), format!("{before}{waits}{after};"));
        // These times overlap the others.
        self.line("", format!("meanwhile, summed over threads: read {read:.2} s, decode {decode:.2} s"));
    }

    /// Ends the run: writes the record, moves the results into place, and prints the page, or the record if `is_json`.
    pub(crate) fn finish(self, is_json: bool) -> Result<(), Failure> {
        let Ran { output, run, .. } = self.ran;
        let wrote = format!("{}: {}", output.target.display(), output.files().join(", "));
        let page = (!is_json).then(|| format!("{}wrote     {}\n", self.page, plain(&wrote)));
        output.finish(&Value::Object(self.record), &self.warnings, page, &run.cancel)
    }
}

/// Returns a stage's name on the page.
fn label(stage: &str) -> &str {
    match stage {
        "pca" => "PCA",
        "grm" => "GRM",
        "matching" => "match",
        stage => stage,
    }
}

/// Describes the numbers of variants and samples.
pub(crate) fn size(variants: u64, samples: u64) -> String {
    [text::plural(variants, "variant"), text::plural(samples, "sample")].join(" x ")
}

/// Returns the record's entry of variants: the number that took part, and the number that each rule dropped.
pub(crate) fn variants(counts: &VariantCounts) -> Value {
    json!({
        "total": counts.total,
        "used": counts.used,
        "dropped": {
            "all_missing": counts.all_missing,
            "above_max_missing": counts.above_missing,
            "below_min_maf": counts.below_maf,
            "zero_variance": counts.zero_variance,
        },
    })
}

/// Describes the number of variants that took part, and the number that each rule dropped.
pub(crate) fn used(counts: &VariantCounts) -> String {
    let rules = [
        (counts.zero_variance, "do not vary"),
        (counts.all_missing, "have no call"),
        (counts.above_missing, "have too many missing calls"),
        (counts.below_maf, "have too low a minor allele frequency"),
    ];
    let dropped = rules.iter().filter(|(n, _)| *n > 0);
    let dropped: String = dropped.map(|(n, why)| format!(", {} {why}", text::count(*n))).collect();
    format!("{} used{dropped}", text::count(counts.used))
}

/// Returns a device's entry in the record and in the list of devices.
pub(crate) fn device_entry(info: &DeviceInfo) -> Value {
    json!({
        "name": info.name,
        "description": info.description,
        "vendor": info.vendor,
        "backend": info.backend.to_string(),
        "api": info.api,
        "kind": info.kind.to_string(),
        "driver": info.driver,
        "memory": info.memory,
        // The PCI address or UUID, if the driver reports it.
        "identity": info.identity,
        "compute_capability": info.compute_capability,
    })
}

/// Returns the peak memory of the process in bytes, if the system tells.
fn peak_host() -> Option<u64> {
    let kib = own_status("VmHWM:")?.trim_end_matches("kB").trim().parse::<u64>().ok()?;
    Some(kib * 1024)
}
