//! Sums of blocks, and the Gram matrix of a tall matrix.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    matmul::{Op, Product},
    matrix::Matrix,
    rows::Rows,
};
use crate::{
    Device, Element, Error, Needs, Real, Result, Tensor,
    array::{self, elementwise::converted},
    dtype::{halves, joined},
    extent::blocks,
    extent::to_usize,
    kernel::{Grid, small},
    kernels::{
        WG, WG_ALONE,
        add_block::{ADD_BLOCK, Params},
    },
    tensor::Pending,
};

/// A sum of blocks on their device, in the order in which they are added.
///
/// # Accuracy
/// Sums are of f64 where the device [computes in it](crate::Limits::f64). Elsewhere a sum is an f32 and what that leaves, another one: each
/// addition is off by 2^-47 of the sum at most, or by 2^-126 where the device takes f32 below that for 0; a sum beyond 3.4e38 is infinite.
///
/// # Cost
/// On the device 8 bytes an element, and the blocks that it is yet to add: [`needs`](Self::needs). One download, at the end;
/// on the host 16 bytes an element then.
///
/// ```
/// use teatime::{Device, Tensor, linalg::{BlockSum, SignRule, gram_lower, gram_svd}};
///
/// let device = Device::best()?;
/// // AᵀA of a matrix of two columns that comes in blocks of two rows, and the singular values of A.
/// let mut sum = BlockSum::symmetric(&device, 2)?;
/// for block in [[3.0f32, 0.0, 0.0, 4.0], [0.0, 0.0, 0.0, 3.0]] {
///     sum.add(&gram_lower(&Tensor::from_slice(&device, &block, &[2, 2])?)?)?;
/// }
/// let svd = gram_svd(&sum.finish()?, 2, SignRule::Stable, &device)?;
/// assert!((svd.s[0] - 5.0).abs() < 1e-6 && (svd.s[1] - 3.0).abs() < 1e-6);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct BlockSum {
    /// Two numbers for each sum, as [`joined`] takes them.
    sums: Tensor<f32>,
    shape: [u64; 2],
    lower: bool,
    /// The first sum once the last block is added.
    pending: Option<Pending<f32>>,
}

impl BlockSum {
    /// Zeros, for blocks (rows, cols) on a device.
    ///
    /// # Errors
    /// [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
    pub fn new(device: &Device, rows: u64, cols: u64) -> Result<Self> {
        let sums = Tensor::zeros(device, &[rows.saturating_mul(cols), 2])?;
        Ok(Self { sums, shape: [rows, cols], lower: false, pending: None })
    }

