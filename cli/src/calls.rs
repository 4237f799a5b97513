//! Missing calls, call rates, and calls of another ploidy.

use serde_json::{Value, json};

use crate::text;

/// The call rate below which there is a warning.
const LOW: f64 = 0.9;

/// The number of samples with the lowest call rates that the record names.
const LISTED: usize = 5;

/// Missing calls of all variants that were read, before filters.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    missing: u64,
    total: u64,
    /// The fraction of calls that are not missing: PLINK 1.9's genotyping rate.
    rate: f64,
    /// The samples with the lowest call rates, the lowest first; `None` if missing calls were not counted by sample.
    lowest_samples: Option<Vec<(String, f64)>>,
    low_samples: Vec<String>,
}

impl Calls {
    /// Summarises the missing calls of `variants` variants of `samples`; `by_sample` has the missing calls of each sample, if they were counted.
    pub(crate) fn new(variants: u64, samples: &[String], missing: u64, by_sample: Option<&[u64]>) -> Self {
        let total = variants.saturating_mul(samples.len() as u64);
        let rate =
            |missing: u64, calls: u64| if calls > 0 { (calls - missing) as f64 / calls as f64 } else { 1.0 };
        let of_samples = by_sample.into_iter().flatten().copied().zip(samples);
        let mut lowest: Vec<(u64, &String)> = of_samples.filter(|(missing, _)| *missing > 0).collect();
        lowest.sort_by_key(|(missing, _)| std::cmp::Reverse(*missing));
        let is_low = |(missing, _): &&(u64, &String)| rate(*missing, variants) < LOW;
        let low_samples = lowest.iter().take_while(is_low).map(|(_, name)| (*name).clone()).collect();
        let named =
            lowest.iter().take(LISTED).map(|(missing, name)| ((*name).clone(), rate(*missing, variants)));
        let lowest_samples = by_sample.map(|_| named.collect());
        Self { missing, total, rate: rate(missing, total), lowest_samples, low_samples }
    }

    pub(crate) fn record(&self) -> Value {
        let lowest = self.lowest_samples.as_ref().map(|samples| {
            samples.iter().map(|(sample, rate)| json!({ "sample": sample, "rate": rate })).collect::<Value>()
        });
        json!({ "missing": self.missing, "total": self.total, "rate": self.rate, "lowest_samples": lowest })
    }

    /// Returns a line of the summary, if a call is missing.
    pub(crate) fn line(&self) -> Option<String> {
        let rate = |rate: f64| text::general(rate, 6);
        let lowest = self.lowest_samples.iter().flatten().next();
        let lowest = lowest.map_or_else(String::new, |(sample, lowest)| {
            format!(", of samples at least {} (`{sample}`)", rate(*lowest))
        });
        let Self { missing, total, .. } = self;
        (*missing > 0).then(|| {
            let [missing, total] = [*missing, *total].map(text::count);
            format!("{missing} of {total} calls missing: call rate {}{lowest}", rate(self.rate))
        })
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let percent = 100.0 * LOW;
        let rate = text::general(self.rate, 6);
        let overall = (self.rate < LOW)
            .then(|| format!("the call rate is {rate}, below {percent} %: most methods expect more"));
        let low = &self.low_samples;
        let samples = (!low.is_empty()).then(|| {
            let (n, has) =
                (text::plural(low.len() as u64, "sample"), if low.len() == 1 { "has" } else { "have" });
            format!("{n} {has} a call rate below {percent} %, the lowest first: {}", text::few(low))
        });
        overall.into_iter().chain(samples).collect()
    }
}

/// Calls whose number of alleles differs from that of most calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PloidyMismatch {
    /// The maximum number of alleles that a store can hold in a call.
    pub(crate) stored: u64,
    /// The ploidy of most calls.
    pub(crate) ploidy: u64,
    /// The number of calls of another ploidy, which are treated as missing.
    pub(crate) calls: u64,
}

impl PloidyMismatch {
    pub(crate) fn record(&self) -> Value {
        json!({ "stored": self.stored, "ploidy": self.ploidy, "calls": self.calls })
    }
}

teatime::stable_text! { struct PloidyMismatch { stored, ploidy, calls } }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_told_and_low_ones_warned_of() {
        let names = ["a", "b", "c"].map(String::from);
        let calls = Calls::new(100, &names, 42, Some(&[2, 0, 40]));
        let line = "42 of 300 calls missing: call rate 0.86, of samples at least 0.6 (`c`)";
        assert_eq!(calls.line().unwrap(), line);
        let warnings = calls.warnings();
        assert!(warnings[0].contains("0.86, below 90 %"), "{warnings:?}");
        assert!(warnings[1].starts_with("1 sample has") && warnings[1].ends_with("`c`"), "{warnings:?}");
        let record = calls.record();
        assert_eq!(record["missing"], 42);
        assert_eq!(record["lowest_samples"][1], json!({ "sample": "a", "rate": 0.98 }));

        let whole = Calls::new(100, &names, 0, None);
        assert_eq!((whole.line(), whole.warnings().len()), (None, 0));
        assert_eq!(whole.record()["lowest_samples"], Value::Null);
    }
}
