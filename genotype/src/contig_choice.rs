//! A choice of contigs by their names.

use std::ops::RangeInclusive;

use crate::contig::{ContigClass, ContigRuns, Karyotype};

/// A choice of contigs: the autosomes, or those of a list.
///
/// Names are compared as [`Karyotype::normalized`] makes them: `chr1` and `1` are one contig.
///
/// ```
/// use teatime_genotype::{ContigChoice, Karyotype};
///
/// let choice = ContigChoice::listed("1-3,X", Karyotype::HUMAN)?;
/// assert!(choice.takes("chr2") && choice.takes("23") && !choice.takes("4"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
pub struct ContigChoice {
    karyotype: Karyotype,
    /// True if the autosomes are chosen, whatever is listed.
    autosomes: bool,
    /// The listed names, normalised.
    names: Vec<String>,
    /// The listed ranges of PLINK's numbers.
    numbers: Vec<RangeInclusive<u32>>,
}

impl ContigChoice {
    /// Chooses the autosomes, without sex chromosomes, mitochondria, unplaced variants and contigs of other names: plink2's `--autosome`.
    pub const fn autosomes(karyotype: Karyotype) -> Self {
        Self { karyotype, autosomes: true, names: Vec::new(), numbers: Vec::new() }
    }

    /// Chooses the contigs of a list, such as `1-22,X`: names, and ranges of PLINK's numbers, as in plink2's `--chr`.
    ///
    /// # Errors
    /// The reason why the text is no list: a name is missing, or a range ends before it starts.
    pub fn listed(text: &str, karyotype: Karyotype) -> Result<Self, String> {
        let mut choice = Self { autosomes: false, ..Self::autosomes(karyotype) };
        let numbered = |name: &str| {
            let (name, class) = karyotype.normalized(name.trim());
            karyotype.number(&name, class)
        };
        for item in text.split(',').map(str::trim) {
            // The hyphen may be part of a name.
            let ends = item.split_once('-').map(|(first, last)| (numbered(first), numbered(last)));
            match ends {
                Some((Some(first), Some(last))) if first <= last => choice.numbers.push(first..=last),
                Some((Some(_), Some(_))) => {
                    return Err(format!("the range `{item}` ends before it starts"));
                }
                _ if item.is_empty() => return Err("a name is missing".into()),
                _ => choice.names.push(karyotype.normalized(item).0),
            }
        }
        Ok(choice)
    }

    /// Returns true if a contig of this name is chosen.
    pub fn takes(&self, name: &str) -> bool {
        let (name, class) = self.karyotype.normalized(name);
        if self.autosomes {
            return matches!(class, ContigClass::Autosome(_));
        }
        let within = |number| self.numbers.iter().any(|range| range.contains(&number));
        self.names.contains(&name) || self.karyotype.number(&name, class).is_some_and(within)
    }

    /// Returns the listed names, normalised, that no contig has. Ranges are not among them. Compares each name with each contig.
    pub fn absent(&self, runs: &ContigRuns) -> Vec<String> {
        let contigs: Vec<_> = runs.names().iter().map(|name| self.karyotype.normalized(name).0).collect();
        self.names.iter().filter(|name| !contigs.contains(name)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use teatime::Cancel;

    use super::*;
    use crate::tests::variant;

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
            let choice = ContigChoice::listed(text, karyotype).unwrap();
            yes.split(' ').for_each(|name| assert!(choice.takes(name), "{text}: {name}"));
            no.split(' ').for_each(|name| assert!(!choice.takes(name), "{text}: {name}"));
        }
        let refused = |text| ContigChoice::listed(text, Karyotype::HUMAN).unwrap_err();
        assert!(refused("22-1").contains("ends before it starts"));
        for text in ["", "1,,2", "1,"] {
            assert!(refused(text).contains("missing"), "{text}");
        }
        for (name, expected) in [("chr22", true), ("01", true), ("23", false), ("2L", false), ("0", false)] {
            assert_eq!(ContigChoice::autosomes(Karyotype::HUMAN).takes(name), expected, "{name}");
        }
    }

    #[test]
    fn rows_of_contigs() {
        let names = ["1", "chr2", "2", "X", "3", "1"];
        let source = names.map(|contig| variant(contig, 1, ".", ["A", "C"])).to_vec();
        let runs = ContigRuns::read(&[&source], &Cancel::default()).unwrap();
        let choice = ContigChoice::listed("1,chr2,7,chr9", runs.karyotype()).unwrap();
        assert_eq!(runs.rows(|name| choice.takes(name)), [0..3, 5..6]);
        assert_eq!(choice.absent(&runs), ["7", "9"]);
        let autosomes = ContigChoice::autosomes(runs.karyotype());
        assert_eq!(runs.rows(|name| autosomes.takes(name)), [0..3, 4..6]);
    }
}
