use super::{data::values, device_tests};
use crate::{
    Device, Error, Tensor,
    genotype::{
        packed::{
            adjoint::{Sums, Weights, packed_adjoint},
            apply::Rows,
            digits::{Table, packed_digits},
            gram::Gram,
            row_words,
            slices::{digits, lanes_of, scale},
        },
        scaler::{Fate, Scaler, Standard},
    },
};

device_tests! { digits_are_the_tables, single_digits_add_up, grams_are_exact, grams_are_centred, no_rows, wrong_shapes }

/// Codes, some of them missing.
fn codes(seed: u32, rows: u64, samples: u64, missing: bool) -> Vec<u8> {
    let code = |&byte: &u8| if byte % 13 == 0 && missing { 3 } else { byte % 3 };
    values::<u8>(seed, rows * samples).iter().map(code).collect()
}

fn upload(device: &Device, codes: &[u8], rows: u64, samples: u64) -> Tensor<u32> {
    let words = row_words(samples) as usize;
    let mut packed = vec![0u32; rows as usize * words];
    for (row, codes) in packed.chunks_mut(words).zip(codes.chunks(samples as usize)) {
        for (i, &code) in codes.iter().enumerate() {
            row[i / 16] |= u32::from(code) << (2 * (i % 16));
        }
    }
    Tensor::from_slice(device, &packed, &[rows, words as u64]).unwrap()
}

/// A table whose bytes are all different from 0, and rows that do not begin with the first.
fn digits_are_the_tables(device: &Device) {
    for (samples, rows, columns) in
        [(1, 1, 0..1), (20, 7, 0..20), (70, 66, 64..70), (200, 130, 64..128), (300, 2100, 48..99)]
    {
        let codes = codes(81, rows, samples, true);
        let packed = upload(device, &codes, rows, samples);
        for (sets, slices) in [(1, 3), (2, 3), (1, 1)] {
            let entries = (sets * slices) as usize;
            let bytes: Vec<[u8; 4]> =
                values::<u32>(82, rows * sets * slices).iter().map(|x| x.to_le_bytes()).collect();
            let words: Vec<u32> = bytes.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
            let words = Tensor::from_slice(device, &words, &[rows, sets * slices]).unwrap();
            let first = rows / 3;
            let across = columns.end - columns.start;
            let lanes = lanes_of(slices, across) as usize;
            let mut expected = vec![[0u8; 4]; ((rows - first).div_ceil(4) * sets) as usize * lanes];
            for row in first..rows {
                let (four, place) = ((row - first) as usize / 4, (row - first) as usize % 4);
                for (c, column) in columns.clone().enumerate() {
                    let code = usize::from(codes[(row * samples + column) as usize]);
                    for t in 0..entries {
                        let (set, slice) = (t / slices as usize, t % slices as usize);
                        let lane = set * lanes + slice * across as usize + c;
                        expected[four * sets as usize * lanes + lane][place] =
                            bytes[row as usize * entries + t][code];
                    }
                }
            }
            let expected: Vec<u32> = expected.into_iter().map(u32::from_le_bytes).collect();
            let table = Table { words: &words, first, sets, slices };
            let out = packed_digits(&packed, first..rows, columns.clone(), table).unwrap();
            assert_eq!(out.read().unwrap(), expected, "{rows} x {samples}, {columns:?}, {sets} {slices}");
        }
    }
}

/// Weights of one digit, of both signs, at every shift's ends, for all samples or some.
fn single_digits_add_up(device: &Device) {
    for (samples, rows, columns, first) in
        [(1, 1, 1, 0), (70, 66, 5, 4), (130, 1030, 70, 0), (200, 515, 64, 8), (330, 130, 17, 16)]
    {
        let codes = codes(83, rows, samples, false);
        let packed = upload(device, &codes, rows, samples);
        let table = Tensor::<f32>::zeros(device, &[rows, 2]).unwrap();
        let lanes = lanes_of(1, columns);
        let words = values::<u32>(84, rows.div_ceil(4) * lanes);
        let weight = |row: u64, c: u64| {
            let word = words[(row / 4 * lanes + c) as usize];
            i64::from(word.to_le_bytes()[row as usize % 4] as i8)
        };
        let digits = Tensor::from_slice(device, &words, &[rows.div_ceil(4), lanes]).unwrap();
        for shift in [0, 1, 20, 31] {
            let mut sums = Sums::zeros_from(device, first, samples, columns).unwrap();
            let rows_of = Rows { packed: &packed, table: &table, range: (0, rows), missing: false };
            for _ in 0..3 {
                packed_adjoint(rows_of, Weights { words: &digits, slices: 1, shift }, &mut sums).unwrap();
            }
            let mut expected = Vec::new();
            for sample in 16 * first..samples {
                for c in 0..columns {
                    let term = |row| i64::from(codes[(row * samples + sample) as usize]) * weight(row, c);
                    expected.push(3 * ((0..rows).map(term).sum::<i64>() << shift));
                }
            }
            assert_eq!(sums.read().unwrap(), expected, "{rows} x {samples}, {columns}, {first}, {shift}");
        }
    }
}

