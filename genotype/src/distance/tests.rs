//! Tests of distances of samples against their definitions, and of the documented guarantees.

use teatime::{
    Device, Error, Run, Tensor,
    distance::{self, Metric, Missing},
    openings::least,
};

use super::*;
use crate::{
    VariantFilter,
    tests::{assert_refused, changes_no_bit, dosages, fixture, memory, pair_bits},
};

/// The metrics whose sums are whole numbers.
pub(super) const METRICS: [SampleMetric; 9] = [
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

pub(super) fn options(metric: SampleMetric) -> DistanceOptions {
    DistanceOptions { metric, missing: Some(Missing::Ignore), ..DistanceOptions::default() }
}

fn compute(genotypes: &Genotypes, options: &DistanceOptions) -> Result<Distances> {
    distances(genotypes, &Device::cpu(), options, &Run::default())
}

/// Computes a distance by its definition over the variants called in both samples; negative values are missing.
fn oracle(metric: SampleMetric, pairs: &[[f64; 2]], ploidy: f64) -> f64 {
    let n = pairs.len() as f64;
    let sum = |term: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|[x, y]| term(*x, *y)).sum::<f64>();
    let cosine = |means: [f64; 2]| {
        let centred = |term: &dyn Fn(f64, f64) -> f64| sum(&|x, y| term(x - means[0], y - means[1]));
        1.0 - centred(&|x, y| x * y) / (centred(&|x, _| x * x) * centred(&|_, y| y * y)).sqrt()
    };
    let difference = |x: f64, y: f64| (x - y).abs();
    match metric {
        SampleMetric::Ibs => 1.0 - sum(&difference) / (ploidy * n),
        SampleMetric::IbsOfAlleles => sum(&|x, y| 0.5 + 0.5 * (x - 1.0) * (y - 1.0)) / n,
        SampleMetric::Of(metric) => match metric {
            Metric::Euclidean => sum(&|x, y| (x - y) * (x - y)).sqrt(),
            Metric::SqEuclidean => sum(&|x, y| (x - y) * (x - y)),
            Metric::CityBlock => sum(&difference),
            Metric::Hamming => sum(&|x, y| f64::from(x != y)) / n,
            Metric::InnerProduct => sum(&|x, y| x * y),
            Metric::Cosine => cosine([0.0; 2]),
            _ => cosine([sum(&|x, _| x) / n, sum(&|_, y| y) / n]),
        },
    }
}

fn assert_matches(result: &Distances, dosages: &[i8], ploidy: f64) {
    let n = result.matrix.rows();
    let rows: Vec<&[i8]> = dosages.chunks(n).collect();
    assert_eq!(result.facts.counts.loaded(), rows.len() as u64);
    for j in 0..n {
        for k in 0..n {
            let called = rows.iter().map(|row| [row[j], row[k]]).filter(|pair| pair.iter().all(|&x| x >= 0));
            let called: Vec<[f64; 2]> = called.map(|pair| pair.map(f64::from)).collect();
            let expected = oracle(result.facts.options.metric, &called, ploidy);
            let actual = result.matrix.row(j)[k];
            let close = (actual - expected).abs() <= 1e-12 * expected.abs().max(1.0);
            let case = format!("{:?} {j} {k}: {actual}, {expected}", result.facts.options);
            assert!(close || actual.is_nan() && expected.is_nan(), "{case}");
            assert_eq!(actual.to_bits(), result.matrix.row(k)[j].to_bits(), "{case}");
            if let Some(shared) = &result.shared {
                assert_eq!(shared.row(j)[k], called.len() as f64, "{case}");
            }
        }
    }
}

#[test]
fn matches_the_definitions() {
    for (variants, samples) in [(3, 2), (257, 64), (1100, 70)] {
        let missing = dosages(variants, samples);
        let complete: Vec<i8> = missing.iter().map(|&x| x.max(0)).collect();
        for (dosages, metric) in
            [&missing, &complete].into_iter().flat_map(|x| METRICS.map(|metric| (x, metric)))
        {
            let genotypes = memory(dosages, &[variants as u64, samples as u64], &[100, 25]);
            let result = compute(&genotypes, &options(metric)).unwrap();
            assert_matches(&result, dosages, 2.0);
            // Without missing calls, all samples share all variants, so `shared` is None.
            let is_complete = !dosages.contains(&-1);
            assert_eq!(result.shared.is_none(), is_complete);
            let mut own = (0..samples).map(|j| result.matrix.row(j)[j]);
            match metric {
                _ if !is_complete || variants == 3 => {}
                SampleMetric::Of(Metric::InnerProduct) | SampleMetric::IbsOfAlleles => {}
                SampleMetric::Ibs => assert!(own.all(|x| x == 1.0)),
                SampleMetric::Of(_) => assert!(own.all(|x| x == 0.0), "{metric:?}"),
            }
        }
    }
}

