//! Tests of cohorts read in parts: the same bits as cohorts read at once.

use std::ops::Range;

use teatime::{Result, assert_err, stream::digest};

use super::*;
use crate::{
    CountsByVariant,
    part::{CohortPart, SumValues},
};

/// The bits of components, relationships and scores, and the digest.
type Results = (Vec<u64>, Vec<u64>, Vec<u64>, u64);

/// The options of the results that are wanted of a cohort.
struct Asked {
    components: PcaOptions,
    relationships: GrmOptions,
    reference: ReferenceLoadings,
    matches: Vec<Option<Match>>,
    absent: Vec<Match>,
}

impl Asked {
    fn new(variants: u64, method: GrmMethod, missing: MissingCalls, ploidy: u64) -> Self {
        let mut reference = ReferenceLoadings::new(Scaler::Binom2, ploidy, 2).unwrap();
        let number = |at: u64| f64::from(philox([5, 6], at)[0] % 1000) / 1000.0;
        for at in 0..variants {
            let loadings = [number(at) - 0.5, number(2 * at + 1) - 0.5];
            reference.push(0.3, ploidy as f64 * 0.3, 0.5 + number(at), &loadings).unwrap();
        }
        let found = |at: u32| match at % 5 {
            0 => None,
            1 => Some(Match::Swapped(at)),
            _ => Some(Match::Same(at)),
        };
        let matches = (0..u32::try_from(variants).unwrap()).map(found).collect();
        // Half of the variants without a match are taken as homozygous.
        let absent = (0..u32::try_from(variants).unwrap()).step_by(10);
        let absent =
            absent.map(|at| if at % 20 == 0 { Match::Same(at) } else { Match::Swapped(at) }).collect();
        let components = PcaOptions { method: Method::Exact, ..options(K) };
        Self {
            components,
            relationships: GrmOptions { method, missing, ..GrmOptions::default() },
            reference,
            matches,
            absent,
        }
    }

    fn wanted(&self) -> Wanted<'_> {
        let wanted = Wanted::default().pca(&self.components).grm(&self.relationships);
        wanted.projection(&self.reference, &self.matches, ProjectMethod::LeastSquares).absent(&self.absent)
    }

    fn whole(&self, genotypes: &Genotypes) -> Results {
        self.results(&Cohort::load(genotypes, &Device::cpu(), &self.wanted(), &Run::default()).unwrap())
    }

    /// Reads `count` parts, each converted to bytes and back.
    fn parts(&self, genotypes: &Genotypes, count: u64) -> Vec<CohortPart> {
        let part = |rows| {
            let part =
                Cohort::part(genotypes, rows, &Device::cpu(), &self.wanted(), &Run::default()).unwrap();
            let same = CohortPart::from_bytes(&part.to_bytes()).unwrap();
            assert!(same == part);
            same
        };
        Cohort::part_ranges(genotypes, count).into_iter().map(part).collect()
    }

    fn of_part(&self, genotypes: &Genotypes, part: &CohortPart) -> Result<Cohort> {
        Cohort::of_part(genotypes, &Device::cpu(), &self.wanted(), part, &Run::default())
    }

    fn results(&self, cohort: &Cohort) -> Results {
        let passes = cohort.passes_over_store();
        let pca = cohort.pca(&self.components, &Run::default()).unwrap();
        let grm = cohort.grm(&self.relationships, &Run::default()).unwrap();
        assert_eq!((cohort.passes_over_store(), pca.digest), (passes, cohort.digest()));
        let projection = cohort.projection().unwrap();
        let scores = projection.scores.data().iter().map(|x| x.to_bits());
        (
            bits(&pca),
            grm_bits(&grm),
            scores.chain(projection.called.iter().map(|called| (*called as f64).to_bits())).collect(),
            cohort.digest(),
        )
    }
}

/// Merges adjacent parts, in random order.
fn merged(mut parts: Vec<CohortPart>, seed: u32) -> CohortPart {
    while parts.len() > 1 {
        let word = philox([seed, 8], parts.len() as u64)[0] as usize;
        let at = word % (parts.len() - 1);
        let (one, other) = (parts.remove(at), parts.remove(at));
        parts.insert(at, if word & 1024 > 0 { one.merge(other) } else { other.merge(one) }.unwrap());
    }
    parts.remove(0)
}

