//! Tests of the matching of genotypes' variants with the variants of a reference.

use teatime::openings;

use super::*;
use crate::{
    PcaOptions, ProjectMethod,
    bed::BedFile,
    project,
    tests::{self, Fit, assert_refused, fit, fixture, memory, table},
};

/// A contig, a position, the alleles that are not counted, and the counted ones.
type Site<'a> = (&'a str, u64, &'a str, &'a str);

fn run(by: MatchBy, rows: &[(&str, Site)], variants: &[(&str, Site)]) -> (Vec<Option<Match>>, MatchCounts) {
    carrying(by, rows, variants, &[])
}

/// Returns an index of sites, each with its id.
fn indexed(by: MatchBy, rows: &[(&str, Site)]) -> VariantIndex {
    let mut index = VariantIndex::new(by);
    for (id, (contig, position, other, counted)) in rows {
        index.push((contig, *position, id), other, counted).unwrap();
    }
    index
}

fn variant(id: &str, (contig, position, reference, alternate): Site) -> Variant {
    tests::variant(contig, position, id, [reference, alternate])
}

/// Matches variants. A variant with alternate alleles beyond the reference's carries `carried`, or all alleles if `carried` is empty.
fn carrying(
    by: MatchBy,
    rows: &[(&str, Site)],
    variants: &[(&str, Site)],
    carried: &[u128],
) -> (Vec<Option<Match>>, MatchCounts) {
    let index = indexed(by, rows);
    let mut matching = Matching::new(&index, index.karyotype_with(Karyotype::HUMAN));
    for (row, (id, site)) in (0..).zip(variants) {
        let variant = variant(id, *site);
        matching.add(row, &variant, [&variant.reference, &variant.alternate]);
    }
    let all = vec![u128::MAX; matching.several.len()];
    matching.find_carried(if carried.is_empty() { &all } else { carried });
    let VariantMatches { matches, counts, .. } = matching.finish();
    let ReferenceCounts { used, absent, other_alleles, repeated, ambiguous, nowhere, doubled_id, .. } =
        counts.reference;
    let all = used + absent + other_alleles + repeated + ambiguous + nowhere + doubled_id;
    assert_eq!((counts.reference.variants, all), (rows.len() as u64, rows.len() as u64), "{counts:?}");
    assert_eq!(used, matches.iter().flatten().count() as u64);
    (matches, counts)
}

/// Formats the nonzero counts of the reference and of the genotypes.
fn told(counts: &MatchCounts) -> String {
    [format!("{:?}", counts.reference), format!("{:?}", counts.genotypes)]
        .map(|counts| {
            let (_, fields) = counts.trim_end_matches(" }").split_once("{ ").unwrap();
            let fields = fields.split(", ").filter_map(|field| field.split_once(": "));
            fields
                .filter(|(_, n)| *n != "0")
                .map(|(name, n)| format!("{n} {name}"))
                .collect::<Vec<_>>()
                .join(", ")
        })
        .join("; ")
}

fn by_position<'a>(rows: &[Site<'a>], variants: &[Site<'a>]) -> (Vec<Option<Match>>, MatchCounts) {
    let [rows, variants] =
        [rows, variants].map(|all| all.iter().map(|site| (".", *site)).collect::<Vec<_>>());
    run(MatchBy::Position, &rows, &variants)
}

const SAME: fn(u32) -> Option<Match> = |row| Some(Match::Same(row));
const SWAPPED: fn(u32) -> Option<Match> = |row| Some(Match::Swapped(row));

