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
    extent::{blocks, to_usize},
    kernel::{Grid, small},
    kernels::{
        WG, WG_ALONE,
        add_block::{ADD_BLOCK, Params},
        matmul::TILE,
    },
    tensor::Pending,
};

/// A sum of blocks on a device, which adds the blocks in the order in which they are given.
///
/// # Accuracy
/// Sums are in f64 if the device [computes in f64](crate::Limits::f64). Otherwise each sum is a pair of f32, the rounded sum and its
/// remainder. Each addition is then off by at most 2^-47 of the sum, or by 2^-126 if the device flushes subnormal f32 to 0. A sum beyond
/// 3.4e38 becomes infinite.
///
/// # Cost
/// The sums take 8 bytes an element on the device, in addition to the blocks that are still to be added: [`needs`](Self::needs). There is one
/// download at the end, which takes 16 bytes an element on the host.
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
    /// Two f32 words for each sum, in the form that [`joined`] reads.
    sums: Tensor<f32>,
    shape: [u64; 2],
    lower: bool,
    /// A download of one sum, which ends once the last block is added.
    pending: Option<Pending<f32>>,
}

impl BlockSum {
    /// Creates a sum of zeros for blocks (rows, cols) on `device`.
    ///
    /// # Errors
    /// [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
    pub fn new(device: &Device, rows: u64, cols: u64) -> Result<Self> {
        let sums = Tensor::zeros(device, &[rows.saturating_mul(cols), 2])?;
        Ok(Self { sums, shape: [rows, cols], lower: false, pending: None })
    }

    /// Creates a sum of zeros for symmetric blocks (n, n), of which only the lower triangles are added.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn symmetric(device: &Device, n: u64) -> Result<Self> {
        Ok(Self { lower: true, ..Self::new(device, n, n)? })
    }

    /// Returns the device memory of the sums (rows, cols), of the block that is added last, and of the block that is made next.
    pub fn needs(rows: u64, cols: u64) -> Needs {
        Needs::device(8 + 2 * 4) * rows * cols
    }

    /// Adds `block`, which may be dropped at once. Enqueues, and waits until the previous block is added, so that a device never holds more
    /// than two blocks.
    ///
    /// # Errors
    /// [`Error::Shape`] for a block of another shape; [`Error::WrongDevice`]; [`Error::Limit`] when a row of sums does not fit a binding; any
    /// error that the device reports.
    pub fn add(&mut self, block: &Tensor<f32>) -> Result<()> {
        let op = "BlockSum::add";
        if block.shape() != self.shape {
            let [expected, got] = [&self.shape[..], block.shape()].map(|shape| format!("{shape:?}"));
            return Err(Error::shape(op, expected, got));
        }
        block.device().has(op, "block", self.sums.device())?;
        self.enqueue(block, 1)?;
        let first = self.sums.rows(0..self.sums.shape()[0].min(1))?.download()?;
        self.pending.replace(first).map_or(Ok(()), |before| before.wait().map(drop))
    }

    /// Adds the first `count` blocks of a tensor (blocks, rows, cols), which fit a binding. Never waits: later blocks may reuse its memory.
    fn enqueue<R: Real>(&mut self, tensor: &Tensor<R>, count: u64) -> Result<()> {
        let ([rows, cols], device) = (self.shape, self.sums.device().clone());
        if rows * cols == 0 {
            return Ok(());
        }
        let limits = device.limits();
        for rows in blocks(rows, limits.rows_per_launch(2 * cols, WG)?) {
            let ([first, end], step) = ([rows.start * cols, rows.end * cols], self.shape[0] * cols);
            let block = tensor.window(first..(count - 1) * step + end);
            let sums = self.sums.window_update(2 * first..2 * end);
            let params = Params {
                rows: small(rows.end - rows.start),
                cols: small(cols),
                blocks: small(count),
                step: small(step),
                block0: block.start,
                sums0: sums.start / 2,
                lower: self.lower.into(),
                row0: small(rows.start),
                zero: 0,
            };
            let items = end - first;
            let grid = Grid::linear(items.div_ceil(WG.into()), limits.groups_per_axis, items * count)?;
            device.launch(&ADD_BLOCK, &WG_ALONE, grid, &[block.arg, sums.arg], &params)?;
        }
        Ok(())
    }

    /// Returns for each row the range of elements that hold sums.
    fn rows(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let ([rows, cols], lower) = (self.shape.map(to_usize), self.lower);
        (0..rows).map(move |i| i * cols..i * cols + if lower { i + 1 } else { cols })
    }

    /// Waits, and returns all elements.
    fn values(self) -> Result<Vec<f64>> {
        let device = self.sums.device().clone();
        let (sums, in_f64) = (self.sums.into_values()?, device.limits().f64);
        let pairs = sums.as_chunks().0;
        Ok(device.pool()?.install(|| pairs.par_iter().map(|pair| joined(pair, in_f64)).collect()))
    }

    /// Waits, and returns the sums row by row; for [symmetric](Self::symmetric) blocks, only the lower triangle.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub fn into_sums(self) -> Result<Vec<f64>> {
        let (rows, values) = (self.rows(), self.values()?);
        Ok(rows.flat_map(|row| &values[row]).copied().collect())
    }

    /// Replaces the sums by sums that [`into_sums`](Self::into_sums) returned elsewhere. Without f64, each sum becomes the nearest pair of
    /// f32 (2^-48). Must be called before blocks are added.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of sums; any error that the device reports.
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

    /// Waits, and returns the sum (rows, cols); for [symmetric](Self::symmetric) blocks, both triangles.
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

