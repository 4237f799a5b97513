//! Which contigs take part, and what they are.

use std::{
    collections::{BTreeMap, HashMap},
    iter,
    ops::{Range, RangeInclusive},
};

use clap::Args;
use serde::Serialize;
use teatime::Cancel;

use crate::{
    contig::{Class, normalized},
    failure::Failure,
    store::Store,
    text,
};

/// Contigs to take, on the command line.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ContigArgs {
    /// Take only the variants of these contigs: names and ranges of numbers, such as 1-22,X
    ///
    /// As by plink2, `chr1` and `1` are one contig, and so are X and 23, Y and 24, XY and 25, MT, M and 26; 0 is PLINK's
    /// name for an unknown place. Chunks without a variant that is taken are not read.
    #[arg(long, value_name = "LIST", value_parser = list, conflicts_with = "autosome")]
    chr: Option<List>,
    /// Take only the variants of the contigs 1 to 22, with or without `chr`
    ///
    /// No sex chromosomes, mitochondria or unplaced variants, and no contigs of other names: --chr takes those.
    #[arg(long)]
    autosome: bool,
}

impl ContigArgs {
    /// Whether all contigs take part.
    pub(crate) fn is_all(&self) -> bool {
        self.asked().is_none()
    }

    /// What was asked for, as it would be written; none where all contigs take part.
    fn asked(&self) -> Option<String> {
        let chr = self.chr.as_ref().map(|list| format!("--chr {}", list.text));
        chr.or_else(|| self.autosome.then(|| "--autosome".to_owned()))
    }

    fn takes(&self, name: &str, class: Class) -> bool {
        match &self.chr {
            Some(list) => list.takes(name, class),
            None => !self.autosome || matches!(class, Class::Autosome(_)),
        }
    }
}

/// A list of contigs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct List {
    text: String,
    /// Normalised names.
    names: Vec<String>,
    /// Of PLINK's numbers.
    ranges: Vec<RangeInclusive<u32>>,
}

impl List {
    fn takes(&self, name: &str, class: Class) -> bool {
        let within = |number| self.ranges.iter().any(|range| range.contains(&number));
        self.names.iter().any(|other| other == name) || number(name, class).is_some_and(within)
    }
}

/// A list as plink2's `--chr` takes it.
fn list(text: &str) -> Result<List, String> {
    let mut list = List { text: text.to_owned(), names: Vec::new(), ranges: Vec::new() };
    let numbered = |name: &str| {
        let (name, class) = normalized(name.trim());
        number(&name, class)
    };
    for item in text.split(',').map(str::trim) {
        // A name may have a hyphen of its own.
        let ends = item.split_once('-').map(|(first, last)| (numbered(first), numbered(last)));
        match ends {
            Some((Some(first), Some(last))) if first <= last => list.ranges.push(first..=last),
            Some((Some(_), Some(_))) => return Err(format!("the range `{item}` ends before it starts")),
            _ if item.is_empty() => return Err("a name is missing".into()),
            _ => list.names.push(normalized(item).0),
        }
    }
    Ok(list)
}

/// PLINK's number of a contig, where it has one.
fn number(name: &str, class: Class) -> Option<u32> {
    match class {
        Class::Autosome(number) => Some(number.into()),
        Class::X => Some(23),
        Class::Y => Some(24),
        Class::Pseudoautosomal => (name == "XY").then_some(25),
        Class::Mitochondrial => Some(26),
        Class::Unplaced => Some(0),
        Class::Other => {
            let digits = name.bytes().all(|c| c.is_ascii_digit()) && !name.starts_with('0');
            name.parse().ok().filter(|_| digits)
        }
    }
}

/// What the contigs of the variants are, as run.json has it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Contigs {
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
    /// Of all other names.
    other: u64,
    /// What was asked for by name and is not there.
    #[serde(skip)]
    absent: Vec<String>,
}

