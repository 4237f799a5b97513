//! c[m, n] (+)= op(a)[m, k] op(b)[k, n], with faer's matmul on tiles fixed by the shape.

use std::{borrow::Cow, ops::Range};

use faer::{
    Accum, Mat, MatMut, MatRef, Par,
    linalg::matmul::{
        matmul as tile_matmul,
        triangular::{self, BlockStructure},
    },
    reborrow::*,
    traits::{ComplexField, math_utils::add},
};
use rayon::prelude::*;

use super::cpu::{dots::dots, load::load};
use crate::{
    Cancel, DType, Real,
    kernel::{Access, Binding, CpuArg, CpuLaunch, Kernel, kernel, params},
};

params! {
    /// Parameters of the kernel: extents, row strides, first elements, all in elements.
    pub(crate) struct Params {
        pub(crate) m: u32,
        pub(crate) n: u32,
        pub(crate) k: u32,
        pub(crate) lda: u32,
        pub(crate) ldb: u32,
        pub(crate) ldc: u32,
        pub(crate) a0: u32,
        pub(crate) b0: u32,
        pub(crate) c0: u32,
        /// 1 if c is added to.
        pub(crate) accumulate: u32,
        /// 1 if tiles above the diagonal are left out, and where this panel's corner lies in the whole result.
        pub(crate) lower: u32,
        pub(crate) row0: u32,
        pub(crate) col0: u32,
        /// Codes of the elements' types.
        pub(crate) a_type: u32,
        pub(crate) b_type: u32,
    }
}

pub(crate) static MATMUL: Kernel<Params> =
    kernel!("matmul", Params, [Read, Read, ReadWrite], multiply::<f32>, specs);
