//! Tests of distances between the columns of packed rows.

use super::distance::{RULES, each_pair, expected};
use super::packed_case::{codes, upload};
use super::*;
use crate::{
    distance::{
        ColumnPairs::{All, Band, Diagonal},
        Distances, Metric, Missing, Options, PackedPairs,
    },
    linalg::Stats,
};

device_tests! {
    every_rule, parts_merge, nothing, refused;
    every_metric, some_columns_at_a_time, ones_that_differ,
}

pub(super) const METRICS: [Metric; 7] = [
    Metric::Euclidean,
    Metric::SqEuclidean,
    Metric::CityBlock,
    Metric::Hamming,
    Metric::InnerProduct,
    Metric::Cosine,
    Metric::Correlation,
];

/// Returns empty sums of each column with itself.
pub(super) fn sums_of_columns(device: &Device, columns: u64, rows: u64, metric: Metric) -> PackedPairs {
    PackedPairs::new(device, &Diagonal(columns), rows, metric, Missing::Ignore).unwrap()
}

pub(super) fn stats(codes: &[u8]) -> Stats {
    let known = || codes.iter().filter(|&&code| code < 3).map(|&code| f64::from(code));
    Stats {
        sum: known().sum(),
        sum_squares: known().map(|code| code * code).sum(),
        count: known().count() as u64,
        bad: 0,
    }
}

/// Computes the distances over the rows `kept`, in panels of `panel` rows.
fn distances(
    device: &Device,
    codes: &[u8],
    entries: u64,
    (metric, missing): (Metric, Missing),
    panel: usize,
    kept: impl Fn(usize) -> bool,
) -> Distances {
    let rows = codes.len() as u64 / entries;
    let mut pairs = PackedPairs::new(device, &All(entries), rows, metric, missing).unwrap();
    let stats: Vec<_> = codes
        .chunks(entries as usize)
        .enumerate()
        .map(|(row, codes)| kept(row).then(|| stats(codes)))
        .collect();
    for (codes, stats) in codes.chunks(panel * entries as usize).zip(stats.chunks(panel)) {
        let packed = upload(device, codes, entries);
        let half = stats.len() / 2;
        pairs.add(&packed, 0, &stats[..half]).unwrap();
        pairs.add(&packed, half as u64, &stats[half..]).unwrap();
    }
    pairs.finish().unwrap()
}

/// Compares distances with the definitions, to the bit: sums of codes are whole numbers.
fn check(
    result: &Distances,
    codes: &[u8],
    entries: usize,
    (metric, missing): (Metric, Missing),
    kept: impl Fn(usize) -> bool,
) {
    let rows: Vec<&[u8]> =
        codes.chunks(entries).enumerate().filter(|(row, _)| kept(*row)).map(|(_, codes)| codes).collect();
    assert_eq!(result.shared.is_some(), rows.iter().any(|codes| codes.contains(&3)));
    let value = |code: u8| if code < 3 { f64::from(code) } else { f64::NAN };
    let column = |j: usize| rows.iter().map(|row| value(row[j])).collect::<Vec<_>>();
    let columns: Vec<_> = (0..entries).map(column).collect();
    let options = Options { missing, ..Options::default() };
    for ([i, j], [x, y]) in each_pair(&columns, &columns) {
        let known = || x.iter().zip(y).filter(|(x, y)| !x.is_nan() && !y.is_nan());
        let sum = |term: &dyn Fn(f64, f64) -> f64| known().map(|(&x, &y)| term(x, y)).sum::<f64>();
        let shared = sum(&|_, _| 1.0);
        let by_definition = expected(metric, x, y, &options);
        let expected = match metric {
            // The documented formula has no means, so that it is one of whole numbers.
            Metric::Correlation if shared > 0.0 && !by_definition.value.is_nan() => {
                let [x, y] = [sum(&|x, _| x), sum(&|_, y| y)];
                let of = |xy: f64, x: f64, y: f64| shared * xy - x * y;
                let [xx, yy] = [of(sum(&|x, _| x * x), x, x), of(sum(&|_, y| y * y), y, y)];
                1.0 - of(sum(&|x, y| x * y), x, y) / (xx * yy).sqrt()
            }
            _ if by_definition.squared => by_definition.value.sqrt(),
            _ => by_definition.value,
        };
        let actual = result.distances.row(i)[j];
        let case = format_args!("{metric:?} {missing:?} {} x {entries}, {i} {j}", rows.len());
        let is_right = actual == expected || actual.is_nan() && expected.is_nan();
        assert!(is_right, "{case}: {actual}, {expected}");
        if let Some(counts) = &result.shared {
            assert_eq!(counts.row(i)[j], shared, "{case}");
        }
    }
}

