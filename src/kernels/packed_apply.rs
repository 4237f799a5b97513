//! Multiplies packed rows by limbs, in whole numbers.

use bytemuck::{cast_slice, cast_slice_mut};
use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::{
    cpu::{
        dot::{Dot, Path, Work, is_dense},
        limbs::{join, limbs, multiple},
        quads::{DEPTH, Quads, RowTile, Walk, one, quad},
        sparse::{Split, code, most_codes},
    },
    workgroups_in,
};
use crate::{
    Cancel,
    kernel::{CpuLaunch, Kernel, kernel, params},
};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        /// The number of words of a row.
        pub(crate) words: u32,
        pub(crate) columns: u32,
        /// The number of bytes of a row of limbs: a multiple of 16, and at least 3 `columns`.
        pub(crate) row_limbs: u32,
        /// The offset of each operand, in words.
        pub(crate) packed0: u32,
        pub(crate) table0: u32,
        pub(crate) out0: u32,
        /// Always 0, which compilers cannot know.
        pub(crate) zero: u32,
    }
}

pub(crate) static PACKED_APPLY: Kernel<Params> =
    kernel!("packed_apply", Params, [Read, Read, Read, Read, Write], packed_apply, specs);

/// The number of rows of a workgroup.
pub(crate) const TILE: u32 = 64;
/// The number of rows of a workgroup if there are many rows: larger tiles read limbs less often.
pub(crate) const LARGE_TILE: u32 = 256;

/// Returns the number of workgroups with large tiles that a CUDA multiprocessor with some shared memory runs at a time, if no code is
/// missing. Its registers are enough for two.
pub(crate) fn at_once(memory: u32) -> u32 {
    workgroups_in(memory, 33_040).clamp(1, 2)
}

pub(crate) fn spec(tile: u32, missing: bool, limbs: bool) -> [(&'static str, u32); 3] {
    [("TILE", tile), ("MISSING", missing.into()), ("AS_LIMBS", limbs.into())]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    let specs_of = |tile| kinds.map(|(missing, limbs)| spec(tile, missing, limbs).to_vec());
    [TILE, LARGE_TILE].into_iter().flat_map(specs_of).collect()
}

/// The number of rows of a task: a multiple of 4, so that whole words of weights are written, and of the rows of any tile.
const BLOCK: usize = 48;
/// The number of columns that are rounded at a time: loops of this length are vectorised, while shorter ones may be unrolled first.
const PART: usize = 32;

fn packed_apply(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let (missing, as_limbs) = (launch.constant("MISSING") != 0, launch.constant("AS_LIMBS") != 0);
    let cancel = launch.cancel();
    let [packed, xs, table, columns, out] = launch.args();
    let (rows, words, cols, row_limbs) =
        (p.rows as usize, p.words as usize, p.columns as usize, p.row_limbs as usize);
    let columns = &columns.read::<f32>().as_chunks::<2>().0[..cols];
    let product = Operands {
        packed: &packed.read::<u32>()[p.packed0 as usize..][..rows * words],
        words,
        xs: &xs.read::<u32>()[..4 * words * row_limbs],
        row_limbs,
        table: &table.read::<f32>()[p.table0 as usize..].as_chunks::<2>().0[..rows],
        totals: &parts(columns, 0),
        scales: &parts(columns, 1),
        cols,
        missing,
        cancel,
    };
    if as_limbs {
        let len = rows.div_ceil(4) * product.width();
        let out = &mut out.write::<u32>()[p.out0 as usize..][..len];
        Path::best().run(Limbs { product, out });
    } else {
        let out = &mut out.write::<f32>()[p.out0 as usize..][..rows * cols];
        Path::best().run(Values { product, out });
    }
}

/// Returns one of the two numbers of each column, in whole parts padded with zeros.
fn parts(columns: &[[f32; 2]], which: usize) -> Vec<[f32; PART]> {
    let part = |columns: &[[f32; 2]]| std::array::from_fn(|i| columns.get(i).map_or(0.0, |pair| pair[which]));
    columns.chunks(PART).map(part).collect()
}

/// The operands.
#[derive(Clone, Copy)]
struct Operands<'a> {
    packed: &'a [u32],
    words: usize,
    xs: &'a [u32],
    row_limbs: usize,
    table: &'a [[f32; 2]],
    /// The sum of multiples of each column, and its factor.
    totals: &'a [[f32; PART]],
    scales: &'a [[f32; PART]],
    cols: usize,
    missing: bool,
    /// The flag that skips all blocks that have not begun.
    cancel: Option<&'a Cancel>,
}