/// Products in f64 of two operands of f64, which no shader makes.
pub(crate) static MATMUL_F64: Kernel<Params> = Kernel::built_in(
    "matmul_f64",
    [include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/matmul_f64.cu")), ""],
    Some(multiply::<f64>),
    &[Binding::any(Access::Read), Binding::any(Access::Read), Binding::any(Access::ReadWrite)],
    specs_f64,
)
.declared(Params::FIELDS, &[]);

/// Rows and columns of c that one workgroup makes: of small and thin products, and on any device.
pub(crate) const TILE: u32 = 64;
/// Rows and columns for large products of f32, where each element that is loaded should be used more often.
pub(crate) const LARGE_TILE: u32 = 128;
/// Bytes of workgroup memory from which a device takes large tiles.
pub(crate) const LARGE_TILE_MEMORY: u32 = 48 << 10;

/// f32 has kernels of its own, since in others the type of the elements costs a jump. `transposed`: how a and b are stored.
pub(crate) fn spec(tile: u32, transposed: [bool; 2], narrow: bool) -> [(&'static str, u32); 4] {
    let [a, b] = transposed.map(u32::from);
    [("TILE", tile), ("TRANS_A", a), ("TRANS_B", b), ("NARROW", narrow.into())]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [(TILE, false), (TILE, true), (LARGE_TILE, false)].into_iter().flat_map(each_form).collect()
}

fn specs_f64() -> Vec<Vec<(&'static str, u32)>> {
    each_form((TILE, true)).into()
}

fn each_form((tile, narrow): (u32, bool)) -> [Vec<(&'static str, u32)>; 3] {
    [[false, false], [true, false], [false, true]].map(|transposed| spec(tile, transposed, narrow).to_vec())
}

/// Tiles of c that run in parallel: packing both panels of one costs 1/48 of its arithmetic at any k, and whole
/// register tiles fit (96 rows with AVX-512).
const CPU_TILE: usize = 192;
/// Tiles of a small c, so that there are enough for many threads.
const SMALL_CPU_TILE: usize = 96;
/// Elements of c from which tiles are large.
const LARGE: usize = 32 * CPU_TILE * CPU_TILE;
/// Rows of the smaller of two operands of f64 up to which a product of their rows is one of long vectors.
const THIN: usize = 32;
/// Rows of the larger of these that one task takes, and of sums that one task adds up.
const COLUMNS: usize = 32;
/// Elements of c up to which a product is cut along its sums, in place of tiles of c: there are few of these, and where a is transposed each
/// reads a strip of a's rows, every one of which lies on a page of its own.
const SPLIT: usize = 1 << 16;
/// Terms of such a product at least.
const LONG: usize = 4096;
/// The maximum number of parts along the sums, and the minimum number of terms of a part: of vectors that are multiplied, and of matrices.
const MOST_PARTS: usize = 64;
const LEAST_OF_VECTORS: usize = 1024;
const LEAST_OF_MATRICES: usize = 256;
/// Extent along m and n over which narrow operands are decoded at once: at most 32 MiB of f32 each.
const SPAN: usize = 8192;
/// Extent along k of the same.
const DEPTH: usize = 1024;
/// Terms of one task of operands that are used in place: it takes less than a second, after which a call can be cancelled. Sums are added in
/// this order whatever the device's limits.
const LONGEST: usize = 1 << 18;

/// An operand as stored: `rows` by `cols` after `op`, one of the two contiguous.
struct MatrixSource<'a> {
    arg: CpuArg<'a>,
    dtype: DType,
    start: usize,
    stride: usize,
    transposed: bool,
}

impl MatrixSource<'_> {
    /// The block at (row, col) of op(x), stored as the operand is, and the stride of that.
    fn block<R: Scalar>(&self, rows: (usize, usize), cols: (usize, usize)) -> (Cow<'_, [R]>, usize) {
        let ((r0, r1), (c0, c1)) = if self.transposed { (cols, rows) } else { (rows, cols) };
        let (height, width) = (r1 - r0, c1 - c0);
        if height == 0 || width == 0 {
            // The place of an empty block may lie outside of an empty operand.
            return (Cow::Borrowed(&[]), width);
        }
        let first = self.start + r0 * self.stride + c0;
        if self.dtype == R::DTYPE {
            let end = first + (height - 1) * self.stride + width;
            return (Cow::Borrowed(&self.arg.read::<R>()[first..end]), self.stride);
        }
        let mut block = bytemuck::zeroed_vec(height * width);
        block.par_chunks_mut(width).enumerate().for_each(|(row, out)| {
            load(&self.arg, self.dtype, first + row * self.stride, out);
        });
        (Cow::Owned(block), width)
    }

    /// The first `count` rows of x, of f64, as columns.
    fn rows(&self, count: usize, len: usize) -> MatRef<'_, f64> {
        let values = &self.arg.read::<f64>()[self.start..][..(count - 1) * self.stride + len];
        MatRef::from_column_major_slice_with_stride(values, len, count, self.stride)
    }

    /// A view of op(x) on what [`block`](Self::block) gave.
    fn view<'b, R: Scalar>(&self, block: &'b [R], stride: usize, rows: usize, cols: usize) -> MatRef<'b, R> {
        if self.transposed {
            MatRef::from_row_major_slice_with_stride(block, cols, rows, stride).transpose()
        } else {
            MatRef::from_row_major_slice_with_stride(block, rows, cols, stride)
        }
    }
}

/// The type of products and sums: f32 or f64.
trait Scalar: Real + ComplexField {}
impl<R: Real + ComplexField> Scalar for R {}

