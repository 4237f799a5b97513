//! Tests of PCA against numpy in f64, and of the guarantees: any chunking, number of threads or budget gives the same bits.

use std::sync::Arc;

use teatime::{
    Budget, ChunkedArray, Device, Error, Run, assert_err,
    linalg::{Matrix, Stop},
    openings::{least, told, within},
    random::philox,
    stable_text::StableText,
    store::{MemoryArray, Storable},
};

use super::*;

mod cohort;
#[cfg(feature = "cuda-emulator")]
mod emulated;
#[cfg(feature = "zarr")]
mod goldens;
mod haplotypes;
mod parts;
mod ploidy;
mod refused;
mod selection;
mod shared;

pub(crate) use shared::*;

const K: usize = 5;

fn options(components: usize) -> PcaOptions {
    PcaOptions { components, ..PcaOptions::default() }
}

fn randomized(components: usize, stop: Stop) -> PcaOptions {
    let mut options = PcaOptions { method: Method::Randomized, ..options(components) };
    options.svd.stop = stop;
    options
}

/// Returns the singular values and the sum of squares of the standardised matrix, in f64 and by a method like LAPACK's.
fn oracle(dosages: &[i8], samples: usize, ploidy: f64) -> (Vec<f64>, f64) {
    let mut rows = Vec::new();
    for row in dosages.chunks(samples) {
        let called: Vec<f64> = row.iter().filter(|&&x| x >= 0).map(|&x| f64::from(x)).collect();
        if called.iter().all(|&x| x == called[0]) {
            continue;
        }
        let mean = called.iter().sum::<f64>() / called.len() as f64;
        let p = mean / ploidy;
        let scale = (p * (1.0 - p)).sqrt();
        rows.extend(row.iter().map(|&x| if x < 0 { 0.0 } else { (f64::from(x) - mean) / scale }));
    }
    let x = faer::MatRef::from_row_major_slice(&rows, rows.len() / samples, samples);
    let s = x.singular_values().unwrap();
    (s, rows.iter().map(|x| x * x).sum())
}

fn assert_values(actual: &[f64], expected: &[f64], tolerance: f64) {
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance * e, "value {i}: {a} against {e}");
    }
}

fn assert_orthonormal(v: &Matrix) {
    for a in 0..v.cols() {
        for b in 0..=a {
            let dot: f64 = v.column(a).zip(v.column(b)).map(|(x, y)| x * y).sum();
            assert!((dot - f64::from(u8::from(a == b))).abs() < 1e-9, "columns {a} and {b}: {dot}");
        }
    }
}

#[test]
fn matches_the_oracle_with_either_method() {
    let (variants, samples) = (1100, 60);
    let dosages = dosages(variants, samples);
    let genotypes = memory(&dosages, &[1100, 60], &[100, 25]);
    let (s, sum_squares) = oracle(&dosages, samples, 2.0);
    for options in [options(K), randomized(K, Stop::Tolerance(1e-6))] {
        let pca = pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
        assert_values(&pca.singular_values, &s, 2e-6);
        assert!((pca.sum_squares / sum_squares - 1.0).abs() < 1e-10);
        assert_orthonormal(&pca.vectors);
        assert!(pca.converged.iter().all(|&converged| converged));
        let VariantCounts { total, used, all_missing, zero_variance, .. } = pca.counts;
        assert_eq!((total, used, all_missing, zero_variance), (1100, 1056, 22, 22));
        let ratio: f64 = pca.explained_variance_ratio().iter().sum();
        assert!(ratio > 0.0 && ratio < 1.0);
    }
}

#[test]
fn chunks_threads_types_and_budgets_change_no_bit() {
    // The method is given, since the budget decides which one `Auto` takes.
    let exact = PcaOptions { method: Method::Exact, ..options(K) };
    for options in [exact, randomized(K, Stop::PowerIterations(2))] {
        changes_no_bit(|genotypes, device, run| {
            let pca = pca(genotypes, device, &options, run)?;
            Ok((bits(&pca), pca.digest))
        });
    }
}

#[test]
fn constant_and_nearly_constant_fractions() {
    // Most rows are constant, one varies in the last digits, and one varies widely.
    let samples = 3000;
    let mut values: Vec<f32> = (0..20).flat_map(|row| vec![0.1 + 0.07 * row as f32; samples]).collect();
    values.extend((0..samples).map(|i| if i % 2 == 0 { 1.9 } else { 1.9004 }));
    values.extend((0..samples).map(|i| (i % 3) as f32));
    let genotypes = memory(&values, &[22, samples as u64], &[5, 700]);
    let options = PcaOptions { scaler: Scaler::Standard, ..options(2) };
    let pca = pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
    assert_eq!((pca.counts.used, pca.counts.zero_variance), (2, 20));
    assert!((pca.sum_squares / (2.0 * samples as f64) - 1.0).abs() < 1e-6, "{}", pca.sum_squares);
}

