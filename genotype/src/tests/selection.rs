//! Tests that selected rows and samples give the results of a store of these alone, and that no other chunk is read.

use std::ops::Range;

use super::{refused::broken, *};
use crate::{GrmOptions, Match, MissingCalls, ProjectMethod, ReferenceLoadings, grm, project};

const SAMPLES: usize = 33;
const VARIANTS: usize = 700;
/// The selected rows cut chunks of 40 rows, cross from one array to the other, and leave out whole chunks of both.
const ROWS_SELECTED: [Range<u64>; 5] = [3..5, 39..41, 130..165, 299..341, 421..700];
/// The number of rows of the first array.
const SPLIT: usize = 300;
/// The selected samples cut chunks of 5 samples, some of which are left out, and bytes of four codes.
const SAMPLES_SELECTED: [Range<u64>; 4] = [1..2, 3..9, 22..26, 31..33];

/// Returns true if none of `count` elements from `first` on is selected.
fn is_left_out(selected: &[Range<u64>], first: u64, count: u64) -> bool {
    selected.iter().all(|range| range.end <= first || first + count <= range.start)
}

/// Returns true if a chunk of an array whose first row is row `first` of all rows has nothing selected.
fn is_unselected(first: u64, index: &[u64]) -> bool {
    is_left_out(&ROWS_SELECTED, first + 40 * index[0], 40) || is_left_out(&SAMPLES_SELECTED, 5 * index[1], 5)
}

/// Returns two arrays of which only the selected chunks are readable, with the samples and rows selected, and an array of these alone.
fn both<T: Storable>(values: &[T], rest: &[u64], deep: u64) -> [Genotypes; 2] {
    let of_row = values.len() / VARIANTS;
    let array = |values: &[T], samples: usize, chunk: &[u64]| {
        let rows = values.len() / (of_row / SAMPLES * samples);
        let shape = [&[rows as u64, samples as u64], rest].concat();
        MemoryArray::new("array", values, &shape, chunk).unwrap()
    };
    let chunk = [&[40, 5], &vec![deep; rest.len()][..]].concat();
    let (one, two) = values.split_at(SPLIT * of_row);
    let arrays: [Arc<dyn ChunkedArray>; 2] = [
        Arc::new(broken(array(one, SAMPLES, &chunk), |index| is_unselected(0, index), true)),
        Arc::new(broken(array(two, SAMPLES, &chunk), |index| is_unselected(SPLIT as u64, index), true)),
    ];
    let selected = Genotypes::new(arrays.to_vec()).unwrap();
    let selected = selected.select(ROWS_SELECTED).unwrap().select_samples(SAMPLES_SELECTED).unwrap();
    let is_chosen =
        |at: usize, selected: &[Range<u64>]| selected.iter().any(|range| range.contains(&(at as u64)));
    let chosen = values.chunks(of_row / SAMPLES).enumerate().filter(|(at, _)| {
        is_chosen(at / SAMPLES, &ROWS_SELECTED) && is_chosen(at % SAMPLES, &SAMPLES_SELECTED)
    });
    let chosen: Vec<T> = chosen.flat_map(|(_, call)| call.to_vec()).collect();
    let alone = array(&chosen, 13, &[&[64, 13], rest].concat());
    [selected, Genotypes::new(vec![Arc::new(alone)]).unwrap()].map(|genotypes| genotypes.nan_is_missing(true))
}

