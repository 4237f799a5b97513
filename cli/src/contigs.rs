//! The choice of contigs, and counts of variants by kind of contig.

use std::{collections::BTreeMap, iter, ops::Range, sync::Arc};

use clap::Args;
use serde_json::{Value, json};
use teatime::Cancel;
use teatime_genotype::{
    ContigChoice, ContigClass as Class, ContigRuns, Karyotype, VariantIndex, VariantSource,
};

use crate::{failure::Failure, text};

/// Contigs to take, on the command line.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ContigArgs {
    /// Take only the variants of these contigs: names and ranges of numbers, such as 1-22,X
    ///
    /// As by plink2, `chr1` and `1` are one contig, and so are, of humans, X and 23, Y and 24, XY and 25, MT, M and 26; 0 is
    /// PLINK's name for an unknown place. Chunks without a variant that is taken are not read.
    #[arg(long, value_name = "LIST", conflicts_with = "autosome")]
    chr: Option<String>,
    /// Take only the variants of the autosomes, with or without `chr`: 1 to 22 of humans, else as --chr-set says
    ///
    /// No sex chromosomes, mitochondria or unplaced variants, and no contigs of other names: --chr takes those.
    #[arg(long)]
    autosome: bool,
    /// Number of autosomes, as PLINK has it: the four numbers after theirs are X, Y, XY and MT [default: 22 of humans]
    ///
    /// Without it, stores are taken for those of humans unless one has a contig with a number above 26, one from 23 to 26 beside X,
    /// Y, XY or MT by letters, or a length of 1, or a length of or position on 26, that these do not have in humans. Of others, a number is then
    /// a contig of its own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=95))]
    chr_set: Option<u8>,
}

impl ContigArgs {
    /// Returns the option that chooses contigs, as on the command line; `None` if all contigs take part.
    pub(crate) fn asked(&self) -> Option<String> {
        let chr = self.chr.as_ref().map(|list| format!("--chr {list}"));
        chr.or_else(|| self.autosome.then(|| "--autosome".to_owned()))
    }

    /// Refuses a text of --chr that is not a valid list.
    fn chosen(&self, karyotype: Karyotype) -> Result<Option<ContigChoice>, Failure> {
        let Some(text) = &self.chr else {
            return Ok(self.autosome.then(|| ContigChoice::autosomes(karyotype)));
        };
        let choice = ContigChoice::listed(text, karyotype);
        choice.map(Some).map_err(|why| Failure::Usage(format!("--chr {text}: {why}")))
    }
}

/// The contigs of the variants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contigs {
    autosomes: Karyotype,
    /// True if the user gave the number of autosomes; otherwise it is derived from the contigs.
    said: bool,
    /// The option that chose contigs, unless all take part.
    asked: Option<String>,
    /// The number of variants on contigs that were not asked for.
    left_out: u64,
    /// The number of autosomal variants that take part; the next fields count other classes.
    autosomal: u64,
    /// Variants on X, Y and the regions that X and Y share, by contig name.
    sex: BTreeMap<String, u64>,
    mitochondrial: u64,
    /// Variants on PLINK's contig `0`.
    unplaced: u64,
    /// Variants on contigs of any other name.
    other: u64,
    /// Requested names that no variant is on.
    absent: Vec<String>,
}

teatime::stable_text! {
    struct Contigs {
        autosomes, said, asked, left_out, autosomal, sex, mitochondrial, unplaced, other, absent,
    }
}

impl Contigs {
    /// Reads the contigs of the stores' variants, and returns their counts and the rows of the variants that take part.
    ///
    /// Holds 16 bytes of memory for each run of consecutive variants on one contig, and for each such run that takes part.
    pub(crate) fn read(
        sources: &[&dyn VariantSource],
        args: &ContigArgs,
        cancel: &Cancel,
    ) -> Result<(Self, Vec<Range<u64>>), Failure> {
        let read = ContigRuns::read(sources, cancel)?;
        let karyotype = args.chr_set.map_or(read.karyotype(), |autosomes| Karyotype(Some(autosomes)));
        let chosen = args.chosen(karyotype)?;
        let (said, asked) = (args.chr_set.is_some(), args.asked());
        let mut contigs = Self { autosomes: karyotype, said, asked, ..Self::default() };
        let takes = |name: &str| chosen.as_ref().is_none_or(|chosen| chosen.takes(name));
        let class = |name: &Arc<str>| (takes(name), karyotype.normalized(name));
        let classes: Vec<_> = read.names().iter().map(class).collect();
        for (number, range) in read.runs() {
            let ((taken, (normal, class)), variants) = (&classes[number], range.end - range.start);
            if *taken {
                contigs.add(normal, *class, variants);
            } else {
                contigs.left_out += variants;
            }
        }
        contigs.absent = chosen.iter().flat_map(|chosen| chosen.absent(&read)).collect();
        let rows = read.rows(takes);
        if let (Some(asked), true) = (&contigs.asked, rows.is_empty()) {
            let mut names = read.names().to_vec();
            names.sort_unstable();
            let unknown =
                "; --chr-set says how many autosomes there are, and so which numbers are X, Y, XY and MT";
            let (names, hint) = (text::few(&names), if karyotype.0.is_none() { unknown } else { "" });
            let why = format!("{asked}: no variant is on such a contig; the stores have {names}{hint}");
            return Err(Failure::Error(why));
        }
        Ok((contigs, rows))
    }

