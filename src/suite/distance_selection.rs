//! Tests of the neighbors that a device selects, against a sort of all sums.

use super::*;
use crate::{
    distance::selection::{Order, Selection},
    dtype::{halves, joined},
    extent::to_usize,
    kernels::nearest::SumForm,
};

device_tests! {
    of_nothing, wide_and_narrow, pairs_that_only_rests_tell_apart, falling_and_bounds, no_numbers;
    sizes, triangles, themselves,
}

const RISING: Order = Order { falling: false, low: f32::NEG_INFINITY, high: f32::INFINITY };

/// The sums that are offered, and how they are offered.
struct Case {
    m: u64,
    n: u64,
    k: u64,
    order: Order,
    form: SumForm,
    is_self: bool,
    /// Blocks hold only the part below the diagonal.
    lower: bool,
    /// The number of observations along each side of a block.
    side: u64,
    /// The sums of shape (m, n).
    sums: Vec<[f32; 2]>,
    undefined: [Vec<bool>; 2],
}

impl Case {
    /// Makes a case of whole numbers, many of which are equal.
    fn new([m, n, k]: [u64; 3], side: u64) -> Self {
        let sums = numbers(7, m * n, 50).into_iter().map(|sum| halves(sum, false)).collect();
        let undefined = [m, n].map(|count| vec![false; to_usize(count)]);
        Self {
            m,
            n,
            k,
            order: RISING,
            form: SumForm::Pair,
            is_self: false,
            lower: false,
            side,
            sums,
            undefined,
        }
    }

    /// Makes a case of observations with themselves; if `lower`, only sums below the diagonal are offered.
    fn of_self(n: u64, k: u64, side: u64, lower: bool) -> Self {
        Self { is_self: true, lower, ..Self::new([n, n, k], side) }
    }

    fn is_wide(&self) -> bool {
        self.form == SumForm::Wide
    }

    fn at(&self, line: u64, item: u64) -> [f32; 2] {
        let (row, column) = if self.lower && item > line { (item, line) } else { (line, item) };
        self.sums[to_usize(row * self.n + column)]
    }

    fn key(&self, sum: f64) -> f64 {
        let bounded =
            if sum.is_nan() { sum } else { sum.clamp(self.order.low.into(), self.order.high.into()) };
        if self.order.falling { -bounded } else { bounded }
    }

    /// Returns the indices and sums that a sort gives: NaN last, then empty places.
    fn expected(&self, line: u64) -> Vec<(u32, f64)> {
        let [lines, items] = [0, usize::from(!self.is_self)].map(|side| &self.undefined[side]);
        let others = (0..self.n).filter(|&item| !self.is_self || item != line);
        let sum = |item: u64| match lines[to_usize(line)] || items[to_usize(item)] {
            true => f64::NAN,
            false => joined(&self.at(line, item), self.is_wide()),
        };
        let mut all: Vec<(u32, f64)> = others.map(|item| (u32::try_from(item).unwrap(), sum(item))).collect();
        all.sort_by(|a, b| {
            let [a, b] = [self.key(a.1), self.key(b.1)];
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        });
        all.resize(all.len().max(to_usize(self.k)), (u32::MAX, f64::NAN));
        all.truncate(to_usize(self.k));
        all
    }

    /// Offers the sums block by block, the last columns first, and compares the result.
    fn check(&self, device: &Device, what: &str) {
        let Self { m, n, k, side, .. } = *self;
        let flags = self.undefined.each_ref().map(|flags| &flags[..]);
        let mut selection =
            Selection::new(device, [m, k], self.order, self.form, flags, self.is_self).unwrap();
        let steps = |count: u64| (0..count).step_by(to_usize(side)).collect::<Vec<_>>();
        for first in steps(n).into_iter().rev() {
            let columns = first..n.min(first + side);
            for row in steps(m) {
                let rows = row..m.min(row + side);
                if self.lower && columns.start >= rows.end {
                    continue;
                }
                let pairs = rows.clone().flat_map(|row| columns.clone().map(move |column| (row, column)));
                let sums = pairs.map(|(row, column)| match self.lower && column >= row {
                    // This element must not be read.
                    true => halves(-1e9, self.is_wide()),
                    false => self.at(row, column),
                });
                let words = self.form.words();
                let sums: Vec<f32> = sums.flat_map(|pair| pair[..to_usize(words)].to_vec()).collect();
                let shape = [rows.end - rows.start, words * (columns.end - columns.start)];
                let sums = Tensor::from_slice(device, &sums, &shape).unwrap();
                selection.offer(&sums, rows, columns.clone(), self.lower).unwrap();
            }
        }
        let (sums, numbers) = selection.into_tensors();
        assert_eq!((sums.shape(), numbers.shape()), (&[m, 2 * k][..], &[m, k][..]), "{what}");
        let (sums, numbers) = (sums.read().unwrap(), numbers.read().unwrap());
        let sums = sums.as_chunks().0.iter().map(|sum| joined(sum, self.is_wide()));
        let found: Vec<(u32, f64)> = numbers.into_iter().zip(sums).collect();
        for (line, found) in (0..m).zip(found.chunks(to_usize(k))) {
            let expected = self.expected(line);
            let same = |(a, b): (&(u32, f64), &(u32, f64))| {
                a.0 == b.0 && (a.1.to_bits() == b.1.to_bits() || a.1.is_nan() && b.1.is_nan())
            };
            let place = found.iter().zip(&expected).position(|pair| !same(pair));
            if let Some(place) = place {
                let [got, wanted] = [found, &expected[..]].map(|list| list[place]);
                panic!(
                    "{what}: m {m} n {n} k {k} side {side}, line {line} place {place}: {got:?}, not {wanted:?}"
                );
            }
        }
    }
}

