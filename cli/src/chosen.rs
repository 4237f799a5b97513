//! Samples and variants that an option chose by a file, in words.

use std::path::PathBuf;

use serde_json::{Value, json};
use teatime_genotype::Listed;

use crate::text;

/// An option that chose samples or variants by a file, and what is left.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) option: &'static str,
    pub(crate) path: PathBuf,
    /// The noun for what was chosen.
    pub(crate) what: &'static str,
    pub(crate) listed: Listed,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

impl Chosen {
    /// Says in words how many are left.
    pub(crate) fn line(&self) -> String {
        let Self { option, path, what, before, after, .. } = self;
        let (path, after) = (path.display(), text::count(*after));
        format!("{option} {path}: {after} of {} left", text::plural(*before, what))
    }

    /// Says in words how many ids nothing has, if there are any.
    pub(crate) fn absent(&self) -> Option<String> {
        let Listed { entries, absent, .. } = self.listed;
        let [unknown, entries] = [absent, entries].map(text::count);
        (absent > 0).then(|| {
            format!("{unknown} of {entries} ids of {} are not among the {}s", self.path.display(), self.what)
        })
    }

    /// Returns warnings of ids that are given more than once, and of ids that nothing has.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let repeated = self.listed.repeated;
        let repeats = text::plural(repeated, "id");
        let verb = if repeated == 1 { "repeats" } else { "repeat" };
        let told = format!("{repeats} of {} {verb} an earlier one", self.path.display());
        let reasons = [self.absent(), (repeated > 0).then_some(told)].into_iter().flatten();
        reasons.map(|why| format!("{}: {why}", self.option))
    }

    pub(crate) fn record(&self) -> Value {
        let Listed { entries, repeated, absent, .. } = self.listed;
        json!({
            "option": self.option,
            "path": self.path.display().to_string(),
            // The number of distinct ids, or of regions.
            "entries": entries,
            "repeated": repeated,
            "absent": absent,
            "before": self.before,
            "left": self.after,
        })
    }
}
