//! The record of a projection, as a file and as a page for people.

use serde::Serialize;
use teatime_genotype::Projection;

use super::{ProjectArgs, samples::Samples, table::Header};
use crate::{
    matching::counts::Counts,
    record::{Common, StreamSeconds},
    text,
};

/// run.json.
#[derive(Debug, Serialize)]
pub(super) struct Record<'a> {
    #[serde(flatten)]
    pub(super) common: Common,
    #[serde(skip)]
    components: usize,
    reference: Reference,
    matched: Counts,
    max_mismatch: f64,
    /// What is done about missing calls.
    missing: &'static str,
    /// Of the variants that were used, over all samples.
    missing_calls: u64,
    samples: &'a Samples,
    seconds: Seconds,
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

#[derive(Debug, Serialize)]
pub(super) struct Seconds {
    pub(super) wall: f64,
    /// From the start until the stores and the device are open.
    pub(super) open: f64,
    /// Reading the loadings, and matching the variants.
    pub(super) matching: f64,
    pub(super) project: f64,
    #[serde(flatten)]
    pub(super) stream: StreamSeconds,
}

impl<'a> Record<'a> {
    pub(super) fn new(
        common: Common,
        args: &ProjectArgs,
        header: &Header,
        result: &Projection,
        matched: Counts,
        samples: &'a Samples,
        seconds: Seconds,
    ) -> Self {
        Self {
            common,
            components: result.scores.cols(),
            reference: Reference {
                path: args.loadings.display().to_string(),
                scaler: header.scaler.name(),
                samples: header.samples,
                variants: header.variants,
                singular_values: header.singular_values.clone(),
            },
            matched,
            max_mismatch: args.max_mismatch,
            missing: args.missing.name(),
            missing_calls: result.missing_calls,
            samples,
            seconds,
        }
    }

    /// What the command prints when it is done.
    pub(super) fn summary(&self) -> String {
        let Self { common, reference, matched, seconds, .. } = self;
        let mut out = common.head();
        let mut line = |name: &str, what: String| out += &format!("{name:<10}{what}\n");
        let of = [
            text::plural(matched.loadings.variants, "variant"),
            text::plural(self.components as u64, "component"),
        ];
        line("loadings", format!("{}: {}, scaler {}", reference.path, of.join(" x "), reference.scaler));
        line("variants", matched.used());
        line("", matched.ignored());
        let calls = matched.loadings.used as f64 * common.shape.samples as f64;
        let share = text::general(100.0 * self.missing_calls as f64 / calls, 3);
        common.changes.iter().for_each(|change| line("", change.clone()));
        line("missing", format!("{share} % of the calls, {}", self.missing));
        let (peak, on_device) = common.process.peaks();
        let peak = peak.map_or_else(String::new, |peak| format!("peak memory {peak}, "));
        line("memory", format!("{peak}of the device {on_device}"));
        let Seconds { wall, open, matching, project, .. } = seconds;
        line("time", format!("{wall:.2} s: open {open:.2} s, match {matching:.2} s, project {project:.2} s"));
        out + "\n" + &common.process.wrote()
    }
}
