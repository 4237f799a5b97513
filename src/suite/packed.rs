use super::{
    data::values,
    device_tests,
    tolerance::{Reference, assert_close},
};
use crate::{
    Device, Error, Tensor,
    genotype::packed::{
        adjoint::{self, Sums, adjoint_in_tiles, packed_adjoint},
        apply::{self, Rows, apply_in_tiles, packed_apply, packed_weights, weights_in_tiles},
        pack::{Coding, pack_genotypes},
        row_words, sample,
        slices::{MAX, Slices, digits, lanes, scale},
        standardize::packed_standardize,
    },
    linalg::Matrix,
};

device_tests! {
    every_call, codings_at_every_width, bad_values_are_counted, rows_into_the_middle,
    rows_at_every_byte, weights_are_the_oracles, products_are_close, sums_are_exact, sums_add_up,
    missing_here_and_there, large_tiles_change_nothing, panels_change_nothing, several_launches, many_parts, codes_are_standardised,
    empty, wrong_shapes, nan_is_refused,
}

/// (samples, columns, rows): around words, quads, tiles of 64 rows and of 16 lanes.
const SIZES: [(u64, u64, u64); 14] = [
    (1, 1, 1),
    (3, 2, 3),
    (15, 5, 4),
    (16, 6, 5),
    (17, 20, 63),
    (63, 21, 64),
    (64, 22, 65),
    (65, 10, 128),
    (127, 3, 7),
    (128, 32, 130),
    (200, 64, 31),
    (1000, 20, 66),
    (257, 1, 513),
    (90, 4, 1030),
];

/// Codes of a matrix: mostly called, unless `missing` is false.
fn codes(seed: u32, rows: u64, samples: u64, missing: bool) -> Vec<u8> {
    let code = |byte: u8| match byte % 16 {
        0..=7 => 0,
        8..=11 => 1,
        12 | 13 => 2,
        _ if missing => 3,
        _ => 1,
    };
    values::<u8>(seed, rows * samples).iter().map(|&byte| code(byte)).collect()
}

fn packed_words(codes: &[u8], samples: u64) -> Vec<u32> {
    let words = row_words(samples) as usize;
    let pack = |row: &[u8]| {
        let mut packed = vec![0u32; words];
        for (i, &code) in row.iter().enumerate() {
            packed[i / 16] |= u32::from(code) << (2 * (i % 16));
        }
        packed
    };
    codes.chunks(samples as usize).flat_map(pack).collect()
}

/// A product's operands on a device, and what the oracle needs.
struct Case {
    samples: usize,
    columns: usize,
    rows: usize,
    codes: Vec<u8>,
    table: Vec<[f32; 2]>,
    x: Matrix,
    packed: Tensor<u32>,
    table_on_device: Tensor<f32>,
    missing: bool,
}

impl Case {
    fn new(device: &Device, size: (u64, u64, u64), missing: bool) -> Self {
        Self::of(device, size, codes(70, size.2, size.0, missing), missing)
    }

    fn of(device: &Device, (samples, columns, rows): (u64, u64, u64), codes: Vec<u8>, missing: bool) -> Self {
        let row = |i: u64| {
            if i % 11 == 7 { [0.0; 2] } else { [0.1 + 0.13 * (i % 13) as f32, 0.7 + 0.31 * (i % 5) as f32] }
        };
        let table: Vec<[f32; 2]> = (0..rows).map(row).collect();
        let numbers = values::<f32>(71, samples * columns);
        let spread = |i: usize| f64::from(numbers[i]) * 10f64.powi((i as u64 % columns) as i32 % 7 - 3);
        let data = (0..numbers.len()).map(spread).collect();
        let x = Matrix::from_vec(data, samples as usize, columns as usize).unwrap();
        Self {
            samples: samples as usize,
            columns: columns as usize,
            rows: rows as usize,
            packed: Tensor::from_slice(device, &packed_words(&codes, samples), &[rows, row_words(samples)])
                .unwrap(),
            table_on_device: Tensor::from_slice(device, table.as_flattened(), &[rows, 2]).unwrap(),
            codes,
            table,
            x,
            missing,
        }
    }

