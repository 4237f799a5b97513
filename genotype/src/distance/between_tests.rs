//! Tests of distances between the samples of two stores, against those of one store that has the samples of both.

use teatime::{
    Cancel, DeviceOptions, assert_err,
    distance::{Metric, Missing},
    openings::{least, within},
};

use super::{
    neighbors_tests::check,
    tests::{METRICS, options},
    *,
};
use crate::{
    Match, VariantFilter,
    tests::{assert_refused, dosages, memory, pair_bits},
};

/// Dosages of the samples of two sides, and which variants of the sides match.
struct Case {
    sides: [Vec<i8>; 2],
    samples: [usize; 2],
    matches: Vec<Option<Match>>,
    /// Dosages of the samples of both sides at the shared variants, in the order of the first side.
    joint: Vec<i8>,
}

impl Case {
    /// Makes a case. One in five variants is not in the second side, one in seven not in the first. One in four has swapped alleles in the second
    /// side, where some are one place later; `turn` swaps the alleles of a dosage.
    fn new(variants: usize, samples: [usize; 2], turn: impl Fn(i8) -> i8) -> Self {
        Self::of(&dosages(variants, samples[0] + samples[1]), samples, turn)
    }

    /// Makes the case of [`new`](Self::new) from these dosages of the samples of both sides.
    fn of(all: &[i8], samples: [usize; 2], turn: impl Fn(i8) -> i8) -> Self {
        let rows: Vec<&[i8]> = all.chunks(samples[0] + samples[1]).collect();
        let variants = rows.len();
        let is_turned = |row: usize| row % 4 == 1;
        let mut others: Vec<usize> = (0..variants).filter(|row| row % 5 != 3).collect();
        (0..others.len() - 1).filter(|at| at % 90 == 31).for_each(|at| others.swap(at, at + 1));
        let (mut first, mut joint, mut matches) = (Vec::new(), Vec::new(), Vec::new());
        for row in (0..variants).filter(|row| row % 7 != 2) {
            first.extend_from_slice(&rows[row][..samples[0]]);
            let place = others.iter().position(|&other| other == row);
            let place = place.map(|place| u32::try_from(place).unwrap());
            matches.push(place.map(|at| if is_turned(row) { Match::Swapped(at) } else { Match::Same(at) }));
            if place.is_some() {
                joint.extend_from_slice(rows[row]);
            }
        }
        let of_others = |&row: &usize| rows[row][samples[0]..].iter().map(move |&x| (row, x));
        let second = others.iter().flat_map(of_others);
        let second = second.map(|(row, x)| if x >= 0 && is_turned(row) { turn(x) } else { x }).collect();
        Self { sides: [first, second], samples, matches, joint }
    }

    /// Returns the genotypes of each side and of both together. `store` makes them from dosages, the number of samples, and an index from 0 to 2.
    fn stores(&self, store: impl Fn(&[i8], u64, usize) -> Genotypes) -> [Genotypes; 3] {
        let [n, others] = self.samples;
        [(&self.sides[0], n), (&self.sides[1], others), (&self.joint, n + others)]
            .into_iter()
            .enumerate()
            .map(|(number, (dosages, samples))| store(dosages, samples as u64, number))
            .collect::<Vec<_>>()
            .try_into()
            .unwrap()
    }

    fn pairs<'a>(&'a self, stores: &'a [Genotypes; 3]) -> SamplePairs<'a> {
        SamplePairs::between(&stores[0], &stores[1], &self.matches)
    }

    fn compute(&self, stores: &[Genotypes; 3], options: &DistanceOptions, run: &Run) -> Result<Distances> {
        distances(self.pairs(stores), &Device::cpu(), options, run)
    }