    /// Zeros, for symmetric blocks (n, n), of which only the lower triangles are added.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn symmetric(device: &Device, n: u64) -> Result<Self> {
        Ok(Self { lower: true, ..Self::new(device, n, n)? })
    }

    /// The memory on the device: the sums (rows, cols), the block that is added last, and the one that is made next.
    pub fn needs(rows: u64, cols: u64) -> Needs {
        Needs::device(8 + 2 * 4) * rows * cols
    }

    /// Adds a block, which may be dropped at once. Enqueues, and waits until the block before is added, so that a device never holds more than
    /// two of them.
    ///
    /// # Errors
    /// [`Error::Shape`] for a block of another shape; [`Error::WrongDevice`]; [`Error::Limit`] when a row of sums does not fit a binding;
    /// what the device reports.
    pub fn add(&mut self, block: &Tensor<f32>) -> Result<()> {
        self.enqueue(block)?;
        let first = self.sums.rows(0..self.sums.shape()[0].min(1))?.download()?;
        self.pending.replace(first).map_or(Ok(()), |before| before.wait().map(drop))
    }

    /// [`add`](Self::add) of a block whose memory holds the next one too: never waits.
    pub(crate) fn enqueue<R: Real>(&mut self, block: &Tensor<R>) -> Result<()> {
        let (op, [rows, cols]) = ("BlockSum::add", self.shape);
        if block.shape() != self.shape {
            return Err(Error::shape(
                op,
                format_args!("{:?}", self.shape),
                format_args!("{:?}", block.shape()),
            ));
        }
        let device = block.device();
        device.has(op, "block", self.sums.device())?;
        if block.is_empty() {
            return Ok(());
        }
        let limits = device.limits();
        for rows in blocks(rows, limits.rows_per_launch(2 * cols, WG)?) {
            let [first, end] = [rows.start * cols, rows.end * cols];
            let (block, sums) = (block.window(first..end), self.sums.window_update(2 * first..2 * end));
            let params = Params {
                rows: small(rows.end - rows.start),
                cols: small(cols),
                block0: block.start,
                sums0: sums.start / 2,
                lower: self.lower.into(),
                row0: small(rows.start),
                zero: 0,
            };
            let items = end - first;
            let grid = Grid::linear(items.div_ceil(WG.into()), limits.groups_per_axis, items)?;
            device.launch(&ADD_BLOCK, &WG_ALONE, grid, &[block.arg, sums.arg], &params)?;
        }
        Ok(())
    }

    /// Elements of each row that are sums.
    fn rows(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let ([rows, cols], lower) = (self.shape.map(to_usize), self.lower);
        (0..rows).map(move |i| i * cols..i * cols + if lower { i + 1 } else { cols })
    }

    /// Waits: all elements.
    fn values(self) -> Result<Vec<f64>> {
        let device = self.sums.device().clone();
        let (sums, in_f64) = (self.sums.into_values()?, device.limits().f64);
        let pairs = sums.as_chunks().0;
        Ok(device.pool()?.install(|| pairs.par_iter().map(|pair| joined(pair, in_f64)).collect()))
    }

    /// Waits: the sums, row by row; of [symmetric](Self::symmetric) blocks the lower triangle alone.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub fn into_sums(self) -> Result<Vec<f64>> {
        let (rows, values) = (self.rows(), self.values()?);
        Ok(rows.flat_map(|row| &values[row]).copied().collect())
    }

    /// Sets the sums to those that [`into_sums`](Self::into_sums) gave elsewhere; without f64, to the nearest pairs of f32 (2^-48). To be
    /// called before blocks are added.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number; what the device reports.
    pub fn set_sums(&mut self, mut sums: &[f64]) -> Result<()> {
        let expected: usize = self.rows().map(|row| row.len()).sum();
        if sums.len() != expected {
            let got = format_args!("{}", sums.len());
            return Err(Error::shape("sums", format_args!("{expected} of them"), got));
        }
        let in_f64 = self.sums.device().limits().f64;
        let mut values = vec![0.0; to_usize(self.sums.len())];
        for row in self.rows() {
            let own;
            (own, sums) = sums.split_at(row.len());
            for (pair, sum) in values.as_chunks_mut().0[row].iter_mut().zip(own) {
                *pair = halves(*sum, in_f64);
            }
        }
        self.sums.write(&values)
    }

    /// Waits: the sum, (rows, cols); of [symmetric](Self::symmetric) blocks with both triangles.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub fn finish(self) -> Result<Matrix> {
        let ([rows, cols], lower) = (self.shape.map(to_usize), self.lower);
        let mut sum = Matrix::from_vec(self.values()?, rows, cols)?;
        if lower {
            sum.mirror_lower();
        }
        Ok(sum)
    }
}

/// The sum of `aᵀ b` over the rows of a and b, some rows at a time, on their device: of f32 a [`BlockSum`] of products, of f64 in f64.
#[derive(Debug)]
pub(crate) struct InnerSum<R: Real> {
    op: &'static str,
    /// The product of the rows that are added last; of f64 the sum.
    block: Tensor<R>,
    /// The sum of blocks of f32.
    sum: Option<BlockSum>,
    lower: bool,
    /// The maximum number of terms of a sum in f32 before it is added to others.
    depth: u64,
}

