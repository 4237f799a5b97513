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

/// A sum of blocks in f64, on the host, to which a device's blocks are added in order while it computes the next.
///
/// # Cost
/// On the host 8 bytes an element of the sum; on the device three blocks at once ([`IN_FLIGHT`](Self::IN_FLIGHT) and the one that is added).
///
/// ```
/// use teatime::{Device, Tensor, linalg::{BlockSum, SignRule, gram_lower, gram_svd}};
///
/// let device = Device::best()?;
/// // AᵀA of a matrix of two columns that comes in blocks of two rows, and the singular values of A.
/// let mut sum = BlockSum::symmetric(2);
/// for block in [[3.0f32, 0.0, 0.0, 4.0], [0.0, 0.0, 0.0, 3.0]] {
///     sum.add(&gram_lower(&Tensor::from_slice(&device, &block, &[2, 2])?)?)?;
/// }
/// let svd = gram_svd(&sum.finish(&device)?, 2, SignRule::Stable, &device)?;
/// assert!((svd.s[0] - 5.0).abs() < 1e-6 && (svd.s[1] - 3.0).abs() < 1e-6);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct BlockSum {
    pub(crate) total: Matrix,
    pending: VecDeque<Pending<f32>>,
    lower: bool,
}

impl BlockSum {
    /// Most blocks on their way to the host while the next ones are computed.
    pub const IN_FLIGHT: usize = 2;

    /// Zeros, for blocks (rows, cols).
    pub fn new(rows: u64, cols: u64) -> Self {
        let total = Matrix::zeros(to_usize(rows), to_usize(cols));
        Self { total, pending: VecDeque::new(), lower: false }
    }

    /// Zeros, for symmetric blocks (n, n), of which only the lower triangles are added.
    pub fn symmetric(n: u64) -> Self {
        Self { lower: true, ..Self::new(n, n) }
    }

    /// Adds a block once it is on the host. Waits where more than [`IN_FLIGHT`](Self::IN_FLIGHT) blocks are on their way.
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

    /// Waits for the blocks that are left: the sums, row by row; of [symmetric](Self::symmetric) blocks the lower triangle alone.
    ///
    /// # Errors
    /// What the device reports.
    pub fn into_sums(mut self, device: &Device) -> Result<Vec<f64>> {
        self.wait(device)?;
        Ok(self.rows().flat_map(|row| &self.total.data()[row]).copied().collect())
    }

    /// Sets the sums to those that [`into_sums`](Self::into_sums) gave elsewhere. To be called before blocks are added.
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

    /// Waits for the blocks that are left: the sum, (rows, cols); of [symmetric](Self::symmetric) blocks with both triangles.
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
