//! Tests of the nearest samples, against a sort of all distances.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use teatime::{
    Device, Error, Progress, Run,
    distance::{Metric, Missing},
    openings::{least, within},
};

use super::*;
use crate::{
    tests::{assert_refused, dosages, memory},
    to_usize,
};

const SAMPLES: u64 = 300;

fn genotypes(dosages: &[i8]) -> Genotypes {
    memory(dosages, &[dosages.len() as u64 / SAMPLES, SAMPLES], &[100, 25])
}

/// Returns the least host memory.
fn bytes(genotypes: &Genotypes, options: &DistanceOptions, k: usize) -> u64 {
    least(|run| sample_neighbors(genotypes, &Device::cpu(), options, k, run)).0
}

/// Checks that the neighbors are those of a stable sort of the distances, to the last bit. Returns the number of bands they were computed in.
pub(super) fn check<'a>(
    pairs: impl Into<SamplePairs<'a>>,
    options: &DistanceOptions,
    k: usize,
    run: &Run,
) -> Option<u32> {
    let pairs = pairs.into();
    let all = distances(pairs, &Device::cpu(), options, &Run::default()).unwrap();
    let found = sample_neighbors(pairs, &Device::cpu(), options, k, run).unwrap();
    assert_eq!((found.undefined, found.facts.digest), (all.undefined, all.facts.digest));
    assert_eq!((found.facts.counts, found.facts.others), (all.facts.counts, all.facts.others));
    assert_eq!(found.facts.options.metric, options.metric);
    let (n, nearest) = (all.matrix.rows(), &found.nearest);
    let sizes = (nearest.distances.rows(), nearest.distances.cols(), nearest.indices.len());
    assert_eq!(sizes, (n, k, n * k));
    let inner_product = SampleMetric::Of(Metric::InnerProduct);
    let similarity = [SampleMetric::Ibs, SampleMetric::IbsOfAlleles, inner_product].contains(&options.metric);
    let sign = if similarity { -1.0 } else { 1.0 };
    for (row, indices) in nearest.indices.chunks(k).enumerate() {
        let mut sorted: Vec<(usize, f64)> = all.matrix.row(row).iter().copied().enumerate().collect();
        sorted.retain(|&(number, _)| number != row || found.facts.others.is_some());
        let key = |distance: f64| (distance.is_nan(), if distance.is_nan() { 0.0 } else { sign * distance });
        sorted.sort_by(|a, b| key(a.1).partial_cmp(&key(b.1)).unwrap());
        let expected = sorted[..k].iter().map(|&(number, distance)| (number as u64, distance.to_bits()));
        let distances = nearest.distances.row(row);
        let actual = indices.iter().copied().zip(distances.iter().map(|distance| distance.to_bits()));
        assert!(actual.eq(expected), "{options:?}, {row}: {indices:?} {distances:?}");
    }
    found.bands
}

/// There are few variants, so that many distances are equal or NaN.
#[test]
fn is_what_a_sort_says() {
    let mut dosages = dosages(12, to_usize(SAMPLES));
    // One sample has no calls.
    dosages.iter_mut().skip(70).step_by(to_usize(SAMPLES)).for_each(|x| *x = -1);
    let complete: Vec<i8> = dosages.iter().map(|&x| x.max(0)).collect();
    let whole = [Metric::Canberra, Metric::RussellRao].map(|metric| (SampleMetric::Of(metric), false));
    for (metric, in_bands) in tests::METRICS.map(|metric| (metric, true)).into_iter().chain(whole) {
        for (dosages, missing) in
            [(&dosages, Missing::Ignore), (&dosages, Missing::Propagate), (&complete, Missing::Ignore)]
        {
            let (genotypes, options) = (
                genotypes(dosages),
                DistanceOptions { metric, missing: Some(missing), ..DistanceOptions::default() },
            );
            let narrow = within(bytes(&genotypes, &options, 7));
            let bands = check(&genotypes, &options, 7, &narrow);
            assert_eq!(bands.is_some_and(|bands| bands > 2), in_bands, "{options:?}");
            assert_eq!(check(&genotypes, &options, 7, &Run::default()), in_bands.then_some(1));
        }
    }
    for k in [1, to_usize(SAMPLES) - 1] {
        let genotypes = genotypes(&dosages);
        let options = DistanceOptions::default();
        check(&genotypes, &options, k, &within(bytes(&genotypes, &options, k)));
    }
}

#[test]
fn what_is_found_counts_in_the_budget() {
    let genotypes = genotypes(&dosages(60, to_usize(SAMPLES)));
    for metric in [Metric::Euclidean, Metric::Canberra] {
        let options = DistanceOptions { metric: SampleMetric::Of(metric), ..DistanceOptions::default() };
        let [few, many] = [1, 200].map(|k| bytes(&genotypes, &options, k));
        assert_eq!(many - few, 32 * 199 * SAMPLES, "{metric}");
        let of = |run: &Run| sample_neighbors(&genotypes, &Device::cpu(), &options, 200, run);
        let last = Arc::new(AtomicU32::new(0));
        let seen = last.clone();
        let progress = Progress::new(move |status| seen.store(status.pass, Relaxed));
        let found = of(&within(many).progress(progress)).unwrap();
        assert_eq!(last.load(Relaxed), found.bands.unwrap_or(0), "each band is a pass that is told");
        let error = of(&within(many - 1)).unwrap_err().to_string();
        assert_eq!(error.contains("for the matrix of all distances"), metric == Metric::Canberra, "{error}");
    }
}

