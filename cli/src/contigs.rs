//! The choice of the contigs that take part, and their kinds.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    iter,
    ops::{Range, RangeInclusive},
    sync::Arc,
};

use clap::Args;
use serde::Serialize;
use teatime::{
    Cancel, Error,
    stable_text::{StableText, fields},
};

use crate::{
    contig::{Class, Karyotype, digits},
    failure::Failure,
    store::Store,
    text,
};

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
    /// True where all contigs take part.
    pub(crate) fn is_all(&self) -> bool {
        self.asked().is_none()
    }

    /// The option that was asked for, as it would be written; none where all contigs take part.
    fn asked(&self) -> Option<String> {
        let chr = self.chr.as_ref().map(|list| format!("--chr {list}"));
        chr.or_else(|| self.autosome.then(|| "--autosome".to_owned()))
    }

    /// # Errors
    /// [`Failure::Usage`] for a list that is none.
    fn chosen(&self, karyotype: Karyotype) -> Result<Chosen, Failure> {
        match &self.chr {
            Some(text) => list(text, karyotype).map_err(|why| Failure::Usage(format!("--chr {text}: {why}"))),
            None if self.autosome => Ok(Chosen::Autosomes),
            None => Ok(Chosen::All),
        }
    }
}

/// Contigs that are taken.
#[derive(Debug)]
enum Chosen {
    All,
    Autosomes,
    /// A list as plink2's `--chr` takes it: normalised names, and ranges of PLINK's numbers.
    Listed {
        names: Vec<String>,
        numbers: Vec<RangeInclusive<u32>>,
    },
}

impl Chosen {
    /// True of a contig of that normalised name and class.
    fn takes(&self, name: &str, class: Class, karyotype: Karyotype) -> bool {
        match self {
            Self::All => true,
            Self::Autosomes => matches!(class, Class::Autosome(_)),
            Self::Listed { names, numbers } => {
                let within = |number| numbers.iter().any(|range| range.contains(&number));
                names.iter().any(|other| other == name) || karyotype.number(name, class).is_some_and(within)
            }
        }
    }

    /// Normalised names.
    fn names(&self) -> &[String] {
        if let Self::Listed { names, .. } = self { names } else { &[] }
    }
}

fn list(text: &str, karyotype: Karyotype) -> Result<Chosen, String> {
    let (mut names, mut numbers) = (Vec::new(), Vec::new());
    let numbered = |name: &str| {
        let (name, class) = karyotype.normalized(name.trim());
        karyotype.number(&name, class)
    };
    for item in text.split(',').map(str::trim) {
        // A name may have a hyphen of its own.
        let ends = item.split_once('-').map(|(first, last)| (numbered(first), numbered(last)));
        match ends {
            Some((Some(first), Some(last))) if first <= last => numbers.push(first..=last),
            Some((Some(_), Some(_))) => return Err(format!("the range `{item}` ends before it starts")),
            _ if item.is_empty() => return Err("a name is missing".into()),
            _ => names.push(karyotype.normalized(item).0),
        }
    }
    Ok(Chosen::Listed { names, numbers })
}

/// The contigs of the variants, as run.json has them.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Contigs {
    /// The number of autosomes; null where that is not known.
    autosomes: Karyotype,
    /// True where the user said that; else the contigs tell.
    #[serde(skip)]
    said: bool,
    /// The option that chose among them; null where all take part.
    asked: Option<String>,
    /// Variants of contigs that were not asked for.
    left_out: u64,
    /// Variants that take part, by what their contig is.
    autosomal: u64,
    /// X, Y and what they have in common, by name.
    sex: BTreeMap<String, u64>,
    mitochondrial: u64,
    /// On PLINK's contig `0`.
    unplaced: u64,
    /// On contigs of any other name.
    other: u64,
    /// Names that were asked for and are not there.
    #[serde(skip)]
    absent: Vec<String>,
}

impl StableText for Contigs {
    fn stable_text(&self) -> String {
        let Self { autosomes, said, asked, left_out, autosomal, sex, mitochondrial, unplaced, other, absent } =
            self;
        fields(
            "Contigs",
            &[
                ("autosomes", autosomes),
                ("said", said),
                ("asked", asked),
                ("left_out", left_out),
                ("autosomal", autosomal),
                ("sex", sex),
                ("mitochondrial", mitochondrial),
                ("unplaced", unplaced),
                ("other", other),
                ("absent", absent),
            ],
        )
    }
}