fn all(_: usize) -> bool {
    true
}

/// Returns rows of all kinds: most codes 0, most 2, half 1, few or many missing, all missing.
pub(super) fn rows(seed: u32, rows: u64, entries: u64, missing: bool) -> Vec<u8> {
    let mut all = codes(seed, rows, entries, missing);
    for (i, row) in all.chunks_mut(entries as usize).enumerate() {
        let turn = |code: &mut u8, to: [u8; 4]| *code = to[usize::from(*code)];
        match i % 7 {
            0 => row
                .iter_mut()
                .enumerate()
                .for_each(|(j, code)| turn(code, if j % 40 == i % 40 { [2, 2, 1, 3] } else { [0; 4] })),
            1 => row.iter_mut().for_each(|code| turn(code, [2, 1, 0, 3])),
            2 => row.iter_mut().for_each(|code| turn(code, [1, 0, 2, 3])),
            3 if missing => row.iter_mut().for_each(|code| turn(code, [3, 1, 2, 0])),
            4 if missing && i % 3 == 0 => row.fill(3),
            5 => {
                row.iter_mut().enumerate().for_each(|(j, code)| *code = if j % 50 == i % 50 { 0 } else { 2 })
            }
            _ => {}
        }
    }
    all
}

/// Panels have all rows or about a third, and some rows take no part.
fn every_metric(device: &Device) {
    for (entries, count) in [(1, 1), (1, 9), (3, 2), (16, 33), (63, 40), (65, 130), (130, 66), (70, 2100)] {
        for missing in [false, true] {
            let codes = rows(91, count, entries, missing);
            let metrics = if count < 1000 { &METRICS[..] } else { &METRICS[2..4] };
            for (i, &metric) in metrics.iter().enumerate() {
                let of = (metric, Missing::Ignore);
                let panel = (count as usize).div_ceil([1, 3][i % 2]);
                let result = distances(device, &codes, entries, of, panel, all);
                check(&result, &codes, entries as usize, of, all);
            }
        }
    }
    let codes = rows(93, 40, 20, true);
    for kept in [|row: usize| row % 3 != 1, |_: usize| false] {
        for metric in [Metric::SqEuclidean, Metric::Correlation] {
            let of = (metric, Missing::Ignore);
            check(&distances(device, &codes, 20, of, 40, kept), &codes, 20, of, kept);
        }
    }
}

fn every_rule(device: &Device) {
    let mut codes = rows(92, 21, 70, true);
    // No row knows both of these two columns.
    for (i, row) in codes.chunks_mut(70).enumerate() {
        row[3 + i % 2] = 3;
    }
    for metric in METRICS {
        for missing in RULES {
            let result = distances(device, &codes, 70, (metric, missing), 21, all);
            check(&result, &codes, 70, (metric, missing), all);
        }
    }
}

/// Columns are computed some at a time, in any order, with the same bits.
fn some_columns_at_a_time(device: &Device) {
    for missing in [false, true] {
        let codes = rows(97, 90, 200, missing);
        let packed = upload(device, &codes, 200);
        let stats: Vec<_> = codes.chunks(200).map(|codes| Some(stats(codes))).collect();
        for metric in METRICS {
            let whole = distances(device, &codes, 200, (metric, Missing::Rescale), 90, all);
            let mut diagonal = sums_of_columns(device, 200, 90, metric);
            diagonal.add(&packed, 0, &stats).unwrap();
            let diagonal = diagonal.finish_diagonal().unwrap();
            for own in [192..200, 0..64, 64..192] {
                let band = Band(200, own.clone());
                let mut pairs = PackedPairs::new(device, &band, 90, metric, Missing::Rescale).unwrap();
                pairs.add(&packed, 0, &stats).unwrap();
                let part = pairs.finish_columns(&diagonal).unwrap();
                let [start, width] = [own.start, own.end - own.start].map(|n| n as usize);
                assert_eq!((part.distances.rows(), part.distances.cols()), (200 - start, width));
                for i in 0..200 - start {
                    let same = |part: &Matrix, whole: &Matrix| {
                        let (part, whole) = (part.row(i), &whole.row(start + i)[start..start + width]);
                        part.iter().zip(whole).all(|(a, b)| a.to_bits() == b.to_bits())
                    };
                    assert!(same(&part.distances, &whole.distances), "{metric:?} {own:?} {i}");
                    let counts = part.shared.as_ref().zip(whole.shared.as_ref());
                    assert_eq!((counts.is_some(), whole.shared.is_some()), (missing, missing));
                    assert!(counts.is_none_or(|(part, whole)| same(part, whole)), "{metric:?} {own:?} {i}");
                }
            }
        }
    }
}

