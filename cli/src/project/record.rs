//! The record of a projection, as a file and as a page for people.

use std::{path::Path, time::Instant};

use serde::Serialize;
use teatime::Device;
use teatime_genotype::Projection;

use super::{COMMAND, ProjectArgs, Stages, counts::Counts, samples::Samples, table::Header};
use crate::{
    contigs::Contigs,
    output::Output,
    provenance::Provenance,
    report::{Bytes, DeviceRecord, Shape, StoreRecord, store_records},
    stores::{PloidyMismatch, Stores},
    text,
};

/// run.json.
#[derive(Debug, Serialize)]
pub(super) struct Record<'a> {
    schema_version: u32,
    command: &'static str,
    teatime_version: &'static str,
    #[serde(flatten)]
    provenance: Provenance,
    device: DeviceRecord,
    stores: Vec<StoreRecord>,
    shape: Shape,
    #[serde(skip)]
    components: usize,
    contigs: Option<Contigs>,
    ploidy_mismatch: Option<PloidyMismatch>,
    #[serde(skip)]
    changes: Vec<String>,
    reference: Reference,
    matched: Counts,
    max_mismatch: f64,
    /// What is done about missing calls.
    missing: &'static str,
    /// Of the variants that were used, over all samples.
    missing_calls: u64,
    samples: &'a Samples,
    seconds: Seconds,
    bytes: Bytes,
    /// Digest of every variant's sum of dosages and number of called samples.
    allele_counts: String,
    pub(super) warnings: Vec<String>,
    out: String,
    files: Vec<String>,
}

/// What the samples are projected onto; null where an earlier version's table does not say it.
#[derive(Debug, Serialize)]
struct Reference {
    path: String,
    scaler: &'static str,
    samples: Option<u64>,
    /// After its filters, those without variance or calls included.
    variants: Option<u64>,
    singular_values: Option<Vec<f64>>,
}

/// Read and decode are summed over threads and overlap the others.
#[derive(Debug, Serialize)]
struct Seconds {
    wall: f64,
    open: f64,
    matching: f64,
    project: f64,
    read: f64,
    decode: f64,
    stalled: f64,
    upload: f64,
    compute: f64,
}

/// What a record is made of.
#[derive(Debug)]
pub(super) struct Done<'a> {
    pub(super) started: Instant,
    pub(super) args: &'a ProjectArgs,
    pub(super) stores: &'a Stores,
    pub(super) device: &'a Device,
    pub(super) header: &'a Header,
    pub(super) result: &'a Projection,
    pub(super) samples: &'a Samples,
    pub(super) stages: &'a Stages,
}

impl<'a> Record<'a> {
    pub(super) fn new(done: &Done<'a>, output: &Output, matched: Counts, warnings: Vec<String>) -> Self {
        let Done { args, header, result, stages, .. } = done;
        let stats = &result.stats;
        Self {
            schema_version: 1,
            command: COMMAND,
            teatime_version: env!("CARGO_PKG_VERSION"),
            provenance: Provenance::new(done.started, done.device, args.resources.budget(), result.memory),
            device: done.device.info().into(),
            stores: store_records(done.stores),
            shape: Shape::new(&done.stores.genotypes, Some(result.scores.cols())),
            components: result.scores.cols(),
            contigs: done.stores.contigs.clone(),
            ploidy_mismatch: done.stores.ploidy_mismatch,
            changes: done.stores.changes(),
            reference: Reference {
                path: path(&args.loadings),
                scaler: header.scaler.name(),
                samples: header.samples,
                variants: header.variants,
                singular_values: header.singular_values.clone(),
            },
            matched,
            max_mismatch: args.max_mismatch,
            missing: args.missing.name(),
            missing_calls: result.missing_calls,
            samples: done.samples,
            seconds: Seconds {
                wall: stages.wall.as_secs_f64(),
                open: stages.open.as_secs_f64(),
                matching: stages.matching.as_secs_f64(),
                project: stages.project.as_secs_f64(),
                read: stats.read.as_secs_f64(),
                decode: stats.decode.as_secs_f64(),
                stalled: stats.stalled.as_secs_f64(),
                upload: stats.upload.as_secs_f64(),
                compute: stats.compute.as_secs_f64(),
            },
            bytes: Bytes::new(stats, done.device.peak_bytes()),
            allele_counts: format!("fnv1a64:{:016x}", result.digest),
            warnings,
            out: path(output.target()),
            files: output.files(),
        }
    }

    /// What the command prints when it is done.
    pub(super) fn summary(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, what: String| out += &format!("{name:<10}{what}\n");
        let Self { device, shape, reference, matched, seconds, bytes, .. } = self;
        line("device", format!("{} ({})", device.name, device.description));
        let paths: Vec<_> = self.stores.iter().map(|store| store.path.as_str()).collect();
        line("input", paths.join(", "));
        let size = [text::plural(shape.variants, "variant"), text::plural(shape.samples, "sample")];
        line("", size.join(" x "));
        let of = [
            text::plural(matched.loadings.variants, "variant"),
            text::plural(self.components as u64, "component"),
        ];
        line("loadings", format!("{}: {}, scaler {}", reference.path, of.join(" x "), reference.scaler));
        line("variants", matched.used());
        line("", matched.ignored());
        let calls = matched.loadings.used as f64 * shape.samples as f64;
        let share = text::general(100.0 * self.missing_calls as f64 / calls, 3);
        self.changes.iter().for_each(|change| line("", change.clone()));
        line("missing", format!("{share} % of the calls, {}", self.missing));
        let (peak, on_device) = (bytes.peak_host.map(text::bytes), text::bytes(bytes.peak_device));
        let peak = peak.map_or_else(String::new, |peak| format!("peak memory {peak}, "));
        line("memory", format!("{peak}of the device {on_device}"));
        let Seconds { wall, open, matching, project, .. } = seconds;
        line("time", format!("{wall:.2} s: open {open:.2} s, match {matching:.2} s, project {project:.2} s"));
        out + &format!("\nwrote     {}: {}\n", self.out, self.files.join(", "))
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