#[test]
fn by_place_and_alleles() {
    let rows = [
        ("2", 10, "A", "C"),
        ("1", 10, "A", "C"),
        ("1", 5, "G", "T"),
        ("1", 5, "G", "A"),
        ("1", 7, "A", "T,C"),
        ("1", 9, "AT", "A"),
        ("1", 99, "A", "C"),
    ];
    let cases = [
        (("1", 5, "G", "A"), SAME(3)),
        (("1", 5, "T", "G"), SWAPPED(2)),
        (("1", 7, "a", "c,t"), SAME(4)),
        (("1", 9, "A", "AT"), SWAPPED(5)),
        (("1", 10, "T", "G"), None),
        (("2", 10, "A", "C"), SAME(0)),
        (("2", 10, "C", "A"), None),
        (("3", 10, "A", "C"), None),
        (("1", 11, "A", "C"), None),
    ];
    let (found, counts) = by_position(&rows, &cases.map(|(variant, _)| variant));
    assert_eq!(found, cases.map(|(_, expected)| expected));
    let expected = "7 variants, 5 used, 2 swapped, 1 absent, 1 other_alleles; 9 variants, 3 not_in_reference, 1 repeated";
    assert_eq!(told(&counts), expected);
    assert!((counts.mismatch(0) - 2.0 / 7.0).abs() < 1e-15);
    assert!((counts.mismatch(1) - 1.0 / 6.0).abs() < 1e-15);
}

#[test]
fn absent_variants_are_of_contigs_that_the_genotypes_have() {
    let rows = [
        ("c", ("2", 10, "A", "C")),
        ("x", ("1", 30, "A", "C")),
        ("x", ("1", 30, "A", "C")),
        ("o", ("1", 20, "A", "C")),
        ("s", ("1", 5, "A", "C")),
        ("f", ("1", 10, "A", "C")),
        // The genotypes have no variant on this contig, and nobody knows the place of the other.
        ("n", ("3", 10, "A", "C")),
        ("u", ("0", 0, "A", "C")),
    ];
    let source: Vec<_> =
        [("chr1", 20, "A", "G"), ("chr1", 5, "A", "C"), ("2", 7, "A", "C"), ("0", 0, "A", "C")]
            .map(|site| variant(".", site))
            .into();
    let genotypes = memory(&[0i8; 4], &[4, 1], &[4, 1]);
    let (device, run) = (Device::cpu(), Run::default());
    for (by, expected, absent) in [(MatchBy::Position, &[0, 1, 5][..], 4), (MatchBy::Id, &[], 6)] {
        let found = indexed(by, &rows).matches(&genotypes, &[&source], None, &device, &run).unwrap();
        assert_eq!((&found.absent[..], found.counts.reference.absent), (expected, absent), "{by:?}");
    }
}

#[test]
fn known_alleles_tell_which_way_round() {
    for (row, variant, expected) in [
        // No sample carries the other allele, so its name is ALT `.`, or A1 `0` of a .bim.
        (("A", "C"), ("A", "."), SAME(0)),
        (("A", "C"), ("C", "."), SWAPPED(0)),
        (("A", "C"), (".", "C"), SAME(0)),
        (("A", "C"), (".", "a"), SWAPPED(0)),
        // The known allele is the longer of the row's two.
        (("AT", "A"), ("AT", "."), SAME(0)),
        (("AT", "A"), (".", "AT"), SWAPPED(0)),
        (("A", "AT"), ("AT", "."), SWAPPED(0)),
        (("A", "TA,C"), ("TA", "."), SWAPPED(0)),
        (("AT", "GC"), ("GC", "."), SWAPPED(0)),
        // The known allele is as long as every allele of the other side.
        (("A", "C,AT"), ("C", "."), SWAPPED(0)),
        (("A", "C"), ("", "C"), SAME(0)),
        (("A", "C"), ("G", "."), None),
        // Strands are taken as they are.
        (("A", "C"), ("T", "G"), None),
        (("A", "C"), (".", "T"), None),
        // The variant names one of several alternate alleles.
        (("A", "T,C"), ("A", "C"), SAME(0)),
        (("A", "T,C"), ("T", "A"), SWAPPED(0)),
        (("A", "T,C"), ("T", "."), SWAPPED(0)),
        (("A", "T,C"), ("A", "."), SAME(0)),
        // Both of the variant's alleles are counted ones in the row, so neither orientation fits.
        (("A", "T,C"), ("T", "C"), None),
        // If they matched, copies of C would count as copies of T.
        (("A", "T"), ("A", "T,C"), None),
        // An unknown allele equals no other allele.
        (("A", "C"), (".", "."), None),
        ((".", "."), ("A", "C"), None),
        (("A", "."), ("A", "C"), None),
        (("A", "."), ("A", "."), SAME(0)),
        (("A", "."), (".", "A"), SWAPPED(0)),
    ] {
        let site = |(other, counted)| ("1", 5, other, counted);
        let (found, counts) = by_position(&[site(row)], &[site(variant)]);
        assert_eq!(found, [expected], "{row:?} {variant:?}");
        let fewer = !row.1.contains('.') && expected.is_some();
        assert_eq!(counts.reference.fewer_alleles, u64::from(fewer), "{row:?} {variant:?}");
        assert_eq!(counts.reference.alleles_unknown, 0);
        let (other, not) = (counts.reference.other_alleles, counts.genotypes.not_in_reference);
        assert_eq!((other, not), (u64::from(expected.is_none()), u64::from(expected.is_none())));
    }
}

