//! Tests of input that projections refuse.

use teatime::{Error, assert_err, openings::assert_refused};

use super::*;

#[test]
fn bad_input_is_named() {
    let samples = 12;
    let good = dosages(60, samples);
    let genotypes = rows(&good, samples);
    let Fit { reference, matches, .. } = fit(&genotypes, Scaler::Patterson, K);
    let fails = |genotypes: &Genotypes, matches: &[Option<Match>], needle: &str| {
        assert_refused(run_on_cpu(genotypes, &reference, matches), &[needle])
    };
    fails(&memory(&good[..0], &[60, 0], &[5, 5]), &matches, "60 variants of 0 samples");
    fails(&genotypes, &matches[1..], "59 matches");
    fails(&genotypes, &[None; 60], "none of the 60 variants is one of the reference's 56");
    fails(&memory(&[0i8; 60 * 3], &[60, 3, 1], &[9, 3, 1]), &matches, "of ploidy 2, the genotypes of 1");
    let with = |at: usize, found| {
        let mut matches = matches.clone();
        matches[at] = Some(found);
        matches
    };
    fails(&genotypes, &with(3, Match::Same(56)), "variant 3 is number 56 of a reference of 56");
    fails(&genotypes, &with(30, Match::Swapped(5)), "variant 30 is number 5 of the reference, as one before");
    let absent = |row: u32| {
        let (absent, mean) = ([Match::Same(row)], ProjectMethod::Mean);
        let wanted = Wanted::default().projection(&reference, &matches, mean).absent(&absent);
        Cohort::load(&genotypes, &Device::cpu(), &wanted, &Run::default()).map(drop)
    };
    assert_refused(absent(56), &["`absent`", "number 56 of a reference of 56"]);
    assert_refused(absent(5), &["`absent`", "number 5 of a reference of 56"]);
    let mut bad = good.clone();
    bad[30 * samples + 7] = 3;
    fails(&rows(&bad, samples), &matches, "variant 30, sample 7: value 3");
}

#[test]
fn dosages_above_the_ploidy_only_where_nothing_is_swapped() {
    let counts: Vec<i8> = dosages(60, 12).iter().map(|&g| g * 20).collect();
    let genotypes = memory(&counts, &[60, 12], &[20, 12]);
    let Fit { pca, reference, mut matches, .. } = fit(&genotypes, Scaler::Standard, 2);
    let projection = run_on_cpu(&genotypes, &reference, &matches).unwrap();
    assert_close(projection.scores.data(), pca.scores().data(), 2e-6);
    matches[0] = Some(Match::Swapped(0));
    assert_err!(run_on_cpu(&genotypes, &reference, &matches), Error::Chunk { .. });
}

#[test]
fn a_reference_holds_finite_numbers() {
    for (ploidy, components, needle) in [(2, 0, "components"), (0, 1, "ploidy"), (128, 1, "128")] {
        assert_refused(ReferenceLoadings::new(Scaler::Center, ploidy, components), &[needle]);
    }
    let mut reference = ReferenceLoadings::new(Scaler::Center, 2, 2).unwrap();
    for (frequency, shift, scale, loadings, needle) in [
        (f64::NAN, 1.0, 1.0, &[0.0, 0.0][..], "`frequency`: NaN"),
        (0.5, f64::INFINITY, 1.0, &[0.0, 0.0], "`shift`: inf"),
        (0.5, 1.0, 0.0, &[0.0, 0.0], "`scale`: 0"),
        (0.5, 1.0, -1.0, &[0.0, 0.0], "`scale`: -1"),
        (0.5, 1.0, f64::NAN, &[0.0, 0.0], "`scale`: NaN"),
        (0.5, 1.0, f64::from_bits(1), &[0.0, 0.0], "scale"),
        (0.5, 1.0, 1.0, &[0.0], "1 for 2 components"),
        (0.5, 1.0, 1.0, &[0.0, f64::NAN], "PC2 is NaN"),
        (0.5, 1.0, 1.0, &[1e300, 0.0], "PC1 is 1"),
    ] {
        assert_refused(reference.push(frequency, shift, scale, loadings), &[needle]);
    }
    assert!(reference.is_empty() && reference.bytes() == 0);
    assert_err!(reference.reserve(u64::MAX / 2), Error::OutOfMemory { .. });
    reference.reserve(3).unwrap();
    assert!(reference.is_empty() && reference.bytes() >= 3 * (24 + 8));
    reference.push(0.5, 1.0, 1.0, &[0.5, -0.5]).unwrap();
    assert_eq!((reference.len(), reference.components(), reference.scaler()), (1, 2, Scaler::Center));
    assert!(reference.bytes() >= 24 + 8);
}