impl Operands<'_> {
    /// Returns the number of words of four rows of weights.
    const fn width(&self) -> usize {
        if self.missing { 2 * self.row_limbs } else { self.row_limbs }
    }
}

/// The product with f32 output: (rows, columns).
struct Values<'a> {
    product: Operands<'a>,
    out: &'a mut [f32],
}

impl Work for Values<'_> {
    fn run<D: Dot, const NARROW: usize, const WIDE: usize>(self, dot: D) {
        let product = self.product;
        self.out.par_chunks_mut(BLOCK * product.cols).enumerate().for_each(|(block, out)| {
            if Cancel::is_set(product.cancel) {
                return;
            }
            let rows = out.len() / product.cols;
            let block = RowBlock::<D, NARROW, WIDE> { dot, product, first: block * BLOCK, rows };
            dot.vectorize(ValuesBlock { block, out });
        });
    }
}

/// The product with limbs of weights as output: (⌈rows / 4⌉, width) words.
struct Limbs<'a> {
    product: Operands<'a>,
    out: &'a mut [u32],
}

impl Work for Limbs<'_> {
    fn run<D: Dot, const NARROW: usize, const WIDE: usize>(self, dot: D) {
        let product = self.product;
        self.out.par_chunks_mut(BLOCK / 4 * product.width()).enumerate().for_each(|(block, out)| {
            if Cancel::is_set(product.cancel) {
                return;
            }
            let first = block * BLOCK;
            let rows = BLOCK.min(product.table.len() - first);
            let block = RowBlock::<D, NARROW, WIDE> { dot, product, first, rows };
            dot.vectorize(LimbsBlock { block, out });
        });
    }
}

/// The rows of a task.
#[derive(Clone, Copy)]
struct RowBlock<'a, D, const NARROW: usize, const WIDE: usize> {
    dot: D,
    product: Operands<'a>,
    first: usize,
    rows: usize,
}

struct ValuesBlock<'a, D, const NARROW: usize, const WIDE: usize> {
    block: RowBlock<'a, D, NARROW, WIDE>,
    out: &'a mut [f32],
}

impl<D: Dot, const NARROW: usize, const WIDE: usize> NullaryFnOnce for ValuesBlock<'_, D, NARROW, WIDE> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { block, out } = self;
        let p = block.product;
        let sums = block.sums();
        for (row, out) in out.chunks_exact_mut(p.cols).enumerate() {
            for (part, (out, scales)) in out.chunks_mut(PART).zip(p.scales).enumerate() {
                let values = block.values(&sums, row, part);
                let mut y = [0.0; PART];
                for c in 0..PART {
                    y[c] = values.at(c) * scales[c];
                }
                out.copy_from_slice(&y[..out.len()]);
            }
        }
    }
}

struct LimbsBlock<'a, D, const NARROW: usize, const WIDE: usize> {
    block: RowBlock<'a, D, NARROW, WIDE>,
    out: &'a mut [u32],
}

impl<D: Dot, const NARROW: usize, const WIDE: usize> NullaryFnOnce for LimbsBlock<'_, D, NARROW, WIDE> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { block, out } = self;
        let p = block.product;
        let sums = block.sums();
        for (four, out) in out.chunks_exact_mut(p.width()).enumerate() {
            for part in 0..p.scales.len() {
                if p.missing {
                    put(&block.weights::<2>(&sums, four, part), p, part, out);
                } else {
                    put(&block.weights::<1>(&sums, four, part), p, part, out);
                }
            }
            for out in out.chunks_exact_mut(p.row_limbs) {
                out[3 * p.cols..].fill(0);
            }
        }
    }
}

