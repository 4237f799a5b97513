//! A resident matrix as a linear map.

use std::ops::Range;

use super::{
    gram::InnerSum,
    map::{LinearMap, Pass, RowSink},
    matmul::{Op, Product},
    matrix::Matrix,
    rows::Rows,
    transpose::transpose,
};
use crate::{
    Device, Element, Error, Needs, Real, Result, Tensor, TensorView,
    array::elementwise::converted,
    extent::{blocks, to_usize},
    kernels::matmul::TILE,
    tensor::Pending,
};

/// The number of rows of one canonical block, the same on every device, since results depend on it.
pub(crate) const BLOCK: u64 = 1024;
/// The maximum number of terms of one sum in f32. Singular values of constant columns are then right to 5e-6.
pub(crate) const DEPTH: u64 = 256;

/// Multiplies blocks of 1,024 rows. For f32, a [`BlockSum`](super::BlockSum) adds up the products on the device. For f64, `u32` and `i32`,
/// products and sums are in f64.
///
/// # Accuracy
/// |error| of `apply_normal` is about 1e-7 |A|² |X|, so singular values below 1e-3 of the largest need
/// [`truncated_svd`](super::truncated_svd). Elements should lie between 1e-15 and 1e15, since products of four elements are formed in f32.
///
/// In f64 the error is about 2e-16 (1 + m / 4,096) |A|² |X|. For short matrices, values down to 6e-8 of the largest are found. Elements
/// should lie between 1e-75 and 1e75.
///
/// # Cost
/// A pass takes a few launches per block, or for as many blocks as fill a wgpu device, and one download of (n, l) at its end, for which it waits.
/// [`apply_normal_rows`](LinearMap::apply_normal_rows) downloads nothing if the device computes in f64. In f64, elements of another type are
/// copied, one block at a time.
///
/// # Errors
/// [`Error::NoF64`] for f64, `u32` and `i32` on a device that does not [compute in f64](crate::Limits::f64). Call [`Tensor::to_f32`] first to
/// compute in f32.
impl<T: Element> LinearMap for Tensor<T> {
    fn shape(&self) -> [u64; 2] {
        match *Self::shape(self) {
            [m, n] => [m, n],
            // The tensor is not a matrix, and every product reports that.
            _ => [self.len(), 1],
        }
    }

    fn device(&self) -> Option<&Device> {
        Some(Self::device(self))
    }

    fn precision(&self) -> f64 {
        precision::<T::Real>(LinearMap::shape(self)[0])
    }

    fn keeps_vectors_on(&self) -> Option<&Device> {
        Some(Self::device(self))
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        let op = "Tensor::apply_normal";
        let x = transpose(&upload::<T::Real>(op, self.device(), x, self.matrix(op)?[1])?)?;
        let mut sum = normal_sum(op, &x, LinearMap::shape(self)[0])?;
        add_normal(op, self, &x, &mut sum, &mut |rows, _| pass.tell(rows.end))?;
        Ok(sum.finish()?.transposed())
    }

    fn apply_normal_rows(&self, x: &Tensor<f64>, pass: &Pass<'_>) -> Result<Tensor<f64>> {
        let (op, home) = ("Tensor::apply_normal", x.device());
        let x = rows_on::<T::Real>(op, self.device(), x)?;
        let mut sum = normal_sum(op, &x, LinearMap::shape(self)[0])?;
        add_normal(op, self, &x, &mut sum, &mut |rows, _| pass.tell(rows.end))?;
        sum.into_f64(home)
    }

    fn apply_both(
        &self,
        x: &Tensor<f64>,
        pass: &Pass<'_>,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tensor<f64>>> {
        let (op, home) = ("Tensor::apply_both", x.device());
        let x = rows_on::<T::Real>(op, self.device(), x)?;
        let (mut sum, mut given) = (normal_sum(op, &x, LinearMap::shape(self)[0])?, OnTheWay::new(sink));
        add_normal(op, self, &x, &mut sum, &mut |rows, y| {
            given.add(rows.start, y)?;
            pass.tell(rows.end)
        })?;
        given.finish()?;
        Ok(Some(sum.into_f64(home)?))
    }