    fn rows(&self) -> Rows<'_> {
        Rows {
            packed: &self.packed,
            table: &self.table_on_device,
            range: (0, self.rows as u64),
            missing: self.missing,
        }
    }

    fn slices(&self) -> Slices {
        Slices::new(self.packed.device(), &self.x, 0, self.columns, row_words(self.samples as u64)).unwrap()
    }

    /// Scales that bound every weight.
    fn scales(&self) -> Vec<f64> {
        let bound = |c: usize| 30.0 * self.x.column(c).map(f64::abs).sum::<f64>();
        (0..self.columns).map(|c| scale(bound(c))).collect()
    }

    fn multiple(&self, x: &Slices, sample: usize, c: usize) -> i64 {
        (self.x.row(sample)[c] * x.scales[c]).round_ties_even() as i64
    }

    /// The sum of a row's codes times multiples, and of the multiples of the missing.
    fn row_sums(&self, x: &Slices, row: usize, c: usize) -> [[i32; 3]; 2] {
        let mut sums = [[0; 3]; 2];
        for sample in 0..self.samples {
            let digits = digits(self.multiple(x, sample, c) as i32);
            let code = i32::from(self.codes[row * self.samples + sample]);
            for (slice, digit) in digits.into_iter().enumerate() {
                if code == 3 {
                    sums[1][slice] += i32::from(digit);
                } else {
                    sums[0][slice] += code * i32::from(digit);
                }
            }
        }
        sums
    }

    /// y before its factor of the column, each operation rounded to f32 in the documented order.
    fn rounded(&self, x: &Slices, row: usize, c: usize) -> f32 {
        let join = |[low, middle, high]: [i32; 3]| (high as f32 * 256.0 + middle as f32) * 256.0 + low as f32;
        let [sums, absent] = self.row_sums(x, row, c);
        let total = x.totals[c] as f32;
        let present = if self.missing { total - join(absent) } else { total };
        let [mean, factor] = self.table[row];
        (join(sums) - mean * present) * factor
    }

    /// The multiples of w and of mean w.
    fn weights(&self, x: &Slices, row: usize, c: usize) -> [i32; 2] {
        let [mean, factor] = self.table[row];
        let weight = self.rounded(x, row, c) * factor * (self.scales()[c] / x.scales[c]) as f32;
        [weight, weight * mean].map(|w| w.round_ties_even().clamp(-MAX as f32, MAX as f32) as i32)
    }

    /// What `packed_weights` should give, word by word.
    fn weight_words(&self, x: &Slices) -> Vec<u32> {
        let lanes = lanes(self.columns as u64) as usize;
        let sets = 1 + usize::from(self.missing);
        let mut words = vec![0u32; self.rows.div_ceil(4) * sets * lanes];
        for row in 0..self.rows {
            for c in 0..self.columns {
                for (set, &multiple) in self.weights(x, row, c).iter().take(sets).enumerate() {
                    for (slice, digit) in digits(multiple).into_iter().enumerate() {
                        let lane = set * lanes + slice * self.columns + c;
                        words[row / 4 * sets * lanes + lane] |= u32::from(digit as u8) << (8 * (row % 4));
                    }
                }
            }
        }
        words
    }

    /// What `packed_adjoint` should add.
    fn sums(&self, x: &Slices) -> Vec<i64> {
        let mut sums = vec![0i64; self.samples * self.columns];
        for row in 0..self.rows {
            for c in 0..self.columns {
                let [weight, filled] = self.weights(x, row, c).map(i64::from);
                for sample in 0..self.samples {
                    let code = self.codes[row * self.samples + sample];
                    sums[sample * self.columns + c] += match code {
                        3 => filled,
                        code => i64::from(code) * weight,
                    };
                }
            }
        }
        sums
    }
}

fn every_call(device: &Device) {
    let kinds = [-3i8, -2, -1, 0, 1, 2, 127];
    let calls: Vec<u8> =
        kinds.iter().flat_map(|&a| kinds.iter().flat_map(move |&b| [a, b])).map(|a| a as u8).collect();
    check_pack(device, &calls, Coding::Diploid, 7, 7);
    check_pack(device, &calls, Coding::Diploid, 1, 49);
    check_pack(device, &calls, Coding::Haploid, 2, 49);
    check_pack(device, &calls, Coding::Dosages, 2, 49);
}

