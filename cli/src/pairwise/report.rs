//! The report of `teatime pairwise`.

use serde_json::{Value, json};
use teatime::distance::{Metric, Missing};

use super::{
    Found, PairwiseArgs, exponent,
    input::{Input, extents},
};
use crate::{
    array::Array,
    report::{Ran, Report},
    text,
};

pub(super) fn report(args: &PairwiseArgs, ran: Ran, metric: Metric, input: &Input, found: &Found) -> Report {
    let distances = match found {
        Found::Distances(found) => Some(found.distances.data()),
        Found::Neighbors(found) => Some(found.nearest.distances.data()),
        Found::Tiles(_) => None,
    };
    let count = |which: fn(f64) -> bool| {
        distances.map(|distances| distances.iter().filter(|distance| which(**distance)).count() as u64)
    };
    let [undefined, infinite] = [count(f64::is_nan), count(f64::is_infinite)];
    let warning = |count: Option<u64>, why: String| match count {
        None | Some(0) => None,
        Some(1) => Some(format!("1 distance is {why}")),
        Some(count) => Some(format!("{} distances are {why}", text::count(count))),
    };
    let warnings = [
        warning(undefined, format!("NaN: {}", why_undefined(metric, args.missing))),
        warning(infinite, "infinite: sums of squares, powers or products are beyond f64".into()),
    ];
    let warnings = input.warnings(args).into_iter().chain(warnings.into_iter().flatten()).collect();
    let (mut report, p) =
        (Report::new(ran, warnings, &input.x.path, &size(&input.x, args)), exponent(metric));
    report.put(json!({
        "x": record(&input.x, args),
        "with": input.y.as_ref().map(|y| record(y, args)),
        "metric": metric.name(),
        "p": p,
        "missing": args.missing.name(),
        "negative_missing": args.negative_missing,
        "narrow": args.narrow,
        // The number of distances that are NaN; null where they were written tile by tile.
        "undefined": undefined,
        "neighbors": args.neighbors,
        "tiles": distances.is_none(),
    }));
    if let Some(y) = &input.y {
        report.line("with", &y.path);
        report.line("", size(y, args));
    }
    let p = p.map_or_else(String::new, |p| format!(" of p = {p}"));
    let how = format!("{}{p}, missing {}{}", metric.name(), args.missing.name(), report.peaks("; "));
    report.line("metric", how);
    if let Some(k) = args.neighbors {
        report.line("neighbors", format!("{} of each observation", text::count(k as u64)));
    }
    if distances.is_none() {
        report.line("tiles", "written one after another");
    }
    report
}

fn record(matrix: &Array, args: &PairwiseArgs) -> Value {
    let ([observations, features], dtype) = (extents(matrix, args.observations), matrix.type_name());
    let mut record =
        json!({ "path": matrix.path, "observations": observations, "features": features, "dtype": dtype });
    matrix.record_gaps(&mut record);
    record
}

fn size(matrix: &Array, args: &PairwiseArgs) -> String {
    let [observations, features] = extents(matrix, args.observations);
    let [observations, features] =
        [text::plural(observations, "observation"), text::plural(features, "feature")];
    format!("{observations} of {features}, {}", matrix.type_name())
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
