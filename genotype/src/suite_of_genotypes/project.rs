//! Tests of projections on every device, against sums in f64.

use teatime::{Device, Run, random::philox};

use crate::{
    Match, ProjectMethod, Projection, ReferenceLoadings, Scaler, project,
    tests::{calls, memory, score_bits},
};

teatime::device_tests!(new_samples_on_loadings, least_squares_of_what_is_called, dosages_that_are_not_packed);

const METHODS: [ProjectMethod; 2] = [ProjectMethod::Mean, ProjectMethod::LeastSquares];

/// A variant of the reference.
struct Row {
    mean: f64,
    shift: f64,
    scale: f64,
    loadings: Vec<f64>,
}

/// New samples, and a reference that has some of their variants in another order, and a few more.
struct Case {
    dosages: Vec<i8>,
    shape: [usize; 2],
    ploidy: u64,
    k: usize,
    rows: Vec<Row>,
    reference: ReferenceLoadings,
    matches: Vec<Option<Match>>,
}

impl Case {
    /// Makes a case in which `missing` of 100 calls are missing.
    fn new([variants, samples, k]: [usize; 3], missing: u32, ploidy: u64, scaler: Scaler) -> Self {
        let word = |seed: u32, i: usize| philox([7, seed], i as u64)[0] >> 8;
        let alleles = ploidy as f64;
        let dosage = |at| match (word(5, at) % 100 < missing, word(6, at) % (ploidy as u32 + 1)) {
            (true, _) => -1,
            (_, dosage) => dosage as i8,
        };
        let mut reference = ReferenceLoadings::new(scaler, ploidy, k).unwrap();
        let row = |i: usize| {
            let frequency = 0.05 + f64::from(word(1, i) % 90) / 100.0;
            let scale = (2.0 * frequency * (1.0 - frequency)).sqrt();
            // The loadings are rounded to f32, as on devices.
            let loading = |j| f64::from((f64::from(word(2, i * k + j) % 2000) / 1000.0 - 1.0) as f32);
            let loadings: Vec<f64> = (0..k).map(loading).collect();
            let shift = if scaler == Scaler::None { 0.0 } else { alleles * frequency };
            reference.push(frequency, shift, scale, &loadings).unwrap();
            Row { mean: alleles * frequency, shift, scale, loadings }
        };
        let rows = (0..variants + 3).map(row).collect();
        let found = |i: usize| match ((variants - 1 - i) as u32, i % 4) {
            (row, 0 | 1) => Some(Match::Same(row)),
            (row, 2) => Some(Match::Swapped(row)),
            _ => None,
        };
        let matches = (0..variants).map(found).collect();
        let dosages = (0..variants * samples).map(dosage).collect();
        Self { dosages, shape: [variants, samples], ploidy, k, rows, reference, matches }
    }

    fn project(&self, device: &Device, method: ProjectMethod) -> Projection {
        let [variants, samples] = self.shape.map(|n| n as u64);
        let genotypes = if self.ploidy == 2 {
            memory(&self.dosages, &[variants, samples], &[64, 9])
        } else {
            let calls = calls(&self.dosages, self.ploidy);
            memory(&calls, &[variants, samples, self.ploidy], &[64, 9, self.ploidy])
        };
        let genotypes = genotypes.dosages_are_bounded(true);
        project(&genotypes, device, &self.reference, &self.matches, method, &Run::default()).unwrap()
    }

    /// Returns a sample's terms: the loadings, and the standardised dosage if the call is not missing.
    fn terms(&self, sample: usize) -> impl Iterator<Item = (&Row, Option<f64>)> {
        let dosages = self.dosages.chunks(self.shape[1]).map(move |row| row[sample]);
        let found = dosages.zip(&self.matches).filter_map(|(g, found)| Some((g, (*found)?)));
        found.map(|(g, found)| {
            let row = &self.rows[found.row() as usize];
            let dosage = match found {
                Match::Same(_) => f64::from(g),
                Match::Swapped(_) => self.ploidy as f64 - f64::from(g),
            };
            (row, (g >= 0).then(|| (dosage - row.shift) / row.scale))
        })
    }

    fn called(&self) -> Vec<u64> {
        (0..self.shape[1]).map(|s| self.terms(s).filter(|(_, z)| z.is_some()).count() as u64).collect()
    }

