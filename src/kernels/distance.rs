//! Sums over features for pairs of observations: sums[i, j] (+)= Σ term(x[i, f], y[j, f]), or the largest term.

mod real;
mod tile;

use bytemuck::Zeroable;
use rayon::prelude::*;

use self::{real::Real, tile::tile};
use super::cpu::load::load;
use crate::{
    Cancel, DType,
    kernel::{CpuArg, CpuLaunch, Kernel, codes, kernel, params},
};

params! {
    /// Parameters of the kernel: extents, row strides and first elements in elements.
    pub(crate) struct Params {
        /// Observations of x and of y, and features.
        pub(crate) m: u32,
        pub(crate) n: u32,
        pub(crate) k: u32,
        pub(crate) ldx: u32,
        pub(crate) ldy: u32,
        /// Pairs in a row of the sums.
        pub(crate) lds: u32,
        pub(crate) x0: u32,
        pub(crate) y0: u32,
        /// Places where the tables start, and the sums: entries and pairs before.
        pub(crate) x_table0: u32,
        pub(crate) y_table0: u32,
        pub(crate) sums0: u32,
        /// Codes of the elements' types.
        pub(crate) x_type: u32,
        pub(crate) y_type: u32,
        /// 1 if observations are columns of x and y.
        pub(crate) by_column: u32,
        /// 1 if negative elements are missing, where missing ones are left out.
        pub(crate) negative: u32,
        /// 1 if sums are added to.
        pub(crate) accumulate: u32,
        /// 1 if pairs above the diagonal are left out, and where this panel's corner lies in the whole result.
        pub(crate) lower: u32,
        pub(crate) row0: u32,
        pub(crate) col0: u32,
        /// A [`Term`].
        pub(crate) term: u32,
        /// The exponent of [`Term::Power`], and its bits as f64.
        pub(crate) power: f32,
        pub(crate) power_low: u32,
        pub(crate) power_high: u32,
    }
}

pub(crate) static DISTANCE: Kernel<Params> =
    kernel!("distance", Params, [Read, Read, Read, Read, ReadWrite], distance, specs, [Term]);

/// Observations along each side of what a workgroup makes.
pub(crate) const TILE: u32 = 64;
/// Features whose terms are added up in f32. What is added up so far is two numbers, a sum and what rounding left of it, so
/// that whole numbers are exact while each of these sums is below 2^24: of squares of differences of bytes. Where `WIDE`, both are in
/// f64, and the sum is one number.
pub(crate) const BLOCK: usize = 256;

codes! {
    /// A term that two elements add to the sum of their pair.
    pub(crate) enum Term {
        /// x y
        Product = 1,
        /// (x - y)²
        Square,
        /// |x - y|
        Absolute,
        /// |x - y|, of which the largest counts and not the sum.
        Largest,
        /// |x - y|^p
        Power,
        /// |x - y| / (|x| + |y|), 0 of two zeros.
        Canberra,
        /// |x + y|
        Sum,
        /// 1 unless x = y.
        Unequal,
        /// 1 if neither is 0.
        Both,
        /// 1 if exactly one of them is 0.
        One,
        /// 1
        Count,
        /// x
        X,
        /// y
        Y,
        /// x²
        XSquare,
        /// y²
        YSquare,
        /// √(x y)
        Root,
        /// x log(x / y); 0 where x is 0, and x log x where y is.
        Relative,
        /// x log(2 x / (x + y)) + y log(2 y / (x + y)).
        Divergence,
    }
}

impl Term {
    /// True for terms that are whole numbers where the elements are.
    pub(crate) const fn is_whole(self) -> bool {
        !matches!(self, Self::Power | Self::Canberra | Self::Root | Self::Relative | Self::Divergence)
    }

    /// The powers of a factor of x, and of one of y, that the term grows by; of terms of differences and sums, where both have the same
    /// factor, that is all in the first.
    pub(crate) const fn degrees(self, power: f64) -> [f64; 2] {
        match self {
            Self::Product => [1.0, 1.0],
            Self::Square | Self::XSquare => [2.0, 0.0],
            Self::YSquare => [0.0, 2.0],
            Self::Absolute | Self::Largest | Self::Sum | Self::X => [1.0, 0.0],
            Self::Y => [0.0, 1.0],
            Self::Power => [power, 0.0],
            _ => [0.0; 2],
        }
    }

    /// Roughly, how many products take as long.
    pub(crate) const fn cost(self) -> u64 {
        match self {
            Self::Power | Self::Relative | Self::Divergence => 16,
            Self::Canberra | Self::Root => 4,
            _ => 1,
        }
    }
}

