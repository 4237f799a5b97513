//! Tests of the matching of the stores' variants with the variants of the loadings.

use super::*;

/// A contig, a position, the alleles that are not counted, and the counted ones.
type Site<'a> = (&'a str, u64, &'a str, &'a str);

fn run(by: MatchBy, rows: &[(&str, Site)], variants: &[(&str, Site)]) -> (Vec<Option<Match>>, Counts) {
    carrying(by, rows, variants, &[])
}

/// Matches variants. A variant with alternate alleles beyond the loadings' carries `carried`, or all alleles if `carried` is empty.
fn carrying(
    by: MatchBy,
    rows: &[(&str, Site)],
    variants: &[(&str, Site)],
    carried: &[u128],
) -> (Vec<Option<Match>>, Counts) {
    let mut index = Index::new(by, "the loadings");
    for (id, (contig, position, other, counted)) in rows {
        index.push((contig, *position, id), other, counted);
    }
    let karyotype = Karyotype::from_contigs(index.contigs().map(|name| (name, None)));
    let mut matching = Matching::new(index, karyotype);
    for (row, &(id, (contig, position, reference, alternate))) in (0..).zip(variants) {
        let [id, reference, alternate] = [id, reference, alternate].map(str::to_owned);
        matching.add(row, &Variant { contig: contig.into(), position, id, reference, alternate });
    }
    let all = vec![u128::MAX; matching.several.len()];
    matching.find_carried(if carried.is_empty() { &all } else { carried });
    let (matches, counts) = matching.finish();
    let LoadingsCounts { used, absent, other_alleles, repeated, ambiguous, nowhere, doubled_id, .. } =
        counts.loadings;
    let all = used + absent + other_alleles + repeated + ambiguous + nowhere + doubled_id;
    assert_eq!((counts.loadings.variants, all), (rows.len() as u64, rows.len() as u64), "{counts:?}");
    assert_eq!(used, matches.iter().flatten().count() as u64);
    (matches, counts)
}

/// Formats the nonzero counts of the loadings and of the stores.
fn told(counts: &Counts) -> String {
    let counts = serde_json::to_value(counts).unwrap();
    let of = |what: &str| {
        let counts = counts[what].as_object().unwrap().iter().filter(|(_, n)| **n != 0);
        counts.map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
    };
    format!("{}; {}", of("loadings"), of("stores"))
}

fn by_position<'a>(rows: &[Site<'a>], variants: &[Site<'a>]) -> (Vec<Option<Match>>, Counts) {
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
    let expected =
        "7 variants, 5 used, 2 swapped, 1 absent, 1 other_alleles; 9 variants, 3 not_in_loadings, 1 repeated";
    assert_eq!(told(&counts), expected);
    assert!((counts.mismatch() - 2.0 / 7.0).abs() < 1e-15);
    assert_eq!(counts.reasons(), "1 not in the stores, 1 there with other alleles or none");
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
        assert_eq!(counts.loadings.fewer_alleles, u64::from(fewer), "{row:?} {variant:?}");
        assert_eq!(counts.loadings.alleles_unknown, 0);
        let (other, not) = (counts.loadings.other_alleles, counts.stores.not_in_loadings);
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
        // The loadings have these names for both alleles.
        (&[("A", "C,T")], ("A", "C,T"), 0b011, SAME(0)),
        (&[("A", "C,T")], ("A", "C,T,G"), 0b011, SAME(0)),
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
            assert_eq!(counts.loadings.used, u64::from(expected.is_some()));
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
            assert_eq!((found, counts.stores.ambiguous), (vec![None], 1));
            // A variant whose id occurs twice is counted as doubled only.
            let (_, counts) = run(MatchBy::Id, &[("rs", rows[0])], &[("rs", variants[0]); 2]);
            assert_eq!((counts.stores.doubled_id, counts.stores.ambiguous), (2, 0));
        }
    }
    // If another variant names both alleles, the loadings match that variant.
    let deletion = ("1", 5, "AT", "A");
    for (variants, expected) in [
        ([deletion, ("1", 5, "A", ".")], [SAME(0), None]),
        ([("1", 5, "A", "."), ("1", 5, "A", "AT")], [None, SWAPPED(0)]),
    ] {
        let (found, counts) = by_position(&[deletion], &variants);
        assert_eq!(found, expected);
        assert_eq!((counts.loadings.ambiguous, counts.stores.ambiguous), (0, 1));
    }
    // The base alone does not tell which of several variants it is.
    let (found, counts) = by_position(&[deletion, ("1", 5, "A", "C")], &[("1", 5, "A", ".")]);
    assert_eq!((found, counts.loadings.ambiguous), (vec![None], 2));
}

