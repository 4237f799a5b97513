//! Tests of relationship matrices against their definitions in f64, and of the documented guarantees.

use teatime::{Device, Error, Run, assert_err};

use super::*;
use crate::{
    grm,
    tests::{assert_refused, binary, changes_no_bit, dosages, entries, grm_bits, memory},
};

#[cfg(feature = "zarr")]
mod stores;

fn every() -> impl Iterator<Item = GrmOptions> {
    GrmMethod::ALL.iter().flat_map(|method| {
        MissingCalls::ALL.iter().map(move |missing| GrmOptions::default().method(*method).missing(*missing))
    })
}

/// Returns the relationships and the numbers of variants by the definitions, pair by pair; negative dosages are missing.
fn oracle(dosages: &[f64], samples: usize, ploidy: f64, options: &GrmOptions) -> (Vec<f64>, Vec<f64>) {
    let gcta = options.method == GrmMethod::Gcta;
    let (mut over, mut under) = (vec![0.0; samples * samples], vec![0.0; samples * samples]);
    let mut variants = vec![0.0; samples * samples];
    for row in dosages.chunks(samples) {
        let called: Vec<f64> = row.iter().copied().filter(|&x| x >= 0.0).collect();
        let mean = called.iter().sum::<f64>() / called.len() as f64;
        let p = mean / ploidy;
        if (1.0 - called.len() as f64 / samples as f64) > options.filter.max_missing
            || p.min(1.0 - p) < options.filter.min_maf
        {
            continue;
        }
        let varies = called.iter().any(|&x| x != called[0]);
        let variance = if called.is_empty() { 0.0 } else { ploidy * p * (1.0 - p) };
        for (at, (over, under)) in over.iter_mut().zip(&mut under).enumerate() {
            let (x, y) = (row[at / samples], row[at % samples]);
            let both = x >= 0.0 && y >= 0.0;
            if both || options.missing == MissingCalls::Mean {
                variants[at] += 1.0;
                *under += if gcta { 1.0 } else { variance };
            }
            if both && varies {
                *over += (x - mean) * (y - mean) / if gcta { variance } else { 1.0 };
            }
        }
    }
    (over.iter().zip(&under).map(|(over, under)| over / under).collect(), variants)
}

fn assert_matches(grm: &Grm, dosages: &[f64], ploidy: f64, options: &GrmOptions) {
    let n = grm.matrix.rows();
    let (expected, variants) = oracle(dosages, n, ploidy, options);
    for (at, (&actual, expected)) in grm.matrix.data().iter().zip(&expected).enumerate() {
        let (j, k) = (at / n, at % n);
        let size = 1.0 + expected.abs() + grm.matrix.row(j)[j].max(grm.matrix.row(k)[k]);
        let same = (actual - expected).abs() < 1e-6 * size || actual.is_nan() && expected.is_nan();
        assert!(same, "{options:?} {n}, samples {j} and {k}: {actual} against {expected}");
        assert_eq!(grm.variants(j, k), variants[at], "{options:?} {n}, samples {j} and {k}");
        assert_eq!(actual.to_bits(), grm.matrix.row(k)[j].to_bits(), "symmetric");
    }
    assert_eq!(grm.shared.is_some(), options.missing == MissingCalls::Pairwise);
}

fn wide(dosages: &[i8]) -> Vec<f64> {
    dosages.iter().map(|&x| f64::from(x)).collect()
}

fn compute(genotypes: &Genotypes, options: &GrmOptions) -> Result<Grm> {
    grm(genotypes, &Device::cpu(), options, &Run::default())
}

/// Compares the matrix with its definition, by every method and rule for missing calls; `dosages` are those of `genotypes`.
fn check(genotypes: &Genotypes, dosages: &[f64], ploidy: f64, filter: VariantFilter) {
    for options in every() {
        let options = options.filter(filter);
        let grm = compute(genotypes, &options).unwrap();
        assert_matches(&grm, dosages, ploidy, &options);
        assert_eq!((grm.method, grm.missing), (options.method, options.missing));
        assert_eq!(grm.counts.below_maf > 0 && grm.counts.above_missing > 0, filter.min_maf > 0.0);
    }
}

