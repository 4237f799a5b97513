//! Projections on every device, against sums in f64.

use std::sync::Arc;

use crate::{
    Device, Run,
    genotype::{Genotypes, Match, ReferenceLoadings, Scaler, project},
    random::philox,
    store::MemoryArray,
};

super::device_tests!(new_samples_on_loadings);

/// Variants of the reference in another order, swapped or absent, for numbers of samples and components around tiles.
fn new_samples_on_loadings(device: &Device) {
    for (variants, samples, k) in [(1, 1, 1), (3, 5, 2), (300, 33, 10), (520, 130, 17)] {
        let word = |i: usize| philox([7, 5], i as u64)[0];
        let dosages: Vec<i8> = (0..variants * samples).map(|at| (word(at) % 4) as i8 - 1).collect();
        let mut reference = ReferenceLoadings::new(Scaler::Binom2, 2, k).unwrap();
        let mut rows = Vec::new();
        for i in 0..variants {
            let frequency = 0.05 + f64::from(word(i) % 90) / 100.0;
            let scale = (2.0 * frequency * (1.0 - frequency)).sqrt();
            let loadings: Vec<f64> = (0..k).map(|j| f64::from(word(i * k + j) % 200) / 100.0 - 1.0).collect();
            reference.push(frequency, 2.0 * frequency, scale, &loadings).unwrap();
            rows.push((2.0 * frequency, scale, loadings));
        }
        let found = |i: usize| match ((variants - 1 - i) as u32, i % 4) {
            (row, 0 | 1) => Some(Match::Same(row)),
            (row, 2) => Some(Match::Swapped(row)),
            _ => None,
        };
        let matches: Vec<_> = (0..variants).map(found).collect();

        let mut expected = vec![0.0; samples * k];
        // The sum of the magnitudes of the terms, which errors of f32 are fractions of.
        let mut sizes = vec![0.0; samples * k];
        for (dosages, found) in dosages.chunks(samples).zip(&matches) {
            let Some(found) = found else { continue };
            let (mean, scale, loadings) = &rows[found.row() as usize];
            for (sample, &dosage) in dosages.iter().enumerate() {
                let dosage = match (dosage, found) {
                    (-1, _) => *mean,
                    (g, Match::Same(_)) => f64::from(g),
                    (g, Match::Swapped(_)) => 2.0 - f64::from(g),
                };
                for (j, u) in loadings.iter().enumerate() {
                    let term = u * (dosage - mean) / scale;
                    expected[sample * k + j] += term;
                    sizes[sample * k + j] += term.abs();
                }
            }
        }
        let shape = [variants as u64, samples as u64];
        let array = MemoryArray::new("new", &dosages, &shape, &[64, 9]).unwrap();
        let genotypes = Genotypes::new(vec![Arc::new(array)]).unwrap();
        let projection = project(&genotypes, device, &reference, &matches, &Run::default()).unwrap();
        for ((a, e), size) in projection.scores.data().iter().zip(&expected).zip(&sizes) {
            assert!((a - e).abs() <= 2e-6 * size, "{variants} x {samples}, {k}: {a} against {e} of {size}");
        }
        let used: Vec<&[i8]> =
            dosages.chunks(samples).zip(&matches).filter_map(|(row, m)| m.map(|_| row)).collect();
        let called = |sample| used.iter().filter(|row| row[sample] >= 0).count() as u64;
        assert_eq!(projection.called, (0..samples).map(called).collect::<Vec<_>>());
    }
}
