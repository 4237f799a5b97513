//! Tests of Gram matrices of packed rows, and of the kernels that compute them.

use std::{array, sync::LazyLock};

use super::packed_case::{codes, upload};
use super::*;
use crate::{
    kernels::{packed_gather::Recode, packed_pairs::Terms},
    packed::{
        IntegerSums,
        adjoint::{ColumnSums, Weights, packed_adjoint},
        apply::PackedRows,
        gather::packed_gather,
        gram::{Gram, GramOptions, RowScale},
        limbs::{Table, packed_limbs},
        operand::row_limbs,
        pair_products::{Kind, Multiples, PairProducts, PairSet, RowTerms},
        pairs::packed_pairs,
        row_words,
    },
};

device_tests! {
    limbs_are_the_tables, rows_in_order, pairs_add_up, no_rows, wrong_shapes;
    limbs_add_up, grams_are_exact, grams_are_centred,
}

/// The table's bytes are random, and rows do not begin with the first.
fn limbs_are_the_tables(device: &Device) {
    for (entries, rows, columns) in
        [(1, 1, 0..1), (20, 7, 0..20), (70, 66, 64..70), (200, 130, 64..128), (300, 2100, 48..99)]
    {
        let codes = codes(81, rows, entries, true);
        let packed = upload(device, &codes, entries);
        for (sets, limb_count) in [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3)] {
            let per_row = (sets * limb_count) as usize;
            let bytes: Vec<[u8; 4]> =
                values::<u32>(82, rows * sets * limb_count).iter().map(|x| x.to_le_bytes()).collect();
            let words: Vec<u32> = bytes.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
            let words = Tensor::from_slice(device, &words, &[rows, sets * limb_count]).unwrap();
            let first = rows / 3;
            let across = columns.end - columns.start;
            let row_limbs = row_limbs(limb_count, across) as usize;
            let mut expected = vec![[0u8; 4]; ((rows - first).div_ceil(4) * sets) as usize * row_limbs];
            for row in first..rows {
                let (four, place) = ((row - first) as usize / 4, (row - first) as usize % 4);
                for (c, column) in columns.clone().enumerate() {
                    let code = usize::from(codes[(row * entries + column) as usize]);
                    for t in 0..per_row {
                        let (set, limb) = (t / limb_count as usize, t % limb_count as usize);
                        let row_limb = set * row_limbs + limb * across as usize + c;
                        expected[four * sets as usize * row_limbs + row_limb][place] =
                            bytes[row as usize * per_row + t][code];
                    }
                }
            }
            let expected: Vec<u32> = expected.into_iter().map(u32::from_le_bytes).collect();
            let table = Table { words: &words, first, sets, limb_count };
            let out = packed_limbs(&packed, first..rows, columns.clone(), table).unwrap();
            assert_eq!(out.read().unwrap(), expected, "{rows} x {entries}, {columns:?}, {sets} {limb_count}");
        }
    }
}

/// Tests weights of every number of limbs and either sign, at the ends of every shift, for all entries or some.
fn limbs_add_up(device: &Device) {
    for (entries, rows, columns, first) in [
        (1, 1, 1, 0),
        (70, 66, 5, 4),
        (130, 1030, 120, 0),
        (70, 515, 125, 0),
        (200, 515, 64, 8),
        (330, 130, 17, 16),
    ] {
        for (limb_count, missing) in [(1, false), (2, false), (2, true), (3, true)] {
            let codes = codes(83, rows, entries, missing);
            let packed = upload(device, &codes, entries);
            let (row_limbs, sets) = (row_limbs(limb_count, columns), 1 + u64::from(missing));
            let words = values::<u32>(84, rows.div_ceil(4) * sets * row_limbs);
            let weight = |row: u64, set: u64, c: u64| -> i64 {
                let limb = |t| {
                    let place = (row / 4 * sets + set) * row_limbs + t * columns + c;
                    i64::from(words[place as usize].to_le_bytes()[row as usize % 4] as i8)
                };
                (0..limb_count).map(|t| limb(t) << (8 * t)).sum()
            };
            let limbs = Tensor::from_slice(device, &words, &[rows.div_ceil(4), sets * row_limbs]).unwrap();
            let of_set = |set| -> Vec<i64> {
                (0..rows * columns).map(|at| weight(at / columns, set, at % columns)).collect()
            };
            let [plain, filled] = [of_set(0), of_set(sets - 1)];
            let mut exact = vec![0; ((entries - 16 * first) * columns) as usize];
            let weights = plain.chunks(columns as usize).zip(filled.chunks(columns as usize));
            for (codes, (plain, filled)) in codes.chunks(entries as usize).zip(weights) {
                let codes = &codes[16 * first as usize..];
                for (&code, sums) in codes.iter().zip(exact.chunks_mut(columns as usize)) {
                    let (times, weights) = if code == 3 { (1, filled) } else { (i64::from(code), plain) };
                    sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += times * weight);
                }
            }
            for shift in [0, 20, 31] {
                let mut sums = ColumnSums::zeros_from(device, [first; 2], entries, columns).unwrap();
                let rows_of = PackedRows { packed: &packed, range: (0, rows), missing };
                let weights = Weights { words: &limbs, limb_count, shift };
                for _ in 0..3 {
                    packed_adjoint(rows_of, weights, &mut sums).unwrap();
                }
                let expected: Vec<i64> = exact.iter().map(|sum| 3 * (sum << shift)).collect();
                let case = format!("{rows} x {entries}, {columns}, {first}, {limb_count}, {shift}");
                assert_eq!(sums.read().unwrap(), expected, "{case}");
            }
        }
    }
}