#[test]
fn beyond_the_rank_is_zero() {
    // Two variants are repeated many times, so the rank is 2.
    let two = dosages(60, 40);
    let rows: Vec<i8> = (0..50).flat_map(|i| two[(20 + i % 2) * 40..][..40].to_vec()).collect();
    let genotypes = memory(&rows, &[50, 40], &[10, 40]);
    for options in [options(5), randomized(5, Stop::Tolerance(1e-4))] {
        let pca = pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
        let s = &pca.singular_values;
        assert!(s[1] > 1.0 && s[2..] == [0.0; 3], "{s:?}");
        assert_orthonormal(&pca.vectors);
    }
}

#[test]
fn filters_drop_variants() {
    let dosages = dosages(500, 50);
    let options = options(K).filter(VariantFilter { min_maf: 0.2, max_missing: 0.02 });
    let genotypes = memory(&dosages, &[500, 50], &[100, 50]);
    let counts = pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap().counts;
    let mut expected = VariantCounts { total: 500, ..VariantCounts::default() };
    for row in dosages.chunks(50) {
        let called: Vec<f64> = row.iter().filter(|&&x| x >= 0).map(|&x| f64::from(x)).collect();
        let p = called.iter().sum::<f64>() / called.len() as f64 / 2.0;
        expected.missing_calls += 50 - called.len() as u64;
        if called.len() < 49 {
            expected.above_missing += 1;
        } else if p.min(1.0 - p) < 0.2 {
            expected.below_maf += 1;
        } else if called.iter().all(|x| *x == called[0]) {
            expected.zero_variance += 1;
        } else {
            expected.used += 1;
        }
    }
    let VariantCounts { used, below_maf, above_missing, zero_variance, .. } = expected;
    assert!([used, below_maf, above_missing, zero_variance].iter().all(|count| *count > 0));
    assert_eq!(counts, expected);
}

#[test]
fn cancelling_stops_between_blocks() {
    let genotypes = memory(&dosages(9000, 8), &[9000, 8], &[500, 8]);
    for is_pca in [true, false] {
        let (run, told) = told(|status| status.rows > 0);
        let result = match is_pca {
            true => pca(&genotypes, &Device::cpu(), &options(2), &run).map(drop),
            false => grm(&genotypes, &Device::cpu(), &GrmOptions::default(), &run).map(drop),
        };
        assert_err!(result, Error::Cancelled);
        assert!(told.lock().unwrap().iter().all(|status| (status.passes, status.total) == (1, 9000)));
    }
}

/// Progress and the result report the passes that are made: the loading pass, and the passes of products.
#[test]
fn every_pass_is_told() {
    let dosages = dosages(9000, 60);
    let floats: Vec<f32> = dosages.iter().map(|&x| f32::from(x.max(0))).collect();
    let options = randomized(2, Stop::PowerIterations(2));
    let (shape, chunk) = ([9000, 60], [500, 60]);
    let passes = 5;
    for genotypes in [memory(&dosages, &shape, &chunk), memory(&floats, &shape, &chunk)] {
        let with = |host| {
            let (run, told) = told(|_| false);
            let memory = Budget::default().host(host);
            let result = pca(&genotypes, &Device::cpu(), &options, &run.memory(memory));
            let told = told.lock().unwrap().clone();
            (result, told)
        };
        let Err(Error::Budget { minimum, .. }) = with(1000).0 else { panic!("1000 bytes should not do") };
        for (host, residency, reads) in [(1 << 30, Residency::Device, 1), (minimum, Residency::Store, passes)]
        {
            let (pca, told) = with(host);
            let pca = pca.unwrap();
            assert_eq!((pca.residency, pca.passes), (residency, passes));
            assert_eq!(pca.stats.chunks, 18 * u64::from(reads), "{residency:?}");
            assert!(told.iter().all(|status| status.passes == passes));
            let each: Vec<_> = told.chunk_by(|a, b| a.pass == b.pass).collect();
            assert_eq!(each.len(), passes as usize);
            for (pass, told) in each.iter().enumerate() {
                assert_eq!((told[0].pass as usize, told[0].rows), (pass, 0));
                assert!(told.is_sorted_by(|a, b| a.rows < b.rows) && told[told.len() - 1].rows == 9000);
            }
        }
    }
}

#[test]
fn no_components_still_counts() {
    let genotypes = memory(&dosages(100, 10), &[100, 10], &[30, 10]);
    let pca = pca(&genotypes, &Device::cpu(), &options(0), &Run::default()).unwrap();
    assert!(pca.singular_values.is_empty() && pca.counts.total == 100);
}

/// Stores begun with these texts can be finished only while the texts stay the same.
#[test]
fn texts_of_options_stay() {
    let metrics = [SampleMetric::Ibs, SampleMetric::IbsOfAlleles].map(|metric| metric.stable_text());
    assert_eq!(metrics, ["Ibs", "IbsOfAlleles"]);
    let linkages: Vec<_> = Linkage::ALL.iter().map(StableText::stable_text).collect();
    assert_eq!(linkages, ["Single", "Complete", "Average", "Weighted", "Ward"]);
}
