//! Tests of inputs that a PCA refuses: damaged chunks, absurd shapes, bad values.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use teatime::{Result, assert_err, openings::Hooked};

use super::*;

/// Returns dosages of a claimed shape, which nobody may read.
fn claiming(shape: [u64; 2]) -> Genotypes {
    Genotypes::new(vec![Arc::new(Hooked::claiming::<i8>(&shape, &[1, 1024]))]).unwrap()
}

/// Exact sums in 32-bit integers limit the number of samples; more are refused before anything is read.
#[test]
fn more_samples_than_exact_sums_hold_are_refused() {
    let error = pca(&claiming([2, 1 << 23]), &Device::cpu(), &options(1), &Run::default());
    let Err(Error::Limit { requested, max, .. }) = error else { panic!("{error:?}") };
    assert_eq!((requested, max), (1 << 23, (1 << 23) - 1));
}

/// Returns an array with some unreadable chunks. If `panics` is true, reading such a chunk panics.
pub(super) fn broken(
    array: MemoryArray,
    is_broken: impl Fn(&[u64]) -> bool + Send + Sync + 'static,
    panics: bool,
) -> Hooked {
    Hooked::new(array, move |array, index, fetched| {
        assert!(!(panics && is_broken(index)), "a decoder's own fault");
        if is_broken(index) {
            Err(Error::chunk("broken", index, "torn"))
        } else {
            array.decode(index, fetched)
        }
    })
}

/// Returns an array of 9,000 variants of 60 samples that has other values after a number of reads.
pub(super) fn changing(before: &[i8], after: &[i8], reads: u32) -> Hooked {
    let left = AtomicU32::new(reads);
    let array = |values: &[i8]| MemoryArray::new("changing", values, &[9000, 60], &[500, 60]).unwrap();
    let after = array(after);
    Hooked::new(array(before), move |before, index, fetched| {
        let left = left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(1)));
        if left == Ok(0) { &after } else { before }.decode(index, fetched)
    })
}

/// Swapping samples changes no count of a variant.
#[test]
fn a_store_that_changes_between_passes_is_named() {
    let before = dosages(9000, 60);
    let after: Vec<i8> = before.chunks(60).flat_map(|row| row.iter().rev().copied()).collect();
    let options = randomized(2, Stop::PowerIterations(3));
    let with = |reads: u32, run: &Run| {
        let same = MemoryArray::new("same", &before, &[9000, 60], &[500, 60]).unwrap();
        let genotypes =
            Genotypes::new(vec![Arc::new(same), Arc::new(changing(&before, &after, reads))]).unwrap();
        pca(&genotypes, &Device::cpu(), &options, run)
    };
    let (bytes, of_store) = least(|run| with(u32::MAX, run));
    assert_eq!(of_store.residency, Residency::Store);
    for reads in [18, 40] {
        let error = assert_err!(with(reads, &within(bytes)), Error::Store { .. });
        assert!(error.to_string().starts_with("changing: changed while it was read"), "{error}");
    }
}

#[test]
fn loadings_of_other_genotypes_are_refused() {
    let (one, mut other) = (dosages(600, 20), dosages(600, 20));
    let changed = other.iter().rposition(|x| *x == 0).unwrap();
    other[changed] = 2;
    let (device, run, options) = (Device::cpu(), Run::default(), options(1));
    let [one, other] = [one, other].map(|dosages| memory(&dosages, &[600, 20], &[100, 20]));
    let result = pca(&one, &device, &options, &run).unwrap();
    loadings(&one, &device, &result, &options, &run, &mut |_| Ok(())).unwrap();
    let refused = loadings(&other, &device, &result, &options, &run, &mut |_| Ok(()));
    assert_err!(refused, Error::Argument { name: "genotypes", .. });
}

#[test]
fn a_default_budget_that_is_too_small_says_so() {
    // The sums take 36 bytes for each pair of samples, more than any host has.
    let genotypes = claiming([2, 1 << 22]);
    let exact = PcaOptions { method: Method::Exact, ..options(1) };
    let with = |run: &Run| pca(&genotypes, &Device::cpu(), &exact, run);
    let error = assert_err!(with(&Run::default()), Error::Budget { given: false, .. });
    assert!(error.to_string().starts_with("the default memory budget of"), "{error}");
    let error = assert_err!(with(&within(1 << 20)), Error::Budget { given: true, budget: 0x10_0000, .. });
    assert!(error.to_string().starts_with("the memory budget of"), "{error}");
}

