//! Projections against sums in f64, against the reference's own PCA, and against other tools.

mod refused;

use std::sync::Arc;

use super::*;
use crate::{
    Budget, DeviceOptions, Progress,
    genotype::{CountedAllele, Pca, PcaOptions, Scaler, loadings, pca},
    random::philox,
    store::{MemoryArray, Storable},
};

const K: usize = 4;
const SCALERS: [Scaler; 5] =
    [Scaler::Patterson, Scaler::Binom2, Scaler::Standard, Scaler::Center, Scaler::None];

/// Dosages of three populations, some missing, with constant and empty rows.
fn dosages(variants: usize, samples: usize, seed: u32) -> Vec<i8> {
    let dosage = |at: usize| {
        let (i, j) = (at / samples, at % samples);
        let word = philox([seed, 9], at as u64)[0];
        let frequency = (philox([3, 4], (i * 3 + j % 3) as u64)[0] >> 16) % 80 + 10;
        let allele = |shift: u32| i8::from((word >> shift) % 100 < frequency);
        match i % 50 {
            7 => 1,
            8 => -1,
            _ if word.is_multiple_of(89) => -1,
            _ => allele(0) + allele(13),
        }
    };
    (0..variants * samples).map(dosage).collect()
}

fn memory<T: Storable>(values: &[T], shape: &[u64], chunk: &[u64]) -> Genotypes {
    Genotypes::new(vec![Arc::new(MemoryArray::new("memory", values, shape, chunk).unwrap())]).unwrap()
}

fn rows(values: &[i8], samples: usize) -> Genotypes {
    memory(values, &[(values.len() / samples) as u64, samples as u64], &[64, 7])
}

/// A PCA and its loadings.
struct Fit {
    pca: Pca,
    reference: ReferenceLoadings,
    rows: Vec<Row>,
    /// Each variant of the genotypes as the reference's own.
    matches: Vec<Option<Match>>,
}

/// What a variant of the reference has.
struct Row {
    mean: f64,
    shift: f64,
    scale: f64,
    loadings: Vec<f64>,
}

fn fit(genotypes: &Genotypes, scaler: Scaler, components: usize) -> Fit {
    let (device, run) = (Device::cpu(), Run::default());
    let options = PcaOptions { components, scaler, ..PcaOptions::default() };
    let pca = pca(genotypes, &device, &options, &run).unwrap();
    let mut reference = ReferenceLoadings::new(scaler, genotypes.ploidy(), components).unwrap();
    let (mut rows, mut matches) = (Vec::new(), vec![None; to_usize(genotypes.variants())]);
    loadings(genotypes, &device, &pca, &options, &run, &mut |row| {
        matches[to_usize(row.variant)] = Some(Match::Same(u32::try_from(rows.len()).unwrap()));
        let mean = genotypes.ploidy() as f64 * row.frequency;
        rows.push(Row { mean, shift: row.shift, scale: row.scale, loadings: row.loadings.to_vec() });
        reference.push(row.frequency, row.shift, row.scale, row.loadings)
    })
    .unwrap();
    Fit { pca, reference, rows, matches }
}

fn run_on_cpu(
    genotypes: &Genotypes,
    reference: &ReferenceLoadings,
    matches: &[Option<Match>],
) -> Result<Projection> {
    project(genotypes, &Device::cpu(), reference, matches, &Run::default())
}

/// The formula, in f64, for diploids.
fn oracle(dosages: &[i8], samples: usize, rows: &[Row], matches: &[Option<Match>]) -> Vec<f64> {
    let k = rows[0].loadings.len();
    let mut scores = vec![0.0; samples * k];
    for (dosages, found) in dosages.chunks(samples).zip(matches) {
        let Some(found) = found else { continue };
        let row = &rows[to_usize(found.row().into())];
        for (score, &dosage) in scores.chunks_mut(k).zip(dosages) {
            let dosage = match (dosage, found) {
                (-1, _) => row.mean,
                (g, Match::Same(_)) => f64::from(g),
                (g, Match::Swapped(_)) => 2.0 - f64::from(g),
            };
            let z = (dosage - row.shift) / row.scale;
            score.iter_mut().zip(&row.loadings).for_each(|(sum, u)| *sum += u * z);
        }
    }
    scores
}