/// Gathers rows of which some are left out, repeated or recoded; padding stays 0.
fn rows_in_order(device: &Device) {
    for (entries, rows, taken) in
        [(1, 1, 3), (15, 5, 4), (16, 5, 9), (17, 70, 66), (64, 9, 30), (333, 130, 259)]
    {
        let codes = codes(86, rows, entries, true);
        let packed = upload(device, &codes, entries);
        let first = rows / 3;
        let order: Vec<u32> = values::<u32>(87, taken)
            .iter()
            .map(|word| {
                let recode = match word % 5 {
                    0 => Recode::NOTHING,
                    1 => Recode::SWAPPED,
                    2 => Recode::MISSING,
                    _ => Recode([8, 12, 16, 20].map(|shift| (word >> shift) as u8 & 3)),
                };
                recode.word(word % (rows - first) as u32)
            })
            .collect();
        let mut expected = Vec::new();
        for &word in &order {
            let (Recode(becomes), row) = Recode::split(word);
            let row = (first + u64::from(row)) * entries;
            let codes = &codes[row as usize..(row + entries) as usize];
            expected.extend(codes.iter().map(|&code| becomes[usize::from(code)]));
        }
        let expected = upload(device, &expected, entries).read().unwrap();
        let out = packed_gather(&packed, entries, first..rows, &order).unwrap();
        assert_eq!(out.read().unwrap(), expected, "{rows} x {entries}, {taken}");
    }
}

/// Tests sparse and dense rows, with and without missing codes, at the ends of every shift, for all entries or some.
fn pairs_add_up(device: &Device) {
    for (entries, rows, columns, first) in
        [(1, 1, 1, 0), (70, 66, 6, 4), (130, 330, 64, 0), (200, 115, 64, 8), (330, 130, 16, 16)]
    {
        let sparse =
            |(i, code): (usize, &u8)| if i as u64 / entries % 3 < 2 && i % 29 > 0 { 0 } else { *code };
        let codes: Vec<u8> = codes(88, rows, entries, true).iter().enumerate().map(sparse).collect();
        let packed = upload(device, &codes, entries);
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
        let mut sums = ColumnSums::zeros_from(device, [first; 2], entries, columns).unwrap();
        for _ in 0..3 {
            packed_pairs(&packed, start..rows, &words, &mut sums).unwrap();
        }
        let mut expected = Vec::new();
        for entry in 16 * first..entries {
            for column in 16 * first..16 * first + columns {
                let sum = (start..rows).zip(&terms).map(|(row, terms)| {
                    let code = |entry| codes[(row * entries + entry) as usize];
                    let product = match [code(entry), code(column)] {
                        [3, 3] => terms.square,
                        [3, code] | [code, 3] => u32::from(code) * terms.filled,
                        [a, b] => u32::from(a * b) * terms.one,
                    };
                    i64::from(product) << terms.shift
                });
                expected.push(3 * sum.sum::<i64>());
            }
        }
        assert_eq!(sums.read().unwrap(), expected, "{rows} x {entries}, {columns}, {first}");
    }
}

/// The options: whether factors are 1, and whether means are subtracted.
const OPTIONS: [GramOptions; 3] = [
    GramOptions { centred: true, unit_factors: false },
    GramOptions { centred: true, unit_factors: true },
    GramOptions { centred: false, unit_factors: true },
];

/// Rows with many or few nonzero codes, some with mostly codes 2; and the scales and options of their Gram matrix.
struct Case {
    columns: u64,
    codes: Vec<u8>,
    scales: Vec<RowScale>,
    options: GramOptions,
    /// The number of rows that is announced.
    rows: u64,
}