/// By default, dosages may be above 2 if the scaler needs no frequency.
#[test]
fn dosages_above_2_where_they_are_said_to_be_none() {
    let (mut good, device, run) = (dosages(300, 80), Device::cpu(), Run::default());
    let options = PcaOptions { scaler: Scaler::Standard, ..randomized(K, Stop::PowerIterations(2)) };
    let of = |dosages: &[i8], bounded| {
        let genotypes = memory(dosages, &[300, 80], &[64, 80]).dosages_are_bounded(bounded);
        pca(&genotypes, &device, &options, &run)
    };
    let (bytes, packed) = (of(&good, false).unwrap(), of(&good, true).unwrap());
    assert_values(&packed.singular_values, &bytes.singular_values, 2e-6);
    assert_eq!(packed.digest, bytes.digest);
    good[30 * 80 + 7] = 3;
    assert!(of(&good, false).is_ok());
    assert_err!(of(&good, true), Error::Chunk { .. });
}

#[test]
fn bad_input_is_named() {
    let device = Device::cpu();
    let run = Run::default();
    let good = dosages(60, 12);
    let genotypes = memory(&good, &[60, 12], &[20, 12]);
    let fails = |genotypes: &Genotypes, options: &PcaOptions, run: &Run, needle: &str| {
        assert_refused(pca(genotypes, &device, options, run), &[needle])
    };
    fails(&genotypes, &options(13), &run, "at most 12");
    fails(&memory(&[-1i8; 40], &[10, 4], &[4, 4]), &options(1), &run, "10 have no call");
    fails(&memory(&[1i8; 40], &[10, 4], &[4, 4]), &options(1), &run, "10 do not vary");
    let infinite: Vec<f32> =
        good.iter().map(|&x| if x == 2 { f32::INFINITY } else { f32::from(x) }).collect();
    fails(&memory(&infinite, &[60, 12], &[20, 12]), &options(1), &run, "not a finite");
    fails(&genotypes, &options(1), &within(1000), "needs at least");
    let uneven = [&[60u64, 12][..], &[60, 11]].map(|shape| {
        let len = usize::try_from(shape[0] * shape[1]).unwrap();
        Arc::new(MemoryArray::new("uneven", &good[..len], shape, &[20, 12]).unwrap()) as Arc<dyn ChunkedArray>
    });
    assert!(matches!(Genotypes::new(uneven.to_vec()), Err(Error::Shape { .. })));
    assert!(matches!(Genotypes::new(Vec::new()), Err(Error::Argument { .. })));
}

/// Computes a result of genotypes after a filter of variants.
type Compute<'a> = &'a dyn Fn(&Genotypes, VariantFilter) -> Result<()>;

/// Each result checks its extents, its filter and its dosages.
#[test]
fn what_no_result_takes() {
    let (device, run, mut values) = (Device::cpu(), Run::default(), dosages(60, 12));
    let by_distance = |filter| DistanceOptions::default().filter(filter);
    let results: [Compute<'_>; 6] = [
        &|genotypes, filter| pca(genotypes, &device, &options(1).filter(filter), &run).map(drop),
        &|genotypes, filter| grm(genotypes, &device, &GrmOptions::default().filter(filter), &run).map(drop),
        &|genotypes, filter| distances(genotypes, &device, &by_distance(filter), &run).map(drop),
        &|genotypes, filter| DistanceBands::new(genotypes, &device, &by_distance(filter), 64, &run).map(drop),
        &|genotypes, filter| sample_neighbors(genotypes, &device, &by_distance(filter), 1, &run).map(drop),
        &|genotypes, filter| {
            let variants = u32::try_from(genotypes.variants()).unwrap();
            let matches: Vec<_> = (0..variants).map(|row| Some(Match::Same(row))).collect();
            let pairs = SamplePairs::between(genotypes, genotypes, &matches);
            distances(pairs, &device, &by_distance(filter), &run).map(drop)
        },
    ];
    let good = memory(&values, &[60, 12], &[20, 12]);
    let row = memory(&values[..12], &[1, 12], &[1, 12]);
    values[30 * 12 + 7] = 3;
    let none: &[i8] = &[];
    let filter = VariantFilter::default();
    for (genotypes, filter, words) in [
        (&memory(none, &[0, 12], &[1, 12]), filter, "0 variants"),
        (&memory(none, &[12, 0], &[1, 12]), filter, "0 samples"),
        (&memory(&values, &[60, 12], &[20, 5]), filter, "chunk [1, 1]: variant 30, sample 7: value 3"),
        (&good, filter.min_maf(0.6), "min_maf"),
        (&good, filter.max_missing(f64::NAN), "max_missing"),
        (&good, filter.max_missing(-0.1), "max_missing"),
        (&row, filter.min_maf(0.5).max_missing(0.0), "none of the 1 variants is left"),
    ] {
        results.iter().for_each(|result| drop(assert_refused(result(genotypes, filter), &[words])));
    }
}
