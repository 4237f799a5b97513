//! The report of a run: its record, for run.json, and its page, for the terminal.

use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Map, Value, json};
use teatime::{Budget, Cancel, Device, DeviceInfo, Run, plain, stream::StreamStats};
use teatime_genotype::{GenotypeKind, VariantCounts, VariantSource};

use crate::{
    args::Resources,
    calls::{Calls, PloidyMismatch},
    chosen::Chosen,
    contigs::Contigs,
    failure::Failure,
    interrupt::own_status,
    output::Output,
    remote,
    stores::Stores,
    text,
    timeline::Recording,
};

/// The report of a run: the times of its consecutive stages; a record, whose entries keep the order in which they were added; a page of lines.
#[derive(Debug)]
pub(crate) struct Report {
    started: Instant,
    /// The time is `None` for a stage that did not occur.
    stages: Vec<(&'static str, Option<Duration>)>,
    /// The run, with the memory budgets that the user gave.
    run: Run,
    record: Map<String, Value>,
    pub(crate) page: String,
    warnings: Vec<String>,
    stats: StreamStats,
    recording: Recording,
    /// The number of devices of the group that shared the work.
    pub(crate) devices: usize,
    /// The end of the last phase of the recording.
    phased: Instant,
    /// The seconds from the start to the first entry.
    pub(crate) wall: f64,
}

impl Report {
    /// Starts the clock of a run that `resources` bound, and returns the run too, without a progress bar.
    pub(crate) fn start(resources: &Resources, cancel: &Cancel) -> (Self, Run) {
        let run = resources.run(cancel);
        let report = Self {
            started: Instant::now(),
            stages: Vec::new(),
            run: run.clone(),
            record: Map::new(),
            page: String::new(),
            warnings: Vec::new(),
            stats: StreamStats::default(),
            recording: resources.recording(),
            devices: 1,
            phased: Instant::now(),
            wall: 0.0,
        };
        (report, run)
    }

    /// Ends a stage, whose time is all the time that no earlier stage has.
    pub(crate) fn stage(&mut self, stage: &'static str) -> Duration {
        let before: Duration = self.stages.iter().filter_map(|(_, time)| *time).sum();
        let time = self.started.elapsed().saturating_sub(before);
        self.took(stage, Some(time));
        time
    }

    pub(crate) fn took(&mut self, stage: &'static str, time: Option<Duration>) {
        self.stages.push((stage, time));
        if let Some(time) = time {
            // Time before a stage that was measured by itself counts for the stage after it.
            let began = Instant::now().checked_sub(time).map_or(self.phased, |began| began.max(self.phased));
            self.recording.phase(stage, began);
            self.phased = Instant::now();
        }
    }

    /// Adds the entries and warnings that all commands have, and the page's first lines; `input` names the input. `planned` are the memory budgets
    /// that the plan used.
    pub(crate) fn head(
        &mut self,
        (device, output): (&Device, &Output),
        (planned, stats): (Budget, StreamStats),
        input: &str,
        size: &str,
    ) {
        let (wall, info, given) = (self.started.elapsed(), device.info(), self.run.memory);
        let share = |bytes: Option<u64>, given: Option<u64>| {
            bytes.map(|bytes| json!({ "bytes": bytes, "given": given.is_some() }))
        };
        self.warn(Resources::warnings(device).into_iter().chain(output.left.clone()));
        let members = device.members();
        let computing: Vec<_> = members.iter().map(|member| member.info().name.as_str()).collect();
        let names = &computing[..self.devices.clamp(1, computing.len())];
        if names.len() < computing.len() {
            let (used, given) = (names.join(", "), computing.join(", "));
            self.warn([format!("{} computed on {used} alone, not on all of {given}", output.command)]);
        }
        (self.stats, self.wall) = (stats, wall.as_secs_f64());
        self.put(json!({
            "schema_version": 1,
            "command": output.command,
            "teatime_version": env!("CARGO_PKG_VERSION"),
            "command_line": remote::command_line(),
            "started": humantime::format_rfc3339_seconds(SystemTime::now() - wall).to_string(),
            "threads": device.threads(),
            // The device's budget is null if it shares the host's memory.
            "budgets": { "host": share(planned.host, given.host), "device": share(planned.device, given.device) },
            "device": device_entry(info),
            // The names of the devices that shared the work, of which `device` is the first.
            "devices": names,
            "bytes": {
                "stored": stats.stored_bytes,
                "decoded": stats.decoded_bytes,
                "chunks_decoded": stats.chunks,
                // Of these, the chunks that were not read again, since memory had them as they are stored.
                "chunks_kept": stats.kept_chunks,
                "peak_chunks": stats.peak_chunk_bytes,
                "peak_host": peak_host(),
                "peak_device": members.iter().map(Device::peak_bytes).max(),
            },
            "warnings": null,
            // The files that show what the run waited for, if they were asked for.
            "timeline": self.recording.record(),
            "out": output.target.display().to_string(),
            "files": output.files(),
        }));
        let device = format!("{} ({})", names.join(", "), info.description);
        for (name, what) in [("device", &*device), ("input", input), ("", size)] {
            self.line(name, plain(what));
        }
    }

