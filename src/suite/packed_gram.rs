use super::{data::values, device_tests};
use crate::{
    Device, Error, Tensor,
    genotype::scaler::{DropReason, Scaler, VariantScale as Standard},
    kernels::{packed_adjoint::TILE, packed_gather::SWAPPED, packed_pairs::Terms},
    packed::{
        adjoint::{Sums, Weights, adjoint_in_tiles, packed_adjoint},
        apply::Rows,
        digits::{Table, packed_digits},
        gather::packed_gather,
        gram::Gram,
        pairs::packed_pairs,
        row_words,
        slices::lanes_of,
    },
};

device_tests! {
    digits_are_the_tables, rows_in_order, pairs_add_up, no_rows, wrong_shapes;
    digits_add_up, grams_are_exact, order_changes_no_bit, grams_are_centred,
}

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
        for (sets, slices) in [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3)] {
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

/// Weights of every number of digits, of both signs, at every shift's ends, for all samples or some.
fn digits_add_up(device: &Device) {
    for (samples, rows, columns, first) in
        [(1, 1, 1, 0), (70, 66, 5, 4), (130, 1030, 70, 0), (200, 515, 64, 8), (330, 130, 17, 16)]
    {
        for (slices, missing) in [(1, false), (2, false), (2, true), (3, true)] {
            let codes = codes(83, rows, samples, missing);
            let packed = upload(device, &codes, rows, samples);
            let table = Tensor::<f32>::zeros(device, &[rows, 2]).unwrap();
            let (lanes, sets) = (lanes_of(slices, columns), 1 + u64::from(missing));
            let words = values::<u32>(84, rows.div_ceil(4) * sets * lanes);
            let weight = |row: u64, set: u64, c: u64| -> i64 {
                let digit = |slice| {
                    let place = (row / 4 * sets + set) * lanes + slice * columns + c;
                    i64::from(words[place as usize].to_le_bytes()[row as usize % 4] as i8)
                };
                (0..slices).map(|slice| digit(slice) << (8 * slice)).sum()
            };
            let digits = Tensor::from_slice(device, &words, &[rows.div_ceil(4), sets * lanes]).unwrap();
            let of_set = |set| -> Vec<i64> {
                (0..rows * columns).map(|at| weight(at / columns, set, at % columns)).collect()
            };
            let [plain, filled] = [of_set(0), of_set(sets - 1)];
            let mut exact = Vec::new();
            for sample in 16 * first..samples {
                for c in 0..columns {
                    let term = |row: u64| match codes[(row * samples + sample) as usize] {
                        3 => filled[(row * columns + c) as usize],
                        code => i64::from(code) * plain[(row * columns + c) as usize],
                    };
                    exact.push((0..rows).map(term).sum::<i64>());
                }
            }
            for shift in [0, 1, 20, 31] {
                let mut sums = Sums::zeros_from(device, first, samples, columns).unwrap();
                let rows_of = Rows { packed: &packed, table: &table, range: (0, rows), missing };
                let weights = Weights { words: &digits, slices, shift };
                for listed in [false, true, true] {
                    adjoint_in_tiles(TILE, listed, rows_of, weights, &mut sums).unwrap();
                }
                let expected: Vec<i64> = exact.iter().map(|sum| 3 * (sum << shift)).collect();
                let case = format!("{rows} x {samples}, {columns}, {first}, {slices}, {shift}");
                assert_eq!(sums.read().unwrap(), expected, "{case}");
            }
        }
    }
}

/// Rows that are left out, that come twice, and whose alleles trade places; what pads them stays 0.
fn rows_in_order(device: &Device) {
    for (samples, rows, taken) in
        [(1, 1, 3), (15, 5, 4), (16, 5, 9), (17, 70, 66), (64, 9, 30), (333, 130, 259)]
    {
        let codes = codes(86, rows, samples, true);
        let packed = upload(device, &codes, rows, samples);
        let first = rows / 3;
        let order: Vec<u32> = values::<u32>(87, taken)
            .iter()
            .map(|word| (word % (rows - first) as u32) | if word % 5 < 2 { SWAPPED } else { 0 })
            .collect();
        let mut expected = Vec::new();
        for place in &order {
            let row = (first + u64::from(place & !SWAPPED)) * samples;
            expected.extend(codes[row as usize..(row + samples) as usize].iter().map(|&code| match code {
                0 | 2 if place & SWAPPED > 0 => 2 - code,
                code => code,
            }));
        }
        let expected = upload(device, &expected, taken, samples).read().unwrap();
        let out = packed_gather(&packed, samples, first..rows, &order).unwrap();
        assert_eq!(out.read().unwrap(), expected, "{rows} x {samples}, {taken}");
    }
}

/// Sparse and dense rows, with and without missing codes, at every shift's ends, for all samples or some.
fn pairs_add_up(device: &Device) {
    for (samples, rows, columns, first) in
        [(1, 1, 1, 0), (70, 66, 6, 4), (130, 330, 64, 0), (200, 115, 64, 8), (330, 130, 16, 16)]
    {
        let sparse =
            |(i, code): (usize, &u8)| if i as u64 / samples % 3 < 2 && i % 29 > 0 { 0 } else { *code };
        let codes: Vec<u8> = codes(88, rows, samples, true).iter().enumerate().map(sparse).collect();
        let packed = upload(device, &codes, rows, samples);
        let start = rows / 3;
        let terms: Vec<Terms> = (start..rows)
            .zip(values::<u32>(89, 3 * rows).as_chunks::<3>().0)
            .map(|(row, &[one, filled, square])| {
                let [one, filled, square] = [one, filled, square].map(|word| word >> 9);
                Terms { one, filled, square, shift: [0, 1, 20, 31][row as usize % 4] }
            })
            .collect();
        let words = bytemuck::cast_slice(&terms);
        let words = Tensor::<u32>::from_slice(device, words, &[rows - start, 4]).unwrap();
        let mut sums = Sums::zeros_from(device, first, samples, columns).unwrap();
        for _ in 0..3 {
            packed_pairs(&packed, start..rows, &words, &mut sums).unwrap();
        }
        let mut expected = Vec::new();
        for sample in 16 * first..samples {
            for column in 16 * first..16 * first + columns {
                let sum = (start..rows).zip(&terms).map(|(row, terms)| {
                    let code = |sample| codes[(row * samples + sample) as usize];
                    let product = match [code(sample), code(column)] {
                        [3, 3] => terms.square,
                        [3, code] | [code, 3] => u32::from(code) * terms.filled,
                        [a, b] => u32::from(a * b) * terms.one,
                    };
                    i64::from(product) << terms.shift
                });
                expected.push(3 * sum.sum::<i64>());
            }
        }
        assert_eq!(sums.read().unwrap(), expected, "{rows} x {samples}, {columns}, {first}");
    }
}

/// Common and rare variants, also such of which the first allele is the rarer one, and how they are scaled.
struct Case {
    samples: u64,
    codes: Vec<u8>,
    standards: Vec<Standard>,
    scaler: Scaler,
    /// As many variants as there are said to be.
    variants: u64,
}

impl Case {
    fn new(samples: u64, rows: u64, scaler: Scaler, missing: bool, variants: u64) -> Self {
        let mut codes = codes(85, rows, samples, missing);
        let chance = values::<u8>(90, rows * samples);
        for (i, row) in codes.chunks_mut(samples as usize).enumerate() {
            let chance = &chance[i * samples as usize..];
            let of_rare = |code: u8, chance: u8| if chance < 250 { 2 * (i as u8 % 2) } else { code };
            if i % 3 > 0 {
                row.iter_mut().zip(chance).for_each(|(code, &chance)| *code = of_rare(*code, chance));
            }
        }
        let standard = |(i, row): (usize, &[u8])| {
            let called = row.iter().filter(|&&code| code < 3).count() as u64;
            let sum: f64 = row.iter().filter(|&&code| code < 3).map(|&code| f64::from(code)).sum();
            let mean = if called == 0 { 0.0 } else { sum / called as f64 };
            let scale = match scaler {
                Scaler::Center | Scaler::None => 1.0,
                _ => (1.0 + 0.37 * (i % 7) as f64) * if 2 * i < rows as usize { 1.0 } else { 31.0 },
            };
            let dropped = if i % 11 == 7 || called == 0 { Some(DropReason::ZeroVariance) } else { None };
            Standard { mean, shift: mean, scale, called, dropped }
        };
        let standards = codes.chunks(samples as usize).enumerate().map(standard).collect();
        Self { samples, codes, standards, scaler, variants }
    }

    /// Of panels that begin with these rows.
    fn gram(&self, device: &Device, starts: &[u64]) -> Gram {
        let mut gram = Gram::new(device, self.samples, self.variants, self.scaler).unwrap();
        for (i, &start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(self.standards.len() as u64);
            let codes = &self.codes[(start * self.samples) as usize..(end * self.samples) as usize];
            let packed = upload(device, codes, end - start, self.samples);
            gram.add(&packed, start, &self.standards[start as usize..end as usize]).unwrap();
        }
        gram
    }

    /// Σ f(variant, scaling, code, code) over the variants that take part.
    fn pairs(&self, f: impl Fn(usize, &Standard, u8, u8) -> f64) -> Vec<f64> {
        let n = self.samples as usize;
        let mut sums = vec![0.0; n * n];
        for (i, (standard, codes)) in self.standards.iter().zip(self.codes.chunks(n)).enumerate() {
            if standard.is_used() {
                for (j, row) in sums.chunks_mut(n).enumerate() {
                    row.iter_mut().zip(codes).for_each(|(sum, &code)| *sum += f(i, standard, codes[j], code));
                }
            }
        }
        sums
    }

    /// The rarer allele's mean, and one allele's weight, a missing code's and that of two, by what the documentation says.
    fn weights(&self, variant: usize, s: &Standard) -> [f64; 4] {
        let whole = matches!(self.scaler, Scaler::Center | Scaler::None);
        let swapped = s.mean > 1.0 && self.scaler != Scaler::None;
        let mean = if swapped { 2.0 - s.mean } else { s.mean };
        let absent = (self.samples - s.called) as f64;
        let rare = (mean * s.called as f64 + absent).round() <= (self.samples / 16) as f64;
        let max = match (whole && absent == 0.0 && !rare, rare || self.variants < 1 << 17) {
            (true, _) => 127.0,
            (_, true) => 8_355_711.0,
            _ => 32_639.0,
        };
        let square = s.scale * s.scale;
        let mut unit = 2f64.powi(-22);
        while unit < 1.0 && 2.0 * mean.max(1.0) * square > (max - 4.0) * unit {
            unit *= 2.0;
        }
        let golden = (variant as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        let round = |x: f64| (x * square / unit + golden as f64 / 1_048_576.0).floor() * unit;
        [mean, round(1.0), round(mean), round(mean * mean)]
    }
}

const SIZES: [(u64, u64); 8] =
    [(1, 1), (2, 9), (3, 40), (17, 64), (64, 130), (65, 31), (130, 300), (200, 700)];

fn each_case(f: impl Fn(&Case, &str)) {
    for (samples, rows) in SIZES {
        for missing in [false, true] {
            for scaler in [Scaler::Patterson, Scaler::Center, Scaler::None] {
                for variants in [rows, 1 << 17] {
                    let case = Case::new(samples, rows, scaler, missing, variants);
                    f(&case, &format!("{rows} of {variants} x {samples}, {missing}, {scaler:?}"));
                }
            }
        }
    }
}

/// Each number is the documented multiple; sums of these are exact.
fn grams_are_exact(device: &Device) {
    each_case(|case, name| {
        let weights: Vec<_> = case.standards.iter().enumerate().map(|(i, s)| case.weights(i, s)).collect();
        let expected = case.pairs(|variant, s, a, b| {
            let [mean, one, filled, square] = weights[variant];
            // The rarer allele's codes.
            let [a, b] = [a, b].map(|code| if code < 3 && mean != s.mean { 2 - code } else { code });
            match (a, b) {
                (3, 3) => square,
                (3, code) | (code, 3) => filled * f64::from(code),
                (a, b) => one * f64::from(a * b),
            }
        });
        let sums = case.gram(device, &[0]).sums().unwrap();
        assert_eq!(sums.data(), expected, "{name}");
    });
}

fn order_changes_no_bit(device: &Device) {
    each_case(|case, name| {
        let rows = case.standards.len() as u64;
        let whole = case.gram(device, &[0]).finish().unwrap();
        let parts = case.gram(device, &[0, rows / 4, rows.div_ceil(2)]).finish().unwrap();
        assert_eq!(whole.data(), parts.data(), "{name}");
    });
}

fn grams_are_centred(device: &Device) {
    each_case(|case, name| {
        let (samples, scaler) = (case.samples, case.scaler);
        let shift = |s: &Standard| if scaler == Scaler::None { 0.0 } else { s.mean };
        let value =
            |s: &Standard, code| s.scale * (if code == 3 { s.mean } else { f64::from(code) } - shift(s));
        let expected = case.pairs(|_, s, a, b| value(s, a) * value(s, b));
        let gram = case.gram(device, &[0]).finish().unwrap();
        let largest = expected.iter().fold(1.0, |largest: f64, x| largest.max(x.abs()));
        // Two bytes for a number are meant for more variants than these: each of four terms is good to 2^-11 of it.
        let squares: f64 = case.standards.iter().map(|s| 4.0 * s.scale * s.scale).sum();
        let tolerance = if case.variants < 1 << 17 { 1e-6 * largest } else { squares / 512.0 };
        for (at, (a, b)) in gram.data().iter().zip(&expected).enumerate() {
            assert!((a - b).abs() < tolerance, "{name}, {at}: {a} {b}");
        }
        for row in gram.data().chunks(samples as usize) {
            let sum: f64 = row.iter().sum();
            let centred = sum.abs() < 1e-10 * largest * samples as f64;
            assert!(centred || scaler == Scaler::None, "{name}: {sum}");
        }
    });
}

fn no_rows(device: &Device) {
    for samples in [0, 5] {
        let mut gram = Gram::new(device, samples, 0, Scaler::Patterson).unwrap();
        gram.add(&Tensor::zeros(device, &[0, row_words(samples)]).unwrap(), 0, &[]).unwrap();
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
    // Rows that are not there, and rows of other samples.
    for (samples, rows, order) in [(60, 0..7, vec![0]), (60, 2..6, vec![0, SWAPPED | 4]), (65, 0..6, vec![0])]
    {
        let error = packed_gather(&packed, samples, rows, &order).unwrap_err();
        assert!(matches!(error, Error::Shape { op: "packed_gather", .. }), "{error}");
    }
    let terms = Tensor::<u32>::zeros(device, &[6, 4]).unwrap();
    for (rows, first, samples) in [(0..7, 0, 60), (0..5, 0, 60), (0..6, 0, 65), (0..6, 4, 60), (0..6, 0, 15)]
    {
        let mut sums = Sums::zeros_from(device, first, samples, 16).unwrap();
        let error = packed_pairs(&packed, rows, &terms, &mut sums).unwrap_err();
        assert!(matches!(error, Error::Shape { op: "packed_pairs", .. }), "{error}");
    }
}