/// How many of the matched variants each sample has a call of.
fn called(dosages: &[i8], samples: usize, matches: &[Option<Match>]) -> Vec<u64> {
    let rows: Vec<&[i8]> = dosages.chunks(samples).zip(matches).filter_map(|(r, m)| m.map(|_| r)).collect();
    (0..samples).map(|i| rows.iter().filter(|row| row[i] >= 0).count() as u64).collect()
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, x| x.abs().max(most))
}

fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len());
    let scale = largest(expected);
    for (at, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance * scale, "element {at}: {a} against {e}, of at most {scale}");
    }
}

fn bits(projection: &Projection) -> Vec<u64> {
    projection.scores.data().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn the_references_samples_get_their_scores_back() {
    // More variants than one canonical block.
    let dosages = dosages(5000, 31, 1);
    let genotypes = rows(&dosages, 31);
    for scaler in SCALERS {
        let Fit { pca, reference, matches, .. } = fit(&genotypes, scaler, K);
        let projection = run_on_cpu(&genotypes, &reference, &matches).unwrap();
        assert_close(projection.scores.data(), pca.scores().data(), 2e-6);
        assert_eq!((projection.used, projection.digest), (pca.counts.used, pca.digest), "{scaler:?}");
    }
}

#[test]
fn new_samples_by_the_formula() {
    let samples = 31;
    let genotypes = rows(&dosages(700, samples, 1), samples);
    for scaler in SCALERS {
        let Fit { reference, rows: variants, .. } = fit(&genotypes, scaler, K);
        for count in [1, 2, 33, 130] {
            // The reference's variants backwards, every fifth swapped, every third absent, and others between.
            let new = dosages(variants.len() * 2, count, 2);
            let matches: Vec<_> = (0..variants.len() * 2)
                .map(|i| {
                    let row = u32::try_from(variants.len() - 1 - i / 2).unwrap();
                    match i % 6 {
                        0 | 2 if row % 5 == 0 => Some(Match::Swapped(row)),
                        0 | 2 => Some(Match::Same(row)),
                        _ => None,
                    }
                })
                .collect();
            let projection = run_on_cpu(&rows(&new, count), &reference, &matches).unwrap();
            let expected = oracle(&new, count, &variants, &matches);
            assert_close(projection.scores.data(), &expected, 2e-6);
            assert_eq!((projection.scores.rows(), projection.scores.cols()), (count, K));
            let used: Vec<&[i8]> =
                new.chunks(count).zip(&matches).filter_map(|(r, m)| m.map(|_| r)).collect();
            assert_eq!(projection.used, used.len() as u64);
            let missing = used.concat().iter().filter(|&&g| g < 0).count() as u64;
            assert_eq!(projection.missing_calls, missing);
            assert_eq!(projection.called, called(&new, count, &matches));
        }
    }
}

#[test]
fn sizes_around_a_block() {
    // One sample: canonical blocks of 4,096 variants.
    for variants in [1, 2, 4095, 4096, 4097] {
        let mut reference = ReferenceLoadings::new(Scaler::Patterson, 2, 1).unwrap();
        let row = |i: u32| Row { mean: 0.5, shift: 0.5, scale: 0.5, loadings: vec![f64::from(i % 7) - 3.0] };
        let rows_of_reference: Vec<Row> = (0..variants).map(row).collect();
        for row in &rows_of_reference {
            reference.push(0.25, row.shift, row.scale, &row.loadings).unwrap();
        }
        let new = dosages(variants as usize, 1, 3);
        let matches: Vec<_> = (0..variants).map(|i| Some(Match::Same(i))).collect();
        let projection = run_on_cpu(&rows(&new, 1), &reference, &matches).unwrap();
        // Small integers and halves: exact.
        assert_eq!(projection.scores.data(), oracle(&new, 1, &rows_of_reference, &matches), "{variants}");
    }
}

#[test]
fn swapped_alleles_change_nothing() {
    let samples = 20;
    let dosages = dosages(400, samples, 1);
    let genotypes = rows(&dosages, samples);
    for scaler in SCALERS {
        let Fit { pca, reference, mut matches, .. } = fit(&genotypes, scaler, K);
        let mut swapped = dosages.clone();
        for (row, found) in swapped.chunks_mut(samples).zip(&mut matches).step_by(3) {
            row.iter_mut().filter(|g| **g >= 0).for_each(|g| *g = 2 - *g);
            *found = found.map(|found| Match::Swapped(found.row()));
        }
        let projection = run_on_cpu(&rows(&swapped, samples), &reference, &matches).unwrap();
        assert_close(projection.scores.data(), pca.scores().data(), 2e-6);
    }
}

#[test]
fn calls_of_any_ploidy_and_fractions() {
    let dosages = dosages(300, 20, 1);
    let Fit { pca, reference, matches, .. } = fit(&rows(&dosages, 20), Scaler::Patterson, K);
    let calls: Vec<i8> =
        dosages.iter().flat_map(|&g| if g < 0 { [0, g] } else { [g / 2, g - g / 2] }).collect();
    let genotypes = memory(&calls, &[300, 20, 2], &[50, 7, 2]);
    let expected = bits(&run_on_cpu(&rows(&dosages, 20), &reference, &matches).unwrap());
    let projection = run_on_cpu(&genotypes, &reference, &matches).unwrap();
    let each = called(&dosages, 20, &matches);
    assert_eq!((bits(&projection), &projection.called), (expected, &each));
    let floats: Vec<f32> = dosages.iter().map(|&g| if g < 0 { f32::NAN } else { g.into() }).collect();
    let genotypes = memory(&floats, &[300, 20], &[50, 7]).nan_is_missing(true);
    let projection = run_on_cpu(&genotypes, &reference, &matches).unwrap();
    assert_close(projection.scores.data(), pca.scores().data(), 2e-6);
    assert_eq!(projection.called, each);

    let haploid: Vec<i8> = dosages.iter().map(|&g| g.min(1)).collect();
    let genotypes = memory(&haploid, &[300, 20, 1], &[50, 7, 1]);
    let Fit { pca, reference, matches, .. } = fit(&genotypes, Scaler::Patterson, K);
    assert_eq!(reference.ploidy(), 1);
    let projection = run_on_cpu(&genotypes, &reference, &matches).unwrap();
    assert_close(projection.scores.data(), pca.scores().data(), 2e-6);
}

#[test]
fn chunks_threads_and_budgets_change_no_bit() {
    let dosages = dosages(900, 33, 1);
    let Fit { reference, matches, .. } = fit(&rows(&dosages, 33), Scaler::Binom2, K);
    let expected = bits(&run_on_cpu(&rows(&dosages, 33), &reference, &matches).unwrap());
    let each = called(&dosages, 33, &matches);
    for (chunk, threads, host) in [([900, 33], 1, None), ([1, 5], 4, None), ([70, 20], 3, Some(4 << 20))] {
        let options = DeviceOptions { threads: Some(threads), ..DeviceOptions::default() };
        let device = Device::open_with("cpu", &options).unwrap();
        let run = Run { memory: Budget { host, device: None }, ..Run::default() };
        let genotypes = memory(&dosages, &[900, 33], &chunk);
        let projection = project(&genotypes, &device, &reference, &matches, &run).unwrap();
        assert_eq!((bits(&projection), &projection.called), (expected.clone(), &each), "{chunk:?}");
    }
}

#[test]
fn missing_calls_are_the_references_mean() {
    let dosages = dosages(200, 12, 1);
    let Fit { reference, matches, .. } = fit(&rows(&dosages, 12), Scaler::Patterson, K);
    let projection = run_on_cpu(&rows(&[-1; 200 * 3], 3), &reference, &matches).unwrap();
    assert_eq!(projection.scores.data(), [0.0; 3 * K]);
    assert_eq!((projection.missing_calls, projection.called), (3 * projection.used, vec![0; 3]));
}

#[test]
fn the_stated_minimum_is_enough() {
    let dosages = dosages(400, 30, 1);
    let genotypes = rows(&dosages, 30);
    let Fit { reference, matches, .. } = fit(&genotypes, Scaler::Patterson, K);
    let with = |host| {
        let run = Run { memory: Budget { host: Some(host), device: None }, ..Run::default() };
        project(&genotypes, &Device::cpu(), &reference, &matches, &run)
    };
    let Err(Error::Budget { budget, minimum, .. }) = with(1000) else { panic!("1000 bytes should not do") };
    assert_eq!(budget, 1000);
    assert!(minimum > reference.bytes());
    with(minimum).unwrap();
    assert!(matches!(with(minimum - 1), Err(Error::Budget { .. })));
}

/// A block of f32 is the most of what a projection of packed calls takes.
#[test]
fn the_peak_is_planned() {
    let (variants, samples) = (512, 20_000);
    let genotypes = {
        let bytes = vec![0b1011_1000u8; variants * samples / 4];
        let shape = [variants as u64, samples as u64 / 4];
        let array = MemoryArray::new("bed", &bytes, &shape, &[64, shape[1]]).unwrap();
        Genotypes::plink(vec![Arc::new(array)], samples as u64, CountedAllele::A1).unwrap()
    };
    let mut reference = ReferenceLoadings::new(Scaler::Patterson, 2, 2).unwrap();
    (0..variants).for_each(|_| reference.push(0.25, 0.5, 0.5, &[0.5, -0.5]).unwrap());
    let matches: Vec<_> = (0..512).map(|row| Some(Match::Same(row))).collect();
    let with = |host, device: &Device| {
        let run = Run { memory: Budget { host: Some(host), device: None }, ..Run::default() };
        project(&genotypes, device, &reference, &matches, &run)
    };
    let device = Device::open_with("cpu", &DeviceOptions::default()).unwrap();
    let Err(Error::Budget { minimum, .. }) = with(1000, &device) else { panic!("1000 bytes should not do") };
    with(minimum, &device).unwrap();
    let block = 4 * (variants * samples) as u64;
    assert!((block..minimum).contains(&device.peak_bytes()), "{} of {minimum}", device.peak_bytes());
}

#[test]
fn cancelling_stops_between_blocks() {
    let dosages = dosages(9000, 8, 1);
    let genotypes = rows(&dosages, 8);
    let Fit { reference, matches, .. } = fit(&genotypes, Scaler::Patterson, 2);
    let mut run = Run::default();
    let cancel = run.cancel.clone();
    run.progress = Progress::new(move |status| {
        if status.rows > 0 {
            cancel.cancel()
        }
    });
    let result = project(&genotypes, &Device::cpu(), &reference, &matches, &run);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}

#[cfg(feature = "zarr")]
mod goldens {
    use std::path::PathBuf;

    use super::*;
    use crate::{ChunkedArray, MissingChunk, genotype::GenotypeStore};

    fn fixture(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
    }

    fn open(array: &str) -> Genotypes {
        let store =
            GenotypeStore::open(fixture("projection.zarr"), Some(array), MissingChunk::Error).unwrap();
        let arrays: Vec<Arc<dyn ChunkedArray>> = store.arrays().to_vec();
        Genotypes::new(arrays).unwrap()
    }

    /// The projection of `SET_new` onto `SET_reference` over `divisor`, against a table of the same up to signs.
    fn assert_projects(set: &str, scaler: Scaler, divisor: f64, golden: &str) {
        let [old, new] = ["reference", "new"].map(|part| open(&format!("{set}_{part}")));
        let Fit { reference, matches, .. } = fit(&old, scaler, 10);
        let scores = run_on_cpu(&new, &reference, &matches).unwrap().scores;
        let text = std::fs::read_to_string(fixture(golden)).unwrap();
        let number = |x: &str| x.parse::<f64>().unwrap();
        let rows = text.lines().skip(1).map(|line| line.split('\t').skip(1).map(number).collect());
        let golden: Vec<Vec<f64>> = rows.collect();
        assert_eq!((scores.rows(), scores.cols()), (20, 10));
        for j in 0..10 {
            let ours: Vec<f64> = scores.column(j).map(|x| x / divisor).collect();
            let dot: f64 = ours.iter().zip(&golden).map(|(a, row)| a * row[j]).sum();
            let theirs: Vec<f64> = golden.iter().map(|row| row[j] * dot.signum()).collect();
            assert_close(&ours, &theirs, 1e-5);
        }
    }

    #[test]
    fn scikit_allel_transforms_alike() {
        assert_projects("complete", Scaler::Patterson, 1.0, "projection/allel.tsv");
    }

    #[test]
    fn flashpca_projects_alike() {
        assert_projects("biallelic", Scaler::Binom2, 237f64.sqrt(), "projection/flashpca.tsv");
        assert_projects("biallelic", Scaler::Patterson, (2.0 * 237f64).sqrt(), "projection/flashpca.tsv");
    }
}
