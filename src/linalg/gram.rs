//! The Gram matrix of a tall matrix, summed in f64.

use std::{collections::VecDeque, ops::Range};

use rayon::{ThreadPool, prelude::*};

use super::{map::Matrix, matmul::gram_lower_rows, rows::Rows};
use crate::{Device, Result, Tensor, tensor::Pending};

/// Downloads that are under way while the next blocks compute.
pub(crate) const IN_FLIGHT: usize = 2;
/// Elements from which threads share an addition.
const PARALLEL: usize = 1 << 17;

/// `0..m` in pieces of `step`.
pub(crate) fn blocks(m: u64, step: u64) -> impl Iterator<Item = Range<u64>> {
    (0..m.div_ceil(step)).map(move |i| i * step..m.min((i + 1) * step))
}

pub(crate) fn to_usize(extent: u64) -> usize {
    usize::try_from(extent).expect("the extent of a matrix on the host should fit the address space")
}

/// Blocks on their way to the host, where they are added in order, in f64.
#[derive(Debug)]
pub(crate) struct Sum {
    pub(crate) total: Matrix,
    pending: VecDeque<Pending<f32>>,
    lower: bool,
}

impl Sum {
    /// A sum of zeros; with `lower`, only the lower triangle is added.
    pub(crate) fn new(rows: u64, cols: u64, lower: bool) -> Self {
        let total = Matrix::zeros(to_usize(rows), to_usize(cols));
        Self { total, pending: VecDeque::new(), lower }
    }

    /// Adds a block, once it is here; waits for the one before the last.
    pub(crate) fn add(&mut self, block: &Tensor<f32>) -> Result<()> {
        self.pending.push_back(block.download()?);
        if self.pending.len() > IN_FLIGHT { self.add_oldest(block.device().pool()?) } else { Ok(()) }
    }

    fn add_oldest(&mut self, pool: &ThreadPool) -> Result<()> {
        let Some(block) = self.pending.pop_front() else { return Ok(()) };
        let (block, cols, lower) = (block.wait()?, self.total.cols().max(1), self.lower);
        let add = |(i, (total, block)): (usize, (&mut [f64], &[f32]))| {
            let end = if lower { i + 1 } else { cols };
            for (total, &value) in total[..end].iter_mut().zip(block) {
                *total += f64::from(value);
            }
        };
        let total = self.total.data_mut();
        if total.len() < PARALLEL {
            total.chunks_exact_mut(cols).zip(block.chunks_exact(cols)).enumerate().for_each(add);
        } else {
            let rows = total.par_chunks_exact_mut(cols).zip(block.par_chunks_exact(cols));
            pool.install(|| rows.enumerate().for_each(add));
        }
        Ok(())
    }

    /// Waits for the blocks that are left. A lower triangle is mirrored.
    pub(crate) fn finish(mut self, device: &Device) -> Result<Matrix> {
        while !self.pending.is_empty() {
            self.add_oldest(device.pool()?)?;
        }
        let n = self.total.cols();
        if self.lower {
            let total = self.total.data_mut();
            for i in 0..n {
                for j in 0..i {
                    total[j * n + i] = total[i * n + j];
                }
            }
        }
        Ok(self.total)
    }
}

/// Terms of one sum in f32 where orthogonality to 1e-6 depends on it.
const DEPTH: u64 = 64;

/// `xᵀ x` for x (m, n), to about 1e-6 of |x|ᵀ|x|. Waits.
///
/// In f32 over 64 rows, blocks of which are added in f32 up to 256 to 1,024 rows, and in f64 over those; at least half
/// as many rows as columns, so that the downloads are no more than twice x.
pub(crate) fn gram_f64(x: &Tensor<f32>) -> Result<Matrix> {
    let [m, n] = x.matrix("gram")?;
    let mut sum = Sum::new(n, n, true);
    for rows in blocks(m, n.min(2048).next_power_of_two().max(512) / 2) {
        sum.add(&gram_lower_rows(Rows::new(x, rows), DEPTH)?)?;
    }
    sum.finish(x.device())
}
