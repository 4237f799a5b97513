//! Matched and unmatched variants in words.

use std::path::Path;

use teatime_genotype::{GenotypeCounts, MatchBy, MatchCounts, ReferenceCounts};

use crate::{failure::Failure, text};

/// Counts of matched variants.
#[derive(Debug)]
pub(crate) struct Matched {
    pub(crate) counts: MatchCounts,
    /// The name of the reference in messages.
    pub(crate) reference: &'static str,
    /// The number of the reference's variants that the stores lack and that are taken as homozygous reference.
    pub(crate) as_reference: u64,
}

impl Matched {
    /// Describes the variants of the reference that are used.
    pub(crate) fn used(&self) -> String {
        let ReferenceCounts { used, swapped, fewer_alleles, .. } = self.counts.reference;
        let how = some(&[
            (swapped, "of them with alleles swapped"),
            (fewer_alleles, "by those of their alleles that the stores name"),
            (self.as_reference, "not in the stores taken as homozygous reference"),
        ]);
        let reasons = self.reasons();
        let left = if reasons.is_empty() { reasons } else { format!("; {reasons}") };
        [vec![format!("{} used", text::count(used))], how].concat().join(", ") + &left
    }

    /// Describes the variants of the stores that are not used.
    pub(crate) fn ignored(&self) -> String {
        let GenotypeCounts { not_in_reference, repeated, ambiguous, nowhere, doubled_id, .. } =
            self.counts.genotypes;
        let others = format!("of the stores, {} not in {}", text::count(not_in_reference), self.reference);
        let reasons = some(&[
            (repeated, "repeated"),
            (ambiguous, FITS),
            (nowhere, self.without()),
            (doubled_id, DOUBLED),
        ]);
        [vec![others], reasons].concat().join(", ")
    }

    /// Fails if no variant was matched, or if matches are ambiguous. `path` is the path of the reference.
    pub(crate) fn check(&self, path: &Path) -> Result<(), Failure> {
        let (path, ReferenceCounts { variants, used, .. }) = (path.display(), self.counts.reference);
        if used == 0 {
            let hint = match self.counts.by {
                MatchBy::Position => "; of another genome build, `--match id` may know them",
                _ => "",
            };
            let (total, reasons) = (text::count(variants), self.reasons());
            return Err(Failure::Error(format!(
                "no variant of {path} is in the stores: of {total}, {reasons}{hint}"
            )));
        }
        if self.counts.unknown_repeated > 0 {
            let n = text::plural(self.counts.unknown_repeated, "variant");
            return Err(Failure::Error(format!(
                "{n} of the stores repeat the position of another, and without alleles nothing tells which of them {path} means"
            )));
        }
        Ok(())
    }

    /// Returns a warning of variants that were matched by position alone, if there are any.
    pub(crate) fn unsure(&self) -> Option<String> {
        let unknown = self.counts.reference.alleles_unknown;
        let n = text::plural(unknown, "variant");
        (unknown > 0).then(|| {
            format!(
                "{n} matched by position alone, their alleles being unknown; whether the same are counted is not known"
            )
        })
    }

    /// Returns the reasons why variants of the reference cannot be used.
    pub(crate) fn reasons(&self) -> String {
        let ReferenceCounts { absent, other_alleles, repeated, ambiguous, nowhere, doubled_id, .. } =
            self.counts.reference;
        let mut reasons = some(&[
            (absent - self.as_reference, "not in the stores"),
            (other_alleles, "there with other alleles or none"),
            (repeated, &format!("repeated in {}", self.reference)),
            (ambiguous, FITS),
            (nowhere, self.without()),
            (doubled_id, DOUBLED),
        ]);
        if let Some((ours, theirs)) = &self.counts.contigs {
            reasons.push(format!("{} are of contig `{ours}`, the stores of `{theirs}`", self.reference));
        }
        reasons.join(", ")
    }

    /// Describes variants without the position or id that they are matched by.
    fn without(&self) -> &'static str {
        match self.counts.by {
            MatchBy::Id => "without an id",
            _ => "without a place",
        }
    }

    /// Returns the record's counts of the stores' variants. `absent` is the name of those that the reference lacks or has with other alleles.
    pub(crate) fn of_stores(&self, absent: &'static str) -> [(&'static str, u64); 6] {
        let named = self.counts.genotypes.named();
        named.map(|(name, count)| (if name == "not_in_reference" { absent } else { name }, count))
    }
}

const FITS: &str = "with alleles that fit several";
const DOUBLED: &str = "of an id that occurs more than once";

/// Describes the counts that are not 0.
fn some(counts: &[(u64, &str)]) -> Vec<String> {
    let some = counts.iter().filter(|(n, _)| *n > 0);
    some.map(|(n, words)| format!("{} {words}", text::count(*n))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_by_reason() {
        let mut counts = MatchCounts::default();
        counts.by = MatchBy::Id;
        let own = &mut counts.reference;
        (own.variants, own.used, own.swapped, own.alleles_unknown) = (1200, 1100, 1, 3);
        (own.absent, own.other_alleles, own.nowhere, own.doubled_id) = (60, 1, 2, 7);
        let own = &mut counts.genotypes;
        (own.not_in_reference, own.ambiguous) = (1001, 5);
        let mut matched = Matched { counts, reference: "the loadings", as_reference: 0 };
        let left = "60 not in the stores, 1 there with other alleles or none, 2 without an id, 7 of an id that occurs more \
                    than once";
        assert_eq!(matched.used(), format!("1,100 used, 1 of them with alleles swapped; {left}"));
        let ignored = "of the stores, 1,001 not in the loadings, 5 with alleles that fit several";
        assert_eq!(matched.ignored(), ignored);
        matched.as_reference = 50;
        let used = "1,100 used, 1 of them with alleles swapped, 50 not in the stores taken as homozygous reference; 10 not in";
        assert!(matched.used().starts_with(used), "{}", matched.used());
        assert!(matched.unsure().unwrap().starts_with("3 variants matched by position alone"));
        let why = |matched: &Matched| matched.check(Path::new("l.tsv")).unwrap_err().to_string();
        matched.counts.unknown_repeated = 1;
        assert!(why(&matched).contains("1 variant of the stores repeat the position of another"));
        (matched.counts.by, matched.counts.reference.used) = (MatchBy::Position, 0);
        matched.counts.contigs = Some(("1".into(), "2".into()));
        let said = ["no variant of l.tsv", "2 without a place", "contig `1`, the stores of `2`; of another"];
        said.iter().for_each(|words| assert!(why(&matched).contains(words), "{}", why(&matched)));
    }
}
