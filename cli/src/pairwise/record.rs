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

/// The reason why a distance is NaN.
fn why_undefined(metric: Metric, missing: Missing) -> String {
    let lacking = match missing {
        Missing::Propagate => "an element is NaN",
        _ => "no feature is in both",
    };
    let where_both = if missing == Missing::Propagate { "" } else { ", of the features that are in both" };
    let divisor = match metric {
        Metric::Cosine => "all elements of an observation are 0",
        Metric::Correlation => "all elements of an observation are the same",
        Metric::JensenShannon => "an observation adds up to 0",
        Metric::BrayCurtis => "all sums of two elements are 0",
        Metric::Dice => "all elements of two observations are 0",
        _ => return lacking.into(),
    };
    format!("{lacking}, or {divisor}{where_both}")
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
        let count = |which: fn(f64) -> bool| {
            undefined.map(|all| all.iter().filter(|distance| which(**distance)).count() as u64)
        };
        let infinite = count(f64::is_infinite);
        let undefined = count(f64::is_nan);
        let warning = |count: Option<u64>, why: String| match count {
            None | Some(0) => None,
            Some(1) => Some(format!("1 distance is {why}")),
            Some(count) => Some(format!("{} distances are {why}", text::count(count))),
        };
        let warnings = [
            warning(undefined, format!("NaN: {}", why_undefined(metric, args.missing))),
            warning(infinite, "infinite: sums of squares, powers or products are beyond f64".into()),
        ];
        Self {
            process: process(
                input.warnings(args).into_iter().chain(warnings.into_iter().flatten()).collect(),
            ),
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