/// Returns whole numbers from 0 to `different` - 1.
fn numbers(seed: u32, count: u64, different: u32) -> Vec<f64> {
    values::<u32>(seed, count).into_iter().map(|bits| f64::from((bits >> 8) % different)).collect()
}

fn sizes(device: &Device) {
    for k in [1, 2, 10, 63, 64, 65, 255, 256] {
        for (m, n, side) in [(3, 1, 64), (2, 63, 64), (3, 64, 64), (2, 65, 65), (5, 700, 300), (70, 257, 100)]
        {
            Case::new([m, n, k], side).check(device, "sizes");
        }
    }
    // Blocks have more items than a step takes, and than a binding of a small device holds.
    Case::new([3, 3000, 256], 3000).check(device, "a wide block");
    Case::new([300, 300, 40], 300).check(device, "a large block");
    // Each item is nearer than all items before it.
    let mut case = Case::new([2, 1500, 100], 1500);
    case.sums = (0..3000u32).rev().map(|i| halves(i.into(), false)).collect();
    case.check(device, "falling sums");
}

fn triangles(device: &Device) {
    for (n, k, side) in [(2, 1, 64), (65, 10, 64), (150, 64, 37), (200, 3, 64), (130, 256, 50), (260, 7, 260)]
    {
        Case::of_self(n, k, side, true).check(device, "lower");
    }
    let mut case = Case::of_self(150, 20, 64, true);
    case.undefined[0].iter_mut().step_by(9).for_each(|flag| *flag = true);
    case.sums.iter_mut().step_by(13).for_each(|sum| *sum = halves(f64::NAN, false));
    case.check(device, "lower, without numbers");
}

fn themselves(device: &Device) {
    for (n, k, side) in [(1, 1, 64), (65, 10, 64), (150, 64, 37), (130, 256, 200)] {
        Case::of_self(n, k, side, false).check(device, "themselves");
    }
}

fn falling_and_bounds(device: &Device) {
    for falling in [false, true] {
        for (low, high) in [(f32::NEG_INFINITY, 20.0), (5.0, f32::INFINITY), (10.0, 30.0)] {
            for k in [4, 100] {
                let order = Order { falling, low, high };
                Case { order, ..Case::new([5, 300, k], 128) }.check(device, "bounds");
            }
        }
        let mut case = Case::new([4, 200, 50], 64);
        case.order.falling = falling;
        // Sums are below and above 0, infinite, and zeros of both signs.
        let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY];
        let numbers = numbers(3, 800, 60).into_iter().enumerate();
        let numbers = numbers.map(|(i, x)| if i % 5 == 0 { special[i / 5 % 4] } else { x / 4.0 - 7.0 });
        case.sums = numbers.map(|sum| halves(sum, false)).collect();
        case.check(device, "signs");
    }
}

fn no_numbers(device: &Device) {
    for (k, every) in [(3, 3), (80, 3), (150, 2), (256, 5)] {
        let mut case = Case::new([9, 200, k], 70);
        case.sums.iter_mut().step_by(every).for_each(|sum| *sum = halves(f64::NAN, false));
        case.undefined[0].iter_mut().step_by(4).for_each(|flag| *flag = true);
        case.undefined[1].iter_mut().skip(1).step_by(6).for_each(|flag| *flag = true);
        case.check(device, "no numbers");
    }
    // These observations are undefined, and their sums would be the nearest.
    let mut case = Case::new([3, 130, 5], 64);
    case.undefined[1][7..20].fill(true);
    (0..3).for_each(|line| case.sums[line * 130 + 7..][..13].fill([-1.0, 0.0]));
    case.check(device, "undefined");
}

fn pairs_that_only_rests_tell_apart(device: &Device) {
    for falling in [false, true] {
        let mut case = Case::new([4, 300, 40], 128);
        case.order.falling = falling;
        let rests = numbers(5, 1200, 97).into_iter().map(|rest| (rest as f32 - 48.0) / (1u64 << 32) as f32);
        case.sums = rests.map(|rest| [1.0, rest]).collect();
        case.check(device, "rests");
        // A sum is two f32, and the first is not the f32 nearest to their sum.
        let eighths = numbers(6, 1200, 9).into_iter().map(|rest| rest as f32 / 8.0);
        case.sums = eighths.enumerate().map(|(i, rest)| [(1 + i % 2) as f32, rest]).collect();
        case.check(device, "not normalised");
    }
}

fn wide_and_narrow(device: &Device) {
    for form in [SumForm::Plain, SumForm::Pair, SumForm::Wide] {
        let wide = form == SumForm::Wide;
        if wide && !device.limits().f64 {
            continue;
        }
        for (lower, is_self) in [(false, false), (false, true), (true, true)] {
            let mut case = Case::new([140, 140, 20], 64);
            // Some f64 sums are beyond f32, or differ in their last bits only.
            let sum = |(i, x): (usize, f64)| match (wide, i % 3) {
                (true, 0) => 1e60 * x,
                (true, 1) => 3.0 + x * f64::EPSILON * 2.0,
                _ => x,
            };
            let sums = numbers(9, 140 * 140, 1000).into_iter().enumerate().map(sum);
            case.sums = sums.map(|sum| halves(sum, wide)).collect();
            (case.form, case.lower, case.is_self) = (form, lower, is_self);
            case.undefined[0][3] = true;
            case.sums[700] = halves(f64::NAN, wide);
            case.check(device, &format!("{form:?}"));
        }
    }
}

fn of_nothing(device: &Device) {
    Case::new([0, 5, 3], 64).check(device, "no lines");
    Case::new([4, 0, 3], 64).check(device, "no items");
}
