//! Tests of distances of samples against their definitions, and of the documented guarantees.

use teatime::{
    Tensor, distance,
    openings::{cpu, least},
    random::philox,
};

use super::*;
use crate::{
    Match, VariantFilter,
    tests::{assert_refused, binary, calls, changes_no_bit, dosages, fixture, fractions, memory, pair_bits},
};

mod files;
mod refused;
mod ways;

/// The metrics whose sums are whole numbers.
const METRICS: [SampleMetric; 9] = [
    SampleMetric::Of(Metric::Euclidean),
    SampleMetric::Of(Metric::SqEuclidean),
    SampleMetric::Of(Metric::CityBlock),
    SampleMetric::Of(Metric::Hamming),
    SampleMetric::Of(Metric::InnerProduct),
    SampleMetric::Of(Metric::Cosine),
    SampleMetric::Of(Metric::Correlation),
    SampleMetric::Ibs,
    SampleMetric::IbsOfAlleles,
];
const CITYBLOCK: SampleMetric = SampleMetric::Of(Metric::CityBlock);

/// Metrics that are computed in f32.
const OTHERS: [Metric; 5] =
    [Metric::Chebyshev, Metric::Canberra, Metric::BrayCurtis, Metric::Jaccard, Metric::Minkowski(3.0)];

fn options(metric: SampleMetric) -> DistanceOptions {
    DistanceOptions::default().metric(metric).missing(Missing::Ignore)
}

fn compute<'a>(pairs: impl Into<SamplePairs<'a>>, options: &DistanceOptions) -> Distances {
    distances(pairs, cpu(), options, &Run::default()).unwrap()
}

/// Returns true if a rule for missing calls is for this metric: a mean is not rescaled.
fn takes(metric: SampleMetric, missing: Option<Missing>) -> bool {
    metric.het_het().is_none() || !matches!(missing, Some(Missing::Rescale | Missing::RescaleOrZero))
}

/// Returns true if two numbers are equal, to the bit if they are `exact`.
fn is_same(actual: f64, expected: f64, exact: bool) -> bool {
    let close = (actual - expected).abs() <= 2e-5 * expected.abs().max(1.0);
    actual.to_bits() == expected.to_bits() || !exact && (close || actual.is_nan() && expected.is_nan())
}

/// Calls, (variants, samples, ploidy), in which each allele but the reference adds `size` to the dosage.
struct Calls {
    alleles: Vec<i8>,
    samples: usize,
    ploidy: usize,
    size: f64,
}

impl Calls {
    /// Makes calls. Every third variant has four alleles, the others two, one of them perhaps the third; some calls are missing or partial.
    fn of_many_alleles(variants: usize, samples: usize, ploidy: usize) -> Self {
        let mut alleles = Vec::new();
        for (variant, at) in (0..variants).flat_map(|row| (0..samples * ploidy).map(move |at| (row, at))) {
            let [draw, chance, ..] = philox([3, 9], (variant * 1000 + at) as u64);
            let second = if variant % 5 == 1 { 2 } else { 1 };
            let allele = if variant % 3 == 0 { draw % 4 } else { second * (draw % 2) };
            alleles.push(if chance % 23 == 0 { -1 } else { i8::try_from(allele).unwrap() });
        }
        Self { alleles, samples, ploidy, size: 1.0 }
    }

    fn of_dosages(dosages: &[i8], samples: usize, size: f64) -> Self {
        Self { alleles: calls(dosages, 2), samples, ploidy: 2, size }
    }

    fn stored(&self) -> Genotypes {
        let shape = [self.alleles.len() / (self.samples * self.ploidy), self.samples, self.ploidy];
        memory(&self.alleles, &shape.map(|extent| extent as u64), &[40, 7, self.ploidy as u64])
    }

