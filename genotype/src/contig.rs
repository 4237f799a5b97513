//! Names of contigs, interpreted as PLINK interprets those of chromosomes, and the contigs of variants.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use teatime::{Cancel, Error, Result, stable_text::StableText};

use crate::{names::Names, variant::VariantSource};

/// The kind of a contig, determined by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ContigClass {
    /// An autosome, with its number from 1.
    Autosome(u8),
    /// Chromosome X.
    X,
    /// Chromosome Y.
    Y,
    /// The regions that X and Y share: PLINK's `XY`, `PAR1` and `PAR2`.
    Pseudoautosomal,
    /// Mitochondrial DNA: `M` or `MT`.
    Mitochondrial,
    /// `0`, PLINK's name for variants of unknown position.
    Unplaced,
    /// Every other name, including `.` (no name).
    Other,
}

/// The maximum length of human mitochondrial DNA, in bases.
const MITOCHONDRIA: u64 = 16_600;

/// The range of lengths of human chromosome 1 among assemblies, in bases.
const FIRST: std::ops::RangeInclusive<u64> = 240_000_000..=255_000_000;

/// The number of autosomes, as in PLINK's `--chr-set`: the next four numbers are X, Y, XY and MT. If the number of autosomes is unknown, a
/// contig's number is a name like any other.
///
/// ```
/// use teatime_genotype::{ContigClass, Karyotype};
///
/// assert_eq!(Karyotype::HUMAN.normalized("chr23"), ("X".into(), ContigClass::X));
/// let dog = Karyotype(Some(38));
/// assert_eq!(dog.normalized("chr23"), ("23".into(), ContigClass::Autosome(23)));
/// // A contig above 26 is not human.
/// assert_eq!(Karyotype::from_contigs([("chr1", None), ("chr29", None)]), Karyotype::UNKNOWN);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Karyotype(pub Option<u8>);

impl StableText for Karyotype {
    fn stable_text(&self) -> String {
        format!("Karyotype({})", self.0.stable_text())
    }
}

impl Karyotype {
    /// 22 autosomes.
    pub const HUMAN: Self = Self(Some(22));
    /// An unknown number of autosomes.
    pub const UNKNOWN: Self = Self(None);

