//! Names of contigs, interpreted as PLINK interprets those of chromosomes.

use serde::Serialize;
use teatime::stable_text::StableText;

/// The kind of a contig, determined by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// An autosome, with its number from 1.
    Autosome(u8),
    X,
    Y,
    /// The regions that X and Y share: PLINK's `XY`, `PAR1` and `PAR2`.
    Pseudoautosomal,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Karyotype(pub(crate) Option<u8>);

impl StableText for Karyotype {
    fn stable_text(&self) -> String {
        format!("Karyotype({})", self.0.stable_text())
    }
}

impl Karyotype {
    pub(crate) const HUMAN: Self = Self(Some(22));
    pub(crate) const UNKNOWN: Self = Self(None);

    /// Returns the human karyotype unless the contigs of a store are not human. They are not if a number is above 26; if a number from 23 to 26
    /// occurs together with X, Y, XY or MT, since writers use one or the other; or if the length of contig 1 or 26, or a position on 26, is not
    /// possible in humans.
    pub(crate) fn from_contigs<'a>(contigs: impl IntoIterator<Item = (&'a str, Option<u64>)>) -> Self {
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
    pub(crate) fn normalized(self, name: &str) -> (String, Class) {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("CHR").filter(|rest| !rest.is_empty()).unwrap_or(&upper);
        let short = if bare.len() == 2 { bare.strip_prefix('0').unwrap_or(bare) } else { bare };
        let beyond =
            self.0.zip(digits(short)).map(|(autosomes, number)| number.saturating_sub(autosomes.into()));
        let (name, class) = match (short, beyond) {
            ("0", _) => ("0", Class::Unplaced),
            ("X", _) | (_, Some(1)) => ("X", Class::X),
            ("Y", _) | (_, Some(2)) => ("Y", Class::Y),
            ("XY", _) | (_, Some(3)) => ("XY", Class::Pseudoautosomal),
            ("PAR1" | "PAR2", _) => (short, Class::Pseudoautosomal),
            ("M" | "MT", _) | (_, Some(4)) => ("MT", Class::Mitochondrial),
            (_, Some(0)) => (short, short.parse().map_or(Class::Other, Class::Autosome)),
            _ if digits(short).is_some() => (short, Class::Other),
            _ => (bare, Class::Other),
        };
        (name.to_owned(), class)
    }

    /// Returns PLINK's number of a contig, if it has one.
    pub(crate) fn number(self, name: &str, class: Class) -> Option<u32> {
        let beyond = match class {
            Class::Autosome(number) => return Some(number.into()),
            Class::Unplaced => return Some(0),
            Class::Other => return digits(name),
            Class::X => 1,
            Class::Y => 2,
            Class::Pseudoautosomal if name == "XY" => 3,
            Class::Pseudoautosomal => return None,
            Class::Mitochondrial => 4,
        };
        self.0.map(|autosomes| u32::from(autosomes) + beyond)
    }
}

/// Parses a number of at least 1 that has no sign or leading zeros (unlike `+1` and `01`).
pub(crate) fn digits(name: &str) -> Option<u32> {
    let is_plain = name.bytes().all(|c| c.is_ascii_digit()) && !name.starts_with('0');
    name.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_contig_are_alike() {
        let (human, dog, unknown) = (Karyotype::HUMAN, Karyotype(Some(38)), Karyotype::UNKNOWN);
        for (karyotype, names, expected, class) in [
            (human, "1 chr1 CHR1 Chr1 01 chr01", "1", Class::Autosome(1)),
            (human, "22 chr22", "22", Class::Autosome(22)),
            (human, "X x chrX chrx 23 chr23 0X", "X", Class::X),
            (human, "Y chrY 24 0y", "Y", Class::Y),
            (human, "XY xy chrXY 25", "XY", Class::Pseudoautosomal),
            (human, "PAR1 chrPAR1 par1", "PAR1", Class::Pseudoautosomal),
            (human, "PAR2", "PAR2", Class::Pseudoautosomal),
            (human, "M MT chrM chrMT mt 26 0M", "MT", Class::Mitochondrial),
            (human, "0 00 chr0", "0", Class::Unplaced),
            (human, "2L chr2L 2l", "2L", Class::Other),
            (human, "chr1_KI270706v1_random", "1_KI270706V1_RANDOM", Class::Other),
            (dog, "38", "38", Class::Autosome(38)),
            (dog, "chr23", "23", Class::Autosome(23)),
            (dog, "39 x", "X", Class::X),
            (dog, "40", "Y", Class::Y),
            (dog, "41", "XY", Class::Pseudoautosomal),
            (dog, "42", "MT", Class::Mitochondrial),
            (dog, "43", "43", Class::Other),
            (dog, "0", "0", Class::Unplaced),
            (unknown, "01", "1", Class::Other),
            (unknown, "chr23", "23", Class::Other),
            (unknown, "26", "26", Class::Other),
            (unknown, "M", "MT", Class::Mitochondrial),
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
            assert_eq!(Karyotype::HUMAN.normalized(name), (name.to_owned(), Class::Other), "{name}");
        }
        // Other names of nothing else.
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
        assert_eq!(Karyotype::from_contigs([("chr1", None), ("chr29", None)]), Karyotype::UNKNOWN);
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
        // GRCh37, GRCh38 and T2T; dog, cow and sheep.
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
}
