//! Products in f64 on the host by several threads, in tiles fixed by the shapes: the same bits for any number of threads.

use faer::{Accum, Mat, MatMut, MatRef, Par, linalg::matmul::matmul};
use rayon::{ThreadPool, prelude::*};

use super::dots::dots;
use crate::{Cancel, Device, Result, waiting::install};

/// Most tiles of the rows of a matrix.
const TILES: usize = 64;
/// Rows of a tile at least, and of one that a sum runs over.
const LEAST_ROWS: usize = 128;
const SUMMED: usize = 1024;
/// Columns of a tile of inner products.
const COLUMNS: usize = 32;
/// Multiplications below which one thread is done before others wake up.
const LEAST_WORK: usize = 1 << 17;

/// The threads that share the work; where there are none, the calling thread does it, to the same bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads<'a> {
    pool: Option<&'a ThreadPool>,
    /// What ends the work.
    cancel: Option<&'a Cancel>,
}

impl<'a> Threads<'a> {
    /// Those of a device, if there is one.
    ///
    /// # Errors
    /// Where the system gives no threads.
    pub(crate) fn of(device: Option<&'a Device>) -> Result<Self> {
        let pool = device.map(Device::pool).transpose()?.map(AsRef::as_ref);
        Ok(Self { pool, cancel: device.and_then(Device::cancel) })
    }

    pub(crate) fn cancel(self) -> Option<&'a Cancel> {
        self.cancel
    }

    /// # Errors
    /// [`Error::Cancelled`](crate::Error::Cancelled) where the work is to end.
    pub(crate) fn check(self) -> Result<()> {
        self.cancel.map_or(Ok(()), Cancel::check)
    }

    /// Runs `f` on one of them, so that others take part in its products without a detour.
    pub(crate) fn run<T: Send>(self, f: impl FnOnce() -> T + Send) -> T {
        match self.pool {
            Some(pool) => install(pool, self.cancel, f),
            None => f(),
        }
    }

    /// Those that are worth so many multiplications.
    fn pool(self, work: usize) -> Option<&'a ThreadPool> {
        self.pool.filter(|_| work >= LEAST_WORK)
    }

    /// `aᵀ b`, of contiguous columns: sums over tiles of rows, added in order.
    pub(crate) fn inner(self, a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
        let (n, p, l) = (a.nrows(), a.ncols(), b.ncols());
        let rows = n.div_ceil(TILES).max(SUMMED);
        let along = n.div_ceil(rows).max(1);
        let part = |tile: usize| {
            let (first, start) = (tile / along * COLUMNS, tile % along * rows);
            let a = a.subcols(first, COLUMNS.min(p - first));
            let [a, b] = [a, b].map(|x| x.subrows(start, rows.min(n - start)));
            dots(a, b)
        };
        let tiles = 0..p.div_ceil(COLUMNS) * along;
        let parts: Vec<Mat<f64>> = match self.pool(n * p * l) {
            Some(pool) => pool.install(|| tiles.into_par_iter().map(part).collect()),
            None => tiles.map(part).collect(),
        };
        Mat::from_fn(p, l, |i, j| {
            let parts = &parts[i / COLUMNS * along..][..along];
            parts.iter().map(|part| part[(i % COLUMNS, j)]).sum()
        })
    }

    /// A matrix by its elements, each of which costs about so many multiplications.
    pub(crate) fn fill(
        self,
        [n, l]: [usize; 2],
        cost: usize,
        f: impl Fn(usize, usize) -> f64 + Send + Sync,
    ) -> Mat<f64> {
        let (mut out, rows) = (Mat::zeros(n, l), tile_rows(n));
        self.each_tile(out.as_mut(), n * l * cost, |(tile, mut out)| {
            for (j, column) in out.as_mut().col_iter_mut().enumerate() {
                column.iter_mut().enumerate().for_each(|(i, x)| *x = f(tile * rows + i, j));
            }
        });
        out
    }

    /// `a b`.
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

    /// Gives each tile of rows to `f` with its index; so many multiplications in all.
    pub(crate) fn each_tile(
        self,
        mut out: MatMut<'_, f64>,
        work: usize,
        f: impl Fn((usize, MatMut<'_, f64>)) + Send + Sync,
    ) {
        let n = out.nrows();
        let rows = tile_rows(n);
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

/// Rows of a tile, by the rows of the whole alone.
fn tile_rows(n: usize) -> usize {
    n.div_ceil(TILES).max(LEAST_ROWS)
}
