//! The record of `teatime pairwise`, and its summary.

use serde::Serialize;
use teatime::distance::{Metric, Missing};

use super::{
    Found, PairwiseArgs,
    input::{Input, InputRecord},
};
use crate::{
    record::{DistanceSeconds, Process},
    text,
};

/// The record of a run.
#[derive(Debug, Serialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) process: Process,
    x: InputRecord,
    /// Whose observations distances are to; null where from one another.
    with: Option<InputRecord>,
    metric: &'static str,
    /// The exponent of minkowski.
    p: Option<f64>,
    missing: &'static str,
    negative_missing: bool,
    narrow: bool,
    /// Distances that are NaN, of those that were written; null where they were written tile by tile.
    undefined: Option<u64>,
    /// Nearest observations of each; null where all distances were written.
    neighbors: Option<usize>,
    /// Whether distances were written tile by tile.
    tiles: bool,
    seconds: DistanceSeconds,
}

impl Record {
    /// With what `process` says of the run, and these warnings among others.
    pub(super) fn new(
        process: impl FnOnce(Vec<String>) -> Process,
        args: &PairwiseArgs,
        metric: Metric,
        input: &Input,
        found: &Found,
        seconds: DistanceSeconds,
    ) -> Self {
        let undefined = match found {
            Found::Distances(found) => Some(found.distances.data()),
            Found::Neighbors(found) => Some(found.nearest.distances.data()),
            Found::Tiles(_) => None,
        };
        let undefined = undefined.map(|all| all.iter().filter(|distance| distance.is_nan()).count() as u64);
        let warning = undefined.filter(|count| *count > 0).map(|count| {
            let why = match args.missing {
                Missing::Propagate => "an element is NaN, or a sum that divides is 0",
                _ => "no feature is in both, or a sum that divides is 0",
            };
            format!(
                "{} NaN: {why}",
                if count == 1 {
                    "1 distance is".into()
                } else {
                    format!("{} distances are", text::count(count))
                }
            )
        });
        Self {
            process: process(input.warnings(args).into_iter().chain(warning).collect()),
            x: input.x.record(args),
            with: input.y.as_ref().map(|y| y.record(args)),
            metric: metric.name(),
            p: if let Metric::Minkowski(p) = metric { Some(p) } else { None },
            missing: args.missing.name(),
            negative_missing: args.negative_missing,
            narrow: args.narrow,
            undefined,
            neighbors: args.neighbors,
            tiles: matches!(found, Found::Tiles(_)),
            seconds,
        }
    }

    /// What the command prints when it is done.
    pub(super) fn summary(&self) -> String {
        let Self { process, x, seconds, .. } = self;
        let size = |of: &InputRecord| {
            let [observations, features] =
                [text::plural(of.observations, "observation"), text::plural(of.features, "feature")];
            format!("{observations} of {features}, {}", of.dtype)
        };
        let mut out = process.head(&x.path, &size(x));
        let mut line = |name: &str, what: String| out += &format!("{name:<10}{what}\n");
        if let Some(with) = &self.with {
            line("with", with.path.clone());
            line("", size(with));
        }
        let (peak, on_device) = process.peaks();
        let peak = peak.map_or_else(String::new, |peak| format!("; peak memory {peak}"));
        let p = self.p.map_or_else(String::new, |p| format!(" of p = {p}"));
        line(
            "metric",
            format!("{}{p}, missing {}{peak}, of the device {on_device}", self.metric, self.missing),
        );
        if let Some(k) = self.neighbors {
            line("neighbors", format!("{} of each observation", text::count(k as u64)));
        }
        if self.tiles {
            line("tiles", "written one after another".into());
        }
        seconds.summary().into_iter().for_each(|(name, what)| line(name, what));
        out + &process.wrote()
    }
}