impl Contigs {
    /// Reads the contigs of the stores' variants: what they are, and the rows of those that take part.
    ///
    /// Holds 16 bytes for each run of neighbouring variants that take part.
    pub(crate) fn read(
        stores: &[Store],
        args: &ContigArgs,
        cancel: &Cancel,
    ) -> Result<(Self, Vec<Range<u64>>), Failure> {
        let mut contigs = Self { asked: args.asked(), ..Self::default() };
        let (mut names, mut rows, mut row) = (HashMap::new(), Vec::<Range<u64>>::new(), 0);
        for store in stores {
            store.contigs(&mut |name, variants| {
                cancel.check()?;
                if !names.contains_key(name) {
                    let (normal, class) = normalized(name);
                    let takes = args.takes(&normal, class);
                    names.insert(name.to_owned(), (normal, class, takes));
                }
                let (normal, class, takes) = &names[name];
                let range = row..row + variants;
                row = range.end;
                if !takes {
                    contigs.left_out += variants;
                    return Ok(());
                }
                contigs.add(normal, *class, variants);
                match rows.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => rows.push(range),
                }
                Ok(())
            })?;
        }
        if let (Some(asked), true) = (&contigs.asked, rows.is_empty()) {
            let mut names: Vec<_> = names.into_keys().collect();
            names.sort_unstable();
            let why =
                format!("{asked}: no variant is on such a contig; the stores have {}", text::few(&names));
            return Err(Failure::Error(why));
        }
        let asked = args.chr.iter().flat_map(|list| &list.names);
        contigs.absent =
            asked.filter(|name| names.values().all(|(normal, ..)| normal != *name)).cloned().collect();
        Ok((contigs, rows))
    }

    /// Counts only the variants in these rows, which are in ascending order, of those that take part.
    pub(crate) fn count_only(
        &mut self,
        stores: &[Store],
        rows: impl Iterator<Item = u64>,
    ) -> teatime::Result<()> {
        let (asked, absent) = (self.asked.take(), std::mem::take(&mut self.absent));
        *self = Self { asked, left_out: self.left_out, absent, ..Self::default() };
        let (mut rows, mut end) = (rows.peekable(), 0);
        for store in stores {
            store.contigs(&mut |name, variants| {
                end += variants;
                let used = iter::from_fn(|| rows.next_if(|row| *row < end)).count() as u64;
                if used > 0 {
                    let (name, class) = normalized(name);
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

    /// What was asked for and is not there.
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

    /// What was left out, in words.
    pub(crate) fn left_out(&self) -> Option<String> {
        let (left, asked) = (text::count(self.left_out), self.asked.as_ref()?);
        Some(format!("{left} of other contigs left out by {asked}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(text: &str, name: &str) -> bool {
        let args = ContigArgs { chr: Some(list(text).unwrap()), autosome: false };
        let (name, class) = normalized(name);
        args.takes(&name, class)
    }

    #[test]
    fn lists_as_plink2_takes_them() {
        for (text, yes, no) in [
            (
                "1-22,X",
                &["1", "chr1", "01", "22", "chrX", "x", "23"][..],
                &["Y", "24", "0", "MT", "2L", "27"][..],
            ),
            ("chr2-chr4, 26", &["2", "chr4", "MT", "chrM"], &["1", "5", "M2"]),
            ("22-24", &["22", "X", "Y", "chr23"], &["XY", "PAR1", "21"]),
            ("X-MT", &["X", "24", "XY", "M"], &["22", "0"]),
            ("27-31", &["27", "chr31"], &["32", "027", "+27", "26"]),
            ("2L,chr3r", &["2L", "chr2l", "3R"], &["2", "2R"]),
            ("0", &["0", "chr0"], &["1", "."]),
            ("HLA-A,1", &["hla-a", "1"], &["HLA", "A"]),
            (".", &["."], &["0", "1"]),
        ] {
            yes.iter().for_each(|name| assert!(takes(text, name), "{text}: {name}"));
            no.iter().for_each(|name| assert!(!takes(text, name), "{text}: {name}"));
        }
        assert!(list("22-1").unwrap_err().contains("ends before it starts"));
        for text in ["", "1,,2", "1,"] {
            assert!(list(text).unwrap_err().contains("missing"), "{text}");
        }
        let autosome = ContigArgs { chr: None, autosome: true };
        for (name, expected) in [("chr22", true), ("01", true), ("23", false), ("2L", false), ("0", false)] {
            let (name, class) = normalized(name);
            assert_eq!(autosome.takes(&name, class), expected, "{name}");
        }
    }

    #[test]
    fn contigs_are_told() {
        let mut contigs = Contigs::default();
        for (name, variants) in [("chr1", 900), ("X", 1200), ("chrX", 3), ("26", 2), ("0", 1), ("GL1", 7)] {
            let (name, class) = normalized(name);
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
        assert_eq!(Contigs { autosomal: 5, other: 4, ..Contigs::default() }.unasked(), None);
    }
}
