//! Tests of projections against sums in f64, the reference's own PCA, and other tools.

mod refused;

use teatime::{
    Device, DeviceOptions, Result, Run,
    openings::{cpu, least},
};

use super::*;
use crate::{
    Cohort, Genotypes, PcaOptions, Scaler, Wanted, project,
    tests::{self as shared, Fit, changes_no_bit, fractions, memory, random_dosages, score_bits},
};

const K: usize = 4;
const METHODS: [ProjectMethod; 2] = [ProjectMethod::Mean, ProjectMethod::LeastSquares];

fn dosages(variants: usize, samples: usize) -> Vec<i8> {
    random_dosages(1, 89, variants, samples)
}

fn rows(values: &[i8], samples: usize) -> Genotypes {
    memory(values, &[(values.len() / samples) as u64, samples as u64], &[64, 7])
}

fn fit(genotypes: &Genotypes, scaler: Scaler, components: usize) -> Fit {
    shared::fit(genotypes, &PcaOptions::default().components(components).scaler(scaler))
}

fn run_on_cpu(
    genotypes: &Genotypes,
    reference: &ReferenceLoadings,
    matches: &[Option<Match>],
) -> Result<Projection> {
    project(genotypes, cpu(), reference, matches, ProjectMethod::Mean, &Run::default())
}

/// Returns the projections by both rules for missing calls.
fn by_both(
    genotypes: &Genotypes,
    reference: &ReferenceLoadings,
    matches: &[Option<Match>],
) -> [Projection; 2] {
    METHODS.map(|method| project(genotypes, cpu(), reference, matches, method, &Run::default()).unwrap())
}

/// Returns, for each sample, the number of matched variants that it has a call of.
fn called(dosages: &[i8], samples: usize, matches: &[Option<Match>]) -> Vec<u64> {
    let rows: Vec<&[i8]> = dosages.chunks(samples).zip(matches).filter_map(|(r, m)| m.map(|_| r)).collect();
    (0..samples).map(|i| rows.iter().filter(|row| row[i] >= 0).count() as u64).collect()
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, x| x.abs().max(most))
}

fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len());
    let scale = largest(expected);
    for (at, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance * scale, "element {at}: {a} against {e}, of at most {scale}");
    }
}

#[test]
fn the_references_samples_get_their_scores_back() {
    // There are more variants than one canonical block has.
    let dosages = dosages(5000, 31);
    let genotypes = rows(&dosages, 31);
    for &scaler in Scaler::ALL {
        let Fit { pca, reference, matches, .. } = fit(&genotypes, scaler, K);
        let projection = run_on_cpu(&genotypes, &reference, &matches).unwrap();
        assert_close(projection.scores.data(), pca.scores().data(), 2e-6);
        assert_eq!((projection.used, projection.digest), (pca.counts.used, pca.digest), "{scaler:?}");
    }
}

#[test]
fn fractions_and_haploid_calls() {
    let dosages = dosages(300, 20);
    let Fit { pca, reference, matches, .. } = fit(&rows(&dosages, 20), Scaler::Patterson, K);
    let projection = run_on_cpu(&fractions(&dosages, 1.0, 20), &reference, &matches).unwrap();
    assert_close(projection.scores.data(), pca.scores().data(), 2e-6);
    assert_eq!(projection.called, called(&dosages, 20, &matches));

    let haploid: Vec<i8> = dosages.iter().map(|&g| g.min(1)).collect();
    let genotypes = memory(&haploid, &[300, 20, 1], &[50, 7, 1]);
    let Fit { pca, reference, matches, .. } = fit(&genotypes, Scaler::Patterson, K);
    assert_eq!(reference.ploidy(), 1);
    let projection = run_on_cpu(&genotypes, &reference, &matches).unwrap();
    assert_close(projection.scores.data(), pca.scores().data(), 2e-6);
}

#[test]
fn chunks_threads_types_and_budgets_change_no_bit() {
    let dosages = crate::tests::dosages(700, 33);
    let Fit { reference, matches, .. } = fit(&rows(&dosages, 33), Scaler::Binom2, K);
    let each = called(&dosages, 33, &matches);
    for method in METHODS {
        changes_no_bit(|genotypes, device, run| {
            let projection = project(genotypes, device, &reference, &matches, method, run)?;
            assert_eq!(projection.called, each);
            Ok((score_bits(&projection), projection.digest))
        });
    }
}

