//! Counts of matched and unmatched variants.

use std::path::Path;

use serde::Serialize;

use super::MatchBy;
use crate::{failure::Failure, text};

/// The numbers of variants that were matched, and of variants that were not, by reason.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) loadings: LoadingsCounts,
    pub(crate) stores: StoresCounts,
    /// The property that variants were matched by.
    pub(crate) by: MatchBy,
    /// The name of the loadings in messages.
    #[serde(skip)]
    pub(crate) reference: &'static str,
    /// The number of variants of the stores with unknown alleles at the position of an earlier variant, so that the match with the loadings is
    /// ambiguous.
    #[serde(skip)]
    pub(crate) unknown_repeated: u64,
    /// The first contig of the loadings and that of the stores, if nothing matched and the loadings lack the stores' contig.
    #[serde(skip)]
    pub(crate) contigs: Option<(String, String)>,
}

/// Variants of the loadings.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct LoadingsCounts {
    pub(crate) variants: u64,
    pub(crate) used: u64,
    /// Used variants whose reference and alternate allele are swapped.
    pub(crate) swapped: u64,
    /// Used variants whose alleles are unknown.
    pub(crate) alleles_unknown: u64,
    /// Used variants for which the stores name fewer alleles than the loadings.
    pub(crate) fewer_alleles: u64,
    /// Variants that the stores lack.
    pub(crate) absent: u64,
    /// Variants that the stores have with other alleles, or with an unnamed allele.
    pub(crate) other_alleles: u64,
    /// Variants that repeat the position and alleles of an earlier one, beyond the number of such variants in the stores.
    pub(crate) repeated: u64,
    /// Variants whose alleles in the stores could be those of several variants of the loadings, or of several of the stores, or for which the
    /// stores name only what may be the base before an insertion or deletion.
    pub(crate) ambiguous: u64,
    /// Variants without the position or id that they are matched by.
    pub(crate) nowhere: u64,
    /// Variants matched by id, whose id occurs more than once in the loadings or the stores.
    pub(crate) doubled_id: u64,
}

/// Variants of the stores.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct StoresCounts {
    pub(crate) variants: u64,
    pub(crate) not_in_loadings: u64,
    /// Variants that repeat the position and alleles of an earlier one, beyond the number of such variants in the loadings.
    pub(crate) repeated: u64,
    /// Variants whose alleles could be those of several variants of the loadings, or of several of the stores, or that name only what may be the
    /// base before an insertion or deletion.
    pub(crate) ambiguous: u64,
    /// Variants without the position or id that they are matched by.
    pub(crate) nowhere: u64,
    /// Variants matched by id, whose id is in the loadings and occurs more than once there or in the stores.
    pub(crate) doubled_id: u64,
}

impl Counts {
    /// Returns the fraction of the loadings' variants that cannot be used.
    pub(crate) fn mismatch(&self) -> f64 {
        let LoadingsCounts { variants, used, .. } = self.loadings;
        (variants - used) as f64 / variants.max(1) as f64
    }

    /// Describes the variants of the loadings that are used.
    pub(crate) fn used(&self) -> String {
        let LoadingsCounts { used, swapped, fewer_alleles, .. } = self.loadings;
        let how = some(&[
            (swapped, "of them with alleles swapped"),
            (fewer_alleles, "by those of their alleles that the stores name"),
        ]);
        let reasons = self.reasons();
        let left = if reasons.is_empty() { reasons } else { format!("; {reasons}") };
        [vec![format!("{} used", text::count(used))], how].concat().join(", ") + &left
    }

    /// Describes the variants of the stores that are not used.
    pub(crate) fn ignored(&self) -> String {
        let StoresCounts { not_in_loadings, repeated, ambiguous, nowhere, doubled_id, .. } = self.stores;
        let others = format!("of the stores, {} not in {}", text::count(not_in_loadings), self.reference);
        let reasons = some(&[
            (repeated, "repeated"),
            (ambiguous, FITS),
            (nowhere, self.by.without()),
            (doubled_id, DOUBLED),
        ]);
        [vec![others], reasons].concat().join(", ")
    }

    /// Fails if no variant was matched, or if matches are ambiguous. `path` is the path of the loadings.
    ///
    /// # Errors
    /// [`Failure::Error`] with the counts.
    pub(crate) fn check(&self, path: &Path) -> Result<(), Failure> {
        let (path, LoadingsCounts { variants, used, .. }) = (path.display(), self.loadings);
        if used == 0 {
            let hint = match self.by {
                MatchBy::Position => "; of another genome build, `--match id` may know them",
                MatchBy::Id => "",
            };
            let (total, reasons) = (text::count(variants), self.reasons());
            return Err(Failure::Error(format!(
                "no variant of {path} is in the stores: of {total}, {reasons}{hint}"
            )));
        }
        if self.unknown_repeated > 0 {
            let n = text::plural(self.unknown_repeated, "variant");
            return Err(Failure::Error(format!(
                "{n} of the stores repeat the position of another, and without alleles nothing tells which of them {path} means"
            )));
        }
        Ok(())
    }

    /// Returns a warning of variants that were matched by position alone, if there are any.
    pub(crate) fn unsure(&self) -> Option<String> {
        let n = text::plural(self.loadings.alleles_unknown, "variant");
        (self.loadings.alleles_unknown > 0).then(|| {
            format!(
                "{n} matched by position alone, their alleles being unknown; whether the same are counted is not known"
            )
        })
    }

    /// Returns the reasons why variants of the loadings cannot be used.
    pub(crate) fn reasons(&self) -> String {
        let LoadingsCounts { absent, other_alleles, repeated, ambiguous, nowhere, doubled_id, .. } =
            self.loadings;
        let mut reasons = some(&[
            (absent, "not in the stores"),
            (other_alleles, "there with other alleles or none"),
            (repeated, &format!("repeated in {}", self.reference)),
            (ambiguous, FITS),
            (nowhere, self.by.without()),
            (doubled_id, DOUBLED),
        ]);
        if let Some((ours, theirs)) = &self.contigs {
            reasons.push(format!("{} are of contig `{ours}`, the stores of `{theirs}`", self.reference));
        }
        reasons.join(", ")
    }
}

const FITS: &str = "with alleles that fit several";
const DOUBLED: &str = "of an id that occurs more than once";

/// Describes the counts that are not 0.
fn some(counts: &[(u64, &str)]) -> Vec<String> {
    let some = counts.iter().filter(|(n, _)| *n > 0);
    some.map(|(n, words)| format!("{} {words}", text::count(*n))).collect()
}