/// The code of what is stored for a sample, and whether that is bad.
fn code(raw: &[u8], i: usize, coding: Coding) -> (u8, bool) {
    let allele = |i: usize| raw[i] as i8;
    match coding {
        Coding::Haploid if allele(i) < 0 => (3, allele(i) < -2),
        Coding::Haploid => (u8::from(allele(i) > 0), false),
        Coding::Diploid => {
            let (low, high) = (allele(2 * i).min(allele(2 * i + 1)), allele(2 * i).max(allele(2 * i + 1)));
            match (low, high) {
                (..-2, _) => (3, true),
                (-1, _) | (_, -1) | (_, -2) => (3, false),
                (-2, one) => (2 * u8::from(one > 0), false),
                _ => (u8::from(low > 0) + u8::from(high > 0), false),
            }
        }
        Coding::Dosages => match allele(i) {
            -1 => (3, false),
            dosage @ 0..=2 => (dosage as u8, false),
            _ => (3, true),
        },
        Coding::PlinkA1 => ([2, 3, 1, 0][usize::from(raw[i / 4] >> (2 * (i % 4)) & 3)], false),
        Coding::PlinkA2 => ([0, 3, 1, 2][usize::from(raw[i / 4] >> (2 * (i % 4)) & 3)], false),
        Coding::Codes => (raw[i / 4] >> (2 * (i % 4)) & 3, false),
    }
}

fn check_pack(device: &Device, raw: &[u8], coding: Coding, rows: u64, samples: u64) {
    let width = coding.row_bytes(samples);
    let raw = &raw[..(rows * width) as usize];
    let on_device = Tensor::from_slice(device, raw, &[rows, width]).unwrap();
    let mut packed = Tensor::<u32>::empty(device, &[rows, row_words(samples)]).unwrap();
    let stats = pack_genotypes(&on_device, coding, samples, &mut packed, 0).unwrap().wait().unwrap();
    let rows_of = |row: &[u8]| (0..samples as usize).map(|i| code(row, i, coding)).collect::<Vec<_>>();
    let expected: Vec<Vec<(u8, bool)>> = raw.chunks(width as usize).map(rows_of).collect();
    let codes: Vec<u8> = expected.iter().flatten().map(|&(code, _)| code).collect();
    let what = format!("{coding:?} {rows} x {samples}");
    assert_eq!(packed.read().unwrap(), packed_words(&codes, samples), "{what}");
    for (stats, row) in stats.iter().zip(&expected) {
        let called = row.iter().filter(|(code, _)| *code < 3).map(|&(code, _)| f64::from(code));
        assert_eq!(stats.sum, called.clone().sum::<f64>(), "{what}");
        assert_eq!(stats.sum_squares, called.clone().map(|x| x * x).sum::<f64>(), "{what}");
        assert_eq!(stats.count, called.count() as u64, "{what}");
        assert_eq!(stats.bad, row.iter().filter(|(_, bad)| *bad).count() as u64, "{what}");
    }
}

fn codings_at_every_width(device: &Device) {
    use Coding::{Codes, Diploid, Dosages, Haploid, PlinkA1, PlinkA2};
    for coding in [Haploid, Diploid, Dosages, PlinkA1, PlinkA2, Codes] {
        let fields = matches!(coding, PlinkA1 | PlinkA2 | Codes);
        for (rows, samples) in [
            (1, 1),
            (2, 2),
            (3, 3),
            (5, 4),
            (2, 15),
            (2, 16),
            (3, 17),
            (7, 63),
            (2, 64),
            (3, 65),
            (2, 1023),
            (2, 1025),
            (300, 5),
        ] {
            let bytes = values::<u8>(72, rows * coding.row_bytes(samples));
            let kinds = [0, 1, 0, 1, 2, 255, 0, 254];
            let raw: Vec<u8> =
                if fields { bytes } else { bytes.iter().map(|byte| kinds[usize::from(byte % 8)]).collect() };
            check_pack(device, &raw, coding, rows, samples);
        }
    }
}

fn bad_values_are_counted(device: &Device) {
    let bytes = values::<u8>(73, 3 * 2 * 401);
    for coding in [Coding::Haploid, Coding::Diploid, Coding::Dosages] {
        check_pack(device, &bytes, coding, 3, 401);
    }
}

fn rows_into_the_middle(device: &Device) {
    let samples = 37;
    let codes = codes(74, 9, samples, true);
    let raw: Vec<u8> = codes.iter().map(|&code| if code == 3 { 255 } else { code }).collect();
    let mut packed = Tensor::<u32>::zeros(device, &[12, row_words(samples)]).unwrap();
    for (first, rows) in [(0u64, 0..4usize), (4, 4..5), (5, 5..9)] {
        let part = &raw[rows.start * 37..rows.end * 37];
        let part = Tensor::from_slice(device, part, &[(rows.end - rows.start) as u64, samples]).unwrap();
        pack_genotypes(&part, Coding::Dosages, samples, &mut packed, first).unwrap().wait().unwrap();
    }
    let mut expected = packed_words(&codes, samples);
    expected.resize(12 * row_words(samples) as usize, 0);
    assert_eq!(packed.read().unwrap(), expected);
}

