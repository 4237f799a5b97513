//! Names of contigs, as PLINK reads those of human chromosomes.

/// What a contig is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// 1 to 22.
    Autosome(u8),
    X,
    Y,
    /// What X and Y have in common: PLINK's `XY`, `PAR1` and `PAR2`.
    Pseudoautosomal,
    Mitochondrial,
    /// `0`, PLINK's name for variants whose place nobody knows.
    Unplaced,
    /// Every other name, `.` (no name) among them.
    Other,
}

/// A contig's normalised name, which is the same for all names of the contig, and its class.
///
/// The rules are those of plink2's `--chr`: neither an initial `chr` nor the case of letters counts, numbers and letters may be
/// filled up to two digits (`01`, `0X`), `M` is `MT`, and 23, 24, 25 and 26 are X, Y, XY and MT, as in human .bim files.
/// Names that plink2 does not know lose `chr` and become capitals: `chr2L` is `2L`, of the class `Other`. Of an animal that
/// has 23 autosomes and more, the first four of these have names of human sex chromosomes.
pub(crate) fn normalized(name: &str) -> (String, Class) {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("CHR").filter(|rest| !rest.is_empty()).unwrap_or(&upper);
    let short = if bare.len() == 2 { bare.strip_prefix('0').unwrap_or(bare) } else { bare };
    let (name, class) = match short {
        "0" => ("0", Class::Unplaced),
        "X" | "23" => ("X", Class::X),
        "Y" | "24" => ("Y", Class::Y),
        "XY" | "25" => ("XY", Class::Pseudoautosomal),
        "PAR1" | "PAR2" => (short, Class::Pseudoautosomal),
        "M" | "MT" | "26" => ("MT", Class::Mitochondrial),
        // `+1` is a number too, and no name of an autosome.
        _ => match short.parse() {
            Ok(number @ 1..=22) if short.starts_with(|c: char| c.is_ascii_digit() && c != '0') => {
                (short, Class::Autosome(number))
            }
            _ => (bare, Class::Other),
        },
    };
    (name.to_owned(), class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_contig_are_alike() {
        for (names, expected, class) in [
            (&["1", "chr1", "CHR1", "Chr1", "01", "chr01"][..], "1", Class::Autosome(1)),
            (&["22", "chr22"], "22", Class::Autosome(22)),
            (&["X", "x", "chrX", "chrx", "23", "chr23", "0X"], "X", Class::X),
            (&["Y", "chrY", "24", "0y"], "Y", Class::Y),
            (&["XY", "xy", "chrXY", "25"], "XY", Class::Pseudoautosomal),
            (&["PAR1", "chrPAR1", "par1"], "PAR1", Class::Pseudoautosomal),
            (&["PAR2"], "PAR2", Class::Pseudoautosomal),
            (&["M", "MT", "chrM", "chrMT", "mt", "26", "0M"], "MT", Class::Mitochondrial),
            (&["0", "00", "chr0"], "0", Class::Unplaced),
            (&["2L", "chr2L", "2l"], "2L", Class::Other),
            (&["chr1_KI270706v1_random"], "1_KI270706V1_RANDOM", Class::Other),
        ] {
            for name in names {
                assert_eq!(normalized(name), (expected.to_owned(), class), "{name}");
            }
        }
    }

    #[test]
    fn other_names_stay_apart() {
        for name in
            ["", ".", "CHR", "27", "29", "+1", "-1", "001", "1.5", "100", "X1", "MTX", "Å1", "染色体1"]
        {
            assert_eq!(normalized(name), (name.to_owned(), Class::Other), "{name}");
        }
        // Other names of nothing else.
        assert_ne!(normalized("0L").0, normalized("L").0);
    }
}