/// Writes the limbs of a part of the columns of four rows to their places.
#[inline(always)]
fn put(sets: &[[[u32; PART]; 3]], p: Operands<'_>, part: usize, out: &mut [u32]) {
    let len = PART.min(p.cols - PART * part);
    for (out, limbs) in out.chunks_exact_mut(p.row_limbs).zip(sets) {
        for (limb, words) in limbs.iter().enumerate() {
            out[limb * p.cols + PART * part..][..len].copy_from_slice(&words[..len]);
        }
    }
}

/// The sums of a block's codes (missing ones count as 3), and the sums of the limbs of missing entries. Both are
/// (places, row limbs), with space for a vector read past the end.
struct Sums {
    codes: Vec<u32>,
    absent: Vec<u32>,
    /// The place of each row.
    places: [usize; BLOCK],
}

impl<D: Dot, const NARROW: usize, const WIDE: usize> RowBlock<'_, D, NARROW, WIDE> {
    #[inline(always)]
    fn sums(&self) -> Sums {
        let p = &self.product;
        let len = BLOCK * p.row_limbs + PART;
        let absent = if p.missing { vec![0; len] } else { Vec::new() };
        let mut sums = Sums { codes: vec![0; len], absent, places: [0; BLOCK] };
        let packed = &p.packed[self.first * p.words..][..self.rows * p.words];
        let split = Split::new(self.dot, packed, p.words);
        for (place, &row) in split.order.iter().enumerate() {
            sums.places[row as usize] = place;
        }
        self.add_dense(packed, &split.order[..split.dense], &mut sums);
        let any_sparse = split.dense < split.order.len();
        let mut bits = vec![0; if any_sparse { most_codes(p.words) + 16 } else { 0 }];
        for (place, &row) in split.order.iter().enumerate().skip(split.dense) {
            let row = &packed[row as usize * p.words..][..p.words];
            let place = place * p.row_limbs..(place + 1) * p.row_limbs;
            let used = self.dot.list::<true>(row, &mut bits);
            let code = |bit: &u32| (quad(*bit), code(row, *bit) << (bit & 24));
            self.walk(bits[..used].iter().map(code), p.xs, &mut sums.codes[place.clone()]);
            if p.missing {
                let used = self.dot.list::<false>(row, &mut bits);
                self.walk(bits[..used].iter().map(one), p.xs, &mut sums.absent[place]);
            }
        }
        sums
    }

    /// Adds the products of these rows, which have the first places.
    #[inline(always)]
    fn add_dense(&self, packed: &[u32], rows: &[u32], sums: &mut Sums) {
        let p = &self.product;
        let mut quads = [Quads::default(); NARROW];
        let mut bits = [0; 16 * DEPTH + 16];
        for word in (0..p.words).step_by(DEPTH) {
            let count = DEPTH.min(p.words - word);
            let xs = &p.xs[4 * word * p.row_limbs..][..4 * count * p.row_limbs];
            for (first, rows) in (0..).step_by(NARROW).zip(rows.chunks(NARROW)) {
                // Places past the last row get zeros added.
                let place = first * p.row_limbs..(first + NARROW) * p.row_limbs;
                let mut parts = [&[][..]; NARROW];
                for (&row, part) in rows.iter().zip(&mut parts) {
                    *part = &packed[row as usize * p.words + word..][..count];
                }
                for (quads, part) in quads.iter_mut().zip(parts) {
                    quads.decode::<false>(part);
                }
                self.add(&quads, count, xs, &mut sums.codes[place.clone()]);
                if p.missing {
                    let sums = &mut sums.absent[place];
                    let mut holding = 0;
                    for part in parts {
                        holding += self.dot.holding::<false>(part);
                    }
                    if is_dense(holding, NARROW * count) {
                        for (quads, part) in quads.iter_mut().zip(parts) {
                            quads.decode::<true>(part);
                        }
                        self.add(&quads, count, xs, sums);
                    } else if holding > 0 {
                        for (part, sums) in parts.iter().zip(sums.chunks_exact_mut(p.row_limbs)) {
                            let used = self.dot.list::<false>(part, &mut bits);
                            self.walk(bits[..used].iter().map(one), xs, sums);
                        }
                    }
                }
            }
        }
    }

    /// Adds the products of `NARROW` rows to their sums.
    #[inline(always)]
    fn add(&self, quads: &[Quads; NARROW], words: usize, xs: &[u32], sums: &mut [u32]) {
        let (xs, sums) = (cast_slice(xs), cast_slice_mut(sums));
        let stride = self.product.row_limbs * 4 / size_of::<D::Words>();
        for first in (0..stride).step_by(WIDE) {
            let tile = RowTile { quads, words, xs, stride, first };
            match WIDE.min(stride - first) {
                1 => tile.add::<D, 1>(self.dot, sums),
                2 => tile.add::<D, 2>(self.dot, sums),
                3 => tile.add::<D, 3>(self.dot, sums),
                _ => tile.add::<D, WIDE>(self.dot, sums),
            }
        }
    }

    /// Adds the limbs of some entries of a row, each times the number in the entry's byte.
    #[inline(always)]
    fn walk(&self, ones: impl Iterator<Item = (u32, u32)> + Clone, xs: &[u32], sums: &mut [u32]) {
        let (xs, sums) = (cast_slice(xs), cast_slice_mut(sums));
        let stride = sums.len();
        for first in (0..stride).step_by(WIDE) {
            let walk = Walk { ones: ones.clone(), xs, stride, first };
            match WIDE.min(stride - first) {
                1 => walk.add::<D, 1>(self.dot, sums),
                2 => walk.add::<D, 2>(self.dot, sums),
                3 => walk.add::<D, 3>(self.dot, sums),
                _ => walk.add::<D, WIDE>(self.dot, sums),
            }
        }
    }

    /// Returns the limbs of the weights of some columns of four rows. With two sets, the second has the limbs of the weights times the rows' means.
    #[inline(always)]
    fn weights<const SETS: usize>(&self, sums: &Sums, four: usize, part: usize) -> [[[u32; PART]; 3]; SETS] {
        let scales = &self.product.scales[part];
        let mut words = [[[0; PART]; 3]; SETS];
        for row in 0..4 {
            let values = self.values(sums, 4 * four + row, part);
            for c in 0..PART {
                let weight = values.at(c) * values.factor * scales[c];
                for (set, words) in words.iter_mut().enumerate() {
                    let limbs = limbs(multiple(if set == 0 { weight } else { weight * values.mean }));
                    for (words, limb) in words.iter_mut().zip(limbs) {
                        words[c] |= u32::from(limb.cast_unsigned()) << (8 * row);
                    }
                }
            }
        }
        words
    }

    /// Returns the terms of a row's result y for some columns; zeros past the last row.
    #[inline(always)]
    fn values<'a>(&self, sums: &'a Sums, row: usize, part: usize) -> RowValues<'a>
    where
        Self: 'a,
    {
        let p = self.product;
        let [mean, factor] = p.table.get(self.first + row).copied().unwrap_or_default();
        let place = sums.places[row];
        let limbs = |sums: &'a [u32]| -> [&'a [u32; PART]; 3] {
            [0, 1, 2].map(|t| &sums[place * p.row_limbs + t * p.cols + PART * part..].as_chunks().0[0])
        };
        let absent = p.missing.then(|| limbs(&sums.absent));
        RowValues { mean, factor, totals: p.totals[part], codes: limbs(&sums.codes), absent }
    }
}

/// The terms of which a row's result y is computed, for some columns.
struct RowValues<'a> {
    mean: f32,
    factor: f32,
    totals: [f32; PART],
    codes: [&'a [u32; PART]; 3],
    absent: Option<[&'a [u32; PART]; 3]>,
}

impl RowValues<'_> {
    /// Returns the y of a column, before it is multiplied by the column's factor.
    #[inline(always)]
    fn at(&self, c: usize) -> f32 {
        let codes = self.codes.map(|limb| limb[c]);
        let (sum, present) = if let Some(absent) = self.absent {
            let absent = absent.map(|limb| limb[c]);
            let [low, middle, high] = [0, 1, 2].map(|t| codes[t].wrapping_sub(absent[t].wrapping_mul(3)));
            (join([low, middle, high]), self.totals[c] - join(absent))
        } else {
            (join(codes), self.totals[c])
        };
        (sum - self.mean * present) * self.factor
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "test sizes are small")]
mod tests;