/// Rows so long that a launch of 64 KiB takes few of them, and the next starts in the middle of a word.
fn rows_at_every_byte(device: &Device) {
    let raw: Vec<u8> =
        codes(75, 200, 1001, true).iter().map(|&code| if code == 3 { 255 } else { code }).collect();
    check_pack(device, &raw, Coding::Dosages, 200, 1001);
    check_pack(device, &values::<u8>(76, 40 * 2501), Coding::PlinkA1, 40, 10_003);
}

fn weights_are_the_oracles(device: &Device) {
    for size in SIZES {
        for missing in [false, true] {
            let case = Case::new(device, size, missing);
            let x = case.slices();
            let weights = packed_weights(case.rows(), &x, &case.scales()).unwrap();
            assert_eq!(weights.read().unwrap(), case.weight_words(&x), "{size:?} {missing}");
        }
    }
}

fn products_are_close(device: &Device) {
    for size in SIZES {
        for missing in [false, true] {
            let case = Case::new(device, size, missing);
            let x = case.slices();
            let y = packed_apply(case.rows(), &x).unwrap();
            assert_eq!(y.shape(), [case.rows as u64, case.columns as u64]);
            let y = y.read().unwrap();
            let mut expected = Vec::new();
            for row in 0..case.rows {
                let [mean, factor] = case.table[row].map(f64::from);
                for c in 0..case.columns {
                    let mut reference = Reference::default();
                    for sample in 0..case.samples {
                        let code = case.codes[row * case.samples + sample];
                        let x = case.x.row(sample)[c];
                        if code < 3 {
                            reference.add(f64::from(code) * x * factor);
                            reference.add(-mean * x * factor);
                        }
                    }
                    expected.push(reference);
                    let exact = case.rounded(&x, row, c) * (1.0 / x.scales[c]) as f32;
                    assert_eq!(
                        y[row * case.columns + c].to_bits(),
                        exact.to_bits(),
                        "{size:?} {missing} {row} {c}"
                    );
                }
            }
            // A number is good to 2^-23 of the column's largest; six operations of 2^-24 each.
            assert_close(&format!("{size:?} {missing}"), &y, &expected, 4e-6);
        }
    }
}

fn sums_are_exact(device: &Device) {
    for size in SIZES {
        for missing in [false, true] {
            let case = Case::new(device, size, missing);
            let x = case.slices();
            let weights = packed_weights(case.rows(), &x, &case.scales()).unwrap();
            let mut sums = Sums::zeros(device, size.0, size.1).unwrap();
            packed_adjoint(case.rows(), &weights, &mut sums).unwrap();
            assert_eq!(sums.read().unwrap(), case.sums(&x), "{size:?} {missing}");
        }
    }
}

/// Over and under the edge of the low word, with both signs.
fn sums_add_up(device: &Device) {
    let case = Case::new(device, (70, 5, 300), true);
    let x = case.slices();
    let weights = packed_weights(case.rows(), &x, &case.scales()).unwrap();
    let kinds = [-1i64, 0, (1 << 32) - 1, -(1 << 32), 1 << 32, (7 << 32) - 5, -(7 << 32) + 5, 1 << 60];
    let before: Vec<i64> = (0..70 * 5).map(|i| kinds[i % 8]).collect();
    let words: Vec<u32> = before.iter().flat_map(|&sum| [sum as u32, (sum >> 32) as u32]).collect();
    let mut sums = Sums { words: Tensor::from_slice(device, &words, &[70, 5, 2]).unwrap() };
    for _ in 0..2 {
        packed_adjoint(case.rows(), &weights, &mut sums).unwrap();
    }
    let expected: Vec<i64> = case.sums(&x).iter().zip(before).map(|(sum, before)| before + 2 * sum).collect();
    assert_eq!(sums.read().unwrap(), expected);
}