/// Genotypes of which the second half has rarer variants, and how they are scaled.
struct Case {
    samples: u64,
    codes: Vec<u8>,
    standards: Vec<Standard>,
    scaler: Scaler,
}

impl Case {
    fn new(samples: u64, rows: u64, scaler: Scaler, missing: bool) -> Self {
        let codes = codes(85, rows, samples, missing);
        let standard = |(i, row): (usize, &[u8])| {
            let called = row.iter().filter(|&&code| code < 3).count() as u64;
            let sum: f64 = row.iter().filter(|&&code| code < 3).map(|&code| f64::from(code)).sum();
            let mean = if called == 0 { 0.0 } else { sum / called as f64 };
            let scale = match scaler {
                Scaler::Center | Scaler::None => 1.0,
                _ => (1.0 + 0.37 * (i % 7) as f64) * if 2 * i < rows as usize { 1.0 } else { 31.0 },
            };
            let fate = if i % 11 == 7 || called == 0 { Fate::ZeroVariance } else { Fate::Used };
            Standard { mean, shift: mean, scale, called, fate }
        };
        let standards = codes.chunks(samples as usize).enumerate().map(standard).collect();
        Self { samples, codes, standards, scaler }
    }

    fn gram(&self, device: &Device) -> Gram {
        let rows = self.standards.len() as u64;
        let packed = upload(device, &self.codes, rows, self.samples);
        let table = Tensor::<f32>::zeros(device, &[rows, 2]).unwrap();
        let mut gram = Gram::new(device, self.samples, self.scaler);
        for (first, end) in self.blocks() {
            let rows = Rows { packed: &packed, table: &table, range: (first, end), missing: true };
            gram.add(rows, &self.standards[first as usize..end as usize]).unwrap();
        }
        gram
    }

    fn blocks(&self) -> [(u64, u64); 3] {
        let rows = self.standards.len() as u64;
        [(0, rows / 4), (rows / 4, rows.div_ceil(2)), (rows.div_ceil(2), rows)]
    }

    /// Σ f(row, code, code) over the variants that take part and have a block's scale.
    fn pairs(&self, f: impl Fn(&Standard, u8, u8) -> f64) -> Vec<f64> {
        let n = self.samples as usize;
        let mut sums = vec![0.0; n * n];
        for (standard, codes) in self.standards.iter().zip(self.codes.chunks(n)) {
            if standard.fate == Fate::Used {
                for (j, row) in sums.chunks_mut(n).enumerate() {
                    row.iter_mut().zip(codes).for_each(|(sum, &code)| *sum += f(standard, codes[j], code));
                }
            }
        }
        sums
    }
}

const SIZES: [(u64, u64); 9] =
    [(1, 1), (2, 9), (3, 40), (17, 64), (63, 66), (64, 130), (65, 31), (130, 300), (200, 4500)];

/// Where a block's numbers come from is one power of two, and what is multiplied is what that leaves of them.
fn grams_are_exact(device: &Device) {
    for (samples, rows) in SIZES {
        for missing in [false, true] {
            for scaler in [Scaler::Patterson, Scaler::Center, Scaler::None] {
                let case = Case::new(samples, rows, scaler, missing);
                let mut total = vec![0.0; (samples * samples) as usize];
                for (first, end) in case.blocks() {
                    let range = first as usize..end as usize;
                    let part = Case {
                        samples,
                        codes: case.codes[(first * samples) as usize..(end * samples) as usize].to_vec(),
                        standards: case.standards[range].to_vec(),
                        scaler,
                    };
                    let used = part.standards.iter().filter(|standard| standard.fate == Fate::Used);
                    let largest = used.map(|s| 2.0 * s.mean.max(1.0) * s.scale * s.scale).fold(0.0, f64::max);
                    let largest = if scaler == Scaler::Patterson { largest } else { 4.0 };
                    let scale = scale(largest * (1.0 + 1e-5));
                    let sums = part.pairs(|s, a, b| {
                        let multiple = |x: f64| {
                            let multiple = (x * s.scale * s.scale * scale).round_ties_even() as i32;
                            let [low, middle, high] = digits(multiple).map(f64::from);
                            assert_eq!(low + 256.0 * middle + 65_536.0 * high, f64::from(multiple));
                            f64::from(multiple)
                        };
                        match (a, b) {
                            (3, 3) => multiple(s.mean * s.mean),
                            (3, called) | (called, 3) => multiple(s.mean) * f64::from(called),
                            (a, b) => multiple(1.0) * f64::from(a * b),
                        }
                    });
                    total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum / scale);
                }
                let sums = case.gram(device).sums().unwrap();
                assert_eq!(sums.data(), total, "{samples} {rows} {missing} {scaler:?}");
            }
        }
    }
}