/// Tests calls of one allele, and identity by state of dosages in bytes and f32.
#[test]
fn other_ploidies_and_forms() {
    let dosages = dosages(300, 20);
    let haploid: Vec<i8> = dosages.iter().map(|&x| x.min(1)).collect();
    let calls = dosages.iter().flat_map(|&x| [x.min(1), if x < 0 { x } else { x / 2 }, x.min(0)]);
    let numbers: Vec<f32> = dosages.iter().map(|&x| if x < 0 { f32::NAN } else { x.into() }).collect();
    let triploid = memory(&calls.collect::<Vec<i8>>(), &[300, 20, 3], &[100, 20, 3]);
    let fractions = memory(&numbers, &[300, 20], &[100, 20]).nan_is_missing(true);
    let of_haploid = METRICS.into_iter().filter(|metric| *metric != SampleMetric::IbsOfAlleles).collect();
    for (genotypes, dosages, ploidy, metrics) in [
        (memory(&haploid, &[300, 20, 1], &[100, 20, 1]), &haploid, 1.0, of_haploid),
        (triploid, &dosages, 3.0, vec![SampleMetric::Ibs]),
        (fractions, &dosages, 2.0, vec![SampleMetric::Ibs]),
    ] {
        for metric in metrics {
            let result = compute(&genotypes, &options(metric)).unwrap();
            assert_matches(&result, dosages, ploidy);
            assert!(result.shared.is_some());
        }
    }
    let complete: Vec<f32> = numbers.iter().map(|x| x.max(0.0)).collect();
    let ibs = options(SampleMetric::Ibs);
    assert!(compute(&memory(&complete, &[300, 20], &[100, 20]), &ibs).unwrap().shared.is_none());
}