#[test]
fn alleles_that_nobody_carries_drop_nothing() {
    for (rows, variant, carried, expected) in [
        (&[("A", "C")][..], ("A", "C,T"), 0b011, SAME(0)),
        (&[("A", "C")], ("A", "T,C"), 0b101, SAME(0)),
        (&[("A", "C")], ("a", "c,t"), 0b001, SAME(0)),
        (&[("C", "A")], ("A", "C,T"), 0b010, SWAPPED(0)),
        (&[("A", "C")], ("A", "C,T"), 0b111, None),
        (&[("A", "C")], ("A", "C,T"), 0b100, None),
        // The reference has these names for both alleles.
        (&[("A", "C,T")], ("A", "C,T"), 0b011, SAME(0)),
        (&[("A", "C,T")], ("A", "C,T,G"), 0b011, SAME(0)),
        (&[("A", "C,T"), ("A", "C")], ("A", "C,T,G"), 0b011, SAME(1)),
        (&[("AC", "CT")], ("AC", "C,T"), 0b001, SAME(0)),
        (&[("A", "C"), ("A", "T")], ("A", "C,T"), 0b011, SAME(0)),
        (&[("A", "C"), ("A", "T")], ("A", "C,T"), 0b101, SAME(1)),
        (&[("A", "C"), ("A", "T")], ("A", "C,T"), 0b111, None),
        // The name of an indel tells what its first base alone would not.
        (&[("A", "AT")], ("A", "AT,ATT"), 0b001, SAME(0)),
        (&[("AT", "A")], ("AT", "A,<*>"), 0b001, SAME(0)),
    ] {
        let site = |(other, counted)| ("rs", ("1", 5, other, counted));
        let rows: Vec<_> = rows.iter().map(|row| site(*row)).collect();
        let (found, counts) = carrying(MatchBy::Position, &rows, &[site(variant)], &[carried]);
        assert_eq!(found, [expected], "{rows:?} {variant:?} {carried:b}");
        if let ([_], true) = (&rows[..], expected.is_some()) {
            let (found, _) = carrying(MatchBy::Id, &rows, &[site(variant)], &[carried]);
            assert_eq!(found, [expected], "{rows:?} {variant:?} {carried:b} by id");
        } else {
            assert_eq!(counts.reference.used, u64::from(expected.is_some()));
        }
    }
}

