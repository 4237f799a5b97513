//! Inner products of columns in f32 or f64, by the widest vectors of the processor.

use faer::{
    Mat, MatRef,
    traits::{ComplexField, math_utils::add},
};
use pulp::{Simd, WithSimd};

use super::vectors::SimdFloat;

/// The number of columns of either side that are multiplied at a time.
const WIDTH: usize = 4;
/// The maximum number of terms that are added up in vectors before their sum is added to that of other terms. Vectors hold at least four f32,
/// each of which is a sum of at most a quarter of these terms; without AVX2, x86-64 adds up all in one.
pub(crate) const DOT: usize = 1024;

/// Returns `aᵀ b`. The columns of a and b are contiguous.
pub(crate) fn dots<R: SimdFloat + ComplexField>(a: MatRef<'_, R>, b: MatRef<'_, R>) -> Mat<R> {
    let mut out = Mat::zeros(a.ncols(), b.ncols());
    let arch = pulp::Arch::new();
    for start in (0..a.nrows()).step_by(DOT) {
        let len = DOT.min(a.nrows() - start);
        let [a, b] = [a, b].map(|x| x.subrows(start, len));
        for i in (0..a.ncols()).step_by(WIDTH) {
            for j in (0..b.ncols()).step_by(WIDTH) {
                let sums = arch.dispatch(ColumnTile { a: columns(a, i), b: columns(b, j) });
                for (i, row) in (i..a.ncols()).zip(sums) {
                    for (j, sum) in (j..b.ncols()).zip(row) {
                        out[(i, j)] = add(&out[(i, j)], &sum);
                    }
                }
            }
        }
    }
    out
}

/// Returns some columns from `first` on. If fewer remain, the last one is repeated.
fn columns<'a, R>(x: MatRef<'a, R>, first: usize) -> [&'a [R]; WIDTH] {
    std::array::from_fn(|i| column(x, (first + i).min(x.ncols() - 1)))
}

/// Returns a column, whose elements are contiguous.
fn column<R>(x: MatRef<'_, R>, j: usize) -> &[R] {
    x.col(j).try_as_col_major().expect("columns should be contiguous").as_slice()
}

/// Some columns of both sides, all of the same length.
#[derive(Clone, Copy, Debug)]
struct ColumnTile<'a, R> {
    a: [&'a [R]; WIDTH],
    b: [&'a [R]; WIDTH],
}

impl<R: SimdFloat + ComplexField> WithSimd for ColumnTile<'_, R> {
    type Output = [[R; WIDTH]; WIDTH];

    // The loop has no closures: they may not be inlined, and then have narrow vectors.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let [a, b] = [self.a, self.b].map(|columns| columns.map(R::vectors::<S>));
        let zero = R::partial_load(simd, &[]);
        let mut sums = [[zero; WIDTH]; WIDTH];
        let len = a[0].len();
        let [x, y] = [a, b].map(|columns| columns.map(|whole| &whole[..len]));
        for k in 0..len {
            add_products::<R, S>(
                simd,
                [x[0][k], x[1][k], x[2][k], x[3][k]],
                [y[0][k], y[1][k], y[2][k], y[3][k]],
                &mut sums,
            );
        }
        let whole = size_of_val(a[0]) / size_of::<R>();
        let mut rest = [[zero; WIDTH]; 2];
        for (rest, columns) in rest.iter_mut().zip([self.a, self.b]) {
            for (rest, column) in rest.iter_mut().zip(columns) {
                *rest = R::partial_load(simd, &column[whole..]);
            }
        }
        add_products::<R, S>(simd, rest[0], rest[1], &mut sums);
        let mut out = [[R::zero_impl(); WIDTH]; WIDTH];
        for (out, sums) in out.iter_mut().zip(&sums) {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = R::reduce_sum(simd, sum);
            }
        }
        out
    }
}

/// Adds the product of each element of `x` with each of `y` to the sum of that pair.
#[inline(always)]
fn add_products<R: SimdFloat, S: Simd>(
    simd: S,
    x: [R::Vector<S>; WIDTH],
    y: [R::Vector<S>; WIDTH],
    sums: &mut [[R::Vector<S>; WIDTH]; WIDTH],
) {
    for (sums, x) in sums.iter_mut().zip(x) {
        for (sum, &y) in sums.iter_mut().zip(&y) {
            *sum = R::mul_add_vectors(simd, x, y, *sum);
        }
    }
}