#[test]
fn matches_the_definitions() {
    let (all, some) = (VariantFilter::default(), VariantFilter { min_maf: 0.2, max_missing: 0.03 });
    for (variants, samples) in [(1, 2), (2, 3), (255, 17), (257, 64), (1100, 60), (4097, 9), (8200, 5)] {
        let dosages = dosages(variants, samples);
        let genotypes = memory(&dosages, &[variants as u64, samples as u64], &[100, 25]);
        check(&genotypes, &wide(&dosages), 2.0, all);
    }
    let filtered = dosages(500, 50);
    check(&memory(&filtered, &[500, 50], &[100, 50]), &wide(&filtered), 2.0, some);
    // Calls of other ploidies.
    let alleles: Vec<i8> = dosages(400, 48).iter().map(|d| i8::from(*d > 0) - i8::from(*d < 0)).collect();
    for ploidy in [1, 3, 4] {
        let sum = |call: &[i8]| if call.contains(&-1) { -1 } else { call.iter().sum() };
        let dosages: Vec<i8> = alleles.chunks(ploidy).map(sum).collect();
        let shape = [400, 48 / ploidy as u64, ploidy as u64];
        check(&memory(&alleles, &shape, &[100, 48, 4]), &wide(&dosages), ploidy as f64, all);
    }
    // Fractions, of which a negative one is missing in the definition.
    let fraction = |(i, x): (usize, i8)| f64::from(f32::from(x) * 0.9 + 0.01 * (i % 20) as f32);
    let values = dosages(300, 40).into_iter().enumerate();
    let values: Vec<f64> = values.map(|at| if at.1 < 0 { f64::NAN } else { fraction(at) }).collect();
    let genotypes = memory(&values, &[300, 40], &[100, 40]);
    assert!(matches!(compute(&genotypes, &GrmOptions::default()), Err(Error::Chunk { .. })));
    let below: Vec<f64> = values.iter().map(|x| if x.is_nan() { -1.0 } else { *x }).collect();
    check(&genotypes.nan_is_missing(true), &below, 2.0, all);
}

#[test]
fn blocks_without_missing_calls_count_for_every_pair() {
    // The first block of 4,096 variants is complete, the second has one missing call, and the third, of 100 variants, has a variant without calls.
    let mut dosages: Vec<i8> = dosages(8292, 6).into_iter().map(|x| x.max(0)).collect();
    dosages[5000 * 6 + 2] = -1;
    dosages[8250 * 6..8251 * 6].fill(-1);
    check(&memory(&dosages, &[8292, 6], &[1000, 6]), &wide(&dosages), 2.0, VariantFilter::default());
    // Without missing calls, both rules for them give the same bits.
    let complete: Vec<i8> = dosages.into_iter().map(|x| x.max(0)).collect();
    for &method in GrmMethod::ALL {
        let [pairwise, mean] = [MissingCalls::Pairwise, MissingCalls::Mean].map(|missing| {
            let options = GrmOptions { method, missing, ..GrmOptions::default() };
            compute(&memory(&complete, &[8292, 6], &[1000, 6]), &options).unwrap()
        });
        assert!(pairwise.matrix == mean.matrix);
        assert!(pairwise.shared.unwrap().data().iter().all(|&count| count == 8292.0));
    }
}

#[test]
fn chunks_threads_types_and_budgets_change_no_bit() {
    for options in [GrmOptions::default(), every().last().unwrap()] {
        changes_no_bit(|genotypes, device, run| {
            let grm = grm(genotypes, device, &options, run)?;
            Ok((grm_bits(&grm), grm.digest))
        });
    }
}

