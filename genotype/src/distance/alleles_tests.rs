//! Tests of distances at sites of more than two alleles, against the definitions.

use std::sync::Arc;

use teatime::{
    Device, Run,
    distance::{Metric, Missing},
    random::philox,
    store::MemoryArray,
};

use super::*;
use crate::{Match, VariantFilter, distance_sums, sample_neighbors, to_usize};

const APART: [SampleMetric; 6] = [
    SampleMetric::Of(Metric::CityBlock),
    SampleMetric::Of(Metric::SqEuclidean),
    SampleMetric::Of(Metric::Euclidean),
    SampleMetric::Of(Metric::Hamming),
    SampleMetric::Ibs,
    SampleMetric::IbsOfAlleles,
];

/// Returns calls. Every third variant has four alleles, the others two, of which one may be the third allele; some calls are missing or partial.
fn calls(variants: usize, samples: usize, ploidy: usize) -> Vec<i8> {
    let word = |i: usize| philox([3, 9], i as u64);
    let mut calls = Vec::new();
    for variant in 0..variants {
        let second = if variant % 5 == 1 { 2 } else { 1 };
        for at in 0..samples * ploidy {
            let [draw, chance, ..] = word(variant * 1000 + at);
            let allele = if variant % 3 == 0 { draw % 4 } else { second * (draw % 2) };
            calls.push(if chance % 23 == 0 { -1 } else { i8::try_from(allele).unwrap() });
        }
    }
    calls
}

fn genotypes(calls: &[i8], variants: usize, samples: usize, ploidy: usize) -> Genotypes {
    let shape = [variants, samples, ploidy].map(|extent| extent as u64);
    let chunk = [shape[0].min(40), shape[1].min(7), shape[2]];
    let array = MemoryArray::new("calls", calls, &shape, &chunk).unwrap();
    Genotypes::new(vec![Arc::new(array)]).unwrap()
}

/// Returns the difference or similarity of two calls, from the copies of each allele.
fn term(metric: SampleMetric, x: &[i8], y: &[i8]) -> f64 {
    let copies = |call: &[i8], allele: i8| call.iter().filter(|other| **other == allele).count() as f64;
    let half = |term: &dyn Fn(f64, f64) -> f64| {
        (0..8).map(|allele| term(copies(x, allele), copies(y, allele))).sum::<f64>() / 2.0
    };
    match metric {
        SampleMetric::IbsOfAlleles => {
            (0..8).map(|allele| copies(x, allele) * copies(y, allele)).sum::<f64>() / 4.0
        }
        SampleMetric::Of(Metric::SqEuclidean | Metric::Euclidean) => half(&|x, y| (x - y) * (x - y)),
        _ => half(&|x, y| (x - y).abs()),
    }
}

fn oracle(options: &DistanceOptions, rows: &[&[i8]], ploidy: usize, [i, j]: [usize; 2]) -> f64 {
    let of = |row: &&[i8], sample: usize| row[sample * ploidy..(sample + 1) * ploidy].to_vec();
    let pairs: Vec<_> = rows.iter().map(|row| [of(row, i), of(row, j)]).collect();
    let known = |pair: &&[Vec<i8>; 2]| pair.iter().flatten().all(|allele| *allele >= 0);
    let both: Vec<_> = pairs.iter().filter(known).collect();
    let sum: f64 = both.iter().map(|[x, y]| term(options.metric, x, y)).sum();
    let (n, all) = (both.len() as f64, rows.len() as f64);
    match (options.metric, options.missing_rule()) {
        (_, Missing::Propagate) if pairs.len() > both.len() => f64::NAN,
        (SampleMetric::Ibs, _) => 1.0 - sum / (ploidy as f64 * n),
        (SampleMetric::IbsOfAlleles | SampleMetric::Of(Metric::Hamming), _) => sum / n,
        (SampleMetric::Of(metric), rule) => {
            let sum = if rule == Missing::Rescale { sum * all / n } else { sum };
            if metric == Metric::Euclidean { sum.sqrt() } else { sum }
        }
    }
}

fn compute(genotypes: &Genotypes, options: &DistanceOptions) -> Distances {
    distances(genotypes, &Device::cpu(), options, &Run::default()).unwrap()
}

fn is_close(actual: f64, expected: f64) -> bool {
    (actual - expected).abs() <= 1e-12 * expected.abs().max(1.0) || actual.is_nan() && expected.is_nan()
}