    fn apply(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
        let op = "Tensor::apply";
        let [m, n] = self.matrix(op)?;
        let x = upload::<T::Real>(op, self.device(), x, n)?;
        for rows in blocks(m, 4096) {
            let y = product(op, &*self.rows(rows.clone())?, &x)?;
            sink(rows.start, &Matrix::from_tensor(&y)?)?;
            pass.tell(rows.end)?;
        }
        Ok(())
    }
}

/// Returns the rounding error of products with a matrix of `m` rows.
pub(crate) fn precision<R: Real>(m: u64) -> f64 {
    // Sums over 1,024 rows of f64 are added one after the other.
    let rows = if R::DTYPE.is_wide() { m as f64 } else { 0.0 };
    R::EPSILON * (1.0 + rows / 4096.0)
}

/// The memory for a column of rows on their way: two blocks in f32, and one in f64.
pub(super) const ON_THE_WAY: Needs = Needs::host(16 * BLOCK);

/// Rows of `A X` on their way from the device to a sink. The next rows are copied while the sink takes these.
#[allow(missing_debug_implementations, reason = "a function has none")]
pub(crate) struct OnTheWay<'a, 's, R: Real> {
    sink: &'a mut RowSink<'s>,
    pending: Option<(u64, [usize; 2], Pending<R>)>,
}

impl<'a, 's, R: Real> OnTheWay<'a, 's, R> {
    pub(crate) fn new(sink: &'a mut RowSink<'s>) -> Self {
        Self { sink, pending: None }
    }

    /// Starts the download of the rows from `first` on, and gives the rows before them to the sink.
    pub(crate) fn add(&mut self, first: u64, y: &Tensor<R>) -> Result<()> {
        let next = (first, y.matrix("apply_both")?.map(to_usize), y.download()?);
        let before = self.pending.replace(next);
        self.give(before)
    }

    /// Gives the last rows to the sink.
    pub(crate) fn finish(mut self) -> Result<()> {
        let last = self.pending.take();
        self.give(last)
    }

    fn give(&mut self, rows: Option<(u64, [usize; 2], Pending<R>)>) -> Result<()> {
        let Some((first, [count, cols], values)) = rows else { return Ok(()) };
        let values = values.wait()?.into_iter().map(R::to_f64).collect();
        (self.sink)(first, &Matrix::from_vec(values, count, cols)?)
    }
}

/// Returns the maximum number of terms of one sum.
const fn depth<R: Real>() -> u64 {
    if R::DTYPE.is_wide() { u64::MAX } else { DEPTH }
}

/// Returns the sum of products for Xᵀ (l, n), to which at most `count` rows are added at a time. It is transposed, since its long rows fill
/// register tiles that narrow columns would leave half empty.
pub(crate) fn normal_sum<R: Real>(op: &'static str, x: &Tensor<R>, count: u64) -> Result<InnerSum<R>> {
    InnerSum::new(op, x.device(), x.matrix(op)?, false, sum_cut(x.device(), count))
}

/// Returns the terms of a sum in f32, the rows of a block, and the rows at a time of [`normal_sum`].
pub(crate) fn sum_cut(device: &Device, count: u64) -> [u64; 3] {
    [DEPTH, BLOCK, count.min(at_once::<f32>(device))]
}

/// Returns the number of rows that are multiplied at once: whole canonical blocks, as many as fill the device with tiles of a thin product; or
/// one block, where sums depend on the number of rows.
fn at_once<R: Real>(device: &Device) -> u64 {
    let limits = device.limits();
    let fills = !R::DTYPE.is_wide() && limits.same_sums;
    if fills { (u64::from(limits.fill) * u64::from(TILE)).next_multiple_of(BLOCK) } else { BLOCK }
}