    /// Returns the distances that the definitions give, and the numbers of shared variants: by the library, in f64, from the copies of each
    /// allele in the variants that pass the filter. Also returns their number.
    fn expected(&self, options: &DistanceOptions) -> (Vec<f64>, Vec<f64>, u64) {
        let &Self { samples, ploidy, size, .. } = self;
        let VariantFilter { min_maf, max_missing } = options.filter;
        let metric = match options.metric {
            SampleMetric::Ibs => Metric::CityBlock,
            SampleMetric::IbsOfAlleles => Metric::InnerProduct,
            SampleMetric::Of(metric) => metric,
        };
        let mean = options.metric.het_het().is_some();
        let tells = mean || matches!(metric, Metric::Euclidean | Metric::SqEuclidean | Metric::CityBlock);
        let tells = tells || metric == Metric::Hamming && ploidy == 1;
        let (alleles, mut kept) = (if tells { 4 } else { 1 }, Vec::new());
        for row in self.alleles.chunks(samples * ploidy) {
            let calls =
                || row.chunks(ploidy).map(|call| call.iter().all(|allele| *allele >= 0).then_some(call));
            let copies = |call: &[i8], of: i8| {
                let is_one =
                    |allele: i8| if options.merge_alleles { of == 1 && allele > 0 } else { allele == of };
                size * call.iter().filter(|allele| is_one(**allele)).count() as f64
            };
            let dosage = |call: &[i8]| size * call.iter().filter(|allele| **allele > 0).count() as f64;
            let called: Vec<f64> = calls().flatten().map(dosage).collect();
            let p = called.iter().sum::<f64>() / (called.len() * ploidy) as f64;
            let is_missing = 1.0 - called.len() as f64 / samples as f64 > max_missing;
            if is_missing || min_maf > 0.0 && p.min(1.0 - p) < min_maf {
                continue;
            }
            for allele in 0..alleles {
                let number = |call: &[i8]| match (tells, allele) {
                    (true, 1..) => copies(call, allele),
                    (true, _) => ploidy as f64 - dosage(call),
                    _ => dosage(call),
                };
                kept.extend(calls().map(|call| call.map_or(f64::NAN, number)));
            }
        }
        let (per, count) = (f64::from(alleles), kept.len() / samples);
        let x = Tensor::from_slice(cpu(), &kept, &[count as u64, samples as u64]).unwrap();
        let found = |missing| {
            let of = distance::Options::default().columns(true).missing(missing);
            distance::pairwise_counted(&x, None, metric, &of, &Run::default()).unwrap()
        };
        let rule = if mean { Missing::Ignore } else { Missing::Rescale };
        let Found { distances: sums, shared, .. } = found(options.missing.unwrap_or(rule));
        let shared = shared.unwrap_or_else(|| found(Missing::Ignore).shared.unwrap());
        let shared: Vec<f64> = shared.data().iter().map(|count| count / per).collect();
        let finish = |(sum, shared): (&f64, &f64)| match options.metric {
            SampleMetric::Ibs if *shared == 0.0 => f64::NAN,
            SampleMetric::Ibs => 1.0 - sum / (2.0 * ploidy as f64 * shared),
            SampleMetric::IbsOfAlleles => sum / (4.0 * shared),
            SampleMetric::Of(Metric::Euclidean) => sum * 0.5f64.sqrt(),
            SampleMetric::Of(Metric::Hamming) if tells => sum * per / 2.0,
            SampleMetric::Of(_) if tells => sum / 2.0,
            SampleMetric::Of(_) => *sum,
        };
        let distances = sums.data().iter().zip(&shared).map(finish).collect();
        (distances, shared, count as u64 / alleles as u64)
    }
}