/// Most blocks of codes hold no missing one, and those that do are neighbours of some that do not.
fn missing_here_and_there(device: &Device) {
    for size in [(200, 20, 130), (1000, 5, 66), (64, 33, 70)] {
        for every in [61, 211, 1009] {
            let mut codes = codes(77, size.2, size.0, false);
            codes.iter_mut().skip(5).step_by(every).for_each(|code| *code = 3);
            let case = Case::of(device, size, codes, true);
            let x = case.slices();
            let weights = packed_weights(case.rows(), &x, &case.scales()).unwrap();
            assert_eq!(weights.read().unwrap(), case.weight_words(&x), "{size:?} {every}");
            let mut sums = Sums::zeros(device, size.0, size.1).unwrap();
            packed_adjoint(case.rows(), &weights, &mut sums).unwrap();
            assert_eq!(sums.read().unwrap(), case.sums(&x), "{size:?} {every}");
        }
    }
}

/// Around tiles of 256 rows and of 256 samples.
fn large_tiles_change_nothing(device: &Device) {
    for size in [(1, 1, 1), (255, 20, 257), (256, 4, 255), (257, 22, 256), (1030, 3, 600)] {
        for missing in [false, true] {
            let case = Case::new(device, size, missing);
            let x = case.slices();
            let bits = |y: Tensor<f32>| y.read().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let y = bits(apply_in_tiles(apply::LARGE_TILE, case.rows(), &x).unwrap());
            assert_eq!(y, bits(packed_apply(case.rows(), &x).unwrap()), "{size:?} {missing}");
            let weights = weights_in_tiles(apply::LARGE_TILE, case.rows(), &x, &case.scales()).unwrap();
            assert_eq!(weights.read().unwrap(), case.weight_words(&x), "{size:?} {missing}");
            let mut sums = Sums::zeros(device, size.0, size.1).unwrap();
            adjoint_in_tiles(adjoint::LARGE_TILE, case.rows(), &weights, &mut sums).unwrap();
            assert_eq!(sums.read().unwrap(), case.sums(&x), "{size:?} {missing}");
        }
    }
}

fn panels_change_nothing(device: &Device) {
    let case = Case::new(device, (130, 7, 200), true);
    let x = case.slices();
    let mut sums = Sums::zeros(device, 130, 7).unwrap();
    for range in [(0, 64), (64, 68), (68, 199), (199, 200)] {
        let rows = Rows { range, ..case.rows() };
        let weights = packed_weights(rows, &x, &case.scales()).unwrap();
        packed_adjoint(rows, &weights, &mut sums).unwrap();
    }
    assert_eq!(sums.read().unwrap(), case.sums(&x));
}

/// Enough rows for several panels of 64 KiB, and splits that add to the same sums.
fn several_launches(device: &Device) {
    let case = Case::new(device, (33, 3, 4500), true);
    let x = case.slices();
    let weights = packed_weights(case.rows(), &x, &case.scales()).unwrap();
    assert_eq!(weights.read().unwrap(), case.weight_words(&x));
    let mut sums = Sums::zeros(device, 33, 3).unwrap();
    packed_adjoint(case.rows(), &weights, &mut sums).unwrap();
    assert_eq!(sums.read().unwrap(), case.sums(&x));
    let raw: Vec<u8> = case.codes.iter().map(|&code| if code == 3 { 255 } else { code }).collect();
    check_pack(device, &raw, Coding::Dosages, 4500, 33);
}

/// Workgroups that add to the same sums at once.
fn many_parts(device: &Device) {
    let case = Case::new(device, (64, 8, 20_000), true);
    let x = case.slices();
    let weights = packed_weights(case.rows(), &x, &case.scales()).unwrap();
    let mut sums = Sums::zeros(device, 64, 8).unwrap();
    for _ in 0..16 {
        packed_adjoint(case.rows(), &weights, &mut sums).unwrap();
    }
    let expected: Vec<i64> = case.sums(&x).iter().map(|sum| 16 * sum).collect();
    assert_eq!(sums.read().unwrap(), expected);
}

fn codes_are_standardised(device: &Device) {
    for (rows, samples) in
        [(1, 1), (3, 4), (5, 15), (4, 16), (7, 17), (3, 64), (9, 65), (200, 130), (3, 3001)]
    {
        let codes = codes(75, rows, samples, true);
        let packed =
            Tensor::from_slice(device, &packed_words(&codes, samples), &[rows, row_words(samples)]).unwrap();
        let first = rows / 3;
        let table: Vec<[f32; 3]> =
            (first..rows).map(|i| [0.3 * (i % 5) as f32, 1.7, -0.25 * i as f32]).collect();
        let out = packed_standardize(&packed, first..rows, samples, &table).unwrap();
        let expected = codes[(first * samples) as usize..].chunks(samples as usize).zip(&table).flat_map(
            |(row, &[shift, scale, fill])| {
                row.iter().map(move |&code| if code == 3 { fill } else { (f32::from(code) - shift) * scale })
            },
        );
        assert!(
            out.read().unwrap().iter().map(|x| x.to_bits()).eq(expected.map(f32::to_bits)),
            "{rows} x {samples}"
        );
    }
}

