//! Sums over features for pairs of observations: sums[i, j] (+)= Σ term(x[i, f], y[j, f]), or the largest term.

mod real;
mod tile;

use std::ops::Range;

use bytemuck::Zeroable;
use pulp::NullaryFnOnce;
use rayon::prelude::*;

use self::{real::Real, tile::tile};
use super::cpu::{load::load, simd::wide};
use crate::{
    Cancel, DType,
    kernel::{CpuArg, CpuLaunch, Kernel, codes, kernel, params},
};

params! {
    /// Parameters of the kernel: extents, row strides and offsets, in elements.
    pub(crate) struct Params {
        /// The numbers of observations of x and of y, and of features.
        pub(crate) m: u32,
        pub(crate) n: u32,
        pub(crate) k: u32,
        pub(crate) ldx: u32,
        pub(crate) ldy: u32,
        /// The number of pairs from one row of the sums to the next.
        pub(crate) lds: u32,
        pub(crate) x0: u32,
        pub(crate) y0: u32,
        /// The offsets of the tables, in entries, and of the sums, in pairs.
        pub(crate) x_table0: u32,
        pub(crate) y_table0: u32,
        pub(crate) sums0: u32,
        /// Codes of the elements' types.
        pub(crate) x_type: u32,
        pub(crate) y_type: u32,
        /// 1 if observations are the columns of x and y.
        pub(crate) by_column: u32,
        /// 1 if negative elements are missing, in programs that leave missing elements out.
        pub(crate) negative: u32,
        /// 1 if terms are added to the existing sums.
        pub(crate) accumulate: u32,
        /// 1 if pairs above the diagonal are left out; and the row and column of this panel's corner in the whole result.
        pub(crate) lower: u32,
        pub(crate) row0: u32,
        pub(crate) col0: u32,
        /// A [`Term`].
        pub(crate) term: u32,
        /// The exponent of [`Term::Power`] as f32, and its bits as f64.
        pub(crate) power: f32,
        pub(crate) power_low: u32,
        pub(crate) power_high: u32,
        /// 0, or the number of observations of y from those that one row of tiles is paired with to those of the next.
        pub(crate) y_step: u32,
    }
}

pub(crate) static DISTANCE: Kernel<Params> =
    kernel!("distance", Params, [Read, Read, Read, Read, ReadWrite], distance, specs, [Term]);

/// The number of observations along each side of a workgroup's tile.
pub(crate) const TILE: u32 = 64;
/// The number of features whose terms are added in f32 before they are added to the running sum. The running sum is two
/// numbers, a sum and its rounding error. So sums of whole numbers are exact if the sum of each such block is below
/// 2^24, as for squared differences of bytes. If `WIDE`, both are in f64, and the running sum is one number.
pub(crate) const BLOCK: usize = 256;

codes! {
    /// A term, computed from two elements, that is added to the sum of their pair.
    pub(crate) enum Term {
        /// x y
        Product = 1,
        /// (x - y)²
        Square,
        /// |x - y|
        Absolute,
        /// |x - y|, of which the maximum is taken instead of the sum.
        Largest,
        /// |x - y|^p
        Power,
        /// |x - y| / (|x| + |y|), or 0 if both are 0.
        Canberra,
        /// |x + y|
        Sum,
        /// 1 unless x = y.
        Unequal,
        /// 1 if neither is 0.
        Both,
        /// 1 if exactly one of x and y is 0.
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
        /// x log(x / y); 0 if x is 0, and x log x if y is 0.
        Relative,
        /// x log(2 x / (x + y)) + y log(2 y / (x + y)).
        Divergence,
    }
}

impl Term {
    /// Returns true if the term of whole numbers is a whole number.
    pub(crate) const fn is_whole(self) -> bool {
        !matches!(self, Self::Power | Self::Canberra | Self::Root | Self::Relative | Self::Divergence)
    }

    /// Returns the powers of a factor of x, and of a factor of y, by which the term grows. For terms of differences and
    /// sums, x and y have the same factor, and the first power is that of both.
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

    /// Returns roughly the number of products that take as long as the term.
    pub(crate) const fn cost(self) -> u64 {
        match self {
            Self::Power | Self::Relative | Self::Divergence => 16,
            Self::Canberra | Self::Root => 4,
            _ => 1,
        }
    }
}

/// Returns the constants of a program. The most common terms have programs of their own, and all others share one; `wide` computes in f64.
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

/// The maximum number of blocks of features whose sums of a tile are added up before they are stored.
const BLOCKS: usize = 4;
/// The number of observations of y up to which that many are: their packed elements take 32 MiB at most.
const FEW: usize = 4096;
/// The number of observations of x that one task takes: a row of tiles.
const BAND: usize = TILE as usize;
/// The pairs whose sums are in registers: `ROWS` observations of x by `COLS` of y, which are lanes of vectors.
const ROWS: usize = 4;
const COLS: usize = 32;

/// An operand as it is stored.
struct ObservationSource<'a, R> {
    arg: CpuArg<'a>,
    dtype: DType,
    start: usize,
    stride: usize,
    by_column: bool,
    /// For each observation: the two parts of the shift that is subtracted from its elements, and the factor of the difference.
    table: &'a [[R; 3]],
    /// True if negative elements are missing and replaced by NaN.
    negative: bool,
}