    /// Returns the karyotype of the stores and of the reference `index` together: human only if both are human, unless the user gave it.
    pub(crate) fn karyotype_with(&self, index: &VariantIndex) -> Karyotype {
        if self.said { self.autosomes } else { index.karyotype_with(self.autosomes) }
    }

    /// Returns the karyotype by which the names of contigs are read.
    pub(crate) const fn karyotype(&self) -> Karyotype {
        self.autosomes
    }

    pub(crate) fn record(&self) -> Value {
        json!({
            // Null if the number is not known.
            "autosomes": self.autosomes.0,
            // Null if all contigs take part.
            "asked": self.asked,
            "left_out": self.left_out,
            "autosomal": self.autosomal,
            "sex": self.sex,
            "mitochondrial": self.mitochondrial,
            "unplaced": self.unplaced,
            "other": self.other,
        })
    }

    /// Counts again, with only the variants in `rows`, which are ascending.
    pub(crate) fn count_only(
        &mut self,
        sources: &[&dyn VariantSource],
        rows: impl Iterator<Item = u64>,
    ) -> teatime::Result<()> {
        let Self { autosomes, said, asked, left_out, absent, .. } = std::mem::take(self);
        *self = Self { autosomes, said, asked, left_out, absent, ..Self::default() };
        let (mut rows, mut end) = (rows.peekable(), 0);
        for source in sources {
            source.contigs(&mut |name, variants| {
                end += variants;
                let used = iter::from_fn(|| rows.next_if(|row| *row < end)).count() as u64;
                if used > 0 {
                    let (name, class) = self.autosomes.normalized(name);
                    self.add(&name, class, used);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, class: Class, variants: u64) {
        let count = match class {
            Class::Autosome(_) => &mut self.autosomal,
            Class::X | Class::Y | Class::Pseudoautosomal => self.sex.entry(name.to_owned()).or_default(),
            Class::Mitochondrial => &mut self.mitochondrial,
            Class::Unplaced => &mut self.unplaced,
            _ => &mut self.other,
        };
        *count += variants;
    }

    /// Returns a warning of requested names that no variant is on.
    pub(crate) fn absent(&self) -> Option<String> {
        let names = text::few(&self.absent);
        (!self.absent.is_empty()).then(|| format!("--chr: no variant is on {names}"))
    }

    /// Returns a warning of variants that most analyses leave out (sex chromosomes, mitochondria, unplaced) and that take part because no option
    /// chose contigs.
    pub(crate) fn unasked(&self) -> Option<String> {
        let sex = self.sex.iter().map(|(name, variants)| (name.as_str(), *variants));
        let contigs = sex.chain([("MT", self.mitochondrial), ("0", self.unplaced)]);
        let contigs: Vec<_> = contigs.filter(|(_, variants)| *variants > 0).collect();
        if self.asked.is_some() || contigs.is_empty() {
            return None;
        }
        let total = text::plural(contigs.iter().map(|(_, variants)| variants).sum(), "variant");
        let each: Vec<_> = contigs.iter().map(|(name, n)| format!("{} on {name}", text::count(*n))).collect();
        let option = if self.autosomal > 0 { "--autosome" } else { "--chr with the names of the others" };
        Some(format!(
            "{total} of sex chromosomes, mitochondria or unknown places take part: {}; {option} leaves them out",
            each.join(", ")
        ))
    }

    /// Says in words how many variants --chr or --autosome left out.
    pub(crate) fn left_out(&self) -> Option<String> {
        let (left, asked) = (text::count(self.left_out), self.asked.as_ref()?);
        Some(format!("{left} of other contigs left out by {asked}"))
    }
}

#[cfg(test)]
mod tests {
    use teatime::stable_text::StableText;

    use super::*;
    use crate::calls::PloidyMismatch;

    #[test]
    fn contigs_are_told() {
        let new = || Contigs { autosomes: Karyotype::HUMAN, ..Contigs::default() };
        let mut contigs = new();
        for (name, variants) in [("chr1", 900), ("X", 1200), ("chrX", 3), ("26", 2), ("0", 1), ("GL1", 7)] {
            let (name, class) = Karyotype::HUMAN.normalized(name);
            contigs.add(&name, class, variants);
        }
        assert_eq!((contigs.autosomal, contigs.other), (900, 7));
        let told = contigs.unasked().unwrap();
        for words in ["1,206 variants of sex", "1,203 on X, 2 on MT, 1 on 0;", "--autosome leaves"] {
            assert!(told.contains(words), "{told}");
        }
        contigs.autosomal = 0;
        assert!(contigs.unasked().unwrap().contains("--chr with the names"));
        contigs.asked = Some("--chr X".into());
        assert_eq!(contigs.unasked(), None);
        assert_eq!(Contigs { autosomal: 5, other: 4, ..new() }.unasked(), None);
    }

    /// Partial distances with these texts can be finished only while the texts stay the same.
    #[test]
    fn texts_stay() {
        let mut contigs =
            Contigs { autosomes: Karyotype::HUMAN, asked: Some("--chr 1".into()), ..Contigs::default() };
        contigs.sex.insert("X".into(), 3);
        let expected = "Contigs { autosomes: Karyotype(Some(22)), said: false, asked: Some(\"--chr 1\"), left_out: 0, autosomal: 0, \
                        sex: {\"X\": 3}, mitochondrial: 0, unplaced: 0, other: 0, absent: [] }";
        assert_eq!(contigs.stable_text(), expected);
        let mismatch = PloidyMismatch { stored: 4, ploidy: 2, calls: 9 };
        assert_eq!(mismatch.stable_text(), "PloidyMismatch { stored: 4, ploidy: 2, calls: 9 }");
    }
}