impl<R: Real> InnerSum<R> {
    /// A sum (rows, cols); if `lower`, of `aᵀ a`, of which it makes the lower triangle.
    pub(crate) fn new(
        op: &'static str,
        device: &Device,
        [rows, cols]: [u64; 2],
        lower: bool,
        depth: u64,
    ) -> Result<Self> {
        device.computes::<R>(op)?;
        let (shape, is_wide) = ([rows, cols], R::DTYPE.is_wide());
        let block = if is_wide { Tensor::zeros(device, &shape)? } else { Tensor::empty(device, &shape)? };
        let sum = if is_wide { None } else { Some(BlockSum { lower, ..BlockSum::new(device, rows, cols)? }) };
        // A sum of so many equal numbers is right to 2e-13 in f64, in whatever order a device takes them.
        let depth = if is_wide { 4096 } else { depth };
        Ok(Self { op, block, sum, lower, depth })
    }

    /// Adds the product of as many rows of a and of b. Enqueues.
    pub(crate) fn add<A: Element, B: Element>(&mut self, a: Rows<'_, A>, b: Rows<'_, B>) -> Result<()> {
        let Self { op, block, sum, lower, depth } = self;
        let (name, accumulate) = (*op, sum.is_none());
        Product { name, op: Op::Tn, a, b, lower: *lower, accumulate, depth: *depth }.run(block)?;
        sum.as_mut().map_or(Ok(()), |sum| sum.enqueue(block))
    }

    /// The sum, in the type of the products. Enqueues.
    pub(crate) fn into_tensor(self) -> Result<Tensor<R>> {
        let Some(BlockSum { sums, shape, .. }) = self.sum else { return Ok(self.block) };
        let rounded = match sums.device().limits().f64 {
            true => converted::<R, f64>(self.op, &sums.into_elements(&shape))?,
            // Each sum is the two numbers of a pair.
            false => array::sum(&sums, 1)?.cast(),
        };
        rounded.reshape(&shape)
    }

    /// The sum in f64, on a device that computes in it. Waits unless that is the sum's own.
    pub(crate) fn into_f64(self, device: &Device) -> Result<Tensor<f64>> {
        let own = self.block.device();
        if !own.is_same(device) || !own.limits().f64 {
            return self.finish()?.to_real(device);
        }
        match self.sum {
            Some(BlockSum { sums, shape, .. }) => Ok(sums.into_elements(&shape)),
            None => Ok(self.block.cast()),
        }
    }

    /// Waits: the sum.
    pub(crate) fn finish(self) -> Result<Matrix> {
        match self.sum {
            Some(sum) => sum.finish(),
            None => {
                let mut sum = Matrix::from_tensor(&self.block)?;
                if self.lower {
                    sum.mirror_lower();
                }
                Ok(sum)
            }
        }
    }
}

/// Terms of one sum in f32 where orthogonality to 1e-6 depends on it.
const DEPTH: u64 = 64;

/// `xᵀ x` for x (m, n): of f32 to about 1e-6 of |x|ᵀ|x|, of f64 in f64. Waits.
///
/// Sums of f32 are in f32 over 64 rows, blocks of which are added in f32 up to 256 to 1,024 rows, and over those by [`BlockSum`].
pub(crate) fn gram<R: Real>(x: &Tensor<R>) -> Result<Matrix> {
    let ([m, n], device) = (x.matrix("gram")?, x.device());
    let mut sum = InnerSum::<R>::new("gram", device, [n, n], true, DEPTH)?;
    let step = if R::DTYPE.is_wide() { u64::MAX } else { n.min(2048).next_power_of_two().max(512) / 2 };
    device.in_a_row(|| {
        blocks(m, step).try_for_each(|rows| {
            let rows = Rows::new(x, rows);
            sum.add(rows, rows)
        })
    })?;
    sum.finish()
}