#[test]
fn parts_merged_in_any_order_are_the_whole() {
    let dosages = dosages(30_000, 70);
    let calls: Vec<i8> =
        dosages.iter().flat_map(|&x| if x < 0 { [-1, 0] } else { [x.min(1), i8::from(x == 2)] }).collect();
    let plink = plink(&plink_bytes(&dosages, 70), 70, 1000);
    let some = memory(&dosages, &[30_000, 70], &[999, 70]).select([10..9_000, 9_500..30_000]).unwrap();
    for (genotypes, method, missing) in [
        (some, GrmMethod::VanRaden1, MissingCalls::Pairwise),
        (memory(&calls, &[30_000, 70, 2], &[1000, 70, 2]), GrmMethod::Gcta, MissingCalls::Pairwise),
        (plink, GrmMethod::Gcta, MissingCalls::Mean),
    ] {
        let asked = Asked::new(genotypes.variants(), method, missing, 2);
        let (whole, at_once) = (asked.whole(&genotypes), merged(asked.parts(&genotypes, 1), 0));
        // The members of a group read parts of a part.
        let group = Device::open("cpu,cpu,cpu").unwrap();
        let rows = 0..genotypes.variants();
        let part = Cohort::part(&genotypes, rows, &group, &asked.wanted(), &Run::default()).unwrap();
        assert!(part == at_once && group.members().iter().all(|member| member.peak_bytes() > 0));
        for count in [1, 2, 3, 7] {
            let parts = asked.parts(&genotypes, count);
            assert_eq!(parts.len() as u64, count);
            for seed in 0..3 {
                let part = merged(parts.clone(), seed);
                assert!(part == at_once, "{count} parts, {seed}");
                let cohort = asked.of_part(&genotypes, &part).unwrap();
                assert_eq!((cohort.passes_over_store(), cohort.residency()), (0, Residency::Store));
                assert!(asked.results(&cohort) == whole, "{count} parts, {seed}");
            }
        }
    }
}

/// The number of all variants, not that of the part, sets the bytes of each multiple. [`Method::Auto`] uses the sums.
#[test]
fn numbers_of_a_part_are_those_of_the_whole() {
    let (variants, device, run) = (132_000, Device::cpu(), Run::default());
    let genotypes = memory(&dosages(variants, 9), &[132_000, 9], &[1000, 9]);
    let (components, loaded) = (options(K), pca(&genotypes, &device, &options(K), &run).unwrap());
    let wanted = Wanted::default().pca(&components).loadings();
    let parts = Cohort::part_ranges(&genotypes, 3).into_iter();
    let parts = parts.map(|rows| Cohort::part(&genotypes, rows, &device, &wanted, &run).unwrap());
    let cohort = Cohort::of_part(&genotypes, &device, &wanted, &merged(parts.collect(), 1), &run).unwrap();
    assert_eq!(bits(&cohort.pca(&components, &run).unwrap()), bits(&loaded));
    assert_eq!(cohort.passes_over_store(), 0);
    // A result without sums in the part is computed by reading the store.
    let randomized = randomized(K, Stop::PowerIterations(1));
    let expected = pca(&genotypes, &device, &randomized, &run).unwrap();
    assert_eq!(bits(&cohort.pca(&randomized, &run).unwrap()), bits(&expected));
    assert!(cohort.passes_over_store() > 0);
}

