//! Genotypes that tests share, files, the bits of results, and checks that results stay the same to the bit.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytemuck::Pod;
use tempfile::TempDir;

use teatime::{
    ChunkedArray, Device, DeviceOptions, Result, Run,
    linalg::Matrix,
    openings::{self, cpu, least},
    random::philox,
    store::{MemoryArray, Storable},
};

#[cfg(feature = "zarr")]
use crate::GenotypeStore;
use crate::{
    Genotypes, Grm, Match, Pca, PcaOptions, Projection, ReferenceLoadings, Scaler, Variant, VariantSource,
    calls::Calls, loadings, pca, to_usize,
};
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

/// Returns calls whose first alleles are alternate ones, as many as the dosage says.
pub(crate) fn calls(dosages: &[i8], ploidy: u64) -> Vec<i8> {
    let allele = |dosage: i8, at| if dosage < 0 { -1 } else { i8::from(at < dosage) };
    dosages
        .iter()
        .flat_map(|&dosage| (0..).take(to_usize(ploidy)).map(move |at| allele(dosage, at)))
        .collect()
}

/// Returns the code that is expected of a call: an invalid one is missing.
pub(crate) fn code(calls: Calls, call: &[i8]) -> u8 {
    let alternate = |allele: i8| u8::from(allele > 0);
    match (calls, call) {
        (Calls::Dosages, &[dosage @ 0..=2]) => dosage.cast_unsigned(),
        (Calls::Haploid, &[allele]) if allele >= 0 => alternate(allele),
        (Calls::Diploid, &[a, b]) if a >= 0 && b >= 0 => alternate(a) + alternate(b),
        (Calls::Diploid, &[a, -2] | &[-2, a]) if a >= 0 => 2 * alternate(a),
        _ => 3,
    }
}

/// Returns the calls of a .bed, of which A1 is counted.
pub(crate) fn plink_bytes(dosages: &[i8], samples: usize) -> Vec<u8> {
    let code = |&dosage: &i8| [1, 3, 2, 0][usize::try_from(dosage + 1).unwrap()];
    let byte = |four: &[i8]| four.iter().rev().fold(0, |byte, dosage| byte << 2 | code(dosage));
    dosages.chunks(samples).flat_map(|row| row.chunks(4).map(byte)).collect()
}

/// Returns genotypes of a .bed with these calls, in chunks of `rows` variants.
pub(crate) fn plink(bytes: &[u8], samples: u64, rows: u64) -> Genotypes {
    let width = samples.div_ceil(4);
    let shape = [bytes.len() as u64 / width, width];
    let array = MemoryArray::new("plink", bytes, &shape, &[rows, width]).unwrap();
    Genotypes::plink(vec![Arc::new(array)], samples).unwrap()
}

pub(crate) fn variant(contig: &str, position: u64, id: &str, [reference, alternate]: [&str; 2]) -> Variant {
    let [id, reference, alternate] = [id, reference, alternate].map(str::to_owned);
    Variant { contig: contig.into(), position, id, reference, alternate }
}

/// Returns the contigs of a source's variants, as it gives them.
pub(crate) fn contigs_of(source: &dyn VariantSource) -> Vec<(String, u64)> {
    let mut contigs = Vec::new();
    let mut push = |name: &str, variants| {
        contigs.push((name.to_owned(), variants));
        Ok(())
    };
    source.contigs(&mut push).unwrap();
    contigs
}

/// A PCA, its loadings, and the match of each variant of its genotypes with those that have loadings.
pub(crate) struct Fit {
    pub(crate) pca: Pca,
    pub(crate) reference: ReferenceLoadings,
    pub(crate) matches: Vec<Option<Match>>,
}

pub(crate) fn fit(genotypes: &Genotypes, options: &PcaOptions) -> Fit {
    let (run, scaler, ploidy) = (Run::default(), options.scaler, genotypes.ploidy());
    let pca = pca(genotypes, cpu(), options, &run).unwrap();
    let mut reference = ReferenceLoadings::new(scaler, ploidy, options.components).unwrap();
    let mut matches = vec![None; to_usize(genotypes.variants())];
    loadings(genotypes, cpu(), &pca, options, &run, &mut |row| {
        matches[to_usize(row.variant)] = Some(Match::Same(u32::try_from(reference.len()).unwrap()));
        let shift = if scaler == Scaler::None { 0.0 } else { ploidy as f64 * row.frequency };
        assert!((row.shift - shift).abs() < 1e-12, "{scaler:?}: {} of {}", row.shift, row.frequency);
        reference.push(row.frequency, row.shift, row.scale, row.loadings)
    })
    .unwrap();
    Fit { pca, reference, matches }
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

/// Returns the numbers of a table without its first `skip` columns and without its header, if it has one.
pub(crate) fn table(name: &str, skip: usize) -> Vec<Vec<f64>> {
    let text = fs::read_to_string(fixture(name)).unwrap();
    let numbers =
        |line: &str| line.split_whitespace().skip(skip).map(str::parse).collect::<Result<Vec<f64>, _>>();
    let mut lines = text.lines().map(numbers).peekable();
    lines.next_if(Result::is_err);
    lines.map(Result::unwrap).collect()
}

/// Returns the elements of a binary file.
pub(crate) fn binary<T: Pod>(path: impl AsRef<Path>) -> Vec<T> {
    bytemuck::pod_collect_to_vec(&fs::read(path).unwrap())
}

/// Returns the sorted names of the entries of a folder, including hidden ones.
pub(crate) fn entries(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A temporary folder, which is removed when this is dropped.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, and creates the folders that it is in. Returns its path.
    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
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
    same(&memory(&calls(&dosages, 2), &[700, 33, 2], &[50, 10, 2]), 2, "calls");
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
