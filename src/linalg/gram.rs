//! The Gram matrix of a tall matrix, summed in f64.

use std::{collections::VecDeque, ops::Range};

use rayon::{ThreadPool, prelude::*};

use super::{matmul::gram_lower_rows, matrix::Matrix, rows::Rows};
use crate::{Device, Error, Result, Tensor, tensor::Pending};

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
pub struct BlockSum {
    pub(crate) total: Matrix,
    pending: VecDeque<Pending<f32>>,
    lower: bool,
}

impl BlockSum {
    /// Downloads that are under way while the next blocks compute: so many blocks, and the one that is added, are on the device at
    /// once.
    pub const IN_FLIGHT: usize = 2;

    /// A sum of zeros.
    pub fn new(rows: u64, cols: u64) -> Self {
        let total = Matrix::zeros(to_usize(rows), to_usize(cols));
        Self { total, pending: VecDeque::new(), lower: false }
    }

    /// A sum of zeros of symmetric blocks (n, n), of which only the lower triangles are added.
    pub fn symmetric(n: u64) -> Self {
        Self { lower: true, ..Self::new(n, n) }
    }

    /// Adds a block, once it is here; waits for the one before the last.
    ///
    /// # Errors
    /// [`Error::Shape`] for a block of another shape; what the device reports.
    pub fn add(&mut self, block: &Tensor<f32>) -> Result<()> {
        let shape = [self.total.rows() as u64, self.total.cols() as u64];
        if block.shape() != shape {
            return Err(Error::shape(
                "BlockSum::add",
                format_args!("{shape:?}"),
                format_args!("{:?}", block.shape()),
            ));
        }
        self.pending.push_back(block.download()?);
        if self.pending.len() > Self::IN_FLIGHT { self.add_oldest(block.device().pool()?) } else { Ok(()) }
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

    fn wait(&mut self, device: &Device) -> Result<()> {
        while !self.pending.is_empty() {
            self.add_oldest(device.pool()?)?;
        }
        Ok(())
    }

    /// Where the sums of each row are.
    fn rows(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (rows, cols, lower) = (self.total.rows(), self.total.cols(), self.lower);
        (0..rows).map(move |i| i * cols..i * cols + if lower { i + 1 } else { cols })
    }

    /// Waits: the sums, row by row; of a lower triangle those alone.
    ///
    /// # Errors
    /// What the device reports.
    pub fn into_sums(mut self, device: &Device) -> Result<Vec<f64>> {
        self.wait(device)?;
        Ok(self.rows().flat_map(|row| &self.total.data()[row]).copied().collect())
    }

    /// Puts sums in the place of its own, to which nothing was added.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number.
    pub fn set_sums(&mut self, mut sums: &[f64]) -> Result<()> {
        let expected: usize = self.rows().map(|row| row.len()).sum();
        if sums.len() != expected {
            let got = format_args!("{}", sums.len());
            return Err(Error::shape("sums", format_args!("{expected} of them"), got));
        }
        for row in self.rows() {
            let own;
            (own, sums) = sums.split_at(row.len());
            self.total.data_mut()[row].copy_from_slice(own);
        }
        Ok(())
    }

    /// Waits for the blocks that are left, and gives their sum. A lower triangle is mirrored.
    ///
    /// # Errors
    /// What the device reports.
    pub fn finish(mut self, device: &Device) -> Result<Matrix> {
        self.wait(device)?;
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
    let mut sum = BlockSum::symmetric(n);
    for rows in blocks(m, n.min(2048).next_power_of_two().max(512) / 2) {
        sum.add(&gram_lower_rows(Rows::new(x, rows), DEPTH)?)?;
    }
    sum.finish(x.device())
}
