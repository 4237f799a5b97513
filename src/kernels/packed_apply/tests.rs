//! Tests of every way to compute dot products, against plain sums.

use super::*;
use crate::{kernels::tests::random_codes, random::philox};

/// (rows, words, columns, missing codes in 256): sizes around tiles, tasks and pieces, with few and many missing codes.
const SIZES: [(usize, usize, usize, u32); 14] = [
    (1, 4, 1, 0),
    (1, 4, 1, 40),
    (2, 4, 5, 0),
    (3, 8, 6, 3),
    (5, 4, 10, 255),
    (6, 60, 11, 0),
    (7, 64, 16, 3),
    (47, 68, 20, 30),
    (48, 12, 21, 1),
    (49, 64, 20, 0),
    (50, 4, 27, 6),
    (13, 128, 32, 4),
    (97, 20, 33, 12),
    (9, 132, 64, 2),
];

struct Case {
    rows: usize,
    words: usize,
    cols: usize,
    row_limbs: usize,
    missing: bool,
    packed: Vec<u32>,
    xs: Vec<u32>,
    table: Vec<[f32; 2]>,
    columns: Vec<[f32; 2]>,
}

impl Case {
    /// Makes a case. With `rare`, two rows in three hold few codes.
    fn new((rows, words, cols, missing): (usize, usize, usize, u32), rare: bool) -> Self {
        let row_limbs = (3 * cols).next_multiple_of(16);
        let number = |seed: u32, i: usize| philox([seed, 0], i as u64)[0];
        let unit = |seed: u32, i: usize| number(seed, i) as f32 / u32::MAX as f32;
        Self {
            rows,
            words,
            cols,
            row_limbs,
            missing: missing > 0,
            packed: random_codes([rows, words], missing, rare, 2),
            xs: (0..4 * words * row_limbs).map(|i| number(2, i)).collect(),
            table: (0..rows).map(|i| [2.0 * unit(3, i), 3.0 * unit(4, i)]).collect(),
            columns: (0..cols).map(|i| [1e6 * (unit(5, i) - 0.5), 0.1 * unit(6, i)]).collect(),
        }
    }

    fn run(&self, path: Path, out: &mut [f32], limbs: &mut [u32]) {
        let product = Operands {
            packed: &self.packed,
            words: self.words,
            xs: &self.xs,
            row_limbs: self.row_limbs,
            table: &self.table,
            totals: &parts(&self.columns, 0),
            scales: &parts(&self.columns, 1),
            cols: self.cols,
            missing: self.missing,
            cancel: None,
        };
        path.run(Values { product, out });
        path.run(Limbs { product, out: limbs });
    }

    /// Returns a row's sum of codes times one limb of each column, and the sum of that limb over the missing entries.
    fn sums(&self, row: usize, row_limb: usize) -> [i32; 2] {
        let mut sums = [0; 2];
        for quad in 0..4 * self.words {
            let word = self.packed[row * self.words + quad / 4];
            for byte in 0..4 {
                let limb = i32::from((self.xs[quad * self.row_limbs + row_limb] >> (8 * byte)) as i8);
                match word >> (2 * (quad % 4) + 8 * byte) & 3 {
                    3 => sums[1] += limb,
                    code => sums[0] += code as i32 * limb,
                }
            }
        }
        sums
    }

    /// Returns the y of a row and column, before it is multiplied by the column's factor.
    fn y(&self, row: usize, c: usize) -> f32 {
        let sums = [0, 1, 2].map(|t| self.sums(row, t * self.cols + c));
        let join = |i: usize| {
            let [low, middle, high] = sums.map(|sums| sums[i] as f32);
            (high * 256.0 + middle) * 256.0 + low
        };
        let total = self.columns[c][0];
        let present = if self.missing { total - join(1) } else { total };
        let [mean, factor] = self.table[row];
        (join(0) - mean * present) * factor
    }
}

#[test]
fn every_path_gives_the_same_bits() {
    for (size, rare) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let case = Case::new(size, rare);
        let sets = 1 + usize::from(case.missing);
        let mut expected = vec![0.0; case.rows * case.cols];
        let mut words = vec![0u32; case.rows.div_ceil(4) * sets * case.row_limbs];
        for row in 0..case.rows {
            for c in 0..case.cols {
                let (y, [mean, factor], scale) = (case.y(row, c), case.table[row], case.columns[c][1]);
                expected[row * case.cols + c] = y * scale;
                let weight = y * factor * scale;
                for (set, weight) in [weight, weight * mean].into_iter().take(sets).enumerate() {
                    let multiple = weight.round_ties_even().clamp(-8_355_711.0, 8_355_711.0) as i32;
                    for (t, limb) in limbs(multiple).into_iter().enumerate() {
                        let row_limb = (row / 4 * sets + set) * case.row_limbs + t * case.cols + c;
                        words[row_limb] |= u32::from(limb as u8) << (8 * (row % 4));
                    }
                }
            }
        }
        for path in Path::supported() {
            let mut y = vec![f32::NAN; expected.len()];
            let mut limbs = vec![0x5555_5555; words.len()];
            case.run(path, &mut y, &mut limbs);
            let same = y.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{path:?} {size:?} {rare}");
            assert!(limbs == words, "{path:?} {size:?} {rare}");
        }
    }
}

#[test]
fn multiples_are_rounded() {
    let edges = [0.0, 0.5, 1.5, 127.5, 128.5, 255.5, 256.5, 32_767.5, 4_194_303.5, 8_355_710.5, 8_355_711.0];
    let far = [8_355_712.0, 1e9, f32::MAX, f32::INFINITY, f32::MIN_POSITIVE, 1e-20];
    let any = (0..10_000).map(|i| {
        let [mantissa, exponent, ..] = philox([7, 7], i);
        mantissa as f32 / 2f32.powi(8 + (exponent % 40) as i32)
    });
    for x in edges.into_iter().chain(far).chain(any).flat_map(|x| [x, -x]) {
        assert_eq!(multiple(x), x.round_ties_even().clamp(-8_355_711.0, 8_355_711.0) as i32, "{x}");
    }
    assert!(multiple(f32::NAN).abs() <= 8_355_711);
}
