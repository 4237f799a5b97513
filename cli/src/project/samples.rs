//! How many calls each sample has of the variants that were used.

use serde::Serialize;
use teatime_genotype::{ProjectMethod, Projection};

use super::SAMPLES;
use crate::{failure::Failure, output::Output, stores::Stores, text};

/// Share of missing calls above which a sample is named, as more than this share of variants that the stores lack is an error
/// unless it is allowed (`--max-mismatch`).
const MANY_MISSING: f64 = 0.05;

/// Variants used and missing calls, sample by sample.
#[derive(Debug, Serialize)]
pub(super) struct Samples {
    /// Of the variants used, how many the samples with the fewest and with the most of them have a call of.
    fewest_called: u64,
    most_called: u64,
    /// Samples of which more than this share of the calls is missing.
    many_missing: u64,
    many_missing_above: f64,
    /// How many samples' calls do not determine scores.
    undetermined: u64,
    /// Those samples.
    #[serde(skip)]
    without_scores: Vec<usize>,
    #[serde(skip)]
    called: Vec<u64>,
    /// Variants used.
    #[serde(skip)]
    used: u64,
}

impl Samples {
    pub(super) fn new(result: &Projection) -> Self {
        let Projection { scores, called, used, .. } = result;
        let mut samples = Self {
            fewest_called: called.iter().copied().min().unwrap_or(0),
            most_called: called.iter().copied().max().unwrap_or(0),
            many_missing: 0,
            many_missing_above: MANY_MISSING,
            undetermined: result.undetermined,
            without_scores: (0..scores.rows()).filter(|&sample| scores.row(sample)[0].is_nan()).collect(),
            called: called.clone(),
            used: *used,
        };
        samples.many_missing = samples.worst().len() as u64;
        samples
    }

    fn missing(&self, called: u64) -> f64 {
        (self.used - called) as f64 / self.used.max(1) as f64
    }

    /// Samples with many missing calls, those with the most first.
    fn worst(&self) -> Vec<usize> {
        let many = |sample: &usize| self.missing(self.called[*sample]) > MANY_MISSING;
        let mut worst: Vec<usize> = (0..self.called.len()).filter(many).collect();
        worst.sort_by_key(|&sample| self.called[sample]);
        worst
    }

    /// Names the samples whose scores are nearer to zero, or less certain, for missing calls, and those without scores.
    pub(super) fn warnings(&self, method: ProjectMethod, stores: &Stores) -> Vec<String> {
        let worst = self.worst();
        let percent = |share: f64| format!("{} %", text::general(100.0 * share, 3));
        let name = |&sample: &usize| {
            format!("{} ({})", stores.samples[sample], percent(self.missing(self.called[sample])))
        };
        let names: Vec<String> = worst.iter().take(6).map(name).collect();
        let verb = if worst.len() == 1 { "lacks" } else { "lack" };
        let effect = match method {
            ProjectMethod::Mean => "brings their scores nearer to zero by about as much",
            _ => "makes their scores less certain",
        };
        let missing = (!worst.is_empty()).then(|| {
            format!(
                "{} {verb} more than {} of the calls of the variants used, which {effect}: {}; {SAMPLES} has the numbers",
                text::plural(worst.len() as u64, "sample"),
                percent(MANY_MISSING),
                text::few(&names),
            )
        });
        let names = self.without_scores.iter().take(6).map(|&sample| stores.samples[sample].clone());
        let names: Vec<String> = names.collect();
        let undetermined = (!names.is_empty()).then(|| {
            format!(
                "the calls of {} do not determine scores, which are NaN: {} (--missing mean has none)",
                text::plural(self.undetermined, "sample"),
                text::few(&names),
            )
        });
        missing.into_iter().chain(undetermined).collect()
    }

    /// Writes the table.
    pub(super) fn write(&self, output: &Output, stores: &Stores) -> Result<(), Failure> {
        output.table(SAMPLES, |file| {
            let header = stores.sample_header(["sample", "family\tsample"]);
            writeln!(file, "{header}\tused\tmissing\tmissing_share")?;
            stores.sample_cells().zip(&self.called).try_for_each(|(id, &called)| {
                let share = text::general(self.missing(called), 6);
                writeln!(file, "{id}\t{called}\t{}\t{share}", self.used - called)
            })
        })
    }
}
