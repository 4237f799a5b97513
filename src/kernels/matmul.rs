//! c[m, n] (+)= op(a)[m, k] op(b)[k, n]; on the cpu by faer's matmul, with tiles that the shape alone determines.

mod tiled;

use std::{borrow::Cow, ops::Range};

use faer::{
    Accum, Mat, MatMut, MatRef,
    reborrow::*,
    traits::{ComplexField, math_utils::add},
};
use rayon::prelude::*;

use self::tiled::{TiledProduct, near_product};
use super::cpu::{
    dots::{DOT, dots},
    load::load,
    vectors::SimdFloat,
};
use crate::{
    Cancel, DType, Real,
    kernel::{Access, Binding, CpuArg, CpuLaunch, Kernel, kernel, params},
};

params! {
    /// Parameters of the kernel: extents, row strides and offsets, all in elements.
    pub(crate) struct Params {
        pub(crate) m: u32,
        pub(crate) n: u32,
        pub(crate) k: u32,
        /// The number of terms of each product if workgroups along z compute products of consecutive terms, one each; otherwise 2^32 - 1.
        pub(crate) depth: u32,
        pub(crate) lda: u32,
        pub(crate) ldb: u32,
        pub(crate) ldc: u32,
        pub(crate) a0: u32,
        pub(crate) b0: u32,
        pub(crate) c0: u32,
        /// The number of elements of c from one product to the next.
        pub(crate) c_step: u32,
        /// 1 if the product is added to c.
        pub(crate) accumulate: u32,
        /// 1 if tiles above the diagonal are left out; and the row and column of this panel's corner in the whole result.
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
/// Products in f64 of two f64 operands, for which there is no shader.
pub(crate) static MATMUL_F64: Kernel<Params> = Kernel::built_in(
    "matmul_f64",
    [include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/matmul_f64.cu")), ""],
    Some(multiply::<f64>),
    &[Binding::any(Access::Read), Binding::any(Access::Read), Binding::any(Access::ReadWrite)],
    specs_f64,
)
.declared(Params::FIELDS, &[]);

/// The number of rows and of columns of c that a workgroup computes, for small and thin products, on any device.
pub(crate) const TILE: u32 = 64;
/// The number of rows and of columns for large products of f32, so that each loaded element is used more often.
pub(crate) const LARGE_TILE: u32 = 128;
/// The minimum workgroup memory, in bytes, of a device that uses large tiles.
pub(crate) const LARGE_TILE_MEMORY: u32 = 48 << 10;

/// Returns the constants of a program (f32 has its own, as other types need a branch). `transposed` says if a and b are stored transposed.
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

/// The maximum number of rows of the smaller operand of a thin product, which is computed as dot products of long rows.
const THIN: usize = 32;
/// The number of rows of a thin product's larger operand that one task takes, and of rows of c that one task adds up.
const COLUMNS: usize = 32;
/// The maximum number of elements of c for which a product is split along k instead of into tiles of c. A small c has
/// few tiles, and if a is transposed, each tile reads a strip of all rows of a, each on a memory page of its own.
const SPLIT: usize = 1 << 16;
/// The minimum number of terms of a product that is split along k.
const LONG: usize = 4096;
/// The maximum number of parts along k.
const MOST_PARTS: usize = 64;
/// The minimum number of terms of a part along k, so that its memory costs little.
const LEAST_PART: usize = 512;
/// The maximum extent along m and n over which narrow operands are decoded at once: at most 32 MiB of f32 each.
const SPAN: usize = 8192;
/// The maximum extent along k over which narrow operands are decoded at once, and after which a product can be cancelled.
const DEPTH: usize = 1024;

/// An operand as it is stored: rows of contiguous elements, which are the rows or (if transposed) the columns of op(x).
struct MatrixSource<'a> {
    arg: CpuArg<'a>,
    dtype: DType,
    start: usize,
    stride: usize,
    transposed: bool,
}

impl MatrixSource<'_> {
    /// Returns a block of op(x), stored in the same way as the operand, and the block's row stride.
    fn block<R: Scalar>(&self, rows: (usize, usize), cols: (usize, usize)) -> (Cow<'_, [R]>, usize) {
        let ((r0, r1), (c0, c1)) = if self.transposed { (cols, rows) } else { (rows, cols) };
        let (height, width) = (r1 - r0, c1 - c0);
        if height == 0 || width == 0 {
            // The start of an empty block may lie outside of an empty operand.
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

    /// Returns the first `count` rows of x, which has type R, as columns.
    fn rows<R: Scalar>(&self, count: usize, len: usize) -> MatRef<'_, R> {
        let values = &self.arg.read::<R>()[self.start..][..(count - 1) * self.stride + len];
        MatRef::from_column_major_slice_with_stride(values, len, count, self.stride)
    }

    /// Returns a view of op(x) on a block that [`block`](Self::block) returned.
    fn view<'b, R: Scalar>(&self, block: &'b [R], stride: usize, rows: usize, cols: usize) -> MatRef<'b, R> {
        if self.transposed {
            MatRef::from_row_major_slice_with_stride(block, cols, rows, stride).transpose()
        } else {
            MatRef::from_row_major_slice_with_stride(block, rows, cols, stride)
        }
    }
}