impl Case {
    fn new(columns: u64, rows: u64, options: GramOptions, missing: bool, said: u64) -> Self {
        let mut codes = codes(85, rows, columns, missing);
        let chance = values::<u8>(90, rows * columns);
        for (i, row) in codes.chunks_mut(columns as usize).enumerate() {
            let chance = &chance[i * columns as usize..];
            let of_rare = |code: u8, chance: u8| if chance < 250 { 2 * (i as u8 % 2) } else { code };
            if i % 3 > 0 {
                row.iter_mut().zip(chance).for_each(|(code, &chance)| *code = of_rare(*code, chance));
            }
        }
        let scale = |(i, row): (usize, &[u8])| {
            let known = row.iter().filter(|&&code| code < 3).count() as u64;
            let sum: f64 = row.iter().filter(|&&code| code < 3).map(|&code| f64::from(code)).sum();
            let mean = if known == 0 { 0.0 } else { sum / known as f64 };
            let factor = if options.unit_factors {
                1.0
            } else {
                (1.0 + 0.37 * (i % 7) as f64) * if 2 * i < rows as usize { 1.0 } else { 31.0 }
            };
            let factor = if i % 11 == 7 || known == 0 { 0.0 } else { factor };
            RowScale { mean, factor, known }
        };
        let scales = codes.chunks(columns as usize).enumerate().map(scale).collect();
        Self { columns, codes, scales, options, rows: said }
    }

    /// Returns the [`Gram`] of panels that begin with these rows, each added in two parts.
    fn gram(&self, device: &Device, starts: &[u64]) -> Gram {
        let mut gram = Gram::new(device, self.columns, self.rows, self.options).unwrap();
        for (i, &start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(self.scales.len() as u64);
            let codes = &self.codes[(start * self.columns) as usize..(end * self.columns) as usize];
            let packed = upload(device, codes, self.columns);
            let middle = (end - start) / 3;
            for rows in [0..middle, middle..end - start] {
                let scales = &self.scales[(start + rows.start) as usize..(start + rows.end) as usize];
                gram.add(&packed, rows.start, start + rows.start, scales).unwrap();
            }
        }
        gram
    }

    /// Returns Σ f(row, scale of the row, code, code) over the rows that take part.
    fn pairs(&self, f: impl Fn(usize, &RowScale, u8, u8) -> f64) -> Vec<f64> {
        let n = self.columns as usize;
        let mut sums = vec![0.0; n * n];
        for (i, (scale, codes)) in self.scales.iter().zip(self.codes.chunks(n)).enumerate() {
            if scale.factor > 0.0 {
                let of_pairs: [[f64; 4]; 4] =
                    array::from_fn(|a| array::from_fn(|b| f(i, scale, a as u8, b as u8)));
                for (row, &a) in sums.chunks_mut(n).zip(codes) {
                    let of_codes = of_pairs[usize::from(a)];
                    row.iter_mut().zip(codes).for_each(|(sum, &b)| *sum += of_codes[usize::from(b)]);
                }
            }
        }
        sums
    }

    /// Returns the mean, made at most 1 by swapping alleles, and the documented products of two codes 1, of a 1 and a missing code, and of two
    /// missing codes.
    fn weights(&self, row: usize, s: &RowScale) -> [f64; 4] {
        let GramOptions { centred, unit_factors: whole } = self.options;
        let mean = if s.mean > 1.0 && centred { 2.0 - s.mean } else { s.mean };
        let absent = (self.columns - s.known) as f64;
        let rare = (mean * s.known as f64 + absent).round() <= (self.columns / 16) as f64;
        let max = match (whole && absent == 0.0 && !rare, rare || self.rows < 1 << 17) {
            (true, _) => 127.0,
            (_, true) => 8_355_711.0,
            _ => 32_639.0,
        };
        let square = s.factor * s.factor;
        let mut unit = 2f64.powi(-22);
        while unit < 1.0 && 2.0 * mean.max(1.0) * square > (max - 4.0) * unit {
            unit *= 2.0;
        }
        let golden = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        let round = |x: f64| (x * square / unit + golden as f64 / 1_048_576.0).floor() * unit;
        [mean, round(1.0), round(mean), round(mean * mean)]
    }

