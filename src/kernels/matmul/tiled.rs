//! Products on the cpu, in tiles that run in parallel. The order in which the terms of an element are added does not depend on the tiles.

use faer::{
    Accum, Mat, MatMut, MatRef, Par,
    linalg::matmul::{
        matmul as tile_matmul,
        triangular::{self, BlockStructure},
    },
    reborrow::*,
};
use rayon::prelude::*;

use super::{DEPTH, Scalar, THIN, pieces};
use crate::{Cancel, Limits, kernels::cpu::simd::end_wide};

/// The minimum number of rows and of columns of a tile of c, if c has as many and threads choose the tile: those of the largest register tile
/// (AVX-512). Thinner tiles would be computed in another way, with other roundings.
const LEAST_CPU_TILE: usize = 96;
/// The maximum number of rows and of columns of a tile of c. The operands of larger tiles leave the cache.
const LARGEST_CPU_TILE: usize = 1024;
/// The number of sizes of tiles that are compared along each axis.
const MOST_SIZES: usize = 32;
/// The number of columns whose products with a row of an operand take as long as the copy of that row.
const COPY: f64 = 15.0;
/// The minimum length of rows of the larger operand of a thin product for which tiles have few rows, which processors fetch ahead.
const LONG_ROWS: usize = 512;
/// The number of rows of such a tile.
const FEW_ROWS: usize = 32;
/// The maximum number of columns of a product whose first operand is transposed, for which tiles are computed column by column. These are
/// contiguous in that operand, and are copied to the rows of c at the end.
const NARROW: usize = 64;
/// The number of terms that are multiplied at a time for few columns, so that rows of the operands stay in the first cache.
const NEAR: usize = 64;
/// The maximum number of terms of a sum in f32.
const TERMS: usize = Limits::TERMS as usize;

/// A product whose tiles run in parallel, each on one thread. Each element is a sum in the order of k, in tiles of any size.
pub(super) struct TiledProduct<'a, R: Scalar> {
    pub(super) a: MatRef<'a, R>,
    pub(super) b: MatRef<'a, R>,
    pub(super) accum: Accum,
    /// The row and column of c's corner in the whole result, if only the lower triangle is computed.
    pub(super) diagonal: Option<(usize, usize)>,
    /// The flag that skips all terms that have not begun.
    pub(super) cancel: Option<&'a Cancel>,
}

impl<R: Scalar> TiledProduct<'_, R> {
    pub(super) fn run(&self, c: MatMut<'_, R>) {
        let [m, n] = [c.nrows(), c.ncols()];
        let [height, width] = if n <= THIN && self.a.col_stride() == 1 && self.a.ncols() >= LONG_ROWS {
            [FEW_ROWS, n]
        } else {
            tile([m, n], self.diagonal.is_some(), threads())
        };
        c.par_row_chunks_mut(height).enumerate().for_each(|(i, band)| {
            band.par_col_chunks_mut(width).enumerate().for_each(|(j, tile)| {
                self.tile(i * height, j * width, tile);
            });
        });
    }

    fn tile(&self, row: usize, col: usize, mut c: MatMut<'_, R>) {
        let operands = [self.a.subrows(row, c.nrows()), self.b.subcols(col, c.ncols())];
        let diagonal = self.diagonal.map(|(row0, col0)| (row0 + row, col0 + col));
        if diagonal.is_some_and(|(row, col)| row + c.nrows() <= col) {
            return;
        }
        if self.diagonal.is_none() && self.a.row_stride() == 1 && c.ncols() <= NARROW {
            return put(c, self.accum, &near_product(operands, self.cancel));
        }
        let lower = diagonal.is_some_and(|(row, col)| row == col) && c.nrows() == c.ncols();
        let terms = if R::DTYPE.is_wide() { DEPTH } else { TERMS };
        in_terms(operands, terms, self.accum, self.cancel, |[a, b], accum| {
            // A product of one term is rounded twice in a triangle, and once in other tiles.
            if lower && a.ncols() > 1 {
                let (whole, lower) = (BlockStructure::Rectangular, BlockStructure::TriangularLower);
                triangular::matmul(c.rb_mut(), lower, accum, a, whole, b, whole, R::one_impl(), Par::Seq);
            } else {
                add_product(c.rb_mut(), accum, [a, b]);
            }
        });
        end_wide();
    }
}

/// Returns the number of threads that tiles are chosen for: those of the device, where faer rounds alike in tiles of any size, or else a
/// constant.
fn threads() -> usize {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        return rayon::current_num_threads();
    }
    16
}