impl Contigs {
    /// Reads the contigs of the stores' variants: what they are, and the rows of those that take part.
    ///
    /// Holds 16 bytes for each run of neighbouring variants on one contig, and for each that takes part.
    pub(crate) fn read(
        stores: &[Store],
        args: &ContigArgs,
        cancel: &Cancel,
    ) -> Result<(Self, Vec<Range<u64>>), Failure> {
        let (mut names, mut numbers) = (Vec::<Arc<str>>::new(), HashMap::<Arc<str>, usize>::new());
        // Numbers of names, and where variants after each other on that contig end.
        let (mut runs, mut end, mut karyotype) = (Vec::<(usize, u64)>::new(), 0, Karyotype::HUMAN);
        for store in stores {
            let (first, start) = (runs.len(), end);
            store.contigs(&mut |name, variants| {
                cancel.check()?;
                let number = numbers.get(name).copied().unwrap_or_else(|| {
                    names.push(name.into());
                    numbers.insert(name.into(), names.len() - 1);
                    names.len() - 1
                });
                end += variants;
                match runs[first..].last() {
                    Some((last, _)) if *last == number => runs.pop(),
                    _ => None,
                };
                runs.push((number, end));
                Ok(())
            })?;
            let of_store = karyotype_of(store, start, &runs[first..], &names)?;
            if of_store != Karyotype::HUMAN {
                karyotype = of_store;
            }
        }
        if let Some(autosomes) = args.chr_set {
            karyotype = Karyotype(Some(autosomes));
        }
        let chosen = args.chosen(karyotype)?;
        let (said, asked) = (args.chr_set.is_some(), args.asked());
        let mut contigs = Self { autosomes: karyotype, said, asked, ..Self::default() };
        let classes: Vec<_> = names.iter().map(|name| karyotype.normalized(name)).collect();
        let (mut rows, mut start) = (Vec::<Range<u64>>::new(), 0);
        for (number, end) in runs {
            let (normal, class) = &classes[number];
            let range = start..end;
            start = end;
            if !chosen.takes(normal, *class, karyotype) {
                contigs.left_out += range.end - range.start;
                continue;
            }
            contigs.add(normal, *class, range.end - range.start);
            match rows.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => rows.push(range),
            }
        }
        if let (Some(asked), true) = (&contigs.asked, rows.is_empty()) {
            names.sort_unstable();
            let unknown =
                "; --chr-set says how many autosomes there are, and so which numbers are X, Y, XY and MT";
            let (names, hint) = (text::few(&names), if karyotype.0.is_none() { unknown } else { "" });
            let why = format!("{asked}: no variant is on such a contig; the stores have {names}{hint}");
            return Err(Failure::Error(why));
        }
        let absent = chosen.names().iter().filter(|name| classes.iter().all(|(normal, _)| normal != *name));
        contigs.absent = absent.cloned().collect();
        Ok((contigs, rows))
    }

    /// The number of the stores and of something else with these contigs: a human's where both are.
    pub(crate) fn karyotype_with<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Karyotype {
        match Karyotype::of(names.into_iter().map(|name| (name, None))) {
            Karyotype::HUMAN => self.autosomes,
            _ if self.said => self.autosomes,
            other => other,
        }
    }

    /// Counts only the variants in these rows, which are in ascending order, of those that take part.
    pub(crate) fn count_only(
        &mut self,
        stores: &[Store],
        rows: impl Iterator<Item = u64>,
    ) -> teatime::Result<()> {
        let Self { autosomes, said, asked, left_out, absent, .. } = std::mem::take(self);
        *self = Self { autosomes, said, asked, left_out, absent, ..Self::default() };
        let (mut rows, mut end) = (rows.peekable(), 0);
        for store in stores {
            store.contigs(&mut |name, variants| {
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
            Class::Other => &mut self.other,
        };
        *count += variants;
    }

    /// A warning of names that were asked for and are not there.
    pub(crate) fn absent(&self) -> Option<String> {
        let names = text::few(&self.absent);
        (!self.absent.is_empty()).then(|| format!("--chr: no variant is on {names}"))
    }

    /// Variants that take part though nobody asked for them, of contigs that most analyses leave out.
    pub(crate) fn unasked(&self) -> Option<String> {
        let sex = self.sex.iter().map(|(name, variants)| (name.as_str(), *variants));
        let all = sex.chain([("MT", self.mitochondrial), ("0", self.unplaced)]);
        let all: Vec<_> = all.filter(|(_, variants)| *variants > 0).collect();
        if self.asked.is_some() || all.is_empty() {
            return None;
        }
        let total = text::plural(all.iter().map(|(_, variants)| variants).sum(), "variant");
        let each: Vec<_> = all.iter().map(|(name, n)| format!("{} on {name}", text::count(*n))).collect();
        let option = if self.autosomal > 0 { "--autosome" } else { "--chr with the names of the others" };
        Some(format!(
            "{total} of sex chromosomes, mitochondria or unknown places take part: {}; {option} leaves them out",
            each.join(", ")
        ))
    }

    /// Says in words how many variants were left out.
    pub(crate) fn left_out(&self) -> Option<String> {
        let (left, asked) = (text::count(self.left_out), self.asked.as_ref()?);
        Some(format!("{left} of other contigs left out by {asked}"))
    }
}

/// Tells the karyotype of one store from the contigs that it names, with their lengths, and from those of its variants. The first of its variants
/// is number `start` of all stores; `runs` are the contigs of variants in a row, each with the number of these variants.
fn karyotype_of(
    store: &Store,
    start: u64,
    runs: &[(usize, u64)],
    names: &[Arc<str>],
) -> teatime::Result<Karyotype> {
    let named = store.named_contigs()?;
    let used: BTreeSet<usize> = runs.iter().map(|(number, _)| *number).collect();
    let is_last =
        |(number, _): &&(usize, u64)| digits(&Karyotype::UNKNOWN.normalized(&names[*number]).0) == Some(26);
    // Variants are in the order of their positions, or nearly. One that cannot be read tells nothing.
    let last = match runs.iter().rev().find(is_last).map(|(_, end)| store.position(end - start - 1)) {
        Some(Err(error @ Error::Budget { .. })) => return Err(error),
        last => last.and_then(Result::ok),
    };
    let named = named.iter().map(|(name, length)| (&**name, *length));
    Ok(Karyotype::of(
        named
            .chain(used.iter().map(|number| (&*names[*number], None)))
            .chain(last.map(|at| ("26", Some(at)))),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_plink2_takes_them() {
        let (human, mouse, dog) = (Karyotype::HUMAN, Karyotype(Some(19)), Karyotype(Some(38)));
        for (karyotype, text, yes, no) in [
            (human, "1-22,X", "1 chr1 01 22 chrX x 23", "Y 24 0 MT 2L 27"),
            (human, "chr2-chr4, 26", "2 chr4 MT chrM", "1 5 M2"),
            (human, "22-24", "22 X Y chr23", "XY PAR1 21"),
            (human, "X-MT", "X 24 XY M", "22 0"),
            (human, "27-31", "27 chr31", "32 027 +27 26"),
            (human, "2L,chr3r", "2L chr2l 3R", "2 2R"),
            (human, "0", "0 chr0", "1 ."),
            (human, "HLA-A,1", "hla-a 1", "HLA A"),
            (human, ".", ".", "0 1"),
            (Karyotype::UNKNOWN, "1-38", "1 chr23 26 38", "X MT 39 0"),
            (Karyotype::UNKNOWN, "23,X", "23 x", "26 Y"),
            (dog, "38-X", "38 39 X", "40 Y 37"),
            (dog, "23-MT", "23 MT 42 Y", "22 43"),
            (mouse, "20", "X 20", "19"),
        ] {
            let chosen = list(text, karyotype).unwrap();
            let takes = |name: &str| {
                let (name, class) = karyotype.normalized(name);
                chosen.takes(&name, class, karyotype)
            };
            yes.split(' ').for_each(|name| assert!(takes(name), "{text}: {name}"));
            no.split(' ').for_each(|name| assert!(!takes(name), "{text}: {name}"));
        }
        let refused = |text| list(text, Karyotype::HUMAN).unwrap_err();
        assert!(refused("22-1").contains("ends before it starts"));
        for text in ["", "1,,2", "1,"] {
            assert!(refused(text).contains("missing"), "{text}");
        }
        for (name, expected) in [("chr22", true), ("01", true), ("23", false), ("2L", false), ("0", false)] {
            let (name, class) = Karyotype::HUMAN.normalized(name);
            assert_eq!(Chosen::Autosomes.takes(&name, class, Karyotype::HUMAN), expected, "{name}");
        }
    }

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
}