    /// Checks that `same` holds for each distance and the same distance in the matrix of all samples.
    fn check(
        &self,
        stores: &[Genotypes; 3],
        options: &DistanceOptions,
        same: impl Fn(f64, f64) -> bool,
    ) -> Distances {
        let result = self.compute(stores, options, &Run::default()).unwrap();
        let expected = distances(&stores[2], &Device::cpu(), options, &Run::default()).unwrap();
        let [n, others] = self.samples;
        assert_eq!((result.matrix.rows(), result.matrix.cols()), (n, others));
        assert_eq!(result.facts.counts, expected.facts.counts);
        assert_eq!(result.shared.is_some(), expected.shared.is_some(), "{options:?}");
        let shared = result.shared.as_ref().zip(expected.shared.as_ref());
        let pairs = [Some((&result.matrix, &expected.matrix)), shared];
        for (result, expected) in pairs.into_iter().flatten() {
            for (i, j) in (0..n).flat_map(|i| (0..others).map(move |j| (i, j))) {
                let (actual, expected) = (result.row(i)[j], expected.row(i)[n + j]);
                assert!(same(actual, expected), "{options:?} {i} {j}: {actual}, {expected}");
            }
        }
        result
    }
}

fn exactly(actual: f64, expected: f64) -> bool {
    actual.to_bits() == expected.to_bits()
}

fn closely(actual: f64, expected: f64) -> bool {
    (actual - expected).abs() <= 2e-5 * expected.abs().max(1.0) || actual.is_nan() && expected.is_nan()
}

/// Returns genotypes, with a different chunk shape for each side.
fn chunked(dosages: &[i8], samples: u64, number: usize) -> Genotypes {
    let chunk = [[100, 25], [37, 64], [500, 500]][number];
    memory(dosages, &[dosages.len() as u64 / samples, samples], &chunk)
}

#[test]
fn the_block_of_one_store() {
    for samples in [[33, 70], [70, 5]] {
        let case = Case::new(700, samples, |x| 2 - x);
        let stores = case.stores(chunked);
        for metric in METRICS {
            for missing in [Missing::Ignore, Missing::Rescale, Missing::RescaleOrZero, Missing::Propagate] {
                // This metric is a mean already, and a mean is not rescaled.
                if metric.het_het().is_some() && matches!(missing, Missing::Rescale | Missing::RescaleOrZero)
                {
                    continue;
                }
                case.check(&stores, &DistanceOptions { missing: Some(missing), ..options(metric) }, exactly);
            }
        }
    }
    // Filters use the samples of both sides; without missing calls, shared variants are not counted.
    let (filtered, whole) = (Case::new(500, [40, 30], |x| 2 - x), dosages(300, 50));
    let whole = Case::of(&whole.iter().map(|&x| x.max(0)).collect::<Vec<_>>(), [20, 30], |x| 2 - x);
    let filter = VariantFilter { min_maf: 0.3, max_missing: 0.03 };
    for metric in METRICS {
        let counts =
            filtered.check(&filtered.stores(chunked), &options(metric).filter(filter), exactly).facts.counts;
        assert!(counts.below_maf > 0 && counts.above_missing > 0);
        assert!(whole.check(&whole.stores(chunked), &options(metric), exactly).shared.is_none());
    }
}

/// Results stay the same to the bit for any chunks, threads and memory.
#[test]
fn chunks_threads_and_budgets_change_no_bit() {
    let case = Case::new(1300, [33, 70], |x| 2 - x);
    let bits = |chunks: [[u64; 2]; 2], threads, run: &Run| {
        let store = |side: usize| {
            let (dosages, samples) = (&case.sides[side], case.samples[side] as u64);
            memory(dosages, &[dosages.len() as u64 / samples, samples], &chunks[side])
        };
        let opening = DeviceOptions::default().threads(threads);
        let device = Device::open_with("cpu", &opening).unwrap();
        let options = DistanceOptions::default();
        let stores = [store(0), store(1)];
        let pairs = SamplePairs::between(&stores[0], &stores[1], &case.matches);
        let result = distances(pairs, &device, &options, run)?;
        Ok((pair_bits(&result.matrix, &result.shared), result.facts.digest))
    };
    let whole = bits([[2000, 100]; 2], 1, &Run::default()).unwrap();
    let chunks = [[[1, 33], [2000, 70]], [[300, 5], [7, 9]], [[64, 64], [63, 1]]];
    for (chunks, threads) in chunks.into_iter().zip([2, 3, 4]) {
        let (bytes, tight) = least(|run| bits(chunks, threads, run));
        for found in [tight]
            .into_iter()
            .chain([within(2 * bytes), Run::default()].map(|run| bits(chunks, threads, &run).unwrap()))
        {
            assert_eq!(found, whole, "{chunks:?}");
        }
    }
}