/// Sums over some rows merge with sums over the others to the distances over all, with the same bits.
fn parts_merge(device: &Device) {
    for missing in [false, true] {
        let mut codes = rows(99, 40, 70, missing);
        if missing {
            // No row knows both of these two columns.
            codes.chunks_mut(70).enumerate().for_each(|(i, row)| row[3 + i % 2] = 3);
        }
        for metric in METRICS {
            for rule in RULES {
                let sums = |codes: &[u8]| {
                    let count = codes.len() / 70;
                    let mut pairs = PackedPairs::new(device, &All(70), count as u64, metric, rule).unwrap();
                    let stats: Vec<_> = codes.chunks(70).map(|codes| Some(stats(codes))).collect();
                    if count > 0 {
                        pairs.add(&upload(device, codes, 70), 0, &stats).unwrap();
                    }
                    pairs.export().unwrap()
                };
                let mut merged = sums(&codes[..13 * 70]);
                merged.merge(&sums(&codes[13 * 70..])).unwrap();
                merged.merge(&sums(&[])).unwrap();
                assert_eq!(merged.features, 40);
                let found = merged.finish().unwrap();
                let whole = distances(device, &codes, 70, (metric, rule), 40, all);
                for (number, (a, b)) in found.distances.data().iter().zip(whole.distances.data()).enumerate()
                {
                    let same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                    assert!(same, "{metric:?} {rule:?} {missing} {number}: {a}, {b}");
                }
                if let (Some(found), Some(whole)) = (found.shared, whole.shared) {
                    assert_eq!(found, whole, "{metric:?} {rule:?}");
                }
            }
        }
    }
}

/// Two codes 1 count as different. Distances equal the definition, and computed for some columns at a time they have the same bits.
fn ones_that_differ(device: &Device) {
    for missing in [false, true] {
        let codes = rows(98, 90, 200, missing);
        let packed = upload(device, &codes, 200);
        let stats: Vec<_> = codes.chunks(200).map(|codes| Some(stats(codes))).collect();
        let add = |pairs: PackedPairs| {
            let mut pairs = pairs.ones_differ().unwrap();
            pairs.add(&packed, 0, &stats[..50]).unwrap();
            pairs.add(&packed, 50, &stats[50..]).unwrap();
            pairs
        };
        let (metric, rule) = (Metric::CityBlock, Missing::Rescale);
        let whole = add(PackedPairs::new(device, &All(200), 90, metric, rule).unwrap()).finish().unwrap();
        for (i, j) in (0..200).flat_map(|i| (0..200).map(move |j| (i, j))) {
            let (mut sum, mut both) = (0, 0);
            for [a, b] in codes.chunks(200).map(|row| [row[i], row[j]].map(i32::from)) {
                if a < 3 && b < 3 {
                    sum += 1 - (a - 1) * (b - 1);
                    both += 1;
                }
            }
            let both = f64::from(both);
            assert_eq!(whole.distances.row(i)[j], f64::from(sum) * (90.0 / both), "{missing} {i} {j}");
            assert!(whole.shared.as_ref().is_none_or(|shared| shared.row(i)[j] == both));
        }
        let diagonal = add(sums_of_columns(device, 200, 90, metric));
        let diagonal = diagonal.finish_diagonal().unwrap();
        for own in [64..192, 192..200] {
            let pairs = PackedPairs::new(device, &Band(200, own.clone()), 90, metric, rule).unwrap();
            let part = add(pairs).finish_columns(&diagonal).unwrap();
            let [start, end] = [own.start, own.end].map(|n| n as usize);
            let same = |i: usize| part.distances.row(i) == &whole.distances.row(start + i)[start..end];
            assert!((0..200 - start).all(same), "{missing} {own:?}");
        }
    }
}

fn nothing(device: &Device) {
    for (missing, expected) in [
        (Missing::Ignore, 0.0),
        (Missing::Propagate, 0.0),
        (Missing::Rescale, f64::NAN),
        (Missing::RescaleOrZero, 0.0),
    ] {
        for (columns, len) in [(0, 0), (2, 4)] {
            let pairs = PackedPairs::new(device, &All(columns), 0, Metric::CityBlock, missing).unwrap();
            let distances = pairs.finish().unwrap().distances;
            assert!(distances.data().len() == len, "{missing:?}");
            assert!(distances.data().iter().all(|d| d.to_bits() == f64::to_bits(expected)), "{missing:?}");
        }
    }
}

