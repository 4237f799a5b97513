//! Operands of products with packed rows, and the expected results.

use super::{data::values, tolerance::Reference};
use crate::{
    Device, Tensor,
    kernels::cpu::limbs::limbs,
    linalg::Matrix,
    packed::{
        apply::PackedRows,
        operand::{LIMBS, LimbMatrix, MAX, row_limbs, unit},
        row_words,
    },
    random::philox,
};

/// Returns the codes of a matrix; few are missing, and none if `missing` is false.
pub(super) fn codes(seed: u32, rows: u64, entries: u64, missing: bool) -> Vec<u8> {
    let code = |byte: u8| match byte % 16 {
        0..=7 => 0,
        8..=11 => 1,
        12 | 13 => 2,
        _ if missing => 3,
        _ => 1,
    };
    values::<u8>(seed, rows * entries).iter().map(|&byte| code(byte)).collect()
}

pub(crate) fn packed_words(codes: &[u8], entries: u64) -> Vec<u32> {
    let words = row_words(entries) as usize;
    let pack = |row: &[u8]| {
        let mut packed = vec![0u32; words];
        for (i, &code) in row.iter().enumerate() {
            packed[i / 16] |= u32::from(code) << (2 * (i % 16));
        }
        packed
    };
    codes.chunks(entries as usize).flat_map(pack).collect()
}

pub(super) fn upload(device: &Device, codes: &[u8], entries: u64) -> Tensor<u32> {
    let rows = codes.len() as u64 / entries;
    Tensor::from_slice(device, &packed_words(codes, entries), &[rows, row_words(entries)]).unwrap()
}

/// A product's operands on a device, and the data for the oracle.
pub(super) struct Case {
    pub(super) entries: usize,
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) codes: Vec<u8>,
    pub(super) table: Vec<[f32; 2]>,
    pub(super) x: Matrix,
    pub(super) packed: Tensor<u32>,
    pub(super) table_on_device: Tensor<f32>,
    pub(super) missing: bool,
}

impl Case {
    pub(super) fn new(device: &Device, size: (u64, u64, u64), missing: bool) -> Self {
        Self::of(device, size, codes(70, size.2, size.0, missing), missing)
    }

    pub(super) fn of(
        device: &Device,
        (entries, columns, rows): (u64, u64, u64),
        codes: Vec<u8>,
        missing: bool,
    ) -> Self {
        let row = |i: u64| {
            if i % 11 == 7 { [0.0; 2] } else { [0.1 + 0.13 * (i % 13) as f32, 0.7 + 0.31 * (i % 5) as f32] }
        };
        let table: Vec<[f32; 2]> = (0..rows).map(row).collect();
        let numbers = values::<f32>(71, entries * columns);
        let spread = |i: usize| f64::from(numbers[i]) * 10f64.powi((i as u64 % columns) as i32 % 7 - 3);
        let data = (0..numbers.len()).map(spread).collect();
        let x = Matrix::from_vec(data, entries as usize, columns as usize).unwrap();
        Self {
            entries: entries as usize,
            columns: columns as usize,
            rows: rows as usize,
            packed: Tensor::from_slice(device, &packed_words(&codes, entries), &[rows, row_words(entries)])
                .unwrap(),
            table_on_device: Tensor::from_slice(device, table.as_flattened(), &[rows, 2]).unwrap(),
            codes,
            table,
            x,
            missing,
        }
    }