    /// Returns the human karyotype unless contigs, given by name and length, are not human. They are not if a number is above 26; if a number
    /// from 23 to 26 occurs together with X, Y, XY or MT, since writers use one or the other; or if the length of contig 1 or 26, or a position
    /// on 26, is not possible in humans.
    pub fn from_contigs<'a>(contigs: impl IntoIterator<Item = (&'a str, Option<u64>)>) -> Self {
        let (mut letters, mut numbers) = (false, false);
        for (name, length) in contigs {
            let (normal, _) = Self::UNKNOWN.normalized(name);
            let fits = match digits(&normal) {
                Some(1) => length.is_none_or(|length| FIRST.contains(&length)),
                Some(26) => length.is_none_or(|length| length <= MITOCHONDRIA),
                Some(number) => number < 26,
                None => true,
            };
            if !fits {
                return Self::UNKNOWN;
            }
            letters |= ["X", "Y", "XY", "MT"].contains(&&*normal);
            numbers |= digits(&normal).is_some_and(|number| number > 22);
        }
        if letters && numbers { Self::UNKNOWN } else { Self::HUMAN }
    }

    /// Returns the class of a contig and its normalised name, which is the same for all names of the contig.
    ///
    /// The rules are those of plink2's `--chr`. An initial `chr` and the case of letters do not matter, one-digit names may be padded with zero
    /// (`01`, `0X`), `M` is `MT`, and with 22 autosomes, 23, 24, 25 and 26 are X, Y, XY and MT, as in human .bim files. Names that plink2 does
    /// not know lose `chr` and become upper case: `chr2L` is `2L`, of the class `Other`.
    pub fn normalized(self, name: &str) -> (String, ContigClass) {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("CHR").filter(|rest| !rest.is_empty()).unwrap_or(&upper);
        let short = if bare.len() == 2 { bare.strip_prefix('0').unwrap_or(bare) } else { bare };
        let beyond =
            self.0.zip(digits(short)).map(|(autosomes, number)| number.saturating_sub(autosomes.into()));
        let (name, class) = match (short, beyond) {
            ("0", _) => ("0", ContigClass::Unplaced),
            ("X", _) | (_, Some(1)) => ("X", ContigClass::X),
            ("Y", _) | (_, Some(2)) => ("Y", ContigClass::Y),
            ("XY", _) | (_, Some(3)) => ("XY", ContigClass::Pseudoautosomal),
            ("PAR1" | "PAR2", _) => (short, ContigClass::Pseudoautosomal),
            ("M" | "MT", _) | (_, Some(4)) => ("MT", ContigClass::Mitochondrial),
            (_, Some(0)) => (short, short.parse().map_or(ContigClass::Other, ContigClass::Autosome)),
            _ if digits(short).is_some() => (short, ContigClass::Other),
            _ => (bare, ContigClass::Other),
        };
        (name.to_owned(), class)
    }

    /// Returns PLINK's number of a contig, if it has one.
    pub fn number(self, name: &str, class: ContigClass) -> Option<u32> {
        let beyond = match class {
            ContigClass::Autosome(number) => return Some(number.into()),
            ContigClass::Unplaced => return Some(0),
            ContigClass::Other => return digits(name),
            ContigClass::X => 1,
            ContigClass::Y => 2,
            ContigClass::Pseudoautosomal if name == "XY" => 3,
            ContigClass::Pseudoautosomal => return None,
            ContigClass::Mitochondrial => 4,
        };
        self.0.map(|autosomes| u32::from(autosomes) + beyond)
    }
}

/// Parses a number of at least 1 that has no sign or leading zeros (unlike `+1` and `01`).
fn digits(name: &str) -> Option<u32> {
    let is_plain = name.bytes().all(|c| c.is_ascii_digit()) && !name.starts_with('0');
    name.parse().ok().filter(|_| is_plain)
}

/// The contigs of the variants of one or more sources, as runs of consecutive variants on one contig, and the karyotype that these suggest.
///
/// Takes 16 bytes of memory for each run.
#[derive(Clone, Debug)]
pub struct ContigRuns {
    names: Vec<Arc<str>>,
    /// The index of each run's contig in `names`, and the row after the run.
    ends: Vec<(usize, u64)>,
    karyotype: Karyotype,
}

impl ContigRuns {
    /// Reads the contigs of the variants of `sources`, which are appended in order.
    ///
    /// # Errors
    /// Fails as [`VariantSource::contigs`] does, and with [`Error::Cancelled`].
    pub fn read(sources: &[&dyn VariantSource], cancel: &Cancel) -> Result<Self> {
        let (mut names, mut end, mut karyotype) = (Names::default(), 0, Karyotype::HUMAN);
        let mut ends = Vec::<(usize, u64)>::new();
        for source in sources {
            let (first, start) = (ends.len(), end);
            source.contigs(&mut |name, variants| {
                cancel.check()?;
                let number = names.number(name) as usize;
                end += variants;
                match ends[first..].last() {
                    Some((last, _)) if *last == number => ends.pop(),
                    _ => None,
                };
                ends.push((number, end));
                Ok(())
            })?;
            let of_source = karyotype_of(*source, start, &ends[first..], &names.names)?;
            if of_source != Karyotype::HUMAN {
                karyotype = of_source;
            }
        }
        Ok(Self { names: names.names, ends, karyotype })
    }