fn multiply<R: Scalar>(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [ta, tb] = ["TRANS_A", "TRANS_B"].map(|name| launch.constant(name) != 0);
    let [a_type, b_type] = [p.a_type, p.b_type].map(DType::from_code);
    let cancel = launch.cancel();
    let [a, b, c] = launch.args();
    let a =
        MatrixSource { arg: a, dtype: a_type, start: p.a0 as usize, stride: p.lda as usize, transposed: ta };
    let b =
        MatrixSource { arg: b, dtype: b_type, start: p.b0 as usize, stride: p.ldb as usize, transposed: tb };
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let c = &mut c.write::<R>()[p.c0 as usize..];
    let c_len = (m - 1) * p.ldc as usize + n;
    let c = &mut c[..c_len];
    // Not by from_row_major_slice_with_stride_mut, which in faer 0.24.4 takes the rows for columns and so writes outside
    // of the slice.
    if m.min(n) <= THIN && !ta && tb && [R::DTYPE, a_type, b_type] == [DType::F64; 3] {
        let c = MatMut::from_column_major_slice_with_stride_mut(
            bytemuck::cast_slice_mut(c),
            n,
            m,
            p.ldc as usize,
        );
        let (a, b, c) = (a.rows(m, k), b.rows(n, k), c.transpose_mut());
        let (a, b, c) = if m < n { (b, a, c.transpose_mut()) } else { (a, b, c) };
        let part = |rows: Range<usize>, along: Range<usize>| {
            let [a, b] = [a.subcols(rows.start, rows.len()), b].map(|x| x.subrows(along.start, along.len()));
            dots(a, b)
        };
        return add_parts(c, p.accumulate != 0, [COLUMNS, LEAST_OF_VECTORS, k], cancel, part);
    }
    let c = MatMut::from_column_major_slice_with_stride_mut(c, n, m, p.ldc as usize);
    let mut c = c.transpose_mut();
    if m * n <= SPLIT && k >= LONG && [a_type, b_type] == [R::DTYPE; 2] {
        let ((a_block, a_stride), (b_block, b_stride)) =
            (a.block::<R>((0, m), (0, k)), b.block::<R>((0, k), (0, n)));
        let (a, b) = (a.view(&a_block, a_stride, m, k), b.view(&b_block, b_stride, k, n));
        let part = |_: Range<usize>, along: Range<usize>| {
            let (a, b) = (a.rb().subcols(along.start, along.len()), b.rb().subrows(along.start, along.len()));
            let mut part = Mat::zeros(m, n);
            tile_matmul(&mut part, Accum::Replace, a, b, R::one_impl(), Par::Seq);
            part
        };
        return add_parts(c, p.accumulate != 0, [m, LEAST_OF_MATRICES, k], cancel, part);
    }
    // Operands of that type are used in place, so only others bound the span.
    let span = if a_type == R::DTYPE && b_type == R::DTYPE { usize::MAX } else { SPAN };
    let depth = if span == SPAN { DEPTH } else { LONGEST };
    for rows in pieces(m, span) {
        for cols in pieces(n, span) {
            for inner in pieces(k, depth) {
                let (a_block, a_stride) = a.block::<R>(rows, inner);
                let (b_block, b_stride) = b.block::<R>(inner, cols);
                let (height, width, depth) = (rows.1 - rows.0, cols.1 - cols.0, inner.1 - inner.0);
                let product = TiledProduct {
                    a: a.view(&a_block, a_stride, height, depth),
                    b: b.view(&b_block, b_stride, depth, width),
                    accum: if inner.0 > 0 || p.accumulate != 0 { Accum::Add } else { Accum::Replace },
                    diagonal: (p.lower != 0).then_some((p.row0 as usize + rows.0, p.col0 as usize + cols.0)),
                    cancel,
                };
                product.run(c.as_mut().submatrix_mut(rows.0, cols.0, height, width));
            }
        }
    }
}

/// Adds up products that tasks make, each of `size` rows of c over at least `least` of k terms. The shape alone says which, and they are added
/// in order: threads change no bit.
fn add_parts<R: Scalar>(
    c: MatMut<'_, R>,
    accumulate: bool,
    [size, least, k]: [usize; 3],
    cancel: Option<&Cancel>,
    part: impl Fn(Range<usize>, Range<usize>) -> Mat<R> + Sync,
) {
    let (m, depth) = (c.nrows(), k.div_ceil(MOST_PARTS).max(least));
    let along = k.div_ceil(depth);
    let part = |task: usize| {
        let (first, start) = (task / along * size, task % along * depth);
        let rows = first..m.min(first + size);
        (!Cancel::is_set(cancel)).then(|| part(rows, start..k.min(start + depth)))
    };
    let parts: Option<Vec<Mat<R>>> = (0..m.div_ceil(size) * along).into_par_iter().map(part).collect();
    let Some(parts) = parts else { return };
    c.par_row_chunks_mut(COLUMNS).enumerate().for_each(|(chunk, mut c)| {
        for i in 0..c.nrows() {
            let row = chunk * COLUMNS + i;
            let parts = &parts[row / size * along..][..along];
            for j in 0..c.ncols() {
                let first = if accumulate { c[(i, j)] } else { R::zero_impl() };
                c[(i, j)] = parts.iter().fold(first, |sum, part| add(&sum, &part[(row % size, j)]));
            }
        }
    });
}