#[test]
fn pairs_that_share_nothing_are_nan() {
    // Samples 0 and 1 are never called together; sample 5 has no calls; samples 3 and 4 share only variants that do not vary.
    let mut rows = dosages(60, 6).into_iter().map(|x| x.max(0)).collect::<Vec<i8>>();
    for (i, row) in rows.chunks_mut(6).enumerate() {
        row[i % 2] = -1;
        row[5] = -1;
        if i < 10 {
            row.iter_mut().for_each(|x| *x = if *x < 0 { -1 } else { 0 });
        } else {
            row[3 + i / 2 % 2] = -1;
        }
    }
    for (method, undefined) in [(GrmMethod::Gcta, 7), (GrmMethod::VanRaden1, 8)] {
        let options = GrmOptions { method, ..GrmOptions::default() };
        let grm = compute(&memory(&rows, &[60, 6], &[7, 6]), &options).unwrap();
        assert_matches(&grm, &wide(&rows), 2.0, &options);
        assert_eq!(grm.undefined(), undefined);
        assert!(grm.matrix.row(0)[1].is_nan() && grm.matrix.row(5)[5].is_nan());
        assert_eq!(grm.matrix.row(3)[4].is_nan(), method == GrmMethod::VanRaden1);
        assert_eq!((grm.variants(0, 1), grm.variants(3, 4)), (0.0, 10.0));
        let options = GrmOptions { missing: MissingCalls::Mean, ..options };
        let mean = compute(&memory(&rows, &[60, 6], &[7, 6]), &options).unwrap();
        assert_matches(&mean, &wide(&rows), 2.0, &options);
        assert_eq!(mean.undefined(), 0);
    }
}

#[test]
fn bad_input_is_named() {
    let good = dosages(60, 12);
    let fails = |genotypes: &Genotypes, options: &GrmOptions, needle: &str| {
        assert_refused(compute(genotypes, options), &[needle])
    };
    for options in every() {
        fails(&memory(&[-1i8; 40], &[10, 4], &[4, 4]), &options, "10 have no call");
        fails(&memory(&[1i8; 40], &[10, 4], &[4, 4]), &options, "10 do not vary");
        fails(&memory(&good[..60], &[60, 1], &[20, 1]), &options, "do not vary");
        let filter = VariantFilter { min_maf: 0.5, ..VariantFilter::default() };
        fails(&memory(&good[..12], &[1, 12], &[1, 12]), &GrmOptions { filter, ..options }, "1 have too low");
    }
}

fn small() -> Grm {
    compute(&memory(&dosages(60, 3), &[60, 3], &[20, 3]), &GrmOptions::default()).unwrap()
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "the format has f32")]
fn files() {
    let (scratch, grm) = (tempfile::tempdir().unwrap(), small());
    let prefix = scratch.path().join("x");
    for _ in 0..2 {
        grm.write_gcta(&prefix, None, &["a", "b", "c"]).unwrap();
        assert_eq!(entries(&scratch), ["x.grm.N.bin", "x.grm.bin", "x.grm.id"]);
    }
    let floats = |name: &str| binary::<f32>(scratch.path().join(name));
    let lower = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)];
    assert_eq!(floats("x.grm.bin"), lower.map(|(j, k)| grm.matrix.row(j)[k] as f32));
    assert_eq!(floats("x.grm.N.bin"), lower.map(|(j, k)| grm.variants(j, k) as f32));
    assert_eq!(std::fs::read_to_string(scratch.path().join("x.grm.id")).unwrap(), "0\ta\n0\tb\n0\tc\n");
    for names in [vec!["a", "b"], vec!["a", "b", "c d"], vec!["a", "b\t", "c"], vec!["", "b", "c"]] {
        let refused = grm.write_gcta(&prefix, None, &names);
        assert!(matches!(refused, Err(Error::Argument { name: "samples", .. })), "{names:?}");
    }
    assert_err!(grm.write_gcta(scratch.path().join("no/such/x"), None, &["a", "b", "c"]), Error::Io { .. });
    std::fs::create_dir(scratch.path().join("y.grm.bin")).unwrap();
    assert_err!(grm.write_gcta(scratch.path().join("y"), None, &["a", "b", "c"]), Error::Io { .. });
    assert_eq!(entries(&scratch), ["x.grm.N.bin", "x.grm.bin", "x.grm.id", "y.grm.bin"]);
}
