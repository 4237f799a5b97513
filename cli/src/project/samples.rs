//! The number of calls of each sample at the used variants.

use serde_json::{Value, json};
use teatime_genotype::{ProjectMethod, Projection};

use super::SAMPLES;
use crate::{failure::Failure, output::Output, stores::Stores, text};

/// The fraction of missing calls above which a warning names a sample. A larger fraction of variants that the stores lack is an error unless
/// `--max-mismatch` allows it.
const MANY_MISSING: f64 = 0.05;

/// The numbers of used variants and missing calls of each sample.
#[derive(Debug)]
pub(super) struct Samples<'a>(pub(super) &'a Projection);

impl Samples<'_> {
    pub(super) fn record(&self) -> Value {
        let Projection { called, undetermined, .. } = self.0;
        json!({
            // The fewest and the most calls that a sample has at the used variants.
            "fewest_called": called.iter().min().unwrap_or(&0),
            "most_called": called.iter().max().unwrap_or(&0),
            "many_missing": self.worst().len(),
            "many_missing_above": MANY_MISSING,
            // The number of samples whose calls do not determine scores.
            "undetermined": undetermined,
        })
    }

    fn missing(&self, called: u64) -> f64 {
        (self.0.used - called) as f64 / self.0.used.max(1) as f64
    }

    /// Returns the indices of samples with many missing calls, those with the most first.
    fn worst(&self) -> Vec<usize> {
        let called = &self.0.called;
        let many = |sample: &usize| self.missing(called[*sample]) > MANY_MISSING;
        let mut worst: Vec<usize> = (0..called.len()).filter(many).collect();
        worst.sort_by_key(|&sample| called[sample]);
        worst
    }

    /// Returns warnings that name the samples whose scores are nearer to zero or less certain because of missing calls, and the samples without
    /// scores.
    pub(super) fn warnings(&self, method: ProjectMethod, stores: &Stores) -> Vec<String> {
        let worst = self.worst();
        let percent = |share: f64| format!("{} %", text::general(100.0 * share, 3));
        let name = |&sample: &usize| {
            format!("{} ({})", stores.samples[sample], percent(self.missing(self.0.called[sample])))
        };
        let names: Vec<String> = worst.iter().take(6).map(name).collect();
        let verb = if worst.len() == 1 { "lacks" } else { "lack" };
        let effect = match method {
            ProjectMethod::Mean => "brings their scores nearer to zero by about as much",
            _ => "makes their scores less certain",
        };
        let (n, many) = (text::plural(worst.len() as u64, "sample"), percent(MANY_MISSING));
        let lacking = format!("{n} {verb} more than {many} of the calls of the variants used");
        let missing = (!worst.is_empty())
            .then(|| format!("{lacking}, which {effect}: {}; {SAMPLES} has the numbers", text::few(&names)));
        let without = (0..stores.samples.len()).filter(|&sample| self.0.scores.row(sample)[0].is_nan());
        let names: Vec<&String> = without.take(6).map(|sample| &stores.samples[sample]).collect();
        let (n, few) = (text::plural(self.0.undetermined, "sample"), text::few(&names));
        let why = format!(
            "the calls of {n} do not determine scores, which are NaN: {few} (--missing mean has none)"
        );
        let undetermined = (!names.is_empty()).then_some(why);
        missing.into_iter().chain(undetermined).collect()
    }

    pub(super) fn write(&self, output: &Output, stores: &Stores) -> Result<(), Failure> {
        output.put(SAMPLES, |file| {
            let header = stores.sample_header(["sample", "family\tsample"]);
            writeln!(file, "{header}\tused\tmissing\tmissing_share")?;
            stores.sample_cells().zip(&self.0.called).try_for_each(|(id, &called)| {
                let share = text::general(self.missing(called), 6);
                writeln!(file, "{id}\t{called}\t{}\t{share}", self.0.used - called)
            })
        })
    }
}