#[test]
fn a_base_alone_is_no_insertion_or_deletion() {
    // An all-sites VCF names the base before an indel `A` and `.` even if samples may carry either allele; a .bed names it `0` and `A`.
    let rows = [("AT", "A"), ("A", "AT"), ("A", "C,AT"), ("AT", "A,ATT"), ("A", "<DEL>"), ("ATT", "AT")];
    for row in rows {
        let known = if row.0 == "ATT" { "AT" } else { "A" };
        for variant in [(known, "."), (".", known), ("", known)] {
            let site = |(other, counted)| ("1", 5, other, counted);
            let (rows, variants) = ([site(row)], [site(variant)]);
            let (found, counts) = by_position(&rows, &variants);
            assert_eq!(found, [None], "{row:?} {variant:?}");
            assert_eq!(told(&counts), "1 variants, 1 ambiguous; 1 variants, 1 ambiguous");
            let (found, counts) = run(MatchBy::Id, &[("rs", rows[0])], &[("rs", variants[0])]);
            assert_eq!((found, counts.genotypes.ambiguous), (vec![None], 1));
            // A variant whose id occurs twice is counted as doubled only.
            let (_, counts) = run(MatchBy::Id, &[("rs", rows[0])], &[("rs", variants[0]); 2]);
            assert_eq!((counts.genotypes.doubled_id, counts.genotypes.ambiguous), (2, 0));
        }
    }
    // If another variant names both alleles, the reference matches that variant.
    let deletion = ("1", 5, "AT", "A");
    for (variants, expected) in [
        ([deletion, ("1", 5, "A", ".")], [SAME(0), None]),
        ([("1", 5, "A", "."), ("1", 5, "A", "AT")], [None, SWAPPED(0)]),
    ] {
        let (found, counts) = by_position(&[deletion], &variants);
        assert_eq!(found, expected);
        assert_eq!((counts.reference.ambiguous, counts.genotypes.ambiguous), (0, 1));
    }
    // The base alone does not tell which of several variants it is.
    let (found, counts) = by_position(&[deletion, ("1", 5, "A", "C")], &[("1", 5, "A", ".")]);
    assert_eq!((found, counts.reference.ambiguous), (vec![None], 2));
}

#[test]
fn what_could_be_several_is_none() {
    let split = [("1", 5, "A", "T"), ("1", 5, "A", "C"), ("1", 6, "A", "T")];
    let (found, counts) = by_position(&split, &[("1", 5, "A", "."), ("1", 6, "A", ".")]);
    assert_eq!(found, [None, SAME(2)]);
    assert_eq!((counts.reference.ambiguous, counts.genotypes.ambiguous), (2, 1));
    // A variant with the same alleles is matched first, whatever the order of the variants.
    for variants in [[("1", 5, "A", "T"), ("1", 5, "C", ".")], [("1", 5, "C", "."), ("1", 5, "A", "T")]] {
        let (found, counts) = by_position(&split, &variants);
        let expected = variants.map(|variant| if variant.2 == "A" { SAME(0) } else { SWAPPED(1) });
        assert_eq!(found, expected);
        assert_eq!((counts.reference.ambiguous, counts.reference.absent), (0, 1));
        let (found, counts) = by_position(&split[..1], &variants);
        assert_eq!(found.iter().flatten().count(), 1);
        assert_eq!(counts.genotypes.not_in_reference, 1);
    }
    let known_first = [("1", 5, "A", "."), ("1", 5, "A", "T")];
    let (found, counts) = by_position(&split[..1], &known_first);
    assert_eq!((found, counts.genotypes.repeated), (vec![None, SAME(0)], 1));
    // Two variants of the genotypes (T and C) fit a single variant of the reference.
    let (found, counts) = by_position(&[("1", 5, "A", "T,C")], &[("1", 5, "A", "T"), ("1", 5, "A", "C")]);
    assert_eq!(found, [None, None]);
    assert_eq!((counts.reference.ambiguous, counts.genotypes.ambiguous), (1, 2));
    // Two equal variants, as of two probes, match different variants of the reference.
    let twice = [("1", 5, "A", "."), ("1", 5, "A", ".")];
    let (found, counts) = by_position(&split[..1], &twice);
    assert_eq!((found, counts.genotypes.repeated), (vec![SAME(0), None], 1));
    let (found, _) = by_position(&[split[0], split[0]], &twice);
    assert_eq!(found, [SAME(0), SAME(1)]);
}

