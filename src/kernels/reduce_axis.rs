//! Sums, extremes and their indices, over blocks along the middle axis of an array with three axes.

use bytemuck::{Pod, Zeroable};
use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::cpu::{load::load, simd::wide};
use crate::{
    DType,
    dtype::nearest_f32,
    extent::to_usize,
    kernel::{CpuArg, CpuLaunch, Kernel, codes, kernel, params},
};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        /// The extents of the array that the launch reads.
        pub(crate) outer: u32,
        pub(crate) len: u32,
        pub(crate) inner: u32,
        /// The number of items from one to the next along the axis; equal to `inner` unless `outer` is 1.
        pub(crate) pitch: u32,
        /// The offsets of x, in elements or totals, and of `out`, in words.
        pub(crate) x0: u32,
        pub(crate) out0: u32,
        /// The index of the first element along the whole axis.
        pub(crate) first: u32,
        /// The code of the elements' type.
        pub(crate) x_type: u32,
        /// An [`Op`], and the form of the result, a [`Stored`].
        pub(crate) op: u32,
        pub(crate) stored: u32,
        /// 1 if totals are joined to the totals in `out`.
        pub(crate) accumulate: u32,
        /// Always 0, which the shader's compiler cannot know.
        pub(crate) zero: u32,
        /// The number of terms of a mean: the nearest f32, and the remainder.
        pub(crate) count: f32,
        pub(crate) count_rest: f32,
    }
}

pub(crate) static REDUCE_AXIS: Kernel<Params> =
    kernel!("reduce_axis", Params, [Read, ReadWrite], reduce_axis, specs, [Op, Stored]);

/// The number of elements along the axis that become one total.
pub(crate) const BLOCK: u32 = 1024;
pub(crate) const WG: u32 = 64;

codes! {
    /// The reduction of the elements. `Sum` and `Mean` add elements.
    pub(crate) enum Op {
        Sum,
        Mean,
        Min,
        Max,
        /// 1 if any element is not 0, otherwise 0: the maximum of 1 or 0 for each element.
        Any,
    }
}

impl Op {
    const fn adds(self) -> bool {
        matches!(self, Self::Sum | Self::Mean)
    }
}

codes! {
    /// The form in which a launch stores each result.
    pub(crate) enum Stored {
        /// A total, which another launch reads.
        Total,
        /// The value as f32.
        One,
        /// The value as f64, or as two f32 if the device has no f64.
        Two,
        /// The index of the value along the axis.
        Index,
    }
}

impl Stored {
    /// Returns the number of words of a result.
    pub(crate) const fn words(self) -> u64 {
        match self {
            Self::Total => 4,
            Self::Two => 2,
            Self::One | Self::Index => 1,
        }
    }
}

/// Returns the constants of a program. f32 has programs of its own; for totals, the type has no effect.
pub(crate) fn spec(by_row: bool, partial: bool, dtype: DType) -> [(&'static str, u32); 5] {
    [
        ("WG", WG),
        ("BLOCK", BLOCK),
        ("BY_ROW", by_row.into()),
        ("PARTIAL", partial.into()),
        ("NARROW", (!partial && dtype != DType::F32).into()),
    ]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    let kinds = [(false, DType::F32), (false, DType::U8), (true, DType::U32)];
    let specs_of = |(partial, dtype)| [false, true].map(|by_row| spec(by_row, partial, dtype).to_vec());
    kinds.into_iter().flat_map(specs_of).collect()
}

/// A sum, or the greatest number and its index along the axis.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Total {
    value: f64,
    index: u32,
    unused: u32,
}

/// Returns true if the first number is greater. NaN is greater than all other numbers.
#[inline(always)]
fn precedes(a: f64, b: f64) -> bool {
    a > b || (a.is_nan() && !b.is_nan())
}

impl Total {
    /// Joins this total with the total of the elements that follow.
    fn joined(self, next: Self, op: Op) -> Self {
        if op.adds() {
            return Self { value: self.value + next.value, ..self };
        }
        if precedes(next.value, self.value) { next } else { self }
    }
}