    pub(super) fn rows(&self) -> PackedRows<'_> {
        PackedRows { packed: &self.packed, range: (0, self.rows as u64), missing: self.missing }
    }

    pub(super) fn operand(&self) -> LimbMatrix {
        LimbMatrix::new(self.packed.device(), &self.x, 0, self.columns, row_words(self.entries as u64))
            .unwrap()
    }

    /// Returns units that bound every weight.
    fn units(&self, x: &LimbMatrix) -> Vec<f64> {
        let bound = |c: usize| 30.0 * self.x.column(c).map(f64::abs).sum::<f64>();
        (0..self.columns).map(|c| unit(bound(c) / x.units[c])).collect()
    }

    /// Returns the factors of weights in these units.
    pub(super) fn factors(&self, x: &LimbMatrix) -> Tensor<f32> {
        x.factors(Some(&self.units(x))).unwrap()
    }

    fn multiple(&self, x: &LimbMatrix, entry: usize, c: usize) -> i64 {
        (self.x.row(entry)[c] / x.units[c]).round_ties_even() as i64
    }

    /// Returns y before the column's factor is applied, by its definition in f64.
    pub(super) fn products(&self, x: &LimbMatrix) -> Vec<Reference> {
        let mut products = Vec::new();
        for (codes, table) in self.codes.chunks(self.entries).zip(&self.table) {
            let [mean, factor] = table.map(f64::from);
            for c in 0..self.columns {
                let mut product = Reference::default();
                for (entry, &code) in codes.iter().enumerate().filter(|(_, code)| **code < 3) {
                    let x = self.x.row(entry)[c] / x.units[c];
                    product.add(f64::from(code) * x * factor);
                    product.add(-mean * x * factor);
                }
                products.push(product);
            }
        }
        products
    }

    /// Returns y before the column's factor is applied, each operation rounded to f32 in the documented order.
    pub(super) fn rounded(&self, x: &LimbMatrix) -> Vec<f32> {
        let join = |[low, middle, high]: [i32; 3]| (high as f32 * 256.0 + middle as f32) * 256.0 + low as f32;
        let multiple = |at: usize| self.multiple(x, at / self.columns, at % self.columns) as i32;
        let all: Vec<[i32; 3]> =
            (0..self.entries * self.columns).map(|at| limbs(multiple(at)).map(i32::from)).collect();
        let mut y = Vec::new();
        for (codes, [mean, factor]) in self.codes.chunks(self.entries).zip(&self.table) {
            // Each column sums the row's codes times multiples, and the multiples of missing codes.
            let mut sums = vec![[[0; 3]; 2]; self.columns];
            for (&code, limbs) in codes.iter().zip(all.chunks(self.columns)) {
                let (kind, times) = if code == 3 { (1, 1) } else { (0, i32::from(code)) };
                for (sums, limbs) in sums.iter_mut().zip(limbs) {
                    sums[kind].iter_mut().zip(limbs).for_each(|(sum, limb)| *sum += times * limb);
                }
            }
            y.extend(sums.into_iter().zip(&x.totals).map(|([sums, absent], &total)| {
                let total = total as f32;
                let present = if self.missing { total - join(absent) } else { total };
                (join(sums) - mean * present) * factor
            }));
        }
        y
    }

    /// Returns the multiples of w and of mean w.
    fn weights(&self, x: &LimbMatrix) -> Vec<[i32; 2]> {
        let units = self.units(x);
        let weights = |(at, rounded): (usize, f32)| {
            let [mean, factor] = self.table[at / self.columns];
            let weight = rounded * factor / units[at % self.columns] as f32;
            [weight, weight * mean].map(|w| w.round_ties_even().clamp(-MAX as f32, MAX as f32) as i32)
        };
        self.rounded(x).into_iter().enumerate().map(weights).collect()
    }

    /// Returns the words that `packed_weights` should compute.
    pub(super) fn weight_words(&self, x: &LimbMatrix) -> Vec<u32> {
        let row_limbs = row_limbs(LIMBS, self.columns as u64) as usize;
        let sets = 1 + usize::from(self.missing);
        let mut words = vec![0u32; self.rows.div_ceil(4) * sets * row_limbs];
        for (at, weights) in self.weights(x).into_iter().enumerate() {
            let (row, c) = (at / self.columns, at % self.columns);
            for (set, &multiple) in weights.iter().take(sets).enumerate() {
                for (t, limb) in limbs(multiple).into_iter().enumerate() {
                    let row_limb = set * row_limbs + t * self.columns + c;
                    words[row / 4 * sets * row_limbs + row_limb] |= u32::from(limb as u8) << (8 * (row % 4));
                }
            }
        }
        words
    }

    /// Returns the sums that `packed_adjoint` should add.
    pub(super) fn sums(&self, x: &LimbMatrix) -> Vec<i64> {
        let mut sums = vec![0i64; self.entries * self.columns];
        for (codes, weights) in self.codes.chunks(self.entries).zip(self.weights(x).chunks(self.columns)) {
            for (&code, sums) in codes.iter().zip(sums.chunks_mut(self.columns)) {
                for (sum, &[weight, filled]) in sums.iter_mut().zip(weights) {
                    *sum += if code == 3 { i64::from(filled) } else { i64::from(code) * i64::from(weight) };
                }
            }
        }
        sums
    }
}

/// Returns powers of two to scale operands by: from one at which the last bit is f64's smallest number, to about 1e300.
pub(super) fn powers() -> [f64; 6] {
    let smallest = f64::from_bits(1);
    [smallest * 2f64.powi(20), 2f64.powi(-996), 2f64.powi(-100), 1.0, 2f64.powi(100), 2f64.powi(996)]
}

/// Returns a matrix of multiples of 2^-20 with equal columns, and the same matrix with each column scaled by its power of two.
pub(super) fn one_operand_in_magnitudes(rows: usize) -> [Matrix; 2] {
    let powers = powers();
    let matrix = |factor: &dyn Fn(usize) -> f64| {
        let value = |i: usize| f64::from(philox([3, 8], i as u64)[0] >> 11) / 2f64.powi(20) - 1.0;
        let data = (0..rows * powers.len()).map(|at| value(at / powers.len()) * factor(at % powers.len()));
        Matrix::from_vec(data.collect(), rows, powers.len()).unwrap()
    };
    [matrix(&|_| 1.0), matrix(&|c| powers[c])]
}

/// Asserts that each column of `scaled` equals the column of `y` times its power of two.
pub(super) fn assert_magnitudes(scaled: &Matrix, y: &Matrix) {
    for i in 0..y.rows() {
        for ((scaled, y), power) in scaled.row(i).iter().zip(y.row(i)).zip(powers()) {
            assert!(*y != 0.0 && *scaled == y * power, "row {i}: {scaled:e} is not {y:e} times {power:e}");
        }
    }
}