/// The maximum number of elements, and of rows and of columns, of a product for which several products are computed at once.
const MOST_ELEMENTS: u64 = 1 << 20;
const LONGEST: u64 = 1 << 14;
/// The maximum number of bytes of such products, and their maximum number.
const PRODUCT_BYTES: u64 = 8 << 20;
const MOST_PRODUCTS: u64 = 8192;

/// The sum of `aᵀ b` over rows of a and b, added some at a time on their device: a [`BlockSum`] of products for f32, for f64 in f64.
#[derive(Debug)]
pub(crate) struct InnerSum<R: Real> {
    op: &'static str,
    /// The products of the last rows (products, rows, cols) for f32; the sum for f64.
    block: Tensor<R>,
    /// The sum of the products for f32; None for f64.
    sum: Option<BlockSum>,
    lower: bool,
    rule: InnerRule,
}

/// The rule by which rows are divided among products. All but the number of `products` depend on the device and the extents of a product alone.
#[derive(Clone, Copy, Debug)]
struct InnerRule {
    /// The maximum number of terms of one sum in f32, before it is added to other sums.
    depth: u64,
    /// The number of rows of one product.
    rows: u64,
    /// True if several products are computed by one launch, each in sums of at most `depth` terms.
    is_thin: bool,
    /// The maximum number of products that are computed at once, which changes no result.
    products: u64,
}

impl InnerRule {
    /// Returns the rule for a product (rows, cols). Thin products, of no more elements than their operands, are of `depth` rows each, and
    /// several are computed at once. Other products are of `step` rows.
    fn new<R: Real>(device: &Device, [rows, cols]: [u64; 2], [depth, step, count]: [u64; 3]) -> Self {
        if R::DTYPE.is_wide() {
            // A sum of this many equal terms is right to 2e-13 in f64, in whatever order a device adds them.
            return Self { depth: 4096, rows: step, is_thin: false, products: 1 };
        }
        let (limits, elements) = (device.limits(), rows.saturating_mul(cols).max(1));
        let is_thin = elements <= MOST_ELEMENTS.min(depth.saturating_mul(rows + cols));
        let most = limits.room().min(PRODUCT_BYTES) / (4 * elements);
        let longest = rows.max(cols);
        let grid = LONGEST.min(u64::from(limits.groups_per_axis) * u64::from(TILE));
        let fits = most > 0 && longest <= grid && 4 * depth * longest <= limits.room();
        if is_thin && fits {
            let products = most.min(MOST_PRODUCTS).min(count.div_ceil(depth)).max(1);
            Self { depth, rows: depth, is_thin, products }
        } else {
            Self { depth, rows: step, is_thin: false, products: 1 }
        }
    }
}