#[test]
fn repeats_pair_up_in_order() {
    let rows = [("1", 5, "A", "C"), ("1", 5, "C", "A"), ("1", 5, "A", "C"), ("1", 6, "A", "C")];
    let variants = [("A", "C"), ("C", "A"), ("A", "C"), ("A", "C")];
    let (found, counts) = by_position(&rows, &variants.map(|(other, counted)| ("1", 5, other, counted)));
    assert_eq!(found, [SAME(0), SAME(1), SAME(2), None]);
    assert_eq!((counts.reference.used, counts.reference.absent, counts.genotypes.repeated), (3, 1, 1));

    let (found, counts) = by_position(&[rows[0], rows[0]], &[("1", 5, "C", "A")]);
    assert_eq!(found, [SWAPPED(0)]);
    assert_eq!((counts.reference.used, counts.reference.repeated), (1, 1));
}

#[test]
fn places_without_alleles_are_ambiguous_if_repeated() {
    let site = |position| (".", position, ".", ".");
    let (found, counts) = by_position(&[site(0), site(1)], &[site(0), site(1), site(0)]);
    assert_eq!(found, [SAME(0), SAME(1), None]);
    assert_eq!((counts.reference.alleles_unknown, counts.unknown_repeated), (2, 1));
}

#[test]
fn what_has_no_place_matches_nothing() {
    let rows = [("0", 0, "A", "C"), ("0", 7, "A", "C"), ("1", 0, "A", "C"), ("1", 7, "A", "C")];
    let (found, counts) = by_position(&rows, &[rows[3], rows[2], ("chr0", 7, "A", "C"), rows[0]]);
    assert_eq!(found, [SAME(3), None, None, None]);
    assert_eq!((counts.reference.nowhere, counts.genotypes.nowhere), (3, 3));
    assert_eq!(told(&counts), "4 variants, 1 used, 3 nowhere; 4 variants, 3 nowhere");
}

#[test]
fn names_of_a_contig() {
    let rows = [("1", 5, "A", "C"), ("chrX", 5, "A", "C"), ("M", 5, "A", "C"), ("23", 5, "A", "C")];
    let of = |rows: &[Site], name| by_position(rows, &[(name, 5, "A", "C")]).0[0];
    // In a human, 23 is X and 26 is MT. If contigs 23 and X both exist, they stay distinct.
    for (name, human, other) in [
        ("chr1", Some(0), Some(0)),
        ("01", Some(0), Some(0)),
        ("X", Some(1), Some(1)),
        ("chrX", Some(1), Some(1)),
        ("23", Some(1), Some(3)),
        ("chr23", Some(1), Some(3)),
        ("chrMT", Some(2), Some(2)),
        ("26", Some(2), None),
    ] {
        let expected = [human, other].map(|row| row.map(Match::Same));
        assert_eq!([of(&rows[..3], name), of(&rows, name)], expected, "{name}");
    }
    // Either of two contigs could be the same.
    assert_eq!(of(&[rows[0], ("chr1", 5, "A", "C")], "01"), None);
    let on = |name| (name, 5, "A", "C");
    for (rows, variants, used, contigs) in [
        (&rows[..1], &[on("2")][..], 0, Some(("1".into(), "2".into()))),
        (&[on("0"), rows[0]], &[on("2")], 0, Some(("1".into(), "2".into()))),
        (&rows[..1], &[on("2"), on("1")], 1, None),
        (&rows[..1], &[("1", 6, "A", "C")], 0, None),
    ] {
        let (_, counts) = by_position(rows, variants);
        assert_eq!((counts.reference.used, counts.contigs), (used, contigs), "{rows:?} {variants:?}");
    }
}