fn refused(device: &Device) {
    let new = |metric| PackedPairs::new(device, &All(20), 3, metric, Missing::Ignore);
    let some = PackedPairs::new(device, &Band(70, 0..64), 3, Metric::Euclidean, Missing::Ignore);
    let ones = new(Metric::CityBlock).unwrap().ones_differ();
    for (sums, why) in [(some, "columns 0..64 with all"), (ones, "1s that differ")] {
        assert_refused(sums.unwrap().export(), &["PackedPairs::export", why]);
    }
    let too_many = PackedPairs::new(device, &All(20), u64::MAX, Metric::Hamming, Missing::Ignore);
    assert!(matches!(too_many, Err(Error::Limit { requested: u64::MAX, .. })));
    assert_refused(new(Metric::Canberra), &["canberra is not made of"]);
    let mut pairs = new(Metric::Euclidean).unwrap();
    let codes = rows(96, 4, 20, false);
    let packed = upload(device, &codes, 20);
    let right = Some(stats(&codes[..20]));
    let wrong = [
        Stats { sum: 1.5, ..Stats::default() },
        Stats { sum: 41.0, sum_squares: 41.0, count: 20, bad: 0 },
        Stats { sum: 4.0, sum_squares: 4.0, count: 3, bad: 0 },
        Stats { sum: 0.0, sum_squares: 0.0, count: 21, bad: 0 },
        Stats { sum: f64::NAN, ..Stats::default() },
    ];
    for wrong in wrong {
        assert_refused(pairs.add(&packed, 0, &[right, Some(wrong)]), &["row 1 of 20 columns"]);
    }
    assert!(matches!(pairs.add(&packed, 3, &[right; 2]), Err(Error::Shape { .. })));
    assert!(matches!(pairs.add(&packed, 0, &[right; 4]), Err(Error::Argument { .. })));
    let of = |own, metric| PackedPairs::new(device, &Band(100, own), 3, metric, Missing::Ignore);
    for own in [0..0, 1..64, 0..63, 64..101, 100..100] {
        assert_refused(of(own, Metric::Hamming), &["not whole groups of 64"]);
    }
    for (columns, metric) in [(100, Metric::CityBlock), (99, Metric::Hamming)] {
        let other = sums_of_columns(device, columns, 3, metric).finish_diagonal().unwrap();
        let error = of(64..100, Metric::Hamming).unwrap().finish_columns(&other).unwrap_err();
        assert!(matches!(error, Error::Argument { name: "diagonal", .. }), "{error}");
    }
    let refused = new(Metric::Hamming).unwrap().ones_differ();
    assert_refused(refused, &["hamming of 0 rows: for cityblock of none so far"]);
    let mut begun = new(Metric::CityBlock).unwrap();
    begun.add(&packed, 0, &[right]).unwrap();
    assert!(begun.ones_differ().unwrap_err().to_string().contains("cityblock of 1 rows"));
    let other = sums_of_columns(device, 100, 3, Metric::CityBlock).finish_diagonal().unwrap();
    let error = of(64..100, Metric::CityBlock).unwrap().ones_differ().unwrap().finish_columns(&other);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("rows, for cityblock with ones that differ of 100 columns"), "{error}");
    // Each of the three kinds of sums refuses calls for the other kinds.
    let all = || new(Metric::Hamming).unwrap();
    let diagonal = || sums_of_columns(device, 20, 3, Metric::Hamming);
    let some = || of(0..64, Metric::Hamming).unwrap();
    for error in [
        diagonal().finish().unwrap_err(),
        some().finish().unwrap_err(),
        diagonal().finish_columns(&diagonal().finish_diagonal().unwrap()).unwrap_err(),
        all().finish_diagonal().unwrap_err(),
    ] {
        assert!(error.to_string().contains("sums of"), "{error}");
    }
    let mut more = all();
    more.add(&packed, 0, &[right]).unwrap();
    assert_refused(more.finish_columns(&diagonal().finish_diagonal().unwrap()), &["0 rows"]);
    let elsewhere = upload(device, &codes, 80);
    assert!(matches!(pairs.add(&elsewhere, 0, &[right]), Err(Error::Shape { .. })));
}
