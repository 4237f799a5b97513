//! Genotypes that tests share, the bits of results, and checks that results stay the same to the bit.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use teatime::{
    ChunkedArray, Device, DeviceOptions, Result, Run,
    linalg::Matrix,
    openings::{self, least},
    random::philox,
    store::{MemoryArray, Storable},
};

#[cfg(feature = "zarr")]
use crate::GenotypeStore;
use crate::{Genotypes, Grm, Pca, Projection};
pub(crate) use teatime::openings::assert_refused;

/// Returns dosages of three populations, one in 97 missing; some rows are constant or empty.
pub(crate) fn dosages(variants: usize, samples: usize) -> Vec<i8> {
    random_dosages(2, 97, variants, samples)
}

/// Returns dosages like [`dosages`] from a seed, with one in `missing` missing. All seeds share the frequencies.
pub(crate) fn random_dosages(seed: u32, missing: u32, variants: usize, samples: usize) -> Vec<i8> {
    let dosage = |at: usize| {
        let (i, j) = (at / samples, at % samples);
        let word = philox([1, seed], at as u64)[0];
        let frequency = (philox([3, 4], (i * 3 + j % 3) as u64)[0] >> 16) % 80 + 10;
        let allele = |shift: u32| i8::from((word >> shift) % 100 < frequency);
        match i % 50 {
            7 => 1,
            8 => -1,
            _ if word.is_multiple_of(missing) => -1,
            _ => allele(0) + allele(13),
        }
    };
    (0..variants * samples).map(dosage).collect()
}

pub(crate) fn memory<T: Storable>(values: &[T], shape: &[u64], chunk: &[u64]) -> Genotypes {
    Genotypes::new(vec![Arc::new(MemoryArray::new("memory", values, shape, chunk).unwrap())]).unwrap()
}

/// Returns genotypes of dosages times `size` in f32, NaN where they are negative.
pub(crate) fn fractions(dosages: &[i8], size: f32, samples: u64) -> Genotypes {
    let number = |&x: &i8| if x < 0 { f32::NAN } else { size * f32::from(x) };
    let numbers: Vec<f32> = dosages.iter().map(number).collect();
    memory(&numbers, &[dosages.len() as u64 / samples, samples], &[110, 64]).nan_is_missing(true)
}

pub(crate) fn bits(pca: &Pca) -> Vec<u64> {
    pca.singular_values.iter().chain(pca.vectors.data()).map(|x| x.to_bits()).collect()
}

pub(crate) fn grm_bits(grm: &Grm) -> Vec<u64> {
    pair_bits(&grm.matrix, &grm.shared)
}

/// Returns the bits of values of pairs of samples, and of the numbers of variants that both have.
pub(crate) fn pair_bits(matrix: &Matrix, shared: &Option<Matrix>) -> Vec<u64> {
    matrix.data().iter().chain(shared.iter().flat_map(Matrix::data)).map(|x| x.to_bits()).collect()
}

pub(crate) fn score_bits(projection: &Projection) -> Vec<u64> {
    projection.scores.data().iter().map(|x| x.to_bits()).collect()
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[cfg(feature = "zarr")]
pub(crate) fn open(name: &str, array: Option<&str>) -> GenotypeStore {
    GenotypeStore::open(fixture(name), array, teatime::MissingChunk::Error).unwrap()
}

#[cfg(feature = "zarr")]
pub(crate) fn stored(name: &str, array: Option<&str>) -> Genotypes {
    Genotypes::new(open(name, array).arrays().to_vec()).unwrap().nan_is_missing(true)
}

/// Asserts that `result` gives the same bits and digest for 700 variants of 33 samples in any chunks, for any number of threads, in any type, from
/// one array or several, and within any sufficient memory.
pub(crate) fn changes_no_bit(result: impl Fn(&Genotypes, &Device, &Run) -> Result<(Vec<u64>, u64)>) {
    let dosages = dosages(700, 33);
    let shape = [700, 33];
    let within = |genotypes: &Genotypes, threads, run: &Run| {
        let options = DeviceOptions::default().threads(threads);
        result(genotypes, &Device::open_with("cpu", &options).unwrap(), run)
    };
    let expected = within(&memory(&dosages, &shape, &shape), 1, &Run::default()).unwrap();
    let same = |genotypes: &Genotypes, threads, what: &str| {
        assert_eq!(within(genotypes, threads, &Run::default()).unwrap(), expected, "{what}");
    };
    let chunks = [[700, 33], [64, 33], [7, 5], [1, 33], [10_000, 100], [1, 5], [70, 20]];
    for (chunk, threads) in chunks.into_iter().zip([1, 2, 3, 4, 5, 4, 3]) {
        same(&memory(&dosages, &shape, &chunk), threads, &format!("{chunk:?}"));
    }
    let wide: Vec<i64> = dosages.iter().map(|&x| i64::from(x) * if x < 0 { 9 } else { 1 }).collect();
    same(&memory(&wide, &shape, &[50, 10]), 2, "int64");
    let calls: Vec<i8> = dosages.iter().flat_map(|&x| [x.min(1), if x < 0 { x } else { x / 2 }]).collect();
    same(&memory(&calls, &[700, 33, 2], &[50, 10, 2]), 2, "calls");
    let split = [(0, 100), (100, 300), (300, 300), (300, 700)].map(|(from, to)| {
        let part = &dosages[from * 33..to * 33];
        let part = MemoryArray::new("part", part, &[(to - from) as u64, 33], &[40, 33]);
        Arc::new(part.unwrap()) as Arc<dyn ChunkedArray>
    });
    same(&Genotypes::new(split.to_vec()).unwrap(), 2, "appended");
    let chunked = memory(&dosages, &shape, &[10, 33]);
    let (bytes, tight) = least(|run| within(&chunked, 2, run));
    assert_eq!(tight, expected, "{bytes} bytes");
    for host in [2 << 20, 4 << 20].map(|host| bytes.max(host)) {
        assert_eq!(within(&chunked, 2, &openings::within(host)).unwrap(), expected, "{host} bytes");
    }
}