#[test]
fn by_id_and_alleles() {
    let rows = [
        ("rs1", ("1", 5, "A", "C")),
        ("rs2", ("1", 5, "A", "C")),
        ("rs3", ("1", 7, "A", "C")),
        ("rs4", ("1", 8, "A", "C")),
        (".", ("1", 9, "A", "C")),
        (".", ("1", 9, "A", "C")),
        ("rs6", ("1", 10, "A", "C")),
        ("rs6", ("1", 11, "A", "G")),
        ("rs7", ("0", 0, "A", "C")),
        ("rs8", ("1", 12, "A", "C")),
        ("rs9", ("1", 13, "A", "C")),
    ];
    let variants = [
        ("rs2", ("chr9", 1, "C", "A")),
        ("rs1", ("chr9", 2, "A", "C")),
        ("rs3", ("1", 7, "A", "C")),
        ("rs3", ("1", 7, "A", "T")),
        ("rs4", ("1", 8, "A", "T")),
        (".", ("1", 9, "A", "C")),
        ("", ("1", 9, "A", "C")),
        ("rs6", ("1", 10, "A", "C")),
        ("rs7", ("1", 0, "A", ".")),
        ("RS8", ("1", 12, "A", "C")),
        ("new", ("1", 13, "A", "C")),
    ];
    let (found, counts) = run(MatchBy::Id, &rows, &variants);
    let mut expected = vec![None; variants.len()];
    (expected[0], expected[1], expected[8]) = (SWAPPED(1), SAME(0), SAME(8));
    assert_eq!((found, counts.by), (expected, MatchBy::Id));
    let of_reference =
        "11 variants, 3 used, 1 swapped, 1 fewer_alleles, 2 absent, 1 other_alleles, 2 nowhere, 3 doubled_id";
    let of_genotypes = "11 variants, 3 not_in_reference, 2 nowhere, 3 doubled_id";
    assert_eq!(told(&counts), format!("{of_reference}; {of_genotypes}"));
}

/// The alleles that samples carry are read from their calls; what a selection leaves out is not matched.
#[test]
fn genotypes_are_matched_with_what_their_sources_name() {
    let (device, run) = (Device::cpu(), Run::default());
    let sites = [("1", 5, "A", "C"), ("1", 6, "G", "T"), ("1", 7, "C", "T"), ("1", 8, "A", "G")];
    let named: Vec<_> = sites.map(|site| ("rs", site)).to_vec();
    let index = indexed(MatchBy::Position, &named);
    // The first two variants name an allele that only the second carries.
    let new =
        [("1", 5, "A", "C,T"), ("1", 6, "G", "T,C"), ("1", 7, "C", "T")].map(|site| variant("rs", site));
    let genotypes = memory(&[0i8, 1, 0, 0, 0, 2, 1, 1, 0, 1, 0, 0, 0, 0, 1, 1], &[4, 2, 2], &[1, 2, 2]);
    let (first, last) = (new.to_vec(), vec![variant("rs", ("chr1", 8, "G", "A"))]);
    let sources: [&dyn VariantSource; 2] = [&first, &last];
    let matches = |genotypes: &Genotypes| index.matches(genotypes, &sources, None, &device, &run);
    let found = matches(&genotypes).unwrap();
    assert_eq!(found.matches, [SAME(0), None, SAME(2), SWAPPED(3)]);
    let some = genotypes.clone().select([0..1, 3..4]).unwrap();
    assert_eq!(matches(&some).unwrap().matches, [SAME(0), SWAPPED(3)]);
    // Copies of the reference are counted.
    let of_reference = genotypes.clone().count_allele(0).unwrap();
    assert_eq!(matches(&of_reference).unwrap().matches[2..], [SWAPPED(2), SAME(3)]);
    let own = VariantIndex::of_genotypes(MatchBy::Position, &of_reference, &sources, &run).unwrap();
    let found = own.matches(&genotypes, &sources, None, &device, &run).unwrap();
    assert_eq!(found.counts.reference.swapped, 4);

    assert_refused(matches(&genotypes.count_allele(2).unwrap()), &["genotypes", "copies of allele 2"]);
    let one = memory(&[0i8, 1], &[2, 1], &[2, 1]);
    assert_refused(matches(&one), &["sources", "name 4 variants", "have 2"]);
    // Dosages may count any of the alleles; nobody's calls show which.
    let found = index.matches(&one, &[&new[..2].to_vec()], None, &device, &run).unwrap();
    assert_eq!(found.matches, [None, None]);
    let (x, other) = (indexed(MatchBy::Position, &[("rs", ("X", 5, "A", "C"))]), ("23", 5, "A", "C"));
    for (karyotype, expected) in
        [(None, SAME(0)), (Some(Karyotype::HUMAN), SAME(0)), (Some(Karyotype::UNKNOWN), None)]
    {
        let (haploid, source) = (memory(&[0i8], &[1, 1], &[1, 1]), vec![variant("rs", other)]);
        let found = x.matches(&haploid, &[&source], karyotype, &device, &run).unwrap();
        assert_eq!(found.matches, [expected], "{karyotype:?}");
    }
}

