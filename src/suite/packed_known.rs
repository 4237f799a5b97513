//! Tests of sums over the rows in which two columns are both known and some code is missing.

use super::{packed_case::upload, *};
use crate::packed::{
    known_pairs::{KnownPairs, KnownRow},
    row_words,
};

device_tests! {
    nothing_is_known, no_rows_or_columns;
    counts_are_exact, weights_are_close,
}

/// Rows of no, few and many missing codes, one in 29 all missing, and the weights of rows.
struct Case {
    columns: u64,
    codes: Vec<u8>,
    weights: Vec<f64>,
}

const SIZES: [(u64, u64); 8] =
    [(1, 1), (2, 9), (3, 40), (17, 64), (64, 130), (65, 31), (130, 300), (200, 700)];

impl Case {
    fn new((columns, rows): (u64, u64), every: u8, weight: impl Fn(usize) -> f64) -> Self {
        let mut codes = values::<u8>(91, rows * columns);
        for (i, row) in codes.chunks_mut(columns as usize).enumerate() {
            let missing = |code: u8| {
                i % 29 == 28 || i % 3 > 0 && code.is_multiple_of(if i % 3 == 1 { every } else { 97 })
            };
            row.iter_mut().for_each(|code| *code = if missing(*code) { 3 } else { *code % 3 });
        }
        Self { columns, codes, weights: (0..rows as usize).map(weight).collect() }
    }

    /// Returns the sums of panels that begin with these rows, each added in two parts.
    fn sums(&self, device: &Device, largest: Option<f64>, starts: &[usize]) -> Vec<f64> {
        let (rows, n) = (self.weights.len(), self.columns as usize);
        let mut pairs = KnownPairs::new(device, self.columns, rows as u64, largest).unwrap();
        for (i, &start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(rows);
            let codes = &self.codes[start * n..end * n];
            let packed = upload(device, codes, self.columns);
            let known = |codes: &[u8]| codes.iter().filter(|&&code| code < 3).count() as u64;
            let of_rows = self.weights[start..end].iter().zip(codes.chunks(n));
            let of_rows = of_rows.map(|(&weight, codes)| KnownRow { weight, known: known(codes) });
            let of_rows = of_rows.collect::<Vec<_>>();
            let (one, other) = of_rows.split_at(of_rows.len() / 3);
            pairs.add(&packed, 0, one).unwrap();
            pairs.add(&packed, one.len() as u64, other).unwrap();
        }
        pairs.finish().unwrap().data().to_vec()
    }

    /// Returns sums in f64, added row by row.
    fn expected(&self) -> Vec<f64> {
        let n = self.columns as usize;
        let mut sums = vec![0.0; n * n];
        let rows = self.weights.iter().zip(self.codes.chunks(n));
        for (weight, codes) in rows.filter(|(_, codes)| codes.contains(&3)) {
            for (sums, a) in sums.chunks_mut(n).zip(codes) {
                let both = sums.iter_mut().zip(codes).filter(|(_, b)| *a < 3 && **b < 3);
                both.for_each(|(sum, _)| *sum += weight);
            }
        }
        sums
    }
}

fn each_case(weight: impl Fn(usize) -> f64, check: impl Fn(&Case, &str)) {
    for size in SIZES {
        for every in [2, 5, 120] {
            check(&Case::new(size, every, &weight), &format!("{size:?} {every}"));
        }
    }
}

fn counts_are_exact(device: &Device) {
    let weight = |i: usize| if i % 7 == 5 { 0.0 } else { 1.0 };
    each_case(weight, |case, name| {
        let rows = case.weights.len();
        for starts in [&[0][..], &[0, rows / 4, rows.div_ceil(2)]] {
            assert_eq!(case.sums(device, None, starts), case.expected(), "{name} {starts:?}");
        }
    });
}

/// Weights are at most 1 / 2, some of them small; each is rounded to 23 bits if a code is missing.
fn weights_are_close(device: &Device) {
    let weight = |i: usize| 0.5 / (1.0 + (i * i % 1009) as f64 * 0.37);
    each_case(weight, |case, name| {
        let rows = case.weights.len();
        let sums = case.sums(device, Some(0.5), &[0]);
        let tolerance = case.weights.iter().sum::<f64>() * 2f64.powi(-23) + 1e-12;
        for (at, (a, b)) in sums.iter().zip(case.expected()).enumerate() {
            assert!((a - b).abs() <= tolerance, "{name}, {at}: {a} {b}");
        }
        assert_eq!(sums, case.sums(device, Some(0.5), &[0, rows / 4, rows.div_ceil(2)]), "{name}");
    });
}

/// Pairs that no row knows are exactly 0, not a rounding error.
fn nothing_is_known(device: &Device) {
    let mut case = Case::new((70, 40), 2, |i| 0.1 + 0.3 / (1.0 + i as f64));
    for (i, row) in case.codes.chunks_mut(70).enumerate() {
        row.fill(1);
        row[if i % 3 == 0 { 3 } else { 66 }] = 3;
    }
    let sums = case.sums(device, Some(0.5), &[0]);
    assert_eq!([sums[3 * 70 + 66], sums[66 * 70 + 3]], [0.0; 2]);
    assert!(sums[3 * 70 + 3] > 0.0 && sums[66 * 70 + 66] > 0.0 && sums[0] > sums[3 * 70 + 3]);
}

fn no_rows_or_columns(device: &Device) {
    for columns in [0, 5] {
        let mut pairs = KnownPairs::new(device, columns, 0, None).unwrap();
        pairs.add(&Tensor::zeros(device, &[0, row_words(columns)]).unwrap(), 0, &[]).unwrap();
        assert!(pairs.finish().unwrap().data().iter().all(|&sum| sum == 0.0));
    }
}