/// Returns the number of rows and of columns of a tile with which some threads compute c of these extents, or its lower triangle, soonest:
/// all tiles of a round take as long as their arithmetic and the copies of their operands.
fn tile([m, n]: [usize; 2], lower: bool, threads: usize) -> [usize; 2] {
    let sizes = |len: usize| {
        let fewest = len.div_ceil(LARGEST_CPU_TILE);
        let sizes = (fewest..=len / LEAST_CPU_TILE).take(MOST_SIZES).map(move |parts| len.div_ceil(parts));
        sizes.filter(move |size| (len - 1) % size + 1 >= LEAST_CPU_TILE).chain((fewest <= 1).then_some(len))
    };
    let at_once = if lower { 2 * threads } else { threads };
    let time = |[height, width]: [usize; 2]| {
        let rounds = (m.div_ceil(height) * n.div_ceil(width)).div_ceil(at_once);
        // The last tile of a round takes a little longer than the others.
        (rounds as f64 + 0.1) * (height as f64 * width as f64 + COPY * (height + width) as f64)
    };
    let tiles = sizes(m).flat_map(|height| sizes(n).map(move |width| [height, width]));
    tiles
        .filter(|[height, width]| height == width || !(lower && m == n))
        .min_by(|a, b| time(*a).total_cmp(&time(*b)))
        .unwrap_or([LARGEST_CPU_TILE; 2])
}

/// Calls `multiply` for some terms of `a b` at a time, unless `cancel` is set.
fn in_terms<R: Scalar>(
    [a, b]: [MatRef<'_, R>; 2],
    terms: usize,
    accum: Accum,
    cancel: Option<&Cancel>,
    mut multiply: impl FnMut([MatRef<'_, R>; 2], Accum),
) {
    for (start, end) in pieces(a.ncols(), terms) {
        if Cancel::is_set(cancel) {
            return;
        }
        let accum = if start == 0 { accum } else { Accum::Add };
        multiply([a.subcols(start, end - start), b.subrows(start, end - start)], accum);
    }
}

/// Computes c (+)= a b on this thread.
fn add_product<R: Scalar>(c: MatMut<'_, R>, accum: Accum, [a, b]: [MatRef<'_, R>; 2]) {
    if c.nrows().min(c.ncols()) > 1 || matches!(accum, Accum::Replace) {
        return tile_matmul(c, accum, a, b, R::one_impl(), Par::Seq);
    }
    // faer would go on with the sums in a single row or column of c.
    let mut product = Mat::zeros(c.nrows(), c.ncols());
    tile_matmul(&mut product, Accum::Replace, a, b, R::one_impl(), Par::Seq);
    put(c, accum, &product);
}

/// Writes a product to c, or adds it.
fn put<R: Scalar>(mut c: MatMut<'_, R>, accum: Accum, product: &Mat<R>) {
    match accum {
        Accum::Replace => c.copy_from(product),
        Accum::Add => c += product,
    }
}

/// Returns `a b`, in sums of [`NEAR`] terms, as many of which are added up before their sum is added to others.
pub(super) fn near_product<R: Scalar>(operands: [MatRef<'_, R>; 2], cancel: Option<&Cancel>) -> Mat<R> {
    let mut sums = [(); 2].map(|()| Mat::zeros(operands[0].nrows(), operands[1].ncols()));
    let [whole, part] = &mut sums;
    in_terms(operands, NEAR * NEAR, Accum::Replace, cancel, |operands, accum| {
        in_terms(operands, NEAR, Accum::Replace, cancel, |operands, accum| {
            add_product(part.as_mut(), accum, operands);
        });
        put(whole.as_mut(), accum, part);
    });
    let [whole, _] = sums;
    whole
}

#[cfg(test)]
mod tests {
    use super::{LEAST_CPU_TILE, tile};

    #[test]
    fn no_tile_is_thin_where_threads_choose_it() {
        for len in [1, 95, 96, 97, 191, 193, 1000, 1024, 1025, 4097, 9409, 100_001, 1_000_003, 40_000_000] {
            for (other, threads) in [(1, 3), (20, 64), (1000, 1), (5000, 2), (5000, 96)] {
                let sizes = tile([len, other], false, threads);
                let ends = sizes.map(|size| size.min(LEAST_CPU_TILE));
                assert!((len - 1) % sizes[0] + 1 >= ends[0], "{len}: {sizes:?}");
                assert!((other - 1) % sizes[1] + 1 >= ends[1], "{other}: {sizes:?}");
            }
            let [height, width] = tile([len; 2], true, 5);
            assert_eq!(height, width);
        }
        assert!(tile([1024; 2], false, 2).iter().all(|&size| size > 300));
        assert_eq!(tile([1024; 2], false, 64), [128; 2]);
    }
}