/// Loadings name the rows of the arrays; the matches of a projection refer to the selected rows.
#[test]
fn loadings_and_matches_are_of_the_selected() {
    let [selected, alone] = both(&dosages(VARIANTS, SAMPLES), &[], 1);
    let (device, run, options) = (Device::cpu(), Run::default(), options(2));
    let rows = |genotypes: &Genotypes| {
        let pca = pca(genotypes, &device, &options, &run).unwrap();
        let (mut rows, mut reference) = (Vec::new(), ReferenceLoadings::new(options.scaler, 2, 2).unwrap());
        loadings(genotypes, &device, &pca, &options, &run, &mut |row| {
            rows.push((row.variant, row.loadings.to_vec()));
            reference.push(row.frequency, row.shift, row.scale, row.loadings)
        })
        .unwrap();
        (rows, reference)
    };
    let ((ours, reference), (expected, _)) = (rows(&selected), rows(&alone));
    let stored: Vec<u64> = ROWS_SELECTED.into_iter().flatten().collect();
    let of_stored = |(row, loadings): (u64, Vec<f64>)| (stored[usize::try_from(row).unwrap()], loadings);
    assert!(!ours.is_empty() && ours == expected.into_iter().map(of_stored).collect::<Vec<_>>());
    let matches: Vec<_> = stored
        .iter()
        .map(|row| ours.iter().position(|(other, _)| other == row))
        .map(|at| at.map(|at| Match::Same(u32::try_from(at).unwrap())))
        .collect();
    let [ours, expected] = [&selected, &alone].map(|genotypes| {
        project(genotypes, &device, &reference, &matches, ProjectMethod::Mean, &run).unwrap()
    });
    assert_eq!(ours.scores.data(), expected.scores.data());
    assert_eq!((ours.digest, ours.missing_calls), (expected.digest, expected.missing_calls));
    let refused = project(&selected, &device, &reference, &matches[1..], ProjectMethod::Mean, &run);
    assert_err!(refused, Error::Shape { .. });
}

/// Errors name variants and samples of the arrays, whichever are selected. Those that are not selected are not checked.
#[test]
fn errors_name_places_in_the_arrays() {
    let mut values = dosages(60, 12);
    values[30 * 12 + 7] = 3;
    let genotypes = memory(&values, &[60, 12], &[20, 5]);
    let counted = |genotypes: Genotypes| {
        pca(&genotypes, &Device::cpu(), &options(1), &Run::default()).map(|pca| pca.counts.total)
    };
    let of_rows = |rows: Vec<Range<u64>>| counted(genotypes.clone().select(rows).unwrap());
    let of_samples = |samples: Vec<Range<u64>>| counted(genotypes.clone().select_samples(samples).unwrap());
    for refused in [of_rows(vec![3..9, 25..40]), of_samples(vec![0..2, 6..12])] {
        assert_refused(refused, &["chunk [1, 1]: variant 30, sample 7: value 3 is above 2"]);
    }
    assert_eq!(of_rows(vec![0..30, 31..60]).unwrap(), 59);
    assert_eq!(of_samples(vec![0..7, 8..12]).unwrap(), 60);
    assert_refused(of_rows(vec![]), &["0 variants"]);
    assert_refused(of_samples(vec![]), &["0 samples"]);
    let mut calls = vec![0i8; 60 * 12];
    calls[(40 * 4 + 3) * 3 + 1] = -2;
    let triploid = memory(&calls, &[60, 4, 3], &[20, 3, 3]).select([1..2, 35..60]).unwrap();
    assert_refused(counted(triploid), &["chunk [2, 1, 0]: variant 40, sample 3"]);
    assert_err!(genotypes.clone().select([0..1, 59..61]), Error::Argument { name: "rows", .. });
    assert_err!(genotypes.select_samples([3..4, 11..13]), Error::Argument { name: "samples", .. });
}

