//! Tests of distances between the columns of two packed matrices, against those of one matrix that has both.

use super::distance_packed::{METRICS, rows, stats, sums_of_columns};
use super::packed_case::upload;
use super::*;
use crate::{
    distance::{
        ColumnPairs::{All, Between},
        Distances, Metric, Missing, PackedPairs,
    },
    packed::side_by_side,
};

device_tests! {
    refused;
    every_metric,
}

const ROWS: usize = 120;

/// Distances have the bits of one matrix's block, also if two codes 1 count as different.
fn every_metric(device: &Device) {
    for (own, others, missing) in [(70, 5, true), (5, 130, true), (64, 1, false), (1, 64, true)] {
        let codes = rows(98, ROWS as u64, (own + others) as u64, missing);
        for (metric, ones) in
            METRICS.map(|metric| (metric, false)).into_iter().chain([(Metric::CityBlock, true)])
        {
            let case = format!("{metric:?} {ones} {own} {others}");
            let pairs = |pairs: Result<PackedPairs>| match ones {
                true => pairs.unwrap().ones_differ().unwrap(),
                false => pairs.unwrap(),
            };
            let (columns, rule) = ([own as u64, others as u64], Missing::Rescale);
            let all = columns[0] + columns[1];
            let mut whole = pairs(PackedPairs::new(device, &All(all), ROWS as u64, metric, rule));
            let sums: Vec<_> = codes.chunks(own + others).map(|codes| Some(stats(codes))).collect();
            whole.add(&upload(device, &codes, all), 0, &sums).unwrap();
            let whole = whole.finish().unwrap();
            let part = pairs(PackedPairs::new(device, &Between(columns), ROWS as u64, metric, rule));
            let part = beside(device, [own, others], &codes, part);
            assert_eq!((part.distances.rows(), part.distances.cols()), (others, own));
            assert_eq!((part.shared.is_some(), whole.shared.is_some()), (missing, missing));
            for i in 0..others {
                let same = |part: &Matrix, whole: &Matrix| {
                    part.row(i).iter().zip(whole.row(own + i)).all(|(a, b)| a.to_bits() == b.to_bits())
                };
                assert!(same(&part.distances, &whole.distances), "{case} {i}");
                let counts = part.shared.as_ref().zip(whole.shared.as_ref());
                assert!(counts.is_none_or(|(part, whole)| same(part, whole)), "{case} {i}");
            }
        }
    }
}

/// Returns the distances of rows in two panels, where every third row of the first matrix has its codes swapped.
fn beside(device: &Device, [own, others]: [usize; 2], codes: &[u8], mut pairs: PackedPairs) -> Distances {
    let turned = |row: usize| if row % 3 == 1 { [2, 1, 0, 3] } else { [0, 1, 2, 3] };
    let (mut left, mut right, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    for (row, codes) in codes.chunks(own + others).enumerate() {
        left.extend(codes[..own].iter().map(|&code| turned(row)[usize::from(code)]));
        right.extend_from_slice(&codes[own..]);
        let padded = [&codes[..own], &vec![0; own.next_multiple_of(64) - own], &codes[own..]].concat();
        sums.push(Some(stats(&padded)));
    }
    let columns = [own as u64, others as u64];
    let [left, right] = [(left, columns[0]), (right, columns[1])].map(|(codes, n)| upload(device, &codes, n));
    let turned: Vec<[u8; 4]> = (0..ROWS).map(turned).collect();
    for rows in [0..50, 50..ROWS] {
        let first = rows.start as u64;
        let sides = [(&left, columns[0], first), (&right, columns[1], first)];
        let panel = side_by_side(sides[0], sides[1], &turned[rows.clone()]).unwrap();
        pairs.add(&panel, 0, &sums[rows]).unwrap();
    }
    pairs.finish().unwrap()
}

fn refused(device: &Device) {
    let between = |columns| PackedPairs::new(device, &Between(columns), 3, Metric::Hamming, Missing::Ignore);
    for columns in [[0, 3], [3, 0]] {
        assert!(matches!(between(columns), Err(Error::Argument { name: "columns", .. })));
    }
    let packed = upload(device, &rows(96, 4, 20, false), 20);
    for (from, codes) in [(3, [[0, 1, 2, 3]; 2]), (0, [[0, 1, 2, 4]; 2])] {
        assert_refused(side_by_side((&packed, 20, 0), (&packed, 20, from), &codes), &["side_by_side"]);
    }
    // These sums refuse calls for the other kinds.
    let diagonal = sums_of_columns(device, 20, 3, Metric::Hamming).finish_diagonal().unwrap();
    for error in [
        between([20, 1]).unwrap().finish_diagonal().unwrap_err(),
        between([20, 1]).unwrap().finish_columns(&diagonal).unwrap_err(),
    ] {
        assert!(error.to_string().contains("sums of"), "{error}");
    }
}
