//! Products in f64 on the host by several threads, in tiles fixed by the shapes: results are the same to the bit for any number of threads.

use faer::{Accum, Mat, MatMut, MatRef, Par, linalg::matmul::matmul};
use rayon::{ThreadPool, prelude::*};

use crate::{Cancel, Device, Result, kernels::cpu::simd::end_wide};

/// The maximum number of tiles of the rows of a matrix.
const TILES: usize = 64;
/// The minimum number of rows of a tile.
const LEAST_ROWS: usize = 128;
/// The number of multiplications below which one thread finishes before other threads wake up.
const LEAST_WORK: usize = 1 << 17;

/// The threads that share the work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads<'a> {
    pool: &'a ThreadPool,
    cancel: Option<&'a Cancel>,
}

impl<'a> Threads<'a> {
    /// Takes the threads of a device. Fails with [`Error::Driver`](crate::Error::Driver) if the system provides no threads.
    pub(crate) fn new(device: &'a Device) -> Result<Self> {
        Ok(Self { pool: device.pool()?, cancel: device.cancel() })
    }

    /// Fails with [`Error::Cancelled`](crate::Error::Cancelled) if the work is to end.
    pub(crate) fn check(self) -> Result<()> {
        self.cancel.map_or(Ok(()), Cancel::check)
    }

    /// Returns the threads if `work` multiplications are worth their use.
    fn pool(self, work: usize) -> Option<&'a ThreadPool> {
        (work >= LEAST_WORK).then_some(self.pool)
    }

    /// Returns the matrix with the elements `f(i, j)`.
    pub(crate) fn fill(self, [n, l]: [usize; 2], f: impl Fn(usize, usize) -> f64 + Send + Sync) -> Mat<f64> {
        let (mut out, rows) = (Mat::zeros(n, l), tile_rows(n));
        self.each_tile(out.as_mut(), n * l, |(tile, mut out)| {
            for (j, column) in out.as_mut().col_iter_mut().enumerate() {
                column.iter_mut().enumerate().for_each(|(i, x)| *x = f(tile * rows + i, j));
            }
        });
        out
    }

    pub(crate) fn product(self, a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
        let mut out = Mat::zeros(a.nrows(), b.ncols());
        self.add_product(out.as_mut(), 1.0, a, b);
        out
    }

    /// Adds `factor a b` to `out`.
    pub(crate) fn add_product(
        self,
        out: MatMut<'_, f64>,
        factor: f64,
        a: MatRef<'_, f64>,
        b: MatRef<'_, f64>,
    ) {
        let (rows, work) = (tile_rows(a.nrows()), a.nrows() * a.ncols() * b.ncols());
        self.each_tile(out, work, |(tile, out)| {
            let a = a.subrows(tile * rows, out.nrows());
            matmul(out, Accum::Add, a, b, factor, Par::Seq);
        });
    }

    /// Calls `f` with the index and the rows of each tile. `work` is the number of multiplications in all.
    pub(crate) fn each_tile(
        self,
        mut out: MatMut<'_, f64>,
        work: usize,
        f: impl Fn((usize, MatMut<'_, f64>)) + Send + Sync,
    ) {
        let n = out.nrows();
        let rows = tile_rows(n);
        let f = |tile: (usize, MatMut<'_, f64>)| {
            f(tile);
            end_wide();
        };
        match self.pool(work) {
            Some(pool) => pool.install(|| out.par_row_chunks_mut(rows).enumerate().for_each(f)),
            None => {
                let tiles = (0..n).step_by(rows).enumerate();
                tiles.for_each(|(tile, start)| {
                    f((tile, out.as_mut().subrows_mut(start, rows.min(n - start))))
                });
            }
        }
    }
}

/// Returns the number of rows of a tile, which depends on the number of rows of the matrix alone.
fn tile_rows(n: usize) -> usize {
    n.div_ceil(TILES).max(LEAST_ROWS)
}