impl<R: Real> ObservationSource<'_, R> {
    /// Writes up to `W` observations from `first` on to `panel`, feature by feature from `feature` on. Absent observations get any values.
    fn pack<const W: usize>(&self, first: usize, feature: usize, panel: &mut [[R; W]]) {
        let count = W.min(self.table.len() - first);
        if self.by_column {
            for (f, out) in panel.iter_mut().enumerate() {
                let start = self.start + (feature + f) * self.stride + first;
                load(&self.arg, self.dtype, start, &mut out[..count]);
            }
        } else {
            let mut line = [R::default(); BLOCK];
            for (block, panel) in panel.chunks_mut(BLOCK).enumerate() {
                for lane in 0..count {
                    let start = self.start + (first + lane) * self.stride + feature + block * BLOCK;
                    load(&self.arg, self.dtype, start, &mut line[..panel.len()]);
                    panel.iter_mut().zip(&line).for_each(|(out, &value)| out[lane] = value);
                }
            }
        }
        let table = std::array::from_fn(|column| {
            std::array::from_fn(|lane| self.table[first + lane.min(count - 1)][column])
        });
        wide(Prepare { negative: self.negative, table, panel });
    }
}

/// Subtracts the shift of each observation from its elements, and multiplies the differences by the factor.
struct Prepare<'a, R, const W: usize> {
    negative: bool,
    table: [[R; W]; 3],
    panel: &'a mut [[R; W]],
}

impl<R: Real, const W: usize> NullaryFnOnce for Prepare<'_, R, W> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let [shifts, rests, scales] = self.table;
        for out in self.panel {
            for (lane, value) in out.iter_mut().enumerate() {
                let missing = self.negative & (*value < R::default());
                let prepared = (*value - shifts[lane] - rests[lane]) * scales[lane];
                *value = if missing { R::from(f32::NAN) } else { prepared };
            }
        }
    }
}

/// The running sums of a tile's pairs.
type TileSums<R> = [[<R as Real>::Sum; COLS]; ROWS];

/// Adds the sums of a block of features to the running sums of a tile, or keeps the larger terms.
struct Fold<'a, R: Real> {
    largest: bool,
    sums: &'a mut TileSums<R>,
    tile: &'a [[R; COLS]; ROWS],
}

impl<R: Real> NullaryFnOnce for Fold<'_, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (sums, tile) in self.sums.iter_mut().zip(self.tile) {
            for (sum, &value) in sums.iter_mut().zip(tile) {
                if self.largest { R::keep_larger(sum, value) } else { R::fold(sum, value) }
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
    // With a step, each band of observations of x has observations of y of its own.
    let (step, bands) = (p.y_step as usize, if p.y_step == 0 { 1 } else { m.div_ceil(BAND) });
    let (x_table, y_table) =
        (table(&x_table, p.x_table0, m), table(&y_table, p.y_table0, (bands - 1) * step + n));
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
    let deepest = if bands * n <= FEW { BLOCKS * BLOCK } else { BLOCK };
    let (depth, own) = (k.min(deepest), n.div_ceil(COLS));
    let mut panels = vec![[R::default(); COLS]; bands * own * depth];
    for feature in (0..k).step_by(deepest) {
        let depth = depth.min(k - feature);
        let panels = &mut panels[..bands * own * depth];
        panels.par_chunks_mut(depth).enumerate().for_each(|(i, panel)| {
            y.pack(i / own * step + i % own * COLS, feature, panel);
        });
        sums.par_chunks_mut(BAND * lds).enumerate().for_each(|(band, sums)| {
            let row_of = |group| band * BAND + group * ROWS;
            let groups = sums.len().div_ceil(ROWS * lds);
            let mut left = vec![[R::default(); ROWS]; groups * depth];
            left.chunks_mut(depth).enumerate().for_each(|(group, left)| x.pack(row_of(group), feature, left));
            let mut tiles = vec![TileSums::<R>::zeroed(); groups];
            let first = if step == 0 { 0 } else { band * own * depth };
            for (i, panel) in panels[first..][..own * depth].chunks(depth).enumerate() {
                if Cancel::is_set(cancel) {
                    return;
                }
                let columns = i * COLS..n.min((i + 1) * COLS);
                // The first group with pairs on or below the diagonal.
                let top = (0..groups).find(|&group| {
                    let last_row = (row_of(group) + ROWS).min(m) - 1;
                    p.lower == 0 || p.row0 as usize + last_row >= p.col0 as usize + columns.start
                });
                let Some(top) = top else { break };
                let (tiles, sums) = (&mut tiles[top..], &mut sums[top * ROWS * lds..]);
                add_panel((&p, masked), (&left[top * depth..], panel), columns, tiles, sums);
            }
        });
    }
}

/// Adds the terms of a panel to the running sums of some observations of x. `tiles` is room for the sums of as many.
fn add_panel<R: Real>(
    (p, masked): (&Params, bool),
    (left, panel): (&[[R; ROWS]], &[[R; COLS]]),
    columns: Range<usize>,
    tiles: &mut [TileSums<R>],
    sums: &mut [R::Sum],
) {
    let (lds, largest) = (p.lds as usize, p.term == Term::Largest as u32);
    for (tile, sums) in tiles.iter_mut().zip(sums.chunks(ROWS * lds)) {
        for (tile, sums) in tile.iter_mut().zip(sums.chunks(lds)) {
            tile[..columns.len()].copy_from_slice(&sums[columns.clone()]);
        }
    }
    // A block of the panel stays in the first cache for all rows of the band, as the tiles do for all blocks.
    for (b, block) in panel.chunks(BLOCK).enumerate() {
        let lefts = left.chunks(panel.len()).map(|left| &left[b * BLOCK..][..block.len()]);
        for (left, sums) in lefts.zip(&mut *tiles) {
            wide(Fold { largest, sums, tile: &tile(p, masked, left, block) });
        }
    }
    for (tile, sums) in tiles.iter().zip(sums.chunks_mut(ROWS * lds)) {
        for (tile, sums) in tile.iter().zip(sums.chunks_mut(lds)) {
            sums[columns.clone()].copy_from_slice(&tile[..columns.len()]);
        }
    }
}