/// The number of partial sums, so that a long sum is vectorised. It determines the order of additions.
const LANES: usize = 16;
/// The maximum number of elements of a short row.
const SHORT: usize = 64;
/// The number of columns that a task takes.
const COLUMNS: usize = 1 << 11;
/// The minimum number of elements of a task, if rows are short.
const LEAST: usize = 1 << 13;

/// The array that is reduced, and the reduction.
struct Source<'a> {
    x: CpuArg<'a>,
    dtype: DType,
    partial: bool,
    op: Op,
}

impl Source<'_> {
    /// Reads items from `start` on as numbers whose sum or maximum is the result.
    fn load(&self, start: usize, out: &mut [f64]) {
        if self.partial {
            let totals = &self.x.read::<Total>()[start..];
            out.iter_mut().zip(totals).for_each(|(out, total)| *out = total.value);
            return;
        }
        load(&self.x, self.dtype, start, out);
        match self.op {
            Op::Min => out.iter_mut().for_each(|x| *x = -*x),
            Op::Any => out.iter_mut().for_each(|x| *x = f64::from(u8::from(*x != 0.0))),
            Op::Sum | Op::Mean | Op::Max => {}
        }
    }

    /// Returns the index along the axis of the item at `at`: `place` if it is an element, or the index that a total has.
    fn index(&self, at: usize, place: u32) -> u32 {
        if self.partial { self.x.read::<Total>()[at].index } else { place }
    }

    /// Returns the total of a block of adjacent items.
    fn along(&self, start: usize, len: usize, first: u32) -> Total {
        // A buffer for a short row takes less time to clear than one for a whole block.
        if len <= SHORT {
            return self.total(start, first, &mut [0.0; SHORT][..len]);
        }
        self.total(start, first, &mut [0.0; BLOCK as usize][..len])
    }

    /// Returns the total of adjacent items, as many as `block` has elements.
    fn total(&self, start: usize, first: u32, block: &mut [f64]) -> Total {
        self.load(start, block);
        if self.op.adds() {
            let sum = LaneSum(block);
            let value = if block.len() <= SHORT { sum.call() } else { wide(sum) };
            return Total { value, ..Total::zeroed() };
        }
        let place = wide(Greatest(block));
        let index = self.index(start + place, first.wrapping_add(small(place)));
        Total { value: block[place], index, unused: 0 }
    }

    /// Computes the totals of adjacent columns, which have `len` items each, `pitch` apart.
    fn across(&self, start: usize, len: usize, pitch: usize, first: u32, totals: &mut [Total]) {
        let mut row = vec![0.0; totals.len()];
        let mut best = vec![0.0; totals.len()];
        let mut places = vec![0u32; totals.len()];
        self.load(start, &mut best);
        for line in 1..len {
            self.load(start + line * pitch, &mut row);
            let (best, places) = (&mut best[..], &mut places[..]);
            wide(NextRow { row: &row, line: small(line), adds: self.op.adds(), best, places });
        }
        for (col, (total, (&value, &line))) in totals.iter_mut().zip(best.iter().zip(&places)).enumerate() {
            let at = start + line as usize * pitch + col;
            *total = Total { value, index: self.index(at, first.wrapping_add(line)), unused: 0 };
        }
    }
}

/// Converts an index within a block.
fn small(place: usize) -> u32 {
    crate::kernel::small(place as u64)
}

/// Computes the sum of numbers.
struct LaneSum<'a>(&'a [f64]);

impl NullaryFnOnce for LaneSum<'_> {
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let (whole, rest) = self.0.as_chunks::<LANES>();
        let mut lanes = [0.0; LANES];
        for values in whole {
            lanes.iter_mut().zip(values).for_each(|(lane, value)| *lane += value);
        }
        lanes.iter().chain(rest).sum()
    }
}

/// Finds the index of the first of the greatest numbers (at least one number), or of the first NaN if there is one.
struct Greatest<'a>(&'a [f64]);