/// A panel holds all variants of a side with few samples, but only some variants of a side with many.
#[test]
fn panels_of_different_lengths() {
    for (samples, metric) in [([1, 2500], Metric::CityBlock), ([2500, 1], Metric::Chebyshev)] {
        let few = dosages(6400, 61);
        let all: Vec<i8> = few.chunks(61).flat_map(|row| row.iter().cycle().take(2501)).copied().collect();
        let case = Case::of(&all, samples, |x| 2 - x);
        let stores = case.stores(|dosages, samples, number| match number {
            2 => memory(&[0i8], &[1, 1], &[1, 1]),
            _ => memory(dosages, &[dosages.len() as u64 / samples, samples], &[1000, 500]),
        });
        let missing = Missing::Rescale;
        let options = DistanceOptions { missing: Some(missing), ..options(SampleMetric::Of(metric)) };
        let result = case.compute(&stores, &options, &Run::default()).unwrap();
        let rows = case.joint.chunks(2501);
        let all = rows.len() as f64;
        for j in (0..2500).step_by(31) {
            let pair = if samples[0] == 1 { [0, 1 + j] } else { [j, 2500] };
            let both =
                rows.clone().map(|row| pair.map(|at| row[at])).filter(|both| both.iter().all(|&x| x >= 0));
            let (shared, sum, largest) = both.fold((0.0, 0.0, 0.0), |(shared, sum, largest), [x, y]| {
                let difference = f64::from((x - y).abs());
                (shared + 1.0, sum + difference, difference.max(largest))
            });
            let expected = if metric == Metric::CityBlock { sum * (all / shared) } else { largest };
            assert_eq!(result.matrix.data()[j], expected, "{metric} {pair:?}");
        }
    }
}

/// Tries other metrics, ploidies and forms of dosages, and two stores of different kinds.
#[test]
fn other_metrics_and_dosages() {
    let as_calls = |ploidy: usize| {
        move |dosages: &[i8], samples: u64, number: usize| {
            let call =
                |&x: &i8| (0..ploidy).map(move |at| if x < 0 { -1 } else { i8::from(at < x as usize) });
            let calls: Vec<i8> = dosages.iter().flat_map(call).collect();
            let variants = dosages.len() as u64 / samples;
            memory(&calls, &[variants, samples, ploidy as u64], &[90 + 50 * number as u64, 20, ploidy as u64])
        }
    };
    let as_f32 = |dosages: &[i8], samples: u64, _: usize| {
        let number = |&x: &i8| if x < 0 { f32::NAN } else { x.into() };
        let numbers: Vec<f32> = dosages.iter().map(number).collect();
        memory(&numbers, &[dosages.len() as u64 / samples, samples], &[110, 64]).nan_is_missing(true)
    };
    let mixed = |dosages: &[i8], samples, number: usize| match number {
        0 => as_calls(2)(dosages, samples, 0),
        _ => as_f32(dosages, samples, number),
    };
    let turned = |dosages: &[i8], samples, number: usize| match number {
        1 => as_calls(2)(dosages, samples, number),
        _ => as_f32(dosages, samples, number),
    };
    let diploid = Case::new(600, [12, 17], |x| 2 - x);
    let triploid = Case::new(600, [12, 17], |x| 3 - x);
    let haploid: Vec<i8> = dosages(600, 29).into_iter().map(|x| x.min(1)).collect();
    let haploid = Case::of(&haploid, [12, 17], |x| 1 - x);
    let cases = [
        (&diploid, diploid.stores(chunked)),
        (&diploid, diploid.stores(as_f32)),
        (&diploid, diploid.stores(mixed)),
        (&diploid, diploid.stores(turned)),
        (&triploid, triploid.stores(as_calls(3))),
        (&haploid, haploid.stores(as_calls(1))),
    ];
    let others =
        [Metric::Chebyshev, Metric::Canberra, Metric::BrayCurtis, Metric::Jaccard, Metric::Minkowski(3.0)];
    for (case, stores) in cases {
        let packed = METRICS.into_iter().filter(|metric| *metric != SampleMetric::IbsOfAlleles);
        for metric in others.map(SampleMetric::Of).into_iter().chain(packed) {
            for missing in [Missing::Ignore, Missing::Propagate] {
                case.check(&stores, &DistanceOptions { missing: Some(missing), ..options(metric) }, closely);
            }
        }
    }
}