/// Compares calls of all ploidies and alleles, and dosages in two bits and in f32, with the definitions; merged sums of parts, too.
#[test]
fn matches_the_definitions() {
    let dosages = dosages(260, 70);
    let complete: Vec<i8> = dosages.iter().map(|x| *x.max(&0)).collect();
    let packed =
        |dosages: &[i8]| (memory(dosages, &[260, 70], &[100, 25]), Calls::of_dosages(dosages, 70, 1.0), true);
    let in_f32 = |dosages: &[i8]| (fractions(dosages, 0.75, 70), Calls::of_dosages(dosages, 70, 0.75), false);
    let calls = [(130, 66, 2), (1, 2, 2), (130, 66, 1), (64, 5, 3), (3, 2, 1)];
    let calls = calls.map(|(variants, samples, ploidy)| {
        let calls = Calls::of_many_alleles(variants, samples, ploidy);
        (calls.stored(), calls, ploidy <= 2)
    });
    let forms = [packed(&dosages), packed(&complete), in_f32(&dosages), in_f32(&complete)];
    let rules = [None, Some(Missing::Ignore), Some(Missing::RescaleOrZero), Some(Missing::Propagate)];
    let filters = [VariantFilter::default(), VariantFilter { min_maf: 0.2013, max_missing: 0.2037 }];
    for (genotypes, calls, packed) in forms.into_iter().chain(calls) {
        for metric in METRICS.into_iter().chain(OTHERS.map(SampleMetric::Of)) {
            for (missing, at) in rules.into_iter().flat_map(|rule| (0..3).map(move |at| (rule, at))) {
                let (filter, merge_alleles) = (filters[at % 2], at > 1);
                let options = DistanceOptions { metric, missing, filter, merge_alleles, tree: None };
                let (expected, shared, count) = calls.expected(&options);
                let is_refused = metric == SampleMetric::IbsOfAlleles && (!packed || calls.ploidy != 2);
                if is_refused || !takes(metric, missing) || count == 0 {
                    continue;
                }
                let (found, n) = (compute(&genotypes, &options), calls.samples);
                let case = format!("{options:?} of ploidy {} and size {}", calls.ploidy, calls.size);
                assert_eq!((found.facts.counts.loaded(), found.matrix.rows()), (count, n), "{case}");
                let exact = packed && METRICS.contains(&metric);
                let complete = shared.iter().all(|shared| *shared == count as f64);
                // A sample is exactly at its own place, if all is exact.
                let own = match metric {
                    _ if !exact || !complete => None,
                    SampleMetric::Of(Metric::InnerProduct) | SampleMetric::IbsOfAlleles => None,
                    SampleMetric::Ibs => Some(1.0),
                    SampleMetric::Of(_) => Some(0.0),
                };
                for (at, (&actual, expected)) in found.matrix.data().iter().zip(expected).enumerate() {
                    let near = (actual - expected).abs() <= 1e-12 * expected.abs().max(1.0);
                    let same = near || !exact && is_same(actual, expected, false);
                    assert!(same || actual.is_nan() && expected.is_nan(), "{case}: {actual}, {expected}");
                    let is_own = at % (n + 1) == 0 && !actual.is_nan();
                    assert!(!is_own || own.is_none_or(|own| actual == own), "{case}");
                    let other = found.matrix.data()[at % n * n + at / n];
                    assert_eq!(actual.to_bits(), other.to_bits(), "{case}");
                }
                assert!(found.shared.is_some() != complete || missing == Some(Missing::Propagate), "{case}");
                assert!(found.shared.is_none_or(|found| found.data() == shared), "{case}");
                // Sums over parts know no filter, and tell alleles apart.
                let (SampleMetric::Of(metric), 0, Some(missing)) = (metric, at, missing) else { continue };
                let sums = |rows: std::ops::Range<u64>| {
                    let part = genotypes.clone().select([rows]).unwrap();
                    distance_sums(&part, cpu(), metric, missing, &Run::default()).unwrap()
                };
                let split = genotypes.variants() / 2;
                let mut merged = sums(split..genotypes.variants());
                if split > 0 {
                    merged.merge(&sums(0..split)).unwrap();
                }
                let merged = merged.finish().unwrap().distances;
                let mut pairs = merged.data().iter().zip(found.matrix.data());
                assert!(pairs.all(|(a, b)| is_same(*a, *b, exact) || a.is_nan() && b.is_nan()), "{case}");
            }
        }
    }
}