    /// Asserts that scores are the formula's sums, within `tolerance` of the terms' magnitudes, if `packed` plus their rounding.
    fn assert_sums(&self, projection: &Projection, tolerance: f64, packed: bool) {
        let weight = |row: &Row, j: usize| {
            let farthest = [1.0, row.mean, 2.0 - row.mean, 2.0 - row.shift].into_iter().fold(0.0, f64::max);
            row.loadings[j].abs() / row.scale * farthest
        };
        let largest = |j| self.rows.iter().map(|row| weight(row, j)).fold(0.0, f64::max);
        let largest: Vec<f64> = (0..self.k).map(largest).collect();
        for (sample, scores) in projection.scores.data().chunks(self.k).enumerate() {
            for (j, score) in scores.iter().enumerate() {
                let (mut sum, mut size, mut rounding) = (0.0, 0.0, 1e-15);
                for (row, z) in self.terms(sample) {
                    let term = row.loadings[j] * z.unwrap_or((row.mean - row.shift) / row.scale);
                    sum += term;
                    size += term.abs();
                    // Two alleles and a constant are rounded, by half a unit each.
                    rounding += 1.5 * largest[j] / f64::from(1 << 30);
                }
                let off = (score - sum).abs();
                let most = if packed { rounding.min(tolerance * size) } else { tolerance * size };
                assert!(off <= most, "{sample} {j}: {score} against {sum}, {most}");
            }
        }
    }

    /// Asserts that residuals are orthogonal to loadings, as least squares require, within `tolerance` of the magnitudes.
    fn assert_least_squares(&self, projection: &Projection, tolerance: f64) {
        let called = self.called();
        let mut undetermined = 0;
        for (sample, scores) in projection.scores.data().chunks(self.k).enumerate() {
            // Since loadings are random, the scores are determined by as many calls as there are components.
            if called[sample] < self.k as u64 {
                assert!(scores.iter().all(|score| score.is_nan()), "{sample}: {scores:?}");
                undetermined += 1;
                continue;
            }
            for j in 0..self.k {
                let (mut sum, mut size) = (0.0, 0.0);
                for (row, z) in self.terms(sample) {
                    let Some(z) = z else { continue };
                    let fitted: f64 = row.loadings.iter().zip(scores).map(|(u, t)| u * t).sum();
                    let fits: f64 = row.loadings.iter().zip(scores).map(|(u, t)| (u * t).abs()).sum();
                    sum += row.loadings[j] * (z - fitted);
                    size += (row.loadings[j] * (z.abs() + fits)).abs();
                }
                assert!(sum.abs() <= tolerance * size, "{sample} {j}: {sum} of {size}, {scores:?}");
            }
        }
        assert_eq!(projection.undetermined, undetermined);
    }
}

/// The percentage of missing calls, and how dosages are scaled.
const CALLS: [(u32, Scaler); 5] =
    [(0, Scaler::Binom2), (0, Scaler::None), (1, Scaler::Binom2), (50, Scaler::None), (99, Scaler::Binom2)];

/// [variants, samples, components] around the sizes of tiles and groups of columns.
const SIZES: [[usize; 3]; 6] =
    [[1, 1, 1], [3, 5, 2], [300, 33, 10], [520, 130, 17], [90, 64, 33], [4100, 3, 2]];

fn new_samples_on_loadings(device: &Device) {
    each_case(device, &SIZES, ProjectMethod::Mean, |case, projection| {
        case.assert_sums(projection, 2e-6, true);
        assert_eq!(projection.undetermined, 0);
    });
}

fn least_squares_of_what_is_called(device: &Device) {
    let sizes = [[3, 5, 2], [300, 33, 10], [520, 130, 11]];
    each_case(device, &sizes, ProjectMethod::LeastSquares, |case, projection| {
        case.assert_least_squares(projection, 2e-8);
    });
}

/// Projects cases of these sizes, checks each, and compares its bits with those of the cpu device.
fn each_case(
    device: &Device,
    sizes: &[[usize; 3]],
    method: ProjectMethod,
    check: impl Fn(&Case, &Projection),
) {
    for (size, (missing, scaler)) in sizes.iter().flat_map(|size| CALLS.map(|calls| (*size, calls))) {
        let case = Case::new(size, missing, 2, scaler);
        let projection = case.project(device, method);
        check(&case, &projection);
        assert_eq!(projection.called, case.called());
        let on_cpu = case.project(&Device::cpu(), method);
        assert_eq!(score_bits(&projection), score_bits(&on_cpu), "{size:?} {missing}");
    }
}

fn dosages_that_are_not_packed(device: &Device) {
    for missing in [0, 1, 50, 99] {
        let case = Case::new([300, 33, 7], missing, 4, Scaler::Binom2);
        let [mean, least_squares] = METHODS.map(|method| case.project(device, method));
        case.assert_sums(&mean, 2e-6, false);
        assert_eq!(mean.called, case.called());
        case.assert_least_squares(&least_squares, 1e-5);
    }
}