/// A function that takes the rows of a canonical block, and these rows of `A X`.
pub(crate) type EachBlock<'a, R> = dyn FnMut(Range<u64>, &Tensor<R>) -> Result<()> + 'a;

/// Adds `(Aᵀ (A X))ᵀ` for some rows of A, given Xᵀ. The rows are whole canonical blocks, except for the last block. Calls `each` for each
/// block once it is enqueued, with its rows and these rows of `A X`, whose memory later blocks use again.
pub(crate) fn add_normal<T: Element>(
    op: &'static str,
    a: &Tensor<T>,
    x: &Tensor<T::Real>,
    sum: &mut InnerSum<T::Real>,
    each: &mut EachBlock<'_, T::Real>,
) -> Result<()> {
    let ([m, _], l) = (a.matrix(op)?, x.shape()[0]);
    let count = at_once::<T::Real>(a.device());
    // All blocks share this memory, so that nothing waits between two blocks.
    let mut y = Tensor::<T::Real>::empty(a.device(), &[m.min(count), l])?;
    for rows in blocks(m, count) {
        a.device().in_a_row(|| {
            if T::DTYPE.is_wide() {
                let block = a.rows(rows.clone())?;
                add_block(op, Rows::from_tensor(op, &*block.in_f64()?)?, x, &mut y, sum)
            } else {
                add_block(op, Rows::new(a, rows.clone()), x, &mut y, sum)
            }
        })?;
        for block in blocks(rows.end - rows.start, BLOCK) {
            each(rows.start + block.start..rows.start + block.end, &*y.rows(block)?)?;
        }
    }
    Ok(())
}

/// Does the work of [`add_normal`] for rows that are multiplied at once. The product is written to the first rows of `y`.
fn add_block<A: Element, R: Real>(
    op: &'static str,
    block: Rows<'_, A>,
    x: &Tensor<R>,
    y: &mut Tensor<R>,
    sum: &mut InnerSum<R>,
) -> Result<()> {
    let product = Product::new(op, Op::Nt, block, Rows::from_tensor(op, x)?);
    Product { depth: depth::<R>(), ..product }.run(y)?;
    sum.add(Rows::new(y, 0..block.count), block)
}

/// Returns `A X` for some rows of A.
pub(crate) fn product<T: Element>(
    op: &'static str,
    a: &Tensor<T>,
    x: &Tensor<T::Real>,
) -> Result<Tensor<T::Real>> {
    let mut y = Tensor::empty(a.device(), &[a.matrix(op)?[0], x.shape()[1]])?;
    let depth = depth::<T::Real>();
    if T::DTYPE.is_wide() {
        Product { depth, ..Product::of_tensors(op, Op::Nn, &*a.in_f64()?, x)? }.run(&mut y)?;
    } else {
        Product { depth, ..Product::of_tensors(op, Op::Nn, a, x)? }.run(&mut y)?;
    }
    Ok(y)
}

/// Copies X to a device, in f32 or f64.
pub(crate) fn upload<R: Real>(op: &'static str, device: &Device, x: &Matrix, n: u64) -> Result<Tensor<R>> {
    device.computes::<R>(op)?;
    if x.rows() as u64 != n {
        return Err(Error::shape(op, format_args!("{n} rows"), format_args!("({}, {})", x.rows(), x.cols())));
    }
    x.to_real(device)
}

/// Returns the vectors on a device, in f32 or f64.
pub(crate) fn rows_on<'a, R: Real>(
    op: &'static str,
    device: &Device,
    x: &'a Tensor<f64>,
) -> Result<TensorView<'a, R>> {
    let is_there = x.device().is_same(device);
    if R::DTYPE.is_wide() && is_there {
        return Ok(x.view().cast());
    }
    let x = converted::<R, f64>(op, x)?;
    Ok(TensorView::new(if is_there { x } else { x.to_device(device)? }))
}
