//! Tests that selected rows and samples give the results of a store of these alone, and that no other chunk is read.

use super::{refused::broken, *};
use crate::{GrmOptions, Match, MissingCalls, ProjectMethod, ReferenceLoadings, grm, project};

const SAMPLES: usize = 33;
/// The number of rows of the first array, in chunks of 40; the second has chunks of 7 variants and 16 samples.
const SPLIT: usize = 300;
const VARIANTS: usize = 700;
/// The selected rows cut chunks, cross from one array to the other, and leave out whole chunks of both.
const SELECTED: [std::ops::Range<u64>; 5] = [3..5, 39..41, 130..165, 299..341, 421..700];

/// Returns true if a chunk holds none of the selected rows.
fn unselected(start: u64, height: u64, chunk: u64) -> bool {
    let rows = start + chunk * height..start + (chunk + 1) * height;
    SELECTED.iter().all(|range| range.end <= rows.start || rows.end <= range.start)
}

/// Returns the selected rows alone.
fn alone<T: Copy>(values: &[T], width: usize) -> Vec<T> {
    let row = |row: u64| &values[usize::try_from(row).unwrap() * width..][..width];
    SELECTED.into_iter().flatten().flat_map(row).copied().collect()
}

/// Returns the selected rows of two arrays whose other chunks are unreadable, and an array of the selected rows alone.
fn both<T: Storable>(values: &[T], rest: &[u64]) -> [Genotypes; 2] {
    let width = values.len() / VARIANTS;
    let array = |values: &[T], chunk: &[u64]| {
        let shape = [&[(values.len() / width) as u64], rest].concat();
        MemoryArray::new("array", values, &shape, &[chunk, &rest[1..]].concat()).unwrap()
    };
    let (one, two) = values.split_at(SPLIT * width);
    let arrays: [Arc<dyn ChunkedArray>; 2] = [
        Arc::new(broken(array(one, &[40, 33]), |i| unselected(0, 40, i[0]), true)),
        Arc::new(broken(array(two, &[7, 16]), |i| unselected(300, 7, i[0]), true)),
    ];
    let selected = Genotypes::new(arrays.to_vec()).unwrap().select(SELECTED).unwrap();
    let alone = array(&alone(values, width), &[64, 33]);
    [selected, Genotypes::new(vec![Arc::new(alone)]).unwrap()].map(|of| of.nan_is_missing(true))
}

/// Returns the number of chunks with selected rows: 40 rows are one chunk, 7 rows are three chunks side by side.
fn chunks() -> u64 {
    let wide = (0..8).filter(|&i| !unselected(0, 40, i)).count();
    let narrow = (0..58).filter(|&i| !unselected(300, 7, i)).count();
    assert!(wide < 8 && narrow < 58);
    (wide + 3 * narrow) as u64
}

#[test]
fn components_are_those_of_the_rows_alone() {
    let whole = dosages(VARIANTS, SAMPLES);
    let fractions: Vec<f32> =
        whole.iter().map(|&x| if x < 0 { f32::NAN } else { f32::from(x) * 0.75 }).collect();
    let calls: Vec<i8> = whole.iter().flat_map(|&x| [x.min(1), if x < 0 { -1 } else { x / 2 }]).collect();
    let all = [both(&whole, &[33]), both(&calls, &[33, 2]), both(&fractions, &[33])];
    let small = Run::default().memory(Budget::default().host(4 << 20));
    for [selected, alone] in &all {
        for options in [options(K), randomized(K, Stop::PowerIterations(2))] {
            let [ours, expected, tight] =
                [(selected, &Run::default()), (alone, &Run::default()), (selected, &small)]
                    .map(|(genotypes, run)| pca(genotypes, &Device::cpu(), &options, run).unwrap());
            assert_eq!((bits(&ours), ours.digest), (bits(&expected), expected.digest));
            assert_eq!((bits(&tight), tight.digest), (bits(&expected), expected.digest));
            assert_eq!(ours.counts, expected.counts);
            assert_eq!(ours.counts.total, selected.variants());
            assert_eq!(ours.stats.chunks % chunks(), 0, "each chunk is read once a pass");
        }
    }
}

/// Loadings name the rows of the arrays; the matches of a projection refer to the selected rows.
#[test]
fn loadings_and_matches_are_of_the_selected() {
    let [selected, alone] = both(&dosages(VARIANTS, SAMPLES), &[33]);
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
    let stored: Vec<u64> = SELECTED.into_iter().flatten().collect();
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
    assert_err!(
        project(&selected, &device, &reference, &matches[1..], ProjectMethod::Mean, &run),
        Error::Shape { .. }
    );
}