fn grams_are_centred(device: &Device) {
    for (samples, rows) in SIZES {
        for missing in [false, true] {
            for scaler in [Scaler::Patterson, Scaler::Center, Scaler::None] {
                let case = Case::new(samples, rows, scaler, missing);
                let shift = |s: &Standard| if scaler == Scaler::None { 0.0 } else { s.mean };
                let value = |s: &Standard, code| {
                    s.scale * (if code == 3 { s.mean } else { f64::from(code) } - shift(s))
                };
                let expected = case.pairs(|s, a, b| value(s, a) * value(s, b));
                let gram = case.gram(device).finish().unwrap();
                let largest = expected.iter().fold(1.0, |largest: f64, x| largest.max(x.abs()));
                for (at, (a, b)) in gram.data().iter().zip(&expected).enumerate() {
                    assert!(
                        (a - b).abs() < 1e-6 * largest,
                        "{samples} {rows} {missing} {scaler:?} {at}: {a} {b}"
                    );
                }
                for row in gram.data().chunks(samples as usize) {
                    let sum: f64 = row.iter().sum();
                    let centred = sum.abs() < 1e-10 * largest * samples as f64;
                    assert!(
                        centred || scaler == Scaler::None,
                        "{samples} {rows} {missing} {scaler:?}: {sum}"
                    );
                }
            }
        }
    }
}

fn no_rows(device: &Device) {
    for samples in [0, 5] {
        let gram = Gram::new(device, samples, Scaler::Patterson);
        assert!(gram.finish().unwrap().data().iter().all(|&value| value == 0.0));
    }
    let packed = Tensor::<u32>::zeros(device, &[0, 4]).unwrap();
    let words = Tensor::<u32>::zeros(device, &[0, 3]).unwrap();
    let table = Table { words: &words, first: 0, sets: 1, slices: 3 };
    assert!(packed_digits(&packed, 0..0, 0..5, table).unwrap().is_empty());
}

fn wrong_shapes(device: &Device) {
    let packed = Tensor::<u32>::zeros(device, &[6, 4]).unwrap();
    let words = Tensor::<u32>::zeros(device, &[6, 3]).unwrap();
    let table = Table { words: &words, first: 0, sets: 1, slices: 3 };
    let later = Table { first: 4, ..table };
    let wide = Table { sets: 2, ..table };
    for (rows, columns, table) in [
        (0..7, 0..5, table),
        (0..6, 0..65, table),
        (0..6, 8..16, table),
        (2..6, 0..5, later),
        (0..6, 0..5, wide),
    ] {
        let error = packed_digits(&packed, rows, columns, table).unwrap_err();
        assert!(matches!(error, Error::Shape { op: "packed_digits", .. }), "{error}");
    }
    let factors = Tensor::<f32>::zeros(device, &[6, 2]).unwrap();
    let rows = Rows { packed: &packed, table: &factors, range: (0, 6), missing: false };
    let digits = Tensor::<u32>::zeros(device, &[2, 16]).unwrap();
    let weights = Weights { words: &digits, slices: 1, shift: 0 };
    // Those of a row of 5 words, and of three digits.
    let mut sums = Sums::zeros_from(device, 4, 70, 16).unwrap();
    let error = packed_adjoint(rows, weights, &mut sums).unwrap_err();
    assert!(matches!(error, Error::Shape { op: "packed_adjoint", .. }), "{error}");
    let mut sums = Sums::zeros(device, 60, 16).unwrap();
    packed_adjoint(rows, weights, &mut sums).unwrap();
    let error = packed_adjoint(rows, &digits, &mut sums).unwrap_err();
    assert!(matches!(error, Error::Shape { op: "packed_adjoint", .. }), "{error}");
}
