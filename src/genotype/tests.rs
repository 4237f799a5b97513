//! PCA against numpy in f64, and the promises: any chunking, number of threads or budget gives the same bits.

use std::sync::Arc;

use super::*;
use crate::{
    Budget, ChunkedArray, DecodedChunk, Device, DeviceOptions, Error, Progress, Result, Run, StoredType,
    linalg::{Matrix, Stop},
    random::philox,
};

const K: usize = 5;

fn options(components: usize) -> PcaOptions {
    PcaOptions { components, ..PcaOptions::default() }
}

fn randomized(components: usize, stop: Stop) -> PcaOptions {
    let mut options = PcaOptions { method: Method::Randomized, ..options(components) };
    options.svd.stop = stop;
    options
}

/// Dosages with structure, some missing; constant and empty rows among them.
pub(super) fn dosages(variants: usize, samples: usize) -> Vec<i8> {
    let word = |i: usize, j: usize| philox([1, 2], (i * samples + j) as u64)[0];
    let dosage = |i: usize, j: usize| {
        let frequency = (philox([3, 4], (i * 3 + j % 3) as u64)[0] >> 16) % 80 + 10;
        let allele = |shift: u32| i8::from((word(i, j) >> shift) % 100 < frequency);
        match i % 50 {
            7 => 1,
            8 => -1,
            _ if word(i, j) % 97 == 0 => -1,
            _ => allele(0) + allele(13),
        }
    };
    (0..variants * samples).map(|at| dosage(at / samples, at % samples)).collect()
}

pub(super) fn memory<T: Storable>(values: &[T], shape: &[u64], chunk: &[u64]) -> Genotypes {
    Genotypes::new(vec![Arc::new(MemoryArray::new("memory", values, shape, chunk).unwrap())]).unwrap()
}

/// Singular values, vectors and the sum of squares of the standardised matrix, in f64 and by LAPACK's kind of method.
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

