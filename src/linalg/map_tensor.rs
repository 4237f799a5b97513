//! A resident matrix as a map.

use super::{
    gram::BlockSum,
    map::{LinearMap, Pass},
    matmul::{Op, multiply},
    matrix::Matrix,
    rows::Rows,
};
use crate::{Device, Element, Error, InF32, Result, Tensor, extent::blocks};

/// Rows of one canonical block.
pub(crate) const BLOCK: u64 = 1024;
/// Terms of one sum in f32: singular values of constant columns are then right to 5e-6.
pub(crate) const DEPTH: u64 = 256;

/// Products in f32 over blocks of 1,024 rows, added up on the device ([`BlockSum`]); of other types than these after [`to_f32`](Tensor::to_f32).
///
/// # Accuracy
/// |error| of `apply_normal` is about 1e-7 |A|² |X|, so singular values below 1e-3 of the largest need
/// [`truncated_svd`](super::truncated_svd). Elements should lie between 1e-15 and 1e15: products of four of them are
/// formed in f32.
///
/// # Cost
/// Three launches per block and pass, and one download of (n, l) at its end, for which it waits.
impl<T: InF32> LinearMap for Tensor<T> {
    fn shape(&self) -> [u64; 2] {
        match *Self::shape(self) {
            [m, n] => [m, n],
            // Not a matrix: every product says so.
            _ => [self.len(), 1],
        }
    }

    fn device(&self) -> Option<&Device> {
        Some(Self::device(self))
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        let op = "Tensor::apply_normal";
        let [_, n] = self.matrix(op)?;
        let x = upload(op, self.device(), x, n)?;
        let mut sum = BlockSum::new(self.device(), n, x.shape()[1])?;
        add_normal(op, self, &x, &mut sum, &mut |rows| pass.tell(rows))?;
        sum.finish()
    }

    fn apply(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
    ) -> Result<()> {
        let op = "Tensor::apply";
        let [m, n] = self.matrix(op)?;
        let x = upload(op, self.device(), x, n)?;
        for rows in blocks(m, 4096) {
            let y = product(op, &*self.rows(rows.clone())?, &x)?;
            sink(rows.start, &Matrix::from_tensor(&y)?)?;
            pass.tell(rows.end)?;
        }
        Ok(())
    }
}

/// Adds `Aᵀ (A X)` of some rows, whole canonical blocks unless they are the last; tells after each block how many rows are enqueued.
pub(crate) fn add_normal<T: Element>(
    op: &'static str,
    a: &Tensor<T>,
    x: &Tensor<f32>,
    sum: &mut BlockSum,
    tell: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let ([m, n], l) = (a.matrix(op)?, x.shape()[1]);
    // Memory of all blocks: nothing waits for one before the next.
    let mut y = Tensor::<f32>::empty(a.device(), &[m.min(BLOCK), l])?;
    let mut image = Tensor::empty(a.device(), &[n, l])?;
    for rows in blocks(m, BLOCK) {
        let (end, count) = (rows.end, rows.end - rows.start);
        let block = Rows::new(a, rows);
        a.device().in_a_row(|| {
            multiply(op, Op::Nn, block, Rows::new(x, 0..n), DEPTH, &mut y)?;
            multiply(op, Op::Tn, block, Rows::new(&y, 0..count), DEPTH, &mut image)?;
            sum.enqueue(&image)
        })?;
        tell(end)?;
    }
    Ok(())
}

/// `A X` of some rows.
pub(crate) fn product<T: Element>(op: &'static str, a: &Tensor<T>, x: &Tensor<f32>) -> Result<Tensor<f32>> {
    let mut y = Tensor::empty(a.device(), &[a.matrix(op)?[0], x.shape()[1]])?;
    multiply(op, Op::Nn, Rows::all(op, a)?, Rows::all(op, x)?, DEPTH, &mut y)?;
    Ok(y)
}

/// X in f32 on a device.
pub(crate) fn upload(op: &'static str, device: &Device, x: &Matrix, n: u64) -> Result<Tensor<f32>> {
    if x.rows() as u64 != n {
        return Err(Error::shape(op, format_args!("{n} rows"), format_args!("({}, {})", x.rows(), x.cols())));
    }
    x.to_tensor(device)
}