/// `0..len` in pieces of at most `size`; one empty piece where there is nothing, so that a product with k = 0 clears.
fn pieces(len: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len.max(1))
        .step_by(size.min(len.max(1)))
        .map(move |start| (start, len.min(start.saturating_add(size))))
}

/// A product whose tiles run in parallel, each on one thread, so that the thread count changes no bit.
struct TiledProduct<'a, R: Scalar> {
    a: MatRef<'a, R>,
    b: MatRef<'a, R>,
    accum: Accum,
    /// Row and column of c's corner in the whole result, when only its lower triangle is wanted.
    diagonal: Option<(usize, usize)>,
    /// The flag that leaves out the tiles that have not begun.
    cancel: Option<&'a Cancel>,
}

impl<R: Scalar> TiledProduct<'_, R> {
    fn run(&self, c: MatMut<'_, R>) {
        let size = if c.nrows() * c.ncols() < LARGE { SMALL_CPU_TILE } else { CPU_TILE };
        c.par_row_chunks_mut(size).enumerate().for_each(|(i, band)| {
            band.par_col_chunks_mut(size).enumerate().for_each(|(j, tile)| {
                self.tile(i * size, j * size, tile);
            });
        });
    }

    fn tile(&self, row: usize, col: usize, c: MatMut<'_, R>) {
        if Cancel::is_set(self.cancel) {
            return;
        }
        let a = self.a.subrows(row, c.nrows());
        let b = self.b.subcols(col, c.ncols());
        match self.diagonal {
            Some((row0, col0)) if row0 + row + c.nrows() <= col0 + col => {}
            Some((row0, col0)) if row0 + row == col0 + col && c.nrows() == c.ncols() => {
                let (whole, lower) = (BlockStructure::Rectangular, BlockStructure::TriangularLower);
                triangular::matmul(c, lower, self.accum, a, whole, b, whole, R::one_impl(), Par::Seq);
            }
            _ => tile_matmul(c, self.accum, a, b, R::one_impl(), Par::Seq),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAST_OF_VECTORS, LONG, MOST_PARTS};
    use crate::{Device, Tensor, linalg};

    #[test]
    fn sums_go_on_where_a_part_ends() {
        let device = Device::open("cpu").unwrap();
        for rows in [LONG - 1, LONG, MOST_PARTS * LEAST_OF_VECTORS + 3] {
            let values: Vec<u8> = (0u8..7).cycle().take(rows).flat_map(|x| [1, x]).collect();
            let x = Tensor::from_slice(&device, &values, &[rows as u64, 2]).unwrap();
            let sum = |power: u32| (0..rows).map(|i| (i % 7).pow(power)).sum::<usize>() as f32;
            let expected = [rows as f32, sum(1), sum(1), sum(2)];
            // Bytes are decoded piece by piece.
            assert_eq!(linalg::matmul_tn(&x, &x).unwrap().read().unwrap(), expected);
            let x = x.to_f32().unwrap();
            assert_eq!(linalg::matmul_tn(&x, &x).unwrap().read().unwrap(), expected);
            let x = linalg::transpose(&x.to_f64().unwrap()).unwrap();
            assert_eq!(linalg::matmul_nt(&x, &x).unwrap().read().unwrap(), expected.map(f64::from));
        }
    }
}