#[test]
fn what_could_be_several_is_none() {
    let split = [("1", 5, "A", "T"), ("1", 5, "A", "C"), ("1", 6, "A", "T")];
    let (found, counts) = by_position(&split, &[("1", 5, "A", "."), ("1", 6, "A", ".")]);
    assert_eq!(found, [None, SAME(2)]);
    assert_eq!((counts.loadings.ambiguous, counts.stores.ambiguous), (2, 1));
    assert_eq!(counts.reasons(), "2 with alleles that fit several");
    // A variant with the same alleles is matched first, whatever the order of the variants.
    for variants in [[("1", 5, "A", "T"), ("1", 5, "C", ".")], [("1", 5, "C", "."), ("1", 5, "A", "T")]] {
        let (found, counts) = by_position(&split, &variants);
        let expected = variants.map(|variant| if variant.2 == "A" { SAME(0) } else { SWAPPED(1) });
        assert_eq!(found, expected);
        assert_eq!((counts.loadings.ambiguous, counts.loadings.absent), (0, 1));
        let (found, counts) = by_position(&split[..1], &variants);
        assert_eq!(found.iter().flatten().count(), 1);
        assert_eq!(counts.stores.not_in_loadings, 1);
    }
    let known_first = [("1", 5, "A", "."), ("1", 5, "A", "T")];
    let (found, counts) = by_position(&split[..1], &known_first);
    assert_eq!((found, counts.stores.repeated), (vec![None, SAME(0)], 1));
    // Two variants of the store (T and C) fit a single variant of the loadings.
    let (found, counts) = by_position(&[("1", 5, "A", "T,C")], &[("1", 5, "A", "T"), ("1", 5, "A", "C")]);
    assert_eq!(found, [None, None]);
    assert_eq!((counts.loadings.ambiguous, counts.stores.ambiguous), (1, 2));
    // Two equal variants, as of two probes, match different variants of the loadings.
    let twice = [("1", 5, "A", "."), ("1", 5, "A", ".")];
    let (found, counts) = by_position(&split[..1], &twice);
    assert_eq!((found, counts.stores.repeated), (vec![SAME(0), None], 1));
    let (found, _) = by_position(&[split[0], split[0]], &twice);
    assert_eq!(found, [SAME(0), SAME(1)]);
}

#[test]
fn repeats_pair_up_in_order() {
    let rows = [("1", 5, "A", "C"), ("1", 5, "C", "A"), ("1", 5, "A", "C"), ("1", 6, "A", "C")];
    let variants = [("A", "C"), ("C", "A"), ("A", "C"), ("A", "C")];
    let (found, counts) = by_position(&rows, &variants.map(|(other, counted)| ("1", 5, other, counted)));
    assert_eq!(found, [SAME(0), SAME(1), SAME(2), None]);
    assert_eq!((counts.loadings.used, counts.loadings.absent, counts.stores.repeated), (3, 1, 1));

    let (found, counts) = by_position(&[rows[0], rows[0]], &[("1", 5, "C", "A")]);
    assert_eq!(found, [SWAPPED(0)]);
    assert_eq!((counts.loadings.used, counts.loadings.repeated), (1, 1));
}

#[test]
fn places_without_alleles_are_ambiguous_if_repeated() {
    let site = |position| (".", position, ".", ".");
    let (found, counts) = by_position(&[site(0), site(1)], &[site(0), site(1), site(0)]);
    assert_eq!(found, [SAME(0), SAME(1), None]);
    assert_eq!((counts.loadings.alleles_unknown, counts.unknown_repeated), (2, 1));
    assert!(counts.unsure().is_some_and(|why| why.contains("their alleles being unknown")));
}

#[test]
fn what_has_no_place_matches_nothing() {
    let rows = [("0", 0, "A", "C"), ("0", 7, "A", "C"), ("1", 0, "A", "C"), ("1", 7, "A", "C")];
    let (found, counts) = by_position(&rows, &[rows[3], rows[2], ("chr0", 7, "A", "C"), rows[0]]);
    assert_eq!(found, [SAME(3), None, None, None]);
    assert_eq!((counts.loadings.nowhere, counts.stores.nowhere), (3, 3));
    assert_eq!(counts.used(), "1 used; 3 without a place");
    assert_eq!(counts.ignored(), "of the stores, 0 not in the loadings, 3 without a place");
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
        assert_eq!(
            [of(&rows[..3], name), of(&rows, name)],
            [human, other].map(|row| row.map(Match::Same)),
            "{name}"
        );
    }
    let (found, counts) = by_position(&rows[..1], &[("2", 5, "A", "C")]);
    assert_eq!(found, [None]);
    assert_eq!(counts.reasons(), "1 not in the stores, the loadings are of contig `1`, the stores of `2`");
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
    assert_eq!(found, expected);
    let of_loadings =
        "11 variants, 3 used, 1 swapped, 1 fewer_alleles, 2 absent, 1 other_alleles, 2 nowhere, 3 doubled_id";
    let of_stores = "11 variants, 3 not_in_loadings, 2 nowhere, 3 doubled_id";
    assert_eq!(told(&counts), format!("{of_loadings}; {of_stores}"));
    assert_eq!(
        counts.reasons(),
        "2 not in the stores, 1 there with other alleles or none, 2 without an id, 3 of an id that occurs more than once"
    );
    let ignored =
        "of the stores, 3 not in the loadings, 2 without an id, 3 of an id that occurs more than once";
    assert_eq!(counts.ignored(), ignored);
}