/// Sums are in whole numbers, so the order of variants and swapped alleles do not change results.
#[test]
fn order_and_swaps_of_variants_change_no_bit() {
    let samples = 33;
    let dosages = dosages(900, samples);
    let Fit { reference, matches, .. } = fit(&rows(&dosages, samples), Scaler::Patterson, K);
    let project = |dosages: &[i8], matches: &[Option<Match>]| {
        by_both(&rows(dosages, samples), &reference, matches).map(|projection| score_bits(&projection))
    };
    let expected = project(&dosages, &matches);
    let backwards: Vec<i8> = dosages.chunks(samples).rev().flatten().copied().collect();
    let found: Vec<_> = matches.iter().rev().copied().collect();
    assert_eq!(project(&backwards, &found), expected);
    let (mut swapped, mut found) = (dosages, matches);
    for (row, found) in swapped.chunks_mut(samples).zip(&mut found).step_by(3) {
        row.iter_mut().filter(|g| **g >= 0).for_each(|g| *g = 2 - *g);
        *found = found.map(|found| Match::Swapped(found.row()));
    }
    assert_eq!(project(&swapped, &found), expected);
}

/// Variants that no sample varies at, and that a store does not have, add what they would add if it had them.
#[test]
fn absent_variants_are_as_if_they_were_there() {
    type Form<'a> = &'a dyn Fn(&[i8]) -> Genotypes;
    let samples = 33;
    let whole = dosages(300, samples);
    let haploid: Vec<i8> = whole.iter().map(|&g| g.min(1)).collect();
    let calls =
        |values: &[i8]| memory(values, &[(values.len() / samples) as u64, samples as u64, 1], &[64, 7, 1]);
    let dense = |values: &[i8]| fractions(values, 1.0, samples as u64);
    let packed = |values: &[i8]| rows(values, samples);
    let forms: [Form<'_>; 3] = [&packed, &calls, &dense];
    let of_forms = [(&whole, 2, 0.0), (&haploid, 1, 0.0), (&whole, 2, 1e-5)];
    for (genotypes, (dosages, ploidy, tolerance)) in forms.into_iter().zip(of_forms) {
        let Fit { reference, matches, .. } = fit(&genotypes(dosages), Scaler::Patterson, K);
        let (mut there, mut left, mut left_matches, mut absent) =
            (dosages.to_vec(), Vec::new(), Vec::new(), Vec::new());
        for ((at, row), found) in there.chunks_mut(samples).enumerate().zip(&matches) {
            match (at % 7, found) {
                (0, Some(found)) => {
                    row.fill(0);
                    absent.push(*found);
                }
                (1, Some(found)) => {
                    row.fill(ploidy);
                    absent.push(Match::Swapped(found.row()));
                }
                _ => {
                    left.extend_from_slice(row);
                    left_matches.push(*found);
                }
            }
        }
        assert!(absent.len() > 60, "{}", absent.len());
        for (method, expected) in METHODS.into_iter().zip(by_both(&genotypes(&there), &reference, &matches)) {
            let wanted = Wanted::default().absent(&absent).projection(&reference, &left_matches, method);
            let cohort = Cohort::load(&genotypes(&left), cpu(), &wanted, &Run::default()).unwrap();
            let ours = cohort.projection().unwrap();
            assert_close(ours.scores.data(), expected.scores.data(), tolerance);
            let counts = |of: &Projection| (of.used, of.missing_calls, of.called.clone(), of.undetermined);
            assert_eq!(counts(ours), counts(&expected));
        }
    }
}

#[test]
fn least_squares_of_all_calls_are_the_sums() {
    let samples = 30;
    let full: Vec<i8> = dosages(500, samples).iter().map(|&g| g.max(0)).collect();
    // The first sample lacks one call.
    let mut lacking = full.clone();
    lacking[3 * samples] = -1;
    for &scaler in Scaler::ALL {
        let Fit { reference, matches, .. } = fit(&rows(&full, samples), scaler, K);
        let [mean, least_squares] = by_both(&rows(&lacking, samples), &reference, &matches);
        assert_eq!(score_bits(&mean)[K..], score_bits(&least_squares)[K..], "{scaler:?}");
        assert!((0..K).all(|j| mean.scores.row(0)[j] != least_squares.scores.row(0)[j]), "{scaler:?}");
        // If a variant is absent, no sample has all calls.
        let mut absent = matches.clone();
        absent[11] = None;
        let [mean, least_squares] = by_both(&rows(&full, samples), &reference, &absent);
        assert!(score_bits(&mean).iter().zip(score_bits(&least_squares)).all(|(a, b)| *a != b), "{scaler:?}");
    }
}

#[test]
fn what_calls_do_not_determine_is_nan() {
    let mut reference = ReferenceLoadings::new(Scaler::Patterson, 2, 3).unwrap();
    // The third component is beyond the rank. The first and the last variant have parallel loadings, which do not determine two components.
    for loadings in [[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.3, 0.4, 0.0]] {
        reference.push(0.5, 1.0, 0.5, &loadings).unwrap();
    }
    let matches: Vec<_> = (0..3).map(|row| Some(Match::Same(row))).collect();
    let new = rows(&[0, -1, 0, -1, 2, 2, -1, -1, -1, -1, 0, -1], 4);
    let [mean, projection] = by_both(&new, &reference, &matches);
    assert_eq!((projection.undetermined, &projection.called[..]), (3, &[2, 1, 2, 0][..]));
    // The standardised dosages are -2 and 2, and the loadings are orthogonal.
    assert_close(projection.scores.row(0), &[-2.0 * 0.6 - 2.0 * 0.8, -2.0 * 0.8 + 2.0 * 0.6, 0.0], 1e-7);
    assert!(projection.scores.data()[3..].iter().all(|score| score.is_nan()), "{:?}", projection.scores);
    assert!(mean.undetermined == 0 && mean.scores.data().iter().all(|score| score.is_finite()));
}

#[test]
fn the_stated_minimum_is_enough() {
    let (variants, samples) = (512, 20_000);
    let genotypes = shared::plink(&vec![0b1011_1000; variants * samples / 4], samples as u64, 64);
    let mut reference = ReferenceLoadings::new(Scaler::Patterson, 2, 20).unwrap();
    (0..variants).for_each(|_| reference.push(0.25, 0.5, 0.5, &[0.5; 20]).unwrap());
    let matches: Vec<_> = (0..512).map(|row| Some(Match::Same(row))).collect();
    for method in METHODS {
        let device = Device::open_with("cpu", &DeviceOptions::default()).unwrap();
        let (minimum, _) = least(|run| project(&genotypes, &device, &reference, &matches, method, run));
        assert!(minimum > reference.bytes());
        // The peak covers packed rows and sums.
        let (packed, peak) = ((variants * samples / 4) as u64, device.peak_bytes());
        assert!((packed..minimum).contains(&peak), "{peak} of {minimum}");
        // The mean method holds no rows of f32.
        assert!(method == ProjectMethod::LeastSquares || peak < 16 * packed, "{peak}");
    }
}

#[cfg(feature = "zarr")]
mod goldens {
    use super::*;
    use crate::tests::{stored, table};

    /// Compares the projection of `SET_new` onto `SET_reference`, divided by `divisor`, with a table, up to signs.
    fn assert_projects(set: &str, scaler: Scaler, divisor: f64, golden: &str) {
        let [old, new] =
            ["reference", "new"].map(|part| stored("projection.zarr", Some(&format!("{set}_{part}"))));
        let Fit { reference, matches, .. } = fit(&old, scaler, 10);
        let scores = run_on_cpu(&new, &reference, &matches).unwrap().scores;
        let golden = table(golden, 1);
        assert_eq!((scores.rows(), scores.cols(), golden.len()), (20, 10, 20));
        for j in 0..10 {
            let ours: Vec<f64> = scores.column(j).map(|x| x / divisor).collect();
            let dot: f64 = ours.iter().zip(&golden).map(|(a, row)| a * row[j]).sum();
            let theirs: Vec<f64> = golden.iter().map(|row| row[j] * dot.signum()).collect();
            assert_close(&ours, &theirs, 1e-5);
        }
    }

    #[test]
    fn scikit_allel_and_flashpca_project_alike() {
        assert_projects("complete", Scaler::Patterson, 1.0, "projection/allel.tsv");
        assert_projects("biallelic", Scaler::Binom2, 237f64.sqrt(), "projection/flashpca.tsv");
        assert_projects("biallelic", Scaler::Patterson, (2.0 * 237f64).sqrt(), "projection/flashpca.tsv");
    }
}