/// There are few variants, so that many distances are equal.
#[test]
fn the_nearest_are_what_a_sort_says() {
    for metric in
        [SampleMetric::Of(Metric::CityBlock), SampleMetric::IbsOfAlleles, SampleMetric::Of(Metric::Jaccard)]
    {
        let case = Case::new(20, [13, 70], |x| 2 - x);
        let (stores, options) = (case.stores(chunked), options(metric));
        for k in [1, 9, 70] {
            assert_eq!(check(case.pairs(&stores), &options, k, &Run::default()), None);
        }
        for k in [0, 71] {
            let error = sample_neighbors(case.pairs(&stores), &Device::cpu(), &options, k, &Run::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains(&format!("{k} of 70 samples: from 1 to 70")), "{error}");
        }
        let small = Run::default().memory(Budget::default().host(1000));
        let error = sample_neighbors(case.pairs(&stores), &Device::cpu(), &options, 1, &small)
            .unwrap_err()
            .to_string();
        assert!(error.contains("for the matrix of all distances"), "{error}");
    }
}

#[test]
fn files() {
    let (first, second) = (memory(&[0i8, 1, 2, 2], &[2, 2], &[2, 2]), memory(&[2i8, 0], &[2, 1], &[2, 1]));
    let matches = [Some(Match::Same(1)), Some(Match::Swapped(0))];
    let cityblock = options(SampleMetric::Of(Metric::CityBlock));
    let run = Run::default();
    let pairs = SamplePairs::between(&first, &second, &matches);
    let result = distances(pairs, &Device::cpu(), &cityblock, &run).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    result.write_table(path("x.tsv"), &["a", "b"], Some(&["c"]), |value| value.to_string()).unwrap();
    assert_eq!(std::fs::read_to_string(path("x.tsv")).unwrap(), "sample\tc\na\t2\nb\t3\n");
    result.write_npy(path("x.npy")).unwrap();
    let npy = std::fs::read(path("x.npy")).unwrap();
    assert!(npy.windows(15).any(|bytes| bytes == b"'shape': (2, 1)"));
    assert_eq!(npy[128..], [2.0f64.to_le_bytes(), 3.0f64.to_le_bytes()].concat());
    let nearest = sample_neighbors(pairs, &Device::cpu(), &cityblock, 1, &run).unwrap();
    nearest.write_table(path("n.tsv"), &["a", "b"], Some(&["c"]), |value| value.to_string()).unwrap();
    let table = "sample\trank\tneighbor\tdistance\na\t1\tc\t2\nb\t1\tc\t3\n";
    assert_eq!(std::fs::read_to_string(path("n.tsv")).unwrap(), table);
    for (with, words) in [(None, "0 names for 1"), (Some(&["c", "d"][..]), "2 names for 1")] {
        let wrong = nearest.write_table(path("y.tsv"), &["a", "b"], with, |value| value.to_string());
        assert!(wrong.unwrap_err().to_string().contains(words), "{words}");
    }
    let wrong = result.write_table(path("y.tsv"), &["a", "b"], Some(&["c", "d"]), |value| value.to_string());
    assert!(wrong.unwrap_err().to_string().contains("2 names for 1"));
    let wrong = result.write_table(path("y.tsv"), &["a", "b"], Some(&["c\t"]), |value| value.to_string());
    assert!(wrong.unwrap_err().to_string().contains("does not fit a table"));
    for refused in
        [result.write_plink(path("y.dist"), |_| String::new()), result.write_plink_binary(path("y.bin"))]
    {
        assert!(matches!(refused, Err(Error::Argument { name: "self", .. })), "{refused:?}");
    }
}