    /// Returns the distinct names of the contigs, in the order of their first variants.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Returns the index of each run's contig in [`names`](Self::names), and the run's rows, in order.
    pub fn runs(&self) -> impl Iterator<Item = (usize, Range<u64>)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        self.ends.iter().zip(starts).map(|(&(name, end), start)| (name, start..end))
    }

    /// Returns the rows of the variants on the contigs whose names `takes` takes, in ascending ranges that do not touch.
    pub fn rows(&self, takes: impl Fn(&str) -> bool) -> Vec<Range<u64>> {
        let taken: Vec<_> = self.names.iter().map(|name| takes(name)).collect();
        let mut rows = Vec::<Range<u64>>::new();
        for (_, range) in self.runs().filter(|(number, _)| taken[*number]) {
            match rows.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => rows.push(range),
            }
        }
        rows
    }

    /// Returns the karyotype that the contigs suggest: the human one, unless the contigs of one source are not human.
    ///
    /// Considers the contigs and lengths that a source names, the contigs of its variants, and the position of its last variant on contig 26.
    pub const fn karyotype(&self) -> Karyotype {
        self.karyotype
    }
}

/// Returns the karyotype that a source's contigs suggest. `start` is the number of variants in earlier sources, `ends` are its runs.
fn karyotype_of(
    source: &dyn VariantSource,
    start: u64,
    ends: &[(usize, u64)],
    names: &[Arc<str>],
) -> Result<Karyotype> {
    let named = source.named_contigs()?;
    let used: BTreeSet<usize> = ends.iter().map(|(number, _)| *number).collect();
    let is_last =
        |(number, _): &&(usize, u64)| digits(&Karyotype::UNKNOWN.normalized(&names[*number]).0) == Some(26);
    // Variants are roughly in order of position, so the last on contig 26 has the largest. A position that cannot be read is ignored.
    let last = ends.iter().rev().find(is_last).map(|(_, end)| end.saturating_sub(start + 1));
    let last = match last.map(|variant| source.position(variant)) {
        Some(Err(error @ Error::Budget { .. })) => return Err(error),
        last => last.and_then(Result::ok),
    };
    let named = named.iter().map(|(name, length)| (&**name, *length));
    let used = used.iter().map(|number| (&*names[*number], None));
    Ok(Karyotype::from_contigs(named.chain(used).chain(last.map(|at| ("26", Some(at))))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::variant;

    #[test]
    fn names_of_one_contig_are_alike() {
        let (human, dog, unknown) = (Karyotype::HUMAN, Karyotype(Some(38)), Karyotype::UNKNOWN);
        for (karyotype, names, expected, class) in [
            (human, "1 chr1 CHR1 Chr1 01 chr01", "1", ContigClass::Autosome(1)),
            (human, "22 chr22", "22", ContigClass::Autosome(22)),
            (human, "X x chrX chrx 23 chr23 0X", "X", ContigClass::X),
            (human, "Y chrY 24 0y", "Y", ContigClass::Y),
            (human, "XY xy chrXY 25", "XY", ContigClass::Pseudoautosomal),
            (human, "PAR1 chrPAR1 par1", "PAR1", ContigClass::Pseudoautosomal),
            (human, "PAR2", "PAR2", ContigClass::Pseudoautosomal),
            (human, "M MT chrM chrMT mt 26 0M", "MT", ContigClass::Mitochondrial),
            (human, "0 00 chr0", "0", ContigClass::Unplaced),
            (human, "2L chr2L 2l", "2L", ContigClass::Other),
            (human, "chr1_KI270706v1_random", "1_KI270706V1_RANDOM", ContigClass::Other),
            (dog, "38", "38", ContigClass::Autosome(38)),
            (dog, "chr23", "23", ContigClass::Autosome(23)),
            (dog, "39 x", "X", ContigClass::X),
            (dog, "40", "Y", ContigClass::Y),
            (dog, "41", "XY", ContigClass::Pseudoautosomal),
            (dog, "42", "MT", ContigClass::Mitochondrial),
            (dog, "43", "43", ContigClass::Other),
            (dog, "0", "0", ContigClass::Unplaced),
            (unknown, "01", "1", ContigClass::Other),
            (unknown, "chr23", "23", ContigClass::Other),
            (unknown, "26", "26", ContigClass::Other),
            (unknown, "M", "MT", ContigClass::Mitochondrial),
        ] {
            for name in names.split(' ') {
                assert_eq!(karyotype.normalized(name), (expected.to_owned(), class), "{name}");
            }
        }
    }

    #[test]
    fn other_names_stay_apart() {
        for name in
            ["", ".", "CHR", "27", "29", "+1", "-1", "001", "1.5", "100", "X1", "MTX", "Å1", "染色体1"]
        {
            assert_eq!(Karyotype::HUMAN.normalized(name), (name.to_owned(), ContigClass::Other), "{name}");
        }
        // `0L` is no other name of `L`.
        assert_ne!(Karyotype::HUMAN.normalized("0L").0, Karyotype::HUMAN.normalized("L").0);
    }

    #[test]
    fn contigs_tell_who_is_human() {
        let numbers = |last: u32| (1..=last).map(|n| n.to_string()).collect::<Vec<_>>();
        let karyotype = |names: &[String], length: Option<u64>| {
            Karyotype::from_contigs(names.iter().map(|name| (&**name, length)))
        };
        for last in [1, 19, 22, 26] {
            assert_eq!(karyotype(&numbers(last), None), Karyotype::HUMAN, "{last}");
        }
        assert_eq!(karyotype(&numbers(27), None), Karyotype::UNKNOWN);
        for (one, other, expected) in [
            ("23", "X", Karyotype::UNKNOWN),
            ("chr24", "Y", Karyotype::UNKNOWN),
            ("M", "26", Karyotype::UNKNOWN),
            ("25", "MT", Karyotype::UNKNOWN),
            ("23", "26", Karyotype::HUMAN),
            ("22", "X", Karyotype::HUMAN),
            ("2L", "X", Karyotype::HUMAN),
            ("23", "GL000192.1", Karyotype::HUMAN),
        ] {
            assert_eq!(Karyotype::from_contigs([(one, None), (other, None)]), expected, "{one} {other}");
        }
        // Contig 1 of GRCh37, GRCh38 and T2T, and of dog, cow and sheep.
        for (length, expected) in [
            (249_250_621, Karyotype::HUMAN),
            (248_956_422, Karyotype::HUMAN),
            (248_387_328, Karyotype::HUMAN),
            (122_678_785, Karyotype::UNKNOWN),
            (158_534_110, Karyotype::UNKNOWN),
            (275_612_895, Karyotype::UNKNOWN),
        ] {
            assert_eq!(Karyotype::from_contigs([("1", Some(length)), ("23", None)]), expected, "{length}");
        }
        assert_eq!(Karyotype::from_contigs([("26", Some(16_569))]), Karyotype::HUMAN);
        assert_eq!(Karyotype::from_contigs([("26", Some(44_000_000))]), Karyotype::UNKNOWN);
    }

    #[test]
    fn runs_of_variants() {
        let variants = |contigs: &[(&str, u64)]| {
            let variants =
                contigs.iter().map(|&(contig, position)| variant(contig, position, ".", ["A", "C"]));
            variants.collect::<Vec<_>>()
        };
        let read = |sources: [&[(&str, u64)]; 2]| {
            let [first, second] = sources.map(variants);
            ContigRuns::read(&[&first, &second], &Cancel::default()).unwrap()
        };
        let human = read([&[("1", 5), ("1", 9), ("26", 16_000), ("1", 1)], &[("1", 7)]]);
        assert_eq!(human.names(), ["1".into(), "26".into()]);
        assert!(human.runs().eq([(0, 0..2), (1, 2..3), (0, 3..4), (0, 4..5)]));
        assert_eq!(human.karyotype(), Karyotype::HUMAN);
        for other in [("27", 5), ("26", 44_000_000)] {
            assert_eq!(read([&[other], &[("1", 7)]]).karyotype(), Karyotype::UNKNOWN, "{other:?}");
        }
    }
}