/// Terms that most are asked for have programs of their own, and all others one; as many compute in f64, where `wide`.
pub(crate) fn spec(term: Term, masked: bool, wide: bool) -> [(&'static str, u32); 4] {
    let own = !masked && matches!(term, Term::Square | Term::Absolute);
    let term = if own { term as u32 } else { 0 };
    [("TILE", TILE), ("TERM", term), ("MASKED", masked.into()), ("WIDE", wide.into())]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    let kinds =
        [(Term::Square, false), (Term::Absolute, false), (Term::Product, false), (Term::Product, true)];
    let specs_of = |(term, masked)| [false, true].map(|wide| spec(term, masked, wide).to_vec());
    kinds.into_iter().flat_map(specs_of).collect()
}

/// Observations of x that one task takes.
const BAND: usize = 64;
/// Pairs whose sums are in registers: observations of x, and of y, which are lanes of vectors.
const ROWS: usize = 4;
const COLS: usize = 32;

/// A block of features of some observations, side by side.
type FeatureBlock<R, const W: usize> = [[R; W]; BLOCK];

/// An operand as stored.
struct ObservationSource<'a, R> {
    arg: CpuArg<'a>,
    dtype: DType,
    start: usize,
    stride: usize,
    by_column: bool,
    /// The two parts of what is subtracted from an observation's elements, and what the difference is multiplied by.
    table: &'a [[R; 3]],
    /// True if negative elements are missing, which are made NaN.
    negative: bool,
}

impl<R: Real> ObservationSource<'_, R> {
    /// Up to `W` observations from `first` on, and `depth` features from `feature` on; any numbers for those that are not there.
    fn pack<const W: usize>(
        &self,
        first: usize,
        feature: usize,
        depth: usize,
        panel: &mut FeatureBlock<R, W>,
    ) {
        let count = W.min(self.table.len() - first);
        let mut line = [R::default(); BLOCK];
        if self.by_column {
            for (f, out) in panel[..depth].iter_mut().enumerate() {
                let start = self.start + (feature + f) * self.stride + first;
                load(&self.arg, self.dtype, start, &mut out[..count]);
            }
        } else {
            for lane in 0..count {
                let start = self.start + (first + lane) * self.stride + feature;
                load(&self.arg, self.dtype, start, &mut line[..depth]);
                panel.iter_mut().zip(&line[..depth]).for_each(|(out, &value)| out[lane] = value);
            }
        }
        let table: [[R; 3]; W] = std::array::from_fn(|lane| self.table[first + lane.min(count - 1)]);
        for out in &mut panel[..depth] {
            for (value, [shift, rest, scale]) in out.iter_mut().zip(table) {
                let missing = self.negative && *value < R::default();
                *value = if missing { R::from(f32::NAN) } else { (*value - shift - rest) * scale };
            }
        }
    }
}

fn distance(launch: CpuLaunch<'_>) {
    if launch.constant("WIDE") != 0 { distance_in::<f64>(launch) } else { distance_in::<f32>(launch) }
}

fn distance_in<R: Real>(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let masked = launch.constant("MASKED") != 0;
    let cancel = launch.cancel();
    let [x, y, x_table, y_table, sums] = launch.args();
    let (m, n, k, lds) = (p.m as usize, p.n as usize, p.k as usize, p.lds as usize);
    let table = |arg: &'_ CpuArg<'_>, first: u32, len: usize| {
        arg.read::<R>()[first as usize..].as_chunks::<3>().0[..len].to_vec()
    };
    let (x_table, y_table) = (table(&x_table, p.x_table0, m), table(&y_table, p.y_table0, n));
    let operand = |arg, dtype, start, stride, table| ObservationSource {
        arg,
        dtype: DType::from_code(dtype),
        start: start as usize,
        stride: stride as usize,
        by_column: p.by_column != 0,
        table,
        negative: masked && p.negative != 0,
    };
    let x = operand(x, p.x_type, p.x0, p.ldx, &x_table[..]);
    let y = operand(y, p.y_type, p.y0, p.ldy, &y_table[..]);
    let sums = &mut sums.write::<R::Sum>()[p.sums0 as usize..][..(m - 1) * lds + n];
    if p.accumulate == 0 {
        sums.par_chunks_mut(lds).for_each(|row| row[..n].fill(R::Sum::zeroed()));
    }
    let mut panels = vec![[[R::default(); COLS]; BLOCK]; n.div_ceil(COLS)];
    for feature in (0..k).step_by(BLOCK) {
        let depth = BLOCK.min(k - feature);
        let packed = panels.par_iter_mut().enumerate();
        packed.for_each(|(i, panel)| y.pack(i * COLS, feature, depth, panel));
        sums.par_chunks_mut(BAND * lds).enumerate().for_each(|(band, sums)| {
            let mut left = [[R::default(); ROWS]; BLOCK];
            for (group, sums) in sums.chunks_mut(ROWS * lds).enumerate() {
                if Cancel::is_set(cancel) {
                    return;
                }
                let row = band * BAND + group * ROWS;
                x.pack(row, feature, depth, &mut left);
                for (i, panel) in panels.iter().enumerate() {
                    let (col, last_row) = (i * COLS, (row + ROWS).min(m) - 1);
                    if p.lower != 0 && p.row0 as usize + last_row < p.col0 as usize + col {
                        break;
                    }
                    let tile = tile(&p, masked, &left[..depth], &panel[..depth]);
                    for (sums, tile) in sums.chunks_mut(lds).zip(&tile) {
                        let sums = &mut sums[col..n.min(col + COLS)];
                        sums.iter_mut().zip(tile).for_each(|(sum, &value)| R::fold(&p, sum, value));
                    }
                }
            }
        });
    }
}