    /// Does the same as [`head`](Self::head), and adds the entries that all commands have that read genotypes. `digest` is a digest of every
    /// variant's sum of dosages and number of called samples.
    pub(crate) fn head_of_stores(
        &mut self,
        place: (&Device, &Output),
        took: (Budget, StreamStats),
        stores: &Stores,
        digest: u64,
    ) {
        let genotypes = &stores.genotypes;
        let paths: Vec<_> = stores.paths.iter().map(|path| path.display().to_string()).collect();
        self.head(place, took, &paths.join(", "), &size(genotypes.variants(), genotypes.samples()));
        let unasked = stores.contigs.as_ref().and_then(Contigs::unasked);
        self.warn(stores.warnings().into_iter().chain(unasked));
        let read = paths.iter().zip(&stores.arrays).zip(&stores.stores).map(|((path, arrays), store)| {
            json!({ "path": path, "arrays": arrays, "variants": store.n_variants() })
        });
        let ploidy = (genotypes.kind() != GenotypeKind::Dosages).then(|| genotypes.ploidy());
        self.put(json!({
            "stores": read.collect::<Vec<_>>(),
            "shape": { "variants": genotypes.variants(), "samples": genotypes.samples(), "ploidy": ploidy },
            "contigs": stores.contigs.as_ref().map(Contigs::record),
            // An entry for each of --keep, --remove, --extract and --exclude that was given.
            "chosen": stores.chosen.iter().map(Chosen::record).collect::<Vec<_>>(),
            "counted_allele": stores.counted_allele(),
            "ploidy_mismatch": stores.ploidy_mismatch.as_ref().map(PloidyMismatch::record),
            // Null for `project`, which counts the missing calls of the used variants only.
            "calls": stores.calls.as_ref().map(Calls::record),
            "absent_chunks": stores.absent_chunks(),
            "allele_counts": format!("fnv1a64:{digest:016x}"),
        }));
    }

    /// Adds the number of components to the record's shape.
    pub(crate) fn components(&mut self, components: usize) {
        self.record["shape"]["components"] = components.into();
    }

    pub(crate) fn put(&mut self, entries: Value) {
        if let Value::Object(entries) = entries {
            self.record.extend(entries);
        }
    }

    /// Adds warnings, which the record has and which are printed in the end.
    pub(crate) fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.extend(warnings);
    }

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
        let StreamStats { read, decode, stalled, upload, compute, .. } = self.stats;
        let names = ["read", "decode", "stalled", "upload", "compute"];
        let streamed = names.into_iter().zip([read, decode, stalled, upload, compute].map(Some));
        let stages = &self.stages;
        let mut seconds = json!({ "wall": self.wall });
        for (stage, time) in stages.iter().copied().chain(streamed) {
            seconds[stage] = json!(time.map(|time| time.as_secs_f64()));
        }
        let each = stages.iter().filter_map(|(stage, time)| Some((label(stage), (*time)?.as_secs_f64())));
        let each: Vec<_> = each.map(|(stage, seconds)| format!("{stage} {seconds:.2} s")).collect();
        self.put(json!({ "seconds": seconds }));
        if each.len() > 1 {
            self.line("time", format!("{:.2} s: {}", self.wall, each.join(", ")));
        }
    }

    /// Adds lines to the page about how a stage spent its time; `before` and `after` surround the first line's text.
    pub(crate) fn streamed(&mut self, stage: &str, before: &str, after: &str) {
        let StreamStats { read, decode, stalled, upload, compute, chunks, kept_chunks, .. } = self.stats;
        let [read, decode, stalled, upload, compute] =
            [read, decode, stalled, upload, compute].map(|time| time.as_secs_f64());
        let waits =
            format!("waiting for chunks {stalled:.2} s, upload {upload:.2} s, compute {compute:.2} s");
        self.line(label(stage), format!("{before}{waits}{after};"));
        // These times overlap the others.
        let (kept, all) = (text::count(kept_chunks), text::plural(chunks, "chunk"));
        let kept = if kept_chunks > 0 { format!("; {kept} of {all} were in memory") } else { String::new() };
        let line = format!("meanwhile, summed over threads: read {read:.2} s, decode {decode:.2} s{kept}");
        self.line("", line);
    }

    /// Adds the seconds of all stages, and how `stage` spent its time.
    pub(crate) fn times(&mut self, stage: &str) {
        self.seconds();
        self.streamed(stage, "", "");
    }

    /// Adds the seconds of all stages, and how a decomposition spent its `time`, of which `stats` know a part: the calling thread spent the
    /// rest on products of a matrix on the device, and on factorisations in f64.
    pub(crate) fn solved(&mut self, stage: &str, time: Duration, stats: &StreamStats) {
        self.seconds();
        let solve = time.saturating_sub(stats.stalled + stats.upload + stats.compute).as_secs_f64();
        self.record["seconds"]["solve"] = json!(solve);
        self.streamed(stage, "", &format!(", solve {solve:.2} s"));
    }

    /// Ends the run: writes the record, moves the results into place, and prints the page, or the record if `is_json`.
    pub(crate) fn finish(mut self, output: Output, is_json: bool) -> Result<(), Failure> {
        self.record["warnings"] = json!(self.warnings);
        self.recording.phase(&output.command, self.phased);
        let record = Value::Object(self.record);
        self.recording.take(&record, || {
            let plots = output.files().into_iter().filter(|name| name.ends_with(".svg"));
            plots.filter_map(|name| fs::read_to_string(output.path(&name)).ok()).collect()
        });
        let wrote = format!("{}: {}", output.target.display(), output.files().join(", "));
        let page = (!is_json).then(|| format!("{}wrote     {}\n", self.page, plain(&wrote)));
        output.commit(&record, &self.warnings, page, &self.run.cancel)
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
