//! Inner products of columns in f32 or f64, by the widest vectors of the processor.

use std::marker::PhantomData;

use faer::{
    Mat, MatRef,
    traits::{ComplexField, math_utils::add},
};
use pulp::{Simd, WithSimd};

use super::vectors::SimdFloat;
use crate::Limits;

/// The number of columns of either side that are multiplied at a time.
const WIDTH: usize = 4;
/// The number of terms of a part of a product, of which vectors of four elements or more add up at most 256 in each element.
pub(crate) const DOT: usize = 1024;

/// Returns `aᵀ b`. The columns of a and b are contiguous. In f32, no sum has more than [`Limits::TERMS`] terms before it is added to others.
pub(crate) fn dots<R: SimdFloat + ComplexField>(a: MatRef<'_, R>, b: MatRef<'_, R>) -> Mat<R> {
    dots_on(pulp::Arch::new(), a, b)
}

fn dots_on<R: SimdFloat + ComplexField>(arch: pulp::Arch, a: MatRef<'_, R>, b: MatRef<'_, R>) -> Mat<R> {
    let mut out = Mat::zeros(a.ncols(), b.ncols());
    let step = DOT.min(Limits::TERMS as usize * arch.dispatch(Lanes::<R>(PhantomData)));
    for start in (0..a.nrows()).step_by(step) {
        let len = step.min(a.nrows() - start);
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

/// The number of elements of a vector.
struct Lanes<R>(PhantomData<R>);

impl<R: SimdFloat> WithSimd for Lanes<R> {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        size_of::<R::Vector<S>>() / size_of::<R>()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A product of constant columns loses a rounding in each addition of a sum, always in the same direction.
    #[test]
    fn sums_in_f32_are_short_on_any_processor() {
        for arch in [pulp::Arch::new(), pulp::Arch::Scalar] {
            for rows in [0, 1, 15, 1023, 1024, 1025, 20_000] {
                let x = Mat::<f32>::from_fn(rows, 6, |_, j| 0.1 * (j + 1) as f32);
                let found = dots_on(arch, x.as_ref(), x.subcols(1, 5));
                for (i, j) in (0..6).flat_map(|i| (0..5).map(move |j| (i, j))) {
                    let value = |j: usize| f64::from(0.1 * (j + 1) as f32);
                    let exact = rows as f64 * value(i) * value(j + 1);
                    let error = (f64::from(found[(i, j)]) - exact).abs();
                    let bound = f64::from(Limits::TERMS) / 3.0 * f64::from(f32::EPSILON) / 2.0;
                    assert!(error <= bound * exact, "{arch:?} {rows} {i} {j}: {error:e} of {exact}");
                }
            }
        }
    }
}