/// Variants whose positions cannot be read.
#[derive(Debug)]
struct Nowhere(Vec<Variant>);

impl VariantSource for Nowhere {
    fn n_variants(&self) -> u64 {
        self.0.len() as u64
    }

    fn variants(&self, _: std::ops::Range<u64>) -> Result<Vec<Variant>> {
        panic!("nobody asked for ids alone")
    }

    fn variants_without_positions(&self, range: std::ops::Range<u64>) -> Result<Vec<Variant>> {
        self.0.variants(range)
    }

    fn contigs(&self, _: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        panic!("ids are on no contig")
    }
}

#[test]
fn ids_need_no_positions_and_progress_is_told() {
    let source = Nowhere((0..5000).map(|id| variant(&id.to_string(), (".", 0, "A", "C"))).collect());
    let genotypes = memory(&[0i8; 5000], &[5000, 1], &[5000, 1]);
    let ((run, statuses), device) = (openings::told(|_| false), Device::cpu());
    let index = VariantIndex::of_genotypes(MatchBy::Id, &genotypes, &[&source], &run).unwrap();
    let found = index.matches(&genotypes, &[&source], None, &device, &run).unwrap();
    assert_eq!(found.matches, (0..5000).map(SAME).collect::<Vec<_>>());
    assert!(statuses.lock().unwrap().iter().map(|status| status.rows).eq([4096, 5000, 4096, 5000]));
}

/// plink 1.9 leaves out names of alleles that no new sample carries. Scores are another tool's, whichever alleles are counted.
#[test]
fn new_samples_of_plink_get_the_scores_that_another_tool_gives() {
    let (device, run) = (Device::cpu(), Run::default());
    let [reference, new] =
        ["reference", "new"].map(|name| BedFile::open(fixture(&format!("hapmap/{name}.bed"))).unwrap());
    let expected = table("hapmap/scores.tsv", 1).concat();
    let options = PcaOptions::default().components(4);
    for [allele, of_new] in [[1, 1], [1, 0], [0, 1]] {
        let known = reference.genotypes().unwrap().count_allele(allele).unwrap();
        let Fit { reference: loaded, matches, .. } = fit(&known, &options);
        let rows = (0..).zip(matches).filter(|(_, found)| found.is_some()).map(|(row, _)| row..row + 1);
        let known = known.select(rows).unwrap();
        let index = VariantIndex::of_genotypes(MatchBy::Position, &known, &[&reference], &run).unwrap();
        let genotypes = new.genotypes().unwrap().count_allele(of_new).unwrap();
        let found = index.matches(&genotypes, &[&new], None, &device, &run).unwrap();
        let ReferenceCounts { used, fewer_alleles, .. } = found.counts.reference;
        assert_eq!((used, fewer_alleles, found.counts.genotypes.not_in_reference), (603, 98, 0));
        let scores =
            project(&genotypes, &device, &loaded, &found.matches, ProjectMethod::Mean, &run).unwrap().scores;
        assert_eq!(scores.data().len(), expected.len());
        for component in 0..4 {
            let pairs = || scores.data().iter().zip(&expected).skip(component).step_by(4);
            let sign = pairs().map(|(a, b)| a * b).sum::<f64>().signum();
            let largest = pairs().fold(0.0, |most: f64, (_, b)| most.max(b.abs()));
            assert!(pairs().all(|(a, b)| (a * sign - b).abs() <= 1e-5 * largest), "PC{}", component + 1);
        }
    }
}