#[test]
fn the_selected_are_as_if_alone() {
    let whole = dosages(VARIANTS, SAMPLES);
    let fractions: Vec<f32> =
        whole.iter().map(|&x| if x < 0 { f32::NAN } else { f32::from(x) * 0.75 }).collect();
    let haploid: Vec<i16> = whole.iter().map(|&x| x.min(1).into()).collect();
    let all = [
        both(&whole, &[], 1),
        both(&fractions, &[], 1),
        both(&haploid, &[1], 1),
        both(&calls(&whole, 2), &[2], 2),
        both(&calls(&whole, 2), &[2], 1),
        both(&calls(&whole, 3), &[3], 3),
        both(&calls(&whole, 3), &[3], 2),
    ];
    for [selected, alone] in &all {
        assert_eq!([selected.samples(), selected.variants()], [alone.samples(), alone.variants()]);
        for options in [options(K), randomized(K, Stop::PowerIterations(2))] {
            let small = Run::default().memory(Budget::default().host(4 << 20));
            let components = |genotypes, run: &Run| pca(genotypes, &Device::cpu(), &options, run).unwrap();
            let expected = components(alone, &Run::default());
            for ours in [Run::default(), small].map(|run| components(selected, &run)) {
                assert_eq!((bits(&ours), ours.digest), (bits(&expected), expected.digest));
                assert_eq!(ours.counts, expected.counts);
            }
        }
        let options = GrmOptions { missing: MissingCalls::Pairwise, ..GrmOptions::default() };
        let [ours, expected] = [selected, alone]
            .map(|genotypes| grm(genotypes, &Device::cpu(), &options, &Run::default()).unwrap());
        assert_eq!(ours.matrix.data(), expected.matrix.data());
        if let GenotypeKind::Calls { .. } = alone.kind() {
            let [ours, expected] = [selected, alone]
                .map(|genotypes| call_ploidies(genotypes, &Device::cpu(), &Run::default()).unwrap());
            assert_eq!(ours, expected);
        }
    }
}

/// Calls of a .bed are gathered in bytes of the selected samples alone.
#[test]
fn the_selected_of_a_bed_are_as_if_alone() {
    let dosages = dosages(VARIANTS, SAMPLES);
    let packed = |selected: &[Range<u64>]| -> (Vec<u8>, u64) {
        let samples: Vec<usize> = selected.iter().cloned().flatten().map(to_usize).collect();
        let chosen = dosages.chunks(SAMPLES).flat_map(|row| samples.iter().map(|&sample| row[sample]));
        (plink_bytes(&chosen.collect::<Vec<_>>(), samples.len()), samples.len() as u64)
    };
    let array = MemoryArray::new("bed", &packed(&[0..9, 9..33]).0, &[VARIANTS as u64, 9], &[40, 9]).unwrap();
    let array = broken(array, |index| is_left_out(&ROWS_SELECTED, 40 * index[0], 40), true);
    let all = Genotypes::plink(vec![Arc::new(array)], 33).unwrap().select(ROWS_SELECTED).unwrap();
    let lists: [&[Range<u64>]; 6] = [
        &SAMPLES_SELECTED,
        &[0..4, 8..12, 28..33],
        &[3..4, 5..6, 7..33],
        &[0..9, 9..33],
        &[0..1, 1..3],
        &[2..3, 3..31],
    ];
    let narrowed = all.clone().select_samples(std::iter::once(5..6)).unwrap();
    for selected in lists {
        let (bytes, samples) = packed(selected);
        let alone = plink(&bytes, samples, 64).select(ROWS_SELECTED).unwrap();
        let ours = narrowed.clone().select_samples(selected.iter().cloned()).unwrap();
        assert_eq!(ours.samples(), alone.samples());
        for (options, allele) in [(options(2), 0), (randomized(2, Stop::PowerIterations(2)), 1)] {
            let [ours, alone] = [&ours, &alone].map(|genotypes| {
                let genotypes = genotypes.clone().count_allele(allele).unwrap();
                let small = Run::default().memory(Budget::default().host(4 << 20));
                let pca = pca(&genotypes, &Device::cpu(), &options, &small).unwrap();
                (bits(&pca), pca.digest, pca.counts)
            });
            assert_eq!(ours, alone, "{selected:?}");
        }
    }
    assert_err!(all.clone().select_samples([3..4, 11..34]), Error::Argument { name: "samples", .. });
    assert_ne!(all.words(), narrowed.words());
    let none = all.select_samples([]).unwrap();
    assert_refused(pca(&none, &Device::cpu(), &options(1), &Run::default()), &["0 samples"]);
}