impl NullaryFnOnce for Greatest<'_> {
    type Output = usize;

    #[inline(always)]
    fn call(self) -> usize {
        let (whole, rest) = self.0.as_chunks::<LANES>();
        let (mut lanes, mut nan) = ([f64::NEG_INFINITY; LANES], [false; LANES]);
        for values in whole {
            for ((lane, nan), &value) in lanes.iter_mut().zip(&mut nan).zip(values) {
                *lane = if value > *lane { value } else { *lane };
                *nan |= value.is_nan();
            }
        }
        let greater = |most, &x: &f64| if x > most { x } else { most };
        let most = lanes.iter().chain(rest).fold(f64::NEG_INFINITY, greater);
        let any_nan = nan.contains(&true) || rest.iter().any(|x| x.is_nan());
        let place = self.0.iter().position(|x| if any_nan { x.is_nan() } else { *x == most });
        place.unwrap_or(0)
    }
}

/// Updates the totals of columns with one more row.
struct NextRow<'a> {
    row: &'a [f64],
    line: u32,
    adds: bool,
    best: &'a mut [f64],
    places: &'a mut [u32],
}

impl NullaryFnOnce for NextRow<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        if self.adds {
            self.best.iter_mut().zip(self.row).for_each(|(sum, value)| *sum += value);
            return;
        }
        for ((best, place), &value) in self.best.iter_mut().zip(self.places).zip(self.row) {
            let take = precedes(value, *best);
            *best = if take { value } else { *best };
            *place = if take { self.line } else { *place };
        }
    }
}

fn reduce_axis(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let (partial, op) = (launch.constant("PARTIAL") != 0, Op::from_code(p.op));
    let stored = Stored::from_code(p.stored);
    let [x, out] = launch.args();
    let source = Source { x, dtype: DType::from_code(p.x_type), partial, op };
    let (len, inner, pitch) = (p.len as usize, p.inner as usize, p.pitch as usize);
    let parts = len.div_ceil(BLOCK as usize);
    let words = to_usize(stored.words());
    let rows = p.outer as usize * parts;
    let out = &mut out.write::<u32>()[p.out0 as usize..][..rows * inner * words];
    // Returns the first item of a block, its number of items, and the index of its first item along the whole axis.
    let block = |row: usize| {
        let start = row % parts * BLOCK as usize;
        let item = p.x0 as usize + (row / parts * len + start) * pitch;
        (item, (len - start).min(BLOCK as usize), p.first.wrapping_add(small(start)))
    };
    if pitch == 1 {
        let least = LEAST.div_ceil(len.min(BLOCK as usize));
        out.par_chunks_mut(words).enumerate().with_min_len(least).for_each(|(row, out)| {
            let (start, len, first) = block(row);
            store(&p, op, stored, source.along(start, len, first), out);
        });
        return;
    }
    // Rows of many columns are divided too, since there may be few rows.
    let least = (LEAST / inner).div_ceil(len.min(BLOCK as usize)).max(1);
    out.par_chunks_mut(inner * words).enumerate().with_min_len(least).for_each(|(row, out)| {
        let (start, len, first) = block(row);
        out.par_chunks_mut(COLUMNS * words).enumerate().for_each(|(piece, out)| {
            let mut totals = vec![Total::zeroed(); out.len() / words];
            source.across(start + piece * COLUMNS, len, pitch, first, &mut totals);
            let places = out.chunks_exact_mut(words).zip(totals);
            places.for_each(|(out, total)| store(&p, op, stored, total, out));
        });
    });
}

/// Stores the words of one result.
fn store(p: &Params, op: Op, stored: Stored, total: Total, out: &mut [u32]) {
    let value = match op {
        Op::Min => -total.value,
        Op::Mean => total.value / (f64::from(p.count) + f64::from(p.count_rest)),
        Op::Sum | Op::Max | Op::Any => total.value,
    };
    match stored {
        Stored::Total => {
            let mut words = [0; 4];
            words.copy_from_slice(out);
            let before: Total = bytemuck::cast(words);
            let merged = if p.accumulate == 1 { before.joined(total, op) } else { total };
            out.copy_from_slice(&bytemuck::cast::<_, [u32; 4]>(merged));
        }
        Stored::One => out[0] = nearest_f32(value).to_bits(),
        Stored::Two => out.copy_from_slice(&bytemuck::cast::<_, [u32; 2]>(value)),
        Stored::Index => out[0] = total.index,
    }
}