/// Tests metrics whose sums are not whole numbers, and dosages in bytes or f32.
#[test]
fn other_metrics_and_dosages() {
    let metrics =
        [Metric::Chebyshev, Metric::Canberra, Metric::BrayCurtis, Metric::Jaccard, Metric::Minkowski(3.0)];
    let (variants, samples) = (600, 30);
    let dosages = dosages(variants, samples);
    let calls: Vec<i8> =
        dosages.iter().flat_map(|&x| [x.min(1), if x < 0 { x } else { x / 2 }, x.min(0)]).collect();
    let fractions: Vec<f32> =
        dosages.iter().map(|&x| if x < 0 { f32::NAN } else { f32::from(x) * 0.75 }).collect();
    let [v, s] = [variants as u64, samples as u64];
    // The forms are two bits, bytes of triploid calls, and f32.
    let forms = [
        (memory(&dosages, &[v, s], &[100, 25]), 1.0f32),
        (memory(&calls, &[v, s, 3], &[100, 25, 3]), 1.0),
        (memory(&fractions, &[v, s], &[100, 25]).nan_is_missing(true), 0.75),
    ];
    let filter = VariantFilter { min_maf: 0.1, max_missing: 0.5 };
    for (genotypes, size) in forms {
        for metric in metrics.into_iter().chain(METRICS.into_iter().filter_map(|metric| match metric {
            SampleMetric::Of(metric) => Some(metric),
            SampleMetric::Ibs | SampleMetric::IbsOfAlleles => None,
        })) {
            for missing in [Missing::Ignore, Missing::Rescale, Missing::Propagate] {
                let options =
                    DistanceOptions { filter, missing: Some(missing), ..options(SampleMetric::Of(metric)) };
                let result = compute(&genotypes, &options).unwrap();
                let ploidy = genotypes.ploidy() as f64;
                let kept: Vec<f32> = dosages
                    .chunks(samples)
                    .filter(|row| {
                        let called: Vec<f64> = row
                            .iter()
                            .filter(|&&x| x >= 0)
                            .map(|&x| f64::from(size) * f64::from(x))
                            .collect();
                        let p = called.iter().sum::<f64>() / called.len() as f64 / ploidy;
                        2 * called.len() >= samples && p.min(1.0 - p) >= 0.1
                    })
                    .flatten()
                    .map(|&x| if x < 0 { f32::NAN } else { f32::from(x) * size })
                    .collect();
                assert_eq!(result.facts.counts.loaded() * s, kept.len() as u64);
                let x = Tensor::from_slice(&Device::cpu(), &kept, &[kept.len() as u64 / s, s]).unwrap();
                let of = distance::Options::default().missing(missing).columns(true);
                let expected = distance::pairwise(&x, None, metric, &of, &Run::default()).unwrap();
                for (actual, expected) in result.matrix.data().iter().zip(expected.data()) {
                    let close = (actual - expected).abs() <= 2e-5 * expected.abs().max(1.0);
                    assert!(
                        close || actual.is_nan() && expected.is_nan(),
                        "{options:?}: {actual}, {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn chunks_threads_types_and_budgets_change_no_bit() {
    for metric in [SampleMetric::Of(Metric::Correlation), SampleMetric::IbsOfAlleles] {
        changes_no_bit(|genotypes, device, run| {
            let result = distances(genotypes, device, &options(metric), run)?;
            Ok((pair_bits(&result.matrix, &result.shared), result.facts.digest))
        });
    }
}

#[test]
fn trees_count_in_the_budget() {
    let genotypes = memory(&dosages(60, 200), &[60, 200], &[20, 200]);
    let bytes = |tree| {
        let options = DistanceOptions { tree, ..DistanceOptions::default() };
        let (bytes, result) = least(|run| distances(&genotypes, &Device::cpu(), &options, run));
        assert_eq!(result.tree.is_some(), tree.is_some());
        bytes
    };
    assert!(bytes(Some(Linkage::Average)) >= bytes(None) + 4 * 200 * 200);
}

/// Compares with the distances that plink 1.9 computes from the same file.
#[test]
fn plinks_distances() {
    let genotypes = crate::bed::BedFile::open(fixture("plink1/biallelic.bed")).unwrap().genotypes().unwrap();
    let cases = [
        ("biallelic.dist.bin", SampleMetric::Of(Metric::CityBlock), Missing::Rescale),
        ("biallelic.mibs.bin", SampleMetric::Ibs, Missing::Ignore),
    ];
    for (name, metric, missing) in cases {
        let bytes = std::fs::read(fixture("plink19").join(name)).unwrap();
        let expected = bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
        let result =
            compute(&genotypes, &DistanceOptions { missing: Some(missing), ..options(metric) }).unwrap();
        assert_eq!((result.matrix.data().len(), result.shared.is_some()), (expected.len(), true));
        for (actual, expected) in result.matrix.data().iter().zip(expected) {
            assert!((actual - expected).abs() <= 1e-15 * expected.abs(), "{name}: {actual}, {expected}");
        }
    }
}

#[test]
fn bad_input_is_named() {
    let good = dosages(60, 12);
    let fails = |genotypes: &Genotypes, options: &DistanceOptions, needle: &str| {
        assert_refused(compute(genotypes, options), &[needle])
    };
    for (metric, words) in [
        (Metric::KlDivergence, "is not symmetric"),
        (Metric::JensenShannon, "needs the sum of each sample"),
        (Metric::Hellinger, "knows no rule for missing elements"),
        (Metric::Minkowski(0.0), "above 0"),
    ] {
        fails(&memory(&good, &[60, 12], &[20, 12]), &options(SampleMetric::Of(metric)), words);
    }
    let tree = Some(Linkage::Average);
    let of_products = DistanceOptions { tree, ..options(SampleMetric::Of(Metric::InnerProduct)) };
    // The error occurs before anything is read.
    fails(&memory(&[3i8; 720], &[60, 12], &[20, 12]), &of_products, "`tree`: inner_product is a similarity");
    let propagated =
        DistanceOptions { tree, missing: Some(Missing::Propagate), ..DistanceOptions::default() };
    fails(&memory(&good, &[60, 12], &[20, 12]), &propagated, "of 66 of 66 pairs of samples is NaN");
    let all_missing = compute(&memory(&[-1i8; 40], &[10, 4], &[4, 4]), &options(SampleMetric::Ibs)).unwrap();
    assert_eq!(all_missing.undefined, 10);
    for missing in [Missing::Propagate, Missing::Ignore] {
        let options = DistanceOptions { missing: Some(missing), ..options(SampleMetric::Ibs) };
        let result = compute(&memory(&good, &[60, 12], &[20, 12]), &options).unwrap();
        assert_eq!(result.matrix.row(0)[1].is_nan(), missing == Missing::Propagate);
    }
    for missing in [Missing::Rescale, Missing::RescaleOrZero] {
        for metric in [SampleMetric::Ibs, SampleMetric::IbsOfAlleles] {
            let options = DistanceOptions { missing: Some(missing), ..options(metric) };
            fails(&memory(&good, &[60, 12], &[20, 12]), &options, "of ibs: it is a mean already");
        }
    }
    // Every function that computes the metric refuses these dosages.
    let ibs = options(SampleMetric::IbsOfAlleles);
    let fail = |genotypes: &Genotypes, words: &str| {
        fails(genotypes, &ibs, words);
        let (device, run) = (Device::cpu(), Run::default());
        for error in [
            sample_neighbors(genotypes, &device, &ibs, 2, &run).unwrap_err(),
            DistanceBands::new(genotypes, &device, &ibs, 64, &run).unwrap_err(),
        ] {
            assert!(
                error.to_string().contains("0, 1 and 2 alone") || error.to_string().contains(words),
                "{error}"
            );
        }
    };
    for ploidy in [1, 3] {
        let genotypes = memory(&[0i8; 360], &[120 / ploidy, 3, ploidy], &[20, 3, ploidy]);
        fail(&genotypes, &format!("of ploidy 2, not {ploidy}"));
    }
    fail(&memory(&[0.5f32; 24], &[2, 12], &[2, 12]), "both are heterozygous is of dosages 0, 1 and 2 alone");
}

#[test]
fn files() {
    let (scratch, dosages) = (tempfile::tempdir().unwrap(), [0i8, 1, 2, 2, -1, 0, 1, 1, 0]);
    let result = compute(&memory(&dosages, &[3, 3], &[3, 3]), &options(SampleMetric::Of(Metric::CityBlock)));
    let result = result.unwrap();
    let path = |name: &str| scratch.path().join(name);
    let number = |value: f64| value.to_string();
    result.write_plink(path("x.dist"), number).unwrap();
    assert_eq!(std::fs::read_to_string(path("x.dist")).unwrap(), "1\n5\t2\n");
    result.write_table(path("x.tsv"), &["a", "b c", "d"], None, number).unwrap();
    let table = "sample\ta\tb c\td\na\t0\t1\t5\nb c\t1\t0\t2\nd\t5\t2\t0\n";
    assert_eq!(std::fs::read_to_string(path("x.tsv")).unwrap(), table);
    result.write_plink_binary(path("x.dist.bin")).unwrap();
    result.write_npy(path("x.npy")).unwrap();
    let [binary, npy] = ["x.dist.bin", "x.npy"].map(|name| std::fs::read(path(name)).unwrap());
    assert_eq!((binary.len(), &npy[128..]), (72, &binary[..]));
    let values: Vec<f64> = binary.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    assert_eq!(values, result.matrix.data());
    for names in [vec!["a", "b"], vec!["a", "b\t", "c"], vec!["a", "b\n", "c"]] {
        let refused = result.write_table(path("x.tsv"), &names, None, number);
        assert!(matches!(refused, Err(Error::Argument { name: "samples", .. })), "{names:?}");
    }
    assert!(matches!(result.write_plink(path("no/x.dist"), number), Err(Error::Io { .. })));
}

/// Sums over parts of the variants merge to the distances over all variants; sums of whole numbers do so to the bit.
#[test]
fn parts_merge() {
    let genotypes = memory(&dosages(150, 13), &[150, 13], &[40, 5]);
    let run = Run::default();
    for metric in [Metric::Euclidean, Metric::Canberra] {
        for missing in [Missing::Ignore, Missing::Rescale, Missing::Propagate] {
            let sums = |rows: std::ops::Range<u64>| {
                let part = genotypes.clone().select([rows]).unwrap();
                distance_sums(&part, &Device::cpu(), metric, missing, &run).unwrap()
            };
            let mut all = sums(0..70);
            all.merge(&sums(70..71)).unwrap();
            all.merge(&sums(71..150)).unwrap();
            let found = all.finish().unwrap();
            let whole = compute(&genotypes, &options(SampleMetric::Of(metric)).missing(missing)).unwrap();
            for (a, b) in found.distances.data().iter().zip(whole.matrix.data()) {
                let near = metric == Metric::Canberra && (a - b).abs() < 1e-5 * b.abs();
                assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan() || near, "{metric}: {a}, {b}");
            }
        }
    }
    let refused = |metric, missing| {
        distance_sums(&genotypes, &Device::cpu(), metric, missing, &run).unwrap_err().to_string()
    };
    assert!(refused(Metric::JensenShannon, Missing::Propagate).contains("the sum of each sample"));
    assert!(refused(Metric::Hellinger, Missing::Ignore).contains("hellinger"));
}