fn empty(device: &Device) {
    for (samples, rows) in [(0, 3), (5, 0), (0, 0)] {
        let raw = Tensor::from_slice(device, &[0u8; 0], &[rows, samples]).unwrap();
        let mut packed = Tensor::<u32>::zeros(device, &[rows, row_words(samples)]).unwrap();
        let stats = pack_genotypes(&raw, Coding::Dosages, samples, &mut packed, 0).unwrap().wait().unwrap();
        assert!(stats.len() as u64 == rows && stats.iter().all(|stats| stats.count == 0));
        let table = Tensor::<f32>::zeros(device, &[rows, 2]).unwrap();
        let rows = Rows { packed: &packed, table: &table, range: (0, rows), missing: true };
        let x = Slices::new(device, &Matrix::zeros(samples as usize, 2), 0, 2, row_words(samples)).unwrap();
        assert!(packed_apply(rows, &x).unwrap().read().unwrap().iter().all(|&y| y == 0.0));
        let weights = packed_weights(rows, &x, &[1.0; 2]).unwrap();
        let mut sums = Sums::zeros(device, samples, 2).unwrap();
        packed_adjoint(rows, &weights, &mut sums).unwrap();
        assert!(sums.read().unwrap().iter().all(|&sum| sum == 0));
    }
}

fn wrong_shapes(device: &Device) {
    let raw = Tensor::from_slice(device, &[0u8; 10], &[2, 5]).unwrap();
    let mut packed = Tensor::<u32>::zeros(device, &[2, row_words(5)]).unwrap();
    for (coding, samples, first) in
        [(Coding::Diploid, 5, 0), (Coding::Dosages, 6, 0), (Coding::Dosages, 5, 1)]
    {
        let error = pack_genotypes(&raw, coding, samples, &mut packed, first).unwrap_err();
        assert!(matches!(error, Error::Shape { op: "pack_genotypes", .. }), "{error}");
    }
    for (rows, samples, entries) in [(0..2, 5, 1), (0..3, 5, 3), (0..2, 65, 2)] {
        let error = packed_standardize(&packed, rows, samples, &vec![[0.0; 3]; entries]).unwrap_err();
        assert!(matches!(error, Error::Shape { op: "packed_standardize", .. }), "{error}");
    }
    let table = Tensor::<f32>::zeros(device, &[2, 2]).unwrap();
    let rows = Rows { packed: &packed, table: &table, range: (0, 2), missing: false };
    let weights = Tensor::<u32>::zeros(device, &[1, 32]).unwrap();
    let mut sums = Sums::zeros(device, 5, 2).unwrap();
    let error = packed_adjoint(rows, &weights, &mut sums).unwrap_err();
    assert!(matches!(error, Error::Shape { op: "packed_adjoint", .. }), "{error}");
}

fn nan_is_refused(device: &Device) {
    for bad in [f64::NAN, f64::INFINITY] {
        let x = Matrix::from_vec(vec![0.0, bad], 1, 2).unwrap();
        let error = Slices::new(device, &x, 0, 2, row_words(1)).unwrap_err();
        assert!(error.to_string().contains("column 1"), "{error}");
    }
}

#[test]
fn digits_are_balanced_and_whole() {
    for multiple in
        (-8_355_711..=8_355_711).step_by(977).chain([8_355_711, 0, -1, 127, 128, -128, -129, 32_767])
    {
        let [low, middle, high] = digits(multiple).map(i32::from);
        assert_eq!(low + 256 * middle + 65_536 * high, multiple);
    }
}

#[test]
fn scales_use_the_range() {
    for largest in [1e-11, 0.3, 1.0, MAX, 1.0001 * MAX, 7e15] {
        let scale = scale(largest);
        assert!(scale * largest <= MAX && scale * largest > MAX / 2.01, "{largest}");
        assert_eq!(scale.log2().fract(), 0.0);
    }
    assert_eq!(scale(0.0), 1.0);
}

#[test]
fn quads_hold_every_sample_once() {
    let mut samples: Vec<u64> =
        (0..16).flat_map(|quad| (0..4).map(move |place| sample(quad, place))).collect();
    samples.sort_unstable();
    assert!(samples.iter().copied().eq(0..64));
}