#[test]
fn different_alleles_differ() {
    for (variants, samples) in [(1, 2), (64, 5), (130, 66)] {
        for ploidy in [1, 2, 3] {
            let calls = calls(variants, samples, ploidy);
            let genotypes = genotypes(&calls, variants, samples, ploidy);
            let filter = VariantFilter { min_maf: 0.2013, max_missing: 0.2037 };
            for metric in APART {
                if metric == SampleMetric::IbsOfAlleles && ploidy != 2
                    || metric == SampleMetric::Of(Metric::Hamming) && ploidy != 1
                {
                    continue;
                }
                for missing in [None, Some(Missing::Ignore), Some(Missing::Propagate)] {
                    for filter in [VariantFilter::default(), filter] {
                        let options =
                            DistanceOptions { metric, missing, filter, ..DistanceOptions::default() };
                        let kept = |row: &&[i8]| {
                            let called =
                                row.chunks(ploidy).filter(|call| call.iter().all(|allele| *allele >= 0));
                            let called: Vec<i8> = called.flatten().copied().collect();
                            let share = called.len() as f64 / row.len() as f64;
                            let p = called.iter().filter(|a| **a > 0).count() as f64 / called.len() as f64;
                            1.0 - share <= filter.max_missing && p.min(1.0 - p) >= filter.min_maf
                        };
                        let rows: Vec<&[i8]> = calls.chunks(samples * ploidy).filter(kept).collect();
                        if rows.is_empty() {
                            continue;
                        }
                        let found = compute(&genotypes, &options);
                        assert_eq!(
                            (found.facts.counts.loaded(), found.facts.merged),
                            (rows.len() as u64, false)
                        );
                        for (i, j) in (0..samples).flat_map(|i| (0..samples).map(move |j| (i, j))) {
                            let expected = oracle(&options, &rows, ploidy, [i, j]);
                            let actual = found.matrix.row(i)[j];
                            let is_own = i == j && metric.het_het().is_none() && !expected.is_nan();
                            let expected = if is_own { 0.0 } else { expected };
                            assert!(
                                is_close(actual, expected),
                                "{options:?} {ploidy} {i} {j}: {actual}, {expected}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// A variant counts as multiallelic if selected samples carry two alternate alleles.
#[test]
fn merged_alleles_are_counted() {
    let (variants, samples) = (90, 12);
    let calls = calls(variants, samples, 2);
    let all = genotypes(&calls, variants, samples, 2);
    let plain = DistanceOptions::default();
    let of = |metric| DistanceOptions { metric: SampleMetric::Of(metric), ..plain };
    let merged: Vec<i8> = calls.iter().map(|allele| (*allele).min(1)).collect();
    let biallelic = genotypes(&merged, variants, samples, 2);
    for options in [of(Metric::Correlation), of(Metric::Hamming), of(Metric::CityBlock).merge_alleles(true)] {
        let (found, expected) = (compute(&all, &options), compute(&biallelic, &options));
        assert_eq!((found.facts.multiallelic, found.facts.merged), (30, true), "{options:?}");
        assert_eq!((expected.facts.multiallelic, &found.matrix), (0, &expected.matrix), "{options:?}");
    }
    assert_eq!(compute(&all.clone().count_allele(2).unwrap(), &plain).facts.multiallelic, 0);
    // Bands hold dosages, in which alternate alleles are merged.
    let bands =
        |options: &DistanceOptions| DistanceBands::new(&all, &Device::cpu(), options, 64, &Run::default());
    let error = bands(&plain).unwrap_err().to_string();
    assert!(error.contains("`merge_alleles`") && error.contains("30 of the variants"), "{error}");
    assert_eq!(bands(&plain.merge_alleles(true)).unwrap().facts().multiallelic, 30);
    // The nearest samples then come from the whole matrix.
    let nearest = sample_neighbors(&all, &Device::cpu(), &of(Metric::CityBlock), 3, &Run::default()).unwrap();
    assert_eq!((nearest.bands, nearest.facts.multiallelic, nearest.facts.merged), (None, 30, false));
    let matrix = compute(&all, &of(Metric::CityBlock)).matrix;
    let row = &nearest.nearest.indices[..3];
    assert!(
        row.iter()
            .zip(nearest.nearest.distances.row(0))
            .all(|(at, near)| matrix.row(0)[to_usize(*at)] == *near)
    );
    // Two stores number their alleles independently.
    let matches: Vec<_> = (0..90).rev().map(|row| (row % 2 == 0).then_some(Match::Same(row))).collect();
    let between =
        distances(SamplePairs::between(&all, &biallelic, &matches), &Device::cpu(), &plain, &Run::default())
            .unwrap();
    assert_eq!((between.facts.counts.loaded(), between.facts.multiallelic), (45, 15));
}

#[test]
fn parts_tell_alleles_apart() {
    let (variants, samples) = (90, 12);
    let all = genotypes(&calls(variants, samples, 2), variants, samples, 2);
    for metric in [Metric::Euclidean, Metric::CityBlock] {
        let sums = |rows: std::ops::Range<u64>| {
            let part = all.clone().select([rows]).unwrap();
            distance_sums(&part, &Device::cpu(), metric, Missing::Rescale, &Run::default()).unwrap()
        };
        let mut merged = sums(0..31);
        merged.merge(&sums(31..90)).unwrap();
        let whole = compute(&all, &DistanceOptions::default().metric(SampleMetric::Of(metric)));
        assert_eq!(merged.finish().unwrap().distances, whole.matrix);
    }
}

/// Missing calls do not make a sample nearer.
#[test]
fn missing_calls_bring_no_sample_near() {
    // The second sample is as far from the first as the third is, but lacks half of the calls.
    let dosages: Vec<i8> = (0..40).flat_map(|row| [0, if row % 2 == 0 { 1 } else { -1 }, 1, -1]).collect();
    let array = MemoryArray::new("dosages", &dosages, &[40, 4], &[10, 4]).unwrap();
    let genotypes = Genotypes::new(vec![Arc::new(array)]).unwrap();
    for metric in
        [Metric::Euclidean, Metric::SqEuclidean, Metric::CityBlock, Metric::Hamming, Metric::Canberra]
    {
        let options = DistanceOptions::default().metric(SampleMetric::Of(metric));
        let matrix = compute(&genotypes, &options).matrix;
        assert_eq!(matrix.row(0)[1], matrix.row(0)[2], "{metric}");
        assert!(matrix.row(0)[3].is_nan(), "{metric}");
        let theirs = compute(&genotypes, &options.missing(Missing::Ignore)).matrix;
        assert!(theirs.row(0)[1] <= matrix.row(0)[1] && theirs.row(0)[3] == 0.0, "{metric}");
    }
    let ibs = compute(&genotypes, &DistanceOptions::default().metric(SampleMetric::Ibs)).matrix;
    assert!(ibs.row(0)[1] == 0.5 && ibs.row(0)[2] == 0.5 && ibs.row(0)[3].is_nan());
}