    /// Returns the sums of the documented multiples.
    fn sums(&self) -> Vec<f64> {
        let weights: Vec<_> = self.scales.iter().enumerate().map(|(i, s)| self.weights(i, s)).collect();
        self.pairs(|row, s, a, b| {
            let [mean, one, filled, square] = weights[row];
            // The codes 2 and 0 are swapped if most codes are 2.
            let [a, b] = [a, b].map(|code| if code < 3 && mean != s.mean { 2 - code } else { code });
            match (a, b) {
                (3, 3) => square,
                (3, code) | (code, 3) => filled * f64::from(code),
                (a, b) => one * f64::from(a * b),
            }
        })
    }

    /// Returns the Gram matrix by its definition, from the value that each code stands for.
    fn matrix(&self) -> Vec<f64> {
        let shift = |s: &RowScale| if self.options.centred { s.mean } else { 0.0 };
        let value =
            |s: &RowScale, code| s.factor * (if code == 3 { s.mean } else { f64::from(code) } - shift(s));
        self.pairs(|_, s, a, b| value(s, a) * value(s, b))
    }
}

const SIZES: [(u64, u64); 8] =
    [(1, 1), (2, 9), (3, 40), (17, 64), (64, 130), (65, 31), (130, 300), (200, 400)];

/// A case, its description, the exact sums, and the matrix by the definition.
type Known = (Case, String, Vec<f64>, Vec<f64>);

/// Every case, computed once for all devices.
static CASES: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let mut cases = Vec::new();
    for (columns, rows) in SIZES {
        for missing in [false, true] {
            for options in OPTIONS {
                for said in [rows, 1 << 17] {
                    let case = Case::new(columns, rows, options, missing, said);
                    let name = format!("{rows} of {said} x {columns}, {missing}, {options:?}");
                    let (sums, matrix) = (case.sums(), case.matrix());
                    cases.push((case, name, sums, matrix));
                }
            }
        }
    }
    cases
});

/// Each term is the documented multiple; sums are exact, so the order of rows does not change results.
fn grams_are_exact(device: &Device) {
    for (case, name, expected, _) in &*CASES {
        let rows = case.scales.len() as u64;
        let sums = case.gram(device, &[0, rows / 4, rows.div_ceil(2)]).sums().unwrap();
        assert_eq!(sums.data(), expected, "{name}");
    }
}

fn grams_are_centred(device: &Device) {
    for (case, name, _, expected) in &*CASES {
        let (columns, centred) = (case.columns, case.options.centred);
        let gram = case.gram(device, &[0]).finish().unwrap();
        let largest = expected.iter().fold(1.0, |largest: f64, x| largest.max(x.abs()));
        // The scaled weights have two bytes, as for many more rows than this test has: each of the four terms of a product is accurate to 2^-11 of its
        // value.
        let squares: f64 = case.scales.iter().map(|s| 4.0 * s.factor * s.factor).sum();
        let tolerance = if case.rows < 1 << 17 { 1e-6 * largest } else { squares / 512.0 };
        for (at, (a, b)) in gram.data().iter().zip(expected).enumerate() {
            assert!((a - b).abs() < tolerance, "{name}, {at}: {a} {b}");
        }
        for row in gram.data().chunks(columns as usize) {
            let sum: f64 = row.iter().sum();
            let at_zero = sum.abs() < 1e-10 * largest * columns as f64;
            assert!(at_zero || !centred, "{name}: {sum}");
        }
    }
}