fn bits(pca: &Pca) -> Vec<u64> {
    pca.singular_values.iter().chain(pca.vectors.data()).map(|x| x.to_bits()).collect()
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
fn chunks_threads_and_types_change_no_bit() {
    let dosages = dosages(700, 33);
    let shape = [700, 33];
    for options in [options(K), randomized(K, Stop::PowerIterations(2))] {
        let run = |genotypes: &Genotypes, threads, run: &Run| {
            let device_options = DeviceOptions { threads: Some(threads), ..DeviceOptions::default() };
            let device = Device::open_with("cpu", &device_options).unwrap();
            let pca = pca(genotypes, &device, &options, run).unwrap();
            (bits(&pca), pca.digest)
        };
        let default = Run::default();
        let expected = run(&memory(&dosages, &shape, &[700, 33]), 1, &default);
        assert_eq!(run(&memory(&dosages, &shape, &[700, 33]), 1, &default), expected, "a second run");
        for (chunk, threads) in [([64, 33], 2), ([7, 5], 3), ([1, 33], 4), ([10_000, 100], 5)] {
            assert_eq!(run(&memory(&dosages, &shape, &chunk), threads, &default), expected, "{chunk:?}");
        }
        let wide: Vec<i64> = dosages.iter().map(|&x| i64::from(x) * if x < 0 { 9 } else { 1 }).collect();
        assert_eq!(run(&memory(&wide, &shape, &[50, 10]), 2, &default), expected, "int64");
        let split: Vec<Arc<dyn ChunkedArray>> = [(0, 100), (100, 300), (300, 300), (300, 700)]
            .map(|(from, to)| {
                let part = &dosages[from * 33..to * 33];
                Arc::new(MemoryArray::new("part", part, &[(to - from) as u64, 33], &[40, 33]).unwrap())
                    as Arc<_>
            })
            .to_vec();
        assert_eq!(run(&Genotypes::new(split).unwrap(), 2, &default), expected, "appended");
        let small = Run { memory: Budget { host: Some(2 << 20), device: None }, ..Run::default() };
        assert_eq!(run(&memory(&dosages, &shape, &[10, 33]), 2, &small), expected, "a small budget");
    }
}

#[test]
fn calls_count_non_reference_alleles() {
    let dosages = dosages(300, 20);
    // Alleles 1 and 2 count the same; one missing allele makes the call missing.
    let calls: Vec<i8> = dosages
        .iter()
        .enumerate()
        .flat_map(|(i, d)| match (d, i % 2) {
            (-1, 0) => [-1, 1],
            (-1, _) => [0, -1],
            (1, 0) => [0, 2],
            (1, _) => [1, 0],
            (d, _) => [*d, *d],
        })
        .collect();
    let device = Device::cpu();
    let expected =
        pca(&memory(&dosages, &[300, 20], &[64, 20]), &device, &options(K), &Run::default()).unwrap();
    for chunk in [[300, 20, 2], [50, 7, 2], [50, 7, 1]] {
        let actual =
            pca(&memory(&calls, &[300, 20, 2], &chunk), &device, &options(K), &Run::default()).unwrap();
        assert_eq!(bits(&actual), bits(&expected), "{chunk:?}");
        assert_eq!(actual.digest, expected.digest);
    }
}

#[test]
fn triploid_calls() {
    let calls: Vec<i8> = dosages(400, 48).iter().map(|d| i8::from(*d > 0)).collect();
    let dosages: Vec<i8> = calls.chunks(3).map(|call| call.iter().sum()).collect();
    let pca =
        pca(&memory(&calls, &[400, 16, 3], &[100, 16, 3]), &Device::cpu(), &options(K), &Run::default())
            .unwrap();
    assert_values(&pca.singular_values, &oracle(&dosages, 16, 3.0).0, 2e-6);
}

#[test]
fn fractional_dosages() {
    let dosages = dosages(300, 40);
    let nan: Vec<f64> = dosages.iter().map(|&x| if x < 0 { f64::NAN } else { f64::from(x) }).collect();
    let genotypes = memory(&nan, &[300, 40], &[100, 40]);
    let device = Device::cpu();
    let refused = pca(&genotypes, &device, &options(K), &Run::default());
    assert!(matches!(refused, Err(Error::Chunk { .. })), "{refused:?}");
    let pca = pca(&genotypes.nan_is_missing(true), &device, &options(K), &Run::default()).unwrap();
    assert_values(&pca.singular_values, &oracle(&dosages, 40, 2.0).0, 2e-6);
}

#[test]
fn constant_and_nearly_constant_fractions() {
    // Rows of one value each, one that varies in the last digits, and one that varies in full.
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
    // Two variants, many times over: rank 2.
    let two = dosages(60, 40);
    let rows: Vec<i8> = (0..50).flat_map(|i| two[(20 + i % 2) * 40..][..40].to_vec()).collect();
    let genotypes = memory(&rows, &[50, 40], &[10, 40]);
    for options in [options(5), randomized(5, Stop::Tolerance(1e-4))] {
        let pca = pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
        assert!(
            pca.singular_values[1] > 1.0 && pca.singular_values[2..] == [0.0; 3],
            "{:?}",
            pca.singular_values
        );
        assert_orthonormal(&pca.vectors);
    }
}

#[test]
fn the_stated_minimum_is_enough() {
    let dosages = dosages(400, 90);
    let genotypes = memory(&dosages, &[400, 90], &[50, 90]);
    for options in
        [PcaOptions { method: Method::Exact, ..options(20) }, randomized(20, Stop::Tolerance(1e-3))]
    {
        let run = |host| Run { memory: Budget { host: Some(host), device: None }, ..Run::default() };
        let Err(Error::Budget { minimum, .. }) = pca(&genotypes, &Device::cpu(), &options, &run(1000)) else {
            panic!("a budget of 1000 bytes should not do")
        };
        pca(&genotypes, &Device::cpu(), &options, &run(minimum)).unwrap();
    }
}

#[test]
fn absurd_numbers_of_chunks_are_refused() {
    let array = Broken(MemoryArray::new("broken", &[0i8; 4], &[2, 2], &[1, 2]).unwrap(), |_| true, false);
    let genotypes = Genotypes::new(vec![Arc::new(Claims(array))]).unwrap();
    let error = pca(&genotypes, &Device::cpu(), &options(1), &Run::default());
    assert!(matches!(error, Err(Error::Store { .. })), "{error:?}");
}

/// An array that claims more rows than it has.
#[derive(Debug)]
struct Claims(Broken);

impl ChunkedArray for Claims {
    fn name(&self) -> &str {
        "claims"
    }
    fn shape(&self) -> &[u64] {
        &[1 << 33, 2]
    }
    fn chunk_shape(&self) -> &[u64] {
        self.0.chunk_shape()
    }
    fn dtype(&self) -> StoredType {
        self.0.dtype()
    }
    fn read_chunk(&self, index: &[u64]) -> Result<DecodedChunk> {
        self.0.read_chunk(index)
    }
}

#[test]
fn filters_drop_variants() {
    let dosages = dosages(500, 50);
    let mut options = options(K);
    options.filter = VariantFilter { min_maf: 0.2, max_missing: 0.02 };
    let counts = pca(&memory(&dosages, &[500, 50], &[100, 50]), &Device::cpu(), &options, &Run::default())
        .unwrap()
        .counts;
    let mut expected = VariantCounts { total: 500, ..VariantCounts::default() };
    for row in dosages.chunks(50) {
        let called: Vec<f64> = row.iter().filter(|&&x| x >= 0).map(|&x| f64::from(x)).collect();
        let p = called.iter().sum::<f64>() / called.len() as f64 / 2.0;
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
    assert!(
        expected.used > 0
            && expected.below_maf > 0
            && expected.above_missing > 0
            && expected.zero_variance > 0
    );
    assert_eq!(counts, expected);
}

#[test]
fn loadings_are_left_singular_vectors() {
    let dosages = dosages(700, 30);
    let (genotypes, device, run) = (memory(&dosages, &[700, 30], &[128, 30]), Device::cpu(), Run::default());
    let pca = pca(&genotypes, &device, &options(K), &run).unwrap();
    let (mut rows, mut u) = (Vec::new(), Vec::new());
    loadings(&genotypes, &device, &pca, &options(K), &run, &mut |row| {
        assert!(row.frequency > 0.0 && row.frequency < 1.0 && row.scale > 0.0);
        assert!((row.shift - 2.0 * row.frequency).abs() < 1e-12);
        rows.push(row.variant);
        u.extend_from_slice(row.loadings);
        Ok(())
    })
    .unwrap();
    assert_eq!(rows.len() as u64, pca.counts.used);
    assert!(rows.is_sorted());
    let u = Matrix::from_vec(u, rows.len(), K).unwrap();
    for j in 0..K {
        let norm: f64 = u.column(j).map(|x| x * x).sum();
        assert!((norm - 1.0).abs() < 1e-5, "component {j}: {norm}");
    }
}

/// An array whose chunks cannot all be read.
#[derive(Debug)]
struct Broken(MemoryArray, fn(&[u64]) -> bool, bool);

impl ChunkedArray for Broken {
    fn name(&self) -> &str {
        "broken"
    }
    fn shape(&self) -> &[u64] {
        self.0.shape()
    }
    fn chunk_shape(&self) -> &[u64] {
        self.0.chunk_shape()
    }
    fn dtype(&self) -> StoredType {
        self.0.dtype()
    }
    fn read_chunk(&self, index: &[u64]) -> Result<DecodedChunk> {
        assert!(!(self.2 && (self.1)(index)), "a decoder's own fault");
        if (self.1)(index) { Err(Error::chunk("broken", index, "torn")) } else { self.0.read_chunk(index) }
    }
}

#[test]
fn damaged_chunks_end_the_call() {
    let dosages = dosages(600, 20);
    for (at, panics) in [(0u64, false), (5, false), (29, false), (7, true)] {
        let broken: fn(&[u64]) -> bool = match at {
            0 => |i| i[0] == 0,
            5 => |i| i[0] == 5,
            7 => |i| i[0] == 7,
            _ => |i| i[0] == 29,
        };
        let array = MemoryArray::new("broken", &dosages, &[600, 20], &[20, 20]).unwrap();
        let genotypes = Genotypes::new(vec![Arc::new(Broken(array, broken, panics))]).unwrap();
        match pca(&genotypes, &Device::cpu(), &options(3), &Run::default()) {
            Err(Error::Chunk { array, index, .. }) => {
                assert_eq!((&*array, &*index), ("broken", &[at, 0][..]))
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn bad_input_is_named() {
    let device = Device::cpu();
    let run = Run::default();
    let good = dosages(60, 12);
    let genotypes = memory(&good, &[60, 12], &[20, 12]);
    let fails = |genotypes: &Genotypes, options: &PcaOptions, run: &Run, needle: &str| {
        let error = pca(genotypes, &device, options, run).expect_err(needle).to_string();
        assert!(error.contains(needle), "`{needle}` is not in: {error}");
    };
    fails(&genotypes, &options(13), &run, "at most 12");
    fails(&memory(&good[..0], &[0, 12], &[1, 12]), &options(1), &run, "0 variants");
    fails(&memory(&good[..0], &[12, 0], &[1, 12]), &options(1), &run, "0 samples");
    fails(&memory(&[-1i8; 40], &[10, 4], &[4, 4]), &options(1), &run, "10 have no call");
    fails(&memory(&[1i8; 40], &[10, 4], &[4, 4]), &options(1), &run, "10 do not vary");
    let with = |at: usize, value: i8| {
        let mut values = good.clone();
        values[at] = value;
        memory(&values, &[60, 12], &[20, 5])
    };
    fails(&with(30 * 12 + 7, 3), &options(1), &run, "chunk [1, 1]: row 30: value 3");
    let infinite: Vec<f32> =
        good.iter().map(|&x| if x == 2 { f32::INFINITY } else { f32::from(x) }).collect();
    fails(&memory(&infinite, &[60, 12], &[20, 12]), &options(1), &run, "not a finite");
    let mut calls = vec![0i8; 60 * 12];
    calls[(40 * 4 + 3) * 3 + 1] = -2;
    let triploid = memory(&calls, &[60, 4, 3], &[20, 3, 3]);
    fails(&triploid, &options(1), &run, "chunk [2, 1, 0]: variant 40, sample 3: allele -2 pads");
    calls.fill(0);
    calls[(40 * 6 + 5) * 2 + 1] = -7;
    let bad = memory(&calls, &[60, 6, 2], &[20, 4, 2]);
    fails(&bad, &options(1), &run, "chunk [2, 1, 0]: variant 40, sample 5: -7 is no allele");
    let mut bad = options(1);
    bad.filter.min_maf = 0.6;
    fails(&genotypes, &bad, &run, "min_maf");
    bad.filter = VariantFilter { max_missing: f64::NAN, ..VariantFilter::default() };
    fails(&genotypes, &bad, &run, "max_missing");
    let tiny = Run { memory: Budget { host: Some(1000), device: None }, ..Run::default() };
    fails(&genotypes, &options(1), &tiny, "needs at least");
    let uneven = [&[60u64, 12][..], &[60, 11]].map(|shape| {
        let len = usize::try_from(shape[0] * shape[1]).unwrap();
        Arc::new(MemoryArray::new("uneven", &good[..len], shape, &[20, 12]).unwrap()) as Arc<dyn ChunkedArray>
    });
    assert!(matches!(Genotypes::new(uneven.to_vec()), Err(Error::Shape { .. })));
    assert!(matches!(Genotypes::new(Vec::new()), Err(Error::Argument { .. })));
}

#[test]
fn cancelling_stops_between_blocks() {
    let dosages = dosages(9000, 8);
    let genotypes = memory(&dosages, &[9000, 8], &[500, 8]);
    let mut run = Run::default();
    let cancel = run.cancel.clone();
    run.progress = Progress::new(move |status| {
        if status.rows > 0 {
            cancel.cancel()
        }
    });
    let result = pca(&genotypes, &Device::cpu(), &options(2), &run);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}

/// Haploid calls of diploids count twice, as PLINK codes them; more alleles than two count alike.
#[test]
fn mixed_ploidy_and_many_alleles() {
    let dosages = dosages(300, 20);
    let mixed = |i: usize| (i / 20 + i % 20).is_multiple_of(3);
    let diploid: Vec<i8> =
        (0..dosages.len()).map(|i| if mixed(i) && dosages[i] == 1 { 2 } else { dosages[i] }).collect();
    let calls: Vec<i8> = (0..diploid.len())
        .flat_map(|i| match diploid[i] {
            -1 => [-1, -2],
            0 if mixed(i) => [0, -2],
            2 if mixed(i) => [[1, 2, 3, 4, 5][i % 5], -2],
            2 => [1, 3],
            1 => [0, 2],
            _ => [0, 0],
        })
        .collect();
    let device = Device::cpu();
    for options in [options(K), randomized(K, Stop::PowerIterations(2))] {
        let of = |genotypes: &Genotypes| pca(genotypes, &device, &options, &Run::default()).unwrap();
        let expected = of(&memory(&diploid, &[300, 20], &[64, 20]));
        let actual = of(&memory(&calls, &[300, 20, 2], &[50, 20, 2]));
        assert_eq!((bits(&actual), actual.digest), (bits(&expected), expected.digest));
    }
    let haploid: Vec<i8> = dosages.iter().map(|&dosage| dosage.min(1)).collect();
    let (s, _) = oracle(&haploid, 20, 1.0);
    let pca =
        pca(&memory(&haploid, &[300, 20, 1], &[64, 20, 1]), &device, &options(K), &Run::default()).unwrap();
    assert_values(&pca.singular_values, &s, 2e-6);
}

#[test]
fn no_components_still_counts() {
    let dosages = dosages(100, 10);
    let pca =
        pca(&memory(&dosages, &[100, 10], &[30, 10]), &Device::cpu(), &options(0), &Run::default()).unwrap();
    assert!(pca.singular_values.is_empty() && pca.counts.total == 100);
}

#[cfg(feature = "zarr")]
mod goldens {
    use std::path::PathBuf;

    use super::*;
    use crate::{MissingChunk, zarr::GenotypeStore};

    fn fixture(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
    }

    fn open(name: &str, array: Option<&str>) -> Genotypes {
        let store = GenotypeStore::open(fixture(name), array, MissingChunk::Error).unwrap();
        Genotypes::new(store.arrays().to_vec()).unwrap().nan_is_missing(true)
    }

    /// Numbers of a table, without its first `skip` columns.
    fn table(name: &str, skip: usize) -> Vec<Vec<f64>> {
        let text = std::fs::read_to_string(fixture(name)).unwrap();
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        rows.map(|row| row.split_whitespace().skip(skip).map(|x| x.parse().unwrap()).collect()).collect()
    }

    fn assert_vectors(actual: &Matrix, expected: &[Vec<f64>], tolerance: f64) {
        for j in 0..actual.cols() {
            let dot: f64 = actual.column(j).zip(expected).map(|(a, e)| a * e[j]).sum();
            assert!((dot.abs() - 1.0).abs() < tolerance, "component {j}: |r| = {}", dot.abs());
        }
    }

    #[test]
    fn numpy_with_every_scaler() {
        for (name, array) in [
            ("all_v2.vcz", None),
            ("all_v3.vcz", None),
            ("allel.zarr", None),
            ("malariagen.zarr", None),
            ("dosages_v2.zarr", Some("int64_gzip")),
            ("dosages_v2.zarr", Some("int16_big_endian_order_f")),
            ("dosages_v2.zarr", Some("float32_zstd")),
            ("dosages_v2.zarr", Some("float64_blosc_lz4")),
            ("dosages_v3.zarr", Some("int32_gzip")),
            ("dosages_v3.zarr", Some("int8_sharded_zstd_crc32c")),
        ] {
            let genotypes = open(name, array);
            for scaler in [Scaler::Patterson, Scaler::Binom2, Scaler::Standard, Scaler::Center, Scaler::None]
            {
                let golden = table(&format!("numpy/all.{}.tsv", scaler.name()), 1);
                let options = PcaOptions { scaler, ..options(10) };
                let pca = pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
                assert_eq!(pca.counts.used, 232, "{name}");
                assert_values(&pca.singular_values, &golden[0], 1e-6);
                assert_vectors(&pca.vectors, &golden[1..], 1e-6);
            }
        }
    }

    #[test]
    fn plink2_eigenvalues_and_vectors() {
        let pca = pca(&open("biallelic.vcz", None), &Device::cpu(), &options(10), &Run::default()).unwrap();
        for (actual, expected) in pca.eigenvalues().iter().zip(table("plink2/meanimpute.eigenval", 0)) {
            assert!((actual / expected[0] - 1.0).abs() < 1e-5, "{actual} against {expected:?}");
        }
        assert_vectors(&pca.vectors, &table("plink2/meanimpute.eigenvec", 1), 1e-5);
    }

    #[test]
    fn scikit_allel_explained_variance_and_scores() {
        let store = open("dosages_v3.zarr", Some("uint8_sharded_crc32c"));
        assert_eq!(store.variants(), 126);
        let pca = pca(&store, &Device::cpu(), &options(10), &Run::default()).unwrap();
        let golden = table("allel/pca.tsv", 1);
        assert_values(&pca.explained_variance(), &golden[0], 1e-6);
        let scores = pca.scores();
        for (row, expected) in golden[1..].iter().enumerate() {
            for (actual, expected) in scores.row(row).iter().zip(expected) {
                assert!((actual.abs() - expected.abs()).abs() < 1e-4, "{actual} against {expected}");
            }
        }
    }
}