#[cfg(feature = "zarr")]
#[test]
fn stores() {
    use teatime::{ChunkedArray, MissingChunk, store::ZarrArray};

    let case = Case::new(40, [3, 2], |x| 2 - x);
    let result = case.compute(&case.stores(chunked), &DistanceOptions::default(), &Run::default()).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("d.zarr");
    assert!(result.write_zarr(&path, &["a", "b"], Some(&["d", "e"])).is_err());
    result.write_zarr(&path, &["a", "b", "c"], Some(&["d", "e"])).unwrap();
    for (name, expected) in
        [("distance", &result.matrix), ("shared_variants", result.shared.as_ref().unwrap())]
    {
        let array = ZarrArray::open(&path, name, MissingChunk::Error).unwrap();
        assert_eq!(array.shape(), [3, 2]);
        let bytes = array.fetch(&[0, 0]).and_then(|fetched| array.decode(&[0, 0], fetched)).unwrap().bytes;
        let values: Vec<f64> = match name {
            "distance" => bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect(),
            _ => bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes).into()).collect(),
        };
        assert_eq!(values, expected.data());
    }
    let axes = std::fs::read_to_string(path.join("distance/.zattrs")).unwrap();
    assert!(axes.contains("samples_with"), "{axes}");
    let (options, run) = (DistanceOptions::default(), Run::default());
    let stores = case.stores(chunked);
    let nearest = sample_neighbors(case.pairs(&stores), &Device::cpu(), &options, 1, &run).unwrap();
    let of_nearest = scratch.path().join("n.zarr");
    assert!(nearest.write_zarr(&of_nearest, &["a", "b", "c"], None).is_err());
    nearest.write_zarr(&of_nearest, &["a", "b", "c"], Some(&["d", "e"])).unwrap();
    let array = ZarrArray::open(&of_nearest, "neighbor", MissingChunk::Error).unwrap();
    let bytes: Vec<u8> = nearest.nearest.indices.iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!((array.shape(), &*array.read_chunk(&[0, 0]).unwrap().bytes), (&[3, 1][..], &*bytes));
    for (path, name, extent) in
        [(&path, "sample_id", 3), (&path, "sample_id_with", 2), (&of_nearest, "sample_id_with", 2)]
    {
        let metadata = std::fs::read_to_string(path.join(name).join(".zarray")).unwrap();
        let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
        assert_eq!(metadata["shape"], serde_json::json!([extent]));
    }
}

#[test]
fn bad_input_is_named() {
    let case = Case::new(200, [9, 8], |x| 2 - x);
    let stores = case.stores(chunked);
    let between = |with: &Genotypes, matches: &[Option<Match>], options: &DistanceOptions, run: &Run| {
        distances(SamplePairs::between(&stores[0], with, matches), &Device::cpu(), options, run)
    };
    let fails = |with: &Genotypes, matches: &[Option<Match>], needle: &str| {
        assert_refused(between(with, matches, &DistanceOptions::default(), &Run::default()), &[needle]);
    };
    let count = case.matches.len();
    fails(&stores[1], &case.matches[1..], &format!("{} for {count} variants", count - 1));
    fails(&stores[1], &vec![None; count], &format!("none of the {count} variants is in both"));
    fails(&stores[1], &vec![Some(Match::Same(160)); count], "variant 0 is number 160 of 160");
    fails(&stores[1], &vec![Some(Match::Same(4)); count], "more than 64 passes");
    fails(
        &memory(&[0i8; 160 * 8], &[160, 8, 1], &[160, 8, 1]),
        &case.matches,
        "of ploidy 1, and `genotypes` 2",
    );
    let mut three = case.sides[1].clone();
    three[0] = 3;
    fails(&chunked(&three, 8, 1), &case.matches, "variant 0, sample 0: value 3");
    let tree = DistanceOptions { tree: Some(Linkage::Average), ..DistanceOptions::default() };
    let error = between(&stores[1], &case.matches, &tree, &Run::default()).unwrap_err();
    assert!(matches!(error, Error::Argument { name: "tree", .. }), "{error}");
    let numbers = memory(&[0.0f32; 160 * 8], &[160, 8], &[160, 8]);
    let error = between(&numbers, &case.matches, &options(SampleMetric::IbsOfAlleles), &Run::default());
    let error = assert_err!(error, Error::Argument { name: "with", .. });
    assert!(error.to_string().contains("of dosages 0, 1 and 2 alone"), "{error}");
    let cancel = Cancel::default();
    cancel.cancel();
    let error =
        between(&stores[1], &case.matches, &DistanceOptions::default(), &Run::default().cancel(cancel));
    assert!(matches!(error, Err(Error::Cancelled)));
}