/// The type of products and sums: f32 or f64.
trait Scalar: Real + ComplexField + SimdFloat {}
impl<R: Real + ComplexField + SimdFloat> Scalar for R {}

fn multiply<R: Scalar>(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [ta, tb] = ["TRANS_A", "TRANS_B"].map(|name| launch.constant(name) != 0);
    let [a_type, b_type] = [p.a_type, p.b_type].map(DType::from_code);
    let cancel = launch.cancel();
    let [a, b, c] = launch.args();
    let source = |arg, dtype, start, stride, transposed| MatrixSource {
        arg,
        dtype,
        start: start as usize,
        stride: stride as usize,
        transposed,
    };
    let (a, b) = (source(a, a_type, p.a0, p.lda, ta), source(b, b_type, p.b0, p.ldb, tb));
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let is_real = [a_type, b_type] == [R::DTYPE; 2];
    let c = &mut c.write::<R>()[p.c0 as usize..];
    if p.depth < u32::MAX {
        return multiply_parts([&a, &b], is_real, &p, c, cancel);
    }
    let c = &mut c[..(m - 1) * p.ldc as usize + n];
    // This avoids `from_row_major_slice_with_stride_mut`, which in faer 0.24.4 confuses rows with columns and so writes outside of the slice.
    let c = MatMut::from_column_major_slice_with_stride_mut(c, n, m, p.ldc as usize);
    if m.min(n) <= THIN && !ta && tb && is_real {
        let (a, b, c) = (a.rows::<R>(m, k), b.rows::<R>(n, k), c.transpose_mut());
        let (a, b, c) = if m < n { (b, a, c.transpose_mut()) } else { (a, b, c) };
        let part = |rows: Range<usize>, along: Range<usize>| {
            let [a, b] = [a.subcols(rows.start, rows.len()), b].map(|x| x.subrows(along.start, along.len()));
            dots(a, b)
        };
        return add_parts(c, p.accumulate != 0, [COLUMNS, DOT, k], cancel, part);
    }
    let mut c = c.transpose_mut();
    if m * n <= SPLIT && k >= LONG && is_real {
        let ((a_block, a_stride), (b_block, b_stride)) =
            (a.block::<R>((0, m), (0, k)), b.block::<R>((0, k), (0, n)));
        let (a, b) = (a.view(&a_block, a_stride, m, k), b.view(&b_block, b_stride, k, n));
        let part = |_: Range<usize>, along: Range<usize>| {
            let (a, b) = (a.rb().subcols(along.start, along.len()), b.rb().subrows(along.start, along.len()));
            near_product([a, b], cancel)
        };
        return add_parts(c, p.accumulate != 0, [m, LEAST_PART, k], cancel, part);
    }
    // Operands of type `R` are used in place.
    let [span, longest] = if is_real { [usize::MAX; 2] } else { [SPAN, DEPTH] };
    for rows in pieces(m, span) {
        for cols in pieces(n, span) {
            for inner in pieces(k, longest) {
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

/// Computes a product for each `depth` terms. Unless both operands are of type `R`, the products are computed one after the other, so that
/// the rows of only one are decoded at a time.
fn multiply_parts<R: Scalar>(
    [a, b]: [&MatrixSource<'_>; 2],
    is_real: bool,
    p: &Params,
    c: &mut [R],
    cancel: Option<&Cancel>,
) {
    let (m, n, k, depth) = (p.m as usize, p.n as usize, p.k as usize, p.depth as usize);
    let parts = c.par_chunks_mut(p.c_step as usize).zip(pieces(k, depth).collect::<Vec<_>>());
    let at_least = if is_real { 1 } else { usize::MAX };
    parts.with_min_len(at_least).for_each(|(c, terms)| {
        let (a_block, a_stride) = a.block::<R>((0, m), terms);
        let (b_block, b_stride) = b.block::<R>(terms, (0, n));
        let depth = terms.1 - terms.0;
        let product = TiledProduct {
            a: a.view(&a_block, a_stride, m, depth),
            b: b.view(&b_block, b_stride, depth, n),
            accum: Accum::Replace,
            // A whole small product takes less time than its triangle.
            diagonal: (p.lower != 0 && m > TILE as usize).then_some((0, 0)),
            cancel,
        };
        product.run(MatMut::from_column_major_slice_with_stride_mut(c, n, m, n).transpose_mut());
    });
}

/// Adds up partial products that tasks compute, each for `size` rows of c and at least `least` of the k terms. The
/// shape alone determines the parts, which are added in order: the result does not depend on the number of threads.
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

/// Divides `0..len` into pieces of at most `size`. If `len` is 0, returns one empty piece, so that a product with k = 0 clears c.
fn pieces(len: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len.max(1))
        .step_by(size.min(len.max(1)))
        .map(move |start| (start, len.min(start.saturating_add(size))))
}

#[cfg(test)]
mod tests {
    use super::{LONG, MOST_PARTS, SPAN};
    use crate::kernels::cpu::dots::DOT;
    use crate::linalg::matmul::{Op, Product};
    use crate::{Device, Tensor, extent::to_usize, linalg};

    #[test]
    fn sums_go_on_where_a_part_ends() {
        let device = Device::open("cpu").unwrap();
        for rows in [LONG - 1, LONG, MOST_PARTS * DOT + 3] {
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

    /// Rows and columns that are not decoded with the first ones are in their places, and no place above the diagonal is taken for theirs.
    #[test]
    fn later_pieces_are_in_their_places() {
        let device = Device::open("cpu").unwrap();
        for ([m, n], lower) in [([SPAN + 100, 200], true), ([200, SPAN + 100], false)] {
            let [a, b] =
                [m, n].map(|len| Tensor::from_slice(&device, &vec![1u8; len], &[len as u64, 1]).unwrap());
            let mut c = Tensor::<f32>::zeros(&device, &[m as u64, n as u64]).unwrap();
            Product { lower, ..Product::of_tensors("test", Op::Nt, &a, &b).unwrap() }.run(&mut c).unwrap();
            let c = c.read().unwrap();
            let end = |i: usize| if lower { n.min(i + 1) } else { n };
            assert_eq!(c.chunks(n).enumerate().position(|(i, row)| row[..end(i)].contains(&0.0)), None);
        }
    }

    /// A sum of constant products loses a rounding in each addition, always in the same direction: a third of a unit for each term in one
    /// sum.
    #[test]
    fn sums_in_f32_are_short_in_products_of_any_form() {
        let device = Device::open("cpu").unwrap();
        let ones = |rows, cols| {
            Tensor::from_slice(&device, &vec![0.1f32; to_usize(rows * cols)], &[rows, cols]).unwrap()
        };
        let k = 8192;
        for (m, n) in [(1, 1), (1, 20), (33, 1), (33, 20), (2, 2), (100, 700), (1500, 60), (4001, 20)] {
            let (a, b) = (ones(m, k), ones(k, n));
            let forms = [
                linalg::matmul(&a, &b),
                linalg::matmul_tn(&ones(k, m), &b),
                linalg::matmul_nt(&a, &ones(n, k)),
            ];
            let exact = k as f64 * f64::from(0.1f32).powi(2);
            for (form, product) in forms.into_iter().enumerate() {
                for value in product.unwrap().read().unwrap() {
                    let units = (f64::from(value) - exact).abs() / exact / f64::from(f32::EPSILON) * 2.0;
                    assert!(units < 150.0, "form {form} of {m} x {n}: {units} units");
                }
            }
        }
    }
}
