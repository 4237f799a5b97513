//! Inner products of columns in f64, by the widest vectors of the processor.

use faer::{Mat, MatRef};
use pulp::{Simd, WithSimd};

/// The number of columns of either side that are multiplied at a time.
const WIDTH: usize = 4;

/// Returns `aᵀ b`. The columns of a and b are contiguous.
pub(crate) fn dots(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.ncols(), b.ncols());
    let arch = pulp::Arch::new();
    let columns = |x: &MatRef<'_, f64>, first: usize| -> [usize; WIDTH] {
        // If fewer columns remain, the last one is repeated.
        std::array::from_fn(|i| (first + i).min(x.ncols() - 1))
    };
    for i in (0..a.ncols()).step_by(WIDTH) {
        for j in (0..b.ncols()).step_by(WIDTH) {
            let (left, right) = (columns(&a, i), columns(&b, j));
            let tile = ColumnTile { a: left.map(|i| column(a, i)), b: right.map(|j| column(b, j)) };
            let sums = arch.dispatch(tile);
            for (&i, row) in left.iter().zip(sums) {
                for (&j, sum) in right.iter().zip(row) {
                    out[(i, j)] = sum;
                }
            }
        }
    }
    out
}

/// Returns a column, whose elements are contiguous.
fn column(x: MatRef<'_, f64>, j: usize) -> &[f64] {
    x.col(j).try_as_col_major().expect("columns should be contiguous").as_slice()
}

/// Some columns of both sides, all of the same length.
#[derive(Clone, Copy, Debug)]
struct ColumnTile<'a> {
    a: [&'a [f64]; WIDTH],
    b: [&'a [f64]; WIDTH],
}

impl WithSimd for ColumnTile<'_> {
    type Output = [[f64; WIDTH]; WIDTH];

    // The loop has no closures: they may not be inlined, and then have narrow vectors.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let [a, b] = [self.a, self.b].map(|columns| columns.map(S::as_simd_f64s));
        let mut sums = [[simd.splat_f64s(0.0); WIDTH]; WIDTH];
        let len = a[0].0.len();
        let [x, y] = [a, b].map(|columns| columns.map(|(whole, _)| &whole[..len]));
        for k in 0..len {
            add(simd, [x[0][k], x[1][k], x[2][k], x[3][k]], [y[0][k], y[1][k], y[2][k], y[3][k]], &mut sums);
        }
        let mut rest = [[simd.splat_f64s(0.0); WIDTH]; 2];
        for (rest, columns) in rest.iter_mut().zip([a, b]) {
            for (rest, (_, column)) in rest.iter_mut().zip(columns) {
                *rest = simd.partial_load_f64s(column);
            }
        }
        add(simd, rest[0], rest[1], &mut sums);
        let mut out = [[0.0; WIDTH]; WIDTH];
        for (out, sums) in out.iter_mut().zip(&sums) {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = simd.reduce_sum_f64s(sum);
            }
        }
        out
    }
}

/// Adds the product of each element of `x` with each of `y` to the sum of that pair.
#[inline(always)]
fn add<S: Simd>(simd: S, x: [S::f64s; WIDTH], y: [S::f64s; WIDTH], sums: &mut [[S::f64s; WIDTH]; WIDTH]) {
    for (sums, x) in sums.iter_mut().zip(x) {
        for (sum, &y) in sums.iter_mut().zip(&y) {
            *sum = simd.mul_add_f64s(x, y, *sum);
        }
    }
}