/// A variant counts as multiallelic if selected samples carry two alternate alleles.
#[test]
fn merged_alleles_are_counted() {
    let calls = Calls::of_many_alleles(90, 12, 2);
    let (all, plain) = (calls.stored(), DistanceOptions::default());
    let of = |metric| DistanceOptions::default().metric(SampleMetric::Of(metric));
    let merged = calls.alleles.iter().map(|allele| (*allele).min(1)).collect();
    let biallelic = Calls { alleles: merged, ..calls }.stored();
    for options in [of(Metric::Correlation), of(Metric::Hamming), of(Metric::CityBlock).merge_alleles(true)] {
        let (found, expected) = (compute(&all, &options), compute(&biallelic, &options));
        assert_eq!((found.facts.multiallelic, found.facts.merged), (30, true), "{options:?}");
        assert_eq!((expected.facts.multiallelic, &found.matrix), (0, &expected.matrix), "{options:?}");
    }
    assert_eq!(compute(&all.clone().count_allele(2).unwrap(), &plain).facts.multiallelic, 0);
    // Bands hold dosages, in which alternate alleles are merged.
    let bands = |options: &DistanceOptions| DistanceBands::new(&all, cpu(), options, 64, &Run::default());
    assert_refused(bands(&plain), &["`merge_alleles`", "30 of the variants"]);
    assert_eq!(bands(&plain.merge_alleles(true)).unwrap().facts().multiallelic, 30);
    // The nearest samples then come from the whole matrix.
    assert_eq!(ways::check_nearest(&all, &plain, 3, &Run::default()), None);
    // Two stores number their alleles independently.
    let matches: Vec<_> = (0..90).rev().map(|row| (row % 2 == 0).then_some(Match::Same(row))).collect();
    let facts = compute(SamplePairs::between(&all, &biallelic, &matches), &plain).facts;
    assert_eq!((facts.counts.loaded(), facts.multiallelic, facts.merged), (45, 15, true));
}

/// The samples of one store, and those of two stores, which are read at the same time.
#[test]
fn chunks_threads_types_and_budgets_change_no_bit() {
    let matches: Vec<_> = (0..700).map(|row| (row % 5 != 3).then_some(Match::Same(row))).collect();
    for metric in [SampleMetric::Of(Metric::Correlation), SampleMetric::IbsOfAlleles] {
        for two in [false, true] {
            changes_no_bit(|genotypes, device, run| {
                let sides =
                    [0..13, 13..33].map(|samples| genotypes.clone().select_samples([samples]).unwrap());
                let between = SamplePairs::between(&sides[0], &sides[1], &matches);
                let pairs = if two { between } else { genotypes.into() };
                let result = distances(pairs, device, &options(metric), run)?;
                Ok((pair_bits(&result.matrix, &result.shared), result.facts.digest))
            });
        }
    }
}

#[test]
fn results_count_in_the_budget() {
    let (genotypes, device) = (memory(&dosages(60, 200), &[60, 200], &[20, 200]), cpu());
    let of_tree = |tree| {
        let options = DistanceOptions { tree, ..DistanceOptions::default() };
        let (bytes, result) = least(|run| distances(&genotypes, device, &options, run));
        assert_eq!(result.tree.is_some(), tree.is_some());
        bytes
    };
    assert!(of_tree(Some(Linkage::Average)) >= of_tree(None) + 4 * 200 * 200);
    for metric in [Metric::Euclidean, Metric::Canberra] {
        let options = DistanceOptions::default().metric(SampleMetric::Of(metric));
        let of = |k| least(|run| sample_neighbors(&genotypes, device, &options, k, run)).0;
        assert_eq!(of(199) - of(1), 32 * 198 * 200, "{metric}");
    }
}

#[test]
fn plinks_distances() {
    let genotypes = crate::bed::BedFile::open(fixture("plink1/biallelic.bed")).unwrap().genotypes().unwrap();
    for (name, metric, missing) in [
        ("biallelic.dist.bin", CITYBLOCK, Missing::Rescale),
        ("biallelic.mibs.bin", SampleMetric::Ibs, Missing::Ignore),
    ] {
        let expected: Vec<f64> = binary(fixture("plink19").join(name));
        let result = compute(&genotypes, &options(metric).missing(missing));
        assert_eq!((result.matrix.data().len(), result.shared.is_some()), (expected.len(), true));
        for (actual, expected) in result.matrix.data().iter().zip(expected) {
            assert!((actual - expected).abs() <= 1e-15 * expected.abs(), "{name}: {actual}, {expected}");
        }
    }
}