impl<R: Real> InnerSum<R> {
    /// Creates a sum (rows, cols), to which at most `count` rows are added at a time. With `lower`, it is a sum of `aᵀ a`, of which only the
    /// lower triangle is computed. Sums in f32 have at most `depth` terms. If the product is not thin, the sums of `step` rows are also in f32.
    pub(crate) fn new(
        op: &'static str,
        device: &Device,
        shape: [u64; 2],
        lower: bool,
        [depth, step, count]: [u64; 3],
    ) -> Result<Self> {
        device.computes::<R>(op)?;
        let rule = InnerRule::new::<R>(device, shape, [depth, step, count]);
        let [rows, cols] = shape;
        let (block, sum) = if R::DTYPE.is_wide() {
            (Tensor::zeros(device, &shape)?, None)
        } else {
            let sum = BlockSum { lower, ..BlockSum::new(device, rows, cols)? };
            (Tensor::empty(device, &[rule.products, rows, cols])?, Some(sum))
        };
        Ok(Self { op, block, sum, lower, rule })
    }

    /// Returns the device memory of a sum. `cut` has the last three arguments of [`new`](Self::new).
    pub(crate) fn needs(device: &Device, [rows, cols]: [u64; 2], cut: [u64; 3]) -> Needs {
        let bytes = match R::DTYPE.is_wide() {
            true => 8,
            false => 8 + 4 * InnerRule::new::<R>(device, [rows, cols], cut).products,
        };
        Needs::device(bytes) * rows * cols
    }

    /// Adds the product of some rows of a and the same number of rows of b: a multiple of `step` rows, except for the last. Enqueues.
    pub(crate) fn add<A: Element, B: Element>(&mut self, a: Rows<'_, A>, b: Rows<'_, B>) -> Result<()> {
        let Self { op, block, sum, lower, rule } = self;
        let accumulate = sum.is_none();
        for rows in blocks(a.count, rule.rows.saturating_mul(rule.products)) {
            let (a, b) = (a.part(rows.clone()), b.part(rows.clone()));
            let product = Product::new(op, Op::Tn, a, b);
            let product = Product { lower: *lower, accumulate, depth: rule.depth, ..product };
            if rule.is_thin {
                product.run_parts(block)?;
            } else {
                product.run(block)?;
            }
            if let Some(sum) = sum {
                sum.enqueue(block, (rows.end - rows.start).div_ceil(rule.rows))?;
            }
        }
        Ok(())
    }

    /// Returns the sum, in the type of the products. Enqueues.
    pub(crate) fn into_tensor(self) -> Result<Tensor<R>> {
        let Some(BlockSum { sums, shape, .. }) = self.sum else { return Ok(self.block) };
        let rounded = match sums.device().limits().f64 {
            true => converted::<R, f64>(self.op, &sums.into_elements(&shape))?,
            // Each sum is the total of the two f32 of its pair.
            false => array::sum(&sums, 1)?.cast(),
        };
        rounded.reshape(&shape)
    }

    /// Returns the sum in f64 on `device`, which computes in f64. Waits unless the sum is already on `device`.
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

    /// Waits, and returns the sum.
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

/// The maximum number of terms of one sum in f32, if orthogonality to 1e-6 depends on the sum.
const DEPTH: u64 = 64;

/// Returns `xᵀ x` for x (m, n): for f32 to about 1e-6 of |x|ᵀ|x|, for f64 in f64. Waits.
/// For f32, sums over 64 rows are in f32, and for more than 128 columns so are sums of these up to 256 to 1,024 rows; a [`BlockSum`] adds up
/// the results.
pub(crate) fn gram<R: Real>(x: &Tensor<R>) -> Result<Matrix> {
    let ([m, n], device) = (x.matrix("gram")?, x.device());
    let step = if R::DTYPE.is_wide() { u64::MAX } else { n.min(2048).next_power_of_two().max(512) / 2 };
    let mut sum = InnerSum::<R>::new("gram", device, [n, n], true, [DEPTH, step, m])?;
    let rows = Rows::new(x, 0..m);
    device.in_a_row(|| sum.add(rows, rows))?;
    sum.finish()
}