/// Wide groups of columns, which devices with many processors use, give the sums of narrow groups, for all kinds of pairs.
#[test]
fn wide_groups_change_nothing() {
    const COLUMNS: u64 = 4203;
    const ROWS: u64 = 24;
    let narrow = Device::cpu();
    // The device has two threads, since a cpu with many threads keeps groups narrow.
    let wide = DeviceOptions { fill: Some(1024), threads: Some(2), ..DeviceOptions::default() };
    let wide = Device::open_with("cpu", &wide).unwrap();
    let mut codes = codes(91, ROWS, COLUMNS, true);
    // Two of every three rows are rare.
    let is_left_out = |place: usize| !(place as u64 / COLUMNS).is_multiple_of(3) && !place.is_multiple_of(29);
    codes.iter_mut().enumerate().filter(|(place, _)| is_left_out(*place)).for_each(|(_, code)| *code = 0);
    let terms = |_: &PairProducts, row: usize| {
        let kind = Kind { rare: !row.is_multiple_of(3), missing: true, limb_count: 2, power: 0 };
        let multiples = Multiples { one: 3 + row as i32, filled: 5, square: 7 };
        Some(RowTerms { recode: Recode::NOTHING, kind, multiples })
    };
    let sums = |device: &Device, wanted: &PairSet| {
        let mut sums = PairProducts::for_pairs(device, COLUMNS, wanted, ROWS, 1e4, 0).unwrap();
        sums.add(&upload(device, &codes, COLUMNS), 0, ROWS as usize, terms).unwrap();
        let value = |sum: i64, [a, b]: [i64; 2]| (sum + 3 * a + 5 * b) as f64;
        match wanted {
            PairSet::From(own) if own.start == 0 && own.end == COLUMNS => {
                let (lower, unit) = sums.into_sums().unwrap();
                let mut again = PairProducts::for_pairs(device, COLUMNS, wanted, ROWS, 1e4, 0).unwrap();
                again.set_sums(&lower, unit).unwrap();
                (again.matrix(value).unwrap(), Vec::new())
            }
            PairSet::From(_) => sums.panel(Vec::new(), value).unwrap(),
            PairSet::Across(split) => sums.across(*split as usize - 5, value).unwrap(),
            PairSet::Diagonal => (Matrix::zeros(0, 0), sums.diagonal().unwrap()),
        }
    };
    for wanted in [
        PairSet::From(0..COLUMNS),
        PairSet::From(64..1024),
        PairSet::Across(192),
        PairSet::Across(4160),
        PairSet::Diagonal,
    ] {
        let [a, b] = [&narrow, &wide].map(|device| sums(device, &wanted));
        assert!(a.0.data() == b.0.data() && a.1 == b.1, "{wanted:?}");
    }
}

fn no_rows(device: &Device) {
    for columns in [0, 5] {
        let mut gram = Gram::new(device, columns, 0, OPTIONS[0]).unwrap();
        gram.add(&Tensor::zeros(device, &[0, row_words(columns)]).unwrap(), 0, 0, &[]).unwrap();
        assert!(gram.finish().unwrap().data().iter().all(|&value| value == 0.0));
    }
    let packed = Tensor::<u32>::zeros(device, &[0, 4]).unwrap();
    let words = Tensor::<u32>::zeros(device, &[0, 3]).unwrap();
    let table = Table { words: &words, first: 0, sets: 1, limb_count: 3 };
    assert!(packed_limbs(&packed, 0..0, 0..5, table).unwrap().is_empty());
}

fn wrong_shapes(device: &Device) {
    let packed = Tensor::<u32>::zeros(device, &[6, 4]).unwrap();
    let words = Tensor::<u32>::zeros(device, &[6, 3]).unwrap();
    let table = Table { words: &words, first: 0, sets: 1, limb_count: 3 };
    let later = Table { first: 4, ..table };
    let wide = Table { sets: 2, ..table };
    for (rows, columns, table) in [
        (0..7, 0..5, table),
        (0..6, 0..65, table),
        (0..6, 8..16, table),
        (2..6, 0..5, later),
        (0..6, 0..5, wide),
    ] {
        assert_err!(packed_limbs(&packed, rows, columns, table), Error::Shape { op: "packed_limbs", .. });
    }
    let rows = PackedRows { packed: &packed, range: (0, 6), missing: false };
    let limbs = Tensor::<u32>::zeros(device, &[2, 16]).unwrap();
    let weights = Weights { words: &limbs, limb_count: 1, shift: 0 };
    // Sums of rows of 5 words are refused, and so are weights of three limbs.
    let mut sums = ColumnSums::zeros_from(device, [4; 2], 70, 16).unwrap();
    assert_err!(packed_adjoint(rows, weights, &mut sums), Error::Shape { op: "packed_adjoint", .. });
    let mut sums = ColumnSums::zeros(device, 60, 16).unwrap();
    packed_adjoint(rows, weights, &mut sums).unwrap();
    assert_err!(packed_adjoint(rows, &limbs, &mut sums), Error::Shape { op: "packed_adjoint", .. });
    // The rows do not exist, or have another number of entries.
    for (entries, rows, order) in
        [(60, 0..7, vec![0]), (60, 2..6, vec![0, Recode::SWAPPED.word(4)]), (65, 0..6, vec![0])]
    {
        assert_err!(packed_gather(&packed, entries, rows, &order), Error::Shape { op: "packed_gather", .. });
    }
    let terms = Tensor::<u32>::zeros(device, &[6, 4]).unwrap();
    for (rows, first, entries) in [(0..7, 0, 60), (0..5, 0, 60), (0..6, 0, 65), (0..6, 4, 60), (0..6, 0, 15)]
    {
        let mut sums = ColumnSums::zeros_from(device, [first; 2], entries, 16).unwrap();
        assert_err!(packed_pairs(&packed, rows, &terms, &mut sums), Error::Shape { op: "packed_pairs", .. });
    }
}