#[test]
fn parts_of_fractions_and_polyploids_are_close() {
    let dosages = dosages(9000, 20);
    let calls: Vec<i8> =
        dosages.iter().flat_map(|&x| if x < 0 { [-1; 4] } else { [x.min(1), 0, 0, x / 2] }).collect();
    for (genotypes, ploidy) in
        [(fractions(&dosages, 0.9, 20), 2), (memory(&calls, &[9000, 20, 4], &[500, 20, 4]), 4)]
    {
        let asked = Asked::new(9000, GrmMethod::VanRaden1, MissingCalls::Pairwise, ploidy);
        let (whole, parts) = (asked.whole(&genotypes), asked.parts(&genotypes, 3));
        let found = [2, 2, 7].map(|seed| {
            let part = merged(parts.clone(), seed);
            assert!(matches!(&part.counts, CountsByVariant::Dosages(stats) if stats.len() == 9000));
            asked.results(&asked.of_part(&genotypes, &part).unwrap())
        });
        assert!(found[0] == found[1]);
        for (pca, grm, scores, digest) in found {
            assert_eq!(digest, whole.3);
            // The error of eigenvectors depends on the gaps between eigenvalues.
            for (found, whole, tolerance) in
                [(pca, &whole.0, 1e-9), (grm, &whole.1, 1e-13), (scores, &whole.2, 1e-12)]
            {
                assert_eq!(found.len(), whole.len());
                for (x, y) in found.into_iter().zip(whole) {
                    let [x, y] = [x, *y].map(f64::from_bits);
                    assert!((x - y).abs() <= tolerance * y.abs().max(1.0), "{x} {y}");
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let dosages = dosages(9000, 12);
    let genotypes = memory(&dosages, &[9000, 12], &[500, 12]).dosages_are_bounded(true);
    let asked = Asked::new(9000, GrmMethod::Gcta, MissingCalls::Mean, 2);
    let refused = |result: Result<CohortPart>, words: &str| {
        let error = assert_refused(result, &[words]);
        assert!(matches!(error, Error::Argument { .. }), "{error}");
    };
    let part = |genotypes: &Genotypes, rows, wanted: &Wanted<'_>| {
        Cohort::part(genotypes, rows, &Device::cpu(), wanted, &Run::default())
    };
    for rows in [0..0, 0..9001, 0..4095, 1..4096, Range { start: 8192, end: 4096 }, 4096..8000] {
        refused(part(&genotypes, rows.clone(), &asked.wanted()), &format!("{rows:?} of 9000 variants"));
    }
    refused(part(&genotypes, 0..4096, &asked.wanted().missing_calls()), "missing calls of each sample");
    let parts = asked.parts(&genotypes, 3);
    let [first, second, third] = [0, 1, 2].map(|at| parts[at].clone());
    refused(first.clone().merge(third.clone()), "the variants 0..4096 and 8192..9000 leave a gap");
    refused(second.clone().merge(second.clone()), "the variants 4096..8192 and 4096..8192 overlap");
    // The other part has other samples, but the same number of them.
    let chosen = |range| genotypes.clone().select_samples([range]).unwrap();
    for (one, other) in [(chosen(0..11), genotypes.clone()), (chosen(0..11), chosen(1..12))] {
        let one = part(&one, 0..4096, &asked.wanted()).unwrap();
        refused(one.merge(part(&other, 4096..9000, &asked.wanted()).unwrap()), "one part is of");
    }
    let filter = VariantFilter { min_maf: 0.1, max_missing: 1.0 };
    let filtered = Wanted::default().pca(&PcaOptions { filter, ..asked.components.clone() });
    for wanted in [filtered, Wanted::default()] {
        refused(first.clone().merge(part(&genotypes, 4096..9000, &wanted).unwrap()), "wanted differ");
    }
    let mut matches = asked.matches.clone();
    matches[3] = None;
    let other = asked.wanted().projection(&asked.reference, &matches, ProjectMethod::LeastSquares);
    for other in [other.absent(&asked.absent), asked.wanted().absent(&asked.absent[1..])] {
        refused(first.clone().merge(part(&genotypes, 4096..8192, &other).unwrap()), "wanted differ");
    }
    let mut other = second.clone();
    let SumValues::Whole { unit, .. } = &mut other.sums[0].values else { panic!("sums should be whole") };
    *unit *= 2.0;
    refused(first.clone().merge(other), "differ in kind, number or unit");

    let whole = first.merge(second).unwrap();
    let refuse = |genotypes: &Genotypes, asked: &Asked, part: &CohortPart, words: &str| {
        assert_refused(asked.of_part(genotypes, part), &[words])
    };
    refuse(&genotypes, &asked, &whole, "of variants 0..8192 of 9000");
    let mut whole = third.merge(whole).unwrap();
    refuse(&chosen(0..11), &asked, &whole, "9000 variants of 12 samples");
    let pairwise = GrmOptions { method: GrmMethod::VanRaden1, ..GrmOptions::default() };
    let others =
        Asked { relationships: pairwise, ..Asked::new(9000, GrmMethod::Gcta, MissingCalls::Mean, 2) };
    refuse(&genotypes, &others, &whole, "are wanted");
    let SumValues::Whole { unit, .. } = &mut whole.sums[0].values else { panic!("sums should be whole") };
    *unit *= 2.0;
    refuse(&genotypes, &asked, &whole, "in units of");
}

#[test]
fn a_part_states_its_least_memory() {
    let genotypes = memory(&dosages(9000, 12), &[9000, 12], &[500, 12]);
    let asked = Asked::new(9000, GrmMethod::Gcta, MissingCalls::Pairwise, 2);
    let part =
        |wanted: &Wanted<'_>| least(|run| Cohort::part(&genotypes, 0..4096, &Device::cpu(), wanted, run));
    let (first, (bytes, made)) = (asked.parts(&genotypes, 3).remove(0), part(&asked.wanted()));
    assert!(made == first);
    assert!(bytes > part(&Wanted::default()).0 + first.to_bytes().len() as u64 - 12 * 4096);
    // A part needs less memory than all variants do.
    let (whole, _) = least(|run| Cohort::load(&genotypes, &Device::cpu(), &asked.wanted(), run));
    assert!(bytes + 12 * 4000 < whole);
}

/// A damaged byte or a wrong length is an error for either kind of genotypes, and bytes with a valid digest never cause a panic.
#[test]
fn damaged_bytes_are_refused() {
    let asked = Asked::new(9, GrmMethod::Gcta, MissingCalls::Pairwise, 2);
    let asked = Asked { components: options(1), ..asked };
    let fractions: Vec<f32> = (0..27u8).map(|i| f32::from(i % 5) / 2.0).collect();
    for genotypes in [memory(&dosages(9, 3), &[9, 3], &[9, 3]), memory(&fractions, &[9, 3], &[9, 3])] {
        let bytes = asked.parts(&genotypes, 1)[0].to_bytes();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            for change in [1, 0x80, 0xff] {
                damaged[at] = bytes[at] ^ change;
                assert_err!(CohortPart::from_bytes(&damaged), Error::Argument { name: "bytes", .. });
                // The digest is corrected, so that only other checks can fail.
                let (read, sum) = damaged.split_last_chunk_mut::<8>().unwrap();
                *sum = digest(read.len() as u64, read).to_le_bytes();
                if let Ok(part) = CohortPart::from_bytes(&damaged) {
                    let _ = asked
                        .of_part(&genotypes, &part)
                        .map(|cohort| cohort.pca(&asked.components, &Run::default()));
                }
                damaged.clone_from(&bytes);
            }
            CohortPart::from_bytes(&bytes[..at]).unwrap_err();
        }
        CohortPart::from_bytes(&bytes).unwrap();
    }
}

/// A part is refused if its description of the genotypes contradicts its counts.
#[test]
fn counts_of_another_kind_are_refused() {
    let asked = Asked::new(9, GrmMethod::Gcta, MissingCalls::Mean, 2);
    let asked = Asked { components: options(1), ..asked };
    let codes = memory(&dosages(9, 3), &[9, 3], &[9, 3]);
    let fractions = memory(&[0.5f32; 27], &[9, 3], &[9, 3]);
    let [part, other] = [&codes, &fractions].map(|genotypes| asked.parts(genotypes, 1).remove(0));
    let forged = CohortPart { counts: other.counts, ..part };
    let forged = CohortPart::from_bytes(&forged.to_bytes()).unwrap();
    assert_err!(asked.of_part(&codes, &forged), Error::Argument { name: "part", .. });
}

/// The part holds dosages in two bits because a relationship matrix was wanted too.
#[test]
fn less_may_be_wanted_than_a_part_has() {
    let genotypes = memory(&dosages(90, 13), &[90, 13], &[90, 13]);
    let (device, run) = (Device::cpu(), Run::default());
    let components = PcaOptions { scaler: Scaler::Center, ..options(3) };
    let relationships = GrmOptions::default();
    let both = Wanted::default().pca(&components).grm(&relationships);
    let part = Cohort::part(&genotypes, 0..90, &device, &both, &run).unwrap();
    let whole = Cohort::load(&genotypes, &device, &both, &run).unwrap().pca(&components, &run).unwrap();
    let one = Wanted::default().pca(&components);
    let cohort = Cohort::of_part(&genotypes, &device, &one, &part, &run).unwrap();
    let result = cohort.pca(&components, &run).unwrap();
    assert_eq!(result.vectors, whole.vectors);
    assert_eq!(result.reason, "the part has the sums of the exact method");
}

/// Declaring dosages bounded changes how dosages are read, but not how calls are.
#[test]
fn what_is_bounded_matters_for_dosages_alone() {
    let (device, run) = (Device::cpu(), Run::default());
    let components = PcaOptions { scaler: Scaler::Center, ..options(3) };
    let wanted = Wanted::default().pca(&components);
    let calls: Vec<i8> = (0..90 * 13 * 2).map(|i| (i * i / 7 % 2) as i8).collect();
    let calls = memory(&calls, &[90, 13, 2], &[90, 13, 2]);
    let fractions = memory(&[0.5f32; 90 * 13], &[90, 13], &[90, 13]);
    for (genotypes, fits) in [(calls, true), (fractions, false)] {
        let part = Cohort::part(&genotypes, 0..90, &device, &wanted, &run).unwrap();
        let bounded = genotypes.dosages_are_bounded(true);
        assert_eq!(Cohort::of_part(&bounded, &device, &wanted, &part, &run).is_ok(), fits);
    }
}

#[test]
fn ranges_of_parts_cover_all_variants() {
    for (variants, count) in [(1, 1), (4096, 3), (4097, 2), (100_000, 7), (100_000, 0), (100_000, u64::MAX)] {
        let genotypes = memory(&vec![0i8; variants], &[variants as u64, 1], &[100_000, 1]);
        let ranges = Cohort::part_ranges(&genotypes, count);
        let blocks = variants.div_ceil(4096) as u64;
        assert_eq!(ranges.len() as u64, count.clamp(1, blocks));
        assert_eq!((ranges[0].start, ranges.last().unwrap().end), (0, variants as u64));
        assert!(ranges.windows(2).all(|two| two[0].end == two[1].start && two[1].start % 4096 == 0));
    }
}