#[test]
fn errors_name_the_row_of_the_arrays() {
    let mut values = dosages(60, 12);
    values[30 * 12 + 7] = 3;
    let genotypes = memory(&values, &[60, 12], &[20, 5]);
    let error = |rows: Vec<std::ops::Range<u64>>| {
        let genotypes = genotypes.clone().select(rows).unwrap();
        pca(&genotypes, &Device::cpu(), &options(1), &Run::default()).map(|pca| pca.counts.total)
    };
    assert!(
        error(vec![3..9, 25..40])
            .unwrap_err()
            .to_string()
            .contains("chunk [1, 1]: variant 30, sample 7: value 3")
    );
    assert_eq!(error(vec![0..30, 31..60]).unwrap(), 59);
    assert!(error(vec![]).unwrap_err().to_string().contains("0 variants"));
    let mut calls = vec![0i8; 60 * 12];
    calls[(40 * 4 + 3) * 3 + 1] = -2;
    let triploid = memory(&calls, &[60, 4, 3], &[20, 3, 3]).select([1..2, 35..60]).unwrap();
    assert_refused(
        pca(&triploid, &Device::cpu(), &options(1), &Run::default()),
        &["chunk [2, 1, 0]: variant 40, sample 3"],
    );
    assert!(matches!(genotypes.select([0..1, 59..61]), Err(Error::Argument { name: "rows", .. })));
}

/// The selected samples cut chunks of 5 samples, some of which are left out, and bytes of four codes.
const SAMPLES_SELECTED: [std::ops::Range<u64>; 4] = [1..2, 3..9, 22..26, 31..33];

/// Returns an array of which only the selected chunks are readable, with the samples and rows selected, and an array of these alone.
fn both_ways<T: Storable>(values: &[T], rest: &[u64], deep: u64) -> [Genotypes; 2] {
    let of_sample = values.len() / VARIANTS / SAMPLES;
    let chosen: Vec<T> = alone(values, values.len() / VARIANTS)
        .chunks(of_sample)
        .enumerate()
        .filter(|(at, _)| SAMPLES_SELECTED.iter().any(|range| range.contains(&((at % SAMPLES) as u64))))
        .flat_map(|(_, call)| call.to_vec())
        .collect();
    let samples: u64 = SAMPLES_SELECTED.iter().map(|range| range.end - range.start).sum();
    let rows: u64 = SELECTED.iter().map(|range| range.end - range.start).sum();
    let chunk = [&[40, 5], &vec![deep; rest.len()][..]].concat();
    let array = MemoryArray::new("array", values, &[&[700, SAMPLES as u64], rest].concat(), &chunk).unwrap();
    let other = |index: &[u64]| {
        let first = 5 * index[1];
        let none = SAMPLES_SELECTED.iter().all(|range| range.end <= first || first + 5 <= range.start);
        none || unselected(0, 40, index[0])
    };
    let selected = Genotypes::new(vec![Arc::new(broken(array, other, true))]).unwrap();
    let selected = selected.select(SELECTED).unwrap().select_samples(SAMPLES_SELECTED).unwrap();
    let shape = [&[rows, samples], rest].concat();
    let alone = MemoryArray::new("array", &chosen, &shape, &shape).unwrap();
    [selected, Genotypes::new(vec![Arc::new(alone)]).unwrap()].map(|of| of.nan_is_missing(true))
}

#[test]
fn selected_samples_are_as_if_alone() {
    let whole = dosages(VARIANTS, SAMPLES);
    let fractions: Vec<f32> =
        whole.iter().map(|&x| if x < 0 { f32::NAN } else { f32::from(x) * 0.75 }).collect();
    let haploid: Vec<i16> = whole.iter().map(|&x| x.min(1).into()).collect();
    let calls = |ploidy: i8| -> Vec<i8> {
        whole
            .iter()
            .flat_map(|&x| (0..ploidy).map(move |i| if x < 0 { -1 } else { i8::from(i < x) }))
            .collect()
    };
    let all = [
        both_ways(&whole, &[], 1),
        both_ways(&fractions, &[], 1),
        both_ways(&haploid, &[1], 1),
        both_ways(&calls(2), &[2], 2),
        both_ways(&calls(2), &[2], 1),
        both_ways(&calls(3), &[3], 3),
        both_ways(&calls(3), &[3], 2),
    ];
    for [selected, alone] in &all {
        assert_eq!([selected.samples(), selected.variants()], [alone.samples(), alone.variants()]);
        let [ours, expected] = [selected, alone]
            .map(|genotypes| pca(genotypes, &Device::cpu(), &options(K), &Run::default()).unwrap());
        assert_eq!((bits(&ours), ours.digest), (bits(&expected), expected.digest));
        assert_eq!(ours.counts, expected.counts);
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

#[test]
fn samples_that_cannot_be_selected() {
    let mut values = dosages(60, 12);
    values[30 * 12 + 7] = 3;
    let genotypes = memory(&values, &[60, 12], &[20, 5]);
    let of = |samples: Vec<std::ops::Range<u64>>| {
        let genotypes = genotypes.clone().select_samples(samples).unwrap();
        pca(&genotypes, &Device::cpu(), &options(1), &Run::default()).map(|pca| pca.counts.total)
    };
    assert_refused(of(vec![0..2, 6..12]), &["chunk [1, 1]: variant 30, sample 7: value 3 is above 2"]);
    assert_eq!(of(vec![0..7, 8..12]).unwrap(), 60);
    assert!(of(vec![]).unwrap_err().to_string().contains("0 samples"));
    assert_err!(genotypes.select_samples([3..4, 11..13]), Error::Argument { name: "samples", .. });
    let bytes = Arc::new(MemoryArray::new("bed", &[0u8; 6], &[2, 3], &[2, 3]).unwrap());
    let plink = Genotypes::plink(vec![bytes], 11).unwrap();
    assert_err!(plink.select_samples(std::iter::once(0..4)), Error::Argument { name: "samples", .. });
}