#[test]
fn bad_input_is_named() {
    let good = genotypes(&dosages(20, to_usize(SAMPLES)));
    let fails = |genotypes: &Genotypes, options: &DistanceOptions, k: usize, words: &str| {
        assert_refused(sample_neighbors(genotypes, &Device::cpu(), options, k, &Run::default()), &[words]);
    };
    let plain = DistanceOptions::default();
    for k in [0, 300, usize::MAX] {
        fails(&good, &plain, k, &format!("`k`: {k} of 300 samples: from 1 to 299"));
    }
    fails(&memory(&[1i8; 4], &[4, 1], &[4, 1]), &plain, 1, "1 of 1 samples");
    for metric in [Metric::Euclidean, Metric::Canberra] {
        let metric = SampleMetric::Of(metric);
        fails(&good, &DistanceOptions { tree: Some(Linkage::Single), metric, ..plain }, 2, "`tree`");
    }
    fails(
        &good,
        &DistanceOptions { metric: SampleMetric::Of(Metric::KlDivergence), ..plain },
        2,
        "not symmetric",
    );
}

/// There are three samples, and the first two are equal.
#[test]
fn files() {
    let (scratch, dosages) = (tempfile::tempdir().unwrap(), [0i8, 0, 2, 1, 1, 1]);
    let path = |name: &str| scratch.path().join(name);
    let options =
        DistanceOptions { metric: SampleMetric::Of(Metric::CityBlock), ..DistanceOptions::default() };
    let genotypes = memory(&dosages, &[2, 3], &[2, 3]);
    let found = sample_neighbors(&genotypes, &Device::cpu(), &options, 2, &Run::default()).unwrap();
    let number = |value: f64| value.to_string();
    found.write_table(path("x.tsv"), &["a", "b c", "d"], None, number).unwrap();
    let table = "sample\trank\tneighbor\tdistance\na\t1\tb c\t0\na\t2\td\t2\nb c\t1\ta\t0\nb c\t2\td\t2\n\
                 d\t1\ta\t2\nd\t2\tb c\t2\n";
    assert_eq!(std::fs::read_to_string(path("x.tsv")).unwrap(), table);
    found.write_npy(path("x.npy"), path("x.neighbors.npy")).unwrap();
    let [distances, neighbors] = ["x.npy", "x.neighbors.npy"].map(|name| std::fs::read(path(name)).unwrap());
    assert!(neighbors.windows(15).any(|bytes| bytes == b"'shape': (3, 2)"));
    assert_eq!(neighbors[128..], *bytemuck::cast_slice::<i64, u8>(&[1, 2, 0, 2, 0, 1]));
    assert_eq!(distances[128..], *bytemuck::cast_slice::<f64, u8>(&[0.0, 2.0, 0.0, 2.0, 2.0, 2.0]));
    let refused = found.write_table(path("y.tsv"), &["a", "b"], None, number);
    assert!(matches!(refused, Err(Error::Argument { name: "samples", .. })));
    assert!(matches!(found.write_npy(path("no/x.npy"), path("y.npy")), Err(Error::Io { .. })));
    assert!(!path("y.tsv").exists() && !path("y.npy").exists());
}

#[cfg(feature = "zarr")]
#[test]
fn stores() {
    use teatime::{ChunkedArray, MissingChunk, store::ZarrArray};

    let (scratch, n, k) = (tempfile::tempdir().unwrap(), 20, 7);
    let path = scratch.path().join("x.zarr");
    let genotypes = memory(&dosages(10, n), &[10, n as u64], &[10, 100]);
    let found = sample_neighbors(&genotypes, &Device::cpu(), &DistanceOptions::default(), k, &Run::default());
    let (found, names) = (found.unwrap(), (0..n).map(|i| format!("S{i}")).collect::<Vec<_>>());
    assert!(matches!(
        found.write_zarr(&path, &names[1..], None),
        Err(Error::Argument { name: "samples", .. })
    ));
    found.write_zarr(&path, &names, None).unwrap();
    let open = |name: &str| ZarrArray::open(&path, name, MissingChunk::Error).unwrap();
    let [of_neighbors, of_distances] = ["neighbor", "distance"].map(open);
    let axes = ["samples", "neighbors"].map(String::from);
    for array in [&of_neighbors, &of_distances] {
        assert_eq!((array.shape(), array.dimension_names()), (&[n as u64, k as u64][..], &axes[..]));
    }
    assert_eq!(of_neighbors.dtype(), teatime::StoredType::I64);
    // There is no fill value, so that xarray does not take index 0 for a missing value.
    let metadata = std::fs::read_to_string(path.join("neighbor/.zarray")).unwrap();
    assert!(metadata.contains(r#""fill_value":null"#), "{metadata}");
    let read = |array: &ZarrArray| array.read_chunk(&[0, 0]).unwrap().bytes;
    assert_eq!(bytemuck::pod_collect_to_vec::<u8, u64>(&read(&of_neighbors)), found.nearest.indices);
    let distances = bytemuck::pod_collect_to_vec::<u8, f64>(&read(&of_distances));
    assert_eq!(distances, found.nearest.distances.data());
    assert!(matches!(found.write_zarr(&path, &names, None), Err(Error::Store { .. })));
}
